/* SPDX-License-Identifier: Apache-2.0 */
/* life.c: makes a program's calls to brig-init, runs its clock, and notes what is known about its end (program.h). */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "program/program.h"

#define PROGRAM_KILL_NS (500 * NS_PER_MS) /* between SIGTERM and SIGKILL of a timeout */
#define PROGRAM_DEAF_NS (5 * NS_PER_SEC)  /* after SIGKILL: a brig-init that does not say so by then never will */

static const char deaf[] = "brig-init does not answer";

/* ---- calls ----------------------------------------------------------------------------------------------- */

static void on_started(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct program *p = ctx;
    struct svc_proc_started msg;

    p->start = NULL;
    if (errnum == 0 && svc_proc_started_parse(data, len, &msg) < 0)
        errnum = EPROTO, stage = STAGE_MAX;
    if (errnum == 0 && p->state == PROGRAM_STARTING)
        p->state = PROGRAM_RUNNING;
    if (errnum && errnum != ENOTCONN) {
        p->start_errnum = errnum;
        p->start_stage = stage;
    }
    if (errnum == 0 && p->events->started)
        p->events->started(p, &msg);
    else
        p->events->answered(p, errnum);
}

/*
 * A kernel of its own has a clock of its own: there the program started before it was sent, or ends later than now. Its
 * end is then put at the moment at which we hear of it, so that a verdict of ours, which is older, is not taken for one
 * that came too late.
 */
static void use_our_clock(const struct program *p, struct svc_proc_exit *exit)
{
    uint64_t now = clock_mono_ns();

    if (exit->started_ns >= p->sent_ns && exit->ended_ns <= now)
        return;
    uint64_t took = exit->ended_ns > exit->started_ns ? exit->ended_ns - exit->started_ns : 0;
    exit->ended_ns = now;
    exit->started_ns = took < now ? now - took : 0;
}

static void on_waited(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data, size_t len)
{
    struct program *p = ctx;

    p->wait = NULL;
    p->has_exit = errnum == 0 && svc_proc_exit_parse(data, len, &p->exit) == 0;
    if (p->has_exit)
        use_our_clock(p, &p->exit);
    if (!p->has_exit && errnum != ENOTCONN && !p->start_errnum)
        snprintf(p->detail, sizeof p->detail, "brig-init does not say how it ended");
    p->events->answered(p, errnum);
}

static void on_output(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct program *p = ctx;

    call_consumed(p->attach, stream, len);
    p->events->output(p, stream, data, len);
}

static void on_attach_over(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                           size_t len UNUSED)
{
    struct program *p = ctx;

    p->attach = NULL;
    p->events->answered(p, errnum);
}

static void on_channel(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct program *p = ctx;

    call_consumed(p->channel, stream, len);
    p->events->said(p, data, len);
}

static void on_writable(void *ctx)
{
    struct program *p = ctx;

    p->events->writable(p);
}

static void on_channel_over(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                            size_t len UNUSED)
{
    struct program *p = ctx;

    p->channel = NULL;
    p->events->answered(p, errnum);
}

int program_start(struct program *p, struct svc_proc_start *msg, struct brig_err *err)
{
    const struct call_events events = {.reply = on_started, .ctx = p};
    const size_t size = msg->strings_len + msg->workdir.len + 128;
    AUTO_BUF struct buf out = BUF_INIT(SVC_OPEN_MAX);
    int r = buf_reserve(&out, size);

    msg->proc = p->number;
    r = r < 0 ? r : svc_proc_start_put((uint8_t *)out.data, size, msg);
    if (r < 0)
        return r == -ENOMEM ? err_nomem(err) : err_usage(err, "command and environment: too long");
    p->sent_ns = clock_mono_ns();
    return link_call(*p->link, SVC_PROC_START, out.data, (size_t)r, &events, &p->start, err);
}

int program_attach(struct program *p, struct brig_err *err)
{
    const struct svc_proc_attach msg = {.proc = p->number, .streams = 1u << BRIG_STDOUT | 1u << BRIG_STDERR};
    const struct call_events events = {.data = on_output, .reply = on_attach_over, .ctx = p};
    uint8_t message[64];
    int n = svc_proc_attach_put(message, sizeof message, &msg);

    return n < 0 ? err_set(err, BRIG_E_HOST, -n, "attach")
                 : link_call(*p->link, SVC_PROC_ATTACH, message, (size_t)n, &events, &p->attach, err);
}

