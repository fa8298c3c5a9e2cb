/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_tree.c: makes the spawner's own mount namespace: a tmpfs with what sandboxes are built from (drawn in mounts.c),
 * and nothing else of the host. It is small because every sandbox starts as a copy of it: the clone takes 48 µs,
 * against 1.2 ms with a thousand mounts. And what is not here cannot be reached by mistake.
 */
#include <stdio.h>
#include <sys/sysmacros.h>

#include "base/err.h"
#include "codec/sudo_args.h"
#include "host/etc_template.h"
#include "host/host.h"
#include "jail/sys.h"

static const char *const dirs[] = {"r",   "r2",   "s", "x", "x2",    "t", "etc-skel", "empty",
                                   "old", "proc", "d", "l", "trust", "n", "n/local",  "n/local/bin"};
static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};

/*
 * Makes a detached copy of one mount. A plain user's namespace may not split the host's mounts apart; then it copies
 * the whole subtree.
 */
static int clone_place(const char *path, bool whole)
{
    int fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (whole ? AT_RECURSIVE : 0));

    if (fd < 0 && errno == EINVAL && !whole)
        fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    return fd;
}

/* The path of a descriptor, asked for while its tree is still ours: in a copy of it the answer would be another. */
static int path_of(int fd, char *out, size_t size)
{
    char link[40];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    if (n <= 0)
        return -1;
    out[n] = '\0';
    return 0;
}

/* The directory behind a descriptor of the tree we came from, found again in this copy of it. */
static int clone_same(int fd, const char *path)
{
    struct stat a, b;

    AUTO_FD int clone = clone_place(path, false);
    if (clone < 0 || fstat(fd, &a) < 0 || fstat(clone, &b) < 0)
        return -1;
    if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) {
        errno = ESTALE;
        return -1;
    }
    return take_fd(&clone);
}

struct places {
    int proc, etc, layers, tool;
    int lower[PLAN_LOWER_DIRS];
    int node[ARRAY_SIZE(nodes)];
};

/* Where directories and files that the host has open lie in its tree. */
struct paths {
    char etc[4096], layers[4096], tool[4096];
};

static int find_paths(const struct host *host, struct paths *ret, struct brig_err *err)
{
    if (host->etc_fd >= 0 && path_of(host->etc_fd, ret->etc, sizeof ret->etc) < 0)
        return err_host(err, "the generated /etc");
    if (host->layers.fd >= 0 && (path_of(host->layers.fd, ret->layers, sizeof ret->layers) < 0 ||
                                 path_of(host->layers.tool_fd, ret->tool, sizeof ret->tool) < 0))
        return err_host(err, "the store of layers");
    return 0;
}

static int collect(struct host *host, const struct paths *paths, struct places *p, struct brig_err *err)
{
    if ((p->proc = clone_place("/proc", true)) < 0)
        return err_host(err, "copy of /proc");
    if (host->etc_fd >= 0 && (p->etc = clone_same(host->etc_fd, paths->etc)) < 0)
        return err_host(err, "copy of the generated /etc");
    if (host->layers.fd >= 0 && (p->layers = clone_same(host->layers.fd, paths->layers)) < 0)
        return err_host(err, "copy of the store of layers");
    if (host->layers.fd >= 0 && (p->tool = clone_same(host->layers.tool_fd, paths->tool)) < 0)
        return err_host(err, "copy of brig-layer");
    for (unsigned i = 0; i < host->n_lower_dirs; i++) {
        char path[24];
        snprintf(path, sizeof path, "/%s", host->lower_dirs[i]);
        if ((p->lower[i] = clone_place(path, false)) < 0)
            return err_host(err, "copy of %s", path);
    }
    for (size_t i = 0; !host->mknod_devices && i < ARRAY_SIZE(nodes); i++) {
        char path[24];
        snprintf(path, sizeof path, "/dev/%s", nodes[i]);
        if ((p->node[i] = clone_place(path, false)) < 0)
            return err_host(err, "copy of %s", path);
    }
    return 0;
}

/* The lowest layer of /usr in sandboxes that have no sudo, so that whoever calls it is told. */
static int write_no_sudo(int root, struct brig_err *err)
{
    static const char text[] = "#!/bin/sh\necho 'sudo: " SUDO_NOT_ALLOWED "' >&2\nexit 1\n";
    AUTO_FD int fd = openat(root, "n/local/bin/sudo", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

    if (fd < 0 || write(fd, text, sizeof text - 1) != (ssize_t)sizeof text - 1)
        return err_host(err, "spawner's tree: sudo");
    return 0;
}

static int make_places(int root, struct brig_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdirat(root, dirs[i], 0755) < 0)
            return err_host(err, "spawner's tree: %s", dirs[i]);
    return write_no_sudo(root, err);
}

static int attach(int mount_fd, int root, const char *path, uint64_t attributes, struct brig_err *err)
{
    if (mount_attributes(mount_fd, attributes, true) < 0 || mount_attach(mount_fd, root, path) < 0)
        return err_host(err, "spawner's tree: %s", path);
    return 0;
}

