/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agents.c: agents as tools see them: a name, a project, tools by id, a state, and secrets, which are sealed in the
 * document as variables are. What a full agent of Letta has besides is kept under `other` and means nothing
 * here. Writing is in agent_put.c.
 */
#include "records/agents.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/agents_priv.h"
#include "records/rotate.h"

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

/* ---- the kind ----------------------------------------------------------------------------------------- */

static int check_tools(const struct json_value *tools, struct brig_err *err)
{
    if (!tools)
        return 0;
    if (tools->type != JSON_ARRAY || tools->count > AGENT_TOOLS_MAX)
        return invalid(err, "tools: must be a list of at most %u ids", AGENT_TOOLS_MAX);
    for (const struct json_value *item = tools->first; item; item = item->next)
        if (item->type != JSON_STRING || strlen(item->string) != item->len || !objects_id_ok("tool", item->string))
            return invalid(err, "tools: each is an id, tool-<uuid4>");
    return 0;
}

static int check_secrets(const struct json_value *secrets, struct brig_err *err)
{
    if (!secrets)
        return 0;
    if (secrets->type != JSON_ARRAY || secrets->count > AGENT_SECRETS_MAX)
        return invalid(err, "secrets: at most %u", AGENT_SECRETS_MAX);
    for (const struct json_value *item = secrets->first; item; item = item->next) {
        const char *key = json_get_text(item, "key", NULL);
        if (!key || !variable_name_ok(key) || !json_get_text(item, "id", NULL) ||
            !sealed_value_ok(json_get(item, "sealed")))
            return invalid(err, "secrets: each needs `id`, `key` and `sealed`");
    }
    return 0;
}

static int on_loaded(void *ctx UNUSED, struct object *object, struct brig_err *err)
{
    const struct json_value *state = agent_state(object), *other = json_get(object->json, "other");
    int r = check_tools(agent_tools(object), err);

    if (r == 0)
        r = check_secrets(agent_secret_list(object), err);
    if (r == 0 && state)
        r = agent_state_check(state, err);
    if (r == 0 && other && other->type != JSON_OBJECT)
        r = invalid(err, "other: must be an object");
    return r;
}

int agents_create(struct store *store, const struct keyring *ring, bool plain, struct agents **ret,
                  struct brig_err *err)
{
    static const struct objects_kind kind = {
        .kind = "agent", .per_org = AGENTS_PER_ORG, .secret = true, .loaded = on_loaded};
    struct agents *agents = mem_zalloc(sizeof *agents);

    if (!agents)
        return err_nomem(err);
    agents->sealer = (struct sealer){.ring = ring, .plain = plain, .legacy_key = ""};
    int r = objects_create(store, &kind, &agents->objects, err);
    if (r < 0) {
        mem_free(agents);
        return r;
    }
    *ret = agents;
    return 0;
}

void agents_destroy(struct agents *agents)
{
    if (!agents)
        return;
    objects_destroy(agents->objects);
    crypto_secret_free(agents->legacy_key, agents->legacy_len);
    mem_free(agents);
}

int agents_set_legacy_key(struct agents *agents, const char *key)
{
    size_t len = strlen(key);
    char *copy = crypto_secret_alloc(len + 1);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, key, len);
    crypto_secret_free(agents->legacy_key, agents->legacy_len);
    agents->legacy_key = copy;
    agents->legacy_len = len + 1;
    agents->sealer.legacy_key = copy;
    return 0;
}

struct objects *agents_objects(struct agents *agents)
{
    return agents->objects;
}

/* ---- looking ------------------------------------------------------------------------------------------ */

static const struct json_value *member(const struct object *agent, const char *name)
{
    const struct json_value *value = json_get(agent->json, name);

    return value && value->type != JSON_NULL ? value : NULL;
}

const struct json_value *agent_state(const struct object *agent)
{
    return member(agent, "state");
}

const struct json_value *agent_tools(const struct object *agent)
{
    return member(agent, "tools");
}

const struct json_value *agent_secret_list(const struct object *agent)
{
    return member(agent, "secrets");
}

