/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_make.c: makes layers, one at a time per name and organisation (layer_make.h).
 *
 *     wanted -> MAKING    the provider makes an empty new layer
 *            -> RUNNING   brig-layer fills it, in a sandbox
 *            -> NAMING    the sandbox is gone; the new layer gets its name
 *            -> done      held for the organisation, until a template has it
 *
 * Whatever fails, the new layer is removed before anybody is told. A crash leaves a new layer without a maker, which
 * the spawner removes at its next start, or a layer with a name that no template has, which maker_collect() removes. If
 * others wait for a making that fails, each of them tries for itself: they may have better bytes.
 */
#include "template/layer_make.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/reserve.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "template/layer_run.h"
#include "template/layer_priv.h"

#define MEASURE_NS (UINT64_C(1) * NS_PER_SEC)
#define FULL_SLACK (UINT64_C(2) << 20) /* brig-layer asks for room ahead */
#define FREE_SLACK (UINT64_C(1) << 30) /* others write to the disk too */

static int making_start(struct maker *maker, struct want *want, struct layer_wait *first, struct brig_err *err);

/* ---- the end of a making ------------------------------------------------------------------------------ */

static void wait_free(struct layer_wait *wait)
{
    loop_timer_clear(wait->maker->o.loop, &wait->on_turn);
    want_free(wait->want);
    mem_free(wait);
}

static void making_free(struct making *making)
{
    struct maker *maker = making->maker;

    for (struct making **at = &maker->makings; *at; at = &(*at)->next)
        if (*at == making) {
            *at = making->next;
            break;
        }
    loop_timer_clear(maker->o.loop, &making->on_measure);
    want_free(making->want);
    mem_free(making);
}

static void tell(struct layer_wait *wait, const struct layer_made *made, const struct brig_err *err)
{
    struct brig_err why;

    if (made && hold_add(wait->maker, wait->want->org, made) < 0) {
        (void)err_nomem(&why);
        made = NULL;
        err = &why;
    }
    const struct layer_events events = wait->events;
    wait_free(wait);
    events.done(events.ctx, made, err);
}

/* Another's failure is not mine: it is tried again with this one's own bytes. */
static void try_again(struct layer_wait *wait)
{
    struct maker *maker = wait->maker;
    struct want *want = NULL;
    struct brig_err err = {0};

    wait->making = NULL;
    wait->next = NULL;
    if (want_copy(&wait->want->is, &want, &err) < 0 || making_start(maker, want, wait, &err) < 0) {
        tell(wait, NULL, &err);
        return;
    }
}

static void making_over(struct making *making)
{
    const struct layer_made made = {making->name, making->diff_id, making->bytes, making->files, false};
    const struct brig_err err = making->err;
    struct layer_wait *wait = take_ptr(&making->waits);

    while (wait) {
        struct layer_wait *next = wait->next;
        if (err.code && wait != making->first)
            try_again(wait);
        else
            tell(wait, err.code ? NULL : &made, err.code ? &err : NULL);
        wait = next;
    }
    making_free(making);
}

static void on_removed(void *ctx, const struct brig_err *err UNUSED)
{
    making_over(ctx); /* what is left of it, the next start removes */
}

/* It failed: nothing of it stays. */
static void undo(struct making *making)
{
    struct provider *provider = making->maker->o.provider;

    if (!making->made ||
        provider->ops->layer(provider, LAYER_REMOVE, making->fresh, NULL, on_removed, making, NULL) < 0)
        making_over(making);
}

static void on_named(void *ctx, const struct brig_err *err)
{
    struct making *making = ctx;

    if (err) {
        making->err = *err;
        undo(making);
        return;
    }
    making_over(making);
}

/* ---- the sandbox -------------------------------------------------------------------------------------- */

static void read_report(struct making *making, const struct json_value *root)
{
    const struct json_value *diff = json_get(root, "diff_id"), *bytes = json_get(root, "bytes"),
                            *files = json_get(root, "files");

    if (!diff || diff->type != JSON_STRING || !bytes || bytes->type != JSON_NUMBER || bytes->i64 < 0 || !files ||
        files->type != JSON_NUMBER || files->i64 < 0 ||
        str_copy(making->diff_id, sizeof making->diff_id, diff->string) < 0)
        return;
    making->bytes = (uint64_t)bytes->i64;
    making->files = (uint64_t)files->i64;
    making->reported = true;
}

