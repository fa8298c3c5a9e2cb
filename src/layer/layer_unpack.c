/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_unpack.c: makes the members of a layer's archive in the merged view of the layers below.
 *
 * Theory of operation. The overlay does what is hard: it copies directories and link targets up from the layers below,
 * and turns removals into whiteouts. So a member is made as in any directory: exclusively, by one name in a directory
 * that layer_place.c holds open; what is there already is removed first, unless both are directories. Nothing is
 * followed at the last name. Device nodes are dropped: one with the number 0:0 would be a whiteout.
 *
 * `.wh.NAME` removes NAME of the layers below, `.wh..wh..opq` all that they have in a directory; neither touches what
 * this layer has made itself, before or after. A whiteout follows no link: below a link there is nothing that it could
 * mean. Other names with `.wh..wh.` are aufs's own and dropped.
 */
/* SHA256_Update() is all that is wanted here: EVP would bring 5 MiB into the program. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/reserve.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "layer/layer.h"

#define PROGRESS_NS (UINT64_C(100) * 1000 * 1000)
#define ROOM_AHEAD (UINT64_C(1) << 20)
#define MEMBER_ROOM 4096u /* a name, its inode and the rest of its last block */
#define WHITEOUT ".wh."
#define WHITEOUT_META ".wh..wh."
#define OPAQUE ".wh..wh..opq"

struct unpack {
    const struct layer_options *options;
    int root, fd; /* fd: the file that is being written */
    struct layer_own own;
    struct layer_place place, targets;
    struct layer_dropped dropped;
    struct layer_meta meta;
    uint64_t files, bytes, used;
    uint64_t room;  /* what may be written before it is asked for again */
    uint64_t at;    /* the place in the file, */
    uint32_t piece; /* and the piece, of a sparse one */
    SHA256_CTX hash;
    uint64_t told_ns;
    struct tar_parser parser;
    struct tar_extra extra;
};

/* ---- whiteouts -------------------------------------------------------------------------------------------- */

static int change_failed(struct brig_err *err, const struct tar_member *member, int r)
{
    return layer_fail(err, member->name, -r, "what it removes");
}

/* All that layers below have in a directory. */
static int hide_children(struct unpack *unpack, const struct tar_member *member, struct brig_err *err)
{
    int fd = openat(place_fd(&unpack->place), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : remove_lower(fd, unpack->place.path, &unpack->own);

    return r < 0 ? change_failed(err, member, r) : 0;
}

static int hide_one(struct unpack *unpack, const struct tar_member *member, const char *name, struct brig_err *err)
{
    int dir = place_fd(&unpack->place), fd, r;
    char path[TAR_NAME_MAX + 1];
    int len = place_path(&unpack->place, name, path);
    struct stat st;

    if (len < 0)
        return layer_fail(err, member->name, 0, "a path of more than %u bytes", TAR_NAME_MAX);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        unpack->dropped.whiteouts += errno == ENOENT;
        return errno == ENOENT ? 0 : change_failed(err, member, -errno);
    }
    if ((r = place_touch(&unpack->place)) < 0)
        return change_failed(err, member, r);
    if (!own_has(&unpack->own, path, (size_t)len)) {
        r = remove_all(dir, name);
    } else if (S_ISDIR(st.st_mode)) {
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = fd < 0 ? -errno : remove_lower(fd, path, &unpack->own);
    }
    return r < 0 ? change_failed(err, member, r) : 0;
}

