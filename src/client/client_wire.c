/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_wire.c: moves bytes to and from the daemon. The socket does not block; poll() waits, with the request's time
 * limit, which counts from the last byte that moved, and with the descriptor that cancels.
 */
#include <poll.h>
#include <sys/socket.h>

#include "base/err.h"
#include "client/internal.h"

static int lost(struct brig_err *err, const struct client *client, int errnum)
{
    return err_set(err, BRIG_E_GONE, errnum, "%s: the connection broke", client->where);
}

int wire_wait(const struct client *client, int events, int other_fd, struct brig_err *err)
{
    struct pollfd fds[] = {
        {.fd = client->fd,
         .events = (short)((events & WIRE_READABLE ? POLLIN : 0) | (events & WIRE_WRITABLE ? POLLOUT : 0))},
        {.fd = other_fd, .events = POLLIN},
        {.fd = client->cancel_fd, .events = POLLIN},
    };
    int limit = client->timeout_ms == CLIENT_NO_TIMEOUT ? -1 : (int)client->timeout_ms;
    int n;

    do
        n = poll(fds, ARRAY_SIZE(fds), limit);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_host(err, "poll");
    if (fds[2].revents != 0) {
        err_set(err, BRIG_E_GONE, 0, "cancelled");
        return -ECANCELED;
    }
    if (n == 0) {
        err_set(err, BRIG_E_TIMEOUT, 0, "%s: no answer for %u s", client->where, client->timeout_ms / 1000);
        return -ETIMEDOUT;
    }
    int ready = fds[1].revents != 0 ? WIRE_OTHER : 0;
    if (fds[0].revents & POLLIN)
        ready |= WIRE_READABLE;
    if (fds[0].revents & POLLOUT)
        ready |= WIRE_WRITABLE;
    if (fds[0].revents & (POLLERR | POLLHUP)) /* the next call on it says what */
        ready |= WIRE_READABLE | (events & WIRE_WRITABLE);
    return ready;
}

ssize_t wire_send_some(struct client *client, const void *data, size_t len, struct brig_err *err)
{
    ssize_t n;

    do
        n = send(client->fd, data, len, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? 0 : lost(err, client, errno);
    return n;
}

int wire_send(struct client *client, const void *data, size_t len, struct brig_err *err)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = wire_send_some(client, at, len, err);
        int r = n > 0 ? 0 : n < 0 ? (int)n : wire_wait(client, WIRE_WRITABLE, -1, err);
        if (r < 0)
            return r;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t wire_receive(struct client *client, void *data, size_t size, struct brig_err *err)
{
    for (;;) {
        ssize_t n = recv(client->fd, data, size, 0);
        if (n >= 0)
            return n;
        int r = 0;
        if (errno == EAGAIN)
            r = wire_wait(client, WIRE_READABLE, -1, err);
        else if (errno != EINTR)
            r = lost(err, client, errno);
        if (r < 0)
            return r;
    }
}
