/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strict JSON reader. What it accepts is a tree that hangs together, is written by the JSON writer, read again,
 * and then written to the same bytes; every key is found; nothing past the text is read (it is copied to its exact
 * size).
 */
#include "fuzz.h"

#include "base/utf8.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"

#define VALUES 4096u

static size_t check_tree(const struct json_value *value, const struct json_value *parent)
{
    size_t n = 1, items = 0;

    FUZZ_CHECK(value->type < JSON_TYPE_MAX);
    FUZZ_CHECK((value->key != NULL) == (parent && parent->type == JSON_OBJECT));
    if (value->key) {
        FUZZ_CHECK(strlen(value->key) == value->key_len && json_utf8_valid(value->key, value->key_len));
        FUZZ_CHECK(json_get(parent, value->key) == value);
    }
    if (value->type == JSON_STRING)
        FUZZ_CHECK(value->string[value->len] == '\0' && json_utf8_valid(value->string, value->len));
    FUZZ_CHECK(value->raw_len > 0);
    if (parent)
        FUZZ_CHECK(value->raw > parent->raw && value->raw + value->raw_len < parent->raw + parent->raw_len);
    for (const struct json_value *item = value->first; item; item = item->next) {
        n += check_tree(item, value);
        items++;
    }
    FUZZ_CHECK(items == value->count);
    FUZZ_CHECK(items == 0 || value->type == JSON_ARRAY || value->type == JSON_OBJECT);
    return n;
}

/* Numbers as the writer can: integers, and for the others their bits. */
static void write_value(struct json *json, const struct json_value *value)
{
    uint64_t bits;

    if (value->key)
        json_key(json, value->key);
    switch (value->type) {
    case JSON_NULL: json_null(json); break;
    case JSON_BOOL: json_bool(json, value->boolean); break;
    case JSON_NUMBER:
        memcpy(&bits, &value->number, sizeof(bits));
        value->integer ? json_i64(json, value->i64) : json_u64(json, bits >> 2);
        break;
    case JSON_STRING: json_string_n(json, value->string, value->len); break;
    default:
        value->type == JSON_OBJECT ? json_object(json) : json_array(json);
        for (const struct json_value *item = value->first; item; item = item->next)
            write_value(json, item);
        json_end(json);
        break;
    }
}

static void write_tree(struct buf *out, const struct json_doc *doc)
{
    struct json json = JSON_INIT(out);

    write_value(&json, json_root(doc));
    FUZZ_CHECK(json_finish(&json) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_doc *doc = NULL, *again = NULL;
    struct brig_err err = {0};
    char *copy = malloc(size > 0 ? size : 1);
    int r;

    FUZZ_CHECK(copy);
    if (size > 0)
        memcpy(copy, data, size);
    r = json_read(copy, size, VALUES, &doc, &err);
    if (r < 0) {
        free(copy);
        FUZZ_CHECK(r == -EINVAL || r == -EMSGSIZE);
        FUZZ_CHECK(strncmp(err.message, "JSON, byte ", 11) == 0 && !doc);
        return 0;
    }
    struct buf first = BUF_INIT(64 << 20), second = BUF_INIT(64 << 20);
    FUZZ_CHECK(check_tree(json_root(doc), NULL) <= VALUES);
    FUZZ_CHECK(json_root(doc)->raw >= copy && json_root(doc)->raw + json_root(doc)->raw_len <= copy + size);
    free(copy); /* nothing but raw points into it */
    write_tree(&first, doc);
    FUZZ_CHECK(json_read(first.data, first.len, VALUES, &again, &err) == 0);
    write_tree(&second, again);
    FUZZ_CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    json_doc_free(doc);
    json_doc_free(again);
    buf_done(&first);
    buf_done(&second);
    return 0;
}
