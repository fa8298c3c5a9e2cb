/* SPDX-License-Identifier: Apache-2.0 */
/* Gaining privileges: namespaces, clone flags, undoing the filter, capabilities, ids, scheduling (P07 to P13, P31,
 * P34). */
#include "probe.h"

#include <dirent.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

static const struct {
    const char *name, *file;
    unsigned flag;
} spaces[] = {
    {"user", "user", 0x10000000},     {"mnt", "mnt", 0x00020000},   {"pid", "pid", 0x20000000},
    {"net", "net", 0x40000000},       {"ipc", "ipc", 0x08000000},   {"uts", "uts", 0x04000000},
    {"cgroup", "cgroup", 0x02000000}, {"time", "time", 0x00000080},
};

static void unshare_all(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
        REFUSED(nm("unshare-%s", spaces[i].name), syscall(SYS_unshare, spaces[i].flag), EPERM);
    REFUSED("unshare-user-mnt", syscall(SYS_unshare, 0x10020000), EPERM);
    REFUSED("unshare-wide", syscall(SYS_unshare, 0x100000000UL | 0x10000000), EPERM);
    REFUSED("unshare-files", syscall(SYS_unshare, CLONE_FILES), EPERM);
}

static void p07_other_ns(int argc, char **argv)
{
    char path[64];
    (void)argc, (void)argv;

    in_child(unshare_all, NULL, 10);
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0), init = (int)syscall(SYS_pidfd_open, 1, 0);
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        snprintf(path, sizeof(path), "/proc/1/ns/%s", spaces[i].file);
        if (!in_host_ns("pid"))
            REFUSED(nm("open-init-%s", spaces[i].name), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
        snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i].file);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            REFUSED(nm("setns-own-%s", spaces[i].name), setns(fd, 0), EPERM);
            close(fd);
        }
        REFUSED(nm("setns-pidfd-%s", spaces[i].name), setns(self, (int)spaces[i].flag), EPERM);
        if (init >= 0)
            REFUSED(nm("setns-init-%s", spaces[i].name), setns(init, (int)spaces[i].flag), EPERM);
        struct clone_args ca = {.flags = spaces[i].flag, .exit_signal = SIGCHLD};
        long pid = REFUSED(nm("clone3-%s", spaces[i].name), syscall(SYS_clone3, &ca, sizeof(ca)), ENOSYS, EPERM);
        if (pid == 0)
            _exit(0);
    }
}

static int clone_body(void *arg)
{
    (void)arg;
    return 0;
}

static long try_clone(char *stack, unsigned long flags)
{
    static int parent_tid, child_tid;
    static char tls[4096] __attribute__((aligned(64)));

    errno = 0;
    /* The wrapper passes flags as int; the upper half is tried by hand below. */
    return clone(clone_body, stack, (int)(flags | SIGCHLD), NULL, &parent_tid, tls + 2048, &child_tid);
}

static void p08_clone_flags(int argc, char **argv)
{
    static const unsigned others[] = {CLONE_VM,
                                      CLONE_FS,
                                      CLONE_FILES,
                                      CLONE_SIGHAND,
                                      CLONE_PIDFD,
                                      CLONE_PTRACE,
                                      CLONE_VFORK,
                                      CLONE_PARENT,
                                      CLONE_THREAD,
                                      CLONE_SYSVSEM,
                                      CLONE_SETTLS,
                                      CLONE_PARENT_SETTID,
                                      CLONE_CHILD_CLEARTID,
                                      CLONE_DETACHED,
                                      CLONE_UNTRACED,
                                      CLONE_CHILD_SETTID,
                                      CLONE_IO};
    unsigned calls = 0, wrong = 0, made = 0;
    unsigned long culprit = 0;
    char *stack = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)argc, (void)argv;

    /* Every set of new namespaces (time is no flag of clone) with none, one and two of the other flags. */
    for (unsigned set = 1; set < 128 && !made; set++) {
        unsigned long ns = 0;
        for (unsigned b = 0; b < 7; b++)
            ns |= (set >> b & 1) ? spaces[b].flag : 0;
        for (size_t a = 0; a <= ARRAY_LEN(others) && !made; a++) {
            for (size_t b = a; b <= ARRAY_LEN(others) && !made; b++) {
                unsigned long flags =
                    ns | (a < ARRAY_LEN(others) ? others[a] : 0) | (b < ARRAY_LEN(others) ? others[b] : 0);
                long pid = try_clone(stack + (1 << 16), flags);
                calls++;
                if (pid > 0) {
                    made++, culprit = flags;
                    waitpid((pid_t)pid, NULL, __WALL);
                } else if (errno != EPERM) {
                    wrong++, culprit = flags;
                }
            }
        }
    }
    if (made)
        breach("flags", "clone with flags %lx succeeded", culprit);
    else if (wrong)
        breach("flags", "unexpected errno %u times, last with flags %lx (allowed EPERM)", wrong, culprit);
    else
        held(nm("flags-%u-calls", calls));
    /* CVE-2019-10063's shape: the kernel looks at 32 bits only. */
    for (size_t i = 0; i < 7; i++) {
        long pid = REFUSED(nm("wide-%s", spaces[i].name),
                           syscall(SYS_clone, 0x100000000UL | spaces[i].flag | SIGCHLD, 0, 0, 0, 0), EPERM);
        if (pid == 0)
            _exit(0);
        if (pid > 0)
            waitpid((pid_t)pid, NULL, 0);
    }
}

