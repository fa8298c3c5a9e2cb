/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_run.c: a claimed child, from its request to done().
 *
 *     request sent -> answer complete ----------------------------------> over -> statistics -> done()
 *                 \-> the process has ended (WAIT), all was read -> judged -^
 *                 \-> verdict (wall clock, cancel, output): SIGTERM, SIGKILL, what was written is read -^
 *                 \-> the sandbox has gone ---------------------------------------------------> done()
 *
 * The first of these wins. An answer that is complete is the end of the run whatever happens next; it is handed out
 * with all the output that was written before it, because brig-init sends that first (docs/PROTOCOL.md, CHANNEL).
 *
 * Whose numbers: cpu, memory peak, pids peak, disk and io are the kernel's counters of the whole sandbox (brig-init
 * included), which the spawner sends when brig-init has the answer, or is asked for when the run is over; cpu and io
 * are those since it was parked. In somebody else's sandbox they are those of the process's own leaf cgroup, which come
 * with its end. Nothing is taken from what the program says of itself. wall_ms is from the claim to the answer.
 */
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>

#include "crypto/crypto.h"
#include "sandbox/child/child_private.h"
#include "sandbox/processes.h"

/* ---- the request --------------------------------------------------------------------------------------------- */

void child_send(struct child *child)
{
    if (!child->sent)
        network_name(child->sbox, !child->guest, &child->policy);
    child->sent = true;
    while (child->channel && child->request_at < child->request_len) {
        ssize_t n =
            call_write(child->channel, child->request + child->request_at, child->request_len - child->request_at);

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
    static const struct box_stats none;
    const struct box_stats *now = &child->stats, *then = child->has_parked ? &child->parked : &none;

    *usage = (struct brig_usage){.cpu_ms = BRIG_USAGE_UNKNOWN,
                                 .memory_peak_bytes = BRIG_USAGE_UNKNOWN,
                                 .pids_peak = BRIG_USAGE_UNKNOWN,
                                 .disk_bytes = BRIG_USAGE_UNKNOWN,
                                 .read_bytes = BRIG_USAGE_UNKNOWN,
                                 .written_bytes = BRIG_USAGE_UNKNOWN};
    usage->wall_ms = (clock_mono_ns() - child->sent_ns) / NS_PER_MS;
    if (!child->guest && child->has_stats) {
        uint64_t cpu = since(now->cpu_ns, then->cpu_ns);
        usage->cpu_ms = cpu == BRIG_USAGE_UNKNOWN ? cpu : cpu / NS_PER_MS;
        usage->memory_peak_bytes = now->memory_peak_bytes;
        usage->pids_peak = now->pids_peak;
        usage->disk_bytes = now->disk_peak_bytes != BRIG_USAGE_UNKNOWN ? now->disk_peak_bytes : now->disk_bytes;
        usage->read_bytes = since(now->read_bytes, then->read_bytes);
        usage->written_bytes = since(now->written_bytes, then->written_bytes);
    } else if (child->has_exit) {
        usage->cpu_ms = child->exit.cpu_ns == UINT64_MAX ? BRIG_USAGE_UNKNOWN : child->exit.cpu_ns / NS_PER_MS;
        usage->memory_peak_bytes = child->exit.memory_peak;
        usage->pids_peak = child->exit.pids_peak;
    }
}

static enum brig_cause cause_of(struct child *child)
{
    const bool own_end =
        child->has_exit && (child->verdict == BRIG_CAUSE_MAX || child->exit.ended_ns < child->verdict_ns);

    if (child->answered)
        return BRIG_CAUSE_EXITED;
    if (child->start_errnum) {
        snprintf(child->detail, sizeof child->detail, "interpreter %.128s: %s", child->argv[0],
                 strerrordesc_np((int)child->start_errnum));
        return BRIG_CAUSE_HOST_ERROR;
    }
    if (own_end)
        return judge_exit(child->sbox, &child->exit, child->has_stats ? &child->stats : NULL, &child->limits_hit,
                          child->detail, sizeof child->detail);
    if (child->verdict != BRIG_CAUSE_MAX)
        return child->verdict;
    snprintf(child->detail, sizeof child->detail, "brig-init does not answer");
    return BRIG_CAUSE_HOST_ERROR;
}

/* learned: memory for its text. */
static void fill_network(const struct child *child, struct child_done *done, struct buf *learned)
{
    const struct learn *learn = child->sbox && child->sbox->priv->network ? child->sbox->priv->network->learn : NULL;
    struct gate_counts now = {0};

    done->network = child->policy;
    if (!child->sbox || !child->sbox->priv->network)
        return;
    network_totals(child->sbox->priv->network, &now);
    done->network.allowed = now.allowed - child->net.allowed;
    done->network.denied = now.denied + now.names_refused - child->net.denied - child->net.names_refused;
    done->limits_hit |= now.limits_hit & ~child->net.limits_hit;
    done->usage.net_in_bytes = now.bytes_in - child->net.bytes_in;
    if (learn && learn_put_json(learn, learned) == 0)
        done->learned = learned->data;
    done->usage.net_out_bytes = now.bytes_out - child->net.bytes_out;
}

/* After it nothing of the child is used: with keep_files it is ENDING until child_release(). */
static void tell(struct child *child, enum brig_cause cause)
{
    static const enum brig_limit limit_of[BRIG_CAUSE_MAX + 1] = {[BRIG_CAUSE_TIMEOUT] = BRIG_LIMIT_TIMEOUT,
                                                                 [BRIG_CAUSE_CPU_LIMIT] = BRIG_LIMIT_CPU_TIME,
                                                                 [BRIG_CAUSE_OUTPUT_LIMIT] = BRIG_LIMIT_OUTPUT};
    const struct sbox *sbox = child->sbox;
    AUTO_BUF struct buf learned = BUF_INIT(POLICY_JSON_MAX);
    struct child_done done = {
        .cause = cause,
        .detail = child->detail,
        .answer_too_large = !child->answered && child->ready && child->frames.too_large,
        .answer_broken = !child->answered && child->ready && child->sent && !child->frames.too_large &&
                         child->frames.head_len > 0 && (!child->frames.complete || child->frames.more),
        .limits = sbox->limits,
        .layers = sbox->layers,
        .protection_complete = sbox->protection_complete,
        .started_at_ns = child->started_at_ns,
        .ended_at_ns = clock_real_ns(),
        .started = child->sent,
        .unsupported = child->unsupported,
        .sandbox_id = sbox->id,
        .limits_hit = child->limits_hit | (limit_of[cause] ? 1u << limit_of[cause] : 0),
    };

    if (!child->answered && child->has_exit && child->verdict != BRIG_CAUSE_EXITED) {
        done.exit_code = WIFEXITED((int)child->exit.status) ? WEXITSTATUS((int)child->exit.status) : 0;
        done.signal = WIFSIGNALED((int)child->exit.status) ? WTERMSIG((int)child->exit.status) : 0;
    }
    if (child->answered) {
        done.answer = child->frames.payload.data ? child->frames.payload.data : "";
        done.answer_len = child->frames.payload.len;
    }
    for (unsigned i = 1; i <= 2; i++) {
        done.output[i] = child->output[i].data ? child->output[i].data : "";
        done.output_len[i] = child->output[i].len;
        done.truncated[i] = child->truncated[i];
    }
    done.limits.cpu_time = child->claim.limits.cpu_time;
    fill_usage(child, &done.usage);
    fill_network(child, &done, &learned);
    child->telling = true;
    child->claim.done(child->claim.ctx, &done);
    child->telling = false;
}

static void send_signal(struct child *child, uint32_t signum, uint32_t flags)
{
    const struct svc_proc_signal msg = {.proc = child->number, .signum = signum, .flags = flags};
    const struct call_events none = {0};
    struct call *call;
    uint8_t message[16];
    int n = svc_proc_signal_put(message, sizeof message, &msg);

    if (n > 0 && child->sbox->link)
        (void)!link_call(child->sbox->link, SVC_PROC_SIGNAL, message, (size_t)n, &none, &call, NULL);
}

/* Limits that were reached without being what ended it. The counters of a guest's sandbox are those of others too. */
static uint32_t limits_reached(const struct child *child)
{
    static const struct svc_proc_exit no_leaf;
    const struct box_stats *now = child->has_stats ? &child->stats : NULL;
    uint32_t hit = judge_limits(child->has_exit ? &child->exit : &no_leaf, now);

    if (now && !child->guest) {
        const uint32_t oom = child->has_parked ? child->parked.oom_kills : 0;
        const uint32_t pids = child->has_parked ? child->parked.pids_refused : 0;
        hit |= now->oom_kills > oom ? 1u << BRIG_LIMIT_MEMORY : 0;
        hit |= now->pids_refused > pids ? 1u << BRIG_LIMIT_PIDS : 0;
    }
    return hit;
}

static void finish(struct child *child)
{
    bool keep = child->claim.keep_files && !child->guest && child->sbox->link;

    child->state = CHILD_ENDING; /* whoever ends it from within done() finds it so */
    if (keep || child->guest)
        send_signal(child, SIGKILL, SVC_SIGNAL_ALL);
    child->limits_hit |= limits_reached(child);
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
    if (child->state != CHILD_CLAIMED || child->verdict != BRIG_CAUSE_MAX || (child->over && !child->expecting))
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
static void over(struct child *child)
{
    if (child->over)
        return;
    child->over = true;
    child->waits = 0;
    if (child->counting)
        sbox_drop_stats(child->sbox, child);
    child->expecting = child->answered && !child->guest && !child->has_stats;
    child_set_timer(child, clock_mono_ns() + (child->expecting ? CHILD_FRESH_NS : CHILD_DEAF_NS));
    if (child->expecting)
        child->waits |= CHILD_WAITS_STATS;
    else if (child->guest ? child->has_exit && (!child->exit.leaf || (child->exit.status != 0 && !child->answered))
                          : !child->answered || !is_fresh(child))
        ask_stats(child);
    if (child->sbox->priv->network && (child->counts_ask = child_ask_new(child))) {
        if (sbox_count_network(child->sbox, on_counts, child->counts_ask, NULL) == 1)
            child->waits |= CHILD_WAITS_COUNTS;
        else
            mem_free(take_ptr(&child->counts_ask));
    }
    if (!child->waits)
        finish(child);
}

/* ---- what ends it ---------------------------------------------------------------------------------------------- */

static void take_answer(struct child *child)
{
    if (child->frames.more) {
        child_verdict(child, BRIG_CAUSE_EXITED, "more than one answer");
        return;
    }
    child->answered = child->verdict == BRIG_CAUSE_MAX;
    if (!child->answered)
        return;
    if (child->guest) { /* its numbers come with its end */
        child->killing = true;
        send_signal(child, SIGKILL, SVC_SIGNAL_ALL);
        child_set_timer(child, clock_mono_ns() + CHILD_DEAF_NS);
        child_run_check(child);
    } else {
        over(child);
    }
}

void child_run_data(struct child *child)
{
    if (child->answered)
        child->frames.more = false; /* what comes after the first is nobody's */
    else if (child->frames.complete)
        take_answer(child);
    else if (child->frames.too_large)
        child_verdict(child, BRIG_CAUSE_EXITED, "the answer is too large");
}

void child_run_output(struct child *child, unsigned stream, const uint8_t *data, size_t len)
{
    uint64_t room = child->output_max - child->output_seen;
    size_t take = len < room ? len : (size_t)room;

    if (!child->sent || child->over)
        return;
    if (child->claim.output_data)
        child->claim.output_data(child->claim.ctx, stream, data, len);
    child->output_seen += take;
    if (take > 0 && !kept_add(child->manager, child->caller.org_id, &child->output[stream], data, take))
        child->truncated[stream] = true; /* said, not hidden */
    if (take == len)
        return;
    child->truncated[stream] = true;
    child->limits_hit |= 1u << BRIG_LIMIT_OUTPUT;
    if (child->claim.kill_on_output)
        child_verdict(child, BRIG_CAUSE_OUTPUT_LIMIT, "");
}

void child_run_check(struct child *child)
{
    if (child->over || child->starting || child->wait || child->attach || child->channel)
        return;
    over(child);
}

/* Everything of it is killed; what it had written is read to its end, and then it is over. A wall clock leaves the
 * program a moment to say something. */
void child_verdict(struct child *child, enum brig_cause cause, const char *detail)
{
    uint64_t now = clock_mono_ns();

    if (child->verdict != BRIG_CAUSE_MAX || child->answered || child->over || child->state != CHILD_CLAIMED)
        return;
    child->verdict = cause;
    child->verdict_ns = now;
    snprintf(child->detail, sizeof child->detail, "%s", detail);
    if (cause == BRIG_CAUSE_TIMEOUT && child->sent) {
        send_signal(child, SIGTERM, 0);
        child_set_timer(child, now + CHILD_KILL_NS);
        return;
    }
    child->killing = true;
    send_signal(child, SIGKILL, SVC_SIGNAL_ALL);
    child_set_timer(child, now + CHILD_DEAF_NS);
}

/* ---- the clocks ------------------------------------------------------------------------------------------------ */

/* The spawner counts, and has a clock of CPU time for programs only: of a child we look ourselves, when it can have
 * used up what is left at the earliest. */
void child_run_arm(struct child *child, uint64_t cpu_left_ms)
{
    uint64_t now = clock_mono_ns(), wall = child->sent_ns + child->claim.timeout_ms * NS_PER_MS,
             cpus = child->sbox->limits.cpus ? child->sbox->limits.cpus : 1000;
    uint64_t look = child->claim.limits.cpu_time ? now + cpu_left_ms * NS_PER_MS / cpus * 1000 : wall;

    if (child->claim.limits.cpu_time && look < now + CHILD_COUNT_NS)
        look = now + CHILD_COUNT_NS;
    child_set_timer(child, look < wall ? look : wall);
}

static void on_cpu(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct child *child = ctx;
    uint64_t limit = child->claim.limits.cpu_time;
    uint64_t used = err ? BRIG_USAGE_UNKNOWN : since(stats->cpu_ns, child->has_parked ? child->parked.cpu_ns : 0);

    child->counting = false;
    if (child->over || child->verdict != BRIG_CAUSE_MAX)
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
    if (!child->claim.limits.cpu_time || clock_mono_ns() >= child->sent_ns + child->claim.timeout_ms * NS_PER_MS)
        return false;
    child->counting = sbox_stats(child->sbox, on_cpu, child, NULL) == 0;
    child_run_arm(child, child->counting ? child->claim.timeout_ms : 0);
    return true;
}

void child_run_clock(struct child *child)
{
    char detail[64];

    if (child->over && child->expecting) { /* brig-init did not say that it has sent the answer */
        child->waits &= ~CHILD_WAITS_STATS;
        ask_stats(child);
        child_set_timer(child, clock_mono_ns() + CHILD_DEAF_NS);
        if (!child->waits)
            finish(child);
    } else if (child->over) { /* the spawner or brig-egress does not answer: the receipt says less, but it comes */
        sbox_drop_stats(child->sbox, child);
        child->waits = 0;
        finish(child);
    } else if (child->killing) {
        snprintf(child->detail, sizeof child->detail, "brig-init does not answer");
        over(child);
    } else if (child->verdict == BRIG_CAUSE_TIMEOUT) {
        child->killing = true;
        send_signal(child, SIGKILL, SVC_SIGNAL_ALL);
        child_set_timer(child, clock_mono_ns() + CHILD_DEAF_NS);
    } else if (!count_cpu(child)) {
        snprintf(detail, sizeof detail, "after %" PRIu64 " ms", child->claim.timeout_ms);
        child_verdict(child, BRIG_CAUSE_TIMEOUT, detail);
    }
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
    enum brig_cause cause = BRIG_CAUSE_SANDBOX_GONE;

    if (child->answered || child->verdict != BRIG_CAUSE_MAX || (child->has_exit && child->over)) {
        cause = cause_of(child); /* without those counters, which are of another moment */
    } else if (priv->ending.why[0]) {
        cause = BRIG_CAUSE_CANCELLED;
        snprintf(child->detail, sizeof child->detail, "the sandbox was ended: %s", priv->ending.why);
    } else {
        if (priv->end.cause == BRIG_CAUSE_OOM || priv->end.cause == BRIG_CAUSE_HOST_ERROR)
            cause = priv->end.cause;
        child->limits_hit |= priv->end.limits_hit;
        snprintf(child->detail, sizeof child->detail, "%s",
                 priv->end.detail[0] ? priv->end.detail : "the sandbox has ended");
    }
    child->state = CHILD_ENDING;
    child->over = true;
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
