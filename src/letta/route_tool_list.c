/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_tool_list.c: finding tools: lists with filters, counts, a search by words, and the schema of a source that is
 * not kept. All tools here are of the type `custom`: Letta's own (memory, files, messages) are part of its
 * agents, which are not here, so add-base-tools adds none.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "letta/letta_routes.h"
#include "letta/tool_doc.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "run/execute.h"

#define SEARCH_DEFAULT 50u
#define SEARCH_WORDS 32u

static const char *text_of(const struct object *object, const char *name)
{
    const struct json_value *value = json_get(object->json, name);

    return value && value->type == JSON_STRING ? value->string : "";
}

/* ---- filters of a query ---------------------------------------------------------------------------------- */

static bool word_true(const char *text)
{
    return text && (strcasecmp(text, "true") == 0 || str_eq(text, "1"));
}

static bool wanted(void *ctx, const struct object *object)
{
    const struct request *rq = ctx;
    const char *name = request_query(rq, "name"), *search = request_query(rq, "search"),
               *project = rq->x ? http_field(exchange_head(rq->x), "X-Project-Id") : NULL;
    bool given = false;

    if (name && !str_eq(name, text_of(object, "name")))
        return false;
    if (search && !strcasestr(text_of(object, "name"), search))
        return false;
    if (!letta_query_has(rq, "names", text_of(object, "name"), &given) && given)
        return false;
    if (!letta_query_has(rq, "tool_ids", object->id, &given) && given)
        return false;
    if (!letta_query_has(rq, "tool_types", text_of(object, "tool_type"), &given) && given)
        return false;
    if (letta_query_has(rq, "exclude_tool_types", text_of(object, "tool_type"), &given))
        return false;
    const struct json_value *own = json_get(object->json, "project_id");
    if (project && own && own->type == JSON_STRING && !str_eq(own->string, project))
        return false; /* of another project; those of none are everybody's */
    return !word_true(request_query(rq, "return_only_letta_tools"));
}

static bool types_ok(struct request *rq)
{
    static const char types[] =
        " custom letta_core letta_memory_core letta_multi_agent_core letta_sleeptime_core letta_voice_sleeptime_core "
        "letta_builtin letta_files_core "
        "external_langchain external_composio external_mcp ";
    const struct http_target *target = exchange_target(rq->x);

    for (size_t i = 0; i < target->n_query; i++) {
        const char *name = target->query[i].name;
        char word[64];
        if (!str_eq(name, "tool_types") && !str_eq(name, "exclude_tool_types"))
            continue;
        if (str_format(word, sizeof word, " %s ", target->query[i].value) < 0 || !strstr(types, word))
            return letta_refuse(rq, 400, "INVALID_ARGUMENT: Invalid tool type: %.64s", target->query[i].value), false;
    }
    return true;
}

void route_tool_list(struct request *rq)
{
    const char *order = request_query(rq, "order");
    const struct letta_list list = {.objects = rq->api->registry,
                                    .kind = "Tool",
                                    .wanted = wanted,
                                    .put = tool_doc_put,
                                    .ctx = rq,
                                    .limit = LETTA_LIST_DEFAULT,
                                    .descending = !order || str_eq(order, "desc")};

    if (order && !str_eq(order, "asc") && !str_eq(order, "desc"))
        letta_invalid(rq, "query", "order", "literal_error", "Input should be 'asc' or 'desc'");
    else if (types_ok(rq))
        letta_list(rq, &list);
}

static void answer_number(struct request *rq, uint64_t value)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%llu", (unsigned long long)value);

    request_text(rq, 200, "application/json", text, (size_t)len);
}

void route_tool_count(struct request *rq)
{
    uint64_t n = 0;

    if (!types_ok(rq))
        return;
    for (const struct object *o = objects_first(rq->api->registry, rq->caller.org_id); o; o = o->next)
        n += wanted(rq, o);
    answer_number(rq, n);
}

void route_tool_base(struct request *rq)
{
    request_text(rq, 200, "application/json", "[]", 2);
}

/* ---- search by words ------------------------------------------------------------------------------------- */

struct hit {
    const struct object *object;
    unsigned score;
};

static bool lists(const struct json_value *list, const char *text)
{
    for (const struct json_value *item = list && list->type == JSON_ARRAY ? list->first : NULL; item; item = item->next)
        if (item->type == JSON_STRING && str_eq(item->string, text))
            return true;
    return false;
}

