/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_websocket.c: the client's half of WebSocket (RFC 6455), without extensions. Theory of operation:
 *
 * One buffer takes what arrives. A frame is used where it lies once it is complete (in[at..len)), so a message of one
 * frame is never copied. Fragments are gathered in `message`. What must be sent waits, framed and masked, in `out`; the
 * caller stops when ws_pending() is large.
 *
 * Refused with -EPROTO: a masked frame, reserved bits, an unknown opcode, a control frame that is long or in pieces, a
 * continuation of nothing, a new message within another, a length in a longer form than needed. Refused with -EMSGSIZE:
 * a message over MESSAGE_MAX.
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "client/internal.h"
#include "client/sha1.h"
#include "codec/json/json.h"

#define MESSAGE_MAX ((size_t)16 << 20)
#define RECEIVE ((size_t)256 << 10)
#define OUT_MAX ((size_t)64 << 20)
#define CONTROL_MAX 125u
#define PONGS_MAX ((size_t)64 << 10) /* waiting; a peer that pings and does not read gets no more */

enum { OP_CONTINUATION = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct ws {
    int fd;
    struct buf in, message, out;
    size_t at;           /* of in: consumed */
    size_t sent;         /* of out */
    unsigned message_op; /* of the message whose fragments are being gathered, or 0 */
    bool message_given, close_sent, close_received, broken;
};

struct frame {
    unsigned op;
    bool fin;
    const uint8_t *data;
    size_t len;
};

/* ---- sending -------------------------------------------------------------------------------------- */

int ws_flush(struct ws *ws, struct brig_err *err)
{
    while (ws->sent < ws->out.len) {
        ssize_t n = RETRY(send(ws->fd, ws->out.data + ws->sent, ws->out.len - ws->sent, MSG_NOSIGNAL));
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            /* What the peer said last may still be there to be read. */
            ws->out.len = ws->sent = 0;
            ws->broken = true;
            return err_set(err, BRIG_E_GONE, errno, "the connection broke");
        }
        ws->sent += (size_t)n;
    }
    if (ws->sent == ws->out.len) {
        ws->out.len = ws->sent = 0;
    } else if (ws->sent > ws->out.len / 2) {
        buf_consume(&ws->out, ws->sent);
        ws->sent = 0;
    }
    return 0;
}

static size_t put_head(uint8_t *out, unsigned op, size_t len)
{
    out[0] = (uint8_t)(0x80 | op);
    if (len < 126) {
        out[1] = (uint8_t)(0x80 | len);
        return 2;
    }
    if (len <= UINT16_MAX) {
        out[1] = 0x80 | 126;
        out[2] = (uint8_t)(len >> 8);
        out[3] = (uint8_t)len;
        return 4;
    }
    out[1] = 0x80 | 127;
    for (unsigned i = 0; i < 8; i++)
        out[2 + i] = (uint8_t)((uint64_t)len >> (56 - 8 * i));
    return 10;
}

static int send_frame(struct ws *ws, unsigned op, const void *data, size_t len, struct brig_err *err)
{
    uint8_t mask[4];
    const uint8_t *in = data;

    if (ws->broken || ws->close_sent)
        return err_set(err, BRIG_E_GONE, EPIPE, "the connection is closed");
    /* The mask must not be foreseeable (RFC 6455, 10.3); without the generator nothing is sent. */
    if (getrandom(mask, sizeof(mask), 0) != (ssize_t)sizeof(mask))
        return err_host(err, "getrandom");
    int r = buf_reserve(&ws->out, len + 14);
    if (r < 0)
        return err_set(err, BRIG_E_GONE, -r, "too much waits to be sent");
    uint8_t *out = (uint8_t *)ws->out.data + ws->out.len;
    size_t head = put_head(out, op, len);
    memcpy(out + head, mask, 4);
    head += 4;
    for (size_t i = 0; i < len; i++)
        out[head + i] = in[i] ^ mask[i & 3];
    buf_commit(&ws->out, head + len);
    return ws_flush(ws, err);
}

int ws_send(struct ws *ws, enum ws_kind kind, const void *data, size_t len, struct brig_err *err)
{
    return send_frame(ws, kind, data, len, err);
}

static MUST_CHECK int ws_send_close(struct ws *ws, unsigned code, struct brig_err *err)
{
    const uint8_t data[2] = {(uint8_t)(code >> 8), (uint8_t)code};

    if (ws->close_sent)
        return 0;
    int r = send_frame(ws, OP_CLOSE, data, sizeof(data), err);
    ws->close_sent = true;
    return r;
}

size_t ws_pending(const struct ws *ws)
{
    return ws->out.len - ws->sent;
}

/* ---- receiving ------------------------------------------------------------------------------------ */

static int bad(struct ws *ws, struct brig_err *err, const char *what)
{
    ws->broken = true;
    err_set(err, BRIG_E_GONE, 0, "WebSocket: %s", what);
    return -EPROTO;
}

