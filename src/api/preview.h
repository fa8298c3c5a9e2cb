/* SPDX-License-Identifier: Apache-2.0 */
/* preview.h: what passes between a client and a program in a sandbox (preview_head.c), for preview.c only. */
#ifndef BRIG_API_PREVIEW_H
#define BRIG_API_PREVIEW_H

#include "base/buf.h"
#include "codec/http.h"

#define PREVIEW_HEAD_MAX (64u << 10)
#define PREVIEW_COOKIE "brig_token" /* in the query too */

/* Whether a field of this head is the other side's business: not one of the connection, and not one that would reach beyond the preview. */
bool preview_passes(const struct http_head *head, const char *name);
/* The request as the program sees it: one well-formed head without our keys and tokens. path: as it was sent, beginning with "/".
 * by_key: Authorization was for us. */
int preview_put_request(struct buf *out, const struct http_head *head, const char *path, size_t path_len, const char *query, bool by_key,
                        bool tls) MUST_CHECK;

#endif
