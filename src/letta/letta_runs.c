/* SPDX-License-Identifier: Apache-2.0 */
/*
 * letta_runs.c: runs as Letta's clients ask for them: a tool of an agent, answered by a ToolExecutionResult, and source
 * that is not kept, answered by a ToolReturnMessage. The receipt is in both.
 */
#include <stdio.h>
#include <time.h>

#include "api/tool_run.h"
#include "base/clock.h"
#include "base/err.h"
#include "letta/agent_doc.h"
#include "letta/letta.h"
#include "letta/letta_routes.h"
#include "letta/tool_doc.h"

/* ---- the forms ------------------------------------------------------------------------------------------- */

static void put_output(struct json *json, const char *key, const char *data, size_t len)
{
    json_key_array(json, key);
    if (len > 0)
        json_string_n(json, data, len);
    json_end(json);
}

/* Seconds, and "+00:00": as Letta's messages have it. */
static void put_date(struct json *json)
{
    char time[CLOCK_TEXT], text[CLOCK_TEXT + 8];

    clock_text(clock_real_ns(), 0, time);
    snprintf(text, sizeof text, "%.19s+00:00", time);
    json_key_string(json, "date", text);
}

/* The part that a message has twice: by itself, and as the one element of tool_returns. */
static void put_return(const struct run_result *result, struct json *json)
{
    json_key(json, "tool_return"),
        json_string_n(json, result->text ? result->text : "", result->text ? result->text_len : 0);
    run_put_status(json, result);
    json_key_string(json, "tool_call_id", "null");
    put_output(json, "stdout", result->out[1], result->out_len[1]);
    put_output(json, "stderr", result->out[2], result->out_len[2]);
}

static void put_message(const struct running *running, const struct run_result *result, struct json *json)
{
    const struct json_value *name = json_get(running->rq->json, "name");
    static const char *const nothing[] = {"otid", "sender_id", "step_id", "is_err", "seq_id", "run_id"};

    json_object(json);
    json_key_string(json, "id", "null");
    put_date(json);
    json_key_string(json, "name", name && name->type == JSON_STRING ? name->string : NULL); /* as the client gave it */
    json_key_string(json, "message_type", "tool_return_message");
    for (size_t i = 0; i < ARRAY_SIZE(nothing); i++)
        json_key_null(json, nothing[i]);
    put_return(result, json);
    json_key_array(json, "tool_returns"), json_object(json);
    json_key_string(json, "type", "tool");
    put_return(result, json);
    json_end(json), json_end(json);
    run_put_receipt(json, result);
    json_end(json);
}

static void put_result(const struct running *running UNUSED, const struct run_result *result, struct json *json)
{
    json_object(json);
    run_put_status(json, result);
    json_key_raw(json, "func_return", result->ok ? result->func_return : NULL, result->func_return_len);
    json_key_null(json, "agent_state");
    put_output(json, "stdout", result->out[1], result->out_len[1]);
    put_output(json, "stderr", result->out[2], result->out_len[2]);
    json_key_string(json, "sandbox_config_fingerprint", result->fingerprint);
    run_put_receipt(json, result);
    json_end(json);
}

static const struct run_form form_message = {.put = put_message};
static const struct run_form form_result = {.put = put_result, .invalid_is_result = true};

/* ---- a tool of an agent ---------------------------------------------------------------------------------- */

void route_agent_tool_run(struct request *rq)
{
    const char *org = rq->caller.org_id;
    const struct json_value *args = NULL;

    if (!letta_path_id(rq, "agent", "agent_id", rq->arg[0]) || !letta_only_members(rq, "args") ||
        !letta_member(rq, "args", JSON_OBJECT, false, &args))
        return;
    const struct object *agent = objects_find(agents_objects(rq->api->agents), org, rq->arg[0]),
                        *tool = objects_by_key(rq->api->registry, org, rq->arg[1]);
    if (!agent)
        return letta_not_found(rq, "Agent", rq->arg[0]);
    if (!tool || !agent_has_tool(agent, tool->id))
        return letta_refuse(rq, 404, "Tool '%.64s' not found or not attached to agent '%s'", rq->arg[1], agent->id);
    struct running *running = running_create(rq, &form_result);
    if (!running || !running_use(running, tool))
        return;
    running->ask.agent = agent;
    if (args)
        running->ask.args_json = args;
    if (agent_wants_approval(agent, rq->arg[1])) { /* the agent's own rule, over the tool's */
        running->tool = *tool_of(tool);
        running->tool.requires_approval = true;
        running->ask.tool = &running->tool;
    }
    running_go(running);
}

