/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h: whose cgroups are these? A spawner and its reaper hold a lock on one file in the run directory, named after
 * a token that the name of each of their cgroups ends in; the file says in which directories they are. If both are
 * killed, the lock is free, and the next spawner removes what carries the token. Whatever has no such file, or a lock
 * on it, is somebody's: it is left alone. Mounts, loop devices and id ranges need none of this; the kernel takes them
 * back.
 */
#ifndef BRIG_HOST_OWNER_H
#define BRIG_HOST_OWNER_H

#include <brig.h>

#include "host/cgroup.h"

#define OWNER_TOKEN 8

struct owner {
    int dir_fd, lock_fd;         /* the run directory, borrowed; -1: there is none, and no token */
    char token[OWNER_TOKEN + 1]; /* "" without a file */
    bool tried;
    size_t len;
    char places[2048]; /* what the file is to say */
};

#define OWNER_INIT ((struct owner){.dir_fd = -1, .lock_fd = -1})

/* Removes what dead owners left; at most a second is spent on it. Needs the host's tree in sight. */
void owner_init(struct owner *owner, int run_fd, const struct cg_host *cg);
/*
 * For the spawner of a service: waits until nothing is left of the spawner that the service had before, which may still
 * be at work in the service's directories, and notes our token for the one that follows. Where no cgroup can be made
 * there is nothing to wait for by. An error when it does not end.
 */
int owner_follow(struct owner *owner, struct brig_err *err) MUST_CHECK;
/* Nothing of ours is left. Called by whichever of spawner and reaper is the last. */
void owner_done(struct owner *owner);
/* cg.name of a sandbox. The first one claims the token; failing is not an error: crashes then leave more behind. */
void owner_cgroup_name(struct owner *owner, const char *id, char out[CG_NAME]);

#endif