const char *agent_project(const struct object *agent)
{
    return json_get_text(agent->json, "project_id", NULL);
}

const char *agent_name(const struct object *agent)
{
    return json_get_text(agent->json, "name", NULL);
}

bool agent_has_tool(const struct object *agent, const char *tool_id)
{
    const struct json_value *tools = agent_tools(agent);

    for (const struct json_value *item = tools ? tools->first : NULL; item; item = item->next)
        if (str_eq(item->string, tool_id))
            return true;
    return false;
}

static int open_secret(const struct agents *agents, const struct object *agent, const struct json_value *item,
                       uint8_t **ret, size_t *ret_len, struct brig_err *err)
{
    const char *key = json_get_text(item, "key", NULL);
    char context[SEALED_CONTEXT], what[300];

    if (sealed_context(agent->org_id, agent->id, key, context) < 0 ||
        str_format(what, sizeof what, "secret %s of the agent", key) < 0)
        return err_usage(err, "secrets: a name is too long");
    return sealed_value_open(&agents->sealer, context, json_get(item, "sealed"), what, ret, ret_len, err);
}

int agent_secrets(const struct agents *agents, const struct object *agent,
                  int (*each)(void *ctx, const char *name, const char *value, size_t len), void *ctx,
                  struct brig_err *err)
{
    const struct json_value *list = agent_secret_list(agent);

    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next) {
        uint8_t *value = NULL;
        size_t len = 0;
        int r = open_secret(agents, agent, item, &value, &len, err);
        if (r == 0) {
            r = each(ctx, json_get_text(item, "key", NULL), (const char *)value, len); /* a zero byte follows */
            crypto_secret_free(value, len);
        }
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- rotation ----------------------------------------------------------------------------------------- */

static bool agent_stale(void *ctx, const struct object *agent)
{
    const struct agents *agents = ctx;
    const struct json_value *list = agent_secret_list(agent);

    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next)
        if (sealed_value_stale(&agents->sealer, json_get(item, "sealed")))
            return true;
    return false;
}

static int reseal_secret(const struct agents *agents, const struct object *agent, const struct json_value *item,
                         struct json *json, struct brig_err *err)
{
    const char *key = json_get_text(item, "key", NULL);
    char context[SEALED_CONTEXT], what[400];
    int r = 0;

    if (sealed_context(agent->org_id, agent->id, key, context) < 0 ||
        str_format(what, sizeof what, "secret %s of %s", key, agent->id) < 0)
        return err_usage(err, "secrets: a name is too long");
    json_object(json);
    for (const struct json_value *part = item->first; part && r == 0; part = part->next) {
        json_key(json, part->key);
        if (str_eq(part->key, "sealed"))
            r = sealed_value_renew(&agents->sealer, context, part, what, true, json, err);
        else
            json_raw(json, part->raw, part->raw_len);
    }
    json_end(json);
    return r;
}

/* The document with everything but its seals as it was; for rotation. 1: nothing is stale. */
static MUST_CHECK int agent_reseal(void *ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct agents *agents = ctx;
    struct json json = JSON_INIT(doc);
    int r = 0;

    if (!agent_stale(ctx, current))
        return 1;
    json_object(&json);
    for (const struct json_value *part = current->json->first; part && r == 0; part = part->next) {
        json_key(&json, part->key);
        if (!str_eq(part->key, "secrets")) {
            json_raw(&json, part->raw, part->raw_len);
            continue;
        }
        json_array(&json);
        for (const struct json_value *item = part->first; item && r == 0; item = item->next)
            r = reseal_secret(agents, current, item, &json, err);
        json_end(&json);
    }
    if (r < 0)
        return r;
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "agent: write it down") : 0;
}

int agents_rotate(struct agents *agents, void (*done)(void *ctx, uint64_t resealed, const struct brig_err *err),
                  void *ctx, struct brig_err *err)
{
    const struct rotate_kind kind = {.stale = agent_stale, .make = agent_reseal, .ctx = agents};
    int r = sealer_check(&agents->sealer, err);

    return r < 0 ? r : rotate_objects(agents->objects, &kind, done, ctx, err);
}
