/* SPDX-License-Identifier: Apache-2.0 */
/* broker_reply.c: scans and frames what comes back from an upstream; broker_flow.c has the other half. */
#include "base/str.h"
#include "egress/broker_priv.h"

#define CHUNK_HEAD 10u /* room for the digits of any piece, and CR LF */

/* ---- bodies --------------------------------------------------------------------------------------------- */

/* What one piece becomes: through the scanner, and into a chunk of its own. pause: let a little of what is held out,
 * instead. */
static int put_piece(struct broker_conn *conn, const char *data, size_t len, bool last, bool pause)
{
    struct buf *out = &conn->to_client;
    bool chunked = conn->reply_kind == REPLY_CHUNKED && conn->reply != REPLY_TUNNEL;
    size_t mark = out->len, gap = chunked ? CHUNK_HEAD : 0;
    char head[CHUNK_HEAD + 1];
    int r = buf_append(out, "0123456789", gap);

    if (r == 0)
        r = pause ? scan_pause(&conn->scan, out) : scan_feed(&conn->scan, data, len, last, out);
    if (r < 0 || !chunked)
        return r;
    size_t made = out->len - mark - gap;
    if (made == 0) {
        out->len = mark;
        out->data[mark] = '\0';
        return 0;
    }
    int n = str_format(head, sizeof(head), "%zx\r\n", made);
    if (n < 0)
        return n;
    memcpy(out->data + mark, head, (size_t)n);
    memmove(out->data + mark + n, out->data + mark + gap, made);
    out->len = mark + (size_t)n + made;
    return buf_append_str(out, "\r\n");
}

static void end_reply(struct broker_conn *conn)
{
    int r = put_piece(conn, "", 0, true, false);

    if (r == 0 && conn->reply_kind == REPLY_CHUNKED)
        r = buf_append_str(&conn->to_client, "0\r\n\r\n");
    if (r < 0)
        bconn_end(conn, "out of memory");
    conn->reply = REPLY_OVER;
    if (conn->reply_kind == REPLY_UNTIL_CLOSE)
        conn->close_client = true;
    if (conn->request == REQUEST_BODY) {
        /* Answered before all was sent: the rest is nobody's. */
        conn->close_client = conn->close_up = true;
        buf_consume(&conn->to_up, conn->to_up.len);
        conn->request = REQUEST_SENT;
    }
}

void flow_pause(struct broker_conn *conn)
{
    if ((conn->reply == REPLY_BODY || conn->reply == REPLY_TUNNEL) && put_piece(conn, "", 0, false, true) < 0)
        bconn_end(conn, "out of memory");
}

/* The client gets what there is of a broken reply, and sees that it is broken. */
static void cut(struct broker_conn *conn, const char *why)
{
    conn->cut = why;
    conn->reply = REPLY_IDLE;
    conn->request = REQUEST_CLOSING;
}

/* ---- reading -------------------------------------------------------------------------------------------- */

static void upstream_ended(struct broker_conn *conn, bool clean)
{
    switch (conn->reply) {
    case REPLY_HEAD:
        if (conn->up_used && !conn->reply_begun && wbuf_size(&conn->from_up) == 0)
            bconn_end(conn, "the upstream closed an idle connection");
        else
            flow_fail(conn, 502, "the upstream closed the connection without an answer");
        return;
    case REPLY_BODY:
        conn->close_up = true;
        if (clean && conn->reply_body.kind == HTTP_BODY_UNTIL_CLOSE)
            end_reply(conn);
        else
            cut(conn, "the upstream left in the middle of a response");
        return;
    case REPLY_TUNNEL:
        if (put_piece(conn, "", 0, true, false) < 0)
            bconn_end(conn, "out of memory");
        conn->reply = REPLY_IDLE;
        conn->request = REQUEST_CLOSING;
        return;
    case REPLY_IDLE:
    case REPLY_OVER:
    default: return;
    }
}

static bool read_up(struct broker_conn *conn)
{
    if (wbuf_reserve(&conn->from_up, BROKER_PIECE) < 0) {
        flow_fail(conn, 502, "the response's head is too long");
        return true;
    }
    ssize_t n = bside_read(&conn->up, conn->from_up.data + conn->from_up.len, BROKER_PIECE);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        upstream_ended(conn, n == 0);
        return true;
    }
    conn->from_up.len += (size_t)n;
    return true;
}

