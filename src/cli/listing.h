/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listing.h: a list verb as data. A listing says which path is asked, which member of the answer is the array, and
 * which columns its rows have; one function asks and prints, as a table, as JSON or (-q) only the first column.
 */
#ifndef BRIG_CLI_LISTING_H
#define BRIG_CLI_LISTING_H

#include "cli/service.h"

enum column_kind {
    COLUMN_TEXT,
    COLUMN_NUMBER,
    COLUMN_COUNT, /* how many items an array has */
    COLUMN_BYTES,
    COLUMN_DURATION, /* of milliseconds */
    COLUMN_AGE,
    COLUMN_UNTIL,
    COLUMN_YES, /* the text of yes when the member is true */
    COLUMN_KIND_MAX
};

struct column {
    const char *header; /* as for a table: ">" aligns right, "*" gives way */
    const char *member;
    enum column_kind kind;
    const char *of;        /* the member's object, when that is not the row itself */
    const char *otherwise; /* of COLUMN_TEXT and COLUMN_YES; NULL: "-" */
    const char *yes;
    size_t most;  /* bytes of COLUMN_TEXT that are shown; 0: all */
    bool differs; /* the column is left out where all rows have the same text */
    /* Instead of member and kind: appends what is shown. */
    int (*put)(struct buf *out, const struct json_value *row);
};
#define COLUMN(title, name, ...)                         \
    {                                                    \
        .header = (title), .member = (name), __VA_ARGS__ \
    }

struct listing {
    struct flag_table words; /* its flags fill in a struct listing_options */
    const char *path;        /* as client_target() takes it, with one %s when a word is wanted */
    const char *word;        /* what that word is; NULL: none */
    const char *member;      /* the rows in the answer; NULL: the answer is the array */
    const char *alone;       /* -o json prints the rows, which are called this, not the whole answer */
    bool paged;              /* the answer has a next_cursor until all rows were sent; -o json prints one array */
    bool (*hidden)(const struct json_value *row); /* rows that only --all shows */
    int (*order)(const void *a, const void *b);   /* of const struct json_value *; NULL: as they came */
    struct column columns[TABLE_COLUMNS + 1];
};

struct listing_options {
    bool json, quiet, all;
};

/* -q and -o into a struct listing_options. */
extern const struct flag listing_names[2], listing_ids[2];
/* A verb that is nothing but a listing. Returns the exit status. */
int listing_main(const struct listing *listing, int argc, char **argv);
/* The same for a verb that has made its own target. */
int listing_show(const struct listing *listing, const struct buf *target, const struct listing_options *options);
/* The same for one that has the client already. */
int listing_ask(const struct listing *listing, struct client *client, const struct buf *target,
                const struct listing_options *options);

/* A verb that is one DELETE per word. */
extern const struct flag listing_rm[1];
int listing_delete_main(const struct flag_table *table, const char *what, const char *format, int argc, char **argv);

#endif
