/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c: plain HTTP, one exchange at a time. Theory of operation:
 *
 *     HEAD ── a whole head, judged ──> DIAL (when there is no server yet) ──> EXCHANGE ──┐
 *       ^                                                                                │ both bodies are complete
 *       └────────────────────────────────────────────────────────────────────────────────┘
 *
 * A request is not read before the response to the last one is complete, so a refusal never has to overtake anything,
 * and every request is judged: method, path, Host. The strict readers of codec/http/http.h find the end of a body on
 * both sides; a message that they refuse ends the connection. The connection also ends after a denied request, because
 * its body would have to be skipped.
 *
 * A chunked body is passed on in chunks of our own, of at most one read each, without extensions and trailers. A server
 * that reads sizes, extensions or trailers in another way than we do (a size of 33 bits as one of 32, say) would find
 * another end of the body, and take what comes after it for a request that nobody has judged. The same holds for
 * responses: through the proxy, one connection of a client may have answers of several servers.
 */
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

enum plain_state { PLAIN_HEAD, PLAIN_DIAL, PLAIN_EXCHANGE };

struct plain {
    struct buf in;    /* from the client, not judged yet */
    struct buf out;   /* the judged head, until the server is there */
    struct buf reply; /* from the server, until its head is whole */
    size_t scanned;
    struct http_body_reader up, down;
    uint8_t state;
    bool up_done, replied, down_done;
    bool upgrade; /* what follows this request is something else */
    bool last;    /* no further request */
    char method[33];
    char *path; /* of the request under way */
};

static bool via_proxy(const struct conn *conn)
{
    return conn->proxied && !conn->spoken;
}

const char *plain_method(const struct conn *conn)
{
    return conn->plain->method;
}

const char *plain_path(const struct conn *conn)
{
    return conn->plain->path;
}

bool plain_answering(const struct conn *conn)
{
    return conn->plain->replied && !conn->plain->down_done;
}

bool plain_wants(const struct conn *conn, const struct side *side)
{
    const struct plain *plain = conn->plain;

    if (side == &conn->server)
        return true; /* an answer, or its end */
    return plain->state == PLAIN_HEAD || (plain->state == PLAIN_EXCHANGE && !plain->up_done);
}

size_t plain_room(const struct conn *conn, const struct side *side)
{
    return side == &conn->client ? conn->plain->in.max - conn->plain->in.len : EGRESS_CHUNK;
}

size_t plain_kept(const struct conn *conn)
{
    const struct plain *plain = conn->plain;

    return plain->in.cap + plain->out.cap + plain->reply.cap;
}

void plain_free(struct conn *conn)
{
    struct plain *plain = take_ptr(&conn->plain);

    if (!plain)
        return;
    buf_done(&plain->in);
    buf_done(&plain->out);
    buf_done(&plain->reply);
    mem_free(plain->path);
    mem_free(plain);
}

static void empty(struct buf *buf)
{
    size_t max = buf->max;

    buf_done(buf);
    *buf = BUF_INIT(max);
}

/* ---- the request ---------------------------------------------------------------------------------------- */

#define CHUNK_GROWTH 6u /* a single byte becomes "1\r\nX\r\n" */

static int put_chunk(struct buf *out, const char *data, size_t len)
{
    int r = http_put_chunk_head(out, len);

    if (r == 0)
        r = buf_append(out, data, len);
    return r == 0 ? buf_append(out, "\r\n", 2) : r;
}

/*
 * How many of these bytes belong to the body, and whether it ends with them; -1: it is malformed. With out, a chunked
 * body goes there in chunks of our own.
 */
static ssize_t take_body(struct http_body_reader *body, bool *done, const char *data, size_t len, struct buf *out)
{
    size_t at = 0;
    int r = 0;

    while (at < len && !*done && r == 0) {
        const char *piece;
        size_t n;
        int took = http_body_take(body, data + at, len - at, &piece, &n, done);
        if (took < 0)
            return -1;
        at += (size_t)took;
        r = out && n > 0 ? put_chunk(out, piece, n) : 0;
        if (out && r == 0 && *done)
            r = buf_append_str(out, "0\r\n\r\n");
        if (took == 0)
            break;
    }
    return r < 0 ? -1 : (ssize_t)at;
}

