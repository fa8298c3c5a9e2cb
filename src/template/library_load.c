/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library_load.c: makes a template from an archive that a client sends. The archive is written to a file of ours, as it
 * comes. brig-layer lists its members in a sandbox; with the offsets that it gives, the image's JSON documents are read
 * here (manifest.h parses them strictly), and brig-layer unpacks each layer straight from the same file.
 *
 *     index.json, oci-layout    an OCI layout, which newer `docker save` archives have too
 *     manifest.json             an older `docker save`
 *     neither                   the tar of a root file system: one layer
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "crypto/crypto.h"
#include "template/library_priv.h"

#define INDEX_DEPTH 4

/* ---- the upload --------------------------------------------------------------------------------------- */

static void remove_files(struct library_job *job)
{
    if (job->upload[0])
        (void)unlinkat(job->library->work_fd, job->upload, 0);
    if (job->packed[0])
        (void)unlinkat(job->library->work_fd, job->packed, 0);
    job->upload[0] = job->packed[0] = '\0';
}

static int upload_path(const struct library_job *job, const char *name, char out[4096], struct brig_err *err)
{
    return str_format(out, 4096, "%s/work/%s", job->library->path, name) < 0
               ? err_usage(err, "%s: too long", job->library->path)
               : 0;
}

/* A new file in work, and a spool that writes to it. */
static int open_file(struct library_job *job, void (*wrote)(void *ctx, size_t len, int error), struct brig_err *err)
{
    char id[ID_SANDBOX_SIZE];

    if (id_sandbox(id) < 0 || str_format(job->upload, sizeof job->upload, "load-%s", id) < 0)
        return err_set(err, BRIG_E_HOST, EIO, "random name");
    base_close_fd(&job->fd);
    job->received = 0;
    job->fd = spool_file(job->library->work_fd, job->upload, O_RDWR | O_EXCL);
    AUTO_FD int copy = job->fd < 0 ? -1 : fcntl(job->fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return err_host(err, "a file for the archive");
    spool_free(take_ptr(&job->spool));
    if (spool_create(job->library->o.workers, job->caller.org_id, copy, wrote, job, &job->spool) < 0)
        return err_nomem(err);
    (void)take_fd(&copy);
    return 0;
}

static void not_written(struct library_job *job, int error)
{
    struct brig_err err;

    (void)err_set(&err, BRIG_E_HOST, -error, "the archive could not be kept");
    job_fail(job, &err);
}

static void on_wrote(void *ctx, size_t len, int error)
{
    struct library_job *job = ctx;

    if (job->err.code)
        return;
    job->received += len;
    if (error < 0)
        not_written(job, error);
    else
        job->ready(job->events.ctx);
}

int library_load(struct library *library, const struct caller *caller, const struct library_want *want,
                 const struct library_events *events, struct library_job **ret, struct brig_err *err)
{
    struct library_job *job = NULL;
    int r = library_may(library, caller, NULL, err);

    if (r == 0)
        r = job_new(library, caller, want, events, &job, err);
    if (r < 0)
        return r;
    job->source = "load";
    job->undo = remove_files;
    r = open_file(job, on_wrote, err);
    if (r < 0)
        job_free(job);
    else
        *ret = job;
    return r;
}

int library_load_data(struct library_job *job, const void *data, size_t len, void (*ready)(void *ctx),
                      struct brig_err *err)
{
    const uint64_t max = job->library->o.config->templates_max_image;

    if (job->received + len > max)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "the archive has more than %llu MiB ([templates] max_image)",
                       (unsigned long long)(max >> 20));
    job->ready = ready;
    int r = spool_write(job->spool, data, len);
    return r == -EMSGSIZE
               ? err_set(err, BRIG_E_TOO_LARGE, 0, "a piece of the archive: has more than %u bytes", SPOOL_MAX)
           : r < 0 ? err_nomem(err)
                   : 0;
}

/* ---- its documents ------------------------------------------------------------------------------------ */

/* Reads a member of the archive. digest: what its content must have; NULL: nobody has said one. */
static int read_member(const struct library_job *job, const char *name, size_t max, const char *digest, struct buf *out,
                       struct brig_err *err)
{
    const struct archive_member *member = archive_find(job->archive, name);
    uint8_t hash[SHA256_SIZE];
    char hex[SHA256_HEX];

