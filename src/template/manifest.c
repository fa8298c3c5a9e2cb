/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.c: parses indexes and manifests, and chooses from an index. A document that is both at once is refused, and
 * one whose Content-Type says something else than its own mediaType as well: two readers could take it for two
 * different images (CVE-2021-41190).
 */
#include "template/manifest.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "template/manifest_priv.h"

#define INDEX_MAX 1024u
#define TYPE_MAX 255u

enum kind { KIND_INDEX, KIND_MANIFEST, KIND_SCHEMA1 };

static const struct {
    const char *type;
    enum kind kind;
} kinds[] = {
    {"application/vnd.oci.image.index.v1+json", KIND_INDEX},
    {"application/vnd.docker.distribution.manifest.list.v2+json", KIND_INDEX},
    {"application/vnd.oci.image.manifest.v1+json", KIND_MANIFEST},
    {"application/vnd.docker.distribution.manifest.v2+json", KIND_MANIFEST},
    {"application/vnd.docker.distribution.manifest.v1+json", KIND_SCHEMA1},
    {"application/vnd.docker.distribution.manifest.v1+prettyjws", KIND_SCHEMA1},
};

static const char *const config_types[] = {"application/vnd.oci.image.config.v1+json",
                                           "application/vnd.docker.container.image.v1+json"};

static const struct {
    const char *type;
    enum layer_format format; /* LAYER_FORMAT_MAX: a foreign layer, which no registry gives away */
} layer_types[] = {
    {"application/vnd.oci.image.layer.v1.tar", LAYER_TAR},
    {"application/vnd.oci.image.layer.v1.tar+gzip", LAYER_TAR_GZIP},
    {"application/vnd.oci.image.layer.v1.tar+zstd", LAYER_TAR_ZSTD},
    {"application/vnd.docker.image.rootfs.diff.tar", LAYER_TAR},
    {"application/vnd.docker.image.rootfs.diff.tar.gzip", LAYER_TAR_GZIP},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", LAYER_TAR_ZSTD},
    {"application/vnd.docker.image.rootfs.foreign.diff.tar", LAYER_FORMAT_MAX},
    {"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", LAYER_FORMAT_MAX},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar", LAYER_FORMAT_MAX},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", LAYER_FORMAT_MAX},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", LAYER_FORMAT_MAX},
};

const char *layer_format_name(enum layer_format format)
{
    static const char *const names[] = {"tar", "tar+gzip", "tar+zstd"};

    _Static_assert(ARRAY_SIZE(names) == LAYER_FORMAT_MAX, "a name per format");
    return names[format];
}

/* ---- what it is ------------------------------------------------------------------------------------------- */

static const char *member_type(enum kind kind)
{
    return kinds[kind == KIND_INDEX ? 0 : 2].type;
}

/* By the type that it came with, its own, or its members. */
static int find_kind(struct picker *picker, const struct json_value *root, const char *came_as, enum kind *ret,
                     const char **ret_type)
{
    const char *own = NULL;
    uint64_t version = 0;
    int r = pick_string(picker, root, "mediaType", TYPE_MAX, &own);

    if (r == 0)
        r = pick_number(picker, root, "schemaVersion", 100, &version);
    if (r < 0)
        return r;
    const bool index = json_get(root, "manifests") != NULL, manifest = json_get(root, "layers") != NULL;
    if (came_as && own[0] && !str_eq(own, came_as))
        return pick_refuse(picker, "manifest: it came as %.100s and says that it is %.100s", came_as, own);
    const char *type = came_as ? came_as : own[0] ? own : index ? member_type(KIND_INDEX) : member_type(KIND_MANIFEST);
    size_t i = 0;
    while (i < ARRAY_SIZE(kinds) && !str_eq(kinds[i].type, type))
        i++;
    if (version == 1 || (i < ARRAY_SIZE(kinds) && kinds[i].kind == KIND_SCHEMA1))
        return pick_refuse(picker, "manifest: schema 1 (%.100s) is not supported",
                           i < ARRAY_SIZE(kinds) && kinds[i].kind == KIND_SCHEMA1 ? type : kinds[4].type);
    if (i == ARRAY_SIZE(kinds))
        return pick_refuse(picker, "manifest: the media type %.200s is not supported", type);
    if (version != 2)
        return pick_refuse(picker, "manifest: schemaVersion must be 2");
    if (index && manifest)
        return pick_refuse(picker, "manifest: it has both manifests and layers");
    if (kinds[i].kind == KIND_INDEX ? !index : !manifest)
        return pick_refuse(picker, "manifest: %s is missing", kinds[i].kind == KIND_INDEX ? "manifests" : "layers");
    *ret = kinds[i].kind;
    *ret_type = kinds[i].type;
    return 0;
}

