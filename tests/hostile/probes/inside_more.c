/* SPDX-License-Identifier: Apache-2.0 */
/* The second half of what root inside tries (inside.c): the kernel's own controls, the network, files (U22 to U46). */
#include "probe.h"

#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/swap.h>
#include <sys/un.h>
#include <sys/xattr.h>

/* Opens and writes; what was refused, and where, is one errno. */
static long put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    long n = write(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    errno = saved;
    return n;
}

/* ---- /proc and sysctl ------------------------------------------------------------------------------------ */

static void u22_proc(int argc, char **argv)
{
    static const char *const gone[] = {"/proc/sysrq-trigger",
                                       "/proc/sys/kernel/core_pattern",
                                       "/proc/sys/kernel/modprobe",
                                       "/proc/sys/kernel/hostname",
                                       "/proc/sys/user/max_user_namespaces",
                                       "/proc/sys/net/ipv4/ip_forward",
                                       "/proc/sys/vm/drop_caches",
                                       "/proc/irq/0/smp_affinity",
                                       "/proc/kcore",
                                       "/proc/bus/pci"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(gone); i++)
        REFUSED(nm("%s", gone[i]), put(gone[i], "1"), ENOENT);
}

static void u23_proc_compat(int argc, char **argv)
{
    static const char *const fixed[] = {"/proc/sys/kernel/core_pattern",
                                        "/proc/sys/kernel/hostname",
                                        "/proc/sys/user/max_user_namespaces",
                                        "/proc/sys/net/ipv4/ip_forward",
                                        "/proc/sys/net/ipv4/ip_unprivileged_port_start",
                                        "/proc/sys/vm/drop_caches",
                                        "/proc/sys/kernel/randomize_va_space"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        REFUSED(nm("%s", fixed[i]), put(fixed[i], "0"), EACCES, EROFS, ENOENT);
    REFUSED("sysrq", put("/proc/sysrq-trigger", "h"), EROFS, ENOENT, EACCES);
}

static void u24_own_proc(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("oom_score_adj", put("/proc/self/oom_score_adj", "-1000"), EACCES);
    REFUSED("uid_map", put("/proc/self/uid_map", "0 0 4294967295"), EPERM);
    REFUSED("gid_map", put("/proc/self/gid_map", "0 0 4294967295"), EPERM);
    REFUSED("setgroups", put("/proc/self/setgroups", "deny"), EACCES);
    REFUSED("timens", put("/proc/self/timens_offsets", "monotonic 1 0"), EACCES, EPERM, ENOENT);
}

/* ---- the kernel's controls --------------------------------------------------------------------------------- */

static void u25_keys(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("add_key", syscall(SYS_add_key, "user", "a", "b", 1, -3), ENOSYS);
    REFUSED("request_key", syscall(SYS_request_key, "user", "a", NULL, 0), ENOSYS);
    REFUSED("keyctl-join", syscall(SYS_keyctl, 1, NULL), ENOSYS);
    REFUSED("keyctl-chown", syscall(SYS_keyctl, 4, -3, 0, 0), ENOSYS);
    REFUSED("keyctl-persistent", syscall(SYS_keyctl, 22, 0, -3), ENOSYS);
}

static void u26_programs_of_the_kernel(int argc, char **argv)
{
    char attr[128] = {0};
    (void)argc, (void)argv;

    for (int cmd = 0; cmd < 8; cmd++)
        REFUSED(nm("bpf-%d", cmd), syscall(SYS_bpf, cmd, attr, sizeof(attr)), EPERM);
    REFUSED("perf", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0), EPERM);
    REFUSED("userfaultfd", syscall(SYS_userfaultfd, 0), ENOSYS);
    REFUSED("io_uring", syscall(SYS_io_uring_setup, 1, attr), ENOSYS);
    REFUSED("fanotify", syscall(SYS_fanotify_init, 0, 0), EPERM);
    REFUSED("init_module", syscall(SYS_init_module, attr, sizeof(attr), ""), EPERM);
    REFUSED("finit_module", syscall(SYS_finit_module, 0, "", 0), EPERM);
    REFUSED("delete_module", syscall(SYS_delete_module, "no_such_module", 0), EPERM);
    REFUSED("kexec", syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM);
    REFUSED("iopl", syscall(SYS_iopl, 3), EPERM);
    REFUSED("ioperm", syscall(SYS_ioperm, 0x80, 1, 1), EPERM);
    REFUSED("syslog", syscall(SYS_syslog, 3, attr, sizeof(attr)), EPERM);
}

