/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layer_packages.c: what a lock says of an image: the packages that its dpkg has installed, each with a hash of what
 * dpkg says of its files; then every path of the tree with a hash of what is there, in the order in which a walk finds
 * them. The image wrote all of that, so every value is checked before it is repeated.
 */
/* SHA256_Update() is all that is wanted here: EVP would bring 5 MiB into the program. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "codec/lock/dpkg_status.h"
#include "codec/lock/template_lock.h"
#include "layer/layer.h"

#define DPKG "/var/lib/dpkg"
#define STATUS DPKG "/status"
#define STATUS_MAX (32u << 20)
#define SUMS_MAX (16u << 20)
#define OUT_SIZE (64u << 10)
#define READ_SIZE (64u << 10)

struct listing {
    int root;
    unsigned packages, paths, depth;
    char path[TAR_NAME_MAX + 2]; /* of the tree, with a slash in front; the root is "" */
    size_t path_len;
    struct buf out;
    uint8_t data[READ_SIZE];
};

static int flush(struct listing *listing, struct brig_err *err)
{
    int r = listing->out.len > 0 ? fd_write_all(STDOUT_FILENO, listing->out.data, listing->out.len) : 0;

    listing->out.len = 0;
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "the standard output") : 0;
}

static int end_line(struct listing *listing, struct json *json, struct brig_err *err)
{
    json_end(json);
    if (json_finish(json) < 0 || buf_append_str(&listing->out, "\n") < 0)
        return err_nomem(err);
    return listing->out.len >= OUT_SIZE ? flush(listing, err) : 0;
}

/* ---- packages ---------------------------------------- */

/* It hashes dpkg's list of the package's files and their sums. Not every package has one. */
static int hash_sums(const struct listing *listing, const struct dpkg_package *package, char out[LAYER_HEX],
                     struct brig_err *err)
{
    char path[3 * DPKG_VALUE];
    AUTO_FREE char *text = NULL;
    SHA256_CTX hash;
    int r = 0;

    out[0] = '\0';
    for (unsigned i = 0; i < 2 && r == 0 && !text; i++)
        r = str_format(path, sizeof path, DPKG "/info/%s%s%s.md5sums", package->name, i > 0 ? ":" : "",
                       i > 0 ? package->architecture : "") < 0
                ? err_nomem(err)
                : view_read(listing->root, path, SUMS_MAX, &text, err);
    if (r < 0 || !text)
        return r;
    SHA256_Init(&hash);
    SHA256_Update(&hash, text, strlen(text));
    layer_hex(&hash, out);
    return 0;
}

static int put_package(void *ctx, const struct dpkg_package *package, struct brig_err *err)
{
    struct listing *listing = ctx;
    struct json json = JSON_INIT(&listing->out);
    char sums[LAYER_HEX];

    if (++listing->packages > LOCK_PACKAGES_MAX)
        return layer_fail(err, STATUS, 0, "more than %u packages", LOCK_PACKAGES_MAX);
    int r = hash_sums(listing, package, sums, err);
    if (r < 0)
        return r;
    json_object(&json);
    json_key_string(&json, "name", package->name);
    json_key_string(&json, "version", package->version);
    json_key_string(&json, "architecture", package->architecture);
    json_key_string(&json, "files", sums);
    return end_line(listing, &json, err);
}

static int list_packages(struct listing *listing, struct brig_err *err)
{
    AUTO_FREE char *text = NULL;
    struct brig_err why = {0};
    int r = view_read(listing->root, STATUS, STATUS_MAX, &text, err);

    if (r < 0 || !text)
        return r;
    r = dpkg_status_read(text, strlen(text), put_package, listing, &why);
    if (r == 0)
        return 0;
    return str_starts(why.message, "line ") ? layer_fail(err, STATUS, 0, "%s", why.message)
                                            : err_set(err, (enum brig_code)why.code, 0, "%s", why.message);
}

/* ---- paths ---------------------------------------- */

static int hash_file(struct listing *listing, int dir, const char *name, SHA256_CTX *hash, struct brig_err *err)
{
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;

    while (n > 0 || (n < 0 && fd >= 0 && errno == EINTR)) {
        n = read(fd, listing->data, sizeof listing->data);
        if (n > 0)
            SHA256_Update(hash, listing->data, (size_t)n);
    }
    return n < 0 ? layer_fail(err, listing->path, errno, "it cannot be read") : 0;
}

