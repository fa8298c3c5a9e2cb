/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_run.h: one run of brig-layer in an ephemeral sandbox of its own. Images come from strangers: no other process
 * of the service unpacks, walks or packs one. The sandbox has root inside and no network. It sees the one file that it
 * reads at /blob, read-only, and the layer that it makes at /layer. It is the service's own: nobody finds it by name.
 */
#ifndef BRIG_TEMPLATE_LAYER_RUN_H
#define BRIG_TEMPLATE_LAYER_RUN_H

#include "sandbox/manager.h"

#define LAYER_RUN_PROGRAM "/.brig/layer" /* brig-layer, in such a sandbox */
#define LAYER_RUN_LINE_MAX (64u << 10)

struct layer_run_spec {
    const char *org;         /* It counts in this organisation's quotas. */
    const char *const *argv; /* after the program's name; NULL at the end */
    const char *blob;        /* a file of ours, for /blob; or NULL */
    /* The new layer at /layer. NULL: one is made for the run and removed after it, for a program that needs none. */
    const char *new_layer;
    const char *const *below; /* the layers below the new one, lowest first */
    size_t n_below;
    const char *disk; /* The disk of a template, read-only at /disk; or NULL. */
    bool raw_top;     /* The topmost layer below is at /.brig/upper, as it is in the store: for `diff`. */
    uint64_t timeout_ms;
};

struct layer_run_result {
    const struct brig_err *err; /* Why it could not be run or was stopped; NULL if it ended by itself. */
    bool good;                  /* It exited with 0. */
    const char *cause;          /* "exited", "oom", "timeout", ... */
    const char *said;           /* the last line that it wrote to stderr, or "" */
};

struct layer_run_events {
    /* A line of its stdout, without the newline. One that is longer than LAYER_RUN_LINE_MAX ends the run. */
    void (*line)(void *ctx, const char *line, size_t len);
    /* Or its stdout as it comes: then layer_run_consumed() for all of it, at once or later. */
    void (*data)(void *ctx, const uint8_t *data, size_t len);
    /* The last call, once the sandbox is gone: nothing of it writes any more. Never from within another call. */
    void (*done)(void *ctx, const struct layer_run_result *result);
    void *ctx;
};

struct layer_run;
int layer_run_start(struct manager *manager, struct provider *provider, const struct config *config,
                    const struct layer_run_spec *spec, const struct layer_run_events *events, struct layer_run **ret,
                    struct brig_err *err) MUST_CHECK;
void layer_run_consumed(struct layer_run *run, size_t len);
bool layer_run_has_scratch(const struct layer_run *run, const char *name); /* Is this the layer that was made for it? */
void layer_run_stop(struct layer_run *run, const struct brig_err *why);    /* done follows, with why */
void layer_run_forget(struct layer_run *run);                              /* It ends; nobody is called. */

#endif
