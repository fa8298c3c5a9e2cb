/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_service.c: long-lived sandboxes, as the engine sees them: a stream to brig-init at the start, a new one when
 * it asks, freezing, counters, and the list for an engine that took the socket over.
 *
 * Invariants: the engine's end of a stream is never held here beyond the message that carries it, because otherwise
 * nobody would notice that the engine is gone. Nothing that is sent to a brig-init blocks, because it may be frozen, or
 * taken over.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/limits.h"
#include "jail/plan.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define STREAM_BUFFER (1 << 20)
#define FREEZE_FIRST_NS (NS_PER_MS / 4)
#define FREEZE_LONGEST_NS (50 * NS_PER_MS) /* between two looks */
#define FREEZE_PATIENCE_NS (5 * NS_PER_SEC)

/* ---- streams -------------------------------------------------------------------------------------- */

/* A window of data and its credits must fit, or both sides would wait for each other's reading. */
static void widen(int sock)
{
    int size = STREAM_BUFFER;

    if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) < 0)
        (void)!setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* as wide as a plain user may */
}

static int make_stream(int *ret_engine, int *ret_init, struct brig_err *err)
{
    int pair[2];

    if (SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) < 0)
        return err_host(err, "socketpair");
    widen(pair[0]);
    widen(pair[1]);
    *ret_engine = pair[0];
    *ret_init = pair[1];
    return 0;
}

int service_begin(struct sandbox *s, int *ret_stream, struct brig_err *err)
{
    int on = 1;

    /* Who asks for a leaf is what the kernel says. */
    if (s->has_leaves && SYS(setsockopt(s->control_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on)) < 0)
        return err_host(err, "SO_PASSCRED");
    return make_stream(&s->stream_fd, ret_stream, err);
}

/* What the engine asked of a run that cannot do it. */
static int check(const struct sandbox *s, struct brig_err *err)
{
    if (!s->service)
        return err_set(err, BRIG_E_CONFLICT, EINVAL, "not a long-lived sandbox");
    if (s->state != SANDBOX_RUNNING || !s->started || s->verdict.cause != BRIG_CAUSE_MAX)
        return err_set(err, BRIG_E_CONFLICT, EAGAIN, "the sandbox is not up");
    return 0;
}

static void answer(struct sandbox *s, enum wire_type type, const struct brig_err *err, const int *fd)
{
    struct wire_answer msg = {.head = {WIRE_MAGIC, WIRE_VERSION, (uint16_t)type, s->run->number}, .err = *err};

    spawner_send(s->spawner, &msg, fd, fd ? 1 : 0);
}

void service_attach(struct sandbox *s)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    AUTO_FD int ours = -1;
    AUTO_FD int theirs = -1;
    int r = check(s, &err);

    if (r == 0)
        r = make_stream(&ours, &theirs, &err);
    if (r == 0 && (r = sandbox_send_frame(s, FRAME_ATTACH, NULL, 0, &theirs)) < 0)
        (void)err_set(&err, r == -EAGAIN ? BRIG_E_BUSY : BRIG_E_HOST, -r, "brig-init does not take a stream");
    answer(s, WIRE_ATTACHED, &err, r == 0 ? &ours : NULL);
}

/* ---- freezing ------------------------------------------------------------------------------------- */

static void freeze_answered(struct sandbox *s, const struct brig_err *err)
{
    s->freezing = false;
    loop_timer_clear(s->spawner->loop, &s->on_freeze);
    answer(s, WIRE_FROZEN, err, NULL);
}

/* The kernel freezes each thread when it leaves the kernel; one that sleeps there uninterruptibly may take long. */
static void on_freeze(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    struct brig_err err = {.code = BRIG_E_NONE};
    uint64_t now = clock_mono_ns();

    if (cg_is_frozen(&s->cg)) {
        freeze_answered(s, &err);
        return;
    }
    s->freeze_wait = s->freeze_wait * 2 > FREEZE_LONGEST_NS ? FREEZE_LONGEST_NS : s->freeze_wait * 2;
    if (now < s->freeze_until && loop_timer_set(s->spawner->loop, &s->on_freeze, now + s->freeze_wait, NULL) == 0)
        return;
    if (!s->snapping)                    /* else it is thawed after the copy */
        (void)!cg_freeze(&s->cg, false); /* half-frozen is neither */
    s->frozen = false;
    (void)err_set(&err, BRIG_E_BUSY, ETIMEDOUT, "freeze: a process does not come out of the kernel");
    freeze_answered(s, &err);
}

