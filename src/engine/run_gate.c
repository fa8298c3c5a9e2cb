/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_gate.c: takes one run through the network, without a daemon. Each step is an answer on the loop:
 *
 *   PREPARE    brig-egress compiles the policy and says which ports it needs. If it refuses the policy, the run
 *              ends before anything is made.
 *   RUN        This goes to the spawner only now, with those ports.
 *   GATE_OPEN  The spawner's listeners from inside the sandbox are handed on (LISTEN). Connections that the
 *              program makes meanwhile wait.
 *   DONE       The sandbox is gone. FORGET closes what is left and brings the counts; only then is the run done.
 *
 * If brig-egress dies, or does not answer for 10 seconds, the run ends as a fault of the host: nothing was carried
 * after that, but the receipt could not say everything.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "engine/engine_gate.h"
#include "gate/slot_spec.h"

#define ANSWER_NS (10 * NS_PER_SEC)
#define RUN_FDS 5u /* of the message: strings, stdin, stdout, stderr, trust */
#define BUNDLE_MAX (8u << 20)

enum step { STEP_PREPARE, STEP_RUN, STEP_FORGET, STEP_OVER };

struct run_gate {
    struct engine_gate *gate; /* NULL when it was lost, or is not needed any more */
    enum step step;
    uint64_t slot;
    struct wire_run msg; /* waits for PREPARED, with its descriptors */
    int fds[RUN_FDS];
    size_t n_fds;
    struct loop_timer deadline; /* of the answer that is waited for */
    struct learn *learn;
    struct buf learned;
    struct brig_err failed; /* why it ends, when the network is at fault */
};

static void ignore_counts(void *ctx UNUSED, const struct gate_counts *counts UNUSED, const struct brig_err *err UNUSED)
{
}

/* Nothing is waited for any more; the slot goes, if it is still there. */
void run_gate_abandon(struct brig_run *run)
{
    struct run_gate *g = run->gate;

    if (!g)
        return;
    loop_timer_clear(run->engine->loop, &g->deadline);
    if (g->gate) {
        gate_client_cancel(g->gate->client, run);
        if (g->step != STEP_OVER && !g->gate->lost_why && g->slot != 0)
            (void)!gate_client_forget(g->gate->client, g->slot, ignore_counts, g->gate, NULL);
    }
    g->gate = NULL;
    g->step = STEP_OVER;
    fd_close_all(g->fds, g->n_fds);
    g->n_fds = 0;
}

/* The receipt's last words, where the network has one. */
static void settle(struct brig_run *run)
{
    struct brig_receipt *r = &run->receipt;
    struct run_gate *g = run->gate;

    if (g->failed.code != BRIG_E_NONE) {
        bool refused =
            g->failed.code == BRIG_E_USAGE || g->failed.code == BRIG_E_REFUSED || g->failed.code == BRIG_E_UNSUPPORTED;
        r->cause = refused ? BRIG_CAUSE_POLICY : BRIG_CAUSE_HOST_ERROR;
        str_cut(r->detail, sizeof r->detail, g->failed.message);
    }
    if (g->learn && learn_put_json(g->learn, &g->learned) == 0)
        r->learned = g->learned.data;
}

static void finish(struct brig_run *run)
{
    run_gate_abandon(run);
    settle(run);
    run_finish(run);
}

/* Nothing was made yet. */
static void finish_before(struct brig_run *run, enum brig_cause cause)
{
    run->receipt.cause = cause;
    run->receipt.started_at_ns = run->receipt.ended_at_ns = clock_real_ns();
    finish(run);
}

/* Before RUN was sent it is over now; after that, when the sandbox is gone. */
static void fail(struct brig_run *run, const struct brig_err *why)
{
    struct run_gate *g = run->gate;

    if (g->step == STEP_OVER)
        return;
    if (g->failed.code == BRIG_E_NONE)
        g->failed = *why;
    if (g->failed.code == BRIG_E_BUSY) /* the client's word for a socket that closed */
        (void)err_set(&g->failed, BRIG_E_HOST, 0, "network: brig-egress died");
    if (g->step == STEP_PREPARE)
        finish_before(run, BRIG_CAUSE_HOST_ERROR);
    else if (g->step == STEP_RUN)
        brig_run_cancel(run);
    else
        finish(run);
}

