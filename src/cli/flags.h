/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flags.h: a verb's flags as a table with the help text beside each flag; `brig VERB --help` is made from it.
 *
 * Understood: -m VALUE, --memory VALUE, --memory=VALUE, and bundles of letters that take no value (-it). Flags may
 * stand anywhere, but not in a command to be run. Not understood, on purpose: abbreviated names, -mVALUE. `--` ends the
 * flags and is never a value. If a flag is given twice, the last one wins, except where its apply() collects.
 */
#ifndef BRIG_CLI_FLAGS_H
#define BRIG_CLI_FLAGS_H

#include <brig.h>

#include "base/buf.h"

struct flag {
    const char *name;  /* without dashes; NULL if there is only the letter */
    const char *value; /* what the help calls the value; NULL if there is none */
    const char *help;  /* NULL: it is accepted but not in the help. */
    /* value is NULL for a flag without one. "given" is the flag as typed, for the message. */
    int (*apply)(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
    size_t field; /* For apply(): an offset into ctx. */
    char letter;  /* or 0 */
};

struct flag_table {
    const char *usage;   /* after "usage: " */
    const char *purpose; /* Sentences; the lines are broken by hand. */
    const struct flag *flags;
    size_t n_flags;
    /* The word, counted from 1, that begins a command: everything from there on belongs to the command. 0 for none. */
    int command;
};

/* In a flag_table. */
#define FLAGS(rows) .flags = (rows), .n_flags = ARRAY_SIZE(rows)

enum flags_result { FLAGS_DONE, FLAGS_HELP };

/*
 * Returns FLAGS_DONE with argv put in order, flags first, and *ret_rest the index of the first word that is no flag;
 * FLAGS_HELP if help was asked for; or a negative errno with the message in *err.
 */
int flags_parse(const struct flag_table *table, int argc, char **argv, void *ctx, int *ret_rest,
                struct brig_err *err) MUST_CHECK;
/* The flags of a verb that takes no words. true: go on; false: *ret_status is the exit status. */
bool flags_only(const struct flag_table *table, int argc, char **argv, void *ctx, const char *verb,
                int *ret_status) MUST_CHECK;
/* Prints the help on stdout; returns the exit status. */
int flags_help(const struct flag_table *table);

/* Makes the refusal of a value: "--pids 0: the rule". A long value is cut, so that the rule is always there. */
int flag_refuse(struct brig_err *err, const char *given, const char *value, const char *rule) MUST_CHECK;

/* apply() for the plain cases: the field of ctx is a bool, or a const char *. */
int flag_set_true(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int flag_set_text(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
/* clang-format off */
#define FLAG_QUIET(what, at) {"quiet", NULL, (what), flag_set_true, (at), 'q'}
/* clang-format on */
/* Reads -o text|json into a bool. */
int flag_set_format(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
/* Reads a size (brig_parse_size()) into a uint64_t. */
int flag_set_size(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
/* Reads a decimal number of 1 or more into a uint64_t. */
int flag_set_count(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);

#endif
