/* SPDX-License-Identifier: Apache-2.0 */
/*
 * toml_json.c: reads TOML documents and prints each as one line of JSON with the types written out, for the comparison
 * with another reader. Input: "LENGTH\n" and so many bytes, again and again. Output: {"ok":VALUE} or {"error":MESSAGE};
 * a table is an object, an array an array, everything else ["type", "text"].
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "codec/json/json.h"
#include "codec/toml/toml.h"

static void must(int r)
{
    if (r < 0) {
        fprintf(stderr, "toml_json: %s\n", strerror(-r));
        exit(2);
    }
}

static void put_string(struct buf *out, const char *data, size_t len)
{
    struct json json = JSON_INIT(out);

    json_string_n(&json, data, len);
    must(json_finish(&json));
}

static void put_scalar(struct buf *out, const struct toml_value *value)
{
    static const char *const names[] = {"string",   "integer",        "float",      "bool",
                                        "datetime", "local-datetime", "local-date", "local-time"};

    must(buf_printf(out, "[\"%s\",", names[value->type]));
    switch (value->type) {
    case TOML_INTEGER: must(buf_printf(out, "\"%" PRId64 "\"", value->integer)); break;
    case TOML_FLOAT: must(buf_printf(out, "\"%.17g\"", value->number)); break;
    case TOML_BOOL: must(buf_append_str(out, value->boolean ? "\"true\"" : "\"false\"")); break;
    default: put_string(out, value->string, value->len);
    }
    must(buf_append_str(out, "]"));
}

static void put_value(struct buf *out, const struct toml_value *value)
{
    bool table = value->type == TOML_TABLE;
    size_t n = 0;

    if (!table && value->type != TOML_ARRAY) {
        put_scalar(out, value);
        return;
    }
    must(buf_append_str(out, table ? "{" : "[\"array\""));
    for (const struct toml_value *item = value->first; item; item = item->next, n++) {
        if (n > 0 || !table)
            must(buf_append_str(out, ","));
        if (table) {
            put_string(out, item->key, item->key_len);
            must(buf_append_str(out, ":"));
        }
        put_value(out, item);
    }
    if (n != value->count)
        must(-EIO);
    must(buf_append_str(out, table ? "}" : "]"));
}

int main(void)
{
    char line[32];

    while (fgets(line, sizeof(line), stdin)) {
        struct buf out = BUF_INIT((size_t)64 << 20);
        struct toml_doc *doc = NULL;
        struct brig_err err = {0};
        size_t len = strtoul(line, NULL, 10);
        char *text = malloc(len + 1);
        if (!text || fread(text, 1, len, stdin) != len)
            return 2;
        if (toml_read(text, len, &doc, &err) < 0) {
            must(buf_append_str(&out, "{\"error\":"));
            put_string(&out, err.message, strlen(err.message));
        } else {
            must(buf_append_str(&out, "{\"ok\":"));
            put_value(&out, toml_root(doc));
        }
        must(buf_append_str(&out, "}\n"));
        if (fwrite(out.data, 1, out.len, stdout) != out.len)
            return 2;
        toml_free(doc);
        free(text);
        buf_done(&out);
    }
    return fflush(stdout) == 0 ? 0 : 2;
}
