/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_state.c: what an agent's state must be before it is kept: an object within its size, whose memory blocks have
 * names of their own, text, and a bound that holds.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "codec/text.h"
#include "records/agents_priv.h"

#define BLOCKS_MAX 1000u
#define LABEL_MAX 256u
#define LIMIT_MAX INT64_C(1000000000)

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

static int check_block(const struct json_value *block, struct brig_err *err)
{
    const struct json_value *label = json_get(block, "label"), *value = json_get(block, "value"),
                            *limit = json_get(block, "limit");

    if (block->type != JSON_OBJECT || !label || label->type != JSON_STRING || label->len == 0 ||
        label->len > LABEL_MAX || strlen(label->string) != label->len)
        return invalid(err, "state.memory.blocks: each needs a `label`, a string of 1 to %u bytes", LABEL_MAX);
    if (!value || value->type != JSON_STRING)
        return invalid(err, "state.memory.blocks: %.60s: needs a `value`, a string", label->string);
    if (!limit || limit->type == JSON_NULL)
        return 0;
    if (limit->type != JSON_NUMBER || !limit->integer || limit->i64 < 1 || limit->i64 > LIMIT_MAX)
        return invalid(err, "state.memory.blocks: %.60s: `limit` must be an integer from 1", label->string);
    if (text_length(value->string, value->len) > (uint64_t)limit->i64)
        return invalid(err, "state.memory.blocks: %.60s: the value has more than %lld characters", label->string,
                       (long long)limit->i64);
    return 0;
}

int agent_blocks_check(const struct json_value *blocks, struct brig_err *err)
{
    if (blocks->type != JSON_ARRAY || blocks->count > BLOCKS_MAX)
        return invalid(err, "state.memory.blocks: must be a list of at most %u", BLOCKS_MAX);
    for (const struct json_value *block = blocks->first; block; block = block->next) {
        int r = check_block(block, err);
        if (r < 0)
            return r;
        for (const struct json_value *other = blocks->first; other != block; other = other->next)
            if (str_eq(json_get(other, "label")->string, json_get(block, "label")->string))
                return invalid(err, "state.memory.blocks: %.60s is there twice", json_get(block, "label")->string);
    }
    return 0;
}

int agent_state_check(const struct json_value *state, struct brig_err *err)
{
    const struct json_value *memory = json_get(state, "memory"), *blocks = json_get(memory, "blocks");

    if (state->type != JSON_OBJECT)
        return invalid(err, "state: must be an object");
    if (state->raw_len > AGENT_STATE_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "state: more than %u bytes", AGENT_STATE_MAX);
    if (memory && memory->type != JSON_OBJECT && memory->type != JSON_NULL)
        return invalid(err, "state.memory: must be an object");
    return blocks && blocks->type != JSON_NULL ? agent_blocks_check(blocks, err) : 0;
}
