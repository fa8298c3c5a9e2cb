/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns_port.c: serves port 53 of a sandbox over UDP and TCP. dns_server.c decides the answers. This file handles the
 * datagrams (the answer comes from the address that was asked, whichever the program picked), the frames of TCP, and
 * the reports. The questions of a slot have a rate; over it they are dropped, as a network would do. A name that was
 * reported within the last second is not reported again.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define BATCH 32
#define UDP_QUERY_MAX 4096u
#define TCP_QUERY_MAX 4096u /* a question is at most a few hundred bytes */
#define TCP_MESSAGES 32u
#define TCP_IDLE_NS (5 * NS_PER_SEC)

static uint64_t hash_of(const char *text, bool allowed)
{
    uint64_t hash = UINT64_C(1469598103934665603) ^ (allowed ? 1 : 0);

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return hash ? hash : 1;
}

static void tell(struct slot *slot, const struct dns_verdict *verdict)
{
    uint64_t hash = hash_of(verdict->name, verdict->allowed), now = loop_now_ns();
    struct gate_event event;

    if (verdict->allowed)
        slot->counts.names_allowed++;
    else
        slot->counts.names_refused++;
    if (slot->seen[hash % NAMES_SEEN].hash == hash && now - slot->seen[hash % NAMES_SEEN].at_ns < NS_PER_SEC)
        return;
    memset(&event, 0, sizeof event);
    event.head = (struct gate_head){GATE_MAGIC, GATE_VERSION, GATE_EVENT, slot->number};
    event.policy_version = slot->version;
    event.verdict = verdict->allowed ? GATE_ALLOWED : GATE_DENIED;
    event.rule = -1;
    event.dns = 1;
    if (str_copy(event.name, sizeof event.name, verdict->name) < 0 ||
        str_copy(event.why, sizeof event.why, verdict->allowed ? "the policy names it" : "no rule names it") < 0 ||
        outbox_event(slot, &event) < 0)
        return;
    slot->seen[hash % NAMES_SEEN].hash = hash;
    slot->seen[hash % NAMES_SEEN].at_ns = now;
}

/* false: no answer. */
static bool answer(struct slot *slot, const uint8_t *query, size_t len, bool tcp, struct buf *out)
{
    struct dns_verdict verdict = {0};

    if (!bucket_take(&slot->questions, loop_now_ns(), 1)) {
        slot_tell_limit(slot, TOLD_QUESTIONS, BRIG_LIMIT_CONNECTIONS, "too many DNS questions in a second");
        return false;
    }
    if (dns_serve(slot->names, slot->policy, query, len, tcp, out, &verdict) < 0)
        return false;
    if (verdict.valid)
        tell(slot, &verdict);
    return out->len > 0;
}

/* ---- UDP ------------------------------------------------------------------------------------------------------ */

union control {
    struct cmsghdr align;
    char space[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(struct in_pktinfo))];
};

/* The control data of the answer: "from the address you asked". */
static size_t turn_around(struct msghdr *msg, union control *control)
{
    union control from = *control;
    struct msghdr in = {.msg_control = from.space, .msg_controllen = msg->msg_controllen};
    struct msghdr out = {.msg_control = control->space, .msg_controllen = sizeof control->space};

    for (struct cmsghdr *c = CMSG_FIRSTHDR(&in); c; c = CMSG_NXTHDR(&in, c)) {
        struct cmsghdr *to = CMSG_FIRSTHDR(&out);
        memset(control, 0, sizeof *control);
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info, back = {0};
            memcpy(&info, CMSG_DATA(c), sizeof info);
            back.ipi_spec_dst = info.ipi_addr;
            *to =
                (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof back), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
            memcpy(CMSG_DATA(to), &back, sizeof back);
            return CMSG_SPACE(sizeof back);
        }
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr))
                info.ipi6_ifindex = 0;
            *to = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof info), .cmsg_level = IPPROTO_IPV6, .cmsg_type = IPV6_PKTINFO};
            memcpy(CMSG_DATA(to), &info, sizeof info);
            return CMSG_SPACE(sizeof info);
        }
    }
    return 0;
}

