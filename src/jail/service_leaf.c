/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_leaf.c: brig-init asks for a cgroup per process, and for its end. Whoever is asking may have been taken over:
 *
 * - who is to be moved is what the kernel says of the sender (SCM_CREDENTIALS), never a number in a payload;
 * - a sandbox has at most as many leaves as its limit of processes, and LEAVES_MAX;
 * - a round of the loop handles a few of its frames, then the others' turn comes (service_recv() reads that many);
 * - an answer that it does not read is its end: nothing is queued here.
 *
 * A leaf that is to end is killed, looked at until it is empty, counted and removed; mostly it is empty at once.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "jail/spawner.h"
#include "jail/sys.h"

#define LEAVES_MAX 1024u
#define LOOK_FIRST_NS (NS_PER_MS / 2)
#define LOOK_LONGEST_NS (20 * NS_PER_MS)

struct leaf {
    struct leaf *next;
    uint32_t number;
    bool ending;
};

/* Like fd_recv_nowait() without room for descriptors, and who sent it: 0 when that is not to be known. */
ssize_t service_recv(int sock, void *data, size_t size, pid_t *ret_pid)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    bool descriptors = false;
    ssize_t n;

    do
        n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *ret_pid = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
            struct ucred from;
            memcpy(&from, CMSG_DATA(c), sizeof from);
            *ret_pid = from.pid;
        } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            int fd;
            descriptors = true;
            for (size_t at = 0; CMSG_LEN(at + sizeof fd) <= c->cmsg_len; at += sizeof fd) {
                memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
                close(fd);
            }
        }
    }
    return descriptors || (msg.msg_flags & MSG_CTRUNC) ? -EPROTO : n;
}

/* Not reading is breaking the protocol; being dead is not. */
static int tell(struct sandbox *s, enum frame_type type, const uint8_t *wire, int len)
{
    int r = len < 0 ? len : sandbox_send_frame(s, type, wire, (size_t)len, NULL);

    return r == -EPIPE || r == -ECONNRESET ? 0 : r;
}

static struct leaf **find(struct sandbox *s, uint32_t number)
{
    struct leaf **at = &s->leaves;

