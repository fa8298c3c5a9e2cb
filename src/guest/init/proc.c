/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc.c: the processes of a service, from START (proc_start.c) until they are forgotten.
 *
 *     STARTING --executed--> RUNNING --main process reaped--> ENDING --nothing left--> ENDED --forgotten
 *         \--failed (answered; kept, unseen, until nothing is left)
 *
 * START forks: the child asks the spawner for a leaf cgroup (or stands under a shepherd, where there are none), goes
 * through the stages of program.c, and reports on a socket that closes when it executes. When the main process has
 * ended, everything else in its leaf is killed, so a process is ENDED only when nothing of it is left; only then WAIT
 * is answered. Its output and status stay until they are forgotten; at most KEPT ended processes that nobody reads are
 * kept.
 */
#include <signal.h>
#include <sys/resource.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define PROCS_MAX 1024u
#define KEPT 64u

static struct proc *procs;
static unsigned n_procs, n_ended, age;
static uint32_t unit_numbers;
static struct pool pool = {.size = sizeof(struct proc)};

/* ---- the table ------------------------------------------------------------------------------------- */

struct proc *proc_find_any(uint32_t number)
{
    struct proc *proc = procs;

    while (proc && proc->number != number)
        proc = proc->next;
    return proc;
}

struct proc *proc_find(uint32_t number)
{
    struct proc *proc = proc_find_any(number);

    return proc && !proc->failed && !proc->unit && !proc->sudo ? proc : NULL;
}

struct proc *proc_next(struct proc *after)
{
    struct proc *proc = after ? after->next : procs;

    while (proc && (proc->failed || proc->unit || proc->sudo))
        proc = proc->next;
    return proc;
}

uint32_t proc_unit_number(void)
{
    uint32_t number;

    do {
        number = SVC_UNIT_PROC_MIN + unit_numbers++ % SVC_UNIT_PROC_MIN;
    } while (proc_find_any(number));
    return number;
}

struct proc *proc_new(uint32_t number, uint32_t flags)
{
    struct proc *proc = n_procs < PROCS_MAX ? pool_take(&pool) : NULL;

    if (!proc)
        return NULL;
    proc->number = number;
    proc->flags = flags;
    proc->exit.pids_peak = UINT64_MAX;
    proc->report.fd = proc->sheep.fd = proc->in.source.fd = -1;
    proc->in.ended = proc_input_ended;
    outlet_none(&proc->out[1]);
    outlet_none(&proc->out[2]);
    proc->next = procs;
    procs = proc;
    n_procs++;
    return proc;
}

static void proc_kill_strays(void);

void proc_release(struct proc *proc)
{
    for (struct proc **at = &procs; *at; at = &(*at)->next)
        if (*at == proc) {
            *at = proc->next;
            n_procs--;
            break;
        }
    source_close(&proc->report);
    source_close(&proc->sheep);
    shell_done(proc);
    channel_done(proc);
    inlet_close(&proc->in);
    for (unsigned i = 1; i < STREAMS; i++)
        outlet_done(&proc->out[i]);
    pool_give(&pool, proc);
}

void proc_forget(struct proc *proc)
{
    while (proc->calls)
        call_reply(proc->calls, ECANCELED, 0, NULL, 0);
    n_ended--;
    proc_release(proc);
}

/* The oldest that nobody reads goes, until there are few enough. */
static void forget_old(void)
{
    while (n_ended > KEPT) {
        struct proc *oldest = NULL;

        for (struct proc *proc = procs; proc; proc = proc->next)
            if (proc->state == PROC_ENDED && !proc->calls && (!oldest || (int32_t)(proc->age - oldest->age) < 0))
                oldest = proc;
        if (!oldest)
            return;
        proc_forget(oldest);
    }
}

/* ---- the end --------------------------------------------------------------------------------------- */

static void proc_ended(struct proc *proc)
{
    if (proc->unit) {
        unit_ended(proc);
        proc_release(proc);
        return;
    }
    if (proc->failed || proc->sudo) {
        bool sudo = proc->sudo;

        proc_release(proc);
        if (sudo)
            sudo_ended();
        return;
    }
    proc->state = PROC_ENDED;
    proc->age = age++;
    n_ended++;
    inlet_close(&proc->in);
    if (proc->adopted)
        proc_kill_strays();
    for (unsigned i = 1; i < STREAMS; i++) {
        outlet_last(&proc->out[i]);
        proc->exit.output[i] = outlet_total(&proc->out[i]);
    }
    channel_ended(proc);
    shell_ended(proc);
    proc_answer_waits(proc);
    forget_old();
}