void dns_udp_ready(struct listener *listener)
{
    AUTO_BUF struct buf out = BUF_INIT(DNS_TCP_MAX);
    uint8_t query[UDP_QUERY_MAX];

    for (int i = 0; i < BATCH && !outbox_full(listener->slot); i++) {
        struct sockaddr_storage from;
        union control control;
        struct iovec iov = {query, sizeof query};
        struct msghdr msg = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
        ssize_t n = recvmsg(listener->fd, &msg, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == ECONNREFUSED))
            continue;
        if (n < 0)
            return;
        out.len = 0;
        if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !answer(listener->slot, query, (size_t)n, false, &out))
            continue;
        msg.msg_controllen = turn_around(&msg, &control);
        iov = (struct iovec){out.data, out.len};
        if (sendmsg(listener->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            continue; /* lost, as datagrams are */
    }
}

/* ---- TCP ------------------------------------------------------------------------------------------------------ */

struct dns_tcp {
    struct slot *slot;
    struct dns_tcp *prev, *next;
    struct loop_source source;
    struct loop_timer timer;
    int fd;
    unsigned messages;
    struct buf in;
};

static void tcp_close(struct dns_tcp *conn)
{
    struct slot *slot = conn->slot;

    loop_remove(slot->egress->loop, &conn->source);
    loop_timer_clear(slot->egress->loop, &conn->timer);
    base_close_fd(&conn->fd);
    list_remove(&slot->dns_tcp, conn);
    slot->n_dns_tcp--;
    share_give(slot, SHARE_LISTENERS, 1);
    buf_done(&conn->in);
    mem_free(conn);
}

void dns_tcp_close_all(struct slot *slot)
{
    while (slot->dns_tcp)
        tcp_close(slot->dns_tcp);
}

/* Every whole message is answered; an answer that the socket does not take at once ends it: they are small. */
static bool tcp_serve(struct dns_tcp *conn)
{
    while (conn->in.len >= 2) {
        const uint8_t *data = (const uint8_t *)conn->in.data;
        size_t len = (size_t)data[0] << 8 | data[1];
        AUTO_BUF struct buf out = BUF_INIT(DNS_TCP_MAX);

        if (len > TCP_QUERY_MAX - 2 || len < 12)
            return false;
        if (conn->in.len < 2 + len)
            return true;
        if (++conn->messages > TCP_MESSAGES || outbox_full(conn->slot) ||
            !answer(conn->slot, data + 2, len, true, &out))
            return false;
        uint8_t frame[2] = {(uint8_t)(out.len >> 8), (uint8_t)out.len};
        struct iovec iov[2] = {{frame, 2}, {out.data, out.len}};
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        if (sendmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)(out.len + 2))
            return false;
        buf_consume(&conn->in, 2 + len);
    }
    return true;
}

static void tcp_io(struct loop_source *source, uint32_t events UNUSED)
{
    struct dns_tcp *conn = source->ctx;
    char data[TCP_QUERY_MAX];
    ssize_t n = recv(conn->fd, data, TCP_QUERY_MAX - conn->in.len, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || buf_append(&conn->in, data, (size_t)n) < 0 || !tcp_serve(conn) ||
        loop_timer_set(conn->slot->egress->loop, &conn->timer, loop_now_ns() + TCP_IDLE_NS, NULL) < 0)
        tcp_close(conn);
}

static void tcp_timeout(struct loop_timer *timer)
{
    tcp_close(timer->ctx);
}

void dns_tcp_accept(struct slot *slot, int sock)
{
    AUTO_FD int fd = sock;
    struct loop *loop = slot->egress->loop;

    if (slot->n_dns_tcp >= DNS_TCP_MAX_OPEN || !share_has(slot, SHARE_LISTENERS, 1))
        return;
    struct dns_tcp *conn = mem_zalloc(sizeof *conn);
    if (!conn)
        return;
    conn->slot = slot;
    conn->fd = take_fd(&fd);
    conn->in = BUF_INIT(TCP_QUERY_MAX);
    conn->source = (struct loop_source){.fn = tcp_io, .ctx = conn};
    conn->timer = (struct loop_timer){.fn = tcp_timeout, .ctx = conn};
    list_push(&slot->dns_tcp, conn);
    slot->n_dns_tcp++;
    share_charge(slot, SHARE_LISTENERS, 1);
    if (loop_add(loop, &conn->source, conn->fd, EPOLLIN, NULL) < 0 ||
        loop_timer_set(loop, &conn->timer, loop_now_ns() + TCP_IDLE_NS, NULL) < 0)
        tcp_close(conn);
}
