/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_copy.c: COPY of a Dockerfile, ADD and WORKDIR: what is chosen of an archive becomes a layer, at its place in
 * the image. Nothing is changed: the merged view of the layers below is only looked at.
 *
 * Theory of operation. Names mean what they mean to BuildKit. A source is a path of the archive, or a pattern of paths;
 * links on its way and at its end are followed inside the archive, links below it are copied as links. A source that is
 * a directory stands for what is in it. DEST is followed inside the image to its end; what lies below DEST is not
 * followed any more: a link there is replaced by a file and is in the way of a directory. So every path of the layer is
 * one without links, and no name of the archive or the image leads anywhere else.
 *
 * The paths that the layer has by now are kept as hashes (layer_own.c): with the view they say what a later source
 * meets. A directory that is only on the way to something is written when something in it is.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/dockerfile/dockerignore.h"
#include "layer/layer_copy_priv.h"

/* ---- what is there ------------------------------------------------------------------------------------------ */

int copy_mark(struct copy *copy, const char *path, bool is_dir, struct brig_err *err)
{
    char slash[TAR_NAME_MAX + 2];
    int len = str_format(slash, sizeof(slash), "%s/", path);

    if (len < 0 || own_add(&copy->own, path, strlen(path)) < 0 ||
        (is_dir && own_add(&copy->own, slash, (size_t)len) < 0))
        return err_nomem(err);
    return 0;
}

/* What a path of the image is, with what the layer has by now. */
static int look(struct copy *copy, const char *path, enum view_kind *ret, struct brig_err *err)
{
    char slash[TAR_NAME_MAX + 2];
    int len = str_format(slash, sizeof(slash), "%s/", path);

    if (len < 0)
        return layer_fail(err, path, 0, "a path of more than %u bytes", TAR_NAME_MAX);
    if (own_has(&copy->own, path, strlen(path))) {
        *ret = own_has(&copy->own, slash, (size_t)len) ? VIEW_DIR : VIEW_OTHER;
        return 0;
    }
    if (copy->options->over && str_starts(path, copy->dest.path) && path[copy->dest.len] == '/') {
        *ret = VIEW_MISSING; /* it is hidden */
        return 0;
    }
    return view_look(copy->view.root, path, ret, err);
}

int copy_check_name(const char *path, struct brig_err *err)
{
    for (const char *part = path; part;) {
        if (str_starts(part, ".wh."))
            return layer_fail(err, path, 0, "layers use names with .wh. for what was removed");
        part = strchr(part, '/');
        if (part)
            part++;
    }
    return 0;
}

bool copy_ignores(const struct copy *copy, uint32_t node, bool whole)
{
    char path[TAR_NAME_MAX + 1];

    if (!copy->ignore || blob_path(copy->blob, node, path) <= 0)
        return false;
    return whole ? dockerignore_prunes(copy->ignore, path) : dockerignore_matches(copy->ignore, path);
}

/* Writes the directories of a path that are missing. */
int copy_make_directories(struct copy *copy, const char *path, struct brig_err *err)
{
    struct tar_member member = {
        .kind = TAR_DIR, .mode = 0755, .uid = copy->uid, .gid = copy->gid, .mtime = copy->mtime};
    char part[TAR_NAME_MAX + 1];
    enum view_kind kind;
    int r = copy_check_name(path, err);

    for (size_t len = 0; r == 0 && path[len];) {
        len += strcspn(path + len, "/");
        memcpy(part, path, len);
        part[len] = '\0';
        if ((r = look(copy, part, &kind, err)) < 0)
            break;
        if (kind == VIEW_MISSING) {
            member.name = part;
            member.name_len = len;
            if ((r = copy_mark(copy, part, true, err)) == 0)
                r = out_head(&copy->out, &member, NULL, err);
        } else if (kind != VIEW_DIR) {
            return layer_fail(err, part, 0, "it is no directory");
        }
        len += path[len] == '/';
    }
    return r;
}

/* ---- members ------------------------------------------------------------------------------------------------- */

static int set_owner(const struct copy *copy, const struct blob_node *node, struct tar_member *member,
                     struct brig_err *err)
{
    bool kept = copy->options->keep_owner && !copy->has_owner;