/* Returns 1 if the name of the member means a whiteout, whatever its kind, which is then done; 0 if it does not. */
static int whiteout(struct unpack *unpack, const struct tar_member *member, struct brig_err *err)
{
    const char *slash = strrchr(member->name, '/'), *base = slash ? slash + 1 : member->name, *name;
    int r;

    if (!strstr(member->name, WHITEOUT))
        return 0;
    for (const char *part = member->name; part != base; part = strchr(part, '/') + 1) {
        if (str_starts(part, WHITEOUT_META)) {
            unpack->dropped.whiteouts++;
            return 1;
        }
        if (str_starts(part, WHITEOUT))
            return layer_fail(err, member->name, 0, "it lies below a whiteout");
    }
    if (!str_starts(base, WHITEOUT))
        return 0;
    if (str_starts(base, WHITEOUT_META) && !str_eq(base, OPAQUE)) {
        unpack->dropped.whiteouts++;
        return 1;
    }
    name = base + strlen(WHITEOUT);
    if (*name == '\0' || str_eq(name, ".") || str_eq(name, ".."))
        return layer_fail(err, member->name, 0, "a whiteout that names nothing");
    place_reset(&unpack->targets);
    r = place_enter(&unpack->place, member->name, PLACE_STRICT, NULL, &base, err);
    if (r < 0)
        return r;
    unpack->dropped.whiteouts += r == 0;
    if (r > 0)
        r = str_eq(base, OPAQUE) ? hide_children(unpack, member, err) : hide_one(unpack, member, name, err);
    return r < 0 ? r : 1;
}

/* ---- room ----------------------------------------------------------------------------------------------- */

/* It is asked for ahead, so that not every small file asks. */
static int take_room(struct unpack *unpack, const struct tar_member *member, uint64_t len, struct brig_err *err)
{
    const uint64_t ahead = len > ROOM_AHEAD ? len : ROOM_AHEAD;

    if (!unpack->options->reserve)
        return 0;
    if (len > unpack->room) {
        if (!reserve_leaves(unpack->root, ahead))
            return layer_fail(err, member->name, ENOSPC, "the disk of templates is nearly full");
        unpack->room = ahead;
    }
    unpack->room -= len;
    return 0;
}

/* ---- members ---------------------------------------------------------------------------------------------- */

/* Makes room for a thing that is no directory. */
static int clear(struct unpack *unpack, const char *name)
{
    place_reset(&unpack->targets);
    return remove_all(place_fd(&unpack->place), name);
}