/* 1: a whole frame, from in[at]; 0: more bytes are needed. */
static int next_frame(struct ws *ws, struct frame *ret, size_t *ret_size, struct brig_err *err)
{
    const uint8_t *data = (const uint8_t *)ws->in.data + ws->at;
    size_t have = ws->in.len - ws->at, head = 2;

    if (have < 2)
        return 0;
    uint64_t len = data[1] & 0x7f;
    if (data[0] & 0x70)
        return bad(ws, err, "reserved bits are set");
    if (data[1] & 0x80)
        return bad(ws, err, "the server's frame is masked");
    unsigned op = data[0] & 0xf;
    if (op > OP_PONG || (op > OP_BINARY && op < OP_CLOSE))
        return bad(ws, err, "an unknown opcode");
    if (op >= OP_CLOSE && (len > CONTROL_MAX || !(data[0] & 0x80)))
        return bad(ws, err, "a control frame that is long or in pieces");
    if (len >= 126) {
        unsigned bytes = len == 126 ? 2 : 8;
        uint64_t least = len == 126 ? 126 : UINT16_MAX + UINT64_C(1);
        head += bytes;
        if (have < head)
            return 0;
        len = 0;
        for (unsigned i = 0; i < bytes; i++)
            len = len << 8 | data[2 + i];
        if (len < least)
            return bad(ws, err, "a length in the wrong form");
    }
    if (len > MESSAGE_MAX) {
        ws->broken = true;
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "WebSocket");
    }
    *ret_size = head + (size_t)len;
    if (have < *ret_size)
        return 0;
    *ret = (struct frame){.op = op, .fin = data[0] & 0x80, .data = data + head, .len = (size_t)len};
    return 1;
}

/* Makes room for a frame of size bytes and reads what is there. 1: something; 0: would block; -ENODATA: the end. */
static int fill(struct ws *ws, size_t size, struct brig_err *err)
{
    size_t have = ws->in.len - ws->at, want = size > have ? size - have : 0;

    if (want < RECEIVE)
        want = RECEIVE;
    if (ws->at > 0) {
        if (have > 0)
            memmove(ws->in.data, ws->in.data + ws->at, have);
        ws->in.len = have;
        ws->at = 0;
    }
    if (buf_reserve(&ws->in, want) < 0)
        return err_nomem(err);
    for (;;) {
        ssize_t n = recv(ws->fd, ws->in.data + ws->in.len, want, 0);
        if (n > 0) {
            buf_commit(&ws->in, (size_t)n);
            return 1;
        }
        if (n == 0 || errno == ECONNRESET)
            return -ENODATA;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return err_set(err, BRIG_E_GONE, errno, "the connection broke");
    }
}

static int take_control(struct ws *ws, const struct frame *frame, struct ws_message *ret, struct brig_err *err)
{
    struct brig_err ignored;

    if (frame->op == OP_PONG)
        return 0;
    if (frame->op == OP_PING) {
        if (ws_pending(ws) < PONGS_MAX && send_frame(ws, OP_PONG, frame->data, frame->len, &ignored) < 0)
            return 0; /* broken; reading tells */
        return 0;
    }
    if (frame->len == 1)
        return bad(ws, err, "a close with half a code");
    ws->close_received = true;
    *ret = (struct ws_message){.kind = WS_CLOSE, .code = 1005};
    if (frame->len >= 2) {
        ret->code = (unsigned)frame->data[0] << 8 | frame->data[1];
        ret->data = frame->data + 2;
        ret->len = frame->len - 2;
    }
    if (ws_send_close(ws, ret->code == 1005 ? 1000 : ret->code, &ignored) < 0)
        return 1; /* it does not hear our goodbye */
    return 1;
}

static int take_data(struct ws *ws, const struct frame *frame, struct ws_message *ret, struct brig_err *err)
{
    if ((frame->op == OP_CONTINUATION) != (ws->message_op != 0))
        return bad(ws, err, frame->op == OP_CONTINUATION ? "a continuation of nothing" : "a message within another");
    if (frame->fin && ws->message_op == 0) {
        *ret = (struct ws_message){.kind = (enum ws_kind)frame->op, .data = frame->data, .len = frame->len};
        return 1;
    }
    if (ws->message_op == 0)
        ws->message_op = frame->op;
    int r = buf_append(&ws->message, frame->data, frame->len);
    if (r < 0)
        return err_set(err, BRIG_E_TOO_LARGE, -r, "WebSocket");
    if (!frame->fin)
        return 0;
    *ret = (struct ws_message){
        .kind = (enum ws_kind)ws->message_op, .data = (const uint8_t *)ws->message.data, .len = ws->message.len};
    ws->message_op = 0;
    ws->message_given = true;
    return 1;
}

