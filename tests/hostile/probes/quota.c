/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted things: processes, blocks, inodes, descriptors, pipe pages, processor time, per-user kernel objects
 * (R01, R06, R07, R09, R10, R13, R16). Bounded by themselves at a small multiple of the limit they are told.
 */
#include "probe.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static long arg_long(int argc, char **argv, int i, long otherwise)
{
    return argc > i ? strtol(argv[i], NULL, 10) : otherwise;
}

static void r01_fork_bomb(int argc, char **argv)
{
    long limit = arg_long(argc, argv, 1, 64), made = 0;
    int err = 0;
    pid_t *pids = calloc((size_t)limit * 3 + 1, sizeof(*pids));

    while (made < limit * 3) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        if (pid < 0) {
            err = errno;
            break;
        }
        pids[made++] = pid;
    }
    if (made <= limit)
        judge_refused("fork", -1, err, ERRS(EAGAIN));
    else
        breach("fork", "%ld processes with a limit of %ld", made, limit);
    dprintf(STDOUT_FILENO, "made=%ld\n", made);
    for (long i = 0; i < made; i++)
        kill(pids[i], SIGKILL);
    while (wait(NULL) > 0)
        ;
    /* And it recovers. */
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    expect(pid > 0, "recovers", "%s", strerror(errno));
    waitpid(pid, NULL, 0);
    free(pids);
}

static void *thread_body(void *arg)
{
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

static void r01_threads(int argc, char **argv)
{
    long limit = arg_long(argc, argv, 1, 64), made = 0;
    int err = 0;
    pthread_attr_t attr;
    pthread_t t;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 1 << 16);
    while (made < limit * 3 && !(err = pthread_create(&t, &attr, thread_body, NULL)))
        made++;
    if (made <= limit)
        judge_refused("threads", -1, err, ERRS(EAGAIN));
    else
        breach("threads", "%ld threads with a limit of %ld", made, limit);
}

/* Fills one directory; returns the bytes it took. */
static size_t fill_dir(const char *dir, size_t most, int *ret_err)
{
    static char block[1 << 16];
    char path[PATH_MAX];
    size_t got = 0;

    memset(block, 0x5a, sizeof(block));
    snprintf(path, sizeof(path), "%s/fill-%d", dir, getpid());
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        *ret_err = errno;
        return 0;
    }
    while (got < most) {
        ssize_t n = write(fd, block, sizeof(block));
        if (n < 0) {
            *ret_err = errno;
            break;
        }
        got += (size_t)n;
    }
    if (fsync(fd) < 0)
        *ret_err = errno;
    close(fd);
    return got;
}

static void r06_disk_fill(int argc, char **argv)
{
    size_t limit = (size_t)arg_long(argc, argv, 1, 32 << 20), sum = 0;
    char path[PATH_MAX];

    signal(SIGXFSZ, SIG_IGN);
    /* One sum for all places: what the first took, the others do not have. */
    for (const char *const *d = writable_dirs; *d; d++) {
        int err = 0;
        if (access(*d, W_OK) < 0)
            continue;
        sum += fill_dir(*d, limit * 2, &err);
        if (err)
            judge_refused(nm("fill-%s", *d), -1, err, ERRS(ENOSPC, EDQUOT));
        else
            breach(nm("fill-%s", *d), "took %zu MiB with a limit of %zu", (size_t)(sum / MIB), (size_t)(limit / MIB));
        if (sum > limit * 2)
            break;
    }
    expect(sum <= limit + limit / 8, "sum", "%zu MiB with a limit of %zu", (size_t)(sum / MIB), (size_t)(limit / MIB));
    dprintf(STDOUT_FILENO, "sum=%zu\n", sum);
    snprintf(path, sizeof(path), "%s/more", "/workspace");
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) {
        /* Reserved and sparse blocks count too. */
        REFUSED("fallocate", fallocate(fd, 0, 0, (off_t)limit), ENOSPC, EDQUOT);
        REFUSED("fallocate-keep", fallocate(fd, 1, 0, (off_t)limit), ENOSPC, EDQUOT);
        (void)!ftruncate(fd, (off_t)limit * 100);
        size_t sparse = 0;
        for (; sparse < limit && pwrite(fd, "x", 1, (off_t)(sparse * 1000)) == 1; sparse += 4096)
            ;
        expect(sparse < limit / 2, "sparse", "%zu bytes of pages in a full store", sparse);
        close(fd);
    }
    /* In a sandbox the store stays full, so that the engine can see it; on the host we clean up. */
    for (const char *const *d = writable_dirs; *d && gentle(); d++) {
        snprintf(path, sizeof(path), "%s/fill-%d", *d, getpid());
        unlink(path);
    }
}

