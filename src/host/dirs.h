/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs.h: where the engine keeps things on this machine.
 *
 *              root              a plain user                                                     overridden by
 *     state    /var/lib/brig     $XDG_STATE_HOME/brig, else ~/.local/state/brig                   BRIG_STATE_DIR
 *     run      /run/brig         $XDG_RUNTIME_DIR/brig, else `run` in the state directory         BRIG_RUN_DIR
 *     cache    /var/cache/brig   $XDG_CACHE_HOME/brig, else ~/.cache/brig                         BRIG_CACHE_DIR
 *
 * As the XDG specification asks, its variables count only when they are absolute, and XDG_RUNTIME_DIR only when
 * it is a directory of the caller's (after `su` it is still the other user's). An override that is not absolute
 * is an error: it was meant, and it would mean something else in every working directory.
 */
#ifndef BRIG_HOST_DIRS_H
#define BRIG_HOST_DIRS_H

#include <brig.h>

#include "base/base.h"

enum brig_dir { BRIG_DIR_STATE, BRIG_DIR_RUN, BRIG_DIR_CACHE, BRIG_DIR_MAX };

/* The path, without making or looking at it. 0 or a negative errno. */
int dirs_path(enum brig_dir which, char *buf, size_t size, struct brig_err *err) MUST_CHECK;

/*
 * The directory itself, open for reading and CLOEXEC, made with its parents where missing (0700; root's run and
 * cache 0755). One that is there must be a real directory, belong to the caller, and be writable by nobody else.
 */
int dirs_open(enum brig_dir which, struct brig_err *err) MUST_CHECK;

/*
 * Whether dirs_open() would work: the same checks and the same words, but nothing is made. *ret_fd is the directory, or
 * -1 where dirs_open() would make it. 0 or a negative errno.
 */
int dirs_look(enum brig_dir which, int *ret_fd, struct brig_err *err) MUST_CHECK;

/*
 * Removes what is in a directory of ours, depth levels down. Follows nothing; what cannot be removed stays, silently.
 */
void dirs_remove_content(int dir_fd, unsigned depth);

#endif