int ws_receive(struct ws *ws, struct ws_message *ret, struct brig_err *err)
{
    if (ws->message_given) {
        ws->message.len = 0;
        ws->message_given = false;
    }
    while (!ws->close_received) {
        struct frame frame = {0};
        size_t size = 0;
        int r = next_frame(ws, &frame, &size, err);
        if (r < 0)
            return r;
        if (r == 0) {
            r = fill(ws, size, err);
            if (r == -ENODATA) {
                ws->close_received = ws->broken = true;
                *ret = (struct ws_message){.kind = WS_CLOSE, .code = 1006};
                return 1;
            }
            if (r <= 0)
                return r;
            continue;
        }
        ws->at += size; /* the bytes stay until the next fill() */
        r = frame.op >= OP_CLOSE ? take_control(ws, &frame, ret, err) : take_data(ws, &frame, ret, err);
        if (r != 0)
            return r;
    }
    return 0;
}

int ws_fd(const struct ws *ws)
{
    return ws->fd;
}

/* ---- the handshake -------------------------------------------------------------------------------- */

void ws_accept_value(const char *key, char out[32])
{
    static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    struct buf text = BUF_INIT(64);
    char joined[128];
    uint8_t digest[SHA1_SIZE];

    int n = snprintf(joined, sizeof(joined), "%s%s", key, magic);
    sha1(joined, (size_t)n, digest);
    if (base64_append(&text, digest, sizeof(digest)) < 0 || str_copy(out, 32, text.data) < 0)
        out[0] = '\0';
    buf_done(&text);
}

int ws_adopt(int fd, const void *early, size_t early_len, struct ws **ret, struct brig_err *err)
{
    struct ws *ws = mem_zalloc(sizeof(*ws));

    if (!ws)
        return err_nomem(err);
    ws->fd = fd;
    ws->in = BUF_INIT(MESSAGE_MAX + 2 * RECEIVE);
    ws->message = BUF_INIT(MESSAGE_MAX);
    ws->out = BUF_INIT(OUT_MAX);
    if (buf_append(&ws->in, early, early_len) < 0) {
        ws->fd = -1;
        ws_destroy(ws);
        return err_nomem(err);
    }
    *ret = ws;
    return 0;
}

void ws_destroy(struct ws *ws)
{
    if (!ws)
        return;
    base_close_fd(&ws->fd);
    buf_done(&ws->in);
    buf_done(&ws->message);
    buf_done(&ws->out);
    mem_free(ws);
}

static int ask(struct client *client, const struct client_request *request, const char *key, struct brig_err *err)
{
    struct buf head = BUF_INIT(64 << 10);
    int r = request_put_head(client, request, &head, err);

    if (r == 0) {
        r = http_put_field(&head, "Connection", "Upgrade");
        if (r == 0)
            r = http_put_field(&head, "Upgrade", "websocket");
        if (r == 0)
            r = http_put_field(&head, "Sec-WebSocket-Version", "13");
        if (r == 0)
            r = http_put_field(&head, "Sec-WebSocket-Key", key);
        if (r == 0)
            r = http_put_end(&head);
        r = r < 0 ? err_nomem(err) : wire_send(client, head.data, head.len, err);
    }
    if (head.data)
        explicit_bzero(head.data, head.len);
    buf_done(&head);
    return r;
}

static int upgrade(struct client *client, const char *target, struct brig_err *err)
{
    const struct client_request request = {.method = "GET", .target = target};
    uint8_t nonce[16];
    char expected[32];
    struct buf key = BUF_INIT(64);

    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
        return err_host(err, "getrandom");
    if (base64_append(&key, nonce, sizeof(nonce)) < 0)
        return err_nomem(err);
    ws_accept_value(key.data, expected);
    int r = ask(client, &request, key.data, err);
    buf_done(&key);
    if (r == 0)
        r = response_head(client, "GET", err);
    if (r < 0)
        return r;
    if (client->status >= 400)
        return response_refused(client, err);
    const char *accept = http_field(&client->head, "Sec-WebSocket-Accept");
    if (client->status != 101 || !client->head.upgrade || !accept || strcmp(accept, expected) != 0)
        return err_set(err, BRIG_E_GONE, EPROTO, "%s: it did not upgrade to WebSocket", client->where);
    return 0;
}

int ws_open(struct client *client, const char *target, struct ws **ret, struct brig_err *err)
{
    client->status = 0;
    client->error_code[0] = '\0';
    client->in.len = client->in_at = 0;
    client->timeout_ms = CLIENT_TIMEOUT_MS;
    if (!client->piece)
        client->piece = mem_alloc(CLIENT_PIECE); /* for the body of a refusal */
    if (!client->piece)
        return err_nomem(err);
    int r = client_is_fresh(client) ? 0 : client_connect(client, err);
    if (r == 0)
        r = upgrade(client, target, err);
    if (r == 0)
        r = ws_adopt(client->fd, client->in.data + client->in_at, client->in.len - client->in_at, ret, err);
    if (r == 0)
        client->fd = -1;
    else
        client_disconnect(client);
    return r;
}
