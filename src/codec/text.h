/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h: results as people and models read them: Python's str() of a JSON value, the friendly one-line message, and
 * truncation at a code point.
 */
#ifndef BRIG_CODEC_TEXT_H
#define BRIG_CODEC_TEXT_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"

/*
 * Writes Python's str() of a value: a string as it is, None, True, 42, 1.5, {'a': [1, None]}. Inner values are written
 * as repr() does, with the quotes that Python chooses.
 */
int text_python(const struct json_value *value, struct buf *out) MUST_CHECK;
/* Writes Python's repr() of a float. Returns the length or -ENAMETOOLONG. */
int text_python_float(double value, char *out, size_t size) MUST_CHECK;
/*
 * Writes "Error executing function <name>: <Type>: <message>", cut to 1000 code points. Without a name it says "None".
 */
int text_friendly(const char *function, const char *type, const char *message, struct buf *out) MUST_CHECK;
/*
 * Cuts text to limit code points and says whether it was cut. Then "... [NOTE: function output was truncated since it
 * exceeded the character limit: <len> > <limit>]" is appended.
 */
bool text_truncate(struct buf *text, uint64_t limit);
size_t text_length(const char *data, size_t len); /* Returns the number of code points. */

#endif
