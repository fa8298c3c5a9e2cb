/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_documents.c: the documents of an exported image: its configuration, manifest and index, and the files in which
 * an archive has them. They say what the template's record says, and nothing of this machine.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "codec/tar/tar.h"
#include "template/export_priv.h"

#define CONFIG_TYPE "application/vnd.oci.image.config.v1+json"
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define LAYER_TYPE "application/vnd.oci.image.layer.v1.tar"
#define NS_PER_MS UINT64_C(1000000)

/* ---- files ------------------------------------------------------------------------------------------------ */

static int put_head(struct buf *out, enum tar_kind kind, const char *name, uint64_t size, struct brig_err *err)
{
    const struct tar_member member = {
        .kind = kind, .mode = kind == TAR_DIR ? 0755 : 0644, .size = size, .name = name, .name_len = strlen(name)};
    uint8_t head[TAR_HEADER_MAX];
    int len = tar_put_header(head, &member);

    return len < 0 || buf_append(out, head, (size_t)len) < 0 ? err_nomem(err) : 0;
}

static int put_file(struct buf *out, const char *name, const struct buf *content, struct brig_err *err)
{
    static const char zeroes[TAR_BLOCK];
    int r = put_head(out, TAR_FILE, name, content->len, err);

    if (r == 0 &&
        (buf_append(out, content->data, content->len) < 0 || buf_append(out, zeroes, tar_padding(content->len)) < 0))
        r = err_nomem(err);
    return r;
}

static int blob_name(const char *digest, char out[96])
{
    return str_format(out, 96, "blobs/sha256/%s", digest);
}

int export_blob_head(const char *digest, uint64_t size, struct buf *out, struct brig_err *err)
{
    char name[96];

    return blob_name(digest, name) < 0 ? err_nomem(err) : put_head(out, TAR_FILE, name, size, err);
}

/* A document that is a blob too: its name is its hash. */
static int put_blob(struct buf *out, const struct buf *content, char digest[SHA256_HEX], struct brig_err *err)
{
    uint8_t sum[SHA256_SIZE];
    char name[96];

    if (crypto_sha256(content->data, content->len, sum) < 0)
        return err_nomem(err);
    crypto_hex(sum, sizeof sum, digest);
    return blob_name(digest, name) < 0 ? err_nomem(err) : put_file(out, name, content, err);
}

static int finish(struct json *json, struct brig_err *err)
{
    int r = json_finish(json);

    return r == -EMSGSIZE ? err_set(err, BRIG_E_TOO_LARGE, 0, "the documents of the image are too large")
           : r < 0        ? err_nomem(err)
                          : 0;
}

/* ---- the configuration ------------------------------------------------------------------------------------ */

static void put_list(struct json *json, const char *key, const char *const *list)
{
    if (!list)
        return;
    json_key_array(json, key);
    for (; *list; list++)
        json_string(json, *list);
    json_end(json);
}

/* A set, which the configuration of an image writes as an object. */
static void put_set(struct json *json, const char *key, const char *const *list)
{
    if (!list || !*list)
        return;
    json_key_object(json, key);
    for (; *list; list++) {
        json_key_object(json, *list);
        json_end(json);
    }
    json_end(json);
}

static void put_text(struct json *json, const char *key, const char *text)
{
    if (text && *text)
        json_key_string(json, key, text);
}

static void put_ns(struct json *json, const char *key, const struct json_value *health, const char *ms)
{
    const struct json_value *v = json_get(health, ms);

    if (v && v->integer && v->i64 > 0)
        json_key_u64(json, key, (uint64_t)v->i64 * NS_PER_MS);
}

