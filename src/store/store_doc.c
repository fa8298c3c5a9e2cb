/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a run whose end nobody saw. Its members stay as they are, byte for byte; `outcome` and `ended_at` are
 * replaced (docs/RECEIPT.md). Only the outermost object is looked at: the text was written by us, and where it is not
 * an object after all, what could be read of it is kept and the result is one.
 */
#include <string.h>

#include "base/clock.h"
#include "codec/json/json.h"
#include "store/store_private.h"

static const char *skip_blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* Past the string that starts at `at`, or NULL. */
static const char *skip_string(const char *at)
{
    if (*at++ != '"')
        return NULL;
    for (; *at && *at != '"'; at++)
        if (*at == '\\' && *++at == '\0')
            return NULL;
    return *at == '"' ? at + 1 : NULL;
}

/* Up to the comma or bracket that ends the value at `at`, or NULL. */
static const char *skip_value(const char *at)
{
    const char *start = at;
    size_t depth = 0;

    while (*at) {
        if (*at == '"') {
            at = skip_string(at);
            if (!at)
                return NULL;
            continue;
        }
        if (depth == 0 && (*at == ',' || *at == '}'))
            return at > start ? at : NULL;
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    }
    return NULL;
}

static bool is_key(const char *key, size_t len, const char *name)
{
    return len == strlen(name) + 2 && memcmp(key + 1, name, len - 2) == 0;
}

/* The members but the two, each with a comma behind it. */
static int copy_members(const char *doc, struct buf *out)
{
    const char *at = skip_blank(doc);

    if (*at++ != '{')
        return 0;
    for (;;) {
        const char *key = skip_blank(at), *end = skip_string(key);
        if (!end)
            return 0;
        size_t key_len = (size_t)(end - key);
        const char *value = skip_blank(end);
        if (*value++ != ':' || !(end = skip_value(skip_blank(value))))
            return 0;
        int r = 0;
        if (!is_key(key, key_len, "outcome") && !is_key(key, key_len, "ended_at"))
            r = buf_append(out, key, (size_t)(end - key));
        if (r == 0 && out->data[out->len - 1] != '{' && out->data[out->len - 1] != ',')
            r = buf_append_str(out, ",");
        if (r < 0)
            return r;
        if (*end != ',')
            return 0;
        at = end + 1;
    }
}

int store_doc_close(const char *doc, const char *cause, int64_t ended_at_ns, struct buf *out)
{
    struct json json = JSON_INIT(out);
    char date[CLOCK_TEXT];
    int r = buf_append_str(out, "{");

    if (r == 0)
        r = copy_members(doc, out);
    if (r == 0)
        r = buf_append_str(out, "\"outcome\":");
    if (r < 0)
        return r;
    json_object(&json);
    json_key_string(&json, "cause", cause);
    json_key_null(&json, "exit_code");
    json_key_null(&json, "signal");
    json_key_array(&json, "limits_hit");
    json_end(&json);
    json_key_string(&json, "detail", "brigd ended while it ran");
    json_end(&json);
    r = json_finish(&json);
    if (r < 0)
        return r;
    clock_text(ended_at_ns, 6, date);
    return buf_printf(out, ",\"ended_at\":\"%s\"}", date);
}
