/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_servers.c: goes through the servers of an origin, and tries each as often as it makes sense. A rest is twice as
 * long as the one before. A Retry-After is obeyed up to a minute; a longer one ends the tries. This file also says what
 * a status means.
 */
#include <string.h>

#include "base/str.h"
#include "codec/json/json_read.h"
#include "template/distribution_priv.h"

#define REST_MAX_MS 30000u
#define RETRY_AFTER_MAX_S 60
#define TRIES_MAX 64u
#define PROGRESS_BYTES (1u << 20)

/* ---- what a status means ---------------------------------------------------------------------------------- */

/* "CODE: message" of the first error in the answer, for people; "" if it is something else. */
static void read_why(const char *body, char *out, size_t size)
{
    struct json_doc *doc = NULL;

    out[0] = '\0';
    if (json_read(body, strlen(body), 256, &doc, NULL) < 0)
        return;
    const struct json_value *errors = json_get(json_root(doc), "errors");
    const struct json_value *first = errors && errors->type == JSON_ARRAY ? errors->first : NULL;
    const struct json_value *code = json_get(first, "code"), *message = json_get(first, "message");
    if (code && code->type == JSON_STRING)
        (void)!str_format(out, size, " (%.40s%s%.60s)", code->string,
                          message && message->type == JSON_STRING ? ": " : "",
                          message && message->type == JSON_STRING ? message->string : "");
    json_doc_free(doc);
}

int dist_status_error(const struct dist_server *server, const char *what, struct dist_reply *reply,
                      struct brig_err *err)
{
    char why[160];

    read_why(reply->why, why, sizeof why);
    switch (reply->status) {
    case 401:
    case 403: return err_set(err, BRIG_E_FORBIDDEN, 0, "%.60s refuses %.90s%s", server->host, what, why);
    case 404: return err_set(err, BRIG_E_NOT_FOUND, 0, "%.60s does not have %.90s%s", server->host, what, why);
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        reply->soon = reply->retry_after_s <= RETRY_AFTER_MAX_S;
        if (!reply->soon)
            return err_set(err, BRIG_E_LIMIT, 0, "%.60s answered %ld for %.80s and wants to be left alone for %ld s",
                           server->host, reply->status, what, reply->retry_after_s);
        return err_set(err, reply->status == 429 ? BRIG_E_LIMIT : BRIG_E_HOST, 0, "%.60s answered %ld for %.80s%s",
                       server->host, reply->status, what, why);
    default:
        return err_set(err, BRIG_E_HOST, 0, "%.60s answered %ld for %.80s%s", server->host, reply->status, what, why);
    }
}

/* ---- https or http ---------------------------------------------------------------------------------------- */

/* Where http is allowed, https is tried first. A certificate that does not fit is no reason for http. */
static int settle_scheme(struct dist_fetch *fetch, struct dist_server *server, struct dist_reply *reply,
                         struct brig_err *err)
{
    struct buf body = BUF_INIT(64u << 10);
    char url[DIST_URL];

    if (server->url[0])
        return 0;
    if (str_format(url, sizeof url, "https://%s/v2/", server->address) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.100s: the name is too long", server->host);
    bool plain = false;
    if (dist_plain_allowed(fetch->dist, server->address)) {
        const struct dist_get get = {.url = url, .server = server, .server_itself = true, .total_s = 60, .body = &body};
        int r = dist_request(fetch, &get, reply, err);
        buf_done(&body);
        if (r < 0 && !reply->plain)
            return r;
        plain = r < 0;
    }
    (void)!str_format(server->url, sizeof server->url, "%s://%s", plain ? "http" : "https", server->address);
    return 0;
}

/* ---- tries ------------------------------------------------------------------------------------------------ */

static uint64_t rest_ms(const struct dist *dist, unsigned failures, const struct dist_reply *reply)
{
    uint64_t ms = (uint64_t)dist->rest_ms << (failures < 8 ? failures - 1 : 7);
    uint64_t asked = (uint64_t)reply->retry_after_s * 1000;

    if (ms > REST_MAX_MS)
        ms = REST_MAX_MS;
    return asked > ms ? asked : ms;
}

typedef int try_fn(struct dist_fetch *fetch, struct dist_server *server, void *ctx, struct dist_reply *reply,
                   struct brig_err *err);

static int try_server(struct dist_fetch *fetch, struct dist_server *server, try_fn *fn, void *ctx,
                      struct dist_reply *reply, struct brig_err *err)
{
    unsigned failures = 0;
    uint64_t before = atomic_load(&fetch->at);

    for (unsigned i = 0;; i++) {
        *reply = (struct dist_reply){0};
        int r = settle_scheme(fetch, server, reply, err);
        if (r == 0)
            r = fn(fetch, server, ctx, reply, err);
        if (r == 0 || r == -ECANCELED || !reply->soon)
            return r;
        uint64_t now = atomic_load(&fetch->at);
        failures = now >= before + PROGRESS_BYTES ? 1 : failures + 1;
        before = now;
        if (failures >= fetch->dist->attempts || i + 1 >= TRIES_MAX)
            return r;
        if (dist_rest(fetch, rest_ms(fetch->dist, failures, reply)) < 0)
            return -ECANCELED;
    }
}

int dist_servers_try(struct dist_fetch *fetch, try_fn *fn, void *ctx, struct brig_err *err)
{
    int r = err_set(err, BRIG_E_HOST, 0, "there is no server to ask");

    for (size_t i = 0; i < fetch->origin->n_servers; i++) {
        struct dist_reply reply;
        r = try_server(fetch, &fetch->origin->servers[i], fn, ctx, &reply, err);
        if (r == 0 || r == -ECANCELED || reply.bad)
            break;
    }
    return r;
}
