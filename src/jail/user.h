/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user.h: the step from pid 1's rights to those of a program, for every process that makes it: those that brig-init
 * starts (guest/init/program.c) and those that a zygote has forked into the sandbox (zygote_lib.c). No C library, no
 * allocation.
 */
#ifndef BRIG_JAIL_USER_H
#define BRIG_JAIL_USER_H

#include "base/base.h"

/*
 * Groups, ids, bounding and ambient sets, then every capability; not dumpable from here on. bounding: what pid 1 has in
 * its own set. keep_caps: test builds with the layer off. Returns 0 or a negative errno.
 */
long jail_become_user(uint32_t uid, uint32_t gid, uint64_t bounding, bool keep_caps) MUST_CHECK;

#endif
