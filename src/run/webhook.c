/* SPDX-License-Identifier: Apache-2.0 */
/*
 * webhook.c: asks the credential webhook, with one POST per (organisation, tool, agent) and cache time, through
 * libcurl's multi interface on our loop.
 *
 * A call is FLYING (libcurl has it), RESTING (between two attempts) or TOLD from a timer (an answer from the cache,
 * never from within). Answers are in wiping memory, here and in the cache, and no part of one is ever in a message. A
 * failure that may be over soon (no connection, 5xx) is tried twice more; what the server says otherwise is its answer.
 */
#include "run/webhook.h"

#include <curl/curl.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"

#define PATH "/webhook/sandbox-credentials"
#define ANSWER_MAX 65536u
#define ATTEMPTS 3u
#define REST_NS (100 * NS_PER_MS) /* after the first failure; four times that after the second */
#define CONNECT_MS 2000L
#define CACHE_MAX 256u
#define CALLS_MAX 1024u

struct cached {
    struct cached *next;
    uint64_t until_ns;
    size_t len;
    char *text; /* crypto_secret_alloc() */
    char key[]; /* the request's body: what it is the answer to */
};

struct webhook_call {
    struct webhook *webhook;
    struct webhook_call *next, *prev;
    void (*done)(void *ctx, const struct json_value *vars, const struct brig_err *err);
    void *ctx;
    CURL *easy;
    struct loop_timer timer;
    unsigned attempts;
    char *body;
    char *answer; /* ANSWER_MAX, crypto_secret_alloc() */
    size_t answer_len;
    char problem[CURL_ERROR_SIZE];
};

struct webhook {
    struct loop *loop;
    char *url;
    struct curl_slist *headers; /* has the key */
    uint64_t timeout_ms, cache_ns;
    char *ca_bundle; /* or NULL */
    CURLM *multi;
    struct loop_timer timer;
    struct webhook_call *calls;
    unsigned n_calls;
    struct cached *cache;
};

/* One of libcurl's sockets. */
struct watched {
    struct loop_source source;
    struct webhook *webhook;
};

static void call_free(struct webhook_call *call);

/* ---- the cache -------------------------------------------------------------------------------------------- */

static void cached_free(struct cached *cached)
{
    crypto_secret_free(cached->text, cached->len);
    mem_free(cached);
}

/* Drops what is too old, or too much: the list is newest first. */
static void cache_trim(struct webhook *webhook)
{
    uint64_t now = clock_mono_ns();
    unsigned n = 0;

    for (struct cached **at = &webhook->cache; *at;) {
        struct cached *cached = *at;
        if (cached->until_ns > now && ++n <= CACHE_MAX) {
            at = &cached->next;
            continue;
        }
        *at = cached->next;
        cached_free(cached);
    }
}

static const struct cached *cache_find(struct webhook *webhook, const char *key)
{
    cache_trim(webhook);
    for (const struct cached *cached = webhook->cache; cached; cached = cached->next)
        if (str_eq(cached->key, key))
            return cached;
    return NULL;
}

/* Without memory there is no cache; that is all. */
static void cache_add(struct webhook *webhook, const char *key, const char *text, size_t len)
{
    size_t size = strlen(key) + 1;
    struct cached *cached = webhook->cache_ns && len ? mem_zalloc(sizeof *cached + size) : NULL;

    if (!cached)
        return;
    cached->text = crypto_secret_alloc(len);
    if (!cached->text) {
        mem_free(cached);
        return;
    }
    memcpy(cached->text, text, len);
    memcpy(cached->key, key, size);
    cached->len = len;
    cached->until_ns = clock_mono_ns() + webhook->cache_ns;
    cached->next = webhook->cache;
    webhook->cache = cached;
    cache_trim(webhook);
}

/* ---- how a call ends -------------------------------------------------------------------------------------- */

static void tell(struct webhook_call *call, const struct json_value *vars, const struct brig_err *err)
{
    void (*done)(void *c, const struct json_value *v, const struct brig_err *e) = call->done;
    void *ctx = call->ctx;

    call_free(call);
    done(ctx, vars, err);
}

