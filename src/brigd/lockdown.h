/* SPDX-License-Identifier: Apache-2.0 */
/* lockdown.h: brigd gives up what it does not need before it reads the first byte from a client. */
#ifndef BRIG_BRIGD_LOCKDOWN_H
#define BRIG_BRIGD_LOCKDOWN_H

#include <brig.h>

#include "base/base.h"

struct lockdown {
    const char *const *writable; /* directories; NULL at the end */
    const char *const *readable; /* Files and directories; NULL at the end. Missing ones are skipped. */
    /* Lists of directories that are read, separated by colons; NULL at the end, or NULL. */
    const char *const *dir_lists;
    bool network; /* It may open connections (a PostgreSQL server over TCP, OTLP). */
};

/*
 * Stage 1, before anything else: no core dumps, not dumpable, no new privileges. Stage 2: Landlock. Stage 3: seccomp,
 * on all threads. A kernel without Landlock is noted in the log and is no error; the other two must hold.
 */
int lockdown_early(struct brig_err *err) MUST_CHECK;
/* The abi is 0 if the kernel has none. */
int lockdown_files(const struct lockdown *what, unsigned *ret_abi, struct brig_err *err) MUST_CHECK;
int lockdown_calls(const struct lockdown *what, struct brig_err *err) MUST_CHECK;

#endif
