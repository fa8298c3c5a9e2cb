/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_variables.c: environment variables of a sandbox configuration. Values go in, and come out only
 * by the call that reveals one (audited) or, where the administrator has switched it on ([tools] reveal_secrets), in
 * Letta's shape; otherwise `value` is "" and `value_enc` null, and `has_value` says whether there is one.
 */
#include <string.h>

#include "letta/letta.h"
#include "letta/letta_routes.h"
#include "base/str.h"
#include "records/configs.h"

#define VARIABLES_LIST_DEFAULT 1000u

struct listing {
    const struct request *rq;
    const char *config_id, *key;
};

static void put_value(const struct request *rq, struct json *json, const struct object *object)
{
    uint8_t *value = NULL;
    size_t len = 0;

    json_key(json, "value");
    if (letta_shows_values(rq) && variable_reveal(rq->api->configs, object, &value, &len, NULL) == 0) {
        json_string_n(json, value, len);
        crypto_secret_free(value, len);
    } else {
        json_string(json, "");
    }
}

static void put_variable(void *ctx, struct json *json, const struct object *object)
{
    const struct listing *listing = ctx;
    const struct json_value *doc = object->json;

    letta_put_head(json, object);
    api_put(json, "key", json_get(doc, "key"));
    put_value(listing->rq, json, object);
    api_put(json, "description", json_get(doc, "description"));
    json_key_string(json, "organization_id", object->org_id);
    json_key_null(json, "value_enc");
    api_put(json, "sandbox_config_id", json_get(doc, "config_id"));
    const struct json_value *sealed = json_get(doc, "sealed");
    json_key_bool(json, "has_value", sealed && sealed->type == JSON_OBJECT);
    json_end(json);
}

static void answer_variable(struct request *rq, const struct object *object)
{
    struct listing listing = {.rq = rq};

    letta_answer(rq, put_variable, &listing, object);
}

static void on_variable(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        answer_variable(rq, object);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

static bool wanted(void *ctx, const struct object *object)
{
    const struct listing *listing = ctx;

    return json_get_is(object->json, "config_id", listing->config_id) &&
           (!listing->key || json_get_is(object->json, "key", listing->key));
}

void route_variable_list(struct request *rq)
{
    struct listing listing = {.rq = rq, .config_id = rq->arg[0], .key = request_query(rq, "key")};
    const struct letta_list list = {.objects = configs_variables(rq->api->configs),
                                    .kind = "SandboxEnvironmentVariable",
                                    .wanted = wanted,
                                    .put = put_variable,
                                    .ctx = &listing,
                                    .limit = VARIABLES_LIST_DEFAULT};

    if (letta_find_config(rq))
        letta_list(rq, &list);
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static bool read_change(struct request *rq, bool all, struct variable_change *change)
{
    const struct json_value *key = NULL, *value = NULL, *description = NULL;

    if (!letta_only_members(rq, "key value description") || !letta_member(rq, "key", JSON_STRING, all, &key) ||
        !letta_member(rq, "value", JSON_STRING, all, &value) ||
        !letta_member(rq, "description", JSON_STRING, false, &description))
        return false;
    if ((key && memchr(key->string, '\0', key->len)) ||
        (description && memchr(description->string, '\0', description->len)))
        return letta_invalid(rq, "body", key ? "key" : "description", "value_error", "NUL is not allowed"), false;
    *change = (struct variable_change){.key = key ? key->string : NULL,
                                       .value = value ? value->string : NULL,
                                       .description = description ? description->string : NULL,
                                       .value_len = value ? value->len : 0};
    return true;
}

static void fail_change(struct request *rq, const struct brig_err *err)
{
    if (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID)
        letta_invalid(rq, "body", NULL, "value_error", "%s", err->message);
    else if (err->code == BRIG_E_CONFLICT && err->errnum == EEXIST) /* the name is taken; other conflicts say what they
                                                                       are */
        letta_refuse(
            rq, 409,
            "A unique constraint was violated for SandboxEnvironmentVariable. Check your input for duplicates: %s",
            err->message);
    else
        request_fail(rq, err);
}

static void write_variable(struct request *rq, const char *config_id, const char *id,
                           const struct variable_change *change)
{
    char user[API_AUTHOR];
    struct brig_err err = {0};
    int r = auth_may_bring(rq->api, &rq->caller, &err);

    if (r == 0)
        r = variables_put(rq->api->configs, rq->caller.org_id, letta_user(rq, user), config_id, id, change, on_variable,
                          rq, &err);
    request_wipe_body(rq); /* not needed while the store writes */
    if (r < 0)
        fail_change(rq, &err);
}

void route_variable_create(struct request *rq)
{
    struct variable_change change;

    if (letta_find_config(rq) && read_change(rq, true, &change))
        write_variable(rq, rq->arg[0], NULL, &change);
}

/* The variable that the path names; or NULL, and the refusal was sent. Letta takes any text for an id. */
static const struct object *find_variable(struct request *rq)
{
    const struct object *object = objects_find(configs_variables(rq->api->configs), rq->caller.org_id, rq->arg[0]);

    if (!object)
        letta_not_found(rq, "SandboxEnvironmentVariable", rq->arg[0]);
    return object;
}

void route_variable_update(struct request *rq)
{
    const struct object *object = find_variable(rq);
    struct variable_change change;

    if (!object || !read_change(rq, false, &change))
        return;
    const struct json_value *config = json_get(object->json, "config_id");
    write_variable(rq, config ? config->string : "", object->id, &change);
}

void route_variable_delete(struct request *rq)
{
    const struct object *object = find_variable(rq);
    struct brig_err err = {0};

    if (object &&
        objects_delete(configs_variables(rq->api->configs), rq->caller.org_id, object->id, letta_deleted, rq, &err) < 0)
        request_fail(rq, &err);
}
