/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_run.c: a RUN. Its sandbox has the layers of the stage as its root, which root inside can write to, and none of
 * the places of other sandboxes over it: what is written to /tmp or /home belongs to the layer. When the command has
 * exited with 0, brig-layer writes what changed as the tar of a layer, as a second program of the same sandbox; it is
 * not started if the spawner sees that nothing did.
 *
 *     create -> (the secrets, the script) -> the command, whose output is the log; nothing that it started lives on
 *            -> if the root was written to: brig-layer diff, whose output is the sink -> the end
 *
 * The end of the sandbox is not waited for: the next step begins while it goes.
 */
#include <stdio.h>
#include <string.h>

#include "build/build_priv.h"
#include "host/limits.h"
#include "sandbox/process.h"

#define SAID_MAX 4096u
#define TMPFS_SIZE (UINT64_C(256) << 20)

/* Files of ours lie there on a tmpfs of their own. */
static const char *const unpacks[][5] = {{LAYER_RUN_PROGRAM, "unpack", "-", SECRETS_DIR},
                                         {LAYER_RUN_PROGRAM, "unpack", "-", SCRIPT_DIR}};

struct build_run {
    struct builds *builds;
    struct build_stage *stage; /* NULL: nobody waits for it any more */
    struct caller caller;
    const char *below[TEMPLATE_LAYERS_MAX];
    char (*names)[TEMPLATE_LAYER_NAME];
    size_t n_below; /* The stage may have fewer by now: build_bind.c. */
    const char **argv, **env;
    const char *workdir, *user;
    struct sbox *sbox;
    struct sbox_watch watch;
    struct output *output;
    bool starting, ending;
    bool writing; /* the last program */
    struct brig_bind binds[MOUNTS_MAX];
    uint32_t binds_inside;
    struct run_caches caches;
    const char *network;
    const char *left_out[MOUNTS_MAX]; /* where what is written is thrown away */
    size_t n_left_out;
    struct brig_tmpfs tmpfs[MOUNTS_MAX + ARRAY_SIZE(unpacks)];
    size_t n_binds, n_tmpfs;
    char *targets[MOUNTS_MAX]; /* their paths: the sandbox may outlive the build */
    size_t n_targets;
    struct buf files[ARRAY_SIZE(unpacks)]; /* tars, until they are unpacked */
    size_t unpacked;
    struct process_run *unpacking;
    struct buf said;
    struct loop_timer on_free; /* nothing else of it comes */
    struct build_run *next;
};

static void wipe(struct buf *text)
{
    if (text->data)
        crypto_wipe(text->data, text->len);
    buf_done(text);
}

static void run_free(struct build_run *run)
{
    for (struct build_run **at = &run->builds->runs; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
    loop_timer_clear(run->builds->o.loop, &run->on_free);
    caches_forget(run->builds->o.loop, &run->caches);
    for (size_t i = 0; i < run->n_targets; i++)
        mem_free(run->targets[i]);
    mem_free(run->names);
    mem_free(run->argv);
    mem_free(run->env);
    buf_done(&run->said);
    for (size_t i = 0; i < ARRAY_SIZE(run->files); i++)
        wipe(&run->files[i]);
    mem_free(run);
}

void runs_free(struct builds *builds)
{
    while (builds->runs) {
        struct build_run *run = builds->runs;
        if (run->output)
            output_close(take_ptr(&run->output));
        if (run->unpacking)
            process_run_cancel(take_ptr(&run->unpacking));
        if (run->sbox)
            sbox_unwatch(take_ptr(&run->sbox), &run->watch);
        run_free(run);
    }
}

/* ---- its end ---------------------------------------- */

static void on_ended(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    run_free(ctx);
}

static void free_it(struct loop_timer *timer)
{
    run_free(timer->ctx);
}

/* Whoever waits is told before or after; this only ends the sandbox. */
static void end(struct build_run *run)
{
    const bool open = run->output || run->unpacking;

    if (run->output)
        output_close(take_ptr(&run->output));
    if (run->unpacking)
        process_run_cancel(take_ptr(&run->unpacking));
    if (!run->sbox && open && !run->starting) {
        /* Its last call was taken back just now. A call of it may be on the stack, so it goes in a turn of its own. */
        run->on_free = (struct loop_timer){.fn = free_it, .ctx = run};
        (void)!loop_timer_set(run->builds->o.loop, &run->on_free, 0, NULL);
    }
    if (!run->sbox || run->starting)
        return; /* the last call of what is under way comes back here */
    if (sbox_end(run->sbox, &run->caller, "run ended", on_ended, run, NULL) < 0)
        return; /* it is ending already: on_gone() tells when nothing in it lives any more */
    run->ending = true;
    sbox_unwatch(take_ptr(&run->sbox), &run->watch);
}

static void fail(struct build_run *run, const struct brig_err *err)
{
    struct build_stage *stage = take_ptr(&run->stage);

    if (stage) {
        stage->run = NULL;
        stage_fail(stage, err);
    }
    end(run);
}

/* It has done its work: it ends, and its stage can go on. */
static struct build_stage *let_go(struct build_run *run)
{
    struct build_stage *stage = take_ptr(&run->stage);

    if (stage)
        stage->run = NULL;
    end(run);
    return stage;
}

static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct build_run *run = ctx;
    struct brig_err err;

    run->sbox = NULL;
    if (run->output || run->starting || run->ending || run->unpacking)
        return; /* the last call of what is under way comes */
    (void)err_set(&err, BRIG_E_GONE, 0, "the sandbox of the step has ended");
    fail(run, &err);
    run_free(run);
}

