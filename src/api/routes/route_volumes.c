/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_volumes.c: the volumes of an organisation. Every key of the organisation sees them, every key that writes makes
 * and removes them.
 */
#include <string.h>

#include "api/disk_answers.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/spec.h"

/* ---- answers -------------------------------------------------------------------------------------------- */

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

static const struct object *find(const struct api *api, const char *org_id, const char *name)
{
    return volumes_find(api->volumes, org_id, name);
}

static const struct object *first(const struct api *api, const char *org_id)
{
    return objects_first(volumes_objects(api->volumes), org_id);
}

static const struct disk_kind volumes = {"volume", "volumes", find, first, put_volume};

void route_volume_list(struct request *rq)
{
    disk_list(rq, &volumes);
}

void route_volume_get(struct request *rq)
{
    disk_get(rq, &volumes);
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static void on_made(void *ctx, const struct object *object, const struct brig_err *err)
{
    disk_made(ctx, &volumes, object, err);
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

    if (request_draining(rq) || !api_only_members(rq, "name size inodes") ||
        !api_name(rq, json_get(rq->json, "name"), name, sizeof name) || !read_inodes(rq, &inodes))
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
    const struct object *object = disk_find(rq, &volumes);
    struct brig_err err;

    if (object && volume_remove(rq->api->manager, &rq->caller, object, request_done, rq, &err) < 0)
        request_fail(rq, &err);
}