static void u27_machine(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, NULL), EPERM);
    REFUSED("settimeofday", syscall(SYS_settimeofday, NULL, NULL), EPERM);
    REFUSED("clock_settime", syscall(SYS_clock_settime, 0, NULL), EPERM);
    REFUSED("adjtimex", syscall(SYS_adjtimex, NULL), EPERM);
    REFUSED("clock_adjtime", syscall(SYS_clock_adjtime, 0, NULL), EPERM);
    REFUSED("swapon", syscall(SYS_swapon, "/workspace/swap", 0), EPERM);
    REFUSED("swapoff", syscall(SYS_swapoff, "/dev/sda"), EPERM);
    REFUSED("quotactl", syscall(SYS_quotactl, 0x800002 << 8, "/dev/loop0", 0, NULL), EPERM);
    REFUSED("quotactl_fd", syscall(SYS_quotactl_fd, 0, 0, 0, NULL), EPERM);
    REFUSED("sethostname", sethostname("pwned", 5), EPERM);
    REFUSED("setdomainname", setdomainname("pwned", 5), EPERM);
    REFUSED("acct", syscall(SYS_acct, "/workspace/acct"), EPERM);
    REFUSED("vhangup", syscall(SYS_vhangup), EPERM);
}

static void u28_priorities(int argc, char **argv)
{
    static const int more[] = {RLIMIT_NICE, RLIMIT_RTPRIO, RLIMIT_MEMLOCK, RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_MSGQUEUE};
    (void)argc, (void)argv;

    REFUSED("nice", setpriority(PRIO_PROCESS, 0, -20), EACCES);
    REFUSED("fifo", syscall(SYS_sched_setscheduler, 0, 1, &(int){1}), EPERM);
    REFUSED("setattr", syscall(SYS_sched_setattr, 0, NULL, 0), EPERM);
    REFUSED("ioprio", syscall(SYS_ioprio_set, 1, 0, 1 << 13), EPERM);
    for (size_t i = 0; i < ARRAY_LEN(more); i++) {
        struct rlimit now;
        getrlimit((__rlimit_resource_t)more[i], &now);
        struct rlimit next = {now.rlim_cur, now.rlim_max + 1};
        REFUSED(nm("rlimit-%d", more[i]), setrlimit((__rlimit_resource_t)more[i], &next), EPERM);
    }
}

static void u29_handles(int argc, char **argv)
{
    struct file_handle *handle = calloc(1, sizeof(*handle) + 128);
    int id;
    (void)argc, (void)argv;

    handle->handle_bytes = 128;
    REFUSED("name", name_to_handle_at(AT_FDCWD, "/", handle, &id, 0), ENOSYS);
    handle->handle_bytes = 8;
    handle->handle_type = 1;
    ((uint32_t *)(void *)handle->f_handle)[0] = 2; /* the root of an ext4 */
    REFUSED("open", open_by_handle_at(AT_FDCWD, handle, O_RDONLY), ENOSYS);
    free(handle);
}

/* ---- cgroups --------------------------------------------------------------------------------------------- */

static void u30_cgroups(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("sys", open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY), ENOENT);
    REFUSED("mount", syscall(SYS_mount, "none", "/tmp", "cgroup2", 0, NULL), EPERM);
    (void)!mkdir("/sys", 0755);
    (void)!mkdir("/sys/fs", 0755);
    REFUSED("mount-sys", syscall(SYS_mount, "none", "/sys/fs", "cgroup", 0, "memory"), EPERM);
    char text[4096] = "";
    expect(slurp("/proc/self/cgroup", text, sizeof(text)) > 0 && !strstr(text, "brig"), "path", "%s", text);
}

