/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the whole host shares (S01 to S06): kernel resources that are one number for the machine, charged to no cgroup.
 * The probes take little: one success is the proof, and nothing is used up on a machine whose sandbox does not work.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <sched.h>
#include <netinet/in.h>
#include <linux/in6.h> /* after it: both define the same */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

static struct sock_filter pass[] = {BPF_STMT(BPF_RET | BPF_K, 0x7fff0000)};
static struct sock_fprog program = {1, pass};

/* Machine code of filters: net.core.bpf_jit_limit is the host's, and without it no new sandbox gets its filter. */
static void s01_bpf_jit(int argc, char **argv)
{
    static const struct {
        const char *name;
        int family, type;
    } sockets[] = {{"udp", AF_INET, SOCK_DGRAM},
                   {"tcp", AF_INET, SOCK_STREAM},
                   {"unix", AF_UNIX, SOCK_DGRAM},
                   {"udp6", AF_INET6, SOCK_DGRAM},
                   {"netlink", AF_NETLINK, SOCK_RAW}};
    static const struct {
        const char *name;
        int option;
    } options[] = {{"attach-filter", 26}, {"attach-bpf", 50}, {"reuseport-cbpf", 51}, {"reuseport-ebpf", 52}};
    int on = 1;
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(sockets); i++) {
        int fd = socket(sockets[i].family, sockets[i].type | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            untried(sockets[i].name, "%s", strerror(errno));
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
        for (size_t k = 0; k < ARRAY_LEN(options); k++) {
            /* With nothing in the way the eBPF ones take a descriptor that we do not have. */
            if (gentle() && options[k].option % 2 == 0 && options[k].option != 26)
                continue;
            REFUSED(nm("%s-%s", options[k].name, sockets[i].name),
                    setsockopt(fd, SOL_SOCKET, options[k].option, &program, sizeof(program)), EPERM);
            REFUSED(nm("%s-wide-%s", options[k].name, sockets[i].name),
                    syscall(SYS_setsockopt, fd, 0x100000000UL | SOL_SOCKET, 0x500000000UL | (unsigned)options[k].option,
                            &program, sizeof(program)),
                    EPERM);
        }
        close(fd);
    }
    REFUSED("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), EINVAL);
    REFUSED("seccomp-log", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_LOG, &program), EINVAL);
    REFUSED("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), EINVAL);
    REFUSED("bpf", syscall(SYS_bpf, 5 /* BPF_PROG_LOAD */, NULL, 0), EPERM);
}

/* One huge page each way, from a pool that the harness has filled. */
static void s02_hugetlb(int argc, char **argv)
{
    size_t page = 2 * MIB;
    (void)argc, (void)argv;

    static const int sizes[] = {0, 21 << 26, 30 << 26}; /* the default, 2 MiB, 1 GiB */
    for (size_t i = 0; i < ARRAY_LEN(sizes) && (i < 2 || !gentle()); i++) {
        char *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | sizes[i], -1, 0);
        judge_refused(nm("mmap-%zu", i), p == MAP_FAILED ? -1 : 0, errno, ERRS(ENOMEM));
        p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | sizes[i], -1, 0);
        judge_refused(nm("mmap-shared-%zu", i), p == MAP_FAILED ? -1 : 0, errno, ERRS(ENOMEM));
        REFUSED(nm("memfd-%zu", i), memfd_create("huge", 4u /* MFD_HUGETLB */ | (unsigned)sizes[i]), EINVAL);
        REFUSED(nm("shmget-%zu", i), syscall(SYS_shmget, 0, page, 04000 | sizes[i] | 0600), EPERM, ENOSYS);
    }
}

