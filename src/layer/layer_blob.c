/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_blob.c: the members of a plain tar as a tree, in memory, without their contents: `copy` chooses among them by
 * name and then reads those that it takes, in any order.
 *
 * The nodes are an array; node 0 is the root. A table finds a child by its directory and name; when all members are
 * read, the children of each directory are put side by side in the order of their names. A name that comes twice means
 * what comes last, as when it is unpacked. Directories that no member names have mode 0755 and belong to 0:0.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/mem.h"
#include "layer/layer.h"

#define READ_SIZE (64u << 10)
#define TEXT_MAX ((size_t)1 << 31)
#define HARD_LINKS_MAX 40u

/* ---- nodes ------------------------------------------------------------------------------------------------- */

static uint32_t keep_text(struct layer_blob *blob, const char *text, size_t len)
{
    uint32_t at = (uint32_t)blob->text.len;

    return buf_append(&blob->text, text, len) < 0 || buf_append(&blob->text, "", 1) < 0 ? UINT32_MAX : at;
}

static uint64_t hash_of(const struct layer_blob *blob, uint32_t parent, const char *name, size_t len)
{
    uint64_t hash = blob->seed ^ parent * UINT64_C(0x9e3779b97f4a7c15);

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 29;
}

static uint32_t *slot_of(struct layer_blob *blob, uint32_t parent, const char *name, size_t len)
{
    size_t at = (size_t)hash_of(blob, parent, name, len) & (blob->slots - 1);

    for (; blob->table[at] != 0; at = (at + 1) & (blob->slots - 1)) {
        const struct blob_node *node = &blob->nodes[blob->table[at]];
        if (node->parent == parent && node->name_len == len && memcmp(blob_name(blob, node), name, len) == 0)
            break;
    }
    return &blob->table[at];
}

static int grow_table(struct layer_blob *blob)
{
    size_t slots = blob->slots > 0 ? blob->slots * 2 : 1024;
    uint32_t *table = mem_zalloc(slots * sizeof(*table));

    if (!table)
        return -ENOMEM;
    mem_free(blob->table);
    blob->table = table;
    blob->slots = slots;
    for (uint32_t i = 1; i < blob->n; i++) {
        const struct blob_node *node = &blob->nodes[i];
        *slot_of(blob, node->parent, blob_name(blob, node), node->name_len) = i;
    }
    return 0;
}

/* Returns the index of a new directory, or 0 for want of memory. */
static uint32_t new_node(struct layer_blob *blob, uint32_t parent, const char *name, size_t len)
{
    uint32_t text;

    if (blob->n == blob->cap) {
        size_t cap = blob->cap * 2 + 64;
        struct blob_node *nodes = mem_realloc_array(blob->nodes, cap, sizeof(*nodes));
        if (!nodes)
            return 0;
        blob->nodes = nodes;
        blob->cap = (uint32_t)cap;
    }
    if ((text = keep_text(blob, name, len)) == UINT32_MAX)
        return 0;
    blob->nodes[blob->n] = (struct blob_node){
        .kind = TAR_DIR, .mode = 0755, .parent = parent, .name = text, .name_len = (uint16_t)len, .target = blob->n};
    return blob->n++;
}

uint32_t blob_child(struct layer_blob *blob, uint32_t parent, const char *name, size_t len)
{
    return blob->n > 1 ? *slot_of(blob, parent, name, len) : 0;
}

