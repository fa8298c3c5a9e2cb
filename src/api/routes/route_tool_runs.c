/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_tool_runs.c: what runs: a registered tool, and code or a command once; and a run afterwards: its state, its
 * end, its files.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "api/tool_run.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

#define COMMON_MEMBERS                                                                                 \
    "env_vars timeout limits network secrets agent_id agent_state sandbox_id reuse provider fallback " \
    "template strict background stream"

/* ---- a registered tool ----------------------------------------------------------------------------------- */

void route_tool_run(struct request *rq)
{
    const char *org = rq->caller.org_id, *name = rq->arg[0];
    const struct object *tool = objects_by_key(rq->api->registry, org, name);

    if (!api_only_members(rq, "args " COMMON_MEMBERS))
        return;
    if (!tool)
        tool = objects_find(rq->api->registry, org, name);
    if (!tool)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "Tool '%.64s' not found", name);
    struct running *running = running_create(rq, &run_native);
    if (running && running_use(running, tool) && running_read(running))
        running_go(running);
}

/* ---- code or a command, once ----------------------------------------------------------------------------- */

static void put_once(const struct json_value *code, const struct json_value *command, const struct json_value *body,
                     struct json *json)
{
    const struct json_value *language = json_get(body, "language");

    json_object(json);
    json_key_string(json, "name", command ? "command" : "code");
    if (command) {
        json_key_string(json, "source_type", "command");
        json_key_string(json, "source_code", "");
        json_key_object(json, "brig"), json_key(json, "command");
        if (command->type == JSON_STRING) {
            json_array(json);
            json_string(json, "/bin/sh"), json_string(json, "-c"), json_string_n(json, command->string, command->len);
            json_end(json);
        } else {
            json_raw(json, command->raw, command->raw_len);
        }
        json_end(json);
    } else {
        if (language && language->type == JSON_STRING)
            api_put(json, "source_type", language);
        else
            json_key_string(json, "source_type", "python");
        api_put(json, "source_code", code);
        if (language && language->type == JSON_STRING && str_eq(language->string, "typescript")) { /* of a tool it
                                                                                                      cannot be found
                                                                                                      out; a snippet
                                                                                                      takes nothing */
            static const char schema[] = "{\"name\":\"code\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}";
            json_key_raw(json, "json_schema", schema, sizeof schema - 1);
        }
    }
    static const char *const lists[] = {"pip_requirements", "npm_requirements"};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const struct json_value *list = json_get(body, lists[i]);
        if (list && list->type == JSON_ARRAY)
            api_put(json, lists[i], list);
    }
    json_end(json);
}

static bool files_ok(struct request *rq)
{
    const struct json_value *files = json_get(rq->json, "files"), *collect = json_get(rq->json, "collect");
    bool ok = (!files || files->type == JSON_ARRAY) && (!collect || collect->type == JSON_ARRAY);

    for (const struct json_value *f = ok && files ? files->first : NULL; f && ok; f = f->next) {
        const struct json_value *path = json_get(f, "path"), *content = json_get(f, "content"),
                                *coded = json_get(f, "base64");
        ok = path && path->type == JSON_STRING && path->len > 0 && !content != !coded &&
             (content ? content : coded)->type == JSON_STRING;
    }
    for (const struct json_value *path = ok && collect ? collect->first : NULL; path && ok; path = path->next)
        ok = path->type == JSON_STRING && path->len > 0;
    if (!ok)
        request_refuse(rq, BRIG_E_USAGE,
                       "files: a list of {\"path\", \"content\" or \"base64\"}; collect: a list of paths");
    return ok;
}

/* As the runtime takes them: all of them as base64. */
static int encode_files(struct running *running, const struct json_value *files, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(64u << 20);
    struct json json = JSON_INIT(&text);

    if (!files || files->count == 0)
        return 0;
    json_array(&json);
    for (const struct json_value *f = files->first; f; f = f->next) {
        const struct json_value *content = json_get(f, "content");
        json_object(&json);
        api_put(&json, "path", json_get(f, "path"));
        if (content)
            json_key(&json, "base64"), json_base64(&json, content->string, content->len);
        else
            api_put(&json, "base64", json_get(f, "base64"));
        json_end(&json);
    }
    json_end(&json);
    if (json_finish(&json) < 0)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "files: too large");
    return running_keep(running, &text, &running->ask.files, err);
}

