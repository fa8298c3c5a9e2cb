/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: times, durations and members, as this API writes and reads them everywhere. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/parse.h"
#include "base/str.h"

/* Days are not a unit of limits (brig_parse_duration), but of keys and retention. */
static int parse_days(const char *text, size_t len, uint64_t *ret_ms)
{
    char number[32];
    uint64_t thousandths = 0;

    if (len < 2 || len > sizeof number || text[len - 1] != 'd')
        return -EINVAL;
    memcpy(number, text, len - 1);
    number[len - 1] = '\0';
    int r = brig_parse_duration(number, &thousandths); /* "1.5" as seconds is 1500 */
    if (r == 0 && __builtin_mul_overflow(thousandths, UINT64_C(86400), ret_ms))
        r = -ERANGE;
    return r;
}

int api_duration(const struct json_value *value, uint64_t *ret_ms)
{
    if (value->type == JSON_NUMBER) {
        double ms = value->number * 1000;
        if (!(ms >= 1) || ms > 9e15)
            return -ERANGE;
        *ret_ms = (uint64_t)ms;
        return 0;
    }
    if (value->type != JSON_STRING || strlen(value->string) != value->len)
        return -EINVAL;
    if (parse_days(value->string, value->len, ret_ms) == 0)
        return 0;
    return brig_parse_duration(value->string, ret_ms);
}

/* Digits up to a separator (or the end); the place after it, or NULL. */
const char *api_number(const char *text, char separator, uint64_t *ret)
{
    char digits[24];
    const char *end = strchrnul(text, separator);
    size_t len = (size_t)(end - text);

    if (len == 0 || len >= sizeof digits || (separator && *end == '\0'))
        return NULL;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (parse_u64(digits, ret) < 0)
        return NULL;
    return *end ? end + 1 : end;
}

const struct json_value *api_unknown_member(const struct request *rq, const char *known)
{
    const struct json_value *member = rq->json->first;

    while (member && str_has_word(known, member->key, member->key_len))
        member = member->next;
    return member;
}

bool api_only_members(struct request *rq, const char *known)
{
    const struct json_value *member = api_unknown_member(rq, known);

    if (member)
        request_refuse(rq, BRIG_E_USAGE, "%.64s: not a member of this request", member->key);
    return !member;
}

void api_put(struct json *json, const char *key, const struct json_value *value)
{
    json_key_raw(json, key, value ? value->raw : NULL, value ? value->raw_len : 0);
}

void api_put_bytes(struct json *json, const char *key, const char *key_encoding, bool text, const void *data,
                   size_t len)
{
    json_key(json, key);
    text ? json_string_n(json, data, len) : json_base64(json, data, len);
    json_key_string(json, key_encoding, text ? "utf-8" : "base64");
}

bool api_name(struct request *rq, const struct json_value *name, char *out, size_t size)
{
    if (!name || name->type != JSON_STRING || name->len == 0 || name->len >= size ||
        memchr(name->string, '\0', name->len))
        return request_refuse(rq, BRIG_E_USAGE, "name: must be text of 1 to %zu bytes", size - 1), false;
    memcpy(out, name->string, name->len);
    out[name->len] = '\0';
    return true;
}

bool api_text(struct request *rq, const char *key, const char **ret)
{
    const struct json_value *v = json_get(rq->json, key);

    *ret = NULL;
    if (!v || v->type == JSON_NULL)
        return true;
    if (v->type != JSON_STRING || v->len == 0 || strlen(v->string) != v->len)
        return request_refuse(rq, BRIG_E_USAGE, "%s: must be text", key), false;
    *ret = v->string;
    return true;
}

bool api_bool(struct request *rq, const char *key, bool *ret)
{
    const struct json_value *v = json_get(rq->json, key);

    if (!v)
        return true;
    if (v->type != JSON_BOOL)
        return request_refuse(rq, BRIG_E_USAGE, "%s: must be true or false", key), false;
    *ret = v->boolean;
    return true;
}

void api_put_time(struct json *json, const char *key, int64_t at_ns)
{
    at_ns ? json_key_time(json, key, at_ns, API_TIME_DIGITS) : json_key_null(json, key);
}

void request_list_objects(struct request *rq, const char *member, const struct object *first,
                          void (*put)(struct json *json, const struct object *object))
{
    AUTO_BUF struct buf out = BUF_INIT(API_ANSWER_MAX);
    struct json json = JSON_INIT(&out);

    request_list_begin(&json, member);
    for (; first; first = first->next)
        put(&json, first);
    request_list_end(rq, &json);
}

const char *api_author(const struct caller *caller, char out[API_AUTHOR])
{
    snprintf(out, API_AUTHOR, "user-%.58s", str_starts(caller->org_id, "org-") ? caller->org_id + 4 : caller->org_id);
    return out;
}
