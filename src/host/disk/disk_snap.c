/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_snap.c: makes a disk of the store of a live sandbox.
 *
 * The copy of a live store is of one moment, and its programs stand still for it:
 *
 *     write back what is dirty, beside the running programs, so that little is left to do
 *     freeze the cgroup; write back the rest; empty the journal; write the file's own pages; share its blocks; thaw
 *
 * The file system itself is not frozen: that takes 24 ms even if nothing is to be written, and somebody who dies on the
 * way would leave writers that nobody can kill. FICLONE first writes all dirty pages of the file, which is why they are
 * written before. It takes about 30 us for each extent, whatever the size.
 *
 * A store that is memory has no blocks to share. An empty disk is made and mounted before the programs stand still;
 * then every file is copied (disk_tree.c), and they go on.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/holes.h"
#include "base/mem.h"
#include "host/cgroup.h"
#include "host/disk/disk_parts.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

#define FREEZE_PATIENCE_NS (5 * NS_PER_SEC)
#define FREEZE_PAUSE_NS (NS_PER_MS / 10)
#define WRITE_PAGES (SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER)
#define EXT4_IOC_CHECKPOINT _IOW('f', 43, uint32_t)
#define SUPER_STATE (DISK_SUPER + 0x3a)
#define STATE_VALID 1u

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

/* Also if it was frozen by half. */
static void thaw(const struct disk_snap *snap)
{
    if (!snap->stays_frozen)
        (void)!cg_freeze(snap->cg, false);
}

/* ---- blocks ---------------------------------------------------------------------------------------------- */

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

    if (r == 0 && posix_memalign(&piece, IMAGE_BLOCK, DISK_COPY_PIECE) != 0)
        r = -ENOMEM;
    if (r == 0 && SYS(ftruncate(to, (off_t)length)) < 0)
        r = -errno;
    while (r == 0 && at < length) {
        ssize_t n = SYS(pread(from, piece, DISK_COPY_PIECE, (off_t)at));
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
    return disk_share(store, source, to, (uint64_t)st.st_size, teller);
}

static int snap_blocks(const struct disk_store *store, const struct disk_snap *snap, const struct disk_teller *teller,
                       struct disk_made *ret, struct brig_err *err)
{
    char temporary[DISK_TMP_NAME];
    struct disk_facts facts = {.size = snap->size, .inodes = snap->inodes};
    AUTO_FD int root = SYS(openat(snap->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root < 0)
        return err_host(err, "store of the sandbox");
    AUTO_FD int source = snap->from ? disk_open(store, snap->from, true, err) : -1;
    if (snap->from && (source < 0 || disk_read_facts(source, snap->from, &facts, err) < 0))
        return -EIO;
    AUTO_FD int fd = disk_temporary(store, snap->name, temporary, err);
    if (fd < 0)
        return fd;
    int copied = write_back(root, source, false);
    int r = copied == 0 ? freeze(snap->cg, err) : 0;
    if (r == 0 && copied == 0)
        copied = copy_frozen(store, snap, root, source, fd, teller, &ret->shared);
    thaw(snap);
    if (r == 0 && copied < 0)
        r = disk_failed(copied, snap->name, err);
    if (r == 0)
        r = disk_finish(store, fd, temporary, snap->name, facts.size, facts.inodes, snap->lasting, &ret->facts, err);
    if (r == 0 && source < 0)
        ret->facts.own = disk_own(fd, ret->facts.bytes);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Copies the files, and ends the mount of the disk, which writes it. */
static int fill(const struct host *host, const struct disk_snap *snap, int fd, const struct disk_teller *teller,
                struct brig_err *err)
{
    AUTO_FD int root = SYS(openat(snap->mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root < 0)
        return err_host(err, "store of the sandbox");
    AUTO_FD int mount = disk_mount(host, fd, snap->name, err);
    if (mount < 0)
        return mount;
    const struct disk_tree tree = {
        .name = snap->name, .from = root, .to = mount, .first_id = snap->first_id, .size = snap->size};
    int r = freeze(snap->cg, err);

    if (r == 0)
        r = disk_copy_tree(&tree, teller, err);
    thaw(snap);
    base_close_fd(&mount);
    int left = disk_wait_free(fd, true, r < 0 ? NULL : err);
    return r < 0 ? r : left;
}

static int snap_memory(const struct host *host, const struct disk_store *store, const struct disk_snap *snap,
                       const struct disk_teller *teller, struct disk_made *ret, struct brig_err *err)
{
    char temporary[DISK_TMP_NAME];
    AUTO_FD int golden = disk_golden(host, store, snap->size, snap->inodes, false, err);

    if (golden < 0)
        return golden;
    AUTO_FD int fd = disk_temporary(store, snap->name, temporary, err);
    if (fd < 0)
        return fd;
    int r = disk_share(store, golden, fd, disk_bytes(snap->size, snap->inodes), NULL);
    r = r < 0 ? disk_failed(r, snap->name, err) : fill(host, snap, fd, teller, err);
    if (r == 0)
        r = disk_finish(store, fd, temporary, snap->name, snap->size, snap->inodes, snap->lasting, &ret->facts, err);
    if (r == 0)
        ret->facts.own = disk_own(fd, ret->facts.bytes);
    if (r < 0)
        (void)!unlinkat(store->fd, temporary, 0);
    return r;
}

int disk_snap(const struct host *host, const struct disk_store *store, const struct disk_snap *snap,
              const struct disk_teller *teller, struct disk_made *ret, struct brig_err *err)
{
    return snap->memory ? snap_memory(host, store, snap, teller, ret, err) : snap_blocks(store, snap, teller, ret, err);
}