static void on_line(void *ctx, const char *line, size_t len)
{
    struct making *making = ctx;
    struct json_doc *doc = NULL;

    if (json_read(line, len, 4096, &doc, NULL) < 0)
        return;
    const struct json_value *at = json_get(json_root(doc), "at");
    if (at && at->type == JSON_NUMBER && at->i64 >= 0) {
        for (struct layer_wait *wait = making->waits; wait; wait = wait->next)
            if (wait->events.progress)
                wait->events.progress(wait->events.ctx, (uint64_t)at->i64);
    } else {
        read_report(making, json_root(doc));
    }
    json_doc_free(doc);
}

/* The diff id of the lowest layer, else a hash with the chain id below. */
int layer_chain_name(const char *below, const char *diff_id, char out[TEMPLATE_LAYER_NAME])
{
    char text[2 * LAYER_DIGEST + 8];
    uint8_t hash[SHA256_SIZE];

    if (!below)
        return str_copy(out, TEMPLATE_LAYER_NAME, diff_id + strlen("sha256:"));
    int len = str_format(text, sizeof text, "sha256:%s %s", below, diff_id);
    int r = len < 0 ? len : crypto_sha256(text, (size_t)len, hash);
    if (r == 0)
        crypto_hex(hash, sizeof hash, out);
    return r;
}

static int name_of(const struct making *making, char out[TEMPLATE_LAYER_NAME])
{
    const struct layer_want *want = &making->want->is;

    return layer_chain_name(want->n_below ? want->below[want->n_below - 1] : NULL, making->diff_id, out);
}

static bool disk_is_full(const struct maker *maker, struct brig_err *ret_why)
{
    if (reserve_leaves(maker->o.work_dir_fd, FULL_SLACK))
        return false;
    (void)err_set(ret_why, BRIG_E_HOST, ENOSPC, "the disk of templates is nearly full");
    return true;
}

/* What it has written is still there. */
static void explain(struct making *making, const struct layer_run_result *result)
{
    const char *what = making->want->is.diff_id ? making->want->is.diff_id : "the archive";

    if (result->err)
        making->err = *result->err;
    else if (strstr(result->said, strerror(ENOSPC)) && disk_is_full(making->maker, &making->err))
        return;
    else if (str_eq(result->cause, "oom"))
        (void)err_set(&making->err, BRIG_E_INVALID, 0, "%s: needs too much memory to be unpacked", what);
    else if (str_eq(result->cause, "timeout"))
        (void)err_set(&making->err, BRIG_E_INVALID, 0, "%s: was not unpacked in time ([templates] timeout)", what);
    else if (result->said[0])
        (void)err_set(&making->err, BRIG_E_INVALID, 0, "%.80s: %.400s", what, result->said);
    else
        (void)err_set(&making->err, BRIG_E_HOST, 0, "%s: brig-layer ended (%s)", what, result->cause);
}

static void on_run_done(void *ctx, const struct layer_run_result *result)
{
    struct making *making = ctx;
    struct provider *provider = making->maker->o.provider;
    const struct layer_want *want = &making->want->is;

    making->run = NULL;
    if (!result->good)
        explain(making, result);
    else if (!making->reported || !str_starts(making->diff_id, "sha256:"))
        (void)err_set(&making->err, BRIG_E_HOST, 0, "brig-layer did not say what it unpacked");
    else if (want->diff_id && !str_eq(want->diff_id, making->diff_id))
        (void)err_set(&making->err, BRIG_E_INVALID, 0, "%s: unpacked it is %s", want->diff_id, making->diff_id);
    else if (want->name ? str_copy(making->name, sizeof making->name, want->name) < 0
                        : name_of(making, making->name) < 0)
        (void)err_set(&making->err, BRIG_E_HOST, 0, "the name of a layer");
    if (making->err.code || making->maker->closing || !making->waits) {
        undo(making);
        return;
    }
    if (provider->ops->layer(provider, LAYER_COMMIT, making->fresh, making->name, on_named, making, &making->err) < 0)
        undo(making);
}

