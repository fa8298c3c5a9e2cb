/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_leaf.c: brig-init asks for a cgroup per process, and for its end; the mover does it. The process that asks
 * may have been taken over:
 *
 * - The kernel says who is moved, by the credentials of the sender (SCM_CREDENTIALS), never a number in a payload.
 * - A sandbox has at most as many leaves as its limit of processes, and LEAVES_MAX.
 * - While OPS_MAX of its requests are under way, nothing more is read from it: it waits, the others do not.
 * - If it does not read an answer, it is ended: nothing is queued for it here.
 *
 *     LEAF --> entering --READY 0--> in --LEAF_END--> ending --GONE-->
 *                  \---READY errno-->
 *
 * Each arrow to and from the mover is one request. If LEAF_END comes while a process is entering, the leaf ends as soon
 * as the process is in.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/mover.h"
#include "spawner/spawner.h"

#define LEAVES_MAX 1024u
#define OPS_MAX 16u

enum leaf_state { LEAF_ENTERING, LEAF_IN, LEAF_ENDING };

struct leaf {
    struct leaf *next;
    uint32_t number;
    enum leaf_state state;
    bool end_wanted;
};

struct leaf_queued {
    struct leaf_queued *next;
    struct move_request request;
};

/* Like fd_recv_nowait() without room for descriptors, and who sent it: 0 when that is not to be known. */
ssize_t service_recv(int sock, void *data, size_t size, pid_t *ret_pid)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    bool descriptors = false;
    ssize_t n;

    do
        n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    *ret_pid = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
            c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
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

void service_leaves_limit(struct sandbox *s)
{
    for (const struct leaf *leaf = s->leaves; leaf; leaf = leaf->next)
        cg_leaf_limit(&s->cg, leaf->number, s->run->limits.pids);
}

void service_leaves_done(struct sandbox *s)
{
    while (s->leaves)
        forget(s, &s->leaves); /* the cgroups go with the sandbox's own */
}

/* ---- the mover -------------------------------------------------------------------------------------- */

static void on_mover(struct loop_source *source, uint32_t events);

static void stop_mover(struct spawner *spawner)
{
    struct movers *m = &spawner->mover;

    if (m->on_answer.fd >= 0)
        loop_remove(spawner->loop, &m->on_answer);
    base_close_fd(&m->fd);
    for (struct leaf_queued *next; m->queue; m->queue = next) {
        next = m->queue->next;
        mem_free(m->queue);
    }
    while (m->pid > 0 && waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    m->pid = 0;
}

void service_mover_done(struct spawner *spawner)
{
    if (spawner->mover.pid > 0)
        stop_mover(spawner);
}

static int start_mover(struct spawner *spawner)
{
    const struct host *host = &spawner->host;
    struct movers *m = &spawner->mover;
    int pair[2];

    if (SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) < 0)
        return -errno;
    struct cg_host copy = host->cg;
    pid_t pid = SYS(fork());
    if (pid == 0) {
        reaper_close_others(&copy, (const int[]){pair[1], host->proc_fd}, 2);
        mover_main(pair[1], &copy, host->proc_fd);
    }
    close(pair[1]);
    m->fd = pair[0];
    m->pid = pid;
    m->events = EPOLLIN;
    m->on_answer = (struct loop_source){.fd = -1, .fn = on_mover, .ctx = spawner};
    if (pid < 0 || loop_add(spawner->loop, &m->on_answer, m->fd, EPOLLIN, NULL) < 0) {
        stop_mover(spawner);
        return -ENOMEM;
    }
    return 0;
}

static void flush(struct spawner *spawner)
{
    struct movers *m = &spawner->mover;

    while (m->queue && fd_send_nowait(m->fd, &m->queue->request, sizeof m->queue->request, NULL, 0) == 0) {
        struct leaf_queued *first = m->queue;
        m->queue = first->next;
        mem_free(first);
    }
    uint32_t events = EPOLLIN | (m->queue ? (uint32_t)EPOLLOUT : 0);
    if (events != m->events && loop_modify(spawner->loop, &m->on_answer, events, NULL) == 0)
        m->events = events;
}

/* While it has much under way, its socket is not read. */
static int count_ops(struct sandbox *s, int change)
{
    struct loop *loop = s->spawner->loop;

    s->leaf_ops = (unsigned)((int)s->leaf_ops + change);
    if (s->leaf_ops >= OPS_MAX && s->on_control.fd >= 0)
        return loop_modify(loop, &s->on_control, 0, NULL);
    if (s->leaf_ops == OPS_MAX / 2 && s->on_control.fd >= 0)
        return loop_modify(loop, &s->on_control, EPOLLIN, NULL);
    return 0;
}

static int ask(struct sandbox *s, enum move_type type, uint32_t leaf, pid_t pid)
{
    struct movers *m = &s->spawner->mover;
    int r = m->pid > 0 ? 0 : start_mover(s->spawner);
    struct leaf_queued *queued = r == 0 ? mem_zalloc(sizeof *queued) : NULL;

    if (!queued)
        return r < 0 ? r : -ENOMEM;
    queued->request = (struct move_request){.type = type,
                                            .leaf = leaf,
                                            .run = s->run->number,
                                            .split = s->cg.split,
                                            .pid = pid,
                                            .init = s->pid,
                                            .pids = s->limits.pids};
    str_assign(queued->request.name, s->cg.name);
    struct leaf_queued **end = m->queue ? &m->queue_end->next : &m->queue;
    *end = m->queue_end = queued;
    flush(s->spawner);
    return count_ops(s, 1);
}

