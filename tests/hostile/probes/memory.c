/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory in all its disguises (R03, R04, R15, R18, R28). Each bomb is told the limit and stops by itself at a multiple
 * of it: getting that far is the breach. Being killed, or refused with ENOMEM, is what should happen.
 */
#include "probe.h"

#include <dirent.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static size_t limit_of(int argc, char **argv)
{
    return argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 64 * MIB;
}

static size_t factor_of(int argc, char **argv)
{
    return argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : 10;
}

/* Reports how far a bomb came. */
static void judge_reach(const char *name, size_t reached, size_t limit, int err)
{
    if (reached <= limit + limit / 4)
        judge_refused(name, -1, err, ERRS(ENOMEM, ENOSPC, EAGAIN, EFBIG, EMFILE, ENOBUFS, EDQUOT));
    else
        breach(name, "took %zu MiB with a limit of %zu", (size_t)(reached / MIB), (size_t)(limit / MIB));
}

/* Fresh, incompressible-looking pages, so that neither zero pages nor merging help. */
static void touch(char *p, size_t len)
{
    for (size_t i = 0; i < len; i += 4096)
        *(volatile uint64_t *)(p + i) = (uint64_t)(uintptr_t)(p + i) * 0x9e3779b97f4a7c15ULL + 1;
}

static size_t fill_map(int flags, size_t most, int *ret_err)
{
    size_t reached = 0;

    for (; reached < most; reached += MIB) {
        char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (p == MAP_FAILED) {
            *ret_err = errno;
            break;
        }
        touch(p, MIB);
    }
    return reached;
}

static void r03_mem_bomb(int argc, char **argv)
{
    size_t limit = limit_of(argc, argv);
    int err = 0;

    dprintf(STDOUT_FILENO, "start\n");
    size_t reached = fill_map(MAP_PRIVATE | MAP_ANONYMOUS, limit * factor_of(argc, argv), &err);
    judge_reach("mmap", reached, limit, err);
}

/* One allocation as big as the whole bomb: must not be a way past either. */
static void r03_brk(int argc, char **argv)
{
    size_t limit = limit_of(argc, argv), reached = 0;
    int err = ENOMEM;

    for (; reached < limit * factor_of(argc, argv); reached += MIB) {
        char *p = sbrk((intptr_t)MIB);
        if (p == (void *)-1) {
            err = errno;
            break;
        }
        touch(p, MIB);
    }
    judge_reach("brk", reached, limit, err);
}

static void r04_shared(int argc, char **argv)
{
    size_t limit = limit_of(argc, argv);
    int err = 0;

    size_t reached = fill_map(MAP_SHARED | MAP_ANONYMOUS, limit * factor_of(argc, argv), &err);
    judge_reach("map-shared", reached, limit, err);
}

static void r04_memfd(int argc, char **argv)
{
    static char block[MIB];
    size_t limit = limit_of(argc, argv), reached = 0, most = limit * factor_of(argc, argv);
    int err = 0;

    memset(block, 0x5a, sizeof(block));
    while (reached < most && !err) {
        int fd = memfd_create("hostile", 0);
        if (fd < 0) {
            err = errno;
            break;
        }
        for (size_t in_file = 0; in_file < 64 * MIB && reached < most; in_file += MIB, reached += MIB) {
            if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block)) {
                err = errno ? errno : ENOSPC;
                break;
            }
        }
    }
    judge_reach("memfd", reached, limit, err);
}

/* Sixteen processes that each stay far below the limit. */
static void r04_many(int argc, char **argv)
{
    size_t limit = limit_of(argc, argv),
           *sum = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t children[16];

    for (size_t i = 0; i < ARRAY_LEN(children); i++) {
        if ((children[i] = fork()) == 0) {
            int err = 0;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (size_t got = 0; got < limit / 4; got += MIB) {
                if (fill_map(MAP_PRIVATE | MAP_ANONYMOUS, MIB, &err) < MIB)
                    break;
                __atomic_add_fetch(sum, MIB, __ATOMIC_RELAXED);
            }
            for (;;)
                pause();
        }
    }
    for (int i = 0; i < 200 && __atomic_load_n(sum, __ATOMIC_RELAXED) < limit * 2; i++)
        usleep(50000);
    judge_reach("many-processes", *sum, limit, ENOMEM);
    for (size_t i = 0; i < ARRAY_LEN(children); i++) {
        if (children[i] > 0)
            kill(children[i], SIGKILL);
    }
}

/* Memory the kernel holds for us: full socket buffers. */
static void r04_kernel(int argc, char **argv)
{
    static char block[1 << 16];
    size_t limit = limit_of(argc, argv), reached = 0;
    struct rlimit rl;

    getrlimit(RLIMIT_NOFILE, &rl);
    rl.rlim_cur = rl.rlim_max;
    setrlimit(RLIMIT_NOFILE, &rl);
    for (int procs = 0; procs < 8 && reached < limit * 4; procs++) {
        for (;;) {
            int pair[2], big = 1 << 24;
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
                break;
            setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
            for (ssize_t n; (n = write(pair[0], block, sizeof(block))) > 0 && reached < limit * 4;)
                reached += (size_t)n;
            if (reached >= limit * 4)
                break;
        }
        if (reached >= limit * 4)
            break;
        /* Descriptors are used up: go on in a child that keeps ours open. */
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid > 0) {
            int st;
            waitpid(pid, &st, 0);
            return;
        }
        for (int fd = 3; fd < (int)rl.rlim_cur; fd++)
            close(fd);
    }
    judge_reach("socket-buffers", reached, limit, ENOBUFS);
}

