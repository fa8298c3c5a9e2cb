/* SPDX-License-Identifier: Apache-2.0 */
/*
 * build_stage.c: one stage of a build: what it is made from, and then step after step. A step either only changes what
 * the image says, or gives the tar of a layer: from the cache, from a RUN (build_run.c), or from brig-layer over the
 * layers below. A stage holds its layers until the build is over.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "build/build_priv.h"
#include "sandbox/own_run.h"
#include "template/platform.h"
#include "codec/reference.h"

#define STEPS_PER_TURN 16u

static void go(struct build_stage *stage);

static const struct dockerfile_step *step_of(const struct build_stage *stage)
{
    return stage->at < stage->n_steps ? &stage->steps[stage->at] : stage->last;
}

static bool has_step(const struct build_stage *stage)
{
    return stage->at < stage->n_steps + (stage->last != NULL);
}

/* ---- layers ---------------------------------------- */

/* A layer that is held goes on top. */
static int push(struct build_stage *stage, const char *name, const char *diff_id, uint64_t bytes, struct brig_err *err)
{
    struct build *build = stage->build;
    struct build_layer *layer = &stage->layers[stage->n_layers];

    if (stage->n_layers == TEMPLATE_LAYERS_MAX || str_copy(layer->name, sizeof layer->name, name) < 0 ||
        str_copy(layer->diff_id, sizeof layer->diff_id, diff_id) < 0) {
        maker_release(library_maker(build->builds->o.library), build->caller.org_id, name);
        return err_set(err, BRIG_E_INVALID, 0, "the image has more than %u layers", TEMPLATE_LAYERS_MAX);
    }
    layer->bytes = bytes;
    layer->line = (stage->based && has_step(stage) ? step_of(stage) : stage->from)->line;
    stage->n_layers++;
    return 0;
}

static int hold(struct build_stage *stage, const char *name, const char *diff_id, uint64_t bytes, struct brig_err *err)
{
    struct build *build = stage->build;
    if (!maker_hold(library_maker(build->builds->o.library), build->caller.org_id, name))
        return err_set(err, BRIG_E_NOT_FOUND, 0, "layer %.64s: not there any more", name);
    return push(stage, name, diff_id, bytes, err);
}

static void begin_step(struct build_stage *stage, const struct dockerfile_step *step)
{
    stage->number = ++stage->build->steps_begun;
    stage->began_ns = clock_mono_ns();
    stage->tail[0] = '\0';
    stage->build->builds->steps++;
    log_step(stage, step);
}

void stage_fail(struct build_stage *stage, const struct brig_err *err)
{
    struct build *build = stage->build;
    const struct dockerfile_step *step = stage->based && has_step(stage) ? step_of(stage) : stage->from;
    struct brig_err why = *err;

    if (build->state != BUILD_RUNNING)
        return;
    if (!str_starts(err->message, "line "))
        (void)err_set(&why, (enum brig_code)err->code, 0, "line %u: %.60s: %.600s", step->line, step->written,
                      err->message);
    if (stage->tail[0])
        build->err_output = build_keep(build, stage->tail);
    build_fail(build, &why, step->line);
}

/* ---- the end of a step ---------------------------------------- */

static void on_put(void *ctx)
{
    struct build *build = ctx;

    build->puts--;
    build_release(build);
}

/* What a step gave is kept, and the layer is held until it is. */
static void remember(struct build_stage *stage, const struct build_layer *layer)
{
    struct build *build = stage->build;
    const struct build_step_info info = {
        .layer = layer ? layer->name : "", .diff_id = layer ? layer->diff_id : "", .bytes = layer ? layer->bytes : 0};

    if (build_steps_put(build->builds->o.steps, build->caller.org_id, stage->key, &info, on_put, build, NULL) == 0)
        build->puts++;
}

