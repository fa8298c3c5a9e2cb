/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_documents.c: gets the documents of an image: what the reference names, through indexes to the manifest for the
 * platform, and its configuration. All come from one server. Each is compared with the digest by which it was asked
 * for; what a tag names has only the digest that the server itself states.
 */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "template/distribution_priv.h"

#define INDEX_DEPTH 3u
#define DOCUMENT_S 120u

void dist_image_free(struct dist_image *image)
{
    if (!image)
        return;
    manifest_free(image->manifest);
    image_config_free(image->config);
    mem_free(image->config_text);
    mem_free(image);
}

static int sum_of(const struct buf *body, char out[DIGEST_TEXT])
{
    uint8_t sum[SHA256_SIZE];

    if (crypto_sha256(body->data ? body->data : "", body->len, sum) < 0)
        return -ENOMEM;
    memcpy(out, "sha256:", 7);
    crypto_hex(sum, sizeof sum, out + 7);
    return 0;
}

struct want {
    const char *folder; /* "manifests", "blobs" */
    const char *name;   /* a tag or a digest */
    const char *digest; /* "" if nobody has said one */
    uint64_t size;
    bool sized;
    const char *accept;
};

/* One document into body; its digest to ret_digest. */
static int get_document(struct dist_fetch *fetch, struct dist_server *server, const struct want *want, struct buf *body,
                        char ret_digest[DIGEST_TEXT], struct dist_reply *reply, struct brig_err *err)
{
    const struct image_ref *ref = &fetch->origin->ref;
    char url[DIST_URL], scope[DIST_SCOPE], what[IMAGE_REPOSITORY + IMAGE_TAG + DIGEST_TEXT];

    if (str_format(url, sizeof url, "%s/v2/%s/%s/%s", server->url, ref->repository, want->folder, want->name) < 0 ||
        str_format(scope, sizeof scope, "repository:%s:pull", ref->repository) < 0 ||
        str_format(what, sizeof what, "%s%s%s", ref->repository, digest_ok(want->name) ? "@" : ":", want->name) < 0)
        return err_set(err, BRIG_E_INVALID, 0, "%.100s: the address is too long", server->host);
    struct dist_get get = {.url = url, .accept = want->accept, .server = server, .total_s = DOCUMENT_S, .body = body};
    int r = dist_request_as(fetch, &get, scope, reply, err);
    if (r == 0 && reply->status != 200)
        r = dist_status_error(server, what, reply, err);
    if (r == 0 && sum_of(body, ret_digest) < 0)
        r = err_nomem(err);
    if (r < 0)
        return r;
    const char *promised = want->digest[0] ? want->digest : digest_ok(reply->digest) ? reply->digest : ret_digest;
    if (want->sized && body->len != want->size)
        return err_set(err, BRIG_E_INVALID, 0, "%.60s sent %zu bytes for %.80s, which has %llu", server->host,
                       body->len, what, (unsigned long long)want->size);
    if (!str_eq(promised, ret_digest))
        return err_set(err, BRIG_E_INVALID, 0, "%.40s sent something else for %.60s: %.71s", server->host, what,
                       ret_digest);
    return 0;
}

static int get_manifest(struct dist_fetch *fetch, struct dist_server *server, struct dist_image *image,
                        struct dist_reply *reply, struct brig_err *err)
{
    const struct image_ref *ref = &fetch->origin->ref;
    const struct manifest_entry *entry = NULL;
    struct manifest *index = NULL;
    char digest[DIGEST_TEXT];
    struct want want = {.folder = "manifests",
                        .name = ref->digest[0] ? ref->digest : ref->tag,
                        .digest = ref->digest,
                        .accept = MANIFEST_TYPES};
    int r = 0;

    for (unsigned depth = 0; r == 0; depth++) {
        AUTO_BUF struct buf body = BUF_INIT(MANIFEST_BYTES);
        struct manifest *manifest = NULL;
        r = get_document(fetch, server, &want, &body, digest, reply, err);
        if (r == 0)
            r = manifest_parse(body.data ? body.data : "", body.len,
                               reply->content_type[0] ? reply->content_type : NULL, &manifest, err);
        if (r < 0)
            break;
        if (depth == 0)
            str_assign(image->digest, digest);
        manifest_free(index); /* `want` had its strings from there */
        index = NULL;
        if (!manifest->is_index) {
            str_assign(image->manifest_digest, digest);
            image->manifest = manifest;
            break;
        }
        index = manifest;
        if (depth + 1 == INDEX_DEPTH)
            r = err_set(err, BRIG_E_INVALID, 0, "%.100s: an index in an index in an index", server->host);
        else
            r = manifest_choose(index, &fetch->platform, &entry, err);
        if (r == 0)
            want = (struct want){.folder = "manifests",
                                 .name = entry->desc.digest,
                                 .digest = entry->desc.digest,
                                 .size = entry->desc.size,
                                 .sized = true,
                                 .accept = MANIFEST_TYPES};
    }
    manifest_free(index);
    return r;
}

static int get_config(struct dist_fetch *fetch, struct dist_server *server, struct dist_image *image,
                      struct dist_reply *reply, struct brig_err *err)
{
    const struct blob_desc *desc = &image->manifest->config;
    const struct want want = {
        .folder = "blobs", .name = desc->digest, .digest = desc->digest, .size = desc->size, .sized = true};
    AUTO_BUF struct buf body = BUF_INIT(IMAGE_CONFIG_BYTES);
    char digest[DIGEST_TEXT], has[PLATFORM_TEXT], asked[PLATFORM_TEXT];
    int r = get_document(fetch, server, &want, &body, digest, reply, err);

    if (r == 0)
        r = image_config_parse(body.data ? body.data : "", body.len, image->manifest->n_layers, &image->config, err);
    if (r == 0 && platform_fit(&image->config->platform, &fetch->platform) == 0) {
        platform_text(&image->config->platform, has);
        platform_text(&fetch->platform, asked);
        r = err_set(err, BRIG_E_NOT_FOUND, 0, "there is no image for %s: this one is for %s", asked, has);
    }
    if (r == 0 && !(image->config_text = buf_take(&body, &image->config_len)))
        r = err_nomem(err);
    return r;
}

static int get_image(struct dist_fetch *fetch, struct dist_server *server, void *ctx UNUSED, struct dist_reply *reply,
                     struct brig_err *err)
{
    struct dist_image *image = mem_zalloc(sizeof *image);
    int r = image ? get_manifest(fetch, server, image, reply, err) : err_nomem(err);

    if (r == 0)
        r = get_config(fetch, server, image, reply, err);
    if (r < 0)
        dist_image_free(image);
    else
        fetch->image = image;
    return r;
}

int dist_work_manifest(struct dist_fetch *fetch, struct brig_err *err)
{
    return dist_servers_try(fetch, get_image, NULL, err);
}
