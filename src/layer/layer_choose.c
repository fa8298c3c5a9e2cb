/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_choose.c: what the sources of COPY stand for: a path leads to one node of the archive, a pattern to all that it
 * matches. Links at the end of a source are followed inside the archive.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "codec/dockerfile/path_match.h"
#include "layer/layer_copy_priv.h"

/* What .dockerignore leaves out is not there, unless something below it is. */
static bool is_gone(const struct copy *copy, uint32_t node)
{
    const enum tar_kind kind = copy->blob->nodes[copy->blob->nodes[node].target].kind;

    return copy_ignores(copy, node, kind == TAR_DIR);
}

static int choose(struct copy *copy, uint32_t node, uint32_t name, uint32_t source, struct brig_err *err)
{
    if (copy->n == copy->cap) {
        size_t cap = copy->cap * 2 + 16;
        struct chosen *list = mem_realloc_array(copy->list, cap, sizeof(*list));
        if (!list)
            return err_nomem(err);
        copy->list = list;
        copy->cap = cap;
    }
    copy->list[copy->n++] = (struct chosen){node, name, source};
    return 0;
}

/* What a node that a pattern matched leads to. */
static int choose_match(struct copy *copy, uint32_t index, uint32_t source, struct brig_err *err)
{
    char path[TAR_NAME_MAX + 1];
    uint32_t node = index;
    bool found = true;
    int r = 0;

    if (copy->blob->nodes[index].kind == TAR_SYMLINK) {
        if (blob_path(copy->blob, index, path) < 0)
            return layer_fail(err, "the archive", 0, "a path of more than %u bytes", TAR_NAME_MAX);
        r = blob_find(copy->blob, path, &node, &found, err);
        if (r == 0 && !found)
            return layer_fail(err, path, 0, "the link leads nowhere");
    }
    return r < 0 || is_gone(copy, node) || is_gone(copy, index) ? r : choose(copy, node, index, source, err);
}

/* Everything below a directory whose path from there matches; what is in a directory that matches is not looked at. */
static int match_below(struct copy *copy, uint32_t dir, const char *pattern, char *path, size_t len, uint32_t source,
                       struct brig_err *err)
{
    const struct blob_node *node = &copy->blob->nodes[dir];
    int r = 0;

    for (uint32_t i = 0; i < node->count && r == 0; i++) {
        uint32_t index = copy->blob->order[node->first + i];
        const struct blob_node *child = &copy->blob->nodes[index];

        if (len + 1 + child->name_len > TAR_NAME_MAX)
            continue;
        if (len > 0)
            path[len] = '/';
        memcpy(path + len + (len > 0), blob_name(copy->blob, child), child->name_len + 1u);
        if (path_match(pattern, path))
            r = choose_match(copy, index, source, err);
        else if (child->kind == TAR_DIR)
            r = match_below(copy, index, pattern, path, len + (len > 0) + child->name_len, source, err);
    }
    return r;
}

int copy_choose(struct copy *copy, uint32_t number, struct brig_err *err)
{
    const char *source = copy->options->sources[number], *pattern;
    char clean[TAR_NAME_MAX + 1], fixed[TAR_NAME_MAX + 1], path[TAR_NAME_MAX + 1];
    uint32_t node, name = 0;
    bool found;
    int r = pattern_split(source, fixed, &pattern, clean, err);

    if (r < 0 || (r = blob_find(copy->blob, fixed, &node, &found, err)) < 0)
        return r;
    if (*pattern)
        return found ? match_below(copy, node, pattern, path, 0, number, err) : 0;
    if (!found)
        return layer_fail(err, source, 0, "there is no such file");
    if (is_gone(copy, node))
        return layer_fail(err, source, 0, "there is no such file: the context's .dockerignore leaves it out");
    /* The name that it has in a directory is the one that was written, not that of what a link leads to. */
    const char *slash = strrchr(fixed, '/');
    if (*fixed) {
        uint32_t parent;
        char above[TAR_NAME_MAX + 1];
        size_t n = slash ? (size_t)(slash - fixed) : 0;

        memcpy(above, fixed, n);
        above[n] = '\0';
        r = blob_find(copy->blob, above, &parent, &found, err);
        if (r < 0)
            return r;
        name = blob_child(copy->blob, parent, slash ? slash + 1 : fixed, strlen(slash ? slash + 1 : fixed));
    }
    return choose(copy, node, name, number, err);
}
