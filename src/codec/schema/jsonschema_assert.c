/* SPDX-License-Identifier: Apache-2.0 */
/* jsonschema_assert.c: the keywords that look at one value and nothing below it. */
#include "codec/schema/jsonschema_priv.h"

#define QUOTE 60 /* bytes of a schema's own value in a message */

static int quote(const struct json_value *value)
{
    return (int)(value->raw_len < QUOTE ? value->raw_len : QUOTE);
}

int check_type(struct check *check, const struct at *at)
{
    unsigned types = at->slot->types, n = 0;
    AUTO_BUF struct buf wanted = BUF_INIT(160);

    if (types & 1u << at->value->type)
        return 1;
    if (at->value->type == JSON_NUMBER && types & 1u << TYPE_INTEGER && number_is_whole(at->value))
        return 1;
    if (check->quiet > 0)
        return 0;
    for (unsigned type = 0; type <= TYPE_INTEGER; type++) {
        if (!(types & 1u << type))
            continue;
        types &= ~(1u << type);
        if (buf_printf(&wanted, "%s%s", n == 0 ? "" : types ? ", " : " or ", say_type((enum json_type)type)) < 0)
            break;
        n++;
    }
    const char *is = at->value->type == JSON_NUMBER && at->slot->types & 1u << TYPE_INTEGER ? "a number with a fraction"
                                                                                            : say_type(at->value->type);
    return check_fail(check, at->value, NULL, "must be %s, is %s", wanted.data ? wanted.data : "nothing", is);
}

int check_const(struct check *check, const struct at *at)
{
    if (value_equal(at->rule, at->value, &check->budget))
        return 1;
    return check_fail(check, at->value, NULL, "must be %.*s", quote(at->rule), at->rule->raw);
}

int check_enum(struct check *check, const struct at *at)
{
    AUTO_BUF struct buf list = BUF_INIT(180);

    for (const struct json_value *item = at->rule->first; item; item = item->next)
        if (value_equal(item, at->value, &check->budget))
            return 1;
    for (const struct json_value *item = at->rule->first; item && check->quiet == 0; item = item->next)
        if (buf_printf(&list, "%s%.*s", list.len > 0 ? ", " : "", quote(item), item->raw) < 0) {
            if (buf_append_str(&list, ", ...") < 0)
                break;
            break;
        }
    return check_fail(check, at->value, NULL, "must be one of %s", list.data ? list.data : "nothing");
}

int check_multiple_of(struct check *check, const struct at *at)
{
    if (at->value->type != JSON_NUMBER || number_is_multiple(at->value, at->rule))
        return 1;
    return check_fail(check, at->value, NULL, "must be a multiple of %.*s", quote(at->rule), at->rule->raw);
}

int check_bound(struct check *check, const struct at *at)
{
    static const struct {
        const char *words;
        int low, high; /* what comparing may give */
    } bounds[KW_MAX] = {
        [KW_MAXIMUM] = {"at most", -1, 0},
        [KW_EXCLUSIVE_MAXIMUM] = {"less than", -1, -1},
        [KW_MINIMUM] = {"at least", 0, 1},
        [KW_EXCLUSIVE_MINIMUM] = {"more than", 1, 1},
    };
    unsigned kind = at->slot->keyword;

    if (at->value->type != JSON_NUMBER)
        return 1;
    int order = number_compare(at->value, at->rule);
    if (order >= bounds[kind].low && order <= bounds[kind].high)
        return 1;
    return check_fail(check, at->value, NULL, "must be %s %.*s", bounds[kind].words, quote(at->rule), at->rule->raw);
}

int check_length(struct check *check, const struct at *at)
{
    uint64_t n = 0;
    bool max = at->slot->keyword == KW_MAX_LENGTH;

    if (at->value->type != JSON_STRING)
        return 1;
    for (size_t i = 0; i < at->value->len; i++)
        n += ((unsigned char)at->value->string[i] & 0xc0) != 0x80; /* code points */
    if (max ? n <= at->slot->count : n >= at->slot->count)
        return 1;
    return check_fail(check, at->value, NULL, "must have at %s %llu character%s, has %llu", max ? "most" : "least",
                      (unsigned long long)at->slot->count, at->slot->count == 1 ? "" : "s", (unsigned long long)n);
}

int check_pattern(struct check *check, const struct at *at)
{
    if (at->value->type != JSON_STRING)
        return 1;
    int r = pattern_match(at->slot->pattern, at->value->string, at->value->len, &check->budget);
    if (r < 0)
        return check_give_up(check);
    return r ? 1 : check_fail(check, at->value, NULL, "must match %.120s", at->rule->string);
}

int check_format(struct check *check, const struct at *at)
{
    if (at->value->type != JSON_STRING || at->slot->format == 0)
        return 1;
    check_pay(check, schema_format_price(at->slot->format, at->value->len));
    if (check->budget == 0 || schema_format_check(at->slot->format, at->value->string, at->value->len))
        return 1;
    return check_fail(check, at->value, NULL, "must be in the format %.60s", at->rule->string);
}
