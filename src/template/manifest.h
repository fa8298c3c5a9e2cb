/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h: the documents of an image, as a registry or an archive gives them: OCI's image index, manifest and
 * configuration, Docker's manifest list and schema 2, and the manifest.json and index.json of archives.
 *
 * Everything comes from strangers. A document is read strictly, every count and length has a bound, and a refusal is
 * BRIG_E_INVALID with one line that names the member, or the media type if it is one that we cannot use (schema 1,
 * foreign layers, artefacts). Members that we do not know are skipped, as OCI demands. Strings of a parsed document
 * live as long as the document does, and have no NUL inside.
 */
#ifndef BRIG_TEMPLATE_MANIFEST_H
#define BRIG_TEMPLATE_MANIFEST_H

#include <brig.h>

#include "base/base.h"
#include "template/platform.h"
#include "codec/reference.h"

#define MANIFEST_BYTES (4u << 20)     /* the most that a manifest or an index has */
#define IMAGE_CONFIG_BYTES (8u << 20) /* and a configuration */
#define IMAGE_LAYERS_MAX 128u
#define IMAGE_LAYER_BYTES (UINT64_C(1) << 40) /* of one blob */

/* What a registry is asked for. */
#define MANIFEST_TYPES                                            \
    "application/vnd.oci.image.index.v1+json, "                   \
    "application/vnd.docker.distribution.manifest.list.v2+json, " \
    "application/vnd.oci.image.manifest.v1+json, "                \
    "application/vnd.docker.distribution.manifest.v2+json"

struct text_list {
    size_t n;
    const char *const *items;
};

/* ---- index and manifest ----------------------------------------------------------------------------------- */

/* How a layer says that it is packed. The bytes themselves decide; this is only compared with them. */
enum layer_format { LAYER_TAR, LAYER_TAR_GZIP, LAYER_TAR_ZSTD, LAYER_FORMAT_MAX };
const char *layer_format_name(enum layer_format format); /* "tar", "tar+gzip", "tar+zstd" */

struct blob_desc {
    const char *digest; /* digest_ok() */
    uint64_t size;
    const char *media_type;   /* of the entries of an OCI layout it may be ""; then the content says it */
    enum layer_format format; /* of layers */
};

struct manifest_entry { /* one line of an index: a manifest, or an index again */
    struct blob_desc desc;
    bool has_platform;
    struct platform platform;
    const char *name; /* the annotation of an archive that names the image, or "" */
};

struct manifest {
    bool is_index;
    const char *media_type;
    /* is_index. Attestations, and entries of other types than manifest and index, are left out. */
    size_t n_entries;
    struct manifest_entry *entries;
    /* else */
    struct blob_desc config;
    size_t n_layers; /* lowest first */
    struct blob_desc *layers;
    struct arena *arena; /* private */
};

/*
 * Parses an index or a manifest. media_type is the Content-Type that it came with, which its own mediaType must repeat
 * if it has one; with NULL its mediaType or its members say what it is.
 */
int manifest_parse(const char *text, size_t len, const char *media_type, struct manifest **ret,
                   struct brig_err *err) MUST_CHECK;
void manifest_free(struct manifest *manifest); /* manifest may be NULL */
/*
 * Finds the entry for a platform: the same variant first, then the next one that runs there. An index with a single
 * entry that has no platform gives that one; its configuration then says the platform (image_config.platform).
 */
int manifest_choose(const struct manifest *index, const struct platform *platform, const struct manifest_entry **ret,
                    struct brig_err *err) MUST_CHECK;

/* ---- configuration ---------------------------------------------------------------------------------------- */

enum image_health { HEALTH_UNSET, HEALTH_NONE /* ["NONE"] */, HEALTH_CMD, HEALTH_CMD_SHELL, HEALTH_MAX };

struct image_history {
    const char *created_by, *comment; /* or "" */
    bool empty_layer;                 /* it has no layer */
};

struct image_config {
    struct platform platform;
    struct text_list env;                    /* "NAME=value", in order; of equal names the last one counts */
    bool has_entrypoint, has_cmd, has_shell; /* false: null or missing; an empty list is true */
    struct text_list entrypoint, cmd, shell;
    const char *user, *workdir;                /* "" if unset; workdir is absolute */
    struct text_list exposed;                  /* "80/tcp", "53/udp", "8000-8010/tcp" */
    struct text_list label_keys, label_values; /* two lists of one length */
    struct text_list volumes;                  /* absolute paths */
    const char *stop_signal;                   /* "SIGTERM", "15", "SIGRTMIN+3" or "" */
    enum image_health health;
    struct text_list health_test; /* without the word CMD or CMD-SHELL */
    uint64_t health_interval_ns, health_timeout_ns, health_start_period_ns, health_start_interval_ns; /* 0: default */
    uint32_t health_retries;                                                                          /* 0: default */
    const char *created;        /* RFC 3339 as it came, or "" */
    struct text_list diff_ids;  /* of the layers, lowest first */
    struct text_list chain_ids; /* of the layers: chain_ids.items[i] + 7 names the layer in the store */
    size_t n_history;
    struct image_history *history;
    struct arena *arena; /* private */
};

/* n_layers is the number of layers in the manifest: rootfs.diff_ids must have as many. */
int image_config_parse(const char *text, size_t len, size_t n_layers, struct image_config **ret,
                       struct brig_err *err) MUST_CHECK;
void image_config_free(struct image_config *config); /* config may be NULL */

/* ---- archives --------------------------------------------------------------------------------------------- */

/* manifest.json of `docker save`: names are those of members of the archive. A layer may be a link to another one. */
struct archive_image {
    const char *config;
    struct text_list tags;   /* RepoTags, or none */
    struct text_list layers; /* lowest first */
};
#define ARCHIVE_IMAGES_MAX 256u
struct archive_manifest {
    size_t n_images; /* at least 1 */
    struct archive_image *images;
    struct arena *arena; /* private */
};
int archive_manifest_parse(const char *text, size_t len, struct archive_manifest **ret,
                           struct brig_err *err) MUST_CHECK;
void archive_manifest_free(struct archive_manifest *manifest); /* manifest may be NULL */
/* The file oci-layout of an OCI layout, whose index.json is for manifest_parse(): its version must be 1. */
int archive_layout_check(const char *text, size_t len, struct brig_err *err) MUST_CHECK;

#endif
