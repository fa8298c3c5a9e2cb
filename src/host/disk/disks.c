/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disks.c: the place of disks (disks.h): its names, its lock, what is in it and how much room there is. Names come from
 * brigd, which may have been taken over, so only names of the three forms are ever used, below a descriptor. What can
 * be written to a disk is said by an xattr of its file that only root can set.
 */
#include "host/disks.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "host/dirs.h"
#include "host/disk/disk_parts.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define EXTENTS 256u /* asked for at a time */

/* ---- names -------------------------------------------------------------------------------------------- */

bool disk_name_ok(const char *name, const char *kind)
{
    size_t prefix = strlen(kind), len = ID_SANDBOX_SIZE - 1;

    return str_starts(name, kind) && strlen(name) == prefix + len &&
           strspn(name + prefix, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

static bool disk_name_any(const char *name)
{
    return disk_name_ok(name, DISK_PRE_BOX) || disk_name_ok(name, DISK_PRE_SNAP) || disk_name_ok(name, DISK_PRE_VOLUME);
}

bool disk_is_writable(const char *name)
{
    return !str_starts(name, DISK_PRE_SNAP);
}

/* ---- start -------------------------------------------------------------------------------------------- */

void disks_open(struct disk_store *store, const char *path, uint64_t max)
{
    struct stat st;
    AUTO_FD int fd = open(path, OPEN_DIR);

    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)snprintf(store->why, sizeof store->why, "%.120s: %s", path, strerror(errno));
        return;
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077)) {
        (void)snprintf(store->why, sizeof store->why, "%.120s: must be the spawner's own, with mode 0700", path);
        return;
    }
    store->lock_fd = dirs_lock(fd);
    if (store->lock_fd < 0) {
        (void)snprintf(store->why, sizeof store->why, "%.120s: %s", path,
                       errno == EWOULDBLOCK ? "another spawner uses these disks" : strerror(errno));
        return;
    }
    store->dir_fd = take_fd(&fd);
    store->max = max;
}

void disks_done(struct disk_store *store)
{
    int *fds[] = {&store->fd, &store->mount_fd, &store->loop_fd, &store->pool_fd, &store->dir_fd, &store->lock_fd};

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        base_close_fd(fds[i]);
    store->kind = DISKS_CLOSED;
}

bool disks_are_in(int dir_fd)
{
    AUTO_DIR DIR *dir = dir_open(dir_fd, ".");

    for (const struct dirent *entry; (entry = dir_next(dir));)
        if (disk_name_any(entry->d_name))
            return true;
    return !dir || errno != 0;
}

bool disks_kept(const struct disk_store *store)
{
    return pool_exists(store) || disks_are_in(store->dir_fd);
}

static void sweep(const struct disk_store *store)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");

    for (const struct dirent *entry; dir && (entry = dir_next(dir));)
        if (str_starts(entry->d_name, TMP_PREFIX) || str_starts(entry->d_name, DISK_PRE_BOX))
            (void)!unlinkat(store->fd, entry->d_name, 0);
}

/* Can files of this directory share blocks? */
static bool can_share(int dir_fd)
{
    AUTO_FD int a = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    AUTO_FD int b = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char block[4096] = "x";

    return a >= 0 && b >= 0 && write(a, block, sizeof block) == (ssize_t)sizeof block && ioctl(b, FICLONE, a) == 0;
}

static int open_plain(struct disk_store *store, enum disks_kind kind, struct brig_err *err)
{
    store->fd = openat(store->dir_fd, ".", OPEN_DIR);
    store->kind = kind;
    return store->fd < 0 ? err_host(err, "directory of disks") : 0;
}

int disks_begin(const struct host *host, struct disk_store *store, struct brig_err *err)
{
    struct brig_err why = {.code = BRIG_E_NONE};
    bool pool = pool_exists(store);
    int r;

    store->why[0] = '\0';
    if (!pool && can_share(store->dir_fd)) {
        r = open_plain(store, DISKS_SHARED, err);
    } else {
        r = pool_open(host, store, &why);
        if (r < 0 && (pool || why.code != BRIG_E_UNSUPPORTED)) {
            if (err)
                *err = why;
            return r;
        }
        if (r < 0) {
            str_cut(store->why, sizeof store->why, why.message);
            r = open_plain(store, DISKS_COPIES, err);
        }
    }
    if (r == 0)
        sweep(store);
    return r;
}

/* ---- room --------------------------------------------------------------------------------------------- */

