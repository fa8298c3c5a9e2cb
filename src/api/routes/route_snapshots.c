/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_snapshots.c: snapshots of sandboxes, and what is made of the files of a sandbox: other sandboxes and templates.
 * Whoever may use a sandbox may keep it and copy it; the same rule is asked again when a snapshot is restored.
 */
#include <string.h>

#include "api/disk_answers.h"
#include "api/template_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/rules.h"
#include "template/library.h"

/* ---- answers -------------------------------------------------------------------------------------------- */

static void put_snapshot(const struct request *rq UNUSED, struct json *json, const struct object *object)
{
    const struct snapshot *snapshot = snapshot_of(object);

    json_object(json);
    json_key_string(json, "id", object->id);
    json_key(json, "name"), snapshot->name[0] ? json_string(json, snapshot->name) : json_null(json);
    json_key_string(json, "organization_id", object->org_id);
    if (snapshot->key_id[0])
        json_key_string(json, "key_id", snapshot->key_id);
    json_key_string(json, "sandbox_id", snapshot->sandbox_id);
    if (snapshot->sandbox_name[0])
        json_key_string(json, "sandbox_name", snapshot->sandbox_name);
    json_key_string(json, "template", json_get_text(snapshot->spec, "template", ""));
    json_key_u64(json, "size", snapshot->size);
    disk_look_put(json, &snapshot->look);
    api_put_time(json, "created_at", object->created_at_ns);
    json_end(json);
}

static const struct object *find(const struct api *api, const char *org_id, const char *name)
{
    return snapshots_find(api->snapshots, org_id, name);
}

static const struct object *first(const struct api *api, const char *org_id)
{
    return objects_first(snapshots_objects(api->snapshots), org_id);
}

static const struct disk_kind snapshots = {"snapshot", "snapshots", find, first, put_snapshot};

void route_snapshot_list(struct request *rq)
{
    disk_list(rq, &snapshots);
}

void route_snapshot_get(struct request *rq)
{
    disk_get(rq, &snapshots);
}

/* ---- members of bodies ---------------------------------------------------------------------------------- */

/* A name that may be missing: "" then. */
static bool read_name(struct request *rq, char *out, size_t size)
{
    const struct json_value *v = json_get(rq->json, "name");

    out[0] = '\0';
    return !v || v->type == JSON_NULL || api_name(rq, v, out, size);
}

/* "volumes": false means none of them. */
static bool read_volumes(struct request *rq, bool *ret_none)
{
    bool volumes = true;

    if (!api_bool(rq, "volumes", &volumes))
        return false;
    *ret_none = !volumes;
    return true;
}

/* Services are programs: whoever may bring none of their own gets no sandbox that starts some, as at a create. */
static bool may_have(struct request *rq, bool services)
{
    struct brig_err err;

    if (!services || auth_tool_allowed(rq->api, &rq->caller, TOOL_UNREGISTERED, &err) == 0)
        return true;
    return request_fail(rq, &err), false;
}

/* ---- snapshots ------------------------------------------------------------------------------------------ */

static void on_taken(void *ctx, const struct object *object, const struct brig_err *err)
{
    disk_made(ctx, &snapshots, object, err);
}

void route_sandbox_snapshot(struct request *rq)
{
    char name[DISK_LABEL_SIZE + 64];
    struct brig_err err;

    if (request_draining(rq) || !api_only_members(rq, "name") || !read_name(rq, name, sizeof name))
        return;
    if (sbox_snapshot(rq->sbox, &rq->caller, name, on_taken, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_snapshot_delete(struct request *rq)
{
    const struct object *object = disk_find(rq, &snapshots);
    struct brig_err err;

    if (object && snapshot_remove(rq->api->manager, &rq->caller, object, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}

static void on_restored(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (err) {
        request_fail(rq, err);
        return;
    }
    sbox_json(sbox, &json);
    request_json(rq, 201, &json);
}

/* The same key means the same request of the same snapshot. */
static int fingerprint(const struct request *rq, const struct object *object, uint8_t out[SHA256_SIZE])
{
    AUTO_BUF struct buf text = BUF_INIT(API_ANSWER_MAX);
    int r = buf_printf(&text, "restore %s\n", object->id);

    r = r < 0 ? r : buf_append(&text, rq->body ? rq->body : "", rq->body_len);
    return r < 0 ? r : crypto_sha256(text.data, text.len, out);
}

void route_snapshot_restore(struct request *rq)
{
    const char *key = http_field(exchange_head(rq->x), "Idempotency-Key");
    uint8_t sum[SHA256_SIZE];
    char name[128];
    struct disk_copy_want want = {.idempotency_key = key, .fingerprint = sum};
    struct brig_err err;

    if (request_draining(rq) || !api_only_members(rq, "name replace volumes") || !read_name(rq, name, sizeof name) ||
        !api_bool(rq, "replace", &want.replace) || !read_volumes(rq, &want.no_volumes))
        return;
    const struct object *object = disk_find(rq, &snapshots);
    if (!object || !may_have(rq, json_get(snapshot_of(object)->spec, "services")))
        return;
    want.name = name[0] ? name : NULL;
    if (fingerprint(rq, object, sum) < 0)
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    else if (snapshot_restore(rq->api->manager, &rq->caller, object, &want, on_restored, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- forks ---------------------------------------------------------------------------------------------- */

static void on_forked(void *ctx, struct sbox *const *forks, size_t n, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (err) {
        request_fail(rq, err);
        return;
    }
    json_object(&json);
    json_key_array(&json, "sandboxes");
    for (size_t i = 0; i < n; i++)
        sbox_json(forks[i], &json);
    json_end(&json);
    json_key_string(&json, "processes", "not copied");
    json_end(&json);
    request_json(rq, 201, &json);
}

void route_sandbox_fork(struct request *rq)
{
    const struct json_value *count = json_get(rq->json, "count");
    char name[128];
    struct disk_copy_want want = {.count = 1};
    struct brig_err err;

    if (request_draining(rq) || !api_only_members(rq, "count name volumes") || !read_name(rq, name, sizeof name) ||
        !read_volumes(rq, &want.no_volumes))
        return;
    if (count && (count->type != JSON_NUMBER || !count->integer || count->i64 < 1 || count->i64 > FORKS_MAX)) {
        request_refuse(rq, BRIG_E_USAGE, "count: must be a number from 1 to %u", FORKS_MAX);
        return;
    }
    want.name = name[0] ? name : NULL;
    want.count = count ? (unsigned)count->i64 : 1;
    if (!may_have(rq, sbox_spec(rq->sbox)->services))
        return;
    if (sbox_fork(rq->sbox, &rq->caller, &want, on_forked, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- templates ------------------------------------------------------------------------------------------ */

static void on_committed(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (err) {
        request_fail(rq, err);
        return;
    }
    template_answer_put(rq, &json, object);
    request_json(rq, 201, &json);
}

void route_sandbox_commit(struct request *rq)
{
    char name[TEMPLATE_NAME_MAX + 64];
    bool replace = false;
    struct brig_err err;

    if (request_draining(rq) || !api_only_members(rq, "name replace") ||
        !api_name(rq, json_get(rq->json, "name"), name, sizeof name) || !api_bool(rq, "replace", &replace))
        return;
    if (library_may_load(rq->api->library, &rq->caller, &err) < 0 ||
        sbox_commit(rq->sbox, &rq->caller, name, replace, on_committed, rq, &err) < 0)
        request_fail(rq, &err);
}
