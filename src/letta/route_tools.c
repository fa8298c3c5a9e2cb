/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_tools.c: the registry of tools as Letta's clients see it: upsert by name, update, read,
 * delete.
 *
 * A write goes body -> (schema derived in a sandbox) -> document -> store. Who may write is asked of the document that
 * is replaced; if that is another by the time of the commit, all is asked and made again from the new one. Two that
 * bring the same new name at once are one after the other.
 */
#include "letta/letta_routes.h"
#include "letta/tool_doc.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "run/execute.h"
#include "run/tool_rights.h"

#define TRIES 100u /* each time somebody else was first */

struct write {
    struct request *rq;
    char org[64], id[128], name[TOOL_NAME_MAX * 4 + 1], user[API_AUTHOR], project[128];
    char *schema; /* derived */
    size_t schema_len;
    bool update, modal, deriving;
    unsigned tries;
};

static void go_on(struct write *write);

/* ---- the end of a write ---------------------------------------------------------------------------------- */

static void forget(struct write *write)
{
    mem_free(write->schema);
    mem_free(write);
}

static void fail(struct write *write, const struct brig_err *err)
{
    struct request *rq = write->rq;

    /* What is wrong with a tool is a ValueError there; with a member's type or bounds, a validation error. */
    if (err->code == BRIG_E_INVALID && !write->deriving)
        letta_invalid(rq, "body", NULL, "value_error", "%s", err->message);
    else if (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID)
        letta_refuse(rq, 400, "%s", err->message);
    else
        request_fail(rq, err);
    forget(write);
}

static void on_put(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct write *write = ctx;
    struct request *rq = write->rq;
    AUTO_BUF struct buf out = BUF_INIT(TOOL_DOC_MAX + 4096);
    struct json json = JSON_INIT(&out);

    if (err && err->code == BRIG_E_CONFLICT && ++write->tries < TRIES)
        return go_on(write);
    if (err)
        return fail(write, err);
    request_audit(rq, write->update ? "tool.update" : "tool.register", object->id, "ok", write->name);
    tool_doc_put(NULL, &json, object);
    request_json(rq, 200, &json);
    forget(write);
}

/* ---- the document ---------------------------------------------------------------------------------------- */

static bool has(const struct json_value *body, const char *name)
{
    const struct json_value *value = json_get(body, name);

    return value && value->type != JSON_NULL;
}

static struct tool_doc doc_of(const struct write *write, const struct object *old, const char *hash)
{
    const struct json_value *body = write->rq->json;
    struct tool_doc doc = {.body = body,
                           .old = old,
                           .update = write->update,
                           .schema = write->schema,
                           .schema_len = write->schema_len,
                           .user = write->user,
                           .project = write->project[0] ? write->project : NULL,
                           .modal = write->modal,
                           .hash = hash};

    const bool policy = has(body, "brig") || has(body, "default_requires_approval");
    tool_hands(old ? tool_of(old) : NULL, &write->rq->caller, !write->update, policy, &doc.registrant, &doc.guard);
    return doc;
}

/*
 * Lists bind whoever brings source, also when he registers it: the name must be allowed, and so must source of his own
 * (`run`), or a name on the list would stand for anything. Those who write the lists are not asked.
 */
static int may_register(const struct request *rq, const char *name, struct brig_err *err)
{
    if (caller_is_admin(&rq->caller))
        return 0;
    int r = auth_tool_allowed(rq->api, &rq->caller, name, err);
    return r == 0 ? auth_tool_allowed(rq->api, &rq->caller, TOOL_UNREGISTERED, err) : r;
}

/* Whether the caller may replace what is there, and may register this name. */
static int may_write(const struct write *write, const struct object *old, struct brig_err *err)
{
    int r = old ? tool_may_change(tool_of(old), &write->rq->caller, err) : 0;

    return r == 0 ? may_register(write->rq, write->name, err) : r;
}

/*
 * The name and the hash of a document that is to be written; what is wrong with it, or more than its writer may ask
 * for, is told here.
 */
