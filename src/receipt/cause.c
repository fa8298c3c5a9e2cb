/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cause.c: decides why a program ended (docs/RECEIPT.md, "Causes"). There is one judge for runs of the engine,
 * processes in a sandbox and tool calls. The caller asks for the numbers before.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/str.h"
#include "receipt/receipt.h"

const char cause_host_oom[] = "the host ran out of memory below the sandbox's own limit";

bool verdict_pass(struct end_verdict *verdict, enum brig_cause cause)
{
    if (verdict->cause != BRIG_CAUSE_MAX)
        return false;
    *verdict = (struct end_verdict){cause, clock_mono_ns()};
    return true;
}

bool verdict_came_late(const struct end_verdict *verdict, uint64_t ended_ns)
{
    return verdict->cause == BRIG_CAUSE_MAX || ended_ns < verdict->at_ns;
}

uint32_t cause_limits(bool oom, bool pids, uint32_t store)
{
    return (oom ? 1u << BRIG_LIMIT_MEMORY : 0) | (pids ? 1u << BRIG_LIMIT_PIDS : 0) |
           (store & GUEST_STORE_FULL ? 1u << BRIG_LIMIT_DISK : 0) |
           (store & GUEST_STORE_NO_INODES ? 1u << BRIG_LIMIT_INODES : 0);
}

uint32_t cause_limit(enum brig_cause cause)
{
    switch (cause) {
    case BRIG_CAUSE_TIMEOUT: return 1u << BRIG_LIMIT_TIMEOUT;
    case BRIG_CAUSE_CPU_LIMIT: return 1u << BRIG_LIMIT_CPU_TIME;
    case BRIG_CAUSE_OUTPUT_LIMIT: return 1u << BRIG_LIMIT_OUTPUT;
    case BRIG_CAUSE_OOM: return 1u << BRIG_LIMIT_MEMORY;
    default: return 0;
    }
}

bool cause_oom_is_ours(uint64_t memory_peak, uint64_t memory_limit)
{
    return memory_limit == 0 || memory_peak == BRIG_USAGE_UNKNOWN || memory_peak >= memory_limit - memory_limit / 8;
}

/* Whether the kernel's victim was the main process or something it waited for: the run failed for want of memory. Its
 * cause must not depend on who was first to notice. */
enum brig_cause cause_of_exit(int status, uint32_t hit, uint64_t memory_peak, uint64_t memory_limit, char *detail,
                              size_t detail_size)
{
    if (status != 0 && (hit & 1u << BRIG_LIMIT_MEMORY)) {
        if (cause_oom_is_ours(memory_peak, memory_limit))
            return BRIG_CAUSE_OOM;
        str_cut(detail, detail_size, cause_host_oom);
        return BRIG_CAUSE_HOST_ERROR;
    }
    if (status != 0 && (hit & (1u << BRIG_LIMIT_DISK | 1u << BRIG_LIMIT_INODES)))
        return BRIG_CAUSE_DISK_LIMIT;
    if (status != 0 && (hit & 1u << BRIG_LIMIT_PIDS))
        return BRIG_CAUSE_PIDS_LIMIT;
    return WIFSIGNALED(status) ? BRIG_CAUSE_SIGNALLED : BRIG_CAUSE_EXITED;
}

void cause_of_start(uint32_t stage, uint32_t errnum, const char *what, char *detail, size_t detail_size)
{
    static const char *const stages[STAGE_MAX] = {"execute",  "working directory", "ids",
                                                  "terminal", "self-check",        "fork"};
    const char *reason = strerrordesc_np((int)errnum);

    snprintf(detail, detail_size, "%s%s%.180s: %s", stage < STAGE_MAX ? stages[stage] : "start", what[0] ? " " : "",
             what, reason ? reason : "unknown error");
}
