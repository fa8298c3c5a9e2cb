/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allowed.c: may this tool run at all. The organisation's list is asked first, then the key's; both must allow. A key
 * without a list says nothing and leaves it to the organisation; an organisation without one leaves it to the setting,
 * so a key alone opens nothing that is shut by default. A list that is not as it should be denies: it was refused when
 * it was stored, so here something went wrong.
 */
#include "records/rules.h"

#include "base/err.h"
#include "base/str.h"

/* `*` is any run of characters. Only the last star is ever tried again, so the work is at most pattern times name. */
static bool glob(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;

    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            retry = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

/* 1: on the list, 0: not, -EINVAL: no list of names. */
static int listed(const struct json_value *list, const char *name)
{
    int found = 0;

    if (!list)
        return 0;
    if (list->type != JSON_ARRAY)
        return -EINVAL;
    for (const struct json_value *item = list->first; item; item = item->next) {
        if (item->type != JSON_STRING || strlen(item->string) != item->len)
            return -EINVAL;
        found |= glob(item->string, name);
    }
    return found;
}

static bool allows(const struct json_value *tools, bool default_deny, const char *name)
{
    const struct json_value *allow = json_get(tools, "allow"), *otherwise = json_get(tools, "default");
    int on_deny = listed(json_get(tools, "deny"), name), on_allow = listed(allow, name);

    if (tools->type != JSON_OBJECT || on_deny != 0 || on_allow < 0)
        return false;
    if (otherwise &&
        (otherwise->type != JSON_STRING || (!str_eq(otherwise->string, "allow") && !str_eq(otherwise->string, "deny"))))
        return false;
    if (on_allow)
        return true;
    if (otherwise)
        return str_eq(otherwise->string, "allow");
    return !allow && !default_deny;
}

int tool_allowed(const struct json_value *org_doc, const struct json_value *key_doc, bool default_deny,
                 const char *name, struct brig_err *err)
{
    const struct json_value *org = json_get(org_doc, "tools"), *key = json_get(key_doc, "tools");
    bool allowed = org ? allows(org, default_deny, name) : !default_deny;

    if (allowed && key)
        allowed = allows(key, false, name); /* the organisation has answered for the default */
    return allowed ? 0 : err_set(err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' not allowed", name);
}
