/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_image.c: the second half of every job: the layers of an image are made, lowest first, and then the record is
 * written. Until the record is committed the job holds its layers; after it the template does.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "template/library_priv.h"

#define EXTRAS_MAX (4u << 20)

int job_layers(struct library_job *job, size_t n, struct brig_err *err)
{
    if (n == 0)
        return err_set(err, BRIG_E_INVALID, 0, "the image has no layers");
    job->layers = mem_zalloc(n * sizeof *job->layers);
    if (!job->layers)
        return err_nomem(err);
    job->n_layers = n;
    return 0;
}

bool job_release(struct library_job *job)
{
    bool any = false;

    for (size_t i = 0; i < job->n_layers; i++) {
        struct job_layer *layer = &job->layers[i];
        for (int n = layer->held + layer->early; n > 0; n--)
            maker_release(job->library->maker, job->caller.org_id, layer->name);
        any = any || layer->held;
        layer->held = layer->early = false;
    }
    return any;
}

static void tell(const struct library_job *job, const char *step, uint64_t at)
{
    const struct job_layer *layer = &job->layers[job->at];
    const struct library_progress progress = {.step = step,
                                              .layer = layer->digest,
                                              .number = job->at + 1,
                                              .of = job->n_layers,
                                              .at = at,
                                              .size = layer->size};

    if (job->events.progress)
        job->events.progress(job->events.ctx, &progress);
}

/* ---- the record --------------------------------------------------------------------------------------- */

static void on_recorded(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct library_job *job = ctx;
    struct brig_err why;

    job->recording = false;
    if (!err && !object) {
        (void)err_set(&why, BRIG_E_CONFLICT, 0, "template %s was deleted meanwhile", job->name);
        err = &why;
    }
    if (job->cancelled) {
        job_free(job);
        return;
    }
    if (err) {
        job_fail(job, err);
        return;
    }
    const struct library_events events = job->events;
    job->library->made++;
    job->done = true;
    job_free(job); /* the template has the layers now */
    events.done(events.ctx, object, NULL);
}

/* Labels and health check as JSON: {"labels": .., "healthcheck": ..}. */
static int put_extras(const struct image_config *config, struct buf *out)
{
    static const char *const words[] = {[HEALTH_NONE] = "NONE", [HEALTH_CMD] = "CMD", [HEALTH_CMD_SHELL] = "CMD-SHELL"};
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_object(&json, "labels");
    for (size_t i = 0; i < config->label_keys.n; i++)
        json_key_string(&json, config->label_keys.items[i], config->label_values.items[i]);
    json_end(&json);
    if (config->health != HEALTH_UNSET) {
        json_key_object(&json, "healthcheck");
        json_key_array(&json, "test");
        json_string(&json, words[config->health]);
        for (size_t i = 0; i < config->health_test.n; i++)
            json_string(&json, config->health_test.items[i]);
        json_end(&json);
        json_key_u64(&json, "interval_ms", config->health_interval_ns / NS_PER_MS);
        json_key_u64(&json, "timeout_ms", config->health_timeout_ns / NS_PER_MS);
        json_key_u64(&json, "start_period_ms", config->health_start_period_ns / NS_PER_MS);
        json_key_u64(&json, "retries", config->health_retries);
        json_end(&json);
    }
    json_end(&json);
    return json_finish(&json);
}

/* A list with NULL at its end. *at is where the free places begin, and moves on. */
static const char *const *list_of(const struct text_list *list, const char ***at)
{
    const char **begin = *at;

    for (size_t i = 0; i < list->n; i++)
        *(*at)++ = list->items[i];
    *(*at)++ = NULL;
    return begin;
}

static void image_of(const struct image_config *config, const char **places, const struct json_value *extras,
                     struct template_image *ret)
{
    *ret = (struct template_image){.env = list_of(&config->env, &places),
                                   .user = config->user,
                                   .workdir = config->workdir,
                                   .entrypoint = config->has_entrypoint ? list_of(&config->entrypoint, &places) : NULL,
                                   .cmd = config->has_cmd ? list_of(&config->cmd, &places) : NULL,
                                   .shell = config->has_shell ? list_of(&config->shell, &places) : NULL,
                                   .exposed_ports = list_of(&config->exposed, &places),
                                   .volumes = list_of(&config->volumes, &places),
                                   .stop_signal = config->stop_signal,
                                   .labels = json_get(extras, "labels"),
                                   .healthcheck = json_get(extras, "healthcheck")};
}

static size_t count_places(const struct image_config *config)
{
    return config->env.n + config->entrypoint.n + config->cmd.n + config->shell.n + config->exposed.n +
           config->volumes.n + 8;
}

