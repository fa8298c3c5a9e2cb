/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dirs.h: the directories that the engine uses on this machine.
 *
 *              root              a plain user                                                     overridden by
 *     state    /var/lib/brig     $XDG_STATE_HOME/brig, else ~/.local/state/brig                   BRIG_STATE_DIR
 *     run      /run/brig         $XDG_RUNTIME_DIR/brig, else `run` in the state directory         BRIG_RUN_DIR
 *     cache    /var/cache/brig   $XDG_CACHE_HOME/brig, else ~/.cache/brig                         BRIG_CACHE_DIR
 *
 * As the XDG specification asks, its variables count only if they are absolute, and XDG_RUNTIME_DIR only if it is a
 * directory of the caller (after `su` it is still the other user's). An override that is not absolute is an error: it
 * would mean something else in every working directory.
 */
#ifndef BRIG_HOST_DIRS_H
#define BRIG_HOST_DIRS_H

#include <brig.h>

#include "base/base.h"

enum brig_dir { BRIG_DIR_STATE, BRIG_DIR_RUN, BRIG_DIR_CACHE, BRIG_DIR_MAX };

/* Writes the path without making or looking at the directory. Returns 0 or a negative errno. */
int dirs_path(enum brig_dir which, char *buf, size_t size, struct brig_err *err) MUST_CHECK;

/*
 * Opens the directory for reading, close-on-exec, and makes it with its parents if it is missing (0700; root's run and
 * cache 0755). An existing one must be a real directory, belong to the caller, and be writable by nobody else.
 */
int dirs_open(enum brig_dir which, struct brig_err *err) MUST_CHECK;

/*
 * Would dirs_open() work? It makes the same checks with the same messages and makes nothing. *ret_fd is the directory,
 * or -1 if dirs_open() would make it. Returns 0 or a negative errno.
 */
int dirs_look(enum brig_dir which, int *ret_fd, struct brig_err *err) MUST_CHECK;

/*
 * Removes the content of a directory of ours, depth levels down. It follows no links; what cannot be removed stays,
 * silently.
 */
void dirs_remove_content(int dir_fd, unsigned depth);

/*
 * Takes the lock of a directory that one process at a time works in. A holder that was killed has two seconds to let
 * go. Returns a descriptor that holds it, or -1 with errno (EWOULDBLOCK: another process has it).
 */
int dirs_lock(int dir_fd) MUST_CHECK;

#endif