static int judge(struct write *write, const struct buf *doc, char hash[13], struct brig_err *err)
{
    struct request *rq = write->rq;
    struct json_doc *parsed = NULL;
    struct tool tool = {0};
    int r = json_read(doc->data, doc->len, JSON_READ_VALUES, &parsed, err);

    if (r < 0)
        return r;
    r = tool_parse(json_root(parsed), &tool, err);
    if (r == 0) {
        r = tool_hash(&tool, hash);
        if (r == 0)
            r = str_copy(write->name, sizeof write->name, tool.name);
        if (r < 0)
            (void)err_set(err, BRIG_E_HOST, -r, "hash the tool");
        if (r == 0)
            r = may_write(write, write->update ? NULL : objects_by_key(rq->api->registry, write->org, write->name),
                          err);
        if (r == 0)
            r = tool_may_ask(&tool, &rq->caller, rq->api->secrets, config_get(rq->api->config), err);
        tool_done(&tool);
    }
    json_doc_free(parsed);
    return r;
}

/* The source of an update must still have the function: clients send one without the other. */
static int check_source(const struct write *write, const struct object *old, struct brig_err *err)
{
    const struct json_value *source = json_get(write->rq->json, "source_code"),
                            *type = json_get(old->json, "source_type"), *before = json_get(old->json, "source_code");
    const bool python = !type || type->type != JSON_STRING || str_eq(type->string, "python"),
               bash = type && type->type == JSON_STRING && str_eq(type->string, "bash");
    char text[sizeof write->name + 16];

    if (!source || source->type != JSON_STRING || bash ||
        (before && before->type == JSON_STRING && str_eq(before->string, source->string)))
        return 0;
    if (str_format(text, sizeof text, "%s %s", python ? "def" : "function", write->name) > 0 &&
        strstr(source->string, text))
        return 0;
    return err_usage(err, "Tool name '%s' does not match the function name in the source code", write->name);
}

static int put(struct write *write, const struct object *old, const char *hash, struct brig_err *err)
{
    const struct tool_doc in = doc_of(write, old, hash);
    struct objects *registry = write->rq->api->registry;
    AUTO_BUF struct buf doc = BUF_INIT(TOOL_DOC_MAX);
    int r = tool_doc_build(&in, &doc, err);

    if (r < 0)
        return r;
    if (!write->update)
        return registry_upsert(registry, write->org, old, doc.data, doc.len, on_put, write, err);
    return objects_put(registry, write->org, old->id, doc.data, doc.len, old->version, on_put, write, err);
}

/* From the body (and the derived schema) to the store. */
static int step(struct write *write, struct brig_err *err)
{
    const struct objects *registry = write->rq->api->registry;
    const struct object *old = write->update ? objects_find(write->rq->api->registry, write->org, write->id) : NULL;
    const struct tool_doc in = doc_of(write, old, NULL);
    AUTO_BUF struct buf doc = BUF_INIT(TOOL_DOC_MAX);
    char hash[13];

    if (write->update && !old)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "Tool not found with id='%.100s'", write->id);
    int r = old ? tool_may_change(tool_of(old), &write->rq->caller, err) : 0;
    if (r == 0)
        r = tool_doc_build(&in, &doc, err);
    if (r == 0)
        r = judge(write, &doc, hash, err);
    if (r == 0 && write->update)
        r = check_source(write, old, err);
    if (r < 0)
        return r;
    const struct object *named = objects_by_key(registry, write->org, write->name);
    if (write->update && named && named != old)
        return err_usage(err, "INVALID_ARGUMENT: Tool with name '%s' already exists in your organization", write->name);
    return put(write, write->update ? old : named, hash, err);
}

static void go_on(struct write *write)
{
    struct brig_err err = {0};

    if (step(write, &err) < 0)
        fail(write, &err);
}

/* ---- the beginning --------------------------------------------------------------------------------------- */

static void on_schema(void *ctx, const char *json, size_t len, const struct brig_err *failed)
{
    struct write *write = ctx;
    struct brig_err err = {0};

    if (!failed) {
        write->schema = mem_alloc(len + 1);
        write->schema_len = len;
        if (write->schema)
            memcpy(write->schema, json, len);
        else
            (void)err_nomem(&err);
    }
    if (failed || !write->schema)
        return fail(write, failed ? failed : &err);
    write->deriving = false;
    go_on(write);
}

