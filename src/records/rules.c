/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c: rules about single arguments, beside the schema: what a string must or must not match, the directory a path
 * must stay in, a format.
 *
 * They are a fence around values that a model chose, so everything doubtful fails: a value that is no string, a list
 * where the rule names no items, a pattern that takes too much work (for `deny` too). Only an argument that is not
 * there, or null, passes: whether it must be there is the schema's business. Where a field asks for items ("to[]") and
 * there is one string instead of a list, it is that string that is asked. `within` is about the text of a path; what a
 * link in the sandbox leads to is the sandbox's to bound.
 */
#include "records/rules.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"

#define MAX_RULES 64u
#define ITEM_PRICE 8u      /* of an item of a list, in steps (pattern_budget()) */
#define BYTES_PER_STEP 16u /* of text that is looked at without a pattern */
#define MAX_FIELD 128u
#define MAX_PATH 4096u
#define HOME "/workspace"

static const char *const kinds[] = {
    [RULE_ALLOW] = "allow", [RULE_DENY] = "deny", [RULE_WITHIN] = "within", [RULE_FORMAT] = "format"};
_Static_assert(ARRAY_SIZE(kinds) == RULE_KIND_MAX, "a kind without its name");

/* ---- reading -------------------------------------------------------------------------------------- */

/* Names with dots between, each with [] behind it or not. */
static bool is_field(const struct json_value *value)
{
    bool name = false; /* a name, or its [], stands before */

    if (!value || value->type != JSON_STRING || value->len == 0 || value->len > MAX_FIELD ||
        strlen(value->string) != value->len)
        return false;
    for (const char *at = value->string; *at; at++) {
        if (*at == '[') {
            if (!name || at[1] != ']' || (at[2] != '\0' && at[2] != '.'))
                return false;
            at++;
            continue;
        }
        if (*at == ']' || (*at == '.' && !name))
            return false;
        name = *at != '.';
    }
    return name;
}

static int read_kind(const struct json_value *value, enum rule_kind kind, const char *field, struct rule *rule,
                     struct brig_err *err)
{
    struct brig_err why = {0};

    if (value->type != JSON_STRING || strlen(value->string) != value->len)
        return err_usage(err, "rule for %s: %s must be a string", field, kinds[kind]);
    *rule = (struct rule){.kind = kind, .field = field, .text = value->string};
    if (kind == RULE_WITHIN && (value->string[0] != '/' || value->len >= MAX_PATH))
        return err_usage(err, "rule for %s: within must be an absolute path", field);
    if (kind == RULE_FORMAT && !schema_format_known(value->string))
        return err_usage(err, "rule for %s: no such format: %.64s", field, value->string);
    if (kind != RULE_ALLOW && kind != RULE_DENY)
        return 0;
    int r = pattern_compile(value->string, value->len, &rule->pattern, &why);
    if (r == -ENOMEM)
        return err_nomem(err);
    return r < 0 ? err_usage(err, "rule for %s: %s", field, why.message) : 0;
}

/* One object of the list; each of its kinds becomes a rule. */
static int read_object(const struct json_value *object, struct rule *rules, size_t *n, struct brig_err *err)
{
    const struct json_value *field = json_get(object, "field");
    size_t before = *n;

    if (!is_field(field))
        return err_usage(err,
                         "a rule must be {field, and allow, deny, within or format}; a field is like to, to[] or a.b");
    for (const struct json_value *member = object->first; member; member = member->next) {
        unsigned kind = 0;
        if (member == field)
            continue;
        while (kind < RULE_KIND_MAX && !str_eq(member->key, kinds[kind]))
            kind++;
        if (kind == RULE_KIND_MAX)
            return err_usage(err, "rule for %s: no such rule: %.64s", field->string, member->key);
        if (*n == MAX_RULES)
            return err_usage(err, "more than %u rules", MAX_RULES);
        int r = read_kind(member, (enum rule_kind)kind, field->string, &rules[*n], err);
        if (r < 0)
            return r;
        (*n)++;
    }
    return *n > before ? 0
                       : err_usage(err, "rule for %s: one of allow, deny, within and format is missing", field->string);
}

int rules_parse(const struct json_value *json, struct rule **ret, size_t *ret_n, struct brig_err *err)
{
    size_t n = 0;
    int r = 0;

    if (json->type != JSON_ARRAY)
        return err_usage(err, "rules must be an array");
    struct rule *rules = mem_zalloc(MAX_RULES * sizeof(*rules));
    if (!rules)
        return err_nomem(err);
    for (const struct json_value *object = json->first; r == 0 && object; object = object->next)
        r = read_object(object, rules, &n, err);
    if (r < 0)
        return rules_free(rules, n), r;
    *ret = rules;
    *ret_n = n;
    return 0;
}

