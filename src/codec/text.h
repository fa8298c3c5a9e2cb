/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: results as people and models read them: Python's str() of a JSON value, the friendly one-line message, and
 * truncation that really truncates, at a code point.
 */
#ifndef BRIG_CODEC_TEXT_H
#define BRIG_CODEC_TEXT_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"

/* str(): a string as it is, None, True, 42, 1.5, {'a': [1, None]} as Python prints it (repr of what is inside, quotes
 * as Python chooses them). */
int text_python(const struct json_value *value, struct buf *out) MUST_CHECK;
/* repr() of a float. The length, or -ENAMETOOLONG. */
int text_python_float(double value, char *out, size_t size) MUST_CHECK;
/* "Error executing function <name>: <Type>: <message>", cut to 1000 code points. name NULL: "None". */
int text_friendly(const char *function, const char *type, const char *message, struct buf *out) MUST_CHECK;
/* limit: code points. Whether it was cut; the note "... [NOTE: function output was truncated since it exceeded the
 * character limit: <len> > <limit>]" is appended then. */
bool text_truncate(struct buf *text, uint64_t limit);
size_t text_length(const char *data, size_t len); /* code points */

#endif
