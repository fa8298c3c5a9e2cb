/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_diff.c: writes a tree as a tar: the raw upper directory of an overlay as a layer of an image, or a plain tree.
 *
 * The same tree gives the same bytes: names are sorted, and nothing of this machine is written but owners, modes,
 * times, user.* attributes, access lists and contents. A whiteout of the overlay (a device 0:0, or an empty file with
 * user.overlay.whiteout) becomes `.wh.NAME`, an opaque directory gets `.wh..wh..opq` before its other members. A file
 * with holes keeps them (GNU's sparse format 1.0, which every engine reads). Sockets and devices are left out. A name
 * that begins with `.wh.` would be read as a whiteout and is refused; so is a file that changes while it is read.
 *
 * The store of a sandbox is written as one layer, too: the upper of its root, and then the places that lie beside it
 * there (jail/store_mount.c), each at its path.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "layer/layer.h"

#define NAMES_MAX ((size_t)1 << 30)

struct link { /* a file with several names */
    uint64_t dev, ino;
    char *name; /* the first one */
};

struct diff {
    bool whiteouts;
    bool whole;                  /* Everything in this directory is written; */
    struct layer_own only;       /* else only these paths, and all below those that are here with a slash behind. */
    struct layer_own skip;       /* These are left out, */
    bool skips;                  /* if there are any. */
    char path[TAR_NAME_MAX + 1]; /* The member's path. */
    size_t path_len;
    unsigned depth;
    struct link *links; /* a table with empty slots where name is NULL */
    size_t n_links, slots;
    struct tar_extra extra;
    struct layer_out out;
};

static int put_head(struct diff *diff, const struct tar_member *member, struct brig_err *err)
{
    return out_head(&diff->out, member, &diff->extra, err);
}

/* ---- hard links ------------------------------------------------------------------------------------------- */

static struct link *link_slot(struct link *links, size_t slots, uint64_t dev, uint64_t ino)
{
    size_t at = (size_t)((ino ^ dev << 32) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (slots - 1);

    while (links[at].name && (links[at].ino != ino || links[at].dev != dev))
        at = (at + 1) & (slots - 1);
    return &links[at];
}

static int grow_links(struct diff *diff)
{
    size_t slots = diff->slots > 0 ? diff->slots * 2 : 1024;
    struct link *links = mem_zalloc(slots * sizeof(*links));

    if (!links)
        return -ENOMEM;
    for (size_t i = 0; i < diff->slots; i++)
        if (diff->links[i].name)
            *link_slot(links, slots, diff->links[i].dev, diff->links[i].ino) = diff->links[i];
    mem_free(diff->links);
    diff->links = links;
    diff->slots = slots;
    return 0;
}

/* Sets *ret to the first name of a file that was written already, else keeps this one for the next and sets NULL. */
static int first_name(struct diff *diff, const struct stat *st, const char **ret)
{
    struct link *link;

    *ret = NULL;
    if (st->st_nlink < 2)
        return 0;
    if (diff->n_links + 1 > diff->slots / 2 && grow_links(diff) < 0)
        return -ENOMEM;
    link = link_slot(diff->links, diff->slots, st->st_dev, st->st_ino);
    if (link->name) {
        *ret = link->name;
        return 0;
    }
    *link = (struct link){st->st_dev, st->st_ino, mem_strdup(diff->path)};
    diff->n_links++;
    return link->name ? 0 : -ENOMEM;
}

/* ---- members ---------------------------------------------------------------------------------------------- */

static void set_stat(struct tar_member *member, const struct diff *diff, const struct stat *st)
{
    member->name = diff->path;
    member->name_len = diff->path_len;
    member->mode = st->st_mode & 07777;
    member->uid = st->st_uid;
    member->gid = st->st_gid;
    member->mtime = st->st_mtim.tv_sec;
    member->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
}

static bool is_kept(const char *name)
{
    return str_starts(name, "system.posix_acl_") || (str_starts(name, "user.") && !str_starts(name, "user.overlay."));
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The attributes that a layer keeps, in the order of their names. */
static int read_xattrs(struct diff *diff, int fd, struct brig_err *err)
{
    char names[64u << 10], value[64u << 10], *list[1024];
    ssize_t len = flistxattr(fd, names, sizeof(names));
    size_t n = 0;

    if (len < 0 && errno != EOPNOTSUPP)
        return layer_fail(err, diff->path, errno, "its extended attributes");
    for (char *name = names; name < names + len && n < ARRAY_SIZE(list); name += strlen(name) + 1)
        if (is_kept(name))
            list[n++] = name;
    qsort(list, n, sizeof(*list), name_order);
    for (size_t i = 0; i < n; i++) {
        ssize_t size = fgetxattr(fd, list[i], value, sizeof(value));
        if (size < 0 || tar_xattr_add(&diff->extra, list[i], value, (size_t)size) < 0)
            return layer_fail(err, diff->path, size < 0 ? errno : E2BIG, "extended attribute %.60s", list[i]);
    }
    return 0;
}

/* Where the data of a file with holes is. Past the last piece that there is room for, all counts as data. */
static int find_pieces(struct diff *diff, int fd, off_t size, struct brig_err *err)
{
    off_t at = 0, end;

    while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && at < size) {
        end = diff->extra.n_pieces + 2 == TAR_PIECES_MAX ? size : lseek(fd, at, SEEK_HOLE);
        if (end < 0)
            return layer_fail(err, diff->path, errno, "its holes");
        end = end < size ? end : size;
        diff->extra.pieces[diff->extra.n_pieces++] = (struct tar_piece){(uint64_t)at, (uint64_t)(end - at)};
        at = end;
    }
    if (at < 0 && errno != ENXIO)
        return layer_fail(err, diff->path, errno, "its holes");
    return 0;
}

static int put_content(struct diff *diff, int fd, const struct tar_member *member, struct brig_err *err)
{
    const struct tar_piece whole = {0, member->size}, *pieces = member->sparse ? diff->extra.pieces : &whole;
    uint32_t n = member->sparse ? diff->extra.n_pieces : 1;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        int r = out_range(&diff->out, fd, pieces[i].at, pieces[i].size, diff->path, err);
        if (r < 0)
            return r;
        sum += pieces[i].size;
    }
    return out_put(&diff->out, NULL, tar_padding(sum), err);
}

static int put_file(struct diff *diff, int dir, const char *name, struct brig_err *err)
{
    struct tar_member member = {.kind = TAR_FILE};
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const char *first;
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return layer_fail(err, diff->path, errno, "it cannot be read");
    if (!S_ISREG(st.st_mode))
        return layer_fail(err, diff->path, 0, "it changed while it was read");
    if (first_name(diff, &st, &first) < 0)
        return err_nomem(err);
    set_stat(&member, diff, &st);
    if (first) {
        member.kind = TAR_HARDLINK;
        member.link = first;
        member.link_len = strlen(first);
        return put_head(diff, &member, err);
    }
    member.size = (uint64_t)st.st_size;
    if ((r = read_xattrs(diff, fd, err)) < 0)
        return r;
    if ((uint64_t)st.st_blocks * 512 < member.size && (r = find_pieces(diff, fd, st.st_size, err)) < 0)
        return r;
    member.sparse = (uint64_t)st.st_blocks * 512 < member.size &&
                    !(diff->extra.n_pieces == 1 && diff->extra.pieces[0].size == member.size);
    if (member.sparse) /* as GNU tar ends every map */
        diff->extra.pieces[diff->extra.n_pieces++] = (struct tar_piece){member.size, 0};
    r = put_head(diff, &member, err);
    return r < 0 ? r : put_content(diff, fd, &member, err);
}

static int put_symlink(struct diff *diff, int dir, const char *name, const struct stat *st, struct brig_err *err)
{
    struct tar_member member = {.kind = TAR_SYMLINK};
    char target[TAR_NAME_MAX + 1];
    ssize_t len = readlinkat(dir, name, target, sizeof(target));
    const char *first;

    if (len < 0 || (size_t)len == sizeof(target))
        return layer_fail(err, diff->path, len < 0 ? errno : ENAMETOOLONG, "it cannot be read");
    if (first_name(diff, st, &first) < 0)
        return err_nomem(err);
    target[len] = '\0';
    set_stat(&member, diff, st);
    member.kind = first ? TAR_HARDLINK : TAR_SYMLINK;
    member.link = first ? first : target;
    member.link_len = first ? strlen(first) : (size_t)len;
    return put_head(diff, &member, err);
}

/* A member that says what layers below no longer have. */
static int put_whiteout(struct diff *diff, const char *name, struct brig_err *err)
{
    struct tar_member member = {.kind = TAR_FILE};
    char path[TAR_NAME_MAX + 1];
    const char *slash = strrchr(diff->path, '/');
    int len = str_format(path, sizeof(path), "%.*s.wh.%s", slash ? (int)(slash + 1 - diff->path) : 0, diff->path, name);

    if (len < 0)
        return layer_fail(err, diff->path, -len, "its whiteout");
    member.name = path;
    member.name_len = (size_t)len;
    return put_head(diff, &member, err);
}

static bool is_whiteout(const struct diff *diff, int dir, const char *name, const struct stat *st)
{
    if (!diff->whiteouts)
        return false;
    if (S_ISCHR(st->st_mode))
        return major(st->st_rdev) == 0 && minor(st->st_rdev) == 0;
    if (!S_ISREG(st->st_mode) || st->st_size != 0)
        return false;
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 && fgetxattr(fd, "user.overlay.whiteout", NULL, 0) >= 0;
}

/* ---- directories ------------------------------------------------------------------------------------------ */

static int walk(struct diff *diff, int fd, struct brig_err *err);

static bool is_wanted(const struct diff *diff)
{
    if (diff->skips && own_has(&diff->skip, diff->path, diff->path_len))
        return false;
    return diff->whole || own_has(&diff->only, diff->path, diff->path_len);
}

/* Goes through a directory, and closes it. */
static int enter(struct diff *diff, int fd, struct brig_err *err)
{
    char slash[TAR_NAME_MAX + 2];
    bool whole = diff->whole;
    int r;

    memcpy(slash, diff->path, diff->path_len);
    slash[diff->path_len] = '/';
    diff->whole = whole || own_has(&diff->only, slash, diff->path_len + 1);
    diff->depth++;
    r = walk(diff, fd, err);
    diff->depth--;
    diff->whole = whole;
    return r;
}

static int put_directory(struct diff *diff, int dir, const char *name, struct brig_err *err)
{
    const struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    AUTO_FD int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof(how));
    struct tar_member member = {.kind = TAR_DIR};
    struct stat st;
    char opaque = 0;
    int r;

    if (fd < 0 && errno == EXDEV) /* a mount over the tree */
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return layer_fail(err, diff->path, errno, "it cannot be read");
    if (diff->depth == LAYER_DEPTH_MAX)
        return layer_fail(err, diff->path, 0, "it is more than %u directories deep", LAYER_DEPTH_MAX);
    set_stat(&member, diff, &st);
    if ((r = read_xattrs(diff, fd, err)) < 0 || (r = put_head(diff, &member, err)) < 0)
        return r;
    if (diff->whiteouts && fgetxattr(fd, "user.overlay.opaque", &opaque, 1) == 1 && opaque == 'y') {
        size_t len = diff->path_len;

        if (len + 2 > sizeof(diff->path))
            return layer_fail(err, diff->path, ENAMETOOLONG, "its whiteout");
        memcpy(diff->path + len, "/", 2);
        diff->extra.xattrs_len = 0;
        r = put_whiteout(diff, ".wh..opq", err);
        diff->path[len] = '\0';
    }
    if (r == 0)
        r = enter(diff, take_fd(&fd), err);
    return r;
}

