/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_io.c: sends and receives the frames of a link.
 *
 * Sending: everything is queued, and is sent once per round of the loop (a timer that is due at once), so that requests
 * of one round travel together. CREDIT and CANCEL are queued just before a write, from the list of calls that have
 * some. Until brig-init's HELLO has come, only ours is sent.
 *
 * Receiving: bytes are parsed where they were read, and the buffer lives only while a frame is incomplete, so that an
 * idle link has none. The other side is hostile: a frame is judged by its header, then against the state of its call,
 * and the first thing that is wrong ends the link. A frame never needs more memory than the largest one.
 */
#include "link/link_private.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "codec/wire/le.h"

#define IN_SIZE (256u * 1024)                                    /* four frames of data in one read */
#define READS_PER_TURN 4                                         /* then the others have theirs */
#define OUT_KEEP (64u * 1024)                                    /* an empty queue larger than this is given back */
#define BREATH_NS (20 * NS_PER_MS)                               /* until memory is asked for again */
#define OUT_FLUSH (256u * 1024)                                  /* so much is not kept waiting for the round to end */
#define DIRECT_FRAMES 4u                                         /* in one write without a copy */
#define CONTROL_ROOM (2 * (FRAME_HEADER + 4) + 2 * FRAME_HEADER) /* of one call: two CREDITs, an EOF and a CANCEL */

_Static_assert(IN_SIZE >= 2 * (FRAME_HEADER + FRAME_PAYLOAD_MAX), "the largest frame fits behind an incomplete one");

/* ---- the end ------------------------------------------------------------------------------------ */

/* errnum EPROTO: brig-init broke the protocol */
static void link_fail(struct link *link, int errnum, const char *why)
{
    if (link->over)
        return;
    link->over = true;
    if (errnum == EPROTO)
        err_set(&link->why, BRIG_E_GONE, 0, "brig-init broke the protocol: %s", why);
    else
        err_set(&link->why, errnum == ENOMEM ? BRIG_E_NOMEM : BRIG_E_GONE, errnum, "%s", why);
}

/* ---- sending ------------------------------------------------------------------------------------ */

static size_t queued(const struct link *link)
{
    return link->out.end - link->out.begin;
}

size_t link_room(const struct link *link)
{
    return queued(link) < LINK_SEND_MAX && !link->mute ? LINK_SEND_MAX - queued(link) : 0;
}

static int make_room(struct send_queue *out, size_t extra)
{
    size_t len = out->end - out->begin;

    if (out->cap - out->end >= extra)
        return 0;
    if (out->cap - len >= extra && out->begin >= len) { /* moving is cheaper than what was sent since */
        memcpy(out->data, out->data + out->begin, len);
    } else {
        size_t cap = out->cap ? out->cap : 4096;

        while (cap < (len + extra) / 2 * 3) /* with room to spare, or every frame would copy the whole */
            cap *= 2;
        uint8_t *data = mem_alloc(cap);
        if (!data)
            return -ENOMEM;
        if (len > 0)
            memcpy(data, out->data + out->begin, len);
        mem_free(out->data);
        out->data = data;
        out->cap = cap;
    }
    out->begin = 0;
    out->end = len;
    return 0;
}

int link_queue(struct link *link, const struct frame *frame, const void *payload)
{
    struct send_queue *out = &link->out;

    if (link_room(link) < FRAME_HEADER + frame->length)
        return -EAGAIN;
    if (make_room(out, FRAME_HEADER + frame->length) < 0)
        return -ENOMEM;
    frame_put_header(out->data + out->end, frame);
    if (frame->length > 0)
        memcpy(out->data + out->end + FRAME_HEADER, payload, frame->length);
    out->end += FRAME_HEADER + frame->length;
    return 0;
}

static void want(struct link *link, bool writing, bool starved)
{
    if (link->writing == writing && link->starved == starved)
        return;
    if (loop_modify(link->loop, &link->source, (starved ? 0 : EPOLLIN) | (writing ? EPOLLOUT : 0), NULL) < 0) {
        link_fail(link, errno, "watching the socket of a sandbox");
        return;
    }
    link->writing = writing;
    link->starved = starved;
}

void link_want_writable(struct link *link, bool on)
{
    want(link, on, link->starved);
}

/* No memory: what brig-init says waits in the socket. A sandbox does not end because its host is short for a moment. */
static void take_breath(struct link *link)
{
    if (loop_timer_set(link->loop, &link->breath, clock_mono_ns() + BREATH_NS, NULL) == 0)
        want(link, link->writing, true);
    /* else it is tried again at once, and again */
}

void link_on_breath(struct loop_timer *timer)
{
    struct link *link = timer->ctx;

    if (link->over)
        return;
    link_hold(link);
    want(link, link->writing, false);
    if (link->over)
        link_over(link);
    link_release(link);
}

