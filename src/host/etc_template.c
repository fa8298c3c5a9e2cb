/* SPDX-License-Identifier: Apache-2.0 */
/*
 * etc_template.c: makes the shared /etc of the template `host`; etc_cache.c keeps it.
 *
 * What may be in it is a list of names, never "all but". From this list it takes only regular files that anyone on the
 * host may read, symbolic links (as links) and directories that anyone may enter. So an engine that runs as root shows
 * a sandbox nothing that the least user of the host could not see. Depth, number and bytes are bounded; what does not
 * fit is left out. A source that cannot be read is left out as well; a failure to write is an error.
 */
#include "host/etc_template.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sys/sendfile.h>

#include "base/dir.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "gate/address.h"
#include "jail/sys.h"

#define FORMAT_VERSION 2u
#define MAX_DEPTH ETC_TEMPLATE_DEPTH
#define MAX_ENTRIES 8192u
#define MAX_BYTES (UINT64_C(16) << 20)

#define BUNDLE "ssl/certs/ca-certificates.crt"

static const char *const copied_files[] = {
    "ld.so.cache", "localtime", "timezone", "os-release", "debian_version",
    "mime.types",  "protocols", "services", "inputrc",    "bash.bashrc",
    "profile",     "shells",    "magic",    "magic.mime", "ssl/openssl.cnf",
};

/* Patterns match names in /etc itself. */
static const char *const copied_dirs[] = {
    "alternatives", "fonts", "perl", "python3", "terminfo", "python3.*", "java-*-openjdk", "ImageMagick-*",
};

/* Where distributions keep the CA bundle, from the host's root. */
static const char *const bundles[] = {
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
};

/*
 * These are looked at, besides copied_files and the bundle, to see whether a template is still current. /etc itself
 * changes when anything in it is added, removed or replaced by rename; the package databases change when things deeper
 * down or in /bin do. Every entry costs a microsecond in every run; other changes are found after the next boot.
 */
static const char *const stamps[] = {
    "etc",           "etc/alternatives",    "etc/fonts/conf.d",
    "etc/ssl/certs", "var/lib/dpkg/status", "usr/lib/sysimage/rpm/rpmdb.sqlite",
};

/* One build: where to, and what may still be copied. */
struct build {
    int host_fd, src_fd, dir_fd; /* host's /, host's /etc, the new /etc */
    unsigned entries_left;
    uint64_t bytes_left;
    struct brig_err *err;
};

/* ---- copying -------------------------------------------------------------------------------------------- */

static bool is_public_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) && (st->st_mode & 0004) != 0;
}

static bool is_public_dir(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && (st->st_mode & 0005) == 0005;
}

/* Makes a directory if it is not there, and opens it. */
static int make_dir(struct build *b, int parent, const char *name)
{
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
        return err_host(b->err, "/etc template: mkdir %s", name);
    AUTO_FD int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0755) < 0) /* the umask may have taken some of it */
        return err_host(b->err, "/etc template: %s", name);
    return take_fd(&fd);
}

/* Opens the directory in which `path` lies, making what is missing; *ret_name is the last component. */
static int make_parent(struct build *b, const char *path, const char **ret_name)
{
    AUTO_FD int dir = fcntl(b->dir_fd, F_DUPFD_CLOEXEC, 0);

    if (dir < 0)
        return err_host(b->err, "/etc template: %s", path);
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        char name[NAME_MAX + 1];
        if (str_format(name, sizeof name, "%.*s", (int)(slash - path), path) < 0)
            return err_set(b->err, BRIG_E_HOST, ENAMETOOLONG, "/etc template");
        int next = make_dir(b, dir, name);
        if (next < 0)
            return next;
        close(dir);
        dir = next;
    }
    *ret_name = path;
    return take_fd(&dir);
}

/* From an open, public file to a new one. One that grows past what is left while it is read is cut off there. */
static int copy_data(struct build *b, int in, const struct stat *st, int dst, const char *name)
{
    mode_t mode = (st->st_mode & 0001) != 0 ? 0755 : 0644;

    if (st->st_size < 0 || (uint64_t)st->st_size > b->bytes_left)
        return 0;
    AUTO_FD int out = openat(dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (out < 0)
        return errno == EEXIST ? 0 : err_host(b->err, "/etc template: create %s", name);
    if (fchmod(out, mode) < 0)
        return err_host(b->err, "/etc template: chmod %s", name);
    while (b->bytes_left > 0) {
        ssize_t n = RETRY(sendfile(out, in, NULL, (size_t)b->bytes_left));
        if (n < 0)
            return err_host(b->err, "/etc template: write %s", name);
        if (n == 0)
            break;
        b->bytes_left -= (uint64_t)n;
    }
    return 0;
}

static int copy_file(struct build *b, int src, int dst, const char *name)
{
    struct stat st;
    AUTO_FD int in = openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    /* Looked at again, by descriptor: it may have been replaced since. */
    if (in < 0 || fstat(in, &st) < 0 || !is_public_file(&st))
        return 0;
    return copy_data(b, in, &st, dst, name);
}

static int copy_link(struct build *b, int src, int dst, const char *name)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(src, name, target, sizeof target);

    if (len <= 0 || (size_t)len >= sizeof target)
        return 0;
    target[len] = '\0';
    if (symlinkat(target, dst, name) < 0 && errno != EEXIST)
        return err_host(b->err, "/etc template: symlink %s", name);
    return 0;
}

