/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.c: exports a template (export.h). It goes through three states, and only forwards:
 *
 *     layers      brig-layer writes the tar of one layer after the other; they lie behind each other in one file
 *     documents   their lengths and digests are known: documents and headers are made, and the length is told
 *     sending     each export_next() gives a piece: of the documents, of a header, of the file, or of the end
 *
 * A template that was made from a sandbox has a disk over its layers; what is on it is one more layer of the archive.
 * The layers are held meanwhile, so the template may be removed. The file is read by a thread, never by the loop.
 */
#include "template/export.h"

#include <fcntl.h>
#include <string.h>

#include "base/id.h"
#include "codec/tar/tar.h"
#include "sandbox/own_run.h"
#include "template/export_priv.h"

#define PIECE (256u << 10)

struct export
{
    struct library *library;
    struct caller caller;
    struct template_copy *template;
    bool docker;
    struct export_events events;
    int fd;
    struct spool *spool;
    struct crypto_hash *hash;
    struct export_layer *layers;
    size_t at, n_held;      /* at: the layer that is written, or sent */
    uint64_t written, left; /* of the file; of the archive */
    struct layer_run *run;
    bool ran; /* the run has ended well; what it wrote may still be on its way to the file */
    struct loop_timer on_turn;
    struct brig_err err;
    bool failed;
    /* sending */
    struct buf text; /* documents and headers that are next */
    uint64_t sent;   /* of the layer */
    bool in_layer, ended, reading, dead;
    struct job job;
    ssize_t n_read;
    uint8_t piece[PIECE];
    struct export *next;
};

/* ---- life ------------------------------------------------------------------------------------------------- */

static void destroy(struct export *export)
{
    spool_free(export->spool);
    crypto_hash_destroy(export->hash);
    template_copy_free(export->template);
    buf_done(&export->text);
    base_close_fd(&export->fd);
    mem_free(export->layers);
    mem_free(export);
}

/* It leaves the list, and gives back what it holds. A thread that still reads frees the rest. */
static void drop(struct export *export)
{
    struct library *library = export->library;
    struct export **at = &library->exports;

    while (*at && *at != export)
        at = &(*at)->next;
    if (*at)
        *at = export->next;
    if (export->run)
        layer_run_forget(take_ptr(&export->run));
    loop_timer_clear(library->o.loop, &export->on_turn);
    for (size_t i = 0; i < export->n_held; i++)
        maker_release(library->maker, export->caller.org_id, export->template->info.layers[i]);
    if (export->n_held > 0)
        library_collect(library);
    export->dead = true;
    if (!export->reading)
        destroy(export);
}

void export_cancel(struct export *export)
{
    drop(export);
}

static void on_turn(struct loop_timer *timer)
{
    struct export *export = timer->ctx;
    const struct export_events events = export->events;
    const struct brig_err err = export->err;

    drop(export);
    events.done(events.ctx, &err);
}

/* The reason is told in a turn of its own. */
static void fail(struct export *export, const struct brig_err *err)
{
    if (export->failed)
        return;
    export->failed = true;
    export->err = *err;
    if (export->run)
        layer_run_forget(take_ptr(&export->run));
    (void)!loop_timer_set(export->library->o.loop, &export->on_turn, 0, NULL);
}

/* ---- layers ----------------------------------------------------------------------------------------------- */

static int next_layer(struct export *export, struct brig_err *err);

/* All layers are in the file: the length of the archive is what is left to be sent. */
static int all_written(struct export *export, struct brig_err *err)
{
    const size_t n = export->template->info.n_layers;

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i && !export->layers[i].again; k++)
            export->layers[i].again = str_eq(export->layers[i].digest, export->layers[k].digest);
    int r = export_documents(export->template, export->layers, export->docker, &export->text, err);
    if (r < 0)
        return r;
    export->left = export->text.len + 2 * TAR_BLOCK;
    for (size_t i = 0; i < n; i++)
        if (!export->layers[i].again)
            export->left += TAR_BLOCK + export->layers[i].size + tar_padding(export->layers[i].size);
    export->at = 0;
    return 0;
}

/* One layer is whole in the file. */
static void end_layer(struct export *export)
{
    struct export_layer *layer = &export->layers[export->at];
    uint8_t sum[SHA256_SIZE];
    struct brig_err err = {0};
    int r = 0;

    if (crypto_hash_end(export->hash, sum) < 0)
        r = err_nomem(&err);
    crypto_hex(sum, sizeof sum, layer->digest);
    layer->size = export->written - layer->offset;
    export->ran = false;
    export->at++;
    bool all = export->at == export->template->info.n_layers;
    if (r == 0)
        r = all ? all_written(export, &err) : next_layer(export, &err);
    if (r < 0)
        fail(export, &err);
    else if (all)
        export->events.ready(export->events.ctx, export->left);
}