/* Only what the kernel knows as the same thing may stay in the way of a hard link. */
static bool is_same(int dir, const char *name, int other_dir, const char *other)
{
    struct stat st, other_st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(other_dir, other, &other_st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == other_st.st_dev &&
           st.st_ino == other_st.st_ino;
}

static int make_hardlink(struct unpack *unpack, const struct tar_member *member, const char *name, struct brig_err *err)
{
    int dir = place_fd(&unpack->place), from;
    const char *target;
    struct stat st;
    int r = place_enter(&unpack->targets, member->link, PLACE_FOLLOW, NULL, &target, err);

    if (r < 0)
        return r;
    from = place_fd(&unpack->targets);
    if (r == 0 || fstatat(from, target, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, member->name, 0, "a hard link to something that is not there");
    if (S_ISDIR(st.st_mode))
        return layer_fail(err, member->name, 0, "a hard link to a directory");
    if (linkat(from, target, dir, name, 0) == 0)
        return 0;
    if (errno == EEXIST && is_same(from, target, dir, name))
        return 0;
    if (errno == EEXIST && (r = clear(unpack, name)) == 0) {
        r = place_enter(&unpack->targets, member->link, PLACE_FOLLOW, NULL, &target, err);
        if (r <= 0)
            return r < 0 ? r : layer_fail(err, member->name, 0, "a hard link to something that is not there");
        if (linkat(place_fd(&unpack->targets), target, dir, name, 0) == 0)
            return 0;
    }
    return layer_fail(err, member->name, errno, "a hard link");
}

static int make_directory(struct unpack *unpack, const struct tar_member *member, const char *name,
                          struct brig_err *err)
{
    int dir = place_fd(&unpack->place);
    struct stat st;

    if (mkdirat(dir, name, 0700) == 0)
        return 0;
    if (errno == EEXIST && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        if (clear(unpack, name) == 0 && mkdirat(dir, name, 0700) == 0)
            return 0;
    }
    return layer_fail(err, member->name, errno, "a directory");
}

/* One try. A file is left open. Returns 0 or a negative errno. */
static int try_to_make(struct unpack *unpack, const struct tar_member *member, const char *name)
{
    int dir = place_fd(&unpack->place);
    mode_t open_mode = (member->mode & 0777) | (unpack->options->one_id ? 0600 : 0);

    switch (member->kind) {
    case TAR_SYMLINK: return symlinkat(member->link, dir, name) < 0 ? -errno : 0;
    case TAR_FIFO: return mknodat(dir, name, S_IFIFO | (member->mode & 0777), 0) < 0 ? -errno : 0;
    default:
        unpack->fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, open_mode);
        return unpack->fd < 0 ? -errno : 0;
    }
}

static int make_other(struct unpack *unpack, const struct tar_member *member, const char *name, struct brig_err *err)
{
    int r = try_to_make(unpack, member, name);

    if (r == -EEXIST && (r = clear(unpack, name)) == 0)
        r = try_to_make(unpack, member, name);
    return r < 0 ? layer_fail(err, member->name, -r, "it cannot be made") : 0;
}

/* The time of a directory waits for the end, and so does its mode where that could lock us out. */
static int keep_directory(struct unpack *unpack, const struct tar_member *member, const char *path, size_t len)
{
    const struct layer_dir dir = {
        .mtime = {member->mtime, member->mtime_ns},
        .mode = member->mode,
        .has_mode = unpack->options->one_id,
    };
    struct layer_dir *kept = own_dir(&unpack->own, path, len, &dir);

    if (!kept)
        return -ENOMEM;
    kept->mtime = dir.mtime;
    kept->mode = dir.mode;
    kept->has_mode = dir.has_mode;
    return 0;
}

/* The root itself: it is there. */
static int set_root(struct unpack *unpack, const struct tar_member *member, struct brig_err *err)
{
    int r;

    unpack->meta.inherits = false;
    r = meta_name(&unpack->meta, unpack->root, ".", member, &unpack->extra, err);
    return r < 0 ? r : keep_directory(unpack, member, "", 0) < 0 ? err_nomem(err) : 0;
}

static int make_member(struct unpack *unpack, const struct tar_member *member, struct brig_err *err)
{
    const struct timespec mtime = {member->mtime, member->mtime_ns};
    struct layer_place *place = &unpack->place;
    char path[TAR_NAME_MAX + 1];
    const char *name;
    int len, r = place_enter(place, member->name, PLACE_MAKE, &mtime, &name, err);

    if (r < 0)
        return r;
    if ((len = place_path(place, name, path)) < 0)
        return layer_fail(err, member->name, 0, "a path of more than %u bytes", TAR_NAME_MAX);
    if (place_touch(place) < 0 || own_add(&unpack->own, path, (size_t)len) < 0)
        return err_nomem(err);
    unpack->meta.inherits = place->levels[place->depth].inherits;
    if (member->kind == TAR_HARDLINK)
        return make_hardlink(unpack, member, name, err);
    r = member->kind == TAR_DIR ? make_directory(unpack, member, name, err) : make_other(unpack, member, name, err);
    if (r < 0 || member->kind == TAR_FILE)
        return r;
    if ((r = meta_name(&unpack->meta, place_fd(place), name, member, &unpack->extra, err)) < 0)
        return r;
    if (member->kind == TAR_DIR && keep_directory(unpack, member, path, (size_t)len) < 0)
        return err_nomem(err);
    return 0;
}

static int begin_member(struct unpack *unpack, const struct tar_member *member, struct brig_err *err)
{
    const struct layer_options *options = unpack->options;
    int r;

    if (++unpack->files > options->max_files)
        return layer_fail(err, member->name, 0, "with it the layer has more than %llu members",
                          (unsigned long long)options->max_files);
    if (member->size > options->max_bytes - unpack->bytes)
        return layer_fail(err, member->name, 0, "with it the files of the layer are more than %llu bytes",
                          (unsigned long long)options->max_bytes);
    unpack->bytes += member->size;
    if (member->uid > LAYER_ID_MAX || member->gid > LAYER_ID_MAX)
        return layer_fail(err, member->name, 0, "owner %lld:%lld: ids are at most %u", (long long)member->uid,
                          (long long)member->gid, LAYER_ID_MAX);
    unpack->at = unpack->piece = 0;
    if ((r = take_room(unpack, member, MEMBER_ROOM, err)) < 0)
        return r;
    if (member->kind == TAR_DEVICE) {
        unpack->dropped.devices++;
        return 0;
    }
    if (member->name_len == 0)
        return set_root(unpack, member, err);
    r = whiteout(unpack, member, err);
    if (r < 0)
        return r;
    return r > 0 ? 0 : make_member(unpack, member, err);
}

/* ---- content ---------------------------------------------------------------------------------------------- */

static int write_at(int fd, const uint8_t *data, size_t len, uint64_t at)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)at);

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            data += n, len -= (size_t)n, at += (uint64_t)n;
    }
    return 0;
}

