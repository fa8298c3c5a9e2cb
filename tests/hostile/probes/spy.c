/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and driving other processes, above all pid 1; and what the environment tells (P04, P05, P35, I01 to I11,
 * C03). */
#include "probe.h"

#include <dirent.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

static void p04_procmem(int argc, char **argv)
{
    static const char *const files[] = {"mem",        "maps",
                                        "environ",    "auxv",
                                        "cmdline",    "stat",
                                        "status",     "syscall",
                                        "stack",      "smaps",
                                        "pagemap",    "personality",
                                        "io",         "limits",
                                        "timers",     "mountinfo",
                                        "cgroup",     "oom_score_adj",
                                        "ns/mnt",     "attr/current",
                                        "clear_refs", "coredump_filter",
                                        "comm",       "sched",
                                        "wchan",      "net/unix",
                                        "task/1/mem"};
    char path[64];
    (void)argc, (void)argv;

    if (in_host_ns("pid") && !gentle()) {
        breach("pid-namespace", "runs in the host's");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
        REFUSED(nm("read-%s", files[i]), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
        if (!gentle())
            REFUSED(nm("write-%s", files[i]), open(path, O_RDWR | O_CLOEXEC), ENOENT, EACCES, EPERM);
    }
    /* Dirty COW's shape: through /proc/self/mem a private mapping may change, the file behind it never. */
    const char *file = given("HOSTILE_RO_FILE") ? given("HOSTILE_RO_FILE") : "/usr/bin/env";
    char before[64] = "", after[64] = "";
    int fd = open(file, O_RDONLY | O_CLOEXEC), mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (mem < 0) {
        judge_refused("self-mem", -1, errno, ERRS(EACCES, EPERM, ENOENT));
        return;
    }
    if (fd < 0 || pread(fd, before, sizeof(before), 0) <= 0) {
        untried("self-mem", "%s: %s", file, strerror(errno));
        return;
    }
    char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0),
         *private = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)!pwrite(mem, "HOSTILE", 7, (off_t)(uintptr_t) private);
    REFUSED("self-mem-shared", pwrite(mem, "HOSTILE", 7, (off_t)(uintptr_t)shared), EIO, EPERM, EACCES);
    (void)!pread(fd, after, sizeof(after), 0);
    expect(memcmp(before, after, sizeof(before)) == 0, "self-mem-file", "the file changed");
}

static void attack_process(const char *who, pid_t pid)
{
    char buf[16];
    struct iovec local = {buf, sizeof(buf)}, remote = {&remote, sizeof(buf)};
    struct rlimit64 {
        uint64_t cur, max;
    } none = {0, 0};
    bool init = pid == 1;

    REFUSED(nm("vm-readv-%s", who), process_vm_readv(pid, &local, 1, &remote, 1, 0), EPERM);
    REFUSED(nm("vm-writev-%s", who), process_vm_writev(pid, &local, 1, &remote, 1, 0), EPERM);
    if (REFUSED(nm("ptrace-attach-%s", who), ptrace(PTRACE_ATTACH, pid, 0, 0), EPERM) == 0) {
        waitpid(pid, NULL, __WALL); /* it is stopped now: let it go again */
        ptrace(PTRACE_DETACH, pid, 0, 0);
    } else {
        REFUSED(nm("ptrace-seize-%s", who), ptrace(PTRACE_SEIZE, pid, 0, 0), EPERM);
        REFUSED(nm("ptrace-wide-%s", who), syscall(SYS_ptrace, 0x100000000UL | PTRACE_SEIZE, pid, 0, 0), EPERM);
    }
    REFUSED(nm("kcmp-%s", who), syscall(SYS_kcmp, getpid(), pid, 0, 0, 0), EPERM);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd >= 0) {
        REFUSED(nm("pidfd-getfd-%s", who), syscall(SYS_pidfd_getfd, fd, 0, 0), EPERM);
        REFUSED(nm("madvise-%s", who), syscall(SYS_process_madvise, fd, &local, 1, 20, 0), ENOSYS, EPERM);
        REFUSED(nm("mrelease-%s", who), syscall(SYS_process_mrelease, fd, 0), ENOSYS, EPERM);
        /* Namespaces by pidfd, Linux 6.11. */
        for (unsigned i = 1; i <= 11 && init; i++)
            REFUSED(nm("pidfd-ns-%u", i), ioctl(fd, 0xff00u | i, 0), EPERM, EACCES, ENOTTY, ESRCH, EINVAL, ENOSYS);
        close(fd);
    } else {
        held(nm("pidfd-open-%s", who));
    }
    REFUSED(nm("perf-%s", who),
            syscall(SYS_perf_event_open, &(struct perf_event_attr){.type = 1, .size = 64}, pid, -1, -1, 0), EPERM);
    REFUSED(nm("move-pages-%s", who), syscall(SYS_move_pages, pid, 0, NULL, NULL, NULL, 0), EPERM);
    REFUSED(nm("migrate-pages-%s", who), syscall(SYS_migrate_pages, pid, 0, NULL, NULL), EPERM);
    if (!init || gentle())
        return;
    void *head;
    size_t len;
    REFUSED("robust-list", syscall(SYS_get_robust_list, 1, &head, &len), EPERM, ESRCH);
    REFUSED("prlimit-read", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &none), EPERM);
    REFUSED("prlimit-nofile", syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &none, NULL), EPERM);
    REFUSED("prlimit-cpu", syscall(SYS_prlimit64, 1, RLIMIT_CPU, &none, NULL), EPERM);
    REFUSED("prlimit-wide", syscall(SYS_prlimit64, 0x100000001UL, RLIMIT_NOFILE, &none, NULL), EPERM);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    REFUSED("affinity", sched_setaffinity(1, sizeof(one), &one), EPERM);
    REFUSED("priority", setpriority(PRIO_PROCESS, 1, 19), EPERM);
    REFUSED("priority-user", setpriority(PRIO_USER, 0, 19), EPERM);
    REFUSED("priority-group", setpriority(PRIO_PGRP, 1, 19), EPERM, ESRCH);
    REFUSED("ioprio", syscall(SYS_ioprio_set, 1, 1, 3 << 13), EPERM);
    REFUSED("scheduler", sched_setscheduler(1, SCHED_IDLE, &(struct sched_param){0}), EPERM);
    REFUSED("setattr", syscall(SYS_sched_setattr, 1, "\x38\0\0\0\5", 0), EPERM);
    REFUSED("setpgid", setpgid(1, 1), ESRCH, EPERM, EACCES);
}

