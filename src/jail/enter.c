/* SPDX-License-Identifier: Apache-2.0 */
/*
 * enter.c: from a cloned process to pid 1 of a sandbox.
 *
 * Theory of operation. The spawner has cloned this process into new mount, pid, ipc and uts namespaces (and, on cgroup
 * v2, into its cgroup), but not into a user namespace: mounts and a prepared network namespace need the spawner's. The
 * order is fixed, and each step relies on the one before:
 *
 *    1 host name
 *    2 file systems, pivot      while the spawner's user namespace still owns the mount namespace
 *    3 network, cgroup v1       made by the spawner meanwhile; joined before the cgroup namespace, or /proc/self/cgroup
 *                               shows the host's path
 *    4 cgroup namespace
 *    5 user namespace           last: it owns none of the others, so even all its capabilities cannot mount,
 *                               unmount or set the host name. Made with the sandbox's own id as effective uid,
 *                               because the kernel charges per-user counts to the creator. The spawner writes the maps.
 *    6 user.max_*_namespaces=0, session, keyring, rlimits (counted in the new user namespace)
 *    7 capabilities, no_new_privs, Landlock, seccomp
 *    8 execve of brig-init with two descriptors: control and probe
 *
 * With plan.adopt (the child of a zygote) pid 1 makes a process of its own memory at 8: pid 2 has every layer by
 * inheritance, leaves these stages, and brig-init finds it as its child, with the other ends of its pipes.
 *
 * Invariants: no allocation, no stdio, no locale; every failure is reported with its stage and ends the process.
 */
#include <net/if.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <grp.h>
#include <time.h>

#include "base/fd.h"
#include "jail/plan.h"
#include "jail/seccomp.h"
#include "jail/sys.h"

#define SEND_TRIES 500 /* one second */
#define SEND_PAUSE_NS 2000000

_Static_assert((int)JAIL_PROFILE_MAX == (int)BRIG_PROFILE_MAX, "seccomp profiles are the public ones");

/* By what each does: the name is what a reader of the failure looks for. */
static const char *const stage_names[] = {
    [SETUP_FDS] = "descriptors",
    [SETUP_OOM_SCORE] = "oom score",
    [SETUP_HOST_NAME] = "host name",
    [SETUP_ROOT] = "root",
    [SETUP_TEMPLATE] = "template",
    [SETUP_ETC] = "etc",
    [SETUP_PROC] = "proc",
    [SETUP_DEV] = "dev",
    [SETUP_STORE] = "store",
    [SETUP_BINDS] = "binds",
    [SETUP_VOLUMES] = "volumes",
    [SETUP_TMPFS] = "tmpfs",
    [SETUP_PIVOT] = "pivot",
    [SETUP_TAKE_PREPARED] = "prepared parts",
    [SETUP_NETWORK] = "network",
    [SETUP_CGROUP] = "cgroup",
    [SETUP_CGROUP_NS] = "cgroup namespace",
    [SETUP_USER_NS] = "user namespace",
    [SETUP_IDS] = "ids",
    [SETUP_SYSCTL] = "sysctl",
    [SETUP_SESSION] = "session",
    [SETUP_RLIMITS] = "rlimits",
    [SETUP_CAPS] = "capabilities",
    [SETUP_NO_NEW_PRIVS] = "no_new_privs",
    [SETUP_LANDLOCK] = "landlock",
    [SETUP_SECCOMP] = "seccomp",
    [SETUP_FORK] = "fork",
    [SETUP_WORKDIR] = "working directory",
    [SETUP_CHECK] = "self-check",
    [SETUP_EXEC] = "exec",
};
_Static_assert(ARRAY_SIZE(stage_names) == SETUP_STAGE_MAX, "a name for every stage");

const char *setup_stage_name(enum setup_stage stage)
{
    return (unsigned)stage < SETUP_STAGE_MAX ? stage_names[stage] : "unknown stage";
}

