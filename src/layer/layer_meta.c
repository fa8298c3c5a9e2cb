/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_meta.c: sets owner, mode, extended attributes and time of what was made. The order is this one because a change
 * of owner takes set-id bits away, and a change of mode would change an access list.
 *
 * user.* attributes and access lists are kept. All others are dropped and counted: file capabilities, what belongs to
 * the overlay (an image could forge whiteouts, or redirect a name into another layer), labels of security modules.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/str.h"
#include "layer/layer.h"

static const char acl_access[] = "system.posix_acl_access", acl_default[] = "system.posix_acl_default";

/* ---- attributes ------------------------------------------------------------------------------------------- */

static bool is_acl(const char *name)
{
    return str_eq(name, acl_access) || str_eq(name, acl_default);
}

static bool is_kept(const char *name)
{
    return is_acl(name) || (str_starts(name, "user.") && !str_starts(name, "user.overlay."));
}

static void drop(const struct layer_meta *meta, const char *name)
{
    if (str_eq(name, "security.capability"))
        meta->dropped->capabilities++;
    else
        meta->dropped->xattrs++;
}

/* Things that are neither files nor directories have no attributes that could be kept. */
static void drop_all(const struct layer_meta *meta, const struct tar_extra *extra)
{
    const char *name;
    const uint8_t *value;
    uint32_t at = 0, len;

    while (tar_xattr_next(extra, &at, &name, &value, &len))
        drop(meta, name);
}

/* Is it the host, and not the image, that has no place for an attribute? With one id no list can name another. */
static bool host_lacks(const struct layer_meta *meta, const char *name)
{
    return errno == EOPNOTSUPP || (meta->options->one_id && is_acl(name));
}

static int set_xattrs(const struct layer_meta *meta, int fd, const struct tar_member *member,
                      const struct tar_extra *extra, struct brig_err *err)
{
    const char *name;
    const uint8_t *value;
    uint32_t at = 0, len;

    while (tar_xattr_next(extra, &at, &name, &value, &len)) {
        if (!is_kept(name) || (str_eq(name, acl_default) && member->kind != TAR_DIR)) {
            drop(meta, name);
        } else if (fsetxattr(fd, name, value, len, 0) < 0) {
            if (!host_lacks(meta, name))
                return layer_fail(err, member->name, errno, "extended attribute %.60s", name);
            drop(meta, name);
        }
    }
    return 0;
}

/* What a directory has given to a new thing in it is not what the archive says. */
static void disinherit(const struct layer_meta *meta, int fd)
{
    if (!meta->inherits)
        return;
    (void)!fremovexattr(fd, acl_access);
    (void)!fremovexattr(fd, acl_default);
}

/* ---- things ----------------------------------------------------------------------------------------------- */

static bool needs_owner(const struct layer_meta *meta, const struct tar_member *member)
{
    return !meta->options->one_id && (member->uid != 0 || member->gid != 0 || meta->inherits);
}

int meta_file(const struct layer_meta *meta, int fd, const struct tar_member *member, const struct tar_extra *extra,
              struct brig_err *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {member->mtime, member->mtime_ns}};
    int r;

    disinherit(meta, fd);
    if (needs_owner(meta, member) && fchown(fd, (uid_t)member->uid, (gid_t)member->gid) < 0)
        return layer_fail(err, member->name, errno, "its owner");
    if (((member->mode & 07000) != 0 || meta->inherits || meta->options->one_id) && fchmod(fd, member->mode) < 0)
        return layer_fail(err, member->name, errno, "its mode");
    if ((r = set_xattrs(meta, fd, member, extra, err)) < 0)
        return r;
    return futimens(fd, times) < 0 ? layer_fail(err, member->name, errno, "its time") : 0;
}

/* Also a directory that was there before. With one id it stays open to us until the end. */
static int meta_directory(const struct layer_meta *meta, int dir, const char *name, const struct tar_member *member,
                          const struct tar_extra *extra, struct brig_err *err)
{
    mode_t mode = member->mode | (meta->options->one_id ? 0700 : 0);
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return layer_fail(err, member->name, errno, "the new directory");
    disinherit(meta, fd);
    if (!meta->options->one_id && (st.st_uid != member->uid || st.st_gid != member->gid) &&
        fchown(fd, (uid_t)member->uid, (gid_t)member->gid) < 0)
        return layer_fail(err, member->name, errno, "its owner");
    if (((st.st_mode & 07777) != mode || meta->inherits) && fchmod(fd, mode) < 0)
        return layer_fail(err, member->name, errno, "its mode");
    return set_xattrs(meta, fd, member, extra, err);
}

int meta_name(const struct layer_meta *meta, int dir, const char *name, const struct tar_member *member,
              const struct tar_extra *extra, struct brig_err *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {member->mtime, member->mtime_ns}};

    if (member->kind == TAR_DIR)
        return meta_directory(meta, dir, name, member, extra, err);
    drop_all(meta, extra);
    if (needs_owner(meta, member) &&
        fchownat(dir, name, (uid_t)member->uid, (gid_t)member->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, member->name, errno, "its owner");
    if (member->kind == TAR_FIFO && ((member->mode & 07000) != 0 || meta->inherits) &&
        fchmodat(dir, name, member->mode, 0) < 0)
        return layer_fail(err, member->name, errno, "its mode");
    return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? layer_fail(err, member->name, errno, "its time") : 0;
}