/* Drops the pages of a file that everybody shares, or asks which are there. The harness looks from outside. */
static void s06_page_cache(int argc, char **argv)
{
    char byte;
    struct iovec iov = {&byte, 1};
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0 || read(fd, &byte, 1) != 1) {
        untried("file", "%s", strerror(errno));
        return;
    }
    /* Advice is answered well even where it is not taken. */
    expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "dontneed-answers", "%s", strerror(errno));
    REFUSED("nowait", syscall(SYS_preadv2, fd, &iov, 1, 0, 0, 8 /* RWF_NOWAIT */), EOPNOTSUPP);
    REFUSED("dontcache", syscall(SYS_preadv2, fd, &iov, 1, 0, 0, 0x80 /* RWF_DONTCACHE */), EOPNOTSUPP);
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (!gentle())
        REFUSED("pageout", madvise(p, 4096, 21 /* MADV_PAGEOUT */), EINVAL);
    munmap(p, 4096);
    dprintf(STDOUT_FILENO, "DROPPED\n");
}

static long route_change(int type)
{
    struct {
        struct nlmsghdr head;
        struct rtmsg body; /* as long as that of a neighbour or an address needs */
        struct rtattr attr;
        uint32_t address;
    } ask = {.head = {sizeof(ask), (uint16_t)type, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0},
             .body = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_table = RT_TABLE_MAIN, .rtm_type = RTN_BLACKHOLE},
             .attr = {sizeof(struct rtattr) + 4, RTA_DST},
             .address = htonl(0x01020304)};
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[512];
    } answer = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (send(fd, &ask, sizeof(ask), 0) < 0 || recv(fd, &answer, sizeof(answer), 0) <= 0)
        return -1;
    close(fd);
    errno = -answer.error.error;
    return answer.error.error ? -1 : 0;
}

/* IPv6 flow labels: the host has 4,096 of them. */
static int flow_label(unsigned long level)
{
    struct in6_flowlabel_req ask = {.flr_dst = IN6ADDR_LOOPBACK_INIT,
                                    .flr_action = IPV6_FL_A_GET,
                                    .flr_share = IPV6_FL_S_EXCL,
                                    .flr_flags = IPV6_FL_F_CREATE};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = (int)syscall(SYS_setsockopt, fd, level, IPV6_FLOWLABEL_MGR, &ask, sizeof(ask)), saved = errno;

    close(fd);
    errno = saved;
    return r;
}

/* As fork(), with these flags; the child ends at once. */
static long clone_and_end(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return pid;
}