void run_gate_lost(struct brig_run *run, const struct engine_gate *gate, const struct brig_err *why)
{
    struct run_gate *g = run->gate;

    if (!g || g->gate != gate)
        return;
    loop_timer_clear(run->engine->loop, &g->deadline);
    gate_client_cancel(gate->client, run);
    g->gate = NULL;
    fail(run, why);
}

static void on_deadline(struct loop_timer *timer)
{
    const struct brig_run *run = timer->ctx;

    if (run->gate->gate)
        gate_lost(run->gate->gate, "does not answer");
}

static int expect_answer(struct brig_run *run, struct brig_err *err)
{
    return loop_timer_set(run->engine->loop, &run->gate->deadline, loop_now_ns() + ANSWER_NS, err);
}

/* ---- the start -------------------------------------------------------------------------------------- */

static void on_prepared(void *ctx, const struct gate_prepared *prepared, const char *ca UNUSED,
                        const struct brig_err *why)
{
    struct brig_run *run = ctx;
    struct run_gate *g = run->gate;
    struct brig_err err = {0};

    loop_timer_clear(run->engine->loop, &g->deadline);
    if (!prepared) {
        /* It speaks of members of the policy; whoever reads this may not know that there is one. */
        (void)err_set(&err, (enum brig_code)why->code, 0, "network: %.200s", why->message);
        fail(run, &err);
        return;
    }
    if (run->cancelled) {
        finish_before(run, BRIG_CAUSE_CANCELLED);
        return;
    }
    g->msg.gate = (struct netgate_want){
        .on = 1, .any_port = prepared->any_port, .n_ports = prepared->any_port ? 0 : prepared->n_ports};
    memcpy(g->msg.gate.ports, prepared->ports, g->msg.gate.n_ports * sizeof g->msg.gate.ports[0]);
    int r = run_ask(run, &g->msg, g->fds, g->n_fds, &err);
    if (r < 0) {
        fail(run, &err); /* unless it was ended with all others, because the spawner is gone */
        return;
    }
    fd_close_all(g->fds, g->n_fds);
    g->n_fds = 0;
    g->step = STEP_RUN;
}

static void on_listening(void *ctx, const struct brig_err *err)
{
    if (err)
        fail(ctx, err);
}

void run_on_gate_open(struct brig_run *run, const struct wire_gate_open *msg, const int *fds, size_t n_fds)
{
    struct run_gate *g = run->gate;
    struct brig_err err = {0};
    char id[32];

    /* What the spawner could not make it says again in DONE; without a brig-egress the run is ending. */
    if (!g || g->step != STEP_RUN || !g->gate || msg->err.code != BRIG_E_NONE)
        return;
    snprintf(id, sizeof id, "local-%llu", (unsigned long long)run->number);
    int r = msg->n != n_fds
                ? err_set(&err, BRIG_E_HOST, EPROTO, "network: %u listeners, %zu descriptors", msg->n, n_fds)
                : gate_client_listen(g->gate->client, g->slot, id, msg->listeners, fds, n_fds, on_listening, run, &err);
    if (r < 0)
        fail(run, &err);
}

