/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_place.c: the way from the root of a layer to the directory of a member.
 *
 * Theory of operation. The directories on the way are held open, from the root down, and every step opens or makes one
 * name in the directory above without following it. So no step leaves the root, whatever the names and links say, and
 * most members need no step at all: they lie where the last one lay.
 *
 * A symbolic link on the way is read and walked here, with `/` and `..` meant inside the root, as in a chroot: an image
 * may write to lib/x where a layer below has /lib -> usr/lib. The path that is kept is the one without links, so that
 * two names of one file are one path. Nobody else changes the tree.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/str.h"
#include "layer/layer.h"

void place_init(struct layer_place *place, int root, struct layer_own *own)
{
    *place = (struct layer_place){.own = own};
    place->levels[0].fd = root;
}

static void leave(struct layer_place *place)
{
    base_close_fd(&place->levels[place->depth].fd);
    place->depth--;
    place->path[place->levels[place->depth].len] = '\0';
}

void place_reset(struct layer_place *place)
{
    while (place->depth > 0)
        leave(place);
    place->raw_valid = false;
}

/* How many of the open directories begin this path: it sets *at behind them. */
static unsigned common_levels(const struct layer_place *place, const char *path, size_t len, size_t *at)
{
    unsigned depth = 0;

    *at = 0;
    while (depth < place->depth) {
        size_t end = place->levels[depth + 1].len;
        if (end > len || memcmp(path, place->path, end) != 0 || (end < len && path[end] != '/'))
            break;
        depth++;
        *at = end < len ? end + 1 : end;
    }
    return depth;
}

static int enter(struct layer_place *place, const char *name, int fd)
{
    struct place_level *above = &place->levels[place->depth];
    size_t len = strlen(name), start = above->len + (above->len > 0);

    if (place->depth == LAYER_DEPTH_MAX || start + len > TAR_NAME_MAX) {
        base_close_fd(&fd);
        return -ENAMETOOLONG;
    }
    if (above->len > 0)
        place->path[above->len] = '/';
    memcpy(place->path + start, name, len + 1);
    place->levels[++place->depth] = (struct place_level){.fd = fd, .len = (uint32_t)(start + len)};
    return 0;
}

