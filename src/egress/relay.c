/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay.c: moves bytes between the two sides of a connection. Bytes are read into memory that all connections share and
 * sent at once. Only what the other side does not take is kept, and then nothing more is read for it; so a slow reader
 * costs one chunk, and an idle connection costs nothing. A FIN is passed on after the bytes before it. A side from
 * which nothing is expected is not in the epoll set at all, because a closed connection is always "ready".
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "egress/egress_priv.h"

#define BULK_MIN (64u << 10) /* at once: worth a splice */
#define PIECE (16u << 10)    /* when too much is pending already */
#define ROUNDS 4             /* chunks of one connection before others have their turn */

/* ---- one side ------------------------------------------------------------------------------------------- */

int side_watch(struct conn *conn, struct side *side, uint32_t events)
{
    struct loop *loop = conn->slot->egress->loop;

    if (side->fd < 0)
        return 0;
    if (events == 0) {
        loop_remove(loop, &side->source);
        return 0;
    }
    if (side->source.slot != 0)
        return loop_modify(loop, &side->source, events, NULL);
    return loop_add(loop, &side->source, side->fd, events, NULL);
}

static void account(struct conn *conn, size_t more, size_t less)
{
    conn->slot->pending += more - less;
    share_charge(conn->slot, SHARE_MEMORY, more);
    share_give(conn->slot, SHARE_MEMORY, less);
}

static void drop(struct conn *conn, struct side *side)
{
    if (side->pend)
        account(conn, 0, side->pend->cap);
    mem_free(take_ptr(&side->pend));
}

