/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_watch.c: kernel memory that no cgroup counts. What waits in the queue of a netlink socket is charged to nobody,
 * and a socket's queue may hold megabytes (net.core.rmem_max); a program with a thousand such sockets held gigabytes of the
 * host's memory with a memory limit of 64 MB. The kernel has no limit on their number, so the spawner looks: the network
 * namespace counts its sockets by protocol, and a sandbox with more than any honest program has is ended, as one that is
 * out of memory.
 *
 * A sandbox of a service is looked at while a process runs in it that has used the processor: idle ones wake nobody.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "jail/spawner.h"

#define NETLINK_MAX 64 /* libc opens one for the moment of a look-up, and many threads may do that at once */
#define LOOK_NS (1000 * NS_PER_MS)
#define BUSY_NS (10 * NS_PER_MS)

/* "NETLINK   1096      5      -1   NI ...": the third word counts the sockets of this namespace. */
static uint64_t netlink_sockets(const struct sandbox *s)
{
    char path[32], text[8192];
    uint64_t fields[2]; /* the size of one, their number */

    snprintf(path, sizeof path, "%d/net/protocols", (int)s->pid);
    if (s->pid <= 0 || fd_read_file(s->spawner->host.proc_fd, path, text, sizeof text) <= 0)
        return 0;
    const char *line = strstr(text, "\nNETLINK ");
    return line && parse_fields(line + strlen("\nNETLINK "), fields, 2) == 2 ? fields[1] : 0;
}

bool sandbox_watch(struct sandbox *s)
{
    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_NET_NS) || s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_MEMORY) ||
        netlink_sockets(s) <= NETLINK_MAX)
        return true;
    s->too_many_sockets = true;
    sandbox_end(s, BRIG_CAUSE_OOM);
    return false;
}

static void on_look(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    uint64_t used = cg_cpu_ns(&s->cg);
    s->watched = s->n_leaves > 0 || !cg_has_leaves(&s->cg); /* without leaves nobody tells us of processes */
    if (!s->watched)
        return;
    bool busy = used == BRIG_USAGE_UNKNOWN || used - s->watched_cpu_ns >= BUSY_NS;

    if (used != BRIG_USAGE_UNKNOWN && busy)
        s->watched_cpu_ns = used;
    if (busy && !sandbox_watch(s))
        return;
    if (loop_timer_set(s->spawner->loop, timer, clock_mono_ns() + LOOK_NS, NULL) < 0)
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

int sandbox_watch_service(struct sandbox *s, struct brig_err *err)
{
    if (s->watched || (s->n_leaves == 0 && cg_has_leaves(&s->cg)))
        return 0;
    s->watched = true;
    s->on_sample = (struct loop_timer){.fn = on_look, .ctx = s};
    return loop_timer_set(s->spawner->loop, &s->on_sample, clock_mono_ns() + LOOK_NS, err);
}
