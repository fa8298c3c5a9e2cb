/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_walk.c: goes through a tree, depth first, in bounded memory and with a bounded number of descriptors.
 *
 *     depth     0    1    2  ...  d-15 ... d        the way from the root to the current directory
 *     levels    x    x    x  ...   x   ... x        who it was (device, inode), where to go on
 *     slots                        x   ... x        descriptor and the entries read ahead; slot = depth % WALK_SLOTS
 *
 * A directory whose slot was taken by one sixteen levels below is opened again as `..` of its child when the walk comes
 * back. A program may have moved the child meanwhile; then `..` is not who it was, and the walk ends with ESTALE: it
 * never goes on in a tree that nobody asked for. Directories are entered by descriptor and name, never through a
 * symlink.
 */
#include <dirent.h>
#include <sys/mman.h>

#include "guest/files/files_int.h"

#define LEVELS_MAX (1u << 20)
#define LEVELS_FIRST (GUEST_PAGE / sizeof(struct walk_level))
#define ENTER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

static struct walk_slot *slot_of(struct walk *walk, uint32_t depth)
{
    return &walk->slots[depth % WALK_SLOTS];
}

/* Who this directory is. Takes the descriptor. */
static int take_level(struct walk *walk, uint32_t depth, int fd)
{
    struct walk_slot *slot = slot_of(walk, depth);
    struct stat st = {0};
    long ret = raw_call2(SYS_fstat, fd, &st);

    if (ret != 0) {
        raw_call1(SYS_close, fd);
        return (int)ret;
    }
    walk->levels[depth] = (struct walk_level){.dev = st.st_dev, .ino = st.st_ino, .path_len = walk->path_len};
    close_fd(&slot->fd); /* of one sixteen levels above */
    slot->fd = fd;
    slot->at = slot->len = slot->last = 0;
    return 0;
}

int walk_init(struct walk *walk, int fd)
{
    for (unsigned i = 0; i < WALK_SLOTS; i++)
        walk->slots[i].fd = -1;
    walk->levels_size = LEVELS_FIRST * sizeof(struct walk_level);
    walk->levels = files_map(walk->levels_size);
    if (!walk->levels) {
        raw_call1(SYS_close, fd);
        return -ENOMEM;
    }
    return take_level(walk, 0, fd);
}

void walk_done(struct walk *walk)
{
    if (!walk->levels)
        return;
    for (unsigned i = 0; i < WALK_SLOTS; i++)
        close_fd(&walk->slots[i].fd);
    files_unmap(walk->levels, walk->levels_size);
    walk->levels = NULL;
}

static int more_levels(struct walk *walk)
{
    size_t size = walk->levels_size * 2;
    long at;

    if ((walk->depth + 2) * sizeof(struct walk_level) <= walk->levels_size)
        return 0;
    if (size > LEVELS_MAX * sizeof(struct walk_level))
        return -ENAMETOOLONG;
    at = raw_call4(SYS_mremap, walk->levels, walk->levels_size, size, MREMAP_MAYMOVE);
    if (raw_failed(at))
        return (int)at;
    walk->levels = (void *)at;
    walk->levels_size = size;
    return 0;
}

/* A full table of descriptors: the upper directories can be opened again. */
static bool give_up_a_slot(struct walk *walk)
{
    for (uint32_t depth = walk->depth < WALK_SLOTS ? 0 : walk->depth - WALK_SLOTS + 1; depth < walk->depth; depth++)
        if (slot_of(walk, depth)->fd >= 0) {
            close_fd(&slot_of(walk, depth)->fd);
            return true;
        }
    return false;
}

int walk_enter(struct walk *walk)
{
    struct walk_slot *slot = slot_of(walk, walk->depth);
    const struct raw_dirent *entry = (const void *)(slot->entries + slot->last);
    int ret = more_levels(walk);
    long fd;

    if (ret < 0)
        return ret;
    if (!walk->no_path && walk->path_len >= SVC_PATH_MAX)
        return -ENAMETOOLONG;
    do
        fd = raw_call4(SYS_openat, slot->fd, entry->name, ENTER_FLAGS, 0);
    while (fd == -EINTR || (fd == -EMFILE && give_up_a_slot(walk)));
    if (raw_failed(fd))
        return (int)fd;
    ret = take_level(walk, walk->depth + 1, (int)fd);
    walk->depth += ret == 0;
    return ret;
}

