/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm_stream.c: one connection to the brig-init of a guest. The way is: our socket pair, a call to the brig-init around
 * the monitor (QEMU: PORT_CONNECT to its listening character device, virtio-serial), the guest's brig-init.
 *
 *     connecting --connected: HELLO and the order are sent--> opening --STARTED--> open --either side closes--> over
 *         ^---- refused: the monitor does not listen yet ----/
 *         ^---- no answer: the guest was too slow to see that another client went (only with `again`) ----/
 *
 * A monitor takes one connection after another, and the guest sees each end: half a frame of a dead brigd does not stay
 * in it. What comes before the HELLO with our nonce is of the connection before, and dropped. Memory is bounded by the
 * window of the call in one direction, and by one piece in the other. The guest is untrusted: what it sends is parsed
 * here up to STARTED, and by the link of the box after that.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "codec/wire/guest_carry.h"
#include "vm/vm_private.h"

#define PIECE 65536u
#define ORDER_MAX (FRAME_HEADER + CARRY_START_MAX)
#define OPENING_MAX 65536u
#define LINE_MAX_BYTES 1024u
#define RETRY_NS (20 * NS_PER_MS)
#define ANSWER_NS (1500 * NS_PER_MS)

enum stream_state { STREAM_CONNECTING, STREAM_OPENING, STREAM_OPEN, STREAM_OVER };

struct vm_stream {
    struct loop *loop;
    struct link *link;
    const struct vm_monitor *monitor;
    struct vm_stream_events events;
    enum stream_state state;
    bool again;
    uint64_t until_ns, pause_ns, nonce;
    struct loop_timer timer;
    struct call *call;
    bool greeted;
    struct buf in;  /* from the guest: the opening, and then what the pair has not taken */
    struct buf out; /* to the guest: what the call has not taken */
    int fd;
    uint32_t watched;
    struct loop_source source;
    size_t order_len;
    uint8_t order[ORDER_MAX];
};

static void stream_connect(struct vm_stream *stream);

static void watch(struct vm_stream *stream)
{
    uint32_t want = (stream->out.len == 0 ? EPOLLIN : 0) | (stream->in.len > 0 ? EPOLLOUT : 0);

    if (stream->state == STREAM_OPEN && want != stream->watched &&
        loop_modify(stream->loop, &stream->source, want, NULL) == 0)
        stream->watched = want;
}

/* The connection is over; what is left is freed by its owner. */
static void over(struct vm_stream *stream)
{
    stream->state = STREAM_OVER;
    loop_timer_clear(stream->loop, &stream->timer);
    loop_remove(stream->loop, &stream->source);
    base_close_fd(&stream->fd);
    if (stream->call)
        call_drop(take_ptr(&stream->call));
}

static void tell_failure(struct vm_stream *stream, const struct brig_err *why)
{
    over(stream);
    stream->events.opened(stream->events.ctx, -1, NULL, why);
}

static void fail(struct vm_stream *stream, const char *what)
{
    struct brig_err why = {0};

    (void)err_set(&why, BRIG_E_GONE, 0, "%s", what);
    tell_failure(stream, &why);
}

/* ---- the opening -------------------------------------------------------------------------------------- */

static void try_again(struct vm_stream *stream, uint64_t after_ns)
{
    if (stream->call)
        call_drop(take_ptr(&stream->call));
    stream->state = STREAM_CONNECTING;
    buf_consume(&stream->in, stream->in.len);
    if (loop_now_ns() + after_ns > stream->until_ns)
        fail(stream, "the virtual machine does not answer");
    else if (loop_timer_set(stream->loop, &stream->timer, loop_now_ns() + after_ns, NULL) < 0)
        fail(stream, "out of memory");
}

static void on_timer(struct loop_timer *timer)
{
    struct vm_stream *stream = timer->ctx;

    if (stream->state == STREAM_CONNECTING) {
        stream_connect(stream);
        return;
    }
    if (!stream->again) {
        fail(stream, "the virtual machine did not come up in time");
        return;
    }
    stream->pause_ns *= 2;
    try_again(stream, stream->pause_ns);
}

/* Sends the line that a machine waits for. It is made at this moment, because it has the time. */
static bool send_line(struct vm_stream *stream)
{
    char line[LINE_MAX_BYTES];
    int len = stream->events.line ? stream->events.line(stream->events.ctx, line, sizeof line) : 0;
    bool sent = len >= 0 && (len == 0 || call_write(stream->call, line, (size_t)len) == len);

    explicit_bzero(line, sizeof line);
    return sent;
}

