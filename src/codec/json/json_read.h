/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_read.h: a strict JSON reader (RFC 8259). It makes a tree that lives in one allocation. It is made for requests
 * from anyone.
 *
 * It refuses the following and names the byte offset: anything after the value, a duplicate key in an object, a depth
 * over JSON_READ_DEPTH, more than the given number of values, invalid UTF-8, a lone surrogate escape, \u0000 in a key,
 * NaN and its kind, a number that no double holds (1e999). Time is linear in the text (large objects are looked up
 * through a sorted index). Memory is at most 112 bytes per value plus the length of the text. The text need not end
 * with a NUL.
 */
#ifndef BRIG_CODEC_JSON_JSON_READ_H
#define BRIG_CODEC_JSON_JSON_READ_H

#include <brig.h>

#include "base/base.h"

#define JSON_READ_DEPTH 64u
#define JSON_READ_VALUES (1u << 17) /* A reasonable bound for a request. */

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT, JSON_TYPE_MAX };

struct json_value {
    enum json_type type;
    bool boolean;
    bool integer; /* JSON_NUMBER: it was written without fraction and exponent and fits int64. */
    int64_t i64;  /* This is valid if integer is true. */
    double number;
    const char *string; /* JSON_STRING: the unescaped text, with a NUL at the end; it may contain NULs (see len). */
    size_t len;
    const char *key; /* The key of an object's member, else NULL. */
    size_t key_len;
    size_t count;                          /* JSON_ARRAY, JSON_OBJECT: the number of items. */
    const struct json_value *first, *next; /* The first item and the next sibling. */
    const struct json_value **sorted;      /* Private: an object's members by key, if there are many. */
    /*
     * The exact part of the text that the value was read from, without the blanks around it. It serves for numbers that
     * neither int64 nor double hold, and to hand a value on byte for byte. It points into the caller's text, not into
     * the document, so it is valid only while that text lives. No NUL follows it.
     */
    const char *raw;
    size_t raw_len;
};

struct json_doc; /* It owns all values and strings. */

/*
 * max_values is JSON_READ_VALUES or another bound. Returns 0, -EINVAL (BRIG_E_USAGE), -EMSGSIZE (BRIG_E_TOO_LARGE) or
 * -ENOMEM.
 */
int json_read(const char *text, size_t len, size_t max_values, struct json_doc **ret, struct brig_err *err) MUST_CHECK;
void json_doc_free(struct json_doc *doc); /* Wipes the memory, because it may have held secrets. doc may be NULL. */
#define AUTO_JSON __attribute__((cleanup(json_doc_done)))
static inline void json_doc_done(struct json_doc **doc)
{
    json_doc_free(*doc);
}
/* The same into an arena: the values live as long as it does. */
struct arena;
int json_read_in(struct arena *arena, const char *text, size_t len, size_t max_values, const struct json_value **ret,
                 struct brig_err *err) MUST_CHECK;
const struct json_value *json_root(const struct json_doc *doc);
/* Returns the member, or NULL if it is missing, or if the value is NULL or no object. */
const struct json_value *json_get(const struct json_value *object, const char *key);
/* json_get.c: the member if it has this type; a text is a string without a NUL in it. */
const char *json_get_text(const struct json_value *object, const char *key, const char *otherwise);
bool json_get_is(const struct json_value *object, const char *key, const char *text);      /* Is it this text? */
uint64_t json_get_u64(const struct json_value *object, const char *key);                   /* else 0 */
bool json_get_bool(const struct json_value *object, const char *key);                      /* else false */
const struct json_value *json_get_items(const struct json_value *object, const char *key); /* The first of an array. */

#endif
