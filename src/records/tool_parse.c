/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_parse.c: a tool's document into what a run needs, everything checked. The document is a tenant's: every member
 * is of its type and within its bounds, or the whole is refused with the member's name. Strings are NUL-free, since
 * they become names, files and arguments of programs. What only the run can judge (are requirements allowed, is there
 * such a secret, is the policy one) is left to it and kept as JSON.
 */
#include "base/ascii.h"
#include "records/registry.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/requirement.h"

#define TOOL_REQUIREMENT_MAX 512u
#define DESCRIPTION_MAX 65536u
#define TAG_MAX 256u
#define RETURN_LIMIT_MAX 1000000
#define RATE_MAX INT64_C(1000000)
#define WINDOW_MAX_S INT64_C(86400)
#define COMMAND_MAX 256u
#define PROVIDER_MAX 32u

static const char *const language_names[] = {"python", "javascript", "typescript", "bash", "command"};
_Static_assert(ARRAY_SIZE(language_names) == TOOL_LANGUAGE_MAX, "a name for each");

/* they are paths of the API */
static const char *const reserved[] = {"run", "count", "search", "generate-schema", "add-base-tools"};

const char *tool_language_name(enum tool_language language)
{
    return language_names[language];
}

int tool_language_parse(const char *text, enum tool_language *ret)
{
    static const struct {
        const char *name;
        enum tool_language language;
    } others[] = {{"py", TOOL_PYTHON},
                  {"node", TOOL_JAVASCRIPT},
                  {"js", TOOL_JAVASCRIPT},
                  {"ts", TOOL_TYPESCRIPT},
                  {"sh", TOOL_BASH}};

    for (int i = 0; i < TOOL_LANGUAGE_MAX; i++)
        if (str_eq(text, language_names[i])) {
            *ret = (enum tool_language)i;
            return 0;
        }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (str_eq(text, others[i].name)) {
            *ret = others[i].language;
            return 0;
        }
    return -EINVAL;
}

/* ---- members ------------------------------------------------------------------------------------------ */

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

/* A member that is there and not null. */
static const struct json_value *member(const struct json_value *object, const char *name)
{
    const struct json_value *value = json_get(object, name);

    return value && value->type != JSON_NULL ? value : NULL;
}

static int get_text(const struct json_value *object, const char *name, size_t max, const char **ret,
                    struct brig_err *err)
{
    const struct json_value *value = member(object, name);

    if (!value)
        return 0;
    if (value->type != JSON_STRING)
        return invalid(err, "%s: must be a string", name);
    if (strlen(value->string) != value->len)
        return invalid(err, "%s: has a NUL in it", name);
    if (value->len > max)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "%s: has %zu bytes, at most %zu are allowed", name, value->len, max);
    *ret = value->string;
    return 0;
}

static int get_bool(const struct json_value *object, const char *name, bool *ret, struct brig_err *err)
{
    const struct json_value *value = member(object, name);

    if (value && value->type != JSON_BOOL)
        return invalid(err, "%s: must be true or false", name);
    if (value)
        *ret = value->boolean;
    return 0;
}

static int get_count(const struct json_value *object, const char *name, int64_t max, uint64_t *ret,
                     struct brig_err *err)
{
    const struct json_value *value = member(object, name);

    if (!value)
        return 0;
    if (value->type != JSON_NUMBER || !value->integer || value->i64 < 1 || value->i64 > max)
        return invalid(err, "%s: must be an integer from 1 to %lld", name, (long long)max);
    *ret = (uint64_t)value->i64;
    return 0;
}

static int get_object(const struct json_value *object, const char *name, const struct json_value **ret,
                      struct brig_err *err)
{
    const struct json_value *value = member(object, name);

    if (value && value->type != JSON_OBJECT)
        return invalid(err, "%s: must be an object", name);
    *ret = value;
    return 0;
}

/* ---- name, language, schema --------------------------------------------------------------------------- */

static int check_name(const char *name, struct brig_err *err)
{
    if (strlen(name) > TOOL_NAME_MAX) /* of these characters each is one byte */
        return err_usage(err, "name: \"%.60s\" has more than %u characters", name, TOOL_NAME_MAX);
    if (!str_is_name(name, TOOL_NAME_MAX, ASCII_LETTERS "_", ASCII_ALNUM "_-"))
        return err_usage(err, "name: \"%.60s\" is none for a tool: letters, digits, '_' and '-', a letter or '_' first",
                         name);
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
        if (str_eq(name, reserved[i]))
            return err_usage(err, "name: \"%s\" is reserved", name);
    if (objects_id_ok("tool", name)) /* a name will do where an id is asked for */
        return err_usage(err, "name: \"%s\" has the form of an id", name);
    return 0;
}

