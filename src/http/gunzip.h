/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gunzip.h: unpacks a gzip stream piece by piece with zlib. What one byte of input may become is bounded, so a bomb is
 * refused while it is still small.
 */
#ifndef BRIG_HTTP_GUNZIP_H
#define BRIG_HTTP_GUNZIP_H

#include <brig.h>

#include "base/buf.h"

#define GUNZIP_RATIO 200u            /* text compresses 20 times at best; more than this over the first MiB is a bomb */
#define GUNZIP_PIECE_MAX (64u << 20) /* bytes of output that may wait */

struct gunzip;
int gunzip_create(struct gunzip **ret, struct brig_err *err) MUST_CHECK;
void gunzip_destroy(struct gunzip *gunzip); /* takes NULL */
/* Unpacks a piece into out. BRIG_E_TOO_LARGE past the ratio, BRIG_E_USAGE when it is not gzip. */
int gunzip_add(struct gunzip *gunzip, const void *data, size_t len, struct buf *out, struct brig_err *err) MUST_CHECK;
int gunzip_end(struct gunzip *gunzip, struct brig_err *err) MUST_CHECK; /* the stream must be complete */

#endif