/* Body bytes on to the server; returns how many belong to this request, or -1 when it was ended. */
static ssize_t forward_body(struct conn *conn, const char *data, size_t len)
{
    struct plain *plain = conn->plain;
    AUTO_BUF struct buf out = BUF_INIT(CHUNK_GROWTH * len + 64);
    const bool chunked = plain->up.kind == HTTP_BODY_CHUNKED;
    ssize_t at = take_body(&plain->up, &plain->up_done, data, len, chunked ? &out : NULL);

    if (at < 0) {
        conn_reset(conn, "the request's body is malformed");
        return -1;
    }
    if (side_put(conn, &conn->server, chunked ? out.data : data, chunked ? out.len : (size_t)at) < 0) {
        conn_fail(conn, "it closed the connection");
        return -1;
    }
    return at;
}

/* What follows is not HTTP any more, and may be anything. */
static void let_go(struct conn *conn)
{
    struct plain *plain = conn->plain;
    int r = buf_append(&plain->out, plain->in.data, plain->in.len);

    if (r == 0)
        r = side_put(conn, &conn->server, plain->out.data, plain->out.len);
    plain_free(conn);
    conn->seen = POLICY_SEEN_OTHER;
    conn->stage = CONN_RELAY;
    if (r < 0)
        conn_reset(conn, "the server has gone");
}

static void exchange(struct conn *conn, const struct policy_answer *answer)
{
    struct plain *plain = conn->plain;

    plain->state = PLAIN_EXCHANGE;
    plain->replied = plain->down_done = false;
    plain->up_done = plain->up.kind == HTTP_BODY_NONE;
    conn->rule = answer->rule;
    if (!conn_tell(conn, GATE_ALLOWED, answer, NULL)) {
        conn_reset(conn, "out of memory");
        return;
    }
    if (plain->upgrade) {
        let_go(conn);
        return;
    }
    if (side_put(conn, &conn->server, plain->out.data, plain->out.len) < 0) {
        conn_fail(conn, "it closed the connection");
        return;
    }
    empty(&plain->out);
    if (plain->up_done || plain->in.len == 0)
        return;
    ssize_t n = forward_body(conn, plain->in.data, plain->in.len);
    if (n >= 0)
        buf_consume(&plain->in, (size_t)n);
}

/* The server is there: the request is judged again, with the address that it goes to. */
static void to_server(struct conn *conn)
{
    struct plain *plain = conn->plain;
    struct policy_answer answer;

    if (judge_method(conn, conn->slot->policy, plain->method, plain->path, &answer))
        exchange(conn, &answer);
    else
        conn_refuse_http(conn, 403, &answer);
}

void plain_dialled(struct conn *conn)
{
    if (!conn_arm(conn, CONN_IDLE_NS))
        return;
    to_server(conn);
    plain_progress(conn);
    relay_watch(conn);
}

/* Secrets' placeholders have no business here: the host is not theirs. They stay what they are. */
static void tell_placeholder(struct conn *conn)
{
    const struct plain *plain = conn->plain;
    struct policy_answer answer;

    if (!conn->slot->broker)
        return;
    const char *secret = broker_finds_placeholder(conn->slot->broker, plain->out.data, plain->out.len);
    if (!secret)
        return;
    conn->slot->counts.foreign_placeholders++;
    judge_deny(&answer, "a placeholder was sent to a host that its secret is not for");
    conn_tell(conn, GATE_DENIED, &answer, secret);
    conn->slot->counts.denied--; /* the request itself goes on */
}

static int remember(struct conn *conn, const struct http_head *head)
{
    struct plain *plain = conn->plain;
    const char *path = plain_target_path(head->target);
    size_t len = strcspn(path, "?");

    mem_free(take_ptr(&plain->path));
    plain->path = mem_alloc(len + 2);
    if (!plain->path)
        return -ENOMEM;
    memcpy(plain->path, len > 0 ? path : "/", len > 0 ? len : 1);
    plain->path[len > 0 ? len : 1] = '\0';
    http_body_init(&plain->up, head);
    plain->upgrade = conn->open && ((head->upgrade && !plain_upgrade_is_h2c(head)) || str_eq(head->method, "CONNECT"));
    plain->last = plain->last || !head->keep_alive;
    plain->out.len = 0;
    int r = str_copy(plain->method, sizeof plain->method, head->method);
    return r == 0 ? plain_put_head(&plain->out, head, via_proxy(conn)) : r;
}

