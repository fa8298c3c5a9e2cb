/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_index.c: lists the members of an image's archive (a `docker save`, or an OCI layout in a tar) without unpacking
 * it: brigd then reads the small documents in it and hands the layers to unpack, each by its place. Contents are
 * skipped unless their hashes are wanted, so the size of the archive does not matter. A compressed archive has no
 * places in it, so layer_plain() makes it plain first.
 */
/* SHA256_Update() is all that is wanted here: EVP would bring 5 MiB into the program. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/str.h"
#include "codec/dockerfile/dockerignore.h"
#include "codec/json/json.h"
#include "layer/layer.h"

#define READ_SIZE (64u << 10)
#define OUT_SIZE (64u << 10)

struct index {
    const struct layer_options *options;
    int fd;
    uint64_t at, end; /* what was read up to, and where to stop */
    uint64_t members;
    uint64_t content; /* where the content of the member begins that is hashed */
    SHA256_CTX hash;
    struct dockerignore *ignore; /* or NULL */
    struct buf out;
    struct tar_parser parser;
    struct tar_extra extra;
    uint8_t data[READ_SIZE];
};

static int flush(struct index *index, struct brig_err *err)
{
    int r = index->out.len > 0 ? fd_write_all(STDOUT_FILENO, index->out.data, index->out.len) : 0;

    index->out.len = 0;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the standard output") : 0;
}

static void put_hash(struct json *json, const char *key, SHA256_CTX *hash)
{
    char hex[LAYER_HEX];

    layer_hex(hash, hex);
    json_key_string(json, key, hex);
}

static void put_meta(struct index *index, struct json *json)
{
    const struct tar_member *member = &index->parser.member;
    SHA256_CTX hash;

    json_key_u64(json, "mode", member->mode);
    json_key_u64(json, "uid", member->uid);
    json_key_u64(json, "gid", member->gid);
    json_key(json, "mtime"), json_i64(json, member->mtime);
    if (member->kind == TAR_FILE)
        put_hash(json, "sha256", &index->hash);
    if (index->extra.xattrs_len == 0)
        return;
    SHA256_Init(&hash);
    SHA256_Update(&hash, index->extra.xattrs, index->extra.xattrs_len);
    put_hash(json, "xattrs", &hash);
}

static bool is_ignored(const struct index *index, const char *name)
{
    char path[TAR_NAME_MAX + 1];

    return path_clean(name, path, sizeof(path)) > 0 && dockerignore_matches(index->ignore, path);
}

static int list_member(struct index *index, uint64_t content, struct brig_err *err)
{
    static const char *const kinds[TAR_KIND_MAX] = {"file", "dir", "symlink", "hardlink", "fifo", "device"};
    const struct tar_member *member = &index->parser.member;
    struct json json = JSON_INIT(&index->out);

    if (++index->members > index->options->max_files)
        return layer_fail(err, member->name, 0, "with it the archive has more than %llu members",
                          (unsigned long long)index->options->max_files);
    json_object(&json);
    json_key_string(&json, "name", member->name);
    json_key_string(&json, "type", member->sparse ? "sparse" : kinds[member->kind]);
    json_key_u64(&json, "offset", content);
    json_key_u64(&json, "size", member->size);
    if (member->kind == TAR_SYMLINK || member->kind == TAR_HARDLINK)
        json_key_string(&json, "link", member->link);
    if (index->options->hash)
        put_meta(index, &json);
    if (index->ignore && is_ignored(index, member->name))
        json_key_bool(&json, "ignored", true);
    json_end(&json);
    if (json_finish(&json) < 0 || buf_append_str(&index->out, "\n") < 0)
        return err_nomem(err);
    return index->out.len >= OUT_SIZE ? flush(index, err) : 0;
}

/* A file whose content is hashed is listed at its end. The map of its holes is a part of it. */
static void begin_hash(struct index *index, uint64_t content)
{
    const struct tar_extra *extra = &index->extra;

    index->content = content;
    SHA256_Init(&index->hash);
    if (index->parser.member.sparse)
        SHA256_Update(&index->hash, extra->pieces, extra->n_pieces * sizeof(*extra->pieces));
}

