/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview.c: HTTP and WebSocket to a port inside a sandbox, by path (/v1/sandboxes/{id}/proxy/{port}/...) or by host name
 * (<port>-<id>.<domain>).
 *
 * Theory of operation. The request is parsed by our strict codec and written anew, so that what reaches the program is one
 * well-formed request, and what comes back is parsed and written anew as well: neither side can smuggle. The bytes travel
 * over a SVC_PORT_CONNECT call: no socket of the host is involved. One request per connection to the program.
 *
 * Who may: a key of the sandbox's organisation, or a token (route_ports.c) in the query (then it becomes a cookie for this
 * port of this sandbox), in the cookie, or in X-Brig-Token. Keys and tokens never reach the program: the fields that
 * carried them are taken out (preview_head.c). Everything else is 404, as for a sandbox that does not exist.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/preview.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"


struct preview {
    struct request *rq;
    struct call *call;
    struct buf up;   /* to the program, not yet taken */
    struct buf down; /* from the program: the head while it is incomplete */
    size_t scanned;
    struct http_head head; /* of the answer */
    struct http_body_reader body;
    char method[16];
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

    rq->left = NULL;
    exchange_on_gone(rq->x, NULL, NULL);
    exchange_on_drained(rq->x, NULL, NULL);
    if (whole)
        exchange_end(take_ptr(&rq->x));
    else
        exchange_abort(take_ptr(&rq->x));
    preview_free(p);
    request_free(rq);
}

static void fail(struct preview *p, const char *message)
{
    struct request *rq = p->rq;

    if (p->answered) {
        finish(p, false);
        return;
    }
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

        if (used < 0) {
            fail(p, "the program's answer is malformed");
            return false;
        }
        if (n > 0 && !exchange_write(p->rq->x, at, n))
            p->full = true;
        if (end) {
            finish(p, true);
            return false;
        }
        data += used;
        len -= (size_t)used;
    }
    return true;
}

static void tunnel_data(void *ctx, struct exchange *x UNUSED, const char *data, size_t len);
static void tunnel_eof(void *ctx, struct exchange *x UNUSED);

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
        r = http_put_field(&out, p->head.fields[i].name, p->head.fields[i].value);
    if (r == 0)
        r = http_put_end(&out);
    if (r < 0 || exchange_tunnel(p->rq->x, &events, &err) < 0) {
        fail(p, "the upgrade cannot be passed on");
        return false;
    }
    p->answered = p->tunnel = true;
    p->up_ended = p->chunked_up = false; /* the request had no body, but now the client may speak */
    exchange_write(p->rq->x, out.data, out.len);
    return true;
}