/* "Name:\tvalue" of a status text; NULL when it is not there. */
static const char *status_field(const char *text, const char *name, char *buf, size_t size)
{
    const char *p = strstr(text, name);

    if (!p)
        return NULL;
    p += strlen(name);
    p += strspn(p, ":\t ");
    snprintf(buf, size, "%.*s", (int)strcspn(p, "\n"), p);
    return buf;
}

static void judge_status(const char *path, const char *who)
{
    static const char *const caps[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
    char text[8192], v[256];

    if (slurp(path, text, sizeof(text)) <= 0) {
        untried(nm("status-%s", who), "%s", strerror(errno));
        return;
    }
    /* Root inside has seven, permitted, effective and in the bounding set (inside.c has the rest). */
    bool root = given("HOSTILE_INSIDE") != NULL;
    for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
        const char *value = status_field(text, caps[i], v, sizeof(v));
        unsigned long long want = root && i >= 1 && i <= 3 ? 0xfb : 0;
        expect(value && strtoull(value, NULL, 16) == want, nm("%s-%s", caps[i], who), "%s", value ? value : "absent");
    }
    const char *nnp = status_field(text, "NoNewPrivs", v, sizeof(v));
    expect(nnp && strcmp(nnp, "1") == 0, nm("NoNewPrivs-%s", who), "%s", nnp ? nnp : "absent");
    const char *mode = status_field(text, "Seccomp", v, sizeof(v));
    expect(mode && strcmp(mode, "2") == 0, nm("Seccomp-%s", who), "%s", mode ? mode : "absent");
    const char *uids = status_field(text, "\nUid", v, sizeof(v));
    expect(uids && strcmp(uids, root ? "0\t0\t0\t0" : "1000\t1000\t1000\t1000") == 0, nm("Uid-%s", who), "%s",
           uids ? uids : "absent");
}

static void *wait_forever(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

static void p11_nnp_caps(int argc, char **argv)
{
    pthread_t thread;
    char path[300];
    (void)argc, (void)argv;

    (void)!pthread_create(&thread, NULL, wait_forever, NULL);
    judge_status("/proc/self/status", "self");
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%.64s/status", e->d_name);
        judge_status(path, "thread");
    }
    if (d)
        closedir(d);
    if (given("HOSTILE_INSIDE"))
        return; /* the rest is U10 to U18 */
    int bits = prctl(PR_GET_SECUREBITS);
    /* noroot, no_setuid_fixup, no_cap_ambient_raise, each with its lock; keep_caps locked off. */
    expect((bits & 0xef) == 0xef, "securebits", "%#x", (unsigned)bits);
    unsigned bounding = 0;
    for (int cap = 0; cap < 64; cap++)
        bounding += prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1;
    expect(bounding == 0, "bounding-set", "%u capabilities", bounding);
    REFUSED("ambient-raise", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0), EPERM);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = ~0u, .permitted = ~0u},
                                             {.effective = ~0u, .permitted = ~0u}};
    REFUSED("capset", syscall(SYS_capset, &head, data), EPERM);
    data[0] = data[1] = (struct __user_cap_data_struct){.inheritable = 1u << CAP_SYS_ADMIN};
    REFUSED("capset-inheritable", syscall(SYS_capset, &head, data), EPERM);
    REFUSED("set-securebits", prctl(PR_SET_SECUREBITS, 0), EPERM);
    REFUSED("keep-caps", prctl(PR_SET_KEEPCAPS, 1), EPERM);
    REFUSED("unset-nnp", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL, EPERM);
    /* Other ids: unmapped ones are EINVAL, pid 1's is EPERM. */
    static const uid_t ids[] = {0, 1, 65533, 65534, 100000, 999, 1001};
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        REFUSED(nm("setuid-%u", ids[i]), syscall(SYS_setuid, ids[i]), EPERM, EINVAL);
        REFUSED(nm("setresuid-%u", ids[i]), syscall(SYS_setresuid, -1, ids[i], -1), EPERM, EINVAL);
        REFUSED(nm("setgid-%u", ids[i]), syscall(SYS_setgid, ids[i]), EPERM, EINVAL);
        REFUSED(nm("setgroups-%u", ids[i]), syscall(SYS_setgroups, 1, &ids[i]), EPERM, EINVAL);
    }
    gid_t groups[64];
    int n = getgroups(64, groups);
    /* Rootless, the caller's own groups cannot be dropped; they show as the overflow id. */
    for (int i = 0; i < n; i++)
        expect(groups[i] == getgid() || (groups[i] == 65534 && !mode_is("root")), nm("group-%u", groups[i]),
               "is a supplementary group");
}