static int put_other(struct diff *diff, const struct stat *st, struct brig_err *err)
{
    struct tar_member member = {.kind = TAR_FIFO};

    if (!S_ISFIFO(st->st_mode))
        return 0;
    set_stat(&member, diff, st);
    return put_head(diff, &member, err);
}

static int put_entry(struct diff *diff, int dir, const char *name, struct brig_err *err)
{
    struct stat st;

    diff->extra.n_pieces = diff->extra.xattrs_len = 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, diff->path, errno, "it cannot be read");
    if (str_starts(name, ".wh."))
        return layer_fail(err, diff->path, 0, "layers use names with .wh. for what was removed");
    if (is_whiteout(diff, dir, name, &st))
        return put_whiteout(diff, name, err);
    if (S_ISDIR(st.st_mode))
        return put_directory(diff, dir, name, err);
    if (S_ISREG(st.st_mode))
        return put_file(diff, dir, name, err);
    return S_ISLNK(st.st_mode) ? put_symlink(diff, dir, name, &st, err) : put_other(diff, &st, err);
}

void names_done(struct names *names)
{
    mem_free(names->text);
    mem_free(names->list);
}

/* All names of a directory in one block of memory, and pointers into it in their order. It closes the descriptor. */
int names_read(int fd, struct names *names)
{
    DIR *list = fdopendir(fd);
    int r = 0;

    if (!list) {
        r = -errno;
        base_close_fd(&fd);
        return r;
    }
    for (struct dirent *entry; r == 0 && (errno = 0, entry = readdir(list));) {
        size_t len = strlen(entry->d_name) + 1;

        if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, ".."))
            continue;
        if (names->len + len > names->cap) {
            size_t cap = (names->len + len) * 2;
            char *text = cap <= NAMES_MAX ? mem_realloc(names->text, cap) : NULL;
            if (!text) {
                r = -ENOMEM;
                break;
            }
            names->text = text;
            names->cap = cap;
        }
        memcpy(names->text + names->len, entry->d_name, len);
        names->len += len;
        names->n++;
    }
    if (r == 0 && errno != 0)
        r = -errno;
    closedir(list);
    if (r < 0 || names->n == 0)
        return r;
    names->list = mem_realloc_array(NULL, names->n, sizeof(*names->list));
    if (!names->list)
        return -ENOMEM;
    char *at = names->text;
    for (size_t i = 0; i < names->n; i++, at += strlen(at) + 1)
        names->list[i] = at;
    qsort(names->list, names->n, sizeof(*names->list), name_order);
    return 0;
}

