/* SPDX-License-Identifier: Apache-2.0 */
/* disk_parts.h: what the files of disks.h share. */
#ifndef BRIG_HOST_DISK_PARTS_H
#define BRIG_HOST_DISK_PARTS_H

#include "host/disks.h"

#define TMP_PREFIX "tmp-"
#define FACTS_XATTR "trusted.brig.disk"
#define DISK_TMP_NAME (DISK_NAME + 8)
#define DISK_COPY_PIECE (4u << 20)
/* The superblock of ext4. */
#define DISK_SUPER 1024

/* ---- disks.c -------------------------------------------------------------------------------------------- */

bool disks_are_in(int dir_fd); /* Has it a file with the name of a disk? Also true if that cannot be told. */
uint64_t disks_host_free(const struct disk_store *store); /* What the host's file system can still give us. */
uint64_t disk_own(int fd, uint64_t length);               /* The bytes that it shares with no other. */
uint64_t disk_extents(int fd);                            /* 0 if the file system does not say. */
int disk_write_facts(int fd, uint64_t size, uint64_t inodes) MUST_CHECK;

/* ---- disk_files.c --------------------------------------------------------------------------------------- */

int disk_failed(int r, const char *name, struct brig_err *err); /* Returns r; a disk that is full is BRIG_E_LIMIT. */
/* Makes the file of a disk, with its name until it is complete. Returns a descriptor. */
int disk_temporary(const struct disk_store *store, const char *of, char name[DISK_TMP_NAME],
                   struct brig_err *err) MUST_CHECK;
/* Mounts the file system in a file. Returns a descriptor, with which the mount ends. */
int disk_mount(const struct host *host, int fd, const char *name, struct brig_err *err) MUST_CHECK;
/* The empty file system of this size, made on first use. Returns a descriptor. */
int disk_golden(const struct host *host, const struct disk_store *store, uint64_t size, uint64_t inodes, bool volume,
                struct brig_err *err) MUST_CHECK;
int disk_share(const struct disk_store *store, int from, int to, uint64_t length,
               const struct disk_teller *teller) MUST_CHECK;
/* Gives it its name. */
int disk_finish(const struct disk_store *store, int fd, const char *temporary, const char *name, uint64_t size,
                uint64_t inodes, bool lasting, struct disk_facts *ret, struct brig_err *err) MUST_CHECK;

/* ---- disk_tree.c ---------------------------------------------------------------------------------------- */

struct disk_tree {
    const char *name; /* of the disk, for errors */
    int from;         /* The root of a store whose programs stand still. */
    int to;           /* The root of an empty disk, mounted by us. */
    uid_t first_id;   /* Id 0 of the sandbox. A disk has the ids as they are inside. */
    uint64_t size;    /* What programs may write to the disk. */
};

/* Copies all files of a store that is memory, as far as disks keep them. */
int disk_copy_tree(const struct disk_tree *tree, const struct disk_teller *teller, struct brig_err *err) MUST_CHECK;

#endif