/* The same from a program that was never on a file system. */
static void p11_memfd_exec(int argc, char **argv)
{
    static char block[1 << 16];
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), out = memfd_create("hostile", 0);
    (void)argc, (void)argv;

    if (out < 0) {
        judge_refused("memfd", -1, errno, ERRS(EPERM, EACCES, ENOSYS));
        return;
    }
    for (ssize_t n; (n = read(in, block, sizeof(block))) > 0;)
        (void)!write(out, block, (size_t)n);
    fexecve(out, (char *[]){"memfd", "P11", NULL}, environ);
    judge_refused("fexecve", -1, errno, ERRS(EPERM, EACCES));
}

static long install_filter(unsigned flags, bool by_prctl)
{
    struct sock_filter allow[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog prog = {1, allow};

    if (by_prctl)
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
}

static void p10_seccomp_undo(int argc, char **argv)
{
    char text[8192], v[64];
    (void)argc, (void)argv;

    if (slurp("/proc/self/status", text, sizeof(text)) > 0) {
        const char *mode = status_field(text, "Seccomp", v, sizeof(v));
        expect(mode && strcmp(mode, "2") == 0, "mode", "Seccomp: %s", mode ? mode : "absent");
    }
    expect(prctl(PR_GET_SECCOMP) == 2, "get-seccomp", "not filtered");
    if (prctl(PR_GET_SECCOMP) != 2)
        return; /* strict mode would really start */
    REFUSED("strict-prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT), EINVAL, EPERM, EACCES);
    REFUSED("strict-seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL), EINVAL, EPERM);
    REFUSED("disable", prctl(PR_SET_SECCOMP, 0), EINVAL, EPERM);
    REFUSED("listener", install_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER, false), EPERM);
    REFUSED("listener-tsync", install_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC | 16, false),
            EPERM);
    REFUSED("notif-sizes", syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, text), EPERM);
    REFUSED("wide-op", syscall(SYS_seccomp, 0x100000000UL | SECCOMP_GET_NOTIF_SIZES, 0, text), EPERM);
    REFUSED("suspend", ptrace(PTRACE_SEIZE, getppid(), 0, PTRACE_O_SUSPEND_SECCOMP), EPERM);
    /* None on top either: its machine code would count against the host's limit (S01). */
    REFUSED("on-top", install_filter(0, false), EINVAL);
    REFUSED("on-top-prctl", install_filter(0, true), EINVAL);
    REFUSED("on-top-tsync", install_filter(SECCOMP_FILTER_FLAG_TSYNC, false), EINVAL);
    REFUSED("still-closed-ptrace", ptrace(PTRACE_TRACEME, 0, 0, 0), EPERM);
    REFUSED("still-closed-unshare", syscall(SYS_unshare, 0x10000000), EPERM);
    REFUSED("still-closed-uring", syscall(SYS_io_uring_setup, 1, text), ENOSYS);
}

static void p13_personality(int argc, char **argv)
{
    static const struct {
        const char *name;
        unsigned long value;
    } kinds[] = {{"no-randomize", 0x0040000},
                 {"read-implies-exec", 0x0400000},
                 {"mmap-page-zero", 0x0100000},
                 {"linux32", 8},
                 {"uname26", 0x0020000},
                 {"compat-layout", 0x0200000},
                 {"3gb", 0x8000000},
                 {"svr4", 1 | 0x4000000 | 0x0100000}};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        REFUSED(nm("set-%s", kinds[i].name), syscall(SYS_personality, kinds[i].value), EPERM);
        REFUSED(nm("wide-%s", kinds[i].name), syscall(SYS_personality, 0x100000000UL | kinds[i].value), EPERM);
        syscall(SYS_personality, 0UL);
    }
    expect(syscall(SYS_personality, 0xffffffffUL) == 0, "ask", "personality is not 0");
}

