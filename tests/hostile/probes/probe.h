/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile probe: one static program, one case per argv[1]. It runs inside a sandbox and tries to break out of it,
 * to starve the machine, to learn what it should not know or to forge its own result.
 *
 * Output contract (tests/hostile/run.py reads it):
 *   ok NAME                 the sub-check was tried and the sandbox held
 *   BREACH NAME: what       the attempt succeeded
 *   BREACH NAME: unexpected errno E (allowed A|B)
 *                           refused, but not in the way that is promised; never counts as proof that a case bites
 *   untried NAME: why       the attempt could not be made here
 * Exit status: 1 after any BREACH, else 0 when at least one sub-check held, else 2.
 *
 * A probe must be safe on a machine whose sandbox does not work: it opens for writing but writes back what it read,
 * sends real signals only after it has seen that it is not in the host's pid namespace, and bounds every bomb by
 * itself.
 *
 * What the harness tells it comes in HOSTILE_* variables. Canary values never do: only where they are.
 */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIB (1024ULL * 1024ULL)

struct probe_case {
    const char *id;
    void (*run)(int argc, char **argv); /* argv[0] is the case's id */
};

/* One table per file, each ended by an entry without id. */
extern const struct probe_case walk_cases[], root_cases[], mount_cases[], share_cases[], signal_cases[], spy_cases[],
    priv_cases[], kernel_cases[], channel_cases[], memory_cases[], quota_cases[], storm_cases[], host_cases[],
    inside_cases[], inside_more_cases[], inside_last_cases[];

/* Reporting. Tallies live in shared memory, so children may report too. */
void held(const char *name);
void breach(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void untried(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* held when cond, else a breach with the text. */
void expect(bool cond, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Judge one refused call: rc < 0 with errno in the zero-ended list. Returns rc. */
long judge_refused(const char *name, long rc, int err, const int *allowed);
int probe_status(void);

#define ERRS(...) ((const int[]){__VA_ARGS__, 0})
#define REFUSED(name, expr, ...)                              \
    ({                                                        \
        errno = 0;                                            \
        long rc_ = (long)(expr);                              \
        judge_refused((name), rc_, errno, ERRS(__VA_ARGS__)); \
    })

/* A formatted name in one of a few rotating buffers; good until eight more were made. */
const char *nm(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Environment from the harness. NULL when it was not given. */
const char *given(const char *name);
long given_long(const char *name, long otherwise);
/* True in the run with layers switched off: touch nothing but what the harness offered as prey. */
bool gentle(void);
bool mode_is(const char *mode); /* root, rootless1 or rootless2 */
/* True when this process shares the host's namespace of that kind (pid, mnt, ...): real attacks would hit the host. */
bool in_host_ns(const char *kind);
/* True when text contains one of the ':'-separated words of HOSTILE_FORBIDDEN; *ret_word then names it. */
bool is_forbidden(const char *text, const char **ret_word);

/* Files. */
ssize_t slurp(const char *path, char *buf, size_t size); /* NUL-ended; -1 with errno */
bool same_place(const char *a, const char *b);           /* same device and inode */
/* Open and read a file that must be out of reach; any success is a breach. */
void try_read(const char *name, int dirfd, const char *path);
/* Writable by the contract of the jail; in an off run without a mount namespace the ones that exist. */
extern const char *const writable_dirs[];
const char *scratch(void); /* a directory this process can write to */

/* Run fn in a child; returns its wait status, or -1. Killed after `seconds`. */
int in_child(void (*fn)(void *), void *arg, unsigned seconds);

uint64_t now_ns(void);
/* System calls newer than the headers of Debian 12. */
enum {
    NR_cachestat = 451,
    NR_fchmodat2 = 452,
    NR_statmount = 457,
    NR_listmount = 458,
    NR_lsm_get_self_attr = 459,
    NR_lsm_set_self_attr = 460,
    NR_setxattrat = 463,
    NR_open_tree_attr = 467,
    NR_file_setattr = 469,
};
