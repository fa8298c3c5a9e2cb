/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers.c: the store of template layers (layers.h). Names come from brigd, which may have been taken over: only the
 * two forms of names are ever used, below the descriptor of the store. Content is removed by descriptors and without
 * following links.
 *
 * A tree is removed without recursion, however deep somebody has made it: a directory that is not empty is renamed to
 * the top of the store, where it is one more thing to be removed. A sweep that is killed leaves nothing that the next
 * one does not find.
 */
#include "host/layers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ascii.h"
#include "base/dir.h"
#include "base/err.h"
#include "base/str.h"
#include "host/dirs.h"
#include "jail/sys.h"

#define MADE_PREFIX "made-"
#define GONE_PREFIX "gone-"
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

bool layer_name_ok(const char *name)
{
    return strlen(name) == LAYER_NAME_LEN && strspn(name, "0123456789abcdef") == LAYER_NAME_LEN;
}

bool layer_new_name_ok(const char *name)
{
    size_t prefix = sizeof LAYER_NEW_PREFIX - 1, len = ID_SANDBOX_SIZE - 1;

    return str_starts(name, LAYER_NEW_PREFIX) && strlen(name) == prefix + len &&
           strspn(name + prefix, ASCII_LOWER ASCII_DIGITS) == len;
}

/* ---- start -------------------------------------------------------------------------------------------- */

static int open_tool(const char *helper_dir)
{
    char path[4096];

    if (str_format(path, sizeof path, "%s/brig-layer", helper_dir) < 0)
        return -1;
    return open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

void layers_open(struct layer_store *store, const char *path, const char *helper_dir, bool alone)
{
    struct stat st;
    AUTO_FD int fd = open(path, OPEN_DIR);

    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)snprintf(store->why, sizeof store->why, "%.120s: %s", path, strerror(errno));
        return;
    }
    store->tool_fd = open_tool(helper_dir);
    if (store->tool_fd < 0) {
        (void)snprintf(store->why, sizeof store->why, "%.120s/brig-layer: %s", helper_dir, strerror(errno));
        return;
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077)) {
        (void)snprintf(store->why, sizeof store->why, "%.120s: must be the spawner's own, with mode 0700", path);
        return;
    }
    store->lock_fd = alone ? dirs_lock(fd) : -1;
    if (alone && store->lock_fd < 0)
        (void)snprintf(store->why, sizeof store->why, "%.120s: %s", path,
                       errno == EWOULDBLOCK ? "another spawner uses this store" : strerror(errno));
    else
        store->fd = take_fd(&fd);
}

void layers_done(struct layer_store *store)
{
    base_close_fd(&store->fd);
    base_close_fd(&store->lock_fd);
    base_close_fd(&store->tool_fd);
}

/* ---- names -------------------------------------------------------------------------------------------- */

/* A name that nobody uses: ID_SANDBOX_SIZE - 1 random characters behind a prefix of five. */
static int fresh(const char *prefix, char out[LAYER_MADE_SIZE])
{
    char id[ID_SANDBOX_SIZE];

    if (id_sandbox(id) < 0)
        return -EIO;
    return str_format(out, LAYER_MADE_SIZE, "%s%s", prefix, id) < 0 ? -ENAMETOOLONG : 0;
}

/* Renames what `name` of dir is to a fresh name at the top of the store. */
static int move_up(int store_fd, int dir, const char *name, const char *prefix, char out[LAYER_MADE_SIZE])
{
    int r = fresh(prefix, out);

    if (r < 0)
        return r;
    return SYS(renameat2(dir, name, store_fd, out, RENAME_NOREPLACE)) < 0 ? -errno : 0;
}

static int no_layer(const char *name, int errnum, struct brig_err *err)
{
    return errnum == ENOENT ? err_set(err, BRIG_E_NOT_FOUND, 0, "layer %s: not there", name)
                            : err_set(err, BRIG_E_HOST, errnum, "layer %s", name);
}

int layers_remove(const struct layer_store *store, const char *name, struct brig_err *err)
{
    char gone[LAYER_MADE_SIZE];
    int r = move_up(store->fd, store->fd, name, GONE_PREFIX, gone);

    return r < 0 ? no_layer(name, -r, err) : 0;
}

int layers_finish(const struct layer_store *store, const char *name, char ret[LAYER_MADE_SIZE], struct brig_err *err)
{
    int r = move_up(store->fd, store->fd, name, MADE_PREFIX, ret);

    return r < 0 ? no_layer(name, -r, err) : 0;
}

