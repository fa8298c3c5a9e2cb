/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two sides of the neighbour test (victim.py): `victim N` measures its own latency for N seconds, `storm KIND`
 * makes one kind of trouble until it is killed.
 */
#include "probe.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* One round: some arithmetic, a small file, a child. About a millisecond of honest work, then a short rest. */
static void one_round(const char *path)
{
    volatile uint64_t h = 1;
    char block[4096];

    for (int i = 0; i < 200000; i++)
        h = h * 6364136223846793005ULL + 1442695040888963407ULL;
    memset(block, (int)(h & 0xff), sizeof(block));
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    (void)!write(fd, block, sizeof(block));
    (void)!pread(fd, block, sizeof(block), 0);
    close(fd);
    unlink(path);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static void victim(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    size_t n = 0, room = 200000;
    uint64_t *took = malloc(room * sizeof(*took));
    char path[PATH_MAX];

    if (!took)
        return;
    snprintf(path, sizeof(path), "%s/victim", scratch());
    for (int i = 0; i < 20; i++)
        one_round(path);
    dprintf(STDOUT_FILENO, "READY\n");
    uint64_t start = now_ns();
    while (n < room && (double)(now_ns() - start) < seconds * 1e9) {
        uint64_t t = now_ns();
        one_round(path);
        took[n++] = now_ns() - t;
        usleep(1000);
    }
    qsort(took, n, sizeof(*took), by_value);
    dprintf(STDOUT_FILENO, "{\"rounds\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}\n", n,
            (double)took[n / 2] / 1e3, (double)took[n - 1 - n / 100] / 1e3, (double)took[n - 1] / 1e3);
    free(took);
    held("measured");
}

static void storm_fork(void)
{
    for (;;) {
        if (fork() == 0 && fork() == 0 && fork() == 0)
            _exit(0);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}

static void storm_memory(void)
{
    for (;;) { /* up to the limit in a child; the kill ends the sandbox and the harness starts the next */
        char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED)
            memset(p, 0x5a, MIB);
    }
}

static void storm_disk(void)
{
    static char block[1 << 18];
    memset(block, 0x5a, sizeof(block));
    for (;;) {
        int fd = open("/workspace/storm", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
        while (write(fd, block, sizeof(block)) > 0)
            ;
        fsync(fd);
        close(fd);
        unlink("/workspace/storm");
    }
}

static void storm_inode(void)
{
    char path[64];
    for (;;) {
        long n = 0;
        for (; n < 5000; n++) {
            snprintf(path, sizeof(path), "/workspace/i%ld", n);
            int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
            if (fd < 0)
                break;
            close(fd);
        }
        while (n-- > 0) {
            snprintf(path, sizeof(path), "/workspace/i%ld", n);
            unlink(path);
        }
    }
}

static void storm_fd(void)
{
    for (;;) {
        while (open("/dev/null", O_RDONLY) >= 0)
            ;
        for (int fd = 3; fd < 2048; fd++)
            close(fd);
        int p[2];
        while (pipe(p) == 0)
            fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
        for (int fd = 3; fd < 2048; fd++)
            close(fd);
    }
}

static void *burn(void *arg)
{
    volatile uint64_t n = 0;
    (void)arg;
    for (;;)
        n++;
    return NULL;
}

static void storm_cpu(void)
{
    pthread_t t;
    for (int i = 0; i < 16; i++)
        (void)!pthread_create(&t, NULL, burn, NULL);
    burn(NULL);
}

static int read_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    static char block[1 << 17];
    (void)ftw;
    if (flag == FTW_F && S_ISREG(st->st_mode)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && read(fd, block, sizeof(block)) > 0)
            ;
        close(fd);
    }
    return 0;
}

static void storm_cache(void)
{
    for (;;)
        nftw("/usr", read_file, 16, FTW_PHYS);
}

static void storm_output(void)
{
    static char block[1 << 16];
    memset(block, 'x', sizeof(block));
    for (;;)
        (void)!write(1 + (block[0] & 1), block, sizeof(block));
}

static void storm_signal(void)
{
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (;;) {
        while (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 1}) == 0)
            ;
        siginfo_t si;
        while (sigtimedwait(&set, &si, &(struct timespec){0, 0}) > 0)
            ;
    }
}

static void storm(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } kinds[] = {{"fork", storm_fork},   {"memory", storm_memory}, {"disk", storm_disk},
                 {"inode", storm_inode}, {"fd", storm_fd},         {"cpu", storm_cpu},
                 {"cache", storm_cache}, {"output", storm_output}, {"signal", storm_signal}};

    for (size_t i = 0; i < ARRAY_LEN(kinds) && argc > 1; i++) {
        if (strcmp(argv[1], kinds[i].name) == 0) {
            prctl(PR_SET_NAME, "storm");
            kinds[i].run();
        }
    }
    untried("storm", "no such kind");
}

const struct probe_case storm_cases[] = {{"victim", victim}, {"storm", storm}, {NULL, NULL}};