/* Copies the few descriptors we need, instead of all that the spawner has. */
static int own_fds(struct enter *e)
{
    if (e->plan->shared_fds)
        TRY(e, "own table", SYS(close_range((unsigned)e->plan->highest_fd + 1, ~0u, CLOSE_RANGE_UNSHARE)));
    /* a bad one is found when it is used */
    e->sysctl_fd = openat(e->plan->host_proc_fd, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

/* While our own /proc entry still belongs to us. Through the full procfs: "self" is right in any of them. */
static int be_the_first_to_go(struct enter *e)
{
    AUTO_FD int fd = SYS(openat(e->plan->host_proc_fd, "self/oom_score_adj", O_WRONLY | O_CLOEXEC));

    TRY(e, "oom_score_adj", fd);
    TRY(e, "oom_score_adj", SYS(write(fd, "500", 3)));
    return 0;
}

static int name_host(struct enter *e)
{
    if (!plan_off(e->plan, BRIG_LAYER_UTS_NS))
        TRY(e, "sethostname", SYS(sethostname(e->plan->hostname, strlen(e->plan->hostname))));
    return 0;
}

static int bring_up_loopback(struct enter *e)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD int fd = SYS(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    TRY(e, "socket", fd);
    TRY(e, "lo", SYS(ioctl(fd, SIOCSIFFLAGS, &request)));
    return 0;
}

/* What the spawner made for us while we built the root. */
static int take_prepared(struct enter *e)
{
    struct setup_msg msg;
    ssize_t n = fd_recv(e->plan->setup_fd, &msg, sizeof msg, e->prepared, PLAN_PREPARED, &e->n_prepared);

    if (n != (ssize_t)sizeof msg || msg.type != SETUP_PREPARED || msg.netns > 1 || msg.netns > e->n_prepared) {
        e->what = "message";
        return n < 0 ? (int)n : -EPROTO;
    }
    e->has_netns = msg.netns == 1;
    return 0;
}

static int join_network(struct enter *e)
{
    if (plan_off(e->plan, BRIG_LAYER_NET_NS))
        return 0;
    if (e->has_netns) {
        TRY(e, "setns", SYS(setns(e->prepared[0], CLONE_NEWNET)));
        return enter_low_ports(e);
    }
    TRY(e, "network namespace", SYS(unshare(CLONE_NEWNET)));
    int r = bring_up_loopback(e);
    return r < 0 ? r : enter_low_ports(e);
}

static int join_cgroups(struct enter *e)
{
    for (size_t i = e->has_netns ? 1 : 0; i < e->n_prepared; i++)
        TRY(e, "tasks", SYS(write(e->prepared[i], "0", 1)));
    fd_close_all(e->prepared, e->n_prepared);
    return 0;
}

/* Test builds, mount_ns off: the host's own tree. */
static int enter_host_tree(struct enter *e)
{
    TRY(e, "host tree", SYS(setns(e->plan->host_mnt_fd, CLONE_NEWNS)));
    return 0;
}

static int enter_cgroup_ns(struct enter *e)
{
    if (!plan_off(e->plan, BRIG_LAYER_CGROUP_NS))
        TRY(e, "unshare", SYS(unshare(CLONE_NEWCGROUP)));
    return 0;
}

static int ask_for_maps(struct enter *e)
{
    struct setup_msg msg = {.type = SETUP_MAP_ME};
    const struct timespec pause = {.tv_nsec = SEND_PAUSE_NS};
    int r;

    /*
     * The kernel counts the descriptors that are on their way for all processes of a user, against our own limit of
     * open files. Where that is small, and others of root have many under way, it says so until they have arrived.
     */
    for (int i = 0;; i++) {
        r = SYS(fd_send(e->plan->setup_fd, &msg, sizeof msg, &e->store_fd, e->store_fd >= 0));
        if (r != -ETOOMANYREFS || i == SEND_TRIES)
            break;
        nanosleep(&pause, NULL);
    }
    if (r < 0) {
        errno = -r;
        TRY(e, "ask", -1);
    }
    base_close_fd(&e->store_fd);
    ssize_t n = RETRY(recv(e->plan->setup_fd, &msg, sizeof msg, 0));
    if (n != (ssize_t)sizeof msg || msg.type != SETUP_MAPPED) {
        errno = n < 0 ? errno : EPROTO;
        TRY(e, "id maps", -1);
    }
    return 0;
}

static int enter_user_ns(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    if (plan_off(p, BRIG_LAYER_USER_NS))
        return ask_for_maps(e); /* the spawner gets its descriptors all the same */
    if (p->two_ids) {
        /* The creator's effective id owns the namespace and pays for what it counts. */
        TRY(e, "gid", SYS(setresgid((gid_t)-1, p->outer_root_gid, (gid_t)-1)));
        TRY(e, "uid", SYS(setresuid((uid_t)-1, p->outer_root, (uid_t)-1)));
        /* That dropped the effective capabilities, without which some hosts forbid user namespaces. */
        TRY(e, "capabilities", owner_raise_effective());
    }
    int r = enter_pids_of_all(e);
    if (r < 0)
        return r;
    TRY(e, "unshare", SYS(unshare(CLONE_NEWUSER)));
    /* Changing ids cleared it; without it the spawner could not write our maps when it is no real root. */
    TRY(e, "dumpable", SYS(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)));
    return ask_for_maps(e);
}

static int enter_ids(struct enter *e)
{
    const struct jail_plan *p = e->plan;
    uid_t uid = p->two_ids ? INSIDE_ROOT : INSIDE_USER;

    if (plan_off(p, BRIG_LAYER_USER_NS))
        return 0;
    if (p->two_ids)
        TRY(e, "groups", SYS(setgroups(0, NULL)));
    TRY(e, "gid", SYS(setresgid(uid, uid, uid)));
    TRY(e, "uid", SYS(setresuid(uid, uid, uid)));
    return 0;
}

static int enter_no_new_privs(struct enter *e)
{
    if (!plan_off(e->plan, BRIG_LAYER_NO_NEW_PRIVS))
        TRY(e, "prctl", SYS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)));
    return 0;
}