    member->uid = kept ? node->uid : copy->uid;
    member->gid = kept ? node->gid : copy->gid;
    if (member->uid > LAYER_ID_MAX || member->gid > LAYER_ID_MAX)
        return layer_fail(err, member->name, 0, "owner %llu:%llu: ids are at most %u", (unsigned long long)member->uid,
                          (unsigned long long)member->gid, LAYER_ID_MAX);
    return 0;
}

/* A file that this source has brought under another name already: then the layer has a hard link. */
static int set_first(struct copy *copy, uint32_t index, uint32_t number, struct tar_member *member,
                     struct brig_err *err)
{
    if (copy->first[index] == number) {
        member->kind = TAR_HARDLINK;
        member->link = copy->paths.data + copy->first_path[index];
        member->link_len = strlen(member->link);
        member->size = 0;
        return 0;
    }
    copy->first[index] = number;
    copy->first_path[index] = (uint32_t)copy->paths.len;
    return buf_append(&copy->paths, member->name, member->name_len + 1) < 0 ? err_nomem(err) : 0;
}

static int put_content(struct copy *copy, const struct blob_node *node, const struct tar_member *member,
                       struct brig_err *err)
{
    uint64_t stored = member->size;
    int r;

    if (member->sparse) {
        stored = 0;
        for (uint32_t i = 0; i < copy->blob->extra.n_pieces; i++)
            stored += copy->blob->extra.pieces[i].size;
    }
    r = out_range(&copy->out, copy->blob->fd, node->content, stored, member->name, err);
    return r < 0 ? r : out_put(&copy->out, NULL, tar_padding(stored), err);
}

/* Writes one node at a path. The directories above it are there. */
static int put_node(struct copy *copy, uint32_t index, const char *path, size_t len, uint32_t number,
                    struct brig_err *err)
{
    const struct layer_options *options = copy->options;
    uint32_t file = copy->blob->nodes[index].target;
    const struct blob_node *node = &copy->blob->nodes[file];
    struct tar_member member = {.kind = node->kind,
                                .mode = node->mode,
                                .size = node->size,
                                .name = path,
                                .name_len = len,
                                .mtime = node->mtime,
                                .mtime_ns = node->mtime_ns};
    int r = copy_mark(copy, path, node->kind == TAR_DIR, err);

    if (r == 0)
        r = set_owner(copy, node, &member, err);
    if (r == 0 && node->kind != TAR_DIR && node->kind != TAR_SYMLINK)
        r = set_first(copy, file, number, &member, err);
    if (r == 0)
        r = blob_extra(copy->blob, file, err);
    if (r < 0)
        return r;
    if (options->chmod >= 0 && node->kind != TAR_SYMLINK)
        member.mode = (uint32_t)options->chmod;
    if (node->kind == TAR_SYMLINK) {
        member.link = copy->blob->text.data + node->link;
        member.link_len = strlen(member.link);
    }
    if (member.kind == TAR_HARDLINK)
        copy->blob->extra.n_pieces = copy->blob->extra.xattrs_len = 0;
    else
        member.sparse = copy->blob->parser.member.sparse && node->kind == TAR_FILE;
    r = out_head(&copy->out, &member, &copy->blob->extra, err);
    return r < 0 || member.kind != TAR_FILE ? r : put_content(copy, node, &member, err);
}

/* Writes the directories on the way that are not there yet. */
static int put_way(struct copy *copy, uint32_t number, struct brig_err *err)
{
    size_t len = copy->rel;
    int r = 0;

    for (unsigned i = 1; i <= copy->depth && r == 0; i++) {
        char part[TAR_NAME_MAX + 1];

        len += len > 0 && copy->path[len] == '/';
        len += strcspn(copy->path + len, "/");
        if (i <= copy->written)
            continue;
        memcpy(part, copy->path, len);
        part[len] = '\0';
        r = put_node(copy, copy->way[i], part, len, number, err);
        copy->written = i;
    }
    return r;
}

static int meets(struct copy *copy, bool is_dir, struct brig_err *err)
{
    enum view_kind kind;
    int r = look(copy, copy->path, &kind, err);

    if (r < 0)
        return r;
    if (is_dir && kind != VIEW_MISSING && kind != VIEW_DIR)
        return layer_fail(err, copy->path, 0, "a directory cannot replace what is no directory");
    if (!is_dir && kind == VIEW_DIR)
        return layer_fail(err, copy->path, 0, "a file cannot replace a directory");
    return 0;
}

