/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reader of Dockerfiles. Whatever it accepts has a FROM, lines within the text and counts that agree with the
 * table; every word can be expanded, or is refused with a message; and the same text reads the same again.
 */
#include "fuzz.h"

#include "codec/dockerfile/dockerfile.h"

static const char *look_up(void *ctx, const char *name, size_t len)
{
    (void)ctx;
    FUZZ_CHECK(len > 0);
    return *name == 'A' ? "a value" : *name == 'B' ? "" : NULL;
}

static void expand(const char *word, char escape, bool keep_quotes)
{
    const struct dockerfile_scope scope = {.lookup = look_up, .escape = escape, .keep_quotes = keep_quotes};
    AUTO_BUF struct buf out = BUF_INIT(4u << 20);
    struct brig_err err = {0};

    if (dockerfile_expand(word, &scope, &out, &err) < 0)
        FUZZ_CHECK(err.message[0]);
}

static void check(const struct dockerfile_step *step, char escape, unsigned lines)
{
    FUZZ_CHECK(step->op < DOCKERFILE_OP_MAX && step->line >= 1 && step->line <= lines);
    FUZZ_CHECK(!strchr(step->written, '\n'));
    FUZZ_CHECK(strncasecmp(step->written, dockerfile_op_name(step->op), strlen(dockerfile_op_name(step->op))) == 0);
    for (size_t i = 0; i < step->n_words; i++)
        expand(step->words[i], escape, false);
    for (size_t i = 0; i < step->n_pairs; i++) {
        FUZZ_CHECK(step->pairs[i].name[0]);
        if (step->pairs[i].value)
            expand(step->pairs[i].value, escape, false);
    }
    for (size_t i = 0; i < step->n_flags; i++)
        FUZZ_CHECK(step->flags[i].name[0]);
    for (size_t i = 0; i < step->n_here; i++) {
        FUZZ_CHECK(step->here[i].name[0] && strlen(step->here[i].text) <= step->here[i].len);
        expand(step->here[i].text, escape, true);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dockerfile *file = NULL, *again = NULL;
    struct brig_err err = {0};
    unsigned lines = 1;
    /* Exactly the bytes, so that reading past them is seen. */
    char *text = malloc(size ? size : 1);

    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    int r = dockerfile_read(text, size, &file, &err);
    if (r == 0) {
        size_t n;
        const struct dockerfile_step *steps = dockerfile_steps(file, &n);
        bool from = false;

        for (size_t i = 0; i < n; i++) {
            check(&steps[i], dockerfile_escape(file), lines);
            from = from || steps[i].op == DOCKERFILE_FROM;
        }
        FUZZ_CHECK(from);
    } else {
        FUZZ_CHECK(strncmp(err.message, "line ", 5) == 0 || r == -ENOMEM);
    }
    FUZZ_CHECK(dockerfile_read(text, size, &again, NULL) == r);
    dockerfile_free(file);
    dockerfile_free(again);
    free(text);
    return 0;
}
