/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c: collects what the spawner must know and hold before it leaves the host's tree for good, in numbered stages.
 *
 *    1 facts: namespaces we start in, Landlock, the template's directories
 *    2 descriptors: brig-init, directories, the generated /etc, loop control
 *    3 cgroups, and what a killed predecessor left of them
 *    4 a plain user: the outer user namespace (host_ids.c)
 *    5 id slots
 *    6 the minimal mount namespace (host_tree.c)
 *    7 beside the first sandbox's set-up: let go of the host's tree (0.2 ms of RCU)
 */
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/str.h"
#include "host/dirs.h"
#include "host/etc_template.h"
#include "host/host.h"
#include "jail/landlock_rules.h"
#include "jail/sys.h"

static void read_namespaces(struct host *host)
{
    static const char *const names[NS_MAX] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"};

    for (int i = 0; i < NS_MAX; i++) {
        char path[40], link[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        ssize_t n = readlink(path, link, sizeof link - 1);
        char *bracket = n > 0 ? memchr(link, '[', (size_t)n) : NULL;
        link[n > 0 ? n : 0] = '\0';
        host->ns[i] = bracket ? (uint32_t)strtoul(bracket + 1, NULL, 10) : 0;
    }
}

/* All ids of the first user namespace, and the capability to mount: only then are private id ranges ours to give. */
static bool is_privileged(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    char map[128];
    uint64_t line[3]; /* inside, outside, count */

    if (geteuid() != 0 || syscall(SYS_capget, &header, data) < 0 || !(data[0].effective & (1u << CAP_SYS_ADMIN)))
        return false;
    return fd_read_file(AT_FDCWD, "/proc/self/uid_map", map, sizeof map) > 0 && parse_fields(map, line, 3) == 3 &&
           line[0] == 0 && line[1] == 0 && line[2] == UINT32_MAX;
}

/* The template `host`: /usr, and the root's own bin, sbin, lib* as they are there: links or directories. */
static int find_template(struct host *host, struct brig_err *err)
{
    static const char names[][8] = {"usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[sizeof names + 2];
        struct stat st;
        snprintf(path, sizeof path, "/%s", names[i]);
        if (lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            str_assign(host->lower_dirs[host->n_lower_dirs], names[i]);
            host->n_lower_dirs++;
        } else if (S_ISLNK(st.st_mode)) {
            char *target = host->root_links[host->n_root_links][1];
            ssize_t n = readlink(path, target, sizeof host->root_links[0][1] - 1);
            if (n <= 0)
                continue;
            target[n] = '\0';
            str_assign(host->root_links[host->n_root_links][0], names[i]);
            host->n_root_links++;
        }
    }
    return host->n_lower_dirs > 0 ? 0
                                  : err_set(err, BRIG_E_UNSUPPORTED, ENOENT, "template host: no /usr on this machine");
}

/* A copy nobody can write to, for a file that its owner could change under us. */
static int seal_copy(int file, off_t size, const char *name, struct brig_err *err)
{
    AUTO_FD int copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    off_t at = 0;

    if (copy < 0)
        return err_host(err, "memfd for %s", name);
    while (at < size)
        if (sendfile(copy, file, &at, (size_t)(size - at)) <= 0)
            return err_host(err, "copy of %s", name);
    if (fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_host(err, "seal %s", name);
    /* A descriptor open for writing would make execve fail with ETXTBSY. */
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_host(err, "reopen %s", name) : fd;
}

int host_open_helper(const char *helper_dir, const char *name, bool *ret_is_file, struct brig_err *err)
{
    char path[4096];
    struct stat st;

    if ((size_t)snprintf(path, sizeof path, "%s/%s", helper_dir, name) >= sizeof path)
        return err_usage(err, "helper directory: path too long");
    AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "%s", path);
    *ret_is_file = st.st_uid == 0 && (st.st_mode & 022) == 0;
    return *ret_is_file ? take_fd(&fd) : seal_copy(fd, st.st_size, name, err);
}

static int open_init(struct host *host, enum host_role role, const char *helper_dir, struct brig_err *err)
{
    host->init_fd = host_open_helper(helper_dir, "brig-init", &host->init_is_file, err);
    if (role == HOST_SPAWNER)
        zygote_files_open(&host->zygote, helper_dir);
    return host->init_fd < 0 ? host->init_fd : 0;
}

/* Directories are conveniences, each with a fallback: a missing one is not an error here. */
static int open_dirs(struct host *host, struct brig_err *err)
{
    int r = 0;

    host->cache_fd = dirs_open(BRIG_DIR_CACHE, NULL);
    host->etc_fd = host->cache_fd >= 0 ? etc_template_open(host->cache_fd, NULL) : -1;
    if (host->privileged) {
        host->run_fd = dirs_open(BRIG_DIR_RUN, err);
        if (host->run_fd < 0)
            return host->run_fd;
        if (access("/usr/sbin/mkfs.ext4", X_OK) == 0 || access("/sbin/mkfs.ext4", X_OK) == 0)
            host->loop_control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        host->state_fd = host->loop_control_fd >= 0 ? dirs_open(BRIG_DIR_STATE, NULL) : -1;
    } else {
        host->run_fd = dirs_open(BRIG_DIR_RUN, NULL);
    }
    /* A plain user may do without: then there is one id. */
    host->ids_fd = ids_open(host->privileged, host->run_fd, &host->ids_scope, host->privileged ? err : NULL);
    if (host->ids_fd < 0 && host->privileged)
        r = host->ids_fd;
    return r;
}

/* A store of template layers is for `brig serve`, and needs ids enough for what is in an image. */
static void open_layers(struct host *host, enum host_role role, const char *helper_dir)
{
    const char *path = getenv("BRIG_LAYERS_DIR");

    if (!path)
        return;
    if (host->ids_kind == IDS_ONE)
        str_cut(host->layers.why, sizeof host->layers.why,
                "a plain user without subordinate ids has one id, and images have files of many (see `brig doctor`)");
    else if (host->ids_kind == IDS_PAIR && host->sub_ids < INSIDE_RANGE)
        snprintf(host->layers.why, sizeof host->layers.why, "images need %u subordinate ids, and this user has %u",
                 INSIDE_RANGE, host->sub_ids);
    else
        layers_open(&host->layers, path, helper_dir, role == HOST_SPAWNER);
}

/* Disks that can be kept and copied are for `brig serve` too. They need loop devices and idmapped mounts. */
static void open_disks(struct host *host)
{
    const char *path = getenv("BRIG_DISKS_DIR"), *max = getenv("BRIG_DISKS_MAX");
    uint64_t bytes = 0;

    if (!path)
        return;
    if (max && parse_fields(max, &bytes, 1) != 1)
        str_cut(host->disks.why, sizeof host->disks.why, "BRIG_DISKS_MAX is not a number");
    else if (!host->privileged)
        str_cut(host->disks.why, sizeof host->disks.why,
                "only root can have disks that are kept: a plain user can neither use loop devices nor map ids");
    else if (!image_possible(host))
        str_cut(host->disks.why, sizeof host->disks.why,
                "they need loop devices and mkfs.ext4 (see image_store of `brig doctor`)");
    else
        disks_open(&host->disks, path, bytes);
}

/* Not every file system can be mounted with other ids; then nothing of the store can be used. */
static void probe_layers(struct host *host)
{
    AUTO_FD int tree = open_tree(AT_FDCWD, LAYERS_PLACE, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    AUTO_FD int ns = -1;
    const char *map = "0 0 1"; /* any: it is never used */
    struct brig_err err;

    if (tree >= 0 && helper_idmap_ns(host, map, map, &ns, &err) == 0 && helper_idmap(tree, ns) == 0)
        return;
    layers_done(&host->layers);
    str_cut(host->layers.why, sizeof host->layers.why,
            "the file system of their store, or this kernel, cannot map ids");
}

uid_t host_layer_owner(const struct host *host)
{
    return host->ids_kind == IDS_PAIR ? IDS_SHARED_ROOT : 0;
}

/*
 * Adds the directories that the service's users may share to those that the service itself shares for them: for the
 * spawner they are one list.
 */
static int read_roots(struct host *host, struct brig_err *err)
{
    const char *shared = getenv("BRIG_BIND_ROOTS"), *own = getenv("BRIG_OWN_ROOTS");
    char both[sizeof host->bind_roots.text];

    if (str_format(both, sizeof both, "%s%s%s", shared ? shared : "", shared && shared[0] && own && own[0] ? ":" : "",
                   own ? own : "") < 0)
        return err_usage(err, "BRIG_BIND_ROOTS and BRIG_OWN_ROOTS: longer than %zu bytes", sizeof both - 1);
    int r = roots_init(&host->bind_roots, "BRIG_BIND_ROOTS", both, err);
    return r < 0 ? r : roots_init(&host->rootfs_roots, "BRIG_ROOTFS_ROOTS", getenv("BRIG_ROOTFS_ROOTS"), err);
}

int host_init(struct host *host, enum host_role role, struct netns_maker *netns, pid_t engine_pid,
              const char *helper_dir, struct brig_err *err)
{
    int r;

    *host = HOST_INIT;
    host->privileged = is_privileged();
    host->landlock_abi = landlock_abi();
    host->kvm = role == HOST_SPAWNER && host->privileged && getenv("BRIG_KVM");
    if ((r = read_roots(host, err)) < 0)
        return r;
    if ((r = find_template(host, err)) < 0 || (r = open_init(host, role, helper_dir, err)) < 0 ||
        (r = open_dirs(host, err)) < 0)
        return r;
    cg_host_init(&host->cg, engine_pid, netns->pid, host->privileged);
    owner_init(&host->owner, host->run_fd, &host->cg);
    if (role == HOST_SPAWNER && getenv("BRIG_SETS_DIR") && (r = owner_follow(&host->owner, err)) < 0) /* `brig serve`
                                                                                                         sets it */
        return r;
    host->ids_kind = IDS_RANGE;
    if (!host->privileged && (r = host_enter_user_ns(host, err)) < 0)
        return r;
    open_layers(host, role, helper_dir);
    if (role == HOST_SPAWNER)
        open_disks(host);
    netns_start(netns); /* not before the cgroups are settled: a cgroup must hold nobody else when we leave it */
    if ((r = ids_init(&host->ids, host->ids_kind, &host->ids_fd, host->ids_scope, host->sub_ids, err)) < 0)
        return r;
    r = host_build_tree(host, err);
    host->ids.proc_fd = host->proc_fd;
    host->ids.outlive = role == HOST_RUNNER;
    if (r == 0 && host->privileged && host->layers.fd >= 0)
        probe_layers(host);
    return r;
}

int host_settle(struct host *host, struct brig_err *err)
{
    if (host->settled)
        return 0;
    host->settled = true;
    read_namespaces(host);
    struct stat st;
    if (fstat(host->mnt_fd, &st) == 0)
        host->ns[NS_MNT] = (uint32_t)st.st_ino; /* the one that must not be a program's is the host's, which we left */
    return umount2("/old", MNT_DETACH) < 0 ? err_host(err, "leave the host's tree") : 0;
}

void host_done(struct host *host)
{
    int *fds[] = {&host->mnt_fd, &host->root_fd,  &host->proc_fd,  &host->probe_fd, &host->init_fd,
                  &host->run_fd, &host->cache_fd, &host->state_fd, &host->etc_fd,   &host->loop_control_fd};

    cg_host_done(&host->cg);
    layers_done(&host->layers);
    disks_done(&host->disks);
    base_close_fd(&host->owner.lock_fd);
    ids_done(&host->ids);
    base_close_fd(&host->ids_fd);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        base_close_fd(fds[i]);
}
