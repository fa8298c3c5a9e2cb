/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h: describes a list verb as data. A listing says which path is asked, which member of the answer is the
 * array, and which columns its rows have; one function asks and prints, as a table, as JSON or (-q) only the first
 * column.
 */
#ifndef BRIG_CLI_LISTING_H
#define BRIG_CLI_LISTING_H

#include "cli/service.h"

enum column_kind {
    COLUMN_TEXT,
    COLUMN_NUMBER,
    COLUMN_COUNT, /* the number of items in an array */
    COLUMN_BYTES,
    COLUMN_DURATION, /* a duration in milliseconds */
    COLUMN_AGE,
    COLUMN_UNTIL,
    COLUMN_YES, /* the text of yes if the member is true */
    COLUMN_KIND_MAX
};

struct column {
    const char *header; /* As for a table: ">" aligns right; "*" may be cut. */
    const char *member;
    enum column_kind kind;
    const char *of;        /* The member's object, if that is not the row itself. */
    const char *otherwise; /* For COLUMN_TEXT and COLUMN_YES; NULL means "-". */
    const char *yes;
    size_t most;  /* The bytes of COLUMN_TEXT that are shown; 0 for all. */
    bool differs; /* The column is left out if all rows have the same text. */
    /* Replaces member and kind: appends what is shown. */
    int (*put)(struct buf *out, const struct json_value *row);
};
#define COLUMN(title, name, ...)                         \
    {                                                    \
        .header = (title), .member = (name), __VA_ARGS__ \
    }

struct listing {
    struct flag_table words; /* Its flags fill in a struct listing_options. */
    const char *path;        /* As client_target() takes it, with one %s if a word is wanted. */
    const char *word;        /* What that word is; NULL for none. */
    const char *member;      /* The rows in the answer; NULL if the answer is the array. */
    const char *alone;       /* -o json prints the rows under this name, not the whole answer. */
    bool paged;              /* The answer has a next_cursor until all rows were sent; -o json prints one array. */
    bool (*hidden)(const struct json_value *row); /* Rows that only --all shows. */
    int (*order)(const void *a, const void *b);   /* Compares const struct json_value *; NULL: as they came. */
    struct column columns[TABLE_COLUMNS + 1];
};

struct listing_options {
    bool json, quiet, all;
};

/* -q and -o for a struct listing_options. */
extern const struct flag listing_names[2], listing_ids[2];
/* Runs a verb that is only a listing; so does .list of a struct cli_verb. Returns the exit status. */
int listing_main(const struct listing *listing, int argc, char **argv);
/* The same for a verb that made its own target. */
int listing_show(const struct listing *listing, const struct buf *target, const struct listing_options *options);
/* The same for a verb that has the client already. */
int listing_ask(const struct listing *listing, struct client *client, const struct buf *target,
                const struct listing_options *options);

/* A verb that is one DELETE per word, and prints those that are deleted. */
struct removal {
    struct flag_table words; /* Its flags fill in a struct listing_options. */
    const char *word;        /* What a word is. */
    const char *path;        /* As client_target() takes it, with one %s. */
};
extern const struct flag listing_rm[1];
int listing_remove(const struct removal *removal, int argc, char **argv);

#endif
