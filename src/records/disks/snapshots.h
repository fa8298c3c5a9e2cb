/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshots.h: the snapshots of an organisation: kind "snapshot", whose id is the name of its disk ("snap-...") and
 * whose key is the name that people gave it, if they gave one. The document says what the snapshot was made of, and
 * never changes:
 *
 *     {name, key_id, created_by, created_as, sandbox_id, sandbox_name, size, inodes, spec, image}
 *
 * spec is that of the sandbox as its row has it (sandbox/row.c): variables with their values, secrets only by name.
 * image is the template that the sandbox was made from (records/templates.h); without one it is absent.
 */
#ifndef BRIG_RECORDS_DISKS_SNAPSHOTS_H
#define BRIG_RECORDS_DISKS_SNAPSHOTS_H

#include "records/disks/volumes.h"

#define SNAPSHOTS_PER_ORG 1000u
#define SNAPSHOTS_ORG_BYTES (64u << 20)

struct snapshots;

struct snapshot {
    char name[DISK_LABEL_SIZE]; /* or "" */
    char key_id[64], created_by[80];
    char created_as[16]; /* standing_name() of who made it: no restore may do more */
    char sandbox_id[32], sandbox_name[64];
    uint64_t size, inodes;
    const struct json_value *spec, *image; /* image: or NULL */
    struct disk_look look;
};

int snapshots_create(struct store *store, struct snapshots **ret, struct brig_err *err) MUST_CHECK;
void snapshots_destroy(struct snapshots *snapshots);
struct objects *snapshots_objects(struct snapshots *snapshots);
/* By name or by id; or NULL. */
const struct object *snapshots_find(const struct snapshots *snapshots, const char *org, const char *name);
static inline struct snapshot *snapshot_of(const struct object *object)
{
    return object->extra;
}
/* doc is written by sandbox/disk/sbox_snapshot.c. BRIG_E_CONFLICT if the name is taken. */
int snapshots_put(struct snapshots *snapshots, const char *org, const char *id, const struct buf *doc,
                  objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* Does a snapshot of this organisation (NULL: of any) need this layer? */
bool snapshots_have_layer(const struct snapshots *snapshots, const char *layer);

#endif
