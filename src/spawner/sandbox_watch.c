/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_watch.c: bounds kernel memory that no cgroup counts. Nobody is charged for what waits in the queue of a
 * netlink socket, for what lies in the error queue of an inet socket (refusals, copies of what it sent), and for what a
 * UDP socket holds back (MSG_MORE). A queue may hold megabytes (net.core.rmem_max); a program with a thousand such
 * sockets held gigabytes of the host's memory with a memory limit of 64 MB. The kernel has no limit on the sum. So the
 * spawner looks, and ends a sandbox that has more than any honest program, as one that is out of memory. It counts:
 *
 *  - netlink sockets: at most 64;
 *  - queues of inet sockets that hold more than the memory limit, by the kernel's own list (sock_diag). Where cgroups
 *    count a part of it they keep that part below the limit, so only what they do not count can pass it;
 *  - inet sockets that are in no list (never bound, disconnected, reset), by what they could hold. The network
 *    namespace counts all sockets, and those in lists by protocol: the difference is their number;
 *  - TCP connections that no descriptor holds (closed with data to send, or never accepted). The first count against
 *    net.ipv4.tcp_max_orphans, one number for the whole host; the kernel makes the second and charges nobody;
 *  - IPv6 addresses that it has sent to. Each is an entry of the host's one table of neighbours, for a minute; on `lo`
 *    the kernel has no limit on them. A program that used 64 MB made 120,000 of them a second, 500 bytes each;
 *  - file locks, by the kernel's list (sandbox_locks.c).
 *
 * A service is looked at while a process runs in it that has used the processor: idle ones wake nobody.
 */
#include <linux/inet_diag.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
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

#define NETLINK_MAX 64        /* libc opens one for the moment of a look-up, and many threads may do that at once */
#define UNLISTED_MAX 1024     /* a client whose server has gone holds as many as it had connections */
#define DETACHED_MAX 4096u    /* as many as one listener may keep waiting (somaxconn) */
#define ORPHANS_SHARE 8u      /* and at most this part of what the host can have */
#define NEIGHBOURS_MAX 16384u /* 8 MiB */
#define TIMER_TIME_WAIT 3     /* idiag_timer of a connection that only waits for late packets: those are bounded */
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

static uint64_t host_number(const struct sandbox *s, const char *path, uint64_t otherwise)
{
    char text[32];
    uint64_t number;

    if (fd_read_file(s->spawner->host.proc_fd, path, text, sizeof text) <= 0 || parse_fields(text, &number, 1) != 1)
        return otherwise;
    return number;
}

/* What one socket can hold on this host: twice what it may ask for. */
static uint64_t queue_max(const struct sandbox *s)
{
    uint64_t max = 2 * host_number(s, "sys/net/core/rmem_max", 0);

    return max > QUEUE_MIN ? max : QUEUE_MIN;
}

static uint64_t detached_max(const struct sandbox *s)
{
    uint64_t max = host_number(s, "sys/net/ipv4/tcp_max_orphans", UINT64_MAX) / ORPHANS_SHARE;

    return max < DETACHED_MAX ? max : DETACHED_MAX;
}

struct asking {
    const struct sandbox *sandbox;
    int protocol;
};

static int open_netlink(void *arg)
{
    const struct asking *asking = arg;

    if (SYS(setns(asking->sandbox->pidfd, CLONE_NEWNET)) < 0)
        return -errno;
    int fd = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, asking->protocol));
    return fd < 0 ? -errno : fd;
}

/* A netlink socket of the sandbox's network namespace. */
static int ask_inside(const struct sandbox *s, int protocol)
{
    struct asking asking = {s, protocol};

    return inside_run(open_netlink, &asking);
}

/* Gives each message of a list to fn, until it says false. The kernel writes the list while it is read. */
static void read_list(int sock, uint16_t type, bool (*fn)(void *ctx, const uint8_t *message, size_t len), void *ctx)
{
    static _Alignas(NLMSG_ALIGNTO) uint8_t answer[32768];

    for (;;) {
        ssize_t n = SYS(recv(sock, answer, sizeof answer, MSG_DONTWAIT));
        if (n <= 0)
            return;
        for (size_t at = 0; at + NLMSG_HDRLEN <= (size_t)n;) {
            struct nlmsghdr head;
            memcpy(&head, answer + at, sizeof head);
            if (head.nlmsg_type != type || head.nlmsg_len < NLMSG_HDRLEN || head.nlmsg_len > (size_t)n - at)
                return; /* the end, or a kernel without it */
            if (!fn(ctx, answer + at + NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN))
                return;
            at += NLMSG_ALIGN(head.nlmsg_len);
        }
    }
}

struct held {
    uint64_t queued, detached;
};

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

static bool add_socket(void *ctx, const uint8_t *message, size_t len)
{
    struct held *held = ctx;
    struct inet_diag_msg msg;

    if (len < sizeof msg)
        return true;
    memcpy(&msg, message, sizeof msg);
    held->queued += queued(message, len);
    /* A socket of UDP has no inode only while it is being closed. */
    held->detached += msg.idiag_inode == 0 && msg.idiag_timer != TIMER_TIME_WAIT;
    return true;
}

