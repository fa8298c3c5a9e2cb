/* SPDX-License-Identifier: Apache-2.0 */
/* toml_priv.h: what the files of the TOML reader share. No other file includes it. */
#ifndef BRIG_CODEC_TOML_TOML_PRIV_H
#define BRIG_CODEC_TOML_TOML_PRIV_H

#include "base/err.h"
#include "codec/toml/toml.h"

/*
 * A value, with what the rules about a table's definition need. `section` numbers the [headers]: a dotted key may add
 * to a table only in the section in which dotted keys made it.
 */
struct toml_node {
    struct toml_value value; /* This is the first member, so that a node and its value have one address. */
    struct toml_node *parent, *last;
    struct toml_node *same_hash;
    uint32_t hash;
    unsigned dotted; /* The section in which a dotted key passed through this table, or 0. */
    bool header;     /* A [header] defined it. */
    bool frozen;     /* An inline table or a written-out array: it is complete with all that is in it. */
    bool of_tables;  /* An array to which [[headers]] add. */
};

struct toml_text {
    const char *data;
    size_t len;
};

struct toml_reader {
    const char *at, *end;
    unsigned line;
    unsigned depth; /* The depth of arrays and inline tables that are being read. */
    unsigned section;
    struct toml_doc *doc;
    struct brig_err *err;
};

/* toml.c */
void *toml_alloc(struct toml_reader *in, size_t size) MUST_CHECK;
int toml_fail(struct toml_reader *in, const char *format, ...) PRINTF_LIKE(2, 3);

static inline int toml_peek(const struct toml_reader *in)
{
    return in->at < in->end ? (unsigned char)*in->at : -1;
}

/* A newline is LF or CRLF; a CR elsewhere was refused before reading began. */
static inline bool toml_newline(struct toml_reader *in)
{
    if (toml_peek(in) == '\r')
        in->at++;
    if (toml_peek(in) != '\n')
        return false;
    in->at++;
    in->line++;
    return true;
}

static inline void toml_blanks(struct toml_reader *in)
{
    while (toml_peek(in) == ' ' || toml_peek(in) == '\t')
        in->at++;
}

static inline bool toml_starts(const struct toml_reader *in, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(in->end - in->at) >= len && memcmp(in->at, word, len) == 0;
}

/* toml_string.c */
int toml_read_string(struct toml_reader *in, bool multi_line, struct toml_text *ret) MUST_CHECK;
int toml_read_key(struct toml_reader *in, struct toml_text *ret) MUST_CHECK; /* Reads one part of a dotted key. */

/* toml_scalar.c: reads true, false, numbers, dates and times. */
int toml_read_scalar(struct toml_reader *in, struct toml_value *ret) MUST_CHECK;

#endif
