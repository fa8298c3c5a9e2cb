/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview.c: carries HTTP and WebSocket to a port inside a sandbox, for a request that preview_admit.c has admitted.
 *
 * Theory of operation. Our strict codec parses the request and writes it again, so the program gets one well-formed
 * request. The answer is parsed and written again as well, so neither side can smuggle. The bytes travel over a
 * SVC_PORT_CONNECT call: no socket of the host is involved. One request per connection to the program.
 *
 * By path the answer shares its origin with the API and all other previews, so that a browser may show it only as a
 * page without an origin: every such answer says "Content-Security-Policy: sandbox". Clients that are no browsers
 * ignore it.
 */
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "brigd/preview.h"

#define SANDBOXED "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads allow-pointer-lock"

struct preview {
    struct request *rq;
    struct preview_way way;
    struct call *call;
    struct buf up;   /* to the program, not yet taken */
    struct buf down; /* from the program: the head while it is incomplete */
    size_t scanned;
    struct http_head head; /* of the answer */
    struct http_body_reader body;
    const char *method; /* "HEAD", whose answer has no body, or "GET" for any other */
    bool connected, answered, tunnel, up_ended, up_eof, chunked_up, full;
    size_t owed;
};

/* ---- the end --------------------------------------------------------------------------------------------- */

static void preview_free(struct preview *p)
{
    if (p->call)
        call_drop(p->call);
    buf_done(&p->up);
    buf_done(&p->down);
    mem_free(p);
}

static void preview_left(struct request *rq)
{
    preview_free(rq->state);
    request_free(rq);
}

static void finish(struct preview *p, bool whole)
{
    struct request *rq = p->rq;

    preview_free(p);
    request_end(rq, whole);
}

static void fail(struct preview *p, const char *message)
{
    struct request *rq = p->rq;

    if (p->answered)
        return finish(p, false);
    rq->left = NULL;
    preview_free(p);
    exchange_error(rq->x, 502, "bad_gateway", message, "the program in the sandbox is at fault, or is not there yet");
    request_free(rq);
}

/* ---- from the program ------------------------------------------------------------------------------------ */

static void give_back(struct preview *p)
{
    if (p->owed > 0 && p->call && !p->full) {
        size_t owed = p->owed;
        p->owed = 0;
        call_consumed(p->call, 1, owed);
    }
}

static void on_drained(void *ctx, struct exchange *x UNUSED)
{
    struct preview *p = ctx;

    p->full = false;
    give_back(p);
}

/* Returns false when the preview is over. */
static bool pass_body(struct preview *p, const char *data, size_t len)
{
    while (len > 0) {
        const char *at = NULL;
        size_t n = 0;
        bool end = false;
        int used = http_body_take(&p->body, data, len, &at, &n, &end);

        if (used < 0)
            return fail(p, "the program's answer is malformed"), false;
        if (n > 0 && !exchange_write(p->rq->x, at, n))
            p->full = true;
        if (end)
            return finish(p, true), false;
        data += used;
        len -= (size_t)used;
    }
    return true;
}

static void tunnel_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len);
static void tunnel_eof(void *ctx, struct exchange *x UNUSED);

/*
 * Passes a field of the program's answer to `put`, and returns what put returns; 0 also for a field that may not pass.
 */
static int pass_field(const struct preview *p, const struct http_field *field,
                      int (*put)(void *to, const char *name, const char *value), void *to)
{
    AUTO_BUF struct buf cookie = BUF_INIT(PREVIEW_HEAD_MAX);

    if (!preview_passes(&p->head, field->name))
        return 0;
    if (strcasecmp(field->name, "set-cookie") != 0)
        return put(to, field->name, field->value);
    int r = preview_put_set_cookie(&cookie, field->value, &p->way);
    return r == -EINVAL ? 0 : r < 0 ? r : put(to, field->name, cookie.data);
}

static int put_in_head(void *to, const char *name, const char *value)
{
    return http_put_field(to, name, value);
}

static int put_in_answer(void *to, const char *name, const char *value)
{
    return strcasecmp(name, "content-type") == 0 ? 0 : exchange_add_field(to, name, value);
}

