/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_values.c: the values that agents and sandbox configurations hold: one secret of an agent is set or removed, and
 * an administrator has one value revealed. Each is an event in the audit log.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/agents.h"
#include "records/configs.h"

/* The agent that the path names; or NULL, and the refusal was sent. */
static const struct object *find_agent(struct request *rq)
{
    const struct object *agent = objects_find(agents_objects(rq->api->agents), rq->caller.org_id, rq->arg[0]);

    if (!agent)
        request_refuse(rq, BRIG_E_NOT_FOUND, "agent %.64s not found", rq->arg[0]);
    return agent;
}

/* ---- one secret ------------------------------------------------------------------------------------------ */

struct secret_writing { /* of its own: what the path and the body had may be gone by then */
    struct request *rq;
    bool remove;
    char agent[128], key[260];
};

/* Names and ids only: an answer never has the value that the request brought. */
static void put_secret_info(const struct object *agent, const char *key, struct json *json)
{
    const struct json_value *list = agent_secret_list(agent);

    json_object(json);
    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next)
        if (str_eq(json_get(item, "key")->string, key)) {
            api_put(json, "id", json_get(item, "id"));
            json_key_string(json, "key", key);
            api_put(json, "description", json_get(item, "description"));
            json_key_string(json, "agent_id", agent->id);
        }
    json_end(json);
}

static void on_secret(void *ctx, const struct object *agent, const struct brig_err *err)
{
    struct secret_writing *writing = ctx;
    struct request *rq = writing->rq;
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);
    char object[400];

    snprintf(object, sizeof object, "%s/%s", writing->agent, writing->key);
    request_audit(rq, writing->remove ? "variable.remove" : "variable.set", object, err ? "failed" : "ok", "");
    if (err) {
        request_fail(rq, err);
    } else if (writing->remove) {
        request_status(rq, 204);
    } else {
        put_secret_info(agent, writing->key, &json);
        request_json(rq, 200, &json);
    }
    mem_free(writing);
}

/* secret: NULL to remove it. */
static void write_secret(struct request *rq, const struct object *agent, const char *key,
                         const struct agent_secret *secret)
{
    struct secret_writing *writing = request_alloc(rq, sizeof *writing);
    char user[API_AUTHOR];
    struct brig_err err = {0};

    if (!writing)
        return;
    *writing = (struct secret_writing){.rq = rq, .remove = !secret};
    snprintf(writing->key, sizeof writing->key, "%.256s", key);
    if (str_copy(writing->agent, sizeof writing->agent, agent->id) < 0)
        err_usage(&err, "agent %.64s: its id is too long", agent->id);
    else if ((!secret || auth_may_bring(rq->api, &rq->caller, &err) == 0) &&
             agents_set_secret(rq->api->agents, rq->caller.org_id, api_author(&rq->caller, user), agent->id, key,
                               secret, on_secret, writing, &err) == 0)
        return;
    mem_free(writing);
    request_fail(rq, &err);
}

static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && strlen(value->string) == value->len;
}

void route_agent_secret_put(struct request *rq)
{
    const struct json_value *key = json_get(rq->json, "key"), *value = json_get(rq->json, "value"),
                            *description = json_get(rq->json, "description");
    const struct object *agent = find_agent(rq);

    if (!agent || !api_only_members(rq, "key value description"))
        return;
    if (description && description->type == JSON_NULL)
        description = NULL;
    if (!is_text(key) || !is_text(value) || (description && !is_text(description)))
        return request_refuse(rq, BRIG_E_USAGE,
                              "key and value must be given; they and description are text without a NUL");
    const struct agent_secret secret = {
        .value = value->string, .len = value->len, .description = description ? description->string : NULL};
    write_secret(rq, agent, key->string, &secret);
}

void route_agent_secret_delete(struct request *rq)
{
    const struct object *agent = find_agent(rq);

    if (agent)
        write_secret(rq, agent, rq->arg[1], NULL);
}

/* ---- revealing a secret ---------------------------------------------------------------------------------- */

struct revealing {
    const char *name;
    struct json *json;
    struct buf *out;
    bool found;
};

static int reveal_one(void *ctx, const char *name, const char *value, size_t len)
{
    struct revealing *revealing = ctx;

    if (revealing->found || !str_eq(name, revealing->name))
        return 0;
    if (buf_reserve(revealing->out, 6 * len + 1024) < 0)
        return -ENOMEM;
    revealing->found = true;
    json_object(revealing->json);
    json_key_string(revealing->json, "key", name);
    json_key(revealing->json, "value"), json_string_n(revealing->json, value, len);
    json_end(revealing->json);
    return 0;
}

/* Native: an event of its own in the audit log. */
void route_agent_reveal(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(8 * VARIABLE_VALUE_MAX);
    struct json json = JSON_INIT(&out);
    struct revealing revealing = {.name = rq->arg[1], .json = &json, .out = &out};
    const struct object *agent = find_agent(rq);
    struct brig_err err = {0};
    char object[256];

    if (!agent)
        return;
    int r = agent_secrets(rq->api->agents, agent, reveal_one, &revealing, &err);
    snprintf(object, sizeof object, "%s/%.100s", agent->id, rq->arg[1]);
    request_audit_sync(rq, "variable.reveal", NULL, object, revealing.found ? "ok" : "failed", "");
    if (r < 0 && !revealing.found) {
        if (!err.code)
            (void)err_set(&err, BRIG_E_HOST, -r, "the secret cannot be read");
        request_fail(rq, &err);
        return;
    }
    if (!revealing.found)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "agent %s has no secret %.100s", agent->id, rq->arg[1]);
    request_json(rq, 200, &json);
    crypto_wipe(out.data, out.len);
}

/* ---- revealing a variable of a configuration -------------------------------------------------------------- */

/* Native: an event of its own in the audit log, on its way to the disk before the value leaves. */
void route_variable_reveal(struct request *rq)
{
    const struct object *object = objects_find(configs_variables(rq->api->configs), rq->caller.org_id, rq->arg[0]);
    AUTO_BUF struct buf out = BUF_INIT(8 * VARIABLE_VALUE_MAX);
    struct json json = JSON_INIT(&out);
    struct brig_err err = {0};
    uint8_t *value = NULL;
    size_t len = 0;

    if (!object)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "variable %.64s not found", rq->arg[0]);
    int r = variable_reveal(rq->api->configs, object, &value, &len, &err);
    request_audit_sync(rq, "variable.reveal", NULL, object->id, r < 0 ? "failed" : "ok", "");
    if (r < 0)
        return request_fail(rq, &err);
    /* Room for all of it at once: growing would leave copies behind. */
    if (buf_reserve(&out, 6 * len + 1024) < 0) {
        crypto_secret_free(value, len);
        request_refuse(rq, BRIG_E_NOMEM, "out of memory");
        return;
    }
    json_object(&json);
    json_key_string(&json, "id", object->id);
    api_put(&json, "key", json_get(object->json, "key"));
    json_key(&json, "value"), json_string_n(&json, value, len);
    json_end(&json);
    crypto_secret_free(value, len);
    request_json(rq, 200, &json);
    crypto_wipe(out.data, out.len);
}
