/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: brigd as a whole: what it was given, and its parts. */
#ifndef BRIG_BRIGD_DAEMON_H
#define BRIG_BRIGD_DAEMON_H

#include "api/api.h"
#include "brigd/handed.h"
#include "supervisor/supervisor.h"

#define LISTENERS_MAX 8

struct daemon_state {
    struct api api;
    const char *state_dir;
    int spawner_fd;
    struct keyring *ring; /* of secrets; NULL: none */
    int gate_fd;          /* the control socket of brig-egress, until the manager has it */
    char *packages;       /* the rules of the preset `packages`, as the supervisor found them; or NULL */
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct handed handed; /* for the configuration that comes next */
    struct loop_source on_supervisor;
    struct loop_timer on_drain, on_prune;
    uint64_t drain_ns; /* when draining began */
    bool spawner_gone, quit, keep;
    int status;
};

/*
 * Stage 3: store, policies, secrets, keys, audit log and what tools need; everything that is there before a client is.
 */
int daemon_open(struct daemon_state *d, struct brig_err *err) MUST_CHECK;
/* All of it, the server first. What was never opened is left alone. */
void daemon_close(struct daemon_state *d);

#endif