static bool start_tunnel(struct preview *p)
{
    const struct tunnel_events events = {tunnel_data, tunnel_eof, on_drained, p};
    AUTO_BUF struct buf out = BUF_INIT(PREVIEW_HEAD_MAX);
    struct brig_err err;
    int r = http_put_status(&out, 101);

    if (!exchange_head(p->rq->x)->upgrade) { /* whoever stands before us would take what follows for something else */
        fail(p, "the program switches protocols, which was not asked for");
        return false;
    }
    for (size_t i = 0; r == 0 && i < p->head.n_fields; i++)
        r = pass_field(p, &p->head.fields[i], put_in_head, &out);
    const char *protocol = http_field(&p->head, "Upgrade");
    if (r == 0 && protocol)
        r = http_put_field(&out, "Upgrade", protocol);
    if (r == 0)
        r = http_put_field(&out, "Connection", "Upgrade");
    if (r == 0)
        r = http_put_end(&out);
    if (r < 0 || exchange_tunnel(p->rq->x, &events, &err) < 0)
        return fail(p, "the upgrade cannot be passed on"), false;
    p->answered = p->tunnel = true;
    p->up_ended = p->chunked_up = false; /* the request had no body, but now the client may speak */
    exchange_write(p->rq->x, out.data, out.len);
    return true;
}

static bool start_answer(struct preview *p)
{
    struct exchange *x = p->rq->x;
    const char *type = http_field(&p->head, "Content-Type");
    uint64_t length = p->head.body == HTTP_BODY_LENGTH ? p->head.content_length
                      : p->head.body == HTTP_BODY_NONE ? 0
                                                       : UINT64_MAX;

    if (p->way.prefix[0] && exchange_add_field(x, "Content-Security-Policy", SANDBOXED) < 0)
        return fail(p, "out of memory"), false;
    for (size_t i = 0; i < p->head.n_fields; i++)
        (void)pass_field(p, &p->head.fields[i], put_in_answer, x);
    p->answered = true;
    exchange_begin(x, p->head.status, type, length);
    exchange_on_drained(x, on_drained, p);
    http_body_init(&p->body, &p->head);
    if (p->head.body != HTTP_BODY_NONE)
        return true;
    finish(p, true);
    return false;
}

enum head { HEAD_MORE, HEAD_TAKEN, HEAD_OVER };

/* HEAD_OVER: the preview is over, and p is gone. */
static enum head take_head(struct preview *p)
{
    struct brig_err err;

    for (;;) {
        int used = http_response_parse(p->down.data, p->down.len, p->method, NULL, &p->scanned, &p->head, &err);

        if (used == 0)
            return HEAD_MORE;
        if (used < 0)
            return fail(p, "the program's answer is not HTTP"), HEAD_OVER;
        bool interim = p->head.status >= 100 && p->head.status < 200 && p->head.status != 101;
        bool on = interim || (p->head.status == 101 ? start_tunnel(p) : start_answer(p));
        if (!on)
            return HEAD_OVER;
        buf_consume(&p->down, (size_t)used);
        p->scanned = 0;
        if (!interim)
            return HEAD_TAKEN;
    }
}

/* Bytes before the answer's head is complete, and what came with it. Returns false when the preview is over. */
static bool take_first(struct preview *p, const uint8_t *data, size_t len)
{
    if (buf_append(&p->down, data, len) < 0)
        return fail(p, "the head of the program's answer is too long"), false;
    enum head head = p->down.len > 0 ? take_head(p) : HEAD_MORE;
    if (head != HEAD_TAKEN)
        return head == HEAD_MORE;
    if (p->tunnel && p->down.len > 0)
        p->full |= !exchange_write(p->rq->x, p->down.data, p->down.len);
    else if (p->down.len > 0 && !pass_body(p, p->down.data, p->down.len))
        return false;
    buf_done(&p->down);
    return true;
}

static void on_data(void *ctx, unsigned stream UNUSED, const uint8_t *data, size_t len)
{
    struct preview *p = ctx;

    p->owed += len;
    if (p->tunnel)
        p->full |= !exchange_write(p->rq->x, data, len);
    else if (p->answered ? !pass_body(p, (const char *)data, len) : !take_first(p, data, len))
        return; /* over: p is gone */
    give_back(p);
}

