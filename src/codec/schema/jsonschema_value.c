/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_value.c: says whether two values are equal, and whether an array has one twice. The second question is
 * answered by sorting by a hash that ignores the order of members, and by comparing only items with the same hash: n
 * log n for any items. If somebody makes hashes collide, the budget of the validation runs out and there is no answer.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/mem.h"

static bool pay(uint64_t *budget, uint64_t price)
{
    bool enough = *budget > price;

    *budget = enough ? *budget - price : 0;
    return enough;
}

bool value_equal(const struct json_value *a, const struct json_value *b, uint64_t *budget)
{
    if (!pay(budget, 1) || a->type != b->type)
        return false;
    switch (a->type) {
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: return pay(budget, (a->raw_len + b->raw_len) / 64) && number_compare(a, b) == 0;
    case JSON_STRING: return a->len == b->len && pay(budget, a->len / 64) && memcmp(a->string, b->string, a->len) == 0;
    case JSON_ARRAY:
        if (a->count != b->count)
            return false;
        for (a = a->first, b = b->first; a; a = a->next, b = b->next)
            if (!value_equal(a, b, budget))
                return false;
        return true;
    case JSON_OBJECT:
        if (a->count != b->count)
            return false;
        for (const struct json_value *member = a->first; member; member = member->next) {
            const struct json_value *other = pay(budget, member->key_len / 64) ? json_get(b, member->key) : NULL;
            if (!other || !value_equal(member, other, budget))
                return false;
        }
        return true;
    default: return true;
    }
}

static uint64_t mix(uint64_t hash)
{
    hash ^= hash >> 30;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    hash ^= hash >> 27;
    hash *= UINT64_C(0x94d049bb133111eb);
    return hash ^ hash >> 31;
}

static uint64_t hash_bytes(const char *bytes, size_t len, uint64_t hash)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(1099511628211);
    return mix(hash);
}

static uint64_t hash_value(const struct json_value *value, uint64_t *budget)
{
    uint64_t hash = mix((uint64_t)value->type + 1);

    if (!pay(budget, 1))
        return 0;
    switch (value->type) {
    case JSON_BOOL: return mix(hash + value->boolean);
    case JSON_NUMBER: return pay(budget, value->raw_len / 64) ? mix(hash + number_hash(value)) : 0;
    case JSON_STRING: return pay(budget, value->len / 64) ? hash_bytes(value->string, value->len, hash) : 0;
    case JSON_ARRAY:
        for (const struct json_value *item = value->first; item; item = item->next)
            hash = mix(hash * 31 + hash_value(item, budget));
        return hash;
    case JSON_OBJECT:
        for (const struct json_value *member = value->first; member && pay(budget, member->key_len / 64);
             member = member->next)
            hash += mix(hash_bytes(member->key, member->key_len, 7) ^ hash_value(member, budget));
        return mix(hash);
    default: return hash;
    }
}

struct hashed {
    uint64_t hash;
    const struct json_value *value;
};

static int by_hash(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;

    return (x->hash > y->hash) - (x->hash < y->hash);
}

int value_unique(const struct json_value *array, uint64_t *budget, bool *ret)
{
    AUTO_FREE struct hashed *items = mem_realloc_array(NULL, array->count + 1, sizeof(*items));
    size_t n = 0;

    if (!items)
        return -ENOMEM;
    *ret = true;
    for (const struct json_value *item = array->first; item; item = item->next)
        items[n++] = (struct hashed){.hash = hash_value(item, budget), .value = item};
    qsort(items, n, sizeof(*items), by_hash);
    for (size_t i = 0; i<n && * budget> 0; i++)
        for (size_t j = i + 1; j < n && items[j].hash == items[i].hash && *budget > 0; j++)
            if (value_equal(items[i].value, items[j].value, budget)) {
                *ret = false;
                return 0;
            }
    return 0;
}
