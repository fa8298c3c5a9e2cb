/* SPDX-License-Identifier: Apache-2.0 */
/* oci.h: what the files about bundles share. */
#ifndef BRIG_RUNNER_OCI_H
#define BRIG_RUNNER_OCI_H

#include "runner/stage.h"

/* oci_config.c: writes config.json of the bundle. */
int oci_write_config(struct carried *box, const struct stage *stage, struct brig_err *err) MUST_CHECK;

#endif