/* A file or a symlink, whichever it is; anything else is left out. */
static int copy_leaf(struct build *b, int src, int dst, const char *name, const struct stat *st)
{
    if (S_ISLNK(st->st_mode))
        return copy_link(b, src, dst, name);
    return is_public_file(st) ? copy_file(b, src, dst, name) : 0;
}

static int copy_tree(struct build *b, int src, int dst, const char *name, unsigned depth);

static int copy_entries(struct build *b, DIR *dir, int dst, unsigned depth)
{
    struct stat st;
    int r = 0;

    for (const struct dirent *entry; r == 0 && b->entries_left > 0 && (entry = dir_next(dir));) {
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!S_ISDIR(st.st_mode)) {
            b->entries_left--;
            r = copy_leaf(b, dirfd(dir), dst, entry->d_name, &st);
        } else if (depth > 1) {
            r = copy_tree(b, dirfd(dir), dst, entry->d_name, depth - 1);
        }
    }
    return r;
}

/* A directory with what is in it, at most `depth` levels; a symlink in its place is left out. */
static int copy_tree(struct build *b, int src, int dst, const char *name, unsigned depth)
{
    struct stat st;
    AUTO_FD int in = openat(src, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (in < 0 || fstat(in, &st) < 0 || !is_public_dir(&st) || b->entries_left == 0)
        return 0;
    b->entries_left--;
    AUTO_FD int out = make_dir(b, dst, name);
    if (out < 0)
        return out;
    AUTO_DIR DIR *dir = dir_of(take_fd(&in));
    if (!dir)
        return err_host(b->err, "/etc template: read %s", name);
    return copy_entries(b, dir, out, depth);
}

/* ---- content -------------------------------------------------------------------------------------------- */

static int write_text(struct build *b, const char *name, const char *text)
{
    AUTO_FD int fd = openat(b->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0 || fchmod(fd, 0644) < 0)
        return err_host(b->err, "/etc template: create %s", name);
    int r = fd_write_all(fd, text, strlen(text));
    return r < 0 ? err_set(b->err, BRIG_E_HOST, -r, "/etc template: write %s", name) : 0;
}

static bool host_has(int host_fd, const char *path)
{
    AUTO_FD int fd = sys_openat2(host_fd, path, O_PATH, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

    return fd >= 0;
}

static int generate(struct build *b)
{
    const char *shell = host_has(b->host_fd, "bin/bash") ? "/bin/bash" : "/bin/sh";
    char passwd[256];

    int r = str_format(passwd, sizeof passwd,
                       "root:x:0:0:root:/root:%s\n"
                       "user:x:1000:1000:user:/home/user:%s\n"
                       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
                       shell, shell);
    if (r < 0)
        return err_set(b->err, BRIG_E_HOST, -r, "/etc template: passwd");
    r = write_text(b, "passwd", passwd);
    if (r == 0)
        r = write_text(b, "group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n");
    if (r == 0)
        r = write_text(b, "nsswitch.conf",
                       "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
                       "protocols: files\nservices: files\nethers: files\nrpc: files\n");
    if (r == 0) /* the gate's; without a network it is unreachable, which is an answer at once */
        r = write_text(b, "resolv.conf", "nameserver " GATE_RESOLVER_V4 "\noptions timeout:2 attempts:1\n");
    return r;
}

static int copy_listed_files(struct build *b)
{
    for (size_t i = 0; i < ARRAY_SIZE(copied_files); i++) {
        const char *path = copied_files[i], *name;
        const char *slash = strrchr(path, '/');
        char parent[NAME_MAX + 1] = ".";
        struct stat st;

        if (slash && str_format(parent, sizeof parent, "%.*s", (int)(slash - path), path) < 0)
            continue;
        AUTO_FD int src = openat(b->src_fd, parent, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        name = slash ? slash + 1 : path;
        if (src < 0 || fstatat(src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        AUTO_FD int dst = make_parent(b, path, &name);
        int r = dst < 0 ? dst : copy_leaf(b, src, dst, name, &st);
        if (r < 0)
            return r;
    }
    return 0;
}

static int link_bundle(struct build *b, const char *path, const char *target)
{
    const char *name;
    AUTO_FD int dir = make_parent(b, path, &name);

    if (dir < 0)
        return dir;
    if (symlinkat(target, dir, name) < 0)
        return err_host(b->err, "/etc template: symlink %s", path);
    return 0;
}

/*
 * This is the one place where symbolic links of the host are followed, below its root: some distributions have the
 * bundle under a generated name elsewhere in /etc. It is made before ssl/certs is copied, so that this file is the one
 * that is there.
 */
static int copy_bundle_file(struct build *b, int dst, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
        struct stat st;
        AUTO_FD int in = sys_openat2(b->host_fd, bundles[i], O_RDONLY | O_NONBLOCK | O_NOCTTY, 0,
                                     RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);

        if (in < 0 || fstat(in, &st) < 0 || !is_public_file(&st) || st.st_size == 0)
            continue;
        return copy_data(b, in, &st, dst, name);
    }
    return 0;
}

/* A host without one has an empty one: a place to put a sandbox's own over (trust.c). */
static int make_bundle(struct build *b)
{
    const char *name;
    AUTO_FD int dst = make_parent(b, BUNDLE, &name);
    int r = dst < 0 ? dst : copy_bundle_file(b, dst, name);

    if (r == 0 && faccessat(dst, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        r = write_text(b, BUNDLE, "");
    if (r == 0)
        r = link_bundle(b, "ssl/cert.pem", "certs/ca-certificates.crt");
    if (r == 0)
        r = link_bundle(b, "pki/tls/certs/ca-bundle.crt", "../../../" BUNDLE);
    if (r == 0)
        r = link_bundle(b, "pki/tls/cert.pem", "certs/ca-bundle.crt");
    return r;
}

static bool is_copied_dir(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(copied_dirs); i++) {
        if (fnmatch(copied_dirs[i], name, FNM_PERIOD) == 0)
            return true;
    }
    return false;
}

static int copy_listed_dirs(struct build *b)
{
    AUTO_DIR DIR *dir = dir_open(b->src_fd, ".");
    int r = 0;

    if (!dir)
        return err_host(b->err, "read /etc");
    for (const struct dirent *entry; r == 0 && (entry = dir_next(dir));)
        if (is_copied_dir(entry->d_name))
            r = copy_tree(b, b->src_fd, b->dir_fd, entry->d_name, MAX_DEPTH);
    return r;
}

/* ssl/certs alone: ssl/private is beside it. */
static int copy_certs(struct build *b)
{
    const char *name;
    AUTO_FD int src = openat(b->src_fd, "ssl", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO_FD int dst = make_parent(b, "ssl/certs", &name);

    if (dst < 0)
        return dst;
    AUTO_FD int certs = make_dir(b, dst, name);
    if (certs < 0)
        return certs;
    return src < 0 ? 0 : copy_tree(b, src, dst, name, MAX_DEPTH);
}

int etc_template_build_from(int host_fd, int dir_fd, struct brig_err *err)
{
    AUTO_FD int src = openat(host_fd, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct build b = {
        .host_fd = host_fd,
        .src_fd = src,
        .dir_fd = dir_fd,
        .entries_left = MAX_ENTRIES,
        .bytes_left = MAX_BYTES,
        .err = err,
    };

    if (src < 0)
        return err_host(err, "open /etc");
    int r = generate(&b);
    if (r == 0) { /* a place for the host's, whether or not there are any */
        AUTO_FD int alternatives = make_dir(&b, dir_fd, "alternatives");
        r = alternatives < 0 ? alternatives : 0;
    }
    if (r == 0)
        r = copy_listed_files(&b);
    if (r == 0)
        r = make_bundle(&b);
    if (r == 0)
        r = copy_certs(&b);
    if (r == 0)
        r = copy_listed_dirs(&b);
    return r;
}

int etc_template_build(int dir_fd, struct brig_err *err)
{
    AUTO_FD int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return host < 0 ? err_host(err, "open /") : etc_template_build_from(host, dir_fd, err);
}

/* ---- is it still current? ------------------------------------------------------------------------------- */

#define FNV_BASIS UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME UINT64_C(0x100000001b3)

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *at = data;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * FNV_PRIME;
    return hash;
}

/* Returns whether there is something; that there is nothing counts as well. */
static bool hash_path(uint64_t *hash, int dir, const char *path, int flags)
{
    struct stat st;

    if (fstatat(dir, path, &st, flags) < 0) {
        *hash = hash_bytes(*hash, &errno, sizeof errno);
        return false;
    }
    const uint64_t words[] = {
        (uint64_t)st.st_dev,         (uint64_t)st.st_ino,          (uint64_t)st.st_size,
        (uint64_t)st.st_mode,        (uint64_t)st.st_mtim.tv_sec,  (uint64_t)st.st_mtim.tv_nsec,
        (uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec,
    };
    *hash = hash_bytes(*hash, words, sizeof words);
    return true;
}

uint64_t etc_template_stamp(int host_fd)
{
    const uint32_t version = FORMAT_VERSION;
    uint64_t hash = hash_bytes(FNV_BASIS, &version, sizeof version);
    char boot[64];
    ssize_t len = fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    AUTO_FD int etc = openat(host_fd, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (len > 0)
        hash = hash_bytes(hash, boot, (size_t)len);
    for (size_t i = 0; i < ARRAY_SIZE(copied_files); i++)
        (void)hash_path(&hash, etc, copied_files[i], AT_SYMLINK_NOFOLLOW);
    for (size_t i = 0; i < ARRAY_SIZE(stamps); i++)
        (void)hash_path(&hash, host_fd, stamps[i], AT_SYMLINK_NOFOLLOW);
    for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
        if (hash_path(&hash, host_fd, bundles[i], 0)) /* the file, not a link to it: see copy_bundle() */
            break;
    }
    return hash;
}
