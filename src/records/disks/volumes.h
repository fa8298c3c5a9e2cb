/* SPDX-License-Identifier: Apache-2.0 */
/*
 * volumes.h: the volumes of an organisation: kind "volume", whose id is the name of its disk ("vol-...") and whose key
 * is the name that people gave it. The document is {name, key_id, created_by, size, inodes}, and never changes. The
 * disk is the provider's (provider/provider.h); sandbox/sbox_disks.h makes and removes both.
 */
#ifndef BRIG_RECORDS_DISKS_VOLUMES_H
#define BRIG_RECORDS_DISKS_VOLUMES_H

#include "codec/json/json.h"
#include "records/objects.h"

#define DISK_LABEL_SIZE 64u /* the name that people give a volume or a snapshot, with its NUL */
#define VOLUMES_PER_ORG 1000u
#define VOLUME_CACHE "~cache-" /* how the name of a cache of builds begins: no name that people give does */

struct volumes;

/* What the last look at the provider's disks said. */
struct disk_look {
    bool known, lost; /* lost: there is a record and no disk */
    uint64_t used, own;
};

struct volume {
    char name[DISK_LABEL_SIZE];
    char key_id[64], created_by[80]; /* key_id "": the socket's administrator */
    uint64_t size, inodes;
    struct disk_look look;
};

int volumes_create(struct store *store, struct volumes **ret, struct brig_err *err) MUST_CHECK;
void volumes_destroy(struct volumes *volumes);
struct objects *volumes_objects(struct volumes *volumes);
/* By name or by id; or NULL. */
const struct object *volumes_find(const struct volumes *volumes, const char *org, const char *name);
static inline struct volume *volume_of(const struct object *object)
{
    return object->extra;
}
bool volume_is_cache(const struct object *object);
/* BRIG_E_CONFLICT if the name is taken. */
int volumes_put(struct volumes *volumes, const char *org, const char *id, const struct volume *volume,
                objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/*
 * Checks a name that people give: [A-Za-z0-9][A-Za-z0-9_.-]{0,62}, and not the form of an id. `what` is "volume" or
 * "snapshot". BRIG_E_USAGE.
 */
int disk_label_check(const char *what, const char *name, struct brig_err *err) MUST_CHECK;

#endif
