/* SPDX-License-Identifier: Apache-2.0 */
/* rlimits.c: lowers resource limits, in the calling process. */
#include "jail/rlimits.h"

#include <sys/resource.h>

#include "jail/rawcall.h"

const struct rlimit_fixed rlimits_fixed[] = {
    /* 1, not 0: with a pipe in core_pattern a limit of 0 still starts the host's handler; 1 does not. */
    {"core", RLIMIT_CORE, 1},
    {"memlock", RLIMIT_MEMLOCK, 65536},
    {"msgqueue", RLIMIT_MSGQUEUE, 819200},
    {"nice", RLIMIT_NICE, 0},
    {"rtprio", RLIMIT_RTPRIO, 0},
    {"sigpending", RLIMIT_SIGPENDING, 1024},
    {NULL, 0, 0},
};

int rlimit_lower(int resource, uint64_t value)
{
    struct rlimit limit = {0};
    long ret = raw_call4(SYS_prlimit64, 0, resource, NULL, &limit);

    if (ret != 0)
        return (int)ret;
    if (limit.rlim_max != RLIM_INFINITY && value > limit.rlim_max)
        value = limit.rlim_max;
    limit.rlim_cur = limit.rlim_max = value;
    return (int)raw_call4(SYS_prlimit64, 0, resource, &limit, NULL);
}
