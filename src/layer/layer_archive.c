/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_archive.c: ADD of a local archive: its members become members of the layer, below DEST, which is their root.
 *
 * A member's directory is followed inside DEST as far as the image has links there (a tar with lib/x belongs into
 * usr/lib where lib is a link). A link that the archive has brought itself is not followed: a member below it is
 * refused. Owners are the archive's own unless --chown says otherwise. Devices are left out, as from every layer.
 */
#include <fcntl.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "layer/layer_copy_priv.h"

struct adding {
    struct copy *copy;
    struct view inside; /* DEST in the image; root -1: the image has no such directory */
    bool skipped;       /* the member's content is not wanted */
    uint64_t stored, used;
    struct tar_parser parser;
    struct tar_extra extra;
};

/* ---- paths ------------------------------------------------------------------------------------------------ */

/* Where a directory of the archive is in the layer: DEST and the way that the image's links lead. */
static int resolve(const struct adding *adding, const char *dir, char out[TAR_NAME_MAX + 1], struct brig_err *err)
{
    const char *dest = adding->copy->dest.path;
    struct view_path place = {.len = 0};
    int r = 0;

    if (adding->inside.root >= 0)
        r = view_resolve(&adding->inside, dir, &place, err);
    else if (str_copy(place.path, sizeof(place.path), dir) < 0)
        r = -ENAMETOOLONG;
    if (r < 0)
        return r == -ENAMETOOLONG ? layer_fail(err, dir, 0, "a path of more than %u bytes", TAR_NAME_MAX) : r;
    if (str_format(out, TAR_NAME_MAX + 1, "%s%s%s", dest, *dest && *place.path ? "/" : "", place.path) < 0)
        return layer_fail(err, dir, 0, "with DEST its path has more than %u bytes", TAR_NAME_MAX);
    return 0;
}

/* The path of a name in the layer. `last` says whether its own link is followed too. */
static int place_of(const struct adding *adding, const char *name, bool last, char out[TAR_NAME_MAX + 1],
                    struct brig_err *err)
{
    char dir[TAR_NAME_MAX + 1], above[TAR_NAME_MAX + 1];
    const char *slash = strrchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;
    int r;

    if (last)
        return resolve(adding, name, out, err);
    memcpy(dir, name, len);
    dir[len] = '\0';
    if ((r = resolve(adding, dir, above, err)) < 0)
        return r;
    if (str_format(out, TAR_NAME_MAX + 1, "%s%s%s", above, *above ? "/" : "", slash ? slash + 1 : name) < 0)
        return layer_fail(err, name, 0, "with DEST its path has more than %u bytes", TAR_NAME_MAX);
    return 0;
}

/* The directories of a path are made if they are missing; anything else in their place is refused. */
static int make_above(struct copy *copy, const char *path, struct brig_err *err)
{
    char above[TAR_NAME_MAX + 1];
    const char *slash = strrchr(path, '/');

    if (!slash)
        return 0;
    memcpy(above, path, (size_t)(slash - path));
    above[slash - path] = '\0';
    return copy_make_directories(copy, above, err);
}

/* ---- members ---------------------------------------------------------------------------------------------- */

static int set_owner(const struct copy *copy, struct tar_member *member, struct brig_err *err)
{
    if (copy->has_owner) {
        member->uid = copy->uid;
        member->gid = copy->gid;
    }
    if (member->uid > LAYER_ID_MAX || member->gid > LAYER_ID_MAX)
        return layer_fail(err, member->name, 0, "owner %llu:%llu: ids are at most %u", (unsigned long long)member->uid,
                          (unsigned long long)member->gid, LAYER_ID_MAX);
    return 0;
}

