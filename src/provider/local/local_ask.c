/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_ask.c: asks the spawner about a box that is up, and handles what it says about the box's network. Questions of
 * one kind are answered in order. Listeners that nobody takes are closed, because a forgotten copy would keep a
 * sandbox's network alive.
 */
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "host/limits.h"
#include "provider/local/local.h"

static struct local_box *box_of(struct box *box)
{
    return (struct local_box *)box;
}

/* ---- questions -------------------------------------------------------------------------------------- */

static void fail_question(const struct question *q, const struct brig_err *err)
{
    if (q->answer == WIRE_ATTACHED)
        q->done.attach(q->ctx, -1, err);
    else if (q->answer == WIRE_FROZEN)
        q->done.freeze(q->ctx, err);
    else if (q->answer == WIRE_GATE_OPEN)
        q->done.gate(q->ctx, NULL, err);
    else if (q->answer == WIRE_LIMITS_ARE)
        q->done.limits(q->ctx, NULL, err);
    else
        q->done.stats(q->ctx, NULL, err);
}

/* The oldest of its kind. */
static struct question *take_question(struct local_box *box, enum wire_type answer)
{
    for (struct question **at = &box->questions; *at; at = &(*at)->next)
        if ((*at)->answer == answer) {
            struct question *q = *at;
            *at = q->next;
            return q;
        }
    return NULL;
}

static int ask(struct local_box *box, const void *msg, const struct question *asked, struct brig_err *err)
{
    struct local *local = (struct local *)box->box.provider;
    struct question **end = &box->questions;

    if (local->gone || box->ending || !box->up)
        return err_set(err, local->gone ? BRIG_E_GONE : BRIG_E_CONFLICT, local->gone ? EPIPE : EAGAIN,
                       "the sandbox is %s",
                       local->gone   ? "gone"
                       : box->ending ? "ending"
                                     : "not up yet");
    struct question *q = mem_alloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    *q = *asked;
    q->next = NULL;
    int r = local_send(local, msg, NULL, 0, err);
    if (r < 0) {
        mem_free(q);
        return r;
    }
    while (*end)
        end = &(*end)->next;
    *end = q;
    return 0;
}

int local_attach(struct box *box, void (*done)(void *ctx, int fd, const struct brig_err *err), void *ctx,
                 struct brig_err *err)
{
    const struct question q = {.answer = WIRE_ATTACHED, .done.attach = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_ATTACH, box_of(box)->number}};

    return ask(box_of(box), &msg, &q, err);
}

int local_freeze(struct box *box, bool on, void (*done)(void *ctx, const struct brig_err *err), void *ctx,
                 struct brig_err *err)
{
    const struct question q = {.answer = WIRE_FROZEN, .done.freeze = done, .ctx = ctx};
    const struct wire_freeze msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_FREEZE, box_of(box)->number}, .on = on};

    return ask(box_of(box), &msg, &q, err);
}

int local_stats(struct box *box, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
                void *ctx, struct brig_err *err)
{
    const struct question q = {.answer = WIRE_STATS_ARE, .done.stats = done, .ctx = ctx};
    const struct wire_plain msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_STATS, box_of(box)->number}};

    return ask(box_of(box), &msg, &q, err);
}

void local_on_answer(struct local_box *box, const struct wire_answer *msg, int *fds, size_t n_fds)
{
    struct question *q = take_question(box, (enum wire_type)msg->head.type);
    struct brig_err err = msg->err;

    err.message[sizeof err.message - 1] = '\0';
    if (!q)
        return; /* a predecessor's */
    if (err.code != BRIG_E_NONE)
        fail_question(q, &err);
    else if (q->answer == WIRE_FROZEN)
        q->done.freeze(q->ctx, NULL);
    else if (n_fds == 1)
        q->done.attach(q->ctx, take_fd(&fds[0]), NULL);
    else {
        (void)err_set(&err, BRIG_E_HOST, EPROTO, "the spawner sent no stream");
        fail_question(q, &err);
    }
    mem_free(q);
}

void local_on_stats(struct local_box *box, const struct wire_stats *msg)
{
    const struct box_events *events = &box->box.events;
    struct question *q = msg->head.type == WIRE_STATS_ARE ? take_question(box, WIRE_STATS_ARE) : NULL;
    const struct box_stats stats = {msg->cpu_ns,        msg->memory_bytes,  msg->memory_peak_bytes, msg->pids,
                                    msg->pids_peak,     msg->disk_bytes,    msg->disk_peak_bytes,   msg->read_bytes,
                                    msg->written_bytes, msg->oom_kills,     msg->pids_refused,      msg->store,
                                    msg->at_ns,         msg->untouched == 1};

    if (msg->head.type == WIRE_COUNTED && events->counted && !box->ending)
        events->counted(events->ctx, &stats);
    if (!q)
        return;
    q->done.stats(q->ctx, &stats, NULL);
    mem_free(q);
}

int local_limits(struct box *box, const struct brig_limits *limits,
                 void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err), void *ctx,
                 struct brig_err *err)
{
    const struct question q = {.answer = WIRE_LIMITS_ARE, .done.limits = done, .ctx = ctx};
    const struct wire_limits msg = {
        {WIRE_MAGIC, WIRE_VERSION, WIRE_LIMITS, box_of(box)->number}, limits->memory, limits->cpus, limits->pids};
    struct brig_limits rules = {.memory = limits->memory, .cpus = limits->cpus, .pids = limits->pids};

