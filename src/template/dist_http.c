/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_http.c: one request to a registry, with libcurl on the fetch's thread.
 *
 * Redirects are followed here and not by libcurl, because the rules are ours: at most five; from https only to https;
 * plain http only where it is allowed; no user in the URL; the Authorization field only to the very server (scheme,
 * host and port) that it is for; and a server at a public address leads to public addresses only, so that a registry
 * cannot make us ask the services of our own network. A caller who may not name private addresses cannot either. An
 * address is judged when its socket is made, before anything is sent. A socket whose two ends have one address leads to
 * this machine itself, and is judged before the request is sent.
 *
 * Everything that comes is bounded: the fields together, the body of a document, the body of an error, the time without
 * progress. The thread waits in curl_multi_poll(), which dist_cancel() wakes.
 */
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "gate/address.h"
#include "template/distribution_priv.h"

#define REDIRECTS_MAX 5u
#define FIELDS_BYTES (64u << 10)
#define ERROR_BYTES (64u << 10)
#define SLOW_BYTES 1024L /* per second */

/* ---- where a request may go ------------------------------------------------------------------------------- */

static bool is_loopback(const char *address)
{
    char host[IMAGE_HOST];
    struct gate_addr addr;

    if (str_copy(host, sizeof host, address) < 0)
        return false;
    char *end = host[0] == '[' ? strchr(host, ']') : strchr(host, ':');
    if (end)
        *end = '\0';
    const char *bare = host[0] == '[' ? host + 1 : host;
    if (strcasecmp(bare, "localhost") == 0)
        return true;
    const char *why = gate_addr_parse(bare, &addr) == 0 ? gate_addr_private(&addr) : NULL;
    return why && str_eq(why, "loopback");
}

bool dist_is_insecure(const struct dist *dist, const char *address)
{
    for (size_t i = 0; i < dist->n_insecure; i++)
        if (strcasecmp(dist->insecure[i], address) == 0)
            return true;
    return false;
}

bool dist_plain_allowed(const struct dist *dist, const char *address)
{
    return dist_is_insecure(dist, address) || is_loopback(address);
}

struct parts {
    CURLU *url;
    char *scheme, *host, *port, *user;
};

static void parts_done(struct parts *parts)
{
    curl_free(parts->scheme);
    curl_free(parts->host);
    curl_free(parts->port);
    curl_free(parts->user);
    curl_url_cleanup(parts->url);
}

