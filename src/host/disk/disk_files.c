/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_files.c: makes, copies and removes disks. What is made has a temporary name until it is complete and, if it is
 * to last, on the disk; then it gets its own name by one rename. So a crash leaves a disk whole or not at all.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/disk/disk_parts.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

#define MIB (UINT64_C(1) << 20)
#define COW_PIECE 4096u
#define GOLDEN "golden"
#define GOLDENS_MAX 64u
#define GOLDEN_MAKER GOLDEN "-%d" /* the name of an empty one while the process of this number makes it */
/* Some fields of the superblock of ext4. */
#define SUPER_RESERVED (DISK_SUPER + 0x08)
#define SUPER_INCOMPAT (DISK_SUPER + 0x60)
#define INCOMPAT_RECOVER 4u

/* ---- empty ones --------------------------------------------------------------------------------------- */

static unsigned journal_mib(uint64_t size)
{
    return size < 256 * MIB ? 4 : 16;
}

/* The journal lies beside what can be written, so that `disk` of a sandbox is the same with and without one. */
static void shape_of(uint64_t size, uint64_t inodes, struct image_shape *ret)
{
    image_shape(size + journal_mib(size) * MIB, inodes, ret);
    ret->journal_mib = journal_mib(size);
}

uint64_t disk_bytes(uint64_t size, uint64_t inodes)
{
    struct image_shape shape;

    shape_of(size, inodes, &shape);
    return shape.blocks * IMAGE_BLOCK;
}

int disk_failed(int r, const char *name, struct brig_err *err)
{
    return err_set(err, r == -ENOSPC ? BRIG_E_LIMIT : BRIG_E_HOST, -r, "disk %s", name);
}

