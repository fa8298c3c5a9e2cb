/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runsc.c: gVisor. A sandbox is a *sentry*, which answers the system calls of its programs, and a gofer, which opens
 * files for it. Both are started by `runsc run --detach` in the same stage and from the same bundle as containers of
 * runc (oci.c), in our cgroup, so limits, freezing, counting and the end are ours here too.
 *
 * What is different:
 *
 *   stream    A listening socket cannot be handed to a guest. brig-init listens on /.brig/run/s, on a file system of
 * the box alone; `--host-uds=create` makes that a socket of the host. We have a descriptor of it. When we have
 *             connected for the first time, before any program of the tenant runs, it becomes read-only for good: root
 *             inside can neither fill it nor put another socket there. Only a socket is connected to, never what a link
 *             leads to.
 *   kernel    The version is that of the Go module where `--version` knows none. The platform is systrap where this
 *             runsc has it, else ptrace. kvm is only used when it is asked for, and when a sandbox with it has come up
 *             within KVM_PROBE_MS: it is known to hang where /dev/kvm exists.
 *   network   The guest's stack is gVisor's own, behind a gate namespace (host/netgate.h). The gofer, which has nothing
 *             to do with a network, is put there too: so the namespace lives as long as the sandbox, and the next
 *             runner finds it.
 *   reading   That another kernel answers is read from the sentry: its program is the runsc that we started, and it has
 *             a filter of its own.
 */
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "host/trust.h"
#include "jail/sys.h"
#include "runner/carrier.h"
#include "runner/oci.h"

#define KVM_PROBE_MS 5000
#define STREAM_BUFFER (1 << 20)
#define GUEST_DIR_INODES 4u /* The directory, the socket, and little else. */

/* ---- what this runsc is ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum reading_by by;
} platforms[] = {{"systrap", BY_GVISOR_SYSTRAP}, {"ptrace", BY_GVISOR_PTRACE}, {"kvm", BY_GVISOR_KVM}};

static int open_program(const struct runner *runner)
{
    return sys_openat2(runner->spawner.host.root_fd, runner->program, O_RDONLY, 0, RESOLVE_IN_ROOT);
}

/* "\nmod\tgvisor.dev/gvisor\tv0.0.0-20260905035102-160fafc42237\t": Go puts it into every program. */
static void take_module_version(struct runner *runner)
{
    static const char mark[] = "\tgvisor.dev/gvisor\tv";
    AUTO_FD int fd = open_program(runner);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0)
        return;
    size_t size = (size_t)st.st_size;
    char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED)
        return;
    const char *at = memmem(text, size, mark, sizeof mark - 1);
    if (at) {
        char version[sizeof runner->version];
        size_t left = size - (size_t)(at - text) - (sizeof mark - 1), n = 0;
        for (at += sizeof mark - 1; n < left && n + 1 < sizeof version && at[n] > ' ' && at[n] < 0x7f; n++)
            version[n] = at[n];
        version[n] = '\0';
        str_assign(runner->version, version);
    }
    munmap(text, size);
}

