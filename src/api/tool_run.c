/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_run.c: see tool_run.h.
 *
 * Theory of operation. A run and its request end in either order. The run ends first: its result is the answer. The
 * client leaves first: the run is cancelled, and its end frees what is here. In the background nobody waits: the run is
 * let go before the answer. What the body brought moves to the run, in the request's arena. A stream begins with its
 * first event, so that a refusal is still an answer with a status of its own.
 */
#include "api/tool_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/provider_names.h"

static const struct json_value no_args = {.type = JSON_OBJECT, .raw = "{}", .raw_len = 2};

/* ---- life ------------------------------------------------------------------------------------------------ */

struct running *running_create(struct request *rq, const struct run_form *form)
{
    if (request_draining(rq))
        return NULL;
    struct running *running = request_alloc(rq, sizeof *running);
    if (!running)
        return NULL;
    running->rq = rq;
    running->form = form;
    running->ask =
        (struct run_ask){.arena = &rq->arena, .caller = &rq->caller, .kind = FRAME_TOOL, .args_json = &no_args};
    return running;
}

void running_free(struct running *running)
{
    if (running->has_tool)
        tool_done(&running->tool);
    mem_free(running);
}

void running_fail(struct running *running, const struct brig_err *err)
{
    struct request *rq = running->rq;

    running_free(running);
    if (!rq)
        return;
    rq->left = NULL;
    request_fail(rq, err);
}

void running_refuse(struct running *running, enum brig_code code, const char *format, ...)
{
    struct brig_err err;
    va_list args;

    va_start(args, format);
    request_error(&err, code, format, args);
    va_end(args);
    running_fail(running, &err);
}

/* ---- what is run ----------------------------------------------------------------------------------------- */

int running_keep(struct running *running, struct buf *text, const struct json_value **ret, struct brig_err *err)
{
    struct arena *arena = running->rq->arena;
    size_t len = 0;
    char *data = buf_take(text, &len);

    if (!data || arena_adopt(arena, data, len) < 0)
        return err_nomem(err);
    return json_read_in(arena, data, len, JSON_READ_VALUES, ret, err);
}

bool running_float(struct running *running, struct buf *text)
{
    const struct json_value *doc = NULL;
    struct brig_err err = {0};

    if (running_keep(running, text, &doc, &err) < 0 || tool_parse(doc, &running->tool, &err) < 0)
        return running_fail(running, &err), false;
    running->has_tool = true;
    running->ask.tool = &running->tool;
    return true;
}

bool running_use(struct running *running, const struct object *tool)
{
    running->ask.tool_object = tool;
    running->ask.tool = tool_of(tool);
    return true;
}

/* ---- the body -------------------------------------------------------------------------------------------- */

static bool bad(struct running *running, const char *name, const char *what)
{
    return running_refuse(running, BRIG_E_USAGE, "%s: must be %s", name, what), false;
}

static const struct json_value *given(const struct running *running, const char *name)
{
    const struct json_value *value = json_get(running->rq->json, name);

    return value && value->type != JSON_NULL ? value : NULL;
}

static bool read_object(struct running *running, const char *name, const struct json_value **ret)
{
    const struct json_value *value = given(running, name);

    *ret = value;
    return !value || value->type == JSON_OBJECT || bad(running, name, "an object");
}

static bool read_flag(struct running *running, const char *name, bool *ret)
{
    const struct json_value *value = given(running, name);

    *ret = value && value->boolean;
    return !value || value->type == JSON_BOOL || bad(running, name, "true or false");
}

static bool read_text(struct running *running, const char *name, const char **ret)
{
    const struct json_value *value = given(running, name);
    const bool ok = !value || (value->type == JSON_STRING && value->len > 0 && value->len < 256 &&
                               !memchr(value->string, '\0', value->len));

    *ret = value && ok ? value->string : NULL;
    return ok || bad(running, name, "text of 1 to 255 bytes");
}

static bool read_reuse(struct running *running)
{
    const char *word = NULL;

    if (!read_text(running, "reuse", &word))
        return false;
    if (word && !str_eq(word, "agent") && !str_eq(word, "fingerprint") && !str_eq(word, "none"))
        return bad(running, "reuse", "agent, fingerprint or none");
    running->ask.reuse = !word || str_eq(word, "none") ? REUSE_NONE
                         : str_eq(word, "agent")       ? REUSE_AGENT
                                                       : REUSE_FINGERPRINT;
    return true;
}

