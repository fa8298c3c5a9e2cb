/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_watch.c: kernel memory that no cgroup counts. What waits in the queue of a netlink socket is charged to
 * nobody, nor is what lies in the error queue of an inet socket (refusals, copies of what it sent) and what a UDP
 * socket holds back (MSG_MORE). A queue may hold megabytes (net.core.rmem_max); a program with a thousand such sockets
 * held gigabytes of the host's memory with a memory limit of 64 MB. The kernel has no limit on the sum, so the spawner
 * looks, and a sandbox with more than any honest program has is ended, as one that is out of memory:
 *  - more than 64 netlink sockets;
 *  - queues of inet sockets that hold more than the memory limit, by the kernel's own list (sock_diag). Where cgroups
 *    count a part of it they keep that part below the limit, so only what they do not count can pass it;
 *  - inet sockets that are in no list (never bound, disconnected, reset), by what they could hold. The network
 *    namespace counts all sockets, and those in lists by protocol: the difference is their number;
 *  - file locks, by the kernel's list (sandbox_locks.c).
 *
 * A sandbox of a service is looked at while a process runs in it that has used the processor: idle ones wake nobody.
 */
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "host/inside.h"
#include "host/netlink.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define NETLINK_MAX 64    /* libc opens one for the moment of a look-up, and many threads may do that at once */
#define UNLISTED_MAX 1024 /* a client whose server has gone holds as many as it had connections */
#define QUEUE_MIN (UINT64_C(8) << 20) /* of one socket; TCP lets its own grow to 6 MiB whatever rmem_max says */
#define LOOK_NS (1000 * NS_PER_MS)
#define BUSY_NS (10 * NS_PER_MS)

struct sockets {
    uint64_t netlink, inet, unlisted;
};

/* "NETLINK   1096      5      -1   NI ...": the third word counts the sockets of this namespace that are in a list. */
static bool count_sockets(const struct sandbox *s, struct sockets *ret)
{
    char path[32], text[16384];
    uint64_t fields[2], used, listed = 0; /* fields: the size of one, their number */
    int proc = s->spawner->host.proc_fd;

    *ret = (struct sockets){0};
    snprintf(path, sizeof path, "%d/net/protocols", (int)s->pid);
    if (s->pid <= 0 || fd_read_file(proc, path, text, sizeof text) <= 0)
        return false;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        size_t name = strcspn(line + 1, " ");
        if (parse_fields(line + 1 + name, fields, 2) != 2)
            continue;
        listed += fields[1];
        if (name == strlen("NETLINK") && memcmp(line + 1, "NETLINK", name) == 0)
            ret->netlink = fields[1];
        else if (memcmp(line + 1, "UNIX", 4) != 0)
            ret->inet += fields[1];
    }
    /* "sockets: used 12": read last, so that one made in between counts as not listed, and not the other way round. */
    snprintf(path, sizeof path, "%d/net/sockstat", (int)s->pid);
    if (fd_read_file(proc, path, text, sizeof text) <= 0 || strncmp(text, "sockets: used ", 14) != 0 ||
        parse_fields(text + 14, &used, 1) != 1)
        return false;
    ret->unlisted = used > listed ? used - listed : 0;
    return true;
}

/* What one socket can hold on this host: twice what it may ask for. */
static uint64_t queue_max(const struct sandbox *s)
{
    char text[32];
    uint64_t max;

    if (fd_read_file(s->spawner->host.proc_fd, "sys/net/core/rmem_max", text, sizeof text) <= 0 ||
        parse_fields(text, &max, 1) != 1)
        return QUEUE_MIN;
    return 2 * max > QUEUE_MIN ? 2 * max : QUEUE_MIN;
}

static int open_diag(void *arg)
{
    const struct sandbox *s = arg;

    if (SYS(setns(s->pidfd, CLONE_NEWNET)) < 0)
        return -errno;
    int fd = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
    return fd < 0 ? -errno : fd;
}

/* The memory in the queues of one socket of the list. */
static uint64_t queued(const uint8_t *message, size_t len)
{
    uint32_t memory[SK_MEMINFO_VARS] = {0};

    for (size_t at = NLMSG_ALIGN(sizeof(struct inet_diag_msg)); at + sizeof(struct nlattr) <= len;) {
        struct nlattr attr;
        memcpy(&attr, message + at, sizeof attr);
        if (attr.nla_len < sizeof attr || attr.nla_len > len - at)
            break;
        size_t size = attr.nla_len - sizeof attr;
        if (attr.nla_type == INET_DIAG_SKMEMINFO)
            memcpy(memory, message + at + sizeof attr, size < sizeof memory ? size : sizeof memory);
        at += NLMSG_ALIGN((size_t)attr.nla_len);
    }
    return (uint64_t)memory[SK_MEMINFO_RMEM_ALLOC] + memory[SK_MEMINFO_WMEM_ALLOC] + memory[SK_MEMINFO_OPTMEM];
}

/* One family and protocol. The kernel writes the list while it is read. */
static uint64_t sum_queues(int diag, int family, int protocol)
{
    static _Alignas(NLMSG_ALIGNTO) uint8_t answer[32768];
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 ask;
    } dump = {.head = {.nlmsg_len = sizeof dump,
                       .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
              .ask = {.sdiag_family = (uint8_t)family,
                      .sdiag_protocol = (uint8_t)protocol,
                      .idiag_ext = 1u << (INET_DIAG_SKMEMINFO - 1),
                      .idiag_states = ~0u}};
    uint64_t sum = 0;

    if (SYS(send(diag, &dump, sizeof dump, 0)) < 0)
        return 0;
    for (;;) {
        ssize_t n = SYS(recv(diag, answer, sizeof answer, MSG_DONTWAIT));
        if (n <= 0)
            return sum;
        for (size_t at = 0; at + NLMSG_HDRLEN <= (size_t)n;) {
            struct nlmsghdr head;
            memcpy(&head, answer + at, sizeof head);
            if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || head.nlmsg_len < NLMSG_HDRLEN ||
                head.nlmsg_len > (size_t)n - at)
                return sum; /* the end, or a kernel without it */
            sum += queued(answer + at + NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN);
            at += NLMSG_ALIGN(head.nlmsg_len);
        }
    }
}

static bool holds_too_much(struct sandbox *s, const struct sockets *sockets, uint64_t memory)
{
    uint64_t each = queue_max(s), sum = 0;

    if (memory == 0)
        return false;
    if (sockets->unlisted > UNLISTED_MAX && sockets->unlisted > memory / each)
        return true;
    if (sockets->inet <= memory / each)
        return false;
    AUTO_FD int diag = inside_run(open_diag, s);
    if (diag < 0)
        return false;
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        sum += sum_queues(diag, families[i], IPPROTO_TCP) + sum_queues(diag, families[i], IPPROTO_UDP);
    return sum > memory;
}

static bool too_many_sockets(struct sandbox *s)
{
    const struct brig_limits *limits = s->run ? &s->run->limits : &s->limits;
    struct sockets sockets;

    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_NET_NS) || !count_sockets(s, &sockets))
        return false;
    return sockets.netlink > NETLINK_MAX || holds_too_much(s, &sockets, limits->memory);
}

bool sandbox_watch(struct sandbox *s)
{
    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_MEMORY))
        return true;
    sandbox_locks_count(s->spawner);
    if (s->locks > s->spawner->locks_bound && s->locks >= s->spawner->locks_least)
        s->locks_over = s->spawner->locks_bound;
    else if (too_many_sockets(s))
        s->too_many_sockets = true;
    else
        return true;
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
