/* SPDX-License-Identifier: Apache-2.0 */
/* dockerfile_priv.h: what the files of the Dockerfile reader share. No other file includes it. */
#ifndef BRIG_CODEC_DOCKERFILE_DOCKERFILE_PRIV_H
#define BRIG_CODEC_DOCKERFILE_DOCKERFILE_PRIV_H

#include "base/arena.h"
#include "codec/dockerfile/dockerfile.h"

struct dockerfile {
    struct arena *arena; /* It has everything but this struct. */
    struct dockerfile_step *steps;
    size_t n_steps;
    bool has_from;
    char escape;
};

/* The text, read line by line (dockerfile_lines.c). */
struct lines {
    const char *at, *end;
    unsigned line; /* The number of the last line that was read. */
    char escape;
};

/* Reads the directives at the top, which set escape. */
int lines_directives(struct lines *lines, struct brig_err *err) MUST_CHECK;
/*
 * Reads the next instruction with its continued lines into out, without comments. *ret_line is the line on which it
 * begins. Returns 1, or 0 at the end.
 */
int lines_instruction(struct lines *lines, struct buf *out, unsigned *ret_line, struct brig_err *err) MUST_CHECK;
/* Reads the lines of a here-document up to the line `name`; tabs: those at the start of a line are removed. */
int lines_here(struct lines *lines, const char *name, bool tabs, struct buf *out, struct brig_err *err) MUST_CHECK;

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline const char *skip_blanks(const char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

#endif