    if (!member)
        return err_set(err, BRIG_E_INVALID, 0, "%.120s: not in the archive", name);
    if (member->size > max)
        return err_set(err, BRIG_E_INVALID, 0, "%.120s: has more than %zu bytes", name, max);
    *out = BUF_INIT(max + 1);
    if (buf_reserve(out, (size_t)member->size + 1) < 0)
        return err_nomem(err);
    for (size_t at = 0; at < member->size;) {
        ssize_t n = pread(job->fd, out->data + out->len, (size_t)member->size - at, (off_t)(member->offset + at));
        if (n <= 0)
            return err_set(err, BRIG_E_INVALID, 0, "%.120s: the archive ends in it", name);
        buf_commit(out, (size_t)n);
        at += (size_t)n;
    }
    if (!digest)
        return 0;
    if (crypto_sha256(out->data ? out->data : "", out->len, hash) < 0)
        return err_set(err, BRIG_E_HOST, 0, "hash of %.120s", name);
    crypto_hex(hash, sizeof hash, hex);
    return str_eq(hex, digest + strlen("sha256:"))
               ? 0
               : err_set(err, BRIG_E_INVALID, 0, "%s: its content has the digest sha256:%s", digest, hex);
}

static int blob_name(const char *digest, char out[128])
{
    return str_format(out, 128, "blobs/sha256/%s", digest + strlen("sha256:"));
}

static int read_blob(const struct library_job *job, const struct blob_desc *desc, size_t max, struct buf *out,
                     struct brig_err *err)
{
    char name[128];

    if (blob_name(desc->digest, name) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.80s: not a digest", desc->digest);
    return read_member(job, name, max, desc->digest, out, err);
}

/* The layer's bytes lie in the archive. */
static int set_layer(struct library_job *job, size_t i, const char *member_name, const char *digest,
                     struct brig_err *err)
{
    const struct archive_member *member = archive_find(job->archive, member_name);
    struct job_layer *layer = &job->layers[i];

