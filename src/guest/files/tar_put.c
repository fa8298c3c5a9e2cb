/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_put.c: TAR_PUT: an archive becomes a tree below one directory.
 *
 * Theory of operation. The archive is hostile and so may be programs that work in the same tree. Each member's
 * directory is reached from the destination through real directories only, in one openat2; then one name is made in it,
 * never followed and never opened when it was there before: what exists is unlinked first. So no symlink, of the
 * archive or of a program, and no hard link can make it write anywhere else. It has the user's rights and no more.
 *
 * Directories get their mode and time last, children before parents: a mode may forbid what is yet to be made in them,
 * and making it changes the time. What is to be set waits in a table of bounded size; what does not fit keeps the time
 * of its making. The destination itself keeps its mode and time whatever the archive says about ".".
 */
#include <sys/mman.h>

#include "codec/tar/tar.h"
#include "guest/files/files_int.h"

#define LATER_MAX (16u << 20)
#define LATER_FIRST (64u << 10)
#define LATER_TURN 256
#define MODE_BITS 01777u /* no set-id bits */

/* A directory whose mode and time are to be set, and its path behind it. */
struct later {
    uint32_t before; /* where the one before it begins */
    uint32_t mode;
    int64_t mtime;
    uint32_t mtime_ns;
    uint32_t len;
    char path[];
};

struct tar_put {
    struct tar_parser parser;
    struct svc_tar_limits limits;
    uint64_t members, bytes;
    int root;
    int failed; /* what to answer once the directories are as they should be */
    int parent; /* of the last member, or -1 */
    char parent_path[TAR_NAME_MAX + 1];
    int fd;                  /* of the file that is being written, or -1 */
    char name[NAME_MAX + 1]; /* in parent */
    uint8_t *later;
    uint32_t later_size, later_used, later_last; /* last: UINT32_MAX when there is none */
};

/* ---- directories -------------------------------------------------------------------------------------- */

/* The directory a name is in, made when missing; `name` gets the last part. Kept for the next member. */
static int find_parent(struct tar_put *put, const char *path, char name[NAME_MAX + 1])
{
    size_t len = __builtin_strlen(path), at = len;
    bool same;

    while (at > 0 && path[at - 1] != '/')
        at--;
    if (len - at > NAME_MAX)
        return -ENAMETOOLONG;
    __builtin_memcpy(name, path + at, len - at + 1);
    len = at > 0 ? at - 1 : 0;
    same = put->parent >= 0 && __builtin_memcmp(put->parent_path, path, len) == 0 && put->parent_path[len] == 0;
    if (same)
        return 0;
    close_fd(&put->parent);
    __builtin_memcpy(put->parent_path, path, len);
    put->parent_path[len] = 0;
    put->parent = path_plain_dir(put->root, put->parent_path, true);
    return put->parent < 0 ? put->parent : 0;
}

/* Removes what stands in the way. A directory does not. */
static int make_room(struct tar_put *put, const char *name)
{
    long ret = raw_call3(SYS_unlinkat, put->parent, name, 0);

    return ret == -ENOENT ? 0 : (int)ret;
}

static void remember(struct tar_put *put, const struct tar_member *member)
{
    size_t need = (sizeof(struct later) + member->name_len + 1 + 7) & ~(size_t)7;
    struct later *later;

    if (!put->later) {
        put->later = files_map(LATER_FIRST);
        put->later_size = put->later ? LATER_FIRST : 0;
    }
    while (need > put->later_size - put->later_used) {
        long at;

        if (put->later_size == 0 || put->later_size >= LATER_MAX)
            return;
        at = raw_call4(SYS_mremap, put->later, put->later_size, put->later_size * 2, MREMAP_MAYMOVE);
        if (raw_failed(at))
            return;
        put->later = (void *)at;
        put->later_size *= 2;
    }
    if (!put->later)
        return;
    later = (void *)(put->later + put->later_used);
    *later = (struct later){put->later_last, member->mode & MODE_BITS, member->mtime, member->mtime_ns,
                            (uint32_t)member->name_len};
    __builtin_memcpy(later->path, member->name, member->name_len + 1);
    put->later_last = put->later_used;
    put->later_used += (uint32_t)need;
}

