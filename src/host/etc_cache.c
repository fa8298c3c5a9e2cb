/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etc_cache.c: keeps the /etc that etc_template.c makes. A run opens it with one call; making it takes milliseconds.
 *
 *     etc-0123456789abcdef      complete. The name is a hash of what it was made from (etc_template_stamp());
 *                               it never changes once it has that name.
 *     etc-tmp-0123456789abcdef  being made or being removed; random name.
 *
 * A template gets its name by rename(2), so it is there whole or not at all; a loser of a race uses the winner's. A
 * process that uses or builds a directory holds flock(LOCK_SH) on it; the remover needs LOCK_EX. Between open and flock
 * the remover may have been faster, so after locking the name must still mean the same directory. Nothing is synced to
 * disk: after a crash the boot id differs, and with it the name.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/str.h"
#include "host/dirs.h"
#include "host/etc_template.h"

#define NAME_SIZE 40u
#define MAX_RACES 16

static int current_name(int host_fd, char name[NAME_SIZE], struct brig_err *err)
{
    int r = str_format(name, NAME_SIZE, "etc-%016llx", (unsigned long long)etc_template_stamp(host_fd));

    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "/etc template: name") : 0;
}

static int temporary_name(char name[NAME_SIZE])
{
    uint64_t number;

    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return -EIO;
    int r = str_format(name, NAME_SIZE, "etc-tmp-%016llx", (unsigned long long)number);
    return r < 0 ? r : 0;
}

/*
 * Opens a directory of the cache and locks it. -ENOENT: it is not there, or its lock says that it is being removed
 * (shared) or used (exclusive). Where the file system has no locks, a shared lock is granted and an exclusive one is
 * not.
 */
static int open_locked(int cache_fd, const char *name, int operation)
{
    struct stat mine, named;
    AUTO_FD int fd = openat(cache_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (flock(fd, operation | LOCK_NB) < 0 && (errno == EWOULDBLOCK || operation == LOCK_EX))
        return -ENOENT;
    if (fstat(fd, &mine) < 0 || fstatat(cache_fd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev)
        return -ENOENT;
    return take_fd(&fd);
}

/* dir_fd is what `name` means, locked. The name goes first: half of a template must not be found under it. */
static void remove_template(int cache_fd, int dir_fd, const char *name)
{
    char tmp[NAME_SIZE];

    if (temporary_name(tmp) < 0 || renameat(cache_fd, name, cache_fd, tmp) < 0)
        return;
    dirs_remove_content(dir_fd, ETC_TEMPLATE_DEPTH + 4);
    unlinkat(cache_fd, tmp, AT_REMOVEDIR);
}

static bool is_template_name(const char *name)
{
    if (!str_starts(name, "etc-"))
        return false;
    name += str_starts(name, "etc-tmp-") ? 8 : 4;
    return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

/* All other templates that nobody uses, and what builders that died left behind. */
static void remove_old(int cache_fd, const char *keep)
{
    AUTO_DIR DIR *dir = dir_open(cache_fd, ".");

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (!is_template_name(entry->d_name) || str_eq(entry->d_name, keep))
            continue;
        AUTO_FD int old = open_locked(cache_fd, entry->d_name, LOCK_EX);
        if (old >= 0)
            remove_template(cache_fd, old, entry->d_name);
    }
}

/* A new, empty directory under a temporary name, locked. */
static int make_temporary(int cache_fd, char tmp[NAME_SIZE], struct brig_err *err)
{
    for (int i = 0; i < MAX_RACES; i++) {
        int r = temporary_name(tmp);
        if (r < 0)
            return err_set(err, BRIG_E_HOST, -r, "/etc template: temporary name");
        if (mkdirat(cache_fd, tmp, 0755) < 0) {
            if (errno == EEXIST)
                continue;
            return err_host(err, "/etc template: mkdir %s in the cache directory", tmp);
        }
        AUTO_FD int fd = open_locked(cache_fd, tmp, LOCK_SH);
        if (fd == -ENOENT)
            continue; /* a remover was faster than our lock */
        if (fd < 0)
            return err_set(err, BRIG_E_HOST, -fd, "/etc template: open %s", tmp);
        if (fchmod(fd, 0755) < 0)
            return err_host(err, "/etc template: chmod %s", tmp);
        return take_fd(&fd);
    }
    return err_set(err, BRIG_E_HOST, EBUSY, "/etc template: temporary directory");
}

/* Builds `name`. -EEXIST: another process has done so meanwhile. */
static int build_named(int host_fd, int cache_fd, const char *name, struct brig_err *err)
{
    char tmp[NAME_SIZE];
    AUTO_FD int fd = make_temporary(cache_fd, tmp, err);

    if (fd < 0)
        return fd;
    int r = etc_template_build_from(host_fd, fd, err);
    if (r == 0 && renameat(cache_fd, tmp, cache_fd, name) < 0) {
        bool lost = errno == EEXIST || errno == ENOTEMPTY;
        r = lost ? -EEXIST : err_host(err, "/etc template: rename to %s", name);
    }
    if (r < 0) {
        remove_template(cache_fd, fd, tmp);
        return r;
    }
    remove_old(cache_fd, name);
    return take_fd(&fd);
}

int etc_template_open_from(int host_fd, int cache_fd, struct brig_err *err)
{
    char name[NAME_SIZE];

    int r = current_name(host_fd, name, err);
    if (r < 0)
        return r;
    for (int i = 0; i < MAX_RACES; i++) {
        int fd = open_locked(cache_fd, name, LOCK_SH);
        if (fd >= 0)
            return fd;
        if (fd != -ENOENT)
            return err_set(err, BRIG_E_HOST, -fd, "/etc template: open %s in the cache directory", name);
        fd = build_named(host_fd, cache_fd, name, err);
        if (fd != -EEXIST)
            return fd;
    }
    return err_set(err, BRIG_E_HOST, EBUSY, "/etc template: %s", name);
}

int etc_template_open(int cache_fd, struct brig_err *err)
{
    AUTO_FD int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return host < 0 ? err_host(err, "open /") : etc_template_open_from(host, cache_fd, err);
}