static void judged(struct conn *conn, const struct http_head *head, size_t took)
{
    struct plain *plain = conn->plain;

    if (remember(conn, head) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    buf_consume(&plain->in, took);
    if (plain->in.len == 0)
        empty(&plain->in);
    plain->scanned = 0;
    tell_placeholder(conn);
    if (conn->server.fd >= 0) {
        to_server(conn);
        return;
    }
    plain->state = PLAIN_DIAL;
    conn_dial(conn);
}

/*
 * A request through the proxy to a host with a brokered secret: the broker gets what a program without a proxy would
 * have sent.
 */
static void hand_over(struct conn *conn, const struct http_head *head, size_t took)
{
    struct plain *plain = conn->plain;

    plain->out.len = 0;
    if (plain_put_head(&plain->out, head, true) < 0 ||
        buf_append(&plain->out, plain->in.data + took, plain->in.len - took) < 0) {
        conn_reset(conn, "out of memory");
        return;
    }
    buf_done(&conn->first);
    conn->first = plain->out;
    plain->out = BUF_INIT(EGRESS_FIRST_MAX);
    plain_free(conn);
    conn_to_broker(conn, true);
}

/* true: a request was taken out of `in`. */
static bool next_request(struct conn *conn)
{
    struct plain *plain = conn->plain;
    struct http_head head;
    struct policy_answer answer;
    struct brig_err err = {0};

    if (outbox_full(conn->slot)) {
        budget_wait(conn); /* looked at again a moment later */
        return false;
    }
    int took = http_request_parse(plain->in.data, plain->in.len, NULL, &plain->scanned, &head, &err);
    if (took == 0)
        return false;
    if (took < 0) {
        judge_deny(&answer, "a malformed request: %.100s", err.message);
        conn_refuse_http(conn, (unsigned)-took, &answer);
        return false;
    }
    if (via_proxy(conn) && !proxy_target(conn, &head))
        return false;
    if (!judge_request(conn, &head, &answer))
        conn_refuse_http(conn, 403, &answer);
    else if (via_proxy(conn) && conn->server.fd < 0 && conn_brokered(conn))
        hand_over(conn, &head, (size_t)took);
    else
        judged(conn, &head, (size_t)took);
    return true;
}

void plain_client(struct conn *conn, const char *data, size_t len)
{
    struct plain *plain = conn->plain;

    if (plain->state == PLAIN_EXCHANGE && !plain->up_done) {
        ssize_t n = forward_body(conn, data, len);
        if (n < 0)
            return;
        data += n;
        len -= (size_t)n;
    }
    if (len > 0 && buf_append(&plain->in, data, len) < 0)
        conn_reset(conn, "more requests at once than are kept");
}

/* ---- the response --------------------------------------------------------------------------------------- */

static void to_client(struct conn *conn, const char *data, size_t len)
{
    if (side_put(conn, &conn->client, data, len) < 0)
        conn_reset(conn, "the client has gone");
}

/* To the client: a head (or nothing), and what of the bytes after it belongs to the response's body. How many bytes
 * those were; -1 when it was ended. */
static ssize_t to_client_with_body(struct conn *conn, const char *data, size_t head, size_t len)
{
    struct plain *plain = conn->plain;
    AUTO_BUF struct buf out = BUF_INIT(head + CHUNK_GROWTH * len + 64);
    const bool chunked = plain->replied && plain->down.kind == HTTP_BODY_CHUNKED;
    ssize_t at = 0;

    if (chunked)
        at = buf_append(&out, data, head) < 0 ? -1 : take_body(&plain->down, &plain->down_done, data + head, len, &out);
    else if (plain->replied)
        at = take_body(&plain->down, &plain->down_done, data + head, len, NULL);
    if (at < 0) {
        conn_reset(conn, "the response's body is malformed");
        return -1;
    }
    /* Bytes that answer nothing: nothing after them could be told from them. */
    if (plain->replied && (size_t)at < len)
        plain->last = true;
    if (chunked)
        to_client(conn, out.data, out.len);
    else
        to_client(conn, data, head + (size_t)at);
    return conn->stage == CONN_PLAIN ? at : -1;
}

/* One head, of an interim response or the final one. > 0: what it took; 0: more is needed; -1: ended. */
static int response_head(struct conn *conn)
{
    struct plain *plain = conn->plain;
    struct http_head head;
    struct brig_err err = {0};
    size_t scanned = 0;
    /* the parser writes into it, and the client gets it as it was */
    AUTO_FREE char *copy = mem_alloc(plain->reply.len);

    if (!copy) {
        conn_reset(conn, "out of memory");
        return -1;
    }
    memcpy(copy, plain->reply.data, plain->reply.len);
    int took = http_response_parse(copy, plain->reply.len, plain->method, NULL, &scanned, &head, &err);
    if (took == 0)
        return 0;
    if (took < 0 || head.status == 101) {
        conn_fail(conn, took < 0 ? err.message : "it switched protocols unasked");
        return -1;
    }
    if (head.status >= 200) {
        plain->replied = true;
        plain->down_done = head.body == HTTP_BODY_NONE;
        plain->last = plain->last || !head.keep_alive || head.body == HTTP_BODY_UNTIL_CLOSE;
        http_body_init(&plain->down, &head);
    }
    return took;
}

/* The heads that are whole, and what follows the last one, in one piece to the client. false: more is needed, or it was
 * ended. */
static bool reply_heads(struct conn *conn)
{
    struct plain *plain = conn->plain;

    while (!plain->replied && plain->reply.len > 0) {
        int took = response_head(conn);
        if (took <= 0)
            return false;
        ssize_t body = to_client_with_body(conn, plain->reply.data, (size_t)took, plain->reply.len - (size_t)took);
        if (body < 0)
            return false;
        buf_consume(&plain->reply, (size_t)took + (size_t)body);
    }
    if (plain->replied)
        empty(&plain->reply);
    return plain->replied;
}

void plain_server(struct conn *conn, const char *data, size_t len)
{
    struct plain *plain = conn->plain;

    if (plain->state != PLAIN_EXCHANGE || plain->down_done) {
        if (plain->state == PLAIN_EXCHANGE && plain->last)
            return;
        conn_reset(conn, "the server spoke unasked");
        return;
    }
    if (!plain->replied) {
        size_t n = plain->reply.max - plain->reply.len;
        if (n > len)
            n = len;
        if (n == 0 || buf_append(&plain->reply, data, n) < 0) {
            conn_fail(conn, "its response's head is too long");
            return;
        }
        if (!reply_heads(conn))
            return;
        data += n;
        len -= n;
    }
    if (len > 0 && plain->replied)
        (void)!to_client_with_body(conn, data, 0, len);
}

/* ---- ends ----------------------------------------------------------------------------------------------- */

void plain_eof(struct conn *conn, struct side *side)
{
    struct plain *plain = conn->plain;
    bool under_way = plain->state == PLAIN_EXCHANGE;

    if (side == &conn->client) {
        if (under_way && plain->up_done)
            plain->last = true; /* it waits for the answer */
        else if (!under_way && plain->in.len == 0)
            conn_end(conn, "");
        else
            conn_reset(conn, "the client ended within a request");
        return;
    }
    if (under_way && plain->replied && (plain->down.kind == HTTP_BODY_UNTIL_CLOSE || plain->down_done))
        plain->down_done = plain->last = true;
    else if (under_way && !plain->replied)
        conn_fail(conn, "it closed the connection without an answer");
    else if (under_way)
        conn_reset(conn, "the server ended within a response");
    else if (plain->in.len == 0)
        conn_end(conn, "");
    else
        conn_reset(conn, "the server has gone");
}

/* The answer is complete, and so is the connection: the FIN goes after what is pending. */
static void farewell(struct conn *conn)
{
    side_close(conn, &conn->server, false);
    side_shut(&conn->client);
    conn->stage = CONN_LINGER;
    if (conn_arm(conn, UINT64_C(10) * 1000000000u) &&
        side_watch(conn, &conn->client, 1u /* EPOLLIN */ | (conn->client.pend ? 4u /* EPOLLOUT */ : 0u)) < 0)
        conn_reset(conn, "");
}

void plain_progress(struct conn *conn)
{
    for (;;) {
        struct plain *plain = conn->plain;
        if (conn->stage != CONN_PLAIN || !plain)
            return;
        if (plain->state == PLAIN_EXCHANGE && plain->down_done && (plain->up_done || plain->last)) {
            mem_free(take_ptr(&plain->path));
            if (plain->last) {
                farewell(conn);
                return;
            }
            plain->state = PLAIN_HEAD;
        }
        if (plain->state != PLAIN_HEAD || plain->in.len == 0 || conn->waiting || !next_request(conn))
            return;
    }
}

int plain_start(struct conn *conn)
{
    struct plain *plain = mem_zalloc(sizeof *plain);

    if (!plain)
        return -ENOMEM;
    plain->in = conn->first;
    conn->first = BUF_INIT(EGRESS_FIRST_MAX);
    plain->out = plain->reply = BUF_INIT(EGRESS_FIRST_MAX);
    conn->plain = plain;
    conn->seen = POLICY_SEEN_HTTP;
    conn->stage = CONN_PLAIN;
    conn->last_ns = loop_now_ns();
    plain_progress(conn);
    relay_watch(conn);
    return 0;
}
