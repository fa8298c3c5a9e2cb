/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WebSocket (RFC 6455). wslay reads frames, answers pings and does the closing handshake; messages that we send need no
 * mask, so their frames are a few bytes in front of the data, written here without another copy.
 *
 * Against hostile clients: a message is at most 1 MiB (1009) in at most FRAGMENTS_MAX frames (1009: many empty frames
 * would cost memory and time that their bytes do not show), control frames come at most CONTROL_MAX times a second
 * (1008), frames without a mask or with reserved bits end it (1002). permessage-deflate is not offered. What is kept of
 * messages counts for the organisation, from the heads of their frames on; over its share, the WebSocket ends (1013).
 *
 * wslay keeps up to 4 KiB of input of its own: after exchange_ws_pause() a few short messages may still come.
 */
#include "http/server_conn.h"

#include <openssl/evp.h>
#include <wslay/wslay.h>

#include "base/err.h"
#include "base/mem.h"
#include "codec/json/json.h"

#define MESSAGE_MAX (1u << 20)
#define FRAGMENTS_MAX 1024u
#define CONTROL_MAX 100u
#define TRY_AGAIN_LATER 1013u /* of IANA's registry; wslay has no name for it */
#define KEY_LEN 24u           /* 16 bytes in base64 */

struct websocket {
    struct exchange *x;
    struct wslay_event_context *wslay;
    struct ws_events events;
    const char *feed; /* input that wslay has not taken yet */
    size_t feed_len;
    struct buf backlog; /* the same, while paused */
    size_t message;     /* bytes of the message that comes, by the heads of its frames */
    unsigned fragments, controls;
    uint64_t second; /* in which controls were counted */
    unsigned code;   /* not 0: it ended with this */
    bool closing;    /* our close was sent */
    bool stopped;    /* no more frames are looked at */
};

/* ---- wslay's callbacks -------------------------------------------------------------------------- */

