/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker_root.c: gives a container the file systems of its sandbox.
 *
 * Theory of operation. An engine takes an image and paths of the host. It would follow links in those paths, copy a
 * template into its own store, and bound nothing that is written. So it is only asked for an empty shell: namespaces,
 * a filter, and brig-init. While that waits for its START and nothing of a user has run, a child of ours builds the
 * same tree as for a sandbox of `local`, and makes it the root of the container:
 *
 *   1  it enters the container's pid namespace, so that the /proc which it mounts is of that one;
 *   2  for an image of the engine it takes a copy of the mount that is the container's root;
 *   3  it builds the tree in our own mount namespace (jail/tree.c): template, layers, directory or that image below,
 *      a bounded store, binds that were opened without following a link, /dev, /proc;
 *   4  it enters the container's mount namespace, attaches the tree and pivots. The kernel moves the root of every
 *      process there, and the engine's mounts are gone;
 *   5  it looks back: the root of the container's pid 1 is that tree.
 *
 * What an image or a template has at /dev, /proc or /.brig lies below our own layer, and no mount of the tree allows
 * set-id bits or devices. A container that shares a namespace with us is refused in docker_root_start(): to pivot in
 * it would be to pivot the host.
 */
#include "runner/engine/docker_root.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "jail/sys.h"
#include "runner/engine/dock_container.h"

#define INIT_PLACE ".brig/init"
#define RUN_PLACE ".brig/run"

/* ---- in the child ------------------------------------------------------------------------------------- */

