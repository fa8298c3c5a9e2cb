/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel surfaces: terminals, keyrings, IPC, descriptor passing, exec, core dumps, Landlock, and the first calls of
 * published exploits (P14 to P19, P28 to P32, P37).
 */
#include "probe.h"

#include <dirent.h>
#include <linux/bpf.h>
#include <linux/landlock.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>

static const struct {
    const char *name;
    unsigned long nr;
} bad_ioctls[] = {
    {"TIOCSTI", 0x5412},
    {"TIOCLINUX", 0x541c},
    {"TIOCSETD", 0x5423},
    {"TIOCCONS", 0x541d},
    {"TIOCSSERIAL", 0x541f},
    {"TIOCVHANGUP", 0x5437},
    {"TCSETX", 0x5433},
    {"TIOCSLCKTRMIOS", 0x5457},
    {"KDSETMODE", 0x4b3a},
    {"KDSKBENT", 0x4b47},
    {"KDSKBSENT", 0x4b49},
    {"KDFONTOP", 0x4b72},
    {"KDSETLED", 0x4b32},
    {"VT_SETMODE", 0x5602},
    {"VT_ACTIVATE", 0x5606},
    {"VT_DISALLOCATE", 0x5608},
    {"VT_RESIZEX", 0x560a},
    {"SIOCADDRT", 0x890b},
    {"SIOCSIFFLAGS", 0x8914},
    {"SIOCSIFADDR", 0x8916},
    {"SIOCSIFNAME", 0x8923},
    {"SIOCBRADDBR", 0x89a0},
    {"SIOCGSKNS", 0x894c},
    {"FIBMAP", 1},
    {"FS_IOC_SETFLAGS", 0x40086602},
    {"FS_IOC_FSSETXATTR", 0x401c5820},
    {"FS_IOC_FIEMAP", 0xc020660b},
    {"FIFREEZE", 0xc0045877},
    {"FITRIM", 0xc0185879},
    {"EXT4_IOC_SWAP_BOOT", 0x6611},
    {"EXT4_IOC_RESIZE_FS", 0x40086610},
    {"EXT4_IOC_SHUTDOWN", 0x8004587d},
    {"FS_IOC_ENABLE_VERITY", 0x40806685},
    {"SECCOMP_IOCTL_NOTIF_RECV", 0xc0502100},
    {"SECCOMP_IOCTL_NOTIF_ADDFD", 0x40182103},
    {"TUNSETIFF", 0x400454ca},
    {"TUNSETOWNER", 0x400454cc},
};

static void try_ioctls(const char *where, int fd)
{
    static char arg[512];

    for (size_t i = 0; i < ARRAY_LEN(bad_ioctls); i++) {
        memset(arg, 0, sizeof(arg));
        arg[0] = '#';
        /* In the off run only the two that act on our own terminal are worth their risk. */
        if (gentle() && i != 0 && i != 2)
            continue;
        REFUSED(nm("%s-%s", bad_ioctls[i].name, where), syscall(SYS_ioctl, fd, bad_ioctls[i].nr, arg), EPERM);
        REFUSED(nm("%s-wide-%s", bad_ioctls[i].name, where),
                syscall(SYS_ioctl, fd, bad_ioctls[i].nr | 0x100000000UL, arg), EPERM);
        REFUSED(nm("%s-neg-%s", bad_ioctls[i].name, where),
                syscall(SYS_ioctl, fd, bad_ioctls[i].nr | 0xffffffff00000000UL, arg), EPERM);
    }
}

