/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel.c: the private socket between a process and the holder of its CHANNEL call, and the process that was in the
 * sandbox before pid 1.
 *
 * Theory of operation. The program finds one end of an AF_UNIX stream as descriptor 3; ours is an outlet and an inlet
 * on a descriptor each, as a port has. Nothing that it wrote there is ever forgotten: without a call, or with one that
 * gives no credit, the ring fills, then the socket, then the program waits.
 *
 * The order of what a program writes is kept across its descriptors: bytes of the channel are not sent before
 * everything that was in stdout and stderr when they were read has been sent to whoever is attached there. So a runtime
 * that flushes and then answers is answered with all of its output ahead of it, at no extra round. It works by a mark
 * per stream, set after every read of the channel to what the stream had then; a call below the marks waits
 * (channel_held_back), and is woken by each turn of a call on the same process. The marks only ask for bytes that
 * exist, so a reader that gives credit gets there.
 *
 * Whoever holds the call may ask to have the process's frames (u32 length, payload) counted. When so many have come,
 * the spawner is told, before the last of them is sent: what it counts travels beside the answer, not after it. That is
 * done once in a sandbox's life.
 *
 * A process that was forked into the sandbox before pid 1 ran (GUEST_START_ADOPT) is taken over as number 1: the
 * parent's ends of its pipes and of its channel are at INIT_FD_ADOPT_*, its pid is INIT_ADOPT_PID, and its parent is us
 * or becomes us. It has no leaf and no shepherd: what it leaves behind when it ends is killed as strays are.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "codec/wire/le.h"
#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define CHANNEL_RING (256u * 1024)

struct channel {
    struct outlet out;
    struct inlet in;
    struct proc *proc;
    void (*take)(struct source *source, uint32_t events); /* the outlet's own */
    uint64_t mark[STREAMS];
    uint32_t frames;   /* still to come before the spawner is told */
    uint64_t frame_at; /* where the next one begins, or where the one that has begun ends */
    bool in_frame;
};

static struct pool pool = {.size = sizeof(struct channel)};

static struct call *call_of(const struct proc *proc)
{
    struct call *call = proc->calls;

    while (call && call->type != SVC_CHANNEL)
        call = call->next_of_proc;
    return call;
}

void channel_wake(const struct proc *proc)
{
    struct call *call = proc->channel ? call_of(proc) : NULL;

    if (call)
        call_ready(call);
}

bool channel_held_back(const struct call *call)
{
    if (call->type != SVC_CHANNEL)
        return false;
    for (unsigned i = 1; i < STREAMS; i++)
        for (const struct reader *reader = call->proc->out[i].readers; reader; reader = reader->next)
            if (reader->pos + reader->planned < call->proc->channel->mark[i])
                return true;
    return false;
}

/*
 * What the streams have now is sent first. The mark is set after the read; otherwise output that was written between a
 * mark and the read would be missed.
 */
static void mark_streams(struct channel *channel)
{
    for (unsigned i = 1; i < STREAMS; i++) {
        struct outlet *outlet = &channel->proc->out[i];

        channel->mark[i] = outlet_total(outlet);
        if (channel->mark[i] > outlet->end)
            outlet_take(outlet);
    }
}

static void count_frames(struct channel *channel)
{
    const struct outlet *out = &channel->out;
    static bool told;

    while (channel->frames > 0) {
        uint8_t head[4];

        if (!channel->in_frame && (channel->frame_at < out->begin || channel->frame_at + sizeof(head) > out->end))
            return;
        for (unsigned i = 0; !channel->in_frame && i < sizeof(head); i++)
            head[i] = out->data[(channel->frame_at + i) % out->size];
        if (!channel->in_frame)
            channel->frame_at += sizeof(head) + le_get_u32(head);
        channel->in_frame = channel->frame_at > out->end;
        if (channel->in_frame)
            return;
        if (--channel->frames > 0 || told)
            continue;
        told = true;
        if (control_send(FRAME_COUNT, NULL, 0, -1) != 0)
            guest_exit(GUEST_EXIT_GONE);
    }
}

static void on_readable(struct source *source, uint32_t events)
{
    struct channel *channel = owner_of(owner_of(source, struct outlet, source), struct channel, out);

    channel->take(source, events);
    mark_streams(channel);
    count_frames(channel);
}

/* It reads no more, or we have said our last: what it still has to say is not lost by that. */
static void in_ended(struct inlet *inlet)
{
    struct channel *channel = owner_of(inlet, struct channel, in);
    struct call *call = call_of(channel->proc);

    if (call)
        call->inlet = NULL;
    if (channel->out.source.fd >= 0)
        raw_call2(SYS_shutdown, channel->out.source.fd, SHUT_WR);
}

