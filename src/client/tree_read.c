/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tree_read.c: makes a tar stream of a directory while it is sent. A member's header waits in `head`, its content is
 * read straight into the caller's buffer. The header promises a size: a file that shrinks is filled up with zeroes, and
 * a file that grows is cut.
 *
 * Directories are walked with a stack of open ones. Symlinks are sent as such and never followed; a file with several
 * names is sent once for each. A directory that was only looked into is sent late, before the first entry below it that
 * is: that entry waits in `held` meanwhile.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "client/tree.h"
#include "codec/tar/tar.h"

#define DEPTH_MAX 200u

struct tree_reader {
    DIR *stack[DEPTH_MAX];
    size_t path_len[DEPTH_MAX]; /* of path, up to this directory */
    bool unsent[DEPTH_MAX];
    unsigned depth;
    tree_judge_fn *judge;
    void *judge_ctx;
    uint64_t bytes, max_bytes;
    char held[256]; /* a name in the innermost directory, or "" */
    char path[TAR_NAME_MAX + 2];
    int fd; /* of the file that is being sent */
    uint64_t left, zeroes, skipped;
    size_t head_at, head_len;
    bool ended;
    uint8_t head[TAR_HEADER_MAX];
};

static int put_head(struct tree_reader *reader, enum tar_kind kind, const struct stat *st, const char *link,
                    size_t link_len)
{
    const struct tar_member member = {
        .kind = kind,
        .mode = st->st_mode & 07777,
        .size = kind == TAR_FILE ? (uint64_t)st->st_size : 0,
        .mtime = st->st_mtim.tv_sec,
        .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
        .name = reader->path,
        .name_len = strlen(reader->path),
        .link = link,
        .link_len = link_len,
    };
    int n = tar_put_header(reader->head, &member);

    if (n < 0)
        return n;
    if (reader->judge && reader->max_bytes > 0 && member.size > reader->max_bytes - reader->bytes)
        return -EFBIG;
    reader->bytes += member.size;
    reader->head_at = 0;
    reader->head_len = (size_t)n;
    reader->left = member.size;
    reader->zeroes = tar_padding(member.size);
    return 0;
}

/* Opens the directory name in dir and goes into it. */
static int enter(struct tree_reader *reader, int dir, const char *name)
{
    if (reader->depth == DEPTH_MAX)
        return -ELOOP;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *opened = fd >= 0 ? fdopendir(fd) : NULL;
    if (!opened) {
        int r = -errno;
        base_close_fd(&fd);
        return r;
    }
    reader->stack[reader->depth] = opened;
    reader->unsent[reader->depth] = false;
    reader->path_len[reader->depth++] = strlen(reader->path);
    return 0;
}

/* Sends the outermost directory on the way that was only looked into. Returns 1 if there is none. */
static int send_late(struct tree_reader *reader, const char *name)
{
    struct stat st;

    for (unsigned i = 0; i < reader->depth; i++) {
        if (!reader->unsent[i])
            continue;
        if (fstat(dirfd(reader->stack[i]), &st) < 0)
            return -errno;
        size_t len = strlen(name);
        if (len >= sizeof(reader->held))
            return -ENAMETOOLONG;
        memcpy(reader->held, name, len + 1);
        char *end = reader->path + reader->path_len[i], next = *end;
        *end = '\0';
        int r = put_head(reader, TAR_DIR, &st, NULL, 0);
        *end = next;
        reader->unsent[i] = false;
        return r;
    }
    return 1;
}

/* One entry of the innermost directory. Returns 1 if nothing is sent for it. */
static int begin_entry(struct tree_reader *reader, int dir, const char *name)
{
    char link[TAR_NAME_MAX + 1];
    struct stat st;
    int r = -EOPNOTSUPP;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    enum tree_verdict verdict =
        reader->judge ? reader->judge(reader->judge_ctx, reader->path, S_ISDIR(st.st_mode)) : TREE_SEND;
    if (verdict == TREE_LEAVE || (verdict == TREE_LOOK && !S_ISDIR(st.st_mode)))
        return 1;
    if (verdict == TREE_LOOK) {
        r = enter(reader, dir, name);
        if (r == 0)
            reader->unsent[reader->depth - 1] = true;
        return r < 0 ? r : 1;
    }
    if ((S_ISDIR(st.st_mode) || S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)) && (r = send_late(reader, name)) <= 0)
        return r;
    r = -EOPNOTSUPP;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(dir, name, link, sizeof(link));
        return n <= 0 || n == (ssize_t)sizeof(link) ? -ENAMETOOLONG
                                                    : put_head(reader, TAR_SYMLINK, &st, link, (size_t)n);
    }
    if (S_ISDIR(st.st_mode)) {
        r = enter(reader, dir, name);
        return r < 0 ? r : put_head(reader, TAR_DIR, &st, NULL, 0);
    }
    if (!S_ISREG(st.st_mode))
        return r;
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode)) /* it was exchanged */
        return r;
    r = put_head(reader, TAR_FILE, &st, NULL, 0);
    if (r == 0)
        reader->fd = take_fd(&fd);
    return r;
}