/* The name until it is complete. Only one process makes a disk of a name. */
int disk_temporary(const struct disk_store *store, const char *of, char name[DISK_TMP_NAME], struct brig_err *err)
{
    if (str_format(name, DISK_TMP_NAME, TMP_PREFIX "%s", of) < 0)
        return err_usage(err, "disk %s: not the name of one", of);
    (void)!unlinkat(store->fd, name, 0);
    int fd = SYS(openat(store->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd < 0 ? disk_failed(-errno, of, err) : fd;
}

/* No link of it is ever followed: what is in it may be a sandbox's. */
int disk_mount(const struct host *host, int fd, const char *name, struct brig_err *err)
{
    struct image image = IMAGE_INIT;
    int r = image_attach(host, fd, false, &image, err);

    if (r < 0)
        return r;
    const struct mount_option options[] = {{"source", image.node}, {"noinit_itable", NULL}};
    int mount =
        mount_make("ext4", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSYMFOLLOW);
    image_release(&image);
    return mount < 0 ? err_host(err, "disk %s: mount", name) : mount;
}

/*
 * A volume holds exactly what was asked for. What it has beyond is reserved for the host's root, which nobody inside
 * is. The set-up of a store does the same with a file, but a volume is all the programs'.
 */
static int reserve_rest(const struct host *host, int fd, uint64_t size, const char *name, struct brig_err *err)
{
    struct statfs fs;
    struct stat lost = {0};
    AUTO_FD int mount = disk_mount(host, fd, name, err);

    if (mount < 0)
        return mount;
    /* lost+found goes when the volume is attached for the first time */
    if (SYS(fstatfs(mount, &fs)) < 0 || SYS(fstatat(mount, "lost+found", &lost, AT_SYMLINK_NOFOLLOW)) < 0)
        return err_host(err, "%s", name);
    base_close_fd(&mount);
    int r = disk_wait_free(fd, true, err);
    if (r < 0)
        return r;
    uint64_t want = image_blocks(size), have = (uint64_t)fs.f_bavail + (uint64_t)lost.st_blocks * 512 / IMAGE_BLOCK;
    if (have < want)
        return err_set(err, BRIG_E_HOST, ENOSPC, "%s: too small", name);
    uint32_t rest = (uint32_t)(have - want);
    return SYS(pwrite(fd, &rest, sizeof rest, SUPER_RESERVED)) == (ssize_t)sizeof rest ? 0 : err_host(err, "%s", name);
}

/* Callers choose the sizes, so only the newest are kept. Whoever is about to copy the oldest has it open. */
static void forget_oldest(const struct disk_store *store)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");
    struct timespec first = {0};
    char oldest[64] = "";
    unsigned n = 0;
    struct stat st;

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (!str_starts(entry->d_name, GOLDEN) || fstatat(store->fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        bool older = st.st_mtim.tv_sec < first.tv_sec ||
                     (st.st_mtim.tv_sec == first.tv_sec && st.st_mtim.tv_nsec < first.tv_nsec);
        if ((n++ == 0 || older) && str_copy(oldest, sizeof oldest, entry->d_name) >= 0)
            first = st.st_mtim;
    }
    if (n >= GOLDENS_MAX)
        (void)!unlinkat(store->fd, oldest, 0);
}

/* The empty file system of this size, made on first use. The name tells how it was made: 1, see helper_mkfs(). */
int disk_golden(const struct host *host, const struct disk_store *store, uint64_t size, uint64_t inodes, bool volume,
                struct brig_err *err)
{
    char name[64], temporary[DISK_TMP_NAME];
    struct image_shape shape;

    (void)!str_format(name, sizeof name, GOLDEN "1%s-%llu-%llu", volume ? "v" : "", (unsigned long long)size,
                      (unsigned long long)inodes);
    int fd = openat(store->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? err_host(err, "%s", name) : fd;
    forget_oldest(store);
    shape_of(size, inodes, &shape);
    char maker[24];
    (void)!str_format(maker, sizeof maker, GOLDEN_MAKER, (int)getpid());
    AUTO_FD int made = disk_temporary(store, maker, temporary, err);
    if (made < 0)
        return made;
    int r = SYS(ftruncate(made, (off_t)(shape.blocks * IMAGE_BLOCK))) < 0 ? disk_failed(-errno, name, err)
                                                                          : helper_mkfs(host, made, &shape, err);
    if (r == 0 && volume)
        r = reserve_rest(host, made, size, name, err);
    if (r == 0 && (SYS(fsync(made)) < 0 || SYS(renameat(store->fd, temporary, store->fd, name)) < 0))
        r = disk_failed(-errno, name, err);
    if (r < 0) {
        (void)!unlinkat(store->fd, temporary, 0);
        return r;
    }
    return take_fd(&made);
}

/* ---- copies ------------------------------------------------------------------------------------------- */

/* Copies data and leaves holes. */
static int copy_blocks(int from, int to, uint64_t length, const struct disk_teller *teller)
{
    if (SYS(ftruncate(to, (off_t)length)) < 0)
        return -errno;
    for (off_t at = 0; (uint64_t)at < length;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        at = lseek(from, data, SEEK_HOLE);
        if (at < 0)
            return -errno;
        for (off_t in = data, out = data; in < at;) {
            size_t left = (size_t)(at - in);
            ssize_t n = SYS(copy_file_range(from, &in, to, &out, left < DISK_COPY_PIECE ? left : DISK_COPY_PIECE, 0));
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
            if (teller)
                teller->tell(teller->ctx, (uint64_t)in, length);
        }
    }
    return 0;
}

int disk_share(const struct disk_store *store, int from, int to, uint64_t length, const struct disk_teller *teller)
{
    if (store->kind == DISKS_COPIES)
        return copy_blocks(from, to, length, teller);
    return SYS(ioctl(to, FICLONE, from)) < 0 ? -errno : 0;
}

/*
 * XFS takes 128 KiB at a time when a shared block is written, and counts that as in use for minutes, although little of
 * it is written. It would also take what is left of these pieces when the disk is made tidy, which then stays in
 * pieces. A hint makes it one block. Other file systems do not know the hint.
 */
static void take_little(int fd)
{
    struct fsxattr attr;

    if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
        return;
    attr.fsx_xflags |= FS_XFLAG_COWEXTSIZE;
    attr.fsx_cowextsize = COW_PIECE;
    (void)!ioctl(fd, FS_IOC_FSSETXATTR, &attr);
}

static int give_name(const struct disk_store *store, const char *old, const char *name, struct brig_err *err)
{
    if (SYS(renameat2(store->fd, old, store->fd, name, RENAME_NOREPLACE)) == 0)
        return 0;
    return errno == EEXIST ? err_set(err, BRIG_E_CONFLICT, 0, "disk %s: it is there already", name)
                           : disk_failed(-errno, name, err);
}

/* All of it is shared, which is not counted extent by extent, unless nothing ever is. */
static int new_facts(const struct disk_store *store, int fd, const char *name, struct disk_facts *ret,
                     struct brig_err *err)
{
    int r = disk_read_facts(fd, name, ret, err);

    if (r == 0 && store->kind == DISKS_COPIES)
        ret->own = disk_own(fd, ret->bytes);
    return r;
}

int disk_finish(const struct disk_store *store, int fd, const char *temporary, const char *name, uint64_t size,
                uint64_t inodes, bool lasting, struct disk_facts *ret, struct brig_err *err)
{
    int r = disk_write_facts(fd, size, inodes);

    take_little(fd);
    if (r == 0 && lasting && SYS(fsync(fd)) < 0)
        r = -errno;
    r = r < 0 ? disk_failed(r, name, err) : give_name(store, temporary, name, err);
    if (r == 0 && lasting && SYS(fsync(store->fd)) < 0)
        r = disk_failed(-errno, name, err);
    return r < 0 ? r : new_facts(store, fd, name, ret, err);
}

int disk_make(const struct host *host, const struct disk_store *store, const char *name, uint64_t size, uint64_t inodes,
              bool lasting, struct disk_facts *ret, struct brig_err *err)
{
    char temporary[DISK_TMP_NAME];
    AUTO_FD int golden = disk_golden(host, store, size, inodes, lasting, err);

    if (golden < 0)
        return golden;
    AUTO_FD int fd = disk_temporary(store, name, temporary, err);
    if (fd < 0)
        return fd;
    int r = disk_share(store, golden, fd, disk_bytes(size, inodes), NULL);
    r = r < 0 ? disk_failed(r, name, err) : disk_finish(store, fd, temporary, name, size, inodes, lasting, ret, err);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
}

int disk_copy(const struct disk_store *store, const char *name, const char *from, const struct disk_teller *teller,
              struct disk_made *ret, struct brig_err *err)
{
    char temporary[DISK_TMP_NAME];
    struct disk_facts facts;
    AUTO_FD int source = disk_open(store, from, true, err);
    int r = source < 0 ? source : disk_read_facts(source, from, &facts, err);

    if (r == 0 && disk_is_writable(from))
        r = disk_wait_free(source, false, err);
    if (r < 0)
        return r;
    AUTO_FD int fd = disk_temporary(store, name, temporary, err);
    if (fd < 0)
        return fd;
    ret->shared = disk_is_writable(from) ? disk_own(source, facts.bytes) : 0;
    r = disk_share(store, source, fd, facts.bytes, teller);
    r = r < 0 ? disk_failed(r, name, err)
              : disk_finish(store, fd, temporary, name, facts.size, facts.inodes, false, &ret->facts, err);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
}

int disk_take(const struct disk_store *store, const char *name, const char *from, struct disk_made *ret,
              struct brig_err *err)
{
    AUTO_FD int fd = disk_open(store, from, true, err);

    if (fd < 0)
        return fd;
    int r = give_name(store, from, name, err);
    return r < 0 ? r : new_facts(store, fd, name, &ret->facts, err);
}

void disk_remove_half(const struct disk_store *store, const char *name, pid_t maker)
{
    char temporary[DISK_TMP_NAME];

    if (str_format(temporary, sizeof temporary, TMP_PREFIX "%s", name) >= 0)
        (void)!unlinkat(store->fd, temporary, 0);
    if (str_format(temporary, sizeof temporary, TMP_PREFIX GOLDEN_MAKER, (int)maker) >= 0)
        (void)!unlinkat(store->fd, temporary, 0);
    (void)!unlinkat(store->fd, name, 0); /* it may have died after it had given it its name */
}

/*
 * The space of one whose mount is on its way out is promised to it until then, so it keeps its name. BRIG_E_BUSY if
 * that takes too long.
 */
int disk_remove(const struct disk_store *store, const char *name, struct brig_err *err)
{
    struct brig_err why = {.code = BRIG_E_NONE};
    AUTO_FD int fd = disk_open(store, name, true, err);

    if (fd < 0)
        return fd;
    if (disk_wait_free(fd, false, &why) < 0 && why.code == BRIG_E_BUSY)
        return err_set(err, BRIG_E_BUSY, EBUSY, "disk %s: %s", name, why.message);
    /* the disk of a sandbox that a power failure brings back is removed at the next start */
    if (SYS(unlinkat(store->fd, name, 0)) < 0 || (!disk_name_ok(name, DISK_PRE_BOX) && SYS(fsync(store->fd)) < 0))
        return disk_failed(-errno, name, err);
    return 0;
}

/* ---- before it is attached ---------------------------------------------------------------------------- */

static bool needs_recovery(int fd)
{
    uint32_t features = 0;

    return pread(fd, &features, sizeof features, SUPER_INCOMPAT) == (ssize_t)sizeof features &&
           (features & INCOMPAT_RECOVER);
}

int disk_prepare(const struct host *host, const struct disk_store *store, const char *name, bool read_only,
                 struct brig_err *err)
{
    AUTO_FD int fd = disk_open(store, name, read_only, err);
    if (fd < 0)
        return fd;
    /* Several sandboxes that only read it may begin at once, and one mount at a time may replay the journal. */
    if (read_only && SYS(flock(fd, LOCK_EX)) < 0)
        return err_host(err, "disk %s: lock", name);
    int r = disk_wait_free(fd, !read_only, err);

    if (r < 0 || !read_only || !needs_recovery(fd))
        return r;
    AUTO_FD int writable = disk_open(store, name, false, err);
    /* those who only read cannot replay the journal */
    AUTO_FD int mount = writable < 0 ? writable : disk_mount(host, writable, name, err);
    r = mount < 0 ? mount : 0;
    base_close_fd(&mount);
    base_close_fd(&writable);
    return r < 0 ? r : disk_wait_free(fd, false, err);
}