    if (!member)
        return err_set(err, BRIG_E_INVALID, 0, "%.120s: not in the archive", member_name);
    if (member->offset > job->received || member->size > job->received - member->offset)
        return err_set(err, BRIG_E_INVALID, 0, "%.120s: the archive ends in it", member_name);
    layer->offset = member->offset;
    layer->size = member->size;
    layer->ready = true;
    int r = upload_path(job, job->upload, layer->path, err);
    if (r < 0)
        return r;
    if (str_copy(layer->digest, sizeof layer->digest, digest) < 0 ||
        str_copy(layer->diff_id, sizeof layer->diff_id, job->config->diff_ids.items[i]) < 0 ||
        str_copy(layer->name, sizeof layer->name, job->config->chain_ids.items[i] + strlen("sha256:")) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the name of a layer");
    return 0;
}

/* "docker.io/library/debian:12" is called "debian:12" here. */
static int name_from(struct library_job *job, const char *reference, struct brig_err *err)
{
    struct image_ref ref;
    char name[TEMPLATE_NAME_MAX];

    if (job->name[0])
        return 0;
    if (!reference || !reference[0] || image_ref_parse(reference, &ref, NULL) < 0 || library_name_of(&ref, name) < 0)
        return err_usage(err, "name: the archive does not say one that can be used; give one");
    return job_set_name(job, name, err);
}

/* What the image itself says counts, whatever an index says about it. */
static int check_platform(const struct library_job *job, struct brig_err *err)
{
    char is[PLATFORM_TEXT], want[PLATFORM_TEXT];

    if (platform_fit(&job->config->platform, &job->platform) > 0)
        return 0;
    platform_text(&job->config->platform, is);
    platform_text(&job->platform, want);
    return err_set(err, BRIG_E_INVALID, 0, "the image is for %s, and not for %s (--platform)", is, want);
}

/* ---- an OCI layout ------------------------------------------------------------------------------------ */

static int read_manifest(struct library_job *job, const struct blob_desc *desc, struct manifest **ret,
                         struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(0);
    int r = desc ? read_blob(job, desc, MANIFEST_BYTES, &text, err)
                 : read_member(job, "index.json", MANIFEST_BYTES, NULL, &text, err);

    if (r < 0)
        return r;
    return manifest_parse(text.data, text.len, desc && desc->media_type[0] ? desc->media_type : NULL, ret, err);
}

/* Several images of one platform are several images: which one is meant? */
static int check_alone(const struct manifest *index, const struct manifest_entry *chosen, struct brig_err *err)
{
    size_t n = 1;

    for (size_t i = 0; i < index->n_entries; i++) {
        const struct manifest_entry *other = &index->entries[i];
        n += other->has_platform == chosen->has_platform && !str_eq(other->desc.digest, chosen->desc.digest) &&
             platform_same(&other->platform, &chosen->platform);
    }
    return n == 1 ? 0
                  : err_set(err, BRIG_E_INVALID, 0, "index.json: the archive has %zu images; load one at a time", n);
}

static int follow_index(struct library_job *job, struct manifest **ret, char name[IMAGE_REF_TEXT], struct brig_err *err)
{
    struct manifest *at = NULL;
    int r = read_manifest(job, NULL, &at, err);

    for (int depth = 0; r == 0 && at->is_index; depth++) {
        const struct manifest_entry *entry = NULL;
        struct manifest *next = NULL;
        if (depth == INDEX_DEPTH) {
            r = err_set(err, BRIG_E_INVALID, 0, "index.json: more than %d indexes in each other", INDEX_DEPTH);
            break;
        }
        r = manifest_choose(at, &job->platform, &entry, err);
        if (r == 0 && depth == 0)
            r = check_alone(at, entry, err);
        if (r == 0 && !name[0])
            str_cut(name, IMAGE_REF_TEXT, entry->name);
        if (r == 0)
            r = read_manifest(job, &entry->desc, &next, err);
        /* The first is what the archive names, as a registry's tag does: perhaps an index of several platforms. */
        if (r == 0 && depth == 0 && str_copy(job->digest, sizeof job->digest, entry->desc.digest) < 0)
            r = err_set(err, BRIG_E_INVALID, 0, "%.80s: not a digest", entry->desc.digest);
        manifest_free(at);
        at = r == 0 ? next : NULL;
    }
    if (r < 0)
        manifest_free(at);
    else
        *ret = at;
    return r;
}

static int fill_oci(struct library_job *job, const struct manifest *manifest, struct brig_err *err)
{
    static const char *const formats[LAYER_FORMAT_MAX] = {
        [LAYER_TAR] = "tar", [LAYER_TAR_GZIP] = "gzip", [LAYER_TAR_ZSTD] = "zstd"};
    AUTO_BUF struct buf config = BUF_INIT(0);
    char name[128];
    int r = read_blob(job, &manifest->config, IMAGE_CONFIG_BYTES, &config, err);

    if (r == 0)
        r = image_config_parse(config.data, config.len, manifest->n_layers, &job->config, err);
    if (r == 0)
        r = check_platform(job, err);
    if (r == 0)
        r = job_layers(job, manifest->n_layers, err);
    for (size_t i = 0; r == 0 && i < job->n_layers; i++) {
        const struct blob_desc *desc = &manifest->layers[i];
        r = blob_name(desc->digest, name) < 0 ? err_set(err, BRIG_E_INVALID, 0, "%.80s: not a digest", desc->digest)
                                              : set_layer(job, i, name, desc->digest, err);
        if (r == 0 && job->layers[i].size != desc->size)
            r = err_set(err, BRIG_E_INVALID, 0, "%s: has %llu bytes, the manifest says %llu", desc->digest,
                        (unsigned long long)job->layers[i].size, (unsigned long long)desc->size);
        if (r == 0)
            job->layers[i].format = formats[desc->format];
    }
    return r;
}

static int load_oci(struct library_job *job, struct brig_err *err)
{
    AUTO_BUF struct buf layout = BUF_INIT(0);
    struct manifest *manifest = NULL;
    char name[IMAGE_REF_TEXT] = "";
    int r = read_member(job, "oci-layout", 4096, NULL, &layout, err);

    if (r == 0)
        r = archive_layout_check(layout.data, layout.len, err);
    if (r == 0)
        r = follow_index(job, &manifest, name, err);
    if (r == 0)
        r = name_from(job, name, err);
    if (r == 0)
        r = fill_oci(job, manifest, err);
    manifest_free(manifest);
    return r;
}

/* ---- docker save -------------------------------------------------------------------------------------- */

/* The configuration is called by its digest: "HEX.json", "blobs/sha256/HEX". NULL if it is not. */
static const char *digest_in_name(const char *name, char out[DIGEST_TEXT])
{
    const char *slash = strrchr(name, '/'), *hex = slash ? slash + 1 : name;
    size_t len = strcspn(hex, ".");

    if (len != SHA256_HEX - 1 || (hex[len] && !str_eq(hex + len, ".json")) ||
        str_format(out, DIGEST_TEXT, "sha256:%.*s", (int)len, hex) < 0)
        return NULL;
    return digest_ok(out) ? out : NULL;
}

static int fill_docker(struct library_job *job, const struct archive_image *image, struct brig_err *err)
{
    AUTO_BUF struct buf config = BUF_INIT(0);
    char digest[DIGEST_TEXT];
    int r = name_from(job, image->tags.n ? image->tags.items[0] : NULL, err);

    if (r == 0)
        r = read_member(job, image->config, IMAGE_CONFIG_BYTES, digest_in_name(image->config, digest), &config, err);
    if (r == 0)
        r = image_config_parse(config.data, config.len, image->layers.n, &job->config, err);
    if (r == 0)
        r = check_platform(job, err);
    if (r == 0)
        r = job_layers(job, image->layers.n, err);
    for (size_t i = 0; r == 0 && i < job->n_layers; i++)
        r = set_layer(job, i, image->layers.items[i], job->config->diff_ids.items[i], err);
    return r;
}

static int load_docker(struct library_job *job, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(0);
    struct archive_manifest *manifest = NULL;
    int r = read_member(job, "manifest.json", MANIFEST_BYTES, NULL, &text, err);

    if (r == 0)
        r = archive_manifest_parse(text.data, text.len, &manifest, err);
    if (r == 0 && manifest->n_images > 1)
        r = err_set(err, BRIG_E_INVALID, 0, "manifest.json: the archive has %zu images; load one at a time",
                    manifest->n_images);
    if (r == 0)
        r = fill_docker(job, &manifest->images[0], err);
    archive_manifest_free(manifest);
    return r;
}

/* ---- a root file system ------------------------------------------------------------------------------- */

static int load_rootfs(struct library_job *job, struct brig_err *err)
{
    int r = name_from(job, NULL, err);

    if (r == 0)
        r = job_layers(job, 1, err);
    if (r < 0)
        return r;
    struct job_layer *layer = &job->layers[0];
    layer->ready = true;
    layer->size = job->received;
    (void)!str_copy(layer->digest, sizeof layer->digest, "archive");
    return upload_path(job, job->upload, layer->path, err);
}

/* ---- from the upload to the layers -------------------------------------------------------------------- */

static void interpret(struct library_job *job, bool many)
{
    struct brig_err err;
    int r;

    if (!many && archive_find(job->archive, "index.json") && archive_find(job->archive, "oci-layout"))
        r = load_oci(job, &err);
    else if (!many && archive_find(job->archive, "manifest.json"))
        r = load_docker(job, &err);
    else
        r = load_rootfs(job, &err);
    if (r < 0)
        job_fail(job, &err);
    else
        job_unpack(job);
}

static void on_line(void *ctx, const char *line, size_t len)
{
    struct library_job *job = ctx;
    struct brig_err err = {0};
    int r = job->many_members ? 0 : archive_add(job->archive, line, len);

    if (r == -EMSGSIZE) {
        job->many_members = true;
        (void)err_set(&err, BRIG_E_TOO_LARGE, 0, "it is a root file system");
        layer_run_stop(job->indexing, &err);
    } else if (r == -ENOMEM) {
        (void)err_nomem(&err);
        layer_run_stop(job->indexing, &err);
    } else if (r < 0) {
        (void)err_set(&err, BRIG_E_HOST, 0, "brig-layer said a line that is not understood");
        layer_run_stop(job->indexing, &err);
    }
}

static void not_read(struct library_job *job, const struct layer_run_result *result)
{
    struct brig_err err;

    if (result->err)
        err = *result->err;
    else
        (void)err_set(&err, result->said[0] ? BRIG_E_INVALID : BRIG_E_HOST, 0, "the archive: %s",
                      result->said[0] ? result->said : result->cause);
    job_fail(job, &err);
}

static void on_indexed(void *ctx, const struct layer_run_result *result)
{
    struct library_job *job = ctx;

    job->indexing = NULL;
    if (result->good || job->many_members)
        interpret(job, job->many_members);
    else
        not_read(job, result);
}

static int run_reader(struct library_job *job, const char *file, const char *const *argv,
                      const struct layer_run_events *events, struct brig_err *err)
{
    char path[4096];
    const struct library_options *o = &job->library->o;
    const struct layer_run_spec spec = {
        .org = job->caller.org_id, .argv = argv, .blob = path, .timeout_ms = o->config->templates_timeout};
    int r = upload_path(job, file, path, err);

    return r < 0 ? r : layer_run_start(o->manager, o->provider, o->config, &spec, events, &job->indexing, err);
}

static int run_index(struct library_job *job, struct brig_err *err)
{
    static const char *const argv[] = {"index", "/blob", NULL};
    const struct layer_run_events events = {.line = on_line, .done = on_indexed, .ctx = job};

    if (archive_create(&job->archive) < 0)
        return err_nomem(err);
    return run_reader(job, job->upload, argv, &events, err);
}

/* ---- a compressed archive is made plain first ---------------------------------------------------------- */

static void plain_check(struct library_job *job)
{
    struct brig_err err;

    if (job->indexing || !spool_is_idle(job->spool) || job->err.code)
        return;
    (void)unlinkat(job->library->work_fd, job->packed, 0);
    job->packed[0] = '\0';
    if (run_index(job, &err) < 0)
        job_fail(job, &err);
}

static void on_plain_wrote(void *ctx, size_t len, int error)
{
    struct library_job *job = ctx;

    if (job->err.code)
        return;
    job->received += len;
    if (error < 0) {
        not_written(job, error);
        return;
    }
    if (job->indexing)
        layer_run_consumed(job->indexing, len);
    plain_check(job);
}

static void on_plain_data(void *ctx, const uint8_t *data, size_t len)
{
    struct library_job *job = ctx;

    if (!job->err.code && spool_write(job->spool, data, len) < 0)
        not_written(job, -ENOMEM);
}

static void on_plain(void *ctx, const struct layer_run_result *result)
{
    struct library_job *job = ctx;

    job->indexing = NULL;
    if (result->good)
        plain_check(job);
    else
        not_read(job, result);
}

static int run_plain(struct library_job *job, struct brig_err *err)
{
    char max[24];
    const char *const argv[] = {"plain", "--max-bytes", max, "/blob", NULL};
    const struct layer_run_events events = {.data = on_plain_data, .done = on_plain, .ctx = job};
    int r;

    snprintf(max, sizeof max, "%llu", (unsigned long long)job->library->o.config->templates_max_image);
    str_assign(job->packed, job->upload);
    job->upload[0] = '\0';
    r = open_file(job, on_plain_wrote, err);
    return r < 0 ? r : run_reader(job, job->packed, argv, &events, err);
}

static bool is_packed(int fd)
{
    uint8_t magic[4] = {0};

    return pread(fd, magic, sizeof magic, 0) == sizeof magic &&
           ((magic[0] == 0x1f && magic[1] == 0x8b) || memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0);
}

void library_load_end(struct library_job *job)
{
    struct brig_err err = {0};
    int r = job->received == 0   ? err_usage(&err, "the archive is empty")
            : is_packed(job->fd) ? run_plain(job, &err)
                                 : run_index(job, &err);

    if (r < 0)
        job_fail(job, &err);
}