/* Leaves exactly 0, 1, 2 on /dev/null, and the three descriptors brig-init is told of. */
static int arrange_fds(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    TRY(e, "control", SYS(dup3(p->control_fd, INIT_FD_CONTROL, 0)));
    TRY(e, "probe", SYS(dup3(p->probe_fd, INIT_FD_PROBE, 0)));
    TRY(e, "brig-init", SYS(dup3(p->init_fd, INIT_FD_EXEC, O_CLOEXEC)));
    int null = SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
    TRY(e, "/dev/null", null);
    for (int fd = 0; fd < 3; fd++)
        TRY(e, "/dev/null", SYS(dup2(null, fd)));
    if (!plan_off(p, BRIG_LAYER_FDS)) {
        /* setup_fd stays for the failure report until execve closes it. */
        TRY(e, "close", SYS(close_range(INIT_FD_EXEC + 1, (unsigned)p->setup_fd - 1, 0)));
        TRY(e, "close", SYS(close_range((unsigned)p->setup_fd + 1, ~0u, 0)));
    }
    return 0;
}

/* The pipes of pid 2, all in their places. The child of a zygote has every descriptor of its plan above them. */
static int enter_adopt_fds(struct enter *e)
{
    static const int places[] = {INIT_FD_ADOPT_OUT, ADOPTED_FD_OUT,        INIT_FD_ADOPT_ERR,
                                 ADOPTED_FD_ERR,    INIT_FD_ADOPT_CHANNEL, ADOPTED_FD_CHANNEL};
    int fds[ARRAY_SIZE(places)], up[ARRAY_SIZE(places)];

    if (!e->plan->adopt)
        return 0;
    TRY(e, "stdout", SYS(pipe2(fds, O_CLOEXEC)));
    TRY(e, "stderr", SYS(pipe2(fds + 2, O_CLOEXEC)));
    TRY(e, "channel", SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds + 4)));
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        up[i] = SYS(fcntl(fds[i], F_DUPFD_CLOEXEC, e->plan->setup_fd + 1));
        TRY(e, "pipe", up[i]);
        close(fds[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        /* brig-init's survive its execve; pid 2 executes nothing. */
        TRY(e, "pipe", SYS(dup3(up[i], places[i], places[i] <= INIT_FD_ADOPT_CHANNEL ? 0 : O_CLOEXEC)));
        close(up[i]);
    }
    return 0;
}

static int enter_seccomp(struct enter *e)
{
    if (plan_off(e->plan, BRIG_LAYER_SECCOMP))
        return 0;
    int r = SYS(e->plan->kvm ? jail_seccomp_install_kvm()
                             : jail_seccomp_install((enum jail_profile)e->plan->profile, e->plan->set_ids));
    if (r < 0)
        e->what = "filter";
    return r;
}

#define IS_PID_2 1 /* leaves the stages */

static char *const init_argv[] = {(char *)"brig-init", NULL};
static char *const init_envp[] = {NULL};

/*
 * pid 2 takes the memory over as it is: a copy of an interpreter, for the few microseconds until execve, would cost
 * half a millisecond. Both are on one stack until then, so between the two calls pid 1 uses registers only, and every
 * signal is blocked. Returns 0 in pid 2, or a negative errno.
 */
static long split(uint64_t tid_address)
{
    register long flags __asm__("rdi") =
        CLONE_VM | (tid_address ? CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID : 0) | SIGCHLD;
    register long same_stack __asm__("rsi") = 0;
    register long no_parent_tid __asm__("rdx") = 0;
    register uint64_t child_tid __asm__("r10") = tid_address;
    register long no_tls __asm__("r8") = 0;
    register long file __asm__("rbx") = INIT_FD_EXEC;
    register const char *path __asm__("r12") = "";
    register char *const *argv __asm__("r13") = init_argv;
    register char *const *envp __asm__("r14") = init_envp;
    long ret;

    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jle 1f\n" /* pid 2, or none */
                     "mov %[file], %%rdi\n"
                     "mov %[path], %%rsi\n"
                     "mov %[argv], %%rdx\n"
                     "mov %[envp], %%r10\n"
                     "mov %[empty], %%r8d\n"
                     "mov %[execveat], %%eax\n"
                     "syscall\n"
                     "mov $125, %%edi\n" /* whoever waits for HELLO finds out */
                     "mov %[exit], %%eax\n"
                     "syscall\n"
                     "ud2\n"
                     "1:\n"
                     : "=a"(ret), "+r"(flags), "+r"(same_stack), "+r"(no_parent_tid), "+r"(child_tid), "+r"(no_tls)
                     : "0"((long)SYS_clone), [file] "r"(file), [path] "r"(path), [argv] "r"(argv), [envp] "r"(envp),
                       [empty] "i"(AT_EMPTY_PATH), [execveat] "i"(SYS_execveat), [exit] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
    return ret;
}

