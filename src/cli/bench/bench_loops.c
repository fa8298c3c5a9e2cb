/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_loops.c: `brig bench --loop NAME`: the same machine code, run once inside a sandbox and once outside. A loop
 * runs for a fixed time and prints how much it did. It is not in the help, because only bench itself uses it.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

#define LOOP_NS (25 * NS_PER_MS)

const char *const bench_loop_names[LOOP_MAX] = {
    [LOOP_CPU] = "cpu",         [LOOP_GETPPID] = "getppid", [LOOP_PREAD] = "pread",
    [LOOP_CHECKED] = "checked", [LOOP_FILES] = "files",
};

/* One batch: how many operations it did, or a negative errno. */
typedef long batch_fn(int fd);

static long batch_cpu(int fd UNUSED)
{
    static volatile uint64_t result;
    uint64_t x = result | 88172645463325252u;
    for (int i = 0; i < 100000; i++) { /* xorshift64: nothing for the compiler to fold */
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    result = x;
    return 100000;
}

static long batch_getppid(int fd UNUSED)
{
    for (int i = 0; i < 1000; i++)
        syscall(SYS_getppid);
    return 1000;
}

static long batch_pread(int fd)
{
    char byte;
    for (int i = 0; i < 1000; i++)
        if (pread(fd, &byte, 1, 0) != 1)
            return -EIO;
    return 1000;
}

/* The filter looks at fcntl's second argument. */
static long batch_checked(int fd)
{
    for (int i = 0; i < 1000; i++)
        if (fcntl(fd, F_GETFD) < 0)
            return -errno;
    return 1000;
}

static long batch_files(int fd UNUSED)
{
    static const char page[4096];
    for (int i = 0; i < 10; i++) {
        AUTO_FD int file = open("brig-bench-file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file < 0 || write(file, page, sizeof(page)) != (ssize_t)sizeof(page))
            return errno > 0 ? -errno : -EIO;
        if (unlink("brig-bench-file") < 0)
            return -errno;
    }
    return 10;
}

static batch_fn *const batches[LOOP_MAX] = {
    [LOOP_CPU] = batch_cpu,         [LOOP_GETPPID] = batch_getppid, [LOOP_PREAD] = batch_pread,
    [LOOP_CHECKED] = batch_checked, [LOOP_FILES] = batch_files,
};

int bench_loop_main(const char *name)
{
    size_t loop = 0;
    while (loop < LOOP_MAX && strcmp(bench_loop_names[loop], name) != 0)
        loop++;
    if (loop == LOOP_MAX)
        return cli_error("--loop %.80s: no such loop", name);
    AUTO_FD int fd = memfd_create("brig-bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 4096) < 0)
        return cli_error("memfd: %s", strerror(errno));

    long done = batches[loop](fd); /* the first one pays for page faults */
    uint64_t total = 0, start = clock_mono_ns(), spent = 0;
    while (done >= 0 && spent < LOOP_NS) {
        done = batches[loop](fd);
        total += done > 0 ? (uint64_t)done : 0;
        spent = clock_mono_ns() - start;
    }
    if (done < 0)
        return cli_error("loop %s: %s", name, strerror((int)-done));

    char line[64];
    int n = snprintf(line, sizeof(line), "%llu %llu\n", (unsigned long long)total, (unsigned long long)spent);
    return cli_write(STDOUT_FILENO, line, (size_t)n) < 0 ? CLI_FAILED : 0;
}
