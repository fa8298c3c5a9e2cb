/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: WATCH.
 *
 * Theory of operation. inotify watches one directory at a time, so a recursive watch is always behind: between the
 * moment a directory appears and the moment it is watched, things happen in it. Therefore each is watched first and
 * read after, and what the reading finds is reported as if it had just been made. An event may be reported twice but
 * never lost. A directory that was read at the beginning is not reported. When inotify has lost events, the caller is
 * told, and the whole tree is read again, quietly, for directories that nobody watches yet. A directory found twice
 * shows by its number and heals the tree's idea of where it is.
 *
 * A directory that is moved says so twice, here and there, with the same cookie. Between the two it is nowhere; when
 * the second does not come within a moment, it has left the tree, and the watches below it are dropped.
 *
 * inotify takes only paths; so the directory is entered by descriptor and "." is watched. Nobody else uses the worker's
 * working directory. No descriptor of a watched directory is kept, since the kernel does not call it deleted before the
 * last one is closed: the root is looked up again whenever it is needed, and must be the one it was.
 */
#include <dirent.h>
#include <sys/inotify.h>

#include "guest/files/watch.h"

#define WATCH_EVENTS                                                                                                 \
    (IN_CREATE | IN_DELETE | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | \
     IN_MOVE_SELF)
#define CHANGE_ROOM 8192u /* more than one path and the numbers */
#define MOVE_WAIT_NS UINT64_C(100000000)
#define WATCH_TURN 256
#define GONE_NOT_AN_ERROR(e) \
    ((e) == -ENOENT || (e) == -ENOTDIR || (e) == -ELOOP || (e) == -EACCES || (e) == -ENAMETOOLONG)

struct watch {
    struct svc_path path; /* into strings */
    char strings[2 * SVC_PATH_MAX];
    uint64_t dev, ino; /* of the root */
    bool recursive, armed;
    uint16_t moving; /* on its way from one place to another */
    uint32_t moving_cookie;
    uint16_t scanned; /* the directory that is being read by `scan` */
    int scan;
    uint32_t event_at, event_len, scan_at, scan_len;
    uint8_t events[16384] __attribute__((aligned(8)));
    uint8_t entries[8192] __attribute__((aligned(8)));
    struct watch_tree tree;
};

/* ---- reporting ---------------------------------------------------------------------------------------- */

static void report(struct call *call, uint32_t mask, uint32_t cookie, const char *path, size_t len)
{
    struct svc_cursor out = wire_open();

    svc_put_u32(&out, mask);
    svc_put_u32(&out, cookie);
    svc_put_bytes(&out, (struct svc_bytes){path, (uint32_t)len});
    wire_close(call, SVC_EVENT, &out);
}

/* A path too long to be said is an event lost. */
static void report_in(struct call *call, uint16_t node, const char *name, uint32_t mask, uint32_t cookie)
{
    static char path[SVC_PATH_MAX + 1];
    struct watch *watch = call->state;
    int len = tree_path(&watch->tree, node, name, path);

    if (len >= 0)
        report(call, mask, cookie, path, (size_t)len);
    else if (len == -ENAMETOOLONG)
        report(call, IN_Q_OVERFLOW, 0, "", 0);
}

/* ---- directories -------------------------------------------------------------------------------------- */

static void stop_scan(struct watch *watch)
{
    close_fd(&watch->scan);
    watch->scanned = NODE_NONE;
    watch->scan_at = watch->scan_len = 0;
}

static void drop(struct watch *watch, uint16_t node)
{
    tree_drop(&watch->tree, node);
    if (watch->scanned != NODE_NONE && !watch->tree.nodes[watch->scanned].used)
        stop_scan(watch);
}

static int add_watch(const struct watch *watch, int dir, const char *name)
{
    long ret = raw_call1(SYS_fchdir, dir);

    if (ret == 0)
        ret =
            raw_call3(SYS_inotify_add_watch, watch->tree.inotify, name, WATCH_EVENTS | IN_DONT_FOLLOW | IN_EXCL_UNLINK);
    raw_call1(SYS_chdir, "/");
    return (int)ret;
}