/* In a pid namespace of its own, so that whatever it has started ends with it. */
static _Noreturn void probe_child(const struct runner *runner)
{
    char *const argv[] = {(char *)(uintptr_t)runner->program,
                          (char *)"--platform=kvm",
                          (char *)"--network=none",
                          (char *)"--ignore-cgroups",
                          (char *)"--root=/tmp/rt",
                          (char *)"do",
                          (char *)"true",
                          NULL};
    char *const environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (stage_enter_host(&runner->spawner.host) == 0 && unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0 &&
        mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=16m") == 0) {
        int null = open("/dev/null", O_RDWR);
        if (null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0 &&
            close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
            execve(argv[0], argv, environment);
    }
    _exit(126);
}

static bool kvm_works(const struct runner *runner)
{
    int pidfd = -1, status = -1;
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_PIDFD, .exit_signal = SIGCHLD, .pidfd = (uint64_t)(uintptr_t)&pidfd};
    pid_t pid = sys_clone3(&args);

    if (pid == 0)
        probe_child(runner);
    if (pid < 0)
        return false;
    struct pollfd end = {.fd = pidfd, .events = POLLIN};
    if (RETRY(poll(&end, 1, KVM_PROBE_MS)) != 1)
        (void)!sys_pidfd_send_signal(pidfd, SIGKILL);
    (void)RETRY(waitpid(pid, &status, __WALL));
    close(pidfd);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int choose_platform(struct runner *runner, const char *flags, struct brig_err *err)
{
    const char *wish = getenv("BRIG_RUNSC_PLATFORM"), *line = strstr(flags, "-platform string");
    const char *end = line ? strstr(line, "\n  -") : NULL; /* the next flag */
    char has[512] = "";

    if (line)
        str_cut(has, end && (size_t)(end - line) < sizeof has ? (size_t)(end - line) + 1 : sizeof has, line);
    if (!wish || !*wish || str_eq(wish, "auto"))
        wish = strstr(has, "systrap") ? "systrap" : "ptrace";
    for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
        if (!str_eq(platforms[i].name, wish))
            continue;
        if (!strstr(has, wish))
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "[runsc] platform = \"%s\": %s %s does not have it", wish,
                           runner->program, runner->version);
        if (str_eq(wish, "kvm") && !kvm_works(runner))
            return err_set(err, BRIG_E_UNSUPPORTED, 0,
                           "[runsc] platform = \"kvm\": no sandbox came up with it within %d s", KVM_PROBE_MS / 1000);
        runner->platform = i;
        return 0;
    }
    return err_set(err, BRIG_E_UNSUPPORTED, 0, "[runsc] platform = \"%s\": must be auto, systrap, ptrace or kvm", wish);
}

static int runsc_open(struct runner *runner, struct brig_err *err)
{
    static char flags[65536];
    int r = oci_open(runner, err);

    if (r == 0 && str_eq(runner->version, "VERSION_MISSING"))
        take_module_version(runner);
    if (r == 0)
        r = oci_ask(runner, "flags", flags, sizeof flags, err);
    if (r < 0)
        return r;
    if (!strstr(flags, "-host-uds "))
        return err_set(err, BRIG_E_UNSUPPORTED, 0,
                       "%s %s is too old: it has no --host-uds (a release of December 2022 or newer is needed)",
                       runner->program, runner->version);
    runner->gofer_ns = strstr(flags, "-gofer-network-namespace ") != NULL;
    return choose_platform(runner, flags, err);
}

/* ---- the place of the socket --------------------------------------------------------------------------- */

