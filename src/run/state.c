/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state.c: applies what a tool did to an agent's state. The tool has had a copy; what it gives back is only a wish.
 * Only values of existing blocks may differ, and only within their limits. Any other difference refuses all of it, so
 * that a tool can neither add a block, raise a limit nor touch other keys. The new state is made from the one before,
 * never from what came back.
 */
#include "run/state.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/text.h"
#include "crypto/crypto.h"

#define DEEP 64u /* somewhere that is not on the way to a block's value: state 0, memory 1, blocks 2, a block 3 */

static bool equal(const struct json_value *a, const struct json_value *b);

static const struct json_value *member(const struct json_value *object, const struct json_value *like)
{
    for (const struct json_value *item = object->first; item; item = item->next)
        if (item->key_len == like->key_len && memcmp(item->key, like->key, like->key_len) == 0)
            return item;
    return NULL;
}

static bool equal_items(const struct json_value *a, const struct json_value *b)
{
    if (a->count != b->count)
        return false;
    if (a->type == JSON_OBJECT) {
        for (const struct json_value *item = a->first; item; item = item->next) {
            const struct json_value *other = member(b, item);
            if (!other || !equal(item, other))
                return false;
        }
        return true;
    }
    const struct json_value *other = b->first;
    for (const struct json_value *item = a->first; item; item = item->next, other = other->next)
        if (!equal(item, other))
            return false;
    return true;
}

static bool equal(const struct json_value *a, const struct json_value *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case JSON_NULL: return true;
    case JSON_BOOL: return a->boolean == b->boolean;
    case JSON_NUMBER: return a->integer == b->integer && (a->integer ? a->i64 == b->i64 : a->number == b->number);
    case JSON_STRING: return a->len == b->len && memcmp(a->string, b->string, a->len) == 0;
    default: return equal_items(a, b);
    }
}

static const struct json_value *blocks_of(const struct json_value *state)
{
    const struct json_value *blocks = json_get(json_get(state, "memory"), "blocks");

    return blocks && blocks->type == JSON_ARRAY ? blocks : NULL;
}

static const struct json_value *block_named(const struct json_value *blocks, const struct json_value *label)
{
    for (const struct json_value *block = blocks ? blocks->first : NULL; block; block = block->next) {
        const struct json_value *name = json_get(block, "label");
        if (name && equal(name, label))
            return block;
    }
    return NULL;
}

/* Every member but one is the same in both, and none is only in one. */
static const char *other_difference(const struct json_value *a, const struct json_value *b, const char *except)
{
    for (const struct json_value *item = a->first; item; item = item->next) {
        const struct json_value *other = member(b, item);
        if (!str_eq(item->key, except) && (!other || !equal(item, other)))
            return item->key;
    }
    for (const struct json_value *item = b->first; item; item = item->next)
        if (!str_eq(item->key, except) && !member(a, item))
            return item->key;
    return NULL;
}

static int check_block(const struct json_value *before, const struct json_value *after, struct brig_err *err)
{
    const struct json_value *label = json_get(before, "label"), *value = json_get(after, "value"),
                            *limit = json_get(before, "limit");
    const char *differs = other_difference(before, after, "value");

    if (differs)
        return err_set(err, BRIG_E_INVALID, 0, "agent_state: `%.64s` of block `%.64s` was changed; only values may be",
                       differs, label->string);
    if (!value || value->type != JSON_STRING)
        return err_set(err, BRIG_E_INVALID, 0, "agent_state: the value of block `%.64s` is no string", label->string);
    size_t length = text_length(value->string, value->len);
    if (limit && limit->integer && limit->i64 >= 0 && length > (uint64_t)limit->i64)
        return err_set(err, BRIG_E_INVALID, 0, "agent_state: block `%.64s` has %zu characters, its limit is %lld",
                       label->string, length, (long long)limit->i64);
    return 0;
}