void route_run_once(struct request *rq)
{
    const struct json_value *code = json_get(rq->json, "code"), *command = json_get(rq->json, "command");

    if (!api_only_members(rq,
                          "language code command files collect pip_requirements npm_requirements " COMMON_MEMBERS) ||
        !files_ok(rq))
        return;
    if (!code == !command || (code && code->type != JSON_STRING) ||
        (command && command->type != JSON_STRING && command->type != JSON_ARRAY))
        return request_refuse(rq, BRIG_E_USAGE,
                              "exactly one of code (text) and command (text, or a list of words) must be given");
    struct running *running = running_create(rq, &run_native);
    if (!running)
        return;
    running->ask.kind = command ? FRAME_COMMAND : FRAME_CODE;
    running->ask.collect = json_get(rq->json, "collect");
    AUTO_BUF struct buf text = BUF_INIT(16u << 20);
    struct json json = JSON_INIT(&text);
    struct brig_err err = {0};
    put_once(code, command, rq->json, &json);
    if (encode_files(running, json_get(rq->json, "files"), &err) < 0)
        running_fail(running, &err);
    else if (json_finish(&json) < 0)
        running_refuse(running, BRIG_E_TOO_LARGE, "the code is too large");
    else if (running_float(running, &text) && running_read(running))
        running_go(running);
}

/* ---- a run afterwards ------------------------------------------------------------------------------------ */

void route_run_cancel(struct request *rq)
{
    struct run *run = executor_find(rq->api->executor, request_scope(rq), rq->arg[0]);
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&out);

    if (!run)
        return request_refuse(rq, BRIG_E_NOT_FOUND, "no run %.64s goes on", rq->arg[0]);
    request_audit(rq, "run.cancel", rq->arg[0], "ok", "");
    run_json(run, &json);
    run_cancel(run, "cancelled by a request");
    request_json(rq, 202, &json);
}

/* A tar on its way to a client that may be slow. */
struct sending {
    struct request *rq;
    int fd;
};

static void sending_end(struct sending *sending)
{
    base_close_fd(&sending->fd);
    mem_free(sending);
}

static void send_more(void *ctx, struct exchange *x)
{
    struct sending *sending = ctx;
    struct request *rq = sending->rq;
    char data[64u << 10];
    ssize_t n;

    while ((n = read(sending->fd, data, sizeof data)) > 0)
        if (!exchange_write(x, data, (size_t)n))
            return;
    sending_end(sending);
    request_end(rq, n == 0);
}

static void send_left(struct request *rq)
{
    sending_end(rq->state);
    request_free(rq);
}

static void send_files(struct request *rq, const char *receipt UNUSED)
{
    struct sending *sending = mem_zalloc(sizeof *sending);
    struct brig_err err = {0};
    struct stat st;
    int r = sending ? 0 : err_nomem(&err);

    if (r == 0) {
        *sending = (struct sending){.rq = rq, .fd = -1};
        r = executor_artifact(rq->api->executor, rq->caller.org_id, rq->arg[0], &sending->fd, &err);
    }
    if (r == 0 && fstat(sending->fd, &st) < 0)
        r = err_host(&err, "the files of %.64s", rq->arg[0]);
    if (r < 0) {
        if (sending)
            sending_end(sending);
        request_fail(rq, &err);
        return;
    }
    rq->state = sending;
    rq->left = send_left;
    exchange_add_field(rq->x, "X-Content-Type-Options", "nosniff");
    exchange_begin(rq->x, 200, "application/x-tar", (uint64_t)st.st_size);
    exchange_on_drained(rq->x, send_more, sending);
    send_more(sending, rq->x);
}

/* Who may read what a run said may have what it left. */
void route_run_files(struct request *rq)
{
    if (caller_is_admin(&rq->caller))
        send_files(rq, NULL);
    else
        runs_find(rq, send_files);
}
