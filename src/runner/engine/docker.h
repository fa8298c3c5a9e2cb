/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker.h: what the files of the carrier `docker` share (docker.c has the theory of operation).
 */
#ifndef BRIG_RUNNER_ENGINE_DOCKER_H
#define BRIG_RUNNER_ENGINE_DOCKER_H

#include "runner/carrier.h"
#include "codec/reference.h"
#include "runner/engine/dock.h"

#define DOCKER_SOCKET_DIR "d" /* in a box's directory: what its container sees at DOCK_DIR_INSIDE */
#define DOCKER_NAME_MAX 48u   /* "brig-", the id of the sandbox, and the NUL */

/* One engine; a process serves one. */
struct docker {
    struct runner *runner;
    struct dock dock;
    struct dock_engine engine;
    char installation[40];      /* the label of everything that is ours */
    char *runtime;              /* NULL: the engine's own */
    char image[IMAGE_REF_TEXT]; /* of boxes that name none, or "" */
    char empty[80];             /* the name of the image of containers whose root is a template */
    bool pull;                  /* an image that the engine does not have is pulled */
    uint64_t processes;
    struct loop_timer sweep;
    uint64_t sweep_ns; /* from one sweep to the next */
    unsigned sweeping; /* calls of a sweep that are under way */
};
extern struct docker docker;

/* docker_body.c */
#define DOCKER_VOLUMES_MAX 8u
struct docker_image {
    char id[DOCK_DIGEST_MAX]; /* The container is made of this, whatever the name means by then. */
    char *volumes[DOCKER_VOLUMES_MAX];
    size_t n_volumes;
};
/* Takes what the engine says about an image. One of another machine, or with bad volumes, is refused. */
int docker_image_read(const struct json_value *json, const char *name, struct docker_image *ret,
                      struct brig_err *err) MUST_CHECK;
void docker_image_done(struct docker_image *image);
int docker_profiles_write(const struct runner *runner, struct brig_err *err) MUST_CHECK;
/* Writes the JSON of a box's container. dir is the path of the box's directory. */
int docker_body(const struct carried *box, const char *dir, const struct docker_image *image, struct buf *out,
                struct brig_err *err) MUST_CHECK;

/* docker_empty.c: an image with one empty directory, which has our label. */
#define DOCKER_EMPTY_PREFIX "localhost/brig-" /* and the name of the installation */
#define DOCKER_EMPTY_MAX 8192u
/* Writes its archive, and the target that imports it. */
int docker_empty_import(struct buf *archive, char target[DOCK_TARGET_MAX]) MUST_CHECK;

/* docker_sweep.c */
/* Reads the installation's own name, or makes one. */
int docker_installation(struct docker *d, struct brig_err *err) MUST_CHECK;
/* Removes containers that have our label and are no box of ours; again after every interval. */
void docker_sweep(struct runner *runner);
/* The engine may make a container after it has given no answer. */
void docker_sweep_soon(void);

#endif
