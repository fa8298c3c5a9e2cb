/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver_query.c: asks the name servers one question.
 *
 * Theory of operation. An attempt is one server over UDP: a fresh socket (so a fresh source port of the kernel's
 * choice), connected (so that only that server's datagrams arrive), a fresh id from the kernel's generator. A datagram
 * with another id or question is ignored. After more of them than an honest network brings, the attempt is given up,
 * and with it the id and the port that somebody is guessing. A truncated reply is asked for again over TCP from the
 * same server, a FORMERR again without EDNS. Whatever else goes wrong (timeout, refusal, a malformed reply, no
 * descriptor) leads to the next attempt; servers take turns, `attempts` times each.
 *
 * Everything happens in callbacks of the loop: query_start() only arms a timer that is due at once. done may free the
 * query.
 */
#include "egress/resolver_priv.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"

#define STRANGERS_MAX 100u
#define DATAGRAM_MAX 4096u /* more than we advertise: some do not listen */
#define QUERY_MAX 512u

static void attempt(struct query *query);

static void close_socket(struct query *query)
{
    loop_remove(query->loop, &query->source);
    base_close_fd(&query->fd);
    buf_done(&query->in);
}

static void finish(struct query *query, int r, const struct dns_reply *reply)
{
    query_fn *done = query->done;
    void *ctx = query->ctx;

    query_cancel(query);
    done(ctx, r, reply);
}

void query_cancel(struct query *query)
{
    if (!query->loop)
        return;
    close_socket(query);
    loop_timer_clear(query->loop, &query->timer);
    buf_done(&query->out);
    query->loop = NULL;
}

/* A reply to our question: 0 when the query is settled (and gone), or why the next attempt is due. */
static int take_reply(struct query *query, const struct dns_reply *reply)
{
    if (reply->rcode == DNS_NOERROR || reply->rcode == DNS_NXDOMAIN) {
        finish(query, 0, reply);
        return 0;
    }
    if ((reply->rcode == DNS_FORMERR || reply->rcode == DNS_NOTIMP) && !query->no_edns) {
        query->no_edns = true; /* once, and from the same server */
        query->tried--;
    }
    return -EREMOTEIO;
}

static void fail_attempt(struct query *query, int error)
{
    query->last_error = error;
    attempt(query);
}

/* ---- sockets ---------------------------------------------------------------------------------------------- */

/* The question with a new id, and for TCP its length before it. */
static int write_question(struct query *query)
{
    uint16_t id;

    query->out.len = 0;
    if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
        return -EIO;
    query->id = id;
    int r = query->tcp ? buf_append(&query->out, "\0\0", 2) : 0;
    if (r == 0)
        r = dns_query_put(&query->out, id, query->name, query->type);
    if (r < 0)
        return r;
    uint8_t *message = (uint8_t *)query->out.data + (query->tcp ? 2 : 0);
    if (query->no_edns) {
        query->out.len -= DNS_OPT_LEN;
        message[11] = 0; /* additional records */
    }
    if (query->tcp) {
        size_t len = query->out.len - 2;
        message[-2] = (uint8_t)(len >> 8);
        message[-1] = (uint8_t)len;
    }
    return 0;
}

static int open_socket(struct query *query, const struct gate_addr *server, loop_io_fn *fn, uint32_t events)
{
    sa_family_t family = gate_addr_is_v4(server) ? AF_INET : AF_INET6;
    struct sockaddr_storage to;
    socklen_t len = gate_addr_to(server, family, &to);

    query->fd = socket(family, (query->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (query->fd < 0)
        return -errno;
    if (connect(query->fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)
        return -errno;
    int r = write_question(query);
    if (r < 0)
        return r;
    query->source = (struct loop_source){.fd = -1, .fn = fn, .ctx = query};
    r = loop_add(query->loop, &query->source, query->fd, events, NULL);
    if (r < 0)
        return r;
    return loop_timer_set(query->loop, &query->timer, loop_now_ns() + query->servers.timeout_s * NS_PER_SEC, NULL);
}

/* ---- TCP -------------------------------------------------------------------------------------------------- */

static int tcp_send(struct query *query)
{
    ssize_t n = send(query->fd, query->out.data, query->out.len, MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    buf_consume(&query->out, (size_t)n);
    return query->out.len == 0 ? loop_modify(query->loop, &query->source, EPOLLIN, NULL) : 0;
}

/* 0: wait on; 1: the query is gone; or an error. */
static int tcp_receive(struct query *query)
{
    struct dns_reply reply;
    size_t want = 2;

    if (query->in.len >= 2)
        want = 2 + ((size_t)(uint8_t)query->in.data[0] << 8 | (uint8_t)query->in.data[1]);
    int r = buf_reserve(&query->in, want - query->in.len);
    if (r < 0)
        return r;
    ssize_t n = recv(query->fd, query->in.data + query->in.len, want - query->in.len, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    buf_commit(&query->in, (size_t)n);
    if (query->in.len < want)
        return 0;
    if (want == 2) /* the length has come; an empty message is none */
        return query->in.data[0] == 0 && query->in.data[1] == 0 ? -EBADMSG : 0;
    r = dns_reply_parse((const uint8_t *)query->in.data + 2, query->in.len - 2, query->id, query->name, query->type,
                        &reply);
    if (r < 0)
        return -EREMOTEIO;
    if (reply.truncated)
        return -EREMOTEIO;
    r = take_reply(query, &reply);
    return r < 0 ? r : 1;
}

static void tcp_ready(struct loop_source *source, UNUSED uint32_t events)
{
    struct query *query = source->ctx;
    int r = query->out.len > 0 ? tcp_send(query) : tcp_receive(query);

    if (r < 0)
        fail_attempt(query, r);
}

static void switch_to_tcp(struct query *query)
{
    const struct gate_addr server = query->servers.at[(query->first + query->tried - 1) % query->servers.n];

    close_socket(query);
    query->tcp = true;
    int r = open_socket(query, &server, tcp_ready, EPOLLOUT);
    if (r < 0)
        fail_attempt(query, r);
}

/* ---- UDP -------------------------------------------------------------------------------------------------- */

static void udp_ready(struct loop_source *source, UNUSED uint32_t events)
{
    struct query *query = source->ctx;
    uint8_t data[DATAGRAM_MAX];
    struct dns_reply reply;
    ssize_t n = recv(query->fd, data, sizeof(data), MSG_TRUNC);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fail_attempt(query, -errno); /* nobody there, said by ICMP */
        return;
    }
    int r = (size_t)n <= sizeof(data) ? dns_reply_parse(data, (size_t)n, query->id, query->name, query->type, &reply)
                                      : -ENOMSG;
    if (r == -ENOMSG && ++query->strangers < STRANGERS_MAX)
        return;
    if (r < 0) {
        fail_attempt(query, -EREMOTEIO);
        return;
    }
    if (reply.truncated) {
        switch_to_tcp(query);
        return;
    }
    r = take_reply(query, &reply);
    if (r < 0)
        fail_attempt(query, r);
}

static int udp_start(struct query *query)
{
    const struct gate_addr *server = &query->servers.at[(query->first + query->tried - 1) % query->servers.n];
    int r = open_socket(query, server, udp_ready, EPOLLIN);

    if (r < 0)
        return r;
    ssize_t n = send(query->fd, query->out.data, query->out.len, MSG_NOSIGNAL);
    return n < 0 ? -errno : 0;
}

/* The next server, or the end. */
static void attempt(struct query *query)
{
    for (;;) {
        close_socket(query);
        if (query->tried >= query->servers.n * query->servers.attempts) {
            finish(query, query->last_error, NULL);
            return;
        }
        query->tried++;
        query->tcp = false;
        query->strangers = 0;
        int r = udp_start(query);
        if (r == 0)
            return;
        query->last_error = r;
    }
}

static void on_timer(struct loop_timer *timer)
{
    struct query *query = timer->ctx;

    if (query->fd >= 0)
        query->last_error = -ETIMEDOUT;
    attempt(query);
}

int query_start(struct query *query, struct loop *loop, const struct resolver_servers *servers, size_t first,
                const char *name, uint16_t type, query_fn *done, void *ctx)
{
    *query = (struct query){.loop = loop,
                            .name = name,
                            .type = type,
                            .servers = *servers,
                            .first = first,
                            .last_error = -ETIMEDOUT,
                            .fd = -1,
                            .source = {.fd = -1},
                            .timer = {.fn = on_timer, .ctx = query},
                            .out = BUF_INIT(QUERY_MAX),
                            .in = BUF_INIT(2 + DNS_TCP_MAX),
                            .done = done,
                            .ctx = ctx};
    int r = loop_timer_set(loop, &query->timer, loop_now_ns(), NULL);
    if (r < 0)
        query->loop = NULL;
    return r;
}
