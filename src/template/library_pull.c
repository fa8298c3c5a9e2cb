/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_pull.c: makes a template from an image of a registry. The manifest and the configuration come first
 * (distribution.h checks their digests). Then all layers that the organisation does not have are asked for, of which
 * distribution.h downloads a few at a time, and each is unpacked as soon as it and those below it are there. What has
 * come of a download stays when a pull fails or its client leaves, and the next pull goes on from there; a pull that
 * succeeds removes it.
 */
#include <fcntl.h>
#include <string.h>

#include "template/library_priv.h"

struct pull_layer {
    struct library_job *job;
    size_t index;
    struct dist_call *call;
};

struct pull {
    struct image_ref ref;
    struct dist_call *call; /* for the manifest */
    struct dist_image *image;
    struct pull_layer *layers;
};

static const char *const formats[LAYER_FORMAT_MAX] = {
    [LAYER_TAR] = "tar", [LAYER_TAR_GZIP] = "gzip", [LAYER_TAR_ZSTD] = "zstd"};

/* ---- its end ------------------------------------------------------------------------------------------ */

/* Does another job want the same bytes? */
static bool is_wanted(const struct library_job *mine, const char *digest)
{
    for (const struct library_job *job = mine->library->jobs; job; job = job->next)
        for (size_t i = 0;
             job != mine && job->pull && str_eq(job->caller.org_id, mine->caller.org_id) && i < job->n_layers; i++)
            if (str_eq(job->layers[i].digest, digest))
                return true;
    return false;
}

static void remove_blobs(const struct library_job *job)
{
    char name[DIST_FILE];

    for (size_t i = 0; i < job->n_layers; i++)
        if (!is_wanted(job, job->layers[i].digest) &&
            dist_blob_file(job->caller.org_id, job->layers[i].digest, name) == 0)
            (void)unlinkat(job->library->blobs_fd, name, 0);
}

static void pull_undo(struct library_job *job)
{
    struct pull *pull = take_ptr(&job->pull);

    if (!pull)
        return;
    if (pull->call)
        dist_cancel(pull->call);
    for (size_t i = 0; pull->layers && i < job->n_layers; i++)
        if (pull->layers[i].call)
            dist_cancel(pull->layers[i].call);
    if (job->done)
        remove_blobs(job);
    dist_image_free(pull->image);
    mem_free(pull->layers);
    mem_free(pull);
}

/* ---- layers ------------------------------------------------------------------------------------------- */

static void on_blob_progress(void *ctx, uint64_t at, uint64_t of)
{
    const struct pull_layer *layer = ctx;
    const struct library_job *job = layer->job;
    const struct library_progress progress = {.step = "download",
                                              .layer = job->layers[layer->index].digest,
                                              .number = layer->index + 1,
                                              .of = job->n_layers,
                                              .at = at,
                                              .size = of};

    if (job->events.progress)
        job->events.progress(job->events.ctx, &progress);
}

static void on_blob(void *ctx, const struct brig_err *err)
{
    struct pull_layer *layer = ctx;
    struct library_job *job = layer->job;

    layer->call = NULL;
    if (err) {
        job_fail(job, err);
        return;
    }
    job->layers[layer->index].ready = true;
    job_unpack(job);
}

