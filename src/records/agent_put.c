/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_put.c: how agents change: a document that was given over what is there, one tool more or less, another state.
 * Each is made of what is there at its turn (objects_change()), so that two who change different members do not undo
 * each other. A request may have secrets in clear: its copy is in wiping memory.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/agents_priv.h"

#define NAME_MAX_BYTES 512u
#define OTHER_MAX 1000u

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

struct agent_put {
    struct agents *agents;
    char id[128], org[64], actor[128], tool_id[128];
    bool patch, on;
    char *text; /* wiping memory: the request, or the state */
    size_t len;
};

/* The document in the making: of each member the new one, or the old. */
struct draft {
    const struct agent_put *put;
    const struct json_value *given; /* or NULL */
    const struct object *current;   /* or NULL */
    struct json *json;
    struct brig_err *err;
};

static const struct json_value *given_of(const struct draft *draft, const char *name)
{
    const struct json_value *value = json_get(draft->given, name);

    return value && value->type != JSON_NULL ? value : NULL;
}

static const struct json_value *old_of(const struct draft *draft, const char *name)
{
    const struct json_value *value = draft->current ? json_get(draft->current->json, name) : NULL;

    return value && value->type != JSON_NULL ? value : NULL;
}

static void put_old(struct draft *draft, const char *name, const char *fallback)
{
    const struct json_value *old = old_of(draft, name);

    json_key(draft->json, name);
    if (old)
        json_raw(draft->json, old->raw, old->raw_len);
    else
        json_raw(draft->json, fallback, strlen(fallback));
}

static int put_text(struct draft *draft, const char *name)
{
    const struct json_value *value = given_of(draft, name);

    if (!value)
        return put_old(draft, name, "null"), 0;
    if (value->type != JSON_STRING || strlen(value->string) != value->len || value->len > NAME_MAX_BYTES)
        return invalid(draft->err, "%s: must be a string of at most %u bytes", name, NAME_MAX_BYTES);
    json_key(draft->json, name), json_string_n(draft->json, value->string, value->len);
    return 0;
}

/* ---- tools -------------------------------------------------------------------------------------------- */

static bool is_earlier(const struct json_value *list, const struct json_value *item)
{
    for (const struct json_value *other = list->first; other && other != item; other = other->next)
        if (other->type == JSON_STRING && str_eq(other->string, item->string))
            return true;
    return false;
}

static int put_tools(struct draft *draft)
{
    const struct json_value *tools = given_of(draft, "tools");

    if (!tools)
        tools = given_of(draft, "tool_ids");
    if (!tools)
        return put_old(draft, "tools", "[]"), 0;
    if (tools->type != JSON_ARRAY || tools->count > AGENT_TOOLS_MAX)
        return invalid(draft->err, "tools: must be a list of at most %u ids", AGENT_TOOLS_MAX);
    json_key_array(draft->json, "tools");
    for (const struct json_value *item = tools->first; item; item = item->next) {
        if (item->type != JSON_STRING || strlen(item->string) != item->len || !objects_id_ok("tool", item->string))
            return invalid(draft->err, "tools: each is an id, tool-<uuid4>");
        if (!is_earlier(tools, item))
            json_string(draft->json, item->string);
    }
    json_end(draft->json);
    return 0;
}

/* ---- state -------------------------------------------------------------------------------------------- */

static int put_state(struct draft *draft)
{
    const struct json_value *state = given_of(draft, "state"), *blocks = given_of(draft, "memory_blocks");
    int r = 0;

    if (state) {
        r = agent_state_check(state, draft->err);
        if (r == 0)
            json_key_raw(draft->json, "state", state->raw, state->raw_len);
        return r;
    }
    if (!blocks || old_of(draft, "state"))
        return put_old(draft, "state", "null"), 0;
    r = agent_blocks_check(blocks, draft->err);
    if (r < 0)
        return r;
    json_key_object(draft->json, "state");
    json_key_object(draft->json, "memory");
    json_key_raw(draft->json, "blocks", blocks->raw, blocks->raw_len);
    json_end(draft->json);
    json_end(draft->json);
    return 0;
}

/* ---- secrets ------------------------------------------------------------------------------------------ */

static const char *old_secret_id(const struct draft *draft, const char *key)
{
    const struct json_value *list = old_of(draft, "secrets");

    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next)
        if (str_eq(json_get(item, "key")->string, key))
            return json_get(item, "id")->string;
    return NULL;
}

