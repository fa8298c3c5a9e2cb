/* SPDX-License-Identifier: Apache-2.0 */
/* inside.c: the helper process of inside.h. Only the single-threaded spawner calls it, so there is one stack. */
#include "host/inside.h"

#include <sys/wait.h>

#include "jail/sys.h"

#define STACK (64u << 10)

struct job {
    int (*fn)(void *arg);
    void *arg;
    int result;
};

static int work(void *arg)
{
    struct job *job = arg;

    job->result = job->fn(job->arg);
    return 0;
}

int inside_run(int (*fn)(void *arg), void *arg)
{
    static _Alignas(16) char stack[STACK];
    struct job job = {fn, arg, -ECHILD};
    /* Not CLONE_FS: who shares its root with another cannot enter a mount namespace. */
    pid_t pid = SYS(clone(work, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, &job));

    if (pid < 0)
        return -errno;
    (void)RETRY(waitpid(pid, NULL, 0));
    return job.result;
}
