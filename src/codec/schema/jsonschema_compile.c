/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_compile.c: reads a value as a schema. One table says which keywords exist, in which draft, and what shape
 * their value has. A known keyword with a value of another shape is refused: its author meant something that would
 * silently not be checked. Unknown keywords, and those that only describe (title, default, examples, content...), mean
 * nothing, as the standard says.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/err.h"
#include "base/str.h"

enum shape {
    SHAPE_ANY,
    SHAPE_BOOL,
    SHAPE_COUNT,
    SHAPE_NUMBER,
    SHAPE_DIVISOR,
    SHAPE_ARRAY,
    SHAPE_STRINGS,
    SHAPE_STRING_LISTS,
    SHAPE_TYPE,
    SHAPE_PATTERN,
    SHAPE_FORMAT,
    SHAPE_REF,
    SHAPE_SCHEMA,
    SHAPE_SCHEMAS,
    SHAPE_ITEMS, /* a schema; in draft 7 also a list of them */
    SHAPE_MAP,
    SHAPE_PATTERN_MAP,
    SHAPE_DEPENDENCIES, /* a member is a schema or a list of names */
    SHAPE_MAX
};

#define DRAFT_7 1u
#define DRAFT_2020 2u
#define BOTH (DRAFT_7 | DRAFT_2020)

static const struct word {
    const char *name;
    enum keyword keyword;
    enum shape shape;
    unsigned drafts;
} words[] = {
    {"$defs", KW_DEFS, SHAPE_MAP, DRAFT_2020},
    {"$dynamicRef", KW_DYNAMIC_REF, SHAPE_REF, DRAFT_2020},
    {"$ref", KW_REF, SHAPE_REF, BOTH},
    {"additionalItems", KW_ADDITIONAL_ITEMS, SHAPE_SCHEMA, DRAFT_7},
    {"additionalProperties", KW_ADDITIONAL_PROPERTIES, SHAPE_SCHEMA, BOTH},
    {"allOf", KW_ALL_OF, SHAPE_SCHEMAS, BOTH},
    {"anyOf", KW_ANY_OF, SHAPE_SCHEMAS, BOTH},
    {"const", KW_CONST, SHAPE_ANY, BOTH},
    {"contains", KW_CONTAINS, SHAPE_SCHEMA, BOTH},
    {"definitions", KW_DEFS, SHAPE_MAP, BOTH}, /* 2020-12 keeps this and dependencies for old schemas */
    {"dependencies", KW_DEPENDENCIES, SHAPE_DEPENDENCIES, BOTH},
    {"dependentRequired", KW_DEPENDENT_REQUIRED, SHAPE_STRING_LISTS, DRAFT_2020},
    {"dependentSchemas", KW_DEPENDENT_SCHEMAS, SHAPE_MAP, DRAFT_2020},
    {"else", KW_ELSE, SHAPE_SCHEMA, BOTH},
    {"enum", KW_ENUM, SHAPE_ARRAY, BOTH},
    {"exclusiveMaximum", KW_EXCLUSIVE_MAXIMUM, SHAPE_NUMBER, BOTH},
    {"exclusiveMinimum", KW_EXCLUSIVE_MINIMUM, SHAPE_NUMBER, BOTH},
    {"format", KW_FORMAT, SHAPE_FORMAT, BOTH},
    {"if", KW_IF, SHAPE_SCHEMA, BOTH},
    {"items", KW_ITEMS, SHAPE_ITEMS, BOTH},
    {"maxContains", KW_MAX_CONTAINS, SHAPE_COUNT, DRAFT_2020},
    {"maxItems", KW_MAX_ITEMS, SHAPE_COUNT, BOTH},
    {"maxLength", KW_MAX_LENGTH, SHAPE_COUNT, BOTH},
    {"maxProperties", KW_MAX_PROPERTIES, SHAPE_COUNT, BOTH},
    {"maximum", KW_MAXIMUM, SHAPE_NUMBER, BOTH},
    {"minContains", KW_MIN_CONTAINS, SHAPE_COUNT, DRAFT_2020},
    {"minItems", KW_MIN_ITEMS, SHAPE_COUNT, BOTH},
    {"minLength", KW_MIN_LENGTH, SHAPE_COUNT, BOTH},
    {"minProperties", KW_MIN_PROPERTIES, SHAPE_COUNT, BOTH},
    {"minimum", KW_MINIMUM, SHAPE_NUMBER, BOTH},
    {"multipleOf", KW_MULTIPLE_OF, SHAPE_DIVISOR, BOTH},
    {"not", KW_NOT, SHAPE_SCHEMA, BOTH},
    {"oneOf", KW_ONE_OF, SHAPE_SCHEMAS, BOTH},
    {"pattern", KW_PATTERN, SHAPE_PATTERN, BOTH},
    {"patternProperties", KW_PATTERN_PROPERTIES, SHAPE_PATTERN_MAP, BOTH},
    {"prefixItems", KW_PREFIX_ITEMS, SHAPE_SCHEMAS, DRAFT_2020},
    {"properties", KW_PROPERTIES, SHAPE_MAP, BOTH},
    {"propertyNames", KW_PROPERTY_NAMES, SHAPE_SCHEMA, BOTH},
    {"required", KW_REQUIRED, SHAPE_STRINGS, BOTH},
    {"then", KW_THEN, SHAPE_SCHEMA, BOTH},
    {"type", KW_TYPE, SHAPE_TYPE, BOTH},
    {"unevaluatedItems", KW_UNEVALUATED_ITEMS, SHAPE_SCHEMA, DRAFT_2020},
    {"unevaluatedProperties", KW_UNEVALUATED_PROPERTIES, SHAPE_SCHEMA, DRAFT_2020},
    {"uniqueItems", KW_UNIQUE_ITEMS, SHAPE_BOOL, BOTH},
};

