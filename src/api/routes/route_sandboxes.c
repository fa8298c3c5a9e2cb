/* SPDX-License-Identifier: Apache-2.0 */
/* route_sandboxes.c: create, list, inspect, update, pause, resume, stop and delete sandboxes. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "http/errors.h"
#include "records/rules.h"
#include "sandbox/services/services.h"

#define LIST_DEFAULT 100u
#define LIST_MAX 1000u

/* ---- create ---------------------------------------------------------------------------------------------- */

static void answer_sandbox(struct request *rq, unsigned status, const struct sbox *sbox)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    sbox_json(sbox, &json);
    request_json(rq, status, &json);
}

/* An error as all are, with the service and the last that it said. */
static void answer_failed_service(struct request *rq, const struct brig_err *err, const char *service,
                                  const char *output, size_t len)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_object(&json, "error");
    json_key_string(&json, "code", error_code(err->code));
    json_key_string(&json, "message", err->message);
    json_key_string(&json, "hint", "on_service_failure \"keep\" leaves the sandbox for a closer look");
    json_key_string(&json, "request_id", exchange_id(rq->x));
    json_key_string(&json, "service", service);
    api_put_bytes(&json, "output", "output_encoding", json_is_text(output, len), output, len);
    json_end(&json);
    json_end(&json);
    request_json(rq, error_status(err->code), &json);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct request *rq = ctx;
    const char *output = "", *service = NULL;
    size_t len = 0;

    if (err && sbox && rq->x)
        service = sbox_failed_service(sbox, &output, &len);
    if (service)
        return answer_failed_service(rq, err, service, output, len);
    if (err)
        return request_fail(rq, err);
    if (rq->x) {
        char location[64];
        snprintf(location, sizeof location, "/v1/sandboxes/%s", sbox_id(sbox));
        exchange_add_field(rq->x, "Location", location);
    }
    answer_sandbox(rq, 201, sbox);
}