/* ---- descriptors ------------------------------------------------------------------------------------------ */

static int read_desc(struct picker *picker, const struct json_value *value, uint64_t max, struct blob_desc *ret)
{
    if (value->type != JSON_OBJECT)
        return pick_refuse(picker, "%s: a descriptor must be an object", picker->what);
    int r = pick_string(picker, value, "mediaType", TYPE_MAX, &ret->media_type);
    if (r == 0)
        r = pick_string(picker, value, "digest", 512, &ret->digest);
    if (r == 0)
        r = pick_digest(picker, "digest", ret->digest);
    if (r == 0 && !json_get(value, "size"))
        r = pick_refuse(picker, "%s: %s has no size", picker->what, ret->digest);
    return r == 0 ? pick_number(picker, value, "size", max, &ret->size) : r;
}

static int read_layer(struct picker *picker, const struct json_value *value, struct blob_desc *ret)
{
    int r = read_desc(picker, value, IMAGE_LAYER_BYTES, ret);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(layer_types); i++) {
        if (!str_eq(ret->media_type, layer_types[i].type))
            continue;
        ret->format = layer_types[i].format;
        return ret->format == LAYER_FORMAT_MAX
                   ? pick_refuse(picker, "manifest: a foreign layer (%s) is not supported", ret->media_type)
                   : 0;
    }
    return r < 0 ? r : pick_refuse(picker, "manifest: a layer of type %.200s is not supported", ret->media_type);
}

static int read_config_desc(struct picker *picker, const struct json_value *root, struct blob_desc *ret)
{
    const struct json_value *value = NULL;
    const char *artifact = NULL;
    int r = pick_string(picker, root, "artifactType", TYPE_MAX, &artifact);

    if (r == 0 && artifact[0])
        return pick_refuse(picker, "manifest: it is no image but an artefact of type %.200s", artifact);
    if (r == 0)
        r = pick_member(picker, root, "config", JSON_OBJECT, &value);
    if (r == 0 && !value)
        return pick_refuse(picker, "manifest: config is missing");
    if (r == 0)
        r = read_desc(picker, value, IMAGE_CONFIG_BYTES, ret);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(config_types); i++)
        if (str_eq(ret->media_type, config_types[i]))
            return 0;
    return r < 0
               ? r
               : pick_refuse(picker, "manifest: it is no image: its configuration is of type %.200s", ret->media_type);
}

static int read_manifest(struct picker *picker, const struct json_value *root, struct manifest *ret)
{
    const struct json_value *layers = NULL;
    int r = read_config_desc(picker, root, &ret->config);

    if (r == 0)
        r = pick_member(picker, root, "layers", JSON_ARRAY, &layers);
    if (r == 0 && !layers)
        return pick_refuse(picker, "manifest: layers is null");
    if (r == 0 && layers->count > IMAGE_LAYERS_MAX)
        return pick_refuse(picker, "manifest: it has %zu layers, and at most %u are allowed", layers->count,
                           IMAGE_LAYERS_MAX);
    ret->layers = r == 0 ? pick_array(picker, layers->count, sizeof *ret->layers) : NULL;
    if (!ret->layers)
        return r < 0 ? r : -ENOMEM;
    for (const struct json_value *layer = layers->first; r == 0 && layer; layer = layer->next)
        r = read_layer(picker, layer, &ret->layers[ret->n_layers++]);
    return r;
}

/* ---- an index --------------------------------------------------------------------------------------------- */

static int read_platform(struct picker *picker, const struct json_value *value, struct manifest_entry *ret)
{
    const struct json_value *platform = NULL;
    const char *os = NULL, *arch = NULL, *variant = NULL;
    int r = pick_member(picker, value, "platform", JSON_OBJECT, &platform);

    if (r < 0 || !platform)
        return r;
    r = pick_string(picker, platform, "os", TYPE_MAX, &os);
    if (r == 0)
        r = pick_string(picker, platform, "architecture", TYPE_MAX, &arch);
    if (r == 0)
        r = pick_string(picker, platform, "variant", TYPE_MAX, &variant);
    if (r < 0)
        return r;
    ret->has_platform = true;
    if (platform_make(os, arch, variant, &ret->platform) < 0)
        return pick_refuse(picker, "manifest: %.60s/%.60s/%.60s is no platform", os, arch, variant);
    return 0;
}