/* Sandboxes get private copies of the store, with ids of their own. */
static int fill_layers(int root, const struct places *p, struct brig_err *err)
{
    AUTO_FD int file = openat(root, &LAYER_TOOL_PLACE[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (file < 0 || mkdirat(root, &LAYERS_PLACE[1], 0700) < 0)
        return err_host(err, "spawner's tree: %s", LAYERS_PLACE);
    int r = attach(p->layers, root, LAYERS_PLACE, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    if (r == 0)
        r = attach(p->tool, root, LAYER_TOOL_PLACE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    return r;
}

static int fill(struct host *host, int root, struct places *p, struct brig_err *err)
{
    int r = attach(p->proc, root, "proc", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);

    if (r == 0 && p->etc >= 0)
        r = attach(p->etc, root, "etc-skel", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    if (r == 0 && p->layers >= 0)
        r = fill_layers(root, p, err);
    for (unsigned i = 0; r == 0 && i < host->n_lower_dirs; i++) {
        char path[24];
        snprintf(path, sizeof path, "t/%s", host->lower_dirs[i]);
        if (mkdirat(root, path, 0755) < 0)
            return err_host(err, "spawner's tree: %s", path);
        r = attach(p->lower[i], root, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
    }
    for (size_t i = 0; r == 0 && !host->mknod_devices && i < ARRAY_SIZE(nodes); i++) {
        char path[24];
        snprintf(path, sizeof path, "d/%s", nodes[i]);
        AUTO_FD int file = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0)
            return err_host(err, "spawner's tree: %s", path);
        r = attach(p->node[i], root, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
    }
    return r;
}

/* No cache directory to keep a generated /etc in: made here, while the host's is in sight. */
static int build_etc(int root, struct brig_err *err)
{
    AUTO_FD int skel = openat(root, "etc-skel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return skel < 0 ? err_host(err, "spawner's tree: etc") : etc_template_build(skel, err);
}

static void places_done(struct places *p)
{
    base_close_fd(&p->proc);
    base_close_fd(&p->etc);
    base_close_fd(&p->layers);
    base_close_fd(&p->tool);
    for (size_t i = 0; i < ARRAY_SIZE(p->lower); i++)
        base_close_fd(&p->lower[i]);
    for (size_t i = 0; i < ARRAY_SIZE(p->node); i++)
        base_close_fd(&p->node[i]);
}

static int switch_root(int root, struct brig_err *err)
{
    /*
     * Joining our present namespace moves us to its root, which is not ours in a chroot; and only a process that pivots
     * there may make user namespaces afterwards.
     */
    AUTO_FD int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (own < 0 || setns(own, CLONE_NEWNS) < 0)
        return err_host(err, "root of the mount namespace");
    /* Any directory of the old tree will do as a place to pivot from; /usr is there (the template needs it). */
    if (chdir("/") < 0 || mount_attach(root, AT_FDCWD, "/usr") < 0 || fchdir(root) < 0)
        return err_host(err, "spawner's tree: attach");
    /* The old tree hangs below /old until host_settle(); a sandbox leaves both behind when it pivots. */
    if (sys_pivot_root(".", "old") < 0 || chdir("/") < 0)
        return err_host(err, "pivot_root");
    return 0;
}

static int open_rest(struct host *host, struct brig_err *err)
{
    host->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host->proc_fd < 0)
        return err_host(err, "/proc");
    static const struct mount_option options[] = {{"mode", "555"}, {"size", "4k"}};
    host->probe_fd = mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_RDONLY);
    return host->probe_fd < 0 ? err_host(err, "probe mount") : 0;
}

int host_build_tree(struct host *host, struct brig_err *err)
{
    static const struct mount_option options[] = {{"mode", "755"}};
    struct places p = {.proc = -1,
                       .etc = -1,
                       .layers = -1,
                       .tool = -1,
                       .lower = {-1, -1, -1, -1, -1, -1, -1, -1},
                       .node = {-1, -1, -1, -1, -1, -1}};
    struct paths paths = {0};

    host->mnt_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (host->mnt_fd < 0)
        return err_host(err, "/proc/self/ns/mnt");
    host->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host->root_fd < 0)
        return err_host(err, "/");
    int r = find_paths(host, &paths, err);
    if (r < 0)
        return r;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_host(err, "mount namespace");
    AUTO_FD int root = mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID);
    if (root < 0)
        return err_host(err, "spawner's tree: tmpfs");
    umask(0);
    r = make_places(root, err);
    if (r == 0) {
        host->mknod_devices = mknodat(root, "d/null", S_IFCHR | 0666, makedev(1, 3)) == 0;
        r = collect(host, &paths, &p, err);
    }
    if (r == 0 && p.etc < 0)
        r = build_etc(root, err);
    if (r == 0)
        r = switch_root(root, err);
    if (r == 0)
        r = fill(host, root, &p, err);
    places_done(&p);
    return r < 0 ? r : open_rest(host, err);
}