static void p05_process_vm(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (!in_host_ns("pid") && !gentle())
        attack_process("init", 1);
    pid_t sibling = fork();
    if (sibling == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    attack_process("sibling", sibling);
    kill(sibling, SIGKILL);
    waitpid(sibling, NULL, 0);
    REFUSED("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0), EPERM);
}

static void p35_ns_fd_leak(int argc, char **argv)
{
    static const char *const kinds[] = {"mnt", "pid", "net", "ipc", "uts", "cgroup", "user", "pid_for_children"};
    static const struct {
        const char *name;
        unsigned long nr;
    } asks[] = {{"userns", 0xb701},
                {"parent", 0xb702},
                {"next-mntns", 0x8010b70b},
                {"prev-mntns", 0x8010b70c},
                {"init-pid", 0x8004b706}};
    char path[64], mine[64];
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
        ssize_t n = readlink(path, mine, sizeof(mine) - 1);
        if (n < 0)
            judge_refused(nm("readlink-%s", kinds[i]), -1, errno, ERRS(EACCES, ENOENT, EPERM));
        else if (i < 7)
            expect(!in_host_ns(kinds[i]), nm("own-%s", kinds[i]), "is the host's");
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        for (size_t a = 0; a < ARRAY_LEN(asks); a++)
            REFUSED(nm("%s-of-%s", asks[a].name, kinds[i]), ioctl(fd, asks[a].nr, 0), EPERM, EINVAL, ENOTTY);
        REFUSED(nm("setns-%s", kinds[i]), setns(fd, 0), EPERM);
        close(fd);
        snprintf(path, sizeof(path), "/proc/1/ns/%s", kinds[i]);
        if (!in_host_ns("pid"))
            REFUSED(nm("init-%s", kinds[i]), open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    }
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REFUSED("siocgskns", ioctl(s, 0x894c, 0), EPERM);
    close(s);
}

static bool is_base_name(const char *name, size_t len)
{
    static const char *const base[] = {"PATH",   "HOME", "USER",     "LOGNAME", "SHELL",  "LANG",  "LC_ALL", "TERM",
                                       "TMPDIR", "PWD",  "HOSTNAME", "TZ",      "OLDPWD", "SHLVL", "_"};

    for (size_t i = 0; i < ARRAY_LEN(base); i++) {
        if (strlen(base[i]) == len && strncmp(base[i], name, len) == 0)
            return true;
    }
    return strncmp(name, "HOSTILE_", 8) == 0 || strncmp(name, "BRIG_RUN", 8) == 0 ||
           strncmp(name, "BRIG_SANDBOX", 12) == 0;
}

/* Is each NUL-ended NAME=value in the block one that was given? */
static void judge_environment(const char *where, const char *block, size_t size)
{
    bool clean = true;

    for (const char *p = block; p < block + size && *p; p += strlen(p) + 1) {
        size_t len = strcspn(p, "=");
        if (!is_base_name(p, len)) {
            breach(nm("%s-%.*s", where, (int)(len > 40 ? 40 : len), p), "is set: %.80s", p);
            clean = false;
        }
    }
    if (clean)
        held(where);
}

static void read_environ_of(const char *pid)
{
    static char block[65536];
    char path[300];

    snprintf(path, sizeof(path), "/proc/%.64s/environ", pid);
    ssize_t n = slurp(path, block, sizeof(block));
    if (n < 0)
        judge_refused(nm("environ-%s", pid), -1, errno, ERRS(ENOENT, EACCES, EPERM));
    else
        judge_environment(nm("environ-%s", pid), block, (size_t)n);
}

static void i01_parent_environ(int argc, char **argv)
{
    char ppid[16];
    (void)argc, (void)argv;

    bool clean = true;
    for (char **e = environ; *e; e++) {
        size_t len = strcspn(*e, "=");
        if (!is_base_name(*e, len)) {
            breach(nm("own-%.*s", (int)(len > 40 ? 40 : len), *e), "is set: %.80s", *e);
            clean = false;
        }
    }
    if (clean)
        held("own");
    snprintf(ppid, sizeof(ppid), "%d", getppid());
    read_environ_of("self");
    read_environ_of("1");
    read_environ_of(ppid);
    REFUSED("auxv-1", open("/proc/1/auxv", O_RDONLY), ENOENT, EACCES, EPERM);
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            read_environ_of(e->d_name);
    }
    if (d)
        closedir(d);
}

static void i02_cmdline(int argc, char **argv)
{
    char path[300], text[8192];
    int others = 0;
    (void)argc, (void)argv;

    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || atoi(e->d_name) == getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%.64s/cmdline", e->d_name);
        ssize_t n = slurp(path, text, sizeof(text));
        for (ssize_t i = 0; i < n; i++)
            text[i] = text[i] ? text[i] : ' ';
        if (n > 0 && others++ < 20)
            breach(nm("cmdline-%s", e->d_name), "%.100s", text);
    }
    if (d)
        closedir(d);
    if (!others)
        held("only-own-processes");
    /* Names of users and machines of the host. */
    static char passwd[65536];
    const char *word;
    if (slurp("/etc/passwd", passwd, sizeof(passwd)) > 0)
        expect(!is_forbidden(passwd, &word), "passwd", "has the host's %s", word);
    static const char *const homes[] = {"/home", "/root", "/var/lib", "/var/log", "/srv",
                                        "/opt",  "/mnt",  "/media",   "/boot"};
    for (size_t i = 0; i < ARRAY_LEN(homes) && !gentle(); i++) {
        d = opendir(homes[i]);
        for (struct dirent *e; d && (e = readdir(d));) {
            if (e->d_name[0] != '.' && !(i == 0 && strcmp(e->d_name, "user") == 0))
                breach(nm("entry-%s", homes[i]), "has %.60s", e->d_name);
        }
        if (d)
            closedir(d);
        held(nm("listed-%s", homes[i]));
    }
}