static void p14_tiocsti(int argc, char **argv)
{
    char name[64] = "";
    int nr = 0, zero = 0;
    (void)argc, (void)argv;

    bool on_terminal = given("HOSTILE_TTY") != NULL; /* `brig run -t`: a terminal of our own, not the operator's */
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (tty < 0)
        judge_refused("dev-tty", -1, errno, ERRS(ENXIO));
    else if (on_terminal)
        try_ioctls("ctty", tty);
    else
        breach("dev-tty", "there is a controlling terminal");
    for (int fd = 0; fd <= 2; fd++)
        try_ioctls(nm("fd%d", fd), fd);
    int ptmx = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ptmx < 0) {
        untried("own-pty", "%s", strerror(errno));
        return;
    }
    (void)!ioctl(ptmx, TIOCSPTLCK, &zero);
    (void)!ioctl(ptmx, TIOCGPTN, &nr);
    snprintf(name, sizeof(name), "/dev/pts/%d", nr);
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        slave = ioctl(ptmx, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY);
    try_ioctls("ptmx", ptmx);
    if (slave < 0) {
        untried("own-slave", "%s", strerror(errno));
        return;
    }
    /* TIOCSTI asks for the caller's controlling terminal: make it ours, in a new session. */
    if (fork() == 0) {
        setsid();
        (void)!ioctl(slave, TIOCSCTTY, 0);
        try_ioctls("slave", slave);
        _exit(0);
    }
    wait(NULL);
    static const char *const foreign[] = {"/dev/pts/0", "/dev/pts/1", "/dev/pts/2", "/dev/console",
                                          "/dev/tty1",  "/dev/ttyS0", "/dev/tty0"};
    for (size_t i = 0; i < ARRAY_LEN(foreign) && !on_terminal && !gentle(); i++) {
        if (strcmp(foreign[i], name) != 0)
            REFUSED(nm("foreign-%s", foreign[i]), open(foreign[i], O_RDWR | O_NOCTTY | O_NONBLOCK), ENOENT, ENXIO,
                    EACCES, EIO);
    }
}

static void p16_keyring(int argc, char **argv)
{
    (void)argc, (void)argv;
    static const int rings[] = {-1, -2, -3, -4, -5, -8};

    for (size_t i = 0; i < ARRAY_LEN(rings); i++) {
        REFUSED(nm("add-key%d", rings[i]), syscall(SYS_add_key, "user", "hostile", "x", 1, rings[i]), ENOSYS);
        REFUSED(nm("keyctl-get%d", rings[i]), syscall(SYS_keyctl, 0, rings[i], 1), ENOSYS);
        REFUSED(nm("keyctl-read%d", rings[i]), syscall(SYS_keyctl, 11, rings[i], NULL, 0), ENOSYS);
    }
    REFUSED("request-key", syscall(SYS_request_key, "user", "hostile", NULL, -3), ENOSYS);
    REFUSED("keyctl-persistent", syscall(SYS_keyctl, 22, -1, -3), ENOSYS);
    REFUSED("keyctl-join", syscall(SYS_keyctl, 1, "hostile"), ENOSYS);
    if (gentle()) /* added to our own session ring; it dies with us */
        syscall(SYS_keyctl, 7, -3);
}

static void p17_ipc(int argc, char **argv)
{
    long key = given_long("HOSTILE_SHM_KEY", 0);
    const char *name = given("HOSTILE_IPC_NAME");
    (void)argc, (void)argv;

    if (key) {
        int id = (int)REFUSED("shmget-host", syscall(SYS_shmget, key, 0, 0), ENOSYS, ENOENT);
        char *p = id >= 0 ? shmat(id, NULL, SHM_RDONLY) : (void *)-1;
        if (p != (void *)-1)
            breach("shm-read", "reads %.40s", p);
        REFUSED("semget-host", syscall(SYS_semget, key, 0, 0), ENOSYS, ENOENT);
        REFUSED("msgget-host", syscall(SYS_msgget, key, 0), ENOSYS, ENOENT);
        int seen = 0;
        struct shmid_ds ds;
        for (int i = 0; i < 256; i++)
            seen += syscall(SYS_shmctl, i, SHM_STAT, &ds) >= 0;
        expect(seen == 0, "shm-list", "%d segments", seen);
    } else {
        untried("sysv", "HOSTILE_SHM_KEY is not set");
    }
    if (name) {
        char path[128];
        struct mq_attr attr;
        int q =
            (int)REFUSED("mq-open-host", syscall(SYS_mq_open, name, O_RDONLY | O_NONBLOCK, 0, NULL), ENOSYS, ENOENT);
        if (q >= 0)
            syscall(SYS_mq_getsetattr, q, NULL, &attr);
        snprintf(path, sizeof(path), "/dev/shm/%s", name);
        try_read("shm-open-host", AT_FDCWD, path);
        snprintf(path, sizeof(path), "/dev/mqueue/%s", name);
        try_read("mqueue-file", AT_FDCWD, path);
    }
}

