/* SPDX-License-Identifier: Apache-2.0 */
/* process_kit.h: what the tests of processes share: receipts taken apart, readers, writers, shells. */
#ifndef BRIG_TESTS_PROCESS_KIT_H
#define BRIG_TESTS_PROCESS_KIT_H

#include "sandbox_rig.h"

static inline UNUSED const struct json_value *at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = json_get(json_root(doc), a);

    return b ? json_get(v, b) : v;
}

static inline UNUSED const char *text_at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = at(doc, a, b);

    return v && v->type == JSON_STRING ? v->string : "(none)";
}

static inline UNUSED int64_t number_at(const struct json_doc *doc, const char *a, const char *b)
{
    const struct json_value *v = at(doc, a, b);

    return v && v->type == JSON_NUMBER && v->integer ? v->i64 : -999;
}

static inline UNUSED bool hit(const struct json_doc *doc, const char *limit)
{
    const struct json_value *list = at(doc, "outcome", "limits_hit");

    for (const struct json_value *v = list ? list->first : NULL; v; v = v->next)
        if (str_eq(v->string, limit))
            return true;
    return false;
}

/* Runs a word and returns its receipt. */
static inline UNUSED struct json_doc *run_spec(struct rig *rig, struct sbox *sbox, const struct process_spec *spec)
{
    struct got got = {0};
    struct process_run *run = NULL;
    struct brig_err err = {0};

    if (process_run(sbox, &rig->caller, spec, got_text, &got, &run, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(got.n, 0);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    struct json_doc *doc = rig_json(got.text);
    free(got.text);
    return doc;
}

static inline UNUSED struct json_doc *run(struct rig *rig, struct sbox *sbox, const char *word, const char *arg)
{
    const char *const argv[] = {word, arg, NULL};

    return run_spec(rig, sbox, &(struct process_spec){.argv = argv});
}

static inline UNUSED void got_process(void *ctx, struct process *process, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->process = process;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
}

static inline UNUSED struct process *start_spec(struct rig *rig, struct sbox *sbox, const struct process_spec *spec)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (process_start(sbox, &rig->caller, spec, got_process, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    return got.process;
}

static inline UNUSED struct process *start(struct rig *rig, struct sbox *sbox, const char *word)
{
    const char *const argv[] = {word, NULL};

    return start_spec(rig, sbox, &(struct process_spec){.argv = argv});
}

/* ---- output --------------------------------------------------------------------------------------------- */

struct reader {
    struct output *output;
    unsigned begins, ends;
    uint64_t first[3], next[3];
    struct buf got[3];
    bool consume, close_on_data;
    char *receipt;
};

static inline UNUSED void reader_begin(void *ctx, const uint64_t first[3])
{
    struct reader *reader = ctx;

    reader->begins++;
    memcpy(reader->first, first, sizeof reader->first);
    memcpy(reader->next, first, sizeof reader->next);
}

static inline UNUSED void reader_data(void *ctx, unsigned stream, uint64_t offset, const uint8_t *data, size_t len)
{
    struct reader *reader = ctx;

    assert_int_equal(offset, reader->next[stream]);
    reader->next[stream] += len;
    assert_int_equal(buf_append(&reader->got[stream], data, len), 0);
    if (reader->consume)
        output_consumed(reader->output, stream, len);
    if (reader->close_on_data)
        output_close(take_ptr(&reader->output));
}

static inline UNUSED void reader_end(void *ctx, const char *receipt, size_t len)
{
    struct reader *reader = ctx;

    reader->ends++;
    reader->output = NULL;
    reader->receipt = receipt ? strndup(receipt, len) : NULL;
}

static inline UNUSED void reader_open(struct reader *reader, struct process *process, uint64_t out, bool now)
{
    const uint64_t from[3] = {0, out, 0};
    const struct output_events events = {reader_begin, reader_data, reader_end, reader};
    struct brig_err err = {0};

    reader->got[1] = reader->got[2] = BUF_INIT(64u << 20);
    int r = now ? output_open_now(process, 6, from, &events, &reader->output, &err)
                : output_open(process, 6, from, &events, &reader->output, &err);
    if (r < 0)
        fail_msg("%s", err.message);
}

static inline UNUSED void reader_done(struct reader *reader)
{
    if (reader->output)
        output_close(reader->output);
    buf_done(&reader->got[1]);
    buf_done(&reader->got[2]);
    free(reader->receipt);
}

/* ---- input ---------------------------------------------------------------------------------------------- */

struct writer {
    struct input *input;
    unsigned writables, ends;
    int errnum;
    size_t left;
};

static inline UNUSED void writer_writable(void *ctx)
{
    static char piece[65536];
    struct writer *writer = ctx;

    writer->writables++;
    while (writer->left > 0) {
        size_t want = writer->left < sizeof piece ? writer->left : sizeof piece;
        ssize_t n = input_write(writer->input, piece, want);
        assert_true(n >= 0);
        writer->left -= (size_t)n;
        if ((size_t)n < want)
            return;
    }
}

static inline UNUSED void writer_ended(void *ctx, int errnum)
{
    struct writer *writer = ctx;

    writer->ends++;
    writer->errnum = errnum;
    writer->input = NULL;
}

static inline UNUSED void got_shell(void *ctx, struct shell *shell, const struct brig_err *err)
{
    struct got *got = ctx;

    got->n++;
    got->shell = shell;
    got->failed = err != NULL;
    if (err)
        got->err = *err;
}

static inline UNUSED struct shell *open_shell(struct rig *rig, struct sbox *sbox)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (shell_open(sbox, &rig->caller, &(struct process_spec){0}, got_shell, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    return got.shell;
}

/* ---- shells --------------------------------------------------------------------------------------------- */

static inline UNUSED struct json_doc *shell_do(struct rig *rig, struct shell *shell, const char *command,
                                               uint64_t timeout_ms)
{
    struct got got = {0};
    struct brig_err err = {0};

    if (shell_run(shell, &rig->caller, command, strlen(command), timeout_ms, got_text, &got, &err) < 0)
        fail_msg("%s", err.message);
    RIG_UNTIL(rig, got.n);
    if (got.failed)
        fail_msg("%s", got.err.message);
    struct json_doc *doc = rig_json(got.text);
    free(got.text);
    return doc;
}

#endif