static int put_record(struct library_job *job, const struct template_image *image, struct brig_err *err)
{
    const char *names[TEMPLATE_LAYERS_MAX], *diff_ids[TEMPLATE_LAYERS_MAX];
    uint64_t sizes[TEMPLATE_LAYERS_MAX];

    for (size_t i = 0; i < job->n_layers; i++) {
        names[i] = job->layers[i].name;
        diff_ids[i] = job->layers[i].diff_id;
        sizes[i] = job->layers[i].bytes;
    }
    const struct template_info info = {.source = job->source,
                                       .reference = job->reference,
                                       .digest = job->digest,
                                       .n_layers = job->n_layers,
                                       .layers = names,
                                       .diff_ids = diff_ids,
                                       .sizes = sizes,
                                       .image = *image,
                                       .made_at_ns = clock_real_ns(),
                                       .shared = job->shared};
    /* What the name means now counts, not what it meant when this was asked for. */
    const bool follows = job->pull && pull_follows(job->library, job->caller.org_id, job->name, job->reference);
    const bool replace = follows || (job->replace && caller_is_admin(&job->caller));
    int r =
        templates_put(job->library->o.templates, job->caller.org_id, job->name, &info, replace, on_recorded, job, err);
    job->recording = r == 0;
    return r;
}

static int record(struct library_job *job, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(EXTRAS_MAX);
    AUTO_FREE const char **places = NULL;
    struct json_doc *extras = NULL;
    struct template_image image = {.env = NULL};
    char platform[PLATFORM_TEXT];
    int r = 0;

    platform_text(job->config ? &job->config->platform : &job->platform, platform);
    if (job->config) {
        places = mem_zalloc(count_places(job->config) * sizeof *places);
        r = !places || put_extras(job->config, &text) < 0 ? err_nomem(err)
                                                          : json_read(text.data, text.len, 65536, &extras, err);
        if (r == 0)
            image_of(job->config, places, json_root(extras), &image);
    }
    image.platform = platform;
    if (r == 0)
        r = put_record(job, &image, err);
    json_doc_free(extras);
    return r;
}

/* ---- layers ------------------------------------------------------------------------------------------- */

static void on_layer_progress(void *ctx, uint64_t at)
{
    tell(ctx, "unpack", at);
}

static void on_layer(void *ctx, const struct layer_made *made, const struct brig_err *err)
{
    struct library_job *job = ctx;
    struct job_layer *layer = &job->layers[job->at];
    struct brig_err why;

    job->wait = NULL;
    if (err) {
        job_fail(job, err);
        return;
    }
    if (str_copy(layer->name, sizeof layer->name, made->name) < 0 ||
        str_copy(layer->diff_id, sizeof layer->diff_id, made->diff_id) < 0) {
        (void)err_set(&why, BRIG_E_HOST, 0, "the name of a layer");
        job_fail(job, &why);
        return;
    }
    layer->held = true;
    layer->bytes = made->bytes;
    job->left_bytes -= made->bytes < job->left_bytes ? made->bytes : job->left_bytes;
    tell(job, made->found ? "found" : "unpacked", layer->size);
    job->at++;
    job_unpack(job);
}

static int want_layer(struct library_job *job, struct brig_err *err)
{
    const struct job_layer *layer = &job->layers[job->at];
    const char *below[TEMPLATE_LAYERS_MAX];
    const struct layer_events events = {.progress = on_layer_progress, .done = on_layer, .ctx = job};

    if (job->left_bytes == 0)
        return err_set(err, BRIG_E_INVALID, 0, "the image has more than %llu MiB ([templates] max_image)",
                       (unsigned long long)(job->library->o.config->templates_max_image >> 20));
    for (size_t i = 0; i < job->at; i++)
        below[i] = job->layers[i].name;
    const struct layer_want want = {.org = job->caller.org_id,
                                    .name = layer->name[0] ? layer->name : NULL,
                                    .diff_id = layer->diff_id[0] ? layer->diff_id : NULL,
                                    .below = below,
                                    .n_below = job->at,
                                    .blob = layer->path,
                                    .offset = layer->offset,
                                    .size = layer->whole ? 0 : layer->size,
                                    .format = layer->format,
                                    .max_bytes = job->left_bytes,
                                    .max_files = job->library->o.config->templates_max_files};
    return maker_get(job->library->maker, &want, &events, &job->wait, err);
}

void job_unpack(struct library_job *job)
{
    struct brig_err err;

    if (job->err.code || job->wait || job->recording)
        return;
    if (job->at < job->n_layers) {
        if (job->layers[job->at].ready && want_layer(job, &err) < 0)
            job_fail(job, &err);
        return;
    }
    if (record(job, &err) < 0)
        job_fail(job, &err);
}
