/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview_admit.c: decides who may see a preview, by path (/v1/sandboxes/{id}/proxy/{port}/...) or by host name
 * (<port>-<id>.<domain>).
 *
 * Allowed are a key of the sandbox's organisation, or a token (route_ports.c) in the query (then it becomes a cookie
 * for this port of this sandbox), in the cookie, or in X-Brig-Token. Keys and tokens never reach the program: the
 * fields that carried them are taken out (preview_head.c). Another organisation's sandbox is 404 to a key, as one that
 * does not exist.
 *
 * A page is given an origin of its own. All previews by path have the same one, the API's, where a page of one sandbox
 * could read the preview of another. So a browser that is about to show a page (it navigates) is sent on to the
 * preview's host name, with a ticket (preview_ticket.c); there the ticket, or a token, becomes a cookie of that host,
 * and the browser is sent on once more to the same address without it, so that no history, no Referer and no script has
 * it. Programs do not navigate and are served by path as ever. Where there is no host name that the browser could
 * reach, or a browser that does not say what it does, the page has no origin at all (preview.c).
 *
 * A cookie speaks for its user, whoever made the request. So a browser that says that another site, or another host of
 * this one, made it is believed: only a navigation may come from there.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "brigd/preview.h"

#define KEY_SECONDS 3600 /* a browser that was let in by a key */

struct entry {
    struct preview_way way;
    const char *path; /* as it was sent, for the program */
    size_t path_len;
    int64_t until; /* what let it in is good until then */
    bool by_query, by_cookie;
};

/* ---- browsers -------------------------------------------------------------------------------------------- */

static bool is_word(const struct http_head *head, const char *name, const char *word)
{
    const char *value = http_field(head, name);

    return value && strcasecmp(value, word) == 0;
}

static bool reads(const struct http_head *head)
{
    return (str_eq(head->method, "GET") || str_eq(head->method, "HEAD")) && !head->upgrade;
}

/* Whether a browser is about to show the answer as a page. It says so wherever it takes the connection for safe;
 * elsewhere it sends no Sec-Fetch fields, but only browsers would like to have https instead. */
static bool navigates(const struct http_head *head)
{
    if (http_field(head, "Sec-Fetch-Mode"))
        return is_word(head, "Sec-Fetch-Mode", "navigate");
    return is_word(head, "Upgrade-Insecure-Requests", "1");
}

/* A page of somebody else made this request, and it is no navigation. */
static bool is_foreign(const struct http_head *head)
{
    return http_field(head, "Sec-Fetch-Site") && !is_word(head, "Sec-Fetch-Site", "same-origin") &&
           !is_word(head, "Sec-Fetch-Site", "none") && !navigates(head);
}

