/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_get.c: asks a document for a member of one type. What is missing, or is of another type, is the same as absent.
 * Readers of requests do not use this: they tell the caller what is wrong.
 */
#include "base/str.h"
#include "codec/json/json_read.h"

const char *json_get_text(const struct json_value *object, const char *key, const char *otherwise)
{
    const struct json_value *v = json_get(object, key);

    return v && v->type == JSON_STRING && strlen(v->string) == v->len ? v->string : otherwise;
}

bool json_get_is(const struct json_value *object, const char *key, const char *text)
{
    const char *is = json_get_text(object, key, NULL);

    return is && str_eq(is, text);
}

uint64_t json_get_u64(const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    return v && v->type == JSON_NUMBER && v->integer && v->i64 > 0 ? (uint64_t)v->i64 : 0;
}

bool json_get_bool(const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    return v && v->type == JSON_BOOL && v->boolean;
}

const struct json_value *json_get_items(const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    return v && v->type == JSON_ARRAY ? v->first : NULL;
}
