/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.c: the calls of a link: their numbers, their credit, and their ends.
 *
 * Theory of operation. A call has a slot in a table that grows up to SVC_CALLS_MAX; its number is made from the slot
 * and a generation, so that finding it is one look and a number is not reused at once. It stays there until its REPLY,
 * also when its owner has dropped it: until then frames with its number are legal.
 *
 * A callback may do anything, even destroy the link. So the caller of a callback holds the link (link_hold) and checks
 * again afterwards (link_release). A link that has ended stays until it is destroyed; its calls do not.
 *
 * Nothing that an owner must be able to do can fail: CREDIT, EOF and CANCEL are flags and numbers in the call until
 * there is room for their frames.
 */
#include "link/link_private.h"

#include <sys/epoll.h>

#include "base/err.h"
#include "base/mem.h"

#define SLOT_BITS 10u
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define SLOTS_FIRST 8u
#define DIRECT_MIN 16384u             /* less is worth a copy, and leaves with its neighbours */
#define CREDIT_BATCH (SVC_WINDOW / 4) /* less is not worth a frame: the sender still has three quarters */

_Static_assert(SVC_CALLS_MAX == 1u << SLOT_BITS, "a slot for every call");

/* ---- life --------------------------------------------------------------------------------------- */

static void link_want_control(struct call *call);

static int queue_hello(struct link *link)
{
    const struct svc_hello hello = {.version = SVC_VERSION};
    uint8_t wire[32];
    int len = svc_hello_put(wire, sizeof(wire), &hello);
    const struct frame frame = {.type = SVC_HELLO, .length = (uint32_t)len};

    if (len < 0)
        return len;
    link->hello_left = FRAME_HEADER + (size_t)len;
    return link_queue(link, &frame, wire);
}

int link_create(struct loop *loop, int fd, const struct link_events *events, struct link **ret, struct brig_err *err)
{
    AUTO_FD int own = fd;
    struct link *link = mem_zalloc(sizeof(*link));
    int r;

    if (!link)
        return err_nomem(err);
    link->loop = loop;
    link->events = *events;
    link->fd = fd;
    link->source.fn = link_on_ready;
    link->flush.fn = link_on_flush;
    link->breath.fn = link_on_breath;
    link->source.ctx = link->flush.ctx = link->breath.ctx = link;
    r = queue_hello(link);
    if (r < 0)
        r = err_nomem(err);
    else
        r = loop_add(loop, &link->source, fd, EPOLLIN | EPOLLOUT, err);
    if (r < 0) {
        mem_free(link->out.data);
        mem_free(link);
        return r;
    }
    link->writing = true;
    take_fd(&own);
    *ret = link;
    return 0;
}

static void stop(struct link *link)
{
    loop_remove(link->loop, &link->source);
    loop_timer_clear(link->loop, &link->flush);
    loop_timer_clear(link->loop, &link->breath);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    mem_free(link->out.data);
    link->out = (struct send_queue){0};
}

void link_hold(struct link *link)
{
    link->depth++;
}

bool link_release(struct link *link)
{
    if (--link->depth > 0)
        return true;
    if (!link->destroyed)
        return true;
    mem_free(link->in);
    mem_free(link);
    return false;
}

void link_destroy(struct link *link)
{
    if (!link || link->destroyed)
        return;
    link->destroyed = link->over = true;
    stop(link);
    for (uint32_t i = 0; i < link->n_slots; i++)
        mem_free(link->calls[i]);
    mem_free(link->calls);
    link->calls = NULL;
    link->controls = NULL;
    link->n_slots = link->n_calls = 0;
    link_hold(link);
    link_release(link);
}

void link_over(struct link *link)
{
    const struct svc_reply lost = {.errnum = ENOTCONN};

    if (link->told || link->destroyed)
        return;
    link->told = true;
    stop(link);
    for (uint32_t i = 0; i < link->n_slots && !link->destroyed; i++)
        if (link->calls[i])
            link_end_call(link->calls[i], &lost, NULL, 0);
    if (!link->destroyed && link->events.gone)
        link->events.gone(link->events.ctx, &link->why);
}