static void add_sockets(struct held *held, int diag, int family, int protocol)
{
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

    if (SYS(send(diag, &dump, sizeof dump, 0)) >= 0)
        read_list(diag, SOCK_DIAG_BY_FAMILY, add_socket, held);
}

/* What the sandbox is ended for, or NULL. */
static const char *judge_sockets(const struct sandbox *s, const struct sockets *sockets, uint64_t memory)
{
    static const char queues[] =
        "too many netlink sockets, or too much in the queues of sockets: no cgroup counts that memory";
    uint64_t each = queue_max(s), detached = detached_max(s);
    struct held held = {0};

    if (sockets->netlink > NETLINK_MAX)
        return queues;
    if (memory == 0)
        return NULL;
    if (sockets->unlisted > UNLISTED_MAX && sockets->unlisted > memory / each)
        return queues;
    if (sockets->inet <= memory / each && sockets->inet <= detached)
        return NULL;
    AUTO_FD int diag = ask_inside(s, NETLINK_SOCK_DIAG);
    if (diag < 0)
        return NULL;
    static const int families[] = {AF_INET, AF_INET6};
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        add_sockets(&held, diag, families[i], IPPROTO_TCP);
        add_sockets(&held, diag, families[i], IPPROTO_UDP);
    }
    if (held.detached > detached)
        return "too many TCP connections that were closed or not accepted: no cgroup counts them";
    return held.queued > memory ? queues : NULL;
}

static bool add_neighbour(void *ctx, const uint8_t *message, size_t len)
{
    uint32_t *n = ctx;
    (void)message, (void)len;

    return ++*n <= NEIGHBOURS_MAX;
}

/* "Ip6OutRequests   3004": one who has sent few packets since the last look has few new neighbours. */
static uint64_t packets_sent(const struct sandbox *s)
{
    static const char name[] = "Ip6OutRequests";
    char path[32], text[8192];
    uint64_t sent;

    snprintf(path, sizeof path, "%d/net/snmp6", (int)s->pid);
    if (s->pid <= 0 || fd_read_file(s->spawner->host.proc_fd, path, text, sizeof text) <= 0)
        return 0;
    const char *line = strstr(text, name);
    return line && parse_fields(line + sizeof name - 1, &sent, 1) == 1 ? sent : 0;
}

static bool too_many_neighbours(struct sandbox *s)
{
    struct {
        struct nlmsghdr head;
        struct ndmsg ask;
    } dump = {.head = {.nlmsg_len = sizeof dump, .nlmsg_type = RTM_GETNEIGH, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
              .ask = {.ndm_family = AF_INET6}};
    uint64_t sent = packets_sent(s);
    uint32_t n = 0;

    if (sent - s->neighbours_sent <= NEIGHBOURS_MAX / 2)
        return false;
    AUTO_FD int sock = ask_inside(s, NETLINK_ROUTE);
    if (sock < 0 || SYS(send(sock, &dump, sizeof dump, 0)) < 0)
        return false;
    read_list(sock, RTM_NEWNEIGH, add_neighbour, &n);
    if (n <= NEIGHBOURS_MAX / 2) /* else look again soon, however little it sends until then */
        s->neighbours_sent = sent;
    return n > NEIGHBOURS_MAX;
}

static const char *judge_network(struct sandbox *s)
{
    const struct brig_limits *limits = s->run ? &s->run->limits : &s->limits;
    struct sockets sockets;
    const char *why = NULL;

    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_NET_NS))
        return NULL;
    if (count_sockets(s, &sockets))
        why = judge_sockets(s, &sockets, limits->memory);
    if (!why && too_many_neighbours(s))
        why = "it has sent to too many IPv6 addresses: no cgroup counts the memory of the host's table of neighbours";
    return why;
}

bool sandbox_watch(struct sandbox *s)
{
    if (s->spawner->off & BRIG_LAYER_BIT(BRIG_LAYER_MEMORY))
        return true;
    sandbox_locks_count(s->spawner);
    if (s->locks > s->spawner->locks_bound && s->locks >= s->spawner->locks_least)
        s->locks_over = s->spawner->locks_bound;
    else if (!(s->over = judge_network(s)))
        return true;
    sandbox_end(s, BRIG_CAUSE_OOM);
    return false;
}

static void on_look(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    uint64_t used = cg_cpu_ns(&s->cg);
    bool busy = used == BRIG_USAGE_UNKNOWN || used - s->watched_cpu_ns >= BUSY_NS;

    if (used != BRIG_USAGE_UNKNOWN && busy)
        s->watched_cpu_ns = used;
    s->watched = s->n_leaves > 0 || !s->has_leaves; /* without leaves nobody tells us of processes */
    if (busy && !sandbox_watch(s)) /* also when the last process has ended: what it leaves in the kernel stays */
        return;
    if (!s->watched)
        return;
    if (loop_timer_set(s->spawner->loop, timer, clock_mono_ns() + LOOK_NS, NULL) < 0)
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
}

int sandbox_watch_service(struct sandbox *s, struct brig_err *err)
{
    if (s->watched || (s->n_leaves == 0 && s->has_leaves))
        return 0;
    s->watched = true;
    s->on_sample = (struct loop_timer){.fn = on_look, .ctx = s};
    return loop_timer_set(s->spawner->loop, &s->on_sample, clock_mono_ns() + LOOK_NS, err);
}
