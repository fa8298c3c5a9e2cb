/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files_meta.c: the calls about names and not about contents: STAT, MKDIR, LIST.
 *
 * LIST sends entries as it meets them: memory does not grow with the tree, and neither order nor one moment in time is
 * promised. What vanishes while it is listed is not listed.
 */
#include <dirent.h>

#include "guest/files/files_int.h"

#define LIST_TURN 256     /* entries */
#define ENTRY_ROOM 16384u /* more than two paths and the numbers */

static int64_t time_ns(const struct timespec *time)
{
    int64_t ns;

    if (__builtin_mul_overflow((int64_t)time->tv_sec, INT64_C(1000000000), &ns) ||
        __builtin_add_overflow(ns, (int64_t)time->tv_nsec, &ns))
        return time->tv_sec < 0 ? INT64_MIN : INT64_MAX; /* before 1677 or after 2262 */
    return ns;
}

static uint32_t type_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return SVC_DIR;
    case S_IFLNK: return SVC_SYMLINK;
    case S_IFIFO: return SVC_FIFO;
    case S_IFSOCK: return SVC_SOCKET;
    case S_IFCHR: return SVC_CHAR;
    case S_IFBLK: return SVC_BLOCK;
    default: return SVC_FILE;
    }
}

struct svc_entry entry_of(const struct stat *st)
{
    return (struct svc_entry){
        .type = type_of(st->st_mode),
        .mode = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .nlink = (uint32_t)st->st_nlink,
        .size = (uint64_t)st->st_size,
        .blocks = (uint64_t)st->st_blocks,
        .inode = st->st_ino,
        .mtime_ns = time_ns(&st->st_mtim),
        .ctime_ns = time_ns(&st->st_ctim),
        .path = {"", 0},
        .target = {"", 0},
    };
}

/* The target of a link that is no link any more stays empty. */
static void put_entry(struct svc_cursor *out, struct svc_entry *entry, int dir, const char *name)
{
    static char target[SVC_PATH_MAX];

    if (entry->type == SVC_SYMLINK) {
        long n = raw_call4(SYS_readlinkat, dir, name, target, sizeof(target));

        if (n > 0)
            entry->target = (struct svc_bytes){target, (uint32_t)n};
    }
    svc_put_entry(out, entry);
}

void entry_put_place(struct svc_cursor *out, const struct place *place, const struct stat *st)
{
    struct svc_entry entry = entry_of(st);

    put_entry(out, &entry, place->dir, place->name);
}

int entry_get_path(struct svc_reader *in, struct svc_path *ret)
{
    *ret = svc_get_path(in);
    return svc_done(in) < 0 ? -EINVAL : 0;
}

static void nothing_to_close(struct call *call)
{
    (void)call;
}

/* ---- STAT ------------------------------------------------------------------------------------------ */

static int stat_open(struct call *call, struct svc_reader *in)
{
    struct svc_path path;
    struct place place;
    struct stat st = {0};
    int ret = entry_get_path(in, &path);

    (void)call;
    if (ret < 0 || (ret = path_find(&path, path.path, path_follow(&path), &place)) < 0)
        return ret;
    ret = place_stat(&place, &st);
    if (ret == 0)
        entry_put_place(&files_reply, &place, &st);
    place_done(&place);
    return ret < 0 ? ret : CALL_DONE;
}

const struct call_ops files_stat_ops = {.open = stat_open, .close = nothing_to_close};

/* ---- MKDIR ----------------------------------------------------------------------------------------- */

