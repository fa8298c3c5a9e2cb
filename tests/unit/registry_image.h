/* SPDX-License-Identifier: Apache-2.0 */
/* registry_image.h: a small image behind an index, and the honest server that has it, for tests of the client. */
#ifndef BRIG_TESTS_REGISTRY_IMAGE_H
#define BRIG_TESTS_REGISTRY_IMAGE_H

#include "registry_rig.h"

#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"

/* An image with one layer, behind an index. */
struct image {
    char config[1024], manifest[2048], index[2048];
    char config_digest[DIGEST_TEXT], manifest_digest[DIGEST_TEXT], index_digest[DIGEST_TEXT];
};

static inline UNUSED void image_make(struct image *image, const char *arch)
{
    static const char layer[] = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    assert_true(str_format(image->config, sizeof image->config,
                           "{\"os\":\"linux\",\"architecture\":\"%s\",\"config\":{\"Env\":[\"A=1\"]},\"rootfs\":{"
                           "\"type\":\"layers\",\"diff_ids\":[\"%s\"]}}",
                           arch, layer) > 0);
    rig_digest(image->config, strlen(image->config), image->config_digest);
    assert_true(str_format(image->manifest, sizeof image->manifest,
                           "{\"schemaVersion\":2,\"mediaType\":\"" MANIFEST_TYPE "\",\"config\":{\"mediaType\":"
                           "\"application/vnd.oci.image.config.v1+json\",\"digest\":\"%s\",\"size\":%zu},\"layers\":[{"
                           "\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"%s\",\"size\":9}"
                           "]}",
                           image->config_digest, strlen(image->config), layer) > 0);
    rig_digest(image->manifest, strlen(image->manifest), image->manifest_digest);
    assert_true(str_format(image->index, sizeof image->index,
                           "{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"" MANIFEST_TYPE "\",\"digest\":\"%s\","
                           "\"size\":%zu,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"}}]}",
                           image->manifest_digest, strlen(image->manifest)) > 0);
    rig_digest(image->index, strlen(image->index), image->index_digest);
}

static inline UNUSED bool ends(const char *path, const char *with)
{
    size_t n = strlen(path), m = strlen(with);

    return n >= m && str_eq(path + n - m, with);
}

/* What an honest server has. */
static inline UNUSED void serve(const struct image *image, struct rig_request *rq)
{
    if (ends(rq->path, "/v2/"))
        rig_answer(rq, 200, "", "{}", 2);
    else if (ends(rq->path, "/manifests/1") || ends(rq->path, image->index_digest))
        rig_answer(rq, 200, "Content-Type: " INDEX_TYPE "; charset=utf-8\r\n", image->index, strlen(image->index));
    else if (ends(rq->path, image->manifest_digest))
        rig_answer(rq, 200, "Content-Type: " MANIFEST_TYPE "\r\n", image->manifest, strlen(image->manifest));
    else if (ends(rq->path, image->config_digest))
        rig_answer(rq, 200, "Content-Type: application/octet-stream\r\n", image->config, strlen(image->config));
    else
        rig_answer(rq, 404, "", "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"not here\"}]}", 62);
}

static inline UNUSED void honest(struct rig_server *server, struct rig_request *rq)
{
    serve(server->ctx, rq);
}

/* The name of an image at a server, with its end. */
static inline UNUSED const char *at(const struct rig_server *server, const char *end)
{
    static char name[IMAGE_REF_TEXT];

    assert_true(str_format(name, sizeof name, "%s/a/b%s", server->host, end) > 0);
    return name;
}

static inline UNUSED void check_image(struct rig_result *result, const struct image *image)
{
    if (!result->image)
        fail_msg("%s", result->err.message);
    assert_string_equal(result->image->digest, image->index_digest);
    assert_string_equal(result->image->manifest_digest, image->manifest_digest);
    assert_int_equal(result->image->manifest->n_layers, 1);
    assert_string_equal(result->image->config->env.items[0], "A=1");
    assert_int_equal(result->image->config_len, strlen(image->config));
    dist_image_free(result->image);
}

/* Until the client hangs up. */
static inline UNUSED void pour(struct rig_request *rq, const char *head)
{
    static const char chunk[16384] = {' '};

    rig_text(rq, head);
    while (rig_write(rq->fd, chunk, sizeof chunk))
        ;
}

#endif