static ssize_t on_recv(struct wslay_event_context *wslay, uint8_t *data, size_t len, UNUSED int flags, void *ctx)
{
    struct websocket *ws = ctx;
    size_t n = ws->feed_len < len ? ws->feed_len : len;

    if (n == 0 || ws->stopped || ws->x->input == INPUT_PAUSED) {
        wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(data, ws->feed, n);
    ws->feed += n;
    ws->feed_len -= n;
    return (ssize_t)n;
}

static ssize_t on_send(UNUSED struct wslay_event_context *wslay, const uint8_t *data, size_t len, UNUSED int flags,
                       void *ctx)
{
    struct websocket *ws = ctx;

    conn_write(ws->x->conn, &(struct iovec){(void *)(uintptr_t)data, len}, 1, true);
    return (ssize_t)len;
}

static void stop(struct websocket *ws, unsigned code, const char *reason)
{
    if (ws->stopped)
        return;
    ws->stopped = true;
    ws->code = code;
    (void)wslay_event_queue_close(ws->wslay, (uint16_t)code, (const uint8_t *)reason, strlen(reason));
}

/* false: the organisation has its share. */
static bool count_kept(struct websocket *ws)
{
    return share_partial(ws->x->conn, ws->message + ws->backlog.len);
}

static void on_frame(UNUSED struct wslay_event_context *wslay, const struct wslay_event_on_frame_recv_start_arg *arg,
                     void *ctx)
{
    struct websocket *ws = ctx;

    if (wslay_is_ctrl_frame(arg->opcode)) {
        uint64_t second = ws->x->conn->server->now_ms / 1000;
        if (second != ws->second) {
            ws->second = second;
            ws->controls = 0;
        }
        if (++ws->controls > CONTROL_MAX)
            stop(ws, WSLAY_CODE_POLICY_VIOLATION, "too many control frames");
        return;
    }
    if (arg->opcode != WSLAY_CONTINUATION_FRAME)
        ws->message = ws->fragments = 0;
    if (++ws->fragments > FRAGMENTS_MAX)
        stop(ws, WSLAY_CODE_MESSAGE_TOO_BIG, "too many fragments");
    /* wslay refuses longer ones itself, with its own code. */
    if (arg->payload_length > MESSAGE_MAX || ws->message > MESSAGE_MAX)
        return;
    ws->message += (size_t)arg->payload_length;
    if (!count_kept(ws))
        stop(ws, TRY_AGAIN_LATER, "the organisation has its share of messages under way");
}

static void on_message(UNUSED struct wslay_event_context *wslay, const struct wslay_event_on_msg_recv_arg *arg,
                       void *ctx)
{
    struct websocket *ws = ctx;
    bool text = arg->opcode == WSLAY_TEXT_FRAME;

    if (ws->stopped || ws->closing || (!text && arg->opcode != WSLAY_BINARY_FRAME))
        return;
    ws->message = 0;
    (void)!count_kept(ws);             /* it is less than before */
    (void)wslay_event_send(ws->wslay); /* a pong goes before the answer to what came after its ping */
    ws->events.message(ws->events.ctx, ws->x, text, arg->msg ? (const char *)arg->msg : "", arg->msg_length);
}

/* ---- running ------------------------------------------------------------------------------------ */

/* The last call. The connection lingers, since the peer may still be sending. */
static void finish(struct exchange *x)
{
    struct websocket *ws = x->ws;

    x->conn->close = x->conn->linger = true;
    exchange_over(x);
    if (ws->events.closed)
        ws->events.closed(ws->events.ctx, x, ws->code);
}

static void feed(struct websocket *ws, const char *data, size_t len)
{
    static const uint8_t protocol_error[] = {0x88, 2, 0x03, 0xea}; /* close, 1002 */
    struct wslay_event_context *wslay = ws->wslay;

    ws->feed = data;
    ws->feed_len = len;
    int r = ws->stopped ? 0 : wslay_event_recv(wslay);
    if (r == WSLAY_ERR_CALLBACK_FAILURE) {
        /* A frame that cannot be: wslay would close without a code. */
        conn_write(ws->x->conn, &(struct iovec){(void *)(uintptr_t)protocol_error, sizeof(protocol_error)}, 1, true);
        ws->stopped = true;
        ws->code = WSLAY_CODE_PROTOCOL_ERROR;
        return;
    }
    if (r == 0)
        r = wslay_event_send(wslay);
    if (r < 0) {
        ws->x->conn->broken = true; /* out of memory */
        return;
    }
    if (ws->code == 0 && !wslay_event_want_read(wslay) && !wslay_event_want_write(wslay)) {
        if (wslay_event_get_close_received(wslay))
            ws->code = wslay_event_get_status_code_received(wslay);
        else
            ws->code = wslay_event_get_status_code_sent(wslay);
        if (ws->code == 0)
            ws->code = WSLAY_CODE_ABNORMAL_CLOSURE;
    }
}

/* What wslay did not take while paused waits for its turn. */
static void keep_rest(struct websocket *ws)
{
    if (ws->feed_len > 0 && ws->code == 0 && (buf_append(&ws->backlog, ws->feed, ws->feed_len) < 0 || !count_kept(ws)))
        ws->x->conn->broken = true;
    ws->feed_len = 0;
}

static bool read_some(struct exchange *x)
{
    struct conn *conn = x->conn;

    if (!conn_readable(conn))
        return false;
    char *scratch = scratch_take(conn->server);
    if (!scratch) {
        conn->broken = true;
        return true;
    }
    ssize_t n = conn_read(conn, scratch, SCRATCH_SIZE);
    if (n > 0) {
        feed(x->ws, scratch, (size_t)n);
        keep_rest(x->ws);
    } else if (n != -EAGAIN) {
        conn->broken = true;
    }
    scratch_give(conn->server, scratch);
    return n != -EAGAIN;
}

bool websocket_step(struct exchange *x)
{
    struct websocket *ws = x->ws;

    if (ws->code != 0)
        return finish(x), true;
    if (x->input == INPUT_PAUSED)
        return body_watch(x);
    if (ws->backlog.len > 0) {
        struct buf data AUTO_BUF = ws->backlog;
        ws->backlog = BUF_INIT(data.max);
        (void)!count_kept(ws);
        feed(ws, data.data, data.len);
        keep_rest(ws);
        return true;
    }
    return read_some(x);
}

void websocket_gone(struct exchange *x)
{
    struct websocket *ws = x->ws;

    if (ws->events.closed && !x->over)
        ws->events.closed(ws->events.ctx, x, WSLAY_CODE_ABNORMAL_CLOSURE);
}

void websocket_timeout(struct exchange *x)
{
    if (x->ws->code == 0)
        x->ws->code = wslay_event_get_status_code_sent(x->ws->wslay);
}

bool websocket_closing(const struct exchange *x)
{
    return x->ws->closing;
}

void websocket_free(struct websocket *ws)
{
    if (!ws)
        return;
    if (ws->wslay)
        wslay_event_context_free(ws->wslay);
    buf_done(&ws->backlog);
    mem_free(ws);
}

/* ---- the handshake ------------------------------------------------------------------------------ */

bool exchange_wants_websocket(const struct exchange *x)
{
    const char *upgrade = http_field(&x->head, "upgrade");

    return x->head.upgrade && word_listed(upgrade, "websocket", 9) && strcmp(x->head.method, "GET") == 0 &&
           x->head.body == HTTP_BODY_NONE;
}

static int check_handshake(struct exchange *x, struct brig_err *err)
{
    const char *key = http_field(&x->head, "sec-websocket-key");
    const char *version = http_field(&x->head, "sec-websocket-version");

    if (x->over || x->begun || x->reading != READING_NOTHING || !exchange_wants_websocket(x))
        return err_usage(err, "this request does not ask for a WebSocket");
    if (!version || strcmp(version, "13") != 0) {
        (void)exchange_add_field(x, "Sec-WebSocket-Version", "13");
        return err_usage(err, "Sec-WebSocket-Version must be 13");
    }
    if (!key || strlen(key) != KEY_LEN || strcmp(key + KEY_LEN - 2, "==") != 0)
        return err_usage(err, "Sec-WebSocket-Key is malformed");
    return 0;
}

static int accept_value(const char *key, struct buf *out)
{
    char text[KEY_LEN + 37];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    int n = snprintf(text, sizeof(text), "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", (int)KEY_LEN, key);

    if (n < 0 || EVP_Digest(text, (size_t)n, digest, &len, EVP_sha1(), NULL) != 1)
        return -ENOMEM;
    return base64_append(out, digest, len);
}

static int build_answer(struct exchange *x, const char *protocol)
{
    struct buf *out = &x->conn->server->head;
    struct buf value AUTO_BUF = BUF_INIT(128);

    out->len = 0;
    int r = accept_value(http_field(&x->head, "sec-websocket-key"), &value);
    if (r == 0)
        r = http_put_status(out, 101);
    if (r == 0)
        r = http_put_field(out, "Upgrade", "websocket");
    if (r == 0)
        r = http_put_field(out, "Connection", "Upgrade");
    if (r == 0)
        r = http_put_field(out, "Sec-WebSocket-Accept", value.data);
    if (r == 0 && protocol)
        r = http_put_field(out, "Sec-WebSocket-Protocol", protocol);
    if (r == 0)
        r = http_put_field(out, "X-Request-Id", exchange_id(x));
    if (r == 0)
        r = buf_append(out, x->fields.data, x->fields.len);
    return r < 0 ? r : http_put_end(out);
}

static struct websocket *create(struct exchange *x, const struct ws_events *events)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame,
        .on_msg_recv_callback = on_message,
    };
    struct websocket *ws = mem_zalloc(sizeof(*ws));

    if (!ws)
        return NULL;
    ws->x = x;
    ws->events = *events;
    ws->backlog = BUF_INIT(2u * SCRATCH_SIZE + x->in_cap);
    if (wslay_event_context_server_init(&ws->wslay, &callbacks, ws) != 0)
        return websocket_free(ws), NULL;
    wslay_event_config_set_max_recv_msg_length(ws->wslay, MESSAGE_MAX);
    return ws;
}

