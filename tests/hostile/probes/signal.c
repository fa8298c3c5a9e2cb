/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals outwards, pid 1, and programs that refuse to end (P01, P02, P20 to P26).
 * HOSTILE_SENTINEL is the pid of a process of the caller's own user on the host. In its own pid namespace the sandbox
 * has no such process; when the namespace is off it is the only prey that gets a real signal.
 */
#include "probe.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static long send_info(pid_t pid, int sig)
{
    siginfo_t si = {.si_signo = sig, .si_code = SI_QUEUE};
    return syscall(SYS_rt_sigqueueinfo, pid, sig, &si);
}

static void hit(pid_t prey, int sig)
{
    REFUSED("kill", kill(prey, sig), ESRCH, EPERM);
    REFUSED("kill-group", kill(-prey, sig), ESRCH, EPERM);
    REFUSED("tkill", syscall(SYS_tkill, prey, sig), ESRCH, EPERM);
    REFUSED("tgkill", syscall(SYS_tgkill, prey, prey, sig), ESRCH, EPERM);
    REFUSED("sigqueueinfo", send_info(prey, sig), ESRCH, EPERM);
    int fd = (int)REFUSED("pidfd-open", syscall(SYS_pidfd_open, prey, 0), ESRCH, EPERM, EINVAL);
    if (fd >= 0)
        REFUSED("pidfd-send", syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0), ESRCH, EPERM);
}

static void p01_kill_host(int argc, char **argv)
{
    pid_t prey = (pid_t)given_long("HOSTILE_SENTINEL", 0);
    int reached = 0;
    (void)argc, (void)argv;

    if (prey > 0)
        hit(prey, SIGKILL);
    else
        untried("sentinel", "HOSTILE_SENTINEL is not set");
    if (in_host_ns("pid")) {
        breach("pid-namespace", "runs in the host's; no other signal was sent");
        return;
    }
    for (pid_t pid = 1; pid <= 65536; pid++) {
        if (pid != getpid() && kill(pid, 0) == 0)
            reached += pid != 1; /* pid 1 may share our id (rootless); the kernel protects it */
    }
    expect(reached == 0, "scan", "%d processes can be signalled", reached);
    signal(SIGTERM, SIG_IGN);
    kill(-1, SIGTERM);
    kill(-1, SIGKILL);
    held("kill-all-survived");
}

static void p02_kill_init(int argc, char **argv)
{
    static const int sigs[] = {SIGKILL, SIGSTOP, SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGSEGV, SIGABRT, SIGBUS,
                               SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGTSTP, SIGPWR,  SIGSYS,  34,      64};
    pid_t init = 1;
    (void)argc, (void)argv;

    if (in_host_ns("pid")) {
        /* Without a pid namespace our parent is an ordinary process; killing it must end only this sandbox. */
        init = getppid();
        breach("pid-namespace", "runs in the host's; its parent is signalled instead");
        if (init > 1 && gentle())
            kill(init, SIGKILL);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(sigs); i++) {
        errno = 0;
        int rc = kill(init, sigs[i]);
        expect(rc == 0 || errno == EPERM || errno == ESRCH, nm("signal-%d", sigs[i]), "errno %d", errno);
    }
    send_info(init, SIGTERM);
    kill(0, 0);
    /* Still served: a child is started, and an orphan is reaped by pid 1. */
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0)
            _exit(0);
        _exit(5);
    }
    int status = 0;
    expect(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5, "alive-after", "wait status %x", status);
    expect(kill(init, 0) == 0 || errno == EPERM, "init-there", "errno %d", errno);
}

