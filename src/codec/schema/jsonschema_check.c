/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_check.c: applies one schema to one instance. `type` is checked first, because the other keywords say
 * little about a value of the wrong kind. The other keywords follow as they stand in the schema, and unevaluated* last,
 * because it depends on all of them. The first keyword that fails ends the check.
 *
 * Marks: if a schema above has unevaluated* for this array or object, a set of its children is made here. The keywords
 * that look at children fill it, and so do schemas that are applied in place. The set is handed up only if this schema
 * holds: a branch that failed has evaluated nothing.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/err.h"
#include "base/mem.h"

static keyword_fn *const checks[KW_MAX] = {
    [KW_CONST] = check_const,
    [KW_ENUM] = check_enum,
    [KW_MULTIPLE_OF] = check_multiple_of,
    [KW_MAXIMUM] = check_bound,
    [KW_EXCLUSIVE_MAXIMUM] = check_bound,
    [KW_MINIMUM] = check_bound,
    [KW_EXCLUSIVE_MINIMUM] = check_bound,
    [KW_MAX_LENGTH] = check_length,
    [KW_MIN_LENGTH] = check_length,
    [KW_PATTERN] = check_pattern,
    [KW_FORMAT] = check_format,
    [KW_MAX_ITEMS] = check_size,
    [KW_MIN_ITEMS] = check_size,
    [KW_UNIQUE_ITEMS] = check_unique_items,
    [KW_MAX_PROPERTIES] = check_size,
    [KW_MIN_PROPERTIES] = check_size,
    [KW_REQUIRED] = check_required,
    [KW_DEPENDENT_REQUIRED] = check_dependencies,
    [KW_REF] = check_ref,
    [KW_DYNAMIC_REF] = check_dynamic_ref,
    [KW_ALL_OF] = check_all_of,
    [KW_ANY_OF] = check_any_of,
    [KW_ONE_OF] = check_one_of,
    [KW_NOT] = check_not,
    [KW_IF] = check_if,
    [KW_DEPENDENT_SCHEMAS] = check_dependencies,
    [KW_DEPENDENCIES] = check_dependencies,
    [KW_PREFIX_ITEMS] = check_prefix_items,
    [KW_ITEMS] = check_items,
    [KW_ADDITIONAL_ITEMS] = check_additional_items,
    [KW_CONTAINS] = check_contains,
    [KW_PROPERTIES] = check_properties,
    [KW_PATTERN_PROPERTIES] = check_pattern_properties,
    [KW_ADDITIONAL_PROPERTIES] = check_additional_properties,
    [KW_PROPERTY_NAMES] = check_property_names,
};

static keyword_fn *const late_checks[KW_MAX] = {
    [KW_UNEVALUATED_ITEMS] = check_unevaluated,
    [KW_UNEVALUATED_PROPERTIES] = check_unevaluated,
};

static keyword_fn *const first_checks[KW_MAX] = {[KW_TYPE] = check_type};

static int run_keywords(struct check *check, keyword_fn *const *table, const struct json_value *node,
                        const struct json_value *value, struct marks *marks)
{
    int r = 1;

    for (const struct json_value *member = node->first; r == 1 && member; member = member->next) {
        const struct slot *slot = schema_slot(check->schema, member);
        struct at at = {.node = node, .rule = member, .value = value, .slot = slot, .marks = marks};
        if (!table[slot->keyword])
            continue;
        check_pay(check, (value->type == JSON_STRING   ? value->len
                          : value->type == JSON_NUMBER ? value->raw_len
                                                       : 0) /
                             64);
        r = table[slot->keyword](check, &at);
        if (r >= 0 && check->budget == 0) /* whatever it found: it did not look at all of it */
            r = check_give_up(check);
    }
    return r;
}

static int run_node(struct check *check, const struct json_value *node, const struct json_value *value,
                    struct marks *marks)
{
    int r = run_keywords(check, first_checks, node, value, marks);

    if (r == 1)
        r = run_keywords(check, checks, node, value, marks);
    if (r == 1 && schema_slot(check->schema, node)->unevaluated)
        r = run_keywords(check, late_checks, node, value, marks);
    return r;
}

/* As run_node(), with a set of its own that joins the one above when the schema holds. */
static int run_marking(struct check *check, const struct json_value *node, const struct json_value *value,
                       struct marks *above)
{
    size_t words = value->count / 64 + 1;
    uint64_t *bits = mem_zalloc(words * sizeof(*bits));
    struct marks marks = {.n = value->count, .bits = bits};

    if (!bits)
        return err_nomem(check->err);
    check_pay(check, words);
    int r = run_node(check, node, value, &marks);
    for (size_t i = 0; r == 1 && above && i < words; i++)
        above->bits[i] |= bits[i];
    mem_free(bits);
    return r;
}

int check_node(struct check *check, const struct json_value *node, const struct json_value *value, struct marks *marks)
{
    const struct slot *slot = schema_slot(check->schema, node);
    unsigned n_scope = check->n_scope;
    bool box = value->type == JSON_ARRAY || value->type == JSON_OBJECT;
    int r;

    if (check->depth == SCHEMA_DEPTH || check->budget <= node->count + 1)
        return check_give_up(check);
    check->budget -= node->count + 1;
    if (node->type == JSON_BOOL)
        return node->boolean ? 1 : check_fail(check, value, NULL, "is not allowed");
    check->depth++;
    if (n_scope == 0 || check->scope[n_scope - 1] != slot->resource)
        check->scope[check->n_scope++] = slot->resource;
    if (box && (marks || slot->unevaluated))
        r = run_marking(check, node, value, marks);
    else
        r = run_node(check, node, value, NULL);
    check->n_scope = n_scope;
    check->depth--;
    return r;
}

int schema_check(const struct schema *schema, const struct json_value *instance, struct brig_err *err)
{
    struct check check = {.schema = schema, .root = instance, .err = err, .budget = pattern_budget(instance->raw_len)};
    int r = check_node(&check, schema->values, instance, NULL);

    return r == 1 ? 0 : r < 0 ? r : -EINVAL;
}
