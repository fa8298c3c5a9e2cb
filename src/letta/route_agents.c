/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_agents.c: agents: a name, tools, a state and secrets. There is no model and no conversation
 * here: whoever runs the agent keeps those, and comes here for its tools. Secrets are write-only
 * (api/routes/route_values.c reveals one).
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "letta/agent_doc.h"
#include "letta/letta_routes.h"
#include "letta/tool_doc.h"
#include "base/err.h"
#include "base/str.h"
#include "crypto/crypto.h"

static void on_agent(void *ctx, const struct object *agent, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        letta_answer(rq, agent_doc_put, rq, agent);
}

/* The agent that the path names; or NULL, and the refusal was sent. */
static const struct object *find_agent(struct request *rq)
{
    return letta_find(rq, agents_objects(rq->api->agents), "agent", "agent_id", "Agent");
}

/* ---- writing --------------------------------------------------------------------------------------------- */

static void fail_put(struct request *rq, const struct brig_err *err)
{
    if (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID)
        letta_invalid(rq, "body", NULL, "value_error", "%s", err->message);
    else
        request_fail(rq, err);
}

/* text: of an agent's members, as agents_put() takes them; wiped here. */
static void put(struct request *rq, const char *id, struct buf *text)
{
    struct json_doc *doc = NULL;
    char user[API_AUTHOR];
    struct brig_err err = {0};
    int r = json_read(text->data, text->len, JSON_READ_VALUES, &doc, &err);

    if (r == 0)
        r = agents_put(rq->api->agents, rq->caller.org_id, letta_user(rq, user), id, json_root(doc), on_agent, rq,
                       &err);
    json_doc_free(doc);
    crypto_wipe(text->data, text->len);
    if (r < 0)
        fail_put(rq, &err);
}

static void create_or_update(struct request *rq, const char *id)
{
    AUTO_BUF struct buf text = BUF_INIT(AGENT_DOC_MAX);

    /* Room for all of it at once: growing would leave copies of secrets behind. */
    if (buf_reserve(&text, rq->body_len + 4096) < 0)
        request_refuse(rq, BRIG_E_TOO_LARGE, "the agent is larger than %u bytes", AGENT_DOC_MAX);
    else if (agent_body_build(rq, id != NULL, &text))
        put(rq, id, &text);
}

void route_agent_create(struct request *rq)
{
    create_or_update(rq, NULL);
}

void route_agent_update(struct request *rq)
{
    const struct object *agent = find_agent(rq);

    if (agent)
        create_or_update(rq, agent->id);
}

static void on_deleted(void *ctx, const struct object *agent UNUSED, const struct brig_err *err)
{
    struct request *rq = ctx;
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);
    char text[160];

    if (err)
        return request_fail(rq, err);
    snprintf(text, sizeof text, "Agent id=%.64s successfully deleted", rq->x ? rq->arg[0] : "");
    json_object(&json);
    json_key_string(&json, "message", text);
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_agent_delete(struct request *rq)
{
    const struct object *agent = find_agent(rq);
    struct brig_err err = {0};

    if (agent &&
        objects_delete(agents_objects(rq->api->agents), rq->caller.org_id, agent->id, on_deleted, rq, &err) < 0)
        request_fail(rq, &err);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

void route_agent_get(struct request *rq)
{
    const struct object *agent = find_agent(rq);

    if (agent)
        letta_answer(rq, agent_doc_put, rq, agent);
}

static bool tagged(const struct request *rq, const struct object *agent)
{
    const struct json_value *tags = agent_besides(agent, "tags");
    bool given = false;

    (void)letta_query_has(rq, "tags", "", &given);
    for (const struct json_value *tag = tags && tags->type == JSON_ARRAY ? tags->first : NULL; tag && given;
         tag = tag->next)
        if (tag->type == JSON_STRING && letta_query_has(rq, "tags", tag->string, &given))
            return true;
    return !given;
}

static bool wanted(void *ctx, const struct object *agent)
{
    struct request *rq = ctx;
    const char *name = request_query(rq, "name"), *text = request_query(rq, "query_text");
    const char *project = request_query(rq, "project_id");
    const char *is = agent_name(agent) ? agent_name(agent) : "", *of = agent_project(agent);

    return (!name || str_eq(name, is)) && (!text || strcasestr(is, text)) &&
           (!project || (of && str_eq(of, project))) && tagged(rq, agent);
}

void route_agent_list(struct request *rq)
{
    const char *order = request_query(rq, "order"), *ascending = request_query(rq, "ascending");
    const struct letta_list list = {.objects = agents_objects(rq->api->agents),
                                    .kind = "Agent",
                                    .wanted = wanted,
                                    .put = agent_doc_put,
                                    .ctx = rq,
                                    .limit = LETTA_LIST_DEFAULT,
                                    .descending = order ? str_eq(order, "desc")
                                                        : !(ascending && strcasecmp(ascending, "true") == 0)};

    if (order && !str_eq(order, "asc") && !str_eq(order, "desc"))
        letta_invalid(rq, "query", "order", "literal_error", "Input should be 'asc' or 'desc'");
    else
        letta_list(rq, &list);
}

void route_agent_count(struct request *rq)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%zu", objects_count(agents_objects(rq->api->agents), rq->caller.org_id));

    request_text(rq, 200, "application/json", text, (size_t)len);
}

