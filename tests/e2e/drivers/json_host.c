/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_host: what the JSON reader understands of documents, for a comparison with Python's. Input: a 4-byte
 * little-endian length and the bytes, again and again. Output per document: one line, "- " and the message, or "+ " and
 * the value in a plain form:
 *
 *   n  t  f  i<integer>;  d<16 hex digits of the double's bits>  s<hex of the bytes>;  [...]  {s<key>;value...}
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json/json_read.h"
#include "codec/wire/le.h"

static void put_hex(const char *data, size_t len)
{
    putchar('s');
    for (size_t i = 0; i < len; i++)
        printf("%02x", (unsigned char)data[i]);
    putchar(';');
}

static void put_value(const struct json_value *value)
{
    uint64_t bits;

    switch (value->type) {
    case JSON_NULL: putchar('n'); return;
    case JSON_BOOL: putchar(value->boolean ? 't' : 'f'); return;
    case JSON_STRING: put_hex(value->string, value->len); return;
    case JSON_NUMBER:
        memcpy(&bits, &value->number, sizeof(bits));
        if (value->integer)
            printf("i%" PRId64 ";", value->i64);
        else
            printf("d%016" PRIx64, bits);
        return;
    default: break;
    }
    putchar(value->type == JSON_OBJECT ? '{' : '[');
    for (const struct json_value *item = value->first; item; item = item->next) {
        if (item->key)
            put_hex(item->key, item->key_len);
        put_value(item);
    }
    putchar(value->type == JSON_OBJECT ? '}' : ']');
}

int main(void)
{
    uint8_t head[4];

    while (fread(head, 1, sizeof(head), stdin) == sizeof(head)) {
        size_t len = le_get_u32(head);
        struct json_doc *doc = NULL;
        struct brig_err err = {0};
        char *text = malloc(len > 0 ? len : 1);
        if (!text || fread(text, 1, len, stdin) != len)
            return 1;
        if (json_read(text, len, (size_t)1 << 20, &doc, &err) < 0) {
            printf("- %s\n", err.message);
        } else {
            printf("+ ");
            put_value(json_root(doc));
            putchar('\n');
        }
        json_doc_free(doc);
        free(text);
    }
    return 0;
}
