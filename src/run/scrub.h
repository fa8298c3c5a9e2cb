/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.h: keeps secrets out of output. Every occurrence of a known value (at least 6 bytes), also as base64 (standard
 * and URL alphabet, at each of the three alignments), URL-encoded, hexadecimal and JSON-escaped, becomes "[secret]". It
 * works on a stream: what may be the beginning of a value is held back until the next piece or the end. There is one
 * automaton for all values.
 */
#ifndef BRIG_RUN_SCRUB_H
#define BRIG_RUN_SCRUB_H

#include "base/buf.h"

#define SCRUB_MIN 6u
#define SCRUB_BATCH 64u /* Bytes before a word under way wait until there are so many. */

struct scrub;
int scrub_create(struct scrub **ret) MUST_CHECK;
/* A value shorter than SCRUB_MIN is not looked for. */
int scrub_add(struct scrub *scrub, const char *value, size_t len) MUST_CHECK;
int scrub_ready(struct scrub *scrub) MUST_CHECK; /* Call it after the last add. */
void scrub_destroy(struct scrub *scrub);         /* wipes */
uint64_t scrub_count(const struct scrub *scrub); /* The number of replacements so far. */

struct scrub_stream {              /* There is one per stream; it begins as zeroes. All of it is private. */
    struct buf held;               /* What cannot be passed on yet. */
    size_t match_start, match_end; /* In held: what must be replaced; the end is 0 for nothing. */
    uint32_t state;
};
int scrub_feed(struct scrub *scrub, struct scrub_stream *stream, const void *data, size_t len,
               struct buf *out) MUST_CHECK;
int scrub_end(struct scrub *scrub, struct scrub_stream *stream, struct buf *out) MUST_CHECK;
/* Does all of it at once. */
int scrub_text(struct scrub *scrub, const void *data, size_t len, struct buf *out) MUST_CHECK;
/* For the beginning of a longer text: what may be the beginning of a word is left out at the end. */
int scrub_text_cut(struct scrub *scrub, const void *data, size_t len, struct buf *out) MUST_CHECK;

#endif
