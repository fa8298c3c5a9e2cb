/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner_keep.c: sandboxes without an engine, from the end of one `brig serve` to the start of the next.
 *
 * Theory of operation. A supervisor that ends and keeps its sandboxes gives us what it holds: the engine's end of our
 * own socket (so that it does not close), a socket that listens in the run directory, that socket's file, and a text
 * about the set-up which we only store. From then on nobody asks for anything, and what we have to say waits in the
 * socket and our queue, as it does while an engine is busy.
 *
 *     spawner (keeps)                       the next supervisor
 *        |  <------------------------ connects   |
 *        |  KEPT: build; end, text, pidfd --->   |   copies: should it die now, nothing has changed
 *        |  <---------------------------- TAKE   |   we let go of ours: it is as if it had started us
 *
 * Who may: KEEP counts only with a listener of the very process that started (or took) us, which the kernel tells;
 * brigd, which has the same socket and may have been taken over, cannot make one. Only our own user may connect, and
 * TAKE comes from there alone. Once the socket's file is gone nobody could ever find us: then we end, sandboxes first.
 */
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

#define LOOK_NS (2 * NS_PER_SEC)

static void drop_peer(struct spawner *spawner)
{
    loop_remove(spawner->loop, &spawner->keep.on_peer);
    base_close_fd(&spawner->keep.peer_fd);
}

void spawner_keep_done(struct spawner *spawner)
{
    struct keep *keep = &spawner->keep;

    if (spawner->loop) {
        drop_peer(spawner);
        loop_remove(spawner->loop, &keep->on_listener);
        loop_timer_clear(spawner->loop, &keep->on_look);
    }
    fd_close_all(keep->fds, WIRE_KEEP_FDS);
}

static bool credentials(int fd, struct ucred *ret)
{
    socklen_t len = sizeof *ret;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &len) == 0 && ret->uid == geteuid();
}

/* The file of the socket is how the next one finds us, and removing it how an administrator ends what is kept. */
static void on_look(struct loop_timer *timer)
{
    struct spawner *spawner = timer->ctx;
    struct stat st;

    if (fstat(spawner->keep.fds[WIRE_KEEP_FILE], &st) < 0 || st.st_nlink == 0 ||
        loop_timer_set(spawner->loop, timer, clock_mono_ns() + LOOK_NS, NULL) < 0)
        spawner->stop = true;
}

static void on_peer(struct loop_source *source, uint32_t events UNUSED)
{
    struct spawner *spawner = source->ctx;
    union wire_any msg;
    size_t n_fds = 0;
    int fds[1];
    struct ucred peer;
    ssize_t n = fd_recv_nowait(spawner->keep.peer_fd, &msg, sizeof msg, fds, 1, &n_fds);

    if (n == -EAGAIN)
        return;
    fd_close_all(fds, n > 0 ? n_fds : 0);
    bool taken = n > 0 && wire_check(&msg, (size_t)n) == 0 && msg.head.type == WIRE_TAKE &&
                 credentials(spawner->keep.peer_fd, &peer);
    if (!taken) {
        drop_peer(spawner); /* it only looked, or died: we keep on */
        return;
    }
    spawner->engine_pid = peer.pid;
    spawner_keep_done(spawner);
}

/* One at a time, and it is our own user: a peer that says nothing holds up nobody but itself. */
static void on_listener(struct loop_source *source, uint32_t events UNUSED)
{
    struct spawner *spawner = source->ctx;
    struct keep *keep = &spawner->keep;
    struct wire_kept kept = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KEPT, 0}, .pid = (uint32_t)getpid()};
    struct ucred peer;
    AUTO_FD int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    AUTO_FD int self = (int)syscall(SYS_pidfd_open, getpid(), 0); /* it may count pids in another namespace */

    if (fd < 0 || self < 0 || !credentials(fd, &peer))
        return;
    const int give[WIRE_KEPT_FDS] = {keep->fds[WIRE_KEEP_END], keep->fds[WIRE_KEEP_TEXT], self};
    drop_peer(spawner);
    (void)!str_format(kept.build, sizeof kept.build, "%s %s", brig_version(), brig_commit());
    keep->on_peer = (struct loop_source){.fd = -1, .fn = on_peer, .ctx = spawner};
    if (fd_send_nowait(fd, &kept, sizeof kept, give, WIRE_KEPT_FDS) < 0 ||
        loop_add(spawner->loop, &keep->on_peer, fd, EPOLLIN, NULL) < 0)
        return;
    keep->peer_fd = take_fd(&fd);
}

/* Out of the numbers that children get a copy of. */
static bool store_fd(int *to, int *from)
{
    *to = fcntl(*from, F_DUPFD_CLOEXEC, SANDBOX_FD_MIN);
    return *to >= 0;
}

void spawner_keep(struct spawner *spawner, int *fds, size_t n_fds)
{
    struct keep *keep = &spawner->keep;
    struct ucred maker;

    if (n_fds != WIRE_KEEP_FDS || keep->fds[WIRE_KEEP_LISTENER] >= 0 || !credentials(fds[WIRE_KEEP_LISTENER], &maker) ||
        maker.pid != spawner->engine_pid || fd_set_nonblock(fds[WIRE_KEEP_LISTENER]) < 0) {
        spawner->stop = true;
        return;
    }
    for (size_t i = 0; i < WIRE_KEEP_FDS; i++)
        if (!store_fd(&keep->fds[i], &fds[i]))
            spawner->stop = true;
    keep->on_listener = (struct loop_source){.fd = -1, .fn = on_listener, .ctx = spawner};
    keep->on_look = (struct loop_timer){.fn = on_look, .ctx = spawner};
    if (spawner->stop ||
        loop_add(spawner->loop, &keep->on_listener, keep->fds[WIRE_KEEP_LISTENER], EPOLLIN, NULL) < 0 ||
        loop_timer_set(spawner->loop, &keep->on_look, clock_mono_ns() + LOOK_NS, NULL) < 0)
        spawner->stop = true;
}
