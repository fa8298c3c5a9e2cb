/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rlimits.h: the resource limits of a sandbox that nobody chooses, and the one way to lower a limit. The jail
 * (privileges.c) and a carried brig-init (confine.c) use them. No C library is needed; failures are negative errnos.
 */
#ifndef BRIG_JAIL_RLIMITS_H
#define BRIG_JAIL_RLIMITS_H

#include "base/base.h"

/* It ends with a name of NULL. */
struct rlimit_fixed {
    const char *name;
    int resource;
    uint64_t value;
};
extern const struct rlimit_fixed rlimits_fixed[];

/* Sets both limits, never above the hard limit that there is: root may lack CAP_SYS_RESOURCE. */
int rlimit_lower(int resource, uint64_t value) MUST_CHECK;

#endif
