/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c: from a plan to a runtime that runs in the right place (stage.h). */
#include "runner/stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/str.h"
#include "host/trust.h"
#include "jail/sys.h"
#include "runner/carrier.h"

#define MOUNTS_MAX (256u << 10)

/* ---- in the child ------------------------------------------------------------------------------------- */

static int fail(const struct stage *stage, const char *what)
{
    jail_report(&stage->build.plan, SETUP_EXEC, what, errno);
    return -1;
}

static int join_cgroups(const int *tasks, int n)
{
    for (int i = 0; i < n; i++)
        if (write(tasks[i], "0", 1) != 1)
            return -1;
    return 0;
}

/* crun refuses to work where a v2 tree is mounted beside v1 ones. It needs none: it makes no cgroup. */
static int hide_v2(void)
{
    static char text[MOUNTS_MAX]; /* of this short-lived process */
    ssize_t n = fd_read_file(AT_FDCWD, "/proc/self/mountinfo", text, sizeof text);
    char *save = NULL;

    if (n < 0)
        return -1;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *word = strstr(line, " - cgroup2 ") ? line : NULL, *rest = NULL;
        for (int field = 1; word && field <= 5; field++) /* the fifth is the place */
            word = strtok_r(field == 1 ? line : NULL, " ", &rest);
        if (word && strcmp(word, "/sys/fs/cgroup") != 0 && umount2(word, MNT_DETACH) < 0)
            return -1;
    }
    return 0;
}

static int close_cgroups(void)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

    if (mount_setattr(AT_FDCWD, "/sys/fs/cgroup", AT_RECURSIVE, &attr, sizeof attr) == 0 || errno == ENOENT)
        return 0;
    return errno == EINVAL ? 0 : -1; /* it is no mount: there are no cgroups to close */
}

static int attach(int mount_fd, const char *path)
{
    return move_mount(mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* A copy of brig-init's mount, which must be taken where that file lies. */
static int clone_init(const struct host *host)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    AUTO_FD int fd = open_tree(host->init_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return -1;
    return take_fd(&fd);
}

/* The root is a link of the tenant's image at worst: every place is looked up inside of it. */
static int attach_trust(const struct stage *stage)
{
    struct brig_err err = {0};

    if (stage->trust_fd < 0 || (chdir(STAGE_ROOTFS) == 0 && trust_put(stage->trust_fd, &err) == 0))
        return 0;
    errno = err.errnum ? err.errnum : ENOENT;
    return -1;
}

static int arrange_fds(const struct carried *box, int words)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* above all that are about to be replaced */
    int listener = fcntl(box->listen_fd, F_DUPFD_CLOEXEC, SPAWNER_FD_MIN);

    words = fcntl(words, F_DUPFD_CLOEXEC, SPAWNER_FD_MIN);
    if (null < 0 || listener < 0 || words < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(words, 2) < 0 ||
        dup2(listener, STAGE_LISTEN_FD) < 0)
        return -1;
    return close_range(STAGE_LISTEN_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC);
}

int stage_enter_host(const struct host *host)
{
    return setns(host->mnt_fd, CLONE_NEWNS) < 0 || fchdir(host->root_fd) < 0 || chroot(".") < 0 || chdir("/") < 0 ? -1
                                                                                                                  : 0;
}

static _Noreturn void stage_child(const struct carried *box, const struct stage *stage, int words, const int *tasks,
                                  int n_tasks)
{
    static char *const environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    const struct host *host = &box->runner->spawner.host;
    struct setup_msg built = {.type = SETUP_MAP_ME};
    int tree = -1, store = -1, init = -1;

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != box->runner->pid)
        _exit(125);
    if (jail_build_tree(&stage->build.plan, &tree, &store) < 0)
        _exit(125);
    if (fd_send(stage->build.plan.setup_fd, &built, sizeof built, &store, 1) < 0)
        _exit(125);
    close(store);
    /* gVisor takes it by its path, and may have a stack of its own only where its runtime is not already. */
    if (!stage->guest_dir && setns(box->netns_fd, CLONE_NEWNET) < 0)
        (void)fail(stage, "network namespace");
    else if (!stage->guest_dir && jail_low_ports(&stage->build.plan) < 0)
        (void)fail(stage, "ip_unprivileged_port_start");
    else if (join_cgroups(tasks, n_tasks) < 0)
        (void)fail(stage, "cgroup");
    else if (stage_enter_host(host) < 0 || (init = clone_init(host)) < 0)
        (void)fail(stage, "host tree");
    else if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        (void)fail(stage, "mount namespace");
    else if (close_cgroups() < 0 || (stage->hide_v2 && hide_v2() < 0))
        (void)fail(stage, "/sys/fs/cgroup");
    else if (attach(stage->work_fd, "/tmp") < 0 || attach(tree, STAGE_ROOTFS) < 0 ||
             attach(init, STAGE_ROOTFS "/.brig/init") < 0 ||
             (stage->guest_dir && attach(box->guest_fd, STAGE_ROOTFS STAGE_GUEST_PLACE) < 0))
        (void)fail(stage, "attach the root");
    else if (attach_trust(stage) < 0)
        (void)fail(stage, "CA bundle");
    else if (chdir(STAGE_BUNDLE) < 0 || arrange_fds(box, words) < 0)
        (void)fail(stage, "descriptors");
    else {
        /* If the runner dies now, so does the runtime: nobody would take its answer. The next one ends what it made. */
        execve(stage->argv[0], (char *const *)(uintptr_t)stage->argv, environment);
        (void)fail(stage, stage->argv[0]);
    }
    _exit(125);
}