static bool parts_get(const char *url, struct parts *ret)
{
    *ret = (struct parts){.url = curl_url()};
    if (!ret->url || curl_url_set(ret->url, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_get(ret->url, CURLUPART_SCHEME, &ret->scheme, 0) != CURLUE_OK ||
        curl_url_get(ret->url, CURLUPART_HOST, &ret->host, 0) != CURLUE_OK)
        return false;
    (void)curl_url_get(ret->url, CURLUPART_PORT, &ret->port, 0);
    (void)curl_url_get(ret->url, CURLUPART_USER, &ret->user, 0);
    return true;
}

int dist_url_address(const char *url, char *out, size_t size)
{
    struct parts parts;
    int r = -EINVAL;

    if (parts_get(url, &parts))
        r = str_format(out, size, "%s%s%s", parts.host, parts.port ? ":" : "", parts.port ? parts.port : "");
    parts_done(&parts);
    return r < 0 ? r : 0;
}

int dist_url_check(const struct dist *dist, const char *url, bool https_only, struct brig_err *err)
{
    char address[IMAGE_HOST];
    struct parts parts;
    int r = 0;

    if (!parts_get(url, &parts) || parts.user || strlen(url) >= DIST_URL ||
        (!str_eq(parts.scheme, "http") && !str_eq(parts.scheme, "https")))
        r = err_set(err, BRIG_E_INVALID, 0, "%.100s is no http or https address without a user", url);
    else if (str_eq(parts.scheme, "http") && https_only)
        r = err_set(err, BRIG_E_REFUSED, 0, "%.100s: a server with TLS leads to one without", url);
    else if (str_eq(parts.scheme, "http") &&
             (dist_url_address(url, address, sizeof address) < 0 || !dist_plain_allowed(dist, address)))
        r = err_set(err, BRIG_E_REFUSED, 0, "%.100s: http is only for loopback and hosts of [templates] insecure", url);
    parts_done(&parts);
    return r;
}

/* Do both have the same scheme, host and port? */
static bool same_server(const char *a, const char *b)
{
    struct parts x, y = {0};
    bool same = parts_get(a, &x) && parts_get(b, &y) && str_eq(x.scheme, y.scheme) && strcasecmp(x.host, y.host) == 0 &&
                str_eq(x.port ? x.port : "", y.port ? y.port : "");

    parts_done(&x);
    parts_done(&y);
    return same;
}

/* ---- one hop ---------------------------------------------------------------------------------------------- */

struct hop {
    struct dist_fetch *fetch;
    const struct dist_get *get;
    struct dist_reply *reply;
    CURL *easy;
    struct curl_slist *fields;
    const char *url;
    size_t fields_bytes, error_bytes;
    bool same;    /* the server that the request began with */
    bool foreign; /* another server than the one on whose behalf we ask */
    bool proxied;
    bool private; /* a private address was refused */
    bool too_many_fields, endless, too_long, sink_stopped;
    char refused[GATE_ADDR_TEXT]; /* that address */
    char problem[CURL_ERROR_SIZE];
};

/* May this hop go to an address that is not public? */
static bool may_private(const struct hop *hop)
{
    return hop->foreign ? hop->get->server->at_private : hop->get->server->may_private;
}

static bool refuse_private(struct hop *hop, const struct gate_addr *addr)
{
    if (may_private(hop))
        return false;
    gate_addr_text(addr, hop->refused);
    hop->private = true;
    return true;
}

static curl_socket_t open_socket(void *ctx, curlsocktype purpose UNUSED, struct curl_sockaddr *to)
{
    struct hop *hop = ctx;
    struct sockaddr_storage storage = {0};
    struct gate_addr addr;

    memcpy(&storage, &to->addr, to->addrlen < sizeof storage ? to->addrlen : sizeof storage);
    if (!hop->proxied && gate_addr_from(&storage, &addr) == 0 && gate_addr_private(&addr) && refuse_private(hop, &addr))
        return CURL_SOCKET_BAD;
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
}

/*
 * There is a connection, and nothing has been sent on it. libcurl tries several addresses of a name side by side, so
 * only here is it known which of them the server has.
 */
static int on_connected(void *ctx, char *there, char *here, int port UNUSED, int own_port UNUSED)
{
    struct hop *hop = ctx;
    struct gate_addr addr;

    if (hop->proxied || !there || gate_addr_parse(there, &addr) < 0)
        return CURL_PREREQFUNC_OK;
    const bool private = gate_addr_private(&addr) || (here && str_eq(there, here));
    if (!hop->foreign)
        hop->get->server->at_private = private;
    return private && refuse_private(hop, &addr) ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void take_field(struct dist_reply *reply, const char *name, const char *value)
{
    if (strcasecmp(name, "content-type") == 0) {
        size_t n = strcspn(value, "; \t");
        if (n < sizeof reply->content_type) {
            for (size_t i = 0; i < n; i++)
                reply->content_type[i] = value[i] >= 'A' && value[i] <= 'Z' ? (char)(value[i] - 'A' + 'a') : value[i];
            reply->content_type[n] = '\0';
        }
    } else if (strcasecmp(name, "docker-content-digest") == 0) {
        str_cut(reply->digest, sizeof reply->digest, value);
    } else if (strcasecmp(name, "content-length") == 0) {
        reply->has_length = parse_u64(value, &reply->length) == 0;
    } else if (strcasecmp(name, "content-range") == 0) {
        char from[24];
        size_t n = str_starts(value, "bytes ") ? strspn(value + 6, "0123456789") : 0;
        if (n > 0 && n < sizeof from && value[6 + n] == '-') {
            memcpy(from, value + 6, n);
            from[n] = '\0';
            reply->has_range = parse_u64(from, &reply->range_from) == 0;
        }
    } else if (strcasecmp(name, "www-authenticate") == 0) {
        size_t at = strlen(reply->challenge);
        if (str_format(reply->challenge + at, sizeof reply->challenge - at, "%s%s", at ? ", " : "", value) < 0)
            reply->challenge[at] = '\0'; /* one that is too long is none */
    }
}

static size_t on_field(char *data, size_t size, size_t n, void *ctx)
{
    struct hop *hop = ctx;
    char line[DIST_HEADER + 64];
    size_t len = size * n;

    hop->fields_bytes += len;
    if (hop->fields_bytes > FIELDS_BYTES) {
        hop->too_many_fields = true;
        return 0;
    }
    if (len >= 5 && strncmp(data, "HTTP/", 5) == 0) { /* the last of several heads counts */
        *hop->reply = (struct dist_reply){0};
        return len;
    }
    size_t text = len;
    while (text > 0 && strchr("\r\n \t", data[text - 1]))
        text--;
    const char *colon = memchr(data, ':', text);
    if (!colon || text >= sizeof line || memchr(data, '\0', text))
        return len;
    memcpy(line, data, text);
    line[text] = '\0';
    char *value = line + (colon - data);
    *value++ = '\0';
    take_field(hop->reply, line, value + strspn(value, " \t"));
    return len;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct hop *hop = ctx;
    size_t len = size * n;

    if (hop->reply->status == 0)
        curl_easy_getinfo(hop->easy, CURLINFO_RESPONSE_CODE, &hop->reply->status);
    if (hop->reply->status < 200 || hop->reply->status > 299) {
        size_t at = strlen(hop->reply->why), room = sizeof hop->reply->why - 1 - at, take = len < room ? len : room;
        for (size_t i = 0; i < take; i++)
            hop->reply->why[at + i] = data[i] ? data[i] : ' ';
        hop->reply->why[at + take] = '\0';
        hop->error_bytes += len;
        hop->endless = hop->error_bytes > ERROR_BYTES;
        return hop->endless ? 0 : len;
    }
    if (hop->get->sink) {
        hop->sink_stopped = hop->get->sink(hop->get->ctx, hop->reply, data, len) < 0;
        return hop->sink_stopped ? 0 : len;
    }
    hop->too_long = buf_append(hop->get->body, data, len) < 0;
    return hop->too_long ? 0 : len;
}

static int add_field(struct hop *hop, const char *name, const char *value)
{
    AUTO_BUF struct buf line = BUF_INIT(64u << 10);
    int r = buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *more = r == 0 ? curl_slist_append(hop->fields, line.data) : NULL;

    if (line.data)
        crypto_wipe(line.data, line.len);
    if (!more)
        return -ENOMEM;
    hop->fields = more;
    return 0;
}

static bool suffix_matches(const char *host, const char *name, size_t len)
{
    size_t host_len = strlen(host);

    return host_len >= len && strncasecmp(host + host_len - len, name, len) == 0 &&
           (host_len == len || host[host_len - len - 1] == '.');
}

/* Addresses match addresses and ranges; a name matches itself and every name below it, with or without a dot before. */
bool dist_no_proxy(const char *list, const char *host)
{
    struct gate_cidr range;
    struct gate_addr addr;
    const bool number = gate_addr_parse(host, &addr) == 0;

    for (const char *at = list + strspn(list, ", "); *at; at += strspn(at, ", ")) {
        char word[IMAGE_HOST];
        size_t len = strcspn(at, ", ");
        if (len < sizeof word) {
            memcpy(word, at, len);
            word[len] = '\0';
            const char *name = word + strspn(word, ".");
            if (str_eq(word, "*") ||
                (number && gate_cidr_parse(word, &range, NULL) == 0 && gate_cidr_has(&range, &addr)) ||
                (!number && *name && suffix_matches(host, name, strlen(name))))
                return true;
        }
        at += len;
    }
    return false;
}

/* The host of a URL without brackets. libcurl has turned every spelling of an IPv4 address into the usual one. */
static int bare_host(const char *url, char *out, size_t size)
{
    struct parts parts;
    int r = -EINVAL;

    if (parts_get(url, &parts)) {
        const char *host = parts.host[0] == '[' ? parts.host + 1 : parts.host;
        r = str_copy(out, size, host);
        if (r == 0)
            out[strcspn(out, "]")] = '\0';
    }
    parts_done(&parts);
    return r;
}

/* Which proxy a request goes through, or "". Nothing else decides that, so it is known whose address a socket has. */
static const char *proxy_for(const struct dist *dist, const char *url)
{
    char address[IMAGE_HOST], host[IMAGE_HOST];

    if (dist_url_address(url, address, sizeof address) < 0 || is_loopback(address) ||
        bare_host(url, host, sizeof host) < 0 || dist_no_proxy(dist->no_proxy, host))
        return "";
    return str_starts(url, "https:") ? dist->proxy_https : dist->proxy_http;
}

/* A proxy looks names up itself, but an address as a number can be judged here. */
static bool proxied_to_private(struct hop *hop)
{
    char host[IMAGE_HOST];
    struct gate_addr addr;

    return hop->proxied && bare_host(hop->url, host, sizeof host) == 0 && gate_addr_parse(host, &addr) == 0 &&
           gate_addr_private(&addr) && refuse_private(hop, &addr);
}

static int set_options(struct hop *hop)
{
    const struct dist *dist = hop->fetch->dist;
    const struct dist_get *get = hop->get;
    const char *proxy = proxy_for(dist, hop->url);
    CURL *easy = hop->easy;
    CURLcode bad = CURLE_OK;
    char range[32];

    if ((get->accept && add_field(hop, "Accept", get->accept) < 0) ||
        (get->authorization && hop->same && add_field(hop, "Authorization", get->authorization) < 0))
        return -ENOMEM;
    if (str_format(range, sizeof range, "%llu-", (unsigned long long)get->from) < 0)
        return -EINVAL;
    hop->proxied = proxy[0] != '\0';
#define SET(option, value) (bad = bad ? bad : curl_easy_setopt(easy, option, value))
    SET(CURLOPT_URL, hop->url);
    SET(CURLOPT_HTTPHEADER, hop->fields);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, proxy);
    SET(CURLOPT_NOPROXY, ""); /* proxy_for() has decided */
    SET(CURLOPT_USERAGENT, "brig");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT, (long)dist->connect_s);
    SET(CURLOPT_TIMEOUT, (long)get->total_s);
    SET(CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES);
    SET(CURLOPT_LOW_SPEED_TIME, (long)dist->stall_s);
    SET(CURLOPT_HEADERFUNCTION, on_field);
    SET(CURLOPT_HEADERDATA, hop);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, hop);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, hop);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, hop);
    SET(CURLOPT_ERRORBUFFER, hop->problem);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (get->form)
        SET(CURLOPT_POSTFIELDS, get->form);
    if (get->from > 0)
        SET(CURLOPT_RANGE, range);
    if (dist->ca_file)
        SET(CURLOPT_CAINFO, dist->ca_file);