int exchange_websocket(struct exchange *x, const struct ws_events *events, const char *protocol, struct brig_err *err)
{
    struct conn *conn = x->conn;
    int r = check_handshake(x, err);

    if (r < 0)
        return r;
    struct websocket *ws = create(x, events);
    r = ws ? build_answer(x, protocol) : -ENOMEM;
    /* Frames that came with the head are the first of the backlog. */
    if (r == 0)
        r = buf_append(&ws->backlog, x->in + x->in_at, x->in_len - x->in_at);
    if (r < 0) {
        websocket_free(ws);
        return r == -EINVAL ? err_usage(err, "the subprotocol is malformed") : err_nomem(err);
    }
    x->in_at = x->in_len;
    x->ws = ws;
    x->status = 101;
    x->begun = true;
    x->length_left = UINT64_MAX;
    x->reading = READING_WEBSOCKET;
    x->drained = events->drained;
    x->drained_ctx = events->ctx;
    conn->close = conn->linger = true;
    const struct buf *head = &conn->server->head;
    conn_write(conn, &(struct iovec){head->data, head->len}, 1, true);
    exchange_flow(x);
    return 0;
}

/* ---- what the handler calls --------------------------------------------------------------------- */

bool exchange_ws_send(struct exchange *x, bool text, const void *data, size_t len)
{
    struct conn *conn = x->conn;
    struct websocket *ws = x->ws;
    uint8_t head[10] = {(uint8_t)(0x80u | (text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME))};
    size_t n = 2;

    if (!ws || x->over || ws->closing || ws->stopped)
        return true;
    if (len < 126) {
        head[1] = (uint8_t)len;
    } else {
        size_t bytes = len <= UINT16_MAX ? 2 : 8;
        head[1] = bytes == 2 ? 126 : 127;
        for (size_t i = 0; i < bytes; i++)
            head[n++] = (uint8_t)((uint64_t)len >> (8 * (bytes - 1 - i)));
    }
    if (conn_pending(conn) > OUT_HARD) {
        conn->broken = true; /* false was returned many times */
        conn_touch(conn);
        return false;
    }
    x->bytes += len;
    struct iovec iov[] = {{head, n}, {(void *)(uintptr_t)data, len}};
    conn_write(conn, iov, 2, true);
    return exchange_goes_on(x);
}

void exchange_ws_pause(struct exchange *x, bool on)
{
    if (!x->ws || x->over)
        return;
    if (on)
        x->input = INPUT_PAUSED;
    else if (x->input == INPUT_PAUSED)
        exchange_flow(x);
}

void exchange_ws_close(struct exchange *x, unsigned code, const char *reason)
{
    struct websocket *ws = x->ws;
    const char *text = reason ? reason : "";
    size_t len = strlen(text);

    if (!ws || x->over || ws->closing || ws->stopped)
        return;
    ws->closing = true;
    if (wslay_event_queue_close(ws->wslay, (uint16_t)code, (const uint8_t *)text, len <= 123 ? len : 123) != 0 ||
        wslay_event_send(ws->wslay) != 0)
        x->conn->broken = true;
    if (x->input == INPUT_PAUSED)
        exchange_flow(x); /* the peer's close is waited for */
    x->conn->since_ms = server_clock(x->conn->server);
    conn_touch(x->conn);
}
