/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_own.c: what this layer has made. A whiteout removes what the layers below have and never what its own layer
 * has, in whatever order the archive brings them; in the merged view both look the same, so the paths that were made
 * are remembered. Only their hashes are kept, keyed by a random seed: a million files take some 24 MiB.
 *
 * Directories are kept with their paths, because their times can be set only when nothing is made in them any more. A
 * directory of a layer below that this layer does not name keeps the time it has.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/mem.h"
#include "layer/layer.h"

#define SLOTS_FIRST 4096u
#define PATHS_MAX ((size_t)1 << 31)

int own_init(struct layer_own *own, struct brig_err *err)
{
    *own = (struct layer_own){.slots = SLOTS_FIRST};
    if (getrandom(own->seed, sizeof(own->seed), 0) != (ssize_t)sizeof(own->seed))
        return err_host(err, "getrandom");
    own->keys = mem_zalloc(SLOTS_FIRST * sizeof(*own->keys));
    own->dirs = mem_zalloc(SLOTS_FIRST * sizeof(*own->dirs));
    return own->keys && own->dirs ? 0 : err_nomem(err);
}

void own_done(struct layer_own *own)
{
    mem_free(own->keys);
    mem_free(own->dirs);
    mem_free(own->list);
    mem_free(own->paths);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/*
 * Two kinds of things are in the table, each under its own hash: paths that this layer has made, and directories with a
 * time. A whiteout may change the time of a directory that is not this layer's own. 0 marks an empty slot.
 */
static uint64_t hash_of(const struct layer_own *own, const char *path, size_t len, bool is_dir)
{
    uint64_t hash = mix(own->seed[0] ^ (len * 2 + is_dir), own->seed[1] | 1), piece = 0;

    for (; len >= sizeof(piece); path += sizeof(piece), len -= sizeof(piece)) {
        memcpy(&piece, path, sizeof(piece));
        hash = mix(hash ^ piece, own->seed[1] | 1);
    }
    piece = 0;
    memcpy(&piece, path, len);
    hash = mix(hash ^ piece, UINT64_C(0x9e3779b97f4a7c15) ^ own->seed[1]);
    return hash != 0 ? hash : 1;
}

/* The slot of a key, or the empty one where it would be. */
static size_t slot_of(const uint64_t *keys, size_t slots, uint64_t key)
{
    size_t at = (size_t)key & (slots - 1);

    while (keys[at] != 0 && keys[at] != key)
        at = (at + 1) & (slots - 1);
    return at;
}

static int grow(struct layer_own *own)
{
    size_t slots = own->slots * 2;
    uint64_t *keys = mem_zalloc(slots * sizeof(*keys));
    uint32_t *dirs = mem_zalloc(slots * sizeof(*dirs));

    if (!keys || !dirs) {
        mem_free(keys);
        mem_free(dirs);
        return -ENOMEM;
    }
    for (size_t i = 0; i < own->slots; i++)
        if (own->keys[i] != 0) {
            size_t at = slot_of(keys, slots, own->keys[i]);
            keys[at] = own->keys[i];
            dirs[at] = own->dirs[i];
        }
    mem_free(own->keys);
    mem_free(own->dirs);
    own->keys = keys;
    own->dirs = dirs;
    own->slots = slots;
    return 0;
}

/* Returns the slot of a path that is in the table from now on, or -ENOMEM. */
static ssize_t add(struct layer_own *own, const char *path, size_t len, bool is_dir)
{
    uint64_t key = hash_of(own, path, len, is_dir);
    size_t at = slot_of(own->keys, own->slots, key);

    if (own->keys[at] == key)
        return (ssize_t)at;
    if (own->n + 1 > own->slots / 4 * 3) {
        if (grow(own) < 0)
            return -ENOMEM;
        at = slot_of(own->keys, own->slots, key);
    }
    own->keys[at] = key;
    own->n++;
    return (ssize_t)at;
}

int own_add(struct layer_own *own, const char *path, size_t len)
{
    return add(own, path, len, false) < 0 ? -ENOMEM : 0;
}

bool own_has(const struct layer_own *own, const char *path, size_t len)
{
    return own->keys[slot_of(own->keys, own->slots, hash_of(own, path, len, false))] != 0;
}

/* ---- directories ----------------------------------------------------------------------------------------- */

static int keep_path(struct layer_own *own, const char *path, size_t len)
{
    size_t needed = own->paths_len + len + 1;

    if (needed > PATHS_MAX)
        return -ENOMEM;
    if (needed > own->paths_cap) {
        size_t cap = needed * 2;
        char *paths = mem_realloc(own->paths, cap);
        if (!paths)
            return -ENOMEM;
        own->paths = paths;
        own->paths_cap = cap;
    }
    memcpy(own->paths + own->paths_len, path, len);
    own->paths[own->paths_len + len] = '\0';
    own->paths_len = needed;
    return 0;
}

struct layer_dir *own_dir(struct layer_own *own, const char *path, size_t len, const struct layer_dir *first)
{
    ssize_t slot = add(own, path, len, true);

    if (slot < 0)
        return NULL;
    if (own->dirs[slot] != 0)
        return &own->list[own->dirs[slot] - 1];
    if (own->n_list == own->list_cap) {
        size_t cap = own->list_cap * 2 + 64;
        struct layer_dir *list = mem_realloc_array(own->list, cap, sizeof(*list));
        if (!list)
            return NULL;
        own->list = list;
        own->list_cap = cap;
    }
    struct layer_dir *dir = &own->list[own->n_list];
    *dir = *first;
    dir->path = (uint32_t)own->paths_len;
    dir->len = (uint32_t)len;
    if (keep_path(own, path, len) < 0)
        return NULL;
    own->dirs[slot] = (uint32_t)++own->n_list;
    return dir;
}

/* Whatever lies at the path now: a link is not followed, and what is no directory any more is left alone. */
static int finish_dir(const struct layer_dir *dir, const char *path, int root)
{
    const struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, dir->mtime};
    AUTO_FD int fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
    if (futimens(fd, times) < 0 || (dir->has_mode && fchmod(fd, dir->mode) < 0))
        return -errno;
    return 0;
}

static int deeper_first(const void *one, const void *other, void *own)
{
    const char *paths = ((const struct layer_own *)own)->paths;
    const struct layer_dir *a = one, *b = other;

    return strcmp(paths + b->path, paths + a->path);
}

int own_finish(struct layer_own *own, int root, struct brig_err *err)
{
    if (own->n_list == 0)
        return 0;
    qsort_r(own->list, own->n_list, sizeof(*own->list), deeper_first, own);
    for (size_t i = 0; i < own->n_list; i++) {
        const char *path = own->paths + own->list[i].path;
        int r = finish_dir(&own->list[i], path, root);
        if (r < 0)
            return layer_fail(err, path, -r, "its time");
    }
    return 0;
}
