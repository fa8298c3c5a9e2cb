/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c: the file worker's loop: which call is served when.
 *
 * Theory of operation. One thread runs one poll. Files are read and written with blocking calls, which are short on
 * regular files and directories; nothing else is ever opened (files_path.c). Input frames are obeyed as they come: DATA
 * is written to its file at once, so no call has an input queue, and the order of frames is the fairness between
 * uploads. Calls that produce output take turns, each a piece of 256 KiB or some hundred entries, as long as the output
 * buffer has room.
 *
 *     open ----> open() --CALL_ON--> idle, work or send --...--> REPLY; close() undoes what is not finished
 *        \-- FRAME_MORE: the pieces gather in `state` until they are complete
 *
 * Invariants: exactly one REPLY per open; frames of unknown requests are ignored (they crossed a REPLY); a request that
 * is opened twice or a malformed frame ends the worker, since the two sides no longer agree; close() has run for every
 * call when the worker ends by itself.
 */
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "codec/wire/le.h"
#include "guest/files/files.h"
#include "guest/files/files_int.h"

#define CALLS_MAX 256u  /* a process of the sandbox pays for them: fewer than SVC_CALLS_MAX */
#define OPEN_MAX 16384u /* three paths and some numbers; what is longer has a path that is too long */
#define CREDIT_BATCH (256u * 1024)
#define REPLY_MAX (2 * SVC_PATH_MAX + 256)

static struct call calls[CALLS_MAX];
static struct pollfd polls[1 + CALLS_MAX];
static struct call *polled[1 + CALLS_MAX]; /* whose they are */
static uint8_t reply_bytes[REPLY_MAX];
struct svc_cursor files_reply;
static struct call *turn = calls; /* whose turn it is */

static const struct call_ops *const ops_of[SVC_TYPE_MAX - SVC_FILE_MIN] = {
    [SVC_FILE_STAT - SVC_FILE_MIN] = &files_stat_ops,       [SVC_FILE_LIST - SVC_FILE_MIN] = &files_list_ops,
    [SVC_FILE_READ - SVC_FILE_MIN] = &files_read_ops,       [SVC_FILE_WRITE - SVC_FILE_MIN] = &files_write_ops,
    [SVC_FILE_MKDIR - SVC_FILE_MIN] = &files_mkdir_ops,     [SVC_FILE_MOVE - SVC_FILE_MIN] = &files_move_ops,
    [SVC_FILE_REMOVE - SVC_FILE_MIN] = &files_remove_ops,   [SVC_FILE_WATCH - SVC_FILE_MIN] = &files_watch_ops,
    [SVC_FILE_TAR_GET - SVC_FILE_MIN] = &files_tar_get_ops, [SVC_FILE_TAR_PUT - SVC_FILE_MIN] = &files_tar_put_ops,
};

/* ---- small things --------------------------------------------------------------------------------- */

void *files_map(size_t size)
{
    long at = raw_call6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return raw_failed(at) ? NULL : (void *)at;
}

void files_unmap(void *at, size_t size)
{
    if (at)
        raw_call2(SYS_munmap, at, size);
}

uint64_t files_now_ns(void)
{
    struct timespec now = {0};

    raw_call2(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the end of a call ----------------------------------------------------------------------------- */

static void forget(struct call *call)
{
    if (call->ops)
        call->ops->close(call);
    files_unmap(call->state, call->state_size);
    *call = (struct call){.poll_fd = -1};
}

void files_end(int status)
{
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->request != 0)
            forget(call);
    guest_exit(status);
}

static void send_reply(const struct call *call, int errnum)
{
    uint8_t head[SVC_REPLY_SIZE];
    const struct svc_reply reply = {.errnum = (uint32_t)errnum};
    struct svc_cursor cursor = wire_open();

    if (svc_reply_put(head, sizeof(head), &reply) != (int)SVC_REPLY_SIZE)
        files_end(GUEST_EXIT_BROKEN);
    svc_put_raw(&cursor, head, sizeof(head));
    if (errnum == 0)
        svc_put_raw(&cursor, reply_bytes, (size_t)(files_reply.at - reply_bytes));
    wire_close(call, SVC_REPLY, &cursor);
}

/* What a handler has returned. Undone first, answered after: when the REPLY is read, no residue is left. */
static void settle(struct call *call, int ret)
{
    struct call head = *call;

    if (ret == CALL_ON)
        return;
    if (ret == CALL_DONE && files_reply.bad)
        ret = -EMSGSIZE;
    forget(call);
    send_reply(&head, ret < 0 ? -ret : 0);
}

static void begin_handler(void)
{
    files_reply = (struct svc_cursor){reply_bytes, reply_bytes + sizeof(reply_bytes), false};
}

/* ---- opens ----------------------------------------------------------------------------------------- */

static struct call *find_call(uint32_t request)
{
    static struct call *last = calls;

    if (last->request == request)
        return last;
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->request == request)
            return last = call;
    return NULL;
}

