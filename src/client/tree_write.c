/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_write.c: unpacks a tar stream below one directory of this machine.
 *
 * Theory of operation. The archive was made in a sandbox and is hostile. The parser refuses names that lead out. A
 * member's directory is reached from the root by one openat2() that follows no symlink and does not leave the root;
 * then one name is made in it, exclusively: what was there is unlinked first. So neither a symlink of the archive nor
 * one that was there before can make it write anywhere else. Directories get their mode and time at the end, the last
 * made first: a mode may forbid what is yet to come in them.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "client/tree.h"
#include "codec/tar/tar.h"

#define LATER_MAX ((size_t)256 << 20)
#define MODE_BITS 0777u

/* A directory whose mode and time are to be set: this, its path, a NUL, and at the end the length of all three. */
struct later {
    mode_t mode;
    struct timespec mtime;
};

struct tree_writer {
    int root, fd, parent; /* fd: the file being written, in parent */
    char name[TAR_NAME_MAX + 1];
    struct timespec mtime;
    mode_t mode;
    struct buf later;
    uint64_t skipped, written, names;
    uint64_t max_bytes, max_names; /* 0: any number */
    struct tar_parser parser;
};

static int fail(struct brig_err *err, int r, const struct tree_writer *writer)
{
    return err_set(err, BRIG_E_HOST, -r, "%.150s",
                   writer->parser.member.name ? writer->parser.member.name : "the archive");
}

/* ---- places --------------------------------------------------------------------------------------- */

static int open_beneath(int root, const char *path)
{
    const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

/* Makes what is missing of the path's directories. */
static int make_parents(int root, char *path)
{
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const char *name = strrchr(path, '/');
        char *above = name ? strndup(path, (size_t)(name - path)) : strdup("");
        AUTO_FD int parent = above ? open_beneath(root, above) : -ENOMEM;
        int r = parent < 0 ? parent : mkdirat(parent, name ? name + 1 : path, 0755) < 0 && errno != EEXIST ? -errno : 0;
        mem_free(above);
        *slash = '/';
        if (r < 0)
            return r;
    }
    return 0;
}

