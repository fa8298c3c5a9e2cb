/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint.c: the name of a configuration's content, digit for digit as Letta computes it: canonical JSON as
 * Python writes it (keys sorted by code point, no blanks, ASCII only), SHA-256, and the digest printed as one decimal
 * number. Numbers are as Python would print what it has read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"
#include "codec/text.h"
#include "crypto/crypto.h"
#include "records/configs.h"

#define CANONICAL_MAX (16u << 20)

static int put_value(struct buf *out, const struct json_value *value);

static int put_point(struct buf *out, uint32_t point)
{
    static const char letters[] = "\"\\\b\f\n\r\t", shorts[] = "\"\\bfnrt";
    const char *found = point && point < 0x80 ? strchr(letters, (int)point) : NULL;

    if (found)
        return buf_printf(out, "\\%c", shorts[found - letters]);
    if (point >= 0x20 && point < 0x7f)
        return buf_printf(out, "%c", (int)point);
    if (point < 0x10000)
        return buf_printf(out, "\\u%04x", point);
    point -= 0x10000;
    return buf_printf(out, "\\u%04x\\u%04x", 0xd800 + (point >> 10), 0xdc00 + (point & 0x3ff));
}

static int put_string(struct buf *out, const char *text, size_t len)
{
    int r = buf_append(out, "\"", 1);

    for (size_t i = 0; i < len && r == 0;) {
        uint32_t point = 0;
        size_t n = utf8_sequence(text + i, len - i, &point);
        if (n == 0)
            return -EILSEQ;
        r = put_point(out, point);
        i += n;
    }
    return r < 0 ? r : buf_append(out, "\"", 1);
}

static bool is_whole(const char *raw, size_t len)
{
    return !memchr(raw, '.', len) && !memchr(raw, 'e', len) && !memchr(raw, 'E', len);
}

static int put_number(struct buf *out, const struct json_value *value)
{
    char text[64];

    if (value->integer)
        return buf_printf(out, "%lld", (long long)value->i64);
    if (is_whole(value->raw, value->raw_len)) /* past 64 bits: JSON writes such a number in one way only, and it is
                                                 Python's */
        return buf_append(out, value->raw, value->raw_len);
    int r = text_python_float(value->number, text, sizeof text);
    return r < 0 ? r : buf_append_str(out, text);
}

static int by_key(const void *a, const void *b)
{
    const struct json_value *const *x = a, *const *y = b;
    size_t least = (*x)->key_len < (*y)->key_len ? (*x)->key_len : (*y)->key_len;
    int order = memcmp((*x)->key, (*y)->key, least); /* the order of UTF-8's bytes is that of its code points */

    return order ? order : (*x)->key_len < (*y)->key_len ? -1 : 1;
}

static int put_object(struct buf *out, const struct json_value *object)
{
    AUTO_FREE const struct json_value **members = mem_alloc((object->count + 1) * sizeof(struct json_value *));
    size_t n = 0;
    int r = members ? buf_append(out, "{", 1) : -ENOMEM;

    if (r < 0)
        return r;
    for (const struct json_value *item = object->first; item; item = item->next)
        members[n++] = item;
    qsort(members, n, sizeof(struct json_value *), by_key);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = i ? buf_append(out, ",", 1) : 0;
        if (r == 0)
            r = put_string(out, members[i]->key, members[i]->key_len);
        if (r == 0)
            r = buf_append(out, ":", 1);
        if (r == 0)
            r = put_value(out, members[i]);
    }
    return r < 0 ? r : buf_append(out, "}", 1);
}

static int put_array(struct buf *out, const struct json_value *array)
{
    int r = buf_append(out, "[", 1);

    for (const struct json_value *item = array->first; item && r == 0; item = item->next) {
        r = item != array->first ? buf_append(out, ",", 1) : 0;
        if (r == 0)
            r = put_value(out, item);
    }
    return r < 0 ? r : buf_append(out, "]", 1);
}

/* As deep as the reader allows: JSON_READ_DEPTH. */
static int put_value(struct buf *out, const struct json_value *value)
{
    switch (value->type) {
    case JSON_BOOL: return buf_append_str(out, value->boolean ? "true" : "false");
    case JSON_NUMBER: return put_number(out, value);
    case JSON_STRING: return put_string(out, value->string, value->len);
    case JSON_ARRAY: return put_array(out, value);
    case JSON_OBJECT: return put_object(out, value);
    default: return buf_append_str(out, "null");
    }
}

/* The digest as a number, most significant byte first, in decimal: nine digits at a time off its end. */
static void put_decimal(const uint8_t digest[SHA256_SIZE], char out[FINGERPRINT_MAX])
{
    uint32_t words[8], parts[9];
    size_t n = 0, at = 0;

    for (size_t i = 0; i < 8; i++)
        words[i] = (uint32_t)digest[4 * i] << 24 | (uint32_t)digest[4 * i + 1] << 16 |
                   (uint32_t)digest[4 * i + 2] << 8 | digest[4 * i + 3];
    for (n = 0; n < ARRAY_SIZE(parts); n++) { /* 9 * 9 digits are more than 78 */
        uint64_t rest = 0;
        for (size_t i = 0; i < 8; i++) {
            rest = rest << 32 | words[i];
            words[i] = (uint32_t)(rest / 1000000000u);
            rest %= 1000000000u;
        }
        parts[n] = (uint32_t)rest;
    }
    while (n > 1 && parts[n - 1] == 0)
        n--;
    for (size_t i = n; i-- > 0;) {
        int len = str_format(out + at, FINGERPRINT_MAX - at, i == n - 1 ? "%u" : "%09u", parts[i]);
        if (len < 0)
            return; /* 78 digits fit */
        at += (size_t)len;
    }
}

int config_fingerprint(const char *type, const char *org, const struct json_value *config, char out[FINGERPRINT_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(CANONICAL_MAX);
    uint8_t digest[SHA256_SIZE];
    int r = buf_append_str(&text, "{\"config\":");

    if (r == 0)
        r = put_value(&text, config);
    if (r == 0)
        r = buf_append_str(&text, ",\"organization_id\":");
    if (r == 0)
        r = org ? put_string(&text, org, strlen(org)) : buf_append_str(&text, "null");
    if (r == 0)
        r = buf_append_str(&text, ",\"type\":");
    if (r == 0)
        r = put_string(&text, type, strlen(type));
    if (r == 0)
        r = buf_append_str(&text, "}");
    if (r == 0)
        r = crypto_sha256(text.data, text.len, digest);
    if (r == 0)
        put_decimal(digest, out);
    return r;
}