static void on_connected(void *ctx, const uint8_t *data UNUSED, size_t len UNUSED)
{
    struct vm_stream *stream = ctx;
    struct carry_hello hello = {.version = FRAME_VERSION};
    uint8_t wire[CARRY_HELLO_FRAME];

    if (stream->state != STREAM_CONNECTING)
        return;
    if (getrandom(&stream->nonce, sizeof stream->nonce, 0) != sizeof stream->nonce) {
        fail(stream, "random numbers");
        return;
    }
    hello.nonce = stream->nonce;
    stream->state = STREAM_OPENING;
    stream->greeted = false;
    uint64_t until = stream->again ? loop_now_ns() + ANSWER_NS : stream->until_ns;
    /* The queue of a call that has just begun has room for all of it. */
    const char *greeting = stream->monitor->greeting ? stream->monitor->greeting : "";
    const size_t greeting_len = strlen(greeting);
    if (!send_line(stream) || carry_hello_put(wire, sizeof wire, &hello) < 0 ||
        call_write(stream->call, greeting, greeting_len) != (ssize_t)greeting_len ||
        call_write(stream->call, wire, sizeof wire) != (ssize_t)sizeof wire ||
        call_write(stream->call, stream->order, stream->order_len) != (ssize_t)stream->order_len ||
        loop_timer_set(stream->loop, &stream->timer, until, NULL) < 0)
        fail(stream, "the opening could not be sent");
}

static int make_pair(struct vm_stream *stream, int *ret, struct brig_err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return err_host(err, "socket pair");
    int r = loop_add(stream->loop, &stream->source, pair[0], EPOLLIN, err);
    if (r < 0) {
        close(pair[0]);
        close(pair[1]);
        return r;
    }
    stream->fd = pair[0];
    stream->watched = EPOLLIN;
    *ret = pair[1];
    return 0;
}

static void flush_in(struct vm_stream *stream);

static void opened(struct vm_stream *stream, const struct guest_started *started)
{
    struct brig_err err = {0};
    int fd = -1;

    loop_timer_clear(stream->loop, &stream->timer);
    if (make_pair(stream, &fd, &err) < 0) {
        tell_failure(stream, &err);
        return;
    }
    stream->state = STREAM_OPEN;
    flush_in(stream);
    stream->events.opened(stream->events.ctx, fd, started, NULL);
}

/* HELLO with our nonce. Returns whether it is there; what comes before it is dropped. */
static bool take_hello(struct vm_stream *stream)
{
    struct buf *in = &stream->in;
    const char *at = in->len > 0 ? memmem(in->data, in->len, &stream->nonce, sizeof stream->nonce) : NULL;
    const size_t before = CARRY_HELLO_FRAME - sizeof stream->nonce;
    struct carry_hello hello;

    if (!at || (size_t)(at - in->data) < before)
        return false;
    buf_consume(in, (size_t)(at - in->data) - before);
    int used = carry_hello_take((const uint8_t *)in->data, in->len, &hello);
    if (used <= 0)
        return false;
    buf_consume(in, (size_t)used);
    return true;
}