static void i04_dmesg(int argc, char **argv)
{
    char buf[4096];
    (void)argc, (void)argv;

    static const int actions[] = {2, 3, 4, 8, 9, 10};
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        bool changes = actions[i] == 2 || actions[i] == 4 || actions[i] == 8;
        if (!(changes && gentle()))
            REFUSED(nm("syslog-%d", actions[i]),
                    syscall(SYS_syslog, actions[i], buf, actions[i] == 8 ? 7 : (int)sizeof(buf)), EPERM);
    }
    REFUSED("dev-kmsg", open("/dev/kmsg", O_RDONLY | O_NONBLOCK), ENOENT, EACCES, EPERM);
    REFUSED("dev-kmsg-write", open("/dev/kmsg", O_WRONLY), ENOENT, EACCES, EPERM);
    REFUSED("proc-kmsg", open("/proc/kmsg", O_RDONLY | O_NONBLOCK), ENOENT, EACCES, EPERM);
    REFUSED("var-log", open("/var/log/dpkg.log", O_RDONLY), ENOENT, EACCES);
}

static void i05_memory_devices(int argc, char **argv)
{
    static const char *const files[] = {
        "/dev/mem",         "/dev/kmem",        "/dev/port",           "/dev/kvm",       "/dev/fuse",  "/dev/vsock",
        "/dev/vhost-vsock", "/dev/net/tun",     "/dev/loop-control",   "/dev/loop0",     "/dev/vda",   "/dev/sda",
        "/dev/nvme0n1",     "/dev/userfaultfd", "/dev/hpet",           "/dev/cpu/0/msr", "/dev/nvram", "/dev/hwrng",
        "/dev/rtc0",        "/dev/snapshot",    "/dev/uinput",         "/dev/vcs",       "/dev/tty0",  "/dev/tty1",
        "/dev/ttyS0",       "/dev/dri/card0",   "/dev/mapper/control", "/dev/watchdog",  "/proc/kcore"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        int fd = (int)REFUSED(nm("open-%s", files[i]), open(files[i], O_PATH | O_CLOEXEC), ENOENT, EACCES);
        if (fd >= 0)
            close(fd);
    }
}