    while (*at && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void forget(struct sandbox *s, struct leaf **at)
{
    struct leaf *leaf = *at;

    *at = leaf->next;
    s->n_leaves--;
    mem_free(leaf);
}

void service_leaves_done(struct sandbox *s)
{
    loop_timer_clear(s->spawner->loop, &s->on_leaves);
    while (s->leaves)
        forget(s, &s->leaves); /* the cgroups go with the sandbox's own */
}

/* ---- a process gets its own ------------------------------------------------------------------------ */

static int make(struct sandbox *s, uint32_t number, pid_t pid)
{
    if (s->n_leaves >= LEAVES_MAX || s->n_leaves >= s->limits.pids)
        return -EAGAIN;
    struct leaf *leaf = mem_zalloc(sizeof *leaf);
    if (!leaf)
        return -ENOMEM;
    leaf->number = number;
    int r = cg_leaf_create(&s->cg, number, s->limits.pids);
    if (r < 0) {
        mem_free(leaf);
        return r;
    }
    leaf->next = s->leaves;
    s->leaves = leaf;
    s->n_leaves++;
    r = cg_leaf_enter(&s->cg, number, s->spawner->host.proc_fd, pid, s->pid);
    if (r < 0 && cg_leaf_remove(&s->cg, number) == 0)
        forget(s, find(s, number)); /* else it has children of the one that died: it ends like any other, or with the sandbox */
    return r;
}

int service_leaf(struct sandbox *s, uint32_t number, pid_t pid)
{
    uint8_t wire[GUEST_LEAF_READY_SIZE];

    if (!s->has_leaves || !s->started || pid <= 0 || *find(s, number))
        return -EPROTO;
    spawner_active(s->spawner);
    int r = make(s, number, pid);
    const struct guest_leaf_ready ready = {number, r < 0 ? (uint32_t)-r : 0};
    return tell(s, FRAME_LEAF_READY, wire, guest_leaf_ready_put(wire, sizeof wire, &ready));
}

/* ---- and its end ------------------------------------------------------------------------------------ */

static int say_gone(struct sandbox *s, const struct guest_leaf_gone *gone)
{
    uint8_t wire[GUEST_LEAF_GONE_SIZE];

    return tell(s, FRAME_LEAF_GONE, wire, guest_leaf_gone_put(wire, sizeof wire, gone));
}

/* 1: gone and said, 0: not empty yet. */
static int try_end(struct sandbox *s, struct leaf **at)
{
    struct guest_leaf_gone gone;
    uint32_t number = (*at)->number;

    if (!cg_leaf_is_empty(&s->cg, number))
        return 0;
    cg_leaf_count(&s->cg, number, &gone);
    if (cg_leaf_remove(&s->cg, number) < 0)
        return 0;
    forget(s, at);
    s->leaf_oom_kills += gone.oom_kills;
    s->leaf_pids_refused += gone.pids_refused;
    sandbox_measure(s); /* the store's fill, at a moment when it may have changed */
    int r = say_gone(s, &gone);
    return r < 0 ? r : 1;
}

static void on_leaves(struct loop_timer *timer)
{
    struct sandbox *s = timer->ctx;
    bool wait = false;

    for (struct leaf **at = &s->leaves; *at;) {
        struct leaf *leaf = *at;
        int r = leaf->ending ? try_end(s, at) : 0;
        if (r < 0) {
            sandbox_broken(s);
            return;
        }
        wait |= r == 0 && leaf->ending;
        if (r == 0)
            at = &leaf->next;
    }
    s->leaf_wait = s->leaf_wait * 2 > LOOK_LONGEST_NS ? LOOK_LONGEST_NS : s->leaf_wait * 2;
    if (wait && loop_timer_set(s->spawner->loop, &s->on_leaves, clock_mono_ns() + s->leaf_wait, NULL) < 0)
        sandbox_broken(s);
}

int service_leaf_end(struct sandbox *s, uint32_t number)
{
    struct leaf **at = find(s, number);

    if (!s->has_leaves || !s->started)
        return -EPROTO;
    if (!*at) /* one that could not be had: it is gone */
        return say_gone(s, &(struct guest_leaf_gone){.leaf = number, .cpu_ns = BRIG_USAGE_UNKNOWN, .memory_peak = BRIG_USAGE_UNKNOWN,
                                                     .pids_peak = BRIG_USAGE_UNKNOWN});
    if ((*at)->ending)
        return -EPROTO;
    (*at)->ending = true;
    int r = try_end(s, at);
    if (r != 0)
        return r < 0 ? r : 0;
    cg_leaf_kill(&s->cg, number);
    s->leaf_wait = LOOK_FIRST_NS;
    s->on_leaves.fn = on_leaves;
    s->on_leaves.ctx = s;
    return loop_timer_set(s->spawner->loop, &s->on_leaves, clock_mono_ns() + LOOK_FIRST_NS, NULL);
}

/* v1 counts where it happened, v2 all the way up. */
static uint64_t total(uint64_t own, uint64_t leaves, bool v2)
{
    return !v2 ? own + leaves : own > leaves ? own : leaves;
}

uint64_t service_oom_kills(const struct sandbox *s)
{
    return total(cg_oom_kills(&s->cg), s->leaf_oom_kills, cg_host_by(&s->spawner->host.cg, CG_MEMORY) == BY_CGROUP_V2);
}

uint64_t service_pids_refused(const struct sandbox *s)
{
    return total(cg_pids_refusals(&s->cg), s->leaf_pids_refused, cg_host_by(&s->spawner->host.cg, CG_PIDS) == BY_CGROUP_V2);
}