/* ---- the walk ------------------------------------------------------------------------------------------------ */

struct selection {
    const struct dockerignore *exclude; /* or NULL */
    uint32_t number;                    /* of the chosen thing, from 1 */
};

static int walk(struct copy *copy, uint32_t index, struct selection *select, struct brig_err *err);

/* A child of the directory that copy->path is. */
static int walk_child(struct copy *copy, uint32_t index, struct selection *select, struct brig_err *err)
{
    const struct blob_node *node = &copy->blob->nodes[index];
    size_t len = copy->path_len, start = len + (len > 0);
    int r;

    if (start + node->name_len > TAR_NAME_MAX)
        return layer_fail(err, blob_name(copy->blob, node), 0, "with DEST its path has more than %u bytes",
                          TAR_NAME_MAX);
    if (len > 0)
        copy->path[len] = '/';
    memcpy(copy->path + start, blob_name(copy->blob, node), node->name_len + 1u);
    copy->path_len = start + node->name_len;
    r = walk(copy, index, select, err);
    copy->path[len] = '\0';
    copy->path_len = len;
    return r;
}

static int walk_children(struct copy *copy, uint32_t index, struct selection *select, struct brig_err *err)
{
    const struct blob_node *node = &copy->blob->nodes[index];
    int r = 0;

    for (uint32_t i = 0; i < node->count && r == 0; i++)
        r = walk_child(copy, copy->blob->order[node->first + i], select, err);
    return r;
}

static int walk_directory(struct copy *copy, uint32_t index, bool taken, struct selection *select, struct brig_err *err)
{
    int r = meets(copy, true, err);

    if (r < 0)
        return r;
    if (copy->depth == LAYER_DEPTH_MAX)
        return layer_fail(err, copy->path, 0, "it is more than %u directories deep", LAYER_DEPTH_MAX);
    copy->way[++copy->depth] = index;
    if (taken)
        r = put_way(copy, select->number, err);
    if (r == 0)
        r = walk_children(copy, index, select, err);
    copy->depth--;
    copy->written = copy->written < copy->depth ? copy->written : copy->depth;
    return r;
}

static int walk(struct copy *copy, uint32_t index, struct selection *select, struct brig_err *err)
{
    enum tar_kind kind = copy->blob->nodes[copy->blob->nodes[index].target].kind;
    const char *rel = copy->path + copy->rel + (copy->rel > 0);
    bool taken = !dockerignore_matches(select->exclude, rel) && !copy_ignores(copy, index, false);
    int r;

    if (!taken && (kind != TAR_DIR || dockerignore_prunes(select->exclude, rel)))
        return 0;
    if ((r = copy_check_name(rel, err)) < 0)
        return r;
    if (kind == TAR_DIR)
        return walk_directory(copy, index, taken, select, err);
    if (kind == TAR_DEVICE)
        return layer_fail(err, rel, 0, "a device cannot be copied");
    if ((r = meets(copy, false, err)) < 0)
        return r;
    r = put_way(copy, select->number, err);
    return r < 0 ? r : put_node(copy, index, copy->path, copy->path_len, select->number, err);
}

/* ---- COPY ---------------------------------------------------------------------------------------------------- */

static void set_path(struct copy *copy, const char *path, size_t len)
{
    memcpy(copy->path, path, len);
    copy->path[len] = '\0';
    copy->path_len = copy->rel = len;
    copy->depth = copy->written = 0;
}

/* A file into a directory. It gets the name of the link that led to it, if one did. */
static int copy_into(struct copy *copy, const struct chosen *chosen, struct selection *select, struct brig_err *err)
{
    const struct blob_node *named = &copy->blob->nodes[chosen->name];
    size_t start = copy->path_len + (copy->path_len > 0);

    if (start + named->name_len > TAR_NAME_MAX)
        return layer_fail(err, blob_name(copy->blob, named), 0, "with DEST its path has more than %u bytes",
                          TAR_NAME_MAX);
    if (copy->path_len > 0)
        copy->path[copy->path_len] = '/';
    memcpy(copy->path + start, blob_name(copy->blob, named), named->name_len + 1u);
    copy->path_len = start + named->name_len;
    return walk(copy, chosen->node, select, err);
}