struct walk {
    struct schema *schema;
    const struct json_value *node; /* the schema around the keyword */
    uint32_t resource;
    bool draft7;
    struct brig_err *err;
};

typedef int shape_fn(const struct walk *walk, const struct json_value *value);

static int below(const struct walk *walk, const struct json_value *value)
{
    return schema_walk(walk->schema, value, walk->resource, walk->draft7, walk->err);
}

static int refuse(const struct walk *walk, const struct json_value *value, const char *what)
{
    return schema_refuse(walk->schema, value, walk->err, "%s", what);
}

/* ---- shapes of plain values ----------------------------------------------------------------------- */

static int read_any(const struct walk *walk, const struct json_value *value)
{
    (void)walk, (void)value;
    return 0;
}

static int read_bool(const struct walk *walk, const struct json_value *value)
{
    return value->type == JSON_BOOL ? 0 : refuse(walk, value, "must be true or false");
}

static int read_count(const struct walk *walk, const struct json_value *value)
{
    if (value->type != JSON_NUMBER || !number_is_whole(value) || value->number < 0)
        return refuse(walk, value, "must be a whole number of at least 0");
    schema_slot(walk->schema, value)->count = value->number >= 1e18 ? UINT64_MAX : (uint64_t)value->number;
    return 0;
}

static int read_number(const struct walk *walk, const struct json_value *value)
{
    return value->type == JSON_NUMBER ? 0 : refuse(walk, value, "must be a number");
}

static int read_divisor(const struct walk *walk, const struct json_value *value)
{
    if (value->type != JSON_NUMBER || *value->raw == '-' || number_digits(value) == 0)
        return refuse(walk, value, "must be a number over 0");
    if (number_digits(value) > SCHEMA_DIVISOR_DIGITS)
        return refuse(walk, value, "must have at most 18 digits");
    return 0;
}

static int read_array(const struct walk *walk, const struct json_value *value)
{
    return value->type == JSON_ARRAY ? 0 : refuse(walk, value, "must be an array");
}

/* Names; a string with a NUL in it is none, for no key has one. */
static int read_strings(const struct walk *walk, const struct json_value *value)
{
    if (value->type != JSON_ARRAY)
        return refuse(walk, value, "must be an array of strings");
    for (const struct json_value *item = value->first; item; item = item->next)
        if (item->type != JSON_STRING || strlen(item->string) != item->len)
            return refuse(walk, value, "must be an array of strings");
    return 0;
}