static void take_opening(struct vm_stream *stream)
{
    struct guest_started started;
    struct guest_exited exited;
    struct frame frame;

    if (!stream->greeted && !(stream->greeted = take_hello(stream))) {
        if (stream->in.len > OPENING_MAX / 2) /* a HELLO may be at its end */
            buf_consume(&stream->in, stream->in.len - CARRY_HELLO_FRAME);
        return;
    }
    int used =
        stream->in.len < FRAME_HEADER ? 0 : frame_parse((const uint8_t *)stream->in.data, stream->in.len, &frame);
    if (used == 0 && stream->in.len < OPENING_MAX / 2)
        return;
    if (used > 0 && frame.type == FRAME_STARTED && guest_started_parse(frame.payload, frame.length, &started) == 0) {
        buf_consume(&stream->in, (size_t)used);
        opened(stream, &started);
    } else if (used > 0 && frame.type == FRAME_EXITED &&
               guest_exited_parse(frame.payload, frame.length, &exited) == 0) {
        fail(stream, "brig-init of the virtual machine refused the order");
    } else {
        fail(stream, "brig-init of the virtual machine broke the protocol");
    }
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

static void flush_in(struct vm_stream *stream)
{
    while (stream->in.len > 0) {
        ssize_t n = send(stream->fd, stream->in.data, stream->in.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (errno != EAGAIN)
                over(stream);
            break;
        }
        buf_consume(&stream->in, (size_t)n);
        call_consumed(stream->call, 1, (size_t)n);
    }
    watch(stream);
}

static void on_data(void *ctx, unsigned number, const uint8_t *data, size_t len)
{
    struct vm_stream *stream = ctx;

    if (number != 1 || stream->state == STREAM_OVER || stream->state == STREAM_CONNECTING)
        return;
    if (buf_append(&stream->in, data, len) < 0) {
        if (stream->state == STREAM_OPEN)
            over(stream);
        else
            fail(stream, "the virtual machine sent too much");
        return;
    }
    if (stream->state == STREAM_OPEN) {
        flush_in(stream);
        return;
    }
    call_consumed(stream->call, 1, len);
    take_opening(stream);
}

static void flush_out(struct vm_stream *stream)
{
    ssize_t n = stream->out.len > 0 ? call_write(stream->call, stream->out.data, stream->out.len) : 0;

    if (n < 0) {
        over(stream);
        return;
    }
    buf_consume(&stream->out, (size_t)n);
    watch(stream);
}

static void on_writable(void *ctx)
{
    struct vm_stream *stream = ctx;

    if (stream->state == STREAM_OPEN)
        flush_out(stream);
}

static void on_pair(struct loop_source *source, uint32_t events)
{
    struct vm_stream *stream = source->ctx;
    char piece[PIECE];

    if (events & EPOLLOUT)
        flush_in(stream);
    if (stream->state != STREAM_OPEN || stream->out.len > 0 || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = recv(stream->fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || buf_append(&stream->out, piece, (size_t)n) < 0) {
        over(stream); /* the other end is closed: so is the connection, and the guest sees it */
        return;
    }
    flush_out(stream);
}

static void on_reply(void *ctx, uint32_t errnum UNUSED, uint32_t stage UNUSED, const uint8_t *data UNUSED,
                     size_t len UNUSED)
{
    struct vm_stream *stream = ctx;

    stream->call = NULL;
    if (stream->state == STREAM_CONNECTING)
        try_again(stream, RETRY_NS);
    else if (stream->state == STREAM_OPENING) /* the monitor may be ending; then its own end says more */
        try_again(stream, stream->pause_ns);
    else
        over(stream);
}

/* A monitor that answers with the end has nobody in the guest to connect to yet. */
static void on_eof(void *ctx, unsigned number UNUSED)
{
    struct vm_stream *stream = ctx;

    if (stream->state == STREAM_OPENING)
        try_again(stream, stream->pause_ns);
}

static void stream_connect(struct vm_stream *stream)
{
    const struct call_events events = {.event = on_connected,
                                       .data = on_data,
                                       .eof = on_eof,
                                       .writable = on_writable,
                                       .reply = on_reply,
                                       .ctx = stream};
    struct brig_err err = {0};

    if (stream->monitor->reach(stream->link, &events, &stream->call, &err) < 0)
        tell_failure(stream, &err);
}

static void on_first(struct loop_timer *timer)
{
    timer->fn = on_timer;
    stream_connect(timer->ctx);
}

int vm_stream_create(const struct vm_stream_options *options, struct vm_stream **ret, struct brig_err *err)
{
    struct vm_stream *stream = options->order_len <= ORDER_MAX ? mem_zalloc(sizeof *stream) : NULL;

    if (!stream)
        return err_nomem(err);
    *stream = (struct vm_stream){.loop = options->loop,
                                 .link = options->link,
                                 .monitor = options->monitor,
                                 .events = options->events,
                                 .again = options->again,
                                 .until_ns = options->until_ns,
                                 .pause_ns = 50 * NS_PER_MS,
                                 .timer = {.fn = on_first, .ctx = stream},
                                 .in = BUF_INIT(SVC_WINDOW + OPENING_MAX),
                                 .out = BUF_INIT(PIECE),
                                 .fd = -1,
                                 .source = {.fd = -1, .fn = on_pair, .ctx = stream},
                                 .order_len = options->order_len};
    memcpy(stream->order, options->order, options->order_len);
    int r = loop_timer_set(options->loop, &stream->timer, loop_now_ns(), err);
    if (r < 0) {
        mem_free(stream);
        return r;
    }
    *ret = stream;
    return 0;
}

void vm_stream_destroy(struct vm_stream *stream)
{
    if (!stream)
        return;
    if (stream->state != STREAM_OVER)
        over(stream);
    buf_done(&stream->in);
    buf_done(&stream->out);
    mem_free(stream);
}