static int parse_name(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    const char *given = NULL;
    int r = get_text(json, "name", 1024, &given, err);

    if (r == 0 && tool->json_schema)
        r = get_text(tool->json_schema, "name", 1024, &tool->name, err);
    if (r < 0)
        return r;
    if (given && tool->name && !str_eq(given, tool->name))
        return err_usage(err, "name: \"%.60s\" is not the name in json_schema, \"%.60s\"", given, tool->name);
    if (!tool->name)
        tool->name = given;
    if (!tool->name)
        return err_usage(err, "name: a tool needs one: `name`, or `name` in json_schema");
    return check_name(tool->name, err);
}

static int parse_language(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    const char *type = "python";
    int r = get_text(json, "source_type", 64, &type, err);

    if (r < 0)
        return r;
    if (tool_language_parse(type, &tool->language) < 0)
        return err_usage(err, "Tool source type is not supported at this time. Found %s", type);
    return 0;
}

/* What compiles the arguments: json_schema.parameters, else args_json_schema. */
static int parse_schema(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    const struct json_value *args = NULL, *parameters = NULL;
    const char *description = NULL;
    int r = get_object(json, "json_schema", &tool->json_schema, err);

    if (r == 0)
        r = get_object(json, "args_json_schema", &args, err);
    if (r == 0 && tool->json_schema)
        r = get_object(tool->json_schema, "parameters", &parameters, err);
    if (r == 0 && tool->json_schema)
        r = get_text(tool->json_schema, "description", DESCRIPTION_MAX, &description, err);
    if (r < 0)
        return r;
    if (tool->language == TOOL_TYPESCRIPT && !tool->json_schema)
        return invalid(err, "TypeScript tools require an explicit json_schema parameter.");
    tool->description = description;
    const struct json_value *source = parameters ? parameters : args;
    if (!source)
        return 0;
    struct brig_err why = {0};
    r = schema_compile(source, 0, &tool->schema, &why);
    if (r < 0)
        return err_set(err, why.code == BRIG_E_USAGE ? BRIG_E_INVALID : (enum brig_code)why.code,
                       why.code == BRIG_E_USAGE ? 0 : -r, "%s: %.300s",
                       parameters ? "json_schema.parameters" : "args_json_schema", why.message);
    return 0;
}

static int parse_source(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    int r = get_text(json, "source_code", TOOL_SOURCE_MAX, &tool->source, err);

    if (r < 0)
        return r;
    if (!tool->source && tool->language != TOOL_COMMAND)
        return invalid(err, "source_code: is required");
    tool->source_len = tool->source ? strlen(tool->source) : 0;
    if (tool->source && tool->source_len == 0 && tool->language != TOOL_COMMAND)
        return invalid(err, "source_code: is empty");
    return get_text(json, "description", DESCRIPTION_MAX, &tool->description, err);
}

/* ---- requirements, tags ------------------------------------------------------------------------------- */

/*
 * Refuses what no setting allows (control characters, a second line). The run decides whether options and URLs are
 * allowed.
 */
static int check_requirement(const struct requirement *requirement, const char *list, struct brig_err *err)
{
    const bool npm = str_starts(list, "npm");
    struct brig_err why = {0};
    char text[2 * TOOL_REQUIREMENT_MAX + 8];

    if (str_format(text, sizeof text, "%s%s%s", requirement->name, requirement->version ? (npm ? "@" : "==") : "",
                   requirement->version ? requirement->version : "") < 0)
        return invalid(err, "%s: one is too long", list);
    return requirement_ok(text, npm, true, &why) < 0 ? invalid(err, "%s: %.250s", list, why.message) : 0;
}

static int parse_requirement(const struct json_value *item, const char *list, struct requirement *ret,
                             struct brig_err *err)
{
    if (item->type == JSON_STRING) {
        ret->name = item->string;
        if (strlen(item->string) != item->len || item->len > TOOL_REQUIREMENT_MAX)
            return invalid(err, "%s: one has a NUL in it, or more than %u bytes", list, TOOL_REQUIREMENT_MAX);
    } else if (item->type == JSON_OBJECT) {
        struct brig_err why = {0};
        int r = get_text(item, "name", TOOL_REQUIREMENT_MAX, &ret->name, &why);
        if (r == 0)
            r = get_text(item, "version", TOOL_REQUIREMENT_MAX, &ret->version, &why);
        if (r < 0)
            return invalid(err, "%s: %.200s", list, why.message);
    } else {
        return invalid(err, "%s: each is {\"name\", \"version\"} or a string", list);
    }
    if (!ret->name || ret->name[0] == '\0')
        return invalid(err, "%s: one has no name", list);
    if (ret->version && ret->version[0] == '\0')
        ret->version = NULL;
    return check_requirement(ret, list, err);
}

