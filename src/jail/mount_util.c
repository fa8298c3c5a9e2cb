/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_util.c: small functions over the new mount API. Every place is named by a descriptor and a path that is
 * resolved below it (RESOLVE_IN_ROOT, no magic links), so a symlink planted in a root file system leads nowhere
 * outside: the class of CVE-2025-31133, CVE-2026-41579, CVE-2026-87766.
 */
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "jail/plan.h"
#include "jail/sys.h"

#define INSIDE_ONLY (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

int mount_make(const char *fstype, const struct mount_option *options, unsigned n_options, unsigned attr_flags)
{
    AUTO_FD int fs = SYS(fsopen(fstype, FSOPEN_CLOEXEC));

    if (fs < 0)
        return -1;
    for (unsigned i = 0; i < n_options; i++) {
        unsigned cmd = options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
        if (SYS(fsconfig(fs, cmd, options[i].key, options[i].value, 0)) < 0)
            return -1;
    }
    if (SYS(fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0)) < 0)
        return -1;
    return SYS(fsmount(fs, FSMOUNT_CLOEXEC, attr_flags));
}

int mount_target(int root_fd, const char *path)
{
    return SYS(sys_openat2(root_fd, path, O_PATH, 0, INSIDE_ONLY));
}

/* Opens (making it if need be) one directory below `dir`. A symlink in the way is an error: we only make real ones. */
static int step_into(int dir, const char *name)
{
    if (SYS(mkdirat(dir, name, 0755)) < 0 && errno != EEXIST && errno != EROFS)
        return -1;
    return SYS(sys_openat2(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS));
}

int mount_make_target(int root_fd, const char *path, bool is_dir)
{
    AUTO_FD int dir = SYS(sys_openat2(root_fd, "/", O_PATH | O_DIRECTORY, 0, INSIDE_ONLY));

    if (dir < 0)
        return -1;
    while (*path == '/')
        path++;
    for (;;) {
        char name[256];
        size_t len = strcspn(path, "/");

        if (len == 0 || len >= sizeof name) {
            errno = len == 0 ? EINVAL : ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, len);
        name[len] = '\0';
        path += len;
        while (*path == '/')
            path++;
        if (*path == '\0' && !is_dir) {
            AUTO_FD int file = SYS(openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
            return file < 0 ? -1 : 0;
        }
        int next = step_into(dir, name);
        if (next < 0)
            return -1;
        close(dir);
        dir = next;
        if (*path == '\0')
            return 0;
    }
}

int mount_attach(int mount_fd, int root_fd, const char *path)
{
    AUTO_FD int target = mount_target(root_fd, path);

    if (target < 0)
        return -1;
    return SYS(move_mount(mount_fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

int mount_attributes(int mount_fd, uint64_t set, bool recursive)
{
    /* Private: what is mounted on a copy of a shared mount of the host would appear there too. */
    struct mount_attr attr = {.attr_set = set, .propagation = MS_PRIVATE};

    return SYS(mount_setattr(mount_fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &attr, sizeof attr));
}

int mount_is_writable(int mount_fd)
{
    struct statfs fs;

    if (SYS(fstatfs(mount_fd, &fs)) < 0)
        return -1;
    errno = EROFS;
    return fs.f_flags & ST_RDONLY ? -1 : 0;
}
