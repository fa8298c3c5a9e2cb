/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_volumes.c: the volumes of an organisation. Every key of the organisation sees them, every key that writes makes
 * and removes them. An answer says what the provider's disks have at this moment, so it asks for that first.
 */
#include <string.h>

#include "api/disk_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/spec.h"

/* ---- answers -------------------------------------------------------------------------------------------- */

void disk_look_put(struct json *json, const struct disk_look *look)
{
    json_key_string(json, "state", look->lost ? "lost" : "ready");
    json_key(json, "used_bytes"), look->known ? json_u64(json, look->used) : json_null(json);
    json_key(json, "own_bytes");
    if (look->known && look->own != BRIG_USAGE_UNKNOWN)
        json_u64(json, look->own);
    else
        json_null(json);
}

static void put_user(void *ctx, const struct sbox *sbox, bool read_only)
{
    struct json *json = ctx;

    json_object(json);
    json_key_string(json, "sandbox_id", sbox_id(sbox));
    json_key_bool(json, "read_only", read_only);
    json_end(json);
}

static void put_volume(const struct request *rq, struct json *json, const struct object *object)
{
    const struct volume *volume = volume_of(object);

    json_object(json);
    json_key_string(json, "id", object->id);
    json_key_string(json, "name", volume->name);
    json_key_string(json, "organization_id", object->org_id);
    if (volume->key_id[0])
        json_key_string(json, "key_id", volume->key_id);
    json_key_u64(json, "size", volume->size);
    json_key_u64(json, "inodes", volume->inodes);
    disk_look_put(json, &volume->look);
    json_key_array(json, "attached");
    volume_users(rq->api->manager, object, put_user, json);
    json_end(json);
    api_put_time(json, "created_at", object->created_at_ns);
    json_end(json);
}

static void answer(struct request *rq, unsigned status, const struct object *object)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    put_volume(rq, &json, object);
    request_json(rq, status, &json);
}

/* The volume that the path names; NULL: the refusal was sent. */
static const struct object *find(struct request *rq)
{
    const struct object *object = volumes_find(rq->api->volumes, rq->caller.org_id, rq->arg[0]);

    if (!object)
        request_refuse(rq, BRIG_E_NOT_FOUND, "volume %.64s not found", rq->arg[0]);
    return object;
}

/* ---- reading -------------------------------------------------------------------------------------------- */

/* Without an answer of the provider, what is known of the disks is shown. */
void disks_look_then(struct request *rq, disks_seen_fn *then)
{
    if (disks_look(rq->api->manager, then, rq, NULL) < 0)
        then(rq, NULL);
}

static void list_seen(void *ctx, const struct disk_space *space UNUSED)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, "volumes");
    for (const struct object *o = objects_first(volumes_objects(rq->api->volumes), rq->caller.org_id); o; o = o->next)
        put_volume(rq, &json, o);
    request_list_end(rq, &json);
}

void route_volume_list(struct request *rq)
{
    disks_look_then(rq, list_seen);
}

static void get_seen(void *ctx, const struct disk_space *space UNUSED)
{
    struct request *rq = ctx;
    const struct object *object = find(rq);

    if (object)
        answer(rq, 200, object);
}

void route_volume_get(struct request *rq)
{
    if (find(rq))
        disks_look_then(rq, get_seen);
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static void on_made(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        answer(rq, 201, object);
}

static bool read_inodes(struct request *rq, uint64_t *ret)
{
    const struct json_value *v = json_get(rq->json, "inodes");

    if (v && (v->type != JSON_NUMBER || !v->integer || v->i64 < 64 || v->i64 > INT32_MAX)) {
        request_refuse(rq, BRIG_E_USAGE, "inodes: must be a number from 64 to %d", INT32_MAX);
        return false;
    }
    *ret = v ? (uint64_t)v->i64 : 0;
    return true;
}

void route_volume_create(struct request *rq)
{
    const struct json_value *size = json_get(rq->json, "size");
    char name[DISK_LABEL_SIZE + 64];
    uint64_t bytes = 0, inodes = 0;
    struct brig_err err;

    if (rq->api->draining) {
        request_refuse(rq, BRIG_E_BUSY, "the service is shutting down");
        return;
    }
    if (!api_only_members(rq, "name size inodes") || !api_name(rq, json_get(rq->json, "name"), name, sizeof name) ||
        !read_inodes(rq, &inodes))
        return;
    if (!size) {
        request_refuse(rq, BRIG_E_USAGE, "size: is needed, such as 1073741824 or \"1g\"");
        return;
    }
    if (spec_size(size, "size", &bytes, &err) < 0 ||
        volume_make(rq->api->manager, &rq->caller, name, bytes, inodes, on_made, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_volume_delete(struct request *rq)
{
    const struct object *object = find(rq);
    struct brig_err err;

    if (object && volume_remove(rq->api->manager, &rq->caller, object, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}