/* A file whose path is DEST. A pattern of --exclude is compared with the name of the source. */
static int copy_as(struct copy *copy, const struct chosen *chosen, struct selection *select, struct brig_err *err)
{
    const char *slash = strrchr(copy->dest.path, '/');
    size_t len = slash ? (size_t)(slash - copy->dest.path) : 0;
    char above[TAR_NAME_MAX + 1];
    int r;

    if (dockerignore_matches(select->exclude, blob_name(copy->blob, &copy->blob->nodes[chosen->name])))
        return 0;
    select->exclude = NULL;
    memcpy(above, copy->dest.path, len);
    above[len] = '\0';
    copy->rel = len;
    r = copy_make_directories(copy, above, err);
    return r < 0 ? r : walk(copy, chosen->node, select, err);
}

static int put_opaque(struct copy *copy, struct brig_err *err)
{
    struct tar_member member = {.kind = TAR_FILE};
    char path[TAR_NAME_MAX + 1];
    int len = str_format(path, sizeof(path), "%s/.wh..wh..opq", copy->dest.path);

    if (len < 0)
        return layer_fail(err, copy->dest.path, -len, "its whiteout");
    member.name = path;
    member.name_len = (size_t)len;
    return out_head(&copy->out, &member, NULL, err);
}

/* DEST is the source itself. What the image has there is hidden, so it matters only whether both are directories. */
static int copy_over(struct copy *copy, const struct chosen *chosen, struct selection *select, struct brig_err *err)
{
    const struct blob_node *node = &copy->blob->nodes[copy->blob->nodes[chosen->node].target];
    int r;

    if (copy->dest.len == 0)
        return layer_fail(err, copy->options->dest, 0, "nothing can be bound over the root");
    if (copy->dest.kind != VIEW_MISSING && (copy->dest.kind == VIEW_DIR) != (node->kind == TAR_DIR))
        return layer_fail(err, copy->options->dest, 0, "a directory is bound over a directory, a file over a file");
    if (node->kind != TAR_DIR)
        return copy_as(copy, chosen, select, err);
    r = copy_make_directories(copy, copy->dest.path, err);
    if (r == 0 && chosen->node > 0) /* the root of an archive says nothing of itself */
        r = put_node(copy, chosen->node, copy->dest.path, copy->dest.len, select->number, err);
    if (r == 0)
        r = put_opaque(copy, err);
    return r < 0 ? r : walk_children(copy, chosen->node, select, err);
}

/* One thing into DEST. */
static int copy_chosen(struct copy *copy, uint32_t number, struct brig_err *err)
{
    const struct chosen *chosen = &copy->list[number];
    const struct blob_node *nodes = copy->blob->nodes, *node = &nodes[nodes[chosen->node].target];
    struct selection select = {.exclude = copy->exclude, .number = number + 1};
    enum view_kind kind;
    int r = 0;

    copy->mtime = node->mtime;
    set_path(copy, copy->dest.path, copy->dest.len);
    if (copy->options->over)
        return copy_over(copy, chosen, &select, err);
    if (copy->options->archives && node->kind == TAR_FILE) {
        bool is_archive = false;
        r = copy_archive(copy, node, &is_archive, err);
        if (r < 0 || is_archive)
            return r;
    }
    if (node->kind == TAR_DIR || copy->to_directory)
        r = copy_make_directories(copy, copy->dest.path, err);
    if (r < 0 || node->kind == TAR_DIR)
        return r < 0 ? r : walk_children(copy, chosen->node, &select, err);
    if ((r = look(copy, copy->dest.path, &kind, err)) < 0)
        return r;
    return kind == VIEW_DIR ? copy_into(copy, chosen, &select, err) : copy_as(copy, chosen, &select, err);
}

/* Several files need a directory. */
static int check_dest(struct copy *copy, struct brig_err *err)
{
    const struct layer_options *options = copy->options;
    bool files = false;

    for (size_t i = 0; i < copy->n; i++)
        files = files || copy->blob->nodes[copy->list[i].node].kind != TAR_DIR;
    if (copy->to_directory)
        return 0;
    if (options->n_sources > 1)
        return layer_fail(err, options->dest, 0, "with several sources it must end with /");
    if (copy->n > 1 && files && copy->dest.kind != VIEW_DIR)
        return layer_fail(err, options->dest, 0, "with a pattern of several files it must end with /");
    return 0;
}

