/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_gate.c: the brig-egress of an engine, for runs that have a network. It is started with the first of them, as
 * the spawner is: executed, not as our child (spawn.c), and without our environment and descriptors. It ends when its
 * descriptor 3 closes, whose other end only the engine holds, so it always ends with the engine. An engine that ends in
 * an orderly way, or finds it stuck, kills it, because it has nothing to clean up.
 *
 * A brig-egress that dies, or does not answer, is given up: every run that has a network ends, and the next one starts
 * a new brig-egress.
 */
#include "engine/engine_gate.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"

/* It ends by itself when descriptor 3 closes; one that is stuck does not, so it is made to. */
static void end(struct engine_gate *gate)
{
    loop_remove(gate->engine->loop, &gate->on_parent);
    base_close_fd(&gate->parent_fd);
    if (gate->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, gate->pidfd, SIGKILL, NULL, 0);
    base_close_fd(&gate->pidfd);
}

static void gate_free(struct engine_gate *gate)
{
    if (!gate)
        return;
    gate_client_destroy(gate->client);
    end(gate);
    mem_free(gate);
}

/* Often noticed in a callback of its client, and by runs whose owners may start others at once: it is only put aside
 * here. */
void gate_lost(struct engine_gate *gate, const char *why)
{
    if (gate->lost_why)
        return;
    gate->lost_why = why;
    end(gate); /* if it lives: nothing is carried any more */
    if (gate->engine->gate == gate) {
        gate->engine->gate = NULL;
        gate->next_lost = gate->engine->lost_gates;
        gate->engine->lost_gates = gate;
    }
}

void engine_gate_tend(struct brig_engine *engine)
{
    for (const struct engine_gate *gate = engine->lost_gates; gate; gate = gate->next_lost) {
        struct brig_err why;
        (void)err_set(&why, BRIG_E_HOST, 0, "network: brig-egress %s", gate->lost_why);
        for (struct brig_run *run = engine->runs, *next; run; run = next) {
            next = run->next;
            run_gate_lost(run, gate, &why);
        }
    }
    while (engine->depth == 1 && engine->lost_gates) { /* no callback of it is below us */
        struct engine_gate *gate = engine->lost_gates;
        engine->lost_gates = gate->next_lost;
        gate_free(gate);
    }
}

void engine_gate_destroy(struct brig_engine *engine)
{
    engine->depth = 1;
    engine_gate_tend(engine);
    gate_free(engine->gate);
    engine->gate = NULL;
}

/* ---- what it says ----------------------------------------------------------------------------------- */

static void on_lost(void *ctx)
{
    gate_lost(ctx, "died");
}

static void on_parent(struct loop_source *source, uint32_t events UNUSED)
{
    struct engine_gate *gate = source->ctx;
    union gate_any msg;
    int fds[1];
    size_t n_fds = 0;
    int r = gate_receive(gate->parent_fd, &msg, fds, &n_fds); /* READY: what was sent has waited for it */

    if (r < 0 && r != -EAGAIN)
        gate_lost(gate, "died");
}

static void on_sync(void *ctx)
{
    struct engine_gate *gate = ctx;

    if (gate_client_synced(gate->client, NULL) < 0)
        gate_lost(gate, "died");
}

static void on_event(void *ctx, const struct gate_event *event)
{
    const struct engine_gate *gate = ctx;

    for (struct brig_run *run = gate->engine->runs; run; run = run->next)
        if (run_gate_event(run, event))
            return;
}

/* ---- its start -------------------------------------------------------------------------------------- */

static int execute(struct engine_gate *gate, struct brig_err *err)
{
    const struct brig_engine_options options = {.size = sizeof options, .helper_dir = gate->engine->helper_dir};
    char helper_dir[PATH_MAX], path[PATH_MAX];
    char *const argv[] = {(char *)"brig-egress", NULL};
    int pair[2];
    int r = engine_find_helpers(&options, helper_dir, sizeof helper_dir, err);

    if (r < 0)
        return r;
    if ((size_t)snprintf(path, sizeof path, "%s/brig-egress", helper_dir) >= sizeof path)
        return err_usage(err, "helper directory: path too long");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socketpair");
    gate->parent_fd = pair[0];
    AUTO_FD int theirs = pair[1];
    r = engine_execute(path, argv, theirs, true, &gate->pidfd, err);
    return r < 0 ? r : fd_set_nonblock(gate->parent_fd) < 0 ? err_host(err, "socketpair") : 0;
}

/* The host's files and a control socket: all of it waits in descriptor 3 until brig-egress has locked itself in. */
static int introduce(struct engine_gate *gate, struct brig_err *err)
{
    const struct gate_plain control = {.head = {GATE_MAGIC, GATE_VERSION, GATE_CONTROL, 0}};
    const char *resolvers = getenv("BRIG_GATE_RESOLVERS"), *bundle = getenv("BRIG_GATE_CA_BUNDLE");
    int pair[2];
    int r = gate_host_files_send(&gate->files, gate->parent_fd, resolvers ? resolvers : "", bundle ? bundle : "", err);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    r = gate_send(gate->parent_fd, &control, &theirs, 1);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "network: brig-egress");
    return gate_client_connect(gate->client, take_fd(&ours), err);
}

int gate_start(struct brig_engine *engine, struct engine_gate **ret, struct brig_err *err)
{
    if (engine->gate && !gate_client_connected(engine->gate->client)) /* on_lost() is still to come */
        gate_lost(engine->gate, "died");
    if (engine->gate) {
        *ret = engine->gate;
        return 0;
    }
    struct engine_gate *gate = mem_zalloc(sizeof *gate);
    if (!gate)
        return err_nomem(err);
    gate->engine = engine;
    gate->parent_fd = gate->pidfd = -1;
    gate->on_parent = (struct loop_source){.fd = -1, .fn = on_parent, .ctx = gate};
    const struct gate_client_events events = {.event = on_event, .on_sync = on_sync, .lost = on_lost, .ctx = gate};
    int r = gate_client_create(engine->loop, &events, &gate->client, err);
    if (r == 0)
        r = execute(gate, err);
    if (r == 0)
        r = loop_add(engine->loop, &gate->on_parent, gate->parent_fd, EPOLLIN, err);
    if (r == 0)
        r = introduce(gate, err);
    if (r == 0 && gate->lost_why)
        r = err_set(err, BRIG_E_HOST, 0, "network: brig-egress %s", gate->lost_why);
    if (r < 0) {
        gate_free(gate);
        return r;
    }
    *ret = engine->gate = gate;
    return 0;
}
