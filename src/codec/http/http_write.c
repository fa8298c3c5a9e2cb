/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_write.c: writes heads. Every name and value is checked before it is written, so no caller can split a message.
 */
#include "codec/http/http.h"

#include "codec/http/http_chars.h"

static const struct {
    unsigned status;
    const char *reason;
} reasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_reason(unsigned status)
{
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "Unknown";
}

static bool all_are(const char *text, unsigned class)
{
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (!http_is(*text, class))
            return false;
    }
    return true;
}

int http_put_status(struct buf *out, unsigned status)
{
    if (status < 100 || status > 599)
        return -EINVAL;
    if (status == 200) /* most of them */
        return buf_append(out, "HTTP/1.1 200 OK\r\n", 17);
    return buf_printf(out, "HTTP/1.1 %u %s\r\n", status, http_reason(status));
}

int http_put_request(struct buf *out, const char *method, const char *target)
{
    if (!all_are(method, HTTP_TOKEN) || !all_are(target, HTTP_URI))
        return -EINVAL;
    return buf_printf(out, "%s %s HTTP/1.1\r\n", method, target);
}

static char *put_bytes(char *to, const char *from, size_t len)
{
    memcpy(to, from, len);
    return to + len;
}

int http_put_field(struct buf *out, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);

    if (!all_are(name, HTTP_TOKEN) || (value_len > 0 && !all_are(value, HTTP_VALUE)))
        return -EINVAL;
    int r = buf_reserve(out, name_len + value_len + 4);
    if (r < 0)
        return r;
    char *p = put_bytes(out->data + out->len, name, name_len);
    p = put_bytes(p, ": ", 2);
    p = put_bytes(p, value, value_len);
    put_bytes(p, "\r\n", 2);
    buf_commit(out, name_len + value_len + 4);
    return 0;
}

int http_put_end(struct buf *out)
{
    return buf_append(out, "\r\n", 2);
}

int http_put_chunk_head(struct buf *out, size_t len)
{
    return buf_printf(out, "%zx\r\n", len);
}

int http_put_escaped(struct buf *out, const void *data, size_t len, const char *keep)
{
    static const char hex[] = "0123456789ABCDEF";
    const char *from = data;

    if (len > SIZE_MAX / 3)
        return -EMSGSIZE;
    /* Counted first, so that a ceiling refuses only what really does not fit. */
    size_t need = 0;
    for (size_t i = 0; i < len; i++)
        need += http_is(from[i], HTTP_PLAIN) || (from[i] && strchr(keep, from[i])) ? 1 : 3;
    int r = buf_reserve(out, need);
    if (r < 0)
        return r;
    char *p = out->data + out->len;
    for (size_t i = 0; i < len; i++) {
        if (http_is(from[i], HTTP_PLAIN) || (from[i] && strchr(keep, from[i]))) {
            *p++ = from[i];
        } else {
            *p++ = '%';
            *p++ = hex[(uint8_t)from[i] >> 4];
            *p++ = hex[(uint8_t)from[i] & 15];
        }
    }
    buf_commit(out, need);
    return 0;
}