static int put_spec(const struct brig_spec *spec, struct buf *out)
{
    const struct brig_limits *l = &spec->limits;
    const uint64_t limits[] = {l->net_bytes_in, l->net_bytes_out, l->net_bps, l->connections};
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key(&json, "policy");
    /* brig-egress has the reader; what is no JSON object it refuses */
    json_raw(&json, spec->network, strlen(spec->network));
    json_key_string(&json, "name", spec->network_name ? spec->network_name : "custom");
    json_key_object(&json, "limits");
    for (int i = 0; i < (int)ARRAY_SIZE(limits); i++)
        if (limits[i] > 0)
            json_key_u64(&json, brig_limit_name((enum brig_limit)(BRIG_LIMIT_NET_BYTES_IN + i)), limits[i]);
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

static int prepare(struct brig_run *run, const struct brig_spec *spec, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(SLOT_SPEC_MAX);
    struct run_gate *g = run->gate;
    bool learn = run->flags & BRIG_RUN_LEARN;

    if (put_spec(spec, &text) < 0 || (learn && learn_create(&g->learn) < 0))
        return err_nomem(err);
    while (g->slot == 0)
        if (getrandom(&g->slot, sizeof g->slot, 0) != (ssize_t)sizeof g->slot)
            return err_host(err, "random number");
    int r = gate_client_prepare(g->gate->client, g->slot, 1, learn ? GATE_LEARN : 0, text.data, text.len, on_prepared,
                                run, err);
    return r < 0 ? r : expect_answer(run, err);
}

/* Other certificates than the host's count for the program too, not for brig-egress alone. */
static int add_trust(struct run_gate *g, struct brig_err *err)
{
    const char *path = getenv("BRIG_GATE_CA_BUNDLE");

    if (!path || !path[0])
        return 0;
    AUTO_FREE char *text = mem_alloc(BUNDLE_MAX);
    if (!text)
        return err_nomem(err);
    ssize_t len = fd_read_file(AT_FDCWD, path, text, BUNDLE_MAX);
    if (len < 0)
        return err_set(err, BRIG_E_USAGE, (int)-len, "BRIG_GATE_CA_BUNDLE: %.120s", path);
    int fd = gate_memfd("trust", text, (size_t)len);
    if (fd < 0)
        return err_set(err, BRIG_E_HOST, -fd, "certificates for the sandbox");
    g->fds[g->n_fds++] = fd;
    g->msg.trust = 1;
    return 0;
}

int run_gate_start(struct brig_run *run, const struct brig_spec *spec, const struct wire_run *msg, const int *fds,
                   size_t n_fds, struct brig_err *err)
{
    struct run_gate *g = run->gate = mem_zalloc(sizeof *g);

    if (!g)
        return err_nomem(err);
    g->msg = *msg;
    g->deadline = (struct loop_timer){.fn = on_deadline, .ctx = run};
    g->learned = BUF_INIT(POLICY_JSON_MAX);
    for (; g->n_fds < n_fds && g->n_fds < RUN_FDS - 1; g->n_fds++) {
        g->fds[g->n_fds] = fcntl(fds[g->n_fds], F_DUPFD_CLOEXEC, 0);
        if (g->fds[g->n_fds] < 0)
            return err_host(err, "duplicate a descriptor");
    }
    if (str_copy(run->receipt.network.policy, sizeof run->receipt.network.policy,
                 spec->network_name ? spec->network_name : "custom") < 0)
        return err_usage(err, "network policy %.64s: the name is too long", spec->network_name);
    run->receipt.network.version = 1;
    int r = add_trust(g, err);
    if (r == 0)
        r = gate_start(run->engine, &g->gate, err);
    return r < 0 ? r : prepare(run, spec, err);
}

/* ---- meanwhile, and the end -------------------------------------------------------------------------- */

bool run_gate_event(struct brig_run *run, const struct gate_event *event)
{
    const struct run_gate *g = run->gate;

    if (!g || g->slot != event->head.slot)
        return false;
    learn_event(g->learn, event);
    return true;
}

static void on_forgotten(void *ctx, const struct gate_counts *counts, const struct brig_err *err)
{
    struct brig_run *run = ctx;
    struct brig_receipt *r = &run->receipt;

    if (!counts) {
        fail(run, err);
        return;
    }
    r->usage.net_in_bytes = counts->bytes_in;
    r->usage.net_out_bytes = counts->bytes_out;
    r->network.allowed = counts->allowed;
    r->network.denied = counts->denied + counts->names_refused;
    r->limits_hit |= counts->limits_hit & ((1u << BRIG_LIMIT_MAX) - 1);
    run->gate->step = STEP_OVER;
    finish(run);
}

bool run_gate_end(struct brig_run *run)
{
    struct run_gate *g = run->gate;
    struct brig_err err = {0};

    if (!g || g->step == STEP_OVER)
        return false;
    if (g->gate && gate_client_forget(g->gate->client, g->slot, on_forgotten, run, &err) == 0 &&
        expect_answer(run, &err) == 0) {
        g->step = STEP_FORGET;
        return true;
    }
    if (g->failed.code == BRIG_E_NONE)
        g->failed = err;
    run_gate_abandon(run);
    settle(run);
    return false;
}

void run_gate_free(struct brig_run *run)
{
    struct run_gate *g = run->gate;

    if (!g)
        return;
    run_gate_abandon(run);
    learn_destroy(g->learn);
    buf_done(&g->learned);
    run->gate = NULL;
    mem_free(g);
}