static void on_eof(void *ctx, unsigned stream UNUSED)
{
    struct preview *p = ctx;

    if (p->tunnel)
        exchange_tunnel_shut(p->rq->x); /* the client's side goes on; on_reply() is the end of both */
    else if (p->answered)
        finish(p, p->body.kind == HTTP_BODY_UNTIL_CLOSE);
    else
        fail(p, "the program closed the connection without an answer");
}

static void on_reply(void *ctx, uint32_t errnum, uint32_t stage UNUSED, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct preview *p = ctx;

    p->call = NULL;
    if (errnum == ECONNREFUSED)
        fail(p, "nothing listens on that port in the sandbox");
    else if (p->tunnel || p->answered)
        finish(p, p->tunnel && errnum == 0);
    else
        fail(p, "the connection to the program failed");
}

/* ---- to the program -------------------------------------------------------------------------------------- */

static void push_up(struct preview *p)
{
    if (p->up.len > 0) {
        ssize_t n = call_write(p->call, p->up.data, p->up.len);
        if (n < 0)
            return;
        buf_consume(&p->up, (size_t)n);
        if (p->up.len > 0)
            return;
    }
    if (!p->up_ended)
        exchange_body_proceed(p->rq->x);
    else if (p->tunnel && !p->up_eof) {
        p->up_eof = true;
        (void)!call_eof(p->call);
    }
}

static void on_writable(void *ctx)
{
    push_up(ctx);
}

static void queue_up(struct preview *p, const char *data, size_t len)
{
    int r = 0;

    if (p->chunked_up && len > 0)
        r = http_put_chunk_head(&p->up, len);
    if (r == 0)
        r = buf_append(&p->up, data, len);
    if (r == 0 && p->chunked_up && len > 0)
        r = buf_append(&p->up, "\r\n", 2);
    if (r < 0)
        fail(p, "out of memory");
    else
        push_up(p);
}

static void on_body(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    queue_up(ctx, data, len);
}

static void on_body_end(void *ctx, struct exchange *x UNUSED)
{
    struct preview *p = ctx;

    p->up_ended = true;
    if (p->chunked_up && buf_append_str(&p->up, "0\r\n\r\n") < 0)
        fail(p, "out of memory");
    else
        push_up(p);
}

static void tunnel_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len)
{
    queue_up(ctx, data, len);
}

static void tunnel_eof(void *ctx, struct exchange *x UNUSED)
{
    struct preview *p = ctx;

    p->up_ended = true;
    push_up(p);
}

static void on_connected(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct preview *p = ctx;
    const struct body_events body = {on_body, on_body_end, p};
    struct brig_err err;

    p->connected = true;
    if (exchange_head(p->rq->x)->body == HTTP_BODY_NONE) {
        p->up_ended = true;
        push_up(p);
    } else if (exchange_read(p->rq->x, &body, &err) < 0) {
        fail(p, "the body cannot be read");
    } else {
        push_up(p);
    }
}

void preview_start(struct request *rq, const struct preview_way *way, const char *path, size_t path_len)
{
    struct preview *p = request_alloc(rq, sizeof *p);
    const struct call_events events = {
        .event = on_connected, .data = on_data, .eof = on_eof, .writable = on_writable, .reply = on_reply, .ctx = p};
    uint8_t payload[2];
    struct svc_cursor out = {payload, payload + sizeof payload, false};
    struct brig_err err;

    if (!p)
        return;
    *p = (struct preview){.rq = rq, .way = *way, .up = BUF_INIT(4u << 20), .down = BUF_INIT(PREVIEW_HEAD_MAX)};
    p->method = str_eq(exchange_head(rq->x)->method, "HEAD") ? "HEAD" : "GET";
    svc_put_u16(&out, (uint16_t)way->port);
    const struct http_head *head = exchange_head(rq->x);
    p->chunked_up = head->body == HTTP_BODY_CHUNKED;
    int r =
        preview_put_request(&p->up, head, path, path_len, exchange_target(rq->x)->query_raw, way, rq->api->accounts);
    if (r < 0)
        (void)err_usage(&err, "the request is too long to be passed on");
    else
        r = link_call(sbox_link(rq->sbox), SVC_PORT_CONNECT, payload, sizeof payload, &events, &p->call, &err);
    if (r < 0) {
        preview_free(p);
        request_fail(rq, &err);
        return;
    }
    rq->state = p;
    rq->left = preview_left;
}