uint64_t disk_used(const struct disk_store *store, const char *name)
{
    struct stat st;

    return fstatat(store->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

static uint64_t blocks_used(const struct disk_store *store)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");
    uint64_t sum = 0;

    for (const struct dirent *entry; dir && (entry = dir_next(dir));)
        if (disk_name_any(entry->d_name))
            sum += disk_used(store, entry->d_name);
    return sum;
}

uint64_t disks_host_free(const struct disk_store *store)
{
    struct statvfs fs;

    if (fstatvfs(store->dir_fd, &fs) < 0)
        return 0;
    uint64_t all = (uint64_t)fs.f_blocks * fs.f_frsize, left = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t keep = all / 50 < GIB ? all / 50 : GIB; /* of the host's disk, for everybody else */
    return left > keep ? left - keep : 0;
}

int disks_room(const struct disk_store *store, struct disk_room *ret, struct brig_err *err)
{
    struct statvfs fs;

    if (store->kind != DISKS_POOL) {
        uint64_t used = blocks_used(store), left = disks_host_free(store);
        uint64_t max = store->max ? store->max : (used + left) / 2 > GIB ? (used + left) / 2 : GIB;
        uint64_t most = used + left < max ? used + left : max;
        *ret = (struct disk_room){.used = used, .room = most, .most = most};
        return 0;
    }
    if (fstatvfs(store->fd, &fs) < 0)
        return err_host(err, "pool of disks");
    uint64_t size = (uint64_t)fs.f_blocks * fs.f_frsize, reserve = size / 32 + 16 * MIB;
    ret->used = size - (uint64_t)fs.f_bfree * fs.f_frsize;
    ret->room = size > reserve ? size - reserve : 0;
    /* what its own tables and log take grows with it */
    uint64_t most = pool_most(store, size);
    ret->most = most - most / 16;
    if (ret->most < ret->room)
        ret->most = ret->room;
    return 0;
}

/* ---- facts -------------------------------------------------------------------------------------------- */

int disk_write_facts(int fd, uint64_t size, uint64_t inodes)
{
    char text[64];
    int len = snprintf(text, sizeof text, "%llu %llu", (unsigned long long)size, (unsigned long long)inodes);

    return SYS(fsetxattr(fd, FACTS_XATTR, text, (size_t)len, 0)) < 0 ? -errno : 0;
}

/* FIEMAP needs no write access and changes nothing. */
uint64_t disk_own(int fd, uint64_t length)
{
    const size_t size = sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent);
    struct fiemap *map = mem_zalloc(size);
    uint64_t own = 0;
    bool more = map != NULL;

    for (uint64_t at = 0; more && at < length;) {
        *map = (struct fiemap){.fm_start = at, .fm_length = length - at, .fm_extent_count = EXTENTS};
        if (ioctl(fd, FS_IOC_FIEMAP, map) < 0 || map->fm_mapped_extents == 0)
            break;
        for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
            const struct fiemap_extent *extent = &map->fm_extents[i];
            if (!(extent->fe_flags & (FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN)))
                own += extent->fe_length;
            at = extent->fe_logical + extent->fe_length;
            more = !(extent->fe_flags & FIEMAP_EXTENT_LAST);
        }
    }
    mem_free(map);
    return own;
}

uint64_t disk_extents(int fd)
{
    struct fsxattr attr = {0};

    return ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0 ? 0 : attr.fsx_nextents;
}

int disk_read_facts(int fd, const char *name, struct disk_facts *ret, struct brig_err *err)
{
    char text[64];
    uint64_t values[2];
    struct stat st;
    ssize_t n = fgetxattr(fd, FACTS_XATTR, text, sizeof text - 1);

    if (n < 0 || fstat(fd, &st) < 0)
        return err_host(err, "disk %s", name);
    text[n] = '\0';
    if (parse_fields(text, values, 2) != 2 || !S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_HOST, EINVAL, "disk %s: not one of ours", name);
    *ret = (struct disk_facts){.size = values[0],
                               .inodes = values[1],
                               .bytes = (uint64_t)st.st_size,
                               .used = (uint64_t)st.st_blocks * 512,
                               .extents = disk_extents(fd)};
    return str_copy(ret->name, sizeof ret->name, name) < 0 ? err_usage(err, "disk %s: not the name of one", name) : 0;
}

int disk_open(const struct disk_store *store, const char *name, bool read_only, struct brig_err *err)
{
    int fd = SYS(openat(store->fd, name, (read_only ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC));

    if (fd >= 0)
        return fd;
    return errno == ENOENT ? err_set(err, BRIG_E_NOT_FOUND, 0, "disk %s: not there", name)
                           : err_host(err, "disk %s", name);
}

/* They are written to meanwhile, so what is used counts as it was before or as it is after, whichever is more. */
int disks_measure(const struct disk_store *store, struct buf *out, uint64_t *ret_used, struct brig_err *err)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");
    struct disk_room before = {0}, after = {0};
    int r = dir ? disks_room(store, &before, err) : err_host(err, "directory of disks");

    for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));) {
        struct disk_facts facts;
        if (!disk_name_any(entry->d_name))
            continue;
        AUTO_FD int fd = disk_open(store, entry->d_name, true, NULL);
        if (fd < 0 || disk_read_facts(fd, entry->d_name, &facts, NULL) < 0)
            continue; /* it was removed meanwhile, or is none */
        facts.own = disk_own(fd, facts.bytes);
        if (buf_append(out, &facts, sizeof facts) < 0)
            r = err_set(err, BRIG_E_TOO_LARGE, ENOMEM, "disks: too many to list");
    }
    if (r == 0)
        r = disks_room(store, &after, err);
    *ret_used = before.used > after.used ? before.used : after.used;
    return r;
}