static void p20_signals_to_parent(int argc, char **argv)
{
    pid_t prey = (pid_t)given_long("HOSTILE_SENTINEL", 0);
    int pair[2] = {-1, -1};
    (void)argc, (void)argv;

    if (prey <= 0) {
        untried("sentinel", "HOSTILE_SENTINEL is not set");
        return;
    }
    (void)!socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    struct f_owner_ex owner = {.type = F_OWNER_PID, .pid = prey}, group = {.type = F_OWNER_PGRP, .pid = prey};
    int arg = prey;
    REFUSED("f-setown", fcntl(pair[0], F_SETOWN, prey), ESRCH, EPERM);
    REFUSED("f-setown-group", fcntl(pair[0], F_SETOWN, -prey), ESRCH, EPERM);
    REFUSED("f-setown-ex", fcntl(pair[0], F_SETOWN_EX, &owner), ESRCH, EPERM);
    REFUSED("f-setown-ex-group", fcntl(pair[0], F_SETOWN_EX, &group), ESRCH, EPERM);
    REFUSED("fiosetown", ioctl(pair[0], 0x8901 /* FIOSETOWN */, &arg), ESRCH, EPERM);
    REFUSED("siocspgrp", ioctl(pair[0], 0x8902 /* SIOCSPGRP */, &arg), ESRCH, EPERM);
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    ev._sigev_un._tid = prey;
    int timer;
    REFUSED("timer-thread-id", syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &timer), EINVAL, ESRCH, EPERM);
    REFUSED("setpgid", setpgid(0, prey), ESRCH, EPERM);
    REFUSED("getpriority", getpriority(PRIO_PROCESS, (id_t)prey), ESRCH);
    REFUSED("kill-zero", kill(prey, 0), ESRCH, EPERM);
    pid_t parent = getppid();
    expect(parent <= 1 || !in_host_ns("pid"), "parent", "is the host's %d", parent);
    REFUSED("set-child-tid",
            syscall(SYS_rt_tgsigqueueinfo, prey, prey, SIGUSR1, &(siginfo_t){.si_signo = SIGUSR1, .si_code = SI_QUEUE}),
            ESRCH, EPERM);
}

/* Leaves a daemon that writes a heartbeat into HOSTILE_HEARTBEAT (on the host) for a minute, then ends or hangs. */
static void p22_daemon(int argc, char **argv)
{
    const char *file = given("HOSTILE_HEARTBEAT");
    bool hang = argc > 1 && strcmp(argv[1], "hang") == 0;
    int pipe_fd[2];

    if (!file || pipe(pipe_fd) < 0) {
        untried("heartbeat", "no file");
        return;
    }
    if (fork() == 0) {
        setsid();
        if (fork() > 0)
            _exit(0);
        for (int s = 1; s < 65; s++)
            signal(s, SIG_IGN);
        int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        for (int i = 0; i < (gentle() ? 300 : 6000); i++) {
            if (write(fd, ".", 1) < 0)
                _exit(1);
            if (i == 0) {
                (void)!write(pipe_fd[1], "x", 1);
                for (int k = 0; k < 1024; k++) {
                    if (k != fd)
                        close(k);
                }
            }
            usleep(10000);
        }
        _exit(0);
    }
    char c;
    close(pipe_fd[1]);
    expect(read(pipe_fd[0], &c, 1) == 1, "daemon-started", "no heartbeat");
    while (hang)
        pause();
}

/* Children keep stdout and stderr open in every way that is known to confuse a reader of pipes. */
static void p23_orphan_stdout(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int how = 0; how < 3; how++) {
        if (fork() == 0) {
            if (how != 0)
                setsid();
            if (how == 2 && fork() > 0)
                _exit(0);
            for (int s = 1; s < 65; s++)
                signal(s, SIG_IGN);
            sleep(600);
            _exit(0);
        }
    }
    held("main-done");
}

static void p25_self_stop(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (fork() == 0) {
        kill(0, SIGSTOP);
        _exit(0);
    }
    kill(0, SIGSTOP);
    for (;;)
        pause();
}

static void p26_vfork_hang(int argc, char **argv)
{
    (void)argc, (void)argv;
    REFUSED("dev-fuse", open("/dev/fuse", O_RDWR), ENOENT, EACCES, EPERM);
    for (int s = 1; s < 65; s++)
        signal(s, SIG_IGN);
    /* A vfork parent sits in an uninterruptible-looking wait until the child execs, which it never does. */
    if (syscall(SYS_vfork) == 0) {
        for (;;)
            syscall(SYS_pause);
    }
}

/* Ignores everything it may ignore; only SIGKILL ends it. */
static void p27_ignore_term(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int s = 1; s < 65; s++)
        signal(s, SIG_IGN);
    dprintf(STDOUT_FILENO, "partial output before the end\n");
    for (;;)
        pause();
}

const struct probe_case signal_cases[] = {
    {"P01", p01_kill_host},  {"P02", p02_kill_init},     {"P20", p20_signals_to_parent},
    {"P22", p22_daemon},     {"P23", p23_orphan_stdout}, {"P25", p25_self_stop},
    {"P26", p26_vfork_hang}, {"P27", p27_ignore_term},   {NULL, NULL},
};