static bool read_agent(struct running *running)
{
    const char *id = NULL;
    const struct request *rq = running->rq;

    if (!read_text(running, "agent_id", &id))
        return false;
    if (!id)
        return true;
    running->ask.agent = objects_find(agents_objects(rq->api->agents), rq->caller.org_id, id);
    if (running->ask.agent)
        return true;
    return running_refuse(running, BRIG_E_NOT_FOUND, "agent %.64s not found", id), false;
}

static bool read_timeout(struct running *running)
{
    const struct json_value *value = given(running, "timeout");

    return !value || (api_duration(value, &running->ask.timeout_ms) == 0 && running->ask.timeout_ms > 0) ||
           bad(running, "timeout", "seconds, or text such as \"30s\"");
}

/* A policy's name, or the policy itself; a list of names or references. What they mean is the executor's to judge. */
static bool read_network(struct running *running)
{
    const struct json_value *network = given(running, "network"), *secrets = given(running, "secrets");

    if (network && network->type != JSON_STRING && network->type != JSON_OBJECT)
        return bad(running, "network", "a policy or its name");
    if (secrets && secrets->type != JSON_ARRAY && secrets->type != JSON_OBJECT)
        return bad(running, "secrets", "a list of secrets, as a sandbox takes it");
    running->ask.network = network;
    running->ask.secrets = secrets;
    return true;
}

bool running_read(struct running *running)
{
    struct run_ask *ask = &running->ask;
    const char *accept = http_field(exchange_head(running->rq->x), "Accept");

    if (!read_object(running, "args", &ask->args_json) || !read_object(running, "env_vars", &ask->env_vars) ||
        !read_object(running, "limits", &ask->limits) || !read_object(running, "agent_state", &ask->agent_state) ||
        !read_network(running) || !read_timeout(running) || !read_reuse(running) || !read_agent(running) ||
        !read_text(running, "sandbox_id", &ask->sandbox_id) || !read_text(running, "provider", &ask->provider) ||
        !read_text(running, "template", &ask->template_name) || !read_text(running, "fallback", &ask->fallback) ||
        !read_flag(running, "strict", &ask->strict) || !read_flag(running, "background", &ask->background) ||
        !read_flag(running, "stream", &running->stream))
        return false;
    if (!ask->args_json)
        ask->args_json = &no_args;
    running->stream = running->stream || (accept && strstr(accept, "text/event-stream"));
    if (running->stream && ask->background)
        return running_refuse(running, BRIG_E_USAGE, "stream and background: only one of the two"), false;
    if (ask->fallback && !str_eq(ask->fallback, "auto") && !str_eq(ask->fallback, "none")) /* a slip of the pen is no
                                                                                              permission */
        return bad(running, "fallback", "auto or none");
    if (ask->provider && !provider_is_known(ask->provider))
        return running_refuse(running, BRIG_E_INVALID, "provider %.31s: there is no such one", ask->provider), false;
    if (ask->sandbox_id && ask->reuse != REUSE_NONE)
        return running_refuse(running, BRIG_E_USAGE, "sandbox_id and reuse: only one of the two"), false;
    if (ask->template_name && (ask->sandbox_id || ask->reuse != REUSE_NONE))
        return running_refuse(running, BRIG_E_USAGE, "template: not with sandbox_id or reuse"), false;
    return true;
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static void begin_stream(struct running *running)
{
    if (!running->begun)
        exchange_begin(running->rq->x, 200, "text/event-stream", UINT64_MAX);
    running->begun = true;
}

static void on_output(void *ctx, unsigned stream, const char *data, size_t len)
{
    struct running *running = ctx;
    AUTO_BUF struct buf out = BUF_INIT(16u << 20);
    struct json json = JSON_INIT(&out);

    if (!running->rq || !running->rq->x || len == 0)
        return;
    json_object(&json);
    api_put_bytes(&json, "data", "encoding", json_is_text(data, len), data, len);
    json_end(&json);
    if (json_finish(&json) < 0)
        return; /* the result has it all the same */
    begin_stream(running);
    exchange_sse(running->rq->x, stream == 2 ? "stderr" : "stdout", NULL, out.data, out.len);
}

/* A refusal after the stream has begun: the same shape, as an event. */
static void send_error(struct request *rq, const struct brig_err *err)
{
    AUTO_BUF struct buf out = BUF_INIT(8192);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_string(&json, "error", err->message);
    json_end(&json);
    if (json_finish(&json) == 0)
        exchange_sse(rq->x, "error", NULL, out.data, out.len);
    request_end(rq, true);
}

static void refuse(struct running *running, const struct brig_err *err, uint64_t retry_s)
{
    struct request *rq = running->rq;
    char seconds[24];

    running->rq = NULL;
    rq->left = NULL;
    if (!rq->x) {
        request_free(rq);
    } else if (running->begun) {
        send_error(rq, err);
    } else {
        if (err->code == BRIG_E_LIMIT || retry_s > 0) {
            snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)(retry_s ? retry_s : 1));
            (void)exchange_add_field(rq->x, "Retry-After", seconds);
        }
        request_fail(rq, err);
    }
}