/* ---- network --------------------------------------------------------------------------------------------- */

static void u31_raw_sockets(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("raw", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM);
    REFUSED("raw-tcp", socket(AF_INET, SOCK_RAW, IPPROTO_TCP), EPERM);
    REFUSED("raw6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), EPERM);
    REFUSED("packet", socket(AF_PACKET, SOCK_RAW, 0), EAFNOSUPPORT);
    REFUSED("vsock", socket(40, SOCK_STREAM, 0), EAFNOSUPPORT);
    REFUSED("alg", socket(38, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
    REFUSED("nftables", socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), EPROTONOSUPPORT);
    REFUSED("xfrm", socket(AF_NETLINK, SOCK_RAW, NETLINK_XFRM), EPROTONOSUPPORT);
    REFUSED("audit", socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT), EPROTONOSUPPORT);
    REFUSED("generic", socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC), EPROTONOSUPPORT);
}

/* One request over rtnetlink. Returns what the kernel says: 0 or an errno. */
static int ask_route(uint16_t type, const void *body, size_t len)
{
    struct {
        struct nlmsghdr head;
        char body[64];
    } out = {.head = {.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + len),
                      .nlmsg_type = type,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE}};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } in = {.error = {.error = 1}};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    memcpy(out.body, body, len);
    if (fd < 0 || send(fd, &out, out.head.nlmsg_len, 0) < 0 || recv(fd, &in, sizeof(in), 0) < 0)
        return errno;
    close(fd);
    return -in.error.error;
}

static void u32_netlink(int argc, char **argv)
{
    struct ifinfomsg link = {.ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_change = IFF_UP};
    struct ifaddrmsg addr = {.ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = 1};
    struct rtmsg route = {.rtm_family = AF_INET, .rtm_table = 254, .rtm_type = 1};
    static const struct {
        const char *name;
        uint16_t type;
    } kinds[] = {{"newlink", RTM_NEWLINK},   {"dellink", RTM_DELLINK},   {"newaddr", RTM_NEWADDR},
                 {"deladdr", RTM_DELADDR},   {"newroute", RTM_NEWROUTE}, {"delroute", RTM_DELROUTE},
                 {"newneigh", RTM_NEWNEIGH}, {"newrule", RTM_NEWRULE},   {"newqdisc", RTM_NEWQDISC}};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const void *body = kinds[i].type <= RTM_DELLINK   ? (void *)&link
                           : kinds[i].type <= RTM_DELADDR ? (void *)&addr
                                                          : (void *)&route;
        size_t len = kinds[i].type <= RTM_DELLINK   ? sizeof(link)
                     : kinds[i].type <= RTM_DELADDR ? sizeof(addr)
                                                    : sizeof(route);
        int err = ask_route(kinds[i].type, body, len);
        errno = err;
        judge_refused(kinds[i].name, err ? -1 : 0, err, ERRS(EPERM));
    }
}

static void u33_socket_options(int argc, char **argv)
{
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, big = 1 << 28;
    char replace[128] = {0};
    (void)argc, (void)argv;

    REFUSED("iptables", setsockopt(tcp, IPPROTO_IP, 64, replace, sizeof(replace)), EPERM);
    REFUSED("bindtodevice", setsockopt(tcp, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), EPERM);
    REFUSED("mark", setsockopt(tcp, SOL_SOCKET, SO_MARK, &one, sizeof(one)), EPERM);
    REFUSED("priority", setsockopt(tcp, SOL_SOCKET, SO_PRIORITY, &(int){7}, sizeof(int)), EPERM);
    REFUSED("rcvbufforce", setsockopt(tcp, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof(big)), EPERM);
    REFUSED("sndbufforce", setsockopt(tcp, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big)), EPERM);
    REFUSED("transparent", setsockopt(tcp, IPPROTO_IP, 19, &one, sizeof(one)), EPERM);
    REFUSED("debug", setsockopt(tcp, SOL_SOCKET, SO_DEBUG, &one, sizeof(one)), EACCES);
    REFUSED("attach-filter", setsockopt(tcp, SOL_SOCKET, SO_ATTACH_FILTER, replace, 16), EPERM);
    close(tcp);
}

