/* SPDX-License-Identifier: Apache-2.0 */
/* cp.h: the parts of `brig cp`: cp.c the words, cp_up.c into a sandbox, cp_down.c out of one, cp_progress.c the line
 * meanwhile. */
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
void cp_progress_end(struct cp_progress *progress); /* the line is wiped */

struct cp {
    struct client *client;
    bool quiet, tar;
    uint64_t max;               /* bytes of files that are written here; 0: the sandbox's disk limit */
    const char *sandbox, *path; /* inside */
    const char *local;          /* or "-" */
};

/* An exit status. */
int cp_up(const struct cp *cp);
int cp_down(struct cp *cp);

/* type of what is there ("file", "directory", ...; "" when nothing is), its size and mode. */
struct cp_entry {
    char type[16];
    uint64_t size;
    unsigned mode;
};
bool cp_stat(const struct cp *cp, struct cp_entry *ret);
/* The last name of a path, or "" when it means the directory's content: "a/b" is "b", "a/.", "." and "/" are "". */
const char *cp_base(const char *path, char *out, size_t size);
int cp_failed(int r, const struct brig_err *err); /* says it; the exit status */

#endif