/* "localhost" and below, and loopback addresses: from there a browser reaches every name below localhost. */
static bool is_this_machine(const char *host)
{
    struct in_addr v4;
    char name[256];
    size_t len = strcspn(host, ":");

    if (str_starts(host, "[::1]"))
        return true;
    if (len >= sizeof(name))
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    if (inet_pton(AF_INET, name, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return len >= 9 && strcasecmp(name + len - 9, "localhost") == 0 && (len == 9 || name[len - 10] == '.');
}

bool preview_host(const char *domain, const char *host, const struct preview_way *way, char *out, size_t size)
{
    if (!host || (strcasecmp(domain, "localhost") == 0 && !is_this_machine(host)))
        return false;
    const char *port = strrchr(host, ':');
    if (port && strchr(port, ']'))
        port = NULL; /* a part of an address */
    int n = snprintf(out, size, "%u-%s.%s%s", way->port, way->id, domain, port ? port : "");
    return n > 0 && (size_t)n < size;
}

/* ---- sending a browser on -------------------------------------------------------------------------------- */

static void set_cookie(struct request *rq, const struct preview_way *way, const char *token, int64_t until)
{
    const struct http_head *head = exchange_head(rq->x);
    bool framed = way->tls && (is_word(head, "Sec-Fetch-Dest", "iframe") || is_word(head, "Sec-Fetch-Dest", "frame"));
    int64_t now = clock_real_ns() / (int64_t)NS_PER_SEC;
    char set[TOKEN_MAX + PREVIEW_PREFIX_MAX + 128];

    /* A frame in a page of another site has its own cookies, or none. */
    snprintf(set, sizeof(set), "%s=%s; Path=%s/; Max-Age=%lld; HttpOnly; SameSite=%s%s%s",
             way->tls && !way->prefix[0] ? PREVIEW_HOST_COOKIE : PREVIEW_COOKIE, token, way->prefix,
             (long long)(until > now ? until - now : 0), framed ? "None" : "Lax", way->tls ? "; Secure" : "",
             framed ? "; Partitioned" : "");
    exchange_add_field(rq->x, "Set-Cookie", set);
}

/*
 * Redirects to "//host" (or to this host if there is none), the path and the query without our token, with this ticket
 * if there is one.
 */
static void send_on(struct request *rq, const struct entry *entry, const char *host, const char *ticket)
{
    AUTO_BUF struct buf to = BUF_INIT(HTTP_TARGET_MAX + 1024);
    int r = host ? buf_append_str(&to, "//") : buf_append_str(&to, entry->way.prefix);

    if (r == 0 && host)
        r = buf_append_str(&to, host);
    size_t at = to.len;
    if (r == 0 && !host && at == 0 && entry->path_len > 1 && (entry->path[1] == '/' || entry->path[1] == '\\'))
        r = buf_append_str(&to, "/."); /* "//x/y" would be the host x, and browsers read "\" as "/" */
    if (r == 0)
        r = buf_append(&to, entry->path, entry->path_len);
    size_t question = to.len;
    if (r == 0)
        r = preview_put_query(&to, exchange_target(rq->x)->query_raw);
    if (r == 0 && ticket)
        r = buf_append_str(&to, to.len > question ? "&" PREVIEW_COOKIE "=" : "?" PREVIEW_COOKIE "=");
    if (r == 0 && ticket)
        r = buf_append_str(&to, ticket);
    if (r == 0)
        r = buf_append(&to, "", 1);
    if (r < 0)
        return request_refuse(rq, BRIG_E_TOO_LARGE, "the address is too long to be sent on");
    exchange_add_field(rq->x, "Location", to.data);
    exchange_add_field(rq->x, "Referrer-Policy", "no-referrer");
    exchange_add_field(rq->x, "Cache-Control", "no-store");
    request_status(rq, 302);
}

/* True: the request has been answered. */
static bool to_its_own_host(struct request *rq, const struct entry *entry, const struct sbox *sbox)
{
    const struct http_head *head = exchange_head(rq->x);
    char host[320], ticket[TICKET_SIZE];

    /*
     * A ticket becomes a token, which may also write. A key that may not write is served here, as a page without an
     * origin.
     */
    if (entry->way.by_key && rq->caller.role == STORE_ROLE_READ_ONLY)
        return false;
    if (!entry->way.prefix[0] || !reads(head) || !is_word(head, "Sec-Fetch-Mode", "navigate") ||
        !preview_host(config_get(rq->api->config)->domain, http_field(head, "Host"), &entry->way, host, sizeof(host)))
        return false;
    int r = ticket_issue(&rq->api->tickets, sbox_org(sbox), &entry->way, entry->until, ticket);
    if (r == -EAGAIN)
        request_refuse(rq, BRIG_E_LIMIT, "too many browsers are being sent to their previews");
    else if (r < 0)
        request_refuse(rq, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, r == -ENOMEM ? "out of memory" : "make a ticket");
    else
        send_on(rq, entry, host, ticket);
    return true;
}

/* The cookie for what was in the query. True: the request has been answered. */
static bool query_to_cookie(struct request *rq, const struct entry *entry)
{
    const struct http_head *head = exchange_head(rq->x);
    char subject[96], token[TOKEN_MAX];

    if (!entry->by_query)
        return false;
    snprintf(subject, sizeof(subject), "%u-%s", entry->way.port, entry->way.id);
    if (crypto_token_make(rq->api->token_key, "preview", subject, entry->until, token) < 0)
        return request_refuse(rq, BRIG_E_HOST, "make a token"), true;
    set_cookie(rq, &entry->way, token, entry->until);
    if (!reads(head) || !navigates(head))
        return false;
    send_on(rq, entry, NULL, NULL);
    return true;
}

/* ---- who may --------------------------------------------------------------------------------------------- */

static bool token_ok(struct request *rq, const char *token, const char *subject, int64_t *ret_until)
{
    return token &&
           crypto_token_check(rq->api->token_key, "preview", subject, token, clock_real_ns() / (int64_t)NS_PER_SEC) ==
               0 &&
           crypto_token_expiry(token, ret_until) == 0;
}

/* The right cookie may come after others of its name. */
static bool by_cookie(struct request *rq, const char *subject, struct entry *entry)
{
    const struct http_head *head = exchange_head(rq->x);
    char cookie[TOKEN_MAX];
    unsigned tried = 0;

    for (size_t i = 0; i < head->n_fields; i++) {
        const char *at = head->fields[i].value;
        if (strcasecmp(head->fields[i].name, "Cookie") != 0)
            continue;
        while (tried < PREVIEW_COOKIES_MAX && preview_next_token(&at, &entry->way, cookie, sizeof(cookie))) {
            tried++;
            if (token_ok(rq, cookie, subject, &entry->until))
                return true;
        }
    }
    return false;
}

/* Whether a token lets it in; what says which, and until when. */
static bool by_token(struct request *rq, struct entry *entry)
{
    const struct http_head *head = exchange_head(rq->x);
    const char *query = http_query(exchange_target(rq->x), PREVIEW_COOKIE);
    char subject[96];

    snprintf(subject, sizeof(subject), "%u-%s", entry->way.port, entry->way.id);
    if (query && ticket_is(query) && !entry->way.prefix[0])
        entry->by_query = reads(head) && ticket_take(rq->api->tickets, &entry->way, query, &entry->until);
    else
        entry->by_query = token_ok(rq, query, subject, &entry->until);
    if (entry->by_query || token_ok(rq, http_field(head, "X-Brig-Token"), subject, &entry->until))
        return true;
    entry->by_cookie = by_cookie(rq, subject, entry);
    return entry->by_cookie;
}

/* By a key or a token; else the refusal was sent. */
static bool let_in(struct request *rq, struct entry *entry, struct sbox *sbox)
{
    const struct http_head *head = exchange_head(rq->x);
    struct brig_err err;

    if (entry->way.by_key && rq->caller.role == STORE_ROLE_READ_ONLY && !reads(head))
        return request_refuse(rq, BRIG_E_FORBIDDEN, "this key is read-only"), false;
    if (entry->way.by_key && sbox_check_use(sbox, &rq->caller, &err) < 0)
        return request_fail(rq, &err), false;
    entry->until = clock_real_ns() / (int64_t)NS_PER_SEC + KEY_SECONDS;
    if (!by_token(rq, entry) && !entry->way.by_key) {
        api_denied(rq->api, &rq->caller, entry->way.id, "preview without a key or a valid token");
        (void)err_set(&err, BRIG_E_UNAUTHENTICATED, 0,
                      "a preview needs a key, or a token of POST /v1/sandboxes/{id}/ports/{port}/token");
        exchange_fail(rq->x, &err); /* not request_fail(): the denial was noted, with the sandbox */
        request_free(rq);
        return false;
    }
    if (entry->by_cookie && !entry->way.by_key && is_foreign(head)) {
        request_refuse(rq, BRIG_E_FORBIDDEN, "another site's page may send its user to a preview, and nothing else");
        return false;
    }
    return true;
}

static void admit(struct request *rq, const char *id, const char *port_text, struct entry *entry)
{
    struct brig_err err;

    entry->way.by_key = rq->caller.socket || rq->caller.key_id[0];
    entry->way.tls = exchange_is_tls(rq->x);
    /* A token names its sandbox */
    struct sbox *sbox = entry->way.by_key ? request_find(rq, id) : sbox_by_id(rq->api->manager, id);

    /* Each port has one spelling, so each preview has one host name. */
    if (parse_u32(port_text, &entry->way.port) < 0 || port_text[0] == '0' || entry->way.port > UINT16_MAX || !sbox)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "Sandbox %.64s not found", id);
    if (str_copy(entry->way.id, sizeof(entry->way.id), sbox_id(sbox)) < 0)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "Sandbox %.64s not found", id);
    if (!let_in(rq, entry, sbox) || !request_join(rq, sbox_org(sbox)) || to_its_own_host(rq, entry, sbox))
        return;
    if (sbox_usable(sbox, &err) < 0)
        return request_fail(rq, &err);
    if (query_to_cookie(rq, entry))
        return;
    request_use_sandbox(rq, sbox);
    request_audit(rq, "port.open", sbox_id(sbox), "ok", port_text);
    preview_start(rq, &entry->way, entry->path, entry->path_len);
}

