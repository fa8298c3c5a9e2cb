/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sudo.c: runs commands as root for the user of a sandbox that has sudo.
 *
 * Theory of operation. No set-id bit has an effect in a sandbox, so the program sudo (sudo_ask.c) asks on an abstract
 * socket, and what it asks for is started from here. pid 1 only accepts the connection, looks who is at its other end,
 * and starts a process of its own for it, as it does for a unit: with a leaf cgroup, or under a shepherd. That process
 * has become root inside, with the seven capabilities of jail/user.h and not pid 1's, before it reads a byte: whoever
 * took it over would have what he may have anyway. It receives the request, starts the command, passes signals on,
 * answers with the status and exits. It also exits when the connection closes. Then pid 1 kills everything in its leaf.
 *
 * pid 1 never receives a message here, and never closes a connection that it alone has: a descriptor in the queue may
 * be a socket that lingers, and closing it would take as long as its owner likes. If there is no room for another
 * process, the connection is kept (waiting_fd) and nobody else is accepted until there is.
 *
 * The program itself is no file of the sandbox's: the set-up lays it below the root (jail/sudo_place.c).
 */
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define SUDO_MAX 16u           /* commands at a time; further callers wait */
#define REQUEST_MS (10 * 1000) /* for the request, once there is a connection */
#define REFUSED_MS 1000        /* the same for one who may not */
#define SIGNAL_MAX 64u
#define NULL_FD 1 /* one of the three that are /dev/null in pid 1 */

enum { FD_CONN = 3, FD_SIGNAL = 4 };

static struct source listener = {.fd = -1};
static int waiting_fd = -1;
static unsigned n_served;

/* ---- pid 1: connections ------------------------------------------------------------------------------ */

static long start_server(int fd)
{
    static const char strings[] = "sudo"; /* its name; it executes nothing */
    const struct svc_proc_start msg = {.proc = 1,
                                       .n_argv = 1,
                                       .workdir = {"/", 1},
                                       .strings = (const uint8_t *)strings,
                                       .strings_len = sizeof(strings)};
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct proc *proc = proc_new(proc_unit_number(), 0);

    if (!proc)
        return -EAGAIN;
    long ret = raw_call5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    proc->sudo = true;
    proc->sudo_refused = ret != 0 || !service_may_sudo(peer.uid);
    proc->sudo_fd = fd;
    ret = proc_spawn(proc, &msg, NULL_FD, NULL);
    if (ret != 0)
        proc_release(proc);
    return ret;
}

static void serve_waiting(void)
{
    if (waiting_fd >= 0 && n_served < SUDO_MAX && start_server(waiting_fd) == 0) {
        n_served++;
        raw_call1(SYS_close, waiting_fd); /* the process has it */
        waiting_fd = -1;
    }
    source_arm(&listener, waiting_fd < 0 && n_served < SUDO_MAX ? EPOLLIN : 0);
}

void sudo_retry(void)
{
    if (waiting_fd >= 0)
        serve_waiting();
}

void sudo_ended(void)
{
    n_served--;
    serve_waiting();
}

static void on_caller(struct source *source, uint32_t events)
{
    (void)events;
    if (waiting_fd >= 0)
        return;
    long fd = raw_call4(SYS_accept4, source->fd, NULL, NULL, SOCK_CLOEXEC);
    if (raw_failed(fd))
        return;
    waiting_fd = (int)fd;
    serve_waiting();
}

void sudo_listen(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = offsetof(struct sockaddr_un, sun_path) + 1 + sizeof(SUDO_SOCKET) - 1;
    long fd = raw_call3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    __builtin_memcpy(address.sun_path + 1, SUDO_SOCKET, sizeof(SUDO_SOCKET) - 1);
    listener.ready = on_caller;
    if (raw_failed(fd) || raw_call3(SYS_bind, fd, &address, len) != 0 || raw_call2(SYS_listen, fd, SUDO_MAX) != 0 ||
        source_add(&listener, (int)fd, EPOLLIN) != 0)
        guest_exit(GUEST_EXIT_BROKEN);
}

/* ---- the server: root inside, one caller ---------------------------------------------------------------- */

