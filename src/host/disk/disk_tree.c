/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_tree.c: copies the files of a store that is memory onto a disk, file by file: names, contents with their holes,
 * owners, modes, times, hard links, links, fifos, sockets, what removes a file of a lower layer, access lists and
 * user.* attributes.
 *
 * Theory of operation. Hostile programs have made these files, and this process is root. So
 *
 *   - the programs stand still, and nobody else can write to either side;
 *   - a name is only ever used below a descriptor of its directory, alone, and no link is followed: openat2() refuses
 *     links and other mounts in the store, and the disk is mounted so that the kernel follows none. The way back up is
 *     "..", which ends at the root of either file system at the latest;
 *   - only regular files and directories are opened, so a fifo stops nobody;
 *   - trees may be as deep and wide as the store allows: there is no recursion and there are two open directories.
 *     What is left to do is a list of names with a ceiling (struct walk);
 *   - nothing is interpreted but ids in access lists. The mark of an opaque directory is kept, and no other attribute
 *     of an overlay. Attributes that only the host's root can set are not copied, and devices are not either.
 *
 * The names of a file with several names find each other through a directory of the disk that has the file under its
 * inode number until all names are there, so that takes no memory.
 */
#include <inttypes.h>
#include <limits.h>
#include <linux/limits.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/holes.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/disk/disk_parts.h"
#include "jail/image_shape.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define NAMES_MAX ((size_t)64 << 20)
#define PIECE ((size_t)1 << 20)
#define ENTRY_COST UINT64_C(4096) /* what a name counts in the progress, as if it were so many bytes */
#define ASIDE "links"
#define OPAQUE "overlay.opaque"
#define ACL_PREFIX "system.posix_acl_"
#define STAY (RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW)

struct walk {
    const struct disk_tree *tree;
    const struct disk_teller *teller;
    struct brig_err *err;
    int from, to; /* the directory where it is */
    int aside;
    unsigned depth;
    uint64_t at, of;
    /* The directories that are still to be walked, the next one last, each with its NUL. "" stands for the way up. */
    struct buf names;
    uint8_t *piece;
    char list[XATTR_LIST_MAX];
    uint8_t value[XATTR_SIZE_MAX];
};

static int fail(const struct walk *w)
{
    switch (errno) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMLINK:
    case E2BIG:
        return err_set(w->err, BRIG_E_LIMIT, errno, "disk %s: what the sandbox has written does not fit",
                       w->tree->name);
    default: return err_host(w->err, "disk %s: copy of a file", w->tree->name);
    }
}

static void step(struct walk *w, uint64_t n)
{
    w->at += n;
    if (w->at < w->of)
        w->teller->tell(w->teller->ctx, w->at, w->of);
}

/* ---- what a file is ------------------------------------------------------------------------------------ */

/* The set-up works as the host's root where no program of the sandbox has root. */
static int map_id(const struct walk *w, uint32_t id, uint32_t *ret)
{
    if (id != 0 && (id < w->tree->first_id || id - w->tree->first_id >= INSIDE_RANGE))
        return err_set(w->err, BRIG_E_UNSUPPORTED, EOVERFLOW, "disk %s: a file belongs to id %u, which is not inside",
                       w->tree->name, id);
    *ret = id == 0 ? 0 : id - w->tree->first_id;
    return 0;
}

static int map_owner(const struct walk *w, const struct stat *st, uid_t *ret_uid, gid_t *ret_gid)
{
    int r = map_id(w, st->st_uid, ret_uid);

    return r < 0 ? r : map_id(w, st->st_gid, ret_gid);
}

static int map_acl(struct walk *w, size_t len)
{
    int r = 0;

    for (size_t at = sizeof(struct posix_acl_xattr_header); r == 0 && at + sizeof(struct posix_acl_xattr_entry) <= len;
         at += sizeof(struct posix_acl_xattr_entry)) {
        struct posix_acl_xattr_entry entry;
        memcpy(&entry, w->value + at, sizeof entry);
        if (entry.e_tag == ACL_USER || entry.e_tag == ACL_GROUP)
            r = map_id(w, entry.e_id, &entry.e_id);
        memcpy(w->value + at, &entry, sizeof entry);
    }
    return r;
}