static int read_string_lists(const struct walk *walk, const struct json_value *value)
{
    int r = value->type == JSON_OBJECT ? 0 : refuse(walk, value, "must be an object of arrays of strings");

    for (const struct json_value *member = value->first; r == 0 && member; member = member->next)
        r = read_strings(walk, member);
    return r;
}

static int add_type(const struct walk *walk, const struct json_value *value, uint8_t *types)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",   [JSON_BOOL] = "boolean",  [JSON_NUMBER] = "number",  [JSON_STRING] = "string",
        [JSON_ARRAY] = "array", [JSON_OBJECT] = "object", [TYPE_INTEGER] = "integer"};

    for (size_t i = 0; value->type == JSON_STRING && i < ARRAY_SIZE(names); i++)
        if (str_eq(value->string, names[i])) {
            *types |= (uint8_t)(1u << i);
            return 0;
        }
    return refuse(walk, value, "must be null, boolean, integer, number, string, array or object");
}

static int read_type(const struct walk *walk, const struct json_value *value)
{
    uint8_t *types = &schema_slot(walk->schema, value)->types;
    int r = 0;

    if (value->type != JSON_ARRAY)
        return add_type(walk, value, types);
    for (const struct json_value *item = value->first; r == 0 && item; item = item->next)
        r = add_type(walk, item, types);
    return r;
}

static int add_pattern(const struct walk *walk, const struct json_value *at, const char *text, size_t len)
{
    struct schema *schema = walk->schema;
    struct brig_err why = {0};

    if (schema->n_patterns == SCHEMA_PATTERNS)
        return refuse(walk, at, "one pattern too many; a schema may have 256");
    int r = pattern_compile(text, len, &schema_slot(schema, at)->pattern, &why);
    if (r == -ENOMEM)
        return err_nomem(walk->err);
    if (r < 0)
        return refuse(walk, at, why.message);
    schema->n_patterns++;
    return 0;
}

static int read_pattern(const struct walk *walk, const struct json_value *value)
{
    return value->type == JSON_STRING ? add_pattern(walk, value, value->string, value->len)
                                      : refuse(walk, value, "must be a string");
}

static int read_format(const struct walk *walk, const struct json_value *value)
{
    if (value->type != JSON_STRING)
        return refuse(walk, value, "must be a string");
    if (walk->schema->flags & SCHEMA_FORMATS)
        schema_slot(walk->schema, value)->format = schema_format_find(value->string);
    return 0;
}

static int read_ref(const struct walk *walk, const struct json_value *value)
{
    if (value->type != JSON_STRING || strlen(value->string) != value->len)
        return refuse(walk, value, "must be a reference");
    return schema_add_ref(walk->schema, value, walk->node, walk->err);
}

/* ---- shapes with schemas in them ------------------------------------------------------------------ */

static int read_schemas(const struct walk *walk, const struct json_value *value)
{
    int r = 0;

    if (value->type != JSON_ARRAY || value->count == 0)
        return refuse(walk, value, "must be an array of schemas");
    for (const struct json_value *item = value->first; r == 0 && item; item = item->next)
        r = below(walk, item);
    return r;
}

static int read_items(const struct walk *walk, const struct json_value *value)
{
    int r = 0;

    if (!walk->draft7 || value->type != JSON_ARRAY)
        return below(walk, value);
    for (const struct json_value *item = value->first; r == 0 && item; item = item->next)
        r = below(walk, item);
    return r;
}

static int read_map(const struct walk *walk, const struct json_value *value)
{
    int r = value->type == JSON_OBJECT ? 0 : refuse(walk, value, "must be an object of schemas");

    for (const struct json_value *member = value->first; r == 0 && member; member = member->next)
        r = below(walk, member);
    return r;
}

static int read_pattern_map(const struct walk *walk, const struct json_value *value)
{
    int r = read_map(walk, value);

    for (const struct json_value *member = value->first; r == 0 && member; member = member->next)
        r = add_pattern(walk, member, member->key, member->key_len);
    return r;
}

