/* SPDX-License-Identifier: Apache-2.0 */
/* toml_json.c: a tree of TOML as JSON. Its depth is bounded by the reader. */
#include "codec/toml/toml_json.h"

#include <math.h>

static void put_number(struct json *json, double number)
{
    char text[64];
    int len = isfinite(number) ? snprintf(text, sizeof text, "%.17g", number) : 0;

    if (len > 0)
        json_raw(json, text, (size_t)len);
    else
        json_null(json);
}

static void put_items(struct json *json, const struct toml_value *value)
{
    if (value->type == TOML_TABLE)
        json_object(json);
    else
        json_array(json);
    for (const struct toml_value *item = value->first; item; item = item->next) {
        if (value->type == TOML_TABLE)
            json_key(json, item->key);
        toml_put_json(json, item);
    }
    json_end(json);
}

void toml_put_json(struct json *json, const struct toml_value *value)
{
    switch (value->type) {
    case TOML_INTEGER: json_i64(json, value->integer); return;
    case TOML_FLOAT: put_number(json, value->number); return;
    case TOML_BOOL: json_bool(json, value->boolean); return;
    case TOML_ARRAY:
    case TOML_TABLE: put_items(json, value); return;
    default: json_string_n(json, value->string, value->len);
    }
}
