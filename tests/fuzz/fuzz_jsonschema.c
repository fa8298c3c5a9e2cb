/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON Schema validator. The input is [schema, instance, ...]: a schema that compiles gives each instance one of
 * three answers, the same one twice, with a message where it is not valid; a schema and its double negation agree;
 * nothing is read after the text is gone (both live in copies of their exact size). Input that is no such array is
 * taken as a pattern, and matched against itself.
 */
#include "fuzz.h"

#include "codec/schema/jsonschema.h"

#define VALUES 4096u

static void check_instance(const struct schema *schema, const struct schema *twice_not,
                           const struct json_value *instance)
{
    struct brig_err err = {0}, again = {0}, other = {0};
    int r = schema_check(schema, instance, &err), r2;

    FUZZ_CHECK(r == 0 || r == -EINVAL || r == -EOVERFLOW);
    if (r < 0)
        FUZZ_CHECK(err.code == BRIG_E_INVALID && strstr(err.message, ": "));
    else
        FUZZ_CHECK(err.message[0] == '\0');
    FUZZ_CHECK(schema_check(schema, instance, &again) == r && strcmp(err.message, again.message) == 0);
    if (!twice_not)
        return;
    r2 = schema_check(twice_not, instance, &other);
    FUZZ_CHECK(r2 == r || r == -EOVERFLOW || r2 == -EOVERFLOW);
}

/* {"not":{"not":X}} of the schema's own text; NULL when that makes another schema of it ($id, $schema and pointers from
 * the root). */
static struct schema *negate_twice(const struct json_value *json, struct json_doc **ret_doc, char **ret_text)
{
    static const char before[] = "{\"not\":{\"not\":", after[] = "}}";
    struct schema *schema = NULL;
    size_t len = sizeof(before) - 1 + json->raw_len + sizeof(after) - 1;
    char *text = malloc(len);

    FUZZ_CHECK(text);
    memcpy(text, before, sizeof(before) - 1);
    memcpy(text + sizeof(before) - 1, json->raw, json->raw_len);
    memcpy(text + sizeof(before) - 1 + json->raw_len, after, sizeof(after) - 1);
    *ret_text = text;
    if (memmem(text, len, "$", 1) || json_read(text, len, VALUES, ret_doc, NULL) < 0)
        return NULL;
    if (schema_compile(json_root(*ret_doc), SCHEMA_FORMATS, &schema, NULL) < 0)
        return NULL;
    return schema;
}

static void check_document(const struct json_value *root)
{
    const struct json_value *json = root->first;
    struct schema *schema = NULL, *twice_not = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    char *text = NULL;
    int r = schema_compile(json, SCHEMA_FORMATS, &schema, &err);

    if (r < 0) {
        FUZZ_CHECK((r == -EINVAL && err.code == BRIG_E_USAGE) || r == -EMSGSIZE || r == -EFBIG);
        FUZZ_CHECK(!schema && err.message[0] != '\0');
        return;
    }
    twice_not = negate_twice(json, &doc, &text);
    for (const struct json_value *instance = json->next; instance; instance = instance->next)
        check_instance(schema, twice_not, instance);
    schema_free(schema);
    schema_free(twice_not);
    json_doc_free(doc);
    free(text);
}

static void check_pattern(const char *text, size_t len)
{
    struct pattern *pattern = NULL;
    struct brig_err err = {0};

    if (pattern_compile(text, len, &pattern, &err) < 0) {
        FUZZ_CHECK(err.code == BRIG_E_USAGE && !pattern);
        return;
    }
    uint64_t budget = pattern_budget(len);
    int r = pattern_match(pattern, text, len, &budget);
    FUZZ_CHECK(r == 0 || r == 1 || r == -EOVERFLOW);
    pattern_free(pattern);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_doc *doc = NULL;
    char *copy = malloc(size > 0 ? size : 1);

    FUZZ_CHECK(copy);
    if (size > 0)
        memcpy(copy, data, size);
    if (json_read(copy, size, VALUES, &doc, NULL) == 0 && json_root(doc)->type == JSON_ARRAY &&
        json_root(doc)->count > 0)
        check_document(json_root(doc));
    else
        check_pattern(copy, size);
    json_doc_free(doc);
    free(copy);
    return 0;
}
