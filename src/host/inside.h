/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.h: a few steps inside a sandbox's namespaces, taken by a short-lived helper, because who has entered a
 * namespace must never come back with anything of it. The helper shares our memory and descriptors, so what it opens is
 * simply there; we stand still until it has ended (as after vfork), so it may use what we use, errno included.
 */
#ifndef BRIG_HOST_INSIDE_H
#define BRIG_HOST_INSIDE_H

#include "base/base.h"

/* Runs fn in the helper. What it returned, or -errno when there is no helper. */
int inside_run(int (*fn)(void *arg), void *arg) MUST_CHECK;

#endif