static ssize_t send_control(int fd, int type, const void *data, size_t len)
{
    union {
        char room[CMSG_SPACE(64)];
        struct cmsghdr align;
    } u = {.room = ""};
    struct iovec iov = {"x", 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = CMSG_SPACE(len)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);

    c->cmsg_level = SOL_SOCKET, c->cmsg_type = type, c->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(c), data, len);
    return sendmsg(fd, &m, MSG_DONTWAIT);
}

static void p19_unix_scm(int argc, char **argv)
{
    int pair[2], fd, on = 1;
    (void)argc, (void)argv;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        breach("socketpair", "%s: tools need it", strerror(errno));
        return;
    }
    fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    expect(send_control(pair[0], SCM_RIGHTS, &fd, sizeof(fd)) == 1, "pass-own", "%s", strerror(errno));
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    static const struct ucred forged[] = {{1, 0, 0}, {1, 1000, 1000}, {0, 0, 0}, {2, 0, 0}, {99999, 65534, 65534}};
    for (size_t i = 0; i < ARRAY_LEN(forged); i++) {
        struct ucred c = forged[i];
        if (in_host_ns("pid") && !gentle())
            break;
        if (c.pid == getpid() && c.uid == getuid() && c.gid == getgid())
            continue; /* its own, as root inside */
        REFUSED(nm("forge-cred-%zu", i), send_control(pair[0], SCM_CREDENTIALS, &c, sizeof(c)), EPERM, ESRCH, EINVAL);
    }
    /* Where stdio is a socket its other end is the engine: nothing may be asked of it. */
    for (fd = 0; fd <= 2; fd++) {
        struct ucred peer;
        socklen_t len = sizeof(peer);
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
            judge_refused(nm("peer-%d", fd), -1, errno, ERRS(ENOTSOCK, EBADF));
            continue;
        }
        expect(peer.pid <= 1, nm("peer-%d", fd), "is pid %d", peer.pid);
        int pidfd = -1;
        len = sizeof(pidfd);
        if (getsockopt(fd, SOL_SOCKET, 77 /* SO_PEERPIDFD */, &pidfd, &len) == 0 && pidfd >= 0)
            REFUSED(nm("peer-pidfd-%d", fd), syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0), EPERM, ESRCH, EINVAL);
        char buf[256];
        union {
            char room[CMSG_SPACE(64)];
            struct cmsghdr align;
        } u;
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room)};
        if (recvmsg(fd, &m, MSG_DONTWAIT) >= 0)
            expect(!CMSG_FIRSTHDR(&m), nm("foreign-fd-%d", fd), "a control message came");
    }
}

static void write_script(const char *path, const char *interpreter)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
    dprintf(fd, "#!%s\n", interpreter);
    close(fd);
}

struct fuzz_elf {
    const char *path;
};

static void run_elf(void *arg)
{
    struct rlimit cpu = {1, 1};
    int null = open("/dev/null", O_RDWR);

    setrlimit(RLIMIT_CPU, &cpu);
    dup2(null, 1);
    dup2(null, 2);
    execl(((struct fuzz_elf *)arg)->path, "elf", NULL);
    _exit(0);
}

