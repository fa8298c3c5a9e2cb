/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: results as people and models read them: Python's str() of a JSON value, the friendly one-line message, and truncation that really truncates, at a code point.
 */
#ifndef BRIG_TOOL_TEXT_H
#define BRIG_TOOL_TEXT_H

#include "codec/json.h"
#include "codec/json_read.h"

/* str(): a string as it is, None, True, 42, 1.5, {'a': [1, None]} as Python prints it (repr of what is inside, quotes as Python chooses them). */
int text_python(const struct json_value *value, struct buf *out) MUST_CHECK;
/* repr() of a float. The length, or -ENAMETOOLONG. */
int text_python_float(double value, char *out, size_t size) MUST_CHECK;
/* "Error executing function <name>: <Type>: <message>", cut to 1000 code points. name NULL: "None". */
int text_friendly(const char *function, const char *type, const char *message, struct buf *out) MUST_CHECK;
/* limit: code points. Whether it was cut; the note "... [NOTE: function output was truncated since it exceeded the character limit: <len> > <limit>]" is appended then. */
bool text_truncate(struct buf *text, uint64_t limit);
size_t text_length(const char *data, size_t len); /* code points */

/*
 * Agent state: `changed` is what the tool gave back. Only values of existing blocks of memory.blocks may differ, each a string within the block's limit; anything else is
 * BRIG_E_INVALID, which names what. *ret: the state to keep (canonical JSON of before with the new values); *ret_diff: {"blocks": {"label": {"before_sha256", "after"}}}.
 * Returns 1 when something changed, 0 when not.
 */
int state_apply(const struct json_value *before, const struct json_value *changed, struct buf *ret, struct buf *ret_diff, struct brig_err *err) MUST_CHECK;
/* The same; what is new goes through `clean` before it is written anywhere: a secret that a tool put into a block is not stored. */
struct state_clean {
    int (*fn)(void *ctx, const char *data, size_t len, struct buf *out);
    void *ctx;
};
int state_apply_clean(const struct json_value *before, const struct json_value *changed, const struct state_clean *clean, struct buf *ret, struct buf *ret_diff,
                      struct brig_err *err) MUST_CHECK;

#endif
