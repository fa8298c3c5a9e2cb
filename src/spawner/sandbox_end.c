/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_end.c: ends a sandbox. pid 1 is dead, and with it the kernel has ended every process of its pid namespace.
 * The run is counted and judged, and the engine gets the result; then what is left is removed.
 *
 * The cause is what ended the main process; receipt/cause.c judges it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define REMOVE_RETRY_NS (2 * NS_PER_MS)
#define REMOVE_AFTER_NS (50 * NS_PER_MS) /* while others run or wait */

static void count(struct sandbox *s)
{
    s->usage = USAGE_UNKNOWN;
    s->usage.wall_ms = s->started_ns ? (clock_mono_ns() - s->started_ns) / NS_PER_MS : 0;
    cg_usage(&s->cg, &s->usage);
    sandbox_measure(s);
    if (s->store_fd >= 0)
        s->usage.disk_bytes = s->disk_peak;
    if (s->started_ns && s->exited && s->exit.at_ns > s->started_ns)
        s->usage.wall_ms = (s->exit.at_ns - s->started_ns) / NS_PER_MS;
}

/*
 * A kernel in a process of the host ends when the host's kernel kills one of its processes for want of memory, or
 * refuses it another thread. Its programs notice that before we see it end, and brigd may have asked for the end by
 * then. BRIG_CAUSE_MAX: it was neither.
 */
static enum brig_cause own_kernel_cause(const struct sandbox *s)
{
    if (!s->own_kernel || (s->verdict.cause != BRIG_CAUSE_MAX && s->verdict.cause != BRIG_CAUSE_CANCELLED))
        return BRIG_CAUSE_MAX;
    if (cg_oom_killed(&s->cg))
        return cause_oom_is_ours(s->usage.memory_peak_bytes, s->limits.memory) ? BRIG_CAUSE_OOM : BRIG_CAUSE_HOST_ERROR;
    return service_pids_refused(s) > 0 ? BRIG_CAUSE_PIDS_LIMIT : BRIG_CAUSE_MAX;
}

static enum brig_cause judge(struct sandbox *s, struct wire_done *done)
{
    const enum brig_cause verdict = s->verdict.cause;

    /* A set-up that we cut short may have complained on its way out: that is not why it ended. */
    bool broke = verdict == BRIG_CAUSE_MAX || verdict == BRIG_CAUSE_HOST_ERROR || verdict == BRIG_CAUSE_POLICY;
    if (s->failure.code && broke) {
        str_assign(done->detail, s->failure.message);
        done->refused = spawner_is_refusal(&s->failure);
        done->code = (uint32_t)s->failure.code;
        return done->refused ? BRIG_CAUSE_POLICY : BRIG_CAUSE_HOST_ERROR;
    }
    if (s->exited) {
        done->signal = WIFSIGNALED(s->exit.status) ? WTERMSIG(s->exit.status) : 0;
        done->exit_code = WIFEXITED(s->exit.status) ? WEXITSTATUS(s->exit.status) : 0;
    }
    if (s->exited && s->exit.failed) {
        const char *what = s->exit.failed == 1 + STAGE_EXEC      ? s->run->argv
                           : s->exit.failed == 1 + STAGE_WORKDIR ? s->run->workdir
                                                                 : "";
        cause_of_start(s->exit.failed - 1, s->exit.errnum, what, done->detail, sizeof done->detail);
        return s->exit.failed == 1 + STAGE_EXEC ? BRIG_CAUSE_EXITED : BRIG_CAUSE_HOST_ERROR;
    }
    if (s->exited && !s->service && verdict_came_late(&s->verdict, s->exit.at_ns))
        return cause_of_exit((int)s->exit.status, done->limits_hit, s->usage.memory_peak_bytes, s->limits.memory,
                             done->detail, sizeof done->detail);
    const enum brig_cause lost = own_kernel_cause(s);
    if (verdict != BRIG_CAUSE_MAX || lost != BRIG_CAUSE_MAX) {
        if (!s->exited)
            done->signal = SIGKILL;
        return lost != BRIG_CAUSE_MAX ? lost : verdict;
    }
    /* pid 1 died without a word: v2's oom.group kills it with the rest. A service lives on when others are killed. */
    done->signal = SIGKILL;
    bool killed = !s->service || (WIFSIGNALED(s->wait_status) && WTERMSIG(s->wait_status) == SIGKILL);
    if (killed && cg_oom_killed(&s->cg))
        return cause_oom_is_ours(s->usage.memory_peak_bytes, s->limits.memory) ? BRIG_CAUSE_OOM : BRIG_CAUSE_HOST_ERROR;
    return BRIG_CAUSE_SANDBOX_GONE;
}

