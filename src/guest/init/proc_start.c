/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_start.c: PROC_START, up to the moment the child has executed or failed.
 *
 * Everything on our side that can fail (pipes, sockets, their places in epoll) is made before the fork, so that once
 * there is a child there is no way back but its own. What it has to say comes on a socket that closes by itself when it
 * executes or dies: its terminal, that it is about to execute, where and why it stopped.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

static char workdir[GUEST_WORKDIR_MAX]; /* written by children only */

/* ---- what the child tells --------------------------------------------------------------------------- */

static void answer_start(struct proc *proc)
{
    uint8_t wire[16];
    const struct svc_proc_started started = {.pid = (uint32_t)proc->pid, .at_ns = proc->executed_ns};
    int len = svc_proc_started_put(wire, sizeof(wire), &started);

    if (proc->start_request != 0 && len > 0) {
        if (proc->failed)
            send_reply(proc->start_request, (int)proc->result.errnum, proc->result.stage, NULL, 0);
        else
            send_reply(proc->start_request, 0, 0, wire, (size_t)len);
    }
    proc->start_request = 0;
}

static void fail_start(struct proc *proc)
{
    proc->failed = true;
    if (proc->result.errnum == 0) /* it was killed before it could say why */
        proc->result = (struct svc_reply){.errnum = EIO, .stage = STAGE_FORK};
    answer_start(proc);
    while (proc->calls)
        call_reply(proc->calls, ESRCH, 0, NULL, 0);
}

/* The report has ended: it executes, or never will. */
static void report_over(struct proc *proc)
{
    source_close(&proc->report);
    if (proc->executed_ns == 0 || proc->result.errnum != 0) {
        fail_start(proc);
        return;
    }
    proc->state = PROC_RUNNING;
    proc->exit.started_ns = proc->executed_ns;
    if (proc->unit)
        unit_executed(proc);
    answer_start(proc);
    channel_wake(proc);
}

static void take_report(struct proc *proc, const struct child_report *report, int fd)
{
    int ret;

    switch (report->kind) {
    case CHILD_TTY:
        ret = fd < 0 ? -EIO : proc_master(proc, fd);
        if (ret < 0) {
            if (fd >= 0)
                raw_call1(SYS_close, fd);
            proc->result = (struct svc_reply){.errnum = (uint32_t)-ret, .stage = STAGE_TTY};
            raw_call2(SYS_kill, (long)report->pid, SIGKILL); /* it cannot have been reaped: it has not ended */
        }
        return;
    case CHILD_EXECUTES:
        proc->executed_ns = report->at_ns;
        if (proc->shepherd != 0)
            proc->pid = (pid_t)report->pid;
        return;
    default: proc->result = (struct svc_reply){.errnum = report->errnum, .stage = report->stage};
    }
}

void proc_read_report(struct proc *proc, bool dead)
{
    while (proc->report.fd >= 0) {
        struct child_report report;
        uint8_t beside[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
        struct iovec iov = {&report, sizeof(report)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = beside, .msg_controllen = sizeof(beside)};
        long got = raw_call3(SYS_recvmsg, proc->report.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        const struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        int fd = -1;

        if ((got == -EAGAIN || got == -EINTR) && !dead)
            return;
        if (got != (long)sizeof(report)) {
            report_over(proc);
            return;
        }
        if (head && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int)))
            __builtin_memcpy(&fd, CMSG_DATA(head), sizeof(fd));
        take_report(proc, &report, fd);
    }
}

static void on_report(struct source *source, uint32_t events)
{
    (void)events;
    proc_read_report(owner_of(source, struct proc, report), false);
}