void proc_end_leaf(struct proc *proc)
{
    uint8_t wire[GUEST_LEAF_SIZE];
    int len = guest_leaf_put(wire, sizeof(wire), proc->number);

    if (proc->leaf_ended)
        return;
    proc->leaf_ended = true;
    if (len < 0 || control_send(FRAME_LEAF_END, wire, (size_t)len, -1) != 0)
        guest_exit(GUEST_EXIT_GONE);
}

void proc_leaf_gone(const struct guest_leaf_gone *gone)
{
    struct proc *proc = proc_find_any(gone->leaf);

    if (!proc || !proc->leaf_ended || !proc->leaf)
        return;
    proc->leaf = false;
    proc->exit.leaf = 1;
    proc->exit.oom_kills = gone->oom_kills;
    proc->exit.pids_refused = gone->pids_refused;
    proc->exit.store = gone->store;
    proc->exit.pids_peak = gone->pids_peak;
    if (gone->cpu_ns != UINT64_MAX)
        proc->exit.cpu_ns = gone->cpu_ns;
    if (gone->memory_peak != UINT64_MAX)
        proc->exit.memory_peak = gone->memory_peak;
    if (proc->reaped)
        proc_ended(proc);
}

/* ---- deaths ----------------------------------------------------------------------------------------- */

void proc_read_sheep(struct proc *proc)
{
    struct sheep_end end = {0};

    if (proc->sheep.fd < 0 || raw_call3(SYS_read, proc->sheep.fd, &end, sizeof(end)) != (long)sizeof(end))
        return;
    proc->reaped = true;
    proc->exit.status = end.status;
    proc->exit.ended_ns = end.ended_ns;
    proc->exit.cpu_ns = end.cpu_ns;
    proc->exit.memory_peak = end.memory_peak;
}

/* The shepherd has gone, and its flock before it; or it was killed, and its flock is ours now, as nobody else's is. */
static void shepherd_reaped(struct proc *proc)
{
    proc_read_sheep(proc);
    source_close(&proc->sheep);
    if (!proc->reaped) {
        proc->reaped = true;
        proc->exit.status = SIGKILL;
        proc->exit.ended_ns = guest_now_ns();
        proc->exit.cpu_ns = proc->exit.memory_peak = UINT64_MAX;
        proc_kill_strays();
    } else if (!shepherd_keeps_orphans()) {
        proc_kill_strays();
    }
    proc_ended(proc);
}

void proc_reaped(pid_t pid, int status, const struct rusage *usage)
{
    struct proc *proc = procs;

    while (proc && (proc->shepherd != 0 ? proc->shepherd != pid : proc->reaped || proc->pid != pid))
        proc = proc->next;
    if (!proc)
        return;
    proc_read_report(proc, true);
    if (proc->shepherd != 0) {
        shepherd_reaped(proc);
        return;
    }
    proc->reaped = true;
    proc->exit.status = (uint32_t)status;
    proc->exit.ended_ns = guest_now_ns();
    proc->exit.cpu_ns = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000u +
                        (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000u;
    proc->exit.memory_peak = (uint64_t)usage->ru_maxrss * 1024u;
    if (!proc->leaf) {
        proc_ended(proc);
        return;
    }
    if (!proc->failed)
        proc->state = PROC_ENDING;
    proc_end_leaf(proc);
}

/* Children of ours that are neither a process, nor a shepherd, nor the file worker. */
static void proc_kill_strays(void)
{
    pid_t known[PROCS_MAX + 1];
    unsigned n = 0;

    for (const struct proc *proc = procs; proc; proc = proc->next)
        if (n < PROCS_MAX && (proc->shepherd != 0 || !proc->reaped))
            known[n++] = proc->shepherd != 0 ? proc->shepherd : proc->pid;
    if (worker_pid() > 0)
        known[n++] = worker_pid();
    walk_strays(known, n);
}

/* Whoever asked for a START that is still under way has gone. */
void proc_unanswered(void)
{
    for (struct proc *proc = procs; proc; proc = proc->next)
        proc->start_request = 0;
}