static int parse_requirements(const struct json_value *json, const char *list, struct requirement **ret, size_t *ret_n,
                              struct brig_err *err)
{
    const struct json_value *value = member(json, list);

    if (!value)
        return 0;
    if (value->type != JSON_ARRAY)
        return invalid(err, "%s: must be a list", list);
    if (value->count > TOOL_REQUIREMENTS_MAX)
        return invalid(err, "%s: has %zu, at most %u are allowed", list, value->count, TOOL_REQUIREMENTS_MAX);
    if (value->count == 0)
        return 0;
    *ret = mem_zalloc(value->count * sizeof(struct requirement));
    if (!*ret)
        return err_nomem(err);
    for (const struct json_value *item = value->first; item; item = item->next) {
        int r = parse_requirement(item, list, &(*ret)[(*ret_n)++], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_tags(const struct json_value *json, struct brig_err *err)
{
    const struct json_value *tags = member(json, "tags");

    if (!tags)
        return 0;
    if (tags->type != JSON_ARRAY || tags->count > TOOL_TAGS_MAX)
        return invalid(err, "tags: must be a list of at most %u strings", TOOL_TAGS_MAX);
    for (const struct json_value *item = tags->first; item; item = item->next)
        if (item->type != JSON_STRING || item->len > TAG_MAX || strlen(item->string) != item->len)
            return invalid(err, "tags: each is a string of at most %u bytes", TAG_MAX);
    return 0;
}

static int parse_metadata(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    const struct json_value *metadata = NULL;
    int r = get_object(json, "metadata_", &metadata, err);

    if (r == 0 && metadata)
        r = get_text(metadata, "sandbox", PROVIDER_MAX, &tool->provider, err);
    if (r == 0 && metadata)
        r = get_text(metadata, "template", TOOL_TEMPLATE_MAX, &tool->template_name, err);
    if (r < 0 || !tool->provider)
        return r;
    const char *name = tool->provider;
    if (name[0] == '\0') {
        tool->provider = NULL;
        return 0;
    }
    if (!str_is_name(name, PROVIDER_MAX, ASCII_LOWER, ASCII_LOWER ASCII_DIGITS "_-"))
        return invalid(err, "metadata_.sandbox: \"%.40s\" is no name of a provider", name);
    return 0;
}

/* ---- brig --------------------------------------------------------------------------------------------- */

static int parse_rate(const struct json_value *brig, struct tool *tool, struct brig_err *err)
{
    const struct json_value *rate = NULL;
    int r = get_object(brig, "rate_limit", &rate, err);

    if (r < 0 || !rate)
        return r;
    r = get_count(rate, "max_calls", RATE_MAX, &tool->rate_max, err);
    if (r == 0)
        r = get_count(rate, "window_seconds", WINDOW_MAX_S, &tool->rate_window_s, err);
    if (r == 0 && (!tool->rate_max || !tool->rate_window_s))
        r = invalid(err, "rate_limit: needs both max_calls and window_seconds");
    return r;
}

static int parse_command(const struct json_value *brig, struct tool *tool, struct brig_err *err)
{
    const struct json_value *command = member(brig, "command");

    if (!command)
        return tool->language == TOOL_COMMAND ? invalid(err, "command: a tool of source_type \"command\" needs it") : 0;
    if (command->type != JSON_ARRAY || command->count == 0 || command->count > COMMAND_MAX)
        return invalid(err, "command: must be a list of 1 to %u strings", COMMAND_MAX);
    for (const struct json_value *item = command->first; item; item = item->next)
        if (item->type != JSON_STRING || strlen(item->string) != item->len ||
            (item == command->first && item->len == 0))
            return invalid(err, "command: each is a string without NUL, the first not empty");
    tool->command = command;
    return 0;
}

static int check_known(const struct json_value *brig, struct brig_err *err)
{
    static const char *const known[] = {"network",  "secrets",           "limits",   "rate_limit", "rules",
                                        "approval", "needs_credentials", "fallback", "command"};

    for (const struct json_value *item = brig->first; item; item = item->next) {
        size_t i = 0;
        while (i < ARRAY_SIZE(known) && !str_eq(item->key, known[i]))
            i++;
        if (i == ARRAY_SIZE(known))
            return invalid(err, "brig.%.60s: is not known", item->key);
    }
    return 0;
}

static int parse_brig_members(const struct json_value *brig, struct tool *tool, struct brig_err *err)
{
    const struct json_value *rules = member(brig, "rules");
    const char *fallback = "auto";
    bool approval = false;
    int r = check_known(brig, err);

    tool->network = member(brig, "network");
    tool->secrets = member(brig, "secrets");
    if (r == 0 && tool->secrets && tool->secrets->type != JSON_ARRAY)
        r = invalid(err, "secrets: must be a list");
    if (r == 0)
        r = get_object(brig, "limits", &tool->limits, err);
    if (r == 0)
        r = parse_rate(brig, tool, err);
    if (r == 0 && rules)
        r = rules_parse(rules, &tool->rules, &tool->n_rules, err);
    if (r == 0)
        r = get_bool(brig, "approval", &approval, err);
    if (r == 0)
        r = get_bool(brig, "needs_credentials", &tool->needs_credentials, err);
    if (r == 0)
        r = get_text(brig, "fallback", 16, &fallback, err);
    if (r == 0 && !str_eq(fallback, "auto") && !str_eq(fallback, "none"))
        r = invalid(err, "fallback: must be \"auto\" or \"none\"");
    tool->no_fallback = str_eq(fallback, "none");
    tool->requires_approval |= approval;
    return r == 0 ? parse_command(brig, tool, err) : r;
}

static int parse_brig(const struct json_value *json, struct tool *tool, struct brig_err *err)
{
    const struct json_value *brig = NULL;
    struct brig_err why = {0};
    int r = get_object(json, "brig", &brig, err);

    if (r < 0)
        return r;
    if (!brig)
        return parse_command(NULL, tool, err);
    r = parse_brig_members(brig, tool, &why);
    if (r < 0 && why.code != BRIG_E_INVALID && why.code != BRIG_E_USAGE && why.code != BRIG_E_TOO_LARGE) {
        if (err)
            *err = why;
        return r;
    }
    return r < 0 ? err_set(err, BRIG_E_INVALID, 0, "%s%.300s", str_starts(why.message, "brig.") ? "" : "brig.",
                           why.message)
                 : 0;
}

/* The service's own members: a request's are never looked at, a document of it has none or those of tool_doc.c. */
static struct tool_hand parse_hand(const struct json_value *json, const char *name)
{
    const struct json_value *hand = member(json, name), *key = json_get(hand, "key_id"), *role = json_get(hand, "role");

    if (!key || key->type != JSON_STRING || !role || role->type != JSON_STRING)
        return (struct tool_hand){.as = STANDING_NONE};
    return (struct tool_hand){.key_id = key->string, .as = standing_parse(role->string)};
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static int check_rest(const struct json_value *json, struct brig_err *err)
{
    static const char *const ids[] = {"project_id", "tool_type", "created_by_id", "last_updated_by_id"};
    const char *text = NULL;
    bool flag = false;
    int r = check_tags(json, err);

    for (size_t i = 0; i < ARRAY_SIZE(ids) && r == 0; i++)
        r = get_text(json, ids[i], 256, &text, err);
    return r == 0 ? get_bool(json, "enable_parallel_execution", &flag, err) : r;
}

int tool_parse(const struct json_value *json, struct tool *ret, struct brig_err *err)
{
    struct tool tool = {.return_limit = TOOL_RETURN_LIMIT};

    if (!json || json->type != JSON_OBJECT)
        return invalid(err, "a tool: must be an object");
    int r = parse_language(json, &tool, err);
    if (r == 0)
        r = parse_source(json, &tool, err);
    const char *description = tool.description;
    if (r == 0)
        r = parse_schema(json, &tool, err);
    if (description) /* the tool's own wins over its schema's */
        tool.description = description;
    if (r == 0)
        r = parse_name(json, &tool, err);
    if (r == 0)
        r = get_count(json, "return_char_limit", RETURN_LIMIT_MAX, &tool.return_limit, err);
    if (r == 0)
        r = parse_requirements(json, "pip_requirements", &tool.pip, &tool.n_pip, err);
    if (r == 0)
        r = parse_requirements(json, "npm_requirements", &tool.npm, &tool.n_npm, err);
    if (r == 0)
        r = parse_metadata(json, &tool, err);
    if (r == 0)
        r = get_bool(json, "default_requires_approval", &tool.requires_approval, err);
    if (r == 0)
        r = parse_brig(json, &tool, err);
    if (r == 0)
        r = check_rest(json, err);
    tool.registrant = parse_hand(json, "registrant");
    tool.guard = parse_hand(json, "guard");
    if (r < 0)
        return tool_done(&tool), r;
    *ret = tool;
    return 0;
}

void tool_done(struct tool *tool)
{
    if (!tool)
        return;
    schema_free(tool->schema);
    rules_free(tool->rules, tool->n_rules);
    mem_free(tool->pip);
    mem_free(tool->npm);
    *tool = (struct tool){0};
}