/* ours, which does not block; taken over unless it fails */
static MUST_CHECK int channel_open(struct proc *proc, int fd)
{
    struct channel *channel = pool_take(&pool);
    long copy = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
    int ret = !channel ? -ENOMEM : raw_failed(copy) ? (int)copy : 0;

    if (channel) {
        proc->channel = channel;
        channel->proc = proc;
        channel->in.source.fd = -1;
        channel->in.ended = in_ended;
        outlet_none(&channel->out);
        channel->out.keeps = channel->out.held = true;
    }
    if (ret == 0 && (ret = inlet_open(&channel->in, (int)copy)) == 0)
        copy = -1;
    if (!raw_failed(copy) && copy >= 0)
        raw_call1(SYS_close, copy);
    if (ret == 0 && (ret = outlet_open(&channel->out, fd, CHANNEL_RING)) == 0) {
        channel->take = channel->out.source.ready;
        channel->out.source.ready = on_readable;
    }
    return ret;
}

int channel_make(struct proc *proc, int *ret_theirs)
{
    int pair[2] = {-1, -1};
    long ret = raw_call4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

    if (ret != 0)
        return (int)ret;
    *ret_theirs = pair[1];
    ret = raw_call3(SYS_fcntl, pair[0], F_SETFL, O_RDWR | O_NONBLOCK);
    if (ret == 0)
        ret = channel_open(proc, pair[0]);
    if (ret != 0)
        raw_call1(SYS_close, pair[0]);
    return (int)ret;
}

void channel_ended(struct proc *proc)
{
    if (!proc->channel)
        return;
    inlet_close(&proc->channel->in);
    outlet_last(&proc->channel->out);
    mark_streams(proc->channel); /* which cannot grow any more */
}

void channel_done(struct proc *proc)
{
    if (!proc->channel)
        return;
    inlet_close(&proc->channel->in);
    outlet_done(&proc->channel->out);
    pool_give(&pool, proc->channel);
    proc->channel = NULL;
}

/* ---- the call --------------------------------------------------------------------------------------- */

/* If the program never started, report the failure itself; it has not been sent yet. */
static void drained(struct call *call)
{
    if (call->proc->state != PROC_STARTING)
        call_reply(call, 0, 0, NULL, 0);
}

void channel_call(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader reader = {payload, payload + len, false};
    uint32_t number = svc_get_u32(&reader), frames = svc_get_u32(&reader);
    struct proc *proc = proc_find(number);
    int errnum = svc_done(&reader) != 0 ? EINVAL
                 : !proc                ? ESRCH
                 : !proc->channel       ? ENOTCONN
                 : call_of(proc)        ? EBUSY
                                        : 0;
    struct call *call;

    if (errnum != 0) {
        send_reply(request, errnum, 0, NULL, 0);
        return;
    }
    if (!(call = call_new(request, SVC_CHANNEL, proc)))
        return;
    call->inlet = proc->channel->in.source.fd >= 0 ? &proc->channel->in : NULL;
    call->drained = drained;
    proc->channel->frames = frames;
    call_attach(call, 1, &proc->channel->out, 0);
    count_frames(proc->channel);
}

/* ---- adoption --------------------------------------------------------------------------------------- */

int channel_adopt(void)
{
    static const char name[] = "adopted";
    struct proc *proc = proc_new(ADOPTED_PROC, SVC_PROC_CHANNEL | SVC_PROC_HOLD);
    int ret = proc ? 0 : -ENOMEM;

    if (!proc)
        return ret;
    proc->adopted = true;
    proc->pid = INIT_ADOPT_PID;
    proc->state = PROC_RUNNING;
    proc->executed_ns = proc->exit.started_ns = guest_now_ns();
    proc->command_len = sizeof(name) - 1;
    __builtin_memcpy(proc->command, name, sizeof(name) - 1);
    for (int fd = INIT_FD_ADOPT_OUT; fd <= INIT_FD_ADOPT_CHANNEL && ret == 0; fd++)
        ret = (int)raw_call3(SYS_fcntl, fd, F_SETFL, (fd == INIT_FD_ADOPT_CHANNEL ? O_RDWR : 0) | O_NONBLOCK);
    for (unsigned i = 1; i < STREAMS && ret == 0; i++) {
        proc->out[i].held = true;
        ret = outlet_open(&proc->out[i], INIT_FD_ADOPT_OUT + (int)i - 1, SERVICE_RING);
    }
    return ret == 0 ? channel_open(proc, INIT_FD_ADOPT_CHANNEL) : ret;
}