/* The parser has checked that the pieces are as long as the content. */
static int write_sparse(struct unpack *unpack, const uint8_t *data, size_t len)
{
    int r = 0;

    while (r == 0 && len > 0) {
        const struct tar_piece *piece = &unpack->extra.pieces[unpack->piece];
        size_t n = piece->size - unpack->at < len ? (size_t)(piece->size - unpack->at) : len;

        r = write_at(unpack->fd, data, n, piece->at + unpack->at);
        unpack->at += n;
        data += n;
        len -= n;
        if (unpack->at == piece->size)
            unpack->piece++, unpack->at = 0;
    }
    return r;
}

static int on_content(struct unpack *unpack, const uint8_t *data, size_t len, struct brig_err *err)
{
    const struct tar_member *member = &unpack->parser.member;
    int r;

    if (unpack->fd < 0) /* a whiteout with content */
        return 0;
    if ((r = take_room(unpack, member, len, err)) < 0)
        return r;
    r = member->sparse ? write_sparse(unpack, data, len) : fd_write_all(unpack->fd, data, len);
    return r < 0 ? layer_fail(err, member->name, -r, "its content") : 0;
}

static int end_member(struct unpack *unpack, struct brig_err *err)
{
    const struct tar_member *member = &unpack->parser.member;
    int r = 0;

    if (unpack->fd < 0)
        return 0;
    if (member->sparse && ftruncate(unpack->fd, (off_t)member->size) < 0)
        r = layer_fail(err, member->name, errno, "its size");
    if (r == 0)
        r = meta_file(&unpack->meta, unpack->fd, member, &unpack->extra, err);
    base_close_fd(&unpack->fd);
    return r;
}

/* ---- all -------------------------------------------------------------------------------------------------- */

static int feed(struct unpack *unpack, const uint8_t *in, size_t len, struct brig_err *err)
{
    const uint8_t *start = in, *data;
    size_t n;
    int r = 0;

    while (r == 0) {
        int event = tar_parse(&unpack->parser, &in, &len, &data, &n);

        if (event == TAR_NEED)
            break;
        if (event < 0)
            return layer_fail_tar(err, &unpack->parser, event, unpack->used + (uint64_t)(in - start));
        if (event == TAR_MEMBER)
            r = begin_member(unpack, &unpack->parser.member, err);
        else if (event == TAR_CONTENT)
            r = on_content(unpack, data, n, err);
        else
            r = end_member(unpack, err);
    }
    unpack->used += (uint64_t)(in - start);
    return r;
}

static int say(struct buf *line, struct json *json, struct brig_err *err)
{
    int r = json_finish(json);

    if (r == 0)
        r = buf_append_str(line, "\n");
    if (r == 0)
        r = fd_write_all(STDOUT_FILENO, line->data, line->len);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the standard output") : 0;
}

static int tell_progress(struct unpack *unpack, const struct layer_stream *stream, struct brig_err *err)
{
    AUTO_BUF struct buf line = BUF_INIT(128);
    struct json json = JSON_INIT(&line);
    uint64_t now = clock_mono_ns();

    if (now - unpack->told_ns < PROGRESS_NS)
        return 0;
    unpack->told_ns = now;
    json_object(&json);
    json_key_u64(&json, "at", stream_at(stream));
    json_end(&json);
    return say(&line, &json, err);
}