/* The next name of the innermost directory, which is left at its end; NULL: go on. */
static const char *next_name(struct tree_reader *reader, char held[sizeof(reader->held)])
{
    unsigned top = reader->depth - 1;
    const struct dirent *entry;

    if (reader->held[0]) {
        memcpy(held, reader->held, sizeof(reader->held));
        reader->held[0] = '\0';
        return held;
    }
    entry = readdir(reader->stack[top]);
    if (!entry) {
        closedir(reader->stack[top]);
        reader->depth--;
        return NULL;
    }
    return strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ? NULL : entry->d_name;
}

static int next_entry(struct tree_reader *reader)
{
    char held[sizeof(reader->held)];

    while (reader->depth > 0) {
        unsigned top = reader->depth - 1;
        size_t len = reader->path_len[top], at = len > 0 ? len + 1 : 0;
        const char *name = next_name(reader, held);
        int r;

        reader->path[len] = '\0';
        if (!name)
            continue;
        if (at + strlen(name) > TAR_NAME_MAX)
            return -ENAMETOOLONG;
        if (len > 0)
            reader->path[len] = '/';
        memcpy(reader->path + at, name, strlen(name) + 1);
        r = begin_entry(reader, dirfd(reader->stack[top]), name);
        if (r == 0 || (r < 0 && reader->judge && r != -EOPNOTSUPP))
            return r;
        reader->skipped += r < 0;
    }
    reader->ended = true;
    reader->zeroes = UINT64_C(2) * TAR_BLOCK;
    return 0;
}

/* Content of the current file: bytes, possibly zeroes. */
static size_t read_content(struct tree_reader *reader, char *data, size_t size)
{
    size_t want = reader->left < size ? (size_t)reader->left : size;
    ssize_t n = read(reader->fd, data, want);

    if (n <= 0) {
        memset(data, 0, want);
        n = (ssize_t)want;
    }
    reader->left -= (uint64_t)n;
    return (size_t)n;
}

ssize_t tree_reader_read(struct tree_reader *reader, void *data, size_t size, struct brig_err *err)
{
    char *out = data;
    size_t n = 0;

    while (n < size) {
        size_t room = size - n;
        if (reader->head_at < reader->head_len) {
            size_t some = reader->head_len - reader->head_at < room ? reader->head_len - reader->head_at : room;
            memcpy(out + n, reader->head + reader->head_at, some);
            reader->head_at += some;
            n += some;
        } else if (reader->left > 0) {
            n += read_content(reader, out + n, room);
        } else if (reader->zeroes > 0) {
            size_t some = reader->zeroes < room ? (size_t)reader->zeroes : room;
            memset(out + n, 0, some);
            reader->zeroes -= some;
            n += some;
        } else if (reader->ended) {
            break;
        } else {
            base_close_fd(&reader->fd);
            int r = next_entry(reader);
            if (r == -EFBIG)
                return err_set(err, BRIG_E_TOO_LARGE, 0, "%.150s: with it there are more than %llu bytes", reader->path,
                               (unsigned long long)reader->max_bytes);
            if (r < 0)
                return err_set(err, BRIG_E_USAGE, -r, "%.150s", reader->path);
        }
    }
    return (ssize_t)n;
}

int tree_reader_create(int root, const char *prefix, struct tree_reader **ret, struct brig_err *err)
{
    AUTO_FD int fd = root;
    struct tree_reader *reader = mem_zalloc(sizeof(*reader));
    struct stat st;
    int r = 0;

    if (!reader)
        return err_nomem(err);
    reader->fd = -1;
    size_t len = strlen(prefix);
    if (len > TAR_NAME_MAX)
        r = -ENAMETOOLONG;
    else if (fstat(fd, &st) < 0)
        r = -errno;
    if (r == 0) {
        memcpy(reader->path, prefix, len + 1);
        r = enter(reader, fd, ".");
    }
    if (r == 0 && len > 0)
        r = put_head(reader, TAR_DIR, &st, NULL, 0);
    if (r < 0) {
        tree_reader_destroy(reader);
        return err_set(err, BRIG_E_USAGE, -r, "%.150s", prefix);
    }
    *ret = reader;
    return 0;
}

void tree_reader_judge(struct tree_reader *reader, tree_judge_fn *judge, void *ctx, uint64_t max_bytes)
{
    reader->judge = judge;
    reader->judge_ctx = ctx;
    reader->max_bytes = max_bytes;
}

uint64_t tree_reader_skipped(const struct tree_reader *reader)
{
    return reader->skipped;
}

void tree_reader_destroy(struct tree_reader *reader)
{
    if (!reader)
        return;
    while (reader->depth > 0)
        closedir(reader->stack[--reader->depth]);
    base_close_fd(&reader->fd);
    mem_free(reader);
}
