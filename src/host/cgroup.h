/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h: limits and accounting by control groups: v2, v1, or both at once (hybrid: v1 controllers limit, the
 * v2 tree counts CPU time and kills).
 *
 * Leaves are made below the caller's own cgroup in every hierarchy. On v2 a cgroup with processes cannot hand
 * controllers to its children, so the spawner first moves itself and its engine into a leaf; where strangers
 * share the cgroup, that is impossible: root then uses the top of the tree, a plain user has no delegation.
 */
#ifndef BRIG_HOST_CGROUP_H
#define BRIG_HOST_CGROUP_H

#include <brig.h>
#include <sys/types.h>

#include "codec/wire/guest_msg.h"

enum cg_controller { CG_MEMORY, CG_PIDS, CG_CPU, CG_CPUACCT, CG_BLKIO, CG_FREEZER, CG_HUGETLB, CG_MAX };
#define CG_HIERARCHIES 7 /* v1, at most one per controller */
#define CG_HUGE_SIZES 4
#define CG_NAME 48

struct cg_host {
    int v2_fd;               /* leaves go below it; -1: none */
    unsigned v2_controllers; /* mask of 1u << enum cg_controller usable there */
    int v2_self_fd;          /* the cgroup we left for a leaf, or -1 */
    int v2_leaf_fd;          /* that leaf; every engine in it holds a shared lock on it */
    pid_t engine_pid, helper_pid;
    struct {
        int fd;
        unsigned controllers;
    } v1[CG_HIERARCHIES];
    unsigned n_v1;
    char huge_sizes[CG_HUGE_SIZES][8]; /* of huge pages, as the controller's files name them: "2MB", "1GB" */
    unsigned n_huge_sizes;
};

/*
 * Our own cgroup in the hierarchy that is mounted at `mount`; path is what /proc/self/cgroup calls it, mounts the text
 * of mountinfo (NULL or "": unknown). -1: there is none, or the mount shows only cgroups of others.
 */
int cg_find_own(const char *mount, const char *path, const char *mounts) MUST_CHECK;
char *cg_read_mounts(void); /* for it; mem_free(); NULL: no memory */

/*
 * Finds what this process may use. Needs the host's /proc and /sys/fs/cgroup in sight. helper_pid: a child that is at
 * work already and moves along, or 0.
 */
void cg_host_init(struct cg_host *host, pid_t engine_pid, pid_t helper_pid, bool privileged);
void cg_host_done(struct cg_host *host);
/* Which kind enforces this controller: BY_CGROUP_V1, BY_CGROUP_V2 or BY_NONE. */
enum reading_by cg_host_by(const struct cg_host *host, enum cg_controller controller);

/* One sandbox's cgroups. */
struct cg {
    const struct cg_host *host;
    char name[CG_NAME];
    int v2_fd;
    int v1_fd[CG_HIERARCHIES];         /* parallel to host->v1 */
    int oom_event_fd;                  /* v1: readable when the limit was hit; -1 otherwise */
    bool split;                        /* v2: pid 1 is in a leaf, so that there may be others */
    bool no_v1_leaves;                 /* v1 does not let us move processes into them */
    bool oom_one;                      /* a process killed for memory does not take the others along */
    uint64_t oom_kills, pids_refusals; /* counters when the run began */
};

#define CG_INIT ((struct cg){.v2_fd = -1, .v1_fd = {-1, -1, -1, -1, -1, -1, -1}, .oom_event_fd = -1})

/* The v2 leaf, which a sandbox is cloned into; the v1 leaves may be made while its set-up goes on. */
int cg_create(struct cg *cg, const struct cg_host *host, const char *name, struct brig_err *err) MUST_CHECK;
int cg_create_v1(struct cg *cg, bool io, struct brig_err *err) MUST_CHECK;
/*
 * Opens `tasks` of the v1 leaves; returns how many. The caller closes them. A thread that writes "0" there moves
 * itself alone, which since Linux 6.0 spares the global lock behind cgroup.procs and its RCU grace period: 0.05 ms
 * instead of up to 13.
 */
