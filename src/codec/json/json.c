/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.c: the JSON writer. It keeps two bits per nesting level: "object or array" and "has items". Commas need no more,
 * nor does the check for wrong calls (a key in an array, a value without a key, a second top-level value).
 */
#include "codec/json/json.h"

#include <inttypes.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "codec/json/json_read.h"

static void put(struct json *json, const void *data, size_t len)
{
    if (json->error == 0)
        json->error = buf_append(json->out, data, len);
}

static bool in_object(const struct json *json)
{
    return json->depth > 0 && (json->is_object >> (json->depth - 1) & 1) != 0;
}

/* A comma if one is due; every item of an object or array passes here once. */
static void put_separator(struct json *json)
{
    if (json->depth == 0)
        return;
    uint64_t bit = UINT64_C(1) << (json->depth - 1);
    if ((json->has_items & bit) != 0)
        put(json, ",", 1);
    json->has_items |= bit;
}

/* Whether a value may stand here; then the text before it is written. */
static bool begin_value(struct json *json)
{
    if (json->error != 0)
        return false;
    if (json->complete || (in_object(json) && !json->after_key)) {
        json->error = -EINVAL;
        return false;
    }
    if (json->after_key)
        json->after_key = false;
    else
        put_separator(json);
    if (json->depth == 0)
        json->complete = true;
    return json->error == 0;
}

static void open_level(struct json *json, bool object)
{
    if (!begin_value(json))
        return;
    if (json->depth == JSON_DEPTH_MAX) {
        json->error = -EINVAL;
        return;
    }
    uint64_t bit = UINT64_C(1) << json->depth++;
    json->is_object = object ? json->is_object | bit : json->is_object & ~bit;
    json->has_items &= ~bit;
    json->complete = false;
    put(json, object ? "{" : "[", 1);
}

void json_object(struct json *json)
{
    open_level(json, true);
}

void json_array(struct json *json)
{
    open_level(json, false);
}

void json_end(struct json *json)
{
    if (json->error != 0)
        return;
    if (json->depth == 0 || json->after_key) {
        json->error = -EINVAL;
        return;
    }
    put(json, in_object(json) ? "}" : "]", 1);
    json->depth--;
    if (json->depth == 0)
        json->complete = true;
}

/* Six bytes at most; returns how many. */
static size_t escape(char out[6], uint32_t point)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[128] = {
        ['"'] = '"', ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};

    out[0] = '\\';
    if (point < sizeof(letters) && letters[point]) {
        out[1] = letters[point];
        return 2;
    }
    out[1] = 'u';
    for (unsigned i = 0; i < 4; i++)
        out[2 + i] = hex[point >> (12 - 4 * i) & 15];
    return 6;
}

static bool needs_escape(uint32_t point)
{
    return utf8_is_control(point) || point == '"' || point == '\\' || point == 0x2028 || point == 0x2029;
}

/* Short pieces and escapes are collected first: text that is all escapes costs no call for each of them. */
static void put_string(struct json *json, const char *data, size_t len)
{
    char text[1024];
    size_t n_text = 0;

    put(json, "\"", 1);
    while (len > 0 && json->error == 0) {
        uint32_t point = 0;
        size_t run = 0, n = 0;

        /* As much as can go out as it is, in one piece. */
        while (run < len) {
            n = utf8_sequence(data + run, len - run, &point);
            if (n == 0 || needs_escape(point))
                break;
            run += n;
        }
        if (run + 6 > sizeof(text) - n_text) {
            put(json, text, n_text);
            n_text = 0;
        }
        if (run + 6 > sizeof(text)) {
            put(json, data, run);
        } else if (run > 0) {
            memcpy(text + n_text, data, run);
            n_text += run;
        }
        data += run;
        len -= run;
        if (len == 0)
            break;
        if (n == 0) {
            memcpy(text + n_text, "\xef\xbf\xbd", 3);
            n_text += 3;
            n = 1;
        } else {
            n_text += escape(text + n_text, point);
        }
        data += n;
        len -= n;
    }
    put(json, text, n_text);
    put(json, "\"", 1);
}

void json_key(struct json *json, const char *name)
{
    if (json->error != 0)
        return;
    if (!in_object(json) || json->after_key) {
        json->error = -EINVAL;
        return;
    }
    put_separator(json);
    put_string(json, name, strlen(name));
    put(json, ":", 1);
    json->after_key = true;
}

void json_string_n(struct json *json, const void *data, size_t len)
{
    if (begin_value(json))
        put_string(json, data, len);
}

void json_string(struct json *json, const char *text)
{
    json_string_n(json, text, strlen(text));
}

void json_base64(struct json *json, const void *data, size_t len)
{
    if (!begin_value(json))
        return;
    put(json, "\"", 1);
    if (json->error == 0)
        json->error = base64_append(json->out, data, len);
    put(json, "\"", 1);
}

