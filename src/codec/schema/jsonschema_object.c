/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_object.c: the keywords about the members of an object. Members are checked in the order in which the
 * instance has them.
 */
#include "codec/schema/jsonschema_priv.h"

static int unknown(struct check *check, const struct at *at, const char *name)
{
    return check_fail(check, at->value, name, "is not a known argument");
}

/* How many items an array has, or members an object. */
int check_size(struct check *check, const struct at *at)
{
    const enum keyword keyword = at->slot->keyword;
    const bool max = keyword == KW_MAX_ITEMS || keyword == KW_MAX_PROPERTIES,
               items = keyword == KW_MAX_ITEMS || keyword == KW_MIN_ITEMS;

    if (at->value->type != (items ? JSON_ARRAY : JSON_OBJECT) ||
        (max ? at->value->count <= at->slot->count : at->value->count >= at->slot->count))
        return 1;
    return check_fail(check, at->value, NULL, "must have at %s %llu %s%s, has %zu", max ? "most" : "least",
                      (unsigned long long)at->slot->count, items ? "item" : "member", at->slot->count == 1 ? "" : "s",
                      at->value->count);
}

/* A look-up, paid for. */
static const struct json_value *has(struct check *check, const struct json_value *object, const char *key, size_t len)
{
    check_pay(check, 1 + len / 64);
    return check->budget > 0 ? json_get(object, key) : NULL;
}

/* All names of the list; why is NULL, or the member that asks for them. */
static int need(struct check *check, const struct at *at, const struct json_value *list, const char *why)
{
    for (const struct json_value *name = list->first; name; name = name->next) {
        if (has(check, at->value, name->string, name->len))
            continue;
        if (check->budget == 0)
            return check_give_up(check);
        if (why)
            return check_fail(check, at->value, name->string, "is required when %.60s is given", why);
        return check_fail(check, at->value, name->string, "is required");
    }
    return 1;
}

int check_required(struct check *check, const struct at *at)
{
    return at->value->type == JSON_OBJECT ? need(check, at, at->rule, NULL) : 1;
}

/* Also dependentRequired, which has only arrays, and dependentSchemas, which has none. */
int check_dependencies(struct check *check, const struct at *at)
{
    int r = 1;

    for (const struct json_value *member = at->rule->first; r == 1 && member; member = member->next) {
        if (!has(check, at->value, member->key, member->key_len))
            continue;
        r = member->type == JSON_ARRAY ? need(check, at, member, member->key)
                                       : check_node(check, member, at->value, at->marks);
    }
    return r;
}

int check_properties(struct check *check, const struct at *at)
{
    size_t i = 0;
    int r = 1;

    if (at->value->type != JSON_OBJECT)
        return 1;
    for (const struct json_value *member = at->value->first; r == 1 && member; member = member->next, i++) {
        const struct json_value *node = has(check, at->rule, member->key, member->key_len);
        if (!node)
            continue;
        r = check_node(check, node, member, NULL);
        marks_set(at->marks, i);
    }
    return r;
}

int check_pattern_properties(struct check *check, const struct at *at)
{
    size_t i = 0;
    int r = 1;

    if (at->value->type != JSON_OBJECT)
        return 1;
    for (const struct json_value *member = at->value->first; r == 1 && member; member = member->next, i++)
        for (const struct json_value *node = at->rule->first; r == 1 && node; node = node->next) {
            int matches =
                pattern_match(schema_slot(check->schema, node)->pattern, member->key, member->key_len, &check->budget);
            if (matches < 0)
                return check_give_up(check);
            if (!matches)
                continue;
            r = check_node(check, node, member, NULL);
            marks_set(at->marks, i);
        }
    return r;
}

/* 1: properties or patternProperties beside it speak of the member. */
static int is_spoken_of(struct check *check, const struct json_value *properties, const struct json_value *patterns,
                        const struct json_value *member)
{
    int r = has(check, properties, member->key, member->key_len) != NULL;

    for (const struct json_value *node = patterns ? patterns->first : NULL; r == 0 && node; node = node->next) {
        r = pattern_match(schema_slot(check->schema, node)->pattern, member->key, member->key_len, &check->budget);
        if (r < 0)
            return check_give_up(check);
    }
    return r;
}

static bool is_false(const struct json_value *node)
{
    return node->type == JSON_BOOL && !node->boolean;
}

int check_additional_properties(struct check *check, const struct at *at)
{
    const struct json_value *properties = schema_sibling(check->schema, at->node, "properties"),
                            *patterns = schema_sibling(check->schema, at->node, "patternProperties");
    size_t i = 0;

    if (at->value->type != JSON_OBJECT)
        return 1;
    for (const struct json_value *member = at->value->first; member; member = member->next, i++) {
        int r = is_spoken_of(check, properties, patterns, member);
        if (r < 0)
            return r;
        if (r == 1)
            continue;
        r = is_false(at->rule) ? unknown(check, at, member->key) : check_node(check, at->rule, member, NULL);
        if (r != 1)
            return r;
        marks_set(at->marks, i);
    }
    return 1;
}

/* The items of an array, or the members of an object. */
int check_unevaluated(struct check *check, const struct at *at)
{
    const bool items = at->slot->keyword == KW_UNEVALUATED_ITEMS;
    size_t i = 0;

    if (at->value->type != (items ? JSON_ARRAY : JSON_OBJECT))
        return 1;
    for (const struct json_value *member = at->value->first; member; member = member->next, i++) {
        if (at->marks->bits[i / 64] >> i % 64 & 1)
            continue;
        int r =
            !items && is_false(at->rule) ? unknown(check, at, member->key) : check_node(check, at->rule, member, NULL);
        if (r != 1)
            return r;
        marks_set(at->marks, i);
    }
    return 1;
}

int check_property_names(struct check *check, const struct at *at)
{
    if (at->value->type != JSON_OBJECT)
        return 1;
    for (const struct json_value *member = at->value->first; member; member = member->next) {
        struct json_value name = {.type = JSON_STRING, .string = member->key, .len = member->key_len};
        check->quiet++; /* the name lies nowhere in the instance; the member does */
        int r = check_node(check, at->rule, &name, NULL);
        if (r < 0)
            return r;
        check->quiet--;
        if (r == 0)
            return check_fail(check, member, NULL, "may not have this name");
    }
    return 1;
}