static void on_wrote(void *ctx, size_t len, int error)
{
    struct export *export = ctx;
    struct brig_err err;

    if (export->failed)
        return;
    if (error < 0) {
        (void)err_set(&err, BRIG_E_HOST, -error, "the archive could not be kept");
        fail(export, &err);
        return;
    }
    if (export->run)
        layer_run_consumed(export->run, len);
    if (export->ran && spool_is_idle(export->spool))
        end_layer(export);
}

static void on_data(void *ctx, const uint8_t *data, size_t len)
{
    struct export *export = ctx;
    const uint64_t max = export->library->o.config->templates_max_image;
    struct brig_err err = {0};

    if (export->failed)
        return;
    if (len > max || export->written > max - len)
        (void)err_set(&err, BRIG_E_TOO_LARGE, 0, "the archive has more than %llu MiB ([templates] max_image)",
                      (unsigned long long)(max >> 20));
    else if (crypto_hash_add(export->hash, data, len) < 0 || spool_write(export->spool, data, len) < 0)
        (void)err_nomem(&err);
    export->written += len;
    if (err.code)
        fail(export, &err);
}

static void on_run_done(void *ctx, const struct layer_run_result *result)
{
    struct export *export = ctx;
    struct brig_err err;

    export->run = NULL;
    if (result->err || !result->good) {
        if (result->err)
            err = *result->err;
        else
            (void)err_set(&err, BRIG_E_HOST, 0, "layer %.12s: %.180s",
                          export->at < export->n_held ? export->template->info.layers[export->at] : "of its disk",
                          result->said[0] ? result->said : result->cause);
        fail(export, &err);
        return;
    }
    export->ran = true;
    if (spool_is_idle(export->spool))
        end_layer(export);
}

static int next_layer(struct export *export, struct brig_err *err)
{
    static const char *const argv[] = {"diff", "/.brig/upper", NULL}, *const store[] = {"store", OWN_RUN_DISK, NULL};
    const bool of_disk = export->at == export->n_held;
    const struct library_options *o = &export->library->o;
    const struct layer_run_events events = {.data = on_data, .done = on_run_done, .ctx = export};
    const struct layer_run_spec spec = {.org = export->caller.org_id,
                                        .argv = of_disk ? store : argv,
                                        .below = of_disk ? NULL : &export->template->info.layers[export->at],
                                        .n_below = of_disk ? 0 : 1,
                                        .raw_top = !of_disk,
                                        .disk = of_disk ? export->template->info.disk : NULL,
                                        .timeout_ms = o->config->templates_timeout};

    export->layers[export->at].offset = export->written;
    return layer_run_start(o->manager, o->provider, o->config, &spec, &events, &export->run, err);
}

/* ---- sending ---------------------------------------------------------------------------------------------- */

static void give(struct export *export, const void *data, size_t len)
{
    export->left -= len;
    export->events.data(export->events.ctx, data, len); /* It may drop the export. */
}

static void read_piece(struct job *job)
{
    struct export *export = (struct export *)(void *)((char *)job - offsetof(struct export, job));
    const struct export_layer *layer = &export->layers[export->at];
    uint64_t left = layer->size - export->sent;

    do
        export->n_read = pread(export->fd, export->piece, left < PIECE ? (size_t)left : PIECE,
                               (off_t)(layer->offset + export->sent));
    while (export->n_read < 0 && errno == EINTR);
    if (export->n_read <= 0)
        export->n_read = export->n_read < 0 ? -errno : -EIO;
}

static void piece_read(struct job *job)
{
    struct export *export = (struct export *)(void *)((char *)job - offsetof(struct export, job));
    struct brig_err err;

    export->reading = false;
    if (export->dead) {
        destroy(export);
    } else if (export->n_read < 0) {
        (void)err_set(&err, BRIG_E_HOST, (int)-export->n_read, "the archive could not be read");
        fail(export, &err);
    } else {
        export->sent += (uint64_t) export->n_read;
        give(export, export->piece, (size_t) export->n_read);
    }
}

/* What follows a layer that was sent, or the documents: the header of the next one, or the end. */
static int next_text(struct export *export, struct brig_err *err)
{
    static const char zeroes[2 * TAR_BLOCK];
    const size_t n = export->template->info.n_layers;

    export->text.len = 0;
    if (export->in_layer) {
        uint32_t padding = tar_padding(export->layers[export->at].size);
        export->in_layer = false;
        export->at++;
        if (buf_append(&export->text, zeroes, padding) < 0)
            return err_nomem(err);
    }
    while (export->at < n && export->layers[export->at].again)
        export->at++;
    if (export->at < n) {
        export->in_layer = true;
        export->sent = 0;
        return export_blob_head(export->layers[export->at].digest, export->layers[export->at].size, &export->text, err);
    }
    export->ended = true;
    return buf_append(&export->text, zeroes, sizeof zeroes) < 0 ? err_nomem(err) : 0;
}

/* The end is told in a turn of its own: without a reason. */
static void on_end(struct loop_timer *timer)
{
    struct export *export = timer->ctx;
    const struct export_events events = export->events;

    drop(export);
    events.done(events.ctx, NULL);
}

