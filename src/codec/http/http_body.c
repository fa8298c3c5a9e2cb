/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_body.c: reads the bodies of HTTP messages. The chunked coding is read byte by byte outside of the data and in
 * one step within it. A call returns after one piece of content, so that the caller decides what to do with it. Chunk
 * extensions and trailers are thrown away; one body may have at most EXTRA_MAX bytes of both together.
 *
 *   SIZE -> (EXT) -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE ...
 *   size 0: SIZE_LF -> LINE -> (NAME -> VALUE -> VALUE_LF -> LINE ...) -> LAST_LF -> END
 */
#include "codec/http/http.h"

#include "base/ascii.h"
#include "codec/http/http_chars.h"

#define SIZE_DIGITS_MAX 16u
#define EXTRA_MAX 16384u

enum state { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, NAME, VALUE, VALUE_LF, LAST_LF, END, BAD };

void http_body_init(struct http_body_reader *reader, const struct http_head *head)
{
    *reader = (struct http_body_reader){.kind = head->body, .state = END};
    if (head->body == HTTP_BODY_LENGTH) {
        reader->left = head->content_length;
        if (reader->left > 0)
            reader->state = DATA;
    } else if (head->body != HTTP_BODY_NONE) {
        reader->state = head->body == HTTP_BODY_CHUNKED ? SIZE : DATA;
    }
}

static enum state size_byte(struct http_body_reader *reader, char c)
{
    int digit = ascii_hex(c);

    if (digit >= 0) {
        if (++reader->digits > SIZE_DIGITS_MAX)
            return BAD;
        reader->left = reader->left << 4 | (unsigned)digit;
        return SIZE;
    }
    if (reader->digits == 0)
        return BAD;
    return c == '\r' ? SIZE_LF : c == ';' ? EXT : BAD;
}

/* One byte of what is not content. */
static enum state framing_byte(struct http_body_reader *reader, char c)
{
    switch ((enum state)reader->state) {
    case SIZE: return size_byte(reader, c);
    case EXT:
        if (c == '\r')
            return SIZE_LF;
        return http_is(c, HTTP_VALUE) && ++reader->extra <= EXTRA_MAX ? EXT : BAD;
    case SIZE_LF: reader->digits = 0; return c != '\n' ? BAD : reader->left > 0 ? DATA : LINE;
    case DATA_CR: return c == '\r' ? DATA_LF : BAD;
    case DATA_LF: return c == '\n' ? SIZE : BAD;
    case LINE:
        if (c == '\r')
            return LAST_LF;
        return http_is(c, HTTP_TOKEN) && ++reader->extra <= EXTRA_MAX ? NAME : BAD;
    case NAME:
        if (c == ':')
            return VALUE;
        return http_is(c, HTTP_TOKEN) && ++reader->extra <= EXTRA_MAX ? NAME : BAD;
    case VALUE:
        if (c == '\r')
            return VALUE_LF;
        return http_is(c, HTTP_VALUE) && ++reader->extra <= EXTRA_MAX ? VALUE : BAD;
    case VALUE_LF: return c == '\n' ? LINE : BAD;
    case LAST_LF: return c == '\n' ? END : BAD;
    case DATA:
    case END:
    case BAD:
    default: return BAD;
    }
}

static size_t take_data(struct http_body_reader *reader, size_t len)
{
    if (reader->kind == HTTP_BODY_UNTIL_CLOSE)
        return len;
    size_t n = reader->left < len ? (size_t)reader->left : len;
    reader->left -= n;
    if (reader->left == 0)
        reader->state = reader->kind == HTTP_BODY_CHUNKED ? DATA_CR : END;
    return n;
}

int http_body_take(struct http_body_reader *reader, const char *data, size_t len, const char **ret_at, size_t *ret_len,
                   bool *ret_end)
{
    size_t at = 0;

    if (len > INT32_MAX)
        len = INT32_MAX;
    *ret_at = data;
    *ret_len = 0;
    while (at < len && reader->state != END && reader->state != BAD) {
        if (reader->state == DATA) {
            if (*ret_len > 0)
                break;
            *ret_at = data + at;
            *ret_len = take_data(reader, len - at);
            at += *ret_len;
        } else {
            reader->state = (int)framing_byte(reader, data[at++]);
        }
    }
    *ret_end = reader->state == END;
    return reader->state == BAD ? -400 : (int)at;
}