static int set_layer(struct library_job *job, size_t i, struct brig_err *err)
{
    const struct blob_desc *desc = &job->pull->image->manifest->layers[i];
    struct job_layer *layer = &job->layers[i];
    char file[DIST_FILE];

    layer->size = desc->size;
    layer->whole = true;
    layer->format = formats[desc->format];
    job->pull->layers[i] = (struct pull_layer){.job = job, .index = i};
    if (str_copy(layer->digest, sizeof layer->digest, desc->digest) < 0 ||
        str_copy(layer->diff_id, sizeof layer->diff_id, job->config->diff_ids.items[i]) < 0 ||
        str_copy(layer->name, sizeof layer->name, job->config->chain_ids.items[i] + strlen("sha256:")) < 0 ||
        dist_blob_file(job->caller.org_id, desc->digest, file) < 0 ||
        str_format(layer->path, sizeof layer->path, "%s/blobs/%s", job->library->path, file) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the name of a layer");
    return 0;
}

static struct dist_ask ask_of(struct library_job *job, const struct image_ref *ref)
{
    return (struct dist_ask){.ref = ref,
                             .owner = job->caller.org_id,
                             .reach_private = library_may_private(job->library, &job->caller, ref),
                             .login = job_login,
                             .login_ctx = job};
}

static int start_layers(struct library_job *job, struct brig_err *err)
{
    struct pull *pull = job->pull;
    const struct dist_ask ask = ask_of(job, &pull->ref);
    uint64_t sum = 0;
    int r = job_layers(job, pull->image->manifest->n_layers, err);

    if (r == 0 && !(pull->layers = mem_zalloc(job->n_layers * sizeof *pull->layers)))
        r = err_nomem(err);
    for (size_t i = 0; r == 0 && i < job->n_layers; i++) {
        r = set_layer(job, i, err);
        sum += job->layers[i].size;
        if (r == 0 && sum > job->library->o.config->templates_max_image)
            r = err_set(err, BRIG_E_TOO_LARGE, 0, "the image has more than %llu MiB ([templates] max_image)",
                        (unsigned long long)(job->library->o.config->templates_max_image >> 20));
    }
    for (size_t i = 0; r == 0 && i < job->n_layers; i++) {
        struct job_layer *layer = &job->layers[i];
        layer->ready = layer->early = maker_hold(job->library->maker, job->caller.org_id, layer->name);
        if (!layer->ready)
            r = dist_blob(job->library->dist, &ask, layer->digest, layer->size, on_blob_progress, on_blob,
                          &pull->layers[i], &pull->layers[i].call, err);
    }
    return r;
}

static void on_manifest(void *ctx, struct dist_image *image, const struct brig_err *err)
{
    struct library_job *job = ctx;
    struct brig_err why;

    job->pull->call = NULL;
    if (err) {
        job_fail(job, err);
        return;
    }
    job->pull->image = image;
    job->config = take_ptr(&image->config);
    if (str_copy(job->digest, sizeof job->digest, image->digest) < 0)
        (void)err_set(&why, BRIG_E_INVALID, 0, "%.80s: not a digest", image->digest);
    else if (start_layers(job, &why) == 0) {
        job_unpack(job);
        return;
    }
    job_fail(job, &why);
}

/* ---- its start ---------------------------------------------------------------------------------------- */

bool pull_follows(const struct library *library, const char *org, const char *name, const char *reference)
{
    const struct object *other = objects_find(templates_objects(library->o.templates), org, name);

    for (const struct library_job *job = library->jobs; !other && job; job = job->next)
        if (job->pull && job->recording && str_eq(job->caller.org_id, org) && str_eq(job->name, name) &&
            str_eq(job->reference, reference))
            return true; /* its record is on its way */
    return other && str_eq(template_of(other)->source, "pull") && str_eq(template_of(other)->reference, reference);
}

static int begin(struct library_job *job, const struct image_ref *ref, struct brig_err *err)
{
    const struct dist_ask ask = ask_of(job, ref);

    job->pull = mem_zalloc(sizeof *job->pull);
    if (!job->pull)
        return err_nomem(err);
    job->source = "pull";
    job->undo = pull_undo;
    job->pull->ref = *ref;
    image_ref_text(ref, job->reference);
    return dist_manifest(job->library->dist, &ask, &job->platform, on_manifest, job, &job->pull->call, err);
}

int library_pull(struct library *library, const struct caller *caller, const char *reference,
                 const struct library_want *want, const struct library_events *events, struct library_job **ret,
                 struct brig_err *err)
{
    struct library_job *job = NULL;
    struct library_want asked = *want;
    struct image_ref ref;
    char name[TEMPLATE_NAME_MAX], kept[TEMPLATE_NAME_MAX], text[IMAGE_REF_TEXT];
    int r = library_may_share(library, caller, want->shared, err);

    if (r == 0 && (r = image_ref_parse(reference, &ref, err)) < 0 && !caller_is_admin(caller))
        r = err_set(err, BRIG_E_FORBIDDEN, 0, "only an administrator may pull images ([templates] allow)");
    if (r == 0)
        r = library_may(library, caller, &ref, err);
    if (r == 0 && !library->dist)
        r = err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: this service asks no registries ([templates] registries)",
                    reference);
    if (r == 0 && !want->name && library_name_of(&ref, name) < 0)
        r = err_usage(err, "name: %s/%s gives none that can be used; give one", ref.host, ref.repository);
    if (r == 0)
        r = template_name(want->name ? want->name : name, kept, err);
    if (r < 0)
        return r;
    image_ref_text(&ref, text);
    asked.name = kept;
    asked.follows = pull_follows(library, caller->org_id, kept, text);
    r = job_new(library, caller, &asked, events, &job, err);
    if (r == 0)
        r = begin(job, &ref, err);
    if (r == 0)
        *ret = job;
    else if (job)
        job_free(job);
    return r;
}