/* The part of the raw path after "/proxy/{port}": what the program sees. */
void route_proxy(struct request *rq)
{
    const char *raw = exchange_target(rq->x)->rest_raw, *at = raw;
    struct entry entry = {0};

    for (int slashes = 0; *at && slashes < 6; at++)
        slashes += *at == '/';
    if (at > raw && at[-1] == '/')
        at--;
    size_t len = strcspn(at, "?"),
           prefix = (size_t)(at - raw) < strcspn(raw, "?") ? (size_t)(at - raw) : strcspn(raw, "?");
    if (prefix == 0 || prefix >= sizeof(entry.way.prefix) || memchr(raw, ';', prefix))
        return request_refuse(rq, BRIG_E_NOT_FOUND, "Sandbox %.64s not found", rq->arg[0]);
    memcpy(entry.way.prefix, raw, prefix);
    entry.path = len > 0 ? at : "/";
    entry.path_len = len > 0 ? len : 1;
    admit(rq, rq->arg[0], rq->arg[1], &entry);
}

/* Splits "8080-<26 characters>.<domain>[:port]"; label gets "8080" and the id behind its NUL. */
static const char *cut_host(const char *host, const char *domain, char label[64])
{
    size_t n = host ? strcspn(host, ".:") : 0;
    const char *dash = n > 0 && n < 64 ? memchr(host, '-', n) : NULL;

    if (!dash || dash == host || host[n] != '.' || strncasecmp(host + n + 1, domain, strlen(domain)) != 0 ||
        (host[n + 1 + strlen(domain)] != '\0' && host[n + 1 + strlen(domain)] != ':'))
        return NULL;
    memcpy(label, host, n);
    label[n] = label[dash - host] = '\0';
    return label + (dash - host) + 1;
}

bool preview_handle(struct api *api, struct exchange *x)
{
    const struct http_head *head = exchange_head(x);
    char label[64];
    const char *id = cut_host(http_field(head, "Host"), config_get(api->config)->domain, label);
    struct brig_err err;

    if (!id)
        return false;
    struct request *rq = request_create(api, x);
    if (!rq) {
        (void)err_nomem(&err);
        exchange_fail(x, &err);
        return true;
    }
    const char *key = http_field(head, "X-API-Key");
    if (auth_check(api, x, key, &rq->caller, &err) < 0 && key)
        return request_fail(rq, &err), true;
    exchange_set_owner(x, rq->caller.key_id);
    const char *path = exchange_target(x)->rest_raw;
    struct entry entry = {.path = path, .path_len = strcspn(path, "?")};
    admit(rq, id, label, &entry);
    return true;
}
