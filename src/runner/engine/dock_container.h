/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dock_container.h: a sandbox as the engine is asked to make it. One function writes the JSON, and nothing else may:
 * what it does not write, such as devices, host namespaces, privileges or further capabilities, no sandbox can have.
 */
#ifndef BRIG_RUNNER_ENGINE_DOCK_CONTAINER_H
#define BRIG_RUNNER_ENGINE_DOCK_CONTAINER_H

#include <brig.h>

#include "base/buf.h"

#define DOCK_INIT_INSIDE "/.brig/init" /* brig-init, read-only */
#define DOCK_DIR_INSIDE "/.brig/run"   /* the directory of its socket, for pid 1 alone */
#define DOCK_SOCKET_NAME "init"

struct dock_container {
    bool podman;
    const char *image; /* name or digest */
    const char *host_name;
    const char *init, *dir;             /* on the host: brig-init, and the private directory for its socket */
    const char *seccomp;                /* the profile; or with Podman the path of a file with it */
    const char *runtime;                /* NULL means the engine's own. */
    const char *cgroup_parent;          /* or NULL */
    const char *installation, *sandbox; /* labels */
    struct brig_limits limits;          /* memory, cpus and pids of 0: only those of cgroup_parent hold */
    uint64_t processes;                 /* RLIMIT_NPROC */
    /* Volumes of the image. Each gets a place in memory that nobody ever sees, or the engine would make a directory. */
    char *const *volumes;
    size_t n_volumes;
};

int dock_container_json(const struct dock_container *container, struct buf *out) MUST_CHECK;

#endif