static int leave_to_adopted(struct enter *e)
{
    if (!e->plan->adopt)
        return 0;
    long ret = split(e->plan->tid_address);
    if (ret == 0)
        return IS_PID_2;
    e->what = "pid 2";
    return (int)ret;
}

static int exec_init(struct enter *e)
{
    TRY(e, "brig-init", SYS(sys_execveat(INIT_FD_EXEC, init_argv, init_envp)));
    return 0;
}

typedef int stage_fn(struct enter *e);

static const struct {
    enum setup_stage stage;
    bool tree; /* only with a mount namespace of its own */
    stage_fn *fn;
} stages[] = {
    {SETUP_FDS, false, own_fds},
    {SETUP_OOM_SCORE, false, be_the_first_to_go},
    {SETUP_HOST_NAME, false, name_host},
    {SETUP_IDS, true, enter_owner},
    {SETUP_ROOT, true, enter_root},
    {SETUP_STORE, true, enter_store},
    {SETUP_TEMPLATE, true, enter_template},
    {SETUP_ETC, true, enter_etc},
    {SETUP_PROC, true, enter_proc},
    {SETUP_DEV, true, enter_dev},
    {SETUP_STORE, true, enter_store_places},
    {SETUP_TMPFS, true, enter_tmpfs},
    {SETUP_BINDS, true, enter_binds},
    {SETUP_VOLUMES, true, enter_volumes},
    {SETUP_STORE, true, enter_store_size},
    {SETUP_PIVOT, true, enter_pivot},
    {SETUP_TAKE_PREPARED, false, take_prepared},
    {SETUP_NETWORK, false, join_network},
    {SETUP_CGROUP, false, join_cgroups},
    {SETUP_CGROUP_NS, false, enter_cgroup_ns},
    {SETUP_USER_NS, false, enter_user_ns},
    {SETUP_IDS, false, enter_ids},
    {SETUP_SYSCTL, false, enter_sysctl},
    {SETUP_SESSION, false, enter_session},
    {SETUP_FDS, false, arrange_fds}, /* before the rlimits: a full table above the new limit leaves no number to open */
    {SETUP_FDS, false, enter_adopt_fds},
    {SETUP_RLIMITS, false, enter_rlimits},
    {SETUP_CAPS, false, enter_caps},
    {SETUP_NO_NEW_PRIVS, false, enter_no_new_privs},
    {SETUP_LANDLOCK, false, enter_landlock},
    {SETUP_SECCOMP, false, enter_seccomp},
    {SETUP_FORK, false, leave_to_adopted}, /* and executes, of a plan with adopt */
    {SETUP_EXEC, false, exec_init},
};

void jail_report(const struct jail_plan *plan, enum setup_stage stage, const char *what, int errnum)
{
    struct setup_msg msg = {.type = SETUP_FAILED, .stage = stage, .errnum = errnum};

    memccpy(msg.what, what ? what : "", '\0', sizeof msg.what - 1);
    (void)!send(plan->setup_fd, &msg, sizeof msg, MSG_NOSIGNAL);
}

void jail_enter_adopt(const struct jail_plan *plan)
{
    struct enter e = {.plan = plan, .root_fd = -1, .store_fd = -1, .sysctl_fd = -1};

    umask(0);
    prctl(PR_SET_NAME, "brig-init");
    /* or a plain user's own /proc entry would belong to root; brig-init clears it again */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    for (size_t i = 0; i < ARRAY_SIZE(stages); i++) {
        int r = 0;
        if (!plan_off(plan, BRIG_LAYER_MOUNT_NS))
            r = stages[i].fn(&e);
        else if (stages[i].stage == SETUP_ROOT)
            r = enter_host_tree(&e);
        else if (!stages[i].tree)
            r = stages[i].fn(&e);
        if (r < 0) {
            jail_report(plan, stages[i].stage, e.what, -r);
            _exit(125);
        }
        if (r == IS_PID_2)
            return;
    }
    _exit(125);
}

_Noreturn void jail_enter(const struct jail_plan *plan)
{
    jail_enter_adopt(plan);
    _exit(125);
}
