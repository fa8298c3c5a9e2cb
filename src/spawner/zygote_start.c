/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zygote_start.c: starts a zygote. A child of the spawner goes back to the host's tree, where the interpreter is, and
 * executes it with an environment and descriptors that are all ours. The interpreter leaves that tree before it says
 * READY.
 *
 * Invariants: nothing that a plain user or a tenant can write decides what runs here. The interpreter is a file of
 * root's, below directories of root's only (host_zygote.c).
 */
#include "spawner/zygote_start.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

/* ---- the child -------------------------------------------------------------------------------------- */

/*
 * Descriptor 0 is zygote.py from its start; 1 and 2 are a pipe, as a program's are, so that the interpreter makes the
 * streams that it would make there. Up to ZYGOTE_FD_MIN all are /dev/null. Then follow those that zygote_msg.h names,
 * and no others.
 */
static int arrange_fds(const struct host *host, int sock, int mnt)
{
    const struct zygote_files *files = &host->zygote;
    char boot[40];
    const int from[] = {sock, files->library_fd, files->runtime_fd, mnt};
    int up[ARRAY_SIZE(from)], streams[2];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    /* Opened anew: zygotes that start side by side would share an offset. */
    snprintf(boot, sizeof boot, "self/fd/%d", files->boot_fd);
    int text = openat(host->proc_fd, boot, O_RDONLY | O_CLOEXEC);
    text = text < 0 ? -1 : fcntl(text, F_DUPFD_CLOEXEC, 64);
    null = null < 0 || text < 0 ? -1 : fcntl(null, F_DUPFD_CLOEXEC, 64);
    if (pipe2(streams, O_CLOEXEC) < 0 || (streams[1] = fcntl(streams[1], F_DUPFD_CLOEXEC, 64)) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if (null < 0 || (up[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64)) < 0)
            return -1;
    for (int fd = 0; fd < ZYGOTE_FD_MIN; fd++)
        if (dup2(null, fd) < 0)
            return -1;
    for (int i = 0; i < (int)ARRAY_SIZE(from); i++)
        if (dup3(up[i], ZYGOTE_FD_MIN + i, 0) < 0)
            return -1;
    if (dup2(text, 0) < 0 || dup2(streams[1], 1) < 0 || dup2(streams[1], 2) < 0)
        return -1;
    return close_range(ZYGOTE_FD_MNT + 1, ~0u, 0);
}

static void default_signals(void)
{
    static const uint64_t by_default[4]; /* the kernel's struct sigaction: handler, flags, restorer, mask */
    sigset_t none;

    /* What the spawner ignores, an interpreter would go on to ignore. Not by signal(): libc keeps two of them to
     * itself. */
    for (int signum = 1; signum <= 64; signum++)
        syscall(SYS_rt_sigaction, signum, by_default, NULL, sizeof(uint64_t));
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void child_main(const struct host *host, int sock, pid_t spawner)
{
    static char *const argv[] = {(char *)ZYGOTE_PYTHON, (char *)"-I", (char *)"-S", (char *)"-B", (char *)"-", NULL};
    /* As a program of a sandbox has it (engine/spec.c): children have it from here. */
    static char *const envp[] = {(char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                 (char *)"HOME=/home/user",
                                 (char *)"USER=user",
                                 (char *)"LOGNAME=user",
                                 (char *)"LANG=C.UTF-8",
                                 (char *)"TMPDIR=/tmp",
                                 NULL};
    int mnt = openat(host->proc_fd, "self/ns/mnt", O_RDONLY | O_CLOEXEC);

    if (!sys_die_with(spawner) || mnt < 0 || setsid() < 0)
        _exit(125);
    if (setns(host->mnt_fd, CLONE_NEWNS) < 0 || fchdir(host->root_fd) < 0 || chroot(".") < 0 || chdir("/") < 0)
        _exit(125);
    umask(022);
    default_signals();
    if (arrange_fds(host, sock, mnt) < 0)
        _exit(125);
    execve(argv[0], argv, envp);
    _exit(125);
}

int zygote_execute(const struct host *host, pid_t *ret_pid, int *ret_pidfd, int *ret_fd, struct brig_err *err)
{
    int pair[2], pidfd = -1;
    pid_t self = getpid();
    struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uint64_t)(uintptr_t)&pidfd, .exit_signal = SIGCHLD};

    if (SYS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = pair[0];
    AUTO_FD int theirs = pair[1];
    pid_t pid = SYS(sys_clone3(&args));
    if (pid < 0)
        return err_host(err, "zygote: fork");
    if (pid == 0)
        child_main(host, theirs, self);
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    *ret_fd = take_fd(&ours);
    return 0;
}
