/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tar_get.c: TAR_GET: makes a tar stream of a tree while it is read.
 *
 * Nothing is made beforehand. A member's header waits in `head`, its content is read straight into the output, and
 * zeroes fill what is missing. A header promises a size before the content is read. So a file that shrinks is filled up
 * with zeroes and a file that grows is cut: the archive stays well formed, and the REPLY names the first thing that was
 * wrong.
 */
#include <dirent.h>

#include "codec/tar/tar.h"
#include "guest/files/files_int.h"

#define GET_TURN 4       /* frames */
#define MEMBERS_TURN 256 /* looked at */
#define LINKS_MAX 8192u
#define LINK_NAMES (1u << 20)
#define LINK_HEADS 4096u

/* Files with several names, by device and inode; full: the rest are copies. Index 0 is no entry. */
struct links {
    uint32_t n, used;
    uint16_t heads[LINK_HEADS];
    struct {
        uint64_t dev, ino;
        uint32_t name, len;
        uint16_t next;
    } entries[LINKS_MAX];
    char names[LINK_NAMES];
};

struct tar_get {
    struct walk walk;
    struct place place;
    bool single, ended;
    int first_error;
    int fd; /* of the member that is being sent */
    uint64_t left, zeroes;
    uint32_t head_at, head_len;
    uint8_t head[TAR_HEADER_MAX];
    uint64_t members, bytes;
    struct links *links;
};

static void note(struct tar_get *get, int error)
{
    if (get->first_error == 0 && error != -ENOENT) /* ENOENT: it went while we looked */
        get->first_error = error;
}

/* ---- hard links -------------------------------------------------------------------------------------- */

static uint16_t *link_head(struct links *links, const struct stat *st)
{
    return &links->heads[(st->st_ino ^ st->st_ino >> 12 ^ st->st_dev) % LINK_HEADS];
}

/* Whether this file was sent before: member->link is the name. */
static bool known_link(struct tar_get *get, const struct stat *st, struct tar_member *member)
{
    struct links *links = get->links;

    if (!links)
        return false;
    for (uint16_t i = *link_head(links, st); i != 0; i = links->entries[i].next)
        if (links->entries[i].ino == st->st_ino && links->entries[i].dev == st->st_dev) {
            member->link = links->names + links->entries[i].name;
            member->link_len = links->entries[i].len;
            return true;
        }
    return false;
}

/* Only what is really sent may be linked to. */
static void remember_link(struct tar_get *get, const struct stat *st, const struct tar_member *member)
{
    struct links *links = get->links;
    uint16_t i, *head;

    if (!links && !(links = get->links = files_map(sizeof(struct links))))
        return;
    if (links->n + 1 == LINKS_MAX || member->name_len > LINK_NAMES - links->used)
        return;
    i = (uint16_t)++links->n;
    head = link_head(links, st);
    __builtin_memcpy(links->names + links->used, member->name, member->name_len);
    links->entries[i].dev = st->st_dev;
    links->entries[i].ino = st->st_ino;
    links->entries[i].name = links->used;
    links->entries[i].len = (uint32_t)member->name_len;
    links->entries[i].next = *head;
    *head = i;
    links->used += (uint32_t)member->name_len;
}

/* ---- members ----------------------------------------------------------------------------------------- */

static void set_stat(struct tar_member *member, const struct stat *st)
{
    member->mode = st->st_mode & 07777;
    member->uid = st->st_uid;
    member->gid = st->st_gid;
    member->mtime = st->st_mtim.tv_sec;
    member->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
    member->size = member->kind == TAR_FILE ? (uint64_t)st->st_size : 0;
}

/* Opened before its header is made: what cannot be read is not promised. Returns 0 or 1 (ready), or -EMFILE and the
 * like. */