static void p28_exec_storms(int argc, char **argv)
{
    static char arg[200 * 1024], image[8192];
    char path[PATH_MAX], next[PATH_MAX];
    (void)argc, (void)argv;

    memset(arg, 'a', sizeof(arg) - 1);
    REFUSED("one-long-arg", execl("/bin/true", "true", arg, NULL), E2BIG);
    static char *many[80002];
    for (size_t i = 0; i < ARRAY_LEN(many) - 1; i++)
        many[i] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    REFUSED("many-args", execv("/bin/true", many), E2BIG);
    REFUSED("many-env", execve("/bin/true", (char *[]){"true", NULL}, many), E2BIG);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof(path), "%s/s%d", scratch(), i);
        snprintf(next, sizeof(next), "%s/s%d", scratch(), i + 1);
        write_script(path, next);
    }
    write_script(next, path);
    snprintf(path, sizeof(path), "%s/s0", scratch());
    REFUSED("interpreter-loop", execl(path, path, NULL), ELOOP, EACCES, EPERM);
    write_script(path, path);
    REFUSED("interpreter-self", execl(path, path, NULL), ELOOP, EACCES, EPERM);
    write_script(path, "/nowhere/interp");
    REFUSED("interpreter-absent", execl(path, path, NULL), ENOENT, EACCES, EPERM);
    REFUSED("directory", execl(scratch(), "x", NULL), EACCES, EPERM);
    /* Broken programs: the loader's fault may kill the child, never more. */
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(self, image, sizeof(image));
    struct fuzz_elf job = {path};
    unsigned seed = 12345;
    for (int i = 0; i < 60 && n > 512; i++) {
        char copy[8192];
        memcpy(copy, image, (size_t)n);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1103515245 + 12345;
            copy[4 + (seed >> 8) % 500] = (char)(seed >> 20);
        }
        unlink(path);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
        (void)!write(fd, copy, (size_t)n);
        close(fd);
        in_child(run_elf, &job, 3);
    }
    held("elf-fuzz");
    for (int i = 0; i < 300; i++) {
        if (fork() == 0) {
            execl("/bin/true", "true", NULL);
            _exit(0);
        }
        wait(NULL);
    }
    held("exec-storm");
}

static void crash(void *arg)
{
    (void)arg;
    prctl(PR_SET_DUMPABLE, 1);
    raise(SIGSEGV);
}

static void p29_core_dump(int argc, char **argv)
{
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY}, now;
    int cores = 0;
    (void)argc, (void)argv;

    REFUSED("raise-limit", setrlimit(RLIMIT_CORE, &all), EPERM);
    getrlimit(RLIMIT_CORE, &now);
    expect(now.rlim_max <= 1, "hard-limit", "%llu", (unsigned long long)now.rlim_max);
    (void)!chdir(scratch());
    signal(SIGSEGV, SIG_DFL);
    int st = in_child(crash, NULL, 10);
    expect(WIFSIGNALED(st) && !WCOREDUMP(st), "no-dump", "wait status %x", st);
    DIR *d = opendir(".");
    for (struct dirent *e; d && (e = readdir(d));)
        cores += strncmp(e->d_name, "core", 4) == 0;
    if (d)
        closedir(d);
    expect(cores == 0, "no-core-file", "%d files", cores);
}