static int put_secret(struct draft *draft, const struct json_value *item)
{
    char id[128], context[SEALED_CONTEXT];
    const char *old = NULL;

    if (strlen(item->key) != item->key_len || !variable_name_ok(item->key))
        return invalid(
            draft->err,
            "secrets: \"%.80s\" is no name of a variable: letters, digits and '_', no digit first, at most 256",
            item->key);
    if (item->type != JSON_STRING && item->type != JSON_NULL)
        return invalid(draft->err, "secrets: %.80s: must be a string", item->key);
    const char *value = item->type == JSON_NULL ? "" : item->string;
    size_t len = item->type == JSON_NULL ? 0 : item->len;
    if (memchr(value, '\0', len) || len > VARIABLE_VALUE_MAX)
        return invalid(draft->err, "secrets: %.80s: has a NUL in it, or more than %u bytes", item->key,
                       VARIABLE_VALUE_MAX);
    old = old_secret_id(draft, item->key);
    int r = old ? str_copy(id, sizeof id, old) : objects_new_id("agent-env", id);
    if (r == 0)
        r = sealed_context(draft->put->org, draft->put->id, item->key, context);
    if (r < 0)
        return err_set(draft->err, BRIG_E_HOST, -r, "secrets: make an id");
    json_object(draft->json);
    json_key_string(draft->json, "id", id);
    json_key_string(draft->json, "key", item->key);
    json_key(draft->json, "sealed");
    r = sealed_value_put(&draft->put->agents->sealer, context, value, len, draft->json, draft->err);
    json_end(draft->json);
    return r;
}

static int put_secrets(struct draft *draft)
{
    const struct json_value *secrets = given_of(draft, "secrets"),
                            *by_old_name = given_of(draft, "tool_exec_environment_variables");
    int r = 0;

    if (!secrets || (!draft->put->patch && secrets->type == JSON_OBJECT && secrets->count == 0 &&
                     by_old_name)) /* when made, an empty one gives way */
        secrets = by_old_name;
    if (!secrets)
        return put_old(draft, "secrets", "[]"), 0;
    if (secrets->type != JSON_OBJECT || secrets->count > AGENT_SECRETS_MAX)
        return invalid(draft->err, "secrets: must be an object of at most %u strings", AGENT_SECRETS_MAX);
    json_key_array(draft->json, "secrets");
    for (const struct json_value *item = secrets->first; item && r == 0; item = item->next)
        r = put_secret(draft, item);
    json_end(draft->json);
    return r;
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

static bool is_ours(const struct json_value *member)
{
    static const char words[] =
        "id name project_id tools tool_ids state secrets tool_exec_environment_variables created_by_id "
        "last_updated_by_id created_at updated_at organization_id";

    return str_has_word(words, member->key, member->key_len);
}

static int put_other(struct draft *draft)
{
    const struct json_value *old = old_of(draft, "other");
    size_t n = 0;

    json_key_object(draft->json, "other");
    for (const struct json_value *item = old ? old->first : NULL; item; item = item->next, n++)
        if (!json_get(draft->given, item->key))
            json_key_raw(draft->json, item->key, item->raw, item->raw_len);
    for (const struct json_value *item = draft->given ? draft->given->first : NULL; item; item = item->next)
        if (!is_ours(item)) {
            json_key_raw(draft->json, item->key, item->raw, item->raw_len);
            n++;
        }
    json_end(draft->json);
    return n > OTHER_MAX ? invalid(draft->err, "an agent has at most %u members", OTHER_MAX) : 0;
}

static int put_ends(struct draft *draft)
{
    const char *actor = draft->put->actor;

    if (draft->current)
        put_old(draft, "created_by_id", "null");
    else
        json_key_text(draft->json, "created_by_id", actor);
    json_key_text(draft->json, "last_updated_by_id", actor);
    return 0;
}

static int write_all(struct draft *draft)
{
    static int (*const parts[])(struct draft * draft) = {put_tools, put_state, put_secrets, put_other, put_ends};
    int r = put_text(draft, "name");

    if (r == 0)
        r = put_text(draft, "project_id");
    for (size_t i = 0; i < ARRAY_SIZE(parts) && r == 0; i++)
        r = parts[i](draft);
    return r;
}

static int finish(struct json *json, struct brig_err *err)
{
    json_end(json);
    int r = json_finish(json);
    return r < 0 ? err_set(err, r == -EMSGSIZE ? BRIG_E_TOO_LARGE : BRIG_E_NOMEM, -r, "agent: write it down") : 0;
}

static int put_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct agent_put *put = make_ctx;
    struct json json = JSON_INIT(doc);
    struct json_doc *given = NULL;

    if (put->patch && !current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "agent %s not found", put->id);
    int r = json_read(put->text, put->len, JSON_READ_VALUES, &given, err);
    if (r < 0)
        return r;
    struct draft draft = {.put = put, .given = json_root(given), .current = current, .json = &json, .err = err};
    json_object(&json);
    r = write_all(&draft);
    if (r == 0)
        r = finish(&json, err);
    json_doc_free(given);
    return r;
}

/* ---- one member --------------------------------------------------------------------------------------- */

