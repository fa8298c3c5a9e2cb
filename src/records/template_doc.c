/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template_doc.c: the document of a template, read and written. What an image says about itself comes from strangers,
 * so every member has a bound, and a text has no NUL. The reader makes its lists in one block; the texts stay where the
 * JSON has them.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "records/templates.h"

#define LIST_MAX TEMPLATE_ENV_MAX
#define TEXT_MAX (64u << 10) /* of one text of an image; a variable or a word of a command may be long */
#define LABELS_MAX 4096u

/* ---- writing ------------------------------------------------------------------------------------------ */

static void put_list(struct json *json, const char *key, const char *const *list)
{
    if (!list) {
        json_key_null(json, key);
        return;
    }
    json_key_array(json, key);
    for (; *list; list++)
        json_string(json, *list);
    json_end(json);
}

static void put_value(struct json *json, const char *key, const struct json_value *value)
{
    json_key(json, key);
    if (value)
        json_value_put(json, value);
    else
        json_null(json);
}

void template_image_put(const struct template_image *image, struct json *json)
{
    json_key_object(json, "image");
    put_list(json, "env", image->env);
    json_key_string(json, "user", image->user ? image->user : "");
    json_key_string(json, "workdir", image->workdir ? image->workdir : "");
    put_list(json, "entrypoint", image->entrypoint);
    put_list(json, "cmd", image->cmd);
    put_list(json, "shell", image->shell);
    put_list(json, "exposed_ports", image->exposed_ports);
    put_list(json, "volumes", image->volumes);
    json_key_string(json, "stop_signal", image->stop_signal ? image->stop_signal : "");
    json_key_string(json, "platform", image->platform ? image->platform : "");
    put_value(json, "labels", image->labels);
    put_value(json, "healthcheck", image->healthcheck);
    json_end(json);
}

int template_write(const struct template_info *info, struct buf *out, struct brig_err *err)
{
    struct json json = JSON_INIT(out);
    uint64_t bytes = 0;

    json_object(&json);
    json_key_string(&json, "source", info->source);
    json_key_string(&json, "reference", info->reference ? info->reference : "");
    json_key_string(&json, "digest", info->digest ? info->digest : "");
    json_key_array(&json, "layers");
    for (size_t i = 0; i < info->n_layers; i++)
        json_string(&json, info->layers[i]);
    json_end(&json);
    json_key_array(&json, "diff_ids");
    for (size_t i = 0; i < info->n_layers; i++)
        json_string(&json, info->diff_ids[i]);
    json_end(&json);
    json_key_array(&json, "sizes");
    for (size_t i = 0; i < info->n_layers; i++) {
        json_u64(&json, info->sizes[i]);
        bytes += info->sizes[i];
    }
    json_end(&json);
    json_key_u64(&json, "bytes", bytes);
    if (info->disk && info->disk[0]) {
        json_key_object(&json, "disk");
        json_key_string(&json, "name", info->disk);
        json_key_u64(&json, "size", info->disk_size);
        json_key_u64(&json, "inodes", info->disk_inodes);
        json_key_bool(&json, "writable_root", info->writable_root);
        json_key_string(&json, "base", info->base ? info->base : "");
        json_end(&json);
    }
    const size_t before = out->len;
    template_image_put(&info->image, &json);
    if (info->settings)
        put_value(&json, "settings", info->settings);
    const size_t image = out->len - before;
    json_key_i64(&json, "made_at_ns", info->made_at_ns);
    json_key_i64(&json, "used_at_ns", info->used_at_ns);
    json_key_bool(&json, "shared", info->shared);
    json_end(&json);
    int r = json_finish(&json);
    if (r == -EMSGSIZE || (r == 0 && !info->stored && image > TEMPLATE_IMAGE_MAX))
        return err_set(err, BRIG_E_TOO_LARGE, 0,
                       "template: its variables, commands, labels and ports take %zu bytes, and at most %u are allowed",
                       image, TEMPLATE_IMAGE_MAX);
    return r < 0 ? err_nomem(err) : 0;
}

/* ---- reading ------------------------------------------------------------------------------------------ */

struct reader {
    const struct json_value *json;
    const char **at; /* where the next list goes */
    struct brig_err *err;
    int r;
};

static void bad(struct reader *in, const char *key, const char *rule)
{
    if (in->r == 0)
        in->r = err_set(in->err, BRIG_E_INVALID, 0, "template: %s: %s", key, rule);
}

static const char *text_of(struct reader *in, const struct json_value *v, const char *key)
{
    if (v && v->type == JSON_STRING && v->len <= TEXT_MAX && strlen(v->string) == v->len)
        return v->string;
    bad(in, key, "must be a text of at most 64 KiB without a NUL");
    return "";
}

static const char *read_text(struct reader *in, const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    return v ? text_of(in, v, key) : "";
}

