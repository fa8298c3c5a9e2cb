/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_run.c: runs brig-layer in a sandbox (layer_run.h). The order of ends is fixed: the program's output and
 * receipt, the sandbox's own end, then done(). A sandbox that dies first is the same without a receipt.
 */
#include "template/layer_run.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "sandbox/process.h"

#define ARGV_MAX 24u
#define SAID_MAX 4096u
#define MEMORY "512m" /* zstd's largest window is 128 MiB */

struct layer_run {
    struct caller caller;
    char **words; /* argv, below, new_layer: one block each, for the length of the run */
    size_t n_words;
    const char *argv[ARGV_MAX + 2];
    const char **below;
    size_t n_below;
    const char *new_layer, *blob;
    struct manager *manager;
    struct provider *provider;
    const struct config *config;
    char scratch[32]; /* the new layer of a run that needs none; "" while there is none */
    uint64_t timeout_ms;
    struct sbox *sbox;
    struct sbox_watch watch;
    struct output *output;
    bool starting, ending, answered, forgotten;
    bool good;
    char cause[32];
    struct buf line, said;
    struct brig_err err;
    struct layer_run_events events;
};

static void layer_run_free(struct layer_run *run)
{
    for (size_t i = 0; i < run->n_words; i++)
        mem_free(run->words[i]);
    mem_free(run->words);
    mem_free(run->below);
    buf_done(&run->line);
    buf_done(&run->said);
    mem_free(run);
}

static const char *last_line(struct buf *text)
{
    while (text->len > 0 && text->data[text->len - 1] == '\n')
        text->data[--text->len] = '\0';
    const char *at = text->len > 0 ? strrchr(text->data, '\n') : NULL;
    return at ? at + 1 : text->len > 0 ? text->data : "";
}

static void conclude(struct layer_run *run)
{
    if (!run->forgotten) {
        if (!run->answered && !run->err.code)
            (void)err_set(&run->err, BRIG_E_GONE, 0, "the sandbox that reads the image has ended");
        const struct layer_run_result result = {.err = run->err.code ? &run->err : NULL,
                                                .good = run->good,
                                                .cause = run->cause,
                                                .said = last_line(&run->said)};
        run->events.done(run->events.ctx, &result);
    }
    layer_run_free(run);
}

static void on_scratch_removed(void *ctx, const struct brig_err *err UNUSED)
{
    conclude(ctx); /* what is left of it, the next start removes */
}

/* The sandbox is gone, or never was. */
static void finish(struct layer_run *run)
{
    if (!run->scratch[0] ||
        run->provider->ops->layer(run->provider, LAYER_REMOVE, run->scratch, NULL, on_scratch_removed, run, NULL) < 0)
        conclude(run);
}

/* ---- its end ------------------------------------------------------------------------------------------ */

static void on_ended(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    finish(ctx);
}

static void end(struct layer_run *run)
{
    if (run->output)
        output_close(take_ptr(&run->output));
    if (sbox_end(run->sbox, &run->caller, "run ended", on_ended, run, NULL) < 0)
        return; /* it is ending already: on_gone() tells when nothing in it lives any more */
    run->ending = true;
    sbox_unwatch(take_ptr(&run->sbox), &run->watch);
}

static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct layer_run *run = ctx;

    run->sbox = NULL;
    if (!run->ending && !run->starting && !run->output)
        finish(run); /* else the last call of what is under way does */
}

/* ---- output ------------------------------------------------------------------------------------------- */

static void fail(struct layer_run *run, enum brig_code code, const char *why)
{
    if (!run->err.code)
        (void)err_set(&run->err, code, 0, "%s", why);
}

static void take_lines(struct layer_run *run)
{
    char *newline;

    while (run->line.len > 0 && (newline = memchr(run->line.data, '\n', run->line.len))) {
        size_t len = (size_t)(newline - run->line.data);
        *newline = '\0';
        if (run->events.line && !run->forgotten)
            run->events.line(run->events.ctx, run->line.data, len);
        buf_consume(&run->line, len + 1);
    }
}

