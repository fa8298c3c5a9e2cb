/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml.h: a TOML 1.0 reader. The whole document becomes a tree in an arena (wiped when freed: files have keys
 * in them); each value knows its line, for messages ("config.toml:12: ..."). Strict: what the specification forbids (a
 * key twice, a table reopened, mixed dotted and inline definitions, bare CR, bad UTF-8, a date that is none) is an
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
    const char *key; /* of a table's member; else NULL. NUL-terminated; key_len tells when it has NULs */
    size_t key_len;
    const char *string; /* STRING; the four date and time types: as written, with capital T and Z */
    size_t len;
    int64_t integer;
    double number;
    bool boolean;
    size_t count;
    const struct toml_value *first, *next;
};

struct toml_doc;
/* The message is "line N: ..."; BRIG_E_USAGE, or BRIG_E_NOMEM. */
int toml_read(const char *text, size_t len, struct toml_doc **ret, struct brig_err *err) MUST_CHECK;
void toml_free(struct toml_doc *doc); /* takes NULL */
const struct toml_value *toml_root(const struct toml_doc *doc);
/* NULL when missing or not a table */
const struct toml_value *toml_get(const struct toml_value *table, const char *key);

#endif