static void finish_step(struct build_stage *stage, const struct build_layer *layer)
{
    sink_free(take_ptr(&stage->sink));
    sink_free(take_ptr(&stage->packed));
    remember(stage, layer);
    if (stage->binding) {
        struct brig_err err = {0};
        if (binds_made(stage, &err) < 0)
            stage_fail(stage, &err);
        return;
    }
    log_ended(stage, layer);
    if (stage->based)
        stage->at++;
    else
        stage->n_base = stage->n_layers;
    stage->based = true; /* else it was the base */
    go(stage);
}

static void on_layer(void *ctx, const struct layer_made *made, const struct brig_err *err)
{
    struct build_stage *stage = ctx;
    struct brig_err why = {0};

    stage->wait = NULL;
    if (err || push(stage, made->name, made->diff_id, made->bytes, &why) < 0) {
        stage_fail(stage, err ? err : &why);
        return;
    }
    finish_step(stage, &stage->layers[stage->n_layers - 1]);
}

static int get_layer(struct build_stage *stage, const char *diff_id, struct brig_err *err)
{
    const struct builds *builds = stage->build->builds;
    const struct layer_events events = {.done = on_layer, .ctx = stage};
    const char *below[TEMPLATE_LAYERS_MAX];
    char name[TEMPLATE_LAYER_NAME];

    for (size_t i = 0; i < stage->n_layers; i++)
        below[i] = stage->layers[i].name;
    if (layer_chain_name(stage->n_layers ? below[stage->n_layers - 1] : NULL, diff_id, name) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the name of a layer");
    const struct layer_want want = {.org = stage->build->caller.org_id,
                                    .name = name,
                                    .diff_id = diff_id,
                                    .below = below,
                                    .n_below = stage->n_layers,
                                    .blob = stage->sink->file->path,
                                    .format = "tar",
                                    .max_bytes = builds->o.config->templates_max_image,
                                    .max_files = builds->o.config->templates_max_files};
    return maker_get(library_maker(builds->o.library), &want, &events, &stage->wait, err);
}

void stage_layer(struct build_stage *stage)
{
    uint8_t hash[SHA256_SIZE];
    char diff_id[LAYER_DIGEST] = "sha256:";
    struct brig_err err = stage->sink->err;

    if (!err.code && !stage->sink->any) {
        stage_unchanged(stage);
        return;
    }
    if (!err.code && crypto_hash_end(stage->sink->hash, hash) < 0)
        (void)err_nomem(&err);
    if (!err.code) {
        crypto_hex(hash, sizeof hash, diff_id + strlen(diff_id));
        if (get_layer(stage, diff_id, &err) == 0)
            return;
    }
    stage_fail(stage, &err);
}

void stage_unchanged(struct build_stage *stage)
{
    finish_step(stage, NULL);
}

bool stage_take(struct build_stage *stage)
{
    struct build *build = stage->build;
    const struct build_step_info *info =
        build->no_cache ? NULL : build_steps_find(build->builds->o.steps, build->caller.org_id, stage->key);

    return info && (!info->layer[0] || hold(stage, info->layer, info->diff_id, info->bytes, NULL) == 0);
}

bool stage_cached(struct build_stage *stage)
{
    struct build *build = stage->build;

    if (!stage_take(stage))
        return false;
    build->steps_cached++;
    build->builds->cached++;
    log_cached(stage);
    return true;
}

/* ---- steps of brig-layer ---------------------------------------- */

static void tool_wrote(struct build_stage *stage, size_t len)
{
    if (stage->tool)
        layer_run_consumed(stage->tool, len);
}

static void on_tool_data(void *ctx, const uint8_t *data, size_t len)
{
    struct build_stage *stage = ctx;

    sink_write(stage->tool_sink, data, len);
    if (stage->tool_sink->err.code)
        layer_run_stop(stage->tool, &stage->tool_sink->err);
}

static void on_tool_done(void *ctx, const struct layer_run_result *result)
{
    struct build_stage *stage = ctx;
    struct brig_err err = {0};

    stage->tool = NULL;
    if (result->good) {
        sink_end(stage->tool_sink);
        return;
    }
    if (result->err)
        err = *result->err;
    else
        (void)err_set(&err, result->said[0] ? BRIG_E_INVALID : BRIG_E_HOST, 0, "%.400s",
                      result->said[0] ? result->said : result->cause);
    stage_fail(stage, &err);
}

int stage_tool(struct build_stage *stage, const struct build_stage *view, const char *const *argv, const char *blob,
               const char *disk, struct build_sink **sink, void (*done)(struct build_stage *stage),
               struct brig_err *err)
{
    const struct builds_options *o = &stage->build->builds->o;
    const char *below[TEMPLATE_LAYERS_MAX];
    const struct layer_run_events events = {.data = on_tool_data, .done = on_tool_done, .ctx = stage};
    int r = sink_create(stage, tool_wrote, done, sink, err);

    for (size_t i = 0; view && i < view->n_layers; i++)
        below[i] = view->layers[i].name;
    const struct layer_run_spec spec = {.org = stage->build->caller.org_id,
                                        .argv = argv,
                                        .blob = blob,
                                        .disk = disk,
                                        .below = below,
                                        .n_below = view ? view->n_layers : 0,
                                        .timeout_ms = o->config->templates_timeout};
    stage->tool_sink = *sink;
    return r < 0 ? r : layer_run_start(o->manager, o->provider, o->config, &spec, &events, &stage->tool, err);
}

/* ---- WORKDIR ---------------------------------------- */

static int do_workdir(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    const char *text = step->words[0];
    char path[4096];
    struct build_key *key = NULL;
    int r = step == stage->last ? 0 : stage_expand(stage, step, text, &text, err); /* that one has no variables */

    if (r < 0)
        return r;
    if (!text[0])
        return step_refuse(err, step, "%.64s: expected a directory, but it is empty", step->words[0]);
    if (path_clean_absolute(stage->image.workdir, text, path, sizeof path) < 0)
        return step_refuse(err, step, "%.64s: the path is too long", text);
    stage->image.workdir = build_keep(stage->build, path);
    if (!stage->image.workdir || key_begin(stage, "workdir", &key) < 0)
        return err_nomem(err);
    if (str_eq(path, "/")) {
        (void)!key_end(key, stage->key);
        log_ended(stage, NULL);
        return 0;
    }
    key_text(key, "path", path);
    if (key_end(key, stage->key) < 0)
        return err_nomem(err);
    if (stage_cached(stage))
        return 0;
    const struct build_lock *lock = stage->build->lock;
    const char *const plain[] = {"mkdir", "/layer", path, NULL};
    const char *const dated[] = {"mkdir", "--mtime", lock ? lock->epoch : "0", "/layer", path, NULL};
    r = stage_tool(stage, stage, lock ? dated : plain, NULL, NULL, &stage->sink, stage_layer, err);
    return r < 0 ? r : 1;
}

/* ---- step after step ---------------------------------------- */

/* Returns 0 if it is done, 1 if it is under way. */
static int do_step(struct build_stage *stage, const struct dockerfile_step *step, struct brig_err *err)
{
    int r;

    switch (step->op) {
    case DOCKERFILE_RUN: return run_step(stage, step, err);
    case DOCKERFILE_WORKDIR: return do_workdir(stage, step, err);
    case DOCKERFILE_COPY:
    case DOCKERFILE_ADD: return copy_step(stage, step, err);
    default:
        r = image_apply(stage, step, err);
        if (r == 0)
            log_ended(stage, NULL);
        return r;
    }
}

bool stage_is_blocked(const struct build_stage *stage)
{
    const struct build *build = stage->build;

    for (size_t i = 0; i < build->n_froms; i++)
        if (build->froms[i].step == step_of(stage) && build->stages[build->froms[i].stage].state != STAGE_DONE)
            return true;
    return false;
}

void stage_resume(struct build_stage *stage)
{
    stage->state = STAGE_RUNNING;
    go(stage);
}

static void on_turn(struct loop_timer *timer)
{
    go(timer->ctx);
}

/* Step after step, but not so many that others wait: those of the cache and those that make no layer end at once. */
static void go(struct build_stage *stage)
{
    struct build *build = stage->build;
    struct brig_err err = {0};

    for (unsigned n = 0; build->state == BUILD_RUNNING && has_step(stage); n++) {
        if (n == STEPS_PER_TURN) {
            stage->on_turn = (struct loop_timer){.fn = on_turn, .ctx = stage};
            if (loop_timer_set(build->builds->o.loop, &stage->on_turn, loop_now_ns(), &err) < 0)
                stage_fail(stage, &err);
            return;
        }
        if (stage_is_blocked(stage)) {
            stage->state = STAGE_PAUSED;
            build_go_on(build);
            return;
        }
        begin_step(stage, step_of(stage));
        int r = do_step(stage, step_of(stage), &err);
        if (r > 0)
            return;
        if (r < 0) {
            stage_fail(stage, &err);
            return;
        }
        stage->at++;
    }
    if (build->state != BUILD_RUNNING)
        return;
    stage->state = STAGE_DONE;
    build_go_on(build);
}

void stage_go_on(struct build_stage *stage, int r, const struct brig_err *err)
{
    if (r < 0) {
        stage_fail(stage, err);
    } else if (r == 0) {
        stage->at++;
        go(stage);
    }
}

/* ---- its base
 * ---------------------------------------------------------------------------------------------------------- */

/* The disk of a template that was made from a sandbox becomes one more layer of the base, once for each disk. */
static int take_disk(struct build_stage *stage, const char *disk, struct brig_err *err)
{
    const struct build_lock *lock = stage->build->lock;
    const char *const plain[] = {"store", OWN_RUN_DISK, NULL};
    const char *const dated[] = {"store", "--latest", lock ? lock->epoch : "0", OWN_RUN_DISK, NULL};
    struct build_key *key = NULL;

    if (key_begin(stage, "disk", &key) < 0)
        return err_nomem(err);
    key_text(key, "disk", disk);
    if (key_end(key, stage->key) < 0)
        return err_nomem(err);
    if (stage_cached(stage))
        return 0;
    int r = stage_tool(stage, NULL, lock ? dated : plain, NULL, disk, &stage->sink, stage_layer, err);
    return r < 0 ? r : 1;
}

static int take_template(struct build_stage *stage, const struct object *object, struct brig_err *err)
{
    const struct template_info *info = template_of(object);

    if (info->n_layers == 0)
        return err_set(err, BRIG_E_INVALID, 0, "template %s stands on %.64s of this host, and a build needs layers",
                       object->id, info->base);
    int r = image_from_template(stage->build, info, &stage->image, err);

    for (size_t i = 0; r == 0 && i < info->n_layers; i++)
        r = hold(stage, info->layers[i], info->diff_ids[i], info->sizes[i], err);
    return r < 0 || !info->disk[0] ? r : take_disk(stage, info->disk, err);
}

static void based(struct build_stage *stage, int r, const struct brig_err *err)
{
    if (r < 0) {
        stage_fail(stage, err);
        return;
    }
    stage->based = true;
    stage->n_base = stage->n_layers;
    log_ended(stage, NULL);
    go(stage);
}

static int not_pulled(const struct build_stage *stage, const struct brig_err *why, struct brig_err *err)
{
    return err_set(err, (enum brig_code)why->code, 0, "there is no template %.100s, and it cannot be pulled: %.300s",
                   stage->base, why->message);
}

static void on_pulled(void *ctx, const struct object *object, const struct brig_err *failed)
{
    struct build_stage *stage = ctx;
    struct brig_err err = {0};

    stage->pull = NULL;
    int r = failed ? not_pulled(stage, failed, &err) : take_template(stage, object, &err);
    if (r <= 0)
        based(stage, r, &err);
}

/* There is no template of this name: an image of a registry, if the caller may. */
static int pull(struct build_stage *stage, struct brig_err *err)
{
    struct build *build = stage->build;
    const struct library_want want = {.name = NULL};
    const struct library_events events = {.done = on_pulled, .ctx = stage};
    struct brig_err why = {0};

    if (library_pull(build->builds->o.library, &build->caller, stage->base, &want, &events, &stage->pull, &why) == 0)
        return 1;
    return not_pulled(stage, &why, err);
}

static int take_stage(struct build_stage *stage, const struct build_stage *from, struct brig_err *err)
{
    int r = 0;

    stage->image = from->image;
    struct build_list *const lists[] = {&stage->image.env,        &stage->image.entrypoint,  &stage->image.cmd,
                                        &stage->image.shell,      &stage->image.exposed,     &stage->image.volumes,
                                        &stage->image.label_keys, &stage->image.label_values};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        *lists[i] = list_share(lists[i]);
    stage->image.args = (struct build_list){.items = NULL};
    stage->image.cmd_is_own = false;
    for (size_t i = 0; r == 0 && i < from->n_layers; i++)
        if ((r = hold(stage, from->layers[i].name, from->layers[i].diff_id, from->layers[i].bytes, err)) == 0)
            stage->layers[i].line = from->layers[i].line;
    return r;
}

static int take_scratch(struct build_stage *stage, struct brig_err *err)
{
    char text[PLATFORM_TEXT];
    struct platform host;

    platform_host(&host);
    platform_text(&host, text);
    stage->image =
        (struct build_image){.user = "", .workdir = "", .stop_signal = "", .platform = build_keep(stage->build, text)};
    return stage->image.platform ? 0 : err_nomem(err);
}

void stage_start(struct build_stage *stage)
{
    struct build *build = stage->build;
    struct brig_err err = {0};
    const struct object *object;
    int r;

    stage->state = STAGE_RUNNING;
    begin_step(stage, stage->from);
    stage->layers = arena_alloc(build->arena, TEMPLATE_LAYERS_MAX * sizeof *stage->layers);
    if (!stage->layers)
        r = err_nomem(&err);
    else if (stage->kind == BASE_STAGE)
        r = take_stage(stage, &build->stages[stage->base_stage], &err);
    else if (stage->kind == BASE_SCRATCH)
        r = take_scratch(stage, &err);
    else if (stage->kind == BASE_DEBIAN)
        r = take_scratch(stage, &err) < 0 ? -ENOMEM : debian_start(stage, &err);
    else if ((object = templates_find(build->builds->o.templates, build->caller.org_id, stage->base)))
        r = take_template(stage, object, &err);
    else
        r = pull(stage, &err);
    if (r <= 0)
        based(stage, r, &err);
}

void stage_stop(struct build_stage *stage)
{
    loop_timer_clear(stage->build->builds->o.loop, &stage->on_turn);
    if (stage->keying)
        copy_forget(take_ptr(&stage->keying));
    if (stage->pull)
        library_cancel(take_ptr(&stage->pull));
    if (stage->own)
        own_run_forget(take_ptr(&stage->own));
    if (stage->run)
        run_forget(take_ptr(&stage->run));
    if (stage->tool)
        layer_run_forget(take_ptr(&stage->tool));
    if (stage->wait)
        layer_wait_cancel(take_ptr(&stage->wait));
    sink_free(take_ptr(&stage->sink));
    sink_free(take_ptr(&stage->packed));
}

void stage_release(struct build_stage *stage)
{
    struct build *build = stage->build;

    for (size_t i = 0; i < stage->n_layers; i++)
        maker_release(library_maker(build->builds->o.library), build->caller.org_id, stage->layers[i].name);
    for (size_t i = 0; i < stage->bound.n; i++)
        maker_release(library_maker(build->builds->o.library), build->caller.org_id, stage->bound.items[i]);
    stage->n_layers = stage->bound.n = 0;
}
