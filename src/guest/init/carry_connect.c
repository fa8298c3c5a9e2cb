/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry_connect.c: `brig-init connect PATH`: connects stdin and stdout with the socket of a carried brig-init, for an
 * engine that can only execute something inside. A new one is a new connection, so it has a beginning and an end.
 *
 * It knows nothing of what it carries. Either side's end is its end, after what had been read is written; a reader that
 * has gone is an end as well. One buffer each way, and nothing is read while it is full.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define PIECE 65536u

struct half {
    int from, to;
    size_t begin, end;
    bool over; /* Nothing more comes. */
    uint8_t data[PIECE];
};

static struct half out, back;

/* Returns whether both ends live. */
static bool take(struct half *half)
{
    long got = raw_call3(SYS_read, half->from, half->data, sizeof(half->data));

    if (got == -EAGAIN || got == -EINTR)
        return true;
    half->begin = 0;
    half->end = got > 0 ? (size_t)got : 0;
    half->over = got <= 0;
    return got >= 0;
}

static bool give(struct half *half)
{
    long sent = raw_call3(SYS_write, half->to, half->data + half->begin, half->end - half->begin);

    if (sent == -EAGAIN || sent == -EINTR)
        return true;
    if (sent > 0)
        half->begin += (size_t)sent;
    return sent > 0;
}

/* Does what the poll has found. Returns whether it goes on. */
static bool move(struct half *half, const struct pollfd *from, const struct pollfd *to)
{
    bool empty = half->begin == half->end;

    if (empty && from->revents != 0 && !take(half))
        return false;
    if (half->begin < half->end && (to->revents & POLLOUT || empty) && !give(half))
        return false;
    if (half->begin == half->end && half->over)
        return false;
    return !(to->revents & (POLLERR | POLLNVAL)) && !(from->revents & POLLNVAL);
}

static int reach(const char *path)
{
    struct sockaddr_un address;

    if (words_address(path, &address) != 0)
        words_refuse(GUEST_EXIT_USAGE, "connect", path, "must be a path of 1 to 107 bytes");
    long fd = raw_call3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    long ret = raw_failed(fd) ? fd : raw_call3(SYS_connect, fd, &address, sizeof(address));
    if (ret != 0)
        words_fail(GUEST_EXIT_GONE, "connect", path, ret);
    return (int)fd;
}

/* stdout may be somebody's terminal, which would stay so: it is given back as it was. */
static long do_not_block(int fd)
{
    long flags = raw_call3(SYS_fcntl, fd, F_GETFL, 0);

    return raw_failed(flags) || raw_call3(SYS_fcntl, fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -1 : flags;
}

__attribute__((noreturn)) void connect_main(const char *path)
{
    const uint64_t pipe_signal = UINT64_C(1) << (SIGPIPE - 1);
    int fd = reach(path);
    bool live = true;

    raw_call4(SYS_rt_sigprocmask, SIG_BLOCK, &pipe_signal, NULL, sizeof(pipe_signal));
    const long flags = do_not_block(1);
    if (flags < 0 || do_not_block(fd) < 0)
        words_refuse(GUEST_EXIT_GONE, "connect", path, "stdout is not open");
    out.from = 0;
    out.to = back.from = fd;
    back.to = 1;
    while (live) {
        bool in_full = out.begin < out.end, back_full = back.begin < back.end;
        struct pollfd fds[3] = {
            {.fd = in_full ? -1 : 0, .events = POLLIN},
            {.fd = fd, .events = (short)((back_full ? 0 : POLLIN) | (in_full ? POLLOUT : 0))},
            {.fd = 1, .events = back_full ? POLLOUT : 0},
        };
        long ready = raw_call3(SYS_poll, fds, ARRAY_SIZE(fds), -1);

        if (ready == -EINTR)
            continue;
        /* The socket's events are of both halves: each takes its own. */
        struct pollfd sock_in = fds[1], sock_out = fds[1];
        sock_in.revents = (short)(fds[1].revents & ~POLLOUT);
        sock_out.revents = (short)(fds[1].revents & (POLLOUT | POLLERR | POLLNVAL));
        live = ready > 0 && move(&back, &sock_in, &fds[2]) && move(&out, &fds[0], &sock_out);
    }
    raw_call3(SYS_fcntl, 1, F_SETFL, flags);
    guest_exit(GUEST_EXIT_DONE);
}
