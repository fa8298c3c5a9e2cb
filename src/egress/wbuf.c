/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wbuf.c: a buffer for bytes that must not stay in memory. They are wiped when they are consumed, when the buffer grows
 * (the old block), and at the end. Invariant: outside of data[from, len) the block is zero, except for what a caller
 * has written behind len and not yet committed.
 */
#include <stdarg.h>

#include "crypto/crypto.h"
#include "egress/broker_priv.h"

#define FIRST 4096u
#define KEEP 32768u

int wbuf_reserve(struct wbuf *buf, size_t extra)
{
    size_t size = wbuf_size(buf);

    if (extra > buf->max - size)
        return -EMSGSIZE;
    if (buf->cap - buf->len >= extra)
        return 0;
    if (buf->from > 0 && buf->cap - size >= extra) {
        size_t old = buf->len;
        memmove(buf->data, buf->data + buf->from, size);
        buf->from = 0;
        buf->len = size;
        crypto_wipe(buf->data + size, old - size);
        return 0;
    }
    size_t cap = buf->cap > 0 ? buf->cap : FIRST;
    while (cap < size + extra)
        cap *= 2;
    char *data = crypto_secret_alloc(cap);
    if (!data)
        return -ENOMEM;
    if (size > 0)
        memcpy(data, buf->data + buf->from, size);
    if (buf->data)
        crypto_secret_free(buf->data, buf->cap);
    buf->data = data;
    buf->cap = cap;
    buf->from = 0;
    buf->len = size;
    return 0;
}

int wbuf_append(struct wbuf *buf, const void *data, size_t len)
{
    int r = wbuf_reserve(buf, len);

    if (r < 0)
        return r;
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    return 0;
}

int wbuf_append_str(struct wbuf *buf, const char *text)
{
    return wbuf_append(buf, text, strlen(text));
}

int wbuf_append_all(struct wbuf *buf, ...)
{
    const char *text;
    va_list args;
    int r = 0;

    va_start(args, buf);
    while (r == 0 && (text = va_arg(args, const char *)))
        r = wbuf_append_str(buf, text);
    va_end(args);
    return r;
}

void wbuf_consume(struct wbuf *buf, size_t len)
{
    if (len >= wbuf_size(buf)) {
        wbuf_clear(buf);
        return;
    }
    crypto_wipe(buf->data + buf->from, len);
    buf->from += len;
}

void wbuf_clear(struct wbuf *buf)
{
    if (buf->data)
        crypto_wipe(buf->data + buf->from, buf->len - buf->from);
    buf->from = buf->len = 0;
}

void wbuf_rest(struct wbuf *buf)
{
    wbuf_clear(buf);
    if (buf->cap > KEEP)
        wbuf_done(buf);
}

void wbuf_done(struct wbuf *buf)
{
    if (buf->data)
        crypto_secret_free(buf->data, buf->cap);
    *buf = WBUF_INIT(buf->max);
}