/* Everything as it is but one member, which put writes. */
static int make_with(const struct agent_put *put, const struct object *current, struct buf *doc, struct brig_err *err,
                     const char *name,
                     void (*write)(const struct agent_put *put, const struct json_value *old, struct json *json))
{
    struct json json = JSON_INIT(doc);
    bool seen = false;

    if (!current)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "agent %s not found", put->id);
    json_object(&json);
    for (const struct json_value *item = current->json->first; item; item = item->next) {
        json_key(&json, item->key);
        if (str_eq(item->key, name)) {
            write(put, item, &json);
            seen = true;
        } else if (put->actor[0] && str_eq(item->key, "last_updated_by_id")) {
            json_string(&json, put->actor);
        } else {
            json_raw(&json, item->raw, item->raw_len);
        }
    }
    if (!seen)
        json_key(&json, name), write(put, NULL, &json);
    return finish(&json, err);
}

static void write_tools(const struct agent_put *put, const struct json_value *old, struct json *json)
{
    json_array(json);
    for (const struct json_value *item = old && old->type == JSON_ARRAY ? old->first : NULL; item; item = item->next)
        if (!str_eq(item->string, put->tool_id))
            json_string(json, item->string);
    if (put->on)
        json_string(json, put->tool_id);
    json_end(json);
}

static int attach_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    const struct agent_put *put = make_ctx;

    if (current && agent_has_tool(current, put->tool_id) == put->on)
        return 1;
    return make_with(put, current, doc, err, "tools", write_tools);
}

static void write_state(const struct agent_put *put, const struct json_value *old UNUSED, struct json *json)
{
    json_raw(json, put->text, put->len);
}

static int state_make(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    return make_with(make_ctx, current, doc, err, "state", write_state);
}

/* ---- asking ------------------------------------------------------------------------------------------- */

static void put_end(void *make_ctx)
{
    struct agent_put *put = make_ctx;

    crypto_secret_free(put->text, put->len);
    mem_free(put);
}

static int put_create(struct agents *agents, const char *org, const char *actor, const char *id, const char *text,
                      size_t len, struct agent_put **ret, struct brig_err *err)
{
    struct agent_put *put = mem_zalloc(sizeof *put);

    if (!put)
        return err_nomem(err);
    *put = (struct agent_put){.agents = agents, .patch = id != NULL, .len = len};
    int r = str_copy(put->org, sizeof put->org, org);
    if (r == 0)
        r = str_copy(put->actor, sizeof put->actor, actor ? actor : "");
    if (r == 0)
        r = id ? str_copy(put->id, sizeof put->id, id) : objects_new_id("agent", put->id);
    if (r < 0)
        r = err_usage(err, "agent: an id is too long");
    if (r == 0 && !(put->text = crypto_secret_alloc(len)))
        r = err_nomem(err);
    if (r < 0)
        return put_end(put), r;
    memcpy(put->text, text, len);
    *ret = put;
    return 0;
}

static int submit(struct agent_put *put, objects_make_fn *make, uint64_t version, objects_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    const struct objects_change change = {.org = put->org,
                                          .id = put->id,
                                          .expect_version = version,
                                          .make = make,
                                          .end = put_end,
                                          .make_ctx = put,
                                          .done = done,
                                          .ctx = ctx};

    return objects_change(put->agents->objects, &change, err);
}

int agents_put(struct agents *agents, const char *org, const char *actor, const char *id, const struct json_value *json,
               objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct agent_put *put = NULL;

    if (!json || json->type != JSON_OBJECT)
        return invalid(err, "agent: must be an object");
    int r = put_create(agents, org, actor, id, json->raw, json->raw_len, &put, err);
    return r < 0 ? r : submit(put, put_make, 0, done, ctx, err);
}

int agents_attach(struct agents *agents, const char *org, const char *actor, const char *id, const char *tool_id,
                  bool on, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct agent_put *put = NULL;

    if (!objects_id_ok("tool", tool_id))
        return err_usage(err, "Invalid tool ID format: %.60s. Expected format: 'tool-<uuid4>'", tool_id);
    int r = put_create(agents, org, actor, id, "", 0, &put, err);
    if (r < 0)
        return r;
    put->on = on;
    (void)!str_copy(put->tool_id, sizeof put->tool_id, tool_id); /* of a known length */
    return submit(put, attach_make, 0, done, ctx, err);
}

int agents_set_state(struct agents *agents, const char *org, const char *id, uint64_t version, const char *state,
                     size_t len, objects_done_fn *done, void *ctx, struct brig_err *err)
{
    struct agent_put *put = NULL;
    struct json_doc *doc = NULL;
    int r = json_read(state, len, JSON_READ_VALUES, &doc, err);

    if (r == 0)
        r = agent_state_check(json_root(doc), err);
    if (r == 0)
        r = put_create(agents, org, NULL, id, json_root(doc)->raw, json_root(doc)->raw_len, &put, err);
    json_doc_free(doc);
    return r < 0 ? r : submit(put, state_make, version, done, ctx, err);
}