/* With `parents` a directory that is there is as good as a new one, also by a link. */
static int make_dir(const struct svc_path *path, struct place *place, uint32_t mode, bool parents)
{
    struct place behind;
    long ret = raw_call3(SYS_mkdirat, place->dir, place->name, mode & 01777);
    struct stat st = {0};
    int fd;

    if (ret == 0) {
        /* Not by name: a symlink may stand there by now. The umask has its say no more: the mode was asked for. */
        fd = (int)raw_call4(SYS_openat, place->dir, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (fd >= 0) {
            raw_call2(SYS_fchmod, fd, mode & 01777);
            close_fd(&fd);
        }
        return 0;
    }
    if (ret != -EEXIST || !parents)
        return (int)ret;
    ret = path_find(path, path->path, PATH_FOLLOW, &behind);
    if (ret < 0)
        return (int)ret;
    place_done(place);
    *place = behind;
    ret = place_stat(place, &st);
    return ret < 0 ? (int)ret : S_ISDIR(st.st_mode) ? 0 : -EEXIST;
}

static int mkdir_open(struct call *call, struct svc_reader *in)
{
    struct svc_path path = svc_get_path(in);
    uint32_t mode = svc_get_u32(in), parents = svc_get_u32(in);
    struct place place;
    struct stat st = {0};
    int ret;

    (void)call;
    if (svc_done(in) < 0)
        return -EINVAL;
    ret = path_find(&path, path.path, parents ? PATH_PARENTS : 0, &place);
    if (ret < 0)
        return ret;
    ret = make_dir(&path, &place, mode != 0 ? mode : 0755, parents);
    if (ret == 0)
        ret = place_stat(&place, &st);
    if (ret == 0)
        entry_put_place(&files_reply, &place, &st);
    place_done(&place);
    return ret < 0 ? ret : CALL_DONE;
}

const struct call_ops files_mkdir_ops = {.open = mkdir_open, .close = nothing_to_close};

/* ---- LIST ------------------------------------------------------------------------------------------ */

struct list {
    uint32_t depth, max, count;
    bool more;
    struct walk walk;
};

static int list_open(struct call *call, struct svc_reader *in)
{
    struct list *list = call->state;
    struct svc_path path = svc_get_path(in);
    struct place place;
    struct stat st = {0};
    int ret;

    list->depth = svc_get_u32(in);
    list->max = svc_get_u32(in);
    if (svc_done(in) < 0)
        return -EINVAL;
    if ((ret = path_find(&path, path.path, path_follow(&path), &place)) < 0)
        return ret;
    if ((ret = place_stat(&place, &st)) == 0)
        ret = S_ISDIR(st.st_mode) ? place_open(&place, O_RDONLY | O_DIRECTORY, &st) : -ENOTDIR;
    place_done(&place);
    if (ret < 0)
        return ret;
    call->wait = CALL_WORK;
    return walk_init(&list->walk, ret);
}

static int list_one(struct call *call, const struct walk_entry *found)
{
    struct list *list = call->state;
    struct svc_entry entry;
    struct svc_cursor out;
    struct stat st = {0};

    if (raw_call4(SYS_newfstatat, found->dir, found->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (list->walk.path_len > SVC_PATH_MAX) { /* no call could name it */
        list->more = true;
        return 0;
    }
    if (list->max != 0 && list->count == list->max) {
        list->more = true;
        return 1;
    }
    list->count++;
    entry = entry_of(&st);
    entry.path = (struct svc_bytes){list->walk.path, list->walk.path_len};
    out = wire_open();
    put_entry(&out, &entry, found->dir, found->name);
    wire_close(call, SVC_EVENT, &out);
    if (entry.type == SVC_DIR && list->walk.depth + 1 < list->depth) {
        int ret = walk_enter(&list->walk);

        if (ret == -ENOMEM || ret == -EMFILE || ret == -ENFILE)
            return ret;
    }
    return 0;
}

static int list_step(struct call *call)
{
    struct list *list = call->state;
    struct walk_entry found;
    int ret = 0;

    for (int i = 0; i < LIST_TURN && ret == 0 && wire_room() >= WIRE_RESERVE + ENTRY_ROOM; i++) {
        int event = walk_next(&list->walk, &found);

        if (event < 0)
            return event;
        ret = event == WALK_END ? 1 : event == WALK_ENTRY ? list_one(call, &found) : 0;
    }
    if (ret <= 0)
        return ret;
    svc_put_u32(&files_reply, list->more);
    return CALL_DONE;
}

static void list_close(struct call *call)
{
    struct list *list = call->state;

    walk_done(&list->walk);
}

const struct call_ops files_list_ops = {
    .state_size = sizeof(struct list), .open = list_open, .step = list_step, .close = list_close};