/* Writes what is in a directory, and closes it. */
static int walk(struct diff *diff, int fd, struct brig_err *err)
{
    __attribute__((cleanup(names_done))) struct names names = {0};
    AUTO_FD int dir = fd;
    size_t len = diff->path_len, start = len + (len > 0);
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        r = again < 0 ? -errno : names_read(again, &names);

    if (r < 0)
        return layer_fail(err, diff->path, -r, "it cannot be read");
    for (size_t i = 0; i < names.n && r == 0; i++) {
        size_t name_len = strlen(names.list[i]);

        if (start + name_len > TAR_NAME_MAX)
            return layer_fail(err, diff->path, 0, "a path in it has more than %u bytes", TAR_NAME_MAX);
        if (len > 0)
            diff->path[len] = '/';
        memcpy(diff->path + start, names.list[i], name_len + 1);
        diff->path_len = start + name_len;
        r = is_wanted(diff) ? put_entry(diff, dir, names.list[i], err) : 0;
    }
    diff->path[len] = '\0';
    diff->path_len = len;
    return r;
}

/* Paths of the root that this program sees: links of the image on the way are followed as a mount follows them. */
static int read_excludes(struct diff *diff, const struct layer_options *options, struct brig_err *err)
{
    AUTO_FD int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct view view = {.root = root};
    struct view_path place;
    int r = root < 0 ? err_host(err, "/") : own_init(&diff->skip, err);

    for (size_t i = 0; r == 0 && i < options->n_list; i++) {
        r = view_resolve(&view, options->list[i], &place, err);
        if (r == 0 && own_add(&diff->skip, place.path, place.len) < 0)
            r = err_nomem(err);
    }
    diff->skips = true;
    return r;
}

