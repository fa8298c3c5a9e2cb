/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.h: removes the remains of dead sandboxes beside the spawner. The kernel needs about a millisecond to unmount a
 * store and its overlays and to remove cgroups. That must not delay an answer or the next run, so a child of the
 * spawner does it. It also outlives a spawner that was killed, and removes every cgroup that carries the spawner's
 * token (host/owner.h), finished or half made.
 */
#ifndef BRIG_SPAWNER_REAPER_H
#define BRIG_SPAWNER_REAPER_H

#include <sys/types.h>

#include "host/cgroup.h"
#include "host/owner.h"

struct reaper {
    int fd; /* A SOCK_SEQPACKET to the child; -1 if there is none. */
    pid_t pid;
};

#define REAPER_INIT ((struct reaper){.fd = -1})

/* What is left of a sandbox when its last process is gone. It may be empty. */
struct remains {
    int mnt_fd, store_fd;
    struct cg cg;
};

/* Called in a child of the spawner: closes everything except the hierarchies and these. */
void reaper_close_others(const struct cg_host *cg, const int *keep, unsigned n);
/* The first call starts the child; without a child, remains are removed in place. */
void reaper_start(struct reaper *reaper, const struct cg_host *cg, const struct owner *owner);
/*
 * Owns the remains from now on. Returns 0, or -EBUSY if it works in place and the kernel needs a moment; then call
 * again.
 */
int reaper_take(struct reaper *reaper, struct remains *remains) MUST_CHECK;
/*
 * The child finishes its work, gives the owner's token back and ends; wait: until it has. none_left: reaper_take() was
 * told of every sandbox. Without a child the token is given back here.
 */
void reaper_done(struct reaper *reaper, struct owner *owner, bool none_left, bool wait);

#endif
