/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_tidy.c: makes few large extents of many small ones. A copy takes about 30 us for each extent of its source, and
 * a random write to blocks that are shared adds two. So a disk that has too many is written anew in its place, piece by
 * piece, also while a sandbox has it mounted:
 *
 *     a file without a name shares the piece -> the piece is unshared: the kernel writes all of it anew -> the file
 * goes
 *
 * What can be read from the disk is the same at every moment, also after a crash. Whoever writes to it waits for one
 * piece at most. From then on the disk has these blocks for itself, so random writes to it add no extents any more.
 *
 * The kernel unshares page by page, reads each that is not in memory by itself, and writes all of them to the disk
 * before it returns. So the next piece is read while this one is written, which is two or three times as fast.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "host/disk/disk_parts.h"
#include "jail/sys.h"

#define PIECE_EXTENTS 4u /* A piece with no more is left as it is. */

static uint32_t extents_of(int fd, uint64_t at, uint64_t length)
{
    struct fiemap map = {.fm_start = at, .fm_length = length};

    return ioctl(fd, FS_IOC_FIEMAP, &map) < 0 ? 0 : map.fm_mapped_extents;
}

/* Holes stay holes: the kernel would give blocks to those that it is told to unshare. */
static int write_anew(int fd, int old, off_t at, off_t end)
{
    while (at < end) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 || data >= end)
            return data < 0 && errno != ENXIO ? -errno : 0;
        at = lseek(fd, data, SEEK_HOLE);
        if (at < 0)
            return -errno;
        at = at < end ? at : end;
        struct file_clone_range range = {
            .src_fd = fd, .src_offset = (uint64_t)data, .src_length = (uint64_t)(at - data)};
        if (SYS(ioctl(old, FICLONERANGE, &range)) < 0 ||
            SYS(fallocate(fd, FALLOC_FL_UNSHARE_RANGE, data, at - data)) < 0 || SYS(ftruncate(old, 0)) < 0)
            return -errno;
    }
    return 0;
}

/*
 * The numbers of the pieces that are to be written anew, in their order. What lies in most extents is the first: there
 * may be little time. After each piece the kernel looks for the first extent of the file that is still shared, so
 * pieces are taken from the last one on.
 */
static uint64_t choose(int fd, uint64_t pieces, uint32_t *extents, uint32_t *order)
{
    uint32_t most = PIECE_EXTENTS;
    uint64_t chosen = 0;

    for (uint64_t n = 0; n < pieces; n++) {
        extents[n] = extents_of(fd, n * DISK_PIECE, DISK_PIECE);
        most = extents[n] > most ? extents[n] : most;
    }
    for (uint32_t more = most / 2; more >= PIECE_EXTENTS / 2; more /= 2)
        for (uint64_t n = pieces; n-- > 0;)
            if (extents[n] > more && extents[n] > PIECE_EXTENTS) {
                order[chosen++] = (uint32_t)n;
                extents[n] = 0;
            }
    return chosen;
}

/*
 * The file of a pool is in the host's memory, and the next log of the pool waits until all of it is on the disk. A fork
 * waits for that log, so not more than two pieces are left for it.
 */
static int write_pool(int pool_fd)
{
    return pool_fd >= 0 && SYS(sync_file_range(pool_fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE)) < 0
               ? -errno
               : 0;
}

static int tidy_pieces(int fd, int old, int pool_fd, uint64_t length)
{
    const uint64_t pieces = (length + DISK_PIECE - 1) / DISK_PIECE;
    uint32_t *extents = mem_zalloc(2 * (pieces + 1) * sizeof *extents), *order = extents + pieces;
    int r = 0;

    if (!extents)
        return -ENOMEM;
    const uint64_t chosen = choose(fd, pieces, extents, order);
    for (uint64_t i = 0; r == 0 && i < chosen; i++) {
        uint64_t at = order[i] * DISK_PIECE, end = at + DISK_PIECE < length ? at + DISK_PIECE : length;
        if (i + 1 < chosen) /* If it cannot be read ahead, it is read later. */
            (void)!readahead(fd, (off64_t)(order[i + 1] * DISK_PIECE), DISK_PIECE);
        r = write_anew(fd, old, (off_t)at, (off_t)end);
        if (r == 0)
            r = write_pool(pool_fd);
    }
    mem_free(extents);
    return r;
}

int disk_tidy(const struct disk_store *store, const char *name, struct brig_err *err)
{
    struct stat st;
    AUTO_FD int fd = disk_open(store, name, false, err);

    if (fd < 0)
        return fd;
    AUTO_FD int old = SYS(openat(store->fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (old < 0 || fstat(fd, &st) < 0)
        return err_host(err, "disk %s", name);
    int r = tidy_pieces(fd, old, store->pool_fd, (uint64_t)st.st_size);
    return r < 0 ? err_set(err, r == -ENOSPC ? BRIG_E_LIMIT : BRIG_E_HOST, -r, "disk %s", name) : 0;
}