static int begin_file(struct tar_get *get, int dir, const char *name, struct stat *st, struct tar_member *member)
{
    struct place place = {.dir = dir};
    int fd;

    if (st->st_nlink > 1 && known_link(get, st, member)) {
        member->kind = TAR_HARDLINK;
        return 1;
    }
    __builtin_memcpy(place.name, name, __builtin_strlen(name) + 1);
    fd = place_open(&place, O_RDONLY, st);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
        return fd;
    if (fd >= 0 && !S_ISREG(st->st_mode))
        close_fd(&fd);
    else if (fd < 0)
        note(get, fd);
    if (fd < 0)
        return 0;
    get->fd = fd;
    if (st->st_nlink > 1)
        remember_link(get, st, member);
    return 1;
}

/* Returns 1 when something is to be sent, 0 when this one is left out. */
static int begin_member(struct tar_get *get, int dir, const char *name, const char *path, size_t path_len)
{
    static char target[TAR_NAME_MAX + 1];
    struct tar_member member = {.name = path, .name_len = path_len};
    struct stat st = {0};
    long ret = path_len > TAR_NAME_MAX ? -ENAMETOOLONG : raw_call4(SYS_newfstatat, dir, name, &st, AT_SYMLINK_NOFOLLOW);
    int len;

    if (ret != 0) {
        note(get, (int)ret);
        return 0;
    }
    if (S_ISREG(st.st_mode)) {
        if ((ret = begin_file(get, dir, name, &st, &member)) <= 0)
            return (int)ret;
    } else if (S_ISDIR(st.st_mode)) {
        member.kind = TAR_DIR;
    } else if (S_ISFIFO(st.st_mode)) {
        member.kind = TAR_FIFO;
    } else if (S_ISLNK(st.st_mode)) {
        member.kind = TAR_SYMLINK;
        ret = raw_call4(SYS_readlinkat, dir, name, target, sizeof(target));
        if (ret <= 0)
            return 0;
        member.link = target;
        member.link_len = (size_t)ret;
    } else {
        return 0;
    }
    set_stat(&member, &st);
    len = tar_put_header(get->head, &member);
    if (len < 0) {
        note(get, len);
        close_fd(&get->fd);
        return 0;
    }
    get->head_at = 0;
    get->head_len = (uint32_t)len;
    get->left = member.size;
    get->zeroes = tar_padding(member.size);
    get->members++;
    get->bytes += member.size;
    return 1;
}

static void finish(struct tar_get *get)
{
    get->ended = true;
    get->zeroes = 2 * (uint64_t)TAR_BLOCK;
}

/* The next one. Returns 1, 0 when it was left out, or a negative errno. */
static int next_member(struct tar_get *get)
{
    struct walk_entry found;
    int ret, event;

    if (get->single) {
        finish(get);
        return 1;
    }
    event = walk_next(&get->walk, &found);
    if (event < 0)
        return event;
    if (event == WALK_END)
        finish(get);
    if (event != WALK_ENTRY)
        return event == WALK_END;
    ret = begin_member(get, found.dir, found.name, get->walk.path, get->walk.path_len);
    if (ret > 0 && get->fd < 0) {
        int entered = found.type == DT_DIR || found.type == DT_UNKNOWN ? walk_enter(&get->walk) : -ENOTDIR;

        if (entered == -EMFILE || entered == -ENFILE || entered == -ENOMEM)
            return entered;
        if (entered < 0 && entered != -ENOTDIR && entered != -ELOOP)
            note(get, entered);
    }
    return ret;
}

/* ---- bytes ------------------------------------------------------------------------------------------- */

static size_t copy_zeroes(uint8_t *at, size_t max, uint64_t *left)
{
    size_t n = max < *left ? max : (size_t)*left;

    __builtin_memset(at, 0, n);
    *left -= n;
    return n;
}

