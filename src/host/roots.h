/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.h: the directories of the host that a long-lived sandbox may be given. The daemon that asks for them may have
 * been taken over, while the spawner may be root. So the administrator says at the spawner's start what may be shared
 * at all: BRIG_BIND_ROOTS and BRIG_ROOTFS_ROOTS, absolute directories separated by colons. Without them nothing is
 * shared.
 */
#ifndef BRIG_HOST_ROOTS_H
#define BRIG_HOST_ROOTS_H

#include <brig.h>

#include "base/base.h"

#define ROOTS_MAX 32

struct roots {
    char text[4096];
    const char *paths[ROOTS_MAX]; /* They point into text, without a slash at the end; "" is /. */
    unsigned n;
};

/* list is the value of the variable, or NULL. name is the variable's name, for the message. */
int roots_init(struct roots *roots, const char *name, const char *list, struct brig_err *err) MUST_CHECK;
/*
 * Returns the longest root that is, or contains, this absolute path by its name, or NULL. The code that opens the path
 * refuses symbolic links.
 */
const char *roots_find(const struct roots *roots, const char *path);

#endif