static bool begin(struct request *rq, bool update, struct write **ret)
{
    const char *project = http_field(exchange_head(rq->x), "X-Project-Id"),
               *modal = http_field(exchange_head(rq->x), "X-Experimental-Modal-Sandbox");
    struct write *write = request_alloc(rq, sizeof *write);

    if (!write)
        return false;
    write->rq = rq;
    write->update = update;
    write->modal = modal && str_eq(modal, "true");
    (void)letta_user(rq, write->user);
    if (str_copy(write->org, sizeof write->org, rq->caller.org_id) < 0 ||
        (project && str_copy(write->project, sizeof write->project, project) < 0)) {
        mem_free(write);
        letta_refuse(rq, 400, "INVALID_ARGUMENT: X-Project-Id is too long");
        return false;
    }
    *ret = write;
    return true;
}

/* Without a schema one is derived; an update does so only where it brings another one for the arguments. */
static void derive(struct write *write, const char *source, size_t len)
{
    struct request *rq = write->rq;
    const struct json_value *args = json_get(rq->json, "args_json_schema");
    AUTO_BUF struct buf text = BUF_INIT(TOOL_DOC_MAX);
    struct brig_err err = {0};
    int r = 0;

    if (args && args->type == JSON_OBJECT &&
        (buf_append(&text, args->raw, args->raw_len) < 0 || buf_append(&text, "", 1) < 0))
        r = err_nomem(&err);
    write->deriving = true;
    if (r == 0)
        r = executor_schema(rq->api->executor, &rq->caller, source, len, "python", text.len > 0 ? text.data : NULL,
                            on_schema, write, &err);
    if (r < 0)
        fail(write, &err);
}

void route_tool_upsert(struct request *rq)
{
    struct write *write = NULL;

    if (!tool_body_check(rq, false) || !begin(rq, false, &write))
        return;
    const struct json_value *source = json_get(rq->json, "source_code");
    if (has(rq->json, "json_schema"))
        go_on(write);
    else
        derive(write, source->string, source->len);
}

/* By its id; beyond Letta also by name, for people. NULL: the refusal was sent. */
static const struct object *find_tool(struct request *rq)
{
    const struct object *object = objects_by_key(rq->api->registry, rq->caller.org_id, rq->arg[0]);

    if (object || !letta_path_id(rq, "tool", "tool_id", rq->arg[0]))
        return object;
    object = objects_find(rq->api->registry, rq->caller.org_id, rq->arg[0]);
    if (!object && str_eq(rq->route->method, "DELETE"))
        letta_refuse(rq, 400, "Tool with id %.128s not found.", rq->arg[0]);
    else if (!object)
        letta_not_found(rq, "Tool", rq->arg[0]);
    return object;
}

void route_tool_update(struct request *rq)
{
    const struct object *object = find_tool(rq);
    struct write *write = NULL;

    if (!object || !tool_body_check(rq, true) || !begin(rq, true, &write))
        return;
    (void)!str_copy(write->id, sizeof write->id, object->id);
    const struct json_value *source =
        has(rq->json, "source_code") ? json_get(rq->json, "source_code") : json_get(object->json, "source_code");
    if (has(rq->json, "args_json_schema") && !has(rq->json, "json_schema") && source)
        derive(write, source->string, source->len);
    else
        go_on(write);
}

/* ---- reading and deleting -------------------------------------------------------------------------------- */

void route_tool_get(struct request *rq)
{
    const struct object *object = find_tool(rq);
    AUTO_BUF struct buf out = BUF_INIT(TOOL_DOC_MAX + 4096);
    struct json json = JSON_INIT(&out);

    if (!object)
        return;
    tool_doc_put(NULL, &json, object);
    request_json(rq, 200, &json);
}

static void on_deleted(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err)
        request_fail(rq, err);
    else
        letta_answer_null(rq);
}

void route_tool_delete(struct request *rq)
{
    const struct object *object = find_tool(rq);
    struct brig_err err = {0};

    if (!object)
        return;
    int r = tool_may_change(tool_of(object), &rq->caller, &err);
    if (r == 0 && !caller_is_admin(&rq->caller))
        r = auth_tool_allowed(rq->api, &rq->caller, tool_of(object)->name, &err);
    if (r == 0) {
        const struct objects_change change = {.org = rq->caller.org_id,
                                              .id = object->id,
                                              .expect_version = object->version,
                                              .done = on_deleted,
                                              .ctx = rq};
        request_audit(rq, "tool.delete", object->id, "ok", tool_of(object)->name);
        r = objects_change(rq->api->registry, &change, &err);
    }
    if (r < 0)
        request_fail(rq, &err);
}