static int check(const struct json_value *before, const struct json_value *changed, struct brig_err *err)
{
    static const struct json_value nothing = {.type = JSON_OBJECT};
    const struct json_value *memory = json_get(before, "memory"), *changed_memory = json_get(changed, "memory");
    const struct json_value *blocks = blocks_of(before), *changed_blocks = blocks_of(changed);
    const char *differs;

    if (changed->type != JSON_OBJECT)
        return err_set(err, BRIG_E_INVALID, 0, "agent_state: what came back is no object");
    if ((differs = other_difference(before, changed, "memory")))
        return err_set(err, BRIG_E_INVALID, 0, "agent_state: `%.64s` was changed; only values of memory blocks may be",
                       differs);
    if ((differs = other_difference(memory ? memory : &nothing, changed_memory ? changed_memory : &nothing, "blocks")))
        return err_set(err, BRIG_E_INVALID, 0,
                       "agent_state: `memory.%.64s` was changed; only values of its blocks may be", differs);
    if ((blocks ? blocks->count : 0) != (changed_blocks ? changed_blocks->count : 0))
        return err_set(err, BRIG_E_INVALID, 0,
                       "agent_state: blocks were added or removed; only their values may change");
    for (const struct json_value *block = blocks ? blocks->first : NULL; block; block = block->next) {
        const struct json_value *label = json_get(block, "label");
        const struct json_value *after =
            label && label->type == JSON_STRING ? block_named(changed_blocks, label) : NULL;
        if (!after)
            return err_set(err, BRIG_E_INVALID, 0, "agent_state: block `%.64s` is missing",
                           json_get_text(block, "label", "?"));
        int r = check_block(block, after, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

struct writer {
    struct json json;
    const struct state_clean *clean; /* of values that are new; or NULL */
    int failed;
};

static void put(struct writer *w, const struct json_value *value, const struct json_value *changed_blocks,
                unsigned depth);

static void put_value(struct writer *w, const struct json_value *before, const struct json_value *after)
{
    AUTO_BUF struct buf text = BUF_INIT(SIZE_MAX / 4);

    if (!w->clean || (before && equal(before, after))) {
        json_string_n(&w->json, after->string, after->len);
        return;
    }
    int r = w->clean->fn(w->clean->ctx, after->string, after->len, &text);
    w->failed = w->failed ? w->failed : r;
    json_string_n(&w->json, text.data ? text.data : "", text.len);
}

/* depth 3: a block's members; its value comes from the other side. */
static void put_members(struct writer *w, const struct json_value *value, const struct json_value *changed_blocks,
                        unsigned depth)
{
    const struct json_value *label = depth == 3 ? json_get(value, "label") : NULL;
    const struct json_value *after = label ? block_named(changed_blocks, label) : NULL;

    for (const struct json_value *item = value->first; item; item = item->next) {
        bool on_the_way = (depth == 0 && str_eq(item->key, "memory")) || (depth == 1 && str_eq(item->key, "blocks"));
        json_key(&w->json, item->key);
        if (after && str_eq(item->key, "value"))
            put_value(w, item, json_get(after, "value"));
        else
            put(w, item, on_the_way ? changed_blocks : NULL, on_the_way ? depth + 1 : DEEP);
    }
}

static void put(struct writer *w, const struct json_value *value, const struct json_value *changed_blocks,
                unsigned depth)
{
    struct json *json = &w->json;

    switch (value->type) {
    case JSON_NULL: json_null(json); break;
    case JSON_BOOL: json_bool(json, value->boolean); break;
    case JSON_STRING: json_string_n(json, value->string, value->len); break;
    case JSON_NUMBER: json_raw(json, value->raw, value->raw_len); break;
    case JSON_OBJECT:
        json_object(json);
        put_members(w, value, changed_blocks, depth);
        json_end(json);
        break;
    default:
        json_array(json);
        for (const struct json_value *item = value->first; item; item = item->next)
            put(w, item, changed_blocks, depth == 2 ? 3 : DEEP);
        json_end(json);
    }
}

/* {"blocks": {"label": {"before_sha256", "after"}}}: how many differ. */
static int put_diff(const struct json_value *blocks, const struct json_value *changed_blocks, struct writer *w)
{
    struct json *json = &w->json;
    int n = 0;

    json_object(json);
    json_key_object(json, "blocks");
    for (const struct json_value *block = blocks ? blocks->first : NULL; block; block = block->next) {
        const struct json_value *label = json_get(block, "label"), *before = json_get(block, "value");
        const struct json_value *after = json_get(block_named(changed_blocks, label), "value");
        uint8_t hash[SHA256_SIZE];
        char hex[SHA256_HEX];
        if (before && equal(before, after))
            continue;
        if (crypto_sha256(before && before->type == JSON_STRING ? before->string : "",
                          before && before->type == JSON_STRING ? before->len : 0, hash) < 0)
            return -ENOMEM;
        crypto_hex(hash, sizeof hash, hex);
        json_key_object(json, label->string);
        json_key_string(json, "before_sha256", hex);
        json_key(json, "after"), put_value(w, before, after);
        json_end(json);
        n++;
    }
    json_end(json);
    json_end(json);
    int r = json_finish(json);
    return r < 0 ? r : n;
}

int state_apply_clean(const struct json_value *before, const struct json_value *changed,
                      const struct state_clean *clean, struct buf *ret, struct buf *ret_diff, struct brig_err *err)
{
    struct writer state = {.json = JSON_INIT(ret), .clean = clean},
                  diff = {.json = JSON_INIT(ret_diff), .clean = clean};
    int r = check(before, changed, err);

    if (r < 0)
        return r;
    put(&state, before, blocks_of(changed), 0);
    r = json_finish(&state.json);
    if (r == 0)
        r = put_diff(blocks_of(before), blocks_of(changed), &diff);
    return r < 0 || state.failed || diff.failed ? err_nomem(err) : r > 0;
}

int state_apply(const struct json_value *before, const struct json_value *changed, struct buf *ret,
                struct buf *ret_diff, struct brig_err *err)
{
    return state_apply_clean(before, changed, NULL, ret, ret_diff, err);
}
