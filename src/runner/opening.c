/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opening.c: the host's side of an opening (opening.h). HELLO and the order go out in one go; the answers are read
 * frame by frame, and never a byte more than they have, because what follows belongs to whoever gets the descriptor.
 */
#include "runner/opening.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"

static void finish(struct opening *opening, const struct guest_started *started, const struct brig_err *err)
{
    loop_remove(opening->loop, &opening->on_io);
    int fd = take_fd(&opening->fd);

    if (err || started->missing) {
        close(fd);
        fd = -1;
    }
    opening->done(opening->ctx, fd, started, err);
}

static void fail(struct opening *opening, int errnum, const char *what)
{
    struct brig_err err;

    (void)err_set(&err, BRIG_E_HOST, errnum, "brig-init: %s", what);
    finish(opening, NULL, &err);
}

void opening_drop(struct opening *opening)
{
    if (opening->fd < 0)
        return;
    loop_remove(opening->loop, &opening->on_io);
    base_close_fd(&opening->fd);
}

/* The bytes that the present frame still needs: its header first, then what that says. Negative: too long. */
static ssize_t wanted(const struct opening *opening)
{
    struct frame frame;

    if (opening->in_len < FRAME_HEADER)
        return (ssize_t)(FRAME_HEADER - opening->in_len);
    frame_get_header(opening->in, &frame);
    if (frame.length > sizeof opening->in - FRAME_HEADER)
        return -EPROTO;
    return (ssize_t)(FRAME_HEADER + frame.length - opening->in_len);
}

/* Returns whether the opening goes on. */
static bool take_frame(struct opening *opening)
{
    struct guest_started started;
    struct guest_exited exited;
    struct carry_hello hello;
    struct frame frame;
    char text[96];

    if (!opening->greeted) {
        if (carry_hello_take(opening->in, opening->in_len, &hello) <= 0 || hello.nonce != opening->nonce) {
            fail(opening, EPROTO, "no HELLO, or one of another protocol");
            return false;
        }
        if (hello.version != FRAME_VERSION) {
            (void)snprintf(text, sizeof text, "it speaks version %u of the protocol, and %u is needed", hello.version,
                           FRAME_VERSION);
            fail(opening, EPROTONOSUPPORT, text);
            return false;
        }
        if (!(hello.capabilities & GUEST_CAP_CARRIED)) {
            fail(opening, EPROTO, "it was not started to be carried");
            return false;
        }
        opening->greeted = true;
        opening->in_len = 0;
        return true;
    }
    if (frame_parse(opening->in, opening->in_len, &frame) <= 0) {
        fail(opening, EPROTO, "no frame");
        return false;
    }
    if (frame.type == FRAME_EXITED && guest_exited_parse(frame.payload, frame.length, &exited) == 0)
        fail(opening, (int)exited.errnum, "it refused");
    else if (frame.type == FRAME_STARTED && guest_started_parse(frame.payload, frame.length, &started) == 0)
        finish(opening, &started, NULL);
    else
        fail(opening, EPROTO, "no STARTED");
    return false;
}

static bool send_rest(struct opening *opening)
{
    while (opening->out_at < opening->out_len) {
        ssize_t n = send(opening->fd, opening->out + opening->out_at, opening->out_len - opening->out_at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0) {
            fail(opening, errno, "it closed the connection"); /* before it had read all */
            return false;
        }
        opening->out_at += (size_t)n;
    }
    if (loop_modify(opening->loop, &opening->on_io, EPOLLIN, NULL) < 0) {
        fail(opening, ENOMEM, "loop");
        return false;
    }
    return true;
}

static void on_io(struct loop_source *source, uint32_t events)
{
    struct opening *opening = source->ctx;

    if ((events & EPOLLOUT) && opening->out_at < opening->out_len && !send_rest(opening))
        return;
    for (;;) {
        ssize_t more = wanted(opening);
        if (more < 0) {
            fail(opening, EPROTO, "a frame that is too long");
            return;
        }
        if (more == 0) {
            if (!take_frame(opening))
                return;
            continue;
        }
        ssize_t n = recv(opening->fd, opening->in + opening->in_len, (size_t)more, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            fail(opening, n < 0 ? errno : EPIPE, "it closed the connection");
            return;
        }
        opening->in_len += (size_t)n;
    }
}

static int put_order(struct opening *opening, const struct guest_start *start, size_t strings_len)
{
    const struct carry_hello hello = {.version = FRAME_VERSION, .nonce = opening->nonce};
    int used = carry_hello_put(opening->out, sizeof opening->out, &hello);

    if (used < 0)
        return used;
    uint8_t *head = opening->out + used, *payload = head + FRAME_HEADER;
    size_t room = sizeof opening->out - (size_t)used - FRAME_HEADER;
    struct frame frame = {.type = FRAME_ATTACH};
    if (start) {
        int len = guest_start_put_head(payload, room, start);
        if (len < 0 || (size_t)len + strings_len > CARRY_START_MAX || (size_t)len + strings_len > room)
            return -EMSGSIZE;
        if (strings_len > 0)
            memcpy(payload + len, start->strings, strings_len);
        frame = (struct frame){.type = FRAME_START, .length = (uint32_t)((size_t)len + strings_len)};
    }
    frame_put_header(head, &frame);
    opening->out_len = (size_t)used + FRAME_HEADER + frame.length;
    return 0;
}

int opening_begin(struct opening *opening, int fd, const struct guest_start *start, size_t strings_len,
                  struct brig_err *err)
{
    opening->fd = fd;
    opening->in_len = opening->out_at = 0;
    opening->greeted = false;
    opening->on_io = (struct loop_source){.fd = -1, .fn = on_io, .ctx = opening};
    int r = getrandom(&opening->nonce, sizeof opening->nonce, 0) < 0 ? err_host(err, "nonce") : 0;
    if (r == 0 && (r = put_order(opening, start, strings_len)) < 0)
        r = err_set(err, BRIG_E_LIMIT, -r, "places of the sandbox: longer than %u bytes", CARRY_START_MAX);
    if (r == 0)
        r = loop_add(opening->loop, &opening->on_io, fd, EPOLLIN | EPOLLOUT, err);
    if (r < 0)
        base_close_fd(&opening->fd);
    return r;
}
