/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_conn_send.c: sends frames to brigd.
 *
 * There are three sources, always in this order within one sendmsg: short frames, which are copied into one buffer when
 * they are made; whole frames of the file worker, from the buffer they were received in; and data, from the rings it
 * lies in. So data is not copied here, several frames go out in one call, and an answer is never behind more than one
 * batch of data.
 *
 * A frame that the socket took only in part must be completed before anything else: what is left of it is copied to the
 * (then empty) buffer of short frames. A ring's reader moves on only once its bytes have gone or are there.
 *
 * Calls that may have something to send stand in one queue and take turns, a few frames each.
 */
#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define OUT_SIZE (1u << 20)
#define BATCH_FRAMES 16u
#define FRAMES_PER_TURN 4u

struct planned {
    struct reader *reader;
    uint32_t len;
    uint8_t header[FRAME_HEADER];
};

static uint8_t *out;
static size_t out_begin, out_end;
static bool blocked;
static struct call *ready_first, **ready_last = &ready_first;
static struct planned batch[BATCH_FRAMES];
static unsigned n_batch;
/* Short frames, the worker's, then a header and at most two pieces each. */
static struct iovec iov[2 + 3 * BATCH_FRAMES];

/* ---- short frames ---------------------------------------------------------------------------------- */

size_t send_backlog(void)
{
    return out_end - out_begin;
}

bool send_blocked(void)
{
    return blocked;
}

static bool put(const void *data, size_t len)
{
    if (!out && !(out = pages_map(OUT_SIZE)))
        return false;
    if (OUT_SIZE - out_end < len && out_begin > 0) {
        __builtin_memmove(out, out + out_begin, out_end - out_begin);
        out_end -= out_begin;
        out_begin = 0;
    }
    if (OUT_SIZE - out_end < len)
        return false;
    if (len > 0)
        __builtin_memcpy(out + out_end, data, len);
    out_end += len;
    return true;
}

void send_frame(uint16_t type, uint32_t request, uint32_t stream, const void *payload, size_t len)
{
    const struct frame frame = {.type = type, .request = request, .stream = stream, .length = (uint32_t)len};
    uint8_t header[FRAME_HEADER];

    if (!conn_is_open())
        return;
    frame_put_header(header, &frame);
    if (!put(header, sizeof(header)) || !put(payload, len))
        conn_close_soon();
}

void send_reply(uint32_t request, int errnum, uint32_t stage, const uint8_t *payload, size_t len)
{
    const struct svc_reply reply = {.errnum = (uint32_t)errnum, .stage = stage};
    const struct frame frame = {.type = SVC_REPLY, .request = request, .length = SVC_REPLY_SIZE + (uint32_t)len};
    uint8_t head[FRAME_HEADER + SVC_REPLY_SIZE];

    if (!conn_is_open())
        return;
    frame_put_header(head, &frame);
    if (svc_reply_put(head + FRAME_HEADER, SVC_REPLY_SIZE, &reply) < 0 || !put(head, sizeof(head)) ||
        !put(payload, len))
        conn_close_soon();
}

void send_raw(const uint8_t *data, size_t len)
{
    if (conn_is_open() && !put(data, len))
        conn_close_soon();
}

void send_trim(void)
{
    if (out_begin == out_end)
        pages_trim(out, OUT_SIZE);
}

void send_reset(void)
{
    out_begin = out_end = 0;
    blocked = false;
}

void send_writable(void)
{
    blocked = false;
}

/* ---- the queue of calls ---------------------------------------------------------------------------- */

void ready_add(struct call *call)
{
    call->ready = true;
    call->next_ready = NULL;
    *ready_last = call;
    ready_last = &call->next_ready;
}

static struct call *ready_take(void)
{
    struct call *call = ready_first;

    if (!call)
        return NULL;
    ready_first = call->next_ready;
    if (!ready_first)
        ready_last = &ready_first;
    call->ready = false;
    return call;
}

void ready_forget(struct call *call)
{
    struct call **at = &ready_first;

    if (!call->ready)
        return;
    while (*at && *at != call)
        at = &(*at)->next_ready;
    if (*at)
        *at = call->next_ready;
    if (ready_last == &call->next_ready)
        ready_last = at;
    call->ready = false;
}

/* ---- a batch --------------------------------------------------------------------------------------- */

/* Plans up to a turn's worth of frames of one stream. Returns how many. A channel may have a second turn in a batch:
 * what is planned counts. */