/* null and a missing member are NULL. */
static const char *const *read_list(struct reader *in, const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);
    const char **list = in->at;

    if (!v || v->type == JSON_NULL)
        return NULL;
    if (v->type != JSON_ARRAY || v->count > LIST_MAX) {
        bad(in, key, "must be a list of at most 1024 texts");
        return NULL;
    }
    for (const struct json_value *item = v->first; item; item = item->next)
        *in->at++ = text_of(in, item, key);
    *in->at++ = NULL;
    return list;
}

static const struct json_value *read_object(struct reader *in, const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    if (!v || v->type == JSON_NULL)
        return NULL;
    if (v->type != JSON_OBJECT || v->count > LABELS_MAX)
        bad(in, key, "must be an object");
    return v;
}

static int64_t read_number(struct reader *in, const struct json_value *object, const char *key)
{
    const struct json_value *v = json_get(object, key);

    if (!v || v->type != JSON_NUMBER || !v->integer || v->i64 < 0)
        bad(in, key, "must be a whole number");
    return in->r == 0 && v ? v->i64 : 0;
}

static void read_image(struct reader *in, struct template_image *ret)
{
    const struct json_value *image = json_get(in->json, "image");

    if (!image || image->type != JSON_OBJECT) {
        bad(in, "image", "must be an object");
        return;
    }
    *ret = (struct template_image){.env = read_list(in, image, "env"),
                                   .user = read_text(in, image, "user"),
                                   .workdir = read_text(in, image, "workdir"),
                                   .entrypoint = read_list(in, image, "entrypoint"),
                                   .cmd = read_list(in, image, "cmd"),
                                   .shell = read_list(in, image, "shell"),
                                   .exposed_ports = read_list(in, image, "exposed_ports"),
                                   .volumes = read_list(in, image, "volumes"),
                                   .stop_signal = read_text(in, image, "stop_signal"),
                                   .platform = read_text(in, image, "platform"),
                                   .labels = read_object(in, image, "labels"),
                                   .healthcheck = read_object(in, image, "healthcheck")};
    for (const char *const *env = ret->env; in->r == 0 && env && *env; env++)
        if ((*env)[0] == '=' || !strchr(*env, '='))
            bad(in, "env", "each must be NAME=value");
    if (in->r == 0 && ret->workdir[0] && ret->workdir[0] != '/')
        bad(in, "workdir", "must be absolute");
}

static bool is_hex(const char *text)
{
    return strlen(text) == TEMPLATE_LAYER_NAME - 1 && strspn(text, "0123456789abcdef") == TEMPLATE_LAYER_NAME - 1;
}

static void read_disk(struct reader *in, struct template_info *ret)
{
    const struct json_value *disk = json_get(in->json, "disk");

    ret->disk = ret->base = "";
    if (!disk || disk->type == JSON_NULL)
        return;
    ret->disk = read_text(in, disk, "name");
    ret->base = read_text(in, disk, "base");
    ret->disk_size = (uint64_t)read_number(in, disk, "size");
    ret->disk_inodes = (uint64_t)read_number(in, disk, "inodes");
    ret->writable_root = json_get_bool(disk, "writable_root");
    if (in->r == 0 && (!str_starts(ret->disk, "snap-") || strlen(ret->disk) >= TEMPLATE_DISK_NAME ||
                       strlen(ret->base) >= TEMPLATE_NAME_MAX))
        bad(in, "disk", "needs the name of a disk");
}

static void read_layers(struct reader *in, struct template_info *ret)
{
    const struct json_value *layers = json_get(in->json, "layers"), *ids = json_get(in->json, "diff_ids"),
                            *sizes = json_get(in->json, "sizes");
    size_t n = layers && layers->type == JSON_ARRAY ? layers->count : 0;

    if ((n == 0 && !ret->base[0]) || n > TEMPLATE_LAYERS_MAX || !ids || ids->type != JSON_ARRAY || ids->count != n ||
        !sizes || sizes->type != JSON_ARRAY || sizes->count != n) {
        bad(in, "layers", "must be a list of 1 to 128, with as many diff_ids and sizes");
        return;
    }
    ret->n_layers = n;
    ret->layers = read_list(in, in->json, "layers");
    ret->diff_ids = read_list(in, in->json, "diff_ids");
    ret->sizes = (uint64_t *)(void *)in->at;
    in->at += n;
    const struct json_value *size = sizes->first;
    for (size_t i = 0; i < n && in->r == 0; i++, size = size->next) {
        if (!is_hex(ret->layers[i]))
            bad(in, "layers", "each must be 64 hexadecimal digits");
        else if (!str_starts(ret->diff_ids[i], "sha256:") || !is_hex(ret->diff_ids[i] + strlen("sha256:")))
            bad(in, "diff_ids", "each must be sha256: and 64 hexadecimal digits");
        else if (size->type != JSON_NUMBER || !size->integer || size->i64 < 0)
            bad(in, "sizes", "each must be a number of bytes");
        else
            ret->bytes += ret->sizes[i] = (uint64_t)size->i64;
    }
}