/* By descriptor and only if it is a directory still; one that belongs to somebody else stays as it is. */
static void settle_dir(struct tar_put *put, const struct later *later)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = later->mtime, .tv_nsec = later->mtime_ns}};
    char name[NAME_MAX + 1];
    int fd;

    if (find_parent(put, later->path, name) < 0)
        return;
    fd = (int)raw_call4(SYS_openat, put->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    raw_call4(SYS_utimensat, fd, NULL, times, 0);
    raw_call2(SYS_fchmod, fd, later->mode);
    close_fd(&fd);
}

static int put_step(struct call *call)
{
    struct tar_put *put = call->state;

    for (int i = 0; i < LATER_TURN && put->later_last != UINT32_MAX; i++) {
        const struct later *later = (void *)(put->later + put->later_last);

        settle_dir(put, later);
        put->later_last = later->before;
    }
    if (put->later_last != UINT32_MAX)
        return CALL_ON;
    if (put->failed != 0)
        return put->failed;
    svc_put_u64(&files_reply, put->members);
    svc_put_u64(&files_reply, put->bytes);
    return CALL_DONE;
}

/* ---- members ------------------------------------------------------------------------------------------ */

static int put_dir(struct tar_put *put, const struct tar_member *member, const char *name)
{
    /* Ours to work in until the end. */
    uint32_t mode = (member->mode & MODE_BITS) | 0700;
    long ret = raw_call3(SYS_mkdirat, put->parent, name, mode);
    struct stat st = {0};

    if (ret == -EEXIST) {
        ret = raw_call4(SYS_newfstatat, put->parent, name, &st, AT_SYMLINK_NOFOLLOW);
        if (ret == 0 && !S_ISDIR(st.st_mode) && (ret = make_room(put, name)) == 0)
            ret = raw_call3(SYS_mkdirat, put->parent, name, mode);
    }
    if (ret == 0)
        remember(put, member);
    return (int)ret;
}

static int put_link(struct tar_put *put, const struct tar_member *member)
{
    static char source[NAME_MAX + 1];
    char name[NAME_MAX + 1];
    int dir, ret = find_parent(put, member->link, source);

    if (ret < 0)
        return ret;
    dir = move_fd(&put->parent);
    ret = find_parent(put, member->name, name);
    if (ret == 0 && member->link_len == member->name_len &&
        __builtin_memcmp(member->link, member->name, member->name_len) == 0)
        ret = -EINVAL; /* of itself: unlinking the one would be the end of the other */
    if (ret == 0) {
        ret = (int)raw_call5(SYS_linkat, dir, source, put->parent, name, 0);
        if (ret == -EEXIST && (ret = make_room(put, name)) == 0)
            ret = (int)raw_call5(SYS_linkat, dir, source, put->parent, name, 0);
    }
    close_fd(&dir);
    return ret;
}

/*
 * It is made again, whatever was there. Only the first attempt may find something: if a program keeps making it, the
 * call is refused.
 */
static int put_new(struct tar_put *put, const struct tar_member *member, const char *name)
{
    long ret = -EEXIST;

    for (int i = 0; i < 2 && ret == -EEXIST; i++) {
        if (i > 0 && (ret = make_room(put, name)) < 0)
            break;
        if (member->kind == TAR_FILE)
            ret = raw_call4(SYS_openat, put->parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        else if (member->kind == TAR_FIFO)
            ret = raw_call4(SYS_mknodat, put->parent, name, S_IFIFO | (member->mode & 0777), 0);
        else
            ret = raw_call3(SYS_symlinkat, member->link, put->parent, name);
    }
    return (int)ret;
}

static int put_member(struct tar_put *put)
{
    const struct tar_member *member = &put->parser.member;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = member->mtime, .tv_nsec = member->mtime_ns}};
    int ret;

    if (member->kind == TAR_DEVICE)
        return -EPERM;
    if (put->members == put->limits.members || member->size > put->limits.bytes - put->bytes)
        return -EFBIG;
    put->members++;
    put->bytes += member->size;
    if (member->name_len == 0)
        return 0;
    if (member->kind == TAR_HARDLINK)
        return put_link(put, member);
    if ((ret = find_parent(put, member->name, put->name)) < 0)
        return ret;
    if (member->kind == TAR_DIR)
        return put_dir(put, member, put->name);
    ret = put_new(put, member, put->name);
    if (ret < 0)
        return ret;
    if (member->kind == TAR_FILE)
        put->fd = ret;
    else
        raw_call4(SYS_utimensat, put->parent, put->name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/*
 * Modes and times are set last: a descriptor can be written to after its mode forbids it, but writing would change the
 * time.
 */
static int end_member(struct tar_put *put)
{
    const struct tar_member *member = &put->parser.member;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = member->mtime, .tv_nsec = member->mtime_ns}};
    long ret;

    if (put->fd < 0)
        return 0;
    ret = end_holes(put->fd);
    if (ret == 0)
        ret = raw_call2(SYS_fchmod, put->fd, member->mode & MODE_BITS & 0777);
    if (ret == 0)
        ret = raw_call4(SYS_utimensat, put->fd, NULL, times, 0);
    if (ret == 0)
        close_fd(&put->fd);
    return (int)ret;
}