void export_next(struct export *export)
{
    struct brig_err err = {0};

    if (export->failed || export->reading)
        return;
    if (export->left == 0) {
        export->on_turn.fn = on_end;
        export->failed = true; /* nothing else follows */
        (void)!loop_timer_set(export->library->o.loop, &export->on_turn, 0, NULL);
        return;
    }
    if (export->text.len == 0 && !(export->in_layer && export->sent < export->layers[export->at].size) &&
        next_text(export, &err) < 0) {
        fail(export, &err);
        return;
    }
    if (export->text.len > 0) {
        struct buf text = export->text; /* the receiver may drop the export */
        export->text = BUF_INIT(EXPORT_DOCUMENTS);
        give(export, text.data, text.len);
        buf_done(&text);
        return;
    }
    export->reading = true;
    export->job = (struct job){.work = read_piece, .done = piece_read};
    workers_add_bounded(export->library->o.workers, workers_owner(export->caller.org_id), &export->job);
}

/* ---- the beginning ---------------------------------------------------------------------------------------- */

static int check(const struct library *library, const struct caller *caller, const struct object *object,
                 const char *name, struct brig_err *err)
{
    unsigned n = 0, own = 0;

    if (!object)
        return err_set(err, BRIG_E_NOT_FOUND, 0, "template %.128s not found", name);
    int r = library_may(library, caller, NULL, err);
    if (r < 0)
        return err_set(err, BRIG_E_FORBIDDEN, 0, "only an administrator may export templates ([templates] allow)");
    for (const struct export *at = library->exports; at; at = at->next, n++)
        own += str_eq(at->caller.org_id, caller->org_id);
    if (own >= EXPORTS_PER_ORG)
        return err_set(err, BRIG_E_LIMIT, 0, "the organisation makes %u exports already; wait for one of them", own);
    return n >= EXPORTS_MAX ? err_set(err, BRIG_E_LIMIT, 0, "%u exports are under way; wait for one of them", n) : 0;
}

/* A file that has no name any more: whatever happens, nothing stays. */
static int open_file(struct export *export, struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE], name[WORK_NAME];
    const int dir = export->library->work_fd;

    if (id_sandbox(id) < 0 || str_format(name, sizeof name, "export-%s", id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random name");
    export->fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    AUTO_FD int copy = export->fd < 0 ? -1 : fcntl(export->fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0 || unlinkat(dir, name, 0) < 0)
        return err_host(err, "a file for the archive");
    if (spool_create(export->library->o.workers, export->caller.org_id, copy, on_wrote, export, &export->spool) < 0)
        return err_nomem(err);
    (void)take_fd(&copy);
    return 0;
}

static int hold_layers(struct export *export, struct brig_err *err)
{
    const struct template_info *info = &export->template->info;

    for (; export->n_held < info->n_layers; export->n_held++)
        if (!maker_hold(export->library->maker, export->caller.org_id, info->layers[export->n_held]))
            return err_set(err, BRIG_E_GONE, 0, "template %s: a layer is not there any more", export->template->name);
    return 0;
}

static int begin(struct export *export, const struct object *object, struct brig_err *err)
{
    int r = template_copy(object, &export->template, err);

    if (r == 0)
        r = hold_layers(export, err);
    if (r == 0 && export->template->info.disk[0])
        export->template->info.n_layers++; /* of our own copy: what is on the disk comes as one layer more */
    if (r == 0 && crypto_hash_create(&export->hash) < 0)
        r = err_nomem(err);
    if (r == 0 && !(export->layers = mem_zalloc((export->template->info.n_layers + 1) * sizeof *export->layers)))
        r = err_nomem(err);
    if (r == 0)
        r = open_file(export, err);
    return r < 0 ? r : next_layer(export, err);
}

int library_export(struct library *library, const struct caller *caller, const char *name, bool docker,
                   const struct export_events *events, struct export **ret, struct brig_err *err)
{
    const struct object *object = templates_find(library->o.templates, caller->org_id, name);
    struct export *export;
    int r = check(library, caller, object, name, err);

    if (r < 0)
        return r;
    if (template_of(object)->n_layers == 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "template %s: it stands on %.64s of this host, which has no layers to export", object->id,
                       template_of(object)->base);
    export = mem_zalloc(sizeof *export);
    if (!export)
        return err_nomem(err);
    *export = (struct export){.library = library,
                              .caller = *caller,
                              .docker = docker,
                              .events = *events,
                              .fd = -1,
                              .text = BUF_INIT(EXPORT_DOCUMENTS),
                              .on_turn = {.fn = on_turn, .ctx = export},
                              .next = library->exports};
    library->exports = export;
    r = begin(export, object, err);
    if (r < 0)
        drop(export);
    else
        *ret = export;
    return r;
}

bool export_has_scratch(const struct library *library, const char *name)
{
    for (const struct export *at = library->exports; at; at = at->next)
        if (at->run && layer_run_has_scratch(at->run, name))
            return true;
    return false;
}
