/* SPDX-License-Identifier: Apache-2.0 */
/* daemon.h: the state of brigd: what the supervisor gave it, and its parts. */
#ifndef BRIG_BRIGD_DAEMON_H
#define BRIG_BRIGD_DAEMON_H

#include "api/api.h"
#include "brigd/handed.h"
#include "supervisor/supervisor.h"

#define LISTENERS_MAX 8
#define RUNNERS_MAX 8

struct daemon_state {
    struct api api;
    const char *state_dir;
    int spawner_fd;
    struct runner_line { /* The sockets of the runners (supervisor/runners.c). */
        char name[16];
        int fd;
    } runners[RUNNERS_MAX];
    size_t n_runners;
    struct keyring *ring; /* The key ring of secrets, or NULL. */
    int gate_fd;          /* The control socket of brig-egress, until the manager has it. */
    int vm_dir_fd;        /* What is kept of virtual machines; -1 where there are none. */
    int fire_dir_fd;      /* The same for those of Firecracker. */
    char *apt;            /* The apt sources of the host, as the supervisor found them; or NULL. */
    char *packages;       /* The rules of the preset `packages`, as the supervisor found them; or NULL. */
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct handed handed; /* The files for the next configuration. */
    struct loop_source on_supervisor;
    struct loop_timer on_drain, on_prune;
    uint64_t drain_ns; /* When draining began. */
    bool spawner_gone, quit, keep;
    int status;
};

/*
 * Stage 3: opens the store, policies, secrets, keys, the audit log and what tools need. All of it exists before the
 * first client.
 */
int daemon_open(struct daemon_state *d, struct brig_err *err) MUST_CHECK;
/* machines.c, for virtual machines: what must be made before the lockdown, and the provider. */
int machines_open(struct daemon_state *d, struct brig_err *err) MUST_CHECK;
int machines_start(struct daemon_state *d, struct brig_err *err) MUST_CHECK;
/* Closes all of it, the server first. Parts that were never opened are left alone. */
void daemon_close(struct daemon_state *d);

#endif