static bool has_tag(const struct object *object, const struct json_value *tags)
{
    const struct json_value *own = json_get(object->json, "tags");

    for (const struct json_value *item = tags && tags->type == JSON_ARRAY ? tags->first : NULL; item; item = item->next)
        if (item->type == JSON_STRING && lists(own, item->string))
            return true;
    return !tags || tags->type != JSON_ARRAY || tags->count == 0;
}

/* How well a tool fits: a word in the name counts most; 0: not at all. */
static unsigned score(const struct object *object, const char *query)
{
    char words[1024], *save = NULL;
    unsigned sum = 0, n = 0;

    str_cut(words, sizeof words, query);
    for (char *word = strtok_r(words, " \t\r\n,.;_-", &save); word && n < SEARCH_WORDS;
         word = strtok_r(NULL, " \t\r\n,.;_-", &save), n++) {
        sum += strcasestr(text_of(object, "name"), word) ? 4 : 0;
        sum += strcasestr(text_of(object, "description"), word) ? 2 : 0;
        sum += strcasestr(text_of(object, "source_code"), word) ? 1 : 0;
    }
    return n == 0 ? 1 : sum;
}

static int by_score(const void *a, const void *b)
{
    const struct hit *left = a, *right = b;

    return left->score != right->score ? (left->score < right->score ? 1 : -1)
                                       : strcmp(left->object->id, right->object->id);
}

static void answer_hits(struct request *rq, const struct hit *hits, size_t n)
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    json_array(&json);
    for (size_t i = 0; i < n; i++) {
        json_object(&json);
        json_key(&json, "tool"), tool_doc_put(NULL, &json, hits[i].object);
        json_key_null(&json, "embedded_text");
        json_key_u64(&json, "fts_rank", i + 1);
        json_key_null(&json, "vector_rank");
        json_key_u64(&json, "combined_score", hits[i].score);
        json_end(&json);
    }
    json_end(&json);
    request_json(rq, 200, &json);
}

void route_tool_search(struct request *rq)
{
    const struct objects *objects = rq->api->registry;
    const struct json_value *query = NULL, *limit = NULL, *types = NULL, *tags = NULL;
    size_t n = 0;

    if (!letta_only_members(rq, "query search_mode tool_types tags limit") ||
        !letta_member(rq, "query", JSON_STRING, false, &query) ||
        !letta_member(rq, "limit", JSON_NUMBER, false, &limit) ||
        !letta_member(rq, "tool_types", JSON_ARRAY, false, &types) ||
        !letta_member(rq, "tags", JSON_ARRAY, false, &tags))
        return;
    if (limit && (!limit->integer || limit->i64 < 1 || limit->i64 > 100))
        return letta_invalid(rq, "body", "limit", "int_range", "Input should be an integer from 1 to 100");
    AUTO_FREE struct hit *hits = mem_realloc_array(NULL, objects_count(objects, rq->caller.org_id) + 1, sizeof *hits);
    if (!hits)
        return request_refuse(rq, BRIG_E_NOMEM, "out of memory");
    for (const struct object *o = objects_first(objects, rq->caller.org_id); o; o = o->next) {
        unsigned points = score(o, query ? query->string : "");
        if (points > 0 && has_tag(o, tags) && (!types || types->count == 0 || lists(types, "custom")))
            hits[n++] = (struct hit){o, points};
    }
    qsort(hits, n, sizeof *hits, by_score);
    size_t most = limit ? (size_t)limit->i64 : SEARCH_DEFAULT;
    answer_hits(rq, hits, n < most ? n : most);
}

/* ---- the schema of a source ------------------------------------------------------------------------------ */

static void on_schema(void *ctx, const char *json, size_t len, const struct brig_err *err)
{
    struct request *rq = ctx;

    if (err && (err->code == BRIG_E_USAGE || err->code == BRIG_E_INVALID))
        letta_refuse(rq, 400, "%s", err->message);
    else if (err)
        request_fail(rq, err);
    else
        request_text(rq, 200, "application/json", json, len);
}

void route_tool_schema(struct request *rq)
{
    const struct json_value *code = NULL, *type = NULL;
    struct brig_err err = {0};

    if (!letta_only_members(rq, "code source_type") || !letta_member(rq, "code", JSON_STRING, true, &code) ||
        !letta_member(rq, "source_type", JSON_STRING, false, &type))
        return;
    if (executor_schema(rq->api->executor, &rq->caller, code->string, code->len, type ? type->string : "python", NULL,
                        on_schema, rq, &err) < 0)
        on_schema(rq, NULL, 0, &err);
}
