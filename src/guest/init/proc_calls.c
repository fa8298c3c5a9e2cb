/* SPDX-License-Identifier: Apache-2.0 */
/* proc_calls.c: the calls on processes except START: output, input, waiting, signals, terminals, the list. */
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

/* A payload that is one process number. NULL: the call was answered. */
static struct proc *only_proc(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader reader = {payload, payload + len, false};
    uint32_t number = svc_get_u32(&reader);
    struct proc *proc = svc_done(&reader) == 0 ? proc_find(number) : NULL;

    if (!proc)
        send_reply(request, svc_done(&reader) == 0 ? ESRCH : EINVAL, 0, NULL, 0);
    return proc;
}

/* ---- output ---------------------------------------------------------------------------------------- */

static void attach_drained(struct call *call)
{
    call_reply(call, 0, 0, NULL, 0);
}

void proc_attach(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_proc_attach msg;
    struct svc_attached attached = {{0}};
    struct proc *proc = NULL;
    uint8_t wire[32];
    int errnum = svc_proc_attach_parse(payload, len, &msg) == 0 ? 0 : EINVAL;

    if (errnum == 0 && !(proc = proc_find(msg.proc)))
        errnum = ESRCH;
    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    struct call *call = call_new(request, SVC_PROC_ATTACH, proc);
    if (!call)
        return;
    call->drained = attach_drained;
    for (unsigned i = 1; i < STREAMS; i++)
        if (msg.streams & (1u << i)) {
            call_attach(call, i, &proc->out[i], msg.offset[i]);
            attached.first[i] = call->reader[i - 1].pos;
        }
    int used = svc_attached_put(wire, sizeof(wire), &attached);
    send_frame(SVC_EVENT, request, 0, wire, used < 0 ? 0 : (size_t)used);
}

/* ---- input ----------------------------------------------------------------------------------------- */

void proc_input_ended(struct inlet *inlet)
{
    struct proc *proc = owner_of(inlet, struct proc, in);

    for (struct call *call = proc->calls, *next; call; call = next) {
        next = call->next_of_proc;
        if (call->type == SVC_PROC_INPUT)
            call_reply(call, inlet->errnum, 0, NULL, 0);
    }
}

void proc_input(uint32_t request, const uint8_t *payload, size_t len)
{
    struct proc *proc = only_proc(request, payload, len);
    int errnum = 0;

    if (!proc)
        return;
    /* A terminal that is still to come has no descriptor yet; what is written before waits in the queue. */
    if (!(proc->flags & (SVC_PROC_STDIN | SVC_PROC_TTY)) || proc->state >= PROC_ENDING || proc->in.errnum != 0 ||
        proc->in.eof)
        errnum = EPIPE;
    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    struct call *call = call_new(request, SVC_PROC_INPUT, proc);
    if (!call)
        return;
    call->inlet = &proc->in;
}

/* ---- the end --------------------------------------------------------------------------------------- */

static void answer_wait(struct call *call)
{
    uint8_t wire[128];
    int len = svc_proc_exit_put(wire, sizeof(wire), &call->proc->exit);

    call_reply(call, len < 0 ? EIO : 0, 0, wire, len < 0 ? 0 : (size_t)len);
}

void proc_answer_waits(struct proc *proc)
{
    for (struct call *call = proc->calls, *next; call; call = next) {
        next = call->next_of_proc;
        if (call->type == SVC_PROC_WAIT)
            answer_wait(call);
        else if (call->type == SVC_PROC_INPUT)
            call_reply(call, EPIPE, 0, NULL, 0);
    }
}

void proc_wait(uint32_t request, const uint8_t *payload, size_t len)
{
    struct proc *proc = only_proc(request, payload, len);
    struct call *call = proc ? call_new(request, SVC_PROC_WAIT, proc) : NULL;

    if (call && proc->state == PROC_ENDED)
        answer_wait(call);
}

void proc_forget_call(uint32_t request, const uint8_t *payload, size_t len)
{
    struct proc *proc = only_proc(request, payload, len);

    if (!proc)
        return;
    bool ended = proc->state == PROC_ENDED;
    if (ended)
        proc_forget(proc);
    send_reply(request, ended ? 0 : EBUSY, 0, NULL, 0);
}

/* Its terminal's master, or -1. */
static int tty_of(const struct proc *proc)
{
    return proc->in.is_tty ? proc->in.source.fd : -1;
}

/* ---- signals --------------------------------------------------------------------------------------- */

/* The foreground group of its terminal, or its own: the main process leads a session, so its group has its number. */
static pid_t group_of(const struct proc *proc)
{
    pid_t group = 0;

    if (tty_of(proc) >= 0 && raw_call3(SYS_ioctl, tty_of(proc), TIOCGPGRP, &group) == 0 && group > 1)
        return group;
    return proc->pid;
}