/* ---- source that is not kept ----------------------------------------------------------------------------- */

static bool strings_only(struct request *rq, const struct json_value *object, const char *name)
{
    for (const struct json_value *m = object ? object->first : NULL; m; m = m->next)
        if (m->type != JSON_STRING && m->type != JSON_NULL)
            return letta_invalid(rq, "body", name, "string_type", "Input should be a valid string"), false;
    return true;
}

static bool source_body_ok(struct request *rq, enum tool_language *language)
{
    /* The last line is ours, as of a registered tool. */
    static const char known[] = "source_code args env_vars name source_type args_json_schema json_schema "
                                "pip_requirements npm_requirements "
                                "timeout limits network secrets strict agent_id provider fallback";
    const struct json_value *source = NULL, *args = NULL, *env = NULL, *name = NULL, *type = NULL, *other = NULL;

    if (!letta_only_members(rq, known) || !letta_member(rq, "source_code", JSON_STRING, true, &source) ||
        !letta_member(rq, "args", JSON_OBJECT, true, &args) ||
        !letta_member(rq, "env_vars", JSON_OBJECT, false, &env) || !strings_only(rq, env, "env_vars") ||
        !letta_member(rq, "name", JSON_STRING, false, &name) ||
        !letta_member(rq, "source_type", JSON_STRING, false, &type) ||
        !letta_member(rq, "args_json_schema", JSON_OBJECT, false, &other) ||
        !letta_member(rq, "json_schema", JSON_OBJECT, false, &other) ||
        !letta_member(rq, "pip_requirements", JSON_ARRAY, false, &other) ||
        !letta_member(rq, "npm_requirements", JSON_ARRAY, false, &other))
        return false;
    *language = TOOL_PYTHON;
    if (!type || (tool_language_parse(type->string, language) == 0 && *language != TOOL_COMMAND))
        return true;
    letta_refuse(rq, 400, "INVALID_ARGUMENT: Tool source type is not supported at this time. Found %.64s",
                 type->string);
    return false;
}

static void run_source(struct running *running, const char *schema, size_t len)
{
    struct request *rq = running->rq;
    AUTO_BUF struct buf text = BUF_INIT(16u << 20);
    struct brig_err err = {0};

    if (!running_read(running))
        return;
    running->stream = false;             /* a message has one form */
    running->ask.no_schema_check = true; /* what does not fit is the function's own error there */
    if (tool_doc_floating(rq->json, schema, len, &text, &err) < 0)
        running_fail(running, &err);
    else if (running_float(running, &text))
        running_go(running);
}

static void on_source_schema(void *ctx, const char *json, size_t len, const struct brig_err *err)
{
    struct running *running = ctx;
    struct request *rq = running->rq;

    rq->left = NULL;
    if (!err && rq->x)
        return run_source(running, json, len);
    running_free(running);
    if (!rq->x)
        request_free(rq);
    else if (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID)
        letta_refuse(rq, 400, "%s", err->message);
    else
        request_fail(rq, err);
}

void route_tool_source(struct request *rq)
{
    const struct json_value *name = json_get(rq->json, "name"), *schema = json_get(rq->json, "json_schema"),
                            *source = json_get(rq->json, "source_code"), *args = json_get(rq->json, "args_json_schema");
    const bool known = (name && name->type == JSON_STRING) || (schema && schema->type == JSON_OBJECT);
    AUTO_BUF struct buf text = BUF_INIT(TOOL_DOC_MAX);
    enum tool_language language;
    struct brig_err err = {0};

    if (!source_body_ok(rq, &language))
        return;
    struct running *running = running_create(rq, &form_message);
    if (!running)
        return;
    if (known)
        return run_source(running, NULL, 0);
    int r = 0;
    if (language != TOOL_PYTHON)
        r = err_usage(&err, "a tool that is not Python needs a name or an explicit json_schema");
    else if (args && args->type == JSON_OBJECT &&
             (buf_append(&text, args->raw, args->raw_len) < 0 || buf_append(&text, "", 1) < 0))
        r = err_nomem(&err);
    if (r == 0)
        r = executor_schema(rq->api->executor, &rq->caller, source->string, source->len, "python",
                            text.len > 0 ? text.data : NULL, on_source_schema, running, &err);
    if (r < 0)
        running_fail(running, &err);
}
