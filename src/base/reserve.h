/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reserve.h: what the service writes for others never fills a file system: so much of it stays free, or a twentieth if
 * that is less. There the rest is ENOSPC.
 */
#ifndef BRIG_BASE_RESERVE_H
#define BRIG_BASE_RESERVE_H

#include <sys/vfs.h>

#include "base/base.h"

#define RESERVE_BYTES (UINT64_C(1) << 30)

/* May so much more be written to the file system of this file? One that does not say its size has no end. */
static inline bool reserve_leaves(int fd, uint64_t len)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0 || fs.f_blocks == 0)
        return true;
    /* Blocks are counted in f_frsize, where that is told. */
    const uint64_t block = (uint64_t)(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize), part = (uint64_t)fs.f_blocks / 20;
    if (block == 0)
        return true;
    const uint64_t reserve = part < RESERVE_BYTES / block ? part : RESERVE_BYTES / block;
    return (uint64_t)fs.f_bavail >= reserve + len / block + 1;
}

#endif
