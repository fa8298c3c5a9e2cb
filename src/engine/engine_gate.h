/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_gate.h: a run's network, without a daemon.
 *
 *   engine_gate.c      the engine's brig-egress: started, given what it needs, given up when it dies
 *   run_gate.c  one run's way through it
 */
#ifndef BRIG_ENGINE_ENGINE_GATE_H
#define BRIG_ENGINE_ENGINE_GATE_H

#include "engine/engine.h"
#include "gate/gate_client.h"

struct engine_gate {
    struct brig_engine *engine;
    struct gate_client *client;
    int parent_fd; /* its descriptor 3 */
    int pidfd;
    struct loop_source on_parent;
    const char *lost_why; /* NULL: it is there */
    struct engine_gate *next_lost;
    struct gate_host_files files;
};

/* The engine's brig-egress, started if there is none. */
int gate_start(struct brig_engine *engine, struct engine_gate **ret, struct brig_err *err) MUST_CHECK;
/* It is not to be used any more; its runs are told soon (engine_gate_tend(), run_gate_lost()). why: "died". */
void gate_lost(struct engine_gate *gate, const char *why);

/* true: the event was this run's. */
bool run_gate_event(struct brig_run *run, const struct gate_event *event);
void run_gate_lost(struct brig_run *run, const struct engine_gate *gate, const struct brig_err *why);

#endif
