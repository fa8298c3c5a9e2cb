/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup_parts.h: what the files about the cgroups of one sandbox share (cgroup.c). */
#ifndef BRIG_HOST_CGROUP_PARTS_H
#define BRIG_HOST_CGROUP_PARTS_H

#include "host/cgroup.h"

#define CG_INIT_LEAF "init" /* The leaf of pid 1 when its cgroup hands controllers down. */

/* Returns the directory in which this controller is set for the sandbox, or -1; and whether that is in the v2 tree. */
int cg_dir(const struct cg *cg, enum cg_controller controller);
bool cg_is_v2(const struct cg *cg, enum cg_controller controller);
/*
 * Read a file with one number, or one of "key value" lines. dir may be -1. Return BRIG_USAGE_UNKNOWN if it is not
 * there.
 */
uint64_t cg_number(int dir, const char *file);
uint64_t cg_keyed(int dir, const char *file, const char *key);

#endif
