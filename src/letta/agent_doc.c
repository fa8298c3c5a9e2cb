/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_doc.c: see agent_doc.h. Only four things of an agent mean something here: its name and project, its tools, its
 * state and its secrets. Everything else that a full agent has is kept and given back as it came.
 */
#include "letta/agent_doc.h"

#include <string.h>

#include "letta/tool_doc.h"
#include "base/str.h"

/* ---- what comes in --------------------------------------------------------------------------------------- */

static bool special(const struct json_value *member)
{
    static const char words[] =
        "id name project_id tools tool_ids state memory memory_blocks blocks secrets "
        "tool_exec_environment_variables organization_id created_at updated_at created_by_id last_updated_by_id";

    return str_has_word(words, member->key, member->key_len);
}

/* One tool by id or by name (or an object with an id, as answers have them). false: the refusal was sent. */
static bool put_tool(struct request *rq, const struct json_value *item, struct json *json)
{
    const struct json_value *name = item->type == JSON_OBJECT ? json_get(item, "id") : item;
    const char *text = name && name->type == JSON_STRING ? name->string : "";
    const struct object *tool = objects_find(rq->api->registry, rq->caller.org_id, text);

    if (!tool)
        tool = objects_by_key(rq->api->registry, rq->caller.org_id, text);
    if (!tool)
        return letta_refuse(rq, 404, "Tool not found with id='%.64s'", text), false;
    json_string(json, tool->id);
    return true;
}

static bool put_tools(struct request *rq, struct json *json)
{
    const struct json_value *ids = NULL, *names = NULL;

    if (!letta_member(rq, "tool_ids", JSON_ARRAY, false, &ids) || !letta_member(rq, "tools", JSON_ARRAY, false, &names))
        return false;
    if (!ids && !names)
        return true;
    json_key_array(json, "tools");
    for (const struct json_value *item = ids ? ids->first : NULL; item; item = item->next)
        if (!put_tool(rq, item, json))
            return false;
    for (const struct json_value *item = names ? names->first : NULL; item; item = item->next)
        if (!put_tool(rq, item, json))
            return false;
    json_end(json);
    return true;
}

/* `state`, or made of the memory blocks that a client of Letta sends. */
static bool put_state(struct request *rq, struct json *json)
{
    const struct json_value *state = NULL, *blocks = NULL, *memory = NULL;

    if (!letta_member(rq, "state", JSON_OBJECT, false, &state) ||
        !letta_member(rq, "memory_blocks", JSON_ARRAY, false, &blocks) ||
        !letta_member(rq, "memory", JSON_OBJECT, false, &memory))
        return false;
    if (state) {
        api_put(json, "state", state);
    } else if (memory || blocks) {
        json_key_object(json, "state");
        json_key(json, "memory");
        if (memory) {
            json_raw(json, memory->raw, memory->raw_len);
        } else {
            json_object(json);
            api_put(json, "blocks", blocks);
            json_end(json);
        }
        json_end(json);
    }
    return true;
}

/* `secrets` wins if it is not empty; either replaces the whole set, and {} clears it. */
static bool put_secrets(struct request *rq, struct json *json)
{
    const struct json_value *secrets = NULL, *variables = NULL;
    struct brig_err err = {0};

    if (!letta_member(rq, "secrets", JSON_OBJECT, false, &secrets) ||
        !letta_member(rq, "tool_exec_environment_variables", JSON_OBJECT, false, &variables))
        return false;
    if (variables && (!secrets || secrets->count == 0))
        secrets = variables;
    for (const struct json_value *m = secrets ? secrets->first : NULL; m; m = m->next)
        if (m->type != JSON_STRING)
            return letta_invalid(rq, "body", "secrets", "string_type", "Input should be a valid string"), false;
    if (secrets && secrets->count > 0 && auth_may_bring(rq->api, &rq->caller, &err) < 0)
        return request_fail(rq, &err), false;
    if (secrets)
        api_put(json, "secrets", secrets);
    return true;
}

static bool put_name(struct request *rq, bool update, struct json *json)
{
    const struct json_value *name = NULL, *project = NULL;
    const char *header = http_field(exchange_head(rq->x), "X-Project-Id");
    char id[128];

    if (!letta_member(rq, "name", JSON_STRING, false, &name) ||
        !letta_member(rq, "project_id", JSON_STRING, false, &project))
        return false;
    if (name)
        api_put(json, "name", name);
    else if (!update && objects_new_id("agent", id) == 0)
        id[14] = '\0', json_key_string(json, "name", id); /* "agent-" and eight digits */
    if (project)
        api_put(json, "project_id", project);
    else if (header && !update)
        json_key_string(json, "project_id", header);
    return true;
}

bool agent_body_build(struct request *rq, bool update, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    if (!put_name(rq, update, &json) || !put_tools(rq, &json) || !put_state(rq, &json) || !put_secrets(rq, &json))
        return false;
    for (const struct json_value *m = rq->json->first; m; m = m->next)
        if (!special(m) && m->type != JSON_NULL)
            api_put(&json, m->key, m);
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    return letta_refuse(rq, 413, "the agent is larger than %u bytes", AGENT_DOC_MAX), false;
}

/* ---- what goes out --------------------------------------------------------------------------------------- */

const struct json_value *agent_besides(const struct object *agent, const char *name)
{
    return json_get(json_get(agent->json, "other"), name);
}

bool agent_rule_is(const struct json_value *rule, const char *tool_name)
{
    return json_get_is(rule, "type", "requires_approval") && json_get_is(rule, "tool_name", tool_name);
}

bool agent_wants_approval(const struct object *agent, const char *tool_name)
{
    const struct json_value *rules = agent_besides(agent, "tool_rules");

    for (const struct json_value *rule = rules && rules->type == JSON_ARRAY ? rules->first : NULL; rule;
         rule = rule->next)
        if (agent_rule_is(rule, tool_name))
            return true;
    return false;
}

