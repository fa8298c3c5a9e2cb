/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_run.c: a claimed child, from its request to done().
 *
 *     request sent -> answer complete ----------------> over -> answered() -> statistics -> done()
 *                 \-> the process has ended (WAIT), all was read -> judged -^
 *                 \-> verdict (wall clock, cancel, output): SIGTERM, SIGKILL, what was written is read -^
 *                 \-> the sandbox has gone ---------------------------------------------------> done()
 *
 * The first of these wins. An answer that is complete is the end of the run whatever happens next; it is handed out
 * with all the output that was written before it, because brig-init sends that first (docs/PROTOCOL.md, CHANNEL).
 * wall_ms is from the claim to the answer; child.h says whose the other numbers are.
 */
#include <signal.h>

#include "crypto/crypto.h"
#include "receipt/receipt.h"
#include "sandbox/child/child_private.h"
#include "sandbox/processes.h"

/* ---- the request --------------------------------------------------------------------------------------------- */

void child_send(struct child *child)
{
    if (child->talk < CHILD_ASKED)
        network_name(child->sbox, !child->guest, &child->policy);
    child->talk = CHILD_ASKED;
    while (child->prog.channel && child->request_at < child->request_len) {
        ssize_t n =
            call_write(child->prog.channel, child->request + child->request_at, child->request_len - child->request_at);

        if (n <= 0) /* writable() follows, or the end of the sandbox */
            return;
        crypto_wipe(child->request + child->request_at, (size_t)n);
        child->request_at += (size_t)n;
    }
    mem_free(take_ptr(&child->request));
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static uint64_t since(uint64_t now, uint64_t before)
{
    return now == BRIG_USAGE_UNKNOWN || before == BRIG_USAGE_UNKNOWN ? now : now > before ? now - before : 0;
}

static void fill_usage(const struct child *child, struct brig_usage *usage)
{
    const struct box_stats *now = &child->stats, *then = &child->parked;

    program_usage(&child->prog, usage);
    usage->wall_ms = (clock_mono_ns() - child->prog.sent_ns) / NS_PER_MS;
    if (!child->guest && child->has_stats) {
        uint64_t cpu = since(now->cpu_ns, then->cpu_ns);
        usage->cpu_ms = cpu == BRIG_USAGE_UNKNOWN ? cpu : cpu / NS_PER_MS;
        usage->memory_peak_bytes = now->memory_peak_bytes;
        usage->pids_peak = now->pids_peak;
        usage->disk_bytes = now->disk_peak_bytes != BRIG_USAGE_UNKNOWN ? now->disk_peak_bytes : now->disk_bytes;
        usage->read_bytes = since(now->read_bytes, then->read_bytes);
        usage->written_bytes = since(now->written_bytes, then->written_bytes);
    }
}

static enum brig_cause cause_of(struct child *child)
{
    struct program *program = &child->prog;

    if (child->talk == CHILD_ANSWERED)
        return BRIG_CAUSE_EXITED;
    if (program->start_errnum) {
        snprintf(program->detail, sizeof program->detail, "interpreter %.128s: %s", child->argv[0],
                 strerrordesc_np((int)program->start_errnum));
        return BRIG_CAUSE_HOST_ERROR;
    }
    return program_cause(program, child->has_stats ? &child->stats : NULL, &child->sbox->priv->seen,
                         child->sbox->limits.memory);
}

/* learned: memory for its text. */
static void fill_network(const struct child *child, struct child_done *done, struct buf *learned)
{
    struct brig_receipt r = {.network = child->policy};

    network_fill(child->sbox, &child->net, &r, learned);
    done->network = r.network;
    done->usage.net_in_bytes = r.usage.net_in_bytes;
    done->usage.net_out_bytes = r.usage.net_out_bytes;
    done->limits_hit |= r.limits_hit;
    done->learned = r.learned;
}

static void fill_said(const struct child *child, struct child_done *done)
{
    if (child->talk == CHILD_ANSWERED) {
        done->answer = child->frames.payload.data ? child->frames.payload.data : "";
        done->answer_len = child->frames.payload.len;
    }
    for (unsigned i = 1; i <= 2; i++) {
        done->output[i] = child->prog.kept[i].data ? child->prog.kept[i].data : "";
        done->output_len[i] = child->prog.kept[i].len;
        done->truncated[i] = child->prog.truncated[i];
    }
}

/* The answer can be looked at while its numbers are under way. */
static void tell_answer(struct child *child)
{
    struct child_done done = {.cause = BRIG_CAUSE_EXITED, .detail = child->prog.detail, .started = true};

    if (!child->claim.answered)
        return;
    fill_said(child, &done);
    child->claim.answered(child->claim.ctx, &done);
}

/* After it nothing of the child is used: with keep_files it is ENDING until child_release(). */
static void tell(struct child *child, enum brig_cause cause)
{
    const struct sbox *sbox = child->sbox;
    const bool waited = child->talk == CHILD_READY || child->talk == CHILD_ASKED;
    AUTO_BUF struct buf learned = BUF_INIT(POLICY_JSON_MAX);
    struct child_done done = {
        .cause = cause,
        .detail = child->prog.detail,
        .answer_too_large = waited && child->frames.too_large,
        .answer_broken = child->talk == CHILD_ASKED && !child->frames.too_large && child->frames.head_len > 0 &&
                         (!child->frames.complete || child->frames.more),
        .limits = sbox->limits,
        .layers = sbox->layers,
        .protection_complete = sbox->protection_complete,
        .started_at_ns = child->started_at_ns,
        .ended_at_ns = clock_real_ns(),
        .started = child->talk >= CHILD_ASKED,
        .unsupported = child->unsupported,
        .sandbox_id = sbox->id,
        .limits_hit = child->prog.limits_hit | cause_limit(cause),
    };

    fill_said(child, &done);
    if (child->talk != CHILD_ANSWERED && child->prog.verdict.cause != BRIG_CAUSE_EXITED) {
        done.exit_code = program_exit_code(&child->prog);
        done.signal = program_exit_signal(&child->prog);
    }
    done.limits.cpu_time = child->claim.limits.cpu_time;
    fill_usage(child, &done.usage);
    fill_network(child, &done, &learned);
    child->telling = true;
    child->claim.done(child->claim.ctx, &done);
    child->telling = false;
}

/* Limits that were reached without being what ended it. The counters of a guest's sandbox are those of others too. */
static uint32_t limits_reached(const struct child *child)
{
    const struct box_stats *now = child->has_stats ? &child->stats : NULL;
    uint32_t hit = program_limits(&child->prog, now);

    if (now && !child->guest)
        hit |=
            cause_limits(now->oom_kills > child->parked.oom_kills, now->pids_refused > child->parked.pids_refused, 0);
    return hit;
}

static void finish(struct child *child)
{
    bool keep = child->claim.keep_files && !child->guest && child->sbox->link;

    child->state = CHILD_ENDING; /* whoever ends it from within done() finds it so */
    child->prog.state = PROGRAM_ENDED;
    if (keep || child->guest)
        (void)!program_signal(&child->prog, SIGKILL, SVC_SIGNAL_ALL, NULL, NULL);
    child->prog.limits_hit |= limits_reached(child);
    tell(child, cause_of(child));
    if (!keep || child->released)
        child_release(child);
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct child *child = ctx;

    child->waits &= ~CHILD_WAITS_STATS;
    if (!err) {
        child->stats = *stats;
        child->has_stats = true;
    }
    if (!child->waits)
        finish(child);
}

/* Numbers that are older than the answer could be those of another moment, if brig-init was taken over. */
static bool is_fresh(const struct child *child)
{
    return child->has_stats && child->stats.at_ns + CHILD_FRESH_NS >= clock_mono_ns();
}

void child_run_counted(struct child *child, const struct box_stats *stats)
{
    if (child->state != CHILD_CLAIMED || child->prog.verdict.cause != BRIG_CAUSE_MAX ||
        (child->prog.state >= PROGRAM_JUDGING && !child->expecting))
        return;
    child->stats = *stats;
    child->has_stats = true;
    if (!child->expecting)
        return; /* the answer follows */
    child->expecting = false;
    on_stats(child, stats, NULL);
}

static void ask_stats(struct child *child)
{
    child->expecting = false;
    child->has_stats = false;
    if (sbox_stats(child->sbox, on_stats, child, NULL) == 0)
        child->waits |= CHILD_WAITS_STATS;
}

static void on_counts(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    struct child *child = child_answered(ctx);

    if (!child)
        return;
    child->waits &= ~CHILD_WAITS_COUNTS;
    if (!child->waits)
        finish(child);
}

/* Decided. What the receipt has to say is asked for; a sandbox that cannot answer leaves it unknown. */
void child_run_over(struct child *child)
{
    const bool answered = child->talk == CHILD_ANSWERED;
    const struct program *program = &child->prog;

    if (program->state >= PROGRAM_JUDGING)
        return;
    child->prog.state = PROGRAM_JUDGING;
    child->waits = 0;
    if (child->counting)
        sbox_drop_stats(child->sbox, child);
    child->expecting = answered && child_is_counted(child) && !child->has_stats;
    program_arm(&child->prog);
    if (child->expecting) {
        program_at(&child->prog, clock_mono_ns() + CHILD_FRESH_NS);
        child->waits |= CHILD_WAITS_STATS;
    } else if (child->guest ? program->has_exit && (!program->exit.leaf || (program->exit.status != 0 && !answered))
                            : !answered || !is_fresh(child))
        ask_stats(child);
    if (child->sbox->priv->network && (child->counts_ask = child_ask_new(child))) {
        if (sbox_count_network(child->sbox, on_counts, child->counts_ask, NULL) == 1)
            child->waits |= CHILD_WAITS_COUNTS;
        else
            mem_free(take_ptr(&child->counts_ask));
    }
    if (!child->waits)
        finish(child);
    else if (answered)
        tell_answer(child);
}

/* ---- what ends it ---------------------------------------------------------------------------------------------- */

static void take_answer(struct child *child)
{
    if (child->frames.more) {
        child_verdict(child, BRIG_CAUSE_EXITED, "more than one answer");
        return;
    }
    if (child->prog.verdict.cause != BRIG_CAUSE_MAX)
        return;
    child->talk = CHILD_ANSWERED;
    if (!child->guest)
        child_run_over(child);
    else { /* its numbers come with its end */
        program_kill(&child->prog);
        if (!program_waits(&child->prog))
            child_run_over(child);
    }
}

void child_run_data(struct child *child)
{
    if (child->talk == CHILD_ANSWERED)
        child->frames.more = false; /* what comes after the first is nobody's */
    else if (child->frames.complete)
        take_answer(child);
    else if (child->frames.too_large)
        child_verdict(child, BRIG_CAUSE_EXITED, "the answer is too large");
}

void child_run_output(struct child *child, unsigned stream, const uint8_t *data, size_t len)
{
    if (child->talk < CHILD_ASKED || child->prog.state >= PROGRAM_JUDGING)
        return;
    if (child->claim.output_data)
        child->claim.output_data(child->claim.ctx, stream, data, len);
    size_t take = program_count_output(&child->prog, stream, len);
    if (take > 0 && !kept_add(child->manager, child->caller.org_id, &child->prog.kept[stream], data, take))
        child->prog.truncated[stream] = true; /* said, not hidden */
    if (take < len && child->claim.kill_on_output)
        child_verdict(child, BRIG_CAUSE_OUTPUT_LIMIT, "");
}

/* Everything of it is killed; what it had written is read to its end, and then it is over. */
void child_verdict(struct child *child, enum brig_cause cause, const char *detail)
{
    if (child->talk != CHILD_ANSWERED && child->state == CHILD_CLAIMED && program_verdict(&child->prog, cause, detail))
        program_kill(&child->prog);
}

/* ---- the clocks ------------------------------------------------------------------------------------------------ */

/* The spawner counts, and has a clock of CPU time for programs only: of a child we look ourselves, when it can have
 * used up what is left at the earliest. */
void child_run_arm(struct child *child, uint64_t cpu_left_ms)
{
    uint64_t now = clock_mono_ns(), wall = child->prog.deadline_ns,
             cpus = child->sbox->limits.cpus ? child->sbox->limits.cpus : 1000;
    uint64_t look = child->claim.limits.cpu_time ? now + cpu_left_ms * NS_PER_MS / cpus * 1000 : wall;

    if (child->claim.limits.cpu_time && look < now + CHILD_COUNT_NS)
        look = now + CHILD_COUNT_NS;
    program_at(&child->prog, look < wall ? look : wall);
}

static void on_cpu(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct child *child = ctx;
    uint64_t limit = child->claim.limits.cpu_time;
    uint64_t used = err ? BRIG_USAGE_UNKNOWN : since(stats->cpu_ns, child->parked.cpu_ns);

    child->counting = false;
    if (child->prog.state >= PROGRAM_TERM_SENT)
        return;
    if (used == BRIG_USAGE_UNKNOWN)
        child_verdict(child, BRIG_CAUSE_HOST_ERROR, "its CPU time cannot be counted");
    else if (used / NS_PER_MS >= limit)
        child_verdict(child, BRIG_CAUSE_CPU_LIMIT, "");
    else
        child_run_arm(child, limit - used / NS_PER_MS);
}

static bool count_cpu(struct child *child)
{
    if (!child->claim.limits.cpu_time || clock_mono_ns() >= child->prog.deadline_ns)
        return false;
    child->counting = sbox_stats(child->sbox, on_cpu, child, NULL) == 0;
    child_run_arm(child, child->counting ? child->claim.timeout_ms : 0);
    return true;
}

void child_run_clock(struct child *child)
{
    if (child->prog.state < PROGRAM_TERM_SENT) {
        if (!count_cpu(child))
            (void)program_time_out(&child->prog);
        return;
    }
    if (child->prog.state < PROGRAM_JUDGING) {
        program_tick(&child->prog);
        return;
    }
    if (child->expecting) { /* brig-init did not say that it has sent the answer */
        child->waits &= ~CHILD_WAITS_STATS;
        ask_stats(child);
        program_arm(&child->prog);
    } else { /* the spawner or brig-egress does not answer: the receipt says less, but it comes */
        sbox_drop_stats(child->sbox, child);
        child->waits = 0;
    }
    if (!child->waits)
        finish(child);
}

void child_cancel(struct child *child, const char *why)
{
    child_verdict(child, BRIG_CAUSE_CANCELLED, why ? why : "");
}

/* What the provider counted of its whole life. */
static void take_end(struct child *child, const struct box_end *end)
{
    const struct brig_usage *u = &end->usage;

    if (child->guest || child->has_stats)
        return;
    child->stats = (struct box_stats){.cpu_ns = u->cpu_ms == BRIG_USAGE_UNKNOWN ? u->cpu_ms : u->cpu_ms * NS_PER_MS,
                                      .memory_peak_bytes = u->memory_peak_bytes,
                                      .pids_peak = u->pids_peak,
                                      .disk_bytes = u->disk_bytes,
                                      .disk_peak_bytes = u->disk_bytes,
                                      .read_bytes = u->read_bytes,
                                      .written_bytes = u->written_bytes};
    child->has_stats = true;
}

void child_run_gone(struct child *child)
{
    const struct sbox_private *priv = child->sbox->priv;
    const bool decided = child->talk == CHILD_ANSWERED || child->prog.verdict.cause != BRIG_CAUSE_MAX ||
                         (child->prog.has_exit && child->prog.state >= PROGRAM_JUDGING);
    enum brig_cause cause = decided ? cause_of(child) /* without those counters, which are of another moment */
                                    : program_gone(&child->prog, priv->ending.why, &priv->end);

    child->state = CHILD_ENDING;
    child->prog.state = PROGRAM_ENDED;
    take_end(child, &priv->end);
    tell(child, cause);
    child_forget_sandbox(child);
    if (!child->claim.keep_files || child->guest || child->released)
        child_free(child);
}

void child_release(struct child *child)
{
    child->released = true;
    if (child->telling)
        return;
    child_end_sandbox(child, "run");
    child_free(child);
}