static bool start_answer(struct preview *p)
{
    struct exchange *x = p->rq->x;
    const char *type = http_field(&p->head, "Content-Type");
    uint64_t length = p->head.body == HTTP_BODY_LENGTH ? p->head.content_length : p->head.body == HTTP_BODY_NONE ? 0 : UINT64_MAX;

    for (size_t i = 0; i < p->head.n_fields; i++)
        if (preview_passes(&p->head, p->head.fields[i].name) && strcasecmp(p->head.fields[i].name, "content-type") != 0)
            exchange_add_field(x, p->head.fields[i].name, p->head.fields[i].value);
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
        if (used < 0) {
            fail(p, "the program's answer is not HTTP");
            return HEAD_OVER;
        }
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
    if (buf_append(&p->down, data, len) < 0) {
        fail(p, "the head of the program's answer is too long");
        return false;
    }
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

static void start(struct request *rq, uint32_t port, const char *path, size_t path_len, bool by_key)
{
    struct preview *p = mem_zalloc(sizeof *p);
    const struct call_events events = {.event = on_connected, .data = on_data, .eof = on_eof, .writable = on_writable, .reply = on_reply, .ctx = p};
    uint8_t payload[2];
    struct svc_cursor out = {payload, payload + sizeof payload, false};
    struct brig_err err;

    if (!p) {
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    *p = (struct preview){.rq = rq, .up = BUF_INIT(4u << 20), .down = BUF_INIT(PREVIEW_HEAD_MAX)};
    snprintf(p->method, sizeof p->method, "%s", exchange_head(rq->x)->method);
    svc_put_u16(&out, (uint16_t)port);
    const struct http_head *head = exchange_head(rq->x);
    p->chunked_up = head->body == HTTP_BODY_CHUNKED;
    int r = preview_put_request(&p->up, head, path, path_len, exchange_target(rq->x)->query_raw, by_key, exchange_is_tls(rq->x));
    if (r < 0)
        (void)err_usage(&err, "the request is too long to be passed on");
    else
        r = link_call(rq->sbox->link, SVC_PORT_CONNECT, payload, sizeof payload, &events, &p->call, &err);
    if (r < 0) {
        preview_free(p);
        request_fail(rq, &err);
        return;
    }
    rq->state = p;
    rq->left = preview_left;
}

/* ---- who may --------------------------------------------------------------------------------------------- */

static bool token_ok(struct request *rq, const char *token, const char *subject)
{
    return token && crypto_token_check(rq->api->token_key, "preview", subject, token, clock_real_ns() / (int64_t)NS_PER_SEC) == 0;
}

static bool cookie_token(const char *cookies, char *out, size_t size)
{
    for (const char *at = cookies ? cookies : ""; *at;) {
        while (*at == ' ')
            at++;
        size_t n = strcspn(at, ";");
        if (str_starts(at, PREVIEW_COOKIE "=") && n - sizeof PREVIEW_COOKIE < size) {
            memcpy(out, at + sizeof PREVIEW_COOKIE, n - sizeof PREVIEW_COOKIE);
            out[n - sizeof PREVIEW_COOKIE] = '\0';
            return true;
        }
        at += n + (at[n] == ';');
    }
    return false;
}

static void admit(struct request *rq, const char *id, const char *port_text, const char *path, size_t path_len, const char *cookie_path)
{
    const struct http_head *head = exchange_head(rq->x);
    const char *query = http_query(exchange_target(rq->x), PREVIEW_COOKIE);
    char subject[96], cookie[TOKEN_MAX], set[TOKEN_MAX + 256];
    uint32_t port = 0;
    bool by_key = rq->caller.socket || rq->caller.key_id[0];
    struct sbox *sbox = by_key ? request_find(rq, id) : api_sandbox_by_id(rq->api, id); /* a token names its sandbox */
    struct brig_err err;

    if (parse_u32(port_text, &port) < 0 || port == 0 || port > UINT16_MAX || !sbox) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "Sandbox %.64s not found", id);
        return;
    }
    if (by_key && rq->caller.role == STORE_ROLE_READ_ONLY && (head->upgrade || (!str_eq(head->method, "GET") && !str_eq(head->method, "HEAD")))) {
        request_refuse(rq, BRIG_E_FORBIDDEN, "this key is read-only");
        return;
    }
    if (by_key && sbox_check_use(sbox, &rq->caller, &err) < 0) {
        request_fail(rq, &err);
        return;
    }
    snprintf(subject, sizeof subject, "%u-%s", port, sbox->id);
    bool has_cookie = cookie_token(http_field(head, "Cookie"), cookie, sizeof cookie);
    bool by_query = token_ok(rq, query, subject);
    if (!by_key && !by_query && !token_ok(rq, http_field(head, "X-Brig-Token"), subject) && !(has_cookie && token_ok(rq, cookie, subject))) {
        api_denied(rq->api, &rq->caller, id, "preview without a key or a valid token");
        (void)err_set(&err, BRIG_E_UNAUTHENTICATED, 0, "a preview needs a key, or a token of POST /v1/sandboxes/{id}/ports/{port}/token");
        exchange_fail(rq->x, &err); /* not request_fail(): the denial was noted, with the sandbox */
        request_free(rq);
        return;
    }
    if (sbox->state != SBOX_RUNNING || !sbox->link) {
        request_refuse(rq, BRIG_E_CONFLICT, "sandbox %s is %s, not running", sbox->id, sbox_state_name(sbox->state));
        return;
    }
    if (by_query) {
        snprintf(set, sizeof set, PREVIEW_COOKIE "=%s; Path=%s; HttpOnly; SameSite=Lax%s", query, cookie_path, exchange_is_tls(rq->x) ? "; Secure" : "");
        exchange_add_field(rq->x, "Set-Cookie", set);
    }
    request_use_sandbox(rq, sbox);
    request_audit(rq, "port.open", sbox->id, "ok", port_text);
    start(rq, port, path, path_len, by_key);
}

/* The part of the raw path after "/proxy/{port}": what the program sees. */
void route_proxy(struct request *rq)
{
    const char *raw = exchange_target(rq->x)->rest_raw, *at = raw;
    char cookie_path[128];

    for (int slashes = 0; *at && slashes < 6; at++)
        slashes += *at == '/';
    if (at > raw && at[-1] == '/')
        at--;
    size_t len = strcspn(at, "?");
    snprintf(cookie_path, sizeof cookie_path, "/v1/sandboxes/%.40s/proxy/%.8s/", rq->arg[0], rq->arg[1]);
    admit(rq, rq->arg[0], rq->arg[1], len > 0 ? at : "/", len > 0 ? len : 1, cookie_path);
}

bool preview_handle(struct api *api, struct exchange *x)
{
    const struct http_head *head = exchange_head(x);
    const char *host = http_field(head, "Host"), *domain = config_get(api->config)->domain;
    char label[64];
    struct brig_err err;

    /* "8080-<26 characters>.<domain>[:port]" */
    size_t n = host ? strcspn(host, ".:") : 0;
    const char *dash = n > 0 && n < sizeof label ? memchr(host, '-', n) : NULL;
    if (!dash || dash == host || host[n] != '.' || strncasecmp(host + n + 1, domain, strlen(domain)) != 0 ||
        (host[n + 1 + strlen(domain)] != '\0' && host[n + 1 + strlen(domain)] != ':'))
        return false;
    struct request *rq = request_create(api, x);
    if (!rq) {
        (void)err_nomem(&err);
        exchange_fail(x, &err);
        return true;
    }
    memcpy(label, host, n);
    label[n] = '\0';
    label[dash - host] = '\0';
    const char *key = http_field(head, "X-API-Key");
    if (auth_check(api->auth, x, key, &rq->caller, &err) < 0 && key) {
        request_fail(rq, &err);
        return true;
    }
    exchange_set_owner(x, rq->caller.key_id);
    const char *path = exchange_target(x)->rest_raw;
    admit(rq, label + (dash - host) + 1, label, path, strcspn(path, "?"), "/");
    return true;
}
