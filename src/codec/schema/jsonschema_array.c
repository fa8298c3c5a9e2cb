/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_array.c: the keywords about the items of an array. Draft 7 writes `items: [...]` and `additionalItems` for
 * what 2020-12 calls prefixItems and items.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/err.h"

int check_unique_items(struct check *check, const struct at *at)
{
    bool unique = true;

    if (at->value->type != JSON_ARRAY || !at->rule->boolean)
        return 1;
    if (value_unique(at->value, &check->budget, &unique) < 0)
        return err_nomem(check->err);
    return unique ? 1 : check_fail(check, at->value, NULL, "must not have an item twice");
}

/* Item by item, a schema each, as far as both go. */
static int check_each(struct check *check, const struct at *at)
{
    const struct json_value *node = at->rule->first, *item = at->value->first;
    int r = 1;

    for (size_t i = 0; r == 1 && node && item; i++, node = node->next, item = item->next) {
        r = check_node(check, node, item, NULL);
        marks_set(at->marks, i);
    }
    return r;
}

/* All items after the first `skip`. */
static int check_rest(struct check *check, const struct at *at, size_t skip)
{
    size_t i = 0;
    int r = 1;

    for (const struct json_value *item = at->value->first; r == 1 && item; item = item->next, i++) {
        if (i < skip)
            continue;
        if (at->rule->type == JSON_BOOL && !at->rule->boolean && skip > 0)
            return check_fail(check, at->value, NULL, "must have at most %zu item%s, has %zu", skip,
                              skip == 1 ? "" : "s", at->value->count);
        r = check_node(check, at->rule, item, NULL);
        marks_set(at->marks, i);
    }
    return r;
}

int check_prefix_items(struct check *check, const struct at *at)
{
    return at->value->type == JSON_ARRAY ? check_each(check, at) : 1;
}

int check_items(struct check *check, const struct at *at)
{
    const struct json_value *prefix = schema_sibling(check->schema, at->node, "prefixItems");

    if (at->value->type != JSON_ARRAY)
        return 1;
    return at->rule->type == JSON_ARRAY ? check_each(check, at) : check_rest(check, at, prefix ? prefix->count : 0);
}

int check_additional_items(struct check *check, const struct at *at)
{
    const struct json_value *items = schema_sibling(check->schema, at->node, "items");

    if (at->value->type != JSON_ARRAY || !items || items->type != JSON_ARRAY)
        return 1;
    return check_rest(check, at, items->count);
}

int check_contains(struct check *check, const struct at *at)
{
    const struct json_value *min_rule = schema_sibling(check->schema, at->node, "minContains"),
                            *max_rule = schema_sibling(check->schema, at->node, "maxContains");
    uint64_t min = min_rule ? schema_slot(check->schema, min_rule)->count : 1,
             max = max_rule ? schema_slot(check->schema, max_rule)->count : UINT64_MAX;
    uint64_t n = 0;
    size_t i = 0;

    if (at->value->type != JSON_ARRAY)
        return 1;
    check->quiet++;
    for (const struct json_value *item = at->value->first; item && n <= max; item = item->next, i++) {
        if (n >= min && !max_rule && !at->marks)
            break;
        int r = check_node(check, at->rule, item, NULL);
        if (r < 0)
            return r;
        n += r == 1;
        if (r == 1)
            marks_set(at->marks, i);
    }
    check->quiet--;
    if (n < min)
        return check_fail(check, at->value, NULL,
                          "must contain at least %llu item%s of the kind that the schema asks for",
                          (unsigned long long)min, min == 1 ? "" : "s");
    if (n > max)
        return check_fail(check, at->value, NULL,
                          "must contain at most %llu item%s of the kind that the schema asks for",
                          (unsigned long long)max, max == 1 ? "" : "s");
    return 1;
}
