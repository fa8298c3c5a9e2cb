/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listener.c: the sockets from inside a sandbox's network namespace. They come from the controller; a descriptor that
 * is not of the announced kind is refused. A bounded number of connections is accepted per round, so that a burst of
 * one sandbox does not delay the others. None is accepted while too many events of the slot wait for the controller, or
 * while no descriptors are left.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "egress/egress_priv.h"

#define BATCH 32
#define FREEBIND_V6 78 /* IPV6_FREEBIND (Linux 4.15); not in libc's headers */
#define RETRY_NS (50 * NS_PER_MS)

static void on_ready(struct loop_source *source, uint32_t events);

static int watch(struct listener *listener, struct brig_err *err)
{
    struct loop *loop = listener->slot->egress->loop;

    if (listener->fd < 0 || listener->source.slot != 0)
        return 0;
    return loop_add(loop, &listener->source, listener->fd, EPOLLIN, err);
}

static void on_retry(struct loop_timer *timer)
{
    struct listener *listener = timer->ctx;

    if (!listener->slot->paused && watch(listener, NULL) < 0)
        listener_close(listener);
}

/* Out of descriptors or memory: the connection stays in the kernel's queue for a moment. */
static void hold(struct listener *listener)
{
    struct loop *loop = listener->slot->egress->loop;

    loop_remove(loop, &listener->source);
    if (loop_timer_set(loop, &listener->retry, loop_now_ns() + RETRY_NS, NULL) < 0)
        listener_close(listener);
}

static void listeners_pause(struct slot *slot)
{
    if (slot->paused)
        return;
    slot->paused = slot->egress->paused = true;
    for (size_t i = 0; i < slot->n_listeners; i++) {
        loop_remove(slot->egress->loop, &slot->listeners[i].source);
        loop_timer_clear(slot->egress->loop, &slot->listeners[i].retry);
    }
}

void listeners_resume(struct slot *slot)
{
    slot->paused = false;
    for (size_t i = 0; i < slot->n_listeners; i++) {
        if (watch(&slot->listeners[i], NULL) < 0)
            hold(&slot->listeners[i]);
    }
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static int option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -1 : value;
}

static bool is_what_was_said(int fd, const struct gate_listener *what)
{
    bool udp = what->kind == GATE_DNS_UDP;

    return option(fd, SO_DOMAIN) == what->family && option(fd, SO_TYPE) == (udp ? SOCK_DGRAM : SOCK_STREAM) &&
           option(fd, SO_PROTOCOL) == (udp ? IPPROTO_UDP : IPPROTO_TCP) && (udp || option(fd, SO_ACCEPTCONN) == 1);
}

/* Where a datagram was sent to decides where the answer comes from. */
static int ask_for_pktinfo(int fd, int family)
{
    int on = 1;

    /* In IPv6 a route that makes every address local is not enough to send from one of them. */
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, FREEBIND_V6, &on, sizeof on) < 0)
        return -1;
    if (family == AF_INET6)
        return setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
    return setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
}

int listener_open(struct listener *listener, struct slot *slot, int sock, const struct gate_listener *what,
                  struct brig_err *err)
{
    AUTO_FD int fd = sock;

    if (!is_what_was_said(fd, what))
        return err_usage(err, "the listener of port %u is not a listening socket of its kind", what->port);
    int r = fd_set_nonblock(fd);
    if (r < 0 || (what->kind == GATE_DNS_UDP && ask_for_pktinfo(fd, what->family) < 0))
        return err_host(err, "the listener of port %u", what->port);
    listener_close(listener); /* of a controller that was restarted: the same socket again */
    *listener = (struct listener){.slot = slot,
                                  .fd = take_fd(&fd),
                                  .port = what->port,
                                  .kind = what->kind,
                                  .family = what->family,
                                  .source = {.fn = on_ready, .ctx = listener},
                                  .retry = {.fn = on_retry, .ctx = listener}};
    share_charge(slot, SHARE_LISTENERS, 1); /* slot_listen() has asked for all of them */
    return slot->paused ? 0 : watch(listener, err);
}

void listener_close(struct listener *listener)
{
    if (listener->fd < 0)
        return;
    loop_remove(listener->slot->egress->loop, &listener->source);
    loop_timer_clear(listener->slot->egress->loop, &listener->retry);
    base_close_fd(&listener->fd);
    share_give(listener->slot, SHARE_LISTENERS, 1);
}

/* ---- accepting ------------------------------------------------------------------------------------------------ */

/* Accepted, so that the sandbox is told at once and in the same words as for any refusal. */
static void turn_away(int fd)
{
    const struct linger now = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static bool within_limits(struct slot *slot)
{
    if (slot->counts.open >= slot->limits.connections) {
        slot_tell_limit(slot, TOLD_OPEN, BRIG_LIMIT_CONNECTIONS, "too many connections are open (limits.connections)");
        return false;
    }
    if (!share_has(slot, SHARE_CONNECTIONS, CONN_DESCRIPTORS)) {
        slot_tell_limit(slot, TOLD_SHARE, BRIG_LIMIT_CONNECTIONS,
                        "the organisation has its share of all connections open");
        return false;
    }
    if (!bucket_take(&slot->starts, loop_now_ns(), 1)) {
        slot_tell_limit(slot, TOLD_RATE, BRIG_LIMIT_CONNECTIONS,
                        "too many connections in a second (limits.connections_per_second)");
        return false;
    }
    return true;
}

static void accepted(struct listener *listener, int fd)
{
    struct slot *slot = listener->slot;

    if (listener->kind == GATE_DNS_TCP) {
        dns_tcp_accept(slot, fd);
    } else if (!within_limits(slot)) {
        slot->counts.denied++;
        turn_away(fd);
    } else {
        conn_accept(slot, fd, (enum gate_kind)listener->kind);
    }
}

static void on_ready(struct loop_source *source, uint32_t events UNUSED)
{
    struct listener *listener = source->ctx;

    if (outbox_full(listener->slot)) {
        listeners_pause(listener->slot);
        return;
    }
    if (listener->kind == GATE_DNS_UDP) {
        dns_udp_ready(listener);
        return;
    }
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                hold(listener);
            else if (errno == EINTR || errno == ECONNABORTED)
                continue;
            return; /* EAGAIN: that was all. Others concern one connection only (accept(2)) */
        }
        accepted(listener, fd);
        if (outbox_full(listener->slot)) {
            listeners_pause(listener->slot);
            return;
        }
    }
}
