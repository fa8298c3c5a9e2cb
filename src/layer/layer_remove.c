/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_remove.c: removes things from the merged view, by descriptors and without following a link. The overlay turns
 * each removal into a whiteout of its own where a layer below has the name. It holds one descriptor for each level.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "layer/layer.h"

#define LEVELS_MAX 512u

static bool is_dots(const char *name)
{
    return str_eq(name, ".") || str_eq(name, "..");
}

static int open_dir(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int remove_below(int dir, const char *name, unsigned level);

/* Empties a directory and closes it. */
static int empty(int fd, unsigned level)
{
    DIR *list = fdopendir(fd);
    int r = 0;

    if (!list) {
        r = -errno;
        base_close_fd(&fd);
        return r;
    }
    for (struct dirent *entry; r == 0 && (errno = 0, entry = readdir(list));)
        if (!is_dots(entry->d_name))
            r = remove_below(dirfd(list), entry->d_name, level + 1);
    if (r == 0 && errno != 0)
        r = -errno;
    closedir(list);
    return r;
}

static int remove_below(int dir, const char *name, unsigned level)
{
    int fd, r;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (level == LEVELS_MAX)
        return -ENAMETOOLONG;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    fd = open_dir(dir, name);
    r = fd < 0 ? fd : empty(fd, level);
    return r < 0 ? r : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int remove_all(int dir, const char *name)
{
    return remove_below(dir, name, 0);
}

/* The path of a name in a directory; that of the root is empty. */
static int join(char out[TAR_NAME_MAX + 1], const char *path, const char *name)
{
    return str_format(out, TAR_NAME_MAX + 1, "%s%s%s", path, *path ? "/" : "", name);
}

/* Its own directory may hold things of layers below; all else of its own stays. */
static int remove_entry(int dir, const char *path, const char *name, struct layer_own *own)
{
    char below[TAR_NAME_MAX + 1];
    int fd, len = join(below, path, name);

    if (len < 0)
        return len;
    if (!own_has(own, below, (size_t)len))
        return remove_all(dir, name);
    fd = open_dir(dir, name);
    if (fd < 0)
        return fd == -ENOTDIR || fd == -ELOOP ? 0 : fd;
    return remove_lower(fd, below, own);
}

int remove_lower(int dir, const char *path, struct layer_own *own)
{
    struct layer_dir kept = {0};
    struct stat st;
    DIR *list = fdopendir(dir);
    int r = 0;

    if (!list || fstat(dir, &st) < 0) {
        r = -errno;
        if (list)
            closedir(list);
        else
            base_close_fd(&dir);
        return r;
    }
    kept.mtime = st.st_mtim;
    if (!own_dir(own, path, strlen(path), &kept))
        r = -ENOMEM;
    for (struct dirent *entry; r == 0 && (errno = 0, entry = readdir(list));)
        if (!is_dots(entry->d_name))
            r = remove_entry(dir, path, entry->d_name, own);
    if (r == 0 && errno != 0)
        r = -errno;
    closedir(list);
    return r;
}