#undef SET
    return bad ? -ENOMEM : 0;
}

static int perform(struct hop *hop, CURLcode *ret)
{
    CURLM *multi = hop->fetch->multi;
    int running = 1, left, r = 0;

    if (curl_multi_add_handle(multi, hop->easy) != CURLM_OK)
        return -ENOMEM;
    while (r == 0 && running > 0) {
        if (atomic_load(&hop->fetch->stop))
            r = -ECANCELED;
        else if (curl_multi_perform(multi, &running) != CURLM_OK ||
                 (running > 0 && curl_multi_poll(multi, NULL, 0, 1000, NULL) != CURLM_OK))
            r = -EIO;
    }
    for (const CURLMsg *msg; r == 0 && (msg = curl_multi_info_read(multi, &left));)
        if (msg->msg == CURLMSG_DONE)
            *ret = msg->data.result;
    curl_multi_remove_handle(multi, hop->easy);
    return r;
}

/* ---- what came of it -------------------------------------------------------------------------------------- */

static bool may_be_over_soon(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: return true;
    default: return false;
    }
}

/* Was there nobody who speaks TLS? Where nobody listens, plain http is at another port only if the URL names none. */
static bool is_plain(CURLcode code, const char *url)
{
    char address[IMAGE_HOST];
    const char *colon = dist_url_address(url, address, sizeof address) == 0 ? strrchr(address, ':') : NULL;

    if (code == CURLE_COULDNT_CONNECT)
        return !colon || strchr(colon, ']');
    return code == CURLE_SSL_CONNECT_ERROR || code == CURLE_GOT_NOTHING || code == CURLE_SEND_ERROR ||
           code == CURLE_RECV_ERROR;
}

