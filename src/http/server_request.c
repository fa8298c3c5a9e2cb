/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a head to the handler: what the server itself has to say about a request, in this order: plain text from
 * another machine (403), Host (421), a field that is there twice (400), Origin (403), Expect (417), the target (400).
 */
#include "http/server_conn.h"

#include <stdio.h>
#include <strings.h>

#include "base/err.h"

static const char *code_of(unsigned status)
{
    switch (status) {
    case 400: return "invalid_argument";
    case 408: return "timeout";
    case 413: return "too_large";
    case 414: return "target_too_long";
    case 431: return "headers_too_large";
    case 501: return "not_implemented";
    case 503: return "out_of_memory";
    case 505: return "version_not_supported";
    default: return "refused";
    }
}

void conn_refuse_head(struct conn *conn, unsigned status, const char *code, const char *message)
{
    struct exchange *x = conn->x;

    if (conn->state == CONN_HEAD) {
        conn->state = CONN_BUSY;
        conn->server->n_exchanges++;
        x->in_at = x->in_len;
    } else {
        exchange_deliver_gone(x);
    }
    x->body_end = false; /* nobody knows where it ends: no next request */
    x->head.keep_alive = false;
    x->head.body = HTTP_BODY_UNTIL_CLOSE;
    http_body_init(&x->reader, &x->head);
    if (x->begun)
        exchange_abort(x);
    else
        reply_error(x, status, code ? code : code_of(status), message, NULL);
}

/* The host that an absolute target names; it must be the one in Host, or two readers would disagree. */
static bool authority_agrees(const char *target, const char *host)
{
    size_t skip = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;

    if (skip == 0)
        return true;
    size_t len = strcspn(target + skip, "/?");
    return host && strlen(host) == len && strncasecmp(target + skip, host, len) == 0;
}

/*
 * Fields by which somebody is let in or refused. They are looked up by name, and the first one is found: so a second
 * one would pass unseen. Host, Content-Length and Transfer-Encoding are the codec's; all Cookie fields are read.
 */
static const char *repeated_field(const struct http_head *head)
{
    static const char *const once[] = {
        "Origin",
        "Authorization",
        "X-API-Key",
        "X-BARE-PASSWORD",
        "X-Brig-Token",
        "user_id",
        "X-Project-Id",
        "Sec-Fetch-Mode",
        "Sec-Fetch-Site",
        "Sec-Fetch-Dest",
        "Upgrade-Insecure-Requests",
        "Expect",
        "Idempotency-Key",
        "Access-Control-Request-Method",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
    };
    bool seen[ARRAY_SIZE(once)] = {false};

    for (size_t i = 0; i < head->n_fields; i++) {
        for (size_t k = 0; k < ARRAY_SIZE(once); k++) {
            if (strcasecmp(head->fields[i].name, once[k]) != 0)
                continue;
            if (seen[k])
                return once[k];
            seen[k] = true;
        }
    }
    return NULL;
}

/* An answer for the browser, not for the page: what the page may ask of us. */
static void answer_preflight(struct exchange *x)
{
    (void)exchange_add_field(x, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
    (void)exchange_add_field(x, "Access-Control-Allow-Headers",
                             "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, X-API-Key");
    (void)exchange_add_field(x, "Access-Control-Max-Age", "600");
    exchange_reply(x, 204, NULL, NULL, 0);
}

/* True: the request has been answered. */
static bool check_origin(struct exchange *x, const char *host)
{
    const struct http_options *http = &x->conn->server->options.http;
    const char *origin = http_field(&x->head, "origin");

    if (!origin || origin_same(x->conn, origin, host))
        return false;
    if (!word_listed(http->allowed_origins, origin, strlen(origin))) {
        reply_error(x, 403, "forbidden_origin", "requests from pages of this origin are not allowed",
                    "server.allowed_origins lists those that are");
        return true;
    }
    x->cors_origin = origin;
    if (strcmp(x->head.method, "OPTIONS") == 0 && http_field(&x->head, "access-control-request-method"))
        return answer_preflight(x), true;
    return false;
}

static bool check(struct exchange *x)
{
    struct conn *conn = x->conn;
    const char *host = http_field(&x->head, "host");
    char message[128];

    if (!conn->tls && !conn->is_loopback && !conn->server->options.http.insecure)
        return reply_error(x, 403, "forbidden", "requests from other machines must use TLS", "use https"), true;
    if (!conn->is_unix && (!host || !host_allowed(conn, host))) {
        reply_error(x, 421, "misdirected", "this Host is not served here",
                    "server.allowed_hosts lists names beside localhost");
        return true;
    }
    if (!authority_agrees(x->head.target, host))
        return reply_error(x, 400, "invalid_argument", "the target names another host than Host", NULL), true;
    const char *twice = repeated_field(&x->head);
    if (twice) {
        snprintf(message, sizeof message, "the field %s is there twice, and it may be sent once", twice);
        reply_error(x, 400, "invalid_argument", message, NULL);
        return true;
    }
    if (check_origin(x, host))
        return true;
    if (!x->head.expect_continue && http_field(&x->head, "expect"))
        return reply_error(x, 417, "expectation_failed", "the only expectation here is 100-continue", NULL), true;
    return false;
}

static bool cut_target(struct exchange *x)
{
    struct brig_err err = {.code = BRIG_E_NOMEM};
    int r = buf_reserve(&x->target_memory, HTTP_TARGET_MEMORY(strlen(x->head.target)));

    if (r == 0)
        r = http_target_parse_in(x->head.target, x->target_memory.data, &x->target, &err);
    if (r == 0)
        return true;
    if (err.code == BRIG_E_NOMEM)
        reply_error(x, 503, "out_of_memory", "out of memory", NULL);
    else
        reply_error(x, 400, "invalid_argument", err.message, NULL);
    return false;
}

void request_start(struct conn *conn)
{
    struct exchange *x = conn->x;
    struct server *server = conn->server;

    conn->state = CONN_BUSY;
    conn->close = conn->linger = false;
    server->n_exchanges++;
    http_body_init(&x->reader, &x->head);
    x->body_end = x->head.body == HTTP_BODY_NONE;
    if (!check(x) && cut_target(x))
        server->options.handler(server->options.ctx, x);
}