/* ---- tools of an agent ----------------------------------------------------------------------------------- */

static void attach(struct request *rq, bool on)
{
    const struct object *agent = find_agent(rq);
    char user[API_AUTHOR];
    struct brig_err err = {0};

    if (!agent || !letta_path_id(rq, "tool", "tool_id", rq->arg[1]))
        return;
    if (on && !objects_find(rq->api->registry, rq->caller.org_id, rq->arg[1]))
        letta_not_found(rq, "Tool", rq->arg[1]);
    else if (agents_attach(rq->api->agents, rq->caller.org_id, letta_user(rq, user), agent->id, rq->arg[1], on,
                           on_agent, rq, &err) < 0)
        request_fail(rq, &err);
}

void route_agent_attach(struct request *rq)
{
    attach(rq, true);
}

void route_agent_detach(struct request *rq)
{
    attach(rq, false);
}

static bool attached(void *ctx, const struct object *tool)
{
    return agent_has_tool(ctx, tool->id);
}

void route_agent_tools(struct request *rq)
{
    const char *order = request_query(rq, "order"); /* before find_agent(), which may end the request */
    const struct object *agent = find_agent(rq);
    if (!agent)
        return;
    const struct letta_list list = {.objects = rq->api->registry,
                                    .kind = "Tool",
                                    .wanted = attached,
                                    .put = tool_doc_put,
                                    .ctx = (void *)(uintptr_t)agent,
                                    .limit = 10 * LETTA_LIST_DEFAULT,
                                    .descending = order && str_eq(order, "desc")};
    letta_list(rq, &list);
}

/* An agent may ask for an approval where the tool itself does not; it cannot take away the tool's own rule. */
static void put_rules(const struct object *agent, const char *tool, bool on, struct json *json)
{
    const struct json_value *rules = agent_besides(agent, "tool_rules");

    json_object(json);
    json_key_array(json, "tool_rules");
    for (const struct json_value *rule = rules && rules->type == JSON_ARRAY ? rules->first : NULL; rule;
         rule = rule->next)
        if (!agent_rule_is(rule, tool))
            json_raw(json, rule->raw, rule->raw_len);
    if (on) {
        json_object(json);
        json_key_string(json, "tool_name", tool);
        json_key_string(json, "type", "requires_approval");
        json_end(json);
    }
    json_end(json);
    json_end(json);
}

void route_agent_approval(struct request *rq)
{
    const char *query = request_query(rq, "requires_approval"); /* before find_agent(), which may end the request */
    const struct object *agent = find_agent(rq);
    const struct json_value *member = NULL;
    AUTO_BUF struct buf text = BUF_INIT(AGENT_DOC_MAX);
    struct json json = JSON_INIT(&text);

    if (!agent || !letta_only_members(rq, "requires_approval") ||
        !letta_member(rq, "requires_approval", JSON_BOOL, false, &member))
        return;
    const struct object *tool = objects_by_key(rq->api->registry, rq->caller.org_id, rq->arg[1]);
    if (!tool || !agent_has_tool(agent, tool->id))
        return letta_refuse(rq, 404, "Tool '%.64s' not found or not attached to agent '%s'", rq->arg[1], agent->id);
    if (!member && !query)
        return letta_invalid(rq, "body", "requires_approval", "missing", "Field required");
    put_rules(agent, rq->arg[1], member ? member->boolean : strcasecmp(query, "true") == 0, &json);
    if (json_finish(&json) < 0)
        request_refuse(rq, BRIG_E_TOO_LARGE, "too many rules");
    else
        put(rq, agent->id, &text);
}
