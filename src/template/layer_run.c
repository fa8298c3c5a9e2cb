/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_run.c: runs brig-layer in a sandbox (layer_run.h). sandbox/own_run.h has the life of that sandbox; here are the
 * layer that it makes if the caller names none, its lines and its last words.
 */
#include "template/layer_run.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "sandbox/own_run.h"

#define ARGV_MAX 4200u /* the sources of a COPY */
#define SAID_MAX 4096u
#define MEMORY "512m" /* zstd's largest window is 128 MiB */

struct layer_run {
    struct own_run *own; /* NULL when it is over */
    struct provider *provider;
    char scratch[32]; /* the new layer of a run that needs none; "" while there is none */
    bool forgotten, good;
    char cause[32];
    struct buf line, said;
    struct brig_err err;
    struct layer_run_events events;
};

static void layer_run_free(struct layer_run *run)
{
    own_run_destroy(run->own);
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
    const struct layer_run_result result = {
        .err = run->err.code ? &run->err : NULL, .good = run->good, .cause = run->cause, .said = last_line(&run->said)};

    if (!run->forgotten)
        run->events.done(run->events.ctx, &result);
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

static void on_done(void *ctx, const struct own_run_result *result)
{
    struct layer_run *run = ctx;

    run->own = NULL;
    if (result->err)
        run->err = *result->err;
    run->good = result->good;
    str_cut(run->cause, sizeof run->cause, result->cause);
    finish(run);
}

/* ---- output ------------------------------------------------------------------------------------------- */

/* Lines as they are complete. A piece may be longer than any line, so it is not put behind the last one as a whole. */
static int take_lines(struct layer_run *run, const uint8_t *data, size_t len)
{
    for (;;) {
        const uint8_t *newline = memchr(data, '\n', len);
        size_t n = newline ? (size_t)(newline - data) : len;
        if (buf_append(&run->line, data, n) < 0)
            return -EMSGSIZE;
        if (!newline)
            return 0;
        if (run->events.line && !run->forgotten)
            run->events.line(run->events.ctx, run->line.len > 0 ? run->line.data : "", run->line.len);
        buf_consume(&run->line, run->line.len);
        data = newline + 1;
        len -= n + 1;
    }
}

static void on_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct layer_run *run = ctx;
    struct brig_err too_long = {0};

    if (stream == 1 && run->events.data) {
        if (!run->forgotten)
            run->events.data(run->events.ctx, data, len);
        return;
    }
    if (stream == 2) {
        if (run->said.len + len > SAID_MAX)
            buf_consume(&run->said, run->said.len); /* the last line is what is shown */
        (void)!buf_append(&run->said, data, len > SAID_MAX ? SAID_MAX : len);
    } else if (take_lines(run, data, len) < 0) {
        (void)err_set(&too_long, BRIG_E_INVALID, 0, "the reader of images said a line that is too long");
        own_run_stop(run->own, &too_long);
    }
    own_run_consumed(run->own, stream, len);
}

/* ---- its start ---------------------------------------------------------------------------------------- */

static int put_spec(const struct layer_run_spec *spec, struct buf *out)
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

static void on_scratch_made(void *ctx, const struct brig_err *err)
{
    struct layer_run *run = ctx;

    if (err) {
        run->scratch[0] = '\0';
        run->err = *err;
    }
    if (err || run->forgotten || own_run_start(run->own, &run->err) < 0)
        finish(run);
}

/* brig-layer is only there in a sandbox that makes a layer. */
static int name_scratch(struct layer_run *run, struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE];

    if (!run->provider->ops->layer)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "templates: the provider %s keeps no layers",
                       run->provider->ops->name);
    if (id_sandbox(id) < 0 || str_format(run->scratch, sizeof run->scratch, "new-%s", id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random name");
    return 0;
}

static int prepare(struct layer_run *run, struct manager *manager, const struct config *config,
                   const struct layer_run_spec *spec, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(16384);
    const char *argv[ARGV_MAX + 2] = {LAYER_RUN_PROGRAM};
    size_t n = 0;

    for (; spec->argv[n]; n++) {
        if (n >= ARGV_MAX)
            return err_usage(err, "brig-layer: too many words");
        argv[n + 1] = spec->argv[n];
    }
    if (put_spec(spec, &text) < 0)
        return err_nomem(err);
    const struct own_run_spec own = {.org = spec->org,
                                     .actor = "templates",
                                     .sandbox = text.data,
                                     .new_layer = spec->new_layer ? spec->new_layer : run->scratch,
                                     .below = spec->below,
                                     .n_below = spec->n_below,
                                     .raw_upper = spec->raw_top,
                                     .disk = spec->disk,
                                     .program = {.argv = argv, .timeout_ms = spec->timeout_ms}};
    const struct own_run_events events = {.data = on_data, .done = on_done, .ctx = run};
    return own_run_create(manager, config, &own, &events, &run->own, err);
}

int layer_run_start(struct manager *manager, struct provider *provider, const struct config *config,
                    const struct layer_run_spec *spec, const struct layer_run_events *events, struct layer_run **ret,
                    struct brig_err *err)
{
    struct layer_run *run = mem_zalloc(sizeof *run);

    if (!run)
        return err_nomem(err);
    *run = (struct layer_run){
        .provider = provider, .line = BUF_INIT(LAYER_RUN_LINE_MAX), .said = BUF_INIT(SAID_MAX), .events = *events};
    int r = spec->new_layer ? 0 : name_scratch(run, err);
    if (r == 0)
        r = prepare(run, manager, config, spec, err);
    if (r == 0)
        r = spec->new_layer ? own_run_start(run->own, err)
                            : provider->ops->layer(provider, LAYER_MAKE, run->scratch, NULL, on_scratch_made, run, err);
    if (r < 0)
        layer_run_free(run);
    else
        *ret = run;
    return r;
}

void layer_run_consumed(struct layer_run *run, size_t len)
{
    if (run->own)
        own_run_consumed(run->own, 1, len);
}

bool layer_run_has_scratch(const struct layer_run *run, const char *name)
{
    return str_eq(run->scratch, name);
}

void layer_run_stop(struct layer_run *run, const struct brig_err *why)
{
    if (run->own)
        own_run_stop(run->own, why);
}

void layer_run_forget(struct layer_run *run)
{
    static const struct brig_err left = {.code = BRIG_E_GONE, .message = "nobody waits for it"};

    run->forgotten = true;
    layer_run_stop(run, &left);
}
