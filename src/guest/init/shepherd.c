/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shepherd.c: the parent of a process where there are no leaf cgroups.
 *
 * It is a fork of pid 1 that becomes the reaper of its descendants: whatever its process starts, and wherever that goes
 * (double forks, new sessions), stays below it. When the main process has ended, it kills what is left, counts, reports
 * to pid 1 and exits; nothing of the process is left then. It is not dumpable and blocks every signal, as pid 1 does. A
 * program with the same id (where all have one id) can kill it. Then its descendants become children of pid 1, which
 * kills them, because it has no other children without a shepherd. gVisor of 2022 knows no reaper but pid 1, which then
 * kills orphans whenever a process ends.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

enum { FD_INIT = 3, FD_SIGNAL = 4 };

bool shepherd_keeps_orphans(void)
{
    int is = 0;

    return raw_call5(SYS_prctl, PR_GET_CHILD_SUBREAPER, &is, 0, 0, 0) != -EINVAL;
}

/* Reaps what has died. Returns whether the main process was among it. */
static bool reap(pid_t main_pid, int *status)
{
    bool ended = false;

    for (;;) {
        int one = 0;
        long pid = raw_call4(SYS_wait4, -1, &one, WNOHANG, NULL);

        if (pid <= 0)
            return ended;
        if (pid == main_pid) {
            *status = one;
            ended = true;
        }
    }
}

__attribute__((noreturn)) static void finish(int status)
{
    struct sheep_end end = {.status = (uint32_t)status, .ended_ns = guest_now_ns()};
    struct rusage usage = {0};
    pid_t self = (pid_t)raw_call0(SYS_getpid);

    /* Until there is no child, and mostly there is none: those of a child that dies become ours. */
    for (long got;;) {
        do {
            got = raw_call4(SYS_wait4, -1, NULL, WNOHANG, NULL);
        } while (got > 0);
        if (got == -ECHILD)
            break;
        walk_descendants(self, 0, SIGKILL);
        raw_call4(SYS_wait4, -1, NULL, 0, NULL);
    }
    raw_call2(SYS_getrusage, RUSAGE_CHILDREN, &usage);
    end.cpu_ns = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000u +
                 (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000u;
    end.memory_peak = (uint64_t)usage.ru_maxrss * 1024u;
    raw_call6(SYS_sendto, FD_INIT, &end, sizeof(end), MSG_NOSIGNAL, NULL, 0);
    guest_exit(0);
}

static void obey(pid_t main_pid)
{
    struct sheep_order order = {0};
    pid_t self = (pid_t)raw_call0(SYS_getpid);

    if (raw_call3(SYS_read, FD_INIT, &order, sizeof(order)) != (long)sizeof(order))
        guest_exit(GUEST_EXIT_GONE); /* pid 1 has gone, and all of us with it */
    if (order.flags & SVC_SIGNAL_ALL)
        walk_descendants(self, 0, SIGKILL);
    else if (order.flags & SVC_SIGNAL_CHILDREN)
        walk_descendants(self, main_pid, (int)order.signum);
    else
        raw_call2(SYS_kill, order.flags & SVC_SIGNAL_GROUP ? -main_pid : main_pid, order.signum);
}

/* Keeps the socket to pid 1 and the signals; the pipes of the process are not ours to hold open. */
static void keep_only(int fd, int signal_fd)
{
    long a = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FD_SIGNAL + 1);
    long b = raw_call3(SYS_fcntl, signal_fd, F_DUPFD_CLOEXEC, FD_SIGNAL + 1);

    if (raw_failed(a) || raw_failed(b) || raw_failed(raw_call3(SYS_dup3, a, FD_INIT, O_CLOEXEC)) ||
        raw_failed(raw_call3(SYS_dup3, b, FD_SIGNAL, O_CLOEXEC)) || raw_close_from(FD_SIGNAL + 1, 0) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
}

__attribute__((noreturn)) void shepherd_main(struct program *program, int fd)
{
    const uint64_t child_signal = UINT64_C(1) << (SIGCHLD - 1);
    struct pollfd fds[2] = {{.fd = FD_INIT, .events = POLLIN}, {.fd = FD_SIGNAL, .events = POLLIN}};
    struct signalfd_siginfo info;
    int status = 0;
    long ret = raw_call5(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

    if (!shepherd_keeps_orphans())
        ret = 0;
    raw_call5(SYS_prctl, PR_SET_NAME, "brig-shepherd", 0, 0, 0);
    program->stage = STAGE_FORK;
    long signal_fd = raw_call4(SYS_signalfd4, -1, &child_signal, sizeof(child_signal), SFD_CLOEXEC | SFD_NONBLOCK);
    if (ret == 0 && raw_failed(signal_fd))
        ret = signal_fd;
    long main_pid = ret != 0 ? ret : raw_call5(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (main_pid == 0)
        program_child(program);
    if (main_pid < 0)
        program_give_up(program, main_pid);
    keep_only(fd, (int)signal_fd);
    for (;;) {
        long ready = raw_call3(SYS_poll, fds, 2, -1);

        if (ready > 0 && fds[1].revents != 0) {
            raw_call3(SYS_read, FD_SIGNAL, &info, sizeof(info));
            if (reap((pid_t)main_pid, &status))
                finish(status);
        }
        if (ready > 0 && fds[0].revents != 0)
            obey((pid_t)main_pid);
    }
}
