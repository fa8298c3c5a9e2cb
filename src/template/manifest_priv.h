/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_priv.h: takes typed members out of a stranger's JSON, for the files that parse documents of images. What is
 * missing or null is nothing; what has another type, a NUL, or more than its bound is a refusal that names the member.
 */
#ifndef BRIG_TEMPLATE_MANIFEST_PRIV_H
#define BRIG_TEMPLATE_MANIFEST_PRIV_H

#include "base/arena.h"
#include "base/err.h"
#include "codec/json/json_read.h"
#include "template/manifest.h"

#define DOCUMENT_VALUES 65536u

struct picker {
    const char *what; /* the document, as the refusal names it */
    struct arena *arena;
    struct brig_err *err;
};

#define pick_refuse(picker, ...) err_set((picker)->err, BRIG_E_INVALID, 0, __VA_ARGS__)

/* Reads a document into a new arena; its root must have that type. */
int pick_document(const char *text, size_t len, size_t max, enum json_type type, struct picker *picker,
                  const struct json_value **ret) MUST_CHECK;
/* *ret is NULL where there is no such member. */
int pick_member(struct picker *picker, const struct json_value *object, const char *key, enum json_type type,
                const struct json_value **ret) MUST_CHECK;
/* *ret is "" where there is none. */
int pick_string(struct picker *picker, const struct json_value *object, const char *key, size_t max,
                const char **ret) MUST_CHECK;
int pick_number(struct picker *picker, const struct json_value *object, const char *key, uint64_t max,
                uint64_t *ret) MUST_CHECK;
/* An array of strings, each of at most max bytes; ret_there (or NULL) says whether there is one. */
int pick_list(struct picker *picker, const struct json_value *object, const char *key, size_t max_items, size_t max,
              struct text_list *ret, bool *ret_there) MUST_CHECK;
/* The keys of an object, and its values if ret_values is not NULL: then they must be strings. */
int pick_keys(struct picker *picker, const struct json_value *object, const char *key, size_t max_items, size_t max,
              struct text_list *ret, struct text_list *ret_values) MUST_CHECK;
/* An array of n items of size bytes, cleared; NULL and the error set if memory is short. n 0 gives one item. */
void *pick_array(struct picker *picker, size_t n, size_t size) MUST_CHECK;
int pick_digest(struct picker *picker, const char *key, const char *text) MUST_CHECK;

#endif
