/* SPDX-License-Identifier: Apache-2.0 */
/*
 * units.c: keeps the services of a sandbox running. Here they are called units, because this program itself is what the
 * protocol calls a service.
 *
 *     WAITING --those before it are up--> STARTING --probe succeeds--> READY
 *        ^                                   |                           |
 *        |                              ended, or not up in time       ended
 *     started by request                     v                           v
 *        +---- STOPPED <--ended well--- [restart?] --yes--> BACKOFF --due--> STARTING
 *        +---- FAILED  <-----------------------/
 *     STOPPING: SIGTERM was sent; SIGKILL to everything of it follows after stop_ms. `then` says what comes next.
 *
 * Theory of operation. brigd sends the list once and may then go away for ever: everything that a restart needs is kept
 * here, in one mapping. An attempt is a process of proc.c with a number of our own, which no call of brigd's finds;
 * with its end everything that it has started is gone, too. Both of its outputs are one pipe, which ends in a ring of
 * 64 KiB that stays over all attempts; we hold its other end, so that it never closes. Each attempt has a pipe of its
 * own: the flags of a pipe, and what somebody writes who was given it, are not the next attempt's. Whether a unit is up
 * is found out by a child with the unit's own ids (unit_probe.c), so that paths are looked up as that user.
 *
 * A unit that dies again and again is started after 0.1 s, then after twice as long, up to 30 s; one that has been up
 * for ten seconds begins anew. A start that was asked for has one deadline for all of its attempts, then it has failed.
 *
 * Invariants: nothing here waits or allocates but the one mapping. Only frames of brigd start or stop a unit; a program
 * of the sandbox can do what kill(2) lets it do.
 */
#include <fcntl.h>
#include <signal.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define MS UINT64_C(1000000)
#define NEVER UINT64_MAX
#define BACKOFF_MIN 100u
#define BACKOFF_MAX 30000u
#define STEADY_NS (10000 * MS) /* Up for so long: its next end is not one more of a row. */
#define PROBE_MIN 100u
#define PROBE_MAX 5000u
#define DEV_NULL 1 /* pid 1's own output */

static struct unit units[SVC_UNITS_MAX];
static unsigned n_units;
static uint8_t *list; /* what brigd sent; the units point into it */
static size_t list_size;
static bool moved; /* A unit has come into another state since units_check() looked. */

static void enter(struct unit *unit, enum svc_unit_state state)
{
    unit->state = state;
    unit->since_ns = guest_now_ns();
    moved = true;
}

static uint32_t doubled(uint32_t ms, uint32_t min, uint32_t max)
{
    if (ms == 0)
        return min;
    return ms * 2 < max ? ms * 2 : max;
}

/* ---- the list --------------------------------------------------------------------------------------- */

unsigned units_count(void)
{
    return n_units;
}

struct unit *unit_at(unsigned i)
{
    return &units[i];
}

void units_let_go(void)
{
    pages_unmap(list, list_size);
    list = NULL;
}

/* A new pipe, which is the unit's output from now on. */
static long open_output(struct unit *unit)
{
    int pair[2] = {-1, -1};
    long ret = raw_call2(SYS_pipe2, pair, O_CLOEXEC);

    if (ret != 0)
        return ret;
    ret = raw_call3(SYS_fcntl, pair[0], F_SETFL, O_NONBLOCK);
    if (ret == 0)
        ret =
            unit->out.size == 0 ? outlet_open(&unit->out, pair[0], SVC_UNIT_RING) : outlet_switch(&unit->out, pair[0]);
    if (ret != 0) {
        raw_call1(SYS_close, pair[0]);
        raw_call1(SYS_close, pair[1]);
        return ret;
    }
    if (unit->out_fd >= 0)
        raw_call1(SYS_close, unit->out_fd);
    unit->out_fd = pair[1];
    unit->out.grown = true; /* A unit that floods gets no larger pipe. */
    return 0;
}

