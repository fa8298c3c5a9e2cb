/* SPDX-License-Identifier: Apache-2.0 */
/* layer_copy_priv.h: what the files behind `copy` and `mkdir` share. */
#ifndef BRIG_LAYER_LAYER_COPY_PRIV_H
#define BRIG_LAYER_LAYER_COPY_PRIV_H

#include "codec/dockerfile/dockerignore.h"
#include "layer/layer.h"

struct chosen { /* one thing that a source stands for */
    uint32_t node;
    uint32_t name; /* the node whose name it gets in a directory */
    uint32_t source;
};

struct copy {
    const struct layer_options *options;
    struct view view;
    struct layer_blob *blob; /* NULL for mkdir */
    struct dockerignore *exclude;
    struct view_path dest;
    bool to_directory; /* DEST ends with a slash */
    bool has_owner;
    uint32_t uid, gid;
    int64_t mtime; /* of directories that are made */
    struct chosen *list;
    size_t n, cap;
    struct layer_own own; /* what the layer has: a path, and for a directory also the path with a slash */
    uint32_t *first;      /* The chosen thing, plus one, with which a file was written first, by node; */
    uint32_t *first_path; /* and where its path is in `paths`. */
    struct buf paths;
    char path[TAR_NAME_MAX + 1]; /* where the walk is in the layer, */
    size_t path_len;
    size_t rel;                        /* where in it the path below the source begins, */
    uint32_t way[LAYER_DEPTH_MAX + 1]; /* the directories from the source down to it, */
    unsigned depth, written;           /* and how many of them are in the layer */
    struct layer_out out;
};

/* Adds to copy->list what the source with this number stands for, which may be nothing if it is a pattern. */
int copy_choose(struct copy *copy, uint32_t number, struct brig_err *err) MUST_CHECK;

#endif