static void p32_landlock(int argc, char **argv)
{
    char from[PATH_MAX], to[PATH_MAX];
    /* The host's last: two places on one file system, where /tmp may be one of its own. */
    const char *places[16] = {NULL};
    size_t n = 0;
    (void)argc, (void)argv;

    for (const char *const *d = writable_dirs; *d && n < ARRAY_LEN(places) - 3; d++)
        places[n++] = *d;
    places[n++] = given("HOSTILE_HOST_HOME");
    places[n++] = given("HOSTILE_HOST_WORK");
    for (const char **a = places; *a; a++) {
        for (const char **b = places; *b; b++) {
            if (a == b || access(*a, W_OK) < 0 || access(*b, W_OK) < 0)
                continue;
            snprintf(from, sizeof(from), "%s/ll-%d", *a, getpid());
            snprintf(to, sizeof(to), "%s/ll-%d-to", *b, getpid());
            int fd = open(from, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
            if (fd < 0)
                continue;
            close(fd);
            REFUSED(nm("rename%s%s", *a, *b), rename(from, to), EXDEV, EACCES);
            unlink(to);
            REFUSED(nm("link%s%s", *a, *b), link(from, to), EXDEV, EACCES, ENOENT);
            close(open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
            REFUSED(nm("exchange%s%s", *a, *b), syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 2), EXDEV, EACCES,
                    ENOENT, EINVAL);
            unlink(from);
            unlink(to);
            if (gentle() && probe_status() == 1)
                return;
        }
    }
    if (gentle())
        return;
    /* In a writable root it is the sandbox's own, and a file of the host stands for the base. */
    const char *base = given("HOSTILE_INSIDE") ? given("HOSTILE_RO_FILE") : "/etc/passwd";
    REFUSED("truncate-base", truncate(base, 0), EROFS, EACCES, EPERM);
    /* A rule set of our own can only narrow. */
    struct landlock_ruleset_attr attr = {.handled_access_fs =
                                             LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE};
    int rs = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (rs >= 0) {
        struct landlock_path_beneath_attr all = {.allowed_access = attr.handled_access_fs,
                                                 .parent_fd = open("/", O_PATH | O_CLOEXEC)};
        syscall(SYS_landlock_add_rule, rs, LANDLOCK_RULE_PATH_BENEATH, &all, 0);
        if (syscall(SYS_landlock_restrict_self, rs, 0) < 0)
            untried("nested", "%s", strerror(errno));
        REFUSED("nested-write", open(base, O_WRONLY), EROFS, EACCES, EPERM);
        REFUSED("nested-device", open("/dev/mem", O_RDONLY), ENOENT, EACCES);
    }
}

static void p37_sockets(void)
{
    static const int fine[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    static const struct {
        const char *name;
        int type, level, option;
    } options[] = {
        {"UDP_ENCAP", SOCK_DGRAM, IPPROTO_UDP, 100},        {"TCP_ULP", SOCK_STREAM, IPPROTO_TCP, 31},
        {"TCP_REPAIR", SOCK_STREAM, IPPROTO_TCP, 19},       {"TCP_MD5SIG", SOCK_STREAM, IPPROTO_TCP, 14},
        {"IPT_SO_SET_REPLACE", SOCK_DGRAM, IPPROTO_IP, 64}, {"ARPT_SO_SET_REPLACE", SOCK_DGRAM, IPPROTO_IP, 96},
        {"EBT_SO_SET", SOCK_DGRAM, IPPROTO_IP, 128},        {"MRT_INIT", SOCK_DGRAM, IPPROTO_IP, 200},
        {"IP_XFRM_POLICY", SOCK_DGRAM, IPPROTO_IP, 17},     {"SO_ATTACH_BPF", SOCK_DGRAM, SOL_SOCKET, 50},
        {"SO_BINDTODEVICE", SOCK_DGRAM, SOL_SOCKET, 25},    {"SO_ATTACH_REUSEPORT_EBPF", SOCK_DGRAM, SOL_SOCKET, 52},
        {"SO_ATTACH_FILTER", SOCK_DGRAM, SOL_SOCKET, 26},   {"SO_ATTACH_REUSEPORT_CBPF", SOCK_DGRAM, SOL_SOCKET, 51},
    };
    char zero[256] = "";

    for (int family = 0; family < 48; family++) {
        bool ok = false;
        for (size_t i = 0; i < ARRAY_LEN(fine); i++)
            ok = ok || family == fine[i];
        for (int type = 1; type <= 10 && !ok; type++)
            REFUSED(nm("family-%d-type-%d", family, type), socket(family, type, 0), EAFNOSUPPORT);
    }
    REFUSED("alg-aead", socket(38, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
    REFUSED("vsock", socket(40, SOCK_STREAM, 0), EAFNOSUPPORT);
    REFUSED("packet", socket(AF_PACKET, SOCK_RAW, 0x300), EAFNOSUPPORT);
    REFUSED("packet-old", socket(AF_INET, 10 /* SOCK_PACKET */, 0x300), ESOCKTNOSUPPORT, EPERM, EPROTONOSUPPORT);
    REFUSED("raw", socket(AF_INET, SOCK_RAW, IPPROTO_TCP), EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT);
    REFUSED("raw6", socket(AF_INET6, SOCK_RAW, IPPROTO_RAW), EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT);
    static const int protocols[] = {132 /* SCTP */, 33 /* DCCP */, 262 /* MPTCP */, 136 /* UDPLITE */, 256 /* SMC */};
    for (size_t i = 0; i < ARRAY_LEN(protocols); i++)
        REFUSED(nm("inet-%d", protocols[i]), socket(AF_INET, SOCK_STREAM, protocols[i]), EPROTONOSUPPORT,
                ESOCKTNOSUPPORT, EPERM);
    for (int proto = 1; proto < 32; proto++)
        REFUSED(nm("netlink-%d", proto), socket(AF_NETLINK, SOCK_RAW, proto), EPROTONOSUPPORT, EPERM);
    REFUSED("family-wide", syscall(SYS_socket, 0x100000000UL | AF_PACKET, SOCK_RAW, 0), EAFNOSUPPORT);
    REFUSED("socketpair-inet", socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}), EAFNOSUPPORT, EOPNOTSUPP);
    REFUSED("socketpair-tipc", socketpair(30, SOCK_STREAM, 0, (int[2]){0}), EAFNOSUPPORT);
    for (size_t i = 0; i < ARRAY_LEN(options) && !gentle(); i++) {
        int fd = socket(AF_INET, options[i].type | SOCK_CLOEXEC, 0);
        REFUSED(nm("option-%s", options[i].name),
                setsockopt(fd, options[i].level, options[i].option, zero, sizeof(zero)), EPERM, ENOPROTOOPT);
        close(fd);
    }
}

#if defined(__x86_64__)
static void call_i386(void *arg)
{
    long rc;
    (void)arg;
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20L) : "memory");
    _exit(42);
}

