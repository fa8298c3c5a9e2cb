/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_claim.c: prepares a claimed child: the limits and the network of the run are in force before the first byte of
 * the request is sent, or it is not sent at all.
 *
 * A claim that asks for what the child was made with waits for nothing: the request leaves in the same round of the
 * loop. A refusal on the way (by the kernel or brig-egress) ends the child with host-error and started false: no user
 * code has begun, and another child may be tried.
 */
#include "sandbox/child/child_private.h"

int child_claim_begin(struct child *child, const struct child_claim *claim, struct brig_err *err)
{
    uint64_t now = clock_mono_ns();

    if (claim->request->len < CHILD_FRAME_HEAD || claim->request->len > CHILD_FRAME_HEAD + CHILD_FRAME_MAX)
        return err_usage(err, "the frame of the request has %zu bytes: at least %u, at most %u", claim->request->len,
                         CHILD_FRAME_HEAD, CHILD_FRAME_HEAD + CHILD_FRAME_MAX);
    if (claim->timeout_ms == 0 || claim->timeout_ms > DURATION_MAX_MS)
        return err_usage(err, "timeout: must be between 1 ms and 365 days");
    child->request = buf_take(claim->request, &child->request_len);
    if (!child->request)
        return err_nomem(err);
    child->claim = *claim;
    child->claim.request = NULL;
    child->claim.network = NULL;
    child->claim.secrets = NULL;
    child->claim.caller = NULL;
    if (claim->caller)
        child->caller = *claim->caller;
    if (child->claim.answer_max == 0 || child->claim.answer_max > CHILD_FRAME_MAX)
        child->claim.answer_max = CHILD_FRAME_MAX;
    child->prog.output_max = claim->output                ? claim->output
                             : claim->limits.output       ? claim->limits.output
                             : child->sbox->limits.output ? child->sbox->limits.output
                                                          : PROGRAM_OUTPUT_DEFAULT;
    child->prog.kept[1] = child->prog.kept[2] = BUF_INIT((size_t)child->prog.output_max);
    child->started_at_ns = clock_real_ns();
    child->prog.sent_ns = now;
    child->prog.timeout_ms = claim->timeout_ms;
    child->prog.deadline_ns = now + claim->timeout_ms * NS_PER_MS;
    child->state = CHILD_CLAIMED;
    if (child->guest)
        sbox_hold(child->sbox);
    child_run_arm(child, claim->limits.cpu_time);
    return 0;
}

static void prepared(struct child *child, unsigned what, const struct brig_err *err)
{
    child->waits &= ~what;
    if (child->state != CHILD_CLAIMED || child->prog.state >= PROGRAM_JUDGING)
        return;
    if (err) {
        char detail[sizeof child->prog.detail];

        child->unsupported = what != CHILD_WAITS_NETWORK && err->code == BRIG_E_UNSUPPORTED;
        snprintf(detail, sizeof detail, "%s%.200s", what == CHILD_WAITS_NETWORK ? "network: " : "", err->message);
        child_verdict(child,
                      err->code == BRIG_E_REFUSED || err->code == BRIG_E_FORBIDDEN ? BRIG_CAUSE_POLICY
                                                                                   : BRIG_CAUSE_HOST_ERROR,
                      detail);
        return;
    }
    if (!(child->waits & (CHILD_WAITS_LIMITS | CHILD_WAITS_NETWORK | CHILD_WAITS_MEASURE)))
        child_send(child);
}

static void on_limits(void *ctx, const struct brig_limits *limits UNUSED, const struct brig_err *err)
{
    prepared(ctx, CHILD_WAITS_LIMITS, err);
}

static void on_network(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err)
{
    struct child *child = child_answered(ctx);

    if (child)
        prepared(child, CHILD_WAITS_NETWORK, err);
}

static int check_cpu_time(const struct child *child, struct brig_err *err)
{
    if (child->parked.cpu_ns == BRIG_USAGE_UNKNOWN)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "limits.cpu_time: nothing counts it here; use cpus and timeout");
    return 0;
}

void child_measured(struct child *child)
{
    struct brig_err err = {0};

    if (child->waits & CHILD_WAITS_MEASURE)
        prepared(child, CHILD_WAITS_MEASURE, check_cpu_time(child, &err) < 0 ? &err : NULL);
}

/* What can be changed and is another: memory, cpus, pids. Whoever asks for more than can be is told. */
static int want_limits(const struct child *child, const struct brig_limits *asked, struct brig_limits *ret,
                       struct brig_err *err)
{
    const struct brig_limits *has = &child->sbox->limits;
    const struct {
        const char *name;
        uint64_t asked, has;
    } fixed[] = {
        {"disk", asked->disk, has->disk},
        {"inodes", asked->inodes, has->inodes},
        {"open_files", asked->open_files, has->open_files},
        {"file_size", asked->file_size, has->file_size},
        {"io_read_bps", asked->io_read_bps, has->io_read_bps},
        {"io_write_bps", asked->io_write_bps, has->io_write_bps},
    };

    if (asked->cpu_time && check_cpu_time(child, err) < 0)
        return -EOPNOTSUPP;
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        if (fixed[i].asked && fixed[i].asked != fixed[i].has)
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "limits.%s: a child has what it was made with", fixed[i].name);
    *ret = (struct brig_limits){.memory = asked->memory ? asked->memory : has->memory,
                                .cpus = asked->cpus ? asked->cpus : has->cpus,
                                .pids = asked->pids ? asked->pids : has->pids};
    return ret->memory != has->memory || ret->cpus != has->cpus || ret->pids != has->pids;
}

static int set_network(struct child *child, const struct json_value *network, struct brig_err *err)
{
    struct child_ask *ask = child->network_ask = child_ask_new(child);
    int r = ask ? sbox_set_network(child->sbox, &child->caller, network, on_network, ask, err) : err_nomem(err);

    if (r < 0)
        mem_free(take_ptr(&child->network_ask));
    child->waits |= CHILD_WAITS_NETWORK;
    return r;
}

int child_claim(struct child *child, const struct child_claim *claim, struct brig_err *err)
{
    struct brig_limits limits = {0};
    int r = child->state == CHILD_PARKED ? sbox_usable(child->sbox, err)
                                         : err_set(err, BRIG_E_CONFLICT, 0, "the child is not parked");

    r = r < 0 ? r : want_limits(child, &claim->limits, &limits, err);
    if (r >= 0 && claim->network && !child->network)
        r = err_set(err, BRIG_E_CONFLICT, 0, "network: the child was made without one");
    if (r >= 0 && claim->n_secrets > 0)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0, "secrets: a child that was made before has none of its own");
    bool other = r > 0;
    r = r < 0 ? r : child_claim_begin(child, claim, err);
    frames_begin(&child->frames, child->claim.answer_max);
    if (r == 0 && other) {
        r = sbox_set_limits(child->sbox, &limits, on_limits, child, err);
        child->waits |= CHILD_WAITS_LIMITS;
    }
    if (r == 0 && claim->network)
        r = set_network(child, claim->network, err);
    if (r < 0) {
        child_end_sandbox(child, "refused");
        child_free(child);
        return r;
    }
    if (claim->limits.cpu_time && child->measuring)
        child->waits |= CHILD_WAITS_MEASURE;
    if (child->sbox->priv->network)
        network_totals(child->sbox->priv->network, &child->net);
    if (!child->waits)
        child_send(child);
    return 0;
}