static void open_call(struct call *call, const uint8_t *message, size_t len)
{
    const struct call_ops *ops = ops_of[call->type - SVC_FILE_MIN];
    struct svc_reader reader = {message, message + len, false};
    void *gathered = call->state;
    size_t gathered_size = call->state_size;
    int ret = -ENOMEM;

    call->state_size = ops->state_size;
    call->state = ops->state_size > 0 ? files_map(ops->state_size) : NULL;
    begin_handler();
    if (call->state || ops->state_size == 0) {
        call->ops = ops;
        ret = ops->open(call, &reader);
    }
    files_unmap(gathered, gathered_size);
    settle(call, ret);
}

/* A first piece, or one more. */
static void gather_open(struct call *call, const struct frame *frame)
{
    if (frame->type != call->type || call->ops)
        files_end(GUEST_EXIT_MALFORMED);
    if (!call->state && !(call->state = files_map(OPEN_MAX)))
        files_end(GUEST_EXIT_BROKEN);
    call->state_size = OPEN_MAX;
    if (frame->length <= OPEN_MAX - call->open_len) {
        __builtin_memcpy((uint8_t *)call->state + call->open_len, frame->payload, frame->length);
        call->open_len += frame->length;
    } else {
        call->open_len = OPEN_MAX; /* full: refused below */
    }
    if (frame->flags & FRAME_MORE)
        return;
    begin_handler();
    if (call->open_len == OPEN_MAX)
        settle(call, -EINVAL);
    else
        open_call(call, call->state, call->open_len);
}

static void on_open(struct call *call, const struct frame *frame)
{
    struct call refused = {.request = frame->request};

    if (call) {
        gather_open(call, frame);
        return;
    }
    begin_handler();
    if (!(call = find_call(0)) || !ops_of[frame->type - SVC_FILE_MIN]) {
        if (!(frame->flags & FRAME_MORE))
            send_reply(&refused, call ? ENOSYS : EAGAIN);
        return;
    }
    *call = (struct call){.request = frame->request, .type = frame->type, .poll_fd = -1, .credit = SVC_WINDOW};
    if (frame->flags & FRAME_MORE)
        gather_open(call, frame);
    else
        open_call(call, frame->payload, frame->length);
}

/* ---- frames of open calls --------------------------------------------------------------------------- */

static void on_data(struct call *call, const struct frame *frame)
{
    uint8_t credit[4];
    uint32_t request = call->request;
    int ret = -EPROTO;

    call->owed += frame->length;
    if (frame->stream == 0 && call->ops->data && !call->ended_input)
        ret = call->ops->data(call, frame->payload, frame->length);
    settle(call, ret);
    if (call->request == request && call->owed >= CREDIT_BATCH) {
        le_put_u32(credit, call->owed);
        wire_send(call, SVC_CREDIT, 0, credit, sizeof(credit));
        call->owed = 0;
    }
}

static void on_eof(struct call *call, const struct frame *frame)
{
    int ret = -EPROTO;

    if (frame->stream == 0 && frame->length == 0 && call->ops->eof && !call->ended_input) {
        call->ended_input = true;
        ret = call->ops->eof(call);
    }
    settle(call, ret);
}

static void on_credit(struct call *call, const struct frame *frame)
{
    uint32_t given;

    if (frame->length != 4 || frame->stream != 1 || (given = le_get_u32(frame->payload)) > SVC_WINDOW - call->credit)
        settle(call, -EPROTO);
    else
        call->credit += given;
}