static void call_x32(void *arg)
{
    (void)arg;
    syscall(0x40000000 | SYS_getpid);
    _exit(42);
}
#endif

static void p37_dirty_pipe(void)
{
    const char *file = given("HOSTILE_RO_FILE") ? given("HOSTILE_RO_FILE") : "/usr/bin/env";
    bool paranoid = given("HOSTILE_PROFILE") && strcmp(given("HOSTILE_PROFILE"), "paranoid") == 0;
    char before[64] = "", after[64] = "", page[4096];
    int fd = open(file, O_RDONLY | O_CLOEXEC), p[2];

    if (fd < 0 || pipe(p) < 0 || pread(fd, before, sizeof(before), 0) <= 0) {
        untried("dirty-pipe", "%s", strerror(errno));
        return;
    }
    /* Fill and drain, so that every buffer of the ring carries the merge flag; then put a page of the file in. */
    fcntl(p[1], F_SETFL, O_NONBLOCK);
    memset(page, 'x', sizeof(page));
    while (write(p[1], page, sizeof(page)) > 0)
        ;
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    while (read(p[0], page, sizeof(page)) > 0)
        ;
    loff_t off = 0;
    errno = 0;
    ssize_t n = splice(fd, &off, p[1], NULL, 1, 0);
    if (paranoid)
        judge_refused("splice-paranoid", n, errno, ERRS(EINVAL));
    (void)!write(p[1], "HOSTILE", 7);
    REFUSED("splice-into-ro", splice(p[0], NULL, fd, &off, 4, SPLICE_F_NONBLOCK), EBADF, EINVAL, EPERM);
    REFUSED("sendfile-into-ro", syscall(SYS_sendfile, fd, fd, NULL, 4), EBADF, EINVAL, EPERM);
    REFUSED("copy-range-into-ro", syscall(SYS_copy_file_range, fd, NULL, fd, &off, 4, 0), EBADF, EINVAL, EPERM, EXDEV);
    REFUSED("fallocate-ro", fallocate(fd, 3, 0, 4096), EBADF, EROFS, EPERM, EOPNOTSUPP);
    REFUSED("pwritev2-ro", syscall(SYS_pwritev2, fd, NULL, 0, 0, 0, 0), EBADF, EROFS, EPERM);
    (void)!pread(fd, after, sizeof(after), 0);
    expect(memcmp(before, after, sizeof(before)) == 0, "dirty-pipe", "the page cache of %s changed", file);
}