static size_t copy_content(struct tar_get *get, uint8_t *at, size_t max)
{
    long n = 0;

    if (get->fd >= 0) {
        do
            n = raw_call3(SYS_read, get->fd, at, max < get->left ? max : (size_t)get->left);
        while (n == -EINTR);
        if (n <= 0) {
            note(get, n < 0 ? (int)n : -ESTALE);
            close_fd(&get->fd);
        }
    }
    if (n <= 0)
        return copy_zeroes(at, max, &get->left);
    get->left -= (uint64_t)n;
    return (size_t)n;
}

/* Fills up to max bytes. Less than that: the archive has ended, or it is somebody else's turn. */
static int fill(struct tar_get *get, uint8_t *at, size_t max, unsigned *budget, size_t *ret_len)
{
    size_t n = 0;

    while (n < max) {
        size_t part = get->head_len - get->head_at;
        int ret;

        if (part > 0) {
            part = part < max - n ? part : max - n;
            __builtin_memcpy(at + n, get->head + get->head_at, part);
            get->head_at += (uint32_t)part;
            n += part;
        } else if (get->left > 0) {
            n += copy_content(get, at + n, max - n);
        } else if (get->zeroes > 0) {
            n += copy_zeroes(at + n, max - n, &get->zeroes);
        } else {
            close_fd(&get->fd);
            if (get->ended || *budget == 0)
                break;
            --*budget;
            if ((ret = next_member(get)) < 0)
                return ret;
        }
    }
    *ret_len = n;
    return 0;
}

static bool all_sent(const struct tar_get *get)
{
    return get->ended && get->head_at == get->head_len && get->left == 0 && get->zeroes == 0;
}

static int get_step(struct call *call)
{
    struct tar_get *get = call->state;
    unsigned budget = MEMBERS_TURN;

    for (int i = 0; i < GET_TURN && budget > 0 && !all_sent(get); i++) {
        size_t max, n = 0;
        uint8_t *at = wire_data_open(call, &max);
        int ret;

        if (max == 0)
            return CALL_ON;
        if ((ret = fill(get, at, max, &budget, &n)) < 0)
            return ret;
        wire_data_close(call, n);
    }
    if (!all_sent(get))
        return CALL_ON;
    wire_send(call, SVC_EOF, 1, NULL, 0);
    svc_put_u64(&files_reply, get->members);
    svc_put_u64(&files_reply, get->bytes);
    return get->first_error != 0 ? get->first_error : CALL_DONE;
}

/* ---- the call ----------------------------------------------------------------------------------------- */

static int get_open(struct call *call, struct svc_reader *in)
{
    struct tar_get *get = call->state;
    struct svc_path path;
    struct stat st = {0};
    int ret = entry_get_path(in, &path);

    get->fd = get->place.dir = -1;
    if (ret < 0 || (ret = path_find(&path, path.path, path_follow(&path), &get->place)) < 0 ||
        (ret = place_stat(&get->place, &st)) < 0)
        return ret;
    call->wait = CALL_SEND;
    if (!S_ISDIR(st.st_mode)) {
        get->single = true;
        ret = begin_member(get, get->place.dir, get->place.name, get->place.name, __builtin_strlen(get->place.name));
        if (ret == 0) /* alone it is worth an error */
            ret = get->first_error != 0 ? get->first_error : -ENXIO;
        return ret < 0 ? ret : CALL_ON;
    }
    if ((ret = begin_member(get, get->place.dir, get->place.name, ".", 1)) < 0)
        return ret;
    ret = place_open(&get->place, O_RDONLY | O_DIRECTORY, &st);
    return ret < 0 ? ret : walk_init(&get->walk, ret);
}

static void get_close(struct call *call)
{
    struct tar_get *get = call->state;

    close_fd(&get->fd);
    place_done(&get->place);
    walk_done(&get->walk);
    files_unmap(get->links, sizeof(struct links));
}

const struct call_ops files_tar_get_ops = {
    .state_size = sizeof(struct tar_get), .open = get_open, .step = get_step, .close = get_close};