#if defined(__x86_64__)
static void do_rdpmc(void *arg)
{
    unsigned lo, hi;
    (void)arg;
    __asm__ volatile("rdpmc" : "=a"(lo), "=d"(hi) : "c"(0));
    _exit(42);
}
#endif

static void i11_side_channels(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (uint32_t type = 0; type < 6; type++) {
        struct perf_event_attr at = {.type = type, .size = sizeof(at), .exclude_kernel = 1};
        REFUSED(nm("perf-type-%u", type), syscall(SYS_perf_event_open, &at, 0, -1, -1, 0), EPERM);
    }
    REFUSED("ksm-prctl", prctl(67 /* PR_SET_MEMORY_MERGE */, 1, 0, 0, 0), EPERM);
    void *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REFUSED("ksm-madvise", madvise(p, 1 << 16, 12 /* MADV_MERGEABLE */), EINVAL, EPERM);
    REFUSED("sched-core", prctl(62 /* PR_SCHED_CORE */, 1, 0, 0, 0), EPERM);
    REFUSED("cachestat", syscall(NR_cachestat, 0, NULL, NULL, 0), ENOSYS, EPERM);
#if defined(__x86_64__)
    int st = in_child(do_rdpmc, NULL, 5);
    expect(WIFSIGNALED(st) && (WTERMSIG(st) == SIGSEGV || WTERMSIG(st) == SIGILL), "rdpmc", "wait status %x", st);
#endif
    if (!given("HOSTILE_INSIDE")) /* root opens what it may only read; there is nothing behind writing to it */
        REFUSED("page-map", open("/proc/self/pagemap", O_RDWR), EACCES, ENOENT, EPERM);
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint64_t entry = 0;
    if (fd >= 0 && p != MAP_FAILED) {
        memset(p, 1, 4096);
        (void)!pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)p / 4096 * 8));
        expect((entry & ((1ULL << 55) - 1)) == 0, "page-frames", "pagemap shows physical frame %llx",
               (unsigned long long)entry & ((1ULL << 55) - 1));
        close(fd);
    }
}

static void c03_control_socket(int argc, char **argv)
{
    static const char *const tables[] = {"/proc/net/unix", "/proc/self/net/unix", "/proc/thread-self/net/unix",
                                         "/proc/1/net/unix"};
    static char text[65536];
    char path[64];
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        ssize_t n = slurp(tables[i], text, sizeof(text));
        if (n < 0) {
            judge_refused(nm("table-%s", tables[i]), -1, errno, ERRS(ENOENT, EACCES, EPERM, EINVAL));
            continue;
        }
        char *first = strchr(text, '\n');
        expect(!first || (!strchr(first, '/') && !strchr(first, '@')), nm("table-%s", tables[i]),
               "names sockets: %.200s", first);
    }
    if (!in_host_ns("pid")) {
        for (int fd = 0; fd < 32; fd++) {
            snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
            REFUSED(nm("init-fd-%d", fd), open(path, O_RDWR | O_CLOEXEC), ENOENT, EACCES, EPERM, ENXIO);
        }
        REFUSED("init-fd-list", open("/proc/1/fd", O_RDONLY | O_DIRECTORY), ENOENT, EACCES, EPERM);
    }
    REFUSED("sock-diag", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 4), EPROTONOSUPPORT, EPERM);
    REFUSED("sock-diag-dgram", socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, 4), EPROTONOSUPPORT, EPERM);
    for (int fd = 3; fd < 64; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            breach("open-fd", "%d is open", fd);
    }
}

const struct probe_case spy_cases[] = {
    {"P04", p04_procmem},        {"P05", p05_process_vm},
    {"P35", p35_ns_fd_leak},     {"I01", i01_parent_environ},
    {"I02", i02_cmdline},        {"I04", i04_dmesg},
    {"I05", i05_memory_devices}, {"I11", i11_side_channels},
    {"C03", c03_control_socket}, {NULL, NULL},
};
