/* SPDX-License-Identifier: Apache-2.0 */
/* json_print.c: writes a value that was read: for people with two blanks per level, or as one line. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "cli/service.h"

static int put_string(struct buf *out, const char *data, size_t len)
{
    struct json json = JSON_INIT(out);

    json_string_n(&json, data, len);
    return json_finish(&json);
}

/* The shortest text that reads as the same number. */
static int put_number(struct buf *out, const struct json_value *value)
{
    char text[40];

    if (value->integer)
        return buf_printf(out, "%" PRId64, value->i64);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value->number);
        if (strtod(text, NULL) == value->number)
            break;
    }
    return buf_append_str(out, text);
}

#define ONE_LINE UINT_MAX /* as a depth */

static int indent(struct buf *out, unsigned depth)
{
    if (depth == ONE_LINE)
        return 0;
    int r = buf_append(out, "\n", 1);

    for (unsigned i = 0; r == 0 && i < depth; i++)
        r = buf_append(out, "  ", 2);
    return r;
}

/* At most JSON_READ_DEPTH deep: the reader saw to that. */
static int put_value(struct buf *out, const struct json_value *value, unsigned depth)
{
    bool object = value->type == JSON_OBJECT;
    unsigned deeper = depth == ONE_LINE ? depth : depth + 1;
    int r;

    switch (value->type) {
    case JSON_NULL: return buf_append_str(out, "null");
    case JSON_BOOL: return buf_append_str(out, value->boolean ? "true" : "false");
    case JSON_NUMBER: return put_number(out, value);
    case JSON_STRING: return put_string(out, value->string, value->len);
    default: break;
    }
    r = buf_append(out, object ? "{" : "[", 1);
    for (const struct json_value *item = value->first; r == 0 && item; item = item->next) {
        r = indent(out, deeper);
        if (r == 0 && object)
            r = put_string(out, item->key, item->key_len);
        if (r == 0 && object)
            r = buf_append_str(out, depth == ONE_LINE ? ":" : ": ");
        if (r == 0)
            r = put_value(out, item, deeper);
        if (r == 0 && item->next)
            r = buf_append(out, ",", 1);
    }
    if (r == 0 && value->count > 0)
        r = indent(out, depth);
    return r < 0 ? r : buf_append(out, object ? "}" : "]", 1);
}

int json_print(const struct json_value *value, struct buf *out)
{
    return put_value(out, value, 0);
}

int json_print_line(const struct json_value *value, struct buf *out)
{
    return put_value(out, value, ONE_LINE);
}
