/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_configs.c: sandbox configurations. One per organisation and type. What differs from Letta
 * on purpose: an explicit `type` inside the configuration is taken, GET by id is there, PATCH merges, and an empty
 * PATCH is refused instead of failing.
 */

#include "letta/letta.h"
#include "letta/letta_routes.h"
#include "base/str.h"
#include "deps/config_set.h"
#include "records/configs.h"

#define CONFIGS_LIST_DEFAULT 1000u

static void put_config(void *ctx UNUSED, struct json *json, const struct object *object)
{
    const struct json_value *doc = object->json, *config = json_get(doc, "config"), *type = json_get(doc, "type");
    char fingerprint[FINGERPRINT_MAX];

    letta_put_head(json, object);
    api_put(json, "type", type);
    json_key_string(json, "organization_id", object->org_id);
    api_put(json, "config", config);
    if (type && config && config_fingerprint(type->string, object->org_id, config, fingerprint) == 0)
        json_key_string(json, "fingerprint", fingerprint);
    json_end(json);
}

static void answer_config(struct request *rq, const struct object *object)
{
    letta_answer(rq, put_config, NULL, object);
}

/* What is wrong with a field is Letta's validation error. */
static void fail_config(struct request *rq, const struct brig_err *err)
{
    if (err->code == BRIG_E_USAGE && str_starts(err->message, "Mismatched type"))
        letta_refuse(rq, 400, "%s", err->message); /* a ValueError there */
    else if (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID)
        letta_invalid(rq, "body", "config", "value_error", "%s", err->message);
    else
        request_fail(rq, err);
}

static void on_config(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        fail_config(rq, err);
    else
        answer_config(rq, object);
}

/*
 * Directories are the administrator's and every organisation's: whoever writes through to one puts code first on the
 * module path of the others. So that is the administrator's to give, and a configuration that has it stays where it is.
 */
static bool may_write_through(struct request *rq, const struct json_value *config)
{
    const struct object *old = configs_by_type(rq->api->configs, rq->caller.org_id, "local");
    const struct json_value *was = old ? json_get(old->json, "config") : NULL, *was_dir = json_get(was, "sandbox_dir");
    const struct json_value *persist = json_get(config, "persist"), *dir = json_get(config, "sandbox_dir");
    bool asks = persist && persist->type != JSON_NULL && !(persist->type == JSON_BOOL && !persist->boolean);
    bool moves =
        json_get(was, "persist") && dir &&
        !(dir->type == JSON_STRING && was_dir && was_dir->type == JSON_STRING && str_eq(dir->string, was_dir->string));

    if (rq->caller.socket || (!asks && !moves))
        return true;
    letta_refuse(rq, 403,
                 "config.%s: only the administrator on the unix socket may have runs write to a directory of the host",
                 asks ? "persist" : "sandbox_dir");
    return false;
}