/* ---- the table ---------------------------------------------------------------------------------- */

struct call *link_find(struct link *link, uint32_t request)
{
    uint32_t slot = (request - 1) & SLOT_MASK;

    if (request == 0 || slot >= link->n_slots || !link->calls[slot] || link->calls[slot]->request != request)
        return NULL;
    return link->calls[slot];
}

static int grow_slots(struct link *link)
{
    uint32_t n = link->n_slots ? link->n_slots * 2 : SLOTS_FIRST;
    struct call **calls = mem_realloc_array(link->calls, n, sizeof(*calls));

    if (!calls)
        return -ENOMEM;
    memset(calls + link->n_slots, 0, (n - link->n_slots) * sizeof(*calls));
    link->next_slot = link->n_slots;
    link->calls = calls;
    link->n_slots = n;
    return 0;
}

/* A free slot: 0, or -EAGAIN when all SVC_CALLS_MAX are taken. */
static int find_slot(struct link *link, uint32_t *ret)
{
    if (link->n_calls == SVC_CALLS_MAX)
        return -EAGAIN;
    if (link->n_calls == link->n_slots && grow_slots(link) < 0)
        return -ENOMEM;
    while (link->calls[link->next_slot])
        link->next_slot = (link->next_slot + 1) % link->n_slots;
    *ret = link->next_slot;
    return 0;
}

static void forget_control(struct link *link, struct call *call)
{
    for (struct call **at = &link->controls; *at; at = &(*at)->next_control)
        if (*at == call) {
            *at = call->next_control;
            break;
        }
    call->controls = false;
}

void link_end_call(struct call *call, const struct svc_reply *reply, const uint8_t *data, size_t len)
{
    struct link *link = call->link;

    link->calls[(call->request - 1) & SLOT_MASK] = NULL;
    link->n_calls--;
    if (call->controls)
        forget_control(link, call);
    call->ended = true;
    if (!call->dropped && call->events.reply)
        call->events.reply(call->events.ctx, reply->errnum, reply->stage, data, len);
    mem_free(call);
}

/* ---- opening ------------------------------------------------------------------------------------ */

static int queue_open(struct link *link, uint32_t request, enum svc_type type, const uint8_t *payload, size_t len)
{
    size_t at = 0;

    do {
        size_t piece = len - at < FRAME_PAYLOAD_MAX ? len - at : FRAME_PAYLOAD_MAX;
        const struct frame frame = {
            .type = (uint16_t)type,
            .length = (uint32_t)piece,
            .request = request,
            .flags = at + piece < len ? FRAME_MORE : 0,
        };
        int r = link_queue(link, &frame, piece > 0 ? payload + at : NULL);

        if (r < 0)
            return r;
        at += piece;
    } while (at < len);
    return 0;
}

int link_call(struct link *link, enum svc_type type, const void *payload, size_t len, const struct call_events *events,
              struct call **ret, struct brig_err *err)
{
    size_t queued = link->out.end - link->out.begin, total = len + FRAME_HEADER * (len / FRAME_PAYLOAD_MAX + 1);
    uint32_t slot;
    int r;

    if (link->over)
        return err_set(err, BRIG_E_GONE, ENOTCONN, "the sandbox's brig-init");
    if (len > SVC_OPEN_MAX || type < SVC_CALL_MIN || type >= SVC_TYPE_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "a call of the sandbox's brig-init");
    r = total > link_room(link) ? -EAGAIN : find_slot(link, &slot);
    if (r == -EAGAIN)
        return err_set(err, BRIG_E_LIMIT, EAGAIN, "too many calls of one sandbox are under way");
    struct call *call = r < 0 ? NULL : mem_zalloc(sizeof(*call));
    if (!call)
        return err_nomem(err);