/* ---- heads ---------------------------------------------------------------------------------------------- */

static void begin_reply(struct broker_conn *conn, size_t len)
{
    struct http_head *head = &conn->reply_head;
    struct brig_err err = {0};
    bool interim = head->status < 200 && head->status != 101, websocket = head->status == 101;

    if (websocket && (!broker_wants_websocket(&conn->head) || conn->request != REQUEST_SENT)) {
        flow_fail(conn, 502, "the upstream wants to speak another protocol");
        return;
    }
    if (!interim) {
        bool unsent = conn->request == REQUEST_BODY;
        conn->close_client = conn->close_client || unsent || !conn->head.keep_alive || conn->head.minor == 0;
        conn->close_up = conn->close_up || unsent || !head->keep_alive;
    }
    if (interim && conn->head.minor == 0) {
        wbuf_consume(&conn->from_up, len);
        return;
    }
    if (rewrite_reply(head, &conn->scan, conn->head.minor, conn->close_client && !interim, websocket, &conn->to_client,
                      &conn->reply_kind, &err) < 0) {
        flow_fail(conn, 502, err.message);
        return;
    }
    http_body_init(&conn->reply_body, head);
    wbuf_consume(&conn->from_up, len);
    if (interim)
        return;
    conn->reply_begun = true;
    if (websocket) {
        conn->reply = REPLY_TUNNEL;
        conn->request = REQUEST_TUNNEL;
        return;
    }
    conn->reply = REPLY_BODY;
    if (conn->reply_kind == REPLY_NONE)
        end_reply(conn);
}

static bool take_reply_head(struct broker_conn *conn)
{
    static const struct http_limits limits = {.head_bytes = BROKER_HEAD_MAX};
    struct brig_err err = {0};
    int r = 0;

    if (wbuf_size(&conn->from_up) > 0)
        r = http_response_parse(wbuf_at(&conn->from_up), wbuf_size(&conn->from_up), conn->head.method, &limits,
                                &conn->from_up_scanned, &conn->reply_head, &err);
    if (r == 0)
        return read_up(conn);
    conn->from_up_scanned = 0;
    if (r < 0)
        flow_fail(conn, 502, "the response is malformed");
    else
        begin_reply(conn, (size_t)r);
    return true;
}

static bool take_reply_body(struct broker_conn *conn)
{
    const char *at;
    size_t len;
    bool end;

    if (conn->to_client.len >= BROKER_HIGH)
        return false;
    int r = http_body_take(&conn->reply_body, wbuf_at(&conn->from_up), wbuf_size(&conn->from_up), &at, &len, &end);
    if (r < 0) {
        cut(conn, "the response's body is malformed");
        return true;
    }
    if (r == 0 && !end)
        return read_up(conn);
    if (len > 0 && put_piece(conn, at, len, false, false) < 0) {
        bconn_end(conn, "out of memory");
        return false;
    }
    wbuf_consume(&conn->from_up, (size_t)r);
    if (end)
        end_reply(conn);
    return true;
}

static bool tunnel_in(struct broker_conn *conn)
{
    if (conn->to_client.len >= BROKER_HIGH)
        return false;
    if (wbuf_size(&conn->from_up) == 0)
        return read_up(conn);
    if (put_piece(conn, wbuf_at(&conn->from_up), wbuf_size(&conn->from_up), false, false) < 0)
        bconn_end(conn, "out of memory");
    wbuf_clear(&conn->from_up);
    return true;
}

/* Between requests: whatever an upstream says now, its close included, ends that connection. */
static bool watch_idle(struct broker_conn *conn)
{
    char byte;

    if (conn->up.fd < 0 || conn->request != REQUEST_HEAD)
        return false;
    if (bside_read(&conn->up, &byte, 1) == -EAGAIN)
        return false;
    bconn_drop_up(conn);
    return true;
}

bool reply_step(struct broker_conn *conn)
{
    switch (conn->reply) {
    case REPLY_HEAD: return take_reply_head(conn);
    case REPLY_BODY: return take_reply_body(conn);
    case REPLY_TUNNEL: return tunnel_in(conn);
    case REPLY_OVER: return false;
    case REPLY_IDLE:
    default: return watch_idle(conn);
    }
}
