/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_judge.c: why a process ended (docs/RECEIPT.md, "Causes"). Two events compete, its own end and our verdict
 * (timeout, output, cancel): the earlier on the monotonic clock wins. Of its own end, the kernel's counters decide;
 * nothing is guessed from an exit status.
 *
 * Counters come from the process's leaf cgroup, with its exit, and so does whether the store was full then. What the
 * leaf cannot know (refusals at the sandbox's own limit) is asked of the provider, and only for a process that failed:
 * success costs no question. Those counters are the whole sandbox's, so a rise since they were last seen is put down to
 * the one that failed now. A process without a leaf costs a question, however it ended.
 */
#include <signal.h>
#include <sys/wait.h>

#include "codec/wire/guest_msg.h"
#include "sandbox/processes.h"

static bool failed(const struct process *process)
{
    return process->has_exit && process->exit.status != 0;
}

static bool ended_by_itself(const struct process *process)
{
    return process->has_exit && (process->verdict == BRIG_CAUSE_MAX || process->exit.ended_ns < process->verdict_ns);
}

/* The spawner looks at the store when the leaf is gone; of a process without one, when it is asked. */
static uint32_t store_limits(const struct svc_proc_exit *exit, const struct box_stats *stats)
{
    uint32_t store = exit->leaf ? exit->store : stats ? stats->store : 0;

    return (store & GUEST_STORE_FULL ? 1u << BRIG_LIMIT_DISK : 0) |
           (store & GUEST_STORE_NO_INODES ? 1u << BRIG_LIMIT_INODES : 0);
}

/* The host's own shortage, below the sandbox's limit, is not the program's. */
static bool oom_was_ours(const struct sbox *sbox, const struct box_stats *stats)
{
    uint64_t limit = sbox->limits.memory;

    return !stats || limit == 0 || stats->memory_peak_bytes == BRIG_USAGE_UNKNOWN ||
           stats->memory_peak_bytes >= limit - limit / 8;
}

/* Limits that were reached whoever ended it. What the leaf cannot know is in `stats`, if they were asked for. */
uint32_t judge_limits(const struct svc_proc_exit *exit, const struct box_stats *stats)
{
    return store_limits(exit, stats) | (exit->oom_kills > 0 ? 1u << BRIG_LIMIT_MEMORY : 0) |
           (exit->pids_refused > 0 ? 1u << BRIG_LIMIT_PIDS : 0);
}

enum brig_cause judge_exit(struct sbox *sbox, const struct svc_proc_exit *exit, const struct box_stats *stats,
                           uint32_t *limits_hit, char *detail, size_t detail_size)
{
    struct box_stats *seen = &sbox->priv->seen;
    bool oom = exit->oom_kills > 0, pids = exit->pids_refused > 0, bad = exit->status != 0;

    if (stats) {
        if (!exit->leaf)
            oom = oom || stats->oom_kills > seen->oom_kills;
        pids = pids || stats->pids_refused > seen->pids_refused;
        *seen = *stats;
    }
    bool disk = store_limits(exit, stats) != 0;
    *limits_hit |= judge_limits(exit, stats) | (oom ? 1u << BRIG_LIMIT_MEMORY : 0) | (pids ? 1u << BRIG_LIMIT_PIDS : 0);
    /* Whether the kernel's victim was the main process or something it waited for: the run failed for want of memory.
     */
    if (oom && bad) {
        if (oom_was_ours(sbox, stats))
            return BRIG_CAUSE_OOM;
        snprintf(detail, detail_size, "the host ran out of memory below the sandbox's own limit");
        return BRIG_CAUSE_HOST_ERROR;
    }
    if (bad && disk)
        return BRIG_CAUSE_DISK_LIMIT;
    if (bad && pids)
        return BRIG_CAUSE_PIDS_LIMIT;
    return WIFSIGNALED((int)exit->status) ? BRIG_CAUSE_SIGNALLED : BRIG_CAUSE_EXITED;
}

/* It was never executed. */
static enum brig_cause start_cause(struct process *process)
{
    static const char *const stages[STAGE_MAX] = {"execute",  "working directory", "ids",
                                                  "terminal", "self-check",        "fork"};
    uint32_t stage = process->start_stage;
    const char *what = stage == STAGE_EXEC && process->argv ? process->argv[0]
                       : stage == STAGE_WORKDIR             ? process->workdir
                                                            : "";
    const char *reason = strerrordesc_np((int)process->start_errnum);

    snprintf(process->detail, sizeof process->detail, "%s%s%.180s: %s", stage < STAGE_MAX ? stages[stage] : "start",
             what[0] ? " " : "", what, reason ? reason : "unknown error");
    if (stage == STAGE_EXEC)
        return BRIG_CAUSE_EXITED;
    if (process->start_errnum == EAGAIN) {
        process->limits_hit |= 1u << BRIG_LIMIT_PIDS;
        return BRIG_CAUSE_PIDS_LIMIT;
    }
    return BRIG_CAUSE_HOST_ERROR;
}

static enum brig_cause decide(struct process *process, const struct box_stats *stats)
{
    static const struct {
        enum brig_cause cause;
        enum brig_limit limit;
    } limits[] = {{BRIG_CAUSE_TIMEOUT, BRIG_LIMIT_TIMEOUT},
                  {BRIG_CAUSE_OUTPUT_LIMIT, BRIG_LIMIT_OUTPUT},
                  {BRIG_CAUSE_OOM, BRIG_LIMIT_MEMORY}};
    enum brig_cause cause = BRIG_CAUSE_HOST_ERROR;

    if (process->start_errnum)
        cause = start_cause(process);
    else if (ended_by_itself(process))
        cause = judge_exit(process->sbox, &process->exit, stats, &process->limits_hit, process->detail,
                           sizeof process->detail);
    else if (process->verdict != BRIG_CAUSE_MAX) {
        cause = process->verdict;
        process->limits_hit |= process->has_exit ? judge_limits(&process->exit, stats) : 0;
        snprintf(process->detail, sizeof process->detail, "%s%s%s", process->verdict_detail,
                 process->verdict_detail[0] && process->deaf ? "; " : "",
                 process->deaf ? "brig-init does not answer" : "");
    } else if (!process->detail[0]) {
        snprintf(process->detail, sizeof process->detail, "brig-init does not answer");
    }
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (cause == limits[i].cause)
            process->limits_hit |= 1u << limits[i].limit;
    return cause;
}

/* With a network, its counters are asked first: the receipt says what went through. */
static void count_and_end(struct process *process)
{
    if (!network_process_ending(process))
        process_ended(process);
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct process *process = ctx;

    if (process->state != PROCESS_JUDGING)
        return;
    process->cause = decide(process, err ? NULL : stats);
    count_and_end(process);
}

void process_judge(struct process *process)
{
    if (process->state >= PROCESS_JUDGING)
        return;
    process->state = PROCESS_JUDGING;
    /* The list keeps it while the question is out: evicted are only those that have ended. */
    bool ask = process->has_exit && (!process->exit.leaf || (ended_by_itself(process) && failed(process)));
    if (ask && sbox_stats(process->sbox, on_stats, process, NULL) == 0)
        return;
    process->cause = decide(process, NULL);
    count_and_end(process);
}

void process_judge_gone(struct process *process)
{
    const struct sbox_private *priv = process->sbox->priv;

    if (process->state == PROCESS_ENDED)
        return;
    process->state = PROCESS_JUDGING;
    if (process->has_exit && process->verdict == BRIG_CAUSE_MAX) {
        process->cause = decide(process, NULL); /* it had ended before; only its output was still on its way */
    } else if (priv->ending.why[0]) {
        process->cause = BRIG_CAUSE_CANCELLED;
        snprintf(process->detail, sizeof process->detail, "the sandbox was ended: %s", priv->ending.why);
    } else {
        process->cause = priv->end.cause == BRIG_CAUSE_OOM || priv->end.cause == BRIG_CAUSE_HOST_ERROR
                             ? priv->end.cause
                             : BRIG_CAUSE_SANDBOX_GONE;
        process->limits_hit |= priv->end.limits_hit;
        snprintf(process->detail, sizeof process->detail, "%s",
                 priv->end.detail[0] ? priv->end.detail : "the sandbox has ended");
    }
    process_ended(process);
}