/* ---- brig-init's side ------------------------------------------------------------------------------- */

/* Not reading is breaking the protocol; being dead is not. */
static int tell(struct sandbox *s, enum frame_type type, const uint8_t *wire, int len)
{
    int r = len < 0 ? len : sandbox_send_frame(s, type, wire, (size_t)len, NULL);

    return r == -EPIPE || r == -ECONNRESET ? 0 : r;
}

static int say_ready(struct sandbox *s, uint32_t number, int r)
{
    const struct guest_leaf_ready ready = {number, r < 0 ? (uint32_t)-r : 0};
    uint8_t wire[GUEST_LEAF_READY_SIZE];

    return tell(s, FRAME_LEAF_READY, wire, guest_leaf_ready_put(wire, sizeof wire, &ready));
}

static int say_gone(struct sandbox *s, const struct guest_leaf_gone *gone)
{
    uint8_t wire[GUEST_LEAF_GONE_SIZE];

    return tell(s, FRAME_LEAF_GONE, wire, guest_leaf_gone_put(wire, sizeof wire, gone));
}

int service_leaf(struct sandbox *s, uint32_t number, pid_t pid)
{
    if (!s->has_leaves || !s->started || pid <= 0 || *find(s, number))
        return -EPROTO;
    spawner_active(s->spawner);
    if (s->n_leaves >= LEAVES_MAX || s->n_leaves >= s->limits.pids)
        return say_ready(s, number, -EAGAIN);
    struct leaf *leaf = mem_zalloc(sizeof *leaf);
    int r = leaf ? ask(s, MOVE_ENTER, number, pid) : -ENOMEM;
    if (r < 0) {
        mem_free(leaf);
        return say_ready(s, number, r);
    }
    *leaf = (struct leaf){.next = s->leaves, .number = number, .state = LEAF_ENTERING};
    s->leaves = leaf;
    s->n_leaves++;
    if (sandbox_watch_service(s, NULL) < 0)
        sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
    return 0;
}

int service_leaf_end(struct sandbox *s, uint32_t number)
{
    struct leaf *leaf = *find(s, number);

    if (!s->has_leaves || !s->started)
        return -EPROTO;
    if (!leaf) /* one that could not be had: it is gone */
        return say_gone(s, &(struct guest_leaf_gone){.leaf = number,
                                                     .cpu_ns = BRIG_USAGE_UNKNOWN,
                                                     .memory_peak = BRIG_USAGE_UNKNOWN,
                                                     .pids_peak = BRIG_USAGE_UNKNOWN});
    if (leaf->state == LEAF_ENDING || leaf->end_wanted)
        return -EPROTO;
    if (leaf->state == LEAF_ENTERING) {
        leaf->end_wanted = true;
        return 0;
    }
    leaf->state = LEAF_ENDING;
    return ask(s, MOVE_END, number, 0);
}

/* ---- answers ---------------------------------------------------------------------------------------- */

static int entered(struct sandbox *s, struct leaf **at, int r)
{
    struct leaf *leaf = *at;
    uint32_t number = leaf->number;
    bool end_wanted = leaf->end_wanted;
    int said = say_ready(s, number, r);

    leaf->state = LEAF_IN;
    leaf->end_wanted = false;
    if (r < 0)
        forget(s, at);
    return said == 0 && end_wanted ? service_leaf_end(s, number) : said;
}

static int left(struct sandbox *s, struct leaf **at, const struct guest_leaf_gone *gone)
{
    forget(s, at);
    s->leaf_oom_kills += gone->oom_kills;
    s->leaf_pids_refused += gone->pids_refused;
    (void)sandbox_measure(s);
    struct guest_leaf_gone said = *gone;
    said.store = s->store_now;
    return say_gone(s, &said);
}

static void on_answer(struct spawner *spawner, const struct move_answer *msg)
{
    struct sandbox *s = sandbox_by_run(spawner, msg->run);
    struct leaf **at = s ? find(s, msg->gone.leaf) : NULL;

    if (!s || !*at)
        return; /* it has ended meanwhile */
    int r = count_ops(s, -1);
    if (r == 0)
        r = msg->type == MOVE_ENTER ? entered(s, at, -msg->errnum) : left(s, at, &msg->gone);
    if (r < 0)
        sandbox_broken(s);
}

/* What was under way is lost: those who wait for it would wait for ever. */
static void mover_died(struct spawner *spawner)
{
    stop_mover(spawner);
    for (struct sandbox *s = spawner->lists[SANDBOX_RUNNING]; s; s = s->next)
        if (s->leaf_ops > 0) {
            (void)err_set(&s->failure, BRIG_E_HOST, ECHILD, "the spawner's mover died");
            sandbox_end(s, BRIG_CAUSE_HOST_ERROR);
        }
}

static void on_mover(struct loop_source *source, uint32_t events)
{
    struct spawner *spawner = source->ctx;

    if (events & EPOLLOUT)
        flush(spawner);
    for (int i = 0; i < 64; i++) {
        struct move_answer msg;
        ssize_t n = fd_recv_nowait(spawner->mover.fd, &msg, sizeof msg, NULL, 0, NULL);
        if (n == -EAGAIN)
            return;
        if (n != (ssize_t)sizeof msg) {
            mover_died(spawner);
            return;
        }
        on_answer(spawner, &msg);
    }
}

/* ---- counters --------------------------------------------------------------------------------------- */

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
    return total(cg_pids_refusals(&s->cg), s->leaf_pids_refused,
                 cg_host_by(&s->spawner->host.cg, CG_PIDS) == BY_CGROUP_V2);
}