/* Takes what was read. A content that goes on behind it is passed over. */
static int take(struct index *index, size_t len, struct brig_err *err)
{
    const uint8_t *in = index->data, *data;
    size_t n;

    for (;;) {
        int event = tar_parse(&index->parser, &in, &len, &data, &n), r;
        uint64_t here = index->at - len, skip;

        if (event == TAR_NEED)
            return 0;
        if (event < 0)
            return layer_fail_tar(err, &index->parser, event, here - index->options->offset);
        if (event == TAR_CONTENT)
            SHA256_Update(&index->hash, data, n);
        if (event == TAR_MEMBER_END && index->parser.member.kind == TAR_FILE && index->options->hash &&
            (r = list_member(index, index->content, err)) < 0)
            return r;
        if (event != TAR_MEMBER)
            continue;
        if (index->options->hash && index->parser.member.kind == TAR_FILE) {
            begin_hash(index, here);
            continue;
        }
        if ((r = list_member(index, here, err)) < 0)
            return r;
        skip = tar_skip(&index->parser);
        if (skip > index->end - here)
            return layer_fail(err, index->parser.member.name, 0, "it is longer than what is left of the archive");
        if (skip <= len) {
            in += skip;
            len -= (size_t)skip;
        } else {
            index->at = here + skip;
            return 0;
        }
    }
}

static int read_all(struct index *index, struct brig_err *err)
{
    int r = 0;

    while (r == 0 && index->at < index->end) {
        uint64_t left = index->end - index->at;
        ssize_t n = pread(index->fd, index->data, left < READ_SIZE ? (size_t)left : READ_SIZE, (off_t)index->at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, BRIG_E_HOST, n < 0 ? errno : EIO, "%s", index->options->blob);
        index->at += (uint64_t)n;
        r = take(index, (size_t)n, err);
    }
    if (r < 0)
        return r;
    if ((r = tar_parse_end(&index->parser)) < 0 && r != -ENODATA)
        return layer_fail_tar(err, &index->parser, r, index->at - index->options->offset);
    if (index->members == 0 && !index->options->hash)
        return err_set(err, BRIG_E_INVALID, 0, "%s: an archive without members", index->options->blob);
    return flush(index, err);
}

static int open_plain(struct index *index, struct brig_err *err)
{
    const struct layer_options *options = index->options;
    struct stat st;
    uint8_t magic[4] = {0};

    index->fd = open(options->blob, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (index->fd < 0 || fstat(index->fd, &st) < 0)
        return err_host(err, "%s", options->blob);
    if (!S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_USAGE, 0, "%s: index needs a regular file", options->blob);
    if (options->offset > (uint64_t)st.st_size ||
        (options->size != UINT64_MAX && options->size > (uint64_t)st.st_size - options->offset))
        return err_set(err, BRIG_E_INVALID, 0, "%s: it ends before --offset and --size say", options->blob);
    index->at = options->offset;
    index->end = options->size == UINT64_MAX ? (uint64_t)st.st_size : options->offset + options->size;
    if (pread(index->fd, magic, sizeof(magic), (off_t)options->offset) < 0)
        return err_host(err, "%s", options->blob);
    if ((magic[0] == 0x1f && magic[1] == 0x8b) || memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0)
        return err_set(err, BRIG_E_INVALID, 0, "%s: it is compressed with %s; `brig-layer plain` unpacks it first",
                       options->blob, magic[0] == 0x1f ? "gzip" : "zstd");
    return 0;
}

int layer_index(const struct layer_options *options, struct brig_err *err)
{
    struct index *index = mem_zalloc(sizeof(*index));
    int r;

    if (!index)
        return err_nomem(err);
    index->options = options;
    index->out = BUF_INIT(OUT_SIZE + 8 * (TAR_NAME_MAX + 1) * 2);
    tar_parser_init(&index->parser);
    index->parser.extra = &index->extra;
    index->fd = -1;
    r = ignore_of(options, &index->ignore, err);
    if (r == 0)
        r = open_plain(index, err);
    if (r == 0)
        r = read_all(index, err);
    dockerignore_free(index->ignore);
    base_close_fd(&index->fd);
    buf_done(&index->out);
    mem_free(index);
    return r;
}

int layer_plain(const struct layer_options *options, struct brig_err *err)
{
    struct layer_stream *stream = NULL;
    const uint8_t *data;
    size_t len;
    int r = stream_open(options, &stream, err);

    if (r < 0)
        return r;
    while ((r = stream_next(stream, &data, &len, err)) > 0)
        if ((r = fd_write_all(STDOUT_FILENO, data, len)) < 0) {
            err_set(err, BRIG_E_HOST, -r, "the standard output");
            break;
        }
    stream_close(stream);
    return r;
}
