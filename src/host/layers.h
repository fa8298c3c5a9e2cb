/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.h: the store of template layers: one directory per layer, which is the upper directory of an overlay. Only the
 * spawner works in it. Nothing here reads a file of a layer: what is in one came from an image of somebody else.
 *
 *     HEX         a layer, 64 hexadecimal digits
 *     new-ID      a layer that is being made: `d` is the layer, `w` the work directory of its overlay
 *     made-ID     one that is being committed
 *     gone-ID     what nobody wants any more, until it is removed
 *
 * Every step is one rename, so a crash leaves a layer whole or not at all. A start removes what has not become a layer.
 */
#ifndef BRIG_HOST_LAYERS_H
#define BRIG_HOST_LAYERS_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/id.h"
#include "jail/plan.h"

#define LAYER_NAME_LEN 64u
#define LAYER_NEW_PREFIX "new-"

struct layer_store {
    int fd;        /* The directory; -1 if there is none. */
    int lock_fd;   /* Only one spawner at a time uses a store. */
    int tool_fd;   /* brig-layer, which makes layers in sandboxes. */
    char why[192]; /* Why there is none. */
};
#define LAYER_STORE_INIT \
    ((struct layer_store){.fd = -1, .lock_fd = -1, .tool_fd = -1, .why = "this service has no store of layers"})

bool layer_name_ok(const char *name);     /* Is it the name of a layer? */
bool layer_new_name_ok(const char *name); /* Is it the name of a layer that is being made? */

/*
 * Opens the store at this path, takes its lock (alone: who only reads layers does without), and opens the program that
 * makes layers. On failure there is no store, and store->why says why.
 */
void layers_open(struct layer_store *store, const char *path, const char *helper_dir, bool alone);
void layers_done(struct layer_store *store);
/* Marks for removal what an earlier service has not finished. Returns whether there is something to sweep. */
bool layers_start(const struct layer_store *store);
/* Makes the directories of a new layer, which belong to this id (the gid is the same number). */
int layers_make(const struct layer_store *store, const char *name, uid_t owner, struct brig_err *err) MUST_CHECK;
bool layers_have(const struct layer_store *store, const char *name);
/* The layer is not there any more; layers_sweep() frees its space. */
int layers_remove(const struct layer_store *store, const char *name, struct brig_err *err) MUST_CHECK;
/* Takes a new layer out of the hands of sandboxes. ret is its name for layers_commit(). */
#define LAYER_MADE_SIZE (5 + ID_SANDBOX_SIZE)
int layers_finish(const struct layer_store *store, const char *name, char ret[LAYER_MADE_SIZE],
                  struct brig_err *err) MUST_CHECK;
/* Appends the names of all layers, also of new ones, each with its NUL. */
int layers_list(const struct layer_store *store, struct buf *out, struct brig_err *err) MUST_CHECK;

/*
 * These two may take seconds; they run in processes of their own (spawner/layer_jobs.c). layers_commit() writes
 * everything to the disk and gives the layer its name; if there is a layer of that name already, it stays. What is left
 * is to be swept, also on failure. Both return 0 or a negative errno.
 */
int layers_commit(int store_fd, const char *made, const char *to) MUST_CHECK;
int layers_sweep(int store_fd) MUST_CHECK;

#endif
