/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_conn.c: the connection with brigd: frames that come, and the calls they open.
 *
 * There is one connection at a time. A new one ends the calls of the old one silently, and never the processes. A
 * connection is closed only between events (conn_close_soon), so the handler of a frame may go on. A frame that no
 * correct brigd sends closes it; an open whose payload makes no sense is answered EINVAL. Frames of a call that has
 * ended are ignored: they crossed its REPLY.
 */
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "codec/wire/le.h"
#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define IN_SIZE (256u * 1024)
#define OPEN_SIZE PAGE_ROUND(SVC_OPEN_MAX)
#define BUCKETS 64u
#define BACKLOG_MAX (256u * 1024) /* more to say than this: nothing more is asked */
#define CREDIT_BATCH (SVC_WINDOW / 4)

_Static_assert(IN_SIZE >= 2 * (FRAME_HEADER + FRAME_PAYLOAD_MAX), "the largest frame fits behind an incomplete one");

static struct source stream = {.fd = -1};
static uint8_t *in;
static size_t in_len;
static bool greeted, closing, paused, watches_input;
static bool plain;         /* It is no socket (carry.c). */
static bool ended;         /* The other side has closed it. */
static uint8_t *open_data; /* an open that came in pieces, while it is not complete */
static size_t open_len;
static struct frame open_head;
static struct call *buckets[BUCKETS];
static unsigned n_calls;
static struct pool calls = {.size = sizeof(struct call)};
static uint64_t boot;

/* ---- calls ------------------------------------------------------------------------------------------ */

struct call *call_find(uint32_t request)
{
    struct call *call = buckets[request % BUCKETS];

    while (call && call->request != request)
        call = call->next;
    return call;
}

struct call *call_new(uint32_t request, uint16_t type, struct proc *proc)
{
    struct call *call = n_calls < SVC_CALLS_MAX ? pool_take(&calls) : NULL;

    if (!call) {
        send_reply(request, EAGAIN, 0, NULL, 0);
        return NULL;
    }
    n_calls++;
    call->request = request;
    call->type = type;
    call->next = buckets[request % BUCKETS];
    buckets[request % BUCKETS] = call;
    call->proc = proc;
    if (proc) {
        call->next_of_proc = proc->calls;
        proc->calls = call;
    }
    return call;
}

static void unlink_call(struct call *call)
{
    struct call **at = &buckets[call->request % BUCKETS];

    while (*at && *at != call)
        at = &(*at)->next;
    if (*at)
        *at = call->next;
    at = call->proc ? &call->proc->calls : NULL;
    while (at && *at && *at != call)
        at = &(*at)->next_of_proc;
    if (at && *at)
        *at = call->next_of_proc;
}

void call_free(struct call *call)
{
    ready_forget(call);
    unlink_call(call);
    for (unsigned i = 0; i < 2; i++)
        outlet_detach(&call->reader[i]);
    if (call->proc)
        channel_wake(call->proc);
    if (call->type == SVC_SHELL_RUN)
        shell_detach(call);
    if (call->inlet)
        inlet_orphan(call->inlet, call->request);
    if (call->port)
        port_done(call);
    if (call->type == SVC_UNIT_SET || call->type == SVC_UNIT_CONTROL)
        unit_call_freed(call);
    if (call->type >= SVC_FILE_MIN)
        worker_call_freed();
    pool_give(&calls, call);
    n_calls--;
}

void calls_end_files(int errnum)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct call *call = buckets[i], *next; call; call = next) {
            next = call->next;
            if (call->type >= SVC_FILE_MIN)
                call_reply(call, errnum, 0, NULL, 0);
        }
}

void call_ready(struct call *call)
{
    if (!call->ready)
        ready_add(call);
}

void call_reply(struct call *call, int errnum, uint32_t stage, const uint8_t *payload, size_t len)
{
    send_reply(call->request, errnum, stage, payload, len);
    call_free(call);
}

void call_attach(struct call *call, unsigned which, struct outlet *outlet, uint64_t offset)
{
    outlet_attach(outlet, &call->reader[which - 1], call, which, offset);
    call_ready(call);
}

void call_credit(struct call *call, size_t consumed)
{
    uint8_t wire[4];

    if (!call)
        return;
    if (consumed > call->received - call->owed)
        consumed = call->received - call->owed;
    call->owed += (uint32_t)consumed;
    if (call->owed < CREDIT_BATCH) /* the sender still has three quarters of its window */
        return;
    le_put_u32(wire, call->owed);
    send_frame(SVC_CREDIT, call->request, 0, wire, sizeof(wire));
    call->received -= call->owed;
    call->owed = 0;
}

/* ---- opening --------------------------------------------------------------------------------------- */