static void on_data(void *ctx, unsigned stream, uint64_t offset UNUSED, const uint8_t *data, size_t len)
{
    struct layer_run *run = ctx;

    if (stream == 2) {
        if (run->said.len + len > SAID_MAX)
            buf_consume(&run->said, run->said.len); /* the last line is what is shown */
        (void)!buf_append(&run->said, data, len > SAID_MAX ? SAID_MAX : len);
    } else if (run->events.data) {
        if (!run->forgotten)
            run->events.data(run->events.ctx, data, len);
        return;
    } else if (buf_append(&run->line, data, len) < 0) {
        fail(run, BRIG_E_INVALID, "the reader of images said a line that is too long");
        buf_consume(&run->line, run->line.len);
    } else {
        take_lines(run);
    }
    if (run->output)
        output_consumed(run->output, stream, len);
}

static void read_receipt(struct layer_run *run, const char *text, size_t len)
{
    struct json_doc *doc = NULL;

    if (!text || json_read(text, len, JSON_READ_VALUES, &doc, NULL) < 0)
        return;
    const struct json_value *outcome = json_get(json_root(doc), "outcome"), *cause = json_get(outcome, "cause"),
                            *code = json_get(outcome, "exit_code");
    run->answered = true;
    if (cause && cause->type == JSON_STRING)
        str_cut(run->cause, sizeof run->cause, cause->string);
    run->good = str_eq(run->cause, "exited") && code && code->type == JSON_NUMBER && code->integer && code->i64 == 0 &&
                !run->err.code;
    json_doc_free(doc);
}

static void on_output_end(void *ctx, const char *receipt, size_t len)
{
    struct layer_run *run = ctx;

    run->output = NULL;
    read_receipt(run, receipt, len);
    if (run->sbox)
        end(run);
    else if (!run->ending)
        finish(run);
}

/* ---- its start ---------------------------------------------------------------------------------------- */

static void on_started(void *ctx, struct process *process, const struct brig_err *err)
{
    static const uint64_t from[3] = {0};
    struct layer_run *run = ctx;
    const struct output_events events = {.data = on_data, .end = on_output_end, .ctx = run};

    run->starting = false;
    if (err && !run->err.code)
        run->err = *err;
    if (!run->sbox) { /* it went meanwhile */
        finish(run);
        return;
    }
    if (run->err.code || run->forgotten ||
        output_open(process, (1u << 1) | (1u << 2), from, &events, &run->output, &run->err) < 0)
        end(run);
}

static int start(struct layer_run *run)
{
    const struct process_spec spec = {.argv = run->argv, .timeout_ms = run->timeout_ms, .hold = true};
    int r = process_start(run->sbox, &run->caller, &spec, on_started, run, &run->err);

    run->starting = r == 0;
    return r;
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct layer_run *run = ctx;

    if (err) {
        if (!run->err.code)
            run->err = *err;
        finish(run);
        return;
    }
    run->sbox = sbox;
    run->watch = (struct sbox_watch){.ended = on_gone, .ctx = run};
    sbox_watch(sbox, &run->watch);
    if (run->err.code || run->forgotten || start(run) < 0)
        end(run);
}

static int put_spec(const struct layer_run *spec, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "template", "host");
    json_key_string(&json, "user", "root");
    json_key_string(&json, "network", "none");
    json_key_string(&json, "workdir", "/workspace");
    json_key_u64(&json, "timeout", spec->timeout_ms / 1000 + 60);
    json_key_object(&json, "limits");
    json_key_string(&json, "memory", MEMORY);
    json_key_u64(&json, "pids", 16);
    json_end(&json);
    json_key_array(&json, "binds");
    if (spec->blob) {
        json_object(&json);
        json_key_string(&json, "source", spec->blob);
        json_key_string(&json, "target", "/blob");
        json_key_bool(&json, "read_only", true);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    return json_finish(&json);
}

static const char *keep(struct layer_run *run, const char *text)
{
    char *copy = mem_strdup(text);

    if (copy)
        run->words[run->n_words++] = copy;
    return copy;
}

