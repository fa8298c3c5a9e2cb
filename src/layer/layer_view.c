/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_view.c: looks at a tree of the image without leaving it: where a path leads when its symbolic links are
 * followed inside the tree, and which ids its users and groups have. It only reads, and opens nothing but directories
 * on the way and the two files with names.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "layer/layer.h"

#define NAMES_FILE_MAX (4u << 20)

/* ---- paths ------------------------------------------------------------------------------------------------- */

/* Opens what lies at a path without links, and follows none. */
static int open_path(int root, const char *path, uint64_t flags)
{
    const struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/* What is at a path; *ret_fd is open unless it is missing. */
static int look(int root, const char *path, enum view_kind *ret, struct stat *st, int *ret_fd)
{
    int fd = open_path(root, path, O_PATH);

    *ret = VIEW_MISSING;
    *ret_fd = -1;
    if (fd == -ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, st) < 0)
        return fd < 0 ? fd : -errno;
    *ret = S_ISDIR(st->st_mode) ? VIEW_DIR : S_ISLNK(st->st_mode) ? VIEW_LINK : VIEW_OTHER;
    *ret_fd = fd;
    return 0;
}

int view_look(int root, const char *path, enum view_kind *ret, struct brig_err *err)
{
    struct stat st;
    AUTO_FD int fd = -1;
    int r = look(root, path, ret, &st, &fd);

    if (r == -ENOTDIR) /* below a file there is nothing */
        return *ret = VIEW_MISSING, 0;
    return r < 0 ? layer_fail(err, path, -r, "it cannot be looked at") : 0;
}

/* Returns 1 for a link from the root, 0 for any other, or an error. */
static int put_link(struct layer_todo *todo, int fd)
{
    char link[TAR_NAME_MAX + 1];
    ssize_t n = readlinkat(fd, "", link, sizeof(link));
    int r;

    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    if ((size_t)n == sizeof(link))
        return -ENAMETOOLONG;
    return (r = todo_link(todo, link, (size_t)n)) < 0 ? r : *link == '/';
}

static void leave(struct view_path *place)
{
    while (place->len > 0 && place->path[--place->len] != '/')
        ;
    place->path[place->len] = '\0';
}

/* One name further. */
static int step(const struct view *view, struct view_path *place, const char *name, size_t len, struct layer_todo *todo)
{
    size_t before = place->len;
    struct stat st;
    AUTO_FD int fd = -1;
    int r;

    if (place->len + 1 + len > TAR_NAME_MAX || len > LAYER_NAME_MAX)
        return -ENAMETOOLONG;
    if (place->len > 0)
        place->path[place->len++] = '/';
    memcpy(place->path + place->len, name, len);
    place->len += len;
    place->path[place->len] = '\0';
    if ((r = look(view->root, place->path, &place->kind, &st, &fd)) < 0)
        return r;
    if (place->kind != VIEW_LINK)
        return 0;
    if (view->passed && (r = view->passed(view->ctx, place->path)) < 0)
        return r;
    if ((r = put_link(todo, fd)) < 0)
        return r;
    place->len = r > 0 ? 0 : before;
    place->path[place->len] = '\0';
    return 0;
}

static int resolve(const struct view *view, const char *path, struct view_path *place)
{
    struct layer_todo todo;
    const char *name;
    int r = todo_init(&todo, path, strlen(path));

    place->len = 0;
    place->path[0] = '\0';
    place->kind = VIEW_DIR;
    for (size_t len; r >= 0 && (len = todo_next(&todo, &name)) > 0;) {
        if (len == 2 && memcmp(name, "..", 2) == 0) {
            leave(place);
            place->kind = VIEW_DIR; /* it was passed on the way down, or it is missing and what is above it decides */
        } else {
            r = step(view, place, name, len, &todo);
        }
    }
    return r;
}

int view_resolve(const struct view *view, const char *path, struct view_path *ret, struct brig_err *err)
{
    int r = resolve(view, path, ret);

    if (r == -ENOTDIR)
        return layer_fail(err, path, 0, "it lies below something that is no directory");
    if (r == -ELOOP)
        return layer_fail(err, path, 0, "a loop of symbolic links is on its way");
    if (r == -ENAMETOOLONG)
        return layer_fail(err, path, 0, "a name of more than %u bytes, or a path of more than %u", LAYER_NAME_MAX,
                          TAR_NAME_MAX);
    if (r < 0)
        return layer_fail(err, path, -r, "it cannot be looked at");
    return view_look(view->root, ret->path, &ret->kind, err);
}