/* Room for every item of every list, and the NULL after each. */
static size_t count_items(const struct json_value *v)
{
    size_t n = 16;

    for (const struct json_value *m = v && v->type == JSON_OBJECT ? v->first : NULL; m; m = m->next)
        n += m->type == JSON_ARRAY ? m->count + 1 : 0;
    return n;
}

/* Each text with its NUL, so that no two lists are the same bytes. */
static int hash_content(struct template_info *info)
{
    const char *files = info->disk[0] ? info->disk : info->n_layers > 0 ? info->layers[info->n_layers - 1] : "";
    struct crypto_hash *hash = NULL;
    uint8_t out[SHA256_SIZE];
    int r = crypto_hash_create(&hash);

    _Static_assert(sizeof info->content == SHA256_HEX, "it is a hash in hexadecimal digits");
    r = r < 0 ? r : crypto_hash_add(hash, files, strlen(files) + 1);
    for (const char *const *env = info->image.env; r == 0 && env && *env; env++)
        r = crypto_hash_add(hash, *env, strlen(*env) + 1);
    r = r < 0 ? r : crypto_hash_end(hash, out);
    crypto_hash_destroy(hash);
    if (r == 0)
        crypto_hex(out, sizeof out, info->content);
    return r;
}

int template_parse(const struct json_value *json, struct template_info *ret, struct brig_err *err)
{
    struct template_info info = {.source = NULL};
    const struct json_value *shared = json_get(json, "shared");

    _Static_assert(sizeof(uint64_t) == sizeof(char *), "sizes lie in the same block as the lists");
    info.memory = mem_alloc((count_items(json) + count_items(json_get(json, "image"))) * sizeof(char *));
    if (!info.memory)
        return err_nomem(err);
    struct reader in = {.json = json, .at = info.memory, .err = err};
    info.source = read_text(&in, json, "source");
    info.reference = read_text(&in, json, "reference");
    info.digest = read_text(&in, json, "digest");
    read_disk(&in, &info);
    read_layers(&in, &info);
    if (in.r == 0)
        read_image(&in, &info.image);
    info.settings = read_object(&in, json, "settings");
    info.made_at_ns = read_number(&in, json, "made_at_ns");
    info.used_at_ns = read_number(&in, json, "used_at_ns");
    if (in.r == 0 && (!shared || shared->type != JSON_BOOL))
        bad(&in, "shared", "must be true or false");
    if (in.r == 0 && hash_content(&info) < 0)
        in.r = err_nomem(err);
    if (in.r < 0) {
        template_done(&info);
        return in.r;
    }
    info.shared = shared->boolean;
    info.stored = true;
    *ret = info;
    return 0;
}

void template_done(struct template_info *info)
{
    mem_free(info->memory);
    *info = (struct template_info){.source = NULL};
}

/* ---- a copy ------------------------------------------------------------------------------------------- */

void template_copy_free(struct template_copy *copy)
{
    if (!copy)
        return;
    template_done(&copy->info);
    json_doc_free(copy->doc);
    mem_free(copy->text);
    mem_free(copy);
}

static int copy_of(const char *org, const char *name, const char *text, size_t len, struct template_copy **ret,
                   struct brig_err *err)
{
    struct template_copy *copy = mem_zalloc(sizeof *copy);

    *ret = NULL;
    if (!copy || !(copy->text = mem_alloc(len + 1))) {
        template_copy_free(copy);
        return err_nomem(err);
    }
    memcpy(copy->text, text, len);
    copy->text[len] = '\0';
    int r = str_copy(copy->org, sizeof copy->org, org) < 0 || str_copy(copy->name, sizeof copy->name, name) < 0
                ? err_set(err, BRIG_E_INVALID, 0, "template %.64s: the name is too long", name)
                : json_read(copy->text, len, JSON_READ_VALUES, &copy->doc, err);
    if (r == 0)
        r = template_parse(json_root(copy->doc), &copy->info, err);
    if (r < 0)
        template_copy_free(copy);
    else
        *ret = copy;
    return r;
}

int template_copy(const struct object *object, struct template_copy **ret, struct brig_err *err)
{
    return copy_of(object->org_id, object->id, object->text, object->len, ret, err);
}

void template_copy_put(const struct template_copy *copy, struct json *json)
{
    json_object(json);
    json_key_string(json, "org", copy->org);
    json_key_string(json, "name", copy->name);
    json_key_raw(json, "document", copy->text, strlen(copy->text));
    json_end(json);
}

int template_copy_read(const struct json_value *json, struct template_copy **ret, struct brig_err *err)
{
    const struct json_value *org = json_get(json, "org"), *name = json_get(json, "name"),
                            *document = json_get(json, "document");

    if (!org || org->type != JSON_STRING || !name || name->type != JSON_STRING || !document) {
        *ret = NULL;
        return err_set(err, BRIG_E_INVALID, 0, "template: needs org, name and document");
    }
    return copy_of(org->string, name->string, document->raw, document->raw_len, ret, err);
}
