/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup.h: limits and counts by control groups: v2, v1, or both at once (hybrid: v1 controllers limit, the v2 tree
 * counts CPU time and kills).
 *
 * Leaves are made below the caller's own cgroup in every hierarchy. On v2 a cgroup with processes cannot hand
 * controllers to its children, so the spawner first moves itself and its engine into a leaf. Where other processes
 * share the cgroup, that is impossible: root then uses the top of the tree, and a plain user has no delegation.
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
    int v2_fd;               /* Leaves are made below it; -1 if there is none. */
    unsigned v2_controllers; /* The mask of 1u << enum cg_controller that can be used there. */
    int v2_self_fd;          /* The cgroup that we left for a leaf, or -1. */
    int v2_leaf_fd;          /* That leaf. Every engine in it holds a shared lock on it. */
    pid_t engine_pid, helper_pid;
    struct {
        int fd;
        unsigned controllers;
    } v1[CG_HIERARCHIES];
    unsigned n_v1;
    char huge_sizes[CG_HUGE_SIZES][8]; /* The sizes of huge pages as the controller's files name them: "2MB", "1GB". */
    unsigned n_huge_sizes;
};

/*
 * Opens our own cgroup in the hierarchy that is mounted at `mount`. path is its name in /proc/self/cgroup; mounts is
 * the text of mountinfo (NULL or "" if it is not known). Returns -1 if there is none, or if the mount shows only
 * cgroups of others.
 */
int cg_find_own(const char *mount, const char *path, const char *mounts) MUST_CHECK;
char *cg_read_mounts(void); /* Reads the text for it; free it with mem_free(). Returns NULL when memory is short. */

/*
 * Finds what this process may use. It needs to see the host's /proc and /sys/fs/cgroup. helper_pid is a child that is
 * at work already and moves along, or 0.
 */
void cg_host_init(struct cg_host *host, pid_t engine_pid, pid_t helper_pid, bool privileged);
void cg_host_done(struct cg_host *host);
/* Says what enforces this controller: BY_CGROUP_V1, BY_CGROUP_V2 or BY_NONE. */
enum reading_by cg_host_by(const struct cg_host *host, enum cg_controller controller);

/* One sandbox's cgroups. */
struct cg {
    const struct cg_host *host;
    char name[CG_NAME];
    int v2_fd;
    int v1_fd[CG_HIERARCHIES];         /* In the order of host->v1. */
    int oom_event_fd;                  /* v1: readable when the limit was hit; else -1. */
    bool split;                        /* v2: pid 1 is in a leaf, so that there may be other leaves. */
    bool no_v1_leaves;                 /* v1 does not allow us to move processes into them. */
    bool oom_one;                      /* A process that is killed for memory does not take the others along. */
    uint64_t oom_kills, pids_refusals; /* The counters when the run began. */
};

#define CG_INIT ((struct cg){.v2_fd = -1, .v1_fd = {-1, -1, -1, -1, -1, -1, -1}, .oom_event_fd = -1})

/* Makes the v2 leaf, into which a sandbox is cloned. The v1 leaves may be made while its set-up goes on. */
int cg_create(struct cg *cg, const struct cg_host *host, const char *name, struct brig_err *err) MUST_CHECK;
int cg_create_v1(struct cg *cg, bool io, struct brig_err *err) MUST_CHECK;
/*
 * Opens `tasks` of the v1 leaves and returns how many; the caller closes them. A thread that writes "0" there moves
 * itself alone. Since Linux 6.0 that avoids the global lock behind cgroup.procs and its RCU grace period: 0.05 ms
 * instead of up to 13.
 */
int cg_open_tasks(const struct cg *cg, int *fds, unsigned max, struct brig_err *err) MUST_CHECK;
/*
 * device is the "major:minor" behind the store, for the io limits, or NULL. off has the layers that are switched off
 * (test builds).
 */
/* was has the limits that are set already and need not be set again, or NULL. A caller that must be sure reads back. */
int cg_set_limits(struct cg *cg, const struct brig_limits *limits, const struct brig_limits *was, const char *device,
                  uint64_t off, struct brig_err *err) MUST_CHECK;
/*
 * Changes the memory, cpus and pids of a live sandbox, where they differ from was. On failure the former values are set
 * again, as far as possible. Memory that is in use is not taken away (-EBUSY), and a limit that no cgroup enforces
 * cannot be changed (BRIG_E_UNSUPPORTED).
 */
