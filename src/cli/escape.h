/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape.h: makes bytes of strangers harmless to a terminal. What a control byte could do there (move the
 * cursor, rewrite what was said, set the title, type answers) it can no longer do; text stays text.
 *
 *   C0 but \n \t, and \r before \n   ^X      (ESC is ^[, a lone \r is ^M)
 *   DEL                              ^?
 *   C1, as UTF-8 or as a raw byte    \xNN
 *   what is not UTF-8                \xNN
 *   what utf8_is_deceptive()         \xNN    (in a line of ours only)
 *
 * State goes across calls: a UTF-8 character, or a \r\n, may be cut anywhere.
 */
#ifndef BRIG_CLI_ESCAPE_H
#define BRIG_CLI_ESCAPE_H

#include "base/buf.h"

enum escape_mode {
    ESCAPE_TERMINAL, /* a program's output */
    ESCAPE_LINE,     /* one line of ours; \n, \t and \r are escaped too */
    ESCAPE_JSON,     /* a JSON text; \u00NN, so that it stays the same JSON */
    ESCAPE_MODE_MAX
};

struct escape {
    enum escape_mode mode;
    unsigned char held[4]; /* the beginning of a character, or a \r */
    unsigned n_held, n_want;
};

#define ESCAPE_INIT(how) ((struct escape){(how), {0}, 0, 0})
#define ESCAPE_OUT 32 /* The most bytes that one byte can bring out, with those that were held. */

size_t escape_byte(struct escape *escape, unsigned char byte, char out[ESCAPE_OUT]);
/* Writes what was held when the text ended. */
size_t escape_end(struct escape *escape, char out[ESCAPE_OUT]);

/* The same for a buffer. Return 0, or a negative errno if the buffer cannot grow. */
int escape_append(struct escape *escape, const void *data, size_t len, struct buf *out) MUST_CHECK;
int escape_finish(struct escape *escape, struct buf *out) MUST_CHECK;

#endif
