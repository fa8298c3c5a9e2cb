/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_disks_priv.h: what the files behind sbox_disks.h share.
 *
 * A job is work under way on one disk. As long as the job is in the list, its disk is not removed because it has no
 * record yet, and what the job makes counts in quotas. Each kind of job embeds struct disk_job as its first member.
 */
#ifndef BRIG_SANDBOX_DISK_SBOX_DISKS_PRIV_H
#define BRIG_SANDBOX_DISK_SBOX_DISKS_PRIV_H

#include "base/list.h"
#include "sandbox/private.h"
#include "sandbox/sbox_disks.h"

struct disk_job {
    struct manager *manager; /* NULL: it was destroyed while the store worked */
    char disk[DISK_NAME_SIZE];
    struct caller caller;
    uint64_t bytes; /* What it will count for its organisation and key. */
    bool removing;  /* The disk is on its way out: nothing may begin to use it. */
    bool in_store;  /* A callback of the store is to come, also after the manager is gone. */
    void (*free)(struct disk_job *job);
    struct disk_job *next, *prev;
};

struct disks {
    struct manager *manager;
    struct disk_job *jobs;
    struct disks_wait *waits; /* for the look that is under way */
    bool looking, again;
    int64_t asked_at_ns; /* wall */
    struct loop_timer collect;
    struct disk_space space;
    uint64_t forks, failures;
};

/* ---- sbox_disks.c --------------------------------------------------------------------------------------- */
/* The provider has disks; else BRIG_E_UNSUPPORTED. */
int disks_can(const struct manager *manager, struct brig_err *err) MUST_CHECK;
/* size: of the whole struct whose first member is the job. prefix "snap" or "vol": a new name; NULL: none yet. */
int disk_job_new(struct manager *manager, const struct caller *caller, size_t size, const char *prefix,
                 struct disk_job **ret, struct brig_err *err) MUST_CHECK;
void disk_job_free(struct disk_job *job); /* out of the list, and freed */
int disk_new_name(const char *prefix, char out[DISK_NAME_SIZE], struct brig_err *err) MUST_CHECK;
/* Removes a disk that no record names any more, quietly: what fails is tried again with the next look. */
void disk_drop(struct manager *manager, const char *disk);
/* Does a record, a job or a sandbox need it? */
bool disk_is_needed(struct manager *manager, const char *disk);
bool disk_is_going(const struct manager *manager, const char *disk);

/* ---- sbox_volumes.c ------------------------------------------------------------------------------------- */
/* Removes a record of either kind, then its disk. action is for the audit. */
int kept_remove(struct manager *manager, const struct caller *caller, struct objects *objects,
                const struct object *object, const char *action, const char *label, disk_done_fn *done, void *ctx,
                struct brig_err *err) MUST_CHECK;

/* ---- sbox_disk_spec.c: what a sandbox was, and a new one of it ------------------------------------------ */
/* Can it be kept at this moment? BRIG_E_CONFLICT. */
int kept_check(const struct sbox *sbox, struct brig_err *err) MUST_CHECK;
/* Writes spec and image of a sandbox into an open object. */
void kept_put(const struct sbox *sbox, struct json *json);
/* As whom something is made that two had a hand in: `caller` with no more rights than `as`. */
struct caller caller_weaker(const struct caller *caller, enum standing as);
/*
 * The spec of a new sandbox of a kept one, judged as `as`: with the disk's size, without a name, and without the names
 * of the volumes' disks.
 */
int kept_spec(const struct manager *manager, const struct json_value *spec, const struct json_value *image,
              const struct caller *as, uint64_t size, uint64_t inodes, struct sbox_spec *ret,
              struct brig_err *err) MUST_CHECK;
/* Gives it the name and takes the volumes away, as is wanted. number 0: the name as it is. */
int kept_change(struct sbox_spec *spec, const struct disk_copy_want *want, unsigned number,
                struct brig_err *err) MUST_CHECK;

#endif