void proc_leaf_ready(const struct guest_leaf_ready *ready)
{
    struct proc *proc = proc_find_any(ready->leaf);
    uint32_t errnum = ready->errnum;

    if (!proc || proc->leaf_ready || !proc->leaf || proc->leaf_ended)
        return;
    proc->leaf_ready = true;
    if (errnum != 0)
        proc->leaf = false; /* there is none to end */
    if (proc->report.fd >= 0)
        raw_call6(SYS_sendto, proc->report.fd, &errnum, sizeof(errnum), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

/* ---- START ----------------------------------------------------------------------------------------- */

/* What a start opens; whatever is still here at its end is closed. */
struct spawn {
    struct proc *proc;
    const struct svc_proc_start *msg;
    int ours[STREAMS];   /* our ends of stdin, stdout, stderr */
    int theirs[STREAMS]; /* the child's */
    int shell[2];
    int report, sheep, channel; /* the child's ends */
    int output;                 /* what both outputs are; the caller's, or -1 */
    const struct svc_unit *probe;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        raw_call1(SYS_close, *fd);
    *fd = -1;
}

static void spawn_done(struct spawn *spawn)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        close_fd(&spawn->ours[i]);
        close_fd(&spawn->theirs[i]);
    }
    close_fd(&spawn->shell[0]);
    close_fd(&spawn->shell[1]);
    close_fd(&spawn->report);
    close_fd(&spawn->sheep);
    close_fd(&spawn->channel);
}

/* A pipe whose end here does not block; ours is the reading one of streams 1 and 2. */
static long make_pipe(struct spawn *spawn, unsigned stream)
{
    int pair[2] = {-1, -1};
    long ret = raw_call2(SYS_pipe2, pair, O_CLOEXEC);

    if (ret != 0)
        return ret;
    spawn->ours[stream] = pair[stream == 0];
    spawn->theirs[stream] = pair[stream != 0];
    return raw_call3(SYS_fcntl, spawn->ours[stream], F_SETFL, O_NONBLOCK);
}

static long share_output(struct spawn *spawn)
{
    for (unsigned i = 1; i < STREAMS; i++) {
        long fd = raw_call3(SYS_fcntl, spawn->output, F_DUPFD_CLOEXEC, 0);

        if (raw_failed(fd))
            return fd;
        spawn->theirs[i] = (int)fd;
    }
    return 0;
}

static long make_stdio(struct spawn *spawn)
{
    struct proc *proc = spawn->proc;
    uint32_t ring = spawn->msg->ring != 0 ? spawn->msg->ring : SERVICE_RING;
    long ret = 0;

    if (spawn->output >= 0)
        return share_output(spawn);
    proc->out[1].size = proc->out[2].size = ring;
    proc->out[1].held = proc->out[2].held = (proc->flags & SVC_PROC_HOLD) != 0;
    if (proc->flags & SVC_PROC_TTY) { /* the child makes it, as the user */
        proc->out[1].over = false;
        proc->in.waits = proc->in.is_tty = true;
        return 0;
    }
    if (proc->flags & SVC_PROC_STDIN) {
        ret = make_pipe(spawn, 0);
        if (ret == 0 && (ret = inlet_open(&proc->in, spawn->ours[0])) == 0)
            spawn->ours[0] = -1;
    }
    for (unsigned i = 1; i < STREAMS && ret == 0; i++) {
        ret = make_pipe(spawn, i);
        if (ret == 0 && (ret = outlet_open(&proc->out[i], spawn->ours[i], ring)) == 0)
            spawn->ours[i] = -1;
    }
    return ret;
}

/* A socket to the child: ours is watched, its is left in *ret_theirs. */
static long make_socket(struct source *source, void (*ready)(struct source *, uint32_t), int *ret_theirs)
{
    int pair[2] = {-1, -1};
    long ret = raw_call4(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);

    if (ret != 0)
        return ret;
    *ret_theirs = pair[1];
    source->ready = ready;
    ret = source_add(source, pair[0], ready ? EPOLLIN : 0);
    if (ret != 0)
        raw_call1(SYS_close, pair[0]);
    return ret;
}

static void on_sheep(struct source *source, uint32_t events)
{
    struct proc *proc = owner_of(source, struct proc, sheep);

    (void)events;
    proc_read_sheep(proc);
    source_close(source); /* its last word; that it is gone is told by its death */
}