/* Queues what calls have to say beside their data. What does not fit stays in the list. */
static void queue_controls(struct link *link)
{
    while (link->controls) {
        struct call *call = link->controls;
        uint8_t wire[4];

        if (link_room(link) < CONTROL_ROOM || make_room(&link->out, CONTROL_ROOM) < 0)
            return;
        for (unsigned stream = 1; stream < STREAMS; stream++) {
            const struct frame credit = {.type = SVC_CREDIT, .length = 4, .stream = stream, .request = call->request};

            if (call->consumed[stream] == 0 || call->dropped)
                continue;
            le_put_u32(wire, call->consumed[stream]);
            if (link_queue(link, &credit, wire) < 0)
                return;
            call->received[stream] -= call->consumed[stream];
            call->consumed[stream] = 0;
        }
        const struct frame eof = {.type = SVC_EOF, .request = call->request};
        if (call->eof_due && !call->dropped && link_queue(link, &eof, NULL) < 0)
            return;
        call->eof_due = false;
        const struct frame cancel = {.type = SVC_CANCEL, .request = call->request};
        if (call->cancel && link_queue(link, &cancel, NULL) < 0)
            return;
        call->cancel = call->controls = false;
        link->controls = call->next_control;
    }
}

/* How much may go out now: before brig-init's HELLO, only ours. */
static size_t sendable(const struct link *link)
{
    return link->greeted || queued(link) < link->hello_left ? queued(link) : link->hello_left;
}

static void send_out(struct link *link)
{
    struct send_queue *out = &link->out;

    while (!link->over && !link->mute) {
        queue_controls(link);
        size_t len = sendable(link);
        if (len == 0)
            break;
        ssize_t sent = RETRY(send(link->fd, out->data + out->begin, len, MSG_NOSIGNAL | MSG_DONTWAIT));
        if (sent < 0 && errno == EAGAIN) {
            link_want_writable(link, true);
            return;
        }
        if (sent < 0) { /* it has closed; what it said before that is still to be read, and then its end */
            link->mute = true;
            out->begin = out->end;
            break;
        }
        out->begin += (size_t)sent;
        link->hello_left -= (size_t)sent < link->hello_left ? (size_t)sent : link->hello_left;
    }
    if (out->begin == out->end) {
        out->begin = out->end = 0;
        if (out->cap > OUT_KEEP) {
            mem_free(out->data);
            *out = (struct send_queue){0};
        }
    }
    /* With controls left the memory for them was not there: the loop brings us back. */
    link_want_writable(link, link->controls != NULL && !link->mute);
}

void link_send_soon(struct link *link)
{
    if (link->over || link->writing)
        return;
    /* A failure here is told when the loop finds the socket hung up: callbacks must not come from within a call. */
    if (queued(link) >= OUT_FLUSH && link->greeted)
        send_out(link);
    else if (link->flush.pos == 0 && loop_timer_set(link->loop, &link->flush, 0, NULL) < 0)
        link_want_writable(link, true);
}

/*
 * Puts the rest of what was given to one sendmsg(), past the first `sent` bytes, into the queue, which has room for it.
 */