static int read_name(struct picker *picker, const struct json_value *value, struct manifest_entry *ret,
                     bool *ret_attests)
{
    const struct json_value *notes = NULL;
    const char *kind = NULL, *ref = NULL;
    int r = pick_member(picker, value, "annotations", JSON_OBJECT, &notes);

    if (r == 0)
        r = pick_string(picker, notes, "vnd.docker.reference.type", TYPE_MAX, &kind);
    if (r == 0)
        r = pick_string(picker, notes, "io.containerd.image.name", IMAGE_REF_TEXT, &ret->name);
    if (r == 0)
        r = pick_string(picker, notes, "org.opencontainers.image.ref.name", IMAGE_REF_TEXT, &ref);
    if (r < 0)
        return r;
    if (!ret->name[0])
        ret->name = ref;
    *ret_attests =
        kind[0] || (ret->has_platform && str_eq(ret->platform.os, "unknown") && str_eq(ret->platform.arch, "unknown"));
    return 0;
}

static bool is_ours(const char *type)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (str_eq(kinds[i].type, type))
            return kinds[i].kind != KIND_SCHEMA1;
    return type[0] == '\0';
}

static int read_index(struct picker *picker, const struct json_value *root, struct manifest *ret)
{
    const struct json_value *entries = NULL;
    int r = pick_member(picker, root, "manifests", JSON_ARRAY, &entries);

    if (r == 0 && !entries)
        return pick_refuse(picker, "manifest: manifests is null");
    if (r == 0 && entries->count > INDEX_MAX)
        return pick_refuse(picker, "manifest: it has %zu manifests, and at most %u are allowed", entries->count,
                           INDEX_MAX);
    ret->entries = r == 0 ? pick_array(picker, entries->count, sizeof *ret->entries) : NULL;
    if (!ret->entries)
        return r < 0 ? r : -ENOMEM;
    for (const struct json_value *value = entries->first; value; value = value->next) {
        struct manifest_entry entry = {0};
        bool attests = false;
        r = read_desc(picker, value, MANIFEST_BYTES, &entry.desc);
        if (r == 0)
            r = read_platform(picker, value, &entry);
        if (r == 0)
            r = read_name(picker, value, &entry, &attests);
        if (r < 0)
            return r;
        if (!attests && is_ours(entry.desc.media_type))
            ret->entries[ret->n_entries++] = entry;
    }
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------------------- */

int manifest_parse(const char *text, size_t len, const char *media_type, struct manifest **ret, struct brig_err *err)
{
    struct picker picker = {.what = "manifest", .err = err};
    const struct json_value *root = NULL;
    struct manifest *manifest = NULL;
    enum kind kind = KIND_MANIFEST;
    const char *type = NULL;
    int r = pick_document(text, len, MANIFEST_BYTES, JSON_OBJECT, &picker, &root);

    if (r == 0)
        r = find_kind(&picker, root, media_type, &kind, &type);
    if (r == 0 && !(manifest = pick_array(&picker, 1, sizeof *manifest)))
        r = -ENOMEM;
    if (r == 0) {
        *manifest = (struct manifest){.is_index = kind == KIND_INDEX, .media_type = type};
        r = manifest->is_index ? read_index(&picker, root, manifest) : read_manifest(&picker, root, manifest);
    }
    if (r < 0) {
        arena_destroy(picker.arena);
        return r;
    }
    manifest->arena = picker.arena;
    *ret = manifest;
    return 0;
}

void manifest_free(struct manifest *manifest)
{
    if (manifest)
        arena_destroy(manifest->arena); /* it is in there itself */
}

/* What an index has instead, for the refusal. */
static void list_platforms(const struct manifest *index, char *out, size_t size)
{
    size_t at = 0;

    out[0] = '\0';
    for (size_t i = 0; i < index->n_entries; i++) {
        char text[PLATFORM_TEXT] = "images without a platform";
        if (index->entries[i].has_platform)
            platform_text(&index->entries[i].platform, text);
        int n = str_format(out + at, size - at, "%s%s", at ? ", " : "", text);
        if (n < 0) {
            out[at] = '\0';
            return;
        }
        at += (size_t)n;
    }
}

int manifest_choose(const struct manifest *index, const struct platform *platform, const struct manifest_entry **ret,
                    struct brig_err *err)
{
    const struct manifest_entry *best = NULL;
    unsigned best_fit = 0;
    char has[300], want[PLATFORM_TEXT];

    for (size_t i = 0; i < index->n_entries; i++) {
        const struct manifest_entry *entry = &index->entries[i];
        unsigned fit = entry->has_platform ? platform_fit(&entry->platform, platform) : index->n_entries == 1;
        if (fit > best_fit) {
            best = entry;
            best_fit = fit;
        }
    }
    if (best) {
        *ret = best;
        return 0;
    }
    platform_text(platform, want);
    list_platforms(index, has, sizeof has);
    return err_set(err, BRIG_E_NOT_FOUND, 0, "there is no image for %s: the index has %s", want,
                   has[0] ? has : "none that we can use");
}
