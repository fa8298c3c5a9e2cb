/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c: growable buffers with a ceiling. Once memory was allocated, data[len] is a NUL that len does not count, so
 * text can be used as a C string. A call that fails leaves the content as it was.
 */
#include "base/buf.h"

#include <stdarg.h>

#include "base/mem.h"

#define BUF_FIRST 256u

int buf_reserve(struct buf *buf, size_t extra)
{
    size_t need;

    if (extra > buf->max - buf->len)
        return -EMSGSIZE;
    if (__builtin_add_overflow(buf->len + extra, 1, &need))
        return -EMSGSIZE;
    if (need <= buf->cap)
        return 0;

    size_t cap = buf->cap > BUF_FIRST ? buf->cap : BUF_FIRST;
    while (cap < need) {
        if (__builtin_mul_overflow(cap, 2, &cap))
            cap = need;
    }
    /* Never more than the ceiling and its NUL, except for the first small block. */
    if (cap > BUF_FIRST && buf->max < SIZE_MAX && cap > buf->max + 1)
        cap = buf->max + 1;

    char *data = mem_realloc(buf->data, cap);
    if (!data)
        return -ENOMEM;
    buf->data = data;
    buf->cap = cap;
    buf->data[buf->len] = '\0';
    return 0;
}

void buf_commit(struct buf *buf, size_t len)
{
    buf->len += len;
    buf->data[buf->len] = '\0';
}

int buf_append(struct buf *buf, const void *data, size_t len)
{
    int r = buf_reserve(buf, len);
    if (r < 0)
        return r;
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf_commit(buf, len);
    return 0;
}

int buf_append_str(struct buf *buf, const char *text)
{
    return buf_append(buf, text, strlen(text));
}

int buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    int n, r;

    /* Most texts fit into what is there; only the others are formatted twice. */
    va_start(args, format);
    n = vsnprintf(buf->data ? buf->data + buf->len : NULL, buf->cap - buf->len, format, args);
    va_end(args);
    if (n < 0) {
        r = -EINVAL;
        goto restore;
    }
    if ((size_t)n > buf->max - buf->len) {
        r = -EMSGSIZE;
        goto restore;
    }
    if (buf->data && (size_t)n < buf->cap - buf->len) {
        buf->len += (size_t)n;
        return 0;
    }
    r = buf_reserve(buf, (size_t)n);
    if (r < 0)
        goto restore;
    va_start(args, format);
    n = vsnprintf(buf->data + buf->len, (size_t)n + 1, format, args);
    va_end(args);
    if (n < 0) {
        r = -EINVAL;
        goto restore;
    }
    buf->len += (size_t)n;
    return 0;

restore:
    if (buf->data)
        buf->data[buf->len] = '\0';
    return r;
}

void buf_consume(struct buf *buf, size_t len)
{
    if (len > buf->len)
        len = buf->len;
    if (len == 0)
        return;
    buf->len -= len;
    memmove(buf->data, buf->data + len, buf->len + 1);
}

char *buf_take(struct buf *buf, size_t *ret_len)
{
    if (buf_reserve(buf, 0) < 0)
        return NULL;
    if (ret_len)
        *ret_len = buf->len;
    buf->len = buf->cap = 0;
    return take_ptr(&buf->data);
}

void buf_done(struct buf *buf)
{
    mem_free(buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
}