static unsigned plan_data(struct reader *reader, unsigned *n_iov)
{
    unsigned n = 0;

    while (n < FRAMES_PER_TURN && n_batch < BATCH_FRAMES) {
        size_t len = reader_available(reader) - reader->planned,
               credit = SVC_WINDOW - reader->in_flight - reader->planned;
        struct planned *next = &batch[n_batch];

        len = len < credit ? len : credit;
        len = len < FRAME_PAYLOAD_MAX ? len : FRAME_PAYLOAD_MAX;
        if (len == 0)
            break;
        const struct frame frame = {
            .type = SVC_DATA, .length = (uint32_t)len, .stream = reader->stream, .request = reader->call->request};
        frame_put_header(next->header, &frame);
        next->reader = reader;
        next->len = (uint32_t)len;
        iov[(*n_iov)++] = (struct iovec){next->header, FRAME_HEADER};
        *n_iov += reader_peek(reader, reader->pos + reader->planned, len, iov + *n_iov);
        reader->planned += (uint32_t)len;
        n_batch++;
        n++;
    }
    return n;
}

/* Plans what the call has to send, or lets it end. */
static void plan_call(struct call *call, unsigned *n_iov)
{
    bool all_ended = true;
    unsigned n = 0;

    for (unsigned i = 0; i < 2; i++) {
        struct reader *reader = &call->reader[i];

        if (!reader->outlet)
            continue;
        if (!reader->ended && reader_available(reader) == 0 && reader_at_end(reader)) {
            reader->ended = true;
            send_frame(SVC_EOF, call->request, reader->stream, NULL, 0);
        }
        if (!reader->ended && !channel_held_back(call))
            n += plan_data(reader, n_iov);
        all_ended = all_ended && reader->ended;
    }
    if (n > 0 && call->proc && call->type != SVC_CHANNEL)
        channel_wake(call->proc);
    if (n == 0 && all_ended && call->drained)
        call->drained(call); /* and it is gone */
}

/* `sent` bytes of the planned frames have gone, the last perhaps in part. */
static void settle_batch(size_t sent)
{
    for (unsigned i = 0; i < n_batch; i++) {
        struct reader *reader = batch[i].reader;
        size_t size = FRAME_HEADER + batch[i].len, part = sent < size ? sent : size;

        if (part > 0 && part < size) {
            struct iovec rest[2];
            size_t skip = part < FRAME_HEADER ? 0 : part - FRAME_HEADER;
            bool ok = part >= FRAME_HEADER || put(batch[i].header + part, FRAME_HEADER - part);
            unsigned n = reader_peek(reader, reader->pos + skip, batch[i].len - skip, rest);

            for (unsigned k = 0; k < n; k++)
                ok = ok && put(rest[k].iov_base, rest[k].iov_len);
            if (!ok)
                conn_close_soon();
        }
        if (part > 0) {
            reader->pos += batch[i].len;
            reader->in_flight += batch[i].len;
        }
        reader->planned = 0;
        sent -= part;
        call_ready(reader->call);
    }
    for (unsigned i = 0; i < n_batch; i++)
        outlet_resume(batch[i].reader->outlet);
    n_batch = 0;
}

/* The worker's bytes are whole frames; one that went in part is completed from the buffer of short frames. */
static void settle_worker(const uint8_t *data, size_t len, size_t sent)
{
    struct frame frame;
    size_t at = 0;

    while (at < sent) {
        int used = svc_frame_parse(data + at, len - at, &frame);

        if (used <= 0) /* cannot be: they were parsed when they came */
            break;
        at += (size_t)used;
    }
    if (at > sent && !put(data + sent, at - sent))
        conn_close_soon();
    worker_sent(at);
}

/* Returns whether there may be more to send, and room for it. */
static bool send_batch(void)
{
    uint8_t *from_worker = NULL;
    size_t short_len, worker_len = worker_peek(&from_worker), total = 0, left;
    unsigned n_iov = 2;
    struct call *call;
    long sent;

    n_batch = 0;
    /* A call's turn may leave short frames, so these are looked at afterwards; data never precedes its own end. */
    while (n_batch + 2 * FRAMES_PER_TURN <= BATCH_FRAMES && (call = ready_take()))
        plan_call(call, &n_iov);
    short_len = out_end - out_begin;
    iov[0] = (struct iovec){out + out_begin, short_len};
    iov[1] = (struct iovec){from_worker, worker_len};
    for (unsigned i = 0; i < n_iov; i++)
        total += iov[i].iov_len;
    if (total == 0)
        return false;
    sent = conn_write(iov, n_iov);
    if (sent < 0 && sent != -EAGAIN && sent != -EINTR)
        conn_close_soon();
    left = sent < 0 ? 0 : (size_t)sent;
    blocked = left < total;

    size_t part = left < short_len ? left : short_len;
    out_begin += part;
    if (out_begin == out_end)
        out_begin = out_end = 0;
    left -= part;
    part = left < worker_len ? left : worker_len;
    if (part > 0)
        settle_worker(from_worker, worker_len, part);
    settle_batch(left - part);
    return !blocked;
}

void send_flush(void)
{
    while (conn_is_open() && !blocked && send_batch())
        ;
}