/* All or none of it. */
static void drop_all(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        outlet_done(&units[i].out);
        if (units[i].out_fd >= 0)
            raw_call1(SYS_close, units[i].out_fd);
        units[i] = (struct unit){0};
    }
    units_let_go();
}

static void begin(struct unit *unit);

int units_take(const uint8_t *payload, size_t len)
{
    struct svc_unit defs[SVC_UNITS_MAX];
    long ret = 0;
    int n;

    list_size = PAGE_ROUND(len);
    list = len > 0 ? pages_map(list_size) : NULL;
    if (!list)
        return len > 0 ? -ENOMEM : -EINVAL;
    __builtin_memcpy(list, payload, len);
    n = svc_units_parse(list, len, defs);
    if (n < 0) {
        units_let_go();
        return -EINVAL;
    }
    for (int i = 0; i < n; i++) { /* all of them, before any may fail: drop_all() closes what they have */
        units[i] = (struct unit){.def = defs[i], .out_fd = -1};
        outlet_none(&units[i].out);
    }
    for (int i = 0; i < n && ret == 0; i++)
        ret = open_output(&units[i]);
    if (ret != 0) {
        drop_all((unsigned)n);
        return (int)ret;
    }
    n_units = (unsigned)n;
    for (unsigned i = 0; i < n_units; i++)
        begin(&units[i]);
    return 0;
}

/* ---- attempts --------------------------------------------------------------------------------------- */

/* Its end is nobody's business any more: it may come when the next attempt runs, and says nothing about that one. */
static void end_probe(struct unit *unit)
{
    const struct svc_proc_signal kill = {.signum = SIGKILL, .flags = SVC_SIGNAL_ALL};

    if (unit->probe)
        (void)proc_send_signal(unit->probe, &kill);
    unit->probe = NULL;
}

/* The attempt is over, by itself. It was good if it ended with 0. */
static void attempt_over(struct unit *unit, bool good)
{
    bool up = unit->state == SVC_UNIT_READY;
    bool again =
        unit->def.restart == SVC_RESTART_ALWAYS || (unit->def.restart == SVC_RESTART_ON_FAILURE && !(up && good));
    /* A program or directory that is not there is a mistake, and whoever asked wants to know it now. */
    bool never = unit->asked && unit->why == SVC_WHY_EXEC && unit->stage != STAGE_FORK;
    uint64_t now = guest_now_ns();

    if (up && now - unit->since_ns >= STEADY_NS)
        unit->backoff_ms = 0;
    if (!again || never) {
        enter(unit, up && good ? SVC_UNIT_STOPPED : SVC_UNIT_FAILED);
        return;
    }
    unit->restarts++;
    unit->backoff_ms = doubled(unit->backoff_ms, BACKOFF_MIN, BACKOFF_MAX);
    unit->due_ns = now + unit->backoff_ms * MS;
    enter(unit, SVC_UNIT_BACKOFF);
}

/* The message was checked when the list came. */
static long start_proc(struct unit *unit, struct svc_bytes message, int output, const struct svc_unit *probe,
                       struct proc **ret_proc)
{
    struct svc_proc_start msg;
    struct proc *proc = NULL;
    long ret = svc_proc_start_parse((const uint8_t *)message.data, message.len, &msg);

    if (ret == 0 && !(proc = proc_new(proc_unit_number(), msg.flags)))
        ret = -EAGAIN;
    if (ret != 0)
        return ret;
    proc->unit = unit;
    ret = proc_spawn(proc, &msg, output, probe);
    if (ret != 0)
        proc_release(proc);
    else
        *ret_proc = proc;
    return ret;
}

