/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_gate.c: the network of a sandbox, as the engine sees it: listeners before the program starts, and again (with
 * more) when the engine asks.
 *
 * Invariants: without a gate nothing of a sandbox's network changes. With one, no program starts before all of it is
 * open and the engine knows it. Copies of the listeners are kept while the sandbox lives, so that connections wait, and
 * are not refused, while nobody serves them.
 */
#include "base/err.h"
#include "host/trust.h"
#include "spawner/spawner.h"

static int open_gate(struct sandbox *s, const struct netgate_want *want, struct brig_err *err)
{
    const struct host *host = &s->spawner->host;

    if (s->own_kernel && s->gate_ns_fd < 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "network: its gate was made by an earlier process: other ports need a new sandbox");
    const struct netgate_place place = {.ns_fd = s->gate_ns_fd >= 0 ? s->gate_ns_fd : s->pidfd,
                                        .behind = s->gate_ns_fd >= 0,
                                        .again = s->found,
                                        .proc_fd = host->proc_fd,
                                        .own_proc = s->spawner->n_sandboxes > MANY_SANDBOXES,
                                        .host_ns = host->ns[NS_NET]};

    return netgate_open(&s->gate, &place, want, SANDBOX_FD_MIN, err);
}

static void say_open(struct sandbox *s, const struct brig_err *err)
{
    struct wire_gate_open msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_GATE_OPEN, s->run->number}, .err = *err};
    const struct netgate *gate = err->code == BRIG_E_NONE ? s->gate : NULL;

    for (msg.n = 0; gate && msg.n < gate->n; msg.n++)
        msg.listeners[msg.n] = gate->what[msg.n];
    spawner_send(s->spawner, &msg, gate ? gate->fds : NULL, gate ? gate->n : 0);
}

int sandbox_trust_begin(struct sandbox *s, struct brig_err *err)
{
    if (s->run->trust_fd < 0)
        return 0;
    s->trust = true;
    return trust_attach(s->mnt_fd, s->id, s->run->trust_fd, s->ids.root, err);
}

int sandbox_gate_begin(struct sandbox *s, struct brig_err *err)
{
    int r = s->run->gate.on ? open_gate(s, &s->run->gate, err) : 0;

    if (r == 0 && s->run->gate.on)
        say_open(s, &(struct brig_err){.code = BRIG_E_NONE});
    return r;
}

void sandbox_gate_done(struct sandbox *s)
{
    netgate_free(s->gate);
    s->gate = NULL;
    if (s->trust)
        trust_forget(s->id);
    s->trust = false;
}

void sandbox_gate_more(struct sandbox *s, const struct netgate_want *want)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    int r = netgate_check(want, &err);

    if (r == 0 && !want->on)
        r = err_usage(&err, "network: it cannot be taken away");
    if (r == 0 && (s->state != SANDBOX_RUNNING || !s->started || s->verdict.cause != BRIG_CAUSE_MAX))
        r = err_set(&err, BRIG_E_CONFLICT, EAGAIN, "the sandbox is not up");
    if (r == 0)
        r = open_gate(s, want, &err);
    if (r == 0)
        err.code = BRIG_E_NONE;
    say_open(s, &err);
}
