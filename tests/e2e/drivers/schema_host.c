/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schema_host: the JSON Schema validator for a test in Python. Standard input is one JSON document: an array of [flags,
 * schema, [instance, ...]]. For each a line: "refused <why>", or a letter per instance (v valid, i invalid, e no
 * answer) and after a tab the last failure's message.
 */
#include <stdio.h>

#include "base/buf.h"
#include "codec/schema/jsonschema.h"

static void run(const struct json_value *group)
{
    const struct json_value *flags = group->first, *json = flags->next, *instances = json->next;
    struct schema *schema = NULL;
    struct brig_err err = {0};

    if (schema_compile(json, (unsigned)flags->i64, &schema, &err) < 0) {
        printf("refused %s\n", err.message);
        return;
    }
    for (const struct json_value *instance = instances->first; instance; instance = instance->next) {
        int r = schema_check(schema, instance, &err);
        putchar(r == 0 ? 'v' : r == -EINVAL ? 'i' : 'e');
    }
    printf("\t%s\n", err.message);
    schema_free(schema);
}

int main(void)
{
    AUTO_BUF struct buf text = BUF_INIT(64u << 20);
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    size_t n;

    do {
        if (buf_reserve(&text, 65536) < 0)
            return 2;
        n = fread(text.data + text.len, 1, 65536, stdin);
        buf_commit(&text, n);
    } while (n > 0);
    if (json_read(text.data, text.len, 1u << 20, &doc, &err) < 0) {
        fprintf(stderr, "schema_host: %s\n", err.message);
        return 2;
    }
    for (const struct json_value *group = json_root(doc)->first; group; group = group->next)
        run(group);
    json_doc_free(doc);
    return 0;
}