static void attempt(struct unit *unit)
{
    uint64_t now = guest_now_ns();
    long ret;

    if (!unit->asked || unit->deadline_ns == 0)
        unit->deadline_ns = now + unit->def.ready_ms * MS;
    unit->due_ns = NEVER;
    unit->probe_ms = 0;
    unit->why = SVC_WHY_NONE;
    unit->status = unit->errnum = unit->stage = 0;
    enter(unit, SVC_UNIT_STARTING);
    ret = open_output(unit);
    if (ret == 0)
        ret = start_proc(unit, unit->def.start, unit->out_fd, NULL, &unit->proc);
    if (ret == 0)
        return;
    unit->why = SVC_WHY_EXEC;
    unit->errnum = (uint32_t)-ret;
    unit->stage = STAGE_FORK;
    attempt_over(unit, false);
}

static void start_probe(struct unit *unit)
{
    bool command = unit->def.ready == SVC_READY_COMMAND;
    long ret = start_proc(unit, command ? unit->def.probe : unit->def.start, DEV_NULL, command ? NULL : &unit->def,
                          &unit->probe);

    unit->due_ns = NEVER;
    if (ret != 0) {
        unit->probe_ms = doubled(unit->probe_ms, PROBE_MIN, PROBE_MAX);
        unit->due_ns = guest_now_ns() + unit->probe_ms * MS;
    }
}

static void is_up(struct unit *unit)
{
    unit->reached = true;
    unit->asked = false;
    unit->why = SVC_WHY_NONE;
    enter(unit, SVC_UNIT_READY);
}

void unit_executed(struct proc *proc)
{
    struct unit *unit = proc->unit;

    if (proc != unit->proc)
        return;
    unit->pid = (uint32_t)proc->pid;
    if (unit->state != SVC_UNIT_STARTING)
        return;
    if (unit->def.ready == SVC_READY_NONE)
        is_up(unit);
    else
        start_probe(unit);
}

static void probe_ended(struct unit *unit, bool good)
{
    unit->probe = NULL;
    if (unit->state != SVC_UNIT_STARTING || !unit->proc)
        return;
    if (good) {
        is_up(unit);
        return;
    }
    unit->probe_ms = doubled(unit->probe_ms, PROBE_MIN, PROBE_MAX);
    unit->due_ns = guest_now_ns() + unit->probe_ms * MS;
}

/* It was told to end, and has. */
static void stopped(struct unit *unit)
{
    switch (unit->then) {
    case THEN_FAILED: enter(unit, SVC_UNIT_FAILED); return;
    case THEN_AGAIN: begin(unit); return;
    case THEN_BACKOFF: attempt_over(unit, false); return;
    default: unit->why = SVC_WHY_NONE; enter(unit, SVC_UNIT_STOPPED);
    }
}

void unit_ended(struct proc *proc)
{
    struct unit *unit = proc->unit;
    bool good = !proc->failed && proc->exit.status == 0;

    if (proc == unit->probe)
        probe_ended(unit, good);
    if (proc != unit->proc)
        return;
    unit->proc = NULL;
    unit->pid = 0;
    unit->status = proc->exit.status & 0xffff;
    if (proc->failed) {
        unit->why = SVC_WHY_EXEC;
        unit->errnum = proc->result.errnum;
        unit->stage = proc->result.stage;
    } else if (unit->why == SVC_WHY_NONE) {
        unit->why = SVC_WHY_EXITED;
    }
    end_probe(unit);
    if (unit->state == SVC_UNIT_STOPPING)
        stopped(unit);
    else
        attempt_over(unit, good);
}

/* ---- what is asked for -------------------------------------------------------------------------------- */

static void begin(struct unit *unit)
{
    unit->asked = true;
    unit->reached = false;
    unit->backoff_ms = 0;
    unit->deadline_ns = 0;
    unit->why = SVC_WHY_NONE;
    unit->status = unit->errnum = unit->stage = 0;
    enter(unit, SVC_UNIT_WAITING);
}

void unit_start(struct unit *unit)
{
    if (unit->state == SVC_UNIT_STOPPED || unit->state == SVC_UNIT_FAILED || unit->state == SVC_UNIT_BACKOFF)
        begin(unit);
    else if (unit->state == SVC_UNIT_STOPPING)
        unit->then = THEN_AGAIN;
}

