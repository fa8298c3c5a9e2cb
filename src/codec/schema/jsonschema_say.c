/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_say.c: puts a failure into words: "<field>: <rule>". The field is found again from the root down, by the
 * place of the value: the values of an instance are in the order of its text, so the way to one leads through the last
 * child that does not lie behind it. Nothing is noted on the way down.
 */
#include "codec/schema/jsonschema_priv.h"

#include <stdarg.h>

#include "base/err.h"

static bool is_plain(const char *key)
{
    for (const char *at = key; *at; at++)
        if (*at == '.' || *at == '[' || *at == ']' || *at == '"' || *at == ' ' || *at == ':')
            return false;
    return *key != '\0';
}

static int put_step(struct buf *buf, const char *key, size_t index)
{
    if (!key)
        return buf_printf(buf, "[%zu]", index);
    if (!is_plain(key))
        return buf_printf(buf, "[\"%.40s\"]", key);
    return buf_printf(buf, "%s%.60s", buf->len > 0 ? "." : "", key);
}

static void put_field(const struct check *check, const struct json_value *to, const char *member, struct buf *buf)
{
    const struct json_value *at = check->root;
    int r = 0;

    while (r == 0 && at != to) {
        const struct json_value *next = NULL;
        size_t index = 0;
        for (const struct json_value *item = at->first; item && item <= to; item = item->next) {
            next = item;
            index++;
        }
        if (!next)
            break;
        r = put_step(buf, next->key, index - 1);
        at = next;
    }
    if (r == 0 && member)
        r = put_step(buf, member, 0);
    if (r == 0 && buf->len == 0)
        r = buf_append_str(buf, "arguments");
    (void)r; /* too deep to be named in full: what there is will do */
}

int check_fail(struct check *check, const struct json_value *value, const char *member, const char *format, ...)
{
    AUTO_BUF struct buf field = BUF_INIT(130);
    char rule[220];
    va_list args;

    if (check->quiet > 0)
        return 0;
    put_field(check, value, member, &field);
    va_start(args, format);
    if (vsnprintf(rule, sizeof(rule), format, args) < 0)
        rule[0] = '\0';
    va_end(args);
    (void)err_set(check->err, BRIG_E_INVALID, 0, "%s: %s", field.data ? field.data : "arguments", rule);
    return 0;
}

int check_give_up(struct check *check)
{
    (void)err_set(check->err, BRIG_E_INVALID, 0, "arguments: too much work to check against the schema");
    check->budget = 0;
    return -EOVERFLOW;
}

const char *say_type(enum json_type type)
{
    static const char *const words[] = {[JSON_NULL] = "null",
                                        [JSON_BOOL] = "true or false",
                                        [JSON_NUMBER] = "a number",
                                        [JSON_STRING] = "a string",
                                        [JSON_ARRAY] = "an array",
                                        [JSON_OBJECT] = "an object",
                                        [TYPE_INTEGER] = "a whole number"};

    return words[type];
}