static int hash_link(struct listing *listing, int dir, const char *name, SHA256_CTX *hash, struct brig_err *err)
{
    ssize_t n = readlinkat(dir, name, (char *)listing->data, sizeof listing->data);

    if (n < 0)
        return layer_fail(err, listing->path, errno, "it cannot be read");
    SHA256_Update(hash, listing->data, (size_t)n);
    return 0;
}

/* What a layer keeps of it, but for extended attributes and holes. */
static int put_path(struct listing *listing, int dir, const char *name, const struct stat *st, struct brig_err *err)
{
    struct json json = JSON_INIT(&listing->out);
    char hex[LAYER_HEX], meta[160];
    SHA256_CTX hash;
    int r = 0;

    snprintf(meta, sizeof meta, "%o %u %u %lld.%09ld %llu;", (unsigned)st->st_mode, st->st_uid, st->st_gid,
             (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
             S_ISREG(st->st_mode) ? (unsigned long long)st->st_size : 0ULL);
    SHA256_Init(&hash);
    SHA256_Update(&hash, meta, strlen(meta));
    if (S_ISREG(st->st_mode))
        r = hash_file(listing, dir, name, &hash, err);
    else if (S_ISLNK(st->st_mode))
        r = hash_link(listing, dir, name, &hash, err);
    if (r < 0)
        return r;
    layer_hex(&hash, hex);
    hex[LOCK_HASH] = '\0';
    json_object(&json);
    json_key_string(&json, "path", listing->path);
    json_key_string(&json, "hash", hex);
    return end_line(listing, &json, err);
}

static int walk(struct listing *listing, int fd, struct brig_err *err);

static int list_entry(struct listing *listing, int dir, const char *name, struct brig_err *err)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, listing->path, errno, "it cannot be read");
    listing->paths++;
    int r = put_path(listing, dir, name, &st, err);
    if (r < 0 || !S_ISDIR(st.st_mode))
        return r;
    if (listing->depth == LAYER_DEPTH_MAX)
        return layer_fail(err, listing->path, 0, "it is more than %u directories deep", LAYER_DEPTH_MAX);
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return layer_fail(err, listing->path, errno, "it cannot be read");
    listing->depth++;
    r = walk(listing, fd, err);
    listing->depth--;
    return r;
}

/* Goes through a directory and closes it. A path more than a lock takes is the last: it then has none of them. */
static int walk(struct listing *listing, int fd, struct brig_err *err)
{
    __attribute__((cleanup(names_done))) struct names names = {0};
    AUTO_FD int dir = fd;
    const size_t len = listing->path_len;
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        r = again < 0 ? -errno : names_read(again, &names);

    if (r < 0)
        return layer_fail(err, listing->path, -r, "it cannot be read");
    for (size_t i = 0; i < names.n && r == 0 && listing->paths <= LOCK_PATHS_MAX; i++) {
        int n = str_format(listing->path + len, sizeof listing->path - len, "/%s", names.list[i]);
        if (n < 0)
            return layer_fail(err, listing->path, 0, "a path in it has more than %u bytes", TAR_NAME_MAX);
        listing->path_len = len + (size_t)n;
        r = list_entry(listing, dir, names.list[i], err);
    }
    listing->path[len] = '\0';
    listing->path_len = len;
    return r;
}

static int list_paths(struct listing *listing, struct brig_err *err)
{
    int fd = openat(listing->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_host(err, "the tree") : walk(listing, fd, err);
}

int layer_packages(const struct layer_options *options, struct brig_err *err)
{
    AUTO_FD int root = open(options->blob, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct listing *listing = mem_zalloc(sizeof *listing);
    int r;

    if (!listing)
        return err_nomem(err);
    listing->root = root;
    listing->out = BUF_INIT(OUT_SIZE + 8 * (TAR_NAME_MAX + 1));
    r = root < 0 ? err_host(err, "%s", options->blob) : list_packages(listing, err);
    if (r == 0)
        r = list_paths(listing, err);
    if (r == 0)
        r = flush(listing, err);
    buf_done(&listing->out);
    mem_free(listing);
    return r;
}
