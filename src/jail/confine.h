/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.h: what a carried brig-init puts on itself because its carrier (an engine, a runtime, a virtual machine) may
 * not have done so. Everything that it starts inherits it, as in a sandbox of the jail.
 */
#ifndef BRIG_JAIL_CONFINE_H
#define BRIG_JAIL_CONFINE_H

#include "codec/wire/guest_msg.h"

/*
 * Puts on, in this order: rlimits, the capabilities of pid 1 and no others, no_new_privs, Landlock, the filter of
 * start->profile. Layers of start->skip are left out. Nothing here fails: what could not be put on is off, and
 * the self-check finds that out. Sets start->landlock_abi. Returns selfcheck_plan.landlock_probe_fd.
 */
int jail_confine(struct guest_start *start);

#endif