static void kill_all(struct unit *unit)
{
    const struct svc_proc_signal kill = {.signum = SIGKILL, .flags = SVC_SIGNAL_ALL};

    unit->due_ns = NEVER;
    if (unit->proc)
        (void)proc_send_signal(unit->proc, &kill);
}

void unit_stop(struct unit *unit, enum unit_then then)
{
    const struct svc_proc_signal term = {.signum = SIGTERM, .flags = SVC_SIGNAL_GROUP};

    unit->then = then;
    if (unit->state == SVC_UNIT_STOPPING)
        return;
    if (!unit->proc) {
        stopped(unit);
        return;
    }
    enter(unit, SVC_UNIT_STOPPING);
    unit->due_ns = guest_now_ns() + unit->def.stop_ms * MS;
    end_probe(unit);
    if (proc_send_signal(unit->proc, &term) != 0) /* It has not executed yet, so that it has nothing to tidy up. */
        kill_all(unit);
}

bool unit_is_settled(const struct unit *unit)
{
    return unit->state == SVC_UNIT_READY || unit->state == SVC_UNIT_STOPPED || unit->state == SVC_UNIT_FAILED;
}

/* ---- time --------------------------------------------------------------------------------------------- */

static uint64_t next_due(const struct unit *unit)
{
    uint64_t due = unit->due_ns;

    switch (unit->state) {
    case SVC_UNIT_STOPPING: return due;
    case SVC_UNIT_STARTING: return due < unit->deadline_ns ? due : unit->deadline_ns;
    case SVC_UNIT_BACKOFF: return unit->asked && unit->deadline_ns < due ? unit->deadline_ns : due;
    default: return NEVER;
    }
}

int units_timeout_ms(void)
{
    uint64_t due = NEVER, now;

    if (n_units == 0)
        return -1;
    for (unsigned i = 0; i < n_units; i++) {
        uint64_t next = next_due(&units[i]);
        due = next < due ? next : due;
    }
    if (moved)
        return 0;
    if (due == NEVER)
        return -1;
    now = guest_now_ns();
    return due <= now ? 0 : (int)((due - now + MS - 1) / MS);
}

/* Starts it if those that it comes after have been up. */
static void look_before(struct unit *unit)
{
    bool wait = false;

    for (unsigned i = 0; i < n_units; i++) {
        const struct unit *other = &units[i];

        if (!(unit->def.after >> i & 1) || other->reached)
            continue;
        if (other->state == SVC_UNIT_FAILED || other->state == SVC_UNIT_STOPPED) {
            unit->why = SVC_WHY_BLOCKED;
            enter(unit, SVC_UNIT_FAILED);
            return;
        }
        wait = true;
    }
    if (!wait)
        attempt(unit);
}

static void check(struct unit *unit, uint64_t now)
{
    switch (unit->state) {
    case SVC_UNIT_WAITING: look_before(unit); return;
    case SVC_UNIT_STARTING:
        if (now >= unit->deadline_ns) {
            unit->why = SVC_WHY_TIMEOUT;
            unit_stop(unit, unit->asked ? THEN_FAILED : THEN_BACKOFF);
        } else if (now >= unit->due_ns) {
            start_probe(unit);
        }
        return;
    case SVC_UNIT_BACKOFF:
        if (unit->asked && now >= unit->deadline_ns)
            enter(unit, SVC_UNIT_FAILED);
        else if (now >= unit->due_ns)
            attempt(unit);
        return;
    case SVC_UNIT_STOPPING:
        if (now >= unit->due_ns)
            kill_all(unit);
        return;
    default: return;
    }
}

void units_check(void)
{
    bool any = false;

    if (n_units == 0)
        return;
    do { /* It ends: without an event from outside no state comes twice. */
        uint64_t now = guest_now_ns();

        any = any || moved;
        moved = false;
        for (unsigned i = 0; i < n_units; i++)
            check(&units[i], now);
    } while (moved);
    if (any)
        units_answer();
}
