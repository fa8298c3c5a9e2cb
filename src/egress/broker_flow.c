/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_flow.c: carries the requests and replies of a brokered connection. Requests come one after the other. Each is
 * judged by the policy of that moment, written again and sent; replies are scanned and framed again. A secret is opened
 * when the head that needs it is about to be sent. The head is wiped as OpenSSL takes it, and the values when the reply
 * is over, because the reply is compared with them.
 *
 *   request   HEAD -> (SPOOL) -> CONNECT -> SEND -> BODY -> SENT -+-> HEAD
 *                                                                  +-> CLOSING
 *   reply     IDLE -> HEAD -> BODY -> OVER -+-> IDLE
 *                       `-> TUNNEL          +-> (the connection ends)
 *
 * The bodies of replies lose their Content-Length and become chunked, because scrubbing changes lengths. A client of
 * HTTP/1.0 gets them until the end of the connection.
 */
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

#define BEHIND_NS (20 * NS_PER_MS)

static const struct values no_values;

static uint16_t default_port(const struct broker_conn *conn)
{
    return conn->start.plain ? 80 : 443;
}

/* ---- answers of our own --------------------------------------------------------------------------------- */

void flow_over(struct broker_conn *conn)
{
    if (conn->scan.hits > 0 && conn->start.scrubbed)
        conn->start.scrubbed(conn->start.ctx, conn->scan.hits);
    scan_end(&conn->scan);
    values_close(&conn->values);
    wbuf_rest(&conn->from_up);
    wbuf_rest(&conn->up_head);
    buf_done(&conn->spool);
    conn->spool = BUF_INIT(BROKER_SPOOL_MAX);
    slot_give_memory(conn->start.slot, conn->spool_taken);
    conn->spool_taken = 0;
}

void flow_answer(struct broker_conn *conn, unsigned status, const char *text)
{
    bool head = str_eq(conn->head.method ? conn->head.method : "", "HEAD");

    if (conn->reply_begun) {
        bconn_end(conn, text);
        return;
    }
    int r = http_put_status(&conn->to_client, status);
    if (r == 0)
        r = buf_printf(&conn->to_client,
                       "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                       strlen(text) + 7);
    if (r == 0 && !head)
        r = buf_printf(&conn->to_client, "brig: %s\n", text);
    bconn_drop_up(conn);
    flow_over(conn);
    conn->reply = REPLY_IDLE;
    conn->request = REQUEST_CLOSING;
    if (r < 0)
        bconn_end(conn, "out of memory");
}

void flow_fail(struct broker_conn *conn, unsigned status, const char *text)
{
    bconn_event(conn, GATE_FAILED, text, NULL);
    flow_answer(conn, status, text);
}

/* ---- from the client ------------------------------------------------------------------------------------ */

static bool read_client(struct broker_conn *conn)
{
    if (buf_reserve(&conn->in, BROKER_PIECE) < 0) {
        bconn_end(conn, "out of memory");
        return false;
    }
    ssize_t n = bside_read(&conn->client, conn->in.data + conn->in.len, BROKER_PIECE);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        bool idle = n == 0 && conn->request == REQUEST_HEAD && conn->in.len == 0;
        bconn_end(conn, idle ? "" : "the client left");
        return false;
    }
    buf_commit(&conn->in, (size_t)n);
    return true;
}

static bool judge(struct broker_conn *conn, const struct gate_addr *addr)
{
    char path[HTTP_TARGET_MAX + 1];
    size_t len = strcspn(conn->head.target, "?");
    struct policy_question question = {.name = conn->name,
                                       .addr = addr,
                                       .port = conn->start.port,
                                       .seen = POLICY_SEEN_HTTP,
                                       .method = conn->head.method,
                                       .path = path,
                                       .opened_tls = !conn->start.plain};

    memcpy(path, conn->head.target, len);
    path[len] = '\0';
    policy_judge(slot_policy(conn->start.slot), &question, &conn->answer);
    if (conn->answer.allow)
        return true;
    char text[sizeof(conn->answer.why) + 16] = "denied";
    if (str_format(text, sizeof(text), "denied: %s", conn->answer.why) < 0)
        text[0] = '\0';
    bconn_event(conn, GATE_DENIED, NULL, NULL);
    flow_answer(conn, 403, text);
    return false;
}

static void found_in_body(void *ctx, const struct broker_secret *secret)
{
    struct broker_conn *conn = ctx;

    bconn_event(conn, GATE_DENIED, "a placeholder in the body stays a placeholder", secret->name);
}

/* A whole head is there, of len bytes: its memory is set aside, for the parts point into it. */
static bool begin_request(struct broker_conn *conn, size_t len)
{
    struct brig_err err = {0};
    struct buf rest = BUF_INIT(conn->in.max);

    if (buf_append(&rest, conn->in.data + len, conn->in.len - len) < 0) {
        bconn_end(conn, "out of memory");
        return false;
    }
    buf_done(&conn->head_memory);
    conn->head_memory = conn->in;
    conn->in = rest;
    conn->in_scanned = 0;
    conn->reply_begun = conn->close_client = conn->close_up = false;
    conn->search = (struct placeholder_search){0};
    http_body_init(&conn->body, &conn->head);
    const char *target = conn->head.target;
    if (target[0] != '/' && !str_eq(target, "*")) {
        flow_answer(conn, 400, "the request's target must be a path");
        return true;
    }
    int r = broker_check_host(&conn->head, conn->name, conn->start.port, default_port(conn), &err);
    if (r < 0) {
        flow_answer(conn, (unsigned)-r, err.message);
        return true;
    }
    if (!judge(conn, NULL))
        return true;
    bool spool =
        !conn->start.plain && rewrite_needs_body(conn->start.broker, conn->name, conn->start.port, &conn->head);
    conn->request = spool ? REQUEST_SPOOL : REQUEST_CONNECT;
    if (spool && conn->head.expect_continue && buf_append_str(&conn->to_client, "HTTP/1.1 100 Continue\r\n\r\n") < 0)
        bconn_end(conn, "out of memory");
    return true;
}

static bool take_head(struct broker_conn *conn)
{
    static const struct http_limits limits = {.head_bytes = BROKER_HEAD_MAX};
    struct brig_err err = {0};

    if (conn->to_client.len >= BROKER_HIGH)
        return false; /* a client that sends and does not read */
    int r = conn->in.len > 0
                ? http_request_parse(conn->in.data, conn->in.len, &limits, &conn->in_scanned, &conn->head, &err)
                : 0;
    if (r > 0)
        return begin_request(conn, (size_t)r);
    if (r == 0)
        return read_client(conn);
    conn->reply_begun = false;
    conn->head.method = NULL;
    flow_answer(conn, (unsigned)-r, err.message);
    return true;
}

/* The next piece of the body. 1: there is one (maybe empty), 0: nothing could be read, -1: over. */
static int next_piece(struct broker_conn *conn, const char **ret, size_t *ret_len, size_t *ret_took, bool *ret_end)
{
    int r = http_body_take(&conn->body, conn->in.data, conn->in.len, ret, ret_len, ret_end);

    if (r < 0) {
        flow_answer(conn, 400, "the request's body is malformed");
        return -1;
    }
    *ret_took = (size_t)r;
    if (*ret_len > 0)
        placeholder_feed(&conn->search, conn->start.broker, *ret, *ret_len, found_in_body, conn);
    return r > 0 || *ret_end;
}

static bool spool_body(struct broker_conn *conn)
{
    const char *at;
    size_t len, took;
    bool end;
    int r = next_piece(conn, &at, &len, &took, &end);

    if (r < 0)
        return true;
    if (r == 0)
        return read_client(conn);
    /* twice: it is copied when it is sent */
    if (!slot_take_memory(conn->start.slot, 2 * len)) {
        flow_answer(conn, 503, "too many bodies of this sandbox wait to be signed; send X-Amz-Content-Sha256");
        return true;
    }
    conn->spool_taken += 2 * len;
    if (buf_append(&conn->spool, at, len) < 0) {
        flow_answer(conn, 413, "the body is too large to be signed; send X-Amz-Content-Sha256");
        return true;
    }
    buf_consume(&conn->in, took);
    if (end)
        conn->request = REQUEST_CONNECT;
    return true;
}

static bool take_body(struct broker_conn *conn)
{
    const char *at;
    size_t len, took;
    bool end;

    if (conn->to_up.len >= BROKER_HIGH)
        return false;
    int r = next_piece(conn, &at, &len, &took, &end);
    if (r < 0)
        return true;
    if (r == 0)
        return read_client(conn);
    bool chunked = conn->head.body == HTTP_BODY_CHUNKED;
    r = chunked && len > 0 ? http_put_chunk_head(&conn->to_up, len) : 0;
    if (r == 0)
        r = buf_append(&conn->to_up, at, len);
    if (r == 0 && chunked && len > 0)
        r = buf_append_str(&conn->to_up, "\r\n");
    if (r == 0 && chunked && end)
        r = buf_append_str(&conn->to_up, "0\r\n\r\n");
    if (r < 0) {
        bconn_end(conn, "out of memory");
        return false;
    }
    buf_consume(&conn->in, took);
    if (end)
        conn->request = REQUEST_SENT;
    return true;
}

/* One piece at a time: what was read is on its way before an end could be read. */
static bool tunnel_out(struct broker_conn *conn)
{
    if (conn->to_up.len > 0)
        return false;
    if (conn->in.len == 0)
        return read_client(conn);
    placeholder_feed(&conn->search, conn->start.broker, conn->in.data, conn->in.len, found_in_body, conn);
    if (buf_append(&conn->to_up, conn->in.data, conn->in.len) < 0)
        bconn_end(conn, "out of memory");
    buf_consume(&conn->in, conn->in.len);
    return true;
}

/* ---- to the upstream ------------------------------------------------------------------------------------ */

static void report(struct broker_conn *conn, const struct rewrite_report *report)
{
    bconn_event(conn, GATE_ALLOWED, NULL, report->n_used > 0 ? report->used[0]->name : NULL);
    for (size_t i = 1; i < report->n_used; i++)
        bconn_event(conn, GATE_ALLOWED, NULL, report->used[i]->name);
    for (size_t i = 0; i < report->n_foreign; i++)
        bconn_event(conn, GATE_DENIED,
                    conn->start.plain ? "a placeholder stays a placeholder: this is not TLS"
                                      : "a placeholder in another place stays a placeholder",
                    report->foreign[i]->name);
}

/* Opens the secrets, writes the head with them. */
static int write_head(struct broker_conn *conn, struct rewrite_report *result, struct brig_err *err)
{
    uint8_t hash[SHA256_SIZE];
    char hex[SHA256_HEX];
    bool spooled = conn->body.kind != HTTP_BODY_NONE && conn->spool.data;
    struct rewrite rewrite = {.broker = conn->start.broker,
                              .values = conn->start.plain ? &no_values : &conn->values,
                              .name = conn->name,
                              .port = conn->start.port,
                              .default_port = default_port(conn),
                              .payload_sha256 = spooled ? hex : NULL,
                              .spooled = conn->spool.len};

    result->status = 502;
    if (spooled) {
        int r = crypto_sha256(conn->spool.data, conn->spool.len, hash);
        if (r < 0)
            return err_nomem(err);
        crypto_hex(hash, sizeof(hash), hex);
    }
    int r = values_open(conn->start.broker, conn->name, conn->start.port, &conn->values, err);
    if (r < 0)
        return r;
    if (scan_begin(&conn->scan, &conn->values) < 0)
        return err_nomem(err);
    return rewrite_request(&rewrite, &conn->head, &conn->up_head, result, err);
}

static bool connect_up(struct broker_conn *conn)
{
    struct brig_err err = {0};
    struct rewrite_report result;

    if (conn->up.fd < 0) {
        if (!conn->dialling && bconn_dial(conn, &err) < 0)
            flow_fail(conn, 502, err.message);
        return !conn->dialling;
    }
    int r = bside_handshake(&conn->up, &err);
    if (r == -EAGAIN)
        return false;
    if (r < 0) {
        flow_fail(conn, 502, err.message);
        return true;
    }
    if (!judge(conn, &conn->dialled))
        return true;
    r = write_head(conn, &result, &err);
    if (r < 0) {
        if (result.status == 403) {
            bconn_event(conn, GATE_DENIED, err.message, NULL);
            flow_answer(conn, 403, err.message);
        } else {
            flow_fail(conn, result.status, err.message);
        }
        return true;
    }
    report(conn, &result);
    conn->request = REQUEST_SEND;
    return true;
}

/* An upstream that has closed an idle connection just now looks like this. A client of its own would have seen that;
 * ours sees it from us. */
static bool lost_before_reply(struct broker_conn *conn)
{
    if (!conn->up_used || conn->reply_begun || wbuf_size(&conn->from_up) > 0)
        return false;
    bconn_end(conn, "the upstream closed an idle connection");
    return true;
}

static bool send_head(struct broker_conn *conn)
{
    ssize_t n = bside_write(&conn->up, wbuf_at(&conn->up_head), wbuf_size(&conn->up_head));

    if (n == -EAGAIN)
        return false;
    if (n < 0) {
        if (!lost_before_reply(conn))
            flow_fail(conn, 502, "the upstream closed the connection");
        return true;
    }
    wbuf_consume(&conn->up_head, (size_t)n);
    if (wbuf_size(&conn->up_head) > 0)
        return true;
    conn->reply = REPLY_HEAD;
    conn->from_up_scanned = 0;
    conn->request = conn->head.body == HTTP_BODY_NONE ? REQUEST_SENT : REQUEST_BODY;
    if (conn->spool.len > 0 && buf_append(&conn->to_up, conn->spool.data, conn->spool.len) < 0)
        bconn_end(conn, "out of memory");
    if (conn->spool.data)
        conn->request = REQUEST_SENT;
    return true;
}

/* Both are done: on to the next, or to the end. */
static bool end_exchange(struct broker_conn *conn)
{
    if (conn->reply != REPLY_OVER || conn->to_up.len > 0)
        return false;
    flow_over(conn);
    conn->reply = REPLY_IDLE;
    conn->up_used = true;
    if (conn->close_up)
        bconn_drop_up(conn);
    conn->request = conn->close_client ? REQUEST_CLOSING : REQUEST_HEAD;
    return true;
}

static bool close_client(struct broker_conn *conn)
{
    if (conn->to_client.len > 0)
        return false;
    if (conn->cut) {
        bconn_end(conn, conn->cut);
        return false;
    }
    bconn_drop_up(conn);
    bside_shutdown(&conn->client);
    conn->request = REQUEST_LINGER;
    return true;
}

/* Closing with unread bytes would reset the connection, and the client might never see the answer. */
static bool linger(struct broker_conn *conn)
{
    char bytes[4096];
    ssize_t n = recv(conn->client.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n > 0) {
        conn->client.bytes_in += (uint64_t)n;
        return true;
    }
    if (n < 0 && errno == EAGAIN)
        conn->client.want_in = true;
    else
        bconn_end(conn, "");
    return false;
}

bool request_step(struct broker_conn *conn)
{
    struct brig_err err = {0};
    int r;

    switch (conn->request) {
    case REQUEST_HANDSHAKE:
        r = bside_handshake(&conn->client, &err);
        if (r == 0)
            conn->request = REQUEST_HEAD;
        else if (r != -EAGAIN)
            bconn_end(conn, err.message);
        return r == 0;
    case REQUEST_HEAD:
        if (slot_behind(conn->start.slot)) { /* a request is a decision, and none is to be lost */
            if (loop_timer_set(conn->loop, &conn->kick, loop_now_ns() + BEHIND_NS, NULL) < 0)
                bconn_end(conn, "out of memory");
            return false;
        }
        return take_head(conn);
    case REQUEST_SPOOL: return spool_body(conn);
    case REQUEST_CONNECT: return connect_up(conn);
    case REQUEST_SEND: return send_head(conn);
    case REQUEST_BODY: return take_body(conn);
    case REQUEST_SENT: return end_exchange(conn);
    case REQUEST_TUNNEL: return tunnel_out(conn);
    case REQUEST_CLOSING: return close_client(conn);
    case REQUEST_LINGER:
    default: return linger(conn);
    }
}
