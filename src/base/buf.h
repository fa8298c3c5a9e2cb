/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h: a growable buffer with a ceiling. Every buffer is made with the largest size that it may reach. An append past
 * this size returns -EMSGSIZE and leaves the content as it was.
 *
 *   AUTO_BUF struct buf b = BUF_INIT(limit);
 *
 * If data is not NULL, data[len] is a NUL that len does not count.
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
/*
 * Makes room for extra bytes at data + len. The caller writes there and then calls buf_commit() with the number of
 * bytes that it wrote.
 */
int buf_reserve(struct buf *buf, size_t extra) MUST_CHECK;
void buf_commit(struct buf *buf, size_t len);
/*
 * Hands the content to the caller, who calls free(), and leaves the buffer empty. ret_len may be NULL. Returns NULL
 * when memory is short.
 */
char *buf_take(struct buf *buf, size_t *ret_len) MUST_CHECK;
void buf_consume(struct buf *buf, size_t len); /* Removes len bytes from the front. */
void buf_done(struct buf *buf);                /* Frees the memory. It accepts a buffer that is half built. */

#endif