static void answer(struct running *running, const struct run_result *result)
{
    struct request *rq = running->rq;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);
    struct brig_err err;

    running->form->put(running, result, &json);
    if (json_finish(&json) < 0) {
        (void)err_set(&err, BRIG_E_NOMEM, 0, "the answer does not fit into memory");
        refuse(running, &err, 0);
        return;
    }
    running->rq = NULL;
    rq->left = NULL;
    if (!rq->x || !running->stream)
        return request_text(rq, 200, "application/json", out.data, out.len);
    running->rq = rq;
    begin_stream(running);
    running->rq = NULL;
    exchange_sse(rq->x, "result", NULL, out.data, out.len);
    request_end(rq, true);
}

static void on_done(void *ctx, const struct run_result *result, const struct brig_err *refused, uint64_t retry_s)
{
    struct running *running = ctx;

    running->run = NULL;
    if (running->rq && refused && running->form->invalid_is_result && refused->code == BRIG_E_INVALID) {
        const struct run_result error = {.out = {NULL, NULL, refused->message},
                                         .out_len = {0, 0, strlen(refused->message)}};
        answer(running, &error);
    } else if (running->rq && refused)
        refuse(running, refused, retry_s);
    else if (running->rq)
        answer(running, result);
    running_free(running);
}

static void on_left(struct request *rq)
{
    struct running *running = rq->state;

    running->rq = NULL;
    rq->left = NULL;
    request_free(rq);
    if (running->run)
        run_cancel(running->run, "the client has left");
}

/* ---- going ----------------------------------------------------------------------------------------------- */

/* Lists of tools of the organisation and the key; "{}" for nearly everybody. */
static int read_doc(struct request *rq, const char *text, const struct json_value **ret, struct brig_err *err)
{
    return str_eq(text, "{}") ? 0 : json_read_in(rq->arena, text, strlen(text), JSON_READ_VALUES, ret, err);
}

static void answer_background(struct running *running)
{
    struct request *rq = running->rq;
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    run_json(running->run, &json);
    run_detach(running->run);
    running_free(running);
    request_json(rq, 202, &json);
}

/* Who waits may want to know for what: nothing else comes until somebody decides. */
static void tell_waiting(struct running *running)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    run_json(running->run, &json);
    if (json_finish(&json) < 0)
        return;
    begin_stream(running);
    exchange_sse(running->rq->x, "waiting", NULL, out.data, out.len);
}

void running_go(struct running *running)
{
    struct request *rq = running->rq;
    struct run_ask *ask = &running->ask;
    const struct run_events events = {.output = running->stream ? on_output : NULL, .done = on_done, .ctx = running};
    struct brig_err err = {0};
    int r = read_doc(rq, org_doc(rq->api->accounts, rq->caller.org_id), &ask->org_doc, &err);

    if (r == 0)
        r = read_doc(rq, key_doc(rq->api->accounts, rq->caller.key_id), &ask->key_doc, &err);
    ask->args = ask->args_json->raw;
    ask->args_len = ask->args_json->raw_len;
    if (r == 0)
        r = executor_run(rq->api->executor, ask, &events, &running->run, &err);
    if (r < 0) {
        refuse(running, &err, 0);
        running_free(running);
        return;
    }
    if (ask->background && !run_is_refused(running->run))
        return answer_background(running);
    rq->state = running;
    rq->left = on_left;
    if (running->stream && run_waits(running->run))
        tell_waiting(running);
}
