/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns.h: a network namespace made ahead. It is the dearest part of a sandbox (half a millisecond) and needs
 * nothing from the rest, so a helper makes one on the other core while the spawner is busy.
 */
#ifndef BRIG_HOST_NETNS_H
#define BRIG_HOST_NETNS_H

#include <sys/types.h>

#include "base/base.h"

#define NETNS_STACK 8192

struct netns_maker {
    pid_t pid;   /* 0: none at work */
    long result; /* a descriptor, or a negative errno */
    _Alignas(16) char stack[NETNS_STACK];
};

/* Begins, unless one is at work or ready. Failing is no error: the sandbox then makes its own. */
void netns_start(struct netns_maker *maker);
/* A namespace with loopback up, now the caller's, or -1. Waits for the helper if it is not done yet. */
int netns_take(struct netns_maker *maker);
void netns_done(struct netns_maker *maker);

#endif