static void tell_answer(struct webhook_call *call)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(call->answer, call->answer_len, 8192, &doc, NULL) < 0 || json_root(doc)->type != JSON_OBJECT) {
        (void)err_set(&err, BRIG_E_HOST, 0, "the credential webhook's answer is no JSON object");
        tell(call, NULL, &err);
    } else {
        cache_add(call->webhook, call->body, call->answer, call->answer_len);
        tell(call, json_root(doc), NULL);
    }
}

static int launch(struct webhook_call *call, struct brig_err *err);

static void on_rest_over(struct loop_timer *timer)
{
    struct webhook_call *call = timer->ctx;
    struct brig_err err = {0};

    if (call->answer_len > 0) /* from the cache */
        tell_answer(call);
    else if (launch(call, &err) < 0)
        tell(call, NULL, &err);
}

static bool may_be_over_soon(CURLcode code, long status)
{
    switch (code) {
    case CURLE_OK: return status >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR: return true;
    default: return false; /* also a time-out: the time that the run can wait is over */
    }
}

static void call_over(struct webhook_call *call, CURLcode code)
{
    struct webhook *webhook = call->webhook;
    struct brig_err err = {0};
    long status = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_multi_remove_handle(webhook->multi, call->easy);
    if (code == CURLE_OK && status >= 200 && status < 300) {
        tell_answer(call);
        return;
    }
    call->answer_len = 0;
    if (call->attempts < ATTEMPTS && may_be_over_soon(code, status) &&
        loop_timer_set(webhook->loop, &call->timer, clock_mono_ns() + (call->attempts == 1 ? REST_NS : 4 * REST_NS),
                       NULL) == 0)
        return;
    if (code == CURLE_OK)
        (void)err_set(&err, BRIG_E_HOST, 0, "the credential webhook answered %ld", status);
    else if (code == CURLE_WRITE_ERROR)
        (void)err_set(&err, BRIG_E_TOO_LARGE, 0, "the credential webhook's answer is longer than %u bytes", ANSWER_MAX);
    else
        (void)err_set(&err, code == CURLE_OPERATION_TIMEDOUT ? BRIG_E_TIMEOUT : BRIG_E_HOST, 0,
                      "credential webhook: %s", call->problem[0] ? call->problem : curl_easy_strerror(code));
    tell(call, NULL, &err);
}

static void collect(struct webhook *webhook)
{
    const CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(webhook->multi, &left))) {
        char *call = NULL;
        if (msg->msg != CURLMSG_DONE)
            continue;
        CURLcode code = msg->data.result;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call);
        call_over((struct webhook_call *)(void *)call, code);
    }
}

/* ---- libcurl on our loop ---------------------------------------------------------------------------------- */