static void p31_sched(int argc, char **argv)
{
    struct sched_param prio = {.sched_priority = 1};
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } dl = {.size = 48, .policy = 6, .runtime = 10000000, .deadline = 30000000, .period = 30000000};
    (void)argc, (void)argv;

    REFUSED("fifo", syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &prio), EPERM);
    REFUSED("rr", syscall(SYS_sched_setscheduler, 0, SCHED_RR, &prio), EPERM);
    REFUSED("setparam", syscall(SYS_sched_setparam, 0, &prio), EPERM);
    REFUSED("deadline", syscall(SYS_sched_setattr, 0, &dl, 0), EPERM);
    REFUSED("nice", setpriority(PRIO_PROCESS, 0, -20), EPERM, EACCES);
    REFUSED("nice-wide", syscall(SYS_setpriority, 0x100000000UL | PRIO_PROCESS, 1, 19), EPERM);
    REFUSED("ioprio-rt", syscall(SYS_ioprio_set, 1, 0, 1 << 13), EPERM);
    static const struct {
        const char *name;
        int what;
    } limits[] = {{"rtprio", RLIMIT_RTPRIO},     {"nice", RLIMIT_NICE},
                  {"memlock", RLIMIT_MEMLOCK},   {"nofile", RLIMIT_NOFILE},
                  {"nproc", RLIMIT_NPROC},       {"core", RLIMIT_CORE},
                  {"msgqueue", RLIMIT_MSGQUEUE}, {"sigpending", RLIMIT_SIGPENDING},
                  {"rttime", RLIMIT_RTTIME}};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct rlimit now;
        getrlimit((__rlimit_resource_t)limits[i].what, &now);
        if (now.rlim_max == RLIM_INFINITY) {
            if (limits[i].what != RLIMIT_RTTIME) /* meaningless without real-time scheduling */
                breach(nm("rlimit-%s", limits[i].name), "is unlimited");
            continue;
        }
        struct rlimit more = {now.rlim_max + 1, now.rlim_max + 1};
        REFUSED(nm("rlimit-%s", limits[i].name), setrlimit((__rlimit_resource_t)limits[i].what, &more), EPERM);
    }
    /* All processors may be asked for; the cpuset decides, and the quota holds whatever it says. */
    cpu_set_t all;
    memset(&all, 0xff, sizeof(all));
    errno = 0;
    expect(sched_setaffinity(0, sizeof(all), &all) == 0 || errno == EPERM || errno == EINVAL, "affinity", "errno %d",
           errno);
}

static void p34_hostname(int argc, char **argv)
{
    char name[128] = "";
    (void)argc, (void)argv;

    gethostname(name, sizeof(name) - 1);
    const char *host = given("HOSTILE_HOST_NAME");
    expect(!host || strcmp(name, host) != 0, "hostname", "is the host's, %s", name);
    expect(strlen(name) > 0 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name), "hostname-shape",
           "%s", name);
    char domain[128] = "";
    (void)!getdomainname(domain, sizeof(domain) - 1);
    REFUSED("sethostname", sethostname(name, strlen(name)), EPERM);
    REFUSED("setdomainname", setdomainname(domain, strlen(domain)), EPERM);
    REFUSED("settime", syscall(SYS_clock_settime, CLOCK_REALTIME, NULL), EPERM);
    REFUSED("settimeofday", syscall(SYS_settimeofday, NULL, NULL), EPERM);
    REFUSED("reboot", syscall(SYS_reboot, 0, 0, 0, 0), EPERM);
    REFUSED("init-module", syscall(SYS_init_module, NULL, 0, ""), EPERM);
    REFUSED("finit-module", syscall(SYS_finit_module, -1, "", 0), EPERM);
    REFUSED("kexec", syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM);
    REFUSED("acct", syscall(SYS_acct, "/nowhere/acct"), EPERM);
    /* A tenant may not make the host flush its disks; the answer is success and nothing happens. */
    expect(syscall(SYS_sync) == 0, "sync", "errno %d", errno);
}

const struct probe_case priv_cases[] = {
    {"P07", p07_other_ns}, {"P08", p08_clone_flags},      {"P10", p10_seccomp_undo},
    {"P11", p11_nnp_caps}, {"P11-memfd", p11_memfd_exec}, {"P13", p13_personality},
    {"P31", p31_sched},    {"P34", p34_hostname},         {NULL, NULL},
};
