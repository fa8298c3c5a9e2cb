/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox_plan.h: from a run to the plan of its set-up (jail/plan.h): ids, binds, root, layers, disks and store. What
 * it opens lives until the child has its copy.
 */
#ifndef BRIG_SPAWNER_SANDBOX_PLAN_H
#define BRIG_SPAWNER_SANDBOX_PLAN_H

#include "spawner/spawner.h"

/* Descriptors that live only until the child has its copy. */
struct build {
    struct jail_plan plan;
    struct plan_bind binds[WIRE_BINDS_MAX];
    struct plan_volume volumes[WIRE_VOLUMES_MAX];
    int child_setup, child_control;
    int rootfs_fd;
    int ids_fd;    /* root inside: the map of its ids, for mounts */
    int cgroup_fd; /* where it is cloned into, when that is not the sandbox's own cgroup */
};

#define BUILD_INIT                                                              \
    ((struct build){.plan = {.rootfs_fd = -1, .ids_fd = -1, .disk_ids_fd = -1}, \
                    .child_setup = -1,                                          \
                    .child_control = -1,                                        \
                    .rootfs_fd = -1,                                            \
                    .ids_fd = -1,                                               \
                    .cgroup_fd = -1})

/* child_setup and child_control are there already. On failure sandbox_plan_done() removes what was opened. */
int sandbox_plan(struct sandbox *s, const struct run_spec *run, struct build *b, struct brig_err *err) MUST_CHECK;
void sandbox_plan_done(struct build *b);

#endif