static int tell_result(const struct unpack *unpack, const struct layer_stream *stream, const char *hex,
                       struct brig_err *err)
{
    AUTO_BUF struct buf line = BUF_INIT(1024);
    struct json json = JSON_INIT(&line);
    char diff_id[80];

    if (str_format(diff_id, sizeof(diff_id), "sha256:%s", hex) < 0)
        return err_nomem(err);
    json_object(&json);
    json_key_string(&json, "diff_id", diff_id);
    json_key_string(&json, "format", stream_format(stream));
    json_key_u64(&json, "stream", unpack->used);
    json_key_u64(&json, "bytes", unpack->bytes);
    json_key_u64(&json, "files", unpack->files);
    json_key_object(&json, "dropped");
    json_key_u64(&json, "devices", unpack->dropped.devices);
    json_key_u64(&json, "capabilities", unpack->dropped.capabilities);
    json_key_u64(&json, "xattrs", unpack->dropped.xattrs);
    json_key_u64(&json, "whiteouts", unpack->dropped.whiteouts);
    json_end(&json);
    json_end(&json);
    return say(&line, &json, err);
}

/* The archive is whole, and it is the one that was meant. One that only lacks its end is vouched for by its hash. */
static int check_end(struct unpack *unpack, char hex[LAYER_HEX], struct brig_err *err)
{
    int r = tar_parse_end(&unpack->parser);

    layer_hex(&unpack->hash, hex);
    if (r < 0 && !(r == -ENODATA && unpack->options->diff_id))
        return layer_fail_tar(err, &unpack->parser, r, unpack->used);
    if (unpack->options->diff_id && !str_eq(unpack->options->diff_id, hex))
        return err_set(err, BRIG_E_INVALID, 0, "the archive: its hash is sha256:%.16s..., not sha256:%.16s...", hex,
                       unpack->options->diff_id);
    return 0;
}

static int unpack_all(struct unpack *unpack, struct layer_stream *stream, struct brig_err *err)
{
    char hex[LAYER_HEX];
    const uint8_t *data;
    size_t len;
    int r;

    while ((r = stream_next(stream, &data, &len, err)) > 0) {
        SHA256_Update(&unpack->hash, data, len);
        if ((r = feed(unpack, data, len, err)) < 0 || (r = tell_progress(unpack, stream, err)) < 0)
            return r;
    }
    if (r == 0)
        r = check_end(unpack, hex, err);
    if (r == 0)
        r = own_finish(&unpack->own, unpack->root, err);
    return r < 0 ? r : tell_result(unpack, stream, hex, err);
}

int layer_unpack(const struct layer_options *options, struct brig_err *err)
{
    struct unpack *unpack = mem_zalloc(sizeof(*unpack));
    struct layer_stream *stream = NULL;
    int r;

    if (!unpack)
        return err_nomem(err);
    unpack->options = options;
    unpack->fd = -1;
    unpack->meta = (struct layer_meta){.options = options, .dropped = &unpack->dropped};
    unpack->told_ns = clock_mono_ns();
    tar_parser_init(&unpack->parser);
    unpack->parser.extra = &unpack->extra;
    SHA256_Init(&unpack->hash);
    unpack->root = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = unpack->root < 0 ? err_host(err, "%s", options->directory) : own_init(&unpack->own, err);
    if (r == 0) {
        place_init(&unpack->place, unpack->root, &unpack->own);
        place_init(&unpack->targets, unpack->root, &unpack->own);
        r = stream_open(options, &stream, err);
    }
    if (r == 0) {
        r = unpack_all(unpack, stream, err);
        place_reset(&unpack->place);
        place_reset(&unpack->targets);
    }
    stream_close(stream);
    base_close_fd(&unpack->fd);
    base_close_fd(&unpack->root);
    own_done(&unpack->own);
    mem_free(unpack);
    return r;
}
