/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.h: takes dead sandboxes apart beside the spawner. Unmounting a store and its overlays and removing
 * cgroups takes the kernel about a millisecond, which must not delay the next run; a child of the spawner does
 * it. A spawner that serves a single run has no such child and does it itself, after the answer.
 */
#ifndef BRIG_JAIL_REAPER_H
#define BRIG_JAIL_REAPER_H

#include "jail/cgroup.h"

struct reaper {
    int fd; /* SOCK_SEQPACKET to the child; -1: none */
};

#define REAPER_INIT ((struct reaper){.fd = -1})

/* What is left of a sandbox when its last process is gone. Empty ones are allowed. */
struct remains {
    int mnt_fd, store_fd;
    struct cg cg;
};

/* Starts the child, once. Failing is no error: remains are then removed in place. */
void reaper_start(struct reaper *reaper, const struct cg_host *cg);
/* Takes the remains over. 0, or -EBUSY when done in place and the kernel needs a moment: call again. */
int reaper_take(struct reaper *reaper, struct remains *remains) MUST_CHECK;
void reaper_done(struct reaper *reaper); /* the child finishes what it has and ends */

#endif
