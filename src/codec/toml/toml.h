/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml.h: a TOML 1.0 reader. The whole document becomes a tree in an arena, which is wiped when it is freed, because
 * files contain keys. Each value knows its line, for messages ("config.toml:12: ..."). What the specification forbids
 * (a key twice, a table reopened, mixed dotted and inline definitions, a bare CR, bad UTF-8, an impossible date) is an
 * error that names the line.
 */
#ifndef BRIG_CODEC_TOML_TOML_H
#define BRIG_CODEC_TOML_TOML_H

#include <brig.h>

#include "base/base.h"

#define TOML_MAX_BYTES (1u << 20)
#define TOML_MAX_DEPTH 64u

enum toml_type {
    TOML_STRING,
    TOML_INTEGER,
    TOML_FLOAT,
    TOML_BOOL,
    TOML_DATETIME,
    TOML_LOCAL_DATETIME,
    TOML_LOCAL_DATE,
    TOML_LOCAL_TIME,
    TOML_ARRAY,
    TOML_TABLE,
    TOML_TYPE_MAX
};

struct toml_value {
    enum toml_type type;
    unsigned line;
    /* The key of a table's member, else NULL. It ends with a NUL and may contain NULs (see key_len). */
    const char *key;
    size_t key_len;
    const char *string; /* A string, or a date or time as it was written, with capital T and Z. */
    size_t len;
    int64_t integer;
    double number;
    bool boolean;
    size_t count;
    const struct toml_value *first, *next;
};

struct toml_doc;
/* The message is "line N: ..." with BRIG_E_USAGE or BRIG_E_NOMEM. */
int toml_read(const char *text, size_t len, struct toml_doc **ret, struct brig_err *err) MUST_CHECK;
void toml_free(struct toml_doc *doc); /* doc may be NULL. */
const struct toml_value *toml_root(const struct toml_doc *doc);
/* Returns NULL if the key is missing or the value is no table. */
const struct toml_value *toml_get(const struct toml_value *table, const char *key);

#endif