static void p37_exploit_shapes(int argc, char **argv)
{
    char params[256] = "";
    (void)argc, (void)argv;

    REFUSED("io-uring-setup", syscall(SYS_io_uring_setup, 8, params), ENOSYS);
    REFUSED("io-uring-enter", syscall(SYS_io_uring_enter, 0, 1, 0, 0, NULL, 0), ENOSYS);
    REFUSED("io-uring-register", syscall(SYS_io_uring_register, -1, 0, NULL, 0), ENOSYS);
    REFUSED("userfaultfd", syscall(SYS_userfaultfd, 1), ENOSYS);
    REFUSED("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, params, sizeof(params)), EPERM);
    REFUSED("vmsplice", syscall(SYS_vmsplice, 1, NULL, 0, 0), ENOSYS, EINVAL); /* EINVAL: paranoid, with splice */
    REFUSED("memfd-secret", syscall(SYS_memfd_secret, 0), ENOSYS);
    REFUSED("remap-file-pages", syscall(SYS_remap_file_pages, 0, 0, 0, 0, 0), ENOSYS);
    REFUSED("io-setup", syscall(SYS_io_setup, 1, params), ENOSYS);
    REFUSED("fanotify", syscall(SYS_fanotify_init, 0, 0), EPERM);
    REFUSED("lsm-set", syscall(NR_lsm_set_self_attr, 100, params, sizeof(params), 0), ENOSYS);
    REFUSED("lsm-get", syscall(NR_lsm_get_self_attr, 100, NULL, NULL, 0), ENOSYS);
    REFUSED("future-call", syscall(999), ENOSYS);
    REFUSED("set-mm", prctl(35 /* PR_SET_MM */, 13, 0, 0, 0), EPERM);
    REFUSED("io-flusher", prctl(57, 1, 0, 0, 0), EPERM);
#if defined(__x86_64__)
    REFUSED("modify-ldt", syscall(SYS_modify_ldt, 0, params, 0), ENOSYS);
    REFUSED("iopl", syscall(SYS_iopl, 3), EPERM);
    REFUSED("ioperm", syscall(SYS_ioperm, 0x70, 2, 1), EPERM);
    int st = in_child(call_i386, NULL, 5);
    /* Where the kernel has no 32-bit entry the instruction itself faults. */
    expect(WIFSIGNALED(st) && (WTERMSIG(st) == SIGSYS || WTERMSIG(st) == SIGSEGV), "i386-entry", "wait status %x", st);
    st = in_child(call_x32, NULL, 5);
    expect(WIFSIGNALED(st) && WTERMSIG(st) == SIGSYS, "x32-entry", "wait status %x", st);
#endif
    p37_sockets();
    p37_dirty_pipe();
}

const struct probe_case kernel_cases[] = {
    {"P14", p14_tiocsti},  {"P16", p16_keyring},        {"P17", p17_ipc},
    {"P19", p19_unix_scm}, {"P28", p28_exec_storms},    {"P29", p29_core_dump},
    {"P32", p32_landlock}, {"P37", p37_exploit_shapes}, {NULL, NULL},
};
