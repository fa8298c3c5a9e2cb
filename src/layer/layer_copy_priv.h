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
    struct dockerignore *exclude, *ignore;
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
    uint64_t members;                  /* of archives that were unpacked */
    struct layer_out out;
};

/* ---- layer_choose.c ---- */
/* Adds to copy->list what the source with this number stands for, which may be nothing if it is a pattern. */
int copy_choose(struct copy *copy, uint32_t number, struct brig_err *err) MUST_CHECK;

/* ---- layer_copy.c ---- */
/* The layer has this path now. */
int copy_mark(struct copy *copy, const char *path, bool is_dir, struct brig_err *err) MUST_CHECK;
int copy_check_name(const char *path, struct brig_err *err) MUST_CHECK;
/* Writes the directories of a path that are missing. */
int copy_make_directories(struct copy *copy, const char *path, struct brig_err *err) MUST_CHECK;

/* Does .dockerignore leave this node of the archive out? whole: with all below it. */
bool copy_ignores(const struct copy *copy, uint32_t node, bool whole);

/* ---- layer_archive.c ---- */
/* If the file is an archive, what is in it becomes a part of the layer, below DEST; else *ret_is is false. */
int copy_archive(struct copy *copy, const struct blob_node *node, bool *ret_is, struct brig_err *err) MUST_CHECK;

#endif