static int begin_member(struct adding *adding, struct brig_err *err)
{
    struct copy *copy = adding->copy;
    struct tar_member member = adding->parser.member;
    char path[TAR_NAME_MAX + 1], link[TAR_NAME_MAX + 1];
    int r = 0;

    adding->stored = 0;
    adding->skipped = member.kind == TAR_DEVICE || member.name_len == 0; /* DEST itself stays as it is */
    if (++copy->members > copy->options->max_files)
        return layer_fail(err, member.name, 0, "with it the archives have more than %llu members",
                          (unsigned long long)copy->options->max_files);
    if (adding->skipped)
        return 0;
    if ((r = copy_check_name(member.name, err)) < 0 ||
        (r = place_of(adding, member.name, member.kind == TAR_DIR, path, err)) < 0 ||
        (r = make_above(copy, path, err)) < 0 || (r = set_owner(copy, &member, err)) < 0)
        return r;
    if (member.kind == TAR_HARDLINK) {
        if ((r = place_of(adding, member.link, false, link, err)) < 0)
            return r;
        member.link = link;
        member.link_len = strlen(link);
    }
    member.name = path;
    member.name_len = strlen(path);
    if ((r = copy_mark(copy, path, member.kind == TAR_DIR, err)) < 0)
        return r;
    return out_head(&copy->out, &member, &adding->extra, err);
}

static int feed(struct adding *adding, const uint8_t *in, size_t len, struct brig_err *err)
{
    const uint8_t *start = in, *data;
    size_t n;
    int r = 0;

    while (r == 0) {
        int event = tar_parse(&adding->parser, &in, &len, &data, &n);

        if (event == TAR_NEED)
            break;
        if (event < 0)
            return layer_fail_tar(err, &adding->parser, event, adding->used + (uint64_t)(in - start));
        if (event == TAR_MEMBER) {
            r = begin_member(adding, err);
        } else if (event == TAR_CONTENT && !adding->skipped) {
            adding->stored += n;
            r = out_put(&adding->copy->out, data, n, err);
        } else if (event == TAR_MEMBER_END && !adding->skipped) {
            r = out_put(&adding->copy->out, NULL, tar_padding(adding->stored), err);
        }
    }
    adding->used += (uint64_t)(in - start);
    return r;
}

/* ---- all -------------------------------------------------------------------------------------------------- */

/* Is it an archive? It is if its first bytes, unpacked, are those of a member. */
static bool has_member(const uint8_t *data, size_t len)
{
    struct tar_parser *parser = mem_zalloc(sizeof(*parser));
    struct tar_extra *extra = mem_zalloc(sizeof(*extra));
    const uint8_t *content;
    size_t n;
    bool is = false;

    if (parser && extra) {
        tar_parser_init(parser);
        parser->extra = extra;
        is = tar_parse(parser, &data, &len, &content, &n) == TAR_MEMBER;
    }
    mem_free(parser);
    mem_free(extra);
    return is;
}

static int unpack(struct adding *adding, struct layer_stream *stream, const uint8_t *data, size_t len,
                  struct brig_err *err)
{
    int r = copy_make_directories(adding->copy, adding->copy->dest.path, err);

    if (r == 0 && adding->copy->dest.kind == VIEW_DIR) {
        const char *path = adding->copy->dest.path;
        adding->inside.root =
            openat(adding->copy->view.root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (adding->inside.root < 0)
            return err_host(err, "%s", path);
    }
    for (int more = 1; r == 0 && more > 0;) {
        r = feed(adding, data, len, err);
        if (r == 0 && (more = stream_next(stream, &data, &len, err)) < 0)
            r = more;
    }
    if (r == 0 && (r = tar_parse_end(&adding->parser)) < 0)
        r = r == -ENODATA ? 0 : layer_fail_tar(err, &adding->parser, r, adding->used);
    base_close_fd(&adding->inside.root);
    return r;
}

int copy_archive(struct copy *copy, const struct blob_node *node, bool *ret_is, struct brig_err *err)
{
    struct layer_options options = *copy->options;
    struct layer_stream *stream = NULL;
    struct adding *adding = NULL;
    struct brig_err why = {0};
    const uint8_t *data = NULL;
    size_t len = 0;
    int r = 0;

    options.offset = node->content;
    options.size = node->size;
    *ret_is = node->size > 0 && stream_open(&options, &stream, &why) == 0 &&
              stream_next(stream, &data, &len, &why) > 0 && has_member(data, len);
    if (*ret_is) {
        adding = mem_zalloc(sizeof(*adding));
        if (adding) {
            adding->copy = copy;
            adding->inside.root = -1;
            tar_parser_init(&adding->parser);
            adding->parser.extra = &adding->extra;
        }
        r = adding ? unpack(adding, stream, data, len, err) : err_nomem(err);
    }
    stream_close(stream);
    mem_free(adding);
    return r;
}