static int diff_create(const struct layer_options *options, bool whiteouts, struct diff **ret, struct brig_err *err)
{
    struct diff *diff = mem_zalloc(sizeof(*diff));

    if (!diff)
        return err_nomem(err);
    diff->whiteouts = whiteouts;
    diff->out.dates = options;
    diff->whole = true;
    *ret = diff;
    return 0;
}

static void diff_destroy(struct diff *diff)
{
    for (size_t i = 0; i < diff->slots; i++)
        mem_free(diff->links[i].name);
    mem_free(diff->links);
    own_done(&diff->only);
    own_done(&diff->skip);
    mem_free(diff);
}

static int write_tree(const struct layer_options *options, bool whiteouts, struct brig_err *err)
{
    struct diff *diff = NULL;
    int fd, r = diff_create(options, whiteouts, &diff, err);

    if (r < 0)
        return r;
    diff->whole = whiteouts || options->n_list == 0;
    fd = open(options->blob, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        r = err_host(err, "%s", options->blob);
    else if (!diff->whole)
        r = only_init(&diff->only, fd, options, err);
    else if (options->n_list > 0)
        r = read_excludes(diff, options, err);
    if (r == 0)
        r = enter(diff, take_fd(&fd), err);
    if (r == 0)
        r = out_end(&diff->out, err);
    base_close_fd(&fd);
    diff_destroy(diff);
    return r;
}

/* ---- the store of a sandbox -------------------------------------------------------------------------------- */

/* One of its directories, with all below it, at a path of the layer. One that is not there is left out. */
static int put_place(struct diff *diff, int store, const char *name, const char *path, struct brig_err *err)
{
    struct stat st;

    if (fstatat(store, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    diff->path_len = strlen(path);
    memcpy(diff->path, path, diff->path_len + 1);
    diff->extra.n_pieces = diff->extra.xattrs_len = 0;
    int r = put_directory(diff, store, name, err);
    diff->path_len = 0;
    diff->path[0] = '\0';
    return r;
}

/* What the set-up makes anew in every sandbox, and where the places are mounted. */
static int skip_places(struct diff *diff, struct brig_err *err)
{
    static const char *const skipped[] = {".brig", "dev", "proc", "run", "tmp", "var/tmp", "home/user", "workspace"};
    int r = own_init(&diff->skip, err);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(skipped); i++)
        if (own_add(&diff->skip, skipped[i], strlen(skipped[i])) < 0)
            r = err_nomem(err);
    diff->skips = true;
    return r;
}

int layer_store(const struct layer_options *options, struct brig_err *err)
{
    static const char *const places[][2] = {
        {"home", "home/user"}, {"tmp", "tmp"}, {"vartmp", "var/tmp"}, {"workspace", "workspace"}};
    AUTO_FD int store = open(options->blob, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct diff *diff = NULL;

    if (store < 0)
        return err_host(err, "%s", options->blob);
    AUTO_FD int upper = openat(store, "upper/root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (upper < 0 && errno != ENOENT)
        return err_host(err, "%s/upper/root", options->blob);
    int r = diff_create(options, true, &diff, err);
    if (r < 0)
        return r;
    r = skip_places(diff, err);
    if (r == 0 && upper >= 0)
        r = enter(diff, take_fd(&upper), err);
    diff->skips = diff->whiteouts = false;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(places); i++)
        r = put_place(diff, store, places[i][0], places[i][1], err);
    if (r == 0)
        r = out_end(&diff->out, err);
    diff_destroy(diff);
    return r;
}

int layer_diff(const struct layer_options *options, struct brig_err *err)
{
    return write_tree(options, true, err);
}

int layer_pack(const struct layer_options *options, struct brig_err *err)
{
    return write_tree(options, false, err);
}
