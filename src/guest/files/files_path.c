/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_path.c: from the caller's names to a directory's descriptor and one name in it.
 *
 * Theory of operation. Programs of the sandbox rename and link as they like while a path is looked up, so looking and
 * doing must be one: the kernel resolves the directory in one openat2 (beneath `base` when confined, never through
 * magic links), and everything after that is done relative to its descriptor, to one name, with O_NOFOLLOW. A symlink
 * in the last place is followed here, by reading it and beginning anew with what it says; so the file behind it too is
 * reached by a directory and a name, which is what an atomic replacement needs. Whatever a race does, each step is
 * confined again.
 *
 * The profile paranoid has no openat2. A confined path is then walked by hand, name after name with O_NOFOLLOW: `done`
 * is what was entered so far and holds real directories only, so `..` of a link's target takes its last name away, and
 * the rest is walked again from the root.
 */
#include <linux/openat2.h>

#include "guest/files/files_int.h"

#define LINKS_MAX 40 /* as the kernel */
#define RETRIES_MAX 64
#define WORK_SIZE (2 * SVC_PATH_MAX + 4)
#define DIR_FLAGS (O_PATH | O_DIRECTORY | O_CLOEXEC)

struct root {
    int fd; /* AT_FDCWD: the path is absolute */
    bool confined;
};

static bool no_openat2;
static char work[WORK_SIZE], target[SVC_PATH_MAX + 1];

/* ---- names ------------------------------------------------------------------------------------------ */

/* Without `.`, double slashes and a slash at the end. "/" stays; "." becomes "". */
static int clean(struct svc_bytes in, char out[SVC_PATH_MAX + 1], bool *must_dir)
{
    uint32_t at = 0;
    size_t len = 0;

    if (in.len == 0 || in.len > SVC_PATH_MAX || __builtin_memchr(in.data, 0, in.len))
        return -EINVAL;
    if (in.data[0] == '/')
        out[len++] = '/';
    *must_dir = false;
    while (at < in.len) {
        const char *name = in.data + at;
        size_t n = 0;

        while (at < in.len && in.data[at] != '/')
            at++, n++;
        *must_dir = at < in.len || (n == 1 && name[0] == '.');
        at++;
        if (n == 0 || (n == 1 && name[0] == '.'))
            continue;
        if (n == 2 && name[0] == '.' && name[1] == '.')
            return -EINVAL;
        if (len > 0 && out[len - 1] != '/')
            out[len++] = '/';
        __builtin_memcpy(out + len, name, n);
        len += n;
    }
    out[len] = 0;
    return 0;
}

/* The next name of *at into `name`: its length, 0 at the end, -ENAMETOOLONG. */
static int next_name(const char **at, char name[NAME_MAX + 1])
{
    size_t n = 0;

    while (**at == '/')
        (*at)++;
    for (; **at != 0 && **at != '/'; (*at)++) {
        if (n == NAME_MAX)
            return -ENAMETOOLONG;
        name[n++] = **at;
    }
    name[n] = 0;
    return (int)n;
}