    link->generation = (link->generation + 1) & (SVC_REQUEST_MAX >> (SLOT_BITS + 1));
    call->link = link;
    call->events = *events;
    call->request = (link->generation << SLOT_BITS | slot) + 1;
    if (queue_open(link, call->request, type, payload, len) < 0) {
        link->out.end = link->out.begin + queued; /* nothing was sent meanwhile: half an open must not be */
        mem_free(call);
        return err_nomem(err);
    }
    link->calls[slot] = call;
    link->n_calls++;
    link_send_soon(link);
    *ret = call;
    return 0;
}

/* ---- stream 0 ----------------------------------------------------------------------------------- */

/* How much of len the window leaves. */
static size_t in_window(const struct call *call, size_t len)
{
    return len < SVC_WINDOW - call->in_flight ? len : SVC_WINDOW - call->in_flight;
}

/* Frames are copied to the queue. */
static size_t write_queued(struct call *call, const uint8_t *data, size_t len)
{
    struct link *link = call->link;
    size_t taken = 0;

    while (taken < len) {
        size_t room = link_room(link), piece = in_window(call, len - taken);

        piece = piece < FRAME_PAYLOAD_MAX ? piece : FRAME_PAYLOAD_MAX;
        if (room <= FRAME_HEADER || piece == 0)
            break;
        piece = piece < room - FRAME_HEADER ? piece : room - FRAME_HEADER;
        const struct frame frame = {.type = SVC_DATA, .length = (uint32_t)piece, .request = call->request};
        if (link_queue(link, &frame, data + taken) < 0) {
            link_want_writable(link, true); /* out of memory: the loop brings it back */
            break;
        }
        taken += piece;
        call->in_flight += (uint32_t)piece;
    }
    return taken;
}

ssize_t call_write(struct call *call, const void *data, size_t len)
{
    struct link *link = call->link;
    size_t taken = 0;

    if (link->over)
        return -ENOTCONN;
    if (call->eof_sent)
        return -EPIPE;
    if (len >= DIRECT_MIN) {
        taken = link_send_data(link, call->request, data, in_window(call, len));
        call->in_flight += (uint32_t)taken;
    }
    taken += write_queued(call, (const uint8_t *)data + taken, len - taken);
    call->hungry = taken < len;
    if (link->out.end > link->out.begin)
        link_send_soon(link);
    return (ssize_t)taken;
}

int call_eof(struct call *call)
{
    if (call->link->over)
        return -ENOTCONN;
    if (call->eof_sent)
        return -EPIPE;
    call->eof_sent = call->eof_due = true;
    call->hungry = false;
    link_want_control(call); /* behind the data, which is in the queue already */
    return 0;
}

void link_wake_writers(struct link *link)
{
    for (uint32_t i = 0; i < link->n_slots && !link->over && link_room(link) > LINK_SEND_MAX / 2; i++) {
        struct call *call = link->calls[i];

        if (!call || !call->hungry || call->dropped || call->in_flight == SVC_WINDOW)
            continue;
        call->hungry = false;
        if (call->events.writable)
            call->events.writable(call->events.ctx);
    }
}

/* ---- streams 1 and 2, and the end --------------------------------------------------------------- */

static void link_want_control(struct call *call)
{
    if (!call->controls) {
        call->controls = true;
        call->next_control = call->link->controls;
        call->link->controls = call;
    }
    link_send_soon(call->link);
}

void call_consumed(struct call *call, unsigned stream, size_t len)
{
    if (call->ended || call->link->over || stream == 0 || stream >= STREAMS)
        return;
    /* Never more than came: an owner's mistake must not become a breach of the protocol. */
    if (len > call->received[stream] - call->consumed[stream])
        len = call->received[stream] - call->consumed[stream];
    call->consumed[stream] += (uint32_t)len;
    if (call->consumed[stream] >= CREDIT_BATCH && !call->eof[stream])
        link_want_control(call);
}

void call_drop(struct call *call)
{
    if (!call || call->ended || call->dropped)
        return;
    call->dropped = call->cancel = true;
    call->hungry = false;
    if (!call->link->over)
        link_want_control(call);
}