void rules_free(struct rule *rules, size_t n)
{
    for (size_t i = 0; rules && i < n; i++)
        pattern_free(rules[i].pattern);
    mem_free(rules);
}

/* ---- paths ---------------------------------------------------------------------------------------- */

static bool is_within(const char *path, size_t path_len, const char *base)
{
    char clean[MAX_PATH], clean_base[MAX_PATH];

    return strlen(path) == path_len && path_clean_absolute(HOME, path, clean, sizeof(clean)) > 0 &&
           path_clean_absolute(HOME, base, clean_base, sizeof(clean_base)) > 0 && path_is_in(clean, clean_base);
}

/* ---- asking --------------------------------------------------------------------------------------- */

struct asked {
    const struct rule *rule;
    uint64_t *budget; /* of all rules of one call together, however many items they ask */
    struct brig_err *err;
    char name[MAX_FIELD * 2]; /* the field as far as it has been followed, with numbers */
    size_t len;
};

static int fail(const struct asked *asked, const char *rule, const char *text)
{
    return err_set(asked->err, BRIG_E_INVALID, 0, "%s: %s%.150s", asked->name, rule, text);
}

static bool pay(uint64_t *budget, uint64_t price)
{
    bool enough = *budget > price;

    *budget = enough ? *budget - price : 0;
    return enough;
}

static int ask_value(const struct asked *asked, const struct json_value *value)
{
    const struct rule *rule = asked->rule;
    int r;

    if (value->type == JSON_NULL)
        return 0;
    if (value->type != JSON_STRING)
        return fail(asked, "must be a string", "");
    if (!pay(asked->budget, value->len / BYTES_PER_STEP))
        return fail(asked, "takes too much work to match against ", rule->text);
    switch (rule->kind) {
    case RULE_WITHIN:
        return is_within(value->string, value->len, rule->text) ? 0 : fail(asked, "must be within ", rule->text);
    case RULE_FORMAT:
        return schema_format_holds(rule->text, value->string, value->len)
                   ? 0
                   : fail(asked, "must be in the format ", rule->text);
    default: break;
    }
    r = pattern_match(rule->pattern, value->string, value->len, asked->budget);
    if (r < 0)
        return fail(asked, "takes too much work to match against ", rule->text);
    if (rule->kind == RULE_ALLOW)
        return r == 1 ? 0 : fail(asked, "must match ", rule->text);
    return r == 0 ? 0 : fail(asked, "must not match ", rule->text);
}

static int ask(struct asked *asked, const struct json_value *value, const char *field);

static int ask_items(struct asked *asked, const struct json_value *array, const char *rest)
{
    size_t len = asked->len, i = 0;
    int r = 0;

    for (const struct json_value *item = array->first; r == 0 && item; item = item->next, i++) {
        if (!pay(asked->budget, ITEM_PRICE))
            return fail(asked, "takes too much work to match against ", asked->rule->text);
        int n = str_format(asked->name + len, sizeof(asked->name) - len, "[%zu]", i);
        asked->len = len + (n > 0 ? (size_t)n : 0);
        r = ask(asked, item, rest);
    }
    return r;
}

/* The value that the part of the field behind `field` speaks of. */
static int ask(struct asked *asked, const struct json_value *value, const char *field)
{
    char key[MAX_FIELD + 1];

    if (*field == '\0')
        return ask_value(asked, value);
    if (*field == '[')
        return value->type == JSON_ARRAY ? ask_items(asked, value, field + 2) : ask(asked, value, field + 2);
    if (value->type == JSON_NULL)
        return 0;
    if (value->type != JSON_OBJECT)
        return fail(asked, "must be an object", "");
    field += *field == '.';
    size_t n = strcspn(field, ".[");
    memcpy(key, field, n);
    key[n] = '\0';
    const struct json_value *member = json_get(value, key);
    if (!member)
        return 0;
    int r =
        str_format(asked->name + asked->len, sizeof(asked->name) - asked->len, "%s%s", asked->len > 0 ? "." : "", key);
    asked->len += r > 0 ? (size_t)r : 0;
    return ask(asked, member, field + n);
}

int rules_check(const struct rule *rules, size_t n, const struct json_value *args, struct brig_err *err)
{
    uint64_t budget = pattern_budget(args->raw_len);
    int r = 0;

    if (args->type != JSON_OBJECT && n > 0)
        return err_set(err, BRIG_E_INVALID, 0, "arguments: must be an object");
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct asked asked = {.rule = &rules[i], .budget = &budget, .err = err};
        r = ask(&asked, args, rules[i].field);
    }
    return r;
}