/* Half a file is removed, if it is still the one that stands under its name. */
static void drop_half(struct tar_put *put)
{
    struct stat ours = {0}, there = {0};

    if (put->fd < 0)
        return;
    if (raw_call2(SYS_fstat, put->fd, &ours) == 0 &&
        raw_call4(SYS_newfstatat, put->parent, put->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
        raw_call3(SYS_unlinkat, put->parent, put->name, 0);
    close_fd(&put->fd);
}

/* ---- the call ----------------------------------------------------------------------------------------- */

static int put_open(struct call *call, struct svc_reader *in)
{
    struct tar_put *put = call->state;
    struct svc_path path = svc_get_path(in);
    struct place place;
    struct stat st = {0};
    int ret;

    put->root = put->parent = put->fd = -1;
    put->later_last = UINT32_MAX;
    tar_parser_init(&put->parser);
    put->limits.bytes = svc_get_u64(in);
    put->limits.members = svc_get_u64(in);
    if (svc_done(in) < 0)
        return -EINVAL;
    if ((ret = path_find(&path, path.path, path_follow(&path), &place)) < 0)
        return ret;
    if ((ret = place_stat(&place, &st)) == 0)
        ret = (int)raw_call4(SYS_openat, place.dir, place.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    place_done(&place);
    put->root = ret;
    return ret < 0 ? ret : CALL_ON;
}

/* No more input counts. The member at fault is told, directories are set right in turns, then the answer goes out. */
static void wind_up(struct call *call, int failed)
{
    struct tar_put *put = call->state;

    drop_half(put);
    if (failed != 0 && put->parser.member.name) {
        const struct svc_bytes name = {put->parser.member.name, (uint32_t)put->parser.member.name_len};
        struct svc_cursor out = wire_open();

        svc_put_bytes(&out, name);
        wire_close(call, SVC_EVENT, &out);
    }
    put->failed = failed;
    call->wait = CALL_WORK;
}

static int put_data(struct call *call, const uint8_t *data, size_t len)
{
    struct tar_put *put = call->state;
    int ret = 0;

    if (call->wait == CALL_WORK)
        return CALL_ON;
    while (ret == 0) {
        const uint8_t *part;
        size_t n;
        int event = tar_parse(&put->parser, &data, &len, &part, &n);

        if (event == TAR_NEED)
            return CALL_ON;
        if (event < 0)
            ret = event;
        else if (event == TAR_MEMBER)
            ret = put_member(put);
        else if (event == TAR_CONTENT)
            ret = write_holes(put->fd, part, n);
        else
            ret = end_member(put);
    }
    wind_up(call, ret);
    return CALL_ON;
}

static int put_eof(struct call *call)
{
    struct tar_put *put = call->state;

    if (call->wait != CALL_WORK)
        wind_up(call, tar_parse_end(&put->parser));
    return CALL_ON;
}

static void put_close(struct call *call)
{
    struct tar_put *put = call->state;

    drop_half(put);
    close_fd(&put->parent);
    close_fd(&put->root);
    files_unmap(put->later, put->later_size);
}

const struct call_ops files_tar_put_ops = {.state_size = sizeof(struct tar_put),
                                           .open = put_open,
                                           .step = put_step,
                                           .data = put_data,
                                           .eof = put_eof,
                                           .close = put_close};
