/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the client sends after its head: a body for exchange_read_all() and exchange_read(), or bytes of a tunnel. Bytes
 * come from the exchange's buffer first (they were read together with the head), then from the socket by way of the
 * server's scratch buffer, which is given to data() without another copy. Chunks are joined in place, so that one read
 * is one piece whatever its chunks were. A body of known length is never read beyond its end; after a chunked one the
 * beginning of the next request may be left, which is parked.
 */
#include "http/server_conn.h"

#include "base/err.h"

#define ROOM_MAX (256u << 10)

void exchange_deliver_gone(struct exchange *x)
{
    void (*gone)(void *ctx, struct exchange *x) = x->gone;

    x->gone = NULL;
    x->drained = NULL;
    x->input = INPUT_NONE;
    x->reading = READING_NOTHING;
    if (x->ws)
        websocket_gone(x);
    else if (gone)
        gone(x->gone_ctx, x);
}

/* Decodes data in place. The content is [*ret_at, + *ret_len), the bytes that belonged to the body *ret_taken; -400. */
static int decode(struct exchange *x, char *data, size_t len, char **ret_at, size_t *ret_len, size_t *ret_taken)
{
    char *out = NULL, *content = data;
    size_t at = 0, have = 0;

    if (x->reading == READING_TUNNEL) {
        at = have = len;
    } else {
        while (at < len && !x->body_end) {
            const char *piece;
            size_t piece_len;
            int r = http_body_take(&x->reader, data + at, len - at, &piece, &piece_len, &x->body_end);
            if (r < 0)
                return r;
            at += (size_t)r;
            if (piece_len == 0)
                continue;
            if (!out) {
                content = out = data + (piece - data);
            } else if (out != piece) {
                memmove(out, piece, piece_len);
            }
            out += piece_len;
            have += piece_len;
        }
    }
    *ret_at = content;
    *ret_len = have;
    *ret_taken = at;
    return 0;
}

bool body_skip_buffered(struct exchange *x)
{
    char *content;
    size_t len, taken;

    if (x->body_end)
        return true;
    if (x->reading == READING_TUNNEL || decode(x, x->in + x->in_at, x->in_len - x->in_at, &content, &len, &taken) < 0)
        return false;
    x->in_at += taken;
    return x->body_end;
}

/* ---- giving it to the handler ------------------------------------------------------------------- */

static void too_large(struct exchange *x)
{
    conn_refuse_head(x->conn, 413, "too_large", "the body is larger than is allowed here");
}

static void too_many(struct exchange *x)
{
    (void)exchange_add_field(x, "Retry-After", "1");
    conn_refuse_head(x->conn, 429, "limit", "the organisation has its share of requests with long bodies");
}

static void give(struct exchange *x, char *data, size_t len)
{
    x->conn->since_ms = x->conn->server->now_ms;
    if (len == 0)
        return;
    switch ((enum reading)x->reading) {
    case READING_ALL:
        /* Room for all of a small one at once: growing would leave copies in memory that is not ours any more. */
        if (!x->body.data && x->reader.kind == HTTP_BODY_LENGTH &&
            buf_reserve(&x->body, len + (x->reader.left < ROOM_MAX ? (size_t)x->reader.left : 0)) < 0)
            conn_refuse_head(x->conn, 503, "out_of_memory", "out of memory");
        else if (len > x->read_max - x->body.len)
            too_large(x);
        else if (buf_append(&x->body, data, len) < 0)
            conn_refuse_head(x->conn, 503, "out_of_memory", "out of memory");
        else if (!share_hold(x->conn, x->body.len, x->read_max))
            too_many(x);
        else
            explicit_bzero(data, len); /* there may be a secret in it; the handler wipes what it was given */
        break;
    case READING_STREAM:
        x->input = INPUT_PAUSED; /* until exchange_body_proceed() */
        x->body_events.data(x->body_events.ctx, x, data, len);
        break;
    case READING_TUNNEL:
        x->input = INPUT_PAUSED;
        x->tunnel_events.data(x->tunnel_events.ctx, x, data, len);
        break;
    case READING_NOTHING:
    case READING_WEBSOCKET:
    default: break;
    }
}