/* A directory that the archive does not name. */
static int make(struct layer_place *place, const char *name, const struct timespec *mtime)
{
    const struct layer_dir dir = {.mtime = *mtime};
    char path[TAR_NAME_MAX + 1];
    int fd, len = place_path(place, name, path), r = len < 0 ? len : place_touch(place);

    if (r < 0)
        return r;
    if (mkdirat(place_fd(place), name, 0755) < 0)
        return -errno;
    if (!own_dir(place->own, path, (size_t)len, &dir) || own_add(place->own, path, (size_t)len) < 0)
        return -ENOMEM;
    fd = openat(place_fd(place), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* What is in the way is no directory. Returns 1 for a link that was put before the rest, 0 if the way ends here. */
static int pass_link(struct layer_place *place, const char *name, enum place_way way, struct layer_todo *todo)
{
    char target[TAR_NAME_MAX + 1];
    ssize_t len = readlinkat(place_fd(place), name, target, sizeof(target));
    int r;

    if (len < 0 && errno != EINVAL)
        return -errno;
    if (way == PLACE_STRICT)
        return 0;
    if (len < 0)
        return -ENOTDIR;
    if ((size_t)len == sizeof(target))
        return -ENAMETOOLONG;
    if ((r = todo_link(todo, target, (size_t)len)) < 0)
        return r;
    if (target[0] == '/')
        place_reset(place);
    return 1;
}

/* One name further. Returns 1, 0 if the way ends here, or an error. */
static int step(struct layer_place *place, const char *name, enum place_way way, const struct timespec *mtime,
                struct layer_todo *todo)
{
    int fd, r;

    if (str_eq(name, ".."))
        return place->depth > 0 ? leave(place), 1 : 1;
    fd = openat(place_fd(place), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return pass_link(place, name, way, todo);
    if (fd < 0 && errno == ENOENT) {
        if (way != PLACE_MAKE)
            return 0;
        fd = make(place, name, mtime);
        if (fd < 0)
            return fd;
    } else if (fd < 0) {
        return -errno;
    }
    r = enter(place, name, fd);
    return r < 0 ? r : 1;
}

static int fail(struct brig_err *err, const struct layer_place *place, const char *path, int r)
{
    if (r == -ENOTDIR)
        return layer_fail(err, path, 0, "it lies below something that is no directory");
    if (r == -ELOOP)
        return layer_fail(err, path, 0, "a loop of symbolic links is on its way");
    if (r == -ENAMETOOLONG && place->depth == LAYER_DEPTH_MAX)
        return layer_fail(err, path, 0, "it is more than %u directories deep", LAYER_DEPTH_MAX);
    if (r == -ENAMETOOLONG)
        return layer_fail(err, path, 0, "a name of more than %u bytes, or a path of more than %u", LAYER_NAME_MAX,
                          TAR_NAME_MAX);
    return layer_fail(err, path, -r, "the directory it is in");
}

/* The directories of what this layer makes are its own, as far as whiteouts are concerned. */
static int own_levels(struct layer_place *place)
{
    for (unsigned i = place->depth; i > 0 && !place->levels[i].owned; i--) {
        if (own_add(place->own, place->path, place->levels[i].len) < 0)
            return -ENOMEM;
        place->levels[i].owned = true;
    }
    return 0;
}

/* Walks to a directory, given as a path that the parser has cleaned. */
static int walk(struct layer_place *place, const char *path, size_t len, enum place_way way,
                const struct timespec *mtime)
{
    struct layer_todo todo;
    const char *name;
    size_t at;
    unsigned depth = common_levels(place, path, len, &at);
    int r = todo_init(&todo, path, len);

    if (r < 0)
        return r;
    todo.at = at;
    while (place->depth > depth)
        leave(place);
    r = 1;
    for (size_t n; r > 0 && (n = todo_next(&todo, &name)) > 0;) {
        char copy[LAYER_NAME_MAX + 1];
        if (n > LAYER_NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(copy, name, n);
        copy[n] = '\0';
        r = step(place, copy, way, mtime, &todo);
    }
    return r;
}

int place_enter(struct layer_place *place, const char *path, enum place_way way, const struct timespec *mtime,
                const char **ret_name, struct brig_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    int r = 1;

    if (!(way != PLACE_STRICT && place->raw_valid && strlen(place->raw) == len && memcmp(place->raw, path, len) == 0)) {
        place->raw_valid = false;
        r = walk(place, path, len, way, mtime);
        if (r < 0)
            return fail(err, place, path, r);
        if (r == 0)
            return 0;
        memcpy(place->raw, path, len);
        place->raw[len] = '\0';
        place->raw_valid = way != PLACE_STRICT;
    }
    *ret_name = slash ? slash + 1 : path;
    if (strlen(*ret_name) > LAYER_NAME_MAX)
        return fail(err, place, path, -ENAMETOOLONG);
    if (way == PLACE_MAKE && (r = own_levels(place)) < 0)
        return err_nomem(err);
    return 1;
}

int place_touch(struct layer_place *place)
{
    struct place_level *level = &place->levels[place->depth];
    struct layer_dir dir = {0};
    struct stat st;

    if (level->touched)
        return 0;
    if (fstat(level->fd, &st) < 0)
        return -errno;
    dir.mtime = st.st_mtim;
    if (!own_dir(place->own, place->path, level->len, &dir))
        return -ENOMEM;
    level->inherits = (st.st_mode & S_ISGID) != 0 || fgetxattr(level->fd, "system.posix_acl_default", NULL, 0) > 0;
    level->touched = true;
    return 0;
}

int place_path(const struct layer_place *place, const char *name, char out[TAR_NAME_MAX + 1])
{
    return place->depth > 0 ? str_format(out, TAR_NAME_MAX + 1, "%s/%s", place->path, name)
                            : str_format(out, TAR_NAME_MAX + 1, "%s", name);
}
