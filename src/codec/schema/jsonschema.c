/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema.c: JSON Schema, the two public steps: compile once, check many times. Theory of operation:
 *
 * A schema is copied as text, read again, and kept as that tree, with a table beside it (jsonschema_priv.h). Compiling
 * has two steps.
 *
 *   walk     (jsonschema_compile.c) Every value that stands where a schema may stand is read as one. The shape of
 *            each known keyword is checked, patterns are compiled, $id and $anchor are noted, $ref waits in a list.
 *   resolve  (jsonschema_ref.c) Each $ref finds its target, by name or by JSON pointer. A target that was not
 *            walked (below an unknown keyword, or beside a $ref of draft 7) is walked now and may add to the list.
 *
 * The check (jsonschema_check.c) goes down both trees at once. It ends for every input: each application of a schema,
 * each comparison and each step of a pattern is paid from one budget, and schemas within schemas have a largest depth.
 * When either runs out there is no answer. That is an error, and `not` cannot turn it around.
 */
#include "codec/schema/jsonschema_priv.h"

#include <stdarg.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

static size_t count_values(const struct json_value *value)
{
    size_t n = 1;

    for (const struct json_value *item = value->first; item; item = item->next)
        n += count_values(item);
    return n;
}

/* Values lie in the order of the text: the child that contains one is the last that does not lie behind it. */
static size_t put_pointer(const struct schema *schema, const struct json_value *to, char *out, size_t size)
{
    const struct json_value *at = schema->values;
    size_t len = 0;

    out[0] = '\0';
    while (at != to) {
        const struct json_value *next = NULL;
        size_t index = 0;
        int n;
        for (const struct json_value *item = at->first; item && item <= to; item = item->next) {
            next = item;
            index++;
        }
        if (!next)
            break;
        if (next->key)
            n = str_format(out + len, size - len, "/%.60s", next->key);
        else
            n = str_format(out + len, size - len, "/%zu", index - 1);
        if (n < 0)
            break;
        len += (size_t)n;
        at = next;
    }
    return len;
}

int schema_refuse(const struct schema *schema, const struct json_value *at, struct brig_err *err, const char *format,
                  ...)
{
    char pointer[160], what[200];
    va_list args;

    put_pointer(schema, at, pointer, sizeof(pointer));
    va_start(args, format);
    if (vsnprintf(what, sizeof(what), format, args) < 0)
        what[0] = '\0';
    va_end(args);
    return err_usage(err, "schema %s: %s", pointer[0] ? pointer : "/", what);
}

const struct json_value *schema_sibling(const struct schema *schema, const struct json_value *node, const char *name)
{
    const struct json_value *found = json_get(node, name);

    return found && schema_slot(schema, found)->keyword != KW_NONE ? found : NULL;
}

void schema_free(struct schema *schema)
{
    if (!schema)
        return;
    for (size_t i = 0; schema->slots && i < schema->n_values; i++)
        pattern_free(schema->slots[i].pattern);
    for (size_t i = 0; i < schema->n_resources; i++)
        mem_free(schema->resources[i].uri);
    mem_free(schema->resources);
    mem_free(schema->anchors);
    mem_free(schema->refs);
    mem_free(schema->slots);
    json_doc_free(schema->doc);
    mem_free(schema->text);
    mem_free(schema);
}

/* Our own copy of the text, read. */
static int copy(struct schema *schema, const struct json_value *json, struct brig_err *err)
{
    schema->text = mem_alloc(json->raw_len);
    if (!schema->text)
        return err_nomem(err);
    memcpy(schema->text, json->raw, json->raw_len);
    int r = json_read(schema->text, json->raw_len, SCHEMA_VALUES, &schema->doc, err);
    if (r < 0)
        return r;
    schema->values = json_root(schema->doc);
    schema->n_values = count_values(schema->values);
    schema->slots = mem_zalloc(schema->n_values * sizeof(*schema->slots));
    schema->resources = mem_zalloc(sizeof(*schema->resources));
    if (!schema->slots || !schema->resources)
        return err_nomem(err);
    schema->resources[0].uri = mem_strdup("");
    if (!schema->resources[0].uri)
        return err_nomem(err);
    schema->n_resources = 1;
    return 0;
}

int schema_compile(const struct json_value *json, unsigned flags, struct schema **ret, struct brig_err *err)
{
    struct schema *schema = mem_zalloc(sizeof(*schema));

    if (!schema)
        return err_nomem(err);
    schema->flags = flags;
    int r = copy(schema, json, err);
    if (r == 0)
        r = schema_walk(schema, schema->values, 0, false, err);
    if (r == 0)
        r = schema_resolve(schema, err);
    if (r < 0) {
        schema_free(schema);
        return r;
    }
    *ret = schema;
    return 0;
}