void run_forget(struct build_run *run)
{
    run->stage = NULL;
    end(run);
}

/* ---- output ---------------------------------------- */

static void on_data(void *ctx, unsigned stream, uint64_t offset UNUSED, const uint8_t *data, size_t len)
{
    struct build_run *run = ctx;

    if (run->writing && stream == 1) {
        if (run->stage && run->stage->sink)
            sink_write(run->stage->sink, data, len); /* run_wrote() gives the bytes back */
        if (run->stage && run->stage->sink && run->stage->sink->err.code) {
            const struct brig_err err = run->stage->sink->err;
            fail(run, &err);
        }
        return;
    }
    if (run->writing) {
        if (run->said.len + len < SAID_MAX)
            (void)!buf_append(&run->said, data, len);
    } else if (run->stage) {
        log_output(run->stage, stream, data, len);
    }
    if (run->output)
        output_consumed(run->output, stream, len);
}

static void run_wrote(struct build_stage *stage, size_t len)
{
    if (stage->run && stage->run->output)
        output_consumed(stage->run->output, 1, len);
}

static int look(struct build_run *run, struct brig_err *err);

/* What the receipt says; 0 if it exited with 0. */
static int judge(const struct build_run *run, const char *receipt, size_t len, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    if (!receipt || json_read(receipt, len, JSON_READ_VALUES, &doc, NULL) < 0)
        return err_set(err, BRIG_E_GONE, 0, "the sandbox of the step has ended");
    const struct json_value *outcome = json_get(json_root(doc), "outcome"), *code = json_get(outcome, "exit_code");
    const char *cause = json_get_text(outcome, "cause", "host_error");
    long long status = code && code->type == JSON_NUMBER ? (long long)code->i64 : -1;
    int r = 0;
    if (run->writing && (!str_eq(cause, "exited") || status != 0))
        r = err_set(err, BRIG_E_HOST, 0, "what it has changed could not be read: %.400s",
                    run->said.len ? run->said.data : cause);
    else if (str_eq(cause, "exited") && status != 0)
        r = err_set(err, BRIG_E_INVALID, 0, "the command exited with %lld", status);
    else if (str_eq(cause, "timeout"))
        r = err_set(err, BRIG_E_INVALID, 0, "the command took too long ([templates] timeout)");
    else if (!str_eq(cause, "exited"))
        r = err_set(err, BRIG_E_INVALID, 0, "the command was ended: %s", cause);
    json_doc_free(doc);
    return r;
}

static void on_output_end(void *ctx, const char *receipt, size_t len)
{
    struct build_run *run = ctx;
    struct build_stage *stage;
    struct brig_err err = {0};
    int r = judge(run, receipt, len, &err);

    run->output = NULL;
    if (r == 0 && !run->writing && run->stage) {
        r = look(run, &err);
        if (r == 0)
            return;
    }
    if (r < 0) {
        fail(run, &err);
    } else {
        stage = let_go(run);
        if (stage)
            sink_end(stage->sink);
    }
    if (!run->sbox && !run->ending)
        run_free(run);
}