static void on_socket(struct loop_source *source, uint32_t events)
{
    struct webhook *webhook = ((struct watched *)source)->webhook;
    int flags = (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
    int running;

    curl_multi_socket_action(webhook->multi, source->fd, flags, &running); /* the source may be gone now */
    collect(webhook);
}

static void on_timer(struct loop_timer *timer)
{
    struct webhook *webhook = timer->ctx;
    int running;

    curl_multi_socket_action(webhook->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(webhook);
}

static int watch_socket(CURL *easy UNUSED, curl_socket_t fd, int what, void *ctx, void *mine)
{
    struct webhook *webhook = ctx;
    struct watched *watched = mine;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

    if (what == CURL_POLL_REMOVE) {
        if (watched)
            loop_remove(webhook->loop, &watched->source);
        mem_free(watched);
        curl_multi_assign(webhook->multi, fd, NULL);
        return 0;
    }
    if (watched)
        return loop_modify(webhook->loop, &watched->source, events, NULL) < 0 ? -1 : 0;
    watched = mem_zalloc(sizeof *watched);
    if (!watched)
        return -1;
    *watched = (struct watched){.source = {.fd = -1, .fn = on_socket}, .webhook = webhook};
    if (loop_add(webhook->loop, &watched->source, fd, events, NULL) < 0) {
        mem_free(watched);
        return -1;
    }
    curl_multi_assign(webhook->multi, fd, watched);
    return 0;
}

static int set_timer(CURLM *multi UNUSED, long timeout_ms, void *ctx)
{
    struct webhook *webhook = ctx;

    if (timeout_ms < 0) {
        loop_timer_clear(webhook->loop, &webhook->timer);
        return 0;
    }
    return loop_timer_set(webhook->loop, &webhook->timer, clock_mono_ns() + (uint64_t)timeout_ms * NS_PER_MS, NULL) < 0
               ? -1
               : 0;
}

/* ---- a call ----------------------------------------------------------------------------------------------- */

static size_t take(char *data, size_t size, size_t n, void *ctx)
{
    struct webhook_call *call = ctx;
    size_t len = size * n;

    if (len > ANSWER_MAX - call->answer_len)
        return 0;
    memcpy(call->answer + call->answer_len, data, len);
    call->answer_len += len;
    return len;
}

static int set_options(struct webhook_call *call)
{
    const struct webhook *webhook = call->webhook;
    CURL *easy = call->easy;
    CURLcode bad = CURLE_OK;

#define SET(option, value) (bad = bad ? bad : curl_easy_setopt(easy, option, value))
    SET(CURLOPT_URL, webhook->url);
    SET(CURLOPT_PRIVATE, (char *)call);
    SET(CURLOPT_POSTFIELDS, call->body);
    SET(CURLOPT_HTTPHEADER, webhook->headers);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, ""); /* nor one of the environment */
    SET(CURLOPT_USERAGENT, "brig");
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    SET(CURLOPT_TIMEOUT_MS, (long)webhook->timeout_ms);
    SET(CURLOPT_WRITEFUNCTION, take);
    SET(CURLOPT_WRITEDATA, (void *)call);
    SET(CURLOPT_ERRORBUFFER, call->problem);
    if (webhook->ca_bundle)
        SET(CURLOPT_CAINFO, webhook->ca_bundle);
#undef SET
    return bad ? -EINVAL : 0;
}

static int launch(struct webhook_call *call, struct brig_err *err)
{
    call->attempts++;
    call->answer_len = 0;
    call->problem[0] = '\0';
    if (!call->easy && (!(call->easy = curl_easy_init()) || set_options(call) < 0))
        return err_nomem(err);
    if (curl_multi_add_handle(call->webhook->multi, call->easy) != CURLM_OK)
        return err_set(err, BRIG_E_HOST, 0, "credential webhook: libcurl takes no more");
    return 0;
}

static void call_free(struct webhook_call *call)
{
    struct webhook *webhook = call->webhook;

    list_remove(&webhook->calls, call);
    webhook->n_calls--;
    loop_timer_clear(webhook->loop, &call->timer);
    if (call->easy) {
        curl_multi_remove_handle(webhook->multi, call->easy);
        curl_easy_cleanup(call->easy);
    }
    crypto_secret_free(call->answer, ANSWER_MAX);
    mem_free(call->body);
    mem_free(call);
}

static char *make_body(const struct webhook_ask *ask)
{
    struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_string(&json, "user_id", ask->user_id);
    json_key_string(&json, "organization_id", ask->org_id);
    if (ask->tool_name && ask->tool_name[0])
        json_key_string(&json, "tool_name", ask->tool_name);
    if (ask->agent_id && ask->agent_id[0])
        json_key_string(&json, "agent_id", ask->agent_id);
    json_end(&json);
    char *body = json_finish(&json) == 0 ? buf_take(&out, NULL) : NULL;
    buf_done(&out);
    return body;
}

int webhook_fetch(struct webhook *webhook, const struct webhook_ask *ask,
                  void (*done)(void *ctx, const struct json_value *vars, const struct brig_err *err), void *ctx,
                  struct webhook_call **ret, struct brig_err *err)
{
    if (webhook->n_calls >= CALLS_MAX)
        return err_set(err, BRIG_E_LIMIT, 0, "%u runs wait for the credential webhook already", CALLS_MAX);
    struct webhook_call *call = mem_zalloc(sizeof *call);
    if (!call)
        return err_nomem(err);
    *call = (struct webhook_call){.webhook = webhook, .done = done, .ctx = ctx, .timer = {.fn = on_rest_over}};
    call->timer.ctx = call;
    list_push(&webhook->calls, call);
    webhook->n_calls++;
    call->body = make_body(ask);
    call->answer = crypto_secret_alloc(ANSWER_MAX);
    const struct cached *cached = call->body ? cache_find(webhook, call->body) : NULL;
    int r = call->body && call->answer ? 0 : err_nomem(err);
    if (r == 0 && cached) {
        memcpy(call->answer, cached->text, cached->len);
        call->answer_len = cached->len;
        r = loop_timer_set(webhook->loop, &call->timer, 0, err);
    } else if (r == 0) {
        r = launch(call, err);
    }
    if (r < 0) {
        call_free(call);
        return r;
    }
    *ret = call;
    return 0;
}

void webhook_cancel(struct webhook_call *call)
{
    call_free(call);
}

/* ---- life ------------------------------------------------------------------------------------------------- */

static int make_headers(struct webhook *webhook, const char *key)
{
    struct curl_slist *more = curl_slist_append(NULL, "Content-Type: application/json");
    AUTO_BUF struct buf line = BUF_INIT(8192);

    webhook->headers = more;
    if (!more || !(more = curl_slist_append(more, "Accept: application/json")))
        return -ENOMEM;
    if (!key[0])
        return 0;
    int r = buf_printf(&line, "Authorization: Bearer %s", key);
    if (r == 0 && !curl_slist_append(webhook->headers, line.data))
        r = -ENOMEM;
    crypto_wipe(line.data, line.len);
    return r;
}

int webhook_create(const struct webhook_options *options, struct webhook **ret, struct brig_err *err)
{
    AUTO_BUF struct buf url = BUF_INIT(4096);
    struct webhook *webhook = mem_zalloc(sizeof *webhook);
    size_t len = strlen(options->url);

    if (!webhook)
        return err_nomem(err);
    *webhook = (struct webhook){.loop = options->loop,
                                .timeout_ms = options->timeout_ms,
                                .cache_ns = options->cache_ms * NS_PER_MS,
                                .timer = {.fn = on_timer}};
    webhook->timer.ctx = webhook;
    while (len > 0 && options->url[len - 1] == '/') /* Letta would double it */
        len--;
    bool ok = curl_global_init(CURL_GLOBAL_DEFAULT) == 0 && (webhook->multi = curl_multi_init()) &&
              make_headers(webhook, options->key) == 0 && buf_append(&url, options->url, len) == 0 &&
              buf_append_str(&url, PATH) == 0 && (webhook->url = buf_take(&url, NULL)) &&
              (!options->ca_bundle || (webhook->ca_bundle = mem_strdup(options->ca_bundle)));
    if (!ok) {
        webhook_destroy(webhook);
        return err_nomem(err);
    }
    curl_multi_setopt(webhook->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl_multi_setopt(webhook->multi, CURLMOPT_SOCKETDATA, webhook);
    curl_multi_setopt(webhook->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl_multi_setopt(webhook->multi, CURLMOPT_TIMERDATA, webhook);
    *ret = webhook;
    return 0;
}

void webhook_destroy(struct webhook *webhook)
{
    if (!webhook)
        return;
    while (webhook->calls)
        call_free(webhook->calls);
    for (struct cached *cached; (cached = webhook->cache);) {
        webhook->cache = cached->next;
        cached_free(cached);
    }
    if (webhook->multi)
        curl_multi_cleanup(webhook->multi);
    loop_timer_clear(webhook->loop, &webhook->timer);
    for (struct curl_slist *line = webhook->headers; line; line = line->next)
        crypto_wipe(line->data, strlen(line->data));
    curl_slist_free_all(webhook->headers);
    mem_free(webhook->ca_bundle);
    mem_free(webhook->url);
    mem_free(webhook);
}
