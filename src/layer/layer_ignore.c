/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_ignore.c: which members of a build's context do not belong to it. The patterns lie in the context itself, so
 * whoever sends it need not leave anything out; to leave the same out before is harmless, since each path is judged by
 * itself.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "codec/dockerfile/dockerignore.h"
#include "layer/layer.h"

static int read_patterns(const struct layer_blob *blob, uint32_t index, const char *name, struct dockerignore **ret,
                         struct brig_err *err)
{
    const struct blob_node *node = &blob->nodes[blob->nodes[index].target];
    AUTO_FREE char *text = NULL;
    struct brig_err why = {0};
    size_t at = 0;

    if (node->kind != TAR_FILE)
        return layer_fail(err, name, 0, "it is no file");
    if (node->size > DOCKERIGNORE_MAX_BYTES)
        return layer_fail(err, name, 0, "more than %u bytes", DOCKERIGNORE_MAX_BYTES);
    text = mem_alloc((size_t)node->size + 1);
    if (!text)
        return err_nomem(err);
    while (at < node->size) {
        ssize_t n = pread(blob->fd, text + at, (size_t)node->size - at, (off_t)(node->content + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return layer_fail(err, name, n < 0 ? errno : EIO, "it cannot be read");
        at += (size_t)n;
    }
    return dockerignore_read(text, at, ret, &why) < 0 ? layer_fail(err, name, 0, "%s", why.message) : 0;
}

int ignore_read(struct layer_blob *blob, struct dockerignore **ret, struct brig_err *err)
{
    const struct layer_options *options = blob->options;
    bool found = false;
    uint32_t node;

    for (size_t i = 0; i < options->n_ignore; i++) {
        int r = blob_find(blob, options->ignore[i], &node, &found, err);
        if (r < 0 || found)
            return r < 0 ? r : read_patterns(blob, node, options->ignore[i], ret, err);
    }
    return 0;
}

int ignore_of(const struct layer_options *options, struct dockerignore **ret, struct brig_err *err)
{
    struct layer_blob *blob = NULL;
    int r = options->n_ignore > 0 ? blob_open(options, &blob, err) : 0;

    if (r == 0 && blob)
        r = ignore_read(blob, ret, err);
    blob_close(blob);
    return r;
}