static void give_end(struct exchange *x)
{
    enum reading reading = x->reading;

    x->reading = READING_NOTHING;
    x->input = INPUT_NONE;
    if (reading == READING_STREAM) {
        x->body_events.end(x->body_events.ctx, x);
    } else if (reading == READING_ALL) {
        if (buf_reserve(&x->body, 0) < 0)
            return conn_refuse_head(x->conn, 503, "out_of_memory", "out of memory");
        x->body.data[x->body.len] = '\0'; /* memory that an earlier body was in */
        x->read_done(x->read_ctx, x, x->body.data, x->body.len);
    }
}

/* All of a body of known length came with the head: it is given where it lies, with a NUL lent from what follows. */
static bool body_all_here(struct exchange *x)
{
    if (x->reading != READING_ALL || x->body.len > 0 || x->reader.kind == HTTP_BODY_CHUNKED)
        return false;
    size_t len = x->body_end ? 0 : (size_t)x->reader.left;
    if (!x->body_end && x->reader.left > x->in_len - x->in_at)
        return false;
    if (len > x->read_max)
        return too_large(x), true;
    char *data = x->in + x->in_at, *end = data + len, saved = *end;
    x->in_at += len;
    x->body_end = true;
    x->reading = READING_NOTHING;
    x->input = INPUT_NONE;
    *end = '\0';
    x->read_done(x->read_ctx, x, data, len);
    *end = saved;
    return true;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static void malformed(struct exchange *x)
{
    conn_refuse_head(x->conn, 400, "invalid_argument", "the body is malformed");
}

static void take_buffered(struct exchange *x)
{
    char *content;
    size_t len, taken;

    if (decode(x, x->in + x->in_at, x->in_len - x->in_at, &content, &len, &taken) < 0)
        return malformed(x);
    x->in_at += taken;
    give(x, content, len);
}

static void take_read(struct exchange *x, char *data, size_t n)
{
    char *content;
    size_t len, taken;

    if (decode(x, data, n, &content, &len, &taken) < 0)
        malformed(x);
    else if (conn_park(x->conn, data + taken, n - taken, 0) < 0)
        conn_refuse_head(x->conn, 503, "out_of_memory", "out of memory");
    else
        give(x, content, len);
}

static void take_eof(struct exchange *x, ssize_t n)
{
    if (x->reading != READING_TUNNEL || n < 0) {
        conn_fail(x->conn); /* before the end of the body */
        return;
    }
    x->input = INPUT_NONE;
    x->reading = READING_NOTHING;
    x->conn->half = x->conn->muted = true; /* there is nothing more to read, but still to write */
    x->tunnel_events.eof(x->tunnel_events.ctx, x);
}

static bool read_some(struct exchange *x)
{
    struct conn *conn = x->conn;
    struct server *server = conn->server;
    size_t size = SCRATCH_SIZE;

    if (!conn_readable(conn))
        return false;
    char *scratch = scratch_take(server);
    if (!scratch) {
        conn->revents = 0;
        conn_refuse_head(conn, 503, "out_of_memory", "out of memory");
        return true;
    }
    if (x->reader.kind == HTTP_BODY_LENGTH && x->reading != READING_TUNNEL && x->reader.left < size)
        size = (size_t)x->reader.left;
    ssize_t n = conn_read(conn, scratch, size);
    if (n > 0)
        take_read(x, scratch, (size_t)n);
    else if (n != -EAGAIN)
        take_eof(x, n);
    scratch_give(server, scratch);
    return n != -EAGAIN;
}

/* Nobody wants bytes now. What epoll said is noted, so that it does not say it over and over; a client that left is
 * gone. */
bool body_watch(struct exchange *x)
{
    struct conn *conn = x->conn;
    uint32_t events = conn->revents;

    conn->revents = 0;
    if ((events & EPOLLERR) || ((events & EPOLLHUP) && !x->shut))
        return conn_fail(conn), true;
    if (events & (EPOLLRDHUP | EPOLLHUP)) {
        /* With a body still to be read, the rest of it may be in the kernel: the read will find the end. */
        if (x->input == INPUT_NONE && x->body_end && !conn->half)
            return conn_fail(conn), true;
        conn->half = true;
    }
    if (events & EPOLLIN)
        conn->muted = true;
    return false;
}

bool body_step(struct exchange *x)
{
    if (x->too_large) {
        x->too_large = false;
        too_large(x);
        return true;
    }
    if (x->input != INPUT_FLOWING)
        return body_watch(x);
    if (body_all_here(x))
        return true;
    if (x->body_end && x->reading != READING_TUNNEL)
        return give_end(x), true;
    if (x->in_at < x->in_len)
        return take_buffered(x), true;
    return read_some(x);
}

/* ---- what the handler calls --------------------------------------------------------------------- */

void exchange_flow(struct exchange *x)
{
    struct conn *conn = x->conn;

    x->input = INPUT_FLOWING;
    conn->since_ms = server_clock(conn->server);
    if (conn->muted)
        conn->revents |= EPOLLIN; /* bytes were there */
    conn->muted = conn->half = false;
    conn_touch(conn);
}

static int start_reading(struct exchange *x, enum reading reading, struct brig_err *err)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    if (x->over || x->reading != READING_NOTHING || (x->body_end && x->head.body != HTTP_BODY_NONE))
        return err_usage(err, "the body has been read");
    if (x->head.expect_continue && x->head.minor == 1 && !x->body_end && !x->begun && x->in_at == x->in_len)
        conn_write(x->conn, &(struct iovec){(void *)(uintptr_t)go_on, sizeof(go_on) - 1}, 1, false);
    x->reading = (uint8_t)reading;
    exchange_flow(x);
    return 0;
}

