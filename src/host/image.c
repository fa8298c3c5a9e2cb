/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c: makes stores that are not memory: an ext4 file system in a sparse file behind a loop device.
 *
 * mkfs runs once per (size, inodes) and its result is kept in the cache directory. A sandbox gets a copy of its few
 * data blocks (0.1 ms) in an unnamed file, so that nothing has to be cleaned: when the sandbox's mount is gone, the
 * loop device clears itself and the file is deleted with it, also after a crash. Images are never reused.
 */
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

#define LOOP_TRIES 64

bool image_possible(const struct host *host)
{
    return host->privileged && host->loop_control_fd >= 0 && host->state_fd >= 0 && host->cache_fd >= 0;
}

/* The prepared file system of this size, made on first use. The name tells how it was made: 3, see helper_mkfs(). */
static int open_golden(const struct host *host, uint64_t disk, uint64_t inodes, struct brig_err *err)
{
    char name[64], temporary[96];
    struct image_shape shape;

    image_shape(disk, inodes, &shape);
    snprintf(name, sizeof name, "store3-%llu-%llu.ext4", (unsigned long long)disk, (unsigned long long)inodes);
    int fd = openat(host->cache_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 || errno != ENOENT)
        return fd < 0 ? err_host(err, "%s", name) : fd;
    snprintf(temporary, sizeof temporary, ".%s.%d", name, (int)getpid());
    AUTO_FD int made = openat(host->cache_fd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made < 0)
        return err_host(err, "%s", temporary);
    int r = ftruncate(made, (off_t)(shape.blocks * IMAGE_BLOCK)) < 0 ? err_host(err, "%s", temporary)
                                                                     : helper_mkfs(host, made, &shape, err);
    if (r == 0 && renameat(host->cache_fd, temporary, host->cache_fd, name) < 0)
        r = err_host(err, "%s", name);
    if (r < 0) {
        unlinkat(host->cache_fd, temporary, 0);
        return r;
    }
    return take_fd(&made);
}

/* As copy_file_range(), also where the two file systems are of different kinds: since Linux 5.19 that is EXDEV. */
static ssize_t copy_piece(int from, off_t *in, int to, off_t *out, size_t len)
{
    char piece[16384];
    ssize_t n = SYS(copy_file_range(from, in, to, out, len, 0));

    if (n >= 0 || errno != EXDEV)
        return n;
    n = SYS(pread(from, piece, len < sizeof piece ? len : sizeof piece, *in));
    if (n > 0)
        n = SYS(pwrite(to, piece, (size_t)n, *out));
    *in += n > 0 ? n : 0;
    *out += n > 0 ? n : 0;
    return n;
}

/* Copies data, leaves holes. */
static int copy_sparse(int from, int to)
{
    struct stat st;

    if (fstat(from, &st) < 0 || SYS(ftruncate(to, st.st_size)) < 0)
        return -1;
    for (off_t at = 0;;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -1;
        at = lseek(from, data, SEEK_HOLE);
        if (at < 0)
            return -1;
        for (off_t in = data, out = data; in < at;)
            if (copy_piece(from, &in, to, &out, (size_t)(at - in)) <= 0)
                return -1;
    }
}

static int open_copy(const struct host *host, int golden, struct brig_err *err)
{
    AUTO_FD int fd = SYS(openat(host->state_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));

    if (fd < 0 || copy_sparse(golden, fd) < 0)
        return err_host(err, "store image");
    return take_fd(&fd);
}

/* Another program may take the device between GET_FREE and CONFIGURE: EBUSY, try the next. */
int image_attach(const struct host *host, int file, bool read_only, struct image *image, struct brig_err *err)
{
    for (int tries = 0; tries < LOOP_TRIES; tries++) {
        struct loop_config config = {
            .fd = (uint32_t)file,
            .block_size = 4096,
            .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? (uint32_t)LO_FLAGS_READ_ONLY : 0)}};
        int number = SYS(ioctl(host->loop_control_fd, LOOP_CTL_GET_FREE));
        if (number < 0)
            return err_host(err, "free loop device");
        snprintf(image->device, sizeof image->device, "7:%d", number);
        snprintf(image->node, sizeof image->node, "/l/%d", number);
        if (SYS(mknod(image->node, S_IFBLK | 0600, makedev(7, (unsigned)number))) < 0 && errno != EEXIST)
            return err_host(err, "node of loop device %d", number);
        AUTO_FD int fd = SYS(open(image->node, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC));
        if (fd < 0)
            return err_host(err, "loop device %d", number);
        if (SYS(ioctl(fd, LOOP_CONFIGURE, &config)) == 0) {
            image->loop_fd = take_fd(&fd);
            return 0;
        }
        if (errno != EBUSY)
            return err_host(err, "configure loop device %d", number);
    }
    return err_set(err, BRIG_E_HOST, EBUSY, "no free loop device");
}

int image_take(const struct host *host, uint64_t disk, uint64_t inodes, struct image *ret, struct brig_err *err)
{
    struct image image = IMAGE_INIT;
    AUTO_FD int golden = open_golden(host, disk, inodes, err);

    if (golden < 0)
        return golden;
    AUTO_FD int file = open_copy(host, golden, err);
    if (file < 0)
        return file;
    int r = image_attach(host, file, false, &image, err);
    if (r == 0)
        *ret = image;
    return r;
}

void image_release(struct image *image)
{
    base_close_fd(&image->loop_fd);
}