/* ---- its start ---------------------------------------- */

static void on_started(void *ctx, struct process *process, const struct brig_err *err)
{
    static const uint64_t from[3] = {0};
    struct build_run *run = ctx;
    const struct output_events events = {.data = on_data, .end = on_output_end, .ctx = run};
    struct brig_err why = {0};

    run->starting = false;
    if (!run->sbox || !run->stage) { /* it went meanwhile, or nobody wants it */
        (void)err_set(&why, BRIG_E_GONE, 0, "the sandbox of the step has ended");
        fail(run, &why);
        if (!run->sbox && !run->ending)
            run_free(run);
        return;
    }
    if (!err && output_open(process, (1u << 1) | (1u << 2), from, &events, &run->output, &why) < 0)
        err = &why;
    if (err)
        fail(run, err);
}

static int start(struct build_run *run, struct brig_err *err)
{
    const struct build_lock *lock = run->stage->build->lock;
    const char *diff[2 * MOUNTS_MAX + 8] = {LAYER_RUN_PROGRAM, "diff"};
    size_t n = 2;
    if (lock)
        diff[n++] = "--latest", diff[n++] = lock->epoch;
    for (size_t i = 0; i < run->n_left_out; i++)
        diff[n++] = "--exclude", diff[n++] = run->left_out[i];
    diff[n] = "/.brig/upper";
    const uint64_t timeout = run->builds->o.config->templates_timeout;
    const struct process_spec spec = {.argv = run->writing ? diff : run->argv,
                                      .env = run->writing ? NULL : run->env,
                                      .workdir = run->writing ? "/" : run->workdir,
                                      .user = run->writing || !run->user[0] ? NULL : run->user,
                                      .timeout_ms = timeout,
                                      .hold = true};
    int r = process_start(run->sbox, &run->caller, &spec, on_started, run, err);

    run->starting = r == 0;
    return r;
}

static int write_layer(struct build_run *run, struct brig_err *err)
{
    int r = sink_create(run->stage, run_wrote, stage_layer, &run->stage->sink, err);

    run->writing = true;
    return r < 0 ? r : start(run, err);
}

static void on_looked(void *ctx, const struct box_stats *stats, const struct brig_err *err UNUSED)
{
    struct build_run *run = ctx;
    struct brig_err why = {0};
    int r = 0;

    run->starting = false;
    if (!run->sbox || !run->stage) /* it went meanwhile, or nobody wants it */
        r = err_set(&why, BRIG_E_GONE, 0, "the sandbox of the step has ended");
    else if (stats && stats->untouched)
        stage_unchanged(let_go(run));
    else
        r = write_layer(run, &why);
    if (r < 0)
        fail(run, &why);
    if (!run->sbox && !run->ending && !run->starting)
        run_free(run);
}

/* The command has ended. Most that change nothing are known without a program that looks. */
static int look(struct build_run *run, struct brig_err *err)
{
    if (!run->sbox)
        return err_set(err, BRIG_E_GONE, 0, "the sandbox of the step has ended");
    if (sbox_stats(run->sbox, on_looked, run, err) < 0)
        return write_layer(run, err);
    run->starting = true;
    return 0;
}

static int prepare(struct build_run *run, struct brig_err *err);

static void on_unpacked(void *ctx, const char *receipt, size_t len, const struct brig_err *err)
{
    struct build_run *run = ctx;
    struct brig_err why = {0};
    int r;

    run->unpacking = NULL;
    wipe(&run->files[run->unpacked++]);
    r = err ? -1 : judge(run, receipt, len, &why);
    if (r == 0 && run->sbox && run->stage)
        r = prepare(run, &why);
    else if (r == 0)
        r = err_set(&why, BRIG_E_GONE, 0, "the sandbox of the step has ended");
    if (r < 0)
        fail(run, err ? err : &why);
    if (!run->sbox && !run->ending)
        run_free(run);
}

