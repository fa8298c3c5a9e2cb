/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON writer, driven by a program of one-byte operations with strings in between; and error messages, which
 * escape by the same rules. Whatever is called in whatever order, a document that json_finish() calls complete is read
 * back by the small strict reader below.
 */
#include "fuzz.h"

#include "base/err.h"
#include "base/utf8.h"
#include "codec/json/json.h"

/* ---- a strict reader: returns where the value ends, NULL when it is none -------------------------- */

static const char *read_value(const char *at, const char *end, unsigned depth);

static const char *read_string(const char *at, const char *end)
{
    if (at == end || *at++ != '"')
        return NULL;
    while (at < end && *at != '"') {
        uint32_t point;
        size_t n = utf8_sequence(at, (size_t)(end - at), &point);
        if (n == 0 || utf8_is_control(point))
            return NULL;
        at += n;
        if (point != '\\')
            continue;
        if (at == end || !strchr("\"\\bfnrtu", *at))
            return NULL;
        if (*at++ == 'u') {
            if (end - at < 4 || strspn(at, "0123456789abcdef") < 4)
                return NULL;
            at += 4;
        }
    }
    return at < end ? at + 1 : NULL;
}

static const char *read_number(const char *at)
{
    size_t n;

    if (*at == '-')
        at++;
    n = strspn(at, "0123456789");
    if (n == 0 || (n > 1 && *at == '0'))
        return NULL;
    at += n;
    if (*at == '.') {
        n = strspn(at + 1, "0123456789");
        return n > 0 ? at + 1 + n : NULL;
    }
    return at;
}

static const char *read_items(const char *at, const char *end, bool object, unsigned depth)
{
    char close = object ? '}' : ']';

    if (at < end && *at == close)
        return at + 1;
    for (;;) {
        if (object) {
            at = read_string(at, end);
            if (!at || at == end || *at++ != ':')
                return NULL;
        }
        at = read_value(at, end, depth);
        if (!at || at == end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

static const char *read_value(const char *at, const char *end, unsigned depth)
{
    static const char *const words[] = {"null", "true", "false"};

    if (at >= end || depth > JSON_DEPTH_MAX)
        return NULL;
    if (*at == '{' || *at == '[')
        return read_items(at + 1, end, *at == '{', depth + 1);
    if (*at == '"')
        return read_string(at, end);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    }
    return read_number(at);
}

/* ---- the program -------------------------------------------------------------------------------- */

struct input {
    const uint8_t *at;
    size_t left;
};

static uint64_t take_number(struct input *in)
{
    uint64_t value = 0;
    size_t n = in->left < sizeof(value) ? in->left : sizeof(value);

    memcpy(&value, in->at, n);
    in->at += n;
    in->left -= n;
    return value;
}

/* A length byte and that many bytes, or what is left. */
static const uint8_t *take_bytes(struct input *in, size_t *ret_len)
{
    const uint8_t *data;
    size_t n = 0;

    if (in->left > 0) {
        n = *in->at++;
        in->left--;
    }
    data = in->at;
    if (n > in->left)
        n = in->left;
    in->at += n;
    in->left -= n;
    *ret_len = n;
    return data;
}

static void step(struct json *json, struct input *in)
{
    uint8_t op = *in->at++;
    char text[256];
    size_t len = 0;
    const uint8_t *data;

    in->left--;
    switch (op % 11) {
    case 0: json_object(json); break;
    case 1: json_array(json); break;
    case 2: json_end(json); break;
    case 3:
    case 4:
        data = take_bytes(in, &len);
        memcpy(text, data, len);
        text[len] = '\0';
        if (op % 11 == 3)
            json_key(json, text);
        else
            json_string(json, text);
        break;
    case 5:
        data = take_bytes(in, &len);
        json_string_n(json, data, len);
        break;
    case 6:
        data = take_bytes(in, &len);
        json_base64(json, data, len);
        break;
    case 7: json_u64(json, take_number(in)); break;
    case 8: json_i64(json, (int64_t)take_number(in)); break;
    case 9: json_thousandths(json, take_number(in)); break;
    default: op % 2 ? json_bool(json, op > 127) : json_null(json); break;
    }
}

static void check_message(const uint8_t *data, size_t size)
{
    struct brig_err err;
    char text[300];
    size_t n = size < sizeof(text) - 1 ? size : sizeof(text) - 1, at = 0;

    memcpy(text, data, n);
    text[n] = '\0';
    err_set(&err, BRIG_E_HOST, EIO, "%s", text);
    n = strnlen(err.message, sizeof(err.message));
    FUZZ_CHECK(n < sizeof(err.message));
    while (at < n) {
        uint32_t point;
        size_t len = utf8_sequence(err.message + at, n - at, &point);
        FUZZ_CHECK(len > 0 && !utf8_is_control(point));
        at += len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct buf buf = BUF_INIT(65536);
    struct json json = JSON_INIT(&buf);

    if (size == 0)
        return 0;
    check_message(data, size);
    while (in.left > 0)
        step(&json, &in);
    if (json_finish(&json) == 0) {
        FUZZ_CHECK(strlen(buf.data) == buf.len);
        FUZZ_CHECK(read_value(buf.data, buf.data + buf.len, 0) == buf.data + buf.len);
        FUZZ_CHECK(json_utf8_valid(buf.data, buf.len));
    } else {
        FUZZ_CHECK(json.error == -EINVAL || json.error == -EMSGSIZE || json.error == -ENOMEM);
    }
    buf_done(&buf);
    return 0;
}
