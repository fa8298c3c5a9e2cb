/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_registries.c: the logins of an organisation at image registries, for administrators. A password goes in and
 * never comes out.
 */
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "codec/docker_login.h"
#include "records/images/registries.h"

static void put_registry(struct json *json, const struct object *object)
{
    json_object(json);
    json_key_string(json, "host", object->id);
    json_key_string(json, "user", registry_user(object));
    api_put_time(json, "created_at", object->created_at_ns);
    api_put_time(json, "updated_at", object->updated_at_ns);
    json_end(json);
}

void route_registry_list(struct request *rq)
{
    request_list_objects(rq, "registries", objects_first(registries_objects(rq->api->registries), rq->caller.org_id),
                         put_registry);
}

void route_registry_get(struct request *rq)
{
    const struct object *object =
        objects_find(registries_objects(rq->api->registries), rq->caller.org_id, docker_login_host(rq->arg[0]));
    AUTO_BUF struct buf out = BUF_INIT(16384);
    struct json json = JSON_INIT(&out);

    if (!object) {
        request_refuse(rq, BRIG_E_NOT_FOUND, "registry %.128s: there is no login", rq->arg[0]);
        return;
    }
    put_registry(&json, object);
    request_json(rq, 200, &json);
}

static void on_put(void *ctx, const struct object *object, const struct brig_err *failed)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(16384);
    struct json json = JSON_INIT(&out);

    if (failed) {
        request_fail(rq, failed);
        return;
    }
    if (!object) {
        request_refuse(rq, BRIG_E_CONFLICT, "the login was deleted meanwhile");
        return;
    }
    request_audit_sync(rq, "registry.login", NULL, object->id, "ok", registry_user(object));
    put_registry(&json, object);
    request_json(rq, 200, &json);
}

void route_registry_put(struct request *rq)
{
    struct brig_err err;

    if (!api_only_members(rq, "user password"))
        return;
    const struct json_value *user = json_get(rq->json, "user"), *password = json_get(rq->json, "password");
    int r = !user || user->type != JSON_STRING || strlen(user->string) != user->len || !password ||
                    password->type != JSON_STRING || strlen(password->string) != password->len
                ? err_usage(&err, "user, password: both are needed, as text")
                : registries_put(rq->api->registries, rq->caller.org_id, rq->arg[0], user->string, password->string,
                                 on_put, rq, &err);
    request_wipe_body(rq);
    if (r < 0)
        request_fail(rq, &err);
}

static void on_deleted(void *ctx, const struct object *was, const struct brig_err *failed)
{
    struct request *rq = ctx;

    if (failed) {
        request_fail(rq, failed);
        return;
    }
    request_audit_sync(rq, "registry.logout", NULL, was->id, "ok", "");
    request_status(rq, 204);
}

void route_registry_delete(struct request *rq)
{
    struct brig_err err;

    if (registries_delete(rq->api->registries, rq->caller.org_id, rq->arg[0], on_deleted, rq, &err) < 0)
        request_fail(rq, &err);
}