void service_freeze(struct sandbox *s, bool on)
{
    struct brig_err err = {.code = BRIG_E_NONE};
    int r = check(s, &err);

    if (s->freezing) {
        struct brig_err overtaken;
        (void)err_set(&overtaken, BRIG_E_CONFLICT, 0, "freeze: asked for something else meanwhile");
        freeze_answered(s, &overtaken);
    }
    if (r == 0 && s->snapping) { /* it stands still for the copy, and is thawed after it */
        s->freeze_later = 1u + on;
        s->freezing = true;
        return;
    }
    s->freeze_later = 0;
    if (r == 0)
        r = cg_freeze(&s->cg, on);
    s->frozen = r == 0 ? on : s->frozen;
    if (r == -EOPNOTSUPP && !on)
        r = 0; /* what cannot be frozen is not: an engine that took over asks for this of every sandbox */
    if (r < 0 && err.code == BRIG_E_NONE)
        (void)err_set(&err, r == -EOPNOTSUPP ? BRIG_E_UNSUPPORTED : BRIG_E_HOST, -r,
                      "freeze: no cgroup of this user can");
    if (r < 0 || !on) {
        answer(s, WIRE_FROZEN, &err, NULL);
        return;
    }
    s->freezing = true;
    s->freeze_wait = FREEZE_FIRST_NS;
    s->freeze_until = clock_mono_ns() + FREEZE_PATIENCE_NS;
    s->on_freeze = (struct loop_timer){.fn = on_freeze, .ctx = s};
    on_freeze(&s->on_freeze);
}

void service_snapped(struct sandbox *s)
{
    uint32_t later = s->freeze_later;

    s->snapping = false;
    s->freeze_later = 0;
    if (!s->frozen)
        (void)!cg_freeze(&s->cg, false);
    if (later == 0 || !s->run)
        return;
    s->freezing = false; /* it is asked again, and answered then */
    service_freeze(s, later - 1);
}

/* ---- limits --------------------------------------------------------------------------------------- */

/* What was a layer of protection before is one afterwards, or nothing has changed. */
static int still_on(const struct sandbox *s, const struct reading readings[BRIG_LAYER_MAX], struct brig_err *err)
{
    static const enum brig_layer layers[] = {BRIG_LAYER_MEMORY, BRIG_LAYER_CPU, BRIG_LAYER_PIDS};

    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        if (s->readings[layers[i]].on && !readings[layers[i]].on && !(s->spawner->off & BRIG_LAYER_BIT(layers[i])))
            return err_set(err, BRIG_E_HOST, 0, "limits: %s reads back as something else", brig_layer_name(layers[i]));
    return 0;
}

static int change(struct sandbox *s, const struct brig_limits *want, struct brig_err *err)
{
    struct reading readings[BRIG_LAYER_MAX] = {{0}};
    struct brig_limits was = s->run->limits;
    int r = cg_change_limits(&s->cg, want, &was, s->spawner->off, err);

    if (r < 0)
        return r;
    cg_read_back(&s->cg, want, s->image.device[0] ? s->image.device : NULL, s->spawner->host.proc_fd, s->pid, readings);
    r = still_on(s, readings, err);
    if (r < 0) {
        (void)!cg_change_limits(&s->cg, &was, want, s->spawner->off, NULL);
        return r;
    }
    s->run->limits = *want;
    service_leaves_limit(s);
    return 0;
}

