/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_gate.h: the network of a run without a daemon.
 *
 *   engine_gate.c   starts the engine's brig-egress, gives it what it needs, and gives it up when it dies
 *   run_gate.c      takes one run through it
 */
#ifndef BRIG_ENGINE_ENGINE_GATE_H
#define BRIG_ENGINE_ENGINE_GATE_H

#include "engine/engine.h"
#include "gate/gate_client.h"

struct engine_gate {
    struct brig_engine *engine;
    struct gate_client *client;
    int parent_fd; /* Our end of its descriptor 3. */
    int pidfd;
    struct loop_source on_parent;
    const char *lost_why; /* NULL while it lives. */
    struct engine_gate *next_lost;
    struct gate_host_files files;
};

/* Returns the engine's brig-egress, and starts one if there is none. */
int gate_start(struct brig_engine *engine, struct engine_gate **ret, struct brig_err *err) MUST_CHECK;
/*
 * It must not be used any more. Its runs are told soon (engine_gate_tend(), run_gate_lost()). why is "died" and the
 * like.
 */
void gate_lost(struct engine_gate *gate, const char *why);

/* Returns true if the event belongs to this run. */
bool run_gate_event(struct brig_run *run, const struct gate_event *event);
void run_gate_lost(struct brig_run *run, const struct engine_gate *gate, const struct brig_err *why);

#endif
