/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots.h: which directories of the host a long-lived sandbox may be given. Whoever asks for it is a daemon that may
 * have been taken over, while the spawner may be root; so the administrator says at the spawner's start what may be
 * shared at all: BRIG_BIND_ROOTS and BRIG_ROOTFS_ROOTS, absolute directories with colons between them. Without them
 * nothing is.
 */
#ifndef BRIG_HOST_ROOTS_H
#define BRIG_HOST_ROOTS_H

#include <brig.h>

#include "base/base.h"

#define ROOTS_MAX 32

struct roots {
    char text[4096];
    const char *paths[ROOTS_MAX]; /* into text, without a slash at the end; "" is / */
    unsigned n;
};

/* list: the variable's value or NULL. name: the variable's, for the message. */
int roots_init(struct roots *roots, const char *name, const char *list, struct brig_err *err) MUST_CHECK;
/* The longest that this absolute path is, or lies, in by its name; NULL: none. Symlinks are the opener's to refuse. */
const char *roots_find(const struct roots *roots, const char *path);

#endif