static void r04_devshm(int argc, char **argv)
{
    static char block[1 << 16];
    size_t limit = limit_of(argc, argv), reached = 0;
    int err = 0, fd = open("/dev/shm/fill", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    memset(block, 0x5a, sizeof(block));
    while (reached < limit * 4) {
        ssize_t n = write(fd, block, sizeof(block)); /* a short one is the last that fits: the next says why */
        if (n < 0) {
            err = errno;
            break;
        }
        reached += (size_t)n;
    }
    if (fsync(fd) < 0)
        err = errno;
    if (gentle())
        unlink("/dev/shm/fill");
    if (reached <= limit + limit / 4)
        judge_refused("dev-shm", -1, err, ERRS(ENOSPC, EDQUOT));
    else
        judge_reach("dev-shm", reached, limit, err);
}

static void r15_mlock(int argc, char **argv)
{
    size_t big = 64 * MIB;
    struct rlimit more = {RLIM_INFINITY, RLIM_INFINITY};
    void *p = mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)argc, (void)argv;

    REFUSED("rlimit", setrlimit(RLIMIT_MEMLOCK, &more), EPERM);
    REFUSED("mlock", mlock(p, big), ENOMEM, EPERM, EAGAIN);
    REFUSED("mlock2", syscall(SYS_mlock2, p, big, 1), ENOMEM, EPERM, EAGAIN);
    REFUSED("mlockall", mlockall(MCL_FUTURE | MCL_ONFAULT), EPERM);
    munlockall();
    REFUSED("map-locked",
            mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) == MAP_FAILED ? -1
                                                                                                                   : 0,
            EAGAIN, EPERM, ENOMEM);
    REFUSED("hugetlb",
            mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED ? -1
                                                                                                                    : 0,
            ENOMEM, EPERM, EINVAL, ENODEV);
    REFUSED("secretmem", syscall(SYS_memfd_secret, 0), ENOSYS);
    REFUSED("shm-hugetlb", syscall(SYS_shmget, 0, big, 04000 | 0600), ENOSYS, EPERM, ENOMEM);
    REFUSED("hwpoison", madvise(p, 4096, 100), EPERM, EINVAL);
    int fd = memfd_create("huge", 4 /* MFD_HUGETLB */);
    if (fd >= 0)
        REFUSED("memfd-hugetlb",
                ftruncate(fd, (off_t)big) < 0                                  ? -1
                : mmap(NULL, big, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1
                                                                               : 0,
                ENOMEM, EPERM, EINVAL);
    else
        judge_refused("memfd-hugetlb", -1, errno, ERRS(EPERM, ENOSYS, EINVAL, ENODEV, ENOMEM));
}

static size_t cache_want, cache_have;

static int read_through(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    static char block[1 << 17];
    (void)ftw;

    if (flag != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, block, sizeof(block))) > 0 && cache_have < cache_want;)
        cache_have += (size_t)n;
    if (fd >= 0)
        close(fd);
    return cache_have >= cache_want;
}

/* Reads ten times the limit through the page cache: reclaim is local, so the run lives. */
static void r18_page_cache(int argc, char **argv)
{
    cache_want = limit_of(argc, argv) * factor_of(argc, argv);
    for (int i = 0; i < 20 && cache_have < cache_want; i++)
        nftw("/usr", read_through, 16, FTW_PHYS);
    if (cache_have >= cache_want)
        held("read-through");
    else
        untried("read-through", "only %zu MiB could be read", (size_t)(cache_have / MIB));
}

static void r28_oom_score(int argc, char **argv)
{
    static const char *const values[] = {"-1000", "-500", "-1"};
    char now[32] = "";
    (void)argc, (void)argv;

    ssize_t n = slurp("/proc/self/oom_score_adj", now, sizeof(now));
    dprintf(STDOUT_FILENO, "oom_score_adj=%d\n", n > 0 ? atoi(now) : -9999);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd < 0)
            judge_refused(nm("write%s", values[i]), -1, errno, ERRS(EACCES, EPERM, ENOENT, EROFS));
        else
            REFUSED(nm("write%s", values[i]), write(fd, values[i], strlen(values[i])), EACCES, EPERM);
        close(fd);
    }
    int fd = open("/proc/self/oom_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        judge_refused("oom-adj", -1, errno, ERRS(EACCES, EPERM, ENOENT, EROFS));
    else
        REFUSED("oom-adj", write(fd, "-17", 3), EACCES, EPERM);
    close(fd);
}

const struct probe_case memory_cases[] = {
    {"R03", r03_mem_bomb},      {"R03-brk", r03_brk},   {"R04-shared", r04_shared},
    {"R04-memfd", r04_memfd},   {"R04-many", r04_many}, {"R04-kernel", r04_kernel},
    {"R04-devshm", r04_devshm}, {"R15", r15_mlock},     {"R18", r18_page_cache},
    {"R28", r28_oom_score},     {NULL, NULL},
};