/* Unpacks the next files of ours, or starts the command if all are in place. */
static int prepare(struct build_run *run, struct brig_err *err)
{
    while (run->unpacked < ARRAY_SIZE(run->files) && run->files[run->unpacked].len == 0)
        run->unpacked++;
    if (run->unpacked == ARRAY_SIZE(run->files))
        return start(run, err);
    const struct process_spec spec = {.argv = unpacks[run->unpacked],
                                      .workdir = "/",
                                      .timeout_ms = run->builds->o.config->templates_timeout,
                                      .input = run->files[run->unpacked].data,
                                      .input_len = run->files[run->unpacked].len};

    return process_run(run->sbox, &run->caller, &spec, on_unpacked, run, &run->unpacking, err);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct build_run *run = ctx;
    struct brig_err why = {0};

    run->starting = false;
    if (err) {
        fail(run, err);
        run_free(run);
        return;
    }
    run->sbox = sbox;
    run->watch = (struct sbox_watch){.ended = on_gone, .ctx = run};
    sbox_watch(sbox, &run->watch);
    if (!run->stage)
        end(run);
    else if (prepare(run, &why) < 0)
        fail(run, &why);
}

static void put_volumes(const struct build_run *run, struct json *json)
{
    json_key_array(json, "volumes");
    for (size_t i = 0; i < run->caches.n; i++)
        if (run->caches.items[i].name[0]) {
            json_object(json);
            json_key_string(json, "name", run->caches.items[i].name);
            json_key_string(json, "target", run->caches.items[i].target);
            json_end(json);
        }
    json_end(json);
}

static int put_spec(const struct build_run *run, const char *network, struct buf *out)
{
    const struct build *build = run->stage->build;
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "template", "host");
    json_key_string(&json, "user", "root");
    json_key_bool(&json, "writable_root", true);
    json_key_string(&json, "network", network);
    json_key_string(&json, "workdir", "/workspace");
    json_key_u64(&json, "timeout", run->builds->o.config->templates_timeout / 1000 + 120);
    json_key_null(&json, "idle_timeout");
    put_volumes(run, &json);
    if (build->limits) {
        json_key(&json, "limits");
        json_value_put(&json, build->limits);
    }
    json_end(&json);
    return json_finish(&json);
}

/* What is written there counts as memory: with less than that it is full before the step is killed. */
static void size_tmpfs(struct build_run *run, struct brig_limits limits)
{
    limits_fill(&limits, true);
    const uint64_t half = limits.memory / 2 & ~UINT64_C(4095);

    for (size_t i = 0; i < run->n_tmpfs; i++)
        if (run->tmpfs[i].size == 0)
            run->tmpfs[i].size = half < TMPFS_SIZE ? half : TMPFS_SIZE;
}