static int explain(const struct hop *hop, CURLcode code, struct brig_err *err)
{
    char address[IMAGE_HOST] = "";

    (void)!dist_url_address(hop->url, address, sizeof address);
    if (hop->private && !hop->get->server->may_private) /* who may not go there is not told what is there */
        return err_set(
            err, BRIG_E_FORBIDDEN, 0,
            "%.100s leads to a private address, or to this host itself; only who may name such ones may pull "
            "from there ([gate] private_ranges)",
            hop->get->server->host);
    if (hop->private)
        return err_set(err, BRIG_E_REFUSED, 0, "%.100s leads to %s, which is not a public address",
                       hop->get->server->host, hop->refused);
    if (hop->too_many_fields)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.100s: the fields of its answer have more than %u bytes", address,
                       FIELDS_BYTES);
    if (hop->endless)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.100s answered %ld with more than %u bytes", address,
                       hop->reply->status, ERROR_BYTES);
    if (hop->too_long)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%.100s: its answer has more than %zu bytes", address,
                       hop->get->body->max);
    return err_set(err, code == CURLE_OPERATION_TIMEDOUT ? BRIG_E_TIMEOUT : BRIG_E_HOST, 0, "%.100s: %s", address,
                   hop->problem[0] ? hop->problem : curl_easy_strerror(code));
}