static _Noreturn void fail(const struct jail_plan *plan, const char *what)
{
    jail_report(plan, SETUP_PIVOT, what, errno);
    _exit(125);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int clone_mount(const char *path, uint64_t attributes)
{
    AUTO_FD int fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

    return fd < 0 || mount_attributes(fd, attributes, false) < 0 ? -1 : take_fd(&fd);
}

/* Copies of brig-init and of the directory of its socket, taken in the host's tree, where the engine has found them. */
static int clone_own(const struct carried *box, int *ret_init, int *ret_run)
{
    const uint64_t bare = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    char init[4200], run[4200];

    if (stage_enter_host(&box->runner->spawner.host) < 0 ||
        str_format(init, sizeof init, "%s/init", box->runner->dir) < 0 ||
        str_format(run, sizeof run, "%s/%s/" DOCKER_SOCKET_DIR, box->runner->dir, box->s.id) < 0)
        return -1;
    *ret_init = clone_mount(init, bare | MOUNT_ATTR_RDONLY);
    *ret_run = clone_mount(run, bare | MOUNT_ATTR_NOEXEC);
    return *ret_init < 0 || *ret_run < 0 ? -1 : 0;
}

/* The place in the container where the engine has mounted the directory of the socket: there, and nowhere else. */
static int open_place(int run)
{
    struct stat wanted, found;
    AUTO_FD int place = open(DOCK_DIR_INSIDE, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (place < 0 || fstat(place, &found) < 0 || fstat(run, &wanted) < 0)
        return -1;
    errno = ENOENT;
    return same_file(&wanted, &found) ? take_fd(&place) : -1;
}

/* We are in the container's mount namespace. */
static void take_over(const struct carried *box, const struct docker_root *root, const struct jail_plan *plan, int tree,
                      int init, int run)
{
    struct stat ours, theirs;
    char path[32];
    AUTO_FD int place = open_place(run);

    if (place < 0 || move_mount(tree, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        fail(plan, DOCK_DIR_INSIDE " of the container");
    if (mount_attach(init, tree, INIT_PLACE) < 0 || mount_attach(run, tree, RUN_PLACE) < 0)
        fail(plan, "brig-init");
    if (fchdir(tree) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        fail(plan, "root of the container");
    (void)snprintf(path, sizeof path, "%d/root", (int)root->pid);
    errno = EXDEV;
    if (fstat(tree, &ours) < 0 || fstatat(box->runner->spawner.host.proc_fd, path, &theirs, 0) < 0 ||
        !same_file(&ours, &theirs))
        fail(plan, "root of the container: another kernel or runtime has it");
}

static _Noreturn void build(const struct carried *box, const struct docker_root *root)
{
    const struct host *host = &box->runner->spawner.host;
    struct jail_plan plan = root->stage.build.plan;
    struct setup_msg built = {.type = SETUP_MAP_ME};
    int tree = -1, store = -1, init = -1, run = -1;
    int own = openat(host->proc_fd, "self/ns/mnt", O_RDONLY | O_CLOEXEC);

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || own < 0)
        fail(&plan, "child");
    if (root->of_image && (setns(root->mnt_fd, CLONE_NEWNS) < 0 || (plan.rootfs_fd = clone_mount("/", 0)) < 0 ||
                           setns(own, CLONE_NEWNS) < 0))
        fail(&plan, "image in the container");
    if (jail_build_tree(&plan, &tree, &store) < 0)
        _exit(125);
    if (fd_send(plan.setup_fd, &built, sizeof built, &store, 1) < 0)
        _exit(125);
    close(store);
    if (clone_own(box, &init, &run) < 0)
        fail(&plan, "brig-init in the run directory");
    if (setns(root->mnt_fd, CLONE_NEWNS) < 0)
        fail(&plan, "mount namespace of the container");
    take_over(box, root, &plan, tree, init, run);
    _exit(0);
}

/* A process is in a pid namespace from its birth on. */
static _Noreturn void root_child(const struct carried *box, const struct docker_root *root)
{
    int status = 0;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != box->runner->pid)
        _exit(125);
    if (setns(root->pid_fd, CLONE_NEWPID) < 0)
        fail(&root->stage.build.plan, "pid namespace of the container");
    pid_t pid = fork();
    if (pid == 0)
        build(box, root);
    if (pid < 0 || RETRY(waitpid(pid, &status, 0)) < 0)
        _exit(125);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
}

/* ---- in the runner ------------------------------------------------------------------------------------ */

/* Opens a namespace of the container, which must not be that of the host. */
static int open_ns(const struct host *host, pid_t pid, const char *name, enum guest_ns ns, struct brig_err *err)
{
    char path[32];
    struct stat st;

    (void)snprintf(path, sizeof path, "%d/ns/%s", (int)pid, name);
    AUTO_FD int fd = openat(host->proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_host(err, "%s namespace of the container", name);
    (void)snprintf(path, sizeof path, "self/ns/%s", name);
    struct stat own;
    if (fstatat(host->proc_fd, path, &own, 0) < 0 || same_file(&st, &own) || host->ns[ns] == 0 ||
        (uint32_t)st.st_ino == host->ns[ns])
        return err_set(err, BRIG_E_HOST, 0, "the container has no %s namespace of its own", name);
    return take_fd(&fd);
}

static bool is_place(const struct run_spec *run, const char *path)
{
    static const char *const places[] = GUEST_PLACES;

    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (str_eq(places[i], path))
            return true;
    for (unsigned i = 0; i < run->n_tmpfs; i++)
        if (str_eq(run->tmpfs[i].path, path))
            return true;
    return str_eq(path, "/dev/shm");
}

/* The volumes of an image become places in memory: an engine's own would have no bound. */
static int take_volumes(struct sandbox *s, const struct docker_image *image, struct brig_err *err)
{
    struct run_spec *run = s->run;

    for (size_t i = 0; i < image->n_volumes; i++) {
        if (is_place(run, image->volumes[i]))
            continue;
        if (run->n_tmpfs == WIRE_TMPFS_MAX)
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "more than %u places in memory, with the volumes of the image",
                           WIRE_TMPFS_MAX);
        run->tmpfs[run->n_tmpfs++] = (struct plan_tmpfs){image->volumes[i], s->limits.disk};
    }
    return 0;
}

static int make_plan(struct carried *box, struct docker_root *root, struct brig_err *err)
{
    struct sandbox *s = &box->s;
    struct build *b = &root->stage.build;
    struct jail_plan *plan = &b->plan;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socketpair");
    root->stage.setup_fd = pair[0];
    b->child_setup = pair[1];
    int r = sandbox_plan(s, s->run, b, err);
    if (r < 0)
        return r;
    plan->shared_fds = false;
    plan->with_proc = true;
    plan->own_sysctl = false;
    return 0;
}

static int start_child(struct carried *box, const struct docker_root *root, struct brig_err *err)
{
    struct clone_args args = {.flags = CLONE_NEWNS | CLONE_PIDFD | CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    int pidfd = -1, words[2];

    if (pipe2(words, O_CLOEXEC) < 0)
        return err_host(err, "pipe");
    args.pidfd = (uint64_t)(uintptr_t)&pidfd;
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        root_child(box, root);
    close(words[1]);
    if (pid < 0) {
        close(words[0]);
        return err_host(err, "clone");
    }
    return runner_child_watch(&box->child, pid, pidfd, words[0], box->runner->start_timeout_ns, err);
}

int docker_root_start(struct carried *box, struct docker_root *root, pid_t pid, const struct docker_image *image,
                      struct brig_err *err)
{
    const struct host *host = carried_host(box);
    int r;

    root->pid = pid;
    r = root->mnt_fd = open_ns(host, pid, "mnt", NS_MNT, err);
    if (r >= 0)
        r = root->pid_fd = open_ns(host, pid, "pid", NS_PID, err);
    root->of_image = image != NULL;
    if (r >= 0 && image)
        r = take_volumes(&box->s, image, err);
    if (r >= 0)
        r = make_plan(box, root, err);
    if (r >= 0)
        r = start_child(box, root, err);
    base_close_fd(&root->stage.build.child_setup);
    return r;
}

int docker_root_result(struct carried *box, struct docker_root *root, int status, struct brig_err *err)
{
    err->code = BRIG_E_NONE;
    stage_take_report(box, &root->stage, err);
    if (err->code != BRIG_E_NONE)
        return -EIO;
    if (box->child.late)
        return err_set(err, BRIG_E_TIMEOUT, ETIMEDOUT, "the root of the container was not built within start_timeout");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, BRIG_E_HOST, 0, "the container ended before it had its root");
    return 0;
}

void docker_root_done(struct docker_root *root)
{
    stage_done(&root->stage);
    base_close_fd(&root->mnt_fd);
    base_close_fd(&root->pid_fd);
}