/* ---- in the runner ------------------------------------------------------------------------------------ */

static int make_work(struct stage *stage, struct brig_err *err)
{
    static const struct mount_option options[] = {{"mode", "711"}, {"size", "16m"}, {"nr_inodes", "1024"}};

    stage->work_fd = mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (stage->work_fd < 0 || mkdirat(stage->work_fd, "b", 0711) < 0 || mkdirat(stage->work_fd, "b/rootfs", 0711) < 0 ||
        mkdirat(stage->work_fd, "rt", 0700) < 0)
        return err_host(err, "directory of the bundle");
    return 0;
}

int stage_make_netns(struct runner *runner, int *ret_fd, struct brig_err *err)
{
    struct netns_maker *maker = &runner->spawner.netns;

    netns_start(maker);
    int fd = netns_take(maker);
    if (fd < 0)
        return err_set(err, BRIG_E_HOST, EIO, "network namespace");
    sandbox_move_up(&fd);
    *ret_fd = fd;
    return 0;
}

int stage_prepare(struct carried *box, struct stage *stage, struct brig_err *err)
{
    int pair[2];

    if (!carried_host(box)->init_is_file)
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "brig-init: it must belong to root and be writable by nobody else to be carried");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socketpair");
    stage->setup_fd = pair[0];
    stage->build.child_setup = pair[1];
    int r = sandbox_plan(&box->s, box->s.run, &stage->build, err);
    stage->build.plan.shared_fds = false;
    if (r == 0)
        r = make_work(stage, err);
    return r < 0 ? r : stage_make_netns(box->runner, &box->netns_fd, err);
}

int stage_write(const struct stage *stage, const char *name, const void *data, size_t len, struct brig_err *err)
{
    char path[64];

    if (str_format(path, sizeof path, "b/%s", name) < 0)
        return err_usage(err, "%s: too long", name);
    AUTO_FD int fd = openat(stage->work_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, data, len);
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "bundle: %s", name) : 0;
}

int stage_start(struct carried *box, struct stage *stage, struct brig_err *err)
{
    struct sandbox *s = &box->s;
    struct clone_args args = {.flags = CLONE_NEWNS | CLONE_PIDFD | CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    int pidfd = -1, words[2], tasks[CG_HIERARCHIES];
    int n = cg_open_tasks(&s->cg, tasks, CG_HIERARCHIES, err);

    if (n < 0)
        return n;
    if (pipe2(words, O_CLOEXEC) < 0) {
        fd_close_all(tasks, (size_t)n);
        return err_host(err, "pipe");
    }
    args.pidfd = (uint64_t)(uintptr_t)&pidfd;
    if (s->cg.v2_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)s->cg.v2_fd;
    }
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        stage_child(box, stage, words[1], tasks, n);
    int r = pid < 0 ? err_host(err, "clone") : 0;
    close(words[1]);
    fd_close_all(tasks, (size_t)n);
    base_close_fd(&stage->build.child_setup);
    if (r < 0) {
        close(words[0]);
        return r;
    }
    return runner_child_watch(&box->child, pid, pidfd, words[0], box->runner->start_timeout_ns, err);
}

void stage_take_report(struct carried *box, struct stage *stage, struct brig_err *err)
{
    struct setup_msg msg;
    size_t n_fds = 0;
    int fd = -1;

    while (fd_recv_nowait(stage->setup_fd, &msg, sizeof msg, &fd, 1, &n_fds) == (ssize_t)sizeof msg) {
        if (n_fds == 1 && box->s.store_fd < 0) {
            box->s.store_fd = fd;
            sandbox_move_up(&box->s.store_fd);
        } else if (n_fds == 1) {
            close(fd);
        }
        msg.what[sizeof msg.what - 1] = '\0';
        if (msg.type == SETUP_FAILED && err->code == BRIG_E_NONE)
            (void)err_set(err, BRIG_E_HOST, msg.errnum, "set-up, %s%s%s", setup_stage_name((enum setup_stage)msg.stage),
                          msg.what[0] ? ": " : "", msg.what);
    }
}

static pid_t read_pid(const struct stage *stage)
{
    char text[32];
    uint64_t pid = 0;

    if (fd_read_file(stage->work_fd, "b/pid", text, sizeof text) <= 0 || parse_fields(text, &pid, 1) != 1 || pid < 2 ||
        pid > INT32_MAX)
        return -ENOENT;
    return (pid_t)pid;
}

pid_t stage_result(struct carried *box, struct stage *stage, int status, struct brig_err *err)
{
    const char *name = box->runner->ops->name, *words = box->child.words;

    err->code = BRIG_E_NONE;
    stage_take_report(box, stage, err);
    if (err->code != BRIG_E_NONE)
        return -EIO;
    if (box->child.late)
        return err_set(err, BRIG_E_HOST, ETIMEDOUT, "%s did not come back within start_timeout, %" PRIu64 " ms", name,
                       box->runner->start_timeout_ns / NS_PER_MS);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, BRIG_E_HOST, 0, "%s ended with %s %d before brig-init ran%s%s", name,
                       WIFEXITED(status) ? "status" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), words[0] ? ": " : "", words);
    pid_t pid = read_pid(stage);
    return pid > 0 ? pid : err_set(err, BRIG_E_HOST, 0, "%s says no pid of its container", name);
}

void stage_done(struct stage *stage)
{
    sandbox_plan_done(&stage->build);
    base_close_fd(&stage->setup_fd);
    base_close_fd(&stage->work_fd);
    base_close_fd(&stage->trust_fd);
}