int program_channel(struct program *p, uint32_t frames, struct brig_err *err)
{
    const struct call_events events = {.data = on_channel, .writable = on_writable, .reply = on_channel_over, .ctx = p};
    uint8_t message[8];
    struct svc_cursor out = {message, message + sizeof message, false};

    svc_put_u32(&out, p->number);
    svc_put_u32(&out, frames);
    return link_call(*p->link, SVC_CHANNEL, message, sizeof message, &events, &p->channel, err);
}

int program_wait(struct program *p, struct link *link, struct brig_err *err)
{
    const struct call_events events = {.reply = on_waited, .ctx = p};
    uint8_t message[4];
    struct svc_cursor out = {message, message + sizeof message, false};

    svc_put_u32(&out, p->number);
    return link_call(link, SVC_PROC_WAIT, message, sizeof message, &events, &p->wait, err);
}

void program_drop_calls(struct program *p)
{
    struct call **const calls[] = {&p->start, &p->attach, &p->channel, &p->wait};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (*calls[i])
            call_drop(take_ptr(calls[i]));
}

bool program_waits(const struct program *p)
{
    return p->start || p->attach || p->channel || p->wait;
}

int program_signal(struct program *p, int signum, uint32_t flags, const struct call_events *events,
                   struct brig_err *err)
{
    const struct svc_proc_signal msg = {.proc = p->number, .signum = (uint32_t)signum, .flags = flags};
    const struct call_events none = {0};
    struct call *call;
    uint8_t message[16];
    int n = svc_proc_signal_put(message, sizeof message, &msg);

    if (n < 0 || !*p->link)
        return err_set(err, n < 0 ? BRIG_E_USAGE : BRIG_E_GONE, n < 0 ? -n : ENOTCONN, "signal %d", signum);
    return link_call(*p->link, SVC_PROC_SIGNAL, message, (size_t)n, events ? events : &none, &call, err);
}

/* ---- output ---------------------------------------------------------------------------------------------- */

size_t program_count_output(struct program *p, unsigned stream, size_t len)
{
    uint64_t room = p->output_max - p->output_seen;
    size_t take = len < room ? len : (size_t)room;

    p->output_seen += take;
    if (take < len) {
        p->truncated[stream] = true;
        p->limits_hit |= 1u << BRIG_LIMIT_OUTPUT;
    }
    return take;
}

/* ---- the clock ------------------------------------------------------------------------------------------- */

static void on_timer(struct loop_timer *timer)
{
    struct program *p = timer->ctx;

    p->events->clock(p);
}

void program_init(struct program *p, struct loop *loop, struct link *const *link, const struct program_events *events,
                  void *owner)
{
    p->loop = loop;
    p->link = link;
    p->events = events;
    p->owner = owner;
    p->verdict = END_VERDICT_NONE;
    p->timer = (struct loop_timer){.fn = on_timer, .ctx = p};
}

void program_done(struct program *p)
{
    loop_timer_clear(p->loop, &p->timer);
    program_drop_calls(p);
}

void program_at(struct program *p, uint64_t at_ns)
{
    (void)!loop_timer_set(p->loop, &p->timer, at_ns, NULL);
}

void program_arm(struct program *p)
{
    uint64_t at = p->state == PROGRAM_TERM_SENT  ? clock_mono_ns() + PROGRAM_KILL_NS
                  : p->state < PROGRAM_TERM_SENT ? p->deadline_ns
                                                 : clock_mono_ns() + PROGRAM_DEAF_NS;

    if (at)
        program_at(p, at);
}

bool program_verdict(struct program *p, enum brig_cause cause, const char *detail)
{
    if (p->state >= PROGRAM_JUDGING || !verdict_pass(&p->verdict, cause))
        return false;
    str_cut(p->detail, sizeof p->detail, detail);
    return true;
}

bool program_time_out(struct program *p)
{
    char detail[64];

    snprintf(detail, sizeof detail, "after %" PRIu64 " ms", p->timeout_ms);
    bool first = program_verdict(p, BRIG_CAUSE_TIMEOUT, detail);
    (void)!program_signal(p, SIGTERM, 0, NULL, NULL);
    p->state = PROGRAM_TERM_SENT;
    program_arm(p);
    return first;
}