static void put_health(struct json *json, const struct json_value *health)
{
    const struct json_value *test = json_get(health, "test"), *retries = json_get(health, "retries");

    if (!test || test->type != JSON_ARRAY)
        return;
    json_key_object(json, "Healthcheck");
    json_key_array(json, "Test");
    for (const struct json_value *word = test->first; word; word = word->next)
        if (word->type == JSON_STRING)
            json_string(json, word->string);
    json_end(json);
    put_ns(json, "Interval", health, "interval_ms");
    put_ns(json, "Timeout", health, "timeout_ms");
    put_ns(json, "StartPeriod", health, "start_period_ms");
    if (retries && retries->integer && retries->i64 > 0)
        json_key_u64(json, "Retries", (uint64_t)retries->i64);
    json_end(json);
}

static void put_labels(struct json *json, const struct json_value *labels)
{
    if (!labels || labels->type != JSON_OBJECT || !labels->first)
        return;
    json_key_object(json, "Labels");
    for (const struct json_value *label = labels->first; label; label = label->next)
        if (label->type == JSON_STRING)
            json_key_string(json, label->key, label->string);
    json_end(json);
}

static void put_image(struct json *json, const struct template_image *image)
{
    json_key_object(json, "config");
    put_text(json, "User", image->user);
    put_set(json, "ExposedPorts", image->exposed_ports);
    put_list(json, "Env", image->env);
    put_list(json, "Entrypoint", image->entrypoint);
    put_list(json, "Cmd", image->cmd);
    put_set(json, "Volumes", image->volumes);
    put_text(json, "WorkingDir", image->workdir);
    put_labels(json, image->labels);
    put_text(json, "StopSignal", image->stop_signal);
    put_list(json, "Shell", image->shell);
    if (image->healthcheck)
        put_health(json, image->healthcheck);
    json_end(json);
}

/* "linux/arm64/v8" */
static void put_platform(struct json *json, const struct template_image *image)
{
    struct platform platform;

    if (!image->platform || !image->platform[0] || platform_parse(image->platform, &platform, NULL) < 0)
        platform_host(&platform);
    json_key_string(json, "architecture", platform.arch);
    json_key_string(json, "os", platform.os);
    put_text(json, "variant", platform.variant);
}

static int put_config(const struct template_copy *template, const struct export_layer *layers, struct buf *out,
                      struct brig_err *err)
{
    const struct template_info *info = &template->info;
    struct json json = JSON_INIT(out);
    char created[CLOCK_TEXT], digest[80];