static void put_by(struct request *rq, const char *id, const char *type, const struct json_value *config,
                   bool default_only)
{
    char user[API_AUTHOR];
    struct brig_err err = {0};

    if (!may_write_through(rq, config))
        return;
    /* Packages and directories are source that is brought along. */
    if (!default_only && auth_may_bring(rq->api, &rq->caller, &err) < 0)
        return request_fail(rq, &err);
    if (configs_put(rq->api->configs, rq->caller.org_id, letta_user(rq, user), caller_standing(&rq->caller), id, type,
                    config, default_only, on_config, rq, &err) < 0)
        fail_config(rq, &err);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static bool of_type(void *ctx, const struct object *object)
{
    return json_get_is(object->json, "type", ctx);
}

void route_config_list(struct request *rq)
{
    const char *type = request_query(rq, "sandbox_type");
    const struct letta_list list = {.objects = configs_objects(rq->api->configs),
                                    .kind = "SandboxConfig",
                                    .wanted = type ? of_type : NULL,
                                    .put = put_config,
                                    .ctx = (void *)(uintptr_t)type,
                                    .limit = CONFIGS_LIST_DEFAULT};

    if (type && !config_type_ok(type))
        letta_invalid(rq, "query", "sandbox_type", "enum",
                      "Input should be 'e2b', 'modal', 'local' or another provider's name");
    else
        letta_list(rq, &list);
}

const struct object *letta_find_config(struct request *rq)
{
    return letta_find(rq, configs_objects(rq->api->configs), "sandbox", "sandbox_config_id", "SandboxConfig");
}

void route_config_one(struct request *rq)
{
    const struct object *object = letta_find_config(rq);

    if (object)
        answer_config(rq, object);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static bool read_config(struct request *rq, const struct json_value **ret)
{

    return letta_only_members(rq, "config") && letta_member(rq, "config", JSON_OBJECT, true, ret);
}

void route_config_create(struct request *rq)
{
    const struct json_value *config = NULL;
    char type[CONFIG_TYPE_MAX];
    struct brig_err err = {0};

    if (!read_config(rq, &config))
        return;
    if (config_resolve(config, type, &err) < 0)
        fail_config(rq, &err);
    else
        put_by(rq, NULL, type, config, false);
}

static const struct json_value none = {.type = JSON_OBJECT, .raw = "{}", .raw_len = 2};

void route_config_local_default(struct request *rq)
{
    put_by(rq, NULL, "local", &none, true);
}

void route_config_e2b_default(struct request *rq)
{
    put_by(rq, NULL, "e2b", &none, true);
}

/* The bare object, not wrapped. */
void route_config_local(struct request *rq)
{
    const struct json_value *type = json_get(rq->json, "type");

    if (type && (type->type != JSON_STRING || !str_eq(type->string, "local")))
        letta_refuse(rq, 400, "Provided config must be of type 'local'.");
    else
        put_by(rq, NULL, "local", rq->json, false);
}

void route_config_update(struct request *rq)
{
    const struct object *object = letta_find_config(rq);
    const struct json_value *config = NULL;

    if (object && read_config(rq, &config))
        put_by(rq, object->id, NULL, config, false);
}

void route_config_delete(struct request *rq)
{
    const struct object *object = letta_find_config(rq);
    struct brig_err err = {0};

    if (object && configs_delete(rq->api->configs, rq->caller.org_id, object->id, letta_deleted, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- recreate-venv --------------------------------------------------------------------------------------- */

static void on_rebuilt(void *ctx, const struct set *set, const struct brig_err *err)
{
    struct request *rq = ctx;
    const struct object *object = configs_by_type(rq->api->configs, rq->caller.org_id, "local");

    const char *all = err && rq->state ? set_build_error(rq->state) : NULL;

    if (set)
        set_release(rq->api->sets, set);
    if (err)
        letta_refuse(rq, 400, "%s", all && all[0] ? all : err->message);
    else if (object)
        answer_config(rq, object);
    else
        letta_not_found(rq, "SandboxConfig", "local");
}

/* Builds the set of the configuration again; the answer is the configuration, when it is there. */
static void rebuild(struct request *rq, const struct object *object)
{
    struct set_build *build = NULL;
    struct brig_err err = {0};
    int r = config_set_rebuild(rq->api->sets, config_get(rq->api->config), &rq->caller,
                               json_get(object->json, "config"), on_rebuilt, rq, &build, &err);

    if (r < 0)
        request_fail(rq, &err);
    else if (r == 0)
        answer_config(rq, object);
    else
        rq->state = build;
}

static void on_local(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        rebuild(rq, object);
}

void route_config_recreate(struct request *rq)
{
    char user[API_AUTHOR];
    struct brig_err err = {0};

    if (configs_put(rq->api->configs, rq->caller.org_id, letta_user(rq, user), caller_standing(&rq->caller), NULL,
                    "local", &none, true, on_local, rq, &err) < 0)
        request_fail(rq, &err);
}
