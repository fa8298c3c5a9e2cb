/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inside.h: takes a few steps inside a sandbox's namespaces with a short-lived helper, because a process that has
 * entered a namespace must never come back with anything from it. The helper shares our memory and descriptors, so what
 * it opens is there for us. We wait until it has ended (as after vfork), so it may use what we use, errno included.
 */
#ifndef BRIG_HOST_INSIDE_H
#define BRIG_HOST_INSIDE_H

#include "base/base.h"

/* Runs fn in the helper. Returns the result of fn, or a negative errno if there is no helper. */
int inside_run(int (*fn)(void *arg), void *arg) MUST_CHECK;

#endif