static int make_guest_dir(struct carried *box, struct brig_err *err)
{
    char owner[16], inodes[16];
    const struct mount_option options[] = {
        {"mode", "700"}, {"uid", owner}, {"gid", owner}, {"size", "4096"}, {"nr_inodes", inodes}};

    (void)snprintf(owner, sizeof owner, "%u", (unsigned)box->s.ids.root);
    (void)snprintf(inodes, sizeof inodes, "%u", GUEST_DIR_INODES);
    box->guest_fd =
        mount_make("tmpfs", options, ARRAY_SIZE(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (box->guest_fd < 0)
        return err_host(err, "file system of the socket");
    sandbox_move_up(&box->guest_fd);
    return 0;
}

/* The file system itself becomes read-only, and so does every mount of it. */
static int seal_guest_dir(struct carried *box, struct brig_err *err)
{
    AUTO_FD int fs = fspick(box->guest_fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);

    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return err_host(err, "file system of the socket: read-only");
    box->sealed = true;
    return 0;
}

/* An earlier runner's: the gofer has it in its tree. It is ours if it is what make_guest_dir() makes, and sealed. */
static int open_guest_dir(const struct carried *box, pid_t pid)
{
    const struct host *host = &box->runner->spawner.host;
    struct stat st;
    struct statfs fs;
    char path[32];

    (void)snprintf(path, sizeof path, "%d/root", (int)pid);
    AUTO_FD int root = openat(host->proc_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int dir = root < 0 ? -1
                               : sys_openat2(root, &STAGE_GUEST_PLACE[1], O_PATH | O_DIRECTORY | O_NOFOLLOW, 0,
                                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (dir < 0 || fstat(dir, &st) < 0 || fstatfs(dir, &fs) < 0 || fs.f_type != TMPFS_MAGIC ||
        !(fs.f_flags & ST_RDONLY) || fs.f_files > GUEST_DIR_INODES || st.st_uid != box->s.ids.root)
        return -1;
    return take_fd(&dir);
}

/* The network namespace of a process, if that is neither the host's nor the guest's; else -1. */
static int open_gate_ns(const struct carried *box, const char *pid)
{
    const struct host *host = &box->runner->spawner.host;
    struct stat st, guest;
    char path[32];

    if (str_format(path, sizeof path, "%d/ns/net", (int)box->s.pid) < 0 ||
        fstatat(host->proc_fd, path, &guest, 0) < 0 || str_format(path, sizeof path, "%s/ns/net", pid) < 0)
        return -1;
    AUTO_FD int fd = openat(host->proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino == guest.st_ino || (uint32_t)st.st_ino == host->ns[NS_NET])
        return -1;
    return take_fd(&fd);
}

/* The gofer has both: the directory of the socket, and the gate namespace. */
static int runsc_find(struct carried *box, struct brig_err *err)
{
    const struct cg *cg = &box->s.cg;
    char text[16384], *save = NULL;
    int dir = cg->v2_fd;

    for (size_t i = 0; dir < 0 && i < CG_HIERARCHIES; i++)
        dir = cg->v1_fd[i];
    if (fd_read_file(dir, "cgroup.procs", text, sizeof text) < 0)
        return err_host(err, "cgroup.procs");
    for (char *word = strtok_r(text, "\n", &save); word && box->guest_fd < 0; word = strtok_r(NULL, "\n", &save)) {
        uint64_t pid;
        if (parse_u64(word, &pid) == 0 && pid > 1 && pid <= INT32_MAX)
            box->guest_fd = open_guest_dir(box, (pid_t)pid);
        if (box->guest_fd >= 0 && box->s.run->gate.on)
            box->s.gate_ns_fd = open_gate_ns(box, word);
    }
    if (box->guest_fd < 0)
        return err_set(err, BRIG_E_HOST, ENOENT, "the socket of sandbox %s is not there any more", box->s.id);
    sandbox_move_up(&box->guest_fd);
    sandbox_move_up(&box->s.gate_ns_fd);
    box->sealed = true;
    return 0;
}

/* ---- a sandbox ---------------------------------------------------------------------------------------- */

/* The guest's own kernel mounts the root, so a CA bundle must be in it before. */
static int take_trust(struct carried *box, struct stage *stage, struct brig_err *err)
{
    struct sandbox *s = &box->s;

    if (s->run->trust_fd < 0)
        return 0;
    s->trust = true; /* It is forgotten at the end. */
    stage->trust_fd = trust_make(s->id, s->run->trust_fd, s->ids.root, err);
    base_close_fd(&s->run->trust_fd);
    return stage->trust_fd < 0 ? stage->trust_fd : 0;
}

/* The places that the guest shares with us, and its network. */
static int runsc_prepare(struct carried *box, struct stage *stage, struct brig_err *err)
{
    struct sandbox *s = &box->s;
    const struct host *host = &s->spawner->host;

    if (s->run->gate.on && !box->runner->gofer_ns)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "runsc %s has no network here: a newer one is needed",
                       box->runner->version);
    /* A gofer makes files as root inside, which a bind of one user's files has no id for. */
    for (unsigned i = 0; i < s->run->n_binds; i++)
        if (!s->run->binds[i].read_only)
            return err_set(err, BRIG_E_UNSUPPORTED, 0, "bind %s: the provider runsc has no writable binds",
                           s->run->binds[i].target);
    int r = make_guest_dir(box, err);
    stage->guest_dir = true;
    if (r == 0)
        r = take_trust(box, stage, err);
    if (r < 0 || !s->run->gate.on)
        return r;
    r = stage_make_netns(box->runner, &s->gate_ns_fd, err);
    const struct netgate_place place = {
        .ns_fd = s->gate_ns_fd, .behind = true, .proc_fd = host->proc_fd, .host_ns = host->ns[NS_NET]};
    return r < 0 ? r : netgate_link(&place, box->netns_fd, err);
}

static void runsc_argv(const struct carried *box, const char **argv)
{
    static char platform[32], gofer[64];
    const struct runner *runner = box->runner;
    size_t n = 0;

    (void)snprintf(platform, sizeof platform, "--platform=%s", platforms[runner->platform].name);
    argv[n++] = runner->program;
    argv[n++] = "--root=" STAGE_STATE;
    argv[n++] = platform;
    argv[n++] = "--ignore-cgroups";
    argv[n++] = "--overlay2=none"; /* what is written goes to our bounded store */
    argv[n++] = "--host-uds=create";
    argv[n++] = box->s.run->gate.on ? "--network=sandbox" : "--network=none";
    str_assign(gofer, "--gofer-network-namespace=new"); /* else one of all gofers stays mounted */
    if (box->s.gate_ns_fd >= 0)
        (void)snprintf(gofer, sizeof gofer, "--gofer-network-namespace=/proc/%d/fd/%d", (int)runner->pid,
                       box->s.gate_ns_fd);
    if (runner->gofer_ns)
        argv[n++] = gofer;
    argv[n++] = "run";
    argv[n++] = "--detach";
    argv[n++] = "--pid-file=" STAGE_PID;
    argv[n++] = "--bundle=" STAGE_BUNDLE;
    argv[n++] = box->s.id;
    argv[n] = NULL;
}

static int runsc_connect(struct carried *box, struct brig_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    int size = STREAM_BUFFER;
    AUTO_FD int name = sys_openat2(box->guest_fd, "s", O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (name < 0 || fd < 0)
        return err_host(err, "connect to brig-init");
    if (fstat(name, &st) < 0 || !S_ISSOCK(st.st_mode))
        return err_set(err, BRIG_E_HOST, ENOTSOCK, "connect to brig-init");
    (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d", name);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) < 0)
        return err_host(err, "connect to brig-init");
    int r = box->sealed ? 0 : seal_guest_dir(box, err);
    if (r < 0)
        return r;
    (void)!setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    return take_fd(&fd);
}

static bool is_runsc(const struct carried *box, const char *pid)
{
    struct stat ours, its;
    char path[32];
    AUTO_FD int program = open_program(box->runner);

    return str_format(path, sizeof path, "%s/exe", pid) > 0 && program >= 0 && fstat(program, &ours) == 0 &&
           fstatat(box->runner->spawner.host.proc_fd, path, &its, 0) == 0 && ours.st_ino == its.st_ino &&
           ours.st_dev == its.st_dev;
}

/* The sentry is the program that we started, and has a filter. */
static bool is_sentry(const struct carried *box)
{
    const struct host *host = &box->runner->spawner.host;
    char path[32], text[4096], *line;
    uint64_t mode = 0;

    (void)snprintf(path, sizeof path, "%d", (int)box->s.pid);
    if (!is_runsc(box, path))
        return false;
    (void)snprintf(path, sizeof path, "%d/status", (int)box->s.pid);
    if (fd_read_file(host->proc_fd, path, text, sizeof text) <= 0 || !(line = strstr(text, "\nSeccomp:")))
        return false;
    return parse_fields(line + strlen("\nSeccomp:"), &mode, 1) == 1 && mode == 2;
}

static int runsc_judge(struct carried *box, struct brig_err *err)
{
    box->s.own_kernel = (uint8_t)platforms[box->runner->platform].by;
    return is_sentry(box) ? 0 : err_set(err, BRIG_E_HOST, 0, "pid 1 of the container is no sentry of gVisor");
}

static const struct oci_runtime runtime = {.argv = runsc_argv, .prepare = runsc_prepare};

const struct carrier_ops carrier_runsc = {.name = "runsc",
                                          .traces = true,
                                          .oci = &runtime,
                                          .open = runsc_open,
                                          .start = oci_start,
                                          .judge = runsc_judge,
                                          .connect = runsc_connect,
                                          .find = runsc_find};