void route_sandbox_create(struct request *rq)
{
    const char *key = http_field(exchange_head(rq->x), "Idempotency-Key");
    uint8_t fingerprint[SHA256_SIZE];
    struct sbox_spec spec;
    struct brig_err err;

    if (request_draining(rq))
        return;
    if (key && (key[0] == '\0' || strlen(key) > 255))
        return request_refuse(rq, BRIG_E_USAGE, "Idempotency-Key: must have 1 to 255 bytes");
    if (crypto_sha256(rq->body, rq->body_len, fingerprint) < 0)
        return request_refuse(rq, BRIG_E_HOST, "hash of the request");
    if (sbox_spec_parse(rq->json, config_get(rq->api->config), rq->api->templates, &rq->caller, &spec, &err) < 0)
        return request_fail(rq, &err);
    /* Its services, also those of the template, are programs of the caller's own, as those of a run are. */
    if ((spec.services && auth_tool_allowed(rq->api, &rq->caller, TOOL_UNREGISTERED, &err) < 0) ||
        sbox_spec_check_binds(&spec, &err) < 0) {
        sbox_spec_done(&spec);
        request_fail(rq, &err);
        return;
    }
    if (manager_create_sandbox(rq->api->manager, &rq->caller, &spec, key, fingerprint, on_created, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- list ------------------------------------------------------------------------------------------------ */

static bool has_metadata(const struct sbox *sbox, const char *name, const char *value)
{
    for (size_t i = 0; i < sbox_spec(sbox)->n_metadata; i++)
        if (str_eq(sbox_spec(sbox)->metadata[i].name, name))
            return str_eq(sbox_spec(sbox)->metadata[i].value, value);
    return false;
}

static bool passes(const struct request *rq, const struct sbox *sbox)
{
    const struct http_target *target = exchange_target(rq->x);

    if (!rq->caller.socket && (sbox_spec(sbox)->service || !str_eq(sbox_org(sbox), rq->caller.org_id)))
        return false;
    for (size_t i = 0; i < target->n_query; i++) {
        const char *name = target->query[i].name, *value = target->query[i].value;

        if (str_eq(name, "state") && !str_eq(value, sbox_state_name(sbox_state(sbox))))
            return false;
        if (str_eq(name, "name") && !str_eq(value, sbox_spec(sbox)->name))
            return false;
        if (str_starts(name, "metadata.") && !has_metadata(sbox, name + strlen("metadata."), value))
            return false;
    }
    return true;
}

static bool known_state(const char *name)
{
    for (int i = 0; i < SBOX_STATE_MAX; i++)
        if (str_eq(name, sbox_state_name((enum sbox_state)i)))
            return true;
    return false;
}

/* A cursor is "<creation time>-<id>" of the last one of the page before, which need not live any more. */
static bool after_cursor(struct request *rq, const char *cursor, const struct sbox **ret)
{
    uint64_t created = 0;
    const char *id = api_number(cursor, '-', &created);
    const struct sbox *s = manager_first(rq->api->manager);

    if (!id)
        return request_refuse(rq, BRIG_E_USAGE, "cursor=%.64s: not one of ours", cursor), false;
    while (s &&
           ((uint64_t)sbox_created(s) > created || ((uint64_t)sbox_created(s) == created && !str_eq(sbox_id(s), id))))
        s = sbox_next(s);
    *ret = s && str_eq(sbox_id(s), id) ? sbox_next(s) : s;
    return true;
}

void route_sandbox_list(struct request *rq)
{
    const char *state = request_query(rq, "state"), *cursor = request_query(rq, "cursor");
    const struct sbox *s = manager_first(rq->api->manager), *last = NULL;
    uint64_t limit = LIST_DEFAULT, n = 0;
    char next[64];
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (!request_query_u64(rq, "limit", 1, LIST_MAX, &limit))
        return;
    if (state && !known_state(state))
        return request_refuse(rq, BRIG_E_USAGE, "state=%.32s: no such state", state);
    if (cursor && !after_cursor(rq, cursor, &s))
        return;
    request_list_begin(&json, "sandboxes");
    for (; s && n < limit; s = sbox_next(s))
        if (passes(rq, s)) {
            sbox_json(s, &json);
            last = s;
            n++;
        }
    while (s && !passes(rq, s))
        s = sbox_next(s);
    if (last)
        snprintf(next, sizeof next, "%lld-%s", (long long)sbox_created(last), sbox_id(last));
    request_page_end(rq, &json, s && last ? next : NULL);
}

static void on_counted(void *ctx, struct sbox *sbox, const struct brig_err *err UNUSED)
{
    answer_sandbox(ctx, 200, sbox);
}

void route_sandbox_get(struct request *rq)
{
    if (sbox_count_network(rq->sbox, on_counted, rq, NULL) <= 0)
        answer_sandbox(rq, 200, rq->sbox);
}

/* ---- change ---------------------------------------------------------------------------------------------- */

static void on_changed(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        answer_sandbox(rq, 200, sbox);
}

static bool read_metadata(struct request *rq, struct sbox_pair *pairs, size_t max, size_t *ret_n)
{
    const struct json_value *metadata = json_get(rq->json, "metadata");
    size_t n = 0;

    for (const struct json_value *m = metadata->type == JSON_OBJECT ? metadata->first : NULL; m; m = m->next) {
        if (n == max || m->type != JSON_STRING || m->key_len == 0 || m->key_len > 4096 || m->len > 4096 ||
            memchr(m->string, '\0', m->len)) {
            request_refuse(rq, BRIG_E_USAGE, "metadata: at most %zu names, each with a text of at most 4096 bytes",
                           max);
            return false;
        }
        pairs[n++] = (struct sbox_pair){m->key, m->string};
    }
    if (metadata->type != JSON_OBJECT)
        return request_refuse(rq, BRIG_E_USAGE, "metadata: must be an object"), false;
    *ret_n = n;
    return true;
}

/* What a change asks for beside the network. */
struct change {
    struct sbox_pair pairs[64];
    size_t n;
    uint64_t timeout_ms;
    bool has_metadata;
};

static bool read_change(struct request *rq, struct change *ret)
{
    const struct json_value *timeout = json_get(rq->json, "timeout");

    ret->has_metadata = json_get(rq->json, "metadata") != NULL;
    ret->timeout_ms = UINT64_MAX;
    ret->n = 0;
    if (timeout && timeout->type == JSON_NULL) {
        ret->timeout_ms = 0;
    } else if (timeout &&
               (api_duration(timeout, &ret->timeout_ms) < 0 || ret->timeout_ms > UINT64_C(366) * 86400 * 1000)) {
        request_refuse(rq, BRIG_E_USAGE,
                       "timeout: must be a duration up to 366 days, such as 300 or \"5m\", or null for none");
        return false;
    }
    return !ret->has_metadata || read_metadata(rq, ret->pairs, ARRAY_SIZE(ret->pairs), &ret->n);
}

static void on_network(void *ctx, struct sbox *sbox, const struct brig_err *failed)
{
    struct request *rq = ctx;
    struct change change;
    struct brig_err err;

    if (failed)
        request_fail(rq, failed);
    else if (rq->json->count == 1)
        answer_sandbox(rq, 200, sbox);
    else if (read_change(rq, &change) &&
             sbox_update(sbox, &rq->caller, change.timeout_ms, change.has_metadata ? change.pairs : NULL, change.n,
                         on_changed, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_sandbox_update(struct request *rq)
{
    const struct json_value *network = json_get(rq->json, "network");
    struct change change;
    struct brig_err err;

    if (!api_only_members(rq, "timeout metadata network") || !read_change(rq, &change))
        return;
    int r = network ? sbox_set_network(rq->sbox, &rq->caller, network, on_network, rq, &err)
                    : sbox_update(rq->sbox, &rq->caller, change.timeout_ms, change.has_metadata ? change.pairs : NULL,
                                  change.n, on_changed, rq, &err);
    if (r < 0)
        request_fail(rq, &err);
}

void route_sandbox_pause(struct request *rq)
{
    struct brig_err err;

    if (sbox_pause(rq->sbox, &rq->caller, on_changed, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_sandbox_resume(struct request *rq)
{
    struct brig_err err;

    if (sbox_resume(rq->sbox, &rq->caller, on_changed, rq, &err) < 0)
        request_fail(rq, &err);
}

static void on_deleted(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err)
{
    request_done(ctx, err);
}

void route_sandbox_delete(struct request *rq)
{
    struct brig_err err;

    if (sbox_end(rq->sbox, &rq->caller, "deleted", on_deleted, rq, &err) < 0)
        request_fail(rq, &err);
}

/* Stop answers with what remains of it: the certificate. */
struct stopping {
    struct request *rq;
    char id[32], org_id[64];
};

static void on_stopped(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *failed)
{
    struct stopping *stopping = ctx;
    struct request *rq = stopping->rq;
    const struct store_query query = {.org_id = stopping->org_id, .id = stopping->id, .limit = 1};
    struct brig_err err;

    if (failed)
        request_fail(rq, failed);
    else if (store_find_certificates(rq->api->store, &query, runs_answer_one, rq, &err) < 0)
        request_fail(rq, &err);
    mem_free(stopping);
}

void route_sandbox_stop(struct request *rq)
{
    struct stopping *stopping = request_alloc(rq, sizeof *stopping);
    struct brig_err err;

    if (!stopping)
        return;
    stopping->rq = rq;
    if (str_copy(stopping->id, sizeof stopping->id, sbox_id(rq->sbox)) < 0 ||
        str_copy(stopping->org_id, sizeof stopping->org_id, sbox_org(rq->sbox)) < 0) {
        mem_free(stopping);
        request_refuse(rq, BRIG_E_HOST, "sandbox %.64s: its name is too long", sbox_id(rq->sbox));
    } else if (sbox_stop_softly(rq->sbox, &rq->caller, on_stopped, stopping, &err) < 0) {
        mem_free(stopping);
        request_fail(rq, &err);
    }
}

/* ---- measures -------------------------------------------------------------------------------------------- */

static void put_usage(struct json *json, const char *name, uint64_t value)
{
    json_key(json, name), value == BRIG_USAGE_UNKNOWN ? json_null(json) : json_u64(json, value);
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    if (err)
        return request_fail(rq, err);
    json_object(&json);
    put_usage(&json, "cpu_ms", stats->cpu_ns == BRIG_USAGE_UNKNOWN ? stats->cpu_ns : stats->cpu_ns / 1000000);
    put_usage(&json, "memory_bytes", stats->memory_bytes);
    put_usage(&json, "memory_peak_bytes", stats->memory_peak_bytes);
    put_usage(&json, "pids", stats->pids);
    put_usage(&json, "pids_peak", stats->pids_peak);
    put_usage(&json, "disk_bytes", stats->disk_bytes);
    put_usage(&json, "disk_peak_bytes", stats->disk_peak_bytes);
    put_usage(&json, "read_bytes", stats->read_bytes);
    put_usage(&json, "written_bytes", stats->written_bytes);
    uint64_t in = 0, out_bytes = 0;
    if (rq->sbox)
        sbox_network(rq->sbox, &in, &out_bytes);
    put_usage(&json, "net_in_bytes", in);
    put_usage(&json, "net_out_bytes", out_bytes);
    put_usage(&json, "oom_kills", stats->oom_kills);
    put_usage(&json, "pids_refused", stats->pids_refused);
    if (rq->sbox) {
        put_usage(&json, "processes", sbox_processes(rq->sbox));
        put_usage(&json, "memory_limit_bytes", sbox_limits(rq->sbox)->memory);
        put_usage(&json, "disk_limit_bytes", sbox_limits(rq->sbox)->disk);
        put_usage(&json, "pids_limit", sbox_limits(rq->sbox)->pids);
    }
    json_end(&json);
    request_json(rq, 200, &json);
}

static void on_network_counted(void *ctx, struct sbox *sbox, const struct brig_err *failed UNUSED)
{
    struct request *rq = ctx;
    struct brig_err err;

    if (sbox_stats(sbox, on_stats, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_sandbox_metrics(struct request *rq)
{
    if (sbox_count_network(rq->sbox, on_network_counted, rq, NULL) <= 0)
        on_network_counted(rq, rq->sbox, NULL);
}

/* ---- prune ----------------------------------------------------------------------------------------------- */

struct pruning {
    struct request *rq;
    unsigned left, ended;
};

static void prune_done(struct pruning *pruning)
{
    AUTO_BUF struct buf out = BUF_INIT(256);
    struct json json = JSON_INIT(&out);

    if (--pruning->left > 0)
        return;
    json_object(&json);
    json_key_u64(&json, "sandboxes", pruning->ended);
    json_end(&json);
    request_json(pruning->rq, 200, &json);
    mem_free(pruning);
}

static void on_pruned(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err)
{
    struct pruning *pruning = ctx;

    pruning->ended += err == NULL;
    prune_done(pruning);
}

void route_prune(struct request *rq)
{
    struct pruning *pruning = mem_zalloc(sizeof *pruning);

    if (!pruning)
        return request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    *pruning = (struct pruning){.rq = rq, .left = 1};
    for (struct sbox *s = manager_first(rq->api->manager), *next; s; s = next) {
        next = sbox_next(s);
        bool mine = rq->caller.socket || str_eq(sbox_org(s), rq->caller.org_id);
        if (!mine || sbox_state(s) != SBOX_PAUSED)
            continue;
        pruning->left++;
        if (sbox_end(s, &rq->caller, "pruned", on_pruned, pruning, NULL) < 0)
            pruning->left--;
    }
    prune_done(pruning);
}
