/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c: runs one child. It is started with only its standard descriptors and a socket as descriptor 3, watched
 * through a pidfd, and restarted ever more slowly while it keeps failing. No child outlives us. The kernel kills brigd
 * when we die. Then the last descriptor of the spawner's socket is closed, and the spawner ends its sandboxes in good
 * order (unless we have given the socket to the spawner itself: keep.c).
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "supervisor/supervisor.h"

#define STABLE_NS (10 * NS_PER_SEC) /* a daemon that lived this long has not failed in a row */
#define DELAY_MIN_NS (20 * NS_PER_MS)
#define DELAY_MAX_NS (5 * NS_PER_SEC)

struct start {
    const char *path, *arg;
    char *const *argv;
    int socket;
    uid_t uid;
    gid_t gid;
    bool dies_with_us, bare;
    int report; /* where the child writes its errno when it does not come to execute */
};

int daemon_become(uid_t uid, gid_t gid)
{
    if (uid == (uid_t)-1 || uid == geteuid())
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    return 0;
}

__attribute__((noreturn)) static void child(const struct start *start, pid_t parent)
{
    sigset_t none;
    int r = daemon_become(start->uid, start->gid);

    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    /* After the change of ids, which clears it. */
    if (r == 0 && start->dies_with_us && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        r = -errno;
    if (r == 0 && getppid() != parent)
        r = -ESRCH;
    if (r == 0 && start->socket == SUP_SOCKET_FD)
        r = fcntl(SUP_SOCKET_FD, F_SETFD, 0) < 0 ? -errno : 0;
    else if (r == 0 && dup2(start->socket, SUP_SOCKET_FD) < 0)
        r = -errno;
    if (r == 0 && close_range(SUP_SOCKET_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        r = -errno;
    char *nothing[] = {NULL};
    if (r == 0)
        execve(start->path, start->argv, start->bare ? nothing : environ);
    int errnum = r < 0 ? -r : errno;
    (void)!write(start->report, &errnum, sizeof errnum);
    _exit(125);
}

int daemon_start(struct daemon *daemon, const char *helper_dir, const char *arg, uid_t uid, gid_t gid,
                 struct brig_err *err)
{
    char path[4096];
    char *argv[] = {(char *)(uintptr_t)daemon->name, (char *)(uintptr_t)arg, NULL};
    int pair[2], pipefd[2], errnum = 0;

    if (str_format(path, sizeof path, "%s/%s", helper_dir, daemon->name) < 0)
        return err_usage(err, "%s: too long", helper_dir);
    bool again = daemon->lasting && daemon->socket >= 0;
    if (!again && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socketpair");
    AUTO_FD int ours = again ? take_fd(&daemon->socket) : pair[0];
    AUTO_FD int theirs = again ? take_fd(&daemon->theirs) : pair[1];
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return err_host(err, "pipe");
    AUTO_FD int read_end = pipefd[0];
    AUTO_FD int write_end = pipefd[1];
    struct start start = {path, arg, argv, theirs, uid, gid, daemon->dies_with_us, daemon->bare, write_end};
    pid_t self = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return err_host(err, "fork");
    if (pid == 0)
        child(&start, self);
    base_close_fd(&write_end);
    if (read(read_end, &errnum, sizeof errnum) == sizeof errnum) {
        (void)RETRY(waitpid(pid, NULL, 0));
        return err_set(err, BRIG_E_HOST, errnum, "start %s", path);
    }
    daemon->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (daemon->pidfd < 0) {
        int saved = errno;
        kill(pid, SIGKILL);
        (void)RETRY(waitpid(pid, NULL, 0));
        return err_set(err, BRIG_E_HOST, saved, "watch %s", daemon->name);
    }
    daemon->pid = pid;
    daemon->socket = take_fd(&ours);
    if (daemon->lasting)
        daemon->theirs = take_fd(&theirs);
    daemon->started_ns = clock_mono_ns();
    return 0;
}

void daemon_reap(struct daemon *daemon, char *text, size_t size)
{
    int status = 0;

    (void)RETRY(waitpid(daemon->pid, &status, 0));
    if (daemon->taken) /* no child of ours: nobody tells us how */
        snprintf(text, size, "%s (pid %d) ended", daemon->name, (int)daemon->pid);
    else if (WIFSIGNALED(status))
        snprintf(text, size, "%s (pid %d) was killed by signal %d", daemon->name, (int)daemon->pid, WTERMSIG(status));
    else
        snprintf(text, size, "%s (pid %d) ended with status %d", daemon->name, (int)daemon->pid, WEXITSTATUS(status));
    daemon->failures = clock_mono_ns() - daemon->started_ns > STABLE_NS ? 0 : daemon->failures + 1;
    daemon->pid = 0;
    daemon->taken = false;
    base_close_fd(&daemon->pidfd);
    if (!daemon->lasting)
        base_close_fd(&daemon->socket);
}

uint64_t daemon_restart_delay_ns(const struct daemon *daemon)
{
    if (daemon->failures <= 1)
        return 0; /* one death is an accident; the next start is at once */
    unsigned shift = daemon->failures - 2 < 10 ? daemon->failures - 2 : 10;
    uint64_t delay = DELAY_MIN_NS << shift;
    return delay < DELAY_MAX_NS ? delay : DELAY_MAX_NS;
}
