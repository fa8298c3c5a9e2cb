/* SPDX-License-Identifier: Apache-2.0 */
/*
 * templates.h: the templates of an organisation: kind "template", whose id is the name. A template is an ordered list
 * of layers and the configuration of an image; the layers themselves lie in the layer store of the provider, by
 * content, and several templates share them. A template of the organisation that owns the service may be shared: then
 * every organisation sees it and may use it, and only its own may change it.
 *
 * The document has everything written out: {source, reference, digest, layers, diff_ids, sizes, bytes, image,
 * settings, made_at_ns, used_at_ns, shared}. template_write() writes it and template_parse() reads it.
 */
#ifndef BRIG_RECORDS_TEMPLATES_H
#define BRIG_RECORDS_TEMPLATES_H

#include "base/str.h"
#include "codec/json/json.h"
#include "records/objects.h"

#define TEMPLATE_NAME_MAX 128u /* with its NUL */
#define TEMPLATE_LAYERS_MAX 128u
#define TEMPLATE_LAYER_NAME 65u /* 64 hexadecimal digits and the NUL: the chain id */
#define TEMPLATE_DISK_NAME 32u  /* with its NUL */
#define TEMPLATE_ENV_MAX 1024u
/* What an image says about itself has so many bytes: each of its sandboxes keeps and shows it. */
#define TEMPLATE_IMAGE_MAX (256u << 10)
#define TEMPLATES_PER_ORG 1000u
#define TEMPLATES_ORG_BYTES (32u << 20)
#define TEMPLATE_OLD_NS (INT64_C(30) * 86400 * INT64_C(1000000000)) /* Past this age people are warned. */

struct templates;

/* Lists end with NULL. A list that an image does not have is NULL, which differs from an empty one. */
struct template_image {
    const char *const *env; /* "NAME=value" */
    const char *user;       /* as the image says it; "" */
    const char *workdir;    /* absolute, or "" */
    const char *const *entrypoint, *const *cmd, *const *shell;
    const char *const *exposed_ports; /* "80/tcp" */
    const char *const *volumes;
    const char *stop_signal;                       /* "SIGTERM" or "" */
    const char *platform;                          /* "linux/amd64", "linux/arm64/v8" */
    const struct json_value *labels, *healthcheck; /* objects, or NULL */
};

struct template_info {
    const char *source;          /* "pull", "load", "build" or "commit" */
    const char *reference;       /* of a pull: "docker.io/library/debian:12"; else "" */
    const char *digest;          /* of the manifest, or of the index that a pull began with: "sha256:..."; or "" */
    size_t n_layers;             /* may be 0 if there is a base */
    const char *const *layers;   /* lowest first */
    const char *const *diff_ids; /* "sha256:...", of each layer */
    uint64_t *sizes;             /* the bytes of each layer, unpacked */
    uint64_t bytes;              /* their sum */
    /*
     * A template that was made from a sandbox has a disk of the provider: the stores of its sandboxes are copies of it.
     * base is then the name of the root below, if that has no layers: "host", or a directory of [sandbox] templates.
     */
    const char *disk, *base; /* "" */
    uint64_t disk_size, disk_inodes;
    bool writable_root; /* the disk has changes to the root */
    struct template_image image;
    char content[TEMPLATE_LAYER_NAME]; /* template_content(); template_parse() makes it */
    /* What a create takes from template.toml: {limits, profile, sudo, services}, as far as they are there; or NULL. */
    const struct json_value *settings;
    int64_t made_at_ns, used_at_ns; /* used_at_ns 0: never */
    bool shared;
    bool stored;  /* It comes from a record, and was judged when that was made; template_parse() says so. */
    void *memory; /* has the lists; their texts are in the JSON that was read */
};

/* shared_org: the organisation whose shared templates all see. Loads. */
int templates_create(struct store *store, const char *shared_org, struct templates **ret,
                     struct brig_err *err) MUST_CHECK;
void templates_destroy(struct templates *templates);
struct objects *templates_objects(struct templates *templates);
const char *templates_shared_org(const struct templates *templates);
/* changed is called after each commit of a change, of any template; NULL: not any more. */
void templates_on_change(struct templates *templates, void (*changed)(void *ctx), void *ctx);

/*
 * Checks a name, NAME or NAME:TAG, and writes it as it is kept: ":latest" is left out. BRIG_E_USAGE. The names of what
 * is no template (host, scratch) are refused.
 */
int template_name(const char *text, char out[TEMPLATE_NAME_MAX], struct brig_err *err) MUST_CHECK;
/* The template of this name that the organisation sees: its own, or a shared one; or NULL. Any text may be given. */
const struct object *templates_find(const struct templates *templates, const char *org, const char *name);
/* The first that the organisation sees, and the one after that: its own by name, then the shared ones of others. */
const struct object *templates_first(const struct templates *templates, const char *org);
const struct object *templates_next(const struct templates *templates, const char *org, const struct object *object);
static inline const struct template_info *template_of(const struct object *object)
{
    return object->extra;
}

/*
 * What it is, whatever it is called: a hash of its disk or its highest layer, which names all below, and of the
 * variables that its programs have.
 */
static inline const char *template_content(const struct template_info *info)
{
    return info->content;
}
/* Does the name still mean this content? id "": it had none, and cannot change. */
static inline bool templates_stands(const struct templates *templates, const char *org, const char *name,
                                    const char *id)
{
    const struct object *object = templates ? templates_find(templates, org, name) : NULL;

    return !id[0] || (object && str_eq(template_content(template_of(object)), id));
}

/* Makes it or replaces it; replace is false: BRIG_E_CONFLICT if the name is taken. */
int templates_put(struct templates *templates, const char *org, const char *name, const struct template_info *info,
                  bool replace, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
int templates_delete(struct templates *templates, const char *org, const char *name, objects_done_fn *done, void *ctx,
                     struct brig_err *err) MUST_CHECK;
/* It was used just now. That is written at most once a minute, and a failure changes nothing. */
void templates_used(struct templates *templates, const struct object *object);
/*
 * A template that has this layer, and which of its layers it is (ret may be NULL). org: one that this organisation
 * sees; NULL: of any organisation. NULL if there is none.
 */
const struct object *templates_with_layer(const struct templates *templates, const char *org, const char *layer,
                                          size_t *ret);

/* BRIG_E_TOO_LARGE, but not for one that is stored: it may be older than the bound. */
int template_write(const struct template_info *info, struct buf *out, struct brig_err *err) MUST_CHECK;
/* The texts of *ret are those of json, which must live longer. BRIG_E_INVALID. */
int template_parse(const struct json_value *json, struct template_info *ret, struct brig_err *err) MUST_CHECK;
void template_done(struct template_info *info);
/* Writes the member `image` of the document, which is also what people see. */
void template_image_put(const struct template_image *image, struct json *json);

/* A copy of a template that lives on its own: what a sandbox was made from. */
struct template_copy {
    char org[64], name[TEMPLATE_NAME_MAX]; /* whose it was, and how it was called then */
    char *text;                            /* its document */
    struct json_doc *doc;
    struct template_info info;
};
/* *ret is NULL on failure. */
int template_copy(const struct object *object, struct template_copy **ret, struct brig_err *err) MUST_CHECK;
void template_copy_free(struct template_copy *copy); /* takes NULL */
/* For a row of the store: {org, name, document}. */
void template_copy_put(const struct template_copy *copy, struct json *json);
int template_copy_read(const struct json_value *json, struct template_copy **ret, struct brig_err *err) MUST_CHECK;

#endif
