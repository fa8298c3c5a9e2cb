/* SPDX-License-Identifier: Apache-2.0 */
/* disk_answers.h: what answers about volumes and snapshots have in common (route_volumes.c, route_snapshots.c). */
#ifndef BRIG_API_DISK_ANSWERS_H
#define BRIG_API_DISK_ANSWERS_H

#include "api/api.h"
#include "sandbox/sbox_disks.h"

void disk_look_put(struct json *json, const struct disk_look *look); /* Writes state, used_bytes and own_bytes. */
/* Looks at the disks, and goes on with then(rq, ...), whether they could be seen or not. */
void disks_look_then(struct request *rq, disks_seen_fn *then);

#endif