void service_limits(struct sandbox *s, const struct wire_limits *msg)
{
    struct wire_limits_are are = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_LIMITS_ARE, s->run->number},
                                  .err = {.code = BRIG_E_NONE}};
    struct brig_limits want = s->run->limits, rules;
    int r = check(s, &are.err);

    want.memory = msg->memory;
    want.cpus = msg->cpus;
    want.pids = msg->pids;
    rules = want;
    limits_fill(&rules, false); /* a service has no timeout, but the rules ask for one */
    if (r == 0 && (msg->memory == 0 || msg->cpus == 0 || msg->pids == 0))
        r = err_usage(&are.err, "limits: memory, cpus and pids must be given");
    if (r == 0)
        r = limits_check(&rules, &are.err);
    if (r == 0)
        r = change(s, &want, &are.err);
    if (r == 0)
        s->limits.memory = want.memory, s->limits.cpus = want.cpus, s->limits.pids = want.pids;
    are.memory = s->run->limits.memory;
    are.cpus = s->run->limits.cpus;
    are.pids = s->run->limits.pids;
    spawner_send(s->spawner, &are, NULL, 0);
}

/* ---- counters ------------------------------------------------------------------------------------- */

/* What is in the upper of the root is what changed. If it cannot be read, whoever asks has to look for himself. */
static bool is_untouched(const struct sandbox *s)
{
    AUTO_DIR DIR *upper =
        s->store_fd >= 0 && (s->run->flags & WIRE_RUN_RAW_UPPER) ? dir_open(s->store_fd, RAW_UPPER) : NULL;

    return upper && !dir_next(upper) && errno == 0;
}

void service_stats(struct sandbox *s, enum wire_type type)
{
    struct wire_stats msg = {.head = {WIRE_MAGIC, WIRE_VERSION, (uint16_t)type, s->run->number},
                             .at_ns = clock_mono_ns()};
    struct brig_usage usage = {.read_bytes = BRIG_USAGE_UNKNOWN, .written_bytes = BRIG_USAGE_UNKNOWN};
    const bool over = type == WIRE_COUNTED; /* what it has at this moment is of no use, and its caller waits */

    msg.cpu_ns = cg_usage(&s->cg, &usage);
    msg.memory_bytes = over ? BRIG_USAGE_UNKNOWN : cg_memory_bytes(&s->cg);
    msg.memory_peak_bytes = usage.memory_peak_bytes;
    msg.pids = over ? BRIG_USAGE_UNKNOWN : cg_pids(&s->cg);
    msg.pids_peak = usage.pids_peak;
    msg.read_bytes = usage.read_bytes;
    msg.written_bytes = usage.written_bytes;
    msg.disk_bytes = sandbox_measure(s);
    msg.disk_peak_bytes = s->store_fd >= 0 ? s->disk_peak : BRIG_USAGE_UNKNOWN;
    msg.oom_kills = (uint32_t)service_oom_kills(s);
    msg.pids_refused = (uint32_t)service_pids_refused(s);
    msg.store = s->store_now;
    msg.untouched = is_untouched(s);
    spawner_send(s->spawner, &msg, NULL, 0);
}

/* Once: a tenant that has taken pid 1 over cannot make us work. */
int service_count(struct sandbox *s)
{
    if (!s->service || !s->started || s->counted)
        return -EPROTO;
    s->counted = true;
    service_stats(s, WIRE_COUNTED);
    return 0;
}

/* ---- the list ------------------------------------------------------------------------------------- */

void service_say_started(struct sandbox *s, enum wire_type type, const int *fds, size_t n_fds)
{
    struct wire_started msg = {.head = {WIRE_MAGIC, WIRE_VERSION, (uint16_t)type, s->run->number},
                               .at_ns = s->started_at_ns,
                               .limits = s->limits};

    str_assign(msg.sandbox_id, s->id);
    memcpy(msg.readings, s->readings, sizeof msg.readings);
    spawner_send(s->spawner, &msg, fds, n_fds);
}

void service_list(struct spawner *spawner, uint64_t list)
{
    struct wire_ready end = spawner->facts;

    for (struct sandbox *s = spawner->lists[SANDBOX_RUNNING]; s; s = s->next)
        if (s->service && s->started)
            service_say_started(s, WIRE_LISTED, NULL, 0);
    end.head = (struct wire_head){WIRE_MAGIC, WIRE_VERSION, WIRE_LIST_END, spawner->highest_run};
    end.list = list;
    spawner_send(spawner, &end, NULL, 0);
}