static uint64_t free_bytes(const struct maker *maker)
{
    struct statvfs fs;

    return fstatvfs(maker->o.work_dir_fd, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
}

static void on_measure(struct loop_timer *timer)
{
    struct making *making = timer->ctx;
    const uint64_t left = free_bytes(making->maker), max = making->want->is.max_bytes;
    struct brig_err why;

    if (!making->run)
        return;
    if (disk_is_full(making->maker, &why)) { /* brig-layer looks too, but it reads what a stranger made */
        layer_run_stop(making->run, &why);
    } else if (left < making->free_before && making->free_before - left > max + FREE_SLACK) {
        (void)err_set(&why, BRIG_E_INVALID, 0, "the layer needs more than %llu MiB ([templates] max_image)",
                      (unsigned long long)(max >> 20));
        layer_run_stop(making->run, &why);
    } else {
        (void)!loop_timer_set(making->maker->o.loop, timer, clock_mono_ns() + MEASURE_NS, NULL);
    }
}

static int run_unpack(struct making *making, struct brig_err *err)
{
    const struct maker_options *o = &making->maker->o;
    const struct layer_want *want = &making->want->is;
    char offset[24], size[24], bytes[24], files[24];
    const char *argv[20] = {"unpack", "--reserve", "--max-bytes", bytes, "--max-files", files};
    size_t n = 6;

    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)want->max_bytes);
    snprintf(files, sizeof files, "%llu", (unsigned long long)want->max_files);
    if (want->size) {
        snprintf(offset, sizeof offset, "%llu", (unsigned long long)want->offset);
        snprintf(size, sizeof size, "%llu", (unsigned long long)want->size);
        argv[n++] = "--offset", argv[n++] = offset, argv[n++] = "--size", argv[n++] = size;
    }
    if (want->diff_id)
        argv[n++] = "--diff-id", argv[n++] = want->diff_id;
    if (want->format)
        argv[n++] = "--format", argv[n++] = want->format;
    argv[n++] = "/blob";
    argv[n++] = "/layer";
    const struct layer_run_spec spec = {.org = want->org,
                                        .argv = argv,
                                        .blob = want->blob,
                                        .new_layer = making->fresh,
                                        .below = want->below,
                                        .n_below = want->n_below,
                                        .timeout_ms = o->config->templates_timeout};
    const struct layer_run_events events = {.line = on_line, .done = on_run_done, .ctx = making};
    return layer_run_start(o->manager, o->provider, o->config, &spec, &events, &making->run, err);
}

static void on_made(void *ctx, const struct brig_err *err)
{
    struct making *making = ctx;

    if (err) {
        making->err = *err;
        making_over(making);
        return;
    }
    making->made = true;
    making->free_before = free_bytes(making->maker);
    if (making->maker->closing || !making->waits || run_unpack(making, &making->err) < 0) {
        undo(making);
        return;
    }
    (void)!loop_timer_set(making->maker->o.loop, &making->on_measure, clock_mono_ns() + MEASURE_NS, NULL);
}

/* ---- the start ---------------------------------------------------------------------------------------- */

/* It owns want, also on failure. */
static int making_start(struct maker *maker, struct want *want, struct layer_wait *first, struct brig_err *err)
{
    struct provider *provider = maker->o.provider;
    struct making *making = mem_zalloc(sizeof *making);
    char id[ID_SANDBOX_SIZE];

    if (!making) {
        want_free(want);
        return err_nomem(err);
    }
    *making = (struct making){.maker = maker,
                              .want = want,
                              .on_measure = {.fn = on_measure, .ctx = making},
                              .waits = first,
                              .first = first,
                              .next = maker->makings};
    maker->makings = making;
    int r = id_sandbox(id) < 0 || str_format(making->fresh, sizeof making->fresh, "new-%s", id) < 0
                ? err_set(err, BRIG_E_HOST, EIO, "random name")
                : provider->ops->layer(provider, LAYER_MAKE, making->fresh, NULL, on_made, making, err);
    if (r < 0)
        making_free(making);
    else
        first->making = making;
    return r;
}