static void r06_file_size(int argc, char **argv)
{
    size_t limit = (size_t)arg_long(argc, argv, 1, 1 << 20);
    int err = 0;

    signal(SIGXFSZ, SIG_IGN);
    size_t got = fill_dir("/workspace", limit * 4, &err);
    if (got <= limit)
        judge_refused("write", -1, err, ERRS(EFBIG));
    else
        breach("write", "%zu bytes with a limit of %zu", got, limit);
    int fd = open("/workspace/big", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    REFUSED("truncate", ftruncate(fd, (off_t)limit + 1), EFBIG);
    REFUSED("fallocate", fallocate(fd, 0, 0, (off_t)limit + 1), EFBIG, ENOSPC);
    close(fd);
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    REFUSED("raise", setrlimit(RLIMIT_FSIZE, &more), EPERM);
}

static int make_node(const char *kind, const char *path)
{
    if (strcmp(kind, "file") == 0) {
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
        return fd < 0 ? -1 : 0;
    }
    if (strcmp(kind, "dir") == 0)
        return mkdir(path, 0700);
    if (strcmp(kind, "symlink") == 0) /* longer than an inode's own room */
        return symlink("0123456789012345678901234567890123456789012345678901234567890123456789", path);
    if (strcmp(kind, "fifo") == 0)
        return mkfifo(path, 0600);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%.107s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
    int saved = errno;
    close(fd);
    errno = saved;
    return rc;
}

static void r07_inode_fill(int argc, char **argv)
{
    static const char *const kinds[] = {"file", "dir", "symlink", "fifo", "socket"};
    long limit = arg_long(argc, argv, 1, 2000), sum = 0;
    char path[64];

    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const char *dir = writable_dirs[k % 6];
        int err = 0;
        for (long i = 0; sum <= limit * 3; i++, sum++) {
            snprintf(path, sizeof(path), "%s/%s-%ld", dir, kinds[k], i);
            if (make_node(kinds[k], path) < 0) {
                err = errno;
                break;
            }
        }
        if (!err)
            breach(nm("%s-%s", kinds[k], dir), "%ld inodes with a limit of %ld", sum, limit);
        else
            judge_refused(nm("%s-%s", kinds[k], dir), -1, err, ERRS(ENOSPC, EDQUOT));
        if (sum > limit * 3)
            return;
    }
    expect(sum <= limit + limit / 8, "sum", "%ld inodes with a limit of %ld", sum, limit);
    /* Links take no inode but the directory's blocks; they end in a limit as well. */
    long links = 0;
    int err = 0;
    for (; links < 200000; links++) {
        snprintf(path, sizeof(path), "/workspace/link-%ld", links);
        if (link("/workspace/file-0", path) < 0) {
            err = errno;
            break;
        }
    }
    if (err)
        judge_refused("links", -1, err, ERRS(EMLINK, ENOSPC, EDQUOT, ENOENT));
    else
        breach("links", "%ld", links);
}

/* A tree as deep as it goes: whoever removes it must not recurse on the stack nor go by path. */
static void r07_deep(int argc, char **argv)
{
    long want = arg_long(argc, argv, 1, 10000), depth = 0;

    (void)!chdir("/workspace");
    for (; depth < want; depth++) {
        if (mkdir("d", 0700) < 0 || chdir("d") < 0)
            break;
    }
    if (depth < want)
        judge_refused("depth", -1, errno, ERRS(ENOSPC, EDQUOT, EMLINK, ENOMEM));
    else
        held("depth");
    dprintf(STDOUT_FILENO, "depth=%ld\n", depth);
}