    clock_text(info->made_at_ns, 0, created);
    json_object(&json);
    put_platform(&json, &info->image);
    json_key_string(&json, "created", created);
    put_image(&json, &info->image);
    json_key_object(&json, "rootfs");
    json_key_string(&json, "type", "layers");
    json_key_array(&json, "diff_ids");
    for (size_t i = 0; i < info->n_layers; i++) {
        snprintf(digest, sizeof digest, "sha256:%s", layers[i].digest);
        json_string(&json, digest);
    }
    json_end(&json);
    json_end(&json);
    json_key_array(&json, "history");
    for (size_t i = 0; i < info->n_layers; i++) {
        json_object(&json);
        json_key_string(&json, "created", created);
        json_key_string(&json, "created_by", "brig template export");
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    return finish(&json, err);
}

/* ---- manifest, index and what archives have ----------------------------------------------------------------- */

static void put_descriptor(struct json *json, const char *type, const char *digest, uint64_t size)
{
    char text[80];

    snprintf(text, sizeof text, "sha256:%s", digest);
    json_key_string(json, "mediaType", type);
    json_key_string(json, "digest", text);
    json_key_u64(json, "size", size);
}

static int put_manifest(const struct template_info *info, const struct export_layer *layers, const char *config,
                        uint64_t config_size, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_u64(&json, "schemaVersion", 2);
    json_key_string(&json, "mediaType", MANIFEST_TYPE);
    json_key_object(&json, "config");
    put_descriptor(&json, CONFIG_TYPE, config, config_size);
    json_end(&json);
    json_key_array(&json, "layers");
    for (size_t i = 0; i < info->n_layers; i++) {
        json_object(&json);
        put_descriptor(&json, LAYER_TYPE, layers[i].digest, layers[i].size);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    return finish(&json, err);
}

/* NAME:TAG */
static int full_name(const struct template_copy *template, char out[TEMPLATE_NAME_MAX + 8])
{
    return str_format(out, TEMPLATE_NAME_MAX + 8, "%s%s", template->name, strchr(template->name, ':') ? "" : ":latest");
}

static int put_index(const struct template_copy *template, const char *manifest, uint64_t size, struct buf *out,
                     struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    char name[TEMPLATE_NAME_MAX + 8], reference[TEMPLATE_NAME_MAX + 40];

    if (full_name(template, name) < 0 ||
        str_format(reference, sizeof reference, "docker.io/%s%s", strchr(name, '/') ? "" : "library/", name) < 0)
        return err_nomem(err);
    json_object(&json);
    json_key_u64(&json, "schemaVersion", 2);
    json_key_string(&json, "mediaType", "application/vnd.oci.image.index.v1+json");
    json_key_array(&json, "manifests");
    json_object(&json);
    put_descriptor(&json, MANIFEST_TYPE, manifest, size);
    json_key_object(&json, "platform");
    put_platform(&json, &template->info.image);
    json_end(&json);
    json_key_object(&json, "annotations");
    json_key_string(&json, "io.containerd.image.name", reference);
    json_key_string(&json, "org.opencontainers.image.ref.name", strrchr(name, ':') + 1);
    json_end(&json);
    json_end(&json);
    json_end(&json);
    json_end(&json);
    return finish(&json, err);
}

/* manifest.json of `docker save`. */
static int put_saved(const struct template_copy *template, const struct export_layer *layers, const char *config,
                     struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    char name[TEMPLATE_NAME_MAX + 8], path[96];

    if (full_name(template, name) < 0 || blob_name(config, path) < 0)
        return err_nomem(err);
    json_array(&json);
    json_object(&json);
    json_key_string(&json, "Config", path);
    json_key_array(&json, "RepoTags");
    json_string(&json, name);
    json_end(&json);
    json_key_array(&json, "Layers");
    for (size_t i = 0; i < template->info.n_layers; i++)
        if (blob_name(layers[i].digest, path) > 0)
            json_string(&json, path);
    json_end(&json);
    json_end(&json);
    json_end(&json);
    return finish(&json, err);
}

static int put_layout(struct buf *out, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(64);

    if (buf_append_str(&text, "{\"imageLayoutVersion\":\"1.0.0\"}") < 0)
        return err_nomem(err);
    return put_file(out, "oci-layout", &text, err);
}

int export_documents(const struct template_copy *template, const struct export_layer *layers, bool docker,
                     struct buf *out, struct brig_err *err)
{
    AUTO_BUF struct buf config = BUF_INIT(IMAGE_CONFIG_BYTES), manifest = BUF_INIT(MANIFEST_BYTES),
                        index = BUF_INIT(MANIFEST_BYTES), saved = BUF_INIT(MANIFEST_BYTES);
    char config_digest[SHA256_HEX], manifest_digest[SHA256_HEX];
    int r = put_head(out, TAR_DIR, "blobs", 0, err);

    if (r == 0)
        r = put_head(out, TAR_DIR, "blobs/sha256", 0, err);
    if (r == 0)
        r = put_config(template, layers, &config, err);
    if (r == 0)
        r = put_blob(out, &config, config_digest, err);
    if (r == 0)
        r = put_manifest(&template->info, layers, config_digest, config.len, &manifest, err);
    if (r == 0)
        r = put_blob(out, &manifest, manifest_digest, err);
    if (r == 0)
        r = put_index(template, manifest_digest, manifest.len, &index, err);
    if (r == 0)
        r = put_file(out, "index.json", &index, err);
    if (r == 0 && docker && (r = put_saved(template, layers, config_digest, &saved, err)) == 0)
        r = put_file(out, "manifest.json", &saved, err);
    return r < 0 ? r : put_layout(out, err);
}
