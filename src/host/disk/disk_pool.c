/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_pool.c: the pool: an XFS with shared blocks in one file, for hosts whose own file system has none. It is mounted
 * nowhere: a descriptor of its detached mount is all there is of it, so no sandbox inherits it.
 *
 * Its file is backed by blocks of the host from its first byte to its last before the XFS knows of them. It is made
 * with two names: `pool.new` until the file system in it is complete, then `pool.xfs`. A crash while it grows leaves a
 * file that is longer than its file system, and the next growth goes on from there.
 *
 * The mounts of dead sandboxes keep a pool alive after its spawner was killed. A second mount of it would destroy it,
 * so a new spawner waits until the file is free.
 */
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "host/disk/disk_parts.h"
#include "host/host.h"
#include "jail/sys.h"

#define POOL "pool.xfs"
#define POOL_NEW "pool.new"
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define STEP (256 * MIB)
#define LEAST GIB         /* XFS wants 300 MiB at least, and its log is 64 of them */
#define STEPS_TO_MOST 32u /* A file system that grows has groups as small as at its start: 128 of them at most. */
#define FREE_PATIENCE_NS (30 * NS_PER_SEC)
#define FREE_PAUSE_NS (2 * NS_PER_MS)

/* xfs/xfs_fs.h of xfslibs-dev */
struct xfs_growfs_data {
    uint64_t newblocks; /* the new size in blocks of the file system */
    uint32_t imaxpct;
};
#define XFS_IOC_FSGROWFSDATA _IOW('X', 110, struct xfs_growfs_data)
#define POOL_IMAXPCT 25u /* what mkfs.xfs has */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + STEP - 1) / STEP * STEP;
}

