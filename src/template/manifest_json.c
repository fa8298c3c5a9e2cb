/* SPDX-License-Identifier: Apache-2.0 */
/* manifest_json.c: takes typed members out of a document of an image. A text with a NUL inside is refused: whoever read
 * it as a C string would see another text than the one whose digest was checked. */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "template/manifest_priv.h"

#define ARENA_BYTES (64u << 20) /* the text, its values and our structs */

static const char *const type_names[JSON_TYPE_MAX] = {"null",     "a boolean", "a number",
                                                      "a string", "an array",  "an object"};

int pick_document(const char *text, size_t len, size_t max, enum json_type type, struct picker *picker,
                  const struct json_value **ret)
{
    const struct json_value *root = NULL;
    struct brig_err why = {0};

    if (len > max)
        return err_set(picker->err, BRIG_E_TOO_LARGE, 0, "%s: longer than %zu bytes", picker->what, max);
    picker->arena = arena_create(ARENA_BYTES);
    if (!picker->arena)
        return err_nomem(picker->err);
    int r = json_read_in(picker->arena, text, len, DOCUMENT_VALUES, &root, &why);
    if (r == -ENOMEM)
        return err_nomem(picker->err);
    if (r < 0)
        return pick_refuse(picker, "%s: %s", picker->what, why.message);
    if (root->type != type)
        return pick_refuse(picker, "%s: it must be %s, not %s", picker->what, type_names[type], type_names[root->type]);
    *ret = root;
    return 0;
}

int pick_member(struct picker *picker, const struct json_value *object, const char *key, enum json_type type,
                const struct json_value **ret)
{
    const struct json_value *value = json_get(object, key);

    if (value && value->type == JSON_NULL)
        value = NULL;
    if (value && value->type != type)
        return pick_refuse(picker, "%s: %s must be %s, not %s", picker->what, key, type_names[type],
                           type_names[value->type]);
    *ret = value;
    return 0;
}

static int check_text(struct picker *picker, const char *key, const char *text, size_t len, size_t max)
{
    if (len > max)
        return pick_refuse(picker, "%s: %s \"%.60s...\": longer than %zu bytes", picker->what, key, text, max);
    if (memchr(text, '\0', len))
        return pick_refuse(picker, "%s: %s \"%.60s\" has a NUL", picker->what, key, text);
    return 0;
}

int pick_string(struct picker *picker, const struct json_value *object, const char *key, size_t max, const char **ret)
{
    const struct json_value *value = NULL;
    int r = pick_member(picker, object, key, JSON_STRING, &value);

    if (r == 0 && value)
        r = check_text(picker, key, value->string, value->len, max);
    if (r == 0)
        *ret = value ? value->string : "";
    return r;
}

int pick_number(struct picker *picker, const struct json_value *object, const char *key, uint64_t max, uint64_t *ret)
{
    const struct json_value *value = NULL;
    int r = pick_member(picker, object, key, JSON_NUMBER, &value);

    if (r < 0)
        return r;
    if (value && (!value->integer || value->i64 < 0 || (uint64_t)value->i64 > max))
        return pick_refuse(picker, "%s: %s must be a whole number from 0 to %llu", picker->what, key,
                           (unsigned long long)max);
    *ret = value ? (uint64_t)value->i64 : 0;
    return 0;
}

void *pick_array(struct picker *picker, size_t n, size_t size)
{
    size_t bytes;
    void *memory = __builtin_mul_overflow(n ? n : 1, size, &bytes) ? NULL : arena_alloc(picker->arena, bytes);

    if (memory)
        memset(memory, 0, bytes);
    else
        (void)err_nomem(picker->err);
    return memory;
}

static int check_count(struct picker *picker, const char *key, size_t n, size_t max)
{
    return n > max ? pick_refuse(picker, "%s: %s has %zu items, and at most %zu are allowed", picker->what, key, n, max)
                   : 0;
}

int pick_list(struct picker *picker, const struct json_value *object, const char *key, size_t max_items, size_t max,
              struct text_list *ret, bool *ret_there)
{
    const struct json_value *value = NULL;
    int r = pick_member(picker, object, key, JSON_ARRAY, &value);
    size_t n = value ? value->count : 0;

    if (r == 0)
        r = check_count(picker, key, n, max_items);
    const char **items = r == 0 ? pick_array(picker, n, sizeof *items) : NULL;
    if (!items)
        return r < 0 ? r : -ENOMEM;
    n = 0;
    for (const struct json_value *item = value ? value->first : NULL; item; item = item->next) {
        if (item->type != JSON_STRING)
            return pick_refuse(picker, "%s: the items of %s must be strings", picker->what, key);
        r = check_text(picker, key, item->string, item->len, max);
        if (r < 0)
            return r;
        items[n++] = item->string;
    }
    *ret = (struct text_list){n, items};
    if (ret_there)
        *ret_there = value != NULL;
    return 0;
}

int pick_keys(struct picker *picker, const struct json_value *object, const char *key, size_t max_items, size_t max,
              struct text_list *ret, struct text_list *ret_values)
{
    const struct json_value *value = NULL;
    int r = pick_member(picker, object, key, JSON_OBJECT, &value);
    size_t n = value ? value->count : 0;

    if (r == 0)
        r = check_count(picker, key, n, max_items);
    const char **keys = r == 0 ? pick_array(picker, n, sizeof *keys) : NULL;
    const char **values = keys ? pick_array(picker, n, sizeof *values) : NULL;
    if (!values)
        return r < 0 ? r : -ENOMEM;
    n = 0;
    for (const struct json_value *item = value ? value->first : NULL; item; item = item->next, n++) {
        r = check_text(picker, key, item->key, item->key_len, max);
        if (r == 0 && ret_values && item->type != JSON_STRING)
            r = pick_refuse(picker, "%s: the values of %s must be strings", picker->what, key);
        if (r == 0 && ret_values)
            r = check_text(picker, key, item->string, item->len, max);
        if (r < 0)
            return r;
        keys[n] = item->key;
        values[n] = ret_values ? item->string : "";
    }
    *ret = (struct text_list){n, keys};
    if (ret_values)
        *ret_values = (struct text_list){n, values};
    return 0;
}

int pick_digest(struct picker *picker, const char *key, const char *text)
{
    if (digest_ok(text))
        return 0;
    return pick_refuse(picker, "%s: %s \"%.100s\": a digest is sha256: and 64 lower-case hexadecimal digits",
                       picker->what, key, text);
}