static void u34_interface_ioctls(int argc, char **argv)
{
    struct ifreq req = {.ifr_name = "lo"};
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)argc, (void)argv;

    REFUSED("flags", ioctl(udp, 0x8914, &req), EPERM);
    REFUSED("address", ioctl(udp, 0x8916, &req), EPERM);
    REFUSED("mtu", ioctl(udp, 0x8922, &req), EPERM);
    REFUSED("name", ioctl(udp, 0x8923, &req), EPERM);
    REFUSED("route", ioctl(udp, 0x890b, &req), EPERM);
    REFUSED("bridge", ioctl(udp, 0x89a0, "br0"), EPERM);
    REFUSED("netns", ioctl(udp, 0x894c, &req), EPERM);
    close(udp);
}

/* Low ports are the sandbox's own, and only there. */
static void u35_low_ports(int argc, char **argv)
{
    static const uint16_t ports[] = {1, 22, 80, 443};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(ports[i])};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        expect(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 1) == 0, nm("port-%u", ports[i]), "%s",
               strerror(errno));
        close(fd);
    }
    expect(!in_host_ns("net"), "own-network", "it is the host's");
}

/* ---- files ------------------------------------------------------------------------------------------------ */

static void u36_overlay_xattrs(int argc, char **argv)
{
    struct stat st;
    char value[8] = "";
    (void)argc, (void)argv;

    REFUSED("trusted-opaque", setxattr("/etc", "trusted.overlay.opaque", "y", 1, 0), EPERM, EOPNOTSUPP);
    REFUSED("trusted-redirect", setxattr("/etc", "trusted.overlay.redirect", "/usr", 4, 0), EPERM, EOPNOTSUPP);
    /* What overlays keep in user xattrs is theirs: the names are escaped (6.7) or refused. */
    static const char *const names[] = {"user.overlay.opaque", "user.overlay.redirect", "user.overlay.metacopy",
                                        "user.overlay.whiteouts", "user.overlay.origin"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        errno = 0;
        int rc = setxattr("/etc", names[i], "y", 1, 0);
        expect(rc == 0 ? getxattr("/etc", names[i], value, sizeof(value)) == 1 : errno == EPERM || errno == EOPNOTSUPP,
               nm("set-%s", names[i]), "errno %d", errno);
    }
    expect(stat("/etc/passwd", &st) == 0, "lower-still-there", "%s", strerror(errno));
    expect(getxattr("/usr", "trusted.overlay.opaque", value, sizeof(value)) < 0, "no-trusted", "readable");
}

static void u37_acls(int argc, char **argv)
{
    const char *dir = scratch();
    struct {
        uint32_t version;
        struct {
            uint16_t tag, perm;
            uint32_t id;
        } e[5];
    } acl = {
        2, {{1, 6, 0xffffffffu}, {2, 7, 100000}, {4, 4, 0xffffffffu}, {0x10, 7, 0xffffffffu}, {0x20, 4, 0xffffffffu}}};
    char path[128];
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/acl", dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    REFUSED("unmapped", setxattr(path, "system.posix_acl_access", &acl, sizeof(acl), 0), EINVAL, EOPNOTSUPP);
    acl.e[1].id = 0x70000000u;
    REFUSED("host-range", setxattr(path, "system.posix_acl_access", &acl, sizeof(acl), 0), EINVAL, EOPNOTSUPP);
    REFUSED("read-only", setxattr("/probe/host.txt", "system.posix_acl_access", &acl, sizeof(acl), 0), EROFS, EINVAL,
            EOPNOTSUPP);
}