/* To the one that is its parent: then no number is ever used for a process that has gone. */
static long order_shepherd(const struct proc *proc, uint32_t signum, uint32_t flags)
{
    const struct sheep_order order = {signum, flags};
    long ret;

    if (proc->sheep.fd < 0)
        return -ESRCH;
    ret = raw_call6(SYS_sendto, proc->sheep.fd, &order, sizeof(order), MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
    return ret < 0 ? ret : 0;
}

static long signal_all(struct proc *proc)
{
    if (!proc->reaped)
        proc->exit.killed = 1;
    if (proc->shepherd != 0)
        return order_shepherd(proc, SIGKILL, SVC_SIGNAL_ALL);
    if (proc->leaf && proc->leaf_ready) {
        proc_end_leaf(proc);
        return 0;
    }
    if (proc->adopted)
        walk_descendants(proc->pid, 0, SIGKILL);    /* whoever has left it is found when it has ended */
    return raw_call2(SYS_kill, proc->pid, SIGKILL); /* without a leaf it is alone: it has not executed */
}

static long signal_group(const struct proc *proc, uint32_t signum)
{
    pid_t group = group_of(proc);

    return group > 1 ? raw_call2(SYS_kill, -group, signum) : -ESRCH;
}

long proc_send_signal(struct proc *proc, const struct svc_proc_signal *msg)
{
    bool flock = msg->flags & (SVC_SIGNAL_ALL | SVC_SIGNAL_CHILDREN);

    if (proc->state == PROC_ENDED || proc->reaped)
        return proc->state != PROC_ENDED && flock ? 0 : -ESRCH; /* what is left is being killed */
    /* A stop between two commands is nobody's; a shepherd would deliver it when the next one runs. */
    if (msg->signum == SVC_SHELL_STOP && proc->shell && !shell_is_busy(proc))
        return 0;
    if (msg->flags & SVC_SIGNAL_ALL)
        return msg->signum == SIGKILL ? signal_all(proc) : -EINVAL;
    if (proc->state == PROC_STARTING && msg->flags != 0) /* it is alone, and perhaps not yet in a group of its own */
        return flock ? 0 : -EAGAIN;
    if (msg->flags & SVC_SIGNAL_GROUP && (proc->shepherd == 0 || tty_of(proc) >= 0))
        return signal_group(proc, msg->signum);
    if (proc->shepherd != 0)
        return order_shepherd(proc, msg->signum, msg->flags);
    if (msg->flags & SVC_SIGNAL_CHILDREN) {
        int found = walk_cgroup(proc->pid, (int)msg->signum);
        return found < 0 ? found : 0;
    }
    return raw_call2(SYS_kill, proc->pid, msg->signum);
}

void proc_signal(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_proc_signal msg;
    struct proc *proc = NULL;
    long ret = -EINVAL;

    if (svc_proc_signal_parse(payload, len, &msg) == 0) {
        proc = proc_find(msg.proc);
        ret = proc ? proc_send_signal(proc, &msg) : -ESRCH;
    }
    send_reply(request, (int)-ret, 0, NULL, 0);
}

/* ---- terminals ------------------------------------------------------------------------------------- */

int proc_master(struct proc *proc, int fd)
{
    uint32_t ring = proc->out[1].size;
    long copy = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
    int ret;

    if (raw_failed(copy))
        return (int)copy;
    raw_call3(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
    ret = inlet_open(&proc->in, (int)copy);
    if (ret < 0) {
        raw_call1(SYS_close, copy);
        return ret;
    }
    ret = outlet_open(&proc->out[1], fd, ring);
    if (ret < 0)
        return ret;
    proc->out[1].is_tty = true;
    return 0;
}

void proc_resize(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader reader = {payload, payload + len, false};
    uint32_t number = svc_get_u32(&reader);
    struct winsize size = {0};
    long ret = -EINVAL;

    size.ws_row = svc_get_u16(&reader);
    size.ws_col = svc_get_u16(&reader);
    if (svc_done(&reader) == 0) {
        const struct proc *proc = proc_find(number);

        if (!proc)
            ret = -ESRCH;
        else if (tty_of(proc) < 0)
            ret = -ENOTTY;
        else
            ret = raw_call3(SYS_ioctl, tty_of(proc), TIOCSWINSZ, &size);
    }
    send_reply(request, (int)-ret, 0, NULL, 0);
}

/* ---- the list -------------------------------------------------------------------------------------- */

static void send_info(uint32_t request, struct proc *proc)
{
    uint8_t wire[512];
    struct svc_proc_info info = {
        .proc = proc->number,
        .pid = (uint32_t)proc->pid,
        .flags = proc->flags,
        .running = proc->state != PROC_ENDED,
        .started_ns = proc->executed_ns,
        .command = {proc->command, proc->command_len},
    };

    for (unsigned i = 1; i < STREAMS; i++) {
        info.output[i] = proc->out[i].end;
        info.oldest[i] = proc->out[i].begin;
    }
    if (!info.running)
        info.exit = proc->exit;
    int len = svc_proc_info_put(wire, sizeof(wire), &info);
    if (len > 0)
        send_frame(SVC_EVENT, request, 0, wire, (size_t)len);
}

void proc_list(uint32_t request, const uint8_t *payload, size_t len)
{
    (void)payload;
    if (len != 0) {
        send_reply(request, EINVAL, 0, NULL, 0);
        return;
    }
    for (struct proc *proc = proc_next(NULL); proc; proc = proc_next(proc))
        send_info(request, proc);
    send_reply(request, 0, 0, NULL, 0);
}
