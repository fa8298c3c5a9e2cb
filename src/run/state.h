/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: applies what a tool did to the state of its agent. */
#ifndef BRIG_RUN_STATE_H
#define BRIG_RUN_STATE_H

#include "base/buf.h"
#include "codec/json/json_read.h"

/*
 * `changed` is what the tool gave back. Only values of existing blocks of memory.blocks may differ, each a string
 * within the block's limit; anything else is BRIG_E_INVALID, which names what. *ret is the state to keep (canonical
 * JSON of before with the new values); *ret_diff is {"blocks": {"label": {"before_sha256", "after"}}}. Returns 1 if
 * something changed, 0 if not.
 */
int state_apply(const struct json_value *before, const struct json_value *changed, struct buf *ret,
                struct buf *ret_diff, struct brig_err *err) MUST_CHECK;
/*
 * Does the same; new values pass through `clean` before they are written anywhere, so that a secret that a tool put
 * into a block is not stored.
 */
struct state_clean {
    int (*fn)(void *ctx, const char *data, size_t len, struct buf *out);
    void *ctx;
};
int state_apply_clean(const struct json_value *before, const struct json_value *changed,
                      const struct state_clean *clean, struct buf *ret, struct buf *ret_diff,
                      struct brig_err *err) MUST_CHECK;

#endif
