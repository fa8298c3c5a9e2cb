/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_write.c: WRITE.
 *
 * An atomic write goes into a file without a name (O_TMPFILE), which nobody sees and nobody has to clean up, however
 * the worker ends. At EOF it gets its name: at once when there is none to replace, else a temporary one
 * (.brig-XXXXXXXX, in the same directory) that is renamed over the old. Where a file system has no O_TMPFILE, or the
 * kernel will not link one, the file has the temporary name from the start, and close() removes it. What is renamed or
 * linked has its final mode already. There is no fsync, because nothing promises that a sandbox's disk survives a crash
 * of the machine.
 */
#include <linux/fs.h>

#include "base/holes.h"
#include "guest/files/files_int.h"

#define MODE_BITS 0777u /* no set-id bits */
#define NEW_FILE (O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
#define TEMP_TRIES 16
#define COPY_SIZE 65536u

struct writing {
    struct place place;
    int fd;
    uint32_t flags, mode;
    int64_t offset;            /* -1: at the file's own position */
    bool exists;               /* there was a file to replace */
    char temp[TEMP_NAME_SIZE]; /* the name to remove, or "" */
};

static bool no_tmpfile_link; /* seen to fail: /proc is not there, or the kernel is an old one */

/* ---- temporary files --------------------------------------------------------------------------------- */

void temp_name(char name[TEMP_NAME_SIZE])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    uint64_t random = files_now_ns();

    raw_call3(SYS_getrandom, &random, sizeof(random), 0);
    __builtin_memcpy(name, ".brig-", 6);
    for (int i = 0; i < 8; i++)
        name[6 + i] = digits[random >> (5 * i) & 31];
    name[14] = 0;
}

int temp_create(int dir, uint32_t mode, char name[TEMP_NAME_SIZE])
{
    long fd = -EEXIST;

    for (int i = 0; i < TEMP_TRIES && fd == -EEXIST; i++) {
        temp_name(name);
        fd = raw_call4(SYS_openat, dir, name, O_RDWR | O_CREAT | O_EXCL | NEW_FILE, mode & MODE_BITS);
    }
    if (raw_failed(fd))
        name[0] = 0;
    return (int)fd;
}

int write_all(int fd, const uint8_t *data, size_t len, int64_t offset)
{
    while (len > 0) {
        long n = offset < 0 ? raw_call3(SYS_write, fd, data, len) : raw_call4(SYS_pwrite64, fd, data, len, offset);

        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        data += n;
        len -= (size_t)n;
        if (offset >= 0)
            offset += n;
    }
    return 0;
}

int write_holes(int fd, const uint8_t *data, size_t len)
{
    long at = raw_call3(SYS_lseek, fd, 0, SEEK_CUR);
    int ret = raw_failed(at) ? (int)at : 0;

    while (ret == 0 && len > 0) {
        bool zero;
        size_t n = hole_run(data, len, (uint64_t)at, &zero);

        if (zero) {
            long there = raw_call3(SYS_lseek, fd, n, SEEK_CUR);
            ret = raw_failed(there) ? (int)there : 0;
        } else {
            ret = write_all(fd, data, n, -1);
        }
        at += (long)n;
        data += n;
        len -= n;
    }
    return ret;
}

int end_holes(int fd)
{
    long at = raw_call3(SYS_lseek, fd, 0, SEEK_CUR);

    return raw_failed(at) ? (int)at : (int)raw_call2(SYS_ftruncate, fd, at);
}

/* Gives a file without a name its first. Since Linux 6.10 without /proc. */
static int link_fd(int fd, int dir, const char *name)
{
    char path[32] = "/proc/self/fd/";
    char digits[12];
    size_t len = 14, n = 0;
    long ret = raw_call5(SYS_linkat, fd, "", dir, name, AT_EMPTY_PATH);

    if (ret != -ENOENT && ret != -EPERM && ret != -EINVAL)
        return (int)ret;
    for (int rest = fd; rest > 0 || n == 0; rest /= 10)
        digits[n++] = (char)('0' + rest % 10);
    while (n > 0)
        path[len++] = digits[--n];
    path[len] = 0;
    return (int)raw_call5(SYS_linkat, AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW);
}

