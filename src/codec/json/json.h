/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: writes JSON (RFC 8259) onto a struct buf, commas included. Allocates nothing but the buffer's bytes.
 *
 *   struct json json = JSON_INIT(&buf);
 *   json_object(&json);
 *   json_key_i64(&json, "exit_code", 0);
 *   json_key_array(&json, "argv"), json_string(&json, "ls"), json_end(&json);
 *   json_end(&json);
 *   r = json_finish(&json);
 *
 * The first failure (-ENOMEM, -EMSGSIZE, or -EINVAL for calls that make no JSON) is kept, later calls do nothing, and
 * json_finish() returns it. The text is always valid UTF-8 and safe on a terminal: bytes that are not UTF-8 become
 * U+FFFD one by one (check with json_utf8_valid() and use json_base64() where every byte matters), and control
 * characters, DEL, C1, U+2028 and U+2029 are written as escapes.
 */
#ifndef BRIG_CODEC_JSON_JSON_H
#define BRIG_CODEC_JSON_JSON_H

#include "base/buf.h"

#define JSON_DEPTH_MAX 64u

struct json {
    struct buf *out;
    int error;
    /* private: bit n tells about nesting level n */
    unsigned depth;
    uint64_t is_object, has_items;
    bool after_key, complete;
};

#define JSON_INIT(buf) ((struct json){.out = (buf)})

void json_object(struct json *json);
void json_array(struct json *json);
void json_end(struct json *json); /* Ends the innermost object or array. */
void json_key(struct json *json, const char *name);

void json_string(struct json *json, const char *text);
void json_string_n(struct json *json, const void *data, size_t len);
/* Writes a string in base64 with padding (RFC 4648). */
void json_base64(struct json *json, const void *data, size_t len);
void json_u64(struct json *json, uint64_t value);
void json_i64(struct json *json, int64_t value);
void json_thousandths(struct json *json, uint64_t value); /* 1500 is 1.5, 2000 is 2 */
void json_bool(struct json *json, bool value);
void json_null(struct json *json);
/* Writes one value that is JSON already: this writer wrote it, or json_read() read it. */
void json_raw(struct json *json, const char *text, size_t len);
/* Writes a value that json_read() has read, as it was read. */
struct json_value;
void json_value_put(struct json *json, const struct json_value *v);

/* Members: a key and its value. */
void json_key_object(struct json *json, const char *name);
void json_key_array(struct json *json, const char *name);
void json_key_string(struct json *json, const char *name, const char *text); /* NULL: null */
void json_key_text(struct json *json, const char *name, const char *text);   /* NULL or "": null */
void json_key_u64(struct json *json, const char *name, uint64_t value);
void json_key_i64(struct json *json, const char *name, int64_t value);
void json_key_bool(struct json *json, const char *name, bool value);
void json_key_null(struct json *json, const char *name);
void json_key_raw(struct json *json, const char *name, const char *text, size_t len); /* NULL: null */
/* RFC 3339 with as many digits of the second (0, 3, 6, 9); null for a year that has no date. */
void json_key_time(struct json *json, const char *name, int64_t real_ns, unsigned digits);

/* Returns 0 if exactly one complete value was written, else the first failure. */
int json_finish(struct json *json) MUST_CHECK;

bool json_utf8_valid(const void *data, size_t len);
/*
 * Should these bytes of a program become a string? If not, they become base64. They do if they are UTF-8 and if escapes
 * make them at most twice as long: with six bytes for each NUL, the output of one program would cost the work and
 * memory of many.
 */
#define JSON_ESCAPES_MAX (64u << 10) /* So many escapes are always accepted. */
bool json_is_text(const void *data, size_t len);
int base64_append(struct buf *buf, const void *data, size_t len) MUST_CHECK;

#endif