bool layers_have(const struct layer_store *store, const char *name)
{
    return faccessat(store->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int make_inner(int dir, const char *name, mode_t mode, uid_t owner)
{
    if (SYS(mkdirat(dir, name, mode)) < 0 || SYS(fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW)) < 0)
        return -errno;
    return 0;
}

int layers_make(const struct layer_store *store, const char *name, uid_t owner, struct brig_err *err)
{
    if (SYS(mkdirat(store->fd, name, 0700)) < 0)
        return errno == EEXIST ? err_set(err, BRIG_E_CONFLICT, 0, "layer %s: it is there already", name)
                               : err_host(err, "layer %s", name);
    AUTO_FD int dir = SYS(openat(store->fd, name, OPEN_DIR));
    int r = dir < 0 ? -errno : make_inner(dir, LAYER_NEW_DATA, 0755, owner);
    if (r == 0)
        r = make_inner(dir, LAYER_NEW_WORK, 0700, owner);
    if (r < 0) {
        (void)!layers_remove(store, name, NULL);
        return err_set(err, BRIG_E_HOST, -r, "layer %s", name);
    }
    return 0;
}

/* ---- looking through the store ------------------------------------------------------------------------ */

bool layers_start(const struct layer_store *store)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");
    bool some = false;

    for (const struct dirent *entry; (entry = dir_next(dir));) {
        if (str_starts(entry->d_name, LAYER_NEW_PREFIX) || str_starts(entry->d_name, MADE_PREFIX))
            (void)!layers_remove(store, entry->d_name, NULL);
        else if (!str_starts(entry->d_name, GONE_PREFIX))
            continue;
        some = true;
    }
    return some;
}

int layers_list(const struct layer_store *store, struct buf *out, struct brig_err *err)
{
    AUTO_DIR DIR *dir = dir_open(store->fd, ".");
    int r = 0;

    if (!dir)
        return err_host(err, "store of layers");
    for (const struct dirent *entry; r >= 0 && (entry = dir_next(dir));)
        if (layer_name_ok(entry->d_name) || layer_new_name_ok(entry->d_name))
            r = buf_append(out, entry->d_name, strlen(entry->d_name) + 1);
    return r < 0 ? err_set(err, BRIG_E_TOO_LARGE, -r, "store of layers: too many to list") : 0;
}

/* ---- work that takes time ------------------------------------------------------------------------------ */

int layers_commit(int store_fd, const char *made, const char *to)
{
    char gone[LAYER_MADE_SIZE];
    AUTO_FD int dir = openat(store_fd, made, OPEN_DIR);
    int r = dir < 0 ? -errno : 0;

    /* A layer that has its name is whole, also after a power cut. */
    if (r == 0 && syncfs(dir) < 0)
        r = -errno;
    if (r == 0 && renameat2(dir, LAYER_NEW_DATA, store_fd, to, RENAME_NOREPLACE) < 0 && errno != EEXIST)
        r = -errno;
    if (r == 0 && fsync(store_fd) < 0)
        r = -errno;
    int left = move_up(store_fd, store_fd, made, GONE_PREFIX, gone);
    return r < 0 ? r : left;
}

/* Removes one entry of a directory, or moves it to the top of the store. */
static int remove_entry(int store_fd, int dir, const char *name)
{
    char gone[LAYER_MADE_SIZE];

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? move_up(store_fd, dir, name, GONE_PREFIX, gone) : -errno;
}

/* What readdir() skips while entries go away is found in the next round. */
static int remove_one(int store_fd, const char *name)
{
    for (;;) {
        AUTO_DIR DIR *dir = dir_open(store_fd, name);
        int r = 0;

        if (!dir && errno == ENOENT)
            return 0;
        if (!dir)
            return errno == ENOTDIR && unlinkat(store_fd, name, 0) == 0 ? 0 : -errno;
        for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));)
            r = remove_entry(store_fd, dirfd(dir), entry->d_name);
        if (r < 0 || unlinkat(store_fd, name, AT_REMOVEDIR) == 0)
            return r;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return errno == ENOENT ? 0 : -errno;
    }
}

int layers_sweep(int store_fd)
{
    for (;;) {
        AUTO_DIR DIR *dir = dir_open(store_fd, ".");
        bool some = false;
        int r = dir ? 0 : -errno;

        for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));)
            if (str_starts(entry->d_name, GONE_PREFIX)) {
                some = true;
                r = remove_one(store_fd, entry->d_name);
            }
        if (r < 0 || !some)
            return r;
    }
}