static void obey(const struct frame *frame)
{
    struct call *call = frame->request != 0 ? find_call(frame->request) : NULL;

    if (frame->type == SVC_HELLO || (frame->type >= SVC_CALL_MIN && frame->type < SVC_FILE_MIN))
        files_end(GUEST_EXIT_MALFORMED); /* pid 1's own business */
    if (frame->type >= SVC_FILE_MIN) {
        on_open(call, frame);
        return;
    }
    if (!call) /* its REPLY and this frame crossed */
        return;
    if (!call->ops && frame->type != SVC_CANCEL)
        files_end(GUEST_EXIT_MALFORMED);
    begin_handler();
    switch (frame->type) {
    case SVC_DATA: on_data(call, frame); break;
    case SVC_EOF: on_eof(call, frame); break;
    case SVC_CREDIT: on_credit(call, frame); break;
    case SVC_CANCEL: settle(call, -ECANCELED); break;
    default: files_end(GUEST_EXIT_MALFORMED);
    }
}

/* ---- the loop --------------------------------------------------------------------------------------- */

static bool can_step(const struct call *call)
{
    return call->request != 0 && call->ops &&
           (call->wait == CALL_WORK || (call->wait == CALL_SEND && call->credit > 0));
}

/* One turn for everybody who can use it. */
static void run_turns(void)
{
    for (unsigned i = 0; i < CALLS_MAX && wire_room() >= WIRE_PIECE + WIRE_RESERVE; i++) {
        if (can_step(turn)) {
            begin_handler();
            settle(turn, turn->ops->step(turn));
        }
        turn = turn + 1 < calls + CALLS_MAX ? turn + 1 : calls;
    }
}

/* Whether there is something to do without waiting for the other side. */
static bool more_to_do(bool frames_left)
{
    if (frames_left && wire_room() >= WIRE_RESERVE)
        return true;
    if (wire_room() < WIRE_PIECE + WIRE_RESERVE)
        return false;
    for (const struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (can_step(call))
            return true;
    return false;
}

/* Returns whether frames were left in the buffer because their answers have no room. */
static bool obey_frames(void)
{
    struct frame frame;

    while (wire_room() >= WIRE_RESERVE) {
        if (!wire_next(&frame))
            return false;
        obey(&frame);
    }
    return true;
}

/* Milliseconds until the next deadline, rounded up; -1: none. */
static int next_deadline(void)
{
    uint64_t first = UINT64_MAX, now;

    for (const struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->request != 0 && call->deadline_ns != 0 && call->deadline_ns < first)
            first = call->deadline_ns;
    if (first == UINT64_MAX)
        return -1;
    now = files_now_ns();
    return first <= now ? 0 : (int)((first - now) / 1000000 + 1);
}

/* Whoever is watching and has something to report, or has waited long enough. */
static void run_ready(unsigned n)
{
    uint64_t now = files_now_ns();

    for (unsigned i = 1; i < n; i++) {
        struct call *call = polled[i];

        if (polls[i].revents == 0 && (call->deadline_ns == 0 || call->deadline_ns > now))
            continue;
        if (wire_room() < WIRE_PIECE + WIRE_RESERVE)
            return;
        begin_handler();
        settle(call, call->ops->ready(call));
    }
}

static void wait_for_something(int fd, bool frames_left, bool busy)
{
    unsigned n = 1;
    long ready;

    polls[0] =
        (struct pollfd){.fd = fd, .events = (short)((frames_left ? 0 : POLLIN) | (wire_pending() ? POLLOUT : 0))};
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        if (call->request != 0 && call->poll_fd >= 0 && wire_room() >= WIRE_PIECE + WIRE_RESERVE) {
            polled[n] = call;
            polls[n++] = (struct pollfd){.fd = call->poll_fd, .events = POLLIN};
        }
    ready = raw_call3(SYS_poll, polls, n, busy ? 0 : next_deadline());
    if (ready < 0 && ready != -EINTR)
        files_end(GUEST_EXIT_BROKEN);
    if (n > 1)
        run_ready(n);
    if (ready > 0 && (polls[0].revents & (POLLIN | POLLHUP | POLLERR)))
        wire_receive();
}

void files_worker(int fd)
{
    const uint64_t blocked = UINT64_C(1) << (SIGPIPE - 1) | UINT64_C(1) << (SIGXFSZ - 1);

    raw_call4(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, NULL, sizeof(blocked));
    raw_call1(SYS_umask, 022);
    wire_init(fd);
    for (struct call *call = calls; call < calls + CALLS_MAX; call++)
        call->poll_fd = -1;
    for (;;) {
        bool frames_left = obey_frames();

        run_turns();
        wire_flush();
        wait_for_something(fd, frames_left, more_to_do(frames_left));
    }
}
