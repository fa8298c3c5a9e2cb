/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cp.h: the parts of `brig cp` and `brig volume cp`: cp.c parses the words, cp_up.c copies into a sandbox, cp_down.c
 * out of one, cp_progress.c shows the progress.
 */
#ifndef BRIG_CLI_VERBS_CP_H
#define BRIG_CLI_VERBS_CP_H

#include "cli/service.h"

struct cp_progress {
    bool on;
    uint64_t total; /* or CLIENT_LENGTH_UNKNOWN */
    uint64_t done, shown_at_ns, started_ns;
    const char *name;
};
void cp_progress_begin(struct cp_progress *progress, bool quiet, const char *name, uint64_t total);
void cp_progress_add(struct cp_progress *progress, size_t len);
void cp_progress_end(struct cp_progress *progress); /* Removes the line. */

struct cp {
    struct client *client;
    bool quiet, tar;
    uint64_t max;               /* The bytes of files that may be written here; 0: the sandbox's disk limit. */
    uint64_t max_names;         /* The names that a tree may have here; cp_down() sets it. */
    const char *sandbox, *path; /* The path inside. */
    const char *local;          /* or "-" */
};

/* A verb that copies into something and out of it. */
struct cp_verb {
    const struct flag_table *words; /* Its flags are cp_flags. */
    const char *usage;              /* in a message about the words */
    const char *thing;              /* what is copied into, in a message: "sandbox" */
    const char *place;              /* what must be one of the words: "SANDBOX:PATH" */
    /* Gets a cp whose sandbox and path are the words before and after the colon. Returns the exit status. */
    int (*copy)(struct cp *cp, bool out);
};
extern const struct flag cp_flags[3];
int cp_verb_main(const struct cp_verb *verb, int argc, char **argv);

/* These return an exit status. */
int cp_up(const struct cp *cp);
int cp_down(struct cp *cp);

/* The type of what is there ("file", "directory", ...; "" for nothing), its size and mode. */
struct cp_entry {
    char type[16];
    uint64_t size;
    unsigned mode;
};
bool cp_stat(const struct cp *cp, struct cp_entry *ret);
/*
 * Returns the last name of a path, or "" if it means the directory's content: "a/b" is "b"; "a/.", "." and "/" are "".
 */
const char *cp_base(const char *path, char *out, size_t size);
int cp_failed(int r, const struct brig_err *err); /* Prints it and returns the exit status. */

#endif