static void r09_fd_exhaust(int argc, char **argv)
{
    long limit = arg_long(argc, argv, 1, 256), made = 0;
    int err = 0;
    struct rlimit more = {(rlim_t)limit * 4, (rlim_t)limit * 4};

    REFUSED("raise", setrlimit(RLIMIT_NOFILE, &more), EPERM);
    while (made < limit * 4) {
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
            err = errno;
            break;
        }
        made++;
    }
    if (made <= limit)
        judge_refused("open", -1, err, ERRS(EMFILE));
    else
        breach("open", "%ld descriptors with a limit of %ld", made, limit);
    REFUSED("dup-high", fcntl(0, F_DUPFD, (int)limit + 1), EINVAL, EMFILE);
    for (int fd = 3; fd < limit; fd++)
        close(fd);
    /* Descriptors in flight are counted per user. */
    long flying = 0;
    err = 0;
    for (int pairs = 0; pairs < limit / 4 && !err; pairs++) {
        int pair[2], fds[32];
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
            err = errno;
            break;
        }
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
            fds[i] = 0;
        for (;;) {
            union {
                char room[CMSG_SPACE(sizeof(fds))];
                struct cmsghdr align;
            } u;
            struct iovec iov = {"x", 1};
            struct msghdr m = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room)};
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(fds));
            memcpy(CMSG_DATA(c), fds, sizeof(fds));
            if (sendmsg(pair[0], &m, 0) < 0) {
                if (errno != EAGAIN)
                    err = errno;
                break;
            }
            flying += (long)ARRAY_LEN(fds);
            if (flying > limit * 16)
                break;
        }
        if (flying > limit * 16)
            break;
    }
    if (err)
        judge_refused("in-flight", -1, err, ERRS(ETOOMANYREFS, EMFILE, ENOBUFS));
    else
        breach("in-flight", "%ld descriptors with a limit of %ld", flying, limit);
}

/* Grows pipes as far as they go. With "hold", keeps them and waits; the sibling sandbox must still get its own. */
static void r10_pipe_buffers(int argc, char **argv)
{
    bool hold = argc > 1 && strcmp(argv[1], "hold") == 0;
    size_t pages = 0, pipes = 0;
    int err = 0;

    for (; pipes < 400; pipes++) {
        int p[2];
        if (pipe(p) < 0) {
            err = errno;
            break;
        }
        int size = fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
        if (size < 0) {
            err = errno;
            break;
        }
        pages += (size_t)size / 4096;
    }
    if (hold) {
        dprintf(STDOUT_FILENO, "READY\n");
        for (;;)
            pause();
    }
    dprintf(STDOUT_FILENO, "pipes=%zu\n", pipes);
    if (argc > 1 && strcmp(argv[1], "one") == 0)
        expect(pipes >= 1, "own-quota", "no pipe could be grown: %s", strerror(err));
    else if (err)
        judge_refused("grow", -1, err, ERRS(EPERM, EMFILE, ENFILE, ENOMEM));
    else
        breach("grow", "%zu pipes of 1 MiB", pipes);
}

static void *spin(void *arg)
{
    volatile uint64_t *n = arg;
    for (;;)
        (*n)++;
    return NULL;
}