/* Returns 0, and *ret_next is where it leads ("": nowhere, this is the answer). */
static int hop_go(struct hop *hop, char ret_next[DIST_URL], struct brig_err *err)
{
    CURLcode code = CURLE_OK;
    char *next = NULL;
    curl_off_t wait = 0;

    if (set_options(hop) < 0)
        return err_nomem(err);
    if (proxied_to_private(hop))
        return explain(hop, CURLE_OK, err);
    int r = perform(hop, &code);
    if (r < 0)
        return err_set(err, BRIG_E_HOST, -r, "%.100s", hop->get->server->host), r;
    if (hop->sink_stopped)
        return -EPIPE;
    if (code == CURLE_OUT_OF_MEMORY && hop->reply->status == 0 && hop->fields_bytes > 0)
        hop->too_many_fields = true; /* so says libcurl of a single field that is longer than 100 KiB */
    if (code != CURLE_OK) {
        bool ours = hop->too_many_fields || hop->endless || hop->too_long || hop->private;
        hop->reply->soon = !ours && may_be_over_soon(code);
        hop->reply->plain = !ours && is_plain(code, hop->url);
        return explain(hop, code, err);
    }
    curl_easy_getinfo(hop->easy, CURLINFO_RESPONSE_CODE, &hop->reply->status);
    if (curl_easy_getinfo(hop->easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
        hop->reply->retry_after_s = wait < 86400 ? (long)wait : 86400;
    ret_next[0] = '\0';
    if (hop->reply->status >= 301 && hop->reply->status <= 308 && hop->reply->status != 304 &&
        curl_easy_getinfo(hop->easy, CURLINFO_REDIRECT_URL, &next) == CURLE_OK && next &&
        str_copy(ret_next, DIST_URL, next) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.100s leads to an address that is too long", hop->get->server->host);
    return 0;
}

static void hop_done(struct hop *hop)
{
    curl_easy_cleanup(hop->easy);
    for (struct curl_slist *line = hop->fields; line; line = line->next)
        crypto_wipe(line->data, strlen(line->data));
    curl_slist_free_all(hop->fields);
}

int dist_request(struct dist_fetch *fetch, const struct dist_get *get, struct dist_reply *reply, struct brig_err *err)
{
    char url[DIST_URL], next[DIST_URL];

    *reply = (struct dist_reply){0};
    if (str_copy(url, sizeof url, get->url) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.100s...: the address is too long", get->url);
    for (unsigned i = 0; i <= REDIRECTS_MAX; i++) {
        struct hop hop = {.fetch = fetch, .get = get, .reply = reply, .url = url, .easy = curl_easy_init()};
        int r = hop.easy ? 0 : err_nomem(err);
        *reply = (struct dist_reply){0};
        hop.same = same_server(url, get->url);
        hop.foreign = !hop.same || !get->server_itself;
        if (r == 0)
            r = hop_go(&hop, next, err);
        hop_done(&hop);
        if (r < 0 || !next[0])
            return r;
        if (get->form) /* it has a token */
            return err_set(err, BRIG_E_REFUSED, 0, "%.100s: its token server leads elsewhere", get->server->host);
        r = dist_url_check(fetch->dist, next, str_starts(url, "https:"), err);
        if (r < 0)
            return r;
        memcpy(url, next, sizeof url);
    }
    return err_set(err, BRIG_E_INVALID, 0, "%.100s: more than %u redirects", get->server->host, REDIRECTS_MAX);
}

int dist_rest(struct dist_fetch *fetch, uint64_t ms)
{
    uint64_t until = clock_mono_ns() + ms * NS_PER_MS;

    for (;;) {
        uint64_t now = clock_mono_ns();
        if (atomic_load(&fetch->stop))
            return -ECANCELED;
        if (now >= until)
            return 0;
        (void)curl_multi_poll(fetch->multi, NULL, 0, (int)((until - now) / NS_PER_MS) + 1, NULL);
    }
}