/* The node of a member's path, with the directories that it is in. */
static int make_path(struct layer_blob *blob, const struct tar_member *member, uint32_t *ret, struct brig_err *err)
{
    uint32_t at = 0;
    unsigned depth = 0;

    for (const char *part = member->name; *part;) {
        size_t len = strcspn(part, "/");
        uint32_t *slot;

        if (blob->nodes[at].kind != TAR_DIR)
            return layer_fail(err, member->name, 0, "it lies below something that is no directory");
        if (len > LAYER_NAME_MAX)
            return layer_fail(err, member->name, 0, "a name of more than %u bytes", LAYER_NAME_MAX);
        if (++depth > LAYER_DEPTH_MAX)
            return layer_fail(err, member->name, 0, "it is more than %u directories deep", LAYER_DEPTH_MAX);
        if (blob->n + 1 > blob->slots / 2 && grow_table(blob) < 0)
            return err_nomem(err);
        slot = slot_of(blob, at, part, len);
        if (*slot == 0) {
            uint32_t node = new_node(blob, at, part, len);
            if (node == 0)
                return err_nomem(err);
            *slot = node;
            blob->nodes[at].has_children = true;
        }
        at = *slot;
        part += len + (part[len] == '/');
    }
    *ret = at;
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

static int take_member(struct layer_blob *blob, uint64_t head, uint64_t content, struct brig_err *err)
{
    const struct tar_member *member = &blob->parser.member;
    struct blob_node *node;
    uint32_t index = 0, link = 0;
    int r;

    if (++blob->members > blob->options->max_files)
        return layer_fail(err, member->name, 0, "with it the archive has more than %llu members",
                          (unsigned long long)blob->options->max_files);
    if ((r = make_path(blob, member, &index, err)) < 0)
        return r;
    if ((member->kind == TAR_SYMLINK || member->kind == TAR_HARDLINK) &&
        (link = keep_text(blob, member->link, member->link_len)) == UINT32_MAX)
        return err_nomem(err);
    node = &blob->nodes[index];
    if (member->kind != TAR_DIR && (node->has_children || index == 0))
        return layer_fail(err, member->name, 0, "it has the name of a directory");
    node->kind = (uint8_t)member->kind;
    node->mode = (uint16_t)member->mode;
    node->uid = member->uid > UINT32_MAX ? UINT32_MAX : (uint32_t)member->uid;
    node->gid = member->gid > UINT32_MAX ? UINT32_MAX : (uint32_t)member->gid;
    node->mtime = member->mtime;
    node->mtime_ns = member->mtime_ns;
    node->size = member->size;
    node->link = link;
    node->head = head;
    node->content = content;
    return 0;
}

/* Takes what was read. A content that goes on behind it is passed over. */
static int take(struct layer_blob *blob, size_t len, struct brig_err *err)
{
    const uint8_t *in = blob->data, *data;
    size_t n;

    for (;;) {
        int event = tar_parse(&blob->parser, &in, &len, &data, &n), r;
        uint64_t here = blob->at - len, skip;

        if (event == TAR_NEED)
            return 0;
        if (event < 0)
            return layer_fail_tar(err, &blob->parser, event, here);
        if (event != TAR_MEMBER)
            continue;
        if ((r = take_member(blob, blob->head, here, err)) < 0)
            return r;
        skip = tar_skip(&blob->parser);
        if (skip > blob->end - here)
            return layer_fail(err, blob->parser.member.name, 0, "it is longer than what is left of the archive");
        blob->head = here + skip;
        if (skip > len) {
            blob->at = here + skip;
            return 0;
        }
        in += skip;
        len -= (size_t)skip;
    }
}

static int read_all(struct layer_blob *blob, struct brig_err *err)
{
    int r = 0;

    while (r == 0 && blob->at < blob->end) {
        uint64_t left = blob->end - blob->at;
        ssize_t n = pread(blob->fd, blob->data, left < READ_SIZE ? (size_t)left : READ_SIZE, (off_t)blob->at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, BRIG_E_HOST, n < 0 ? errno : EIO, "%s", blob->options->blob);
        blob->at += (uint64_t)n;
        r = take(blob, (size_t)n, err);
    }
    if (r == 0 && (r = tar_parse_end(&blob->parser)) < 0 && r != -ENODATA)
        return layer_fail_tar(err, &blob->parser, r, blob->at);
    return r == -ENODATA ? 0 : r;
}

static int open_blob(struct layer_blob *blob, struct brig_err *err)
{
    const char *path = blob->options->blob;
    uint8_t magic[4] = {0};
    struct stat st;

    blob->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (blob->fd < 0 || fstat(blob->fd, &st) < 0)
        return err_host(err, "%s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_USAGE, 0, "%s: copy needs a regular file", path);
    if (pread(blob->fd, magic, sizeof(magic), 0) < 0)
        return err_host(err, "%s", path);
    if ((magic[0] == 0x1f && magic[1] == 0x8b) || memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0)
        return err_set(err, BRIG_E_INVALID, 0, "%s: it is compressed with %s; `brig-layer plain` unpacks it first",
                       path, magic[0] == 0x1f ? "gzip" : "zstd");
    blob->end = (uint64_t)st.st_size;
    return 0;
}

/* ---- links and order --------------------------------------------------------------------------------------- */

/* Where a path leads; symbolic links are followed inside the archive. 0 and *ret_found false: nowhere. */
static int find(struct layer_blob *blob, const char *path, bool follow_last, uint32_t *ret, bool *ret_found)
{
    struct layer_todo todo;
    const char *name;
    uint32_t at = 0;
    int r = todo_init(&todo, path, strlen(path));

    *ret_found = false;
    for (size_t len; r >= 0 && (len = todo_next(&todo, &name)) > 0;) {
        uint32_t next;

        if (len == 2 && memcmp(name, "..", 2) == 0) {
            at = blob->nodes[at].parent;
            continue;
        }
        if ((next = blob_child(blob, at, name, len)) == 0)
            return 0;
        if (blob->nodes[next].kind != TAR_SYMLINK || (todo_is_empty(&todo) && !follow_last)) {
            at = next;
            continue;
        }
        const char *link = blob->text.data + blob->nodes[next].link;
        if (*link == '/')
            at = 0;
        r = todo_link(&todo, link, strlen(link));
    }
    *ret = at;
    *ret_found = r >= 0;
    return r < 0 ? r : 0;
}

int blob_find(struct layer_blob *blob, const char *path, uint32_t *ret, bool *ret_found, struct brig_err *err)
{
    int r = find(blob, path, true, ret, ret_found);

    if (r == -ELOOP)
        return layer_fail(err, path, 0, "a loop of symbolic links is on its way");
    return r < 0 ? layer_fail(err, path, 0, "a path of more than %u bytes", TAR_NAME_MAX) : 0;
}

int blob_path(const struct layer_blob *blob, uint32_t node, char out[TAR_NAME_MAX + 1])
{
    size_t at = TAR_NAME_MAX;

    out[at] = '\0';
    for (; node != 0; node = blob->nodes[node].parent) {
        const struct blob_node *this = &blob->nodes[node];
        if (at < this->name_len + 1u)
            return -ENAMETOOLONG;
        at -= this->name_len;
        memcpy(out + at, blob_name(blob, this), this->name_len);
        if (this->parent != 0)
            out[--at] = '/';
    }
    memmove(out, out + at, TAR_NAME_MAX + 1 - at);
    return (int)(TAR_NAME_MAX - at);
}

/* A hard link stands for the file that it names, however many links are between. */
static int join_links(struct layer_blob *blob, struct brig_err *err)
{
    for (uint32_t i = 1; i < blob->n; i++) {
        char path[TAR_NAME_MAX + 1];
        uint32_t at = i;
        bool found = true;
        unsigned hops = 0;

        if (blob->nodes[i].kind != TAR_HARDLINK)
            continue;
        while (found && blob->nodes[at].kind == TAR_HARDLINK && hops++ < HARD_LINKS_MAX)
            if (find(blob, blob->text.data + blob->nodes[at].link, false, &at, &found) < 0)
                found = false;
        if (blob_path(blob, i, path) < 0)
            return layer_fail(err, "the archive", 0, "a path of more than %u bytes", TAR_NAME_MAX);
        if (!found || blob->nodes[at].kind == TAR_HARDLINK)
            return layer_fail(err, path, 0, "a hard link to something that is not there");
        if (blob->nodes[at].kind == TAR_DIR)
            return layer_fail(err, path, 0, "a hard link to a directory");
        blob->nodes[i].target = at;
    }
    return 0;
}

static int name_order(const void *one, const void *other, void *ctx)
{
    const struct layer_blob *blob = ctx;
    const struct blob_node *a = &blob->nodes[*(const uint32_t *)one], *b = &blob->nodes[*(const uint32_t *)other];

    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    return strcmp(blob_name(blob, a), blob_name(blob, b));
}

static int sort(struct layer_blob *blob, struct brig_err *err)
{
    blob->order = mem_realloc_array(NULL, blob->n, sizeof(*blob->order));
    if (!blob->order)
        return err_nomem(err);
    for (uint32_t i = 1; i < blob->n; i++)
        blob->order[i - 1] = i;
    if (blob->n > 2)
        qsort_r(blob->order, blob->n - 1, sizeof(*blob->order), name_order, blob);
    for (uint32_t i = blob->n - 1; i-- > 0;) {
        struct blob_node *parent = &blob->nodes[blob->nodes[blob->order[i]].parent];
        parent->first = i;
        parent->count++;
    }
    return 0;
}

int blob_open(const struct layer_options *options, struct layer_blob **ret, struct brig_err *err)
{
    struct layer_blob *blob = mem_zalloc(sizeof(*blob));
    int r;

    if (!blob)
        return err_nomem(err);
    blob->options = options;
    blob->fd = -1;
    blob->text = BUF_INIT(TEXT_MAX);
    tar_parser_init(&blob->parser);
    blob->parser.extra = &blob->extra;
    r = open_blob(blob, err);
    if (r == 0 && getrandom(&blob->seed, sizeof(blob->seed), 0) != (ssize_t)sizeof(blob->seed))
        r = err_host(err, "getrandom");
    if (r == 0 && (grow_table(blob) < 0 || (new_node(blob, 0, "", 0), blob->n == 0)))
        r = err_nomem(err);
    if (r == 0)
        r = read_all(blob, err);
    if (r == 0)
        r = join_links(blob, err);
    if (r == 0)
        r = sort(blob, err);
    if (r < 0) {
        blob_close(blob);
        return r;
    }
    *ret = blob;
    return 0;
}

void blob_close(struct layer_blob *blob)
{
    if (!blob)
        return;
    base_close_fd(&blob->fd);
    buf_done(&blob->text);
    mem_free(blob->nodes);
    mem_free(blob->table);
    mem_free(blob->order);
    mem_free(blob);
}

/* ---- a member again ---------------------------------------------------------------------------------------- */

/* Only a member with more than one block before its content can have attributes or holes. */
int blob_extra(struct layer_blob *blob, uint32_t index, struct brig_err *err)
{
    const struct blob_node *node = &blob->nodes[index];
    uint64_t at = node->head;
    int event = TAR_NEED;

    blob->extra.n_pieces = blob->extra.xattrs_len = 0;
    blob->parser.member.sparse = false;
    if (node->content - node->head <= TAR_BLOCK)
        return 0;
    tar_parser_init(&blob->parser);
    blob->parser.extra = &blob->extra;
    while (event == TAR_NEED && at < node->content) {
        uint64_t left = node->content - at;
        ssize_t n = pread(blob->fd, blob->data, left < READ_SIZE ? (size_t)left : READ_SIZE, (off_t)at);
        const uint8_t *in = blob->data, *data;
        size_t len = n > 0 ? (size_t)n : 0, content;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, BRIG_E_HOST, n < 0 ? errno : EIO, "%s", blob->options->blob);
        at += (uint64_t)n;
        event = tar_parse(&blob->parser, &in, &len, &data, &content);
    }
    return event == TAR_MEMBER ? 0 : layer_fail(err, blob_name(blob, node), 0, "it changed while it was read");
}