static int copy_all(struct copy *copy, struct brig_err *err)
{
    const struct layer_options *options = copy->options;
    int r = 0;

    for (uint32_t i = 0; i < options->n_sources && r == 0; i++)
        r = copy_choose(copy, i, err);
    if (r == 0 && copy->n == 0)
        return layer_fail(err, options->sources[0], 0, "no file matches it");
    if (r == 0)
        r = check_dest(copy, err);
    for (uint32_t i = 0; i < copy->n && r == 0; i++)
        r = copy_chosen(copy, i, err);
    return r;
}

static int read_exclude(struct copy *copy, struct brig_err *err)
{
    int r = copy->options->n_list > 0 ? dockerignore_create(&copy->exclude, err) : 0;

    for (size_t i = 0; i < copy->options->n_list && r == 0; i++)
        r = dockerignore_add(copy->exclude, copy->options->list[i], err);
    return r;
}

/* ---- both ---------------------------------------------------------------------------------------------------- */

static bool ends_with_slash(const char *path)
{
    size_t len = strlen(path);

    return len > 0 && (path[len - 1] == '/' || (len > 1 && path[len - 1] == '.' && path[len - 2] == '/'));
}

static int open_view(struct copy *copy, struct brig_err *err)
{
    const struct layer_options *options = copy->options;
    int r;

    if (*options->dest != '/')
        return err_set(err, BRIG_E_USAGE, 0, "%.150s: the path in the image must begin with /", options->dest);
    copy->view.root = open(options->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy->view.root < 0)
        return err_host(err, "%s", options->directory);
    if (options->chown && (r = view_owner(copy->view.root, options->chown, &copy->uid, &copy->gid, err)) < 0)
        return r;
    copy->has_owner = options->chown != NULL;
    copy->to_directory = ends_with_slash(options->dest);
    return view_resolve(&copy->view, options->dest, &copy->dest, err);
}

static int open_copy(const struct layer_options *options, struct copy **ret, struct brig_err *err)
{
    struct copy *copy = mem_zalloc(sizeof(*copy));
    int r;

    if (!copy)
        return err_nomem(err);
    copy->options = copy->out.dates = options;
    copy->view.root = -1;
    copy->paths = BUF_INIT((size_t)1 << 31);
    *ret = copy;
    r = own_init(&copy->own, err);
    return r < 0 ? r : open_view(copy, err);
}

static void close_copy(struct copy *copy)
{
    if (!copy)
        return;
    blob_close(copy->blob);
    dockerignore_free(copy->exclude);
    dockerignore_free(copy->ignore);
    own_done(&copy->own);
    buf_done(&copy->paths);
    base_close_fd(&copy->view.root);
    mem_free(copy->list);
    mem_free(copy->first);
    mem_free(copy->first_path);
    mem_free(copy);
}

int layer_copy(const struct layer_options *options, struct brig_err *err)
{
    struct copy *copy = NULL;
    int r = open_copy(options, &copy, err);

    if (r == 0)
        r = read_exclude(copy, err);
    if (r == 0)
        r = blob_open(options, &copy->blob, err);
    if (r == 0)
        r = ignore_read(copy->blob, &copy->ignore, err);
    if (r == 0) {
        copy->first = mem_zalloc(copy->blob->n * sizeof(*copy->first));
        copy->first_path = mem_zalloc(copy->blob->n * sizeof(*copy->first_path));
        r = copy->first && copy->first_path ? copy_all(copy, err) : err_nomem(err);
    }
    if (r == 0)
        r = out_end(&copy->out, err);
    close_copy(copy);
    return r;
}

int layer_mkdir(const struct layer_options *options, struct brig_err *err)
{
    struct copy *copy = NULL;
    int r = open_copy(options, &copy, err);

    if (r == 0) {
        copy->mtime = options->mtime >= 0 ? options->mtime : (int64_t)time(NULL);
        r = copy_make_directories(copy, copy->dest.path, err);
    }
    if (r == 0)
        r = out_end(&copy->out, err);
    close_copy(copy);
    return r;
}
