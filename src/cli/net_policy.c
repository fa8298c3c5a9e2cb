/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_policy.c: merges flags, files and presets into one policy. This code does not know what a policy means: members
 * are copied as they are, so that a misspelt one reaches the reader that refuses it. Rules add up; for every other
 * member the last source counts: preset, file, flags.
 */
#include <fcntl.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/net_policy.h"

#define FILE_MAX ((size_t)256 << 10) /* as the gate takes it */

int net_policy_read(const char *path, struct json_doc **ret, struct brig_err *err)
{
    AUTO_FREE char *text = malloc(FILE_MAX + 1);
    struct brig_err why = {0};

    if (!text)
        return err_nomem(err);
    ssize_t len = fd_read_file(AT_FDCWD, path, text, FILE_MAX + 1);
    if (len == -EFBIG)
        return err_usage(err, "--policy %.120s: larger than 256 KiB", path);
    if (len < 0)
        return err_set(err, BRIG_E_USAGE, (int)-len, "--policy %.120s", path);
    struct json_doc *doc = NULL;
    if (json_read(text, (size_t)len, JSON_READ_VALUES, &doc, &why) < 0)
        return err_usage(err, "--policy %.80s: %.140s", path, why.message);
    if (json_root(doc)->type != JSON_OBJECT) {
        json_doc_free(doc);
        return err_usage(err, "--policy %.120s: must be a JSON object", path);
    }
    *ret = doc;
    return 0;
}

/* Numbers of a policy are whole, or times in seconds: nothing finer than a thousandth means anything. */
static void put_number(struct json *json, const struct json_value *value)
{
    if (value->integer)
        json_i64(json, value->i64);
    else if (value->number >= 0 && value->number < 1e15)
        json_thousandths(json, (uint64_t)(value->number * 1000 + 0.5));
    else
        json_i64(json, value->number < 0 ? -1 : INT64_MAX); /* refused, as it would have been */
}

/* At most JSON_READ_DEPTH deep: the reader saw to that. */
static void put_value(struct json *json, const struct json_value *value)
{
    switch (value->type) {
    case JSON_NULL: json_null(json); return;
    case JSON_BOOL: json_bool(json, value->boolean); return;
    case JSON_NUMBER: put_number(json, value); return;
    case JSON_STRING: json_string_n(json, value->string, value->len); return;
    case JSON_OBJECT: json_object(json); break;
    default: json_array(json); break;
    }
    for (const struct json_value *item = value->first; item; item = item->next) {
        if (item->key)
            json_key(json, item->key);
        put_value(json, item);
    }
    json_end(json);
}

static void put_rule(struct json *json, const struct net_rule *rule)
{
    json_object(json);
    json_key_string(json, "action", rule->allow ? "allow" : "deny");
    json_key_string(json, rule->cidr ? "cidr" : "domain", rule->host);
    if (rule->any_port)
        json_key_string(json, "ports", "any");
    if (rule->port > 0)
        json_key_array(json, "ports"), json_u64(json, rule->port), json_end(json);
    json_end(json);
}

void net_policy_merge(const struct net_flags *flags, const struct json_value *const *parts, size_t n, bool extends,
                      struct json *json)
{
    json_object(json);
    for (size_t i = 0; i < n; i++)
        for (const struct json_value *member = parts[i]->first; member; member = member->next) {
            bool later = false;
            for (size_t k = i + 1; k < n; k++)
                later |= json_get(parts[k], member->key) != NULL;
            /* Rules that are no list are left for the reader to refuse. */
            if (later || (str_eq(member->key, "rules") && member->type == JSON_ARRAY) ||
                (!extends && str_eq(member->key, "extends")))
                continue;
            json_key(json, member->key);
            put_value(json, member);
        }
    json_key_array(json, "rules");
    for (size_t i = 0; i < n; i++) {
        const struct json_value *rules = json_get(parts[i], "rules");
        for (const struct json_value *rule = rules && rules->type == JSON_ARRAY ? rules->first : NULL; rule;
             rule = rule->next)
            put_value(json, rule);
    }
    for (size_t i = 0; i < flags->n_rules; i++)
        put_rule(json, &flags->rules[i]);
    json_end(json);
    json_end(json);
}

void net_policy_put(const struct net_flags *flags, struct json *json)
{
    const struct json_value *file = flags->doc ? json_root(flags->doc) : NULL;

    if (file && flags->n_rules == 0) {
        put_value(json, file);
        return;
    }
    if (file || !flags->net || str_eq(flags->net, "none")) {
        if (!file && flags->n_rules == 0)
            json_string(json, "none");
        else
            net_policy_merge(flags, &file, file != NULL, true, json);
        return;
    }
    if (flags->n_rules == 0) {
        json_string(json, flags->net);
        return;
    }
    json_object(json);
    json_key_string(json, "extends", flags->net);
    json_key_array(json, "rules");
    for (size_t i = 0; i < flags->n_rules; i++)
        put_rule(json, &flags->rules[i]);
    json_end(json);
    json_end(json);
}
