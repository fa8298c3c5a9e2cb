/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_root.h: gives a container the file systems of its sandbox (docker_root.c has the theory of operation).
 */
#ifndef BRIG_RUNNER_ENGINE_DOCKER_ROOT_H
#define BRIG_RUNNER_ENGINE_DOCKER_ROOT_H

#include "runner/engine/docker.h"
#include "runner/stage.h"

struct docker_root {
    struct stage stage; /* the plan, and the report of its stages */
    pid_t pid;          /* pid 1 of the container, */
    int mnt_fd, pid_fd; /* and two of its namespaces */
    bool of_image;      /* What lies below is the container's own root. */
};
#define DOCKER_ROOT_INIT ((struct docker_root){.stage = STAGE_INIT, .mnt_fd = -1, .pid_fd = -1})

/*
 * pid is pid 1 of a container in which nothing but brig-init runs. image is what the sandbox starts from, or NULL for
 * a template; its volumes become places of the run, so it must live as long. A child is at work afterwards, which
 * box->child watches; its done is the caller's.
 */
int docker_root_start(struct carried *box, struct docker_root *root, pid_t pid, const struct docker_image *image,
                      struct brig_err *err) MUST_CHECK;
/* After it has ended: takes the mount of the store, or says what failed. */
int docker_root_result(struct carried *box, struct docker_root *root, int status, struct brig_err *err) MUST_CHECK;
void docker_root_done(struct docker_root *root);

#endif