int cg_change_limits(struct cg *cg, const struct brig_limits *limits, const struct brig_limits *was, uint64_t off,
                     struct brig_err *err) MUST_CHECK;
/* Reads the limits and the membership of pid back: the layers memory, cpu, pids and io. proc_fd is the full procfs. */
void cg_read_back(const struct cg *cg, const struct brig_limits *limits, const char *device, int proc_fd, pid_t pid,
                  struct reading readings[BRIG_LAYER_MAX]);
/*
 * Moves a process into it, in every hierarchy, after somebody else has started it. Returns 0 or a negative errno.
 */
int cg_enter(const struct cg *cg, pid_t pid) MUST_CHECK;
/* Whether this process is in it or in a cgroup below it, wherever it limits something. */
bool cg_holds(const struct cg *cg, int proc_fd, pid_t pid);
void cg_mark(struct cg *cg); /* Remembers the counters as they are when the run begins. */
bool cg_oom_killed(const struct cg *cg);
uint64_t cg_cpu_ns(const struct cg *cg);       /* BRIG_USAGE_UNKNOWN where nothing counts it. */
uint64_t cg_memory_bytes(const struct cg *cg); /* The present value, as are the next ones. */
uint64_t cg_pids(const struct cg *cg);
uint64_t cg_oom_kills(const struct cg *cg); /* Since cg_mark(); 0 where nothing counts them. */
uint64_t cg_pids_refusals(const struct cg *cg);
/* Returns cg_cpu_ns() too, because adding it up costs more than all the rest. */
uint64_t cg_usage(const struct cg *cg, struct brig_usage *usage);
void cg_kill(const struct cg *cg); /* Kills frozen processes too. */
/* Returns 0, or -EOPNOTSUPP where no cgroup can do it. Freezing goes on after the call: see cg_is_frozen(). */
int cg_freeze(const struct cg *cg, bool on) MUST_CHECK;
bool cg_is_frozen(const struct cg *cg);
void cg_forget(struct cg *cg); /* Closes the descriptors and leaves the cgroups to somebody else. */
/* Returns 0 if nothing is left, or -EBUSY if the kernel needs a moment; then call again. */
int cg_destroy(struct cg *cg) MUST_CHECK;
/* Kills what is left of a sandbox of a killed spawner. Its pid 1 ended with the socket, unless it is frozen. */
void cg_kill_named(int parent, const char *name);
/* Removes one cgroup and its leaves by name. Returns 0, or -EBUSY while processes are in it. */
int cg_remove(int parent, const char *name) MUST_CHECK;

/* ---- cgroup_leaf.c: a cgroup for each process of a long-lived sandbox ----------------------------------- */

/*
 * Call it right after cg_create(), for a sandbox that may get leaves. Returns the directory to clone pid 1 into, or -1
 * if there is none or it is not needed.
 */
int cg_split(struct cg *cg);
bool cg_has_leaves(const struct cg *cg);
/*
 * Opens the existing cgroups of a sandbox by name, for the functions below. Returns 0, or a negative errno if it is
 * gone.
 */
int cg_open(struct cg *cg, const struct cg_host *host, const char *name, bool split) MUST_CHECK;
/* The same with every hierarchy, for one that is to be limited, frozen and removed by us. */
int cg_open_all(struct cg *cg, const struct cg_host *host, const char *name) MUST_CHECK;
/* pids is the sandbox's own limit. Returns 0 or a negative errno. */
int cg_leaf_create(struct cg *cg, uint32_t leaf, uint64_t pids) MUST_CHECK;
/*
 * Moves a process of the sandbox that is in no leaf yet. init is the sandbox's pid 1. -ESRCH: there is no such process
 * (any more).
 */
int cg_leaf_enter(struct cg *cg, uint32_t leaf, int proc_fd, pid_t pid, pid_t init) MUST_CHECK;
void cg_leaf_limit(const struct cg *cg, uint32_t leaf, uint64_t pids); /* The sandbox's own limit has changed. */
bool cg_leaf_is_empty(const struct cg *cg, uint32_t leaf);
void cg_leaf_kill(const struct cg *cg, uint32_t leaf);
void cg_leaf_count(const struct cg *cg, uint32_t leaf, struct guest_leaf_gone *ret);
int cg_leaf_remove(const struct cg *cg, uint32_t leaf) MUST_CHECK; /* Returns 0 or -EBUSY. */

#endif