bool pool_exists(const struct disk_store *store)
{
    return faccessat(store->dir_fd, POOL, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t pool_most(const struct disk_store *store, uint64_t now)
{
    uint64_t can = now + disks_host_free(store);
    uint64_t max = store->max ? store->max : can / 2 > LEAST ? can / 2 : LEAST;
    uint64_t most = (can < max ? can : max) / STEP * STEP;

    return most > now ? most : now;
}

/*
 * A lease is granted only if nobody else has the file open: for writing all openings count, for reading those that
 * write. Loop devices count as well.
 */
int disk_wait_free(int fd, bool for_writing, struct brig_err *err)
{
    struct timespec pause = {.tv_nsec = FREE_PAUSE_NS};
    uint64_t until = clock_mono_ns() + FREE_PATIENCE_NS;

    while (fcntl(fd, F_SETLEASE, for_writing ? F_WRLCK : F_RDLCK) < 0) {
        if (errno != EAGAIN)
            return err_host(err, "lease");
        if (clock_mono_ns() > until)
            return err_set(err, BRIG_E_BUSY, EBUSY, "the last mount of it does not end");
        nanosleep(&pause, NULL);
    }
    return fcntl(fd, F_SETLEASE, F_UNLCK) < 0 ? err_host(err, "lease") : 0;
}

/* Blocks for all of it, up to this length. The file is never shortened. */
static int back(int fd, uint64_t bytes, struct brig_err *err)
{
    if (SYS(fallocate(fd, 0, 0, (off_t)bytes)) < 0)
        return errno == ENOSPC
                   ? err_set(err, BRIG_E_LIMIT, 0, "disks: the host's file system has no room for a pool of %llu bytes",
                             (unsigned long long)bytes)
                   : err_host(err, "pool of disks");
    return 0;
}

static int make_pool(const struct host *host, const struct disk_store *store, struct brig_err *err)
{
    uint64_t most = pool_most(store, 0), size = round_up(most / STEPS_TO_MOST);

    size = size < LEAST ? LEAST : size;
    if (most < size)
        return err_set(err, BRIG_E_LIMIT, 0, "disks: a pool needs %llu bytes, and %llu can be had",
                       (unsigned long long)size, (unsigned long long)most);
    (void)!unlinkat(store->dir_fd, POOL_NEW, 0);
    AUTO_FD int fd = SYS(openat(store->dir_fd, POOL_NEW, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return err_host(err, POOL_NEW);
    int r = back(fd, size, err);
    if (r == 0)
        r = helper_mkfs_xfs(host, fd, err);
    if (r == 0 && (SYS(fsync(fd)) < 0 || SYS(renameat(store->dir_fd, POOL_NEW, store->dir_fd, POOL)) < 0 ||
                   SYS(fsync(store->dir_fd)) < 0))
        r = err_host(err, POOL);
    if (r < 0)
        (void)!unlinkat(store->dir_fd, POOL_NEW, 0);
    return r;
}

static int mount_pool(struct disk_store *store, const char *node, struct brig_err *err)
{
    const struct mount_option options[] = {{"source", node}};

    store->mount_fd =
        mount_make("xfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (store->mount_fd < 0)
        return errno == ENODEV ? err_set(err, BRIG_E_UNSUPPORTED, 0, "this kernel has no XFS")
                               : err_host(err, "mount of the pool of disks");
    store->fd = SYS(openat(store->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return store->fd < 0 ? err_host(err, "pool of disks") : 0;
}

/* Whoever had it last may remove it until then (pool_remove()), and what is put into one without a name is lost. */
static int open_free(const struct host *host, const struct disk_store *store, struct stat *ret, struct brig_err *err)
{
    for (;;) {
        int r = pool_exists(store) ? 0 : make_pool(host, store, err);
        if (r < 0)
            return r;
        AUTO_FD int fd = SYS(openat(store->dir_fd, POOL, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
        if (fd < 0)
            return err_host(err, POOL);
        r = disk_wait_free(fd, true, err);
        if (r < 0)
            return r;
        if (fstat(fd, ret) < 0)
            return err_host(err, POOL);
        if (ret->st_nlink > 0)
            return take_fd(&fd);
    }
}

int pool_open(const struct host *host, struct disk_store *store, struct brig_err *err)
{
    struct image image = IMAGE_INIT;
    struct stat st;
    AUTO_FD int fd = open_free(host, store, &st, err);

    if (fd < 0)
        return fd;
    int r = back(fd, (uint64_t)st.st_size, err);
    if (r == 0)
        r = image_attach(host, fd, false, &image, err);
    if (r == 0)
        r = mount_pool(store, image.node, err);
    if (r == 0) {
        store->pool_fd = take_fd(&fd);
        store->loop_fd = take_fd(&image.loop_fd);
        store->kind = DISKS_POOL;
    }
    image_release(&image);
    return r;
}

int disks_grow(const struct disk_store *store, uint64_t bytes, struct brig_err *err)
{
    struct statvfs fs;
    struct stat st;

    if (store->kind != DISKS_POOL)
        return 0;
    if (fstatvfs(store->fd, &fs) < 0 || fstat(store->pool_fd, &st) < 0)
        return err_host(err, "pool of disks");
    uint64_t now = (uint64_t)st.st_size, most = pool_most(store, now), want = round_up(bytes);
    want = want < now + now / 4 ? round_up(now + now / 4) : want;
    want = want > most ? most : want;
    int r = want > now ? back(store->pool_fd, want, err) : 0;
    if (r < 0)
        return r;
    if (want > now && (SYS(fsync(store->pool_fd)) < 0 || SYS(ioctl(store->loop_fd, LOOP_SET_CAPACITY, 0)) < 0))
        return err_host(err, "device of the pool");
    struct xfs_growfs_data grow = {.newblocks = (want > now ? want : now) / fs.f_frsize, .imaxpct = POOL_IMAXPCT};
    if (SYS(ioctl(store->fd, XFS_IOC_FSGROWFSDATA, &grow)) < 0)
        return err_host(err, "growth of the pool of disks");
    return 0;
}

/* The list may not have a disk that could not be read, and this is the end of all of them. */
bool pool_is_empty(const struct disk_store *store)
{
    return store->kind == DISKS_POOL && !disks_are_in(store->fd);
}

void pool_let_go(struct disk_store *store)
{
    int *fds[] = {&store->fd, &store->mount_fd, &store->loop_fd, &store->pool_fd};

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        base_close_fd(fds[i]);
    store->kind = DISKS_CLOSED;
}

int pool_remove(struct disk_store *store, struct brig_err *err)
{
    if (!pool_is_empty(store))
        return err_set(err, BRIG_E_CONFLICT, 0, "pool of disks: it is not empty");
    if (SYS(unlinkat(store->dir_fd, POOL, 0)) < 0)
        return err_host(err, POOL);
    pool_let_go(store);
    return 0;
}