void json_u64(struct json *json, uint64_t value)
{
    if (begin_value(json))
        json->error = buf_printf(json->out, "%" PRIu64, value);
}

void json_i64(struct json *json, int64_t value)
{
    if (begin_value(json))
        json->error = buf_printf(json->out, "%" PRId64, value);
}

void json_thousandths(struct json *json, uint64_t value)
{
    unsigned rest = (unsigned)(value % 1000);
    int digits = 3;

    if (!begin_value(json))
        return;
    /* Written by hand: printf's point depends on the locale. */
    json->error = buf_printf(json->out, "%" PRIu64, value / 1000);
    if (rest == 0 || json->error != 0)
        return;
    for (; rest % 10 == 0; rest /= 10)
        digits--;
    json->error = buf_printf(json->out, ".%0*u", digits, rest);
}

void json_bool(struct json *json, bool value)
{
    if (begin_value(json))
        put(json, value ? "true" : "false", value ? 4 : 5);
}

void json_null(struct json *json)
{
    if (begin_value(json))
        put(json, "null", 4);
}

void json_raw(struct json *json, const char *text, size_t len)
{
    if (begin_value(json))
        put(json, text, len);
}

void json_key_object(struct json *json, const char *name)
{
    json_key(json, name), json_object(json);
}

void json_key_array(struct json *json, const char *name)
{
    json_key(json, name), json_array(json);
}

void json_key_string(struct json *json, const char *name, const char *text)
{
    json_key(json, name), text ? json_string(json, text) : json_null(json);
}

void json_key_u64(struct json *json, const char *name, uint64_t value)
{
    json_key(json, name), json_u64(json, value);
}

void json_key_i64(struct json *json, const char *name, int64_t value)
{
    json_key(json, name), json_i64(json, value);
}

void json_key_bool(struct json *json, const char *name, bool value)
{
    json_key(json, name), json_bool(json, value);
}

void json_key_null(struct json *json, const char *name)
{
    json_key(json, name), json_null(json);
}

void json_key_raw(struct json *json, const char *name, const char *text, size_t len)
{
    json_key(json, name), text ? json_raw(json, text, len) : json_null(json);
}

void json_key_text(struct json *json, const char *name, const char *text)
{
    json_key_string(json, name, text && text[0] ? text : NULL);
}

void json_key_time(struct json *json, const char *name, int64_t real_ns, unsigned digits)
{
    char text[CLOCK_TEXT];

    clock_text(real_ns, digits, text);
    json_key_text(json, name, text);
}

void json_value_put(struct json *json, const struct json_value *v)
{
    switch (v->type) {
    case JSON_STRING: json_string_n(json, v->string, v->len); return;
    case JSON_BOOL: json_bool(json, v->boolean); return;
    case JSON_NUMBER:
        if (v->integer) {
            json_i64(json, v->i64);
        } else {
            char text[40]; /* %.17g is the same double again; the C locale's point is the only one this program has */
            int len = snprintf(text, sizeof text, "%.17g", v->number);
            json_raw(json, text, (size_t)len);
        }
        return;
    case JSON_ARRAY:
    case JSON_OBJECT:
        if (v->type == JSON_ARRAY)
            json_array(json);
        else
            json_object(json);
        for (const struct json_value *item = v->first; item; item = item->next) {
            if (item->key)
                json_key(json, item->key);
            json_value_put(json, item);
        }
        json_end(json);
        return;
    default: json_null(json); return;
    }
}

int json_finish(struct json *json)
{
    if (json->error == 0 && !json->complete)
        json->error = -EINVAL;
    return json->error;
}

bool json_is_text(const void *data, size_t len)
{
    const char *at = data;
    size_t more = 0; /* bytes that escapes add */

    for (size_t left = len; left > 0;) {
        uint32_t point;
        size_t n = utf8_sequence(at, left, &point);
        if (n == 0)
            return false;
        if (needs_escape(point)) {
            char text[6];
            more += escape(text, point) - n;
        }
        at += n;
        left -= n;
    }
    return more <= len || more <= JSON_ESCAPES_MAX;
}

bool json_utf8_valid(const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        size_t n = utf8_sequence(at, len, NULL);
        if (n == 0)
            return false;
        at += n;
        len -= n;
    }
    return true;
}

int base64_append(struct buf *buf, const void *data, size_t len)
{
    size_t groups = len / 3 + (len % 3 != 0), size;

    if (__builtin_mul_overflow(groups, 4, &size))
        return -EMSGSIZE;
    int r = buf_reserve(buf, size);
    if (r < 0)
        return r;
    buf_commit(buf, base64_encode(data, len, "+/", true, buf->data + buf->len));
    return 0;
}
