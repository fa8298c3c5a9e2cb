/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_files.c: makes, copies and removes disks. What is made has a temporary name until it is complete and, if it is
 * to last, on the disk; then it gets its own name by one rename. So a crash leaves a disk whole or not at all.
 *
 * The copy of a live store is of one moment, and its programs stand still for it:
 *
 *     write back what is dirty, beside the running programs, so that little is left to do
 *     freeze the cgroup; write back the rest; empty the journal; write the file's own pages; share its blocks; thaw
 *
 * The file system itself is not frozen: that takes 24 ms even if nothing is to be written, and somebody who dies on the
 * way would leave writers that nobody can kill. FICLONE first writes all dirty pages of the file, which is why they are
 * written before. It takes about 30 us for each extent, whatever the size.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/holes.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/cgroup.h"
#include "host/disk_parts.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

#define MIB (UINT64_C(1) << 20)
#define COPY_PIECE (4u << 20)
#define COW_PIECE 4096u
#define GOLDEN "golden"
#define GOLDENS_MAX 64u
#define GOLDEN_MAKER GOLDEN "-%d" /* the name of an empty one while the process of this number makes it */
#define FREEZE_PATIENCE_NS (5 * NS_PER_SEC)
#define FREEZE_PAUSE_NS (NS_PER_MS / 10)
#define WRITE_PAGES (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)
#define EXT4_IOC_CHECKPOINT _IOW('f', 43, uint32_t)
/* The superblock of ext4 and some of its fields. */
#define SUPER 1024
#define SUPER_RESERVED (SUPER + 0x08)
#define SUPER_STATE (SUPER + 0x3a)
#define SUPER_INCOMPAT (SUPER + 0x60)
#define STATE_VALID 1u
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

static int failed(int r, const char *name, struct brig_err *err)
{
    return err_set(err, r == -ENOSPC ? BRIG_E_LIMIT : BRIG_E_HOST, -r, "disk %s", name);
}