/* The name of an attribute on a disk, whose overlays keep theirs as user.*; NULL if it is not kept. */
static const char *kept_as(const char *name)
{
    if (str_eq(name, "trusted." OPAQUE) || str_eq(name, "user." OPAQUE))
        return "user." OPAQUE;
    return str_starts(name, ACL_PREFIX) || (str_starts(name, "user.") && !str_starts(name, "user.overlay.")) ? name
                                                                                                             : NULL;
}

static int copy_xattrs(struct walk *w, int from, int to)
{
    ssize_t n = SYS(flistxattr(from, w->list, sizeof w->list));

    if (n < 0)
        return fail(w);
    for (const char *name = w->list; name < w->list + n; name += strlen(name) + 1) {
        const char *as = kept_as(name);
        if (!as)
            continue;
        ssize_t len = SYS(fgetxattr(from, name, w->value, sizeof w->value));
        if (len < 0)
            return fail(w);
        if (str_starts(name, ACL_PREFIX) && map_acl(w, (size_t)len) < 0)
            return -EOVERFLOW;
        if (SYS(fsetxattr(to, as, w->value, (size_t)len, 0)) < 0)
            return fail(w);
    }
    return 0;
}

/* The mode after the owner, whose change takes set-id bits away, and after an access list, which has a part of it. */
static int copy_meta(struct walk *w, int from, int to, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    uid_t uid = 0;
    gid_t gid = 0;
    int r = map_owner(w, st, &uid, &gid);

    if (r < 0)
        return r;
    if (SYS(fchown(to, uid, gid)) < 0)
        return fail(w);
    r = copy_xattrs(w, from, to);
    if (r < 0)
        return r;
    return SYS(fchmod(to, st->st_mode & 07777)) < 0 || SYS(futimens(to, times)) < 0 ? fail(w) : 0;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static int write_run(int to, const uint8_t *data, size_t len, off_t at)
{
    while (len > 0) {
        ssize_t n = SYS(pwrite(to, data, len, at));
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
        at += n;
    }
    return 0;
}

static int write_piece(int to, const uint8_t *data, size_t len, off_t at)
{
    for (size_t i = 0; i < len;) {
        bool zero;
        size_t run = hole_run(data + i, len - i, (uint64_t)at + i, &zero);
        if (!zero && write_run(to, data + i, run, at + (off_t)i) < 0)
            return -1;
        i += run;
    }
    return 0;
}

static int copy_data(struct walk *w, int from, int to, off_t size)
{
    if (SYS(ftruncate(to, size)) < 0)
        return fail(w);
    for (off_t at = 0, end; at < size; at = end) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0 && errno == ENXIO)
            return 0;
        end = at < 0 ? at : lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return fail(w);
        while (at < end) {
            size_t want = end - at < (off_t)PIECE ? (size_t)(end - at) : PIECE;
            ssize_t n = SYS(pread(from, w->piece, want, at));
            if (n == 0)
                errno = EIO;
            if (n <= 0 || write_piece(to, w->piece, (size_t)n, at) < 0)
                return fail(w);
            at += n;
            step(w, (uint64_t)n);
        }
    }
    return 0;
}

