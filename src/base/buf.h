/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h: a growable buffer that is born with a ceiling. Appending past the ceiling is -EMSGSIZE and leaves
 * the content as it was.  struct buf b = BUF_INIT(limit); ... buf_done(&b);
 *
 * Where data is not NULL, data[len] is a NUL that len does not count.
 */
#ifndef BRIG_BASE_BUF_H
#define BRIG_BASE_BUF_H

#include "base/base.h"

struct buf {
    char *data;
    size_t len, cap, max;
};

#define AUTO_BUF __attribute__((cleanup(buf_done)))
#define BUF_INIT(limit) ((struct buf){NULL, 0, 0, (limit)})

int buf_append(struct buf *buf, const void *data, size_t len) MUST_CHECK;
int buf_append_str(struct buf *buf, const char *text) MUST_CHECK;
int buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
/* Room for extra bytes at data + len; then buf_commit() what was written there. */
int buf_reserve(struct buf *buf, size_t extra) MUST_CHECK;
void buf_commit(struct buf *buf, size_t len);
/* Hands the content over (free() it) and leaves the buffer empty; NULL when out of memory. ret_len may be NULL. */
char *buf_take(struct buf *buf, size_t *ret_len) MUST_CHECK;
void buf_consume(struct buf *buf, size_t len); /* drops from the front */
void buf_done(struct buf *buf);                /* takes a half-built buffer */

#endif