/* The name until it is complete. Only one process makes a disk of a name. */
static int make_temporary(const struct disk_store *store, const char *of, char name[DISK_NAME + 8],
                          struct brig_err *err)
{
    if (str_format(name, DISK_NAME + 8, TMP_PREFIX "%s", of) < 0)
        return err_usage(err, "disk %s: not the name of one", of);
    (void)!unlinkat(store->fd, name, 0);
    int fd = SYS(openat(store->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    return fd < 0 ? failed(-errno, of, err) : fd;
}

/* Mounts the file system in a file. Returns a descriptor, with which the mount ends. */
static int mount_file(const struct host *host, int fd, const char *name, struct brig_err *err)
{
    struct image image = IMAGE_INIT;
    int r = image_attach(host, fd, false, &image, err);

    if (r < 0)
        return r;
    const struct mount_option options[] = {{"source", image.node}, {"noinit_itable", NULL}};
    int mount = mount_make("ext4", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
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
    AUTO_FD int mount = mount_file(host, fd, name, err);

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
static int open_golden(const struct host *host, const struct disk_store *store, uint64_t size, uint64_t inodes,
                       bool volume, struct brig_err *err)
{
    char name[64], temporary[DISK_NAME + 8];
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
    AUTO_FD int made = make_temporary(store, maker, temporary, err);
    if (made < 0)
        return made;
    int r = SYS(ftruncate(made, (off_t)(shape.blocks * IMAGE_BLOCK))) < 0 ? failed(-errno, name, err)
                                                                          : helper_mkfs(host, made, &shape, err);
    if (r == 0 && volume)
        r = reserve_rest(host, made, size, name, err);
    if (r == 0 && (SYS(fsync(made)) < 0 || SYS(renameat(store->fd, temporary, store->fd, name)) < 0))
        r = failed(-errno, name, err);
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
            ssize_t n = SYS(copy_file_range(from, &in, to, &out, left < COPY_PIECE ? left : COPY_PIECE, 0));
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
            if (teller)
                teller->tell(teller->ctx, (uint64_t)in, length);
        }
    }
    return 0;
}

static int share_or_copy(const struct disk_store *store, int from, int to, uint64_t length,
                         const struct disk_teller *teller)
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
                           : failed(-errno, name, err);
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

static int finish(const struct disk_store *store, int fd, const char *temporary, const char *name, uint64_t size,
                  uint64_t inodes, bool lasting, struct disk_facts *ret, struct brig_err *err)
{
    int r = disk_write_facts(fd, size, inodes);

    take_little(fd);
    if (r == 0 && lasting && SYS(fsync(fd)) < 0)
        r = -errno;
    r = r < 0 ? failed(r, name, err) : give_name(store, temporary, name, err);
    if (r == 0 && lasting && SYS(fsync(store->fd)) < 0)
        r = failed(-errno, name, err);
    return r < 0 ? r : new_facts(store, fd, name, ret, err);
}

int disk_make(const struct host *host, const struct disk_store *store, const char *name, uint64_t size, uint64_t inodes,
              bool lasting, struct disk_facts *ret, struct brig_err *err)
{
    char temporary[DISK_NAME + 8];
    AUTO_FD int golden = open_golden(host, store, size, inodes, lasting, err);

    if (golden < 0)
        return golden;
    AUTO_FD int fd = make_temporary(store, name, temporary, err);
    if (fd < 0)
        return fd;
    int r = share_or_copy(store, golden, fd, disk_bytes(size, inodes), NULL);
    r = r < 0 ? failed(r, name, err) : finish(store, fd, temporary, name, size, inodes, lasting, ret, err);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
}

int disk_copy(const struct disk_store *store, const char *name, const char *from, const struct disk_teller *teller,
              struct disk_made *ret, struct brig_err *err)
{
    char temporary[DISK_NAME + 8];
    struct disk_facts facts;
    AUTO_FD int source = disk_open(store, from, true, err);
    int r = source < 0 ? source : disk_read_facts(source, from, &facts, err);

    if (r == 0 && disk_is_writable(from))
        r = disk_wait_free(source, false, err);
    if (r < 0)
        return r;
    AUTO_FD int fd = make_temporary(store, name, temporary, err);
    if (fd < 0)
        return fd;
    ret->shared = disk_is_writable(from) ? disk_own(source, facts.bytes) : 0;
    r = share_or_copy(store, source, fd, facts.bytes, teller);
    r = r < 0 ? failed(r, name, err)
              : finish(store, fd, temporary, name, facts.size, facts.inodes, false, &ret->facts, err);
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
    char temporary[DISK_NAME + 8];

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
        return failed(-errno, name, err);
    return 0;
}

/* ---- live ones ---------------------------------------------------------------------------------------- */

static int freeze(const struct cg *cg, struct brig_err *err)
{
    struct timespec pause = {.tv_nsec = FREEZE_PAUSE_NS};
    uint64_t until = clock_mono_ns() + FREEZE_PATIENCE_NS;
    int r = cg_freeze(cg, true);

    if (r < 0)
        return err_set(err, r == -EOPNOTSUPP ? BRIG_E_UNSUPPORTED : BRIG_E_HOST, -r,
                       "freeze: no cgroup of this user can");
    while (!cg_is_frozen(cg)) {
        if (clock_mono_ns() > until)
            return err_set(err, BRIG_E_BUSY, ETIMEDOUT, "freeze: a process does not come out of the kernel");
        nanosleep(&pause, NULL);
    }
    return 0;
}

/*
 * Everything of the mounted file system is in its file, and the journal is empty. The file's pages are written, so that
 * FICLONE does not do it in small pieces; but its log is not forced and the host's disk is not flushed. If the copy is
 * to last, its own fsync does both, for all that was written before it.
 */
static int write_back(int root, int file, bool last)
{
    uint32_t flags = 0;

    if (SYS(syncfs(root)) < 0)
        return -errno;
    /* without it the journal is replayed when the copy is mounted: slower, and as good */
    if (last)
        (void)!ioctl(root, EXT4_IOC_CHECKPOINT, &flags);
    return file >= 0 && SYS(sync_file_range(file, 0, 0, WRITE_PAGES)) < 0 ? -errno : 0;
}

/* Reads a device that has no name, past the page cache of the device, which knows nothing of the file's pages. */
static int copy_device(const char *node, int to, uint64_t *ret_length, const struct disk_teller *teller)
{
    AUTO_FD int from = SYS(open(node, O_RDONLY | O_DIRECT | O_CLOEXEC));
    uint64_t length = 0, at = 0;
    void *piece = NULL;
    int r = from < 0 || ioctl(from, BLKGETSIZE64, &length) < 0 ? -errno : 0;

    if (r == 0 && posix_memalign(&piece, IMAGE_BLOCK, COPY_PIECE) != 0)
        r = -ENOMEM;
    if (r == 0 && SYS(ftruncate(to, (off_t)length)) < 0)
        r = -errno;
    while (r == 0 && at < length) {
        ssize_t n = SYS(pread(from, piece, COPY_PIECE, (off_t)at));
        if (n <= 0)
            r = n < 0 ? -errno : -EIO;
        for (ssize_t i = 0; r == 0 && i < n;) {
            bool zero;
            size_t run = hole_run((const uint8_t *)piece + i, (size_t)(n - i), at + (uint64_t)i, &zero);
            if (!zero && SYS(pwrite(to, (const uint8_t *)piece + i, run, (off_t)at + i)) != (ssize_t)run)
                r = errno ? -errno : -EIO;
            i += (ssize_t)run;
        }
        at += n > 0 ? (uint64_t)n : 0;
        if (r == 0)
            teller->tell(teller->ctx, at, length);
    }
    free(piece);
    *ret_length = length;
    return r;
}

/* A file system without a journal is marked as in use while it is mounted, and the mark is in the copy. */
static int mark_clean(int fd)
{
    uint16_t state;

    if (pread(fd, &state, sizeof state, SUPER_STATE) != (ssize_t)sizeof state)
        return -EIO;
    state |= STATE_VALID;
    return SYS(pwrite(fd, &state, sizeof state, SUPER_STATE)) == (ssize_t)sizeof state ? 0 : -EIO;
}

static int copy_frozen(const struct disk_store *store, const struct disk_snap *snap, int root, int source, int to,
                       const struct disk_teller *teller, uint64_t *ret_shared)
{
    uint64_t length = 0;
    struct stat st;
    int r = write_back(root, source, true);

    if (r < 0)
        return r;
    if (source < 0) {
        r = copy_device(snap->device, to, &length, teller);
        return r < 0 ? r : mark_clean(to);
    }
    if (fstat(source, &st) < 0)
        return -errno;
    /* Those of many extents are not counted while programs stand still: all of them may have been its own. */
    uint64_t used = (uint64_t)st.st_blocks * 512;
    *ret_shared = disk_extents(source) > DISK_EXTENTS_MAX ? used : disk_own(source, (uint64_t)st.st_size);
    return share_or_copy(store, source, to, (uint64_t)st.st_size, teller);
}

int disk_snap(const struct disk_store *store, const struct disk_snap *snap, const struct disk_teller *teller,
              struct disk_made *ret, struct brig_err *err)
{
    char temporary[DISK_NAME + 8];
    struct disk_facts facts = {.size = snap->size, .inodes = snap->inodes};
    AUTO_FD int root = SYS(openat(snap->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root < 0)
        return err_host(err, "store of the sandbox");
    AUTO_FD int source = snap->from ? disk_open(store, snap->from, true, err) : -1;
    if (snap->from && (source < 0 || disk_read_facts(source, snap->from, &facts, err) < 0))
        return -EIO;
    AUTO_FD int fd = make_temporary(store, snap->name, temporary, err);
    if (fd < 0)
        return fd;
    int copied = write_back(root, source, false);
    int r = copied == 0 ? freeze(snap->cg, err) : 0;
    if (r == 0 && copied == 0)
        copied = copy_frozen(store, snap, root, source, fd, teller, &ret->shared);
    if (!snap->stays_frozen)
        (void)!cg_freeze(snap->cg, false); /* also if it was frozen by half */
    if (r == 0 && copied < 0)
        r = failed(copied, snap->name, err);
    if (r == 0)
        r = finish(store, fd, temporary, snap->name, facts.size, facts.inodes, snap->lasting, &ret->facts, err);
    if (r == 0 && source < 0)
        ret->facts.own = disk_own(fd, ret->facts.bytes);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
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
    AUTO_FD int mount = writable < 0 ? writable : mount_file(host, writable, name, err);
    r = mount < 0 ? mount : 0;
    base_close_fd(&mount);
    base_close_fd(&writable);
    return r < 0 ? r : disk_wait_free(fd, false, err);
}