/* In the child. */
__attribute__((noreturn)) static void be_the_child(const struct spawn *spawn, const char *const extra[2])
{
    const struct svc_proc_start *msg = spawn->msg;
    struct guest_start start;
    struct program program;
    int has_stdin = (msg->flags & SVC_PROC_STDIN) != 0;

    service_program(&program, &start);
    start.flags = (start.flags & (GUEST_START_ROOT | GUEST_START_VOLUMES)) |
                  ((msg->flags & SVC_PROC_TTY) ? GUEST_START_TTY : 0) | (has_stdin ? GUEST_START_STDIN : 0);
    if (msg->flags & SVC_PROC_USER)
        program.who = msg->user;
    if (spawn->proc->sudo) {
        program.user = NULL; /* so it is START's: root */
        program.sudo_fd = spawn->proc->sudo_fd;
        program.sudo_refused = spawn->proc->sudo_refused;
    }
    start.rows = msg->rows;
    start.cols = msg->cols;
    __builtin_memcpy(workdir, msg->workdir.data, msg->workdir.len);
    start.workdir = workdir;
    program.report_fd = spawn->report;
    program.shell_fds[0] = spawn->shell[0];
    program.shell_fds[1] = spawn->shell[1];
    program.channel_fd = spawn->channel;
    program.leaf = spawn->proc->leaf ? spawn->proc->number : 0;
    program.probe = spawn->probe;
    if (has_stdin)
        program.fds[0] = spawn->theirs[0];
    program.fds[has_stdin] = spawn->theirs[1];
    program.fds[has_stdin + 1] = spawn->theirs[2];
    program.errnum = -program_vectors(&program, (const char *)msg->strings, msg->n_argv, msg->n_env, extra);
    if (spawn->sheep >= 0)
        shepherd_main(&program, spawn->sheep);
    program_child(&program);
}

static long spawn_child(struct spawn *spawn)
{
    struct proc *proc = spawn->proc;
    const char *extra[2] = {NULL, NULL};
    long ret = make_stdio(spawn);

    if (ret == 0)
        ret = make_socket(&proc->report, on_report, &spawn->report);
    proc->leaf = service_has_leaves();
    if (ret == 0 && !proc->leaf)
        ret = make_socket(&proc->sheep, on_sheep, &spawn->sheep);
    if (ret == 0 && proc->flags & SVC_PROC_CHANNEL)
        ret = channel_make(proc, &spawn->channel);
    if (ret == 0 && proc->flags & SVC_PROC_SHELL)
        ret = shell_prepare(proc, (const char *)spawn->msg->strings, extra, spawn->shell);
    if (ret != 0)
        return ret;
    ret = raw_call5(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (ret == 0)
        be_the_child(spawn, extra);
    if (ret < 0)
        return ret;
    if (proc->leaf)
        proc->pid = (pid_t)ret;
    else
        proc->shepherd = (pid_t)ret; /* the process itself will tell who it is */
    return 0;
}

/* Whether the request may be tried at all: 0 or an errno. */
static int judge_start(const struct svc_proc_start *msg)
{
    if ((msg->flags & SVC_PROC_SHELL) && (msg->flags & (SVC_PROC_TTY | SVC_PROC_CHANNEL)))
        return EINVAL;
    if (msg->proc >= SVC_UNIT_PROC_MIN)
        return EINVAL;
    return proc_find_any(msg->proc) ? EEXIST : 0;
}

static void name_proc(struct proc *proc, const char *command)
{
    size_t len = __builtin_strlen(command);

    proc->command_len = (uint8_t)(len < PROC_COMMAND_MAX ? len : PROC_COMMAND_MAX);
    __builtin_memcpy(proc->command, command, proc->command_len);
}

long proc_spawn(struct proc *proc, const struct svc_proc_start *msg, int output, const struct svc_unit *probe)
{
    struct spawn spawn = {proc, msg, {-1, -1, -1}, {-1, -1, -1}, {-1, -1}, -1, -1, -1, output, probe};
    long ret;

    name_proc(proc, (const char *)msg->strings);
    ret = spawn_child(&spawn);
    spawn_done(&spawn);
    return ret;
}

void proc_start(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_proc_start msg;
    int errnum = svc_proc_start_parse(payload, len, &msg) != 0 ? EINVAL : judge_start(&msg);
    struct proc *proc = errnum == 0 ? proc_new(msg.proc, msg.flags) : NULL;

    if (!proc) {
        send_reply(request, errnum != 0 ? errnum : EAGAIN, STAGE_FORK, NULL, 0);
        return;
    }
    long ret = proc_spawn(proc, &msg, -1, NULL);
    if (ret != 0) {
        send_reply(request, (int)-ret, STAGE_FORK, NULL, 0);
        proc_release(proc);
        return;
    }
    proc->start_request = request;
}