/* Objects of the kernel that are counted once for the host: refused, or bounded for the sandbox. */
static void s03_kernel_objects(int argc, char **argv)
{
    char buf[256] = "", name[32];
    long n;
    (void)argc, (void)argv;

    for (n = 0; n < 200 && open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0; n++)
        ;
    judge_refused("ptys", n <= 64 ? -1 : 0, errno, ERRS(ENOSPC));
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    for (n = 0; n < 2000; n++) {
        struct mq_attr attr = {.mq_maxmsg = 1, .mq_msgsize = 8};
        snprintf(name, sizeof(name), "/hostile-%ld", n);
        if (mq_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, &attr) < 0)
            break;
    }
    judge_refused("mqueues", n <= 256 ? -1 : 0, errno, ERRS(ENOSPC, EMFILE, ENOSYS, EACCES));
    while (n-- > 0) {
        snprintf(name, sizeof(name), "/hostile-%ld", n);
        mq_unlink(name);
    }
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int own = open(scratch(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    REFUSED("lease", fcntl(own, F_SETLEASE, F_WRLCK), EPERM);
    REFUSED("notify", fcntl(own, F_NOTIFY, 0), EPERM);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    REFUSED("ofd-lock", fcntl(own, F_OFD_SETLK, &range), EINVAL);
    REFUSED("ofd-lock-wait", fcntl(own, F_OFD_SETLKW, &range), EINVAL);
    REFUSED("ofd-lock-wide", syscall(SYS_fcntl, own, 0x100000000UL | F_OFD_SETLK, &range), EINVAL);
    REFUSED("ofd-look", fcntl(own, F_OFD_GETLK, &range), EINVAL);
    expect(fcntl(own, F_SETLK, &range) == 0, "posix-lock", "%s", strerror(errno));
    REFUSED("shared-descriptors", clone_and_end(CLONE_FILES), EPERM);
    REFUSED("shared-descriptors-vm", clone_and_end(CLONE_FILES | CLONE_VFORK | CLONE_FS), EPERM);
    expect(clone_and_end(CLONE_VFORK) > 0, "vfork", "%s", strerror(errno));
    close(own);
    REFUSED("keys", syscall(SYS_add_key, "user", "hostile", "x", 1, -3), ENOSYS);
    REFUSED("fanotify", syscall(SYS_fanotify_init, 0, 0), EPERM);
    REFUSED("aio", syscall(SYS_io_setup, 1, buf), ENOSYS);
    REFUSED("io-uring", syscall(SYS_io_uring_setup, 8, buf), ENOSYS);
    REFUSED("bpf-map", syscall(SYS_bpf, 0, buf, sizeof(buf)), EPERM);
    REFUSED("user-namespace", syscall(SYS_unshare, 0x10000000), EPERM);
    REFUSED("mount", syscall(SYS_mount, "none", scratch(), "tmpfs", 0, NULL), EPERM);
    REFUSED("loop-device", open("/dev/loop-control", O_RDWR | O_CLOEXEC), ENOENT, EACCES);
    REFUSED("route", route_change(RTM_NEWROUTE), EPERM);
    REFUSED("neighbour", route_change(RTM_NEWNEIGH), EPERM);
    REFUSED("rule", route_change(RTM_NEWRULE), EPERM);
    REFUSED("flow-label", flow_label(IPPROTO_IPV6), EPERM);
    REFUSED("flow-label-wide", flow_label(0x100000000UL | IPPROTO_IPV6), EPERM);
    REFUSED("cgroup", open("/sys/fs/cgroup", O_RDONLY | O_CLOEXEC), ENOENT, EACCES);
}

/* Sockets whose queues nobody is charged for: the sandbox is ended for having so many. */
static void s03_netlink(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int i = 0; i < 200; i++)
        if (socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE) < 0) {
            untried("netlink", "%s", strerror(errno));
            return;
        }
    sleep(gentle() ? 2 : 60); /* until we are ended; in the off run long enough to see that nobody does */
    breach("netlink", "200 sockets, and nobody minds");
}

/* Locks that nobody is charged for, of two processes: each alone has fewer than a sandbox may. */
static void s03_locks(int argc, char **argv)
{
    pid_t child = fork();
    int ready = 1, fds[100];
    (void)argc, (void)argv;

    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = open(scratch(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    for (int i = 0; i < 600 && ready; i++) {
        struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};
        ready = fcntl(fds[(size_t)i % ARRAY_LEN(fds)], F_SETLK, &range) == 0;
    }
    if (!ready)
        untried("locks", "%s", strerror(errno));
    for (int i = 0; child > 0 && ready && i < (gentle() ? 2 : 60); i++)
        sleep(1); /* as in s03_netlink() */
    if (child == 0)
        sleep(gentle() ? 3 : 120);
    if (child <= 0)
        _exit(0);
    if (ready)
        breach("locks", "1,200 locks, and nobody minds");
}

/*
 * Memory of sockets that no cgroup counts: what a UDP socket holds back, refusals in its error queue, copies of what a
 * TCP socket sent; and the same in sockets that are in no list any more.
 */
enum hoard { HOARD_CORK, HOARD_REFUSED, HOARD_SENT, HOARD_UNLISTED };

static void take_copies(int fd, int peer)
{
    static char data[60000];
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SO_TIMESTAMPING}};
    struct iovec piece = {data, sizeof(data)};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int when = 2; /* SOF_TIMESTAMPING_TX_SOFTWARE */

    memcpy(CMSG_DATA(&control.head), &when, sizeof(when));
    for (int i = 0; i < 10; i++)
        for (ssize_t n = sendmsg(fd, &message, 0), got; n > 0; n -= got)
            if ((got = recv(peer, data, (size_t)n, 0)) <= 0)
                return;
}

