/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_logic.c: the keywords that apply further schemas to the same value: references, and, or, not, if.
 *
 * If anyOf fails, the message says what is wanted, where that can be told: the types, if the value has none of them, or
 * what is wrong with the one branch that takes a value of this type. So for an optional argument, which every generator
 * writes as anyOf, the message is "must be a string or null".
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/str.h"

int check_ref(struct check *check, const struct at *at)
{
    return check_node(check, &check->schema->values[at->slot->target], at->value, at->marks);
}

/* The outermost resource entered that has the dynamic anchor wins. */
int check_dynamic_ref(struct check *check, const struct at *at)
{
    const struct schema *schema = check->schema;
    uint32_t target = at->slot->target;

    if (at->slot->anchor > 0) {
        const char *name = schema->anchors[at->slot->anchor - 1].name;
        const struct anchor *found = NULL;
        for (unsigned i = 0; i < check->n_scope && !found; i++)
            for (size_t j = 0; j < schema->n_anchors && !found; j++) {
                const struct anchor *anchor = &schema->anchors[j];
                if (anchor->dynamic && anchor->resource == check->scope[i] && str_eq(anchor->name, name))
                    found = anchor;
            }
        check_pay(check, check->n_scope * (uint64_t)schema->n_anchors / 16);
        target = found ? found->slot : target;
    }
    return check_node(check, &schema->values[target], at->value, at->marks);
}

int check_all_of(struct check *check, const struct at *at)
{
    int r = 1;

    for (const struct json_value *node = at->rule->first; r == 1 && node; node = node->next)
        r = check_node(check, node, at->value, at->marks);
    return r;
}

/* How many branches hold; all are tried when somebody asks for marks, else no more than `enough`. */
static int count_holding(struct check *check, const struct at *at, int enough)
{
    int n = 0;

    check->quiet++;
    for (const struct json_value *node = at->rule->first; node && (n < enough || at->marks); node = node->next) {
        int r = check_node(check, node, at->value, at->marks);
        if (r < 0)
            return r;
        n += r;
    }
    check->quiet--;
    return n;
}

static const struct slot *type_of(const struct check *check, const struct json_value *node)
{
    const struct json_value *type = schema_sibling(check->schema, node, "type");

    return type ? schema_slot(check->schema, type) : NULL;
}

/* No branch holds. */
static int say_none(struct check *check, const struct at *at)
{
    const struct json_value *fits = NULL;
    struct slot all = {0};
    unsigned n_fit = 0;
    bool typed = true;

    if (check->quiet > 0)
        return 0;
    for (const struct json_value *node = at->rule->first; node; node = node->next) {
        const struct slot *type = type_of(check, node);
        unsigned types = type ? type->types : 0;
        bool fit = types & 1u << at->value->type || (at->value->type == JSON_NUMBER && types & 1u << TYPE_INTEGER);
        typed &= type != NULL;
        all.types |= (uint8_t)types;
        n_fit += fit;
        fits = fit ? node : fits;
    }
    if (typed && n_fit == 1)
        return check_node(check, fits, at->value, NULL); /* fails again, and says why */
    if (typed && n_fit == 0)
        return check_type(check, &(struct at){.node = at->node, .rule = at->rule, .value = at->value, .slot = &all});
    return check_fail(check, at->value, NULL, "must have one of the forms that the schema allows");
}

int check_any_of(struct check *check, const struct at *at)
{
    int n = count_holding(check, at, 1);

    return n < 0 ? n : n > 0 ? 1 : say_none(check, at);
}

int check_one_of(struct check *check, const struct at *at)
{
    int n = count_holding(check, at, 2);

    if (n < 0 || n == 1)
        return n;
    return n == 0 ? say_none(check, at)
                  : check_fail(check, at->value, NULL,
                               "must have just one of the forms that the schema allows, has several");
}

int check_not(struct check *check, const struct at *at)
{
    check->quiet++;
    int r = check_node(check, at->rule, at->value, NULL);
    if (r < 0)
        return r;
    check->quiet--;
    return r == 0 ? 1 : check_fail(check, at->value, NULL, "must not have the form that the schema excludes");
}

int check_if(struct check *check, const struct at *at)
{
    const struct json_value *then = schema_sibling(check->schema, at->node, "then"),
                            *otherwise = schema_sibling(check->schema, at->node, "else");

    if (!then && !otherwise && !at->marks)
        return 1;
    check->quiet++;
    int r = check_node(check, at->rule, at->value, at->marks);
    if (r < 0)
        return r;
    check->quiet--;
    const struct json_value *next = r == 1 ? then : otherwise;
    return next ? check_node(check, next, at->value, at->marks) : 1;
}
