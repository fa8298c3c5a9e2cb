/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_doc.c: see tool_doc.h. The document has Letta's members by their names, those that are null left out, and
 * ours in `brig`. What a member may hold is judged in two places: its type here (422, as Letta's), what it means
 * by tool_parse() (400).
 */
#include "letta/tool_doc.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

/* ---- the body -------------------------------------------------------------------------------------------- */

static bool check_requirements(struct request *rq, const char *name)
{
    const struct json_value *list = NULL;

    if (!letta_member(rq, name, JSON_ARRAY, false, &list))
        return false;
    for (const struct json_value *item = list ? list->first : NULL; item; item = item->next) {
        const struct json_value *package = json_get(item, "name"), *version = json_get(item, "version");
        const bool ok = package && package->type == JSON_STRING && package->len > 0 &&
                        (!version || version->type == JSON_STRING || version->type == JSON_NULL);
        if (!ok) {
            letta_invalid(rq, "body", name, "string_too_short",
                          "Each must be an object with a name of at least 1 character, and a version that is text");
            return false;
        }
    }
    return true;
}

static bool check_tags(struct request *rq)
{
    const struct json_value *tags = NULL;

    if (!letta_member(rq, "tags", JSON_ARRAY, false, &tags))
        return false;
    for (const struct json_value *item = tags ? tags->first : NULL; item; item = item->next)
        if (item->type != JSON_STRING)
            return letta_invalid(rq, "body", "tags", "string_type", "Input should be a valid string"), false;
    return true;
}

static bool check_limit(struct request *rq)
{
    const struct json_value *limit = NULL;

    if (!letta_member(rq, "return_char_limit", JSON_NUMBER, false, &limit))
        return false;
    if (!limit || (limit->integer && limit->i64 >= 1 && limit->i64 <= 1000000))
        return true;
    letta_invalid(rq, "body", "return_char_limit", "int_range", "Input should be an integer from 1 to 1000000");
    return false;
}

static bool is_typescript(const struct json_value *type)
{
    enum tool_language language;

    return type && type->type == JSON_STRING && tool_language_parse(type->string, &language) == 0 &&
           language != TOOL_PYTHON;
}

bool tool_body_check(struct request *rq, bool update)
{
    static const char known[] =
        "source_code source_type json_schema args_json_schema description tags return_char_limit "
        "pip_requirements npm_requirements default_requires_approval enable_parallel_execution brig";
    static const struct {
        const char *name;
        enum json_type type;
    } members[] = {{"source_type", JSON_STRING},
                   {"json_schema", JSON_OBJECT},
                   {"args_json_schema", JSON_OBJECT},
                   {"description", JSON_STRING},
                   {"default_requires_approval", JSON_BOOL},
                   {"enable_parallel_execution", JSON_BOOL},
                   {"brig", JSON_OBJECT},
                   {"metadata_", JSON_OBJECT}};
    const struct json_value *value = NULL;

    if (!update && !letta_only_members(rq, known))
        return false;
    if (!letta_member(rq, "source_code", JSON_STRING, !update, &value))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (!letta_member(rq, members[i].name, members[i].type, false, &value))
            return false;
    if (!check_requirements(rq, "pip_requirements") || !check_requirements(rq, "npm_requirements") || !check_tags(rq) ||
        !check_limit(rq))
        return false;
    const struct json_value *schema = json_get(rq->json, "json_schema");
    if (!update && is_typescript(json_get(rq->json, "source_type")) && (!schema || schema->type == JSON_NULL)) {
        letta_invalid(
            rq, "body", NULL, "value_error",
            "Value error, TypeScript tools require an explicit json_schema parameter. Only Python tools have theirs "
            "derived from the source.");
        return false;
    }
    return true;
}

/* ---- the document ---------------------------------------------------------------------------------------- */

/* What the document will have for a member: the body's, or for an update the old one's; NULL: none. */
static const struct json_value *pick(const struct tool_doc *in, const char *name)
{
    const struct json_value *value = json_get(in->body, name);

    if (value && value->type != JSON_NULL)
        return value;
    value = in->update && in->old ? json_get(in->old->json, name) : NULL;
    return value && value->type != JSON_NULL ? value : NULL;
}

static void put_given(struct json *json, const char *key, const struct json_value *value)
{
    if (value)
        api_put(json, key, value);
}

#define WORD_SIZE 64u
/* Takes the next of the words; false: there is none. */
static bool next_word(const char **words, char word[WORD_SIZE])
{
    size_t n = strcspn(*words, " ");

    memcpy(word, *words, n);
    word[n] = '\0';
    *words += n + ((*words)[n] == ' ');
    return n > 0;
}

static void put_metadata(const struct tool_doc *in, struct json *json)
{
    const struct json_value *given = pick(in, "metadata_");

    json_key_object(json, "metadata_");
    for (const struct json_value *m = given ? given->first : NULL; m; m = m->next)
        if (!str_eq(m->key, "tool_hash") && !(in->modal && str_eq(m->key, "sandbox")))
            api_put(json, m->key, m);
    if (in->hash)
        json_key_string(json, "tool_hash", in->hash);
    if (in->modal)
        json_key_string(json, "sandbox", "modal");
    json_end(json);
}

static void put_tags(const struct tool_doc *in, struct json *json)
{
    const struct json_value *tags = pick(in, "tags"), *before = in->old ? json_get(in->old->json, "tags") : NULL;

    if (before && (!tags || (tags->count == 0 && !in->update)))
        tags = before; /* empty ones never replace, but by an update that says so */
    json_key(json, "tags");
    if (tags) {
        json_raw(json, tags->raw, tags->raw_len);
    } else {
        json_array(json);
        json_end(json);
    }
}

/* Name and description are the schema's. */
static void put_named(const struct tool_doc *in, const struct json_value *schema, struct json *json)
{
    const struct json_value *description = pick(in, "description"), *name = json_get(schema, "name");

    put_given(json, "name", name);
    if (!description)
        description = json_get(schema, "description");
    put_given(json, "description", description && description->type == JSON_STRING ? description : NULL);
    put_given(json, "json_schema", schema);
}

static void put_hand(struct json *json, const char *name, const struct tool_hand *hand)
{
    json_key_object(json, name);
    json_key_string(json, "key_id", hand->key_id ? hand->key_id : "");
    json_key_string(json, "role", standing_name(hand->as));
    json_end(json);
}

static void put_rest(const struct tool_doc *in, struct json *json)
{
    const struct json_value *limit = pick(in, "return_char_limit"), *parallel = pick(in, "enable_parallel_execution"),
                            *project = pick(in, "project_id"),
                            *maker = in->old ? json_get(in->old->json, "created_by_id") : NULL;

    json_key_u64(json, "return_char_limit", limit ? (uint64_t)limit->i64 : TOOL_RETURN_LIMIT);
    put_given(json, "pip_requirements", pick(in, "pip_requirements"));
    put_given(json, "npm_requirements", pick(in, "npm_requirements"));
    put_given(json, "default_requires_approval", pick(in, "default_requires_approval"));
    json_key_bool(json, "enable_parallel_execution", parallel && parallel->boolean);
    if (maker)
        api_put(json, "created_by_id", maker);
    else
        json_key_string(json, "created_by_id", in->user);
    json_key_string(json, "last_updated_by_id", in->user);
    if (in->project)
        json_key_string(json, "project_id", in->project);
    else
        put_given(json, "project_id", project);
    put_given(json, "brig", pick(in, "brig"));
    put_hand(json, "registrant", &in->registrant);
    put_hand(json, "guard", &in->guard);
}

int tool_doc_build(const struct tool_doc *in, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    struct json_doc *derived = NULL;
    const struct json_value *schema = pick(in, "json_schema"), *type = pick(in, "source_type");
    int r = in->schema ? json_read(in->schema, in->schema_len, JSON_READ_VALUES, &derived, err) : 0;

    if (r < 0)
        return r;
    if (derived)
        schema = json_root(derived);
    json_object(&json);
    put_named(in, schema, &json);
    json_key_string(&json, "tool_type", "custom");
    if (type)
        api_put(&json, "source_type", type);
    else
        json_key_string(&json, "source_type", "python");
    put_given(&json, "source_code", pick(in, "source_code"));
    put_given(&json, "args_json_schema", pick(in, "args_json_schema"));
    put_tags(in, &json);
    put_metadata(in, &json);
    put_rest(in, &json);
    json_end(&json);
    json_doc_free(derived);
    return json_finish(&json) < 0 ? err_set(err, BRIG_E_TOO_LARGE, 0, "the tool is larger than %u bytes", TOOL_DOC_MAX)
                                  : 0;
}

int tool_doc_floating(const struct json_value *body, const char *schema, size_t schema_len, struct buf *out,
                      struct brig_err *err)
{
    static const char members[] = "source_code source_type args_json_schema pip_requirements npm_requirements "
                                  "return_char_limit brig metadata_ name";
    struct json json = JSON_INIT(out);
    const struct json_value *given = json_get(body, "json_schema");
    char name[WORD_SIZE];

    json_object(&json);
    for (const char *words = members; next_word(&words, name);) {
        const struct json_value *value = json_get(body, name);
        put_given(&json, name, value && value->type != JSON_NULL ? value : NULL);
    }
    if (schema)
        json_key_raw(&json, "json_schema", schema, schema_len);
    else
        put_given(&json, "json_schema", given && given->type != JSON_NULL ? given : NULL);
    json_end(&json);
    return json_finish(&json) < 0 ? err_set(err, BRIG_E_TOO_LARGE, 0, "the tool is larger than %u bytes", TOOL_DOC_MAX)
                                  : 0;
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

void tool_doc_put(void *ctx UNUSED, struct json *json, const struct object *object)
{
    static const char members[] =
        "tool_type description source_type name tags source_code json_schema args_json_schema return_char_limit "
        "pip_requirements npm_requirements default_requires_approval enable_parallel_execution created_by_id "
        "last_updated_by_id metadata_ project_id";
    const struct json_value *ours = json_get(object->json, "brig");
    char name[WORD_SIZE];

    json_object(json);
    json_key_string(json, "id", object->id);
    for (const char *words = members; next_word(&words, name);)
        api_put(json, name, json_get(object->json, name));
    json_key_object(json, "brig");
    json_key_u64(json, "version", object->version);
    json_key_object(json, "registrant");
    json_key_string(json, "role", standing_name(tool_of(object)->registrant.as));
    json_end(json);
    for (const struct json_value *m = ours ? ours->first : NULL; m; m = m->next)
        if (!str_eq(m->key, "version"))
            api_put(json, m->key, m);
    json_end(json);
    json_end(json);
}
