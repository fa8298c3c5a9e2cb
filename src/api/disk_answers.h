/* SPDX-License-Identifier: Apache-2.0 */
/* disk_answers.h: what answers about volumes and snapshots have in common (route_volumes.c, route_snapshots.c). */
#ifndef BRIG_API_DISK_ANSWERS_H
#define BRIG_API_DISK_ANSWERS_H

#include "api/api.h"
#include "sandbox/sbox_disks.h"

/* Volumes or snapshots, as objects that the API shows. */
struct disk_kind {
    const char *word;   /* one of them, in a message */
    const char *member; /* The name of the list in an answer that has many. */
    const struct object *(*find)(const struct api *api, const char *org_id, const char *name);
    const struct object *(*first)(const struct api *api, const char *org_id);
    void (*put)(const struct request *rq, struct json *json, const struct object *object);
};

void disk_look_put(struct json *json, const struct disk_look *look); /* Writes state, used_bytes and own_bytes. */
/* The one that the path names; NULL: the refusal was sent. */
const struct object *disk_find(struct request *rq, const struct disk_kind *kind);
/* These answer with what the provider's disks have at this moment. */
void disk_list(struct request *rq, const struct disk_kind *kind);
void disk_get(struct request *rq, const struct disk_kind *kind);
/* The end of a request that makes one: 201 and the object, or why not. */
void disk_made(struct request *rq, const struct disk_kind *kind, const struct object *object,
               const struct brig_err *err);

#endif
