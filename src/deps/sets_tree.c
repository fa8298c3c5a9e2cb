/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_tree.c: measures and removes what an installer has left on disk. That is whatever a tenant's package wanted to
 * leave: very deep, unreadable, full of links. Everything is relative to a descriptor and follows no link; nothing
 * waits (for instance for a FIFO in the place of a file). Removing works at any depth with two descriptors; measuring
 * gives up past TREE_DEPTH and calls that too large.
 *
 * The rule is that no tree is walked while a program of a tenant can still change it; its sandbox is gone before. Two
 * things hold even so: a mode is changed through the descriptor of the directory that was looked at, never by name, and
 * a way back up that does not lead to where it came from ends the removal.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/str.h"
#include "deps/sets_priv.h"

#define TREE_DEPTH 100u
#define NAMES_MAX (64u << 20)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/*
 * A directory that cannot be read is made readable: the very directory of the descriptor, through /proc, because
 * fchmod() takes no O_PATH.
 */
static int open_dir(int parent, const char *name)
{
    int fd = openat(parent, name, DIR_FLAGS);

    if (fd >= 0 || errno != EACCES)
        return fd;
    AUTO_FD int path = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char link[32];
    if (path < 0 || str_format(link, sizeof link, "/proc/self/fd/%d", path) < 0 ||
        fchmodat(AT_FDCWD, link, 0700, 0) < 0)
        return -1;
    return openat(path, ".", DIR_FLAGS);
}

struct place { /* which directory */
    dev_t dev;
    ino_t ino;
};

static int place_of(int fd, struct place *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (struct place){.dev = st.st_dev, .ino = st.st_ino};
    return 0;
}

/* Removes what is no directory; the first directory's name is put on the stack. 1: there is one, 0: it is empty now. */
static int empty_dir(int fd, struct buf *stack)
{
    AUTO_DIR DIR *dir = dir_open(fd, ".");

    if (!dir)
        return -errno;
    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            return -errno;
        int r = buf_append(stack, entry->d_name, strlen(entry->d_name) + 1);
        return r < 0 ? r : 1;
    }
    return -errno;
}

/* The last name of a stack of strings, each with its NUL. */
static const char *top_of(const struct buf *stack)
{
    size_t at = stack->len - 1;

    while (at > 0 && stack->data[at - 1] != '\0')
        at--;
    return stack->data + at;
}

/* Into the directory whose name is on top; where we were is remembered. The new descriptor, or a negative errno. */
static int go_down(int fd, const struct buf *stack, struct buf *places)
{
    struct place here;
    int r = place_of(fd, &here);

    if (r == 0)
        r = buf_append(places, &here, sizeof here);
    int next = r < 0 ? -1 : open_dir(fd, top_of(stack));
    return r < 0 ? r : next < 0 ? -errno : next;
}

/* Back to where we came from, and only there: a directory that was moved meanwhile would lead out of the tree. */
static int go_up(int fd, struct buf *places)
{
    struct place back = {0}, here = {0};
    AUTO_FD int next = openat(fd, "..", DIR_FLAGS);
    int r = next < 0 ? -errno : place_of(next, &here);

    if (r < 0)
        return r;
    places->len -= sizeof back;
    memcpy(&back, places->data + places->len, sizeof back);
    return back.dev == here.dev && back.ino == here.ino ? take_fd(&next) : -ESTALE;
}

int tree_remove(int dir_fd, const char *name)
{
    /* names, and where each of them is */
    AUTO_BUF struct buf stack = BUF_INIT(NAMES_MAX), places = BUF_INIT(NAMES_MAX);
    AUTO_FD int fd = open_dir(dir_fd, name);

    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return unlinkat(dir_fd, name, 0) == 0 ? 0 : -errno;
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    for (;;) {
        (void)!fchmod(fd, 0700);
        int r = empty_dir(fd, &stack);
        if (r < 0)
            return r;
        if (r == 0 && stack.len == 0)
            return unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
        int next = r > 0 ? go_down(fd, &stack, &places) : go_up(fd, &places);
        if (next < 0)
            return next;
        close(fd);
        fd = next;
        if (r > 0)
            continue;
        const char *last = top_of(&stack);
        if (unlinkat(fd, last, AT_REMOVEDIR) < 0)
            return -errno;
        stack.len = (size_t)(last - stack.data);
    }
}

static uint64_t measure(int parent, const char *name, unsigned depth)
{
    if (depth > TREE_DEPTH)
        return UINT64_MAX;
    AUTO_DIR DIR *dir = dir_of(open_dir(parent, name));
    uint64_t sum = 0;
    for (const struct dirent *entry; (entry = dir_next(dir));) {
        struct stat st;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        uint64_t below = S_ISDIR(st.st_mode) ? measure(dirfd(dir), entry->d_name, depth + 1) : 0;
        if (below == UINT64_MAX ||
            __builtin_add_overflow(sum, below + (uint64_t)st.st_blocks * 512 + 256 /* its inode */, &sum))
            return UINT64_MAX;
    }
    return sum;
}

uint64_t tree_size(int dir_fd, const char *name)
{
    return measure(dir_fd, name, 0);
}

int tree_read_fd(int fd, size_t max, struct buf *out)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return -EFBIG;
    int r = buf_reserve(out, (size_t)st.st_size + 1);
    if (r < 0)
        return r;
    ssize_t n = fd_read_all(fd, out->data + out->len, (size_t)st.st_size + 1);
    if (n < 0)
        return (int)n;
    buf_commit(out, (size_t)n);
    return 0;
}

int tree_read(int dir_fd, const char *name, size_t max, struct buf *out)
{
    AUTO_FD int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    return fd < 0 ? -errno : tree_read_fd(fd, max, out);
}

int tree_write(int dir_fd, const char *name, const char *text, size_t len)
{
    char part[SET_NAME_MAX + 16];

    if (str_format(part, sizeof part, "%s.new", name) < 0)
        return -ENAMETOOLONG;
    AUTO_FD int fd = openat(dir_fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, text, len);
    if (r == 0 && renameat(dir_fd, part, dir_fd, name) < 0)
        r = -errno;
    if (r < 0)
        (void)!unlinkat(dir_fd, part, 0);
    return r;
}