static void u38_file_flags(int argc, char **argv)
{
    char path[128];
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/flags", scratch());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    REFUSED("immutable", ioctl(fd, 0x40086602, &(long){0x10}), EPERM);
    REFUSED("append", ioctl(fd, 0x40086602, &(long){0x20}), EPERM);
    REFUSED("fssetxattr", ioctl(fd, 0x401c5820, path), EPERM);
    REFUSED("freeze", ioctl(fd, 0xc0045877, &(int){0}), EPERM);
    REFUSED("thaw", ioctl(fd, 0xc0045878, &(int){0}), EPERM);
    REFUSED("trim", ioctl(fd, 0xc0185879, path), EPERM);
    REFUSED("shutdown", ioctl(fd, 0x8004587d, &(int){0}), EPERM);
    REFUSED("resize", ioctl(fd, 0x40086610, &(long){0}), EPERM);
    REFUSED("swap-boot", ioctl(fd, 0x6611), EPERM);
    REFUSED("encrypt", ioctl(fd, 0x800c6613, path), EPERM);
    REFUSED("fibmap", ioctl(fd, 1, &(int){0}), EPERM);
    REFUSED("file_setattr", syscall(NR_file_setattr, fd, "", path, 32, AT_EMPTY_PATH), ENOSYS);
    close(fd);
}

static void u39_locks(int argc, char **argv)
{
    char path[128];
    struct flock whole = {.l_type = F_WRLCK};
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/lock", scratch());
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644), ro = open("/probe/host.txt", O_RDONLY | O_CLOEXEC);
    REFUSED("lease", fcntl(fd, F_SETLEASE, F_WRLCK), EPERM);
    REFUSED("lease-host", fcntl(ro, F_SETLEASE, F_RDLCK), EPERM);
    REFUSED("notify", fcntl(fd, F_NOTIFY, 1), EPERM);
    REFUSED("ofd", fcntl(fd, F_OFD_SETLK, &whole), EINVAL);
    close(fd);
    close(ro);
}

/* What the host shares read-only stays so for root, and what it does not share is not there. */
static void u40_host_files(int argc, char **argv)
{
    const char *file = given("HOSTILE_RO_FILE"), *canary = given("HOSTILE_CANARY_PATH");
    char path[128];
    (void)argc, (void)argv;

    if (file) {
        REFUSED("write", open(file, O_WRONLY | O_CLOEXEC), EROFS, EACCES);
        REFUSED("chmod", chmod(file, 0777), EROFS);
        REFUSED("chown", chown(file, 0, 0), EROFS);
        REFUSED("unlink", unlink(file), EROFS, EACCES);
        REFUSED("truncate", truncate(file, 0), EROFS, EACCES);
        REFUSED("utime", utimensat(AT_FDCWD, file, NULL, 0), EROFS);
        REFUSED("setxattr", setxattr(file, "user.a", "b", 1, 0), EROFS);
        snprintf(path, sizeof(path), "%s/link", scratch());
        REFUSED("link", link(file, path), EXDEV, EROFS);
    }
    if (canary)
        try_read("canary", AT_FDCWD, canary);
    try_read("up", AT_FDCWD, "/../../../../../../etc/shadow-of-the-host");
}

static void u41_host_processes(int argc, char **argv)
{
    long sentinel = given_long("HOSTILE_SENTINEL", 0);
    (void)argc, (void)argv;

    if (in_host_ns("pid")) {
        untried("kill", "it is the host's pid namespace");
        return;
    }
    for (long pid = sentinel - 2; sentinel > 4096 && pid <= sentinel + 2; pid++)
        REFUSED(nm("kill-%ld", pid - sentinel), kill((pid_t)pid, SIGTERM), ESRCH);
    REFUSED("kill-high", kill(4194303, SIGTERM), ESRCH);
}

static void u42_credentials(int argc, char **argv)
{
    int pair[2];
    struct ucred who = {.pid = 1, .uid = 0, .gid = 0};
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(who))];
    } beside = {.head = {.cmsg_len = CMSG_LEN(sizeof(who)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS}};
    struct iovec iov = {"x", 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &beside, .msg_controllen = sizeof(beside.space)};
    (void)argc, (void)argv;

    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    memcpy(CMSG_DATA(&beside.head), &who, sizeof(who));
    REFUSED("pid-1", sendmsg(pair[0], &msg, 0), EPERM);
    who = (struct ucred){.pid = getpid(), .uid = 65536, .gid = 0};
    memcpy(CMSG_DATA(&beside.head), &who, sizeof(who));
    REFUSED("unmapped", sendmsg(pair[0], &msg, 0), EINVAL);
    close(pair[0]);
    close(pair[1]);
}