/* ---- names of users and groups ------------------------------------------------------------------------------ */

/* The field of a line with this number, from 0. */
static const char *field(const char *line, unsigned number, size_t *ret_len)
{
    size_t len = strcspn(line, ":\n");

    for (; number > 0; number--) {
        if (line[len] != ':')
            return NULL;
        line += len + 1;
        len = strcspn(line, ":\n");
    }
    *ret_len = len;
    return line;
}

static int read_id(const char *line, unsigned number, uint32_t *ret)
{
    char text[16];
    size_t len;
    const char *at = field(line, number, &len);

    if (!at || len >= sizeof(text))
        return -EINVAL;
    memcpy(text, at, len);
    text[len] = '\0';
    return parse_u32(text, ret);
}

int view_read(int root, const char *path, size_t max, char **ret, struct brig_err *err)
{
    const struct view view = {.root = root};
    struct view_path place;
    int r = view_resolve(&view, path, &place, err);

    if (r < 0 || place.kind != VIEW_OTHER)
        return r;
    AUTO_FD int fd = open_path(root, place.path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    char *text = mem_alloc(max);
    if (!text)
        return err_nomem(err);
    ssize_t n = fd < 0 ? fd : fd_read_all(fd, text, max);
    if (n < 0) {
        mem_free(text);
        return layer_fail(err, path, (int)-n, "it cannot be read");
    }
    *ret = text;
    return 0;
}

/* Finds the line of a name: its id is in `fields[0]`, its group in fields[1] unless that is 0. */
static int find_name(int root, const char *path, const char *name, size_t len, const unsigned fields[2],
                     uint32_t ret[2], struct brig_err *err)
{
    AUTO_FREE char *text = NULL;
    int r = view_read(root, path, NAMES_FILE_MAX, &text, err); /* an image need not have one */

    if (r < 0)
        return r;
    for (const char *line = text ? text : ""; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n;
        const char *first = field(line, 0, &n);

        if (n != len || memcmp(first, name, len) != 0)
            continue;
        if (read_id(line, fields[0], &ret[0]) < 0 || (fields[1] > 0 && read_id(line, fields[1], &ret[1]) < 0))
            continue;
        return 0;
    }
    return err_set(err, BRIG_E_INVALID, 0, "--chown: the image's %s has no %.*s", path, (int)(len < 80 ? len : 80),
                   name);
}

static int check_id(uint32_t id, struct brig_err *err)
{
    return id > LAYER_ID_MAX ? err_set(err, BRIG_E_INVALID, 0, "--chown %u: ids are at most %u", id, LAYER_ID_MAX) : 0;
}

/* A number, or a name in the image. */
static int find_owner(int root, const char *text, size_t len, bool is_group, uint32_t ret[2], struct brig_err *err)
{
    static const unsigned user_fields[2] = {2, 3}, group_fields[2] = {2, 0};
    char number[16];

    if (len > 0 && len < sizeof(number) && strspn(text, "0123456789") >= len) {
        memcpy(number, text, len);
        number[len] = '\0';
        if (parse_u32(number, &ret[0]) < 0)
            return err_set(err, BRIG_E_INVALID, 0, "--chown %s: ids are at most %u", number, LAYER_ID_MAX);
        ret[1] = ret[0]; /* as BuildKit has it: a number alone is both */
        return check_id(ret[0], err);
    }
    if (len == 0)
        return err_set(err, BRIG_E_USAGE, 0, "--chown: USER[:GROUP], names or numbers");
    int r = find_name(root, is_group ? "/etc/group" : "/etc/passwd", text, len, is_group ? group_fields : user_fields,
                      ret, err);
    if (r == 0)
        r = check_id(ret[0], err);
    return r < 0 || is_group ? r : check_id(ret[1], err);
}

int view_owner(int root, const char *text, uint32_t *ret_uid, uint32_t *ret_gid, struct brig_err *err)
{
    uint32_t user[2] = {0}, group[2] = {0};
    size_t len = strcspn(text, ":");
    int r = find_owner(root, text, len, false, user, err);

    if (r == 0 && text[len] == ':')
        r = find_owner(root, text + len + 1, strlen(text + len + 1), true, group, err);
    if (r < 0)
        return r;
    *ret_uid = user[0];
    *ret_gid = text[len] == ':' ? group[0] : user[1];
    return 0;
}
