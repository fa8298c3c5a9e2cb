/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: the states of server_conn.h, one step at a time. A step returns true when it changed something and there
 * may be more to do. What epoll and the wheel should watch is computed from the state in one place, conn_settle(),
 * after the last step; mostly that changes nothing and costs no system call.
 */
#include "http/server_conn.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/list.h"
#include "base/mem.h"
#include "http/tls.h"

#define HUNG_UP ((uint32_t)(EPOLLHUP | EPOLLERR))

/* ---- the end ------------------------------------------------------------------------------------ */

static void conn_close(struct conn *conn)
{
    struct server *server = conn->server;

    if (conn->state == CONN_DEAD)
        return;
    conn->state = CONN_DEAD;
    int fd = conn->source.fd;
    loop_remove(server->loop, &conn->source);
    if (conn->tls) {
        if (!conn->broken)
            tls_shutdown(conn->tls);
        tls_free(take_ptr(&conn->tls));
    }
    close(fd);
    wheel_remove(conn);
    peer_leave(conn);
    share_leave(conn);
    if (conn->counted)
        server->n_conns--;
    else
        server->n_refused--;
    if (conn->x)
        exchange_release(server, take_ptr(&conn->x));
    mem_free(take_ptr(&conn->parked));
    buf_done(&conn->out);
    list_remove(&server->conns, conn);
    conn_touch(conn); /* freed there */
}

static void exchange_log(struct exchange *x, unsigned status)
{
    const struct server_options *options = &x->conn->server->options;

    if (options->log)
        options->log(options->ctx, x, status, x->started_ns ? clock_mono_ns() - x->started_ns : 0, x->bytes);
}

