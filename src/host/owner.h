/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h: records whose cgroups are whose. A spawner and its reaper hold a lock on one file in the run directory. The
 * file is named after a token, and the name of each of their cgroups ends with that token; the file says in which
 * directories they are. If both are killed, the lock is free, and the next spawner removes what carries the token. A
 * cgroup without such a file, or with a locked one, belongs to somebody and is left alone. Mounts, loop devices and id
 * ranges need none of this: the kernel frees them.
 */
#ifndef BRIG_HOST_OWNER_H
#define BRIG_HOST_OWNER_H

#include <brig.h>

#include "host/cgroup.h"

#define OWNER_TOKEN 8

struct owner {
    int dir_fd, lock_fd;         /* The run directory, borrowed; -1 if there is none, and no file. */
    char token[OWNER_TOKEN + 1]; /* "" before the first cgroup. */
    bool tried;
    size_t len;
    char places[2048]; /* The text that the file must have. */
};

#define OWNER_INIT ((struct owner){.dir_fd = -1, .lock_fd = -1})

/* Removes what dead owners left, for at most a second. It needs to see the host's tree. */
void owner_init(struct owner *owner, int run_fd, const struct cg_host *cg);
/*
 * For the spawner of a service: waits until nothing is left of the service's former spawner, which may still be at work
 * in the service's directories, and notes our token for the next one. Where no cgroup can be made there is nothing to
 * wait by. If it does not end, that is an error.
 */
int owner_follow(struct owner *owner, struct brig_err *err) MUST_CHECK;
/*
 * For the reaper of a spawner that was killed: ends and removes every cgroup that carries our token. tries: with 2 ms
 * between them, for all together. Returns whether none is left.
 */
bool owner_sweep(const struct owner *owner, const struct cg_host *cg, int tries) MUST_CHECK;
/* Nothing of ours is left. The last one of spawner and reaper calls it. */
void owner_done(struct owner *owner);
/*
 * Makes cg.name of a sandbox. The first call claims the token. A failure is not an error: a crash then leaves more
 * behind.
 */
void owner_cgroup_name(struct owner *owner, const char *id, char out[CG_NAME]);

#endif
