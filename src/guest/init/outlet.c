/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outlet.c: carries bytes out of a process (or a port): from a descriptor into a ring, and from there to the readers.
 *
 *     data:   0 ........................................ size
 *                  |begin                  |end             (offsets of all bytes ever, modulo size)
 *                  [ old | reader a | reader b ]
 *
 * With a reader attached, no byte is forgotten before it was sent to the slowest reader: when the ring is full nothing
 * is read, the pipe fills, and the program waits. Without a reader the oldest bytes make room, unless the ring is held
 * for its first reader. Reads go straight into the ring, as much as there is; a pipe that is found full is made larger,
 * since then it is the bottleneck.
 *
 * The descriptor is watched one event at a time (EPOLLONESHOT), because a hang-up could not be kept quiet otherwise
 * while the ring is full.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define READ_MAX (256u * 1024)
#define PIPE_DEFAULT (64u * 1024)
#define PIPE_LARGE (1u << 20)

static void wake_readers(const struct outlet *outlet)
{
    for (const struct reader *reader = outlet->readers; reader; reader = reader->next)
        call_ready(reader->call);
}

/* the ring stays */
static void outlet_close(struct outlet *outlet)
{
    source_close(&outlet->source);
    outlet->armed = false;
    if (!outlet->over) {
        outlet->over = true;
        wake_readers(outlet);
    }
}

/* How many bytes may be read now. */
static size_t space(const struct outlet *outlet)
{
    uint64_t hold = outlet->end;

    if (!outlet->readers)
        return outlet->held ? outlet->size - (size_t)(outlet->end - outlet->begin) : outlet->size;
    for (const struct reader *reader = outlet->readers; reader; reader = reader->next)
        if (reader->pos < hold && !reader->loose)
            hold = reader->pos;
    return outlet->size - (size_t)(outlet->end - hold);
}

/* The oldest bytes have gone. Nothing is being sent now, so that a reader may be moved. */
static void move_loose(struct outlet *outlet)
{
    for (struct reader *reader = outlet->readers; reader; reader = reader->next)
        if (reader->loose && reader->pos < outlet->begin)
            reader->pos = outlet->begin;
}

/* The ring as it was asked for, or as much of it as there is memory for. */
static bool have_ring(struct outlet *outlet)
{
    while (!outlet->data && outlet->size >= GUEST_PAGE) {
        outlet->data = pages_map(outlet->size);
        if (!outlet->data)
            outlet->size = outlet->size / 2 / GUEST_PAGE * GUEST_PAGE;
        else /* children have no use for it, and would keep pages that are given back */
            raw_call3(SYS_madvise, outlet->data, outlet->size, MADV_DONTFORK);
    }
    return outlet->data != NULL;
}

static unsigned pieces(const struct outlet *outlet, uint64_t offset, size_t len, struct iovec iov[2])
{
    size_t at = (size_t)(offset % outlet->size), first = outlet->size - at;

    if (len <= first) {
        iov[0] = (struct iovec){outlet->data + at, len};
        return 1;
    }
    iov[0] = (struct iovec){outlet->data + at, first};
    iov[1] = (struct iovec){outlet->data, len - first};
    return 2;
}

static void grow_pipe(struct outlet *outlet, long got)
{
    if (outlet->grown || outlet->is_tty || got < (long)PIPE_DEFAULT)
        return;
    outlet->grown = true; /* the kernel may refuse: then it stays as it is */
    raw_call3(SYS_fcntl, outlet->source.fd, F_SETPIPE_SZ, PIPE_LARGE);
}

/* One read. Returns whether another one may find something. */
static bool take_some(struct outlet *outlet)
{
    struct iovec iov[2];
    size_t want = space(outlet);
    long got;

    outlet->armed = false;
    if (want == 0)
        return false;
    if (!have_ring(outlet)) {
        outlet_close(outlet);
        return false;
    }
    if (want > READ_MAX)
        want = READ_MAX;
    got = raw_call3(SYS_readv, outlet->source.fd, iov, pieces(outlet, outlet->end, want, iov));
    if (got == -EINTR)
        return true;
    if (got == -EAGAIN && !outlet->last) {
        outlet_resume(outlet);
        return false;
    }
    if (got <= 0) { /* EIO: the last slave of a terminal has closed */
        outlet_close(outlet);
        return false;
    }
    outlet->end += (uint64_t)got;
    if (outlet->end - outlet->begin > outlet->size)
        outlet->begin = outlet->end - outlet->size;
    move_loose(outlet);
    wake_readers(outlet);
    grow_pipe(outlet, got);
    return true;
}