/* As root one may write everywhere in the sandbox, and all of it counts. */
static void u43_no_reserve(int argc, char **argv)
{
    static char block[1 << 16];
    uint64_t limit = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, written = 0;
    static const char *const places[] = {"/fill", "/root/fill", "/workspace/fill", "/etc/fill", "/var/fill"};
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int fd = open(places[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        for (ssize_t n; fd >= 0 && written < 4 * limit && (n = write(fd, block, sizeof(block))) > 0;)
            written += (uint64_t)n;
        expect(fd < 0 || errno == ENOSPC, nm("full-%zu", i), "errno %d", errno);
        close(fd);
    }
    expect(written <= limit, "sum", "%llu of %llu", (unsigned long long)written, (unsigned long long)limit);
}

static void many_ids(void *arg)
{
    unsigned *limit = arg, made = 0;

    /* One process for each of many ids: RLIMIT_NPROC counts each id apart, the sandbox's limit does not. */
    for (uid_t id = 2000; id < 2000 + 4 * *limit; id++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            (void)!setresuid(id, id, id);
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of ids clears it */
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                pause();
            }
            pause();
        }
        made++;
    }
    expect(made < *limit, "processes", "%u with a limit of %u", made, *limit);
}

static void u44_pids_by_ids(int argc, char **argv)
{
    static unsigned limit;
    limit = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 64;
    in_child(many_ids, &limit, 60);
}

/* Links that point out of the sandbox lead nowhere, however high the rights. */
static void u45_links(int argc, char **argv)
{
    const char *host = given("HOSTILE_HOST_FILE");
    char path[128];
    (void)argc, (void)argv;

    snprintf(path, sizeof(path), "%s/out", scratch());
    if (host && symlink(host, path) == 0)
        REFUSED("absolute", open(path, O_RDONLY | O_CLOEXEC), ENOENT);
    unlink(path);
    (void)!symlink("/proc/1/root/etc/passwd", path);
    REFUSED("init-root", open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
    unlink(path);
    (void)!symlink("../../../../../../../../proc/1/cwd", path);
    REFUSED("init-cwd", open(path, O_RDONLY | O_CLOEXEC), ENOENT, EACCES, EPERM);
}

static void u46_memory_of_others(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("devmem", open("/dev/mem", O_RDONLY), ENOENT);
    REFUSED("devport", open("/dev/port", O_RDONLY), ENOENT);
    REFUSED("kvm", open("/dev/kvm", O_RDWR), ENOENT);
    REFUSED("loop-control", open("/dev/loop-control", O_RDWR), ENOENT);
    REFUSED("fuse", open("/dev/fuse", O_RDWR), ENOENT);
    REFUSED("tun", open("/dev/net/tun", O_RDWR), ENOENT);
    REFUSED("kmsg", open("/dev/kmsg", O_RDONLY), ENOENT);
}

const struct probe_case inside_more_cases[] = {
    {"U22", u22_proc},
    {"U23", u23_proc_compat},
    {"U24", u24_own_proc},
    {"U25", u25_keys},
    {"U26", u26_programs_of_the_kernel},
    {"U27", u27_machine},
    {"U28", u28_priorities},
    {"U29", u29_handles},
    {"U30", u30_cgroups},
    {"U31", u31_raw_sockets},
    {"U32", u32_netlink},
    {"U33", u33_socket_options},
    {"U34", u34_interface_ioctls},
    {"U35", u35_low_ports},
    {"U36", u36_overlay_xattrs},
    {"U37", u37_acls},
    {"U38", u38_file_flags},
    {"U39", u39_locks},
    {"U40", u40_host_files},
    {"U41", u41_host_processes},
    {"U42", u42_credentials},
    {"U43", u43_no_reserve},
    {"U44", u44_pids_by_ids},
    {"U45", u45_links},
    {"U46", u46_memory_of_others},
    {NULL, NULL},
};