static void open_call(uint16_t type, uint32_t request, const uint8_t *payload, size_t len)
{
    static void (*const openers[])(uint32_t, const uint8_t *, size_t) = {
        [SVC_PROC_START - SVC_CALL_MIN] = proc_start,     [SVC_PROC_ATTACH - SVC_CALL_MIN] = proc_attach,
        [SVC_PROC_INPUT - SVC_CALL_MIN] = proc_input,     [SVC_PROC_WAIT - SVC_CALL_MIN] = proc_wait,
        [SVC_PROC_SIGNAL - SVC_CALL_MIN] = proc_signal,   [SVC_PROC_RESIZE - SVC_CALL_MIN] = proc_resize,
        [SVC_PROC_LIST - SVC_CALL_MIN] = proc_list,       [SVC_PROC_FORGET - SVC_CALL_MIN] = proc_forget_call,
        [SVC_SHELL_RUN - SVC_CALL_MIN] = shell_run,       [SVC_PORT_LIST - SVC_CALL_MIN] = port_list,
        [SVC_PORT_CONNECT - SVC_CALL_MIN] = port_connect, [SVC_CHANNEL - SVC_CALL_MIN] = channel_call,
        [SVC_USER - SVC_CALL_MIN] = service_user,         [SVC_UNIT_SET - SVC_CALL_MIN] = unit_set,
        [SVC_UNIT_LIST - SVC_CALL_MIN] = unit_list,       [SVC_UNIT_CONTROL - SVC_CALL_MIN] = unit_control,
        [SVC_UNIT_LOG - SVC_CALL_MIN] = unit_log,
    };
    unsigned at = type - SVC_CALL_MIN;

    if (at < ARRAY_SIZE(openers) && openers[at])
        openers[at](request, payload, len);
    else
        send_reply(request, ENOSYS, 0, NULL, 0);
}

static void drop_open(void)
{
    pages_unmap(open_data, OPEN_SIZE);
    open_data = NULL;
    open_len = 0;
}

/* Pieces follow each other without anything between them. Returns whether that is kept. */
static bool take_open(const struct frame *frame)
{
    struct call *call = call_find(frame->request);

    if (frame->type >= SVC_FILE_MIN) {
        if (call && (!call->opening || call->type != frame->type))
            return false;
        worker_open_call(call, frame);
        return true;
    }
    if (!open_data && call)
        return false;
    if (!open_data && !(frame->flags & FRAME_MORE)) {
        open_call(frame->type, frame->request, frame->payload, frame->length);
        return true;
    }
    if (!open_data) {
        open_data = pages_map(OPEN_SIZE);
        open_head = *frame;
        if (!open_data)
            return false;
    }
    if (frame->length > SVC_OPEN_MAX - open_len)
        return false;
    __builtin_memcpy(open_data + open_len, frame->payload, frame->length);
    open_len += frame->length;
    if (!(frame->flags & FRAME_MORE)) {
        open_call(open_head.type, open_head.request, open_data, open_len);
        drop_open();
    }
    return true;
}

/* ---- frames of calls ------------------------------------------------------------------------------- */

static bool take_input(struct call *call, const struct frame *frame)
{
    int ret;

    if (frame->stream != 0 || frame->length == 0)
        return false;
    if (frame->length > SVC_WINDOW - call->received)
        return false;
    if (!call->inlet)
        return true; /* a call that takes none: lost, as it would be after the REPLY */
    call->received += frame->length;
    ret = inlet_write(call->inlet, call, frame->payload, frame->length);
    if (ret < 0 && call->inlet->errnum != 0)
        call->inlet->ended(call->inlet); /* which has found out just now */
    else if (ret < 0)
        call_reply(call, -ret, 0, NULL, 0);
    return true;
}

/* A terminal goes on after it; the call does not. */
static void take_eof(struct call *call)
{
    bool stays = call->inlet && call->inlet->is_tty;

    if (call->inlet)
        inlet_eof(call->inlet); /* may end the call */
    if (stays)
        call_reply(call, 0, 0, NULL, 0);
}

static bool take_credit(struct call *call, const struct frame *frame)
{
    struct reader *reader = frame->stream == 0 ? NULL : &call->reader[frame->stream - 1];
    uint32_t given = frame->length == 4 ? le_get_u32(frame->payload) : 0;

    if (!reader || given == 0 || given > reader->in_flight)
        return false;
    reader->in_flight -= given;
    call_ready(call);
    return true;
}

static bool take_frame(const struct frame *frame)
{
    struct call *call;

    if (open_data && (frame->type != open_head.type || frame->request != open_head.request))
        return false;
    if (frame->type >= SVC_CALL_MIN)
        return take_open(frame);
    if (frame->type == SVC_EVENT || frame->type == SVC_REPLY || frame->type == SVC_HELLO)
        return false;
    call = call_find(frame->request);
    if (!call)
        return true;
    if (call->type >= SVC_FILE_MIN) {
        worker_frame(frame);
        return true;
    }
    switch (frame->type) {
    case SVC_DATA: return take_input(call, frame);
    case SVC_EOF:
        if (frame->stream != 0 || frame->length != 0)
            return false;
        take_eof(call);
        return true;
    case SVC_CREDIT: return take_credit(call, frame);
    default: /* SVC_CANCEL */ call_reply(call, ECANCELED, 0, NULL, 0); return true;
    }
}

