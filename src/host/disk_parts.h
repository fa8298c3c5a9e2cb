/* SPDX-License-Identifier: Apache-2.0 */
/* disk_parts.h: what the files of disks.h share. */
#ifndef BRIG_HOST_DISK_PARTS_H
#define BRIG_HOST_DISK_PARTS_H

#include "host/disks.h"

#define TMP_PREFIX "tmp-"
#define FACTS_XATTR "trusted.brig.disk"

bool disks_are_in(int dir_fd); /* Has it a file with the name of a disk? Also true if that cannot be told. */
uint64_t disks_host_free(const struct disk_store *store); /* What the host's file system can still give us. */
uint64_t disk_own(int fd, uint64_t length);               /* The bytes that it shares with no other. */
uint64_t disk_extents(int fd);                            /* 0 if the file system does not say. */
int disk_write_facts(int fd, uint64_t size, uint64_t inodes) MUST_CHECK;

#endif
