/* SPDX-License-Identifier: Apache-2.0 */
/* zygote_start.h: starts an interpreter in zygote.py (zygote_start.c). */
#ifndef BRIG_SPAWNER_ZYGOTE_START_H
#define BRIG_SPAWNER_ZYGOTE_START_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

struct host;

/* Starts one. fd is the spawner's end of its socket, which does not block. */
int zygote_execute(const struct host *host, pid_t *ret_pid, int *ret_pidfd, int *ret_fd,
                   struct brig_err *err) MUST_CHECK;

#endif
