/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TOML reader. Whatever it accepts is a well-formed tree: counts agree with the lists, no table has a key twice,
 * every string is UTF-8 and ends in a NUL, lines are within the document; and the same text reads the same again.
 */
#include "fuzz.h"

#include "codec/json/json.h"
#include "codec/toml/toml.h"

static void check(const struct toml_value *value, unsigned lines)
{
    size_t n = 0;

    FUZZ_CHECK(value->type < TOML_TYPE_MAX && value->line >= 1 && value->line <= lines);
    if (value->string) {
        FUZZ_CHECK(value->string[value->len] == '\0');
        FUZZ_CHECK(json_utf8_valid(value->string, value->len));
    }
    for (const struct toml_value *item = value->first; item; item = item->next, n++) {
        FUZZ_CHECK((item->key != NULL) == (value->type == TOML_TABLE));
        if (item->key) {
            FUZZ_CHECK(item->key[item->key_len] == '\0' && json_utf8_valid(item->key, item->key_len));
            if (strlen(item->key) == item->key_len)
                FUZZ_CHECK(toml_get(value, item->key) == item);
        }
        check(item, lines);
    }
    FUZZ_CHECK(n == value->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct toml_doc *doc = NULL, *again = NULL;
    struct brig_err err = {0};
    unsigned lines = 1;
    /* Exactly the bytes, so that reading past them is seen. */
    char *text = malloc(size ? size : 1);

    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    int r = toml_read(text, size, &doc, &err);
    if (r == 0)
        check(toml_root(doc), lines);
    else
        FUZZ_CHECK(strncmp(err.message, "line ", 5) == 0 || r == -EFBIG);
    FUZZ_CHECK(toml_read(text, size, &again, NULL) == r);
    toml_free(doc);
    toml_free(again);
    free(text);
    return 0;
}