void program_kill(struct program *p)
{
    if (p->state >= PROGRAM_JUDGING)
        return;
    (void)!program_signal(p, SIGKILL, SVC_SIGNAL_ALL, NULL, NULL);
    p->state = PROGRAM_KILL_SENT;
    program_arm(p);
}

void program_tick(struct program *p)
{
    size_t len = strlen(p->detail);

    if (p->state == PROGRAM_TERM_SENT) {
        program_kill(p);
    } else if (p->state == PROGRAM_KILL_SENT) {
        snprintf(p->detail + len, sizeof p->detail - len, "%s%s", len ? "; " : "", deaf);
        program_drop_calls(p);
        p->events->over(p);
    }
}

/* ---- the end --------------------------------------------------------------------------------------------- */

bool program_ended_by_itself(const struct program *p)
{
    return p->has_exit && verdict_came_late(&p->verdict, p->exit.ended_ns);
}

/* The spawner looks at the store when the leaf is gone; of a program without one, when it is asked. */
uint32_t program_limits(const struct program *p, const struct box_stats *stats)
{
    return cause_limits(p->exit.oom_kills > 0, p->exit.pids_refused > 0,
                        p->exit.leaf ? p->exit.store
                        : stats      ? stats->store
                                     : 0);
}

static enum brig_cause cause_by_itself(struct program *p, const struct box_stats *stats, struct box_stats *seen,
                                       uint64_t memory_limit)
{
    uint32_t hit = program_limits(p, stats);

    if (stats) {
        hit |= cause_limits(!p->exit.leaf && stats->oom_kills > seen->oom_kills,
                            stats->pids_refused > seen->pids_refused, 0);
        *seen = *stats;
    }
    p->limits_hit |= hit;
    p->detail[0] = '\0'; /* a verdict that came late has said something */
    return cause_of_exit((int)p->exit.status, hit, stats ? stats->memory_peak_bytes : BRIG_USAGE_UNKNOWN, memory_limit,
                         p->detail, sizeof p->detail);
}

enum brig_cause program_cause(struct program *p, const struct box_stats *stats, struct box_stats *seen,
                              uint64_t memory_limit)
{
    enum brig_cause cause = p->verdict.cause;

    if (program_ended_by_itself(p))
        cause = cause_by_itself(p, stats, seen, memory_limit);
    else if (cause != BRIG_CAUSE_MAX)
        p->limits_hit |= p->has_exit ? program_limits(p, stats) : 0;
    else {
        cause = BRIG_CAUSE_HOST_ERROR;
        if (!p->detail[0])
            str_assign(p->detail, deaf);
    }
    p->limits_hit |= cause_limit(cause);
    return cause;
}

enum brig_cause program_gone(struct program *p, const char *why, const struct box_end *end)
{
    if (why[0]) {
        snprintf(p->detail, sizeof p->detail, "the sandbox was ended: %s", why);
        return BRIG_CAUSE_CANCELLED;
    }
    p->limits_hit |= end->limits_hit;
    str_cut(p->detail, sizeof p->detail, end->detail[0] ? end->detail : "the sandbox has ended");
    return end->cause == BRIG_CAUSE_OOM || end->cause == BRIG_CAUSE_PIDS_LIMIT || end->cause == BRIG_CAUSE_HOST_ERROR
               ? end->cause
               : BRIG_CAUSE_SANDBOX_GONE;
}

int program_exit_code(const struct program *p)
{
    int status = (int)p->exit.status;

    return p->start_errnum                    ? p->start_errnum == ENOENT ? 127 : 126
           : p->has_exit && WIFEXITED(status) ? WEXITSTATUS(status)
                                              : 0;
}

int program_exit_signal(const struct program *p)
{
    int status = (int)p->exit.status;

    if (!p->has_exit && !p->start_errnum)
        return SIGKILL; /* it was there until its sandbox, or we, ended it */
    return p->has_exit && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void program_usage(const struct program *p, struct brig_usage *ret)
{
    *ret = USAGE_UNKNOWN;
    if (!p->has_exit)
        return;
    ret->cpu_ms = p->exit.cpu_ns == UINT64_MAX ? BRIG_USAGE_UNKNOWN : p->exit.cpu_ns / NS_PER_MS;
    ret->memory_peak_bytes = p->exit.memory_peak;
    ret->pids_peak = p->exit.pids_peak;
}
