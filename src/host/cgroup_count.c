/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroup_count.c: counts what a sandbox has used so far, and kills or freezes all of it at once. A counter that a
 * kernel or a hierarchy does not have reads as BRIG_USAGE_UNKNOWN.
 */
#include <string.h>

#include "base/fd.h"
#include "host/cgroup.h"
#include "host/cgroup_parts.h"
#include "jail/sys.h"

static uint64_t oom_kills(const struct cg *cg)
{
    return cg_keyed(cg_dir(cg, CG_MEMORY), cg_is_v2(cg, CG_MEMORY) ? "memory.events" : "memory.oom_control",
                    "oom_kill");
}

static uint64_t pids_refusals(const struct cg *cg)
{
    return cg_keyed(cg_dir(cg, CG_PIDS), "pids.events", "max");
}

void cg_mark(struct cg *cg)
{
    cg->oom_kills = oom_kills(cg);
    cg->pids_refusals = pids_refusals(cg);
}

static uint64_t since(uint64_t now, uint64_t mark)
{
    return now != BRIG_USAGE_UNKNOWN && now > mark ? now - mark : 0;
}

uint64_t cg_oom_kills(const struct cg *cg)
{
    return since(oom_kills(cg), cg->oom_kills);
}

uint64_t cg_pids_refusals(const struct cg *cg)
{
    return since(pids_refusals(cg), cg->pids_refusals);
}

bool cg_oom_killed(const struct cg *cg)
{
    return cg_oom_kills(cg) > 0;
}

uint64_t cg_memory_bytes(const struct cg *cg)
{
    return cg_number(cg_dir(cg, CG_MEMORY), cg_is_v2(cg, CG_MEMORY) ? "memory.current" : "memory.usage_in_bytes");
}

uint64_t cg_pids(const struct cg *cg)
{
    return cg_number(cg_dir(cg, CG_PIDS), "pids.current");
}

uint64_t cg_cpu_ns(const struct cg *cg)
{
    uint64_t us = cg_keyed(cg->v2_fd, "cpu.stat", "usage_usec");

    return us != BRIG_USAGE_UNKNOWN ? us * 1000 : cg_number(cg_dir(cg, CG_CPUACCT), "cpuacct.usage");
}

/* v2: "8:0 rbytes=1 wbytes=2 ..."; v1: "8:0 Read 1" lines. */
static void io_usage(const struct cg *cg, struct brig_usage *usage)
{
    int dir = cg_dir(cg, CG_BLKIO);
    char text[4096];
    bool v2 = cg_is_v2(cg, CG_BLKIO);

    if (dir < 0 || fd_read_file(dir, v2 ? "io.stat" : "blkio.throttle.io_service_bytes", text, sizeof text) < 0)
        return;
    usage->read_bytes = usage->written_bytes = 0;
    for (char *p = text; (p = strstr(p, v2 ? "rbytes=" : " Read ")) != NULL; p++)
        usage->read_bytes += strtoull(p + (v2 ? 7 : 6), NULL, 10);
    for (char *p = text; (p = strstr(p, v2 ? "wbytes=" : " Write ")) != NULL; p++)
        usage->written_bytes += strtoull(p + 7, NULL, 10);
}

uint64_t cg_usage(const struct cg *cg, struct brig_usage *usage)
{
    int memory = cg_dir(cg, CG_MEMORY);
    uint64_t ns = cg_cpu_ns(cg);

    if (ns != BRIG_USAGE_UNKNOWN)
        usage->cpu_ms = ns / 1000000;
    usage->memory_peak_bytes = cg_number(memory, cg_is_v2(cg, CG_MEMORY) ? "memory.peak" : "memory.max_usage_in_bytes");
    usage->pids_peak = cg_number(cg_dir(cg, CG_PIDS), "pids.peak");
    io_usage(cg, usage);
    return ns;
}

void cg_kill(const struct cg *cg)
{
    int freezer = cg_dir(cg, CG_FREEZER);

    /* A v1-frozen tree does not die of SIGKILL until it is thawed; cgroup.kill (v2) needs no thaw. */
    if (freezer >= 0)
        (void)!fd_write_file(freezer, "freezer.state", "THAWED");
    if (cg->v2_fd >= 0)
        (void)!fd_write_file(cg->v2_fd, "cgroup.kill", "1");
}

static bool freezes_by_v2(const struct cg *cg)
{
    return cg->v2_fd >= 0 && faccessat(cg->v2_fd, "cgroup.freeze", F_OK, 0) == 0; /* since Linux 5.2 */
}

int cg_freeze(const struct cg *cg, bool on)
{
    int freezer = cg_dir(cg, CG_FREEZER);

    if (freezes_by_v2(cg))
        return fd_write_file(cg->v2_fd, "cgroup.freeze", on ? "1" : "0");
    return freezer < 0 ? -EOPNOTSUPP : fd_write_file(freezer, "freezer.state", on ? "FROZEN" : "THAWED");
}

bool cg_is_frozen(const struct cg *cg)
{
    char text[32];

    if (freezes_by_v2(cg))
        return cg_keyed(cg->v2_fd, "cgroup.events", "frozen") == 1;
    int freezer = cg_dir(cg, CG_FREEZER);
    return freezer >= 0 && fd_read_file(freezer, "freezer.state", text, sizeof text) > 0 &&
           strncmp(text, "FROZEN", 6) == 0;
}
