/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netns.h: makes a network namespace ahead of time. It is the most expensive part of a sandbox (half a millisecond) and
 * needs nothing from the rest, so a helper makes one on the other core while the spawner is busy.
 */
#ifndef BRIG_HOST_NETNS_H
#define BRIG_HOST_NETNS_H

#include <sys/types.h>

#include "base/base.h"

#define NETNS_STACK 8192

struct netns_maker {
    pid_t pid;   /* 0 if none is at work. */
    long result; /* a descriptor, or a negative errno */
    _Alignas(16) char stack[NETNS_STACK];
};

/* Begins, unless one is at work or ready. A failure is no error: the sandbox then makes its own. */
void netns_start(struct netns_maker *maker);
/*
 * Returns a namespace with loopback up, which the caller then owns, or -1. It waits for the helper if that is not done
 * yet.
 */
int netns_take(struct netns_maker *maker);
void netns_done(struct netns_maker *maker);

/* Whether a socket of root has this port in the network namespace of the caller. proc_fd is a full procfs. */
bool netns_has_ours(int proc_fd, bool udp, bool v6, uint16_t port);

#endif
