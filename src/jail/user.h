/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user.h: the step from pid 1's rights to those of a program. The processes that brig-init starts
 * (guest/init/program.c) use it, and so do those that a zygote has forked into the sandbox (zygote_lib.c). It needs no
 * C library and allocates nothing.
 */
#ifndef BRIG_JAIL_USER_H
#define BRIG_JAIL_USER_H

#include "base/base.h"

/*
 * Sets groups and ids, empties the bounding and ambient sets, and drops every capability; from here on the process is
 * not dumpable. bounding is what pid 1 has in its own set. keep_caps is for test builds with the layer off. Returns 0
 * or a negative errno.
 */
long jail_become_user(uint32_t uid, uint32_t gid, uint64_t bounding, bool keep_caps) MUST_CHECK;

#endif
