/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dockerfile.h: a reader of Dockerfiles. It turns the text into a list of instructions, in order, each with its line,
 * and refuses what it does not support with that line. It knows no file, no image and no stage: these are for a caller.
 *
 * It reads as BuildKit does: parser directives (`# escape=`), comments and empty lines between continued lines, flags
 * (--from=x), the JSON and the shell form, here-documents of RUN, COPY and ADD. Variables are not replaced here, since
 * their values depend on the build: dockerfile_expand() does it, word by word.
 */
#ifndef BRIG_CODEC_DOCKERFILE_DOCKERFILE_H
#define BRIG_CODEC_DOCKERFILE_DOCKERFILE_H

#include <brig.h>

#include "base/buf.h"

#define DOCKERFILE_MAX_BYTES (1u << 20)
#define DOCKERFILE_MAX_STEPS 1000u
#define DOCKERFILE_MAX_WORDS 4096u /* One instruction has at most so many words, flags and here-documents. */

enum dockerfile_op {
    DOCKERFILE_FROM,
    DOCKERFILE_RUN,
    DOCKERFILE_COPY,
    DOCKERFILE_ADD,
    DOCKERFILE_ENV,
    DOCKERFILE_ARG,
    DOCKERFILE_WORKDIR,
    DOCKERFILE_USER,
    DOCKERFILE_LABEL,
    DOCKERFILE_EXPOSE,
    DOCKERFILE_VOLUME,
    DOCKERFILE_ENTRYPOINT,
    DOCKERFILE_CMD,
    DOCKERFILE_SHELL,
    DOCKERFILE_HEALTHCHECK,
    DOCKERFILE_STOPSIGNAL,
    DOCKERFILE_OP_MAX
};

struct dockerfile_pair {
    const char *name;
    const char *value; /* NULL if there was no "=". */
};

/* A here-document: the lines up to its end. */
struct dockerfile_here {
    const char *name; /* "EOF" */
    const char *text; /* It ends with a newline unless it is empty; "<<-" has removed the tabs. */
    size_t len;
    bool expand; /* The name was not quoted, so variables in the text are replaced. */
};

struct dockerfile_step {
    enum dockerfile_op op;
    unsigned line;       /* The line on which it begins, from 1. */
    const char *written; /* The instruction as it was written, on one line: for progress and for cache keys. */
    const struct dockerfile_pair *flags;
    size_t n_flags;
    /*
     * The words, still with quotes and variables. RUN, CMD and ENTRYPOINT in the shell form have one: the whole text.
     * HEALTHCHECK has "NONE", or "CMD" and then such words. FROM has the image, or the image, "AS" and a name.
     */
    bool exec_form; /* The words came as a JSON array. */
    const char *const *words;
    size_t n_words;
    const struct dockerfile_pair *pairs; /* ENV, LABEL and ARG have these instead. */
    size_t n_pairs;
    const struct dockerfile_here *here;
    size_t n_here;
};

struct dockerfile;
/* The message is "line N: ...", with BRIG_E_USAGE, BRIG_E_TOO_LARGE or BRIG_E_NOMEM. */
int dockerfile_read(const char *text, size_t len, struct dockerfile **ret, struct brig_err *err) MUST_CHECK;
void dockerfile_free(struct dockerfile *file); /* takes NULL */
const struct dockerfile_step *dockerfile_steps(const struct dockerfile *file, size_t *ret_n);
char dockerfile_escape(const struct dockerfile *file); /* '\\', or '`' after `# escape=` */
const char *dockerfile_op_name(enum dockerfile_op op);

/* Returns the value of a variable, or NULL if it is not set. The name does not end with a NUL. */
typedef const char *dockerfile_lookup_fn(void *ctx, const char *name, size_t len);

struct dockerfile_scope {
    dockerfile_lookup_fn *lookup;
    void *ctx;
    char escape;
    bool keep_quotes; /* The text of a here-document: quotes mean nothing. */
};
/*
 * Replaces $NAME, ${NAME}, ${NAME:-word}, ${NAME-word}, ${NAME:+word}, ${NAME+word}, ${NAME:?word} and ${NAME?word},
 * and removes quotes and escapes. The result is appended to out. The message names the text and what was expected.
 */
int dockerfile_expand(const char *text, const struct dockerfile_scope *scope, struct buf *out,
                      struct brig_err *err) MUST_CHECK;

#endif