struct value_of {
    const char *name;
    struct json *json;
    bool found;
};

static int each_value(void *ctx, const char *name, const char *value, size_t len)
{
    struct value_of *want = ctx;

    if (!str_eq(name, want->name) || want->found)
        return 0;
    want->found = true;
    json_string_n(want->json, value, len);
    return 0;
}

static void put_secret_value(const struct request *rq, const struct object *agent, const char *name, struct json *json)
{
    struct value_of want = {.name = name, .json = json};

    json_key(json, "value");
    if (letta_shows_values(rq))
        (void)!agent_secrets(rq->api->agents, agent, each_value, &want, NULL);
    if (!want.found)
        json_string(json, "");
}

static void put_secret_list(const struct request *rq, const struct object *agent, const char *key, struct json *json)
{
    const struct json_value *secrets = json_get(agent->json, "secrets");

    json_key_array(json, key);
    for (const struct json_value *s = secrets ? secrets->first : NULL; s; s = s->next) {
        const char *text = s->key ? s->key : json_get_text(s, "key", "");
        json_object(json);
        api_put(json, "id", json_get(s, "id"));
        json_key_string(json, "key", text);
        put_secret_value(rq, agent, text, json);
        api_put(json, "description", json_get(s, "description"));
        json_key_string(json, "organization_id", agent->org_id);
        json_key_null(json, "value_enc");
        json_key_string(json, "agent_id", agent->id);
        static const char *const nothing[] = {"created_by_id", "last_updated_by_id", "created_at", "updated_at"};
        for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
            json_key_null(json, nothing[i]);
        json_key_bool(json, "has_value", true);
        json_end(json);
    }
    json_end(json);
}

static void put_memory(const struct object *agent, struct json *json)
{
    const struct json_value *state = agent_state(agent), *memory = json_get(state, "memory"),
                            *blocks = json_get(memory, "blocks");

    api_put(json, "state", state);
    json_key(json, "memory");
    if (memory) {
        json_raw(json, memory->raw, memory->raw_len);
    } else {
        json_object(json);
        json_key_array(json, "blocks"), json_end(json);
        json_end(json);
    }
    json_key(json, "blocks");
    if (blocks)
        json_raw(json, blocks->raw, blocks->raw_len);
    else
        json_array(json), json_end(json);
}

static void put_agent_tools(const struct api *api, const struct object *agent, struct json *json)
{
    const struct json_value *tools = json_get(agent->json, "tools");

    json_key_array(json, "tools");
    for (const struct json_value *item = tools ? tools->first : NULL; item; item = item->next) {
        const struct object *tool =
            item->type == JSON_STRING ? objects_find(api->registry, agent->org_id, item->string) : NULL;
        if (tool)
            tool_doc_put(NULL, json, tool);
    }
    json_end(json);
}

static void put_besides(const struct object *agent, const char *name, enum json_type type, const char *key,
                        const char *otherwise, struct json *json)
{
    const struct json_value *value = agent_besides(agent, name);

    json_key(json, key);
    if (value && value->type == type)
        json_raw(json, value->raw, value->raw_len);
    else
        json_raw(json, otherwise, strlen(otherwise));
}

/* There is no model here. Clients validate these two all the same: they get the handles that the agent was made with,
 * and for the rest values that mean nothing. */
static void put_models(const struct object *agent, struct json *json)
{
    if (!agent_besides(agent, "llm_config")) {
        json_key_object(json, "llm_config");
        put_besides(agent, "model", JSON_STRING, "model", "\"\"", json);
        json_key_string(json, "model_endpoint_type", "openai");
        put_besides(agent, "context_window_limit", JSON_NUMBER, "context_window", "0", json);
        json_end(json);
    }
    if (!agent_besides(agent, "embedding_config")) {
        json_key_object(json, "embedding_config");
        put_besides(agent, "embedding", JSON_STRING, "embedding_model", "\"\"", json);
        json_key_string(json, "embedding_endpoint_type", "openai");
        put_besides(agent, "embedding_dim", JSON_NUMBER, "embedding_dim", "0", json);
        json_end(json);
    }
}

/* What every client of Letta expects to find, where nothing was sent for it. */
static void put_defaults(const struct object *agent, struct json *json)
{
    static const char *const lists[] = {"tags", "sources", "tool_rules", "identity_ids"};

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        if (!agent_besides(agent, lists[i]))
            json_key_array(json, lists[i]), json_end(json);
    if (!agent_besides(agent, "agent_type"))
        json_key_string(json, "agent_type", "letta_v1_agent");
    if (!agent_besides(agent, "system"))
        json_key_string(json, "system", "");
    if (!agent_besides(agent, "metadata"))
        json_key_null(json, "metadata");
    if (!agent_besides(agent, "description"))
        json_key_null(json, "description");
    put_models(agent, json);
}

void agent_doc_put(void *ctx, struct json *json, const struct object *agent)
{
    const struct request *rq = ctx;
    const struct json_value *doc = agent->json, *other = json_get(doc, "other");

    letta_put_head(json, agent);
    api_put(json, "name", json_get(doc, "name"));
    api_put(json, "project_id", json_get(doc, "project_id"));
    for (const struct json_value *m = other && other->type == JSON_OBJECT ? other->first : NULL; m; m = m->next)
        api_put(json, m->key, m);
    put_defaults(agent, json);
    put_memory(agent, json);
    put_agent_tools(rq->api, agent, json);
    put_secret_list(rq, agent, "tool_exec_environment_variables", json);
    put_secret_list(rq, agent, "secrets", json);
    json_end(json);
}
