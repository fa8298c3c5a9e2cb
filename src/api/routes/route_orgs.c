/* SPDX-License-Identifier: Apache-2.0 */
/* route_orgs.c: organisations: made, listed and deleted by the socket's administrator. */

#include "api/api.h"
#include "base/str.h"
#include "records/images/registries.h"
#include "records/images/build_steps.h"
#include "sandbox/sbox_disks.h"
#include "template/library.h"

static void org_json(struct json *json, const struct object *org)
{
    json_object(json);
    json_key_string(json, "id", org->id);
    json_key_string(json, "name", org_of(org)->name);
    api_put_time(json, "created_at", org->created_at_ns);
    json_end(json);
}

static void on_org_stored(void *ctx, const struct object *org, const struct brig_err *failed)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    if (failed)
        return request_fail(rq, failed);
    request_audit(rq, "org.create", org->id, "ok", org_of(org)->name);
    org_json(&json, org);
    request_json(rq, 201, &json);
}

void route_org_create(struct request *rq)
{
    char name[sizeof((struct org *)0)->name];
    struct brig_err err;

    if (api_only_members(rq, "name") && api_name(rq, json_get(rq->json, "name"), name, sizeof name) &&
        org_create(rq->api->accounts, name, on_org_stored, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_org_list(struct request *rq)
{
    request_list_objects(rq, "orgs", org_first(rq->api->accounts), org_json);
}

static void cut_keys(struct request *rq, const char *org)
{
    for (const struct object *key = key_first(rq->api->accounts, org); key; key = key->next)
        server_cut(rq->api->server, key->id, rq->x);
}

static void on_org_deleted(void *ctx, const struct object *org, const struct brig_err *failed)
{
    struct request *rq = ctx;

    if (failed)
        return request_fail(rq, failed);
    request_audit(rq, "org.delete", org->id, "ok", org_of(org)->name);
    objects_forget_org(secrets_objects(rq->api->secrets), org->id);
    objects_forget_org(policies_objects(rq->api->policies), org->id);
    objects_forget_org(templates_objects(rq->api->templates), org->id);
    objects_forget_org(build_steps_objects(rq->api->build_steps), org->id);
    library_collect(rq->api->library);
    objects_forget_org(volumes_objects(rq->api->volumes), org->id);
    objects_forget_org(snapshots_objects(rq->api->snapshots), org->id);
    disks_collect(rq->api->manager);
    objects_forget_org(registries_objects(rq->api->registries), org->id);
    api_tools_forget_org(rq->api, org->id);
    cut_keys(rq, org->id); /* one that was on its way when the deletion began */
    org_forget(rq->api->accounts, org->id);
    request_status(rq, 204);
}

/* Its keys die with it; sandboxes must be gone before. */
void route_org_delete(struct request *rq)
{
    const struct object *org = org_find(rq->api->accounts, rq->arg[0]);
    struct brig_err err;

    if (!org)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "organisation %.64s not found", rq->arg[0]);
    if (str_eq(org->id, ACCOUNTS_DEFAULT_ORG))
        return request_refuse(rq, BRIG_E_CONFLICT, "the first organisation stays");
    for (const struct sbox *s = manager_first(rq->api->manager); s; s = sbox_next(s))
        if (str_eq(sbox_org(s), org->id))
            return request_refuse(rq, BRIG_E_CONFLICT, "organisation %s has sandboxes; delete them first", org->id);
    if (org_delete(rq->api->accounts, org->id, on_org_deleted, rq, &err) < 0)
        request_fail(rq, &err);
    else
        cut_keys(rq, org->id);
}