static int copy_file(struct walk *w, const char *name)
{
    struct stat st;
    AUTO_FD int from =
        SYS(sys_openat2(w->from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME, 0, RESOLVE_BENEATH | STAY));

    if (from < 0 || fstat(from, &st) < 0)
        return fail(w);
    AUTO_FD int to = SYS(openat(w->to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (to < 0)
        return fail(w);
    int r = copy_data(w, from, to, st.st_size);
    return r < 0 ? r : copy_meta(w, from, to, &st);
}

/* What is never opened: a link, a fifo, a socket, or what removes a file of a lower layer, a device 0:0. */
static int copy_special(struct walk *w, const char *name, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    bool is_link = S_ISLNK(st->st_mode);
    char target[PATH_MAX];
    uid_t uid = 0;
    gid_t gid = 0;
    int r = map_owner(w, st, &uid, &gid);

    if (r < 0)
        return r;
    if (is_link) {
        ssize_t n = SYS(readlinkat(w->from, name, target, sizeof target - 1));
        if (n < 0)
            return fail(w);
        target[n] = '\0';
        r = SYS(symlinkat(target, w->to, name));
    } else {
        r = SYS(mknodat(w->to, name, st->st_mode & S_IFMT, 0));
    }
    if (r < 0 || SYS(fchownat(w->to, name, uid, gid, AT_SYMLINK_NOFOLLOW)) < 0 ||
        (!is_link && SYS(fchmodat(w->to, name, st->st_mode & 07777, 0)) < 0) ||
        SYS(utimensat(w->to, name, times, AT_SYMLINK_NOFOLLOW)) < 0)
        return fail(w);
    return 0;
}

/* Returns 1 if the file is there under another name, and has this one too now. */
static int link_again(const struct walk *w, const char *name, const struct stat *st, const char *number)
{
    struct stat now;

    if (SYS(linkat(w->aside, number, w->to, name, 0)) < 0)
        return errno == ENOENT ? 0 : fail(w);
    if (SYS(fstatat(w->aside, number, &now, AT_SYMLINK_NOFOLLOW)) < 0 ||
        (now.st_nlink > st->st_nlink && SYS(unlinkat(w->aside, number, 0)) < 0))
        return fail(w);
    return 1;
}

static int copy_entry(struct walk *w, const char *name)
{
    struct stat st;
    char number[24];

    if (SYS(fstatat(w->from, name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return fail(w);
    step(w, ENTRY_COST);
    if (S_ISDIR(st.st_mode)) {
        int r = SYS(mkdirat(w->to, name, 0700)) < 0 ? fail(w) : buf_append(&w->names, name, strlen(name) + 1);
        return r != -EMSGSIZE
                   ? r
                   : err_set(w->err, BRIG_E_LIMIT, 0, "disk %s: too many directories to copy", w->tree->name);
    }
    if (S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && st.st_rdev != 0))
        return 0; /* a device of a writable root, which the set-up makes again */
    (void)snprintf(number, sizeof number, "%" PRIu64, (uint64_t)st.st_ino);
    int r = st.st_nlink > 1 ? link_again(w, name, &st, number) : 0;
    if (r != 0)
        return r < 0 ? r : 0;
    r = S_ISREG(st.st_mode) ? copy_file(w, name) : copy_special(w, name, &st);
    if (r == 0 && st.st_nlink > 1 && SYS(linkat(w->to, name, w->aside, number, 0)) < 0)
        return fail(w);
    return r;
}

/* ---- directories ---------------------------------------------------------------------------------------- */

static int copy_entries(struct walk *w)
{
    AUTO_DIR DIR *dir = dir_open(w->from, ".");
    int r = dir ? 0 : fail(w);

    for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));)
        r = copy_entry(w, entry->d_name);
    return r == 0 && errno != 0 ? fail(w) : r;
}

static int move_to(struct walk *w, const char *name)
{
    AUTO_FD int from = SYS(sys_openat2(w->from, name, OPEN_DIR | O_NOATIME, 0, STAY));
    AUTO_FD int to = SYS(sys_openat2(w->to, name, OPEN_DIR, 0, STAY));

    if (from < 0 || to < 0)
        return fail(w);
    base_close_fd(&w->from);
    base_close_fd(&w->to);
    w->from = take_fd(&from);
    w->to = take_fd(&to);
    return 0;
}

static int enter(struct walk *w, const char *name)
{
    bool passes = w->depth == 0 && store_passes(name);
    int r = move_to(w, name);

    w->depth++;
    if (r == 0 && buf_append(&w->names, "", 1) < 0)
        r = err_nomem(w->err);
    return r < 0 || passes ? r : copy_entries(w);
}

/* All of it is there, so its time stays what it gets now. */
static int leave(struct walk *w)
{
    struct stat st;

    if (fstat(w->from, &st) < 0)
        return fail(w);
    int r = copy_meta(w, w->from, w->to, &st);
    w->depth--;
    return r < 0 ? r : move_to(w, "..");
}

static void pop(struct buf *names, char out[NAME_MAX + 1])
{
    const char *before = names->len > 1 ? memrchr(names->data, '\0', names->len - 1) : NULL;
    const char *last = before ? before + 1 : names->data;

    memcpy(out, last, strlen(last) + 1);
    names->len = (size_t)(last - names->data);
}

static int walk_all(struct walk *w)
{
    int r = 0;

    while (r == 0 && w->names.len > 0) {
        char name[NAME_MAX + 1];
        pop(&w->names, name);
        r = name[0] ? enter(w, name) : leave(w);
    }
    return r;
}

/* As enter_store_size(): what programs may still write is what their limit leaves them. */
static int bound(const struct walk *w, uint64_t before)
{
    struct statfs fs;

    if (SYS(fstatfs(w->tree->to, &fs)) < 0)
        return fail(w);
    uint64_t left = (uint64_t)fs.f_bavail, used = before > left ? before - left : 0;
    uint64_t want = image_blocks(w->tree->size), may = want > used ? want - used : 0;
    return store_take_rest(w->tree->to, left > may ? left - may : 0) < 0 ? fail(w) : 0;
}

/* The directories of the set-up do not count as written by programs, so they are made first. */
static int copy_all(struct walk *w)
{
    struct statfs fs;
    int r = copy_entries(w);

    if (r == 0 && SYS(fstatfs(w->tree->to, &fs)) < 0)
        r = fail(w);
    if (r == 0 &&
        (SYS(mkdirat(w->to, ASIDE, 0700)) < 0 || (w->aside = SYS(sys_openat2(w->to, ASIDE, OPEN_DIR, 0, STAY))) < 0))
        r = fail(w);
    if (r == 0)
        r = walk_all(w);
    if (r == 0 && SYS(unlinkat(w->to, ASIDE, AT_REMOVEDIR)) < 0) /* every file has all of its names */
        r = fail(w);
    return r < 0 ? r : bound(w, (uint64_t)fs.f_bavail);
}

int disk_copy_tree(const struct disk_tree *tree, const struct disk_teller *teller, struct brig_err *err)
{
    struct walk *w = mem_zalloc(sizeof *w);
    uint8_t *piece = mem_alloc(PIECE);
    struct statfs fs;
    int r = -ENOMEM;

    if (!w || !piece) {
        (void)err_nomem(err);
        goto out;
    }
    w->tree = tree;
    w->teller = teller;
    w->err = err;
    w->aside = -1;
    w->piece = piece;
    w->names = BUF_INIT(NAMES_MAX);
    w->from = SYS(sys_openat2(tree->from, ".", OPEN_DIR | O_NOATIME, 0, STAY));
    w->to = SYS(sys_openat2(tree->to, ".", OPEN_DIR, 0, STAY));
    r = w->from < 0 || w->to < 0 || SYS(fstatfs(w->from, &fs)) < 0 ? fail(w) : 0;
    if (r == 0) {
        w->of = ((uint64_t)fs.f_blocks - (uint64_t)fs.f_bfree) * (uint64_t)fs.f_bsize +
                ((uint64_t)fs.f_files - (uint64_t)fs.f_ffree) * ENTRY_COST;
        r = copy_all(w);
    }
    if (r == 0)
        teller->tell(teller->ctx, w->of, w->of);
    base_close_fd(&w->from);
    base_close_fd(&w->to);
    base_close_fd(&w->aside);
    buf_done(&w->names);
out:
    mem_free(w);
    mem_free(piece);
    return r;
}
