/* SPDX-License-Identifier: Apache-2.0 */
/* route_misc.c: health, version, configuration, lifecycle events. */
#include <stdio.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#include "openapi.h" /* generated from docs/openapi.yaml */

void route_health(struct request *rq)
{
    request_text(rq, 200, "text/plain", "ok\n", 3);
}

void route_ready(struct request *rq)
{
    struct store_health health;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    store_health(rq->api->store, &health);
    bool ready = rq->api->ready && !rq->api->draining && health.ok;
    json_object(&json);
    json_key_bool(&json, "ready", ready);
    json_key_string(&json, "store", health.ok ? "ok" : "failing");
    json_key_string(&json, "provider", rq->api->ready ? "ok" : "starting");
    json_key_bool(&json, "draining", rq->api->draining);
    json_end(&json);
    request_json(rq, ready ? 200 : 503, &json);
}

void route_version(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_string(&json, "version", brig_version());
    json_key_string(&json, "commit", brig_commit());
    json_key_u64(&json, "protocol", brig_protocol());
    json_key_string(&json, "provider", config_get(rq->api->config)->provider);
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_openapi(struct request *rq)
{
    request_text(rq, 200, "application/json", openapi_json, openapi_json_len);
}

/* ---- configuration --------------------------------------------------------------------------------------- */

void route_config_get(struct request *rq)
{
    static const char *const sources[CONFIG_SOURCE_MAX] = {"default", "file", "environment", "flag"};
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);
    struct config_row row;

    json_object(&json);
    json_key_string(&json, "file", config_path(rq->api->config));
    json_key_array(&json, "values");
    for (size_t i = 0; config_each(rq->api->config, i, &row); i++) {
        json_object(&json);
        json_key_string(&json, "section", row.section);
        json_key_string(&json, "key", row.key);
        json_key_string(&json, "value", row.value);
        json_key_string(&json, "source", sources[row.source]);
        json_key_bool(&json, "reloadable", row.reloadable);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    request_json(rq, 200, &json);
}

/* The supervisor reads the file: it may lie where we cannot. Its answer is taken by main.c, which knows who waits. */
void route_config_reload(struct request *rq)
{
    if (rq->api->reloading)
        return request_refuse(rq, BRIG_E_CONFLICT, "a reload is under way");
    if (sup_send(rq->api->supervisor_fd, SUP_RELOAD, NULL, -1) < 0)
        return request_refuse(rq, BRIG_E_BUSY, "the supervisor does not answer");
    rq->api->reloading = rq;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

struct watcher {
    struct request *rq;
    struct manager_listener listener;
};

static void events_left(struct request *rq)
{
    struct watcher *watcher = rq->state;

    manager_unlisten(rq->api->manager, &watcher->listener);
    mem_free(watcher);
    request_free(rq);
}

static void on_event(void *ctx, const char *org_id, uint64_t seq, const char *json, size_t len)
{
    struct watcher *watcher = ctx;
    char id[32];

    if (!watcher->rq->caller.socket && !str_eq(org_id, watcher->rq->caller.org_id))
        return;
    snprintf(id, sizeof id, "%llu", (unsigned long long)seq);
    /* A client that does not keep up is cut off: events are many and small, and it can come back with since=. */
    if (exchange_sse(watcher->rq->x, NULL, id, json, len))
        return;
    exchange_on_gone(watcher->rq->x, NULL, NULL);
    exchange_abort(take_ptr(&watcher->rq->x));
    events_left(watcher->rq);
}

void route_events(struct request *rq)
{
    const char *last = http_field(exchange_head(rq->x), "Last-Event-ID");
    uint64_t since = UINT64_MAX, from = 0;

    if (!request_query_u64(rq, "since", 0, UINT64_MAX - 1, &since))
        return;
    if (last && api_number(last, '\0', &from))
        since = from;
    struct watcher *watcher = request_alloc(rq, sizeof *watcher);
    if (!watcher)
        return;
    *watcher = (struct watcher){.rq = rq, .listener = {.event = on_event, .ctx = watcher}};
    rq->state = watcher;
    rq->left = events_left;
    exchange_begin(rq->x, 200, "text/event-stream", UINT64_MAX);
    exchange_write(rq->x, ": brig\n\n", 8);
    manager_listen_since(rq->api->manager, &watcher->listener, since);
}
