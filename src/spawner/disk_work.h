/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_work.h: the processes that work on disks (host/disks.h), which takes up to minutes. Each does one thing, says
 * how far it is and how it ended, and ends. It dies with the spawner.
 */
#ifndef BRIG_SPAWNER_DISK_WORK_H
#define BRIG_SPAWNER_DISK_WORK_H

#include "spawner/spawner.h"

enum disk_task {
    TASK_BEGIN,   /* opens the place of disks; fds: DISK_OPEN_FDS, those that there are, and the list of all disks */
    TASK_MEASURE, /* fds: the list of all disks, struct disk_facts each */
    TASK_GROW,
    TASK_CLOSE, /* removes an empty pool, after the spawner has let go of it */
    TASK_MAKE,
    TASK_SNAP,
    TASK_REMOVE,
    TASK_TIDY, /* of a disk with too many extents; nobody waits for it */
    TASK_RUN,  /* what a run needs before it can be built */
};

struct disk_work {
    enum disk_task task;
    const char *name;
    uint64_t size, inodes;
    uint64_t grow_to;
    const struct sandbox *box; /* SNAP */
    bool lasting;              /* SNAP: it survives a power failure */
    bool takes;                /* RUN: it gets the disk that it would be a copy of */
    const struct run_spec *run;
};

/* LET_GO: the spawner closes the place of disks, and then its end of the socket for writing. */
enum disk_say_type { SAY_PROGRESS, SAY_LET_GO, SAY_DONE };

struct disk_say {
    uint32_t type;
    uint32_t n; /* the disks of the list */
    uint64_t at, of;
    struct brig_err err;
    struct disk_made made;
    uint64_t used;   /* BEGIN, MEASURE: what all disks have */
    uint32_t kind;   /* BEGIN: enum disks_kind */
    uint32_t opened; /* BEGIN: one bit for each of fd, mount_fd, pool_fd, loop_fd */
    char why[192];
};

/* Starts it. *ret_sock gives its struct disk_say and is closed when it has ended. */
int disk_work_start(struct spawner *spawner, const struct disk_work *work, pid_t *ret_pid, int *ret_sock,
                    struct brig_err *err) MUST_CHECK;

#endif
