/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_helper.c: does work that needs the host's tree, which the spawner has left. A short-lived child joins the tree's
 * mount namespace, does one thing and hands a descriptor back. A detached mount made there can be attached in any
 * sandbox, so a source is resolved once, by descriptor, and never by path again.
 */
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "host/dirs.h"
#include "host/host.h"
#include "jail/image_shape.h"
#include "jail/sys.h"

struct answer {
    struct brig_err err;
    bool is_dir;
    uid_t uid;
    gid_t gid;
};

/* an fd, or < 0 */
typedef int helper_fn(const struct host *host, const void *arg, struct answer *answer, struct brig_err *err);

static _Noreturn void helper_child(const struct host *host, helper_fn *fn, const void *arg, int sock, pid_t spawner)
{
    struct answer answer = {.err = {.code = BRIG_E_NONE}};
    int fd = -1;

    if (!sys_die_with(spawner)) /* else it held the spawner's locks while it works */
        _exit(1);
    if (setns(host->mnt_fd, CLONE_NEWNS) < 0 || fchdir(host->root_fd) < 0 || chroot(".") < 0)
        (void)err_host(&answer.err, "join the host's tree");
    else
        fd = fn(host, arg, &answer, &answer.err);
    _exit(fd_send(sock, &answer, sizeof answer, &fd, fd >= 0) < 0);
}

static int helper_run(const struct host *host, helper_fn *fn, const void *arg, struct answer *answer, int *ret_fd,
                      struct brig_err *err)
{
    int pair[2], status, fd = -1;
    size_t n_fds = 0;
    pid_t self = getpid();

