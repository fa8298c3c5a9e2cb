/* SPDX-License-Identifier: Apache-2.0 */
/*
 * letta.c: see letta.h. Two rules hold for all of these routes: what is refused names the field and never the value,
 * and whoever calls is judged by the key; the header user_id only chooses the organisation where the key may choose one
 * (caller_choose_org()).
 */
#include "letta/letta.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "http/errors.h"

/* ---- errors ---------------------------------------------------------------------------------------------- */

static void answer_detail(struct request *rq, unsigned status, const char *detail)
{
    AUTO_BUF struct buf out = BUF_INIT(64u << 10);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    if (status == 422)
        json_key_string(&json, "trace_id", rq->caller.request_id);
    json_key_string(&json, "detail", detail);
    json_end(&json);
    if (status >= 400)
        rq->api->counters.failures++;
    request_json(rq, status, &json);
}

void letta_refuse(struct request *rq, unsigned status, const char *format, ...)
{
    char detail[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    answer_detail(rq, status, detail);
}

static void fail(struct request *rq, const struct brig_err *err)
{
    unsigned status = error_status(err->code);

    if (err->code == BRIG_E_UNAUTHENTICATED || err->code == BRIG_E_FORBIDDEN)
        request_denied(rq, err->message);
    answer_detail(rq, status, err->code == BRIG_E_UNAUTHENTICATED ? "Unauthorized" : err->message);
}

void letta_invalid(struct request *rq, const char *where, const char *field, const char *type, const char *format, ...)
{
    char message[512];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    letta_refuse(rq, 422, "[{'type': '%s', 'loc': ('%s'%s%s%s), 'msg': %s%s%s}]", type, where, field ? ", '" : "",
                 field ? field : "", field ? "'" : ",", strchr(message, '\'') ? "\"" : "'", message,
                 strchr(message, '\'') ? "\"" : "'");
}

bool letta_shows_values(const struct request *rq)
{
    return config_get(rq->api->config)->tools_reveal && caller_standing(&rq->caller) >= STANDING_USER;
}

void letta_not_found(struct request *rq, const char *kind, const char *id)
{
    letta_refuse(rq, 404, "%s not found with id='%.128s'", kind, id);
}

/* ---- the request ----------------------------------------------------------------------------------------- */

/* The header user_id: "user-<uuid4>" is of the organisation with the same number. */
static bool begin(struct request *rq)
{
    const char *user = rq->x ? http_field(exchange_head(rq->x), "user_id") : NULL;
    char org[sizeof rq->caller.org_id];

    if (!user)
        return true;
    if (!objects_id_ok("user", user)) {
        letta_refuse(rq, 400, "INVALID_ARGUMENT: Invalid user ID format: %.64s. Expected format: 'user-<uuid4>'", user);
        return false;
    }
    if (str_format(org, sizeof org, "org-%s", user + strlen("user-")) > 0)
        caller_choose_org(rq->api->accounts, org, &rq->caller);
    return true;
}

/* The field of Letta's password, with a key in it. */
static const char *key(const struct http_head *head)
{
    const char *field = http_field(head, "X-BARE-PASSWORD");

    return field && strncmp(field, "password ", 9) == 0 ? field + 9 : NULL;
}

static void bad_body(struct request *rq, const struct brig_err *syntax)
{
    if (syntax)
        letta_invalid(rq, "body", NULL, "json_invalid", "JSON decode error: %s", syntax->message);
    else
        letta_invalid(rq, "body", NULL, "model_attributes_type", "Input should be a valid dictionary");
}

const struct adapter letta_adapter = {.fail = fail, .bad_body = bad_body, .begin = begin, .key = key, .slashes = true};

const char *letta_user(const struct request *rq, char out[API_AUTHOR])
{
    const char *user = rq->x ? http_field(exchange_head(rq->x), "user_id") : NULL;

    /* One user per organisation, with its number: so a user_id that was made here leads back to it. */
    if (!user || !objects_id_ok("user", user) || !rq->caller.socket || str_copy(out, API_AUTHOR, user) < 0)
        return api_author(&rq->caller, out);
    return out;
}

bool letta_path_id(struct request *rq, const char *prefix, const char *param, const char *id)
{
    if (objects_id_ok(prefix, id))
        return true;
    letta_invalid(rq, "path", param, "string_pattern_mismatch", "String should match pattern '%s-{uuid4}'", prefix);
    return false;
}

static MUST_CHECK bool letta_query_number(struct request *rq, const char *name, uint64_t *ret)
{
    const char *text = request_query(rq, name);
    uint64_t value = 0;

    if (!text)
        return true;
    if (parse_u64(text, &value) < 0 || value > LETTA_LIST_MAX) {
        letta_invalid(rq, "query", name, "int_parsing", "Input should be a valid integer from 0 to %u", LETTA_LIST_MAX);
        return false;
    }
    *ret = value;
    return true;
}

bool letta_query_has(const struct request *rq, const char *name, const char *value, bool *ret_given)
{
    const struct http_target *target = exchange_target(rq->x);
    bool has = false;

    *ret_given = false;
    for (size_t i = 0; i < target->n_query; i++)
        if (str_eq(target->query[i].name, name)) {
            *ret_given = true;
            has = has || str_eq(target->query[i].value, value);
        }
    return has;
}

bool letta_only_members(struct request *rq, const char *known)
{
    const struct json_value *member = api_unknown_member(rq, known);
    char name[65];

    if (!member)
        return true;
    snprintf(name, sizeof name, "%.64s", member->key);
    return letta_invalid(rq, "body", name, "extra_forbidden", "Extra inputs are not permitted"), false;
}

bool letta_member(struct request *rq, const char *name, enum json_type type, bool required,
                  const struct json_value **ret)
{
    static const char *const types[JSON_TYPE_MAX][2] = {{"none", "null"},
                                                        {"bool_type", "a valid boolean"},
                                                        {"int_type", "a valid integer"},
                                                        {"string_type", "a valid string"},
                                                        {"list_type", "a valid list"},
                                                        {"dict_type", "a valid dictionary"}};
    const struct json_value *value = json_get(rq->json, name);

    *ret = NULL;
    if (!value && required)
        return letta_invalid(rq, "body", name, "missing", "Field required"), false;
    if (!value || (value->type == JSON_NULL && !required))
        return true;
    if (value->type != type)
        return letta_invalid(rq, "body", name, types[type][0], "Input should be %s", types[type][1]), false;
    *ret = value;
    return true;
}

const struct object *letta_find(struct request *rq, const struct objects *objects, const char *prefix,
                                const char *param, const char *kind)
{
    if (!letta_path_id(rq, prefix, param, rq->arg[0]))
        return NULL;
    const struct object *object = objects_find(objects, rq->caller.org_id, rq->arg[0]);
    if (!object)
        letta_not_found(rq, kind, rq->arg[0]);
    return object;
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

void letta_answer(struct request *rq, letta_put_fn *put, void *ctx, const struct object *object)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    put(ctx, &json, object);
    request_json(rq, 200, &json);
    if (out.data)
        crypto_wipe(out.data, out.len);
}

void letta_put_head(struct json *json, const struct object *object)
{
    json_object(json);
    api_put(json, "created_by_id", json_get(object->json, "created_by_id"));
    api_put(json, "last_updated_by_id", json_get(object->json, "last_updated_by_id"));
    api_put_time(json, "created_at", object->created_at_ns);
    api_put_time(json, "updated_at", object->updated_at_ns);
    json_key_string(json, "id", object->id);
}

void letta_answer_null(struct request *rq)
{
    request_text(rq, 200, "application/json", "null", 4);
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

static const struct object *forward(const struct letta_list *list, const struct object *object)
{
    return list->descending ? object->prev : object->next;
}

static const struct object *backward(const struct letta_list *list, const struct object *object)
{
    return list->descending ? object->next : object->prev;
}

static bool wanted(const struct letta_list *list, const struct object *object)
{
    return !list->wanted || list->wanted(list->ctx, object);
}

/* The cursor of that name: *ret, or NULL without one. false: the refusal was sent. */
static bool read_cursor(struct request *rq, const struct letta_list *list, const char *name, const struct object **ret)
{
    const char *id = request_query(rq, name);

    *ret = id ? objects_find(list->objects, rq->caller.org_id, id) : NULL;
    if (!id || *ret)
        return true;
    return letta_refuse(rq, 404, "No %s found with id %.128s", list->kind, id), false;
}

/* Where the page that ends before a cursor begins: so many that are wanted back from it. */
static const struct object *page_before(const struct letta_list *list, const struct object *end, uint64_t limit)
{
    const struct object *first = end;

    for (const struct object *o = backward(list, end); o && limit > 0; o = backward(list, o))
        if (wanted(list, o)) {
            first = o;
            limit--;
        }
    return first;
}

void letta_list(struct request *rq, const struct letta_list *list)
{
    const char *org = rq->caller.org_id;
    const struct object *after = NULL, *before = NULL;
    uint64_t limit = list->limit;
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    if (!letta_query_number(rq, "limit", &limit) || !read_cursor(rq, list, "after", &after) ||
        !read_cursor(rq, list, "before", &before))
        return;
    const struct object *at = after              ? forward(list, after)
                              : list->descending ? objects_last(list->objects, org)
                                                 : objects_first(list->objects, org);
    if (before && !after)
        at = page_before(list, before, limit);
    json_array(&json);
    for (; at && at != before && limit > 0; at = forward(list, at))
        if (wanted(list, at)) {
            list->put(list->ctx, &json, at);
            limit--;
        }
    json_end(&json);
    request_json(rq, 200, &json);
}

void letta_deleted(void *ctx, const struct object *object UNUSED, const struct brig_err *err)
{
    request_done(ctx, err);
}
