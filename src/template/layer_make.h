/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_make.h: makes and collects layers. A layer is made by brig-layer in a sandbox (layer_run.h), into a new layer
 * of the provider's store; when the sandbox is gone and the content was what its digest says, the new layer gets its
 * name. There is one making at a time per name and organisation; others of the organisation who want the same layer
 * wait for it. A making that fails, or that nobody waits for any more, leaves nothing.
 *
 * A layer that an organisation does not see yet is always unpacked again, even if the store has it: whoever names a
 * digest must bring the bytes, or a made-up image would open the layers of another organisation.
 */
#ifndef BRIG_TEMPLATE_LAYER_MAKE_H
#define BRIG_TEMPLATE_LAYER_MAKE_H

#include "records/images/build_steps.h"
#include "records/templates.h"
#include "sandbox/manager.h"

#define LAYER_DIGEST 72u /* "sha256:", 64 digits, NUL */

struct maker;
struct maker_options {
    struct loop *loop;
    struct manager *manager;
    struct provider *provider;
    struct templates *templates;
    struct build_steps *steps; /* what builds have kept */
    const struct config *config;
    int work_dir_fd; /* on the file system of the store: its counters bound a making */
    /* Does somebody else of this service use this new layer? */
    bool (*is_busy)(void *ctx, const char *name);
    void *ctx;
};
int maker_create(const struct maker_options *options, struct maker **ret, struct brig_err *err) MUST_CHECK;
void maker_destroy(struct maker *maker);
void maker_configure(struct maker *maker, const struct config *config);

struct layer_want {
    const char *org;
    const char *name;         /* the chain id, 64 digits; NULL: a lowest layer, named by what it turns out to be */
    const char *diff_id;      /* "sha256:..."; NULL: not known */
    const char *const *below; /* lowest first */
    size_t n_below;
    const char *blob;      /* the path of a file of ours */
    uint64_t offset, size; /* of the layer in it; size 0: all of it */
    const char *format; /* "tar", "gzip" or "zstd", which its first bytes must agree with; NULL: these alone decide */
    uint64_t max_bytes, max_files; /* unpacked */
};

struct layer_made {
    const char *name, *diff_id;
    uint64_t bytes, files;
    bool found; /* It was there already. */
};

struct layer_events {
    void (*progress)(void *ctx, uint64_t at); /* bytes of the blob that were read; or NULL */
    /* The layer is there and held for the organisation until maker_release(); or why not. Never from within. */
    void (*done)(void *ctx, const struct layer_made *made, const struct brig_err *err);
    void *ctx;
};
struct layer_wait;
int maker_get(struct maker *maker, const struct layer_want *want, const struct layer_events *events,
              struct layer_wait **ret, struct brig_err *err) MUST_CHECK;
void layer_wait_cancel(struct layer_wait *wait); /* done is not called */
/* Does the organisation have this layer already? Then it is held for it, until maker_release(). */
bool maker_hold(struct maker *maker, const char *org, const char *name);
/* The name of a layer, its chain id (OCI image specification): below is that of the one under it, or NULL. */
int layer_chain_name(const char *below, const char *diff_id, char out[TEMPLATE_LAYER_NAME]) MUST_CHECK;
/* A template has it now, or nobody wants it any more. */
void maker_release(struct maker *maker, const char *org, const char *name);

/*
 * Removes layers that no template, sandbox or making needs, and new ones that an earlier life of this service left.
 * done (or NULL) gets how many. If one is under way, another follows it.
 */
typedef void maker_collected_fn(void *ctx, size_t removed, const struct brig_err *err);
int maker_collect(struct maker *maker, maker_collected_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

#endif