static int create(struct build_run *run, const char *network, struct brig_err *err)
{
    static const uint8_t no_fingerprint[SHA256_SIZE];
    AUTO_BUF struct buf text = BUF_INIT(65536);
    struct json_doc *doc = NULL;
    struct sbox_spec spec;
    int r = put_spec(run, network, &text) < 0 ? err_nomem(err) : 0;

    if (r == 0)
        r = json_read(text.data, text.len, JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = sbox_spec_parse(json_root(doc), run->builds->o.config, NULL, &run->caller, &spec, err);
    json_doc_free(doc);
    if (r < 0)
        return r;
    spec.ephemeral = spec.service = spec.raw_upper = true;
    spec.below = run->below;
    spec.n_below = run->n_below;
    spec.binds = run->binds;
    spec.n_binds = run->n_binds;
    spec.binds_inside = run->binds_inside;
    size_tmpfs(run, spec.limits);
    spec.tmpfs = run->tmpfs;
    spec.n_tmpfs = run->n_tmpfs;
    return manager_create_sandbox(run->builds->o.manager, &run->caller, &spec, NULL, no_fingerprint, on_created, run,
                                  err);
}

/* A cache that is not kept is an overlay over an empty directory of ours: it is gone with the sandbox. */
static void take_empty(struct build_run *run)
{
    const char *empty = library_empty(run->builds->o.library);

    for (size_t i = 0; i < run->caches.n; i++)
        if (!run->caches.items[i].name[0])
            run->binds[run->n_binds++] =
                (struct brig_bind){.source = empty, .target = run->caches.items[i].target, .overlay = true};
}

/* Its caches are there; or on_caches() comes. */
static int start_create(struct build_run *run, struct brig_err *err)
{
    if (!caches_ready(run->stage->build, &run->caches))
        return 0;
    take_empty(run);
    return create(run, run->network, err);
}

static void on_caches(void *ctx)
{
    struct build_run *run = ctx;
    struct brig_err err = {0};

    if (run->stage && start_create(run, &err) == 0)
        return;
    run->starting = false;
    if (run->stage)
        fail(run, &err);
    run_free(run);
}

static const char **ended(const struct build_list *list)
{
    const char **items = mem_zalloc((list->n + 1) * sizeof *items);

    if (items && list->n > 0)
        memcpy(items, list->items, list->n * sizeof *items);
    return items;
}

/* What is bound is in layers already: it is made read-only, or what is written there is left out. */
static void take_bind(struct build_run *run, const struct build_mount *mount, const char *target)
{
    if (mount->writable) {
        run->left_out[run->n_left_out++] = target;
        return;
    }
    run->binds_inside |= 1u << run->n_binds;
    run->binds[run->n_binds++] = (struct brig_bind){.source = target, .target = target, .read_only = true};
}

/* Binds come first, since a cache may lie in one. */
static int take_mounts(struct build_run *run, const struct run_spec *spec, struct brig_err *err)
{
    int r;

    for (size_t i = 0; i < spec->n_mounts; i++) {
        run->targets[i] = mem_strdup(spec->mounts[i].target);
        if (!run->targets[i])
            return err_nomem(err);
        run->n_targets++;
        if (spec->mounts[i].kind == MOUNT_BIND)
            take_bind(run, &spec->mounts[i], run->targets[i]);
    }
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct build_mount *mount = &spec->mounts[i];
        const char *target = run->targets[i];
        if (mount->kind == MOUNT_TMPFS)
            run->tmpfs[run->n_tmpfs++] = (struct brig_tmpfs){target, mount->size};
        else if (mount->kind == MOUNT_CACHE && cache_add(run->stage, mount, target, &run->caches) < 0)
            return err_nomem(err);
    }
    r = mounts_secrets(run->stage->build, spec, &run->files[0]);
    if (r == 0 && spec->script) {
        const struct build_file file = {
            .name = spec->script->name, .text = spec->script->text, .len = spec->script->len, .mode = 0755};
        r = files_add(&run->files[1], &file);
        if (r == 0)
            r = files_end(&run->files[1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(unpacks); i++)
        if (run->files[i].len > 0)
            run->tmpfs[run->n_tmpfs++] = (struct brig_tmpfs){unpacks[i][3], 4u << 20};
    return r < 0 ? err_nomem(err) : 0;
}

int run_start(struct build_stage *stage, const struct run_spec *spec, struct brig_err *err)
{
    struct builds *builds = stage->build->builds;
    struct build_run *run = mem_zalloc(sizeof *run);

    if (!run)
        return err_nomem(err);
    *run = (struct build_run){.builds = builds,
                              .stage = stage,
                              .caller = stage->build->caller,
                              .names = mem_zalloc((stage->n_layers + 1) * sizeof *run->names),
                              .argv = ended(&spec->argv),
                              .env = ended(&spec->env),
                              .workdir = spec->workdir,
                              .user = spec->user,
                              .said = BUF_INIT(SAID_MAX),
                              .files = {BUF_INIT(8u << 20), BUF_INIT(8u << 20)},
                              .next = builds->runs};
    builds->runs = run;
    int r = run->names && run->argv && run->env ? 0 : err_nomem(err);
    for (size_t i = 0; r == 0 && i < stage->n_layers; i++) {
        str_assign(run->names[i], stage->layers[i].name);
        run->below[i] = run->names[i];
        run->n_below = i + 1;
    }
    if (r == 0)
        r = take_mounts(run, spec, err);
    run->network = spec->network;
    run->caches.ready = on_caches;
    run->caches.ctx = run;
    if (r == 0)
        r = start_create(run, err);
    if (r < 0) {
        run_free(run);
        return r;
    }
    run->starting = true;
    stage->run = run;
    return 0;
}
