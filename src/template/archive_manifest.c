/* SPDX-License-Identifier: Apache-2.0 */
/*
 * archive_manifest.c: parses what an archive of `docker save` says about its images, and the version of an OCI layout.
 * Names of members are only looked up in the archive's own list; nothing is opened by them.
 */
#include "base/str.h"
#include "template/manifest_priv.h"

#define LIST_BYTES (4u << 20)
#define NAME_BYTES 4095u
#define TAGS_MAX 1024u

static int read_image(struct picker *picker, const struct json_value *value, struct archive_image *ret)
{
    bool there = false;

    if (value->type != JSON_OBJECT)
        return pick_refuse(picker, "%s: its items must be objects", picker->what);
    int r = pick_string(picker, value, "Config", NAME_BYTES, &ret->config);
    if (r == 0 && !ret->config[0])
        r = pick_refuse(picker, "%s: Config is missing", picker->what);
    if (r == 0)
        r = pick_list(picker, value, "RepoTags", TAGS_MAX, IMAGE_REF_TEXT, &ret->tags, NULL);
    if (r == 0)
        r = pick_list(picker, value, "Layers", IMAGE_LAYERS_MAX, NAME_BYTES, &ret->layers, &there);
    if (r == 0 && !there)
        r = pick_refuse(picker, "%s: Layers is missing", picker->what);
    for (size_t i = 0; r == 0 && i < ret->layers.n; i++)
        if (!ret->layers.items[i][0])
            r = pick_refuse(picker, "%s: a layer has no name", picker->what);
    return r;
}

int archive_manifest_parse(const char *text, size_t len, struct archive_manifest **ret, struct brig_err *err)
{
    struct picker picker = {.what = "manifest.json", .err = err};
    const struct json_value *root = NULL;
    struct archive_manifest *manifest = NULL;
    int r = pick_document(text, len, LIST_BYTES, JSON_ARRAY, &picker, &root);

    if (r == 0 && (root->count == 0 || root->count > ARCHIVE_IMAGES_MAX))
        r = pick_refuse(&picker, "manifest.json: it has %zu images, and 1 to %u are allowed", root->count,
                        ARCHIVE_IMAGES_MAX);
    if (r == 0 && (!(manifest = pick_array(&picker, 1, sizeof *manifest)) ||
                   !(manifest->images = pick_array(&picker, root->count, sizeof *manifest->images))))
        r = -ENOMEM;
    for (const struct json_value *value = r == 0 ? root->first : NULL; r == 0 && value; value = value->next)
        r = read_image(&picker, value, &manifest->images[manifest->n_images++]);
    if (r < 0) {
        arena_destroy(picker.arena);
        return r;
    }
    manifest->arena = picker.arena;
    *ret = manifest;
    return 0;
}

void archive_manifest_free(struct archive_manifest *manifest)
{
    if (manifest)
        arena_destroy(manifest->arena); /* it is in there itself */
}

int archive_layout_check(const char *text, size_t len, struct brig_err *err)
{
    struct picker picker = {.what = "oci-layout", .err = err};
    const struct json_value *root = NULL;
    const char *version = NULL;
    int r = pick_document(text, len, NAME_BYTES, JSON_OBJECT, &picker, &root);

    if (r == 0)
        r = pick_string(&picker, root, "imageLayoutVersion", NAME_BYTES, &version);
    if (r == 0 && !str_starts(version, "1."))
        r = pick_refuse(&picker, "oci-layout: imageLayoutVersion \"%.60s\" is not supported", version);
    arena_destroy(picker.arena);
    return r;
}