/* ---- opening ---------------------------------------------------------------------------------------- */

static int open_temp(struct writing *w)
{
    long fd = -EOPNOTSUPP;

    if (!no_tmpfile_link)
        fd = raw_call4(SYS_openat, w->place.dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, w->mode);
    if (fd == -EOPNOTSUPP || fd == -EISDIR || fd == -ENOENT || fd == -EINVAL)
        fd = temp_create(w->place.dir, w->mode, w->temp);
    return (int)fd;
}

/* In place. Truncated only when it is known to be a file. */
static int open_target(struct writing *w)
{
    int how = O_WRONLY | NEW_FILE | (w->flags & SVC_WRITE_EXCL ? O_CREAT | O_EXCL : O_CREAT);
    long ret, fd;
    struct stat st = {0};

    if (w->flags & SVC_WRITE_APPEND)
        how |= O_APPEND;
    fd = raw_call4(SYS_openat, w->place.dir, w->place.name, how, w->mode);
    if (raw_failed(fd))
        return (int)fd;
    ret = raw_call2(SYS_fstat, fd, &st);
    if (ret == 0 && !S_ISREG(st.st_mode))
        ret = -ENXIO;
    if (ret == 0 && !w->exists)
        ret = raw_call2(SYS_fchmod, fd, w->mode); /* past the umask; it may have been made by another since: not ours */
    if (ret == -EPERM)
        ret = 0;
    if (ret == 0 && !(w->flags & (SVC_WRITE_AT | SVC_WRITE_APPEND)))
        ret = raw_call2(SYS_ftruncate, fd, 0);
    if (ret != 0)
        raw_call1(SYS_close, fd);
    return ret != 0 ? (int)ret : (int)fd;
}

static bool flags_ok(uint32_t flags)
{
    uint32_t way = flags & (SVC_WRITE_ATOMIC | SVC_WRITE_AT | SVC_WRITE_APPEND);

    return (flags & ~0x1fu) == 0 && (way & (way - 1)) == 0;
}

