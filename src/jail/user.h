/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user.h: the step from pid 1's rights to those of a program. The processes that brig-init starts
 * (guest/init/program.c) use it, and so do those that a zygote has forked into the sandbox (zygote_lib.c). It needs no
 * C library and allocates nothing.
 */
#ifndef BRIG_JAIL_USER_H
#define BRIG_JAIL_USER_H

#include <linux/capability.h>

#include "base/base.h"

/*
 * What pid 1 keeps: KILL to end programs of another id, SETUID and SETGID to start them, SYS_PTRACE to see them in
 * /proc, SETPCAP to empty their bounding set.
 */
#define PID_1_CAPS                                                                                                     \
    (UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_SETGID | UINT64_C(1) << CAP_SYS_PTRACE | \
     UINT64_C(1) << CAP_SETPCAP)

/*
 * What uid 0 has in a sandbox with root inside: what installing software needs. Each was tried by leaving it out. They
 * are good for the files and processes of the sandbox's own ids, because its user namespace owns nothing else.
 */
#define ROOT_INSIDE_CAPS                                                                      \
    (UINT64_C(1) << CAP_CHOWN | UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_FOWNER | \
     UINT64_C(1) << CAP_FSETID | UINT64_C(1) << CAP_KILL | UINT64_C(1) << CAP_SETGID | UINT64_C(1) << CAP_SETUID)

struct jail_user {
    uint32_t uid, gid;
    const uint32_t *groups; /* Beside gid. */
    uint32_t n_groups;
    uint64_t bounding; /* What pid 1 has in its bounding set. */
    uint64_t keep;     /* What stays: 0, or ROOT_INSIDE_CAPS for uid 0 of a sandbox with root inside. */
    bool as_is;        /* Test builds with the layer off: capabilities are left alone. */
};

/*
 * Sets groups and ids, empties the ambient set, and drops every capability that is not kept from all other sets; from
 * here on the process is not dumpable. Returns 0 or a negative errno.
 */
long jail_become_user(const struct jail_user *user) MUST_CHECK;

#endif
