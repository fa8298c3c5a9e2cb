/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_answers.c: shows volumes and snapshots. An answer says what the provider's disks have at this moment, so it asks
 * for that first; without an answer of the provider, what is known of the disks is shown.
 */
#include "api/disk_answers.h"

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

const struct object *disk_find(struct request *rq, const struct disk_kind *kind)
{
    const struct object *object = kind->find(rq->api, rq->caller.org_id, rq->arg[0]);

    if (!object)
        request_refuse(rq, BRIG_E_NOT_FOUND, "%s %.64s not found", kind->word, rq->arg[0]);
    return object;
}

static void answer(struct request *rq, const struct disk_kind *kind, unsigned status, const struct object *object)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    kind->put(rq, &json, object);
    request_json(rq, status, &json);
}

/* Goes on with then(rq, ...), whether the disks could be seen or not; rq->state is the kind. */
static void look_then(struct request *rq, const struct disk_kind *kind, disks_seen_fn *then)
{
    rq->state = (void *)(uintptr_t)kind;
    if (disks_look(rq->api->manager, then, rq, NULL) < 0)
        then(rq, NULL);
}

static void list_seen(void *ctx, const struct disk_space *space UNUSED)
{
    struct request *rq = ctx;
    const struct disk_kind *kind = rq->state;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, kind->member);
    for (const struct object *o = kind->first(rq->api, rq->caller.org_id); o; o = o->next)
        kind->put(rq, &json, o);
    request_list_end(rq, &json);
}

void disk_list(struct request *rq, const struct disk_kind *kind)
{
    look_then(rq, kind, list_seen);
}

static void get_seen(void *ctx, const struct disk_space *space UNUSED)
{
    struct request *rq = ctx;
    const struct disk_kind *kind = rq->state;
    const struct object *object = disk_find(rq, kind); /* It may have been removed meanwhile. */

    if (object)
        answer(rq, kind, 200, object);
}

void disk_get(struct request *rq, const struct disk_kind *kind)
{
    if (disk_find(rq, kind))
        look_then(rq, kind, get_seen);
}

void disk_made(struct request *rq, const struct disk_kind *kind, const struct object *object,
               const struct brig_err *err)
{
    if (err)
        request_fail(rq, err);
    else
        answer(rq, kind, 201, object);
}
