/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c: test builds only. BRIG_TEST_FAIL_SYSCALL=N makes the Nth call through SYS() fail with EIO, counted
 * over the spawner and, since a clone copies the counter, on through the sandbox's set-up. With BRIG_TEST_FAIL_TEXT
 * only calls whose source has that text count. BRIG_TEST_FAIL_ERRNO names another errno than EIO.
 *
 * BRIG_TEST_FAIL_DISK names a file with a struct knob, which tests change while the spawner runs. In each process that
 * works on disks the call of this number fails then; errnum -1 kills the process there, and -2 the spawner with it. The
 * file is mapped with the first call: later the spawner cannot see it any more.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "jail/sys.h"

#define DISK_COMM "brig-disk"
#define KILL_SELF (-1)
#define KILL_BOTH (-2)

struct knob {
    int32_t call; /* 1 is the first; 0: none fails */
    int32_t errnum;
    int32_t hit; /* Set to 1 when it was done. */
};

static struct knob *map_knob(const char *path)
{
    AUTO_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct knob), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return map == MAP_FAILED ? NULL : map;
}

static int inject_disk(void)
{
    static struct knob *knob;
    static bool looked;
    static pid_t counted;
    static int n;
    char comm[16] = "";
    const char *path = looked ? NULL : getenv("BRIG_TEST_FAIL_DISK");

    looked = true;
    if (path)
        knob = map_knob(path);
    if (!knob || knob->call == 0 || prctl(PR_GET_NAME, comm) < 0 || strcmp(comm, DISK_COMM) != 0)
        return 0;
    n = counted == getpid() ? n + 1 : 1;
    counted = getpid();
    if (n != knob->call)
        return 0;
    knob->hit = 1;
    if (knob->errnum == KILL_BOTH)
        kill(getppid(), SIGKILL);
    if (knob->errnum == KILL_SELF || knob->errnum == KILL_BOTH)
        kill(getpid(), SIGKILL);
    return knob->errnum;
}

int sys_inject(const char *call)
{
    static long left = -1;
    static const char *only;
    int failed = inject_disk();

    if (failed)
        return failed;
    if (left < 0) {
        const char *text = getenv("BRIG_TEST_FAIL_SYSCALL");
        left = text ? strtol(text, NULL, 10) : 0;
        only = getenv("BRIG_TEST_FAIL_TEXT");
    }
    if (left == 0 || (only && !strstr(call, only)))
        return 0;
    if (--left != 0)
        return 0;
    const char *errnum = getenv("BRIG_TEST_FAIL_ERRNO");
    return errnum ? (int)strtol(errnum, NULL, 10) : EIO;
}