static void add_detail(struct sandbox *s, struct wire_done *done)
{
    done->limits_hit |= cause_limit((enum brig_cause)done->cause);
    if (done->detail[0])
        return;
    if (done->cause == BRIG_CAUSE_OOM && s->over)
        str_cut(done->detail, sizeof done->detail, s->over);
    if (done->cause == BRIG_CAUSE_OOM && s->locks_over > 0)
        snprintf(done->detail, sizeof done->detail,
                 "%" PRIu32 " file locks, more than %" PRIu32 ": no cgroup counts that memory", s->locks,
                 s->locks_over);
    if (done->cause == BRIG_CAUSE_HOST_ERROR)
        str_cut(done->detail, sizeof done->detail, cause_host_oom);
    if (done->cause == BRIG_CAUSE_PIDS_LIMIT)
        str_cut(done->detail, sizeof done->detail,
                "the kernel of the sandbox was refused a thread: its own threads count as processes");
    if (done->cause == BRIG_CAUSE_SANDBOX_GONE)
        snprintf(done->detail, sizeof done->detail,
                 s->service ? "pid 1 of the sandbox ended" : "pid 1 of the sandbox ended before the program");
    if (done->cause == BRIG_CAUSE_TIMEOUT)
        snprintf(done->detail, sizeof done->detail, "after %" PRIu64 " ms", s->limits.timeout);
}

static void report(struct sandbox *s)
{
    struct wire_done done = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DONE, s->run->number},
                             .ended_at_ns = clock_real_ns()};

    done.limits_hit = cause_limits(service_oom_kills(s) > 0, service_pids_refused(s) > 0, s->store_seen);
    done.cause = judge(s, &done);
    done.started = s->started && !(s->exited && s->exit.failed);
    done.limits = s->limits;
    done.usage = s->usage;
    memcpy(done.readings, s->readings, sizeof done.readings);
    str_assign(done.sandbox_id, s->id);
    add_detail(s, &done);
    spawner_send(s->spawner, &done, NULL, 0);
}

void sandbox_not_busy(struct sandbox *s)
{
    if (s->busy)
        s->spawner->running--;
    s->busy = false;
}

static void forget(struct sandbox *s)
{
    struct spawner *spawner = s->spawner;

    if (spawner->forgotten)
        spawner->forgotten(s);
    ids_release(&spawner->host.ids, &s->ids);
    sandbox_list_remove(s);
    mem_free(s);
}

static void remove_all_dead(struct spawner *spawner)
{
    bool busy = false;

    for (struct sandbox *s = spawner->lists[SANDBOX_DEAD], *next; s; s = next) {
        next = s->next;
        struct remains remains = {s->mnt_fd, s->store_fd, s->cg};
        int r = reaper_take(&spawner->reaper, &remains);
        s->mnt_fd = s->store_fd = -1;
        s->cg = remains.cg;
        if (r == 0)
            forget(s);
        else
            busy = true;
    }
    if (busy)
        (void)!loop_timer_set(spawner->loop, &spawner->on_remove, clock_mono_ns() + REMOVE_RETRY_NS, NULL);
    else
        loop_timer_clear(spawner->loop, &spawner->on_remove);
    spawner_pool_changed(spawner);
}

static void on_remove(struct loop_timer *timer)
{
    remove_all_dead(timer->ctx);
}

/* Removes what dead sandboxes left: at once when nothing runs, else a little later. */
static void sandbox_remove_dead(struct spawner *spawner)
{
    spawner->on_remove.fn = on_remove;
    spawner->on_remove.ctx = spawner;
    if (spawner->running == 0 && clock_mono_ns() >= spawner->quiet_ns)
        remove_all_dead(spawner);
    else if (spawner->on_remove.pos == 0)
        (void)!loop_timer_set(spawner->loop, &spawner->on_remove, clock_mono_ns() + REMOVE_AFTER_NS, NULL);
}

void sandbox_finish(struct sandbox *s)
{
    struct spawner *spawner = s->spawner;
    struct loop *loop = spawner->loop;

    if (s->state == SANDBOX_PARKED)
        spawner->parked--;
    else if (s->for_pool && s->state == SANDBOX_BUILDING) {
        /* It will not be better next time: stay with what there is, and say why. */
        spawner->building_parked--;
        spawner->pool = spawner->parked + spawner->building_parked;
        spawner->pool_err = s->failure;
        if (!s->failure.code)
            (void)err_set(&spawner->pool_err, BRIG_E_HOST, 0, "a sandbox for the pool died while it was built");
    }
    sandbox_list_move(s, SANDBOX_DEAD);
    loop_timer_clear(loop, &s->on_timeout);
    loop_timer_clear(loop, &s->on_sample);
    loop_timer_clear(loop, &s->on_oom_check);
    loop_remove(loop, &s->on_setup);
    loop_remove(loop, &s->on_control);
    loop_remove(loop, &s->on_oom);
    loop_timer_clear(loop, &s->on_freeze);
    service_leaves_done(s);
    if (s->pid)
        (void)RETRY(waitpid(s->pid, &s->wait_status, __WALL));
    count(s);
    if (s->run) {
        /* Every process is gone; what is left has no effect any more and goes right after the answer. */
        report(s);
        struct run_spec *run = sandbox_take_run(s);
        disk_run_gone(spawner, run);
        run_spec_done(run);
        sandbox_not_busy(s);
    }
    base_close_fd(&s->pidfd);
    base_close_fd(&s->setup_fd);
    base_close_fd(&s->control_fd);
    base_close_fd(&s->stream_fd);
    sandbox_gate_done(s);
    fd_close_all(s->lent, s->n_lent);
    disks_release(s);
    sandbox_remove_dead(spawner);
}