/* Spins N threads for some seconds; the third argument is the share in percent that must not be passed. */
static void r13_cpu_spin(int argc, char **argv)
{
    long seconds = arg_long(argc, argv, 1, 3), threads = arg_long(argc, argv, 2, 4),
         percent = arg_long(argc, argv, 3, 0);
    static uint64_t counters[64];
    struct rusage ru;
    pthread_t t;

    uint64_t start = now_ns();
    for (long i = 0; i < threads && i < 64; i++)
        (void)!pthread_create(&t, NULL, spin, &counters[i]);
    while (now_ns() - start < (uint64_t)seconds * 1000000000ULL)
        usleep(20000);
    getrusage(RUSAGE_SELF, &ru);
    double wall = (double)(now_ns() - start) / 1e9;
    double cpu = (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec +
                 (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
    dprintf(STDOUT_FILENO, "share=%.3f\n", cpu / wall);
    /* 5 %, and one period's quota that may be taken at the start. */
    if (percent)
        expect(cpu / wall <= (double)percent / 100 * 1.05 + 0.1 / wall, "share",
               "%.3f of a processor with a limit of %.2f", cpu / wall, (double)percent / 100);
    _exit(probe_status());
}

/* Burns processor time in children that each stay short, and are gone when anybody looks. */
static void r13_churn(int argc, char **argv)
{
    long children = arg_long(argc, argv, 1, 600);

    for (long i = 0; i < children; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            uint64_t until = now_ns() + 100000000ULL;
            while (now_ns() < until)
                ;
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    breach("churn", "%ld children of 0.1 s were not stopped", children);
}

static long count_inotify(void)
{
    long n = 0;
    while (n < 100000 && inotify_init1(IN_CLOEXEC) >= 0)
        n++;
    return n;
}

static void r16_kernel_objects(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "all";
    long n;

    if (strcmp(how, "hold") == 0) {
        n = count_inotify();
        int err = errno;
        dprintf(STDERR_FILENO, "holds %ld inotify instances: %s\n", n, strerror(err));
        dprintf(STDOUT_FILENO, "READY\n");
        for (;;)
            pause();
    }
    if (strcmp(how, "one") == 0) {
        int fd = inotify_init1(IN_CLOEXEC);
        expect(fd >= 0, "own-quota", "no inotify instance: %s", strerror(errno));
        return;
    }
    n = count_inotify();
    judge_refused("inotify", n < 2048 ? -1 : 0, errno, ERRS(EMFILE));
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    int in = inotify_init1(IN_CLOEXEC);
    long watches = 0;
    char path[PATH_MAX];
    int err = 0;
    for (; watches < 70000 && in >= 0; watches++) {
        snprintf(path, sizeof(path), "%s/w%ld", scratch(), watches);
        if (mkdir(path, 0700) < 0)
            break;
        if (inotify_add_watch(in, path, IN_ALL_EVENTS) < 0) {
            err = errno;
            break;
        }
    }
    if (err)
        judge_refused("watches", -1, err, ERRS(ENOSPC, ENOMEM));
    else
        untried("watches", "the store ended first, after %ld", watches);
    /* Queued signals. */
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (n = 0; n < 1000000; n++) {
        if (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}) < 0)
            break;
    }
    judge_refused("sigqueue", n < 1000000 ? -1 : 0, errno, ERRS(EAGAIN));
    struct sigevent ev = {.sigev_notify = SIGEV_NONE};
    int timer;
    for (n = 0; n < 1000000; n++) {
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &timer) < 0)
            break;
    }
    judge_refused("timers", n < 1000000 ? -1 : 0, errno, ERRS(EAGAIN, ENOMEM));
    static const char *const kinds[] = {"timerfd", "eventfd", "epoll", "socket", "memfd", "pidfd"};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        for (n = 0; n < 100000; n++) {
            int fd = k == 0   ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)
                     : k == 1 ? eventfd(0, EFD_CLOEXEC)
                     : k == 2 ? epoll_create1(EPOLL_CLOEXEC)
                     : k == 3 ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
                     : k == 4 ? (int)syscall(SYS_memfd_create, "x", 1)
                              : (int)syscall(SYS_pidfd_open, getpid(), 0);
            if (fd < 0)
                break;
        }
        judge_refused(kinds[k], n < 100000 ? -1 : 0, errno, ERRS(EMFILE));
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    }
}

const struct probe_case quota_cases[] = {
    {"R01", r01_fork_bomb},  {"R01-threads", r01_threads}, {"R06", r06_disk_fill},      {"R06-file", r06_file_size},
    {"R07", r07_inode_fill}, {"R07-deep", r07_deep},       {"R09", r09_fd_exhaust},     {"R10", r10_pipe_buffers},
    {"R13", r13_cpu_spin},   {"R13-churn", r13_churn},     {"R16", r16_kernel_objects}, {NULL, NULL},
};