int exchange_read_all(struct exchange *x, size_t max,
                      void (*done)(void *ctx, struct exchange *x, char *data, size_t len), void *ctx,
                      struct brig_err *err)
{
    if (x->head.body == HTTP_BODY_LENGTH && x->head.content_length > max && !x->over && x->reading == READING_NOTHING) {
        x->too_large = true; /* answered by body_step(), without asking the client to go on */
        conn_touch(x->conn);
        return 0;
    }
    int r = start_reading(x, READING_ALL, err);
    if (r < 0)
        return r;
    x->read_max = max;
    x->read_done = done;
    x->read_ctx = ctx;
    return 0;
}

char *exchange_take_body(struct exchange *x, const char *data)
{
    if (data != x->body.data)
        return NULL;
    x->body.len = x->body.cap = 0;
    return take_ptr(&x->body.data);
}

int exchange_read(struct exchange *x, const struct body_events *events, struct brig_err *err)
{
    int r = start_reading(x, READING_STREAM, err);

    if (r == 0)
        x->body_events = *events;
    return r;
}

void exchange_body_proceed(struct exchange *x)
{
    if (x->input == INPUT_PAUSED)
        exchange_flow(x);
}

bool exchange_body_known(const struct exchange *x, uint64_t *ret_length)
{
    if (x->head.body == HTTP_BODY_CHUNKED)
        return false;
    *ret_length = x->head.content_length;
    return true;
}

int exchange_tunnel(struct exchange *x, const struct tunnel_events *events, struct brig_err *err)
{
    if (x->over || x->begun || x->reading != READING_NOTHING || x->head.body != HTTP_BODY_NONE)
        return err_usage(err, "this request cannot become a tunnel");
    x->tunnel_events = *events;
    x->reading = READING_TUNNEL;
    x->begun = x->until_close = true;
    x->status = 101;
    x->length_left = UINT64_MAX;
    x->conn->close = x->conn->linger = true;
    x->drained = events->drained;
    x->drained_ctx = events->ctx;
    exchange_flow(x);
    return 0;
}

void exchange_tunnel_shut(struct exchange *x)
{
    if (x->over || x->reading != READING_TUNNEL)
        return;
    x->shut_due = true;
    x->conn->since_ms = server_clock(x->conn->server);
    conn_touch(x->conn);
}