static void on_turn(struct loop_timer *timer)
{
    struct layer_wait *wait = timer->ctx;
    struct layer_made made = {0};
    struct want *want = NULL;
    struct brig_err err = {0};

    if (hold_or_template(wait->maker, wait->want->org, wait->want->name, &made))
        tell(wait, &made, NULL);
    else if (want_copy(&wait->want->is, &want, &err) < 0 || making_start(wait->maker, want, wait, &err) < 0)
        tell(wait, NULL, &err);
}

static struct making *find_making(const struct maker *maker, const struct layer_want *want)
{
    for (struct making *m = maker->makings; want->name && m; m = m->next)
        if (m->waits && m->want->is.name && str_eq(m->want->name, want->name) && str_eq(m->want->org, want->org))
            return m;
    return NULL;
}

int maker_get(struct maker *maker, const struct layer_want *want, const struct layer_events *events,
              struct layer_wait **ret, struct brig_err *err)
{
    struct layer_wait *wait = mem_zalloc(sizeof *wait);
    struct making *making = find_making(maker, want);
    struct layer_made made;
    struct want *own = NULL;

    if (!maker->o.provider->ops->layer) {
        mem_free(wait);
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "templates: the provider %s keeps no layers",
                       maker->o.provider->ops->name);
    }
    if (!wait)
        return err_nomem(err);
    *wait = (struct layer_wait){.maker = maker, .events = *events, .on_turn = {.fn = on_turn, .ctx = wait}};
    int r = want_copy(want, &wait->want, err);
    if (r < 0) {
        mem_free(wait);
        return r;
    }
    if (want->name && hold_or_template(maker, want->org, want->name, &made)) {
        r = loop_timer_set(maker->o.loop, &wait->on_turn, clock_mono_ns(), err);
    } else if (making) {
        wait->making = making;
        wait->next = making->waits;
        making->waits = wait;
    } else {
        r = want_copy(want, &own, err);
        r = r < 0 ? r : making_start(maker, own, wait, err);
    }
    if (r < 0)
        wait_free(wait);
    else
        *ret = wait;
    return r;
}

void layer_wait_cancel(struct layer_wait *wait)
{
    static const struct brig_err left = {.code = BRIG_E_CONFLICT, .message = "cancelled"};
    struct making *making = wait->making;

    if (making) {
        for (struct layer_wait **at = &making->waits; *at; at = &(*at)->next)
            if (*at == wait) {
                *at = wait->next;
                break;
            }
        if (making->first == wait)
            making->first = NULL;
        if (!making->waits && making->run)
            layer_run_stop(making->run, &left);
    }
    wait_free(wait);
}

/* ---- life --------------------------------------------------------------------------------------------- */

int maker_create(const struct maker_options *options, struct maker **ret, struct brig_err *err)
{
    struct maker *maker = mem_zalloc(sizeof *maker);

    if (!maker)
        return err_nomem(err);
    maker->o = *options;
    *ret = maker;
    return 0;
}

void maker_configure(struct maker *maker, const struct config *config)
{
    maker->o.config = config;
}

void maker_destroy(struct maker *maker)
{
    if (!maker)
        return;
    maker->closing = true;
    while (maker->makings) {
        struct making *making = maker->makings;
        while (making->waits) {
            struct layer_wait *wait = making->waits;
            making->waits = wait->next;
            wait_free(wait);
        }
        if (making->run)
            layer_run_forget(take_ptr(&making->run));
        making_free(making);
    }
    for (struct hold *hold = maker->holds, *next; hold; hold = next) {
        next = hold->next;
        mem_free(hold);
    }
    for (struct collector *c = maker->collection ? maker->collection->collectors : NULL, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    for (struct collector *c = maker->collectors, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    mem_free(maker->collection);
    mem_free(maker);
}
