/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_run.h: one program in an ephemeral sandbox of the service's own: what installs packages, what reads images. The
 * manager makes the sandbox as any other. It counts in the quotas of the organisation that asks, but it is made in the
 * name of the service, because only administrators may bind directories. Nobody finds it by name: what it makes may be
 * shared, so the organisation that it works for must not get a program of its own into it.
 */
#ifndef BRIG_SANDBOX_OWN_RUN_H
#define BRIG_SANDBOX_OWN_RUN_H

#include "sandbox/process.h"

#define OWN_RUN_DISK "/disk"

struct own_run_spec {
    const char *org, *actor; /* for whom, and who it is in the audit log */
    const char *sandbox;     /* JSON of the sandbox; only read by own_run_create() */
    /* As in struct sbox_spec. */
    const char *new_layer;
    const char *const *below;
    size_t n_below;
    bool raw_upper;
    const char *disk;            /* With new_layer: the disk of a template, read-only at OWN_RUN_DISK; or NULL. */
    struct process_spec program; /* argv and env are copied; input lives until done() */
};

struct own_run_result {
    const struct brig_err *err;       /* Why it could not be run or was stopped; NULL if it ended by itself. */
    bool good;                        /* It exited with 0. */
    const char *cause;                /* "exited", "oom", "timeout", ...; or "" */
    const struct json_value *receipt; /* or NULL */
};

struct own_run_events {
    /* Its output as it comes: own_run_consumed() for all of it, at once or later. NULL: it is in the receipt. */
    void (*data)(void *ctx, unsigned stream, const uint8_t *data, size_t len);
    /* The last call, once the sandbox is gone: nothing of it writes any more. Never from within another call. */
    void (*done)(void *ctx, const struct own_run_result *result);
    void *ctx;
};

struct own_run;
int own_run_create(struct manager *manager, const struct config *config, const struct own_run_spec *spec,
                   const struct own_run_events *events, struct own_run **ret, struct brig_err *err) MUST_CHECK;
void own_run_destroy(struct own_run *run); /* One that was not started; takes NULL. */
/* On failure it is still the caller's. If it was stopped before, the reason is the failure. */
int own_run_start(struct own_run *run, struct brig_err *err) MUST_CHECK;
void own_run_consumed(struct own_run *run, unsigned stream, size_t len);
void own_run_stop(struct own_run *run, const struct brig_err *why); /* done follows, with the first why */
void own_run_forget(struct own_run *run);                           /* A started one ends; nobody is called. */

#endif