static int write_open(struct call *call, struct svc_reader *in)
{
    struct writing *w = call->state;
    struct svc_path path = svc_get_path(in);
    struct stat st = {0};
    uint64_t offset;
    int ret;

    w->place.dir = w->fd = -1;
    w->flags = svc_get_u32(in);
    w->mode = svc_get_u32(in);
    offset = svc_get_u64(in);
    if (svc_done(in) < 0 || !flags_ok(w->flags) || offset > INT64_MAX)
        return -EINVAL;
    w->mode = (w->mode != 0 ? w->mode : 0644u) & MODE_BITS;
    w->offset = w->flags & SVC_WRITE_AT ? (int64_t)offset : -1;
    ret =
        path_find(&path, path.path, path_follow(&path) | (w->flags & SVC_WRITE_PARENTS ? PATH_PARENTS : 0), &w->place);
    if (ret < 0)
        return ret;
    ret = place_stat(&w->place, &st);
    if (ret == -ENOENT && w->place.must_dir)
        return -EISDIR;
    if (ret != 0 && ret != -ENOENT)
        return ret;
    w->exists = ret == 0;
    if (w->exists && (w->flags & SVC_WRITE_EXCL))
        return -EEXIST;
    if (w->exists && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : S_ISLNK(st.st_mode) ? -ELOOP : -ENXIO;
    if (w->exists)
        w->mode = st.st_mode & MODE_BITS;
    w->fd = w->flags & SVC_WRITE_ATOMIC ? open_temp(w) : open_target(w);
    return w->fd < 0 ? w->fd : CALL_ON;
}

static int write_data(struct call *call, const uint8_t *data, size_t len)
{
    struct writing *w = call->state;
    int ret = w->flags & SVC_WRITE_ATOMIC ? write_holes(w->fd, data, len) : write_all(w->fd, data, len, w->offset);

    if (ret == 0 && w->offset >= 0 && __builtin_add_overflow(w->offset, (int64_t)len, &w->offset))
        return -EFBIG;
    return ret;
}

/* ---- the end ---------------------------------------------------------------------------------------- */

/* Once in a worker's life at most: what could not be linked is copied to a file that has a name. */
static int copy_to_named(struct writing *w)
{
    static uint8_t buffer[COPY_SIZE];
    int64_t at = 0;
    long n;
    int fd = temp_create(w->place.dir, w->mode, w->temp);

    no_tmpfile_link = true;
    if (fd < 0)
        return fd;
    while ((n = raw_call4(SYS_pread64, w->fd, buffer, sizeof(buffer), at)) > 0) {
        int ret = write_holes(fd, buffer, (size_t)n);

        if (ret < 0)
            n = ret;
        if (n < 0)
            break;
        at += n;
    }
    if (n == 0)
        n = end_holes(fd);
    if (n == 0)
        n = raw_call2(SYS_fchmod, fd, w->mode);
    close_fd(&w->fd);
    w->fd = fd;
    return (int)n;
}

/* A first name: its own where nothing has to be replaced (1: that was all), else a temporary one. */
static int name_file(struct writing *w)
{
    int ret = -EEXIST;

    if (!w->exists || (w->flags & SVC_WRITE_EXCL)) {
        ret = link_fd(w->fd, w->place.dir, w->place.name);
        if (ret == 0 || (ret == -EEXIST && (w->flags & SVC_WRITE_EXCL)))
            return ret == 0 ? 1 : ret;
    }
    for (int i = 0; i < TEMP_TRIES && ret == -EEXIST; i++) {
        temp_name(w->temp);
        ret = link_fd(w->fd, w->place.dir, w->temp);
    }
    if (ret == 0)
        return 0;
    w->temp[0] = 0;
    return ret == -ENOSPC || ret == -EDQUOT ? ret : copy_to_named(w);
}

static int publish(struct writing *w)
{
    int dir = w->place.dir;
    long ret = raw_call2(SYS_fchmod, w->fd, w->mode);

    if (ret == 0 && w->temp[0] == 0)
        ret = name_file(w);
    if (ret != 0)
        return ret == 1 ? 0 : (int)ret;
    if (w->flags & SVC_WRITE_EXCL) {
        ret = raw_call5(SYS_renameat2, dir, w->temp, dir, w->place.name, RENAME_NOREPLACE);
        if (ret == -EINVAL) { /* not every file system knows the flag; the temporary name goes in close() */
            ret = raw_call5(SYS_linkat, dir, w->temp, dir, w->place.name, 0);
            return (int)ret;
        }
    } else {
        ret = raw_call4(SYS_renameat, dir, w->temp, dir, w->place.name);
    }
    if (ret == 0)
        w->temp[0] = 0;
    return (int)ret;
}

static int write_eof(struct call *call)
{
    struct writing *w = call->state;
    struct svc_entry entry;
    struct stat st = {0};
    int ret = w->flags & SVC_WRITE_ATOMIC ? end_holes(w->fd) : 0;

    if (ret == 0 && (w->flags & SVC_WRITE_ATOMIC))
        ret = publish(w);
    if (ret == 0)
        ret = (int)raw_call2(SYS_fstat, w->fd, &st);
    if (ret != 0)
        return ret;
    entry = entry_of(&st);
    svc_put_entry(&files_reply, &entry);
    return CALL_DONE;
}

static void write_close(struct call *call)
{
    struct writing *w = call->state;

    if (w->temp[0] != 0)
        raw_call3(SYS_unlinkat, w->place.dir, w->temp, 0);
    close_fd(&w->fd);
    place_done(&w->place);
}

const struct call_ops files_write_ops = {.state_size = sizeof(struct writing),
                                         .open = write_open,
                                         .data = write_data,
                                         .eof = write_eof,
                                         .close = write_close};
