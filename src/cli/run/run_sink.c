/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_sink.c: writes the program's output to our stdout or stderr.
 *
 * We share these descriptors with the process that started us, so they are never made non-blocking. Instead poll() is
 * asked first, and no more is written than fits: a pipe that is ready has room for PIPE_BUF bytes. So a reader that
 * does not read stops nothing else here.
 */
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

#include "cli/run/run.h"

void run_sink_init(struct run_sink *sink, int fd, bool raw)
{
    *sink = (struct run_sink){
        .fd = fd,
        .raw = raw,
        .escape = ESCAPE_INIT(ESCAPE_TERMINAL),
        .pending = BUF_INIT(SIZE_MAX / 2),
    };
}

static void look(struct run_sink *sink)
{
    struct stat st;
    sink->opened = true;
    sink->chunk = PIPE_BUF;
    if (fstat(sink->fd, &st) < 0)
        return;
    if (S_ISREG(st.st_mode))
        sink->chunk = (size_t)1 << 20;
    else if (S_ISCHR(st.st_mode))
        sink->terminal = isatty(sink->fd) == 1;
}

/* Bytes written, 0 when it would block now, or a negative errno. */
static ssize_t write_some(const struct run_sink *sink, const char *data, size_t len)
{
    struct pollfd ready = {.fd = sink->fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) <= 0)
        return 0;
    ssize_t n = write(sink->fd, data, len < sink->chunk ? len : sink->chunk);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    return n;
}

static size_t write_many(struct run_sink *sink, const char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write_some(sink, data + done, len - done);
        if (n < 0)
            sink->failed = (int)n;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

void run_sink_put(struct run_sink *sink, const void *data, size_t len)
{
    int r;
    if (sink->failed != 0)
        return;
    if (!sink->opened)
        look(sink);
    if (sink->terminal && !sink->raw) {
        r = escape_append(&sink->escape, data, len, &sink->pending);
    } else {
        size_t done = run_sink_waiting(sink) ? 0 : write_many(sink, data, len);
        if (done == len || sink->failed != 0)
            return;
        r = buf_append(&sink->pending, (const char *)data + done, len - done);
    }
    if (r < 0)
        sink->failed = r;
    run_sink_flush(sink);
}

void run_sink_flush(struct run_sink *sink)
{
    struct buf *pending = &sink->pending;
    if (sink->failed == 0 && sink->sent < pending->len)
        sink->sent += write_many(sink, pending->data + sink->sent, pending->len - sink->sent);
    if (sink->failed != 0 || sink->sent == pending->len) {
        pending->len = sink->sent = 0;
    } else if (sink->sent > pending->len / 2) { /* not each time: moving the rest costs as much as the rest */
        buf_consume(pending, sink->sent);
        sink->sent = 0;
    }
}

void run_sink_end(struct run_sink *sink)
{
    int r = sink->failed == 0 ? escape_finish(&sink->escape, &sink->pending) : 0;
    if (r < 0)
        sink->failed = r;
    run_sink_flush(sink);
}

bool run_sink_waiting(const struct run_sink *sink)
{
    return sink->failed == 0 && sink->sent < sink->pending.len;
}

void run_sink_done(struct run_sink *sink)
{
    buf_done(&sink->pending);
}