static bool is_link(int dir, const char *name)
{
    struct stat st = {0};

    return raw_call4(SYS_newfstatat, dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* ---- directories -------------------------------------------------------------------------------------- */

static long open2(int dir, const char *path, uint64_t resolve)
{
    const struct open_how how = {.flags = DIR_FLAGS, .resolve = RESOLVE_NO_MAGICLINKS | resolve};
    long fd = -ENOSYS;

    /* Beneath: EAGAIN when something was renamed while `..` of a link was looked up. */
    for (int i = 0; i < RETRIES_MAX && !no_openat2; i++) {
        fd = raw_call4(SYS_openat2, dir, path, &how, sizeof(how));
        if (fd == -ENOSYS)
            no_openat2 = true;
        if (fd != -EAGAIN && fd != -EINTR)
            break;
    }
    return fd;
}

/* By hand, through real directories only. */
static int plain_by_hand(int root, const char *path, bool make)
{
    char name[NAME_MAX + 1];
    int n, fd = (int)raw_call4(SYS_openat, root, ".", DIR_FLAGS, 0);

    while (fd >= 0 && (n = next_name(&path, name)) != 0) {
        long next = n < 0 ? n : raw_call4(SYS_openat, fd, name, DIR_FLAGS | O_NOFOLLOW, 0);

        if (next == -ENOENT && make) {
            next = raw_call3(SYS_mkdirat, fd, name, 0755);
            if (next == 0 || next == -EEXIST)
                next = raw_call4(SYS_openat, fd, name, DIR_FLAGS | O_NOFOLLOW, 0);
        }
        if (next == -ENOTDIR && is_link(fd, name))
            next = -ELOOP;
        raw_call1(SYS_close, fd);
        fd = (int)next;
    }
    return fd;
}

int path_plain_dir(int root, const char *path, bool make)
{
    long fd = open2(root, path[0] != 0 ? path : ".", RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

    if (fd == -ENOSYS || (fd == -ENOENT && make))
        return plain_by_hand(root, path, make);
    return (int)fd;
}

/* The target of a link before what is left of the path. */
static int put_before(char todo[WORK_SIZE], const char *rest)
{
    static char joined[WORK_SIZE];
    size_t n = __builtin_strlen(target), m = __builtin_strlen(rest);

    if (n + 1 + m + 1 > WORK_SIZE)
        return -ENAMETOOLONG;
    __builtin_memcpy(joined, target, n);
    joined[n] = '/';
    __builtin_memcpy(joined + n + 1, rest, m + 1);
    __builtin_memcpy(todo, joined, n + 1 + m + 1);
    return 0;
}

static int read_link(int dir, const char *name)
{
    long n = raw_call4(SYS_readlinkat, dir, name, target, sizeof(target));

    if (n < 0)
        return (int)n;
    if (n == 0 || n == sizeof(target))
        return -ENAMETOOLONG;
    target[n] = 0;
    return 0;
}

/* The state of confined_by_hand(): `fd` is `done` below the root. */
struct steps {
    int root, fd;
    size_t done_len;
    char done[WORK_SIZE];
};

static int step_up(struct steps *steps)
{
    if (steps->done_len == 0)
        return -EXDEV;
    while (steps->done_len > 0 && steps->done[--steps->done_len] != '/')
        ;
    steps->done[steps->done_len] = 0;
    close_fd(&steps->fd);
    steps->fd = plain_by_hand(steps->root, steps->done, false);
    return steps->fd < 0 ? -EAGAIN : 0; /* it was there a moment ago */
}

/* 0: entered; 1: a link, read into `target`. */
static int step_down(struct steps *steps, const char *name, size_t n)
{
    struct stat st = {0};
    long ret, fd = raw_call4(SYS_openat, steps->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

    if (raw_failed(fd))
        return (int)fd;
    ret = raw_call2(SYS_fstat, fd, &st);
    if (ret == 0 && S_ISDIR(st.st_mode) && steps->done_len + 1 + n + 1 <= WORK_SIZE) {
        if (steps->done_len > 0)
            steps->done[steps->done_len++] = '/';
        __builtin_memcpy(steps->done + steps->done_len, name, n + 1);
        steps->done_len += n;
        close_fd(&steps->fd);
        steps->fd = (int)fd;
        return 0;
    }
    if (ret == 0)
        ret = S_ISLNK(st.st_mode) ? read_link((int)fd, "") : S_ISDIR(st.st_mode) ? -ENAMETOOLONG : -ENOTDIR;
    raw_call1(SYS_close, fd);
    return ret < 0 ? (int)ret : 1;
}

static int confined_by_hand(int root, const char *path)
{
    static struct steps steps;
    static char todo[WORK_SIZE];
    const char *at = todo;
    char name[NAME_MAX + 1];
    int n, ret = 0, links = 0;

    __builtin_memcpy(todo, path, __builtin_strlen(path) + 1);
    steps = (struct steps){.root = root, .fd = (int)raw_call4(SYS_openat, root, ".", DIR_FLAGS, 0)};
    if (steps.fd < 0 || todo[0] == '/')
        ret = steps.fd < 0 ? steps.fd : -EXDEV;
    while (ret == 0 && (n = next_name(&at, name)) != 0) {
        if (n < 0)
            ret = n;
        else if (is_dots(name))
            ret = name[1] == '.' ? step_up(&steps) : 0;
        else if ((ret = step_down(&steps, name, (size_t)n)) == 1) {
            ret = ++links > LINKS_MAX ? -ELOOP : target[0] == '/' ? -EXDEV : put_before(todo, at);
            at = todo;
        }
    }
    if (ret < 0)
        close_fd(&steps.fd);
    return ret < 0 ? ret : steps.fd;
}

static int open_dir(const struct root *root, const char *path)
{
    long fd = open2(root->fd, path[0] != 0 ? path : ".", root->confined ? RESOLVE_BENEATH : 0);

    if (fd != -ENOSYS)
        return (int)fd;
    if (!root->confined)
        return (int)raw_call4(SYS_openat, root->fd, path[0] != 0 ? path : ".", DIR_FLAGS, 0);
    fd = -EAGAIN;
    for (int i = 0; i < RETRIES_MAX && fd == -EAGAIN; i++)
        fd = confined_by_hand(root->fd, path);
    return (int)fd;
}

/* Every missing directory of a path. A link that leads nowhere stays one: ENOENT. */
static int make_dirs(const struct root *root, char *path)
{
    char *at = path + (path[0] == '/');
    int fd = open_dir(root, path[0] == '/' ? "/" : "");

    while (fd >= 0 && *at != 0) {
        char *end = at, saved;
        int next;

        while (*end != 0 && *end != '/')
            end++;
        saved = *end;
        *end = 0;
        next = open_dir(root, path);
        if (next == -ENOENT) {
            next = (int)raw_call3(SYS_mkdirat, fd, at, 0755);
            if (next == 0 || next == -EEXIST)
                next = open_dir(root, path);
        }
        *end = saved;
        raw_call1(SYS_close, fd);
        fd = next;
        for (at = end; *at == '/'; at++)
            ;
    }
    return fd;
}

/* ---- places -------------------------------------------------------------------------------------------- */

/* Cuts `work` into a directory and a name in it. Returns the length of the directory's path. */
static int split(struct place *place)
{
    size_t len = __builtin_strlen(work), at;

    while (len > 1 && work[len - 1] == '/')
        len--;
    for (at = len; at > 0 && work[at - 1] != '/'; at--)
        ;
    work[len] = 0;
    if (len - at > NAME_MAX)
        return -ENAMETOOLONG;
    if (at == len || is_dots(work + at)) {
        __builtin_memcpy(place->name, ".", 2);
        return (int)len;
    }
    __builtin_memcpy(place->name, work + at, len - at + 1);
    return (int)at;
}

static int open_parent(const struct root *root, int dir_len, unsigned how)
{
    char saved = work[dir_len];
    int fd;

    work[dir_len] = 0;
    fd = open_dir(root, work);
    if (fd == -ENOENT && (how & PATH_PARENTS))
        fd = make_dirs(root, work);
    work[dir_len] = saved;
    return fd;
}

static int find(const struct root *root, unsigned how, struct place *place)
{
    for (int links = 0; links <= LINKS_MAX; links++) {
        int ret, dir_len = split(place);

        if (dir_len < 0)
            return dir_len;
        place->dir = open_parent(root, dir_len, how);
        if (place->dir < 0 || !(how & PATH_FOLLOW) || is_dots(place->name))
            return place->dir < 0 ? place->dir : 0;
        ret = read_link(place->dir, place->name);
        if (ret == -EINVAL || ret == -ENOENT) /* not a link, or not there yet */
            return 0;
        close_fd(&place->dir);
        if (ret < 0)
            return ret;
        if (target[0] == '/' && root->confined)
            return -EXDEV;
        if (target[0] == '/')
            dir_len = 0;
        if ((size_t)dir_len + __builtin_strlen(target) + 1 > WORK_SIZE)
            return -ENAMETOOLONG;
        __builtin_memcpy(work + dir_len, target, __builtin_strlen(target) + 1);
    }
    return -ELOOP;
}

int path_find(const struct svc_path *path, struct svc_bytes what, unsigned how, struct place *ret)
{
    struct root root = {AT_FDCWD, path->flags & SVC_PATH_CONFINE};
    struct place place = {.dir = -1};
    bool ignored;
    int err;

    if (path->flags & ~(SVC_PATH_CONFINE | SVC_PATH_NOFOLLOW))
        return -EINVAL;
    if ((err = clean(what, work, &place.must_dir)) < 0)
        return err;
    if (work[0] == '/' && root.confined)
        return -EXDEV;
    if (work[0] != '/') {
        const struct root all = {AT_FDCWD, false};

        if (path->base.len == 0 || path->base.data[0] != '/' || clean(path->base, target, &ignored) < 0)
            return -EINVAL;
        if ((root.fd = open_dir(&all, target)) < 0)
            return root.fd;
    }
    err = find(&root, how, &place);
    if (root.fd >= 0)
        raw_call1(SYS_close, root.fd);
    if (err == 0)
        *ret = place;
    return err;
}

unsigned path_follow(const struct svc_path *path)
{
    return path->flags & SVC_PATH_NOFOLLOW ? 0 : PATH_FOLLOW;
}

void place_done(struct place *place)
{
    close_fd(&place->dir);
}

int place_stat(const struct place *place, struct stat *ret)
{
    long err = raw_call4(SYS_newfstatat, place->dir, place->name, ret, AT_SYMLINK_NOFOLLOW);

    if (err == 0 && place->must_dir && !S_ISDIR(ret->st_mode))
        return -ENOTDIR;
    return (int)err;
}

/*
 * It is looked at before it is opened: a FIFO would wake a process at its other end, and a device may do anything. If
 * something else takes its place in between, that is opened without waiting, seen, and closed.
 */
int place_open(const struct place *place, int flags, struct stat *st)
{
    long fd, ret = place_stat(place, st);

    if (ret != 0)
        return (int)ret;
    for (bool again = true;; again = false) {
        if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
            return S_ISLNK(st->st_mode) ? -ELOOP : -ENXIO;
        if (!again)
            return (int)fd;
        fd = raw_call4(SYS_openat, place->dir, place->name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
        if (raw_failed(fd))
            return (int)fd;
        ret = raw_call2(SYS_fstat, fd, st);
        if (ret != 0 || (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)))
            raw_call1(SYS_close, fd);
        if (ret != 0)
            return (int)ret;
    }
}