    if (SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    pid_t child = SYS(fork());
    if (child < 0)
        return err_host(err, "fork");
    if (child == 0)
        helper_child(host, fn, arg, theirs, self);
    base_close_fd(&theirs);
    ssize_t n = fd_recv(ours, answer, sizeof *answer, &fd, 1, &n_fds);
    (void)RETRY(waitpid(child, &status, 0));
    AUTO_FD int got = n_fds ? fd : -1;
    if (n != (ssize_t)sizeof *answer)
        return err_set(err, BRIG_E_HOST, n < 0 ? (int)-n : EPIPE, "helper process");
    answer->err.message[sizeof answer->err.message - 1] = '\0';
    if (got < 0)
        return err_set(err, (enum brig_code)answer->err.code, answer->err.code == BRIG_E_HOST ? answer->err.errnum : 0,
                       "%s", answer->err.message);
    *ret_fd = take_fd(&got);
    return 0;
}

/* ---- sources of binds ---------------------------------------------------------------------------- */

/*
 * Nothing at, below or above these paths is ever bound: the kernel's own trees, and the sockets and state that control
 * the host.
 */
static const char *const forbidden[] = {
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/run",
    "/var/lib/brig",
    "/var/cache/brig",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/containers",
};

static bool is_below_or_same(const char *path, const char *top)
{
    size_t len = strlen(top);

    return strncmp(path, top, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/*
 * These lie in our own directories only to be bound: unpacked root file systems, dependency sets, parts of images, what
 * virtual machines boot or begin from (never the directory of all of them), and the directory of tools that have none
 * of their own. roots.c decides which of them a service may ask for.
 */
static bool is_made_to_share(const char *path)
{
    static const struct {
        enum brig_dir dir;
        const char *name;
        bool itself;
    } shared[] = {{BRIG_DIR_CACHE, "rootfs", false},           {BRIG_DIR_CACHE, "sets", false},
                  {BRIG_DIR_STATE, "templates/blobs", false},  {BRIG_DIR_STATE, "templates/work", false},
                  {BRIG_DIR_STATE, "service/vm/boot", false},  {BRIG_DIR_STATE, "service/vm/snapshots", false},
                  {BRIG_DIR_STATE, "tool_execution_dir", true}};
    char dir[4096], top[4096 + 32];

    for (size_t i = 0; i < ARRAY_SIZE(shared); i++) {
        if (dirs_path(shared[i].dir, dir, sizeof dir, NULL) < 0)
            continue;
        snprintf(top, sizeof top, "%s/%s", dir, shared[i].name);
        if (is_below_or_same(path, top) && (shared[i].itself || path[strlen(top)] == '/'))
            return true;
    }
    return false;
}

static const char *forbidden_by(const char *path)
{
    static char dir[4096];

    if (strcmp(path, "/") == 0)
        return "/";
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
        if ((is_below_or_same(path, forbidden[i]) || is_below_or_same(forbidden[i], path)) && !is_made_to_share(path))
            return forbidden[i];
    for (int i = 0; i < BRIG_DIR_MAX; i++)
        if (dirs_path((enum brig_dir)i, dir, sizeof dir, NULL) == 0 &&
            (is_below_or_same(path, dir) || is_below_or_same(dir, path)) && !is_made_to_share(path))
            return dir;
    return NULL;
}

/* The kernel's file systems under whatever name they are mounted. */
static bool is_kernel_fs(int fd)
{
    static const long magics[] = {PROC_SUPER_MAGIC,   SYSFS_MAGIC,   CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                  DEVPTS_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,      BPF_FS_MAGIC,
                                  SECURITYFS_MAGIC,   NSFS_MAGIC,    SELINUX_MAGIC,      BINFMTFS_MAGIC,
                                  EFIVARFS_MAGIC,     0x19800202 /* mqueue */};
    struct statfs fs;

    if (fstatfs(fd, &fs) < 0)
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
        if (fs.f_type == magics[i])
            return true;
    return false;
}

static bool is_same_file(const struct stat *st, const char *path)
{
    struct stat other;

    return stat(path, &other) == 0 && st->st_dev == other.st_dev && st->st_ino == other.st_ino;
}

static int check_source(int fd, const char *asked, struct stat *st, struct brig_err *err)
{
    char link[40], path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || fstat(fd, st) < 0)
        return err_host(err, "bind source %s", asked);
    path[n] = '\0';
    const char *rule = forbidden_by(path);
    /* The same directory under another name (a bind mount of /, say) is the same directory. */
    for (size_t i = 0; !rule && i < ARRAY_SIZE(forbidden); i++)
        if (is_same_file(st, forbidden[i]))
            rule = forbidden[i];
    if (!rule && is_same_file(st, "/"))
        rule = "/";
    if (rule)
        return err_usage(err, "bind source %s: it is, contains or lies in %s, which is never shared with a sandbox",
                         asked, rule);
    if (is_kernel_fs(fd))
        return err_usage(err, "bind source %s: lies on a kernel file system, which is never shared with a sandbox",
                         asked);
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
        return err_usage(err, "bind source %s: must be a directory or a regular file", asked);
    return 0;
}

struct source {
    const char *path, *below; /* below: NULL, or a part of path that the rest must not lead out of */
};

static int open_source(const struct source *source, int flags)
{
    if (!source->below)
        return SYS(sys_openat2(AT_FDCWD, source->path, (uint64_t)flags, 0, RESOLVE_NO_MAGICLINKS));
    /* The administrator's own path may lead over symlinks; from there on a tenant may have made them. */
    AUTO_FD int top = SYS(
        sys_openat2(AT_FDCWD, source->below[0] ? source->below : "/", O_PATH | O_DIRECTORY, 0, RESOLVE_NO_MAGICLINKS));
    const char *rest = source->path + strlen(source->below);
    while (*rest == '/')
        rest++;
    return top < 0 ? -1
                   : SYS(sys_openat2(top, *rest ? rest : ".", (uint64_t)flags, 0,
                                     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS));
}

static bool is_callers_fault(int errnum)
{
    return errnum == ENOENT || errnum == ENOTDIR || errnum == EACCES || errnum == ELOOP || errnum == EXDEV;
}

static int clone_source(const struct host *host UNUSED, const void *arg, struct answer *answer, struct brig_err *err)
{
    const struct source *source = arg;
    const char *path = source->path;
    struct stat st;
    AUTO_FD int fd = open_source(source, O_PATH);

    if (fd < 0)
        return is_callers_fault(errno) ? err_usage(err, "bind source %s: %s", path, strerror(errno))
                                       : err_host(err, "bind source %s", path);
    int r = check_source(fd, path, &st, err);
    if (r < 0)
        return r;
    answer->is_dir = S_ISDIR(st.st_mode);
    answer->uid = st.st_uid;
    answer->gid = st.st_gid;
    int clone = SYS(open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    return clone < 0 ? err_host(err, "bind source %s", path) : clone;
}

int helper_clone_source(const struct host *host, const char *path, const char *below, struct bind_source *ret,
                        struct brig_err *err)
{
    const struct source source = {path, below};
    struct answer answer;
    int fd = -1;
    int r = helper_run(host, clone_source, &source, &answer, &fd, err);

    if (r < 0)
        return r;
    *ret = (struct bind_source){.mount_fd = fd, .is_dir = answer.is_dir, .uid = answer.uid, .gid = answer.gid};
    return 0;
}

static int clone_rootfs(const struct host *host UNUSED, const void *arg, struct answer *answer UNUSED,
                        struct brig_err *err)
{
    const struct source *source = arg;
    const char *path = source->path;
    struct stat st;
    AUTO_FD int fd = open_source(source, O_PATH | O_DIRECTORY);

    if (fd < 0)
        return err_usage(err, "rootfs %s: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0)
        return err_host(err, "rootfs %s", path);
    if (is_same_file(&st, "/"))
        return err_usage(err, "rootfs %s: the host's own root is the template `host`, not a rootfs", path);
    if (is_kernel_fs(fd))
        return err_usage(err, "rootfs %s: lies on a kernel file system", path);
    int clone = SYS(open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
    return clone < 0 ? err_host(err, "rootfs %s", path) : clone;
}

int helper_clone_rootfs(const struct host *host, const char *path, const char *below, int *ret_mount_fd,
                        struct brig_err *err)
{
    const struct source source = {path, below};
    struct answer answer;

    return helper_run(host, clone_rootfs, &source, &answer, ret_mount_fd, err);
}

/* ---- mkfs ---------------------------------------------------------------------------------------- */

struct mkfs_arg {
    const char *tool;
    int image_fd;
    char *const *argv;
};

static _Noreturn void exec_tool(const struct mkfs_arg *mkfs)
{
    static const char *const dirs[] = {"/usr/sbin", "/sbin"};
    char *const envp[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int null = open("/dev/null", O_RDWR);

    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    (void)!fd_set_cloexec(mkfs->image_fd, false);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", dirs[i], mkfs->tool);
        execve(path, mkfs->argv, envp);
    }
    _exit(127);
}

static int make_fs(const struct host *host UNUSED, const void *arg, struct answer *answer UNUSED, struct brig_err *err)
{
    const struct mkfs_arg *mkfs = arg;
    int status;
    pid_t child = SYS(fork());

    if (child == 0)
        exec_tool(mkfs);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return err_host(err, "%s", mkfs->tool);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "%s: %s", mkfs->tool,
                       WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "not installed" : "failed");
    return dup(mkfs->image_fd);
}

static int run_mkfs(const struct host *host, const char *tool, int image_fd, char *const *argv, struct brig_err *err)
{
    const struct mkfs_arg arg = {tool, image_fd, argv};
    struct answer answer;
    int fd = -1;
    int r = helper_run(host, make_fs, &arg, &answer, &fd, err);

    base_close_fd(&fd);
    return r;
}

int helper_mkfs(const struct host *host, int image_fd, const struct image_shape *shape, struct brig_err *err)
{
    char path[40], inodes[32], group[32], journal[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", image_fd);
    snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)shape->inodes);
    snprintf(group, sizeof group, "%llu", (unsigned long long)shape->group_blocks);
    snprintf(journal, sizeof journal, "size=%u", shape->journal_mib);
    /*
     * A store that dies with its sandbox has no journal. There are no reserved blocks, and nothing is initialised that
     * mount can do later. "encrypt" encrypts nothing: with it, ext4 puts a write into single pages. Without it (since
     * 6.16) a large write goes into folios of up to 2 MiB, and each is refused as a whole: ENOSPC with 2 MiB to spare.
     */
    char *plain[] = {(char *)"-O",
                     (char *)"^has_journal,^resize_inode,^metadata_csum,^64bit,uninit_bg,sparse_super2,encrypt",
                     (char *)"-E", (char *)"num_backup_sb=0,lazy_itable_init=1"};
    char *lasting[] = {
        (char *)"-O", (char *)"has_journal,^resize_inode,^metadata_csum,^64bit,uninit_bg,sparse_super2,encrypt",
        (char *)"-E", (char *)"num_backup_sb=0,lazy_itable_init=1,lazy_journal_init=1",
        (char *)"-J", journal};
    char *argv[32] = {
        (char *)"mkfs.ext4", (char *)"-q", (char *)"-F", (char *)"-b", (char *)"4096", (char *)"-I", (char *)"256",
        (char *)"-m",        (char *)"0",  (char *)"-N", inodes,       (char *)"-g",   group};
    size_t n = 13;

    for (size_t i = 0; i < (shape->journal_mib ? ARRAY_SIZE(lasting) : ARRAY_SIZE(plain)); i++)
        argv[n++] = shape->journal_mib ? lasting[i] : plain[i];
    argv[n] = path;
    return run_mkfs(host, "mkfs.ext4", image_fd, argv, err);
}

int helper_mkfs_xfs(const struct host *host, int file_fd, struct brig_err *err)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", file_fd);
    /* -K: a discard would make holes. The device has sectors of 4096 bytes. */
    char *const argv[] = {(char *)"mkfs.xfs",
                          (char *)"-q",
                          (char *)"-f",
                          (char *)"-K",
                          (char *)"-s",
                          (char *)"size=4096",
                          (char *)"-m",
                          (char *)"reflink=1,rmapbt=0",
                          path,
                          NULL};
    return run_mkfs(host, "mkfs.xfs", file_fd, argv, err);
}

/* ---- idmapped mounts ------------------------------------------------------------------------------ */

/* A namespace needs a process until it is open. This one shares our memory, since a copy would take longer than all the
 * rest, and changes none of it. */
static int be_in_the_namespace(void *spawner)
{
    while (sys_die_with(*(const pid_t *)spawner))
        pause();
    return 0;
}

int helper_idmap_ns(const struct host *host, const char *uid_map, const char *gid_map, int *ret_fd,
                    struct brig_err *err)
{
    static _Alignas(16) char stack[16u << 10];
    char path[48];
    pid_t self = getpid();
    pid_t child =
        SYS(clone(be_in_the_namespace, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_NEWUSER | SIGCHLD, &self));

    if (child < 0)
        return err_host(err, "user namespace for ids");
    snprintf(path, sizeof path, "%d/uid_map", (int)child);
    int r = fd_write_file(host->proc_fd, path, uid_map);
    snprintf(path, sizeof path, "%d/gid_map", (int)child);
    if (r == 0)
        r = fd_write_file(host->proc_fd, path, gid_map);
    snprintf(path, sizeof path, "%d/ns/user", (int)child);
    int fd = r == 0 ? SYS(openat(host->proc_fd, path, O_RDONLY | O_CLOEXEC)) : -1;
    int saved = r < 0 ? -r : errno;
    kill(child, SIGKILL);
    (void)RETRY(waitpid(child, NULL, 0));
    if (fd < 0)
        return err_set(err, BRIG_E_HOST, saved, "user namespace for ids");
    *ret_fd = fd;
    return 0;
}

int helper_idmap(int mount_fd, int userns_fd)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (__u64)userns_fd};

    if (SYS(mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof attr)) < 0)
        return errno == EINVAL || errno == EPERM ? -EOPNOTSUPP : -errno;
    return 0;
}
