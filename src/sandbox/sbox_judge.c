/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_judge.c: decides why a process ended (program_cause()), and asks for what that needs. What its leaf cgroup
 * cannot know (refusals at the sandbox's own limit) is asked from the provider, and only for a process that failed:
 * success costs no question. A process without a leaf always costs one.
 */
#include "receipt/receipt.h"
#include "sandbox/processes.h"

/* It was never executed. */
static enum brig_cause start_cause(struct process *process)
{
    uint32_t stage = process->prog.start_stage;
    struct brig_err err = {0};

    if (stage == STAGE_IDS && process->user) {
        (void)user_not_found(process->user, process->prog.start_errnum, &err);
        str_cut(process->prog.detail, sizeof process->prog.detail, err.message);
        return BRIG_CAUSE_POLICY;
    }
    const char *what = stage == STAGE_EXEC && process->argv ? process->argv[0]
                       : stage == STAGE_WORKDIR             ? process->workdir
                                                            : "";

    cause_of_start(stage, process->prog.start_errnum, what, process->prog.detail, sizeof process->prog.detail);
    if (stage == STAGE_EXEC)
        return BRIG_CAUSE_EXITED;
    if (process->prog.start_errnum == EAGAIN) {
        process->prog.limits_hit |= 1u << BRIG_LIMIT_PIDS;
        return BRIG_CAUSE_PIDS_LIMIT;
    }
    return BRIG_CAUSE_HOST_ERROR;
}

static void decide(struct process *process, const struct box_stats *stats)
{
    process->cause = process->prog.start_errnum ? start_cause(process)
                                                : program_cause(&process->prog, stats, &process->sbox->priv->seen,
                                                                process->sbox->limits.memory);
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

    if (process->prog.state != PROGRAM_JUDGING)
        return;
    decide(process, err ? NULL : stats);
    count_and_end(process);
}

void process_judge(struct process *process)
{
    if (process->prog.state >= PROGRAM_JUDGING)
        return;
    process->prog.state = PROGRAM_JUDGING;
    /* The list keeps it while the question is out: evicted are only those that have ended. */
    const struct program *program = &process->prog;
    bool ask =
        program->has_exit && (!program->exit.leaf || (program->exit.status != 0 && program_ended_by_itself(program)));
    if (ask && sbox_stats(process->sbox, on_stats, process, NULL) == 0)
        return;
    decide(process, NULL);
    count_and_end(process);
}

void process_judge_gone(struct process *process)
{
    const struct sbox_private *priv = process->sbox->priv;

    if (process->prog.state == PROGRAM_ENDED)
        return;
    process->prog.state = PROGRAM_JUDGING;
    if (process->prog.has_exit && process->prog.verdict.cause == BRIG_CAUSE_MAX)
        decide(process, NULL); /* it had ended before; only its output was still on its way */
    else
        process->cause = program_gone(&process->prog, priv->ending.why, &priv->end);
    process_ended(process);
}