void side_close(struct conn *conn, struct side *side, bool reset)
{
    const struct linger now = {.l_onoff = 1};

    if (side->fd >= 0) {
        loop_remove(conn->slot->egress->loop, &side->source);
        if (reset)
            setsockopt(side->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        base_close_fd(&side->fd);
    }
    drop(conn, side);
    side->eof = side->shut = side->fin_sent = false;
}

static int keep(struct conn *conn, struct side *side, const char *data, size_t len)
{
    struct pend *pend = side->pend;
    size_t used = pend ? pend->len - pend->at : 0;

    if (pend && pend->len + len <= pend->cap) {
        memcpy(pend->data + pend->len, data, len);
        pend->len += len;
        return 0;
    }
    struct pend *more = mem_alloc(sizeof *more + used + len);
    if (!more)
        return -ENOMEM;
    more->at = 0;
    more->len = more->cap = used + len;
    if (pend)
        memcpy(more->data, pend->data + pend->at, used);
    memcpy(more->data + used, data, len);
    account(conn, more->cap, pend ? pend->cap : 0);
    mem_free(pend);
    side->pend = more;
    return 0;
}

static void fin(struct side *side)
{
    if (side->shut && !side->pend && !side->fin_sent && side->fd >= 0) {
        shutdown(side->fd, SHUT_WR);
        side->fin_sent = true;
    }
}

int side_put(struct conn *conn, struct side *side, const void *data, size_t len)
{
    ssize_t n = 0;

    if (side->fd < 0)
        return -EPIPE;
    if (len == 0)
        return 0;
    if (!side->pend) {
        n = send(side->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n < 0)
            n = 0;
    }
    return (size_t)n == len ? 0 : keep(conn, side, (const char *)data + n, len - (size_t)n);
}

int side_flush(struct conn *conn, struct side *side)
{
    while (side->pend) {
        struct pend *pend = side->pend;
        ssize_t n = send(side->fd, pend->data + pend->at, pend->len - pend->at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        pend->at += (size_t)n;
        if (pend->at == pend->len)
            drop(conn, side);
    }
    fin(side);
    return 0;
}

void side_shut(struct side *side)
{
    side->shut = true;
    fin(side);
}

/* ---- both ----------------------------------------------------------------------------------------------- */

static struct side *other(struct conn *conn, struct side *side)
{
    return side == &conn->client ? &conn->server : &conn->client;
}

static bool wants(struct conn *conn, struct side *side)
{
    return side->fd >= 0 && !side->eof && !conn->waiting && !other(conn, side)->pend &&
           (!conn->plain || plain_wants(conn, side));
}

void relay_watch(struct conn *conn)
{
    if (conn->stage != CONN_RELAY && conn->stage != CONN_PLAIN)
        return;
    uint32_t client = (wants(conn, &conn->client) ? EPOLLIN : 0u) | (conn->client.pend ? EPOLLOUT : 0u);
    uint32_t server = (wants(conn, &conn->server) ? EPOLLIN : 0u) | (conn->server.pend ? EPOLLOUT : 0u);
    if (side_watch(conn, &conn->client, client) < 0 || side_watch(conn, &conn->server, server) < 0)
        conn_reset(conn, "out of memory");
}

static bool alive(const struct conn *conn)
{
    return conn->stage == CONN_RELAY || conn->stage == CONN_PLAIN;
}

static void at_eof(struct conn *conn, struct side *side)
{
    side->eof = true;
    if (conn->plain)
        plain_eof(conn, side);
    else if (conn->looking && side == &conn->client)
        conn_look_late(conn);
    else
        side_shut(other(conn, side));
}

/* Nothing is left of the budget: is there anything to be read at all? */
static void probe(struct conn *conn, struct side *side)
{
    char byte;
    ssize_t n = recv(side->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n > 0)
        budget_over(conn->slot, side == &conn->server);
    else if (n == 0)
        at_eof(conn, side);
    else if (errno != EAGAIN && errno != EINTR)
        conn_reset(conn, "reset");
}

/* ---- splice: from socket to socket without a copy through this process ---------------------------------- */

static void lost(struct conn *conn, bool in)
{
    conn_reset(conn, in ? "the client has gone" : "the server has gone");
}

/*
 * All connections share the pipe, so it must be empty afterwards: what the other side does not take at once is read out
 * of it and kept. Once something is kept, nothing more is spliced: the socket may have room again by then, and the
 * later bytes would overtake the kept ones. Returns false if the connection was ended.
 */
static bool empty_pipe(struct conn *conn, struct side *to, size_t left)
{
    const int *pipe_fd = conn->slot->egress->pipe;
    bool failed = false;

    while (left > 0) {
        ssize_t n;

        if (!failed && !to->pend) {
            n = splice(pipe_fd[0], NULL, to->fd, NULL, left, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
            if (n > 0) {
                left -= (size_t)n;
                continue;
            }
            failed = n < 0 && errno != EAGAIN && errno != EINTR;
        }
        n = read(pipe_fd[0], conn->slot->egress->chunk, left < EGRESS_CHUNK ? left : EGRESS_CHUNK);
        if (n <= 0)
            return false;
        left -= (size_t)n;
        if (!failed && keep(conn, to, conn->slot->egress->chunk, (size_t)n) < 0)
            failed = true;
    }
    return !failed;
}

/* Whether reading from a side came to bytes; errno says why it did not. */
static bool came(struct conn *conn, struct side *from, ssize_t n)
{
    bool in = from == &conn->server;

    if (n > 0)
        budget_charge(conn, in, (size_t)n);
    else if (n == 0)
        at_eof(conn, from);
    else if (errno != EAGAIN && errno != EINTR)
        conn_reset(conn, in ? "reset by the server" : "reset by the client");
    return n > 0;
}

/* As move(), for a side that has filled a whole chunk before. */
static bool move_pages(struct conn *conn, struct side *from, size_t room)
{
    bool in = from == &conn->server;
    ssize_t n = splice(from->fd, NULL, conn->slot->egress->pipe[1], NULL, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

    if (!came(conn, from, n))
        return false;
    from->bulk = (size_t)n >= BULK_MIN;
    if (!empty_pipe(conn, other(conn, from), (size_t)n))
        lost(conn, in);
    return (size_t)n == room;
}

static void hold_back(struct conn *conn, const char *data, size_t len)
{
    if (buf_append(&conn->first, data, len) < 0)
        conn_reset(conn, "out of memory");
    else
        conn_look_late(conn);
}

static size_t room_of(const struct conn *conn, const struct side *from)
{
    if (conn->looking && from == &conn->client)
        return conn->first.max - conn->first.len;
    if (conn->plain)
        return plain_room(conn, from);
    if (conn->slot->pending > SLOT_PENDING || !share_has(conn->slot, SHARE_MEMORY, 0))
        return PIECE;
    return from->bulk ? conn->slot->egress->pipe_size : EGRESS_CHUNK;
}

/* true: there may be more. */
static bool move(struct conn *conn, struct side *from)
{
    bool in = from == &conn->server;
    char *chunk = conn->slot->egress->chunk;
    size_t room = 0;

    enum grant grant = budget_grant(conn, in, room_of(conn, from), &room);
    if (grant == GRANT_WAIT) {
        budget_wait(conn);
        return false;
    }
    if (grant == GRANT_OVER) {
        probe(conn, from);
        return false;
    }
    if (from->bulk)
        return move_pages(conn, from, room);
    ssize_t n = recv(from->fd, chunk, room, MSG_DONTWAIT);
    if (!came(conn, from, n))
        return false;
    from->bulk = (size_t)n >= BULK_MIN && conn->slot->egress->pipe[0] >= 0 && !conn->plain && !conn->looking;
    if (conn->looking && !in)
        hold_back(conn, chunk, (size_t)n);
    else if (conn->plain && in)
        plain_server(conn, chunk, (size_t)n);
    else if (conn->plain)
        plain_client(conn, chunk, (size_t)n);
    else if (side_put(conn, other(conn, from), chunk, (size_t)n) < 0)
        lost(conn, in);
    return (size_t)n == room;
}

void relay_io(struct conn *conn, struct side *side, uint32_t events)
{
    if ((events & EPOLLOUT) != 0 && side_flush(conn, side) < 0) {
        conn_reset(conn, side == &conn->client ? "the client has gone" : "the server has gone");
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        for (int i = 0; i < ROUNDS && alive(conn) && wants(conn, side) && move(conn, side); i++)
            ;
        if (alive(conn) && (events & EPOLLERR) != 0 && !wants(conn, side))
            conn_reset(conn, "reset");
    }
    if (alive(conn) && conn->plain)
        plain_progress(conn);
    if (alive(conn) && !conn->plain && conn->client.fin_sent && conn->server.fin_sent && conn->client.eof &&
        conn->server.eof)
        conn_end(conn, "");
    relay_watch(conn);
}

void relay_first(struct conn *conn)
{
    if (side_put(conn, &conn->server, conn->first.data, conn->first.len) < 0) {
        lost(conn, false);
        return;
    }
    buf_done(&conn->first);
    conn->first = BUF_INIT(EGRESS_FIRST_MAX);
    if (conn->client.eof)
        side_shut(&conn->server);
}

void relay_start(struct conn *conn)
{
    conn->stage = CONN_RELAY;
    if (conn->looking)
        conn_look_late(conn);
    else
        relay_first(conn);
    if (alive(conn) && conn_arm(conn, CONN_IDLE_NS))
        relay_watch(conn);
}
