/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inlet.c: carries bytes into a process (or a port): from calls to a descriptor that may take them later.
 *
 * Bytes are written straight from the frame they came in; what the descriptor does not take waits in a queue that is
 * mapped for as long as there is something in it. It holds records, each with the number of the call it came from:
 *
 *     data: [request, len][bytes ...][request, len][bytes ...]
 *             ^begin                                           ^end
 *
 * Bytes are given back to their call as they are written. If the call has gone (a connection that was lost), its bytes
 * are still written, because they were accepted. Past the queue's size, which is two windows, a call is refused.
 */
#include <asm/termbits.h>
#include <sys/epoll.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define QUEUE_SIZE (2u * SVC_WINDOW)
#define TCGETS_NR 0x5401

struct record {
    uint32_t request; /* 0: nobody's */
    uint32_t len;
};

static void drop_queue(struct inlet *inlet)
{
    pages_unmap(inlet->data, QUEUE_SIZE);
    inlet->data = NULL;
    inlet->begin = inlet->end = 0;
}

void inlet_close(struct inlet *inlet)
{
    source_close(&inlet->source);
    drop_queue(inlet);
}

static void end(struct inlet *inlet, int errnum)
{
    inlet->errnum = errnum;
    inlet_close(inlet);
    if (inlet->ended)
        inlet->ended(inlet);
}

/* How many bytes the descriptor took, or a negative errno. */
static long write_some(struct inlet *inlet, const uint8_t *data, size_t len)
{
    long ret;

    do {
        ret = raw_call3(SYS_write, inlet->source.fd, data, len);
    } while (ret == -EINTR);
    return ret == -EAGAIN ? 0 : ret;
}

/* Writes of the first record; its head moves along with what is left of it. */
static long drain_record(struct inlet *inlet)
{
    struct record record;
    long took;

    __builtin_memcpy(&record, inlet->data + inlet->begin, sizeof(record));
    took = write_some(inlet, inlet->data + inlet->begin + sizeof(record), record.len);
    if (took <= 0)
        return took;
    if (record.request != 0)
        call_credit(call_find(record.request), (size_t)took);
    record.len -= (uint32_t)took;
    inlet->begin += (size_t)took + (record.len == 0 ? sizeof(record) : 0);
    if (record.len > 0)
        __builtin_memcpy(inlet->data + inlet->begin, &record, sizeof(record));
    return took;
}

/* Writes what waits. The end, when it comes, is the last thing that happens here. */
static void drain(struct inlet *inlet)
{
    while (inlet->begin < inlet->end) {
        long took = drain_record(inlet);

        if (took < 0) {
            end(inlet, (int)-took);
            return;
        }
        if (took == 0) {
            source_arm(&inlet->source, EPOLLOUT | EPOLLONESHOT);
            return;
        }
    }
    drop_queue(inlet);
    if (inlet->eof)
        end(inlet, 0);
}

static void on_ready(struct source *source, uint32_t events)
{
    (void)events;
    drain(owner_of(source, struct inlet, source));
}

int inlet_open(struct inlet *inlet, int fd)
{
    bool some = inlet->begin < inlet->end; /* it had to wait for the descriptor */

    inlet->waits = false;
    inlet->source.ready = on_ready;
    return source_add(&inlet->source, fd, (some || inlet->eof ? EPOLLOUT : 0) | EPOLLONESHOT);
}

static int queue(struct inlet *inlet, uint32_t request, const uint8_t *data, size_t len)
{
    const struct record record = {request, (uint32_t)len};
    size_t size = sizeof(record) + len;

    if (!inlet->data && !(inlet->data = pages_map(QUEUE_SIZE)))
        return -ENOMEM;
    if (QUEUE_SIZE - inlet->end < size && inlet->begin > 0) {
        __builtin_memmove(inlet->data, inlet->data + inlet->begin, inlet->end - inlet->begin);
        inlet->end -= inlet->begin;
        inlet->begin = 0;
    }
    if (QUEUE_SIZE - inlet->end < size)
        return -ENOBUFS;
    __builtin_memcpy(inlet->data + inlet->end, &record, sizeof(record));
    __builtin_memcpy(inlet->data + inlet->end + sizeof(record), data, len);
    inlet->end += size;
    source_arm(&inlet->source, EPOLLOUT | EPOLLONESHOT);
    return 0;
}

int inlet_write(struct inlet *inlet, struct call *call, const uint8_t *data, size_t len)
{
    if (inlet->errnum != 0 || inlet->eof || (inlet->source.fd < 0 && !inlet->waits))
        return inlet->errnum != 0 ? -inlet->errnum : -EPIPE;
    if (inlet->begin == inlet->end && !inlet->waits) {
        long took = write_some(inlet, data, len);

        if (took < 0) {
            inlet->errnum = (int)-took; /* the caller is told by what this returns */
            inlet_close(inlet);
            return (int)took;
        }
        call_credit(call, (size_t)took);
        data += took;
        len -= (size_t)took;
    }
    return len > 0 ? queue(inlet, call ? call->request : 0, data, len) : 0;
}

/* A terminal has no end: what a user would type for it is written, if the terminal makes an end of that. */
static void type_eof(struct inlet *inlet)
{
    struct termios mode = {0};

    if (inlet->waits)
        (void)!inlet_write(inlet, NULL, (const uint8_t *)"\4", 1); /* what it will be to begin with */
    else if (raw_call3(SYS_ioctl, inlet->source.fd, TCGETS_NR, &mode) == 0 && (mode.c_lflag & ICANON) &&
             mode.c_cc[VEOF] != 0)
        (void)!inlet_write(inlet, NULL, &mode.c_cc[VEOF], 1);
}

void inlet_eof(struct inlet *inlet)
{
    if ((inlet->source.fd < 0 && !inlet->waits) || inlet->eof)
        return;
    if (inlet->is_tty) {
        type_eof(inlet);
        return;
    }
    inlet->eof = true;
    if (inlet->begin == inlet->end && !inlet->waits)
        end(inlet, 0);
}

void inlet_orphan(struct inlet *inlet, uint32_t request)
{
    for (size_t at = inlet->begin; at < inlet->end;) {
        struct record record;

        __builtin_memcpy(&record, inlet->data + at, sizeof(record));
        if (record.request == request) {
            record.request = 0;
            __builtin_memcpy(inlet->data + at, &record, sizeof(record));
        }
        at += sizeof(record) + record.len;
    }
}
