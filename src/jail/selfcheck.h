/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selfcheck.h: reads each layer back from the kernel, from inside, in the very process that is about to execute the
 * program; its ids, capabilities, filter and descriptors are final. Nothing here trusts what the set-up believes it
 * did. It allocates nothing and is async-signal-safe.
 */
#ifndef BRIG_JAIL_SELFCHECK_H
#define BRIG_JAIL_SELFCHECK_H

#include "codec/wire/guest_msg.h"

#define SELFCHECK_OWN_COMM (-1)
#define SELFCHECK_NO_PROBE (-2)

struct selfcheck_plan {
    const struct guest_start *start;
    /*
     * A directory on a detached mount, readable unless a Landlock domain forbids it; or SELFCHECK_OWN_COMM: the
     * process's own /proc/self/comm, which such a domain forbids to write; or SELFCHECK_NO_PROBE.
     */
    int landlock_probe_fd;
    int max_fd; /* The highest declared descriptor. All above it must be closed or close-on-exec. */
};

/* Fills the layers that can be read from inside; others are left untouched. */
void jail_selfcheck(const struct selfcheck_plan *plan, struct reading readings[BRIG_LAYER_MAX]);

#endif