int cg_open_tasks(const struct cg *cg, int *fds, unsigned max, struct brig_err *err) MUST_CHECK;
/* device: "major:minor" behind the store for the io limits, or NULL. off: layers switched off (test builds). */
/* was: what is set already, and need not be set again (whoever cares reads back); or NULL. */
int cg_set_limits(struct cg *cg, const struct brig_limits *limits, const struct brig_limits *was, const char *device,
                  uint64_t off, struct brig_err *err) MUST_CHECK;
/*
 * Of a live sandbox: memory, cpus and pids that differ from what is set. On failure what was set before is set again,
 * as far as it can be. Memory that is in use already is not taken away (-EBUSY), and what no cgroup enforces cannot be
 * changed (BRIG_E_UNSUPPORTED).
 */
int cg_change_limits(struct cg *cg, const struct brig_limits *limits, const struct brig_limits *was, uint64_t off,
                     struct brig_err *err) MUST_CHECK;
/* Reads limits and membership of pid back: the layers memory, cpu, pids, io. proc_fd: the full procfs. */
void cg_read_back(const struct cg *cg, const struct brig_limits *limits, const char *device, int proc_fd, pid_t pid,
                  struct reading readings[BRIG_LAYER_MAX]);
void cg_mark(struct cg *cg); /* remembers the counters as the run's baseline */
bool cg_oom_killed(const struct cg *cg);
uint64_t cg_cpu_ns(const struct cg *cg);       /* BRIG_USAGE_UNKNOWN where nothing counts it */
uint64_t cg_memory_bytes(const struct cg *cg); /* now; and so are these: */
uint64_t cg_pids(const struct cg *cg);
uint64_t cg_oom_kills(const struct cg *cg); /* since cg_mark(); 0 where nothing counts them */
uint64_t cg_pids_refusals(const struct cg *cg);
/* returns cg_cpu_ns(): to add that up costs more than all the rest */
uint64_t cg_usage(const struct cg *cg, struct brig_usage *usage);
void cg_kill(const struct cg *cg); /* also what is frozen */
/* 0, or -EOPNOTSUPP where no cgroup can. Freezing goes on after the call: see cg_is_frozen(). */
int cg_freeze(const struct cg *cg, bool on) MUST_CHECK;
bool cg_is_frozen(const struct cg *cg);
void cg_forget(struct cg *cg); /* closes descriptors, leaves the cgroups to somebody else */
/* 0 when nothing is left, -EBUSY when the kernel needs a moment: call again. */
int cg_destroy(struct cg *cg) MUST_CHECK;
/* Of a killed spawner's sandbox: its pid 1 ended with the socket, unless it is frozen. */
void cg_kill_named(int parent, const char *name);
/* Removes one cgroup and its leaves, by name: 0, or -EBUSY while processes are in it. */
int cg_remove(int parent, const char *name) MUST_CHECK;

/* ---- cgroup_leaf.c: a cgroup for each process of a long-lived sandbox ----------------------------------- */

/* Right after cg_create(), for a sandbox that may get leaves: the directory to clone pid 1 into, or -1: no need, or not
 * to be had. */
int cg_split(struct cg *cg);
bool cg_has_leaves(const struct cg *cg);
/* What there is of a sandbox's cgroups, by name, for the functions below. 0, or a negative errno: it is gone. */
int cg_open(struct cg *cg, const struct cg_host *host, const char *name, bool split) MUST_CHECK;
/* pids: the sandbox's own limit. 0 or a negative errno. */
int cg_leaf_create(struct cg *cg, uint32_t leaf, uint64_t pids) MUST_CHECK;
/*
 * Moves a process of the sandbox that is in no leaf yet; init: its pid 1. -ESRCH: there is no such process (any more).
 */
int cg_leaf_enter(struct cg *cg, uint32_t leaf, int proc_fd, pid_t pid, pid_t init) MUST_CHECK;
void cg_leaf_limit(const struct cg *cg, uint32_t leaf, uint64_t pids); /* the sandbox's own is another now */
bool cg_leaf_is_empty(const struct cg *cg, uint32_t leaf);
void cg_leaf_kill(const struct cg *cg, uint32_t leaf);
void cg_leaf_count(const struct cg *cg, uint32_t leaf, struct guest_leaf_gone *ret);
int cg_leaf_remove(const struct cg *cg, uint32_t leaf) MUST_CHECK; /* 0 or -EBUSY */

#endif