/* What the sandbox and its program need stays here: the caller's may go. */
static int copy_words(struct layer_run *run, const struct layer_run_spec *spec, struct brig_err *err)
{
    size_t n = 0;

    while (spec->argv[n])
        n++;
    if (n > ARGV_MAX)
        return err_usage(err, "brig-layer: too many words");
    run->words = mem_zalloc((n + spec->n_below + 2) * sizeof *run->words);
    run->below = mem_zalloc((spec->n_below + 1) * sizeof *run->below);
    if (!run->words || !run->below)
        return err_nomem(err);
    run->argv[0] = LAYER_RUN_PROGRAM;
    for (size_t i = 0; i < n; i++)
        if (!(run->argv[i + 1] = keep(run, spec->argv[i])))
            return err_nomem(err);
    for (size_t i = 0; i < spec->n_below; i++)
        if (!(run->below[i] = keep(run, spec->below[i])))
            return err_nomem(err);
    run->n_below = spec->n_below;
    if ((spec->new_layer && !(run->new_layer = keep(run, spec->new_layer))) ||
        (spec->blob && !(run->blob = keep(run, spec->blob))))
        return err_nomem(err);
    return 0;
}

static int create(struct layer_run *run, struct brig_err *err)
{
    static const uint8_t no_fingerprint[SHA256_SIZE];
    AUTO_BUF struct buf text = BUF_INIT(16384);
    struct json_doc *doc = NULL;
    struct sbox_spec spec;
    int r = put_spec(run, &text) < 0 ? err_nomem(err) : 0;

    if (r == 0)
        r = json_read(text.data, text.len, JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = sbox_spec_parse(json_root(doc), run->config, NULL, &run->caller, &spec, err);
    json_doc_free(doc);
    if (r < 0)
        return r;
    spec.ephemeral = spec.service = true;
    spec.new_layer = run->new_layer ? run->new_layer : run->scratch;
    spec.below = run->below;
    spec.n_below = run->n_below;
    return manager_create_sandbox(run->manager, &run->caller, &spec, NULL, no_fingerprint, on_created, run, err);
}

static void on_scratch_made(void *ctx, const struct brig_err *err)
{
    struct layer_run *run = ctx;

    if (err) {
        run->scratch[0] = '\0';
        if (!run->err.code)
            run->err = *err;
    }
    if (run->err.code || run->forgotten || create(run, &run->err) < 0)
        finish(run);
}

/* brig-layer is only there in a sandbox that makes a layer. */
static int make_scratch(struct layer_run *run, struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE];

    if (!run->provider->ops->layer)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "templates: the provider %s keeps no layers",
                       run->provider->ops->name);
    if (id_sandbox(id) < 0 || str_format(run->scratch, sizeof run->scratch, "new-%s", id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random name");
    return run->provider->ops->layer(run->provider, LAYER_MAKE, run->scratch, NULL, on_scratch_made, run, err);
}

int layer_run_start(struct manager *manager, struct provider *provider, const struct config *config,
                    const struct layer_run_spec *spec, const struct layer_run_events *events, struct layer_run **ret,
                    struct brig_err *err)
{
    struct layer_run *run = mem_zalloc(sizeof *run);

    if (!run)
        return err_nomem(err);
    *run = (struct layer_run){.caller = {.actor = "templates", .role = STORE_ROLE_ADMIN},
                              .manager = manager,
                              .provider = provider,
                              .config = config,
                              .timeout_ms = spec->timeout_ms,
                              .line = BUF_INIT(LAYER_RUN_LINE_MAX),
                              .said = BUF_INIT(SAID_MAX),
                              .events = *events};
    int r = str_copy(run->caller.org_id, sizeof run->caller.org_id, spec->org) < 0
                ? err_usage(err, "organisation: too long")
                : copy_words(run, spec, err);
    if (r == 0)
        r = run->new_layer ? create(run, err) : make_scratch(run, err);
    if (r < 0)
        layer_run_free(run);
    else
        *ret = run;
    return r;
}

void layer_run_consumed(struct layer_run *run, size_t len)
{
    if (run->output)
        output_consumed(run->output, 1, len);
}

bool layer_run_has_scratch(const struct layer_run *run, const char *name)
{
    return str_eq(run->scratch, name);
}

void layer_run_stop(struct layer_run *run, const struct brig_err *why)
{
    if (!run->err.code)
        run->err = *why;
    run->good = false;
    if (run->sbox && !run->starting)
        end(run);
}

void layer_run_forget(struct layer_run *run)
{
    run->forgotten = true;
    if (run->sbox && !run->starting)
        end(run);
}
