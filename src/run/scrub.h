/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scrub.h: secrets do not leave in output: every occurrence of a known value (at least 6 bytes), also as base64
 * (standard and URL alphabet, at each of the three alignments), URL-encoded, hexadecimal and JSON-escaped, becomes
 * "[secret]". Works on a stream: what may be the beginning of one is held back until the next piece or the end. One
 * automaton for all values.
 */
#ifndef BRIG_RUN_SCRUB_H
#define BRIG_RUN_SCRUB_H

#include "base/buf.h"

#define SCRUB_MIN 6u
#define SCRUB_BATCH 64u /* bytes before a word under way wait for so many */

struct scrub;
int scrub_create(struct scrub **ret) MUST_CHECK;
/* shorter than SCRUB_MIN: not looked for */
int scrub_add(struct scrub *scrub, const char *value, size_t len) MUST_CHECK;
int scrub_ready(struct scrub *scrub) MUST_CHECK; /* after the last add */
void scrub_destroy(struct scrub *scrub);         /* wipes */
bool scrub_empty(const struct scrub *scrub);     /* there is nothing to look for */
uint64_t scrub_count(const struct scrub *scrub); /* replaced so far */

struct scrub_stream {              /* one per stream; zero to begin with. All of it is private */
    struct buf held;               /* what cannot go out yet */
    size_t match_start, match_end; /* in it: what is to be replaced; end 0: nothing */
    uint32_t state;
};
int scrub_feed(struct scrub *scrub, struct scrub_stream *stream, const void *data, size_t len,
               struct buf *out) MUST_CHECK;
int scrub_end(struct scrub *scrub, struct scrub_stream *stream, struct buf *out) MUST_CHECK;
int scrub_text(struct scrub *scrub, const void *data, size_t len, struct buf *out) MUST_CHECK; /* all at once */
int scrub_text_cut(struct scrub *scrub, const void *data, size_t len,
                   struct buf *out) MUST_CHECK; /* of something longer: what may be the beginning of a word is left out
                                                   at the end */

#endif