/* Back to the parent, whose slot may be gone. */
static int leave(struct walk *walk)
{
    struct walk_slot *child = slot_of(walk, walk->depth), *slot = slot_of(walk, walk->depth - 1);
    const struct walk_level *level = &walk->levels[walk->depth - 1];
    struct stat st = {0};
    long fd, ret;

    if (slot->fd < 0) {
        fd = raw_call4(SYS_openat, child->fd, "..", ENTER_FLAGS, 0);
        if (raw_failed(fd))
            return (int)fd;
        ret = raw_call2(SYS_fstat, fd, &st);
        if (ret == 0 && (st.st_dev != level->dev || st.st_ino != level->ino))
            ret = -ESTALE;
        if (ret == 0)
            ret = raw_call3(SYS_lseek, fd, level->next, SEEK_SET);
        if (raw_failed(ret)) {
            raw_call1(SYS_close, fd);
            return (int)ret;
        }
        slot->fd = (int)fd;
        slot->at = slot->len = slot->last = 0;
    }
    close_fd(&child->fd);
    walk->path_len = walk->levels[walk->depth].path_len;
    walk->path[walk->no_path ? 0 : walk->path_len] = 0;
    walk->depth--;
    return 0;
}

static void name_entry(struct walk *walk, const struct raw_dirent *entry, struct walk_entry *ret)
{
    const struct walk_slot *slot = slot_of(walk, walk->depth);
    uint32_t len = walk->levels[walk->depth].path_len;

    ret->dir = slot->fd;
    ret->name = entry->name;
    ret->name_len = (uint32_t)__builtin_strlen(entry->name);
    ret->type = entry->type;
    if (walk->no_path)
        return;
    if (len > 0)
        walk->path[len++] = '/';
    __builtin_memcpy(walk->path + len, entry->name, ret->name_len + 1);
    walk->path_len = len + ret->name_len;
}

/* A directory that was removed while it was read has simply no more entries. */
static long fill(struct walk_slot *slot)
{
    long n;

    do
        n = raw_call3(SYS_getdents64, slot->fd, slot->entries, sizeof(slot->entries));
    while (n == -EINTR);
    if (n == -ENOENT)
        n = 0;
    slot->at = slot->last = 0;
    slot->len = n > 0 ? (uint32_t)n : 0;
    return n;
}

int walk_next(struct walk *walk, struct walk_entry *ret)
{
    for (;;) {
        struct walk_slot *slot = slot_of(walk, walk->depth);
        const struct raw_dirent *entry = (const void *)(slot->entries + slot->at);
        long n;
        int err;

        if (slot->at < slot->len) {
            slot->last = slot->at;
            slot->at += entry->reclen;
            walk->levels[walk->depth].next = entry->off;
            if (is_dots(entry->name))
                continue;
            name_entry(walk, entry, ret);
            return WALK_ENTRY;
        }
        if ((n = fill(slot)) < 0)
            return (int)n;
        if (n > 0)
            continue;
        if (walk->depth == 0)
            return WALK_END;
        if ((err = leave(walk)) < 0)
            return err;
        slot = slot_of(walk, walk->depth);
        entry = (const void *)(slot->entries + slot->last);
        *ret = (struct walk_entry){.dir = slot->fd, .name = slot->len > 0 ? entry->name : NULL, .type = DT_DIR};
        return WALK_LEAVE;
    }
}

int walk_again(struct walk *walk)
{
    struct walk_slot *slot = slot_of(walk, walk->depth);

    slot->at = slot->len = slot->last = 0;
    return (int)raw_call3(SYS_lseek, slot->fd, 0, SEEK_SET);
}
