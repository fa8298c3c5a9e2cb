/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks.h: disks of sandboxes that can be copied and kept (provider/provider.h says what they are for). A disk is a
 * file with an ext4 file system in it, in a place where files can share blocks, if this host has one. Only the spawner
 * works there. The directory of disks holds
 *
 *     box-ID snap-ID vol-ID    disks
 *     golden-...               empty file systems, of which new disks are copies
 *     tmp-...                  what is being made; a start removes it
 *
 * or, where the host's own file system cannot share blocks, one file `pool.xfs` with an XFS that has all of these. That
 * file never has a hole: the XFS would lose data when the host's disk is full. The functions below that take time run
 * in processes of their own (spawner/disk_jobs.c).
 */
#ifndef BRIG_HOST_DISKS_H
#define BRIG_HOST_DISKS_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"
#include "base/buf.h"

#define DISK_NAME 32u /* the bytes of a name with its NUL fit */
#define DISK_PRE_BOX "box-"
#define DISK_PRE_SNAP "snap-"
#define DISK_PRE_VOLUME "vol-"
#define DISK_OPEN_FDS 4u               /* what disks_begin() gives */
#define DISK_EXTENTS_MAX 1000u         /* A copy of so many takes about 30 ms; a disk with more is made tidy. */
#define DISK_PIECE (UINT64_C(4) << 20) /* what is written anew at a time, and taken beside the disk meanwhile */

enum disks_kind { DISKS_CLOSED, DISKS_POOL, DISKS_SHARED, DISKS_COPIES, DISKS_KIND_MAX };

struct disk_store {
    int dir_fd;                     /* The directory; -1 if there can be no disks. */
    int lock_fd;                    /* Only one spawner at a time uses it. */
    int fd;                         /* Where disks lie; -1 until it is opened for the first time. */
    int mount_fd, pool_fd, loop_fd; /* A pool has a mount, a file and a device; else -1. */
    enum disks_kind kind;
    uint64_t max;  /* What all disks may take; 0 for half of what is free. */
    char why[192]; /* Why there are none, or why blocks are not shared. */
};
#define DISK_STORE_INIT                  \
    ((struct disk_store){.dir_fd = -1,   \
                         .lock_fd = -1,  \
                         .fd = -1,       \
                         .mount_fd = -1, \
                         .pool_fd = -1,  \
                         .loop_fd = -1,  \
                         .why = "this service has no directory of disks"})

/* One disk, as it is on the disk. */
struct disk_facts {
    char name[DISK_NAME];
    uint64_t size, inodes; /* what can be written to it */
    uint64_t bytes;        /* the length of its file */
    uint64_t used, own;    /* its blocks, and those that it does not share */
    uint64_t extents;      /* 0 if the file system does not say */
};

/* A copy, and the blocks that were its source's own until then. */
struct disk_made {
    struct disk_facts facts;
    uint64_t shared;
};

struct host;
struct cg;

/* Is it a name of this kind (DISK_PRE_BOX, DISK_PRE_SNAP, DISK_PRE_VOLUME)? */
bool disk_name_ok(const char *name, const char *kind);
/* Can anything be written to it? A snapshot is never written to. */
bool disk_is_writable(const char *name);
/* The bytes of the file of a disk with this size. */
uint64_t disk_bytes(uint64_t size, uint64_t inodes);

/* Opens the directory and takes its lock. On failure there are no disks, and store->why says why. */
void disks_open(struct disk_store *store, const char *path, uint64_t max);
void disks_done(struct disk_store *store);
/* Whether something was kept here, so that there is something to open. */
bool disks_kept(const struct disk_store *store);
/*
 * What a disk may take, and what all of them may take at most: `room` is there now, `most` could be made. `used` is
 * what they have.
 */
struct disk_room {
    uint64_t used, room, most;
};
int disks_room(const struct disk_store *store, struct disk_room *ret, struct brig_err *err) MUST_CHECK;
/* Opens a disk that is there. Returns a descriptor, or a negative errno with err. */
int disk_open(const struct disk_store *store, const char *name, bool read_only, struct brig_err *err) MUST_CHECK;
/* All but `own`, which is 0: that takes a while for each extent. */
int disk_read_facts(int fd, const char *name, struct disk_facts *ret, struct brig_err *err) MUST_CHECK;
uint64_t disk_used(const struct disk_store *store, const char *name); /* Its blocks in bytes; 0 if it is not there. */