/* The directory of a member, and its last name. */
static int open_parent(int root, const char *path, char name[TAR_NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    char directory[TAR_NAME_MAX + 1], whole[TAR_NAME_MAX + 1];
    int r = str_copy(whole, sizeof(whole), path);

    if (r == 0)
        r = str_copy(name, TAR_NAME_MAX + 1, slash ? slash + 1 : path);
    if (r < 0)
        return r;
    memcpy(directory, path, len);
    directory[len] = '\0';
    int fd = open_beneath(root, directory);
    if (fd != -ENOENT)
        return fd;
    r = make_parents(root, whole);
    return r < 0 ? r : open_beneath(root, directory);
}

static int remember(struct tree_writer *writer, const struct tar_member *member)
{
    const struct later later = {.mode = member->mode & MODE_BITS, .mtime = {member->mtime, member->mtime_ns}};
    size_t total = sizeof(later) + member->name_len + 1;
    int r = buf_append(&writer->later, &later, sizeof(later));

    if (r == 0)
        r = buf_append(&writer->later, member->name, member->name_len + 1);
    return r < 0 ? r : buf_append(&writer->later, &total, sizeof(total));
}

/* ---- members -------------------------------------------------------------------------------------- */

static int make_directory(struct tree_writer *writer, int parent, const struct tar_member *member)
{
    struct stat st;

    if (mkdirat(parent, writer->name, 0700) < 0) {
        if (errno != EEXIST)
            return -errno;
        if (fstatat(parent, writer->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        if (!S_ISDIR(st.st_mode)) /* a file, or a symlink to a directory somewhere else */
            return unlinkat(parent, writer->name, 0) < 0 || mkdirat(parent, writer->name, 0700) < 0
                       ? -errno
                       : remember(writer, member);
    }
    return remember(writer, member);
}

static int make_hardlink(struct tree_writer *writer, int parent, const struct tar_member *member)
{
    char name[TAR_NAME_MAX + 1];
    AUTO_FD int from = open_parent(writer->root, member->link, name);

    if (from < 0)
        return from;
    return linkat(from, name, parent, writer->name, 0) < 0 ? -errno : 0;
}

/* An archive may go on for ever without a byte of content: whoever makes it adds names while they are read. */
static int count_name(struct tree_writer *writer, const struct tar_member *member, struct brig_err *err)
{
    if (member->name_len == 0 || writer->max_names == 0 || ++writer->names <= writer->max_names)
        return 0;
    return err_set(err, BRIG_E_TOO_LARGE, 0, "%.150s: with it there are more than %llu names; --max allows more",
                   member->name, (unsigned long long)writer->max_names);
}

static int begin_member(struct tree_writer *writer, const struct tar_member *member)
{
    if (member->name_len == 0) /* the root: it is the user's */
        return 0;
    if (member->kind == TAR_FIFO || member->kind == TAR_DEVICE) {
        writer->skipped++;
        return 0;
    }
    AUTO_FD int parent = open_parent(writer->root, member->name, writer->name);
    if (parent < 0)
        return parent;
    if (member->kind == TAR_DIR)
        return make_directory(writer, parent, member);
    if (unlinkat(parent, writer->name, 0) < 0 && errno != ENOENT)
        return -errno;
    if (member->kind == TAR_SYMLINK)
        return symlinkat(member->link, parent, writer->name) < 0 ? -errno : 0;
    if (member->kind == TAR_HARDLINK)
        return make_hardlink(writer, parent, member);
    writer->fd = openat(parent, writer->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (writer->fd < 0)
        return -errno;
    writer->parent = take_fd(&parent);
    writer->mode = member->mode & MODE_BITS;
    writer->mtime = (struct timespec){member->mtime, member->mtime_ns};
    return 0;
}

static int end_member(struct tree_writer *writer)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, writer->mtime};
    int r = 0;

    if (writer->fd < 0)
        return 0;
    r = fd_end_holes(writer->fd);
    if (r == 0 && (fchmod(writer->fd, writer->mode) < 0 || futimens(writer->fd, times) < 0))
        r = -errno;
    base_close_fd(&writer->fd);
    base_close_fd(&writer->parent);
    return r;
}

static int write_content(struct tree_writer *writer, const uint8_t *data, size_t len, struct brig_err *err)
{
    if (writer->fd < 0)
        return 0;
    writer->written += len;
    if (writer->max_bytes > 0 && writer->written > writer->max_bytes)
        return err_set(err, BRIG_E_TOO_LARGE, 0,
                       "%.150s: with it the files are more than %llu bytes; --max allows more",
                       writer->parser.member.name, (unsigned long long)writer->max_bytes);
    int r = fd_write_holes(writer->fd, data, len);
    return r < 0 ? fail(err, r, writer) : 0;
}

int tree_writer_write(struct tree_writer *writer, const void *data, size_t len, struct brig_err *err)
{
    const uint8_t *in = data;

    for (;;) {
        const uint8_t *content = NULL;
        size_t content_len = 0;
        int event = tar_parse(&writer->parser, &in, &len, &content, &content_len), r = 0;
        if (event < 0)
            return err_set(err, BRIG_E_REFUSED, -event, "the archive");
        if (event == TAR_NEED)
            return 0;
        if (event == TAR_MEMBER)
            r = count_name(writer, &writer->parser.member, err);
        else if (event == TAR_CONTENT)
            r = write_content(writer, content, content_len, err);
        if (r < 0)
            return r;
        if (event == TAR_MEMBER)
            r = begin_member(writer, &writer->parser.member);
        else if (event != TAR_CONTENT)
            r = end_member(writer);
        if (r < 0)
            return fail(err, r, writer);
    }
}

int tree_writer_finish(struct tree_writer *writer, struct brig_err *err)
{
    struct buf *buf = &writer->later;
    int r = tar_parse_end(&writer->parser);

    if (r < 0)
        return err_set(err, BRIG_E_GONE, 0, "the archive is cut off");
    while (buf->len > 0) {
        struct later later;
        size_t total;
        memcpy(&total, buf->data + buf->len - sizeof(total), sizeof(total));
        buf->len -= sizeof(total) + total;
        memcpy(&later, buf->data + buf->len, sizeof(later));
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, later.mtime};
        char name[TAR_NAME_MAX + 1];
        AUTO_FD int parent = open_parent(writer->root, buf->data + buf->len + sizeof(later), name);
        AUTO_FD int fd = parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && (fchmod(fd, later.mode) < 0 || futimens(fd, times) < 0))
            return err_host(err, "%.150s", name);
    }
    return 0;
}

/* ---- life ----------------------------------------------------------------------------------------- */

int tree_writer_create(int root, struct tree_writer **ret, struct brig_err *err)
{
    struct tree_writer *writer = mem_zalloc(sizeof(*writer));

    if (!writer) {
        base_close_fd(&root);
        return err_nomem(err);
    }
    writer->root = root;
    writer->fd = writer->parent = -1;
    writer->later = BUF_INIT(LATER_MAX);
    tar_parser_init(&writer->parser);
    *ret = writer;
    return 0;
}

void tree_writer_limit(struct tree_writer *writer, uint64_t bytes, uint64_t names)
{
    writer->max_bytes = bytes;
    writer->max_names = names;
}

uint64_t tree_writer_skipped(const struct tree_writer *writer)
{
    return writer->skipped;
}

void tree_writer_destroy(struct tree_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        unlinkat(writer->parent, writer->name, 0);
    base_close_fd(&writer->fd);
    base_close_fd(&writer->parent);
    base_close_fd(&writer->root);
    buf_done(&writer->later);
    mem_free(writer);
}