    /* The same checks as the spawner's, so that a bad one never gets there. */
    if (!limits->memory || !limits->cpus || !limits->pids)
        return err_usage(err, "limits: memory, cpus and pids must be given");
    limits_fill(&rules, false);
    int r = limits_check(&rules, err);
    return r < 0 ? r : ask(box_of(box), &msg, &q, err);
}

void local_on_limits(struct local_box *box, const struct wire_limits_are *msg)
{
    struct question *q = take_question(box, WIRE_LIMITS_ARE);
    const struct brig_limits are = {.memory = msg->memory, .cpus = msg->cpus, .pids = msg->pids};
    struct brig_err err = msg->err;

    if (!q)
        return;
    err.message[sizeof err.message - 1] = '\0';
    if (err.code != BRIG_E_NONE)
        fail_question(q, &err);
    else
        q->done.limits(q->ctx, &are, NULL);
    mem_free(q);
}

void local_fail_questions(struct local_box *box, const struct brig_err *err)
{
    for (struct question *q; (q = box->questions);) {
        box->questions = q->next;
        fail_question(q, err);
        mem_free(q);
    }
}

void local_interrupt_questions(struct local_box *box, const struct brig_err *err)
{
    struct question *all = take_ptr(&box->questions), **end = &box->questions;

    for (struct question *q; (q = all);) {
        all = q->next;
        q->next = NULL;
        if (q->answer == WIRE_GATE_OPEN) {
            *end = q;
            end = &q->next;
        } else {
            fail_question(q, err);
            mem_free(q);
        }
    }
}

void local_ask_again(struct local_box *box)
{
    struct local *local = (struct local *)box->box.provider;
    struct brig_err err = {.code = BRIG_E_NONE};

    for (const struct question *q = box->questions; q && err.code == BRIG_E_NONE; q = q->next) {
        const struct wire_gate msg = {{WIRE_MAGIC, WIRE_VERSION, WIRE_GATE, box->number}, q->want};
        (void)!local_send(local, &msg, NULL, 0, &err);
    }
    if (err.code != BRIG_E_NONE)
        local_fail_questions(box, &err);
}

void local_drop_questions(struct local_box *box)
{
    for (struct question *next; box->questions; box->questions = next) {
        next = box->questions->next;
        mem_free(box->questions);
    }
}

/* ---- the network ------------------------------------------------------------------------------------ */

int local_gate_want(const struct provider_gate *want, struct netgate_want *ret, struct brig_err *err)
{
    *ret = (struct netgate_want){.on = want->on, .any_port = want->on && want->any_port};
    if (!want->on || want->any_port)
        return 0;
    if (want->n_ports > POLICY_PORTS_MAX)
        return err_usage(err, "network: %zu ports, at most %u", want->n_ports, POLICY_PORTS_MAX);
    for (size_t i = 0; i < want->n_ports; i++) {
        if (want->ports[i] == 0 || want->ports[i] == 53)
            return err_usage(err, "network: port %u", want->ports[i]);
        for (size_t j = 0; j < i; j++)
            if (want->ports[j] == want->ports[i])
                return err_usage(err, "network: port %u twice", want->ports[i]);
        ret->ports[ret->n_ports++] = want->ports[i];
    }
    return 0;
}

int local_gate(struct box *box, const struct provider_gate *want,
               void (*done)(void *ctx, struct box_listeners *listeners, const struct brig_err *err), void *ctx,
               struct brig_err *err)
{
    struct question q = {.answer = WIRE_GATE_OPEN, .done.gate = done, .ctx = ctx};
    struct wire_gate msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_GATE, box_of(box)->number}};
    int r = want->on ? local_gate_want(want, &msg.want, err) : err_usage(err, "network: it cannot be taken away");

    q.want = msg.want;
    return r < 0 ? r : ask(box_of(box), &msg, &q, err);
}

void local_listeners_free(struct box_listeners *listeners)
{
    if (!listeners)
        return;
    fd_close_all(listeners->fds, listeners->n);
    mem_free(listeners);
}

void local_drop_listeners(struct local_box *box)
{
    local_listeners_free(box->listeners);
    box->listeners = NULL;
}

static int take_listeners(const struct wire_gate_open *msg, int *fds, size_t n_fds, struct box_listeners **ret,
                          struct brig_err *err)
{
    if (msg->err.code != BRIG_E_NONE) {
        *err = msg->err;
        err->message[sizeof err->message - 1] = '\0';
        return -EIO;
    }
    if (msg->n != n_fds || msg->n == 0 || msg->n > GATE_LISTENERS_MAX)
        return err_set(err, BRIG_E_HOST, EPROTO, "the spawner sent no listeners");
    struct box_listeners *it = mem_zalloc(sizeof *it);
    if (!it)
        return err_nomem(err);
    for (; it->n < n_fds; it->n++) {
        it->what[it->n] = msg->listeners[it->n];
        it->fds[it->n] = take_fd(&fds[it->n]);
    }
    *ret = it;
    return 0;
}

void local_on_gate(struct local_box *box, const struct wire_gate_open *msg, int *fds, size_t n_fds)
{
    struct box_listeners *listeners = NULL;
    struct brig_err err;
    struct question *q = box->up ? take_question(box, WIRE_GATE_OPEN) : NULL;

    if (box->up && !q)
        return; /* a predecessor's */
    int r = take_listeners(msg, fds, n_fds, &listeners, &err);
    if (!q) { /* before STARTED; without listeners it will not come up (on_started) */
        local_drop_listeners(box);
        box->listeners = listeners;
        return;
    }
    if (r < 0)
        fail_question(q, &err);
    else
        q->done.gate(q->ctx, listeners, NULL);
    mem_free(q);
    local_listeners_free(listeners);
}