/* ---- in processes of their own ---------------------------------------------------------------------- */

/* Told while blocks are copied that cannot be shared. */
struct disk_teller {
    void (*tell)(void *ctx, uint64_t at, uint64_t of);
    void *ctx;
};

/*
 * Opens the place of disks, which is made if need be, and removes what an earlier spawner left there. It sets fd, kind,
 * why and the descriptors of a pool in store.
 */
int disks_begin(const struct host *host, struct disk_store *store, struct brig_err *err) MUST_CHECK;
/* Appends struct disk_facts of all disks. *ret_used is what they have together, with all that belongs to them. */
int disks_measure(const struct disk_store *store, struct buf *out, uint64_t *ret_used, struct brig_err *err) MUST_CHECK;
/* Makes the pool at least so large, as far as the host's disk can back it. */
int disks_grow(const struct disk_store *store, uint64_t bytes, struct brig_err *err) MUST_CHECK;
/* Makes an empty disk. With `lasting` it is on the disk when this returns. */
int disk_make(const struct host *host, const struct disk_store *store, const char *name, uint64_t size, uint64_t inodes,
              bool lasting, struct disk_facts *ret, struct brig_err *err) MUST_CHECK;
/* Copies one that nobody writes to, not lasting; it waits for a mount of it that is on its way out. */
int disk_copy(const struct disk_store *store, const char *name, const char *from, const struct disk_teller *teller,
              struct disk_made *ret, struct brig_err *err) MUST_CHECK;
/* Gives it another name instead of a copy. It need not survive a power failure. */
int disk_take(const struct disk_store *store, const char *name, const char *from, struct disk_made *ret,
              struct brig_err *err) MUST_CHECK;
/* Removes what is left of a disk that could not be made, also if its maker has died. */
void disk_remove_half(const struct disk_store *store, const char *name, pid_t maker);
int disk_remove(const struct disk_store *store, const char *name, struct brig_err *err) MUST_CHECK;
/* Writes anew what lies in many extents, so that copies of it take less time. Sandboxes may use it meanwhile. */
int disk_tidy(const struct disk_store *store, const char *name, struct brig_err *err) MUST_CHECK;
/* Waits until no mount of it is left (of one that is to be written to: of any kind), and mends it after a crash. */
int disk_prepare(const struct host *host, const struct disk_store *store, const char *name, bool read_only,
                 struct brig_err *err) MUST_CHECK;

/* A copy of a store that a live sandbox has mounted. */
struct disk_snap {
    const char *name;
    const char *from;      /* The disk that the store is, or NULL. */
    const char *device;    /* Else the block device of it; */
    bool memory;           /* or its files are in memory, and those of id 0 inside */
    uid_t first_id;        /* belong to this one. */
    int mount_fd;          /* The mounted store. */
    const struct cg *cg;   /* It is frozen for the copy */
    bool stays_frozen;     /* and not thawed after it. */
    bool lasting;          /* It survives a power failure. */
    uint64_t size, inodes; /* of a device or memory */
};
int disk_snap(const struct host *host, const struct disk_store *store, const struct disk_snap *snap,
              const struct disk_teller *teller, struct disk_made *ret, struct brig_err *err) MUST_CHECK;

/* disk_pool.c */
int pool_open(const struct host *host, struct disk_store *store, struct brig_err *err) MUST_CHECK;
bool pool_exists(const struct disk_store *store);
/* Waits until nobody has the file open for writing (for_writing: nobody has it open at all). */
int disk_wait_free(int fd, bool for_writing, struct brig_err *err) MUST_CHECK;
/* Removes an empty pool, so that the host has its space again. Nobody else may have it open any more. */
bool pool_is_empty(const struct disk_store *store);
int pool_remove(struct disk_store *store, struct brig_err *err) MUST_CHECK;
void pool_let_go(struct disk_store *store); /* It can be opened again. */
uint64_t pool_most(const struct disk_store *store, uint64_t now);

#endif