static int hoard_one(enum hoard how, int listener, const struct sockaddr_in *to)
{
    static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    static char data[60000];
    int room = 4 << 20, on = 1, fd = socket(AF_INET, (how == HOARD_SENT ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
    setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        return -1;
    if (how == HOARD_SENT) {
        int peer = accept(listener, NULL, NULL);
        take_copies(fd, peer);
        close(peer);
    } else if (how == HOARD_REFUSED) {
        for (int i = 0; i < 600; i++)
            if (send(fd, data, 600, 0) < 0 && errno != ECONNREFUSED)
                return -1;
    } else if (send(fd, data, sizeof(data), MSG_MORE) < 0 ||
               (how == HOARD_UNLISTED && connect(fd, &nowhere, sizeof(nowhere)) < 0)) {
        return -1;
    }
    return 0;
}

static void s03_sockets(int argc, char **argv)
{
    static const struct {
        const char *name;
        int count;
    } ways[] = {{"cork", 900}, {"refused", 200}, {"sent", 150}, {"unlisted", 900}};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(9)};
    socklen_t len = sizeof(to);
    int how = argc > 1 ? atoi(argv[1]) : 0, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), i = 0;

    if (how == HOARD_SENT) {
        to.sin_port = 0;
        if (bind(listener, (const struct sockaddr *)&to, len) < 0 || listen(listener, 1) < 0 ||
            getsockname(listener, (struct sockaddr *)&to, &len) < 0)
            how = HOARD_CORK;
    }
    if (how == HOARD_UNLISTED && fork() < 0) /* more than one process may have open */
        untried(ways[how].name, "%s", strerror(errno));
    while (i < ways[how].count && hoard_one((enum hoard)how, listener, &to) == 0)
        i++;
    if (i < ways[how].count) {
        untried(ways[how].name, "%s", strerror(errno));
        return;
    }
    sleep(gentle() ? 2 : 60); /* as in s03_netlink() */
    breach(ways[how].name, "%d sockets hold more than the limit, and nobody minds", i);
}

/* A directory and a link to one outside change places for ever: see live_tree() in served.py. */
static void s05_swap(int argc, char **argv)
{
    char file[256];

    snprintf(file, sizeof(file), "/workspace/swap/%s", argc > 2 ? argv[2] : "file");
    if (argc < 3 || mkdir("/workspace/swap", 0777) < 0 || symlink(argv[1], "/workspace/link") < 0) {
        untried("swap", "%s", strerror(errno));
        return;
    }
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (write(fd, "mine", 4) == 4)
        dprintf(STDOUT_FILENO, "READY\n");
    while (renameat2(AT_FDCWD, "/workspace/swap", AT_FDCWD, "/workspace/link", RENAME_EXCHANGE) == 0)
        ;
    breach("swap", "%s", strerror(errno));
}

/* Watches of epoll are memory of the sandbox: 900 descriptors in each of 500 instances are 70 MB of them. */
static void s03_epoll(int argc, char **argv)
{
    long items = 0;
    (void)argc, (void)argv;

    for (int child = 0; child < 4; child++) {
        if (fork() != 0)
            continue;
        static int polls[500], fds[450];
        for (size_t i = 0; i < ARRAY_LEN(polls); i++)
            polls[i] = epoll_create1(EPOLL_CLOEXEC);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
            fds[i] = eventfd(0, EFD_CLOEXEC);
        for (size_t p = 0; p < ARRAY_LEN(polls); p++)
            for (size_t f = 0; f < ARRAY_LEN(fds); f++) {
                struct epoll_event e = {.events = EPOLLIN};
                if (epoll_ctl(polls[p], EPOLL_CTL_ADD, fds[f], &e) == 0)
                    items++;
            }
        if (items > 200000)
            breach("epoll", "%ld watches in one process", items);
        else
            held("epoll");
        sleep(2); /* all four at once */
        _exit(0);
    }
    while (wait(NULL) > 0)
        ;
}

const struct probe_case host_cases[] = {
    {"S01", s01_bpf_jit},         {"S02", s02_hugetlb},
    {"S03", s03_kernel_objects},  {"S03-netlink", s03_netlink},
    {"S03-sockets", s03_sockets}, {"S03-epoll", s03_epoll},
    {"S03-locks", s03_locks},     {"S05-swap", s05_swap},
    {"S06", s06_page_cache},      {NULL, NULL},
};