__attribute__((noreturn)) static void answer(struct sudo_end end)
{
    raw_call6(SYS_sendto, FD_CONN, &end, sizeof(end), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
    guest_exit(0);
}

__attribute__((noreturn)) static void refuse(long errnum)
{
    answer((struct sudo_end){EXIT_NOT_STARTED << 8, 1 + STAGE_FORK, (uint32_t)-errnum});
}

/* Returns the length of the request, or a negative errno. All three descriptors have come. */
static long receive(uint8_t *out, int fds[GUEST_STDIO_MAX], int timeout_ms)
{
    struct pollfd wait = {.fd = FD_CONN, .events = POLLIN};
    struct iovec iov = {out, SUDO_MESSAGE_MAX};
    uint8_t beside[CMSG_SPACE(GUEST_STDIO_MAX * sizeof(int))] __attribute__((aligned(8))) = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = beside, .msg_controllen = sizeof(beside)};

    if (raw_call3(SYS_poll, &wait, 1, timeout_ms) != 1)
        return -ETIMEDOUT;
    long got = raw_call3(SYS_recvmsg, FD_CONN, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    if (got <= 0 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return got < 0 ? got : -EPROTO;
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS ||
        head->cmsg_len != CMSG_LEN(GUEST_STDIO_MAX * sizeof(int)))
        return -EPROTO;
    __builtin_memcpy(fds, CMSG_DATA(head), GUEST_STDIO_MAX * sizeof(int));
    return got;
}

/* In the command's process. */
__attribute__((noreturn)) static void be_command(const struct program *server, const struct svc_proc_start *msg,
                                                 const int fds[GUEST_STDIO_MAX], int report_fd)
{
    static char workdir[GUEST_WORKDIR_MAX];
    struct guest_start start = *server->start;
    struct program program = *server;

    start.flags = (start.flags & (GUEST_START_ROOT | GUEST_START_VOLUMES)) | GUEST_START_STDIN;
    __builtin_memcpy(workdir, msg->workdir.data, msg->workdir.len);
    start.workdir = workdir;
    program.start = &start;
    program.who = msg->user;
    program.report_fd = report_fd;
    program.sudo_fd = program.channel_fd = -1;
    program.leaf = 0;
    __builtin_memcpy(program.fds, fds, sizeof(program.fds));
    program.errnum = -program_vectors(&program, (const char *)msg->strings, msg->n_argv, msg->n_env, NULL);
    program_child(&program);
}

/* What it said before it executed; it has ended. */
static struct sudo_end end_of(int status, int report_fd)
{
    struct sudo_end end = {.status = (uint32_t)status};
    struct child_report report;

    while (raw_call6(SYS_recvfrom, report_fd, &report, sizeof(report), MSG_DONTWAIT, NULL, NULL) ==
           (long)sizeof(report))
        if (report.kind == CHILD_FAILED) {
            end.failed = 1 + report.stage;
            end.errnum = report.errnum;
        }
    return end;
}

/* A signal, or the end: without the caller there is no command. */
static void obey(pid_t pid)
{
    uint32_t sig = 0;
    long got = raw_call3(SYS_read, FD_CONN, &sig, sizeof(sig));

    if (got == -EINTR || got == -EAGAIN)
        return;
    if (got != (long)sizeof(sig) || sig == 0 || sig > SIGNAL_MAX)
        guest_exit(0);
    if (raw_call2(SYS_kill, -pid, sig) != 0)
        raw_call2(SYS_kill, pid, sig);
}

__attribute__((noreturn)) static void watch(pid_t pid, int report_fd)
{
    struct pollfd fds[2] = {{.fd = FD_CONN, .events = POLLIN}, {.fd = FD_SIGNAL, .events = POLLIN}};
    struct signalfd_siginfo info;

    for (;;) {
        int status = 0;

        raw_call3(SYS_poll, fds, 2, -1);
        if (fds[1].revents != 0) {
            raw_call3(SYS_read, FD_SIGNAL, &info, sizeof(info));
            if (raw_call4(SYS_wait4, pid, &status, WNOHANG, NULL) == pid)
                answer(end_of(status, report_fd));
        }
        if (fds[0].revents != 0)
            obey(pid);
    }
}

__attribute__((noreturn)) void sudo_serve(const struct program *program)
{
    const uint64_t child_signal = UINT64_C(1) << (SIGCHLD - 1);
    int fds[GUEST_STDIO_MAX] = {-1, -1, -1}, pair[2] = {-1, -1};
    struct svc_proc_start msg;
    uint8_t *request;

    /* Pipes of other processes are not ours to hold open. */
    if (program->sudo_fd != FD_CONN && raw_failed(raw_call3(SYS_dup3, program->sudo_fd, FD_CONN, O_CLOEXEC)))
        guest_exit(GUEST_EXIT_BROKEN);
    raw_close_from(FD_CONN + 1, 0);
    units_let_go();
    if (raw_call4(SYS_signalfd4, -1, &child_signal, sizeof(child_signal), SFD_CLOEXEC | SFD_NONBLOCK) != FD_SIGNAL)
        refuse(-EMFILE);
    if (!(request = pages_map(SUDO_MESSAGE_MAX)))
        refuse(-ENOMEM);
    long ret = receive(request, fds, program->sudo_refused ? REFUSED_MS : REQUEST_MS);
    if (program->sudo_refused) /* and not before: what is unread when we exit would reset the connection */
        refuse(-EPERM);
    if (ret > 0 && svc_proc_start_parse(request, (size_t)ret, &msg) != 0)
        ret = -EPROTO;
    if (ret > 0 && msg.flags == 0) /* the question alone, whether he may */
        answer((struct sudo_end){0});
    if (ret > 0 && msg.flags != SVC_PROC_USER)
        ret = -EPROTO;
    if (ret > 0 && raw_failed(ret = raw_call4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)))
        refuse(ret);
    if (ret < 0)
        refuse(ret);
    long pid = raw_call5(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        be_command(program, &msg, fds, pair[1]);
    if (pid < 0)
        refuse(pid);
    for (int i = 0; i < GUEST_STDIO_MAX; i++)
        raw_call1(SYS_close, fds[i]);
    raw_call1(SYS_close, pair[1]);
    watch((pid_t)pid, pair[0]);
}
