/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.c: the filter between a stranger's bytes and a terminal. It works byte by byte with at most three
 * bytes held back, never looks ahead, and passes only well-formed UTF-8 (RFC 3629: no overlong forms, no
 * surrogates) outside the control ranges. It does not interpret escape sequences: without their first byte
 * they are text.
 */
#include "cli/escape.h"

#include <string.h>

#include "base/utf8.h"

static size_t put_hex(enum escape_mode mode, unsigned char byte, char *out)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;
    out[n++] = '\\';
    if (mode == ESCAPE_JSON) {
        out[n++] = 'u';
        out[n++] = '0';
        out[n++] = '0';
    } else {
        out[n++] = 'x';
    }
    out[n++] = digits[byte >> 4];
    out[n++] = digits[byte & 15];
    return n;
}

static size_t put_control(enum escape_mode mode, unsigned char byte, char *out)
{
    if (mode == ESCAPE_JSON)
        return put_hex(mode, byte, out);
    out[0] = '^';
    out[1] = (char)(byte ^ 0x40); /* DEL gives ^? */
    return 2;
}

/* Bytes that turned out not to be a character. */
static size_t put_held(struct escape *escape, char *out)
{
    size_t n = 0;
    for (unsigned i = 0; i < escape->n_held; i++) {
        if (escape->held[i] == '\r')
            n += put_control(escape->mode, '\r', out + n);
        else
            n += put_hex(escape->mode, escape->held[i], out + n);
    }
    escape->n_held = escape->n_want = 0;
    return n;
}

static bool is_continuation(const struct escape *escape, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;
    if (escape->n_held == 1) {
        switch (escape->held[0]) {
        case 0xe0: low = 0xa0; break;  /* shorter forms exist */
        case 0xed: high = 0x9f; break; /* surrogates */
        case 0xf0: low = 0x90; break;
        case 0xf4: high = 0x8f; break; /* past U+10FFFF */
        default: break;
        }
    }
    return byte >= low && byte <= high;
}

static bool is_deceptive(const struct escape *escape)
{
    uint32_t point = 0;

    return utf8_sequence((const char *)escape->held, escape->n_held, &point) > 0 && utf8_is_deceptive(point);
}

static size_t put_character(struct escape *escape, char *out)
{
    size_t n = escape->n_held;
    if (escape->held[0] == 0xc2 && escape->held[1] < 0xa0) /* U+0080..U+009F: C1 */
        n = put_hex(escape->mode, escape->held[1], out);
    else if (escape->mode == ESCAPE_LINE && is_deceptive(escape))
        return put_held(escape, out);
    else
        memcpy(out, escape->held, n);
    escape->n_held = escape->n_want = 0;
    return n;
}

static size_t put_first(struct escape *escape, unsigned char byte, char *out)
{
    if (byte < 0x20 || byte == 0x7f) {
        if ((byte == '\n' || byte == '\t') && escape->mode != ESCAPE_LINE) {
            out[0] = (char)byte;
            return 1;
        }
        if (byte == '\r' && escape->mode == ESCAPE_TERMINAL) {
            escape->held[escape->n_held++] = byte;
            return 0;
        }
        return put_control(escape->mode, byte, out);
    }
    if (byte < 0x80) {
        out[0] = (char)byte;
        return 1;
    }
    if (byte < 0xc2 || byte > 0xf4) /* a stray continuation (raw C1 among them), or never UTF-8 */
        return put_hex(escape->mode, byte, out);
    escape->held[escape->n_held++] = byte;
    escape->n_want = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return 0;
}

size_t escape_byte(struct escape *escape, unsigned char byte, char out[ESCAPE_OUT])
{
    size_t n = 0;
    if (escape->n_want > 0 && is_continuation(escape, byte)) {
        escape->held[escape->n_held++] = byte;
        return escape->n_held == escape->n_want ? put_character(escape, out) : 0;
    }
    if (escape->n_held == 1 && escape->held[0] == '\r' && byte == '\n') {
        escape->n_held = 0;
        out[0] = '\r';
        out[1] = '\n';
        return 2;
    }
    if (escape->n_held > 0)
        n = put_held(escape, out);
    return n + put_first(escape, byte, out + n);
}

size_t escape_end(struct escape *escape, char out[ESCAPE_OUT])
{
    return put_held(escape, out);
}

int escape_append(struct escape *escape, const void *data, size_t len, struct buf *out)
{
    const unsigned char *in = data;
    char chunk[1024];
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += escape_byte(escape, in[i], chunk + n);
        if (n > sizeof(chunk) - ESCAPE_OUT || i + 1 == len) {
            int r = buf_append(out, chunk, n);
            if (r < 0)
                return r;
            n = 0;
        }
    }
    return 0;
}

int escape_finish(struct escape *escape, struct buf *out)
{
    char chunk[ESCAPE_OUT];
    size_t n = escape_end(escape, chunk);
    return n > 0 ? buf_append(out, chunk, n) : 0;
}