static int read_dependencies(const struct walk *walk, const struct json_value *value)
{
    int r = value->type == JSON_OBJECT ? 0 : refuse(walk, value, "must be an object of schemas or arrays of strings");

    for (const struct json_value *member = value->first; r == 0 && member; member = member->next)
        r = member->type == JSON_ARRAY ? read_strings(walk, member) : below(walk, member);
    return r;
}

static shape_fn *const shapes[] = {
    [SHAPE_ANY] = read_any,
    [SHAPE_BOOL] = read_bool,
    [SHAPE_COUNT] = read_count,
    [SHAPE_NUMBER] = read_number,
    [SHAPE_DIVISOR] = read_divisor,
    [SHAPE_ARRAY] = read_array,
    [SHAPE_STRINGS] = read_strings,
    [SHAPE_STRING_LISTS] = read_string_lists,
    [SHAPE_TYPE] = read_type,
    [SHAPE_PATTERN] = read_pattern,
    [SHAPE_FORMAT] = read_format,
    [SHAPE_REF] = read_ref,
    [SHAPE_SCHEMA] = below,
    [SHAPE_SCHEMAS] = read_schemas,
    [SHAPE_ITEMS] = read_items,
    [SHAPE_MAP] = read_map,
    [SHAPE_PATTERN_MAP] = read_pattern_map,
    [SHAPE_DEPENDENCIES] = read_dependencies,
};
_Static_assert(ARRAY_SIZE(shapes) == SHAPE_MAX, "a shape without its reader");

/* ---- a schema ------------------------------------------------------------------------------------- */

static const struct word *find_word(const char *name, bool draft7)
{
    size_t low = 0, high = ARRAY_SIZE(words);

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, words[middle].name);
        if (order == 0)
            return words[middle].drafts & (draft7 ? DRAFT_7 : DRAFT_2020) ? &words[middle] : NULL;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* Which draft this schema, and all below it, is of. */
static int read_draft(const struct walk *walk, bool *draft7)
{
    static const char *const known[] = {"https://json-schema.org/draft/2020-12/schema",
                                        "http://json-schema.org/draft-07/schema",
                                        "https://json-schema.org/draft-07/schema"};
    const struct json_value *value = json_get(walk->node, "$schema");

    if (!value)
        return 0;
    for (size_t i = 0; value->type == JSON_STRING && i < ARRAY_SIZE(known); i++) {
        size_t len = strlen(known[i]);
        if (str_starts(value->string, known[i]) &&
            (value->len == len || (value->len == len + 1 && value->string[len] == '#'))) {
            *draft7 = i > 0;
            return 0;
        }
    }
    return refuse(walk, value, "must be JSON Schema 2020-12 or draft 7");
}

static int read_keywords(const struct walk *walk)
{
    struct slot *slot = schema_slot(walk->schema, walk->node);
    int r = 0;

    for (const struct json_value *member = walk->node->first; r == 0 && member; member = member->next) {
        const struct word *word = find_word(member->key, walk->draft7);
        if (!word || (slot->only_ref && word->keyword != KW_REF))
            continue;
        schema_slot(walk->schema, member)->keyword = (uint8_t)word->keyword;
        slot->unevaluated |= word->keyword == KW_UNEVALUATED_ITEMS || word->keyword == KW_UNEVALUATED_PROPERTIES;
        r = shapes[word->shape](walk, member);
    }
    return r;
}

int schema_walk(struct schema *schema, const struct json_value *json, uint32_t resource, bool draft7,
                struct brig_err *err)
{
    struct slot *slot = schema_slot(schema, json);
    struct walk walk = {.schema = schema, .node = json, .err = err};

    if (slot->schema)
        return 0;
    if (json->type != JSON_OBJECT && json->type != JSON_BOOL)
        return refuse(&walk, json, "must be a schema (an object, true or false)");
    slot->schema = true;
    int r = read_draft(&walk, &draft7);
    if (r < 0)
        return r;
    const struct json_value *ref = json_get(json, "$ref");
    slot->draft7 = draft7;
    slot->only_ref = draft7 && ref;
    slot->resource = resource;
    if (!slot->only_ref)
        r = schema_identify(schema, json, &slot->resource, draft7, err);
    if (r < 0)
        return r;
    walk.resource = slot->resource;
    walk.draft7 = draft7;
    return read_keywords(&walk);
}
