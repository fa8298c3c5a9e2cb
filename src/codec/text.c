/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c: values as text. Models were trained on what Python prints for a value, and clients of Letta compare with it.
 * So str() and repr() are followed to the letter, except that characters which no version of Unicode knows yet are
 * printed and not escaped.
 */
#include "codec/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define FRIENDLY_MAX 1000u
#define NOTE "... [NOTE: function output was truncated since it exceeded the character limit: %zu > %llu]"

/* ---- code points ------------------------------------------------------------------------------------------ */

/* Bytes of the character at `at`, at least 1; the text is UTF-8 (json_read() has seen to it), but a broken byte counts
 * as one. */
static size_t char_bytes(const char *at, const char *end)
{
    unsigned char lead = (unsigned char)*at;
    size_t n = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

    if (n > (size_t)(end - at))
        return 1;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)at[i] & 0xc0) != 0x80)
            return 1;
    return n;
}

static uint32_t char_value(const char *at, size_t n)
{
    static const unsigned char lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t value = (unsigned char)*at & lead_bits[n];

    for (size_t i = 1; i < n; i++)
        value = value << 6 | ((unsigned char)at[i] & 0x3f);
    return value;
}

size_t text_length(const char *data, size_t len)
{
    const char *end = data + len;
    size_t n = 0;

    for (const char *at = data; at < end; at += char_bytes(at, end))
        n++;
    return n;
}

/* Where the first n characters end. */
static size_t prefix_bytes(const char *data, size_t len, uint64_t n)
{
    const char *at = data, *end = data + len;

    while (at < end && n-- > 0)
        at += char_bytes(at, end);
    return (size_t)(at - data);
}

/* ---- repr() ----------------------------------------------------------------------------------------------- */

/*
 * The ranges for which str.isprintable() is false: the categories "other" and "separator", without what is not
 * assigned. They are in order.
 */
static const struct {
    uint32_t first, last;
} unprintable[] = {{0, 0x1f},          {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
                   {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},
                   {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},
                   {0xd800, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
                   {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff},
                   {0xe01f0, 0x10ffff}};

static bool is_printable(uint32_t c)
{
    for (size_t i = 0; i < ARRAY_SIZE(unprintable) && c >= unprintable[i].first; i++)
        if (c <= unprintable[i].last)
            return false;
    return true;
}

static int put_char(struct buf *out, const char *at, size_t n, char quote)
{
    uint32_t c = char_value(at, n);

    if (c == (uint32_t)quote || c == '\\')
        return buf_printf(out, "\\%c", (char)c);
    if (c == '\n' || c == '\r' || c == '\t')
        return buf_append_str(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    if (is_printable(c))
        return buf_append(out, at, n);
    return c <= 0xff     ? buf_printf(out, "\\x%02x", c)
           : c <= 0xffff ? buf_printf(out, "\\u%04x", c)
                         : buf_printf(out, "\\U%08x", c);
}

static int put_repr(struct buf *out, const char *text, size_t len)
{
    const char *end = text + len;
    char quote = memchr(text, '\'', len) && !memchr(text, '"', len) ? '"' : '\'';
    int r = buf_append(out, &quote, 1);

    for (const char *at = text; r == 0 && at < end;) {
        size_t n = char_bytes(at, end);
        r = put_char(out, at, n, quote);
        at += n;
    }
    return r < 0 ? r : buf_append(out, &quote, 1);
}

/* ---- numbers ---------------------------------------------------------------------------------------------- */

int text_python_float(double value, char *out, size_t size)
{
    char digits[40];
    int precision = 0;

    if (!isfinite(value))
        return str_format(out, size, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    /* The shortest that reads back as the same number. */
    do {
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    } while (precision++ < 17 && strtod(digits, NULL) != value);
    char *e = strchr(digits, 'e');
    int exponent = (int)strtol(e + 1, NULL, 10);
    *e = '\0';
    if (exponent < -4 || exponent >= 16)
        return str_format(out, size, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    int decimals = precision - 1 - exponent; /* digits behind the point */
    return str_format(out, size, "%.*f", decimals < 1 ? 1 : decimals, value);
}

static int put_number(struct buf *out, const struct json_value *value)
{
    char text[64];

    if (value->integer)
        return buf_printf(out, "%lld", (long long)value->i64);
    if (value->raw && strcspn(value->raw, ".eE") >= value->raw_len) /* an integer of any size */
        return buf_append(out, value->raw, value->raw_len);
    int r = text_python_float(value->number, text, sizeof text);
    return r < 0 ? r : buf_append_str(out, text);
}

/* ---- str() ------------------------------------------------------------------------------------------------ */

static int put_value(struct buf *out, const struct json_value *value);

static int put_items(struct buf *out, const struct json_value *value)
{
    bool object = value->type == JSON_OBJECT;
    int r = buf_append_str(out, object ? "{" : "[");

    for (const struct json_value *item = value->first; r == 0 && item; item = item->next) {
        if (item != value->first)
            r = buf_append_str(out, ", ");
        if (r == 0 && object)
            r = put_repr(out, item->key, item->key_len);
        if (r == 0 && object)
            r = buf_append_str(out, ": ");
        if (r == 0)
            r = put_value(out, item);
    }
    return r < 0 ? r : buf_append_str(out, object ? "}" : "]");
}

/* As deep as the reader allows (JSON_READ_DEPTH). */
static int put_value(struct buf *out, const struct json_value *value)
{
    switch (value->type) {
    case JSON_NULL: return buf_append_str(out, "None");
    case JSON_BOOL: return buf_append_str(out, value->boolean ? "True" : "False");
    case JSON_NUMBER: return put_number(out, value);
    case JSON_STRING: return put_repr(out, value->string, value->len);
    default: return put_items(out, value);
    }
}

int text_python(const struct json_value *value, struct buf *out)
{
    return value->type == JSON_STRING ? buf_append(out, value->string, value->len) : put_value(out, value);
}

/* ---- messages --------------------------------------------------------------------------------------------- */

int text_friendly(const char *function, const char *type, const char *message, struct buf *out)
{
    size_t before = out->len;
    int r = buf_append_str(out, "Error executing function ");

    r = r < 0 ? r : buf_append_str(out, function ? function : "None");
    r = r < 0 ? r : buf_append_str(out, ": ");
    r = r < 0 ? r : buf_append_str(out, type);
    r = r < 0 ? r : buf_append_str(out, ": ");
    r = r < 0 ? r : buf_append_str(out, message);
    if (r < 0)
        return r;
    out->len = before + prefix_bytes(out->data + before, out->len - before, FRIENDLY_MAX);
    out->data[out->len] = '\0';
    return 0;
}

bool text_truncate(struct buf *text, uint64_t limit)
{
    if (text->len <= limit) /* no more bytes than characters allowed */
        return false;
    size_t length = text_length(text->data, text->len);
    if (length <= limit)
        return false;
    text->len = prefix_bytes(text->data, text->len, limit);
    text->data[text->len] = '\0';
    if (buf_printf(text, NOTE, length, (unsigned long long)limit) < 0)
        return true; /* cut, and no memory to say so */
    return true;
}
