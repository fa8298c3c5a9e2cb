/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_io.c: the socket to the spawner. Nothing here blocks: what the socket would not take waits in a bounded queue,
 * and the next caller must come back later. The ends of boxes do not count against the bound and need no memory,
 * because a sandbox that cannot be ended would be worse than a long queue. They are sent after the queue, so after the
 * RUN that they end.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "provider/local/local.h"

#define QUEUE_MAX 4096u
#define BATCH 64

struct queued {
    struct queued *next;
    size_t len, n_fds;
    int fds[LOCAL_FDS];
    union wire_any msg;
};

static void watch(struct local *local)
{
    uint32_t events = EPOLLIN | (local->queue || local->kills ? (uint32_t)EPOLLOUT : 0);

    if (local->gone || events == local->events)
        return;
    /* If this fails, the rest waits for the next message. */
    if (loop_modify(local->provider.loop, &local->on_spawner, events, NULL) == 0)
        local->events = events;
}

static int send_now(struct local *local, const void *msg, size_t len, const int *fds, size_t n_fds)
{
    int r = fd_send_nowait(local->fd, msg, len, fds, n_fds);

    return r == -EAGAIN ? r : 0; /* whoever reads from the socket learns that the other side is gone, and tells */
}

static int enqueue(struct local *local, const void *msg, size_t len, int *fds, size_t n_fds, struct brig_err *err)
{
    struct queued *queued;

    if (local->n_queued >= QUEUE_MAX)
        return err_set(err, BRIG_E_BUSY, EBUSY, "the spawner does not keep up: %u requests wait for it", QUEUE_MAX);
    queued = mem_alloc(sizeof *queued);
    if (!queued)
        return err_nomem(err);
    queued->next = NULL;
    queued->len = len;
    for (queued->n_fds = 0; queued->n_fds < n_fds; queued->n_fds++)
        queued->fds[queued->n_fds] = take_fd(&fds[queued->n_fds]);
    memcpy(&queued->msg, msg, len);
    *(local->queue ? local->queue_end : &local->queue) = queued;
    local->queue_end = &queued->next;
    local->n_queued++;
    return 0;
}

int local_send(struct local *local, const void *msg, int *fds, size_t n_fds, struct brig_err *err)
{
    const struct wire_head *head = msg;
    size_t len = wire_size(head->type);
    int r = local->queue ? -EAGAIN : send_now(local, msg, len, fds, n_fds);

    if (r == -EAGAIN)
        r = enqueue(local, msg, len, fds, n_fds, err);
    fd_close_all(fds, n_fds); /* what waits has taken them */
    watch(local);
    return r;
}

static void flush(struct local *local)
{
    while (local->queue) {
        struct queued *first = local->queue;
        if (send_now(local, &first->msg, first->len, first->fds, first->n_fds) == -EAGAIN)
            break;
        local->queue = first->next;
        local->n_queued--;
        fd_close_all(first->fds, first->n_fds);
        mem_free(first);
    }
    while (!local->queue && local->kills) {
        struct wire_kill msg = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_KILL, local->kills->number},
                                .cause = BRIG_CAUSE_CANCELLED};
        if (send_now(local, &msg, sizeof msg, NULL, 0) == -EAGAIN)
            break;
        local_forget_kill(local->kills);
    }
    watch(local);
}

void local_kill(struct local_box *box)
{
    struct local *local = (struct local *)box->box.provider;

    if (box->ending)
        return;
    box->ending = box->kill_owed = true;
    box->kill_next = local->kills;
    local->kills = box;
    if (!local->gone)
        flush(local);
}

/* Mostly the first: few wait at once. */
void local_forget_kill(struct local_box *box)
{
    struct local *local = (struct local *)box->box.provider;

    for (struct local_box **at = &local->kills; box->kill_owed && *at; at = &(*at)->kill_next)
        if (*at == box) {
            *at = box->kill_next;
            break;
        }
    box->kill_owed = false;
}

void local_io_done(struct local *local)
{
    loop_remove(local->provider.loop, &local->on_spawner);
    for (struct queued *next; local->queue; local->queue = next) {
        next = local->queue->next;
        fd_close_all(local->queue->fds, local->queue->n_fds);
        mem_free(local->queue);
    }
    local->n_queued = 0;
}

void local_on_spawner(struct loop_source *source, uint32_t events)
{
    struct local *local = source->ctx;

    if (events & EPOLLOUT)
        flush(local);
    for (int i = 0; i < BATCH; i++) {
        union wire_any msg;
        int fds[WIRE_FDS];
        size_t n_fds = 0;
        ssize_t n = fd_recv_message(local->fd, &msg, sizeof msg, fds, WIRE_FDS, &n_fds);

        if (n == -EAGAIN)
            return;
        if (n <= 0 || wire_check(&msg, (size_t)n) < 0) {
            struct brig_err why;
            if (n > 0)
                fd_close_all(fds, n_fds);
            (void)err_set(&why, BRIG_E_GONE, 0,
                          n > 0 ? "the spawner is of another version" : "the spawner died, and every sandbox with it");
            local_on_gone(local, &why);
            return;
        }
        if (msg.head.type == WIRE_READY && msg.ready.err.code != BRIG_E_NONE && !local->renews) {
            msg.ready.err.message[sizeof msg.ready.err.message - 1] = '\0';
            fd_close_all(fds, n_fds);
            local_on_gone(local, &msg.ready.err);
            return;
        }
        local_on_message(local, &msg, fds, n_fds);
        fd_close_all(fds, n_fds); /* what was taken is -1 */
    }
}
