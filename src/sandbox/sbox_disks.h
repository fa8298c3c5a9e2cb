/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_disks.h: what can be kept of sandboxes: volumes, snapshots, forks, and templates that are made from sandboxes.
 *
 * A disk is made first and its record after it; a record is removed first and its disk after it. So an interruption
 * leaves at most a disk that no record names, and the next look (disks_look()) removes it. A record whose disk is gone
 * stays, and says so.
 *
 * Who may: a snapshot, fork or commit needs sbox_check_use(). What comes out of a snapshot or a sandbox is made as the
 * weaker of all who had a hand in it (the one who made the sandbox, the one who took the snapshot, the caller): an
 * administrator who restores what a user kept gives nothing away that the user could not have asked for.
 */
#ifndef BRIG_SANDBOX_SBOX_DISKS_H
#define BRIG_SANDBOX_SBOX_DISKS_H

#include "records/disks/snapshots.h"
#include "records/disks/volumes.h"
#include "sandbox/manager.h"

#define FORKS_MAX 64u /* of one request */

typedef void disk_done_fn(void *ctx, const struct brig_err *err); /* err is NULL if it is done. */

/* ---- all of them --------------------------------------------------------------------------------------- */
/*
 * Asks the provider for its disks: records learn what theirs have (struct disk_look), and disks that nothing names are
 * removed. space is NULL if the provider has no disks or did not answer.
 */
typedef void disks_seen_fn(void *ctx, const struct disk_space *space);
int disks_look(struct manager *manager, disks_seen_fn *seen, void *ctx, struct brig_err *err) MUST_CHECK;
/* The same soon and quietly; also when the service has begun to serve. */
void disks_collect(struct manager *manager);
struct disks_stats {
    uint64_t volumes, volume_bytes, snapshots, snapshot_bytes, forks, failures;
    struct disk_space space; /* of the last look, without its kind */
};
void disks_stats(const struct manager *manager, struct disks_stats *ret);

/* ---- volumes ------------------------------------------------------------------------------------------- */
/* inodes 0: as many as fit the size. done gets the volume. */
int volume_make(struct manager *manager, const struct caller *caller, const char *name, uint64_t size, uint64_t inodes,
                objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* The same for a cache of builds, whose name begins with VOLUME_CACHE: only sandboxes of the service get it. */
int volume_make_cache(struct manager *manager, const struct caller *caller, const char *name, uint64_t size,
                      objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* The cache of this name; NULL if there is none, or its disk is gone. *ret_used: a sandbox has it. */
const struct object *volume_find_cache(const struct manager *manager, const char *org, const char *name,
                                       bool *ret_used);
/* Removes the caches of the caller's organisation that no sandbox has. Returns how many; nobody is told the rest. */
size_t volume_prune_caches(struct manager *manager, const struct caller *caller);
/* BRIG_E_CONFLICT while a sandbox has it. done comes when the disk is gone. */
int volume_remove(struct manager *manager, const struct caller *caller, const struct object *volume, disk_done_fn *done,
                  void *ctx, struct brig_err *err) MUST_CHECK;
/* Calls each() for every sandbox that has this volume. */
void volume_users(const struct manager *manager, const struct object *volume,
                  void (*each)(void *ctx, const struct sbox *sbox, bool read_only), void *ctx);

/* ---- snapshots ----------------------------------------------------------------------------------------- */
/* name may be "". done gets the snapshot. */
int sbox_snapshot(struct sbox *sbox, const struct caller *caller, const char *name, objects_done_fn *done, void *ctx,
                  struct brig_err *err) MUST_CHECK;
/* These two need the rights of sbox_check_use() of its sandbox. BRIG_E_FORBIDDEN. */
int snapshot_remove(struct manager *manager, const struct caller *caller, const struct object *snapshot,
                    disk_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/* What a new sandbox has otherwise than the one that it comes from. */
struct disk_copy_want {
    const char *name;            /* NULL: of a restore, the sandbox's; of a fork, none */
    bool no_volumes;             /* It gets none of the volumes. */
    bool replace;                /* restore: a sandbox that has the name is ended first. */
    unsigned count;              /* fork: so many; more than one are called NAME-1, NAME-2, ... */
    const char *idempotency_key; /* restore; or NULL */
    const uint8_t *fingerprint;
};
/* A new sandbox from the snapshot. */
int snapshot_restore(struct manager *manager, const struct caller *caller, const struct object *snapshot,
                     const struct disk_copy_want *want, sbox_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/* ---- forks --------------------------------------------------------------------------------------------- */
/* All of them, or none and why. Those that have ended again by now are not among them. */
typedef void forked_fn(void *ctx, struct sbox *const *forks, size_t n, const struct brig_err *err);
int sbox_fork(struct sbox *sbox, const struct caller *caller, const struct disk_copy_want *want, forked_fn *done,
              void *ctx, struct brig_err *err) MUST_CHECK;

/* ---- templates ----------------------------------------------------------------------------------------- */
/* The files of a sandbox as a template of its organisation. Whether the caller may make templates was asked before. */
int sbox_commit(struct sbox *sbox, const struct caller *caller, const char *name, bool replace, objects_done_fn *done,
                void *ctx, struct brig_err *err) MUST_CHECK;

#endif