static void queue_rest(struct send_queue *out, const struct iovec *iov, unsigned n, size_t sent)
{
    for (unsigned i = 0; i < n; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;

        memcpy(out->data + out->end, (const uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        out->end += iov[i].iov_len - skip;
        sent -= skip;
    }
}

size_t link_send_data(struct link *link, uint32_t request, const uint8_t *data, size_t len)
{
    uint8_t headers[DIRECT_FRAMES][FRAME_HEADER];
    struct iovec iov[2 * DIRECT_FRAMES];
    struct msghdr msg = {.msg_iov = iov};
    size_t taken = 0;
    unsigned n = 0;

    if (queued(link) > 0 || link->controls || link->writing || link->mute || !link->greeted)
        return 0;
    for (; n < DIRECT_FRAMES && taken < len; n++) {
        size_t piece = len - taken < FRAME_PAYLOAD_MAX ? len - taken : FRAME_PAYLOAD_MAX;
        const struct frame frame = {.type = SVC_DATA, .length = (uint32_t)piece, .request = request};

        frame_put_header(headers[n], &frame);
        iov[2 * n] = (struct iovec){headers[n], FRAME_HEADER};
        iov[2 * n + 1] = (struct iovec){(void *)(uintptr_t)(data + taken), piece};
        taken += piece;
    }
    /* A frame that has begun must be completed, so the memory for its rest is there before. */
    if (make_room(&link->out, taken + n * FRAME_HEADER) < 0)
        return 0;
    msg.msg_iovlen = 2 * (size_t)n;
    ssize_t sent = sendmsg(link->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0)
        return 0; /* full, or gone: what is queued finds out */
    if ((size_t)sent < taken + n * FRAME_HEADER)
        queue_rest(&link->out, iov, 2 * n, (size_t)sent);
    return taken;
}

/* Sends, and if that was the end, says so. */
static void flush(struct link *link)
{
    if (link->over)
        return;
    link_hold(link);
    send_out(link);
    if (link->over)
        link_over(link);
    else
        link_wake_writers(link);
    link_release(link);
}

void link_on_flush(struct loop_timer *timer)
{
    flush(timer->ctx);
}

/* ---- frames that came --------------------------------------------------------------------------- */

static const char *take_hello(struct link *link, const struct frame *frame)
{
    struct svc_hello hello;

    if (link->greeted)
        return "HELLO twice";
    if (svc_hello_parse(frame->payload, frame->length, &hello) < 0 || hello.version > SVC_VERSION + 1)
        return "HELLO of an unknown version";
    link->greeted = true;
    if (link->events.hello)
        link->events.hello(link->events.ctx, &hello);
    return NULL;
}

static const char *take_data(struct call *call, const struct frame *frame)
{
    unsigned stream = frame->stream;

    if (stream == 0 || call->eof[stream] || frame->length == 0)
        return "data where none may come";
    if (frame->length > SVC_WINDOW - call->received[stream])
        return "data beyond its credit";
    call->received[stream] += frame->length;
    if (call->dropped)
        return NULL;
    if (call->events.data)
        call->events.data(call->events.ctx, stream, frame->payload, frame->length);
    else
        call_consumed(call, stream, frame->length);
    return NULL;
}

static const char *take_eof(struct call *call, const struct frame *frame)
{
    if (frame->stream == 0 || call->eof[frame->stream] || frame->length != 0)
        return "an end where none may come";
    call->eof[frame->stream] = true;
    if (!call->dropped && call->events.eof)
        call->events.eof(call->events.ctx, frame->stream);
    return NULL;
}

static const char *take_credit(struct call *call, const struct frame *frame)
{
    if (frame->stream != 0 || frame->length != 4)
        return "credit where none may come";
    uint32_t given = le_get_u32(frame->payload);
    if (given == 0 || given > call->in_flight)
        return "more credit than was used";
    call->in_flight -= given;
    if (!call->hungry || call->dropped || link_room(call->link) <= LINK_SEND_MAX / 2)
        return NULL;
    call->hungry = false;
    if (call->events.writable)
        call->events.writable(call->events.ctx);
    return NULL;
}

/* What is wrong with the frame, or NULL. Whatever a callback does, link and frame outlive this; the call may not. */
static const char *take_frame(struct link *link, const struct frame *frame)
{
    struct svc_reply reply;

    if (frame->type == SVC_HELLO)
        return take_hello(link, frame);
    if (!link->greeted)
        return "it did not begin with HELLO";
    struct call *call = link_find(link, frame->request);
    if (!call)
        return "an unknown request";
    switch (frame->type) {
    case SVC_DATA: return take_data(call, frame);
    case SVC_EOF: return take_eof(call, frame);
    case SVC_CREDIT: return take_credit(call, frame);
    case SVC_EVENT:
        if (!call->dropped && call->events.event)
            call->events.event(call->events.ctx, frame->payload, frame->length);
        return NULL;
    case SVC_REPLY:
        if (svc_reply_parse(frame->payload, frame->length, &reply) < 0)
            return "a malformed reply";
        link_end_call(call, &reply, frame->payload + SVC_REPLY_SIZE, frame->length - SVC_REPLY_SIZE);
        return NULL;
    default: return "a frame that only goes the other way";
    }
}

/* All complete frames; what is left of the last moves to the front. */
static void take_frames(struct link *link)
{
    struct frame frame;
    size_t at = 0;
    int used = 0;

    link->parsing = true;
    while (!link->over && (used = svc_frame_parse(link->in + at, link->in_len - at, &frame)) > 0) {
        const char *wrong = take_frame(link, &frame);

        if (wrong)
            link_fail(link, EPROTO, wrong);
        at += (size_t)used;
    }
    link->parsing = false;
    if (used < 0)
        link_fail(link, EPROTO, "a malformed frame");
    if (at > 0)
        memmove(link->in, link->in + at, link->in_len - at);
    link->in_len -= at;
}

/* Returns whether there may be more. */
static bool receive(struct link *link)
{
    if (!link->in) {
        link->in = mem_alloc(IN_SIZE);
        link->in_cap = IN_SIZE;
        if (!link->in) {
            take_breath(link);
            return false;
        }
    }
    ssize_t got = recv(link->fd, link->in + link->in_len, link->in_cap - link->in_len, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (got <= 0) {
        link_fail(link, got < 0 ? errno : ENOTCONN, "the connection with the sandbox's brig-init");
        return false;
    }
    bool full = (size_t)got == link->in_cap - link->in_len;
    link->in_len += (size_t)got;
    take_frames(link);
    return full;
}

void link_on_ready(struct loop_source *source, uint32_t events)
{
    struct link *link = source->ctx;

    link_hold(link);
    /* A callback may run the loop: what is being parsed is not read again. */
    if (!link->parsing && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        for (int i = 0; i < READS_PER_TURN && !link->over; i++)
            if (!receive(link))
                break;
        if (link->in_len == 0) {
            mem_free(link->in);
            link->in = NULL;
        }
    }
    bool was_writing = link->writing;
    if (!link->over) {
        loop_timer_clear(link->loop, &link->flush);
        send_out(link);
    }
    if (link->over)
        link_over(link);
    else if (!link->over && was_writing)
        link_wake_writers(link);
    link_release(link);
}