/* What is watched, by its name. */
static int open_root(const struct watch *watch)
{
    struct place place;
    struct stat st = {0};
    int fd, ret = path_find(&watch->path, watch->path.path, path_follow(&watch->path), &place);

    if (ret < 0)
        return ret;
    fd = (int)raw_call4(SYS_openat, place.dir, place.name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    place_done(&place);
    if (fd < 0)
        return fd;
    ret = (int)raw_call2(SYS_fstat, fd, &st);
    if (ret == 0 && (st.st_dev != watch->dev || st.st_ino != watch->ino))
        ret = -ENOENT;
    if (ret < 0)
        close_fd(&fd);
    return ret < 0 ? ret : fd;
}

/* By its path below the root. */
static int open_node(const struct watch *watch, uint16_t node)
{
    static char path[SVC_PATH_MAX + 1];
    int root, fd = tree_path(&watch->tree, node, NULL, path);

    if (fd < 0)
        return fd;
    if ((root = open_root(watch)) < 0)
        return -ESTALE;
    fd = path_plain_dir(root, path, false);
    close_fd(&root);
    return fd;
}

/*
 * It is known already under this number, so it is the same directory, whatever its name was. Returns the node to read,
 * if any.
 */
static uint16_t unite(struct watch *watch, uint16_t node, uint16_t known)
{
    const struct watch_node fresh = watch->tree.nodes[node];

    tree_drop(&watch->tree, node);
    if (known != NODE_ROOT)
        tree_move(&watch->tree, known, fresh.parent, fresh.name, fresh.name_len);
    return fresh.quiet ? known : NODE_NONE;
}

/* Watched first, read after. */
static int begin_scan(struct watch *watch, uint16_t node)
{
    int dir = open_node(watch, node), wd = dir < 0 ? dir : add_watch(watch, dir, ".");
    uint16_t known;

    if (wd < 0) {
        close_fd(&dir);
        if (wd == -ESTALE) /* the root has gone, or another stands in its place */
            return -ENOENT;
        if (node == NODE_ROOT || !GONE_NOT_AN_ERROR(wd))
            return wd;
        drop(watch, node);
        return 0;
    }
    known = tree_find_wd(&watch->tree, wd);
    if (known == NODE_NONE)
        tree_set_wd(&watch->tree, node, wd);
    else if (known != node)
        node = unite(watch, node, known);
    if (node != NODE_NONE && watch->recursive) {
        watch->scan = (int)raw_call4(SYS_openat, dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        watch->scanned = watch->scan >= 0 ? node : NODE_NONE;
    }
    close_fd(&dir);
    return watch->scan == -EMFILE || watch->scan == -ENFILE ? watch->scan : 0;
}

static bool is_directory(int dir, const struct raw_dirent *entry)
{
    struct stat st = {0};

    if (entry->type != DT_UNKNOWN)
        return entry->type == DT_DIR;
    return raw_call4(SYS_newfstatat, dir, entry->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int found(struct call *call, const struct raw_dirent *entry)
{
    struct watch *watch = call->state;
    bool dir = is_directory(watch->scan, entry), quiet = watch->tree.nodes[watch->scanned].quiet;

    if (!quiet)
        report_in(call, watch->scanned, entry->name, IN_CREATE | (dir ? IN_ISDIR : 0), 0);
    if (dir && tree_add(&watch->tree, watch->scanned, entry->name, __builtin_strlen(entry->name), quiet) == NODE_NONE)
        return -ENOSPC;
    return 0;
}

/* One entry more of the directory that is being read, or the next directory. Returns 1 while there is something to
 * read. */
static int scan_on(struct call *call)
{
    struct watch *watch = call->state;
    uint16_t node;
    int ret;

    if (watch->scanned == NODE_NONE) {
        node = tree_next_pending(&watch->tree);
        if (node == NODE_NONE)
            return 0;
        ret = begin_scan(watch, node);
        return ret < 0 ? ret : 1;
    }
    if (watch->scan_at < watch->scan_len) {
        const struct raw_dirent *entry = (const void *)(watch->entries + watch->scan_at);

        watch->scan_at += entry->reclen;
        ret = is_dots(entry->name) ? 0 : found(call, entry);
        return ret < 0 ? ret : 1;
    }
    ret = (int)raw_call3(SYS_getdents64, watch->scan, watch->entries, sizeof(watch->entries));
    watch->scan_at = 0;
    watch->scan_len = ret > 0 ? (uint32_t)ret : 0;
    if (ret <= 0)
        stop_scan(watch);
    return 1;
}

/* ---- events ------------------------------------------------------------------------------------------- */

static void end_move(struct call *call, bool lost)
{
    struct watch *watch = call->state;
    uint16_t node = watch->moving;

    watch->moving = NODE_NONE;
    call->deadline_ns = 0;
    if (lost && node != NODE_NONE)
        drop(watch, node);
}

static void moved_from(struct call *call, uint16_t parent, const struct inotify_event *event)
{
    struct watch *watch = call->state;
    uint16_t node = tree_find_child(&watch->tree, parent, event->name, __builtin_strlen(event->name));

    end_move(call, true);
    if (node == NODE_NONE)
        return;
    watch->tree.nodes[node].parent = NODE_NONE;
    watch->moving = node;
    watch->moving_cookie = event->cookie;
    call->deadline_ns = files_now_ns() + MOVE_WAIT_NS;
}

static int appeared(struct call *call, uint16_t parent, const struct inotify_event *event)
{
    struct watch *watch = call->state;
    size_t len = __builtin_strlen(event->name);
    uint16_t old;

    if ((event->mask & IN_MOVED_TO) && watch->moving != NODE_NONE && watch->moving_cookie == event->cookie) {
        bool ok = tree_move(&watch->tree, watch->moving, parent, event->name, len);

        end_move(call, !ok);
        return 0;
    }
    /* What had this name cannot be there any more; IN_IGNORED of it is on its way. */
    old = tree_find_child(&watch->tree, parent, event->name, len);
    if (old != NODE_NONE && watch->tree.nodes[old].wd < 0)
        return 0; /* about to be looked at anyway */
    return tree_add(&watch->tree, parent, event->name, len, false) == NODE_NONE ? -ENOSPC : 0;
}

static int on_directory(struct call *call, uint16_t node, const struct inotify_event *event)
{
    if (event->mask & IN_MOVED_FROM)
        moved_from(call, node, event);
    else if (event->mask & (IN_CREATE | IN_MOVED_TO))
        return appeared(call, node, event);
    return 0;
}

static int on_event(struct call *call, const struct inotify_event *event)
{
    struct watch *watch = call->state;
    uint16_t node;

    if (event->mask & IN_Q_OVERFLOW) {
        report(call, IN_Q_OVERFLOW, 0, "", 0);
        if (watch->recursive)
            tree_push_pending(&watch->tree, NODE_ROOT, true);
        return 0;
    }
    node = tree_find_wd(&watch->tree, event->wd);
    if (node == NODE_NONE) /* dropped meanwhile */
        return 0;
    if (event->mask & IN_IGNORED) {
        if (node == NODE_ROOT)
            return -ENOENT;
        drop(watch, node);
        return 0;
    }
    if (event->len == 0 || event->name[0] == 0) { /* itself: of all but the root its parent tells it, too */
        if (node == NODE_ROOT)
            report(call, event->mask, event->cookie, "", 0);
        return node == NODE_ROOT && (event->mask & IN_MOVE_SELF) ? -ENOENT : 0;
    }
    report_in(call, node, event->name, event->mask, event->cookie);
    return watch->recursive && (event->mask & IN_ISDIR) ? on_directory(call, node, event) : 0;
}

/* ---- the call ----------------------------------------------------------------------------------------- */

static int watch_step(struct call *call)
{
    struct watch *watch = call->state;
    int more = 1;

    for (int i = 0; i < WATCH_TURN && more > 0; i++) {
        if (wire_room() < WIRE_RESERVE + CHANGE_ROOM)
            return CALL_ON;
        if (watch->event_at < watch->event_len) {
            const struct inotify_event *event = (const void *)(watch->events + watch->event_at);
            int ret;

            watch->event_at += (uint32_t)sizeof(*event) + event->len;
            if ((ret = on_event(call, event)) < 0)
                return ret;
        } else {
            more = scan_on(call);
        }
    }
    if (more < 0)
        return more;
    if (more == 0 && !watch->armed) {
        wire_send(call, SVC_EVENT, 0, NULL, 0);
        watch->armed = true;
    }
    call->wait = more == 0 ? CALL_IDLE : CALL_WORK;
    return CALL_ON;
}

static int watch_ready(struct call *call)
{
    struct watch *watch = call->state;
    long n;

    if (watch->event_at < watch->event_len)
        return CALL_ON;
    n = raw_call3(SYS_read, watch->tree.inotify, watch->events, sizeof(watch->events));
    watch->event_at = 0;
    watch->event_len = n > 0 ? (uint32_t)n : 0;
    if (n <= 0 && call->deadline_ns != 0 && files_now_ns() >= call->deadline_ns)
        end_move(call, true);
    if (n < 0 && n != -EAGAIN && n != -EINTR)
        return (int)n;
    if (n > 0)
        call->wait = CALL_WORK;
    return CALL_ON;
}

/* What the caller named, kept for the life of the watch. */
static int keep_path(struct watch *watch, const struct svc_path *path)
{
    struct place place;
    struct stat st = {0};
    int ret = path_find(path, path->path, path_follow(path), &place);

    if (ret < 0)
        return ret;
    ret = place_stat(&place, &st);
    place_done(&place);
    if (ret < 0)
        return ret;
    watch->dev = st.st_dev;
    watch->ino = st.st_ino;
    if (path->base.len > SVC_PATH_MAX) /* of an absolute path nobody has looked at it */
        return -EINVAL;
    __builtin_memcpy(watch->strings, path->base.data, path->base.len);
    __builtin_memcpy(watch->strings + SVC_PATH_MAX, path->path.data, path->path.len);
    watch->path = (struct svc_path){
        path->flags, {watch->strings, path->base.len}, {watch->strings + SVC_PATH_MAX, path->path.len}};
    return S_ISDIR(st.st_mode);
}

/* A file has no directories: one watch, by its name in its directory. */
static int watch_file(struct watch *watch)
{
    struct place place;
    int ret = path_find(&watch->path, watch->path.path, path_follow(&watch->path), &place);

    watch->recursive = false;
    (void)tree_next_pending(&watch->tree);
    if (ret < 0)
        return ret;
    ret = add_watch(watch, place.dir, place.name);
    place_done(&place);
    if (ret >= 0)
        tree_set_wd(&watch->tree, NODE_ROOT, ret);
    return ret < 0 ? ret : CALL_ON;
}

static int watch_open(struct call *call, struct svc_reader *in)
{
    struct watch *watch = call->state;
    struct svc_path path = svc_get_path(in);
    int ret, directory;

    watch->recursive = svc_get_u32(in) != 0;
    watch->scan = watch->tree.inotify = -1;
    watch->moving = watch->scanned = NODE_NONE;
    if (svc_done(in) < 0)
        return -EINVAL;
    if ((directory = keep_path(watch, &path)) < 0)
        return directory;
    ret = (int)raw_call1(SYS_inotify_init1, O_NONBLOCK | O_CLOEXEC);
    tree_init(&watch->tree, ret);
    if (ret < 0)
        return ret;
    call->poll_fd = ret;
    call->wait = CALL_WORK;
    if (tree_add(&watch->tree, NODE_NONE, "", 0, true) != NODE_ROOT)
        return -ENOSPC;
    return directory ? CALL_ON : watch_file(watch);
}

static void watch_close(struct call *call)
{
    struct watch *watch = call->state;

    close_fd(&watch->scan);
    close_fd(&watch->tree.inotify);
}

const struct call_ops files_watch_ops = {.state_size = sizeof(struct watch),
                                         .open = watch_open,
                                         .step = watch_step,
                                         .ready = watch_ready,
                                         .close = watch_close};