static bool take_hello(const struct frame *frame)
{
    struct svc_hello hello;

    greeted = true;
    return frame->type == SVC_HELLO && svc_hello_parse(frame->payload, frame->length, &hello) == 0 &&
           hello.version <= SVC_VERSION + 1;
}

/* ---- the stream ------------------------------------------------------------------------------------ */

static bool may_take(void)
{
    return !closing && !paused && send_backlog() <= BACKLOG_MAX;
}

/* What is waited for follows from what can be done. */
static void watch(void)
{
    watches_input = may_take();
    source_arm(&stream, (watches_input ? EPOLLIN : 0) | (send_blocked() ? EPOLLOUT : 0));
}

static void take_frames(void)
{
    struct frame frame;
    size_t at = 0;
    int used = 0;

    /* Stopped in the middle of a buffer: the rest of it waits there. */
    while (may_take() && (used = svc_frame_parse(in + at, in_len - at, &frame)) > 0) {
        if (!(greeted ? take_frame(&frame) : take_hello(&frame)))
            conn_close_soon();
        at += (size_t)used;
    }
    worker_flush();
    if (used < 0) {
        carry_stray(in + at, in_len - at);
        conn_close_soon();
    }
    if (at > 0 && at < in_len)
        __builtin_memmove(in, in + at, in_len - at);
    in_len -= at;
}

static void receive(void)
{
    long got;

    if (!in && !(in = pages_map(IN_SIZE))) {
        conn_close_soon();
        return;
    }
    if (in_len == IN_SIZE)
        return;
    got = plain ? raw_call3(SYS_read, stream.fd, in + in_len, IN_SIZE - in_len)
                : raw_call6(SYS_recvfrom, stream.fd, in + in_len, IN_SIZE - in_len, MSG_DONTWAIT, NULL, NULL);
    if (got == -EAGAIN || got == -EINTR)
        return;
    if (got <= 0) {
        ended = true;
        conn_close_soon();
        return;
    }
    in_len += (size_t)got;
    take_frames();
}

static void on_ready(struct source *source, uint32_t events)
{
    (void)source;
    if (events & EPOLLOUT)
        send_writable();
    if (watches_input && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        receive();
    else if (events & (EPOLLHUP | EPOLLERR)) {
        ended = true;
        conn_close_soon();
    }
}

static void say_hello(void)
{
    const struct svc_hello hello = {
        .version = SVC_VERSION, .capabilities = service_has_leaves() ? SVC_CAP_LEAVES : 0, .boot = boot};
    uint8_t wire[32];
    int len = svc_hello_put(wire, sizeof(wire), &hello);

    send_frame(SVC_HELLO, 0, 0, wire, len < 0 ? 0 : (size_t)len);
}

static void conn_close(void)
{
    if (stream.fd < 0)
        return;
    source_close(&stream);
    greeted = closing = paused = false;
    in_len = 0;
    send_reset();
    drop_open();
    worker_close();
    proc_unanswered();
    for (unsigned i = 0; i < BUCKETS; i++)
        while (buckets[i])
            call_free(buckets[i]);
    const bool at_boundary = ended;
    ended = false;
    carry_conn_closed(at_boundary);
}

void conn_open(int fd, bool is_plain)
{
    conn_close();
    plain = is_plain;
    if (boot == 0 && raw_call3(SYS_getrandom, &boot, sizeof(boot), GRND_NONBLOCK) != (long)sizeof(boot))
        boot = guest_now_ns();
    stream.ready = on_ready;
    if (source_add(&stream, fd, EPOLLIN) < 0) {
        raw_call1(SYS_close, fd);
        return;
    }
    watches_input = true;
    say_hello();
}

bool conn_is_open(void)
{
    return stream.fd >= 0;
}

void conn_feed(const uint8_t *data, size_t len)
{
    if (len == 0 || stream.fd < 0)
        return;
    if (len > IN_SIZE || (!in && !(in = pages_map(IN_SIZE)))) {
        conn_close_soon();
        return;
    }
    __builtin_memcpy(in, data, len);
    in_len = len; /* They are looked at when the round ends. */
}

long conn_write(struct iovec *iov, unsigned n)
{
    const struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};

    return plain ? raw_call3(SYS_writev, stream.fd, iov, n)
                 : raw_call3(SYS_sendmsg, stream.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void conn_close_soon(void)
{
    closing = true;
}

void conn_pause(bool on)
{
    paused = on;
}

void conn_end_round(void)
{
    if (stream.fd < 0)
        return;
    size_t before;
    do {
        send_flush();
        before = in_len;
        if (in_len > 0)
            take_frames(); /* what waited for room */
    } while (!closing && before != in_len);
    if (!closing) {
        watch();
        return;
    }
    conn_close();
    conn_end_round(); /* A device may have begun another one at once (carry_stray), and its first bytes are here. */
}

void conn_trim(void)
{
    if (in_len == 0)
        pages_trim(in, IN_SIZE);
}
