/* SPDX-License-Identifier: Apache-2.0 */
/* oci.h: what the files about bundles share. */
#ifndef BRIG_RUNNER_OCI_H
#define BRIG_RUNNER_OCI_H

#include "runner/stage.h"

#define OCI_ARGS 24

/* What is different between the runtimes. */
struct oci_runtime {
    void (*argv)(const struct carried *box, const char **argv); /* at most OCI_ARGS with the NULL */
    /* Called after stage_prepare(). NULL: nothing. */
    int (*prepare)(struct carried *box, struct stage *stage, struct brig_err *err);
    bool hide_v2;
};

/* Finds the runtime and its version. */
int oci_open(struct runner *runner, struct brig_err *err) MUST_CHECK;
/* Executes the runtime with one word. text is what it says, cut. */
int oci_ask(struct runner *runner, const char *word, char *text, size_t size, struct brig_err *err) MUST_CHECK;
int oci_start(struct carried *box, struct brig_err *err) MUST_CHECK;

/* oci_config.c: writes config.json of the bundle. */
int oci_write_config(struct carried *box, const struct stage *stage, struct brig_err *err) MUST_CHECK;

#endif