void conn_fail(struct conn *conn)
{
    if (conn->state == CONN_BUSY) {
        struct exchange *x = conn->x;
        if (!x->over)
            exchange_deliver_gone(x);
        exchange_log(x, x->over ? x->status : STATUS_GONE);
        conn->server->n_exchanges--;
        conn->broken = true;
        if (x->until_close) {
            /* Nothing but a reset tells this client that its body is not complete. */
            struct linger reset = {.l_onoff = 1};
            (void)setsockopt(conn->source.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        }
    }
    conn_close(conn);
}

/* ---- HEAD --------------------------------------------------------------------------------------- */

/* Input that waits: data, after what is parked already. */
int conn_park(struct conn *conn, const char *data, size_t len, size_t scanned)
{
    if (len == 0)
        return 0;
    char *parked = mem_realloc(conn->parked, conn->parked_len + len);
    if (!parked)
        return -ENOMEM;
    memcpy(parked + conn->parked_len, data, len);
    conn->parked = parked;
    conn->parked_len += len;
    conn->parked_scanned = scanned;
    return 0;
}

static bool grow_in(struct exchange *x, size_t need)
{
    if (need <= x->in_cap)
        return true;
    size_t cap = x->in_cap;
    while (cap < need)
        cap *= 2;
    char *in = mem_realloc(x->in, cap);
    if (!in)
        return false;
    x->in = in;
    x->in_cap = cap;
    return true;
}

/* An exchange for the next head, with what was parked of it. */
static bool take_exchange(struct conn *conn)
{
    struct exchange *x = exchange_take(conn->server);

    if (!x)
        return false;
    x->conn = conn;
    conn->x = x;
    if (conn->parked) {
        if (!grow_in(x, conn->parked_len + 1))
            return false;
        memcpy(x->in, conn->parked, conn->parked_len);
        x->in_len = conn->parked_len;
        x->scanned = conn->parked_scanned;
        mem_free(take_ptr(&conn->parked));
        conn->parked_len = conn->parked_scanned = 0;
    }
    return true;
}

/* Nothing to do for the exchange now: back to the pool with it. */
static void put_aside(struct conn *conn)
{
    struct exchange *x = conn->x;

    if (!x || conn_park(conn, x->in, x->in_len, x->scanned) < 0)
        return; /* without memory it stays as it is */
    conn->x = NULL;
    exchange_release(conn->server, x);
}

static bool step_read_head(struct conn *conn)
{
    struct exchange *x = conn->x;

    if (!conn_readable(conn)) {
        put_aside(conn);
        if (conn->server->draining && !conn->x && !conn->parked)
            return conn_close(conn), true;
        return false;
    }
    if (!x) {
        if (!take_exchange(conn))
            return conn_close(conn), true;
        x = conn->x;
    }
    ssize_t n = -ENOMEM;
    if (grow_in(x, x->in_len + 2)) /* one byte is kept free behind the input, see body_all_here() */
        n = conn_read(conn, x->in + x->in_len, x->in_cap - x->in_len - 1);
    if (n == -EAGAIN)
        return true;
    if (n <= 0)
        return conn_close(conn), true;
    if (x->in_len == 0)
        conn->since_ms = conn->server->now_ms; /* the head's time begins with its first byte */
    x->in_len += (size_t)n;
    x->starved = false;
    return true;
}

static bool step_head(struct conn *conn)
{
    struct exchange *x = conn->x;
    struct brig_err err;

    if (!x && conn->parked && conn->parked_scanned == 0 && !take_exchange(conn))
        return conn_close(conn), true;
    x = conn->x;
    if (!x || x->in_len == 0 || x->starved)
        return step_read_head(conn);
    const struct http_options *http = &conn->server->options.http;
    struct http_limits limits = {.head_bytes = http->max_headers_bytes, .headers = http->max_headers};
    int r = http_request_parse(x->in, x->in_len, &limits, &x->scanned, &x->head, &err);
    if (r == 0) {
        x->starved = true;
        if (x->scanned == 0)
            x->scanned = x->in_len;
        return true;
    }
    if (conn->server->options.log)
        x->started_ns = clock_mono_ns();
    if (r < 0) {
        conn_refuse_head(conn, (unsigned)-r, NULL, err.message);
    } else {
        x->in_at = (size_t)r;
        request_start(conn);
    }
    return true;
}

/* ---- BUSY --------------------------------------------------------------------------------------- */

/* The exchange is over: on to FLUSH, with the input that follows it. */
static void finish(struct conn *conn)
{
    struct exchange *x = conn->x;
    struct server *server = conn->server;
    size_t left = x->in_len - x->in_at;

    exchange_log(x, x->status);
    server->n_exchanges--;
    share_let_go(conn);
    conn->state = CONN_FLUSH;
    conn->muted = conn->half = false;
    if (conn->close) {
        if (!x->body_end || left > 0 || conn->parked)
            conn->linger = true;
        conn->x = NULL;
        exchange_release(server, x);
        return;
    }
    memmove(x->in, x->in + x->in_at, left);
    exchange_reset(x);
    x->in_len = left;
    if (left == 0) {
        conn->x = NULL;
        exchange_release(server, x);
    }
}

static void shut_our_side(struct conn *conn)
{
    if (conn->tls)
        tls_shutdown(conn->tls);
    shutdown(conn->source.fd, SHUT_WR);
}

static bool step_busy(struct conn *conn)
{
    struct exchange *x = conn->x;

    if (x->over && !x->aborted && !conn->broken)
        return finish(conn), true;
    if (conn->broken || (x->aborted && (conn_pending(conn) == 0 || conn->blocked)))
        return conn_fail(conn), true;
    if (x->aborted)
        return false; /* what was written before is tried once more, by conn_run() */
    if (conn_pending(conn) <= OUT_SMALL / 2)
        share_paid(conn);
    if (x->want_drained && conn_pending(conn) <= x->drain_at) {
        x->want_drained = false;
        share_paid(conn);
        if (x->drained)
            x->drained(x->drained_ctx, x);
        return true;
    }
    if (x->shut_due && conn_pending(conn) == 0) {
        shut_our_side(conn);
        x->shut = true;
        x->shut_due = false;
        return true;
    }
    return x->ws ? websocket_step(x) : body_step(x);
}

/* ---- FLUSH, LINGER ------------------------------------------------------------------------------ */

static bool step_flush(struct conn *conn)
{
    if (conn->broken || (conn->revents & HUNG_UP))
        return conn_close(conn), true;
    conn->revents &= EPOLLOUT;
    if (conn_pending(conn) > 0)
        return false;
    share_paid(conn);
    if (!conn->close) {
        conn->state = CONN_HEAD;
        conn->since_ms = conn->server->now_ms;
        buf_done(&conn->out);
        return true;
    }
    if (!conn->linger)
        return conn_close(conn), true;
    shut_our_side(conn);
    conn->state = CONN_LINGER;
    conn->since_ms = conn->server->now_ms;
    return true;
}

static bool step_linger(struct conn *conn)
{
    struct server *server = conn->server;

    if ((conn->revents & ~(uint32_t)EPOLLOUT) == 0)
        return false;
    conn->revents = 0;
    char *scratch = scratch_take(server);
    ssize_t n = scratch ? recv(conn->source.fd, scratch, SCRATCH_SIZE, MSG_DONTWAIT) : -1;
    bool again = scratch && n < 0 && (errno == EAGAIN || errno == EINTR);
    scratch_give(server, scratch);
    if (n > 0)
        conn->lingered += (uint32_t)n;
    if ((n <= 0 && !again) || conn->lingered > LINGER_BYTES)
        conn_close(conn);
    return false;
}

/* ---- running ------------------------------------------------------------------------------------ */

static bool step(struct conn *conn)
{
    switch ((enum conn_state)conn->state) {
    case CONN_HEAD: return step_head(conn);
    case CONN_BUSY: return step_busy(conn);
    case CONN_FLUSH: return step_flush(conn);
    case CONN_LINGER: return step_linger(conn);
    case CONN_DEAD:
    default: return false;
    }
}

/* Milliseconds that the present state may take without progress; 0: for ever. */
static uint64_t patience(const struct conn *conn)
{
    const struct http_options *http = &conn->server->options.http;
    const struct exchange *x = conn->x;

    if (conn->state == CONN_LINGER)
        return LINGER_MS;
    if (conn_pending(conn) > 0)
        return http->body_timeout;
    if (conn->state == CONN_HEAD)
        return x || conn->parked || (conn->tls && !tls_ready(conn->tls)) ? http->header_timeout : http->idle_timeout;
    if (conn->state == CONN_BUSY && x->ws)
        return websocket_closing(x) ? LINGER_MS : 0;
    if (conn->state == CONN_BUSY && x->input == INPUT_FLOWING && x->reading != READING_TUNNEL && !x->body_end)
        return http->body_timeout;
    if (conn->state == CONN_BUSY && x->shut && x->input == INPUT_FLOWING)
        return http->body_timeout;
    return 0;
}

static uint32_t interest(const struct conn *conn)
{
    uint32_t events = EPOLLIN | EPOLLRDHUP;

    if (conn->state == CONN_FLUSH)
        events = 0;
    if (conn->state == CONN_BUSY && conn->x->input != INPUT_FLOWING) {
        if (conn->muted)
            events &= ~(uint32_t)EPOLLIN;
        if (conn->half)
            events &= ~(uint32_t)EPOLLRDHUP;
        if (conn->x->shut)
            events |= EPOLLET; /* both sides have ended, but bytes are still to be read: EPOLLHUP once, not for ever */
    }
    if ((conn->blocked && conn_pending(conn) > 0) || (conn->tls && tls_wants_out(conn->tls)))
        events |= EPOLLOUT;
    return events;
}

void conn_settle(struct conn *conn)
{
    uint64_t ms = patience(conn);

    conn->deadline_ms = ms > 0 ? conn->since_ms + ms : 0;
    wheel_update(conn);
    if (loop_modify(conn->server->loop, &conn->source, interest(conn), NULL) < 0)
        conn_fail(conn);
}

void conn_run(struct conn *conn)
{
    if (conn->running || conn->state == CONN_DEAD)
        return;
    conn->running = true;
    for (;;) {
        while (step(conn))
            ;
        if (conn->state == CONN_DEAD || conn->blocked || conn_pending(conn) == 0)
            break;
        conn_flush(conn); /* then either nothing waits, or it is blocked or broken: the steps see it */
    }
    conn->running = false;
    if (conn->state == CONN_DEAD)
        conn_touch(conn);
    else
        conn_settle(conn);
}

void conn_event(struct loop_source *source, uint32_t events)
{
    struct conn *conn = source->ctx;

    server_clock(conn->server);
    if (events & EPOLLOUT)
        conn->blocked = false;
    conn->revents = events;
    if (conn->tls && tls_wants_out(conn->tls) && (events & EPOLLOUT))
        conn->revents |= EPOLLIN; /* the read that waited for this */
    conn_run(conn);
}

/* The wheel says that the time is over. */
void conn_timeout(struct conn *conn)
{
    if (conn->running || conn->state == CONN_DEAD)
        return;
    switch ((enum conn_state)conn->state) {
    case CONN_HEAD:
        if ((!conn->x && !conn->parked) || (conn->tls && !tls_ready(conn->tls)) || (!conn->x && !take_exchange(conn)))
            return conn_close(conn);
        conn_refuse_head(conn, 408, "timeout", "the head of the request did not come in time");
        break;
    case CONN_BUSY:
        if (conn_pending(conn) > 0)
            return conn_fail(conn);
        if (conn->x->ws)
            websocket_timeout(conn->x);
        else
            conn_refuse_head(conn, 408, "timeout", "the body of the request did not come in time");
        break;
    case CONN_FLUSH:
    case CONN_LINGER:
    case CONN_DEAD:
    default: conn_close(conn); return;
    }
    conn_run(conn);
}