/* All that is left, as far as there is room: then it is over, whoever may still hold the other end. */
static void take_the_rest(struct outlet *outlet)
{
    while (!outlet->over && take_some(outlet))
        ;
}

void outlet_take(struct outlet *outlet)
{
    if (!outlet->over && outlet->source.fd >= 0 && take_some(outlet))
        outlet_resume(outlet);
}

static void on_ready(struct source *source, uint32_t events)
{
    (void)events;
    outlet_take(owner_of(source, struct outlet, source));
}

int outlet_open(struct outlet *outlet, int fd, uint32_t size)
{
    outlet->size = (uint32_t)PAGE_ROUND(size);
    outlet->source.ready = on_ready;
    outlet->over = false;
    outlet->armed = true;
    return source_add(&outlet->source, fd, EPOLLIN | EPOLLONESHOT);
}

void outlet_none(struct outlet *outlet)
{
    outlet->source.fd = -1;
    outlet->over = true;
}

void outlet_resume(struct outlet *outlet)
{
    if (outlet->over || outlet->armed || outlet->source.fd < 0 || space(outlet) == 0)
        return;
    if (outlet->last) { /* it may be empty, and then nothing would ever be told */
        take_the_rest(outlet);
        return;
    }
    outlet->armed = true;
    source_arm(&outlet->source, EPOLLIN | EPOLLONESHOT);
}

void outlet_last(struct outlet *outlet)
{
    outlet->last = true;
    take_the_rest(outlet);
}

int outlet_switch(struct outlet *outlet, int fd)
{
    /* What comes now may be a whole ring: readers that keep up get what lies there first. */
    send_flush();
    /* Whoever still writes to the old one does not keep us here. */
    for (uint64_t until = outlet_total(outlet); !outlet->over && outlet->end < until && take_some(outlet);)
        ;
    source_close(&outlet->source);
    outlet->over = false;
    outlet->armed = true;
    return source_add(&outlet->source, fd, EPOLLIN | EPOLLONESHOT);
}

void outlet_done(struct outlet *outlet)
{
    source_close(&outlet->source);
    pages_unmap(outlet->data, outlet->size);
    outlet->data = NULL;
    outlet->begin = outlet->end;
    outlet->over = true;
}

uint64_t outlet_total(const struct outlet *outlet)
{
    int left = 0;

    if (outlet->source.fd >= 0 && raw_call3(SYS_ioctl, outlet->source.fd, FIONREAD, &left) != 0)
        left = 0;
    return outlet->end + (uint64_t)(left > 0 ? left : 0);
}

/* ---- readers --------------------------------------------------------------------------------------- */

uint64_t outlet_attach(struct outlet *outlet, struct reader *reader, struct call *call, unsigned stream,
                       uint64_t offset)
{
    if (offset < outlet->begin)
        offset = outlet->begin;
    if (offset > outlet->end) /* FROM_NOW, too */
        offset = outlet->end;
    *reader = (struct reader){
        .call = call,
        .outlet = outlet,
        .next = outlet->readers,
        .pos = offset,
        .limit = UINT64_MAX,
        .stream = (uint8_t)stream,
    };
    outlet->readers = reader;
    outlet->held = outlet->keeps;
    outlet_resume(outlet);
    return offset;
}

void outlet_detach(struct reader *reader)
{
    struct outlet *outlet = reader->outlet;

    if (!outlet)
        return;
    for (struct reader **at = &outlet->readers; *at; at = &(*at)->next)
        if (*at == reader) {
            *at = reader->next;
            break;
        }
    reader->outlet = NULL;
    if (outlet->keeps) /* what was sent has been had */
        outlet->begin = reader->pos;
    outlet_resume(outlet);
}

static uint64_t reader_end(const struct reader *reader)
{
    return reader->limit < reader->outlet->end ? reader->limit : reader->outlet->end;
}

size_t reader_available(const struct reader *reader)
{
    uint64_t end = reader_end(reader);

    return end > reader->pos ? (size_t)(end - reader->pos) : 0;
}

bool reader_at_end(const struct reader *reader)
{
    return reader->pos >= reader->limit || (reader->outlet->over && reader->pos >= reader->outlet->end);
}

unsigned reader_peek(const struct reader *reader, uint64_t pos, size_t len, struct iovec iov[2])
{
    return pieces(reader->outlet, pos, len, iov);
}
