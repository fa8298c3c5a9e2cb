/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.h: takes dead sandboxes apart beside the spawner. Unmounting a store and its overlays and removing
 * cgroups takes the kernel about a millisecond, which must not delay an answer or the next run; a child of the
 * spawner does it. It also outlives a spawner that was killed: it knows every cgroup that was made, and removes
 * them when their processes, whose control sockets closed, are gone.
 */
#ifndef BRIG_SPAWNER_REAPER_H
#define BRIG_SPAWNER_REAPER_H

#include <sys/types.h>

#include "host/cgroup.h"
#include "host/owner.h"

struct reaper {
    int fd; /* SOCK_SEQPACKET to the child; -1: none */
    pid_t pid;
};

#define REAPER_INIT ((struct reaper){.fd = -1})

/* What is left of a sandbox when its last process is gone. Empty ones are allowed. */
struct remains {
    int mnt_fd, store_fd;
    struct cg cg;
};

/* In a child of the spawner: closes everything but the hierarchies and these. */
void reaper_close_others(const struct cg_host *cg, const int *keep, unsigned n);
/* A sandbox has cgroups. Starts the child with the first one; without it remains are removed in place. */
void reaper_born(struct reaper *reaper, const struct cg *cg, const struct owner *owner);
/* Takes the remains over. 0, or -EBUSY when done in place and the kernel needs a moment: call again. */
int reaper_take(struct reaper *reaper, struct remains *remains) MUST_CHECK;
/* The child finishes what it has, gives the owner's token back and ends; wait: until it has. Without a child it is
 * given back here. */
void reaper_done(struct reaper *reaper, struct owner *owner, bool wait);

#endif
