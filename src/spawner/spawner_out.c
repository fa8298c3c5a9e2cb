/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawner_out.c: messages to the engine. They never block: what the engine is too busy to take waits here, because it
 * may be waiting for us. While much waits, nothing more is read from it (spawner.c), so an engine that was taken over,
 * and asks and never listens, fills its own socket and not our memory. The number of sandboxes bounds the messages that
 * they send unasked.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "jail/sys.h"
#include "spawner/spawner.h"

/* More than any library's host can have runs (each has three descriptors): such a host may well not listen while it
 * asks. */
#define QUEUE_MUCH 32768u

struct wire_queued {
    struct wire_queued *next;
    size_t len, n_fds;
    int fds[WIRE_FDS];
    char msg[];
};

static void queue_free(struct wire_queued *queued)
{
    fd_close_all(queued->fds, queued->n_fds);
    mem_free(queued);
}

bool spawner_may_read(const struct spawner *spawner)
{
    return spawner->n_queued < QUEUE_MUCH;
}

static void watch_engine(struct spawner *spawner)
{
    uint32_t events = (spawner_may_read(spawner) ? (uint32_t)EPOLLIN : 0) | (spawner->queue ? (uint32_t)EPOLLOUT : 0);

    if (events == spawner->engine_events)
        return;
    spawner->engine_events = events;
    if (loop_modify(spawner->loop, &spawner->on_engine, events, NULL) < 0)
        spawner->stop = true;
}

static int enqueue(struct spawner *spawner, const void *msg, size_t len, const int *fds, size_t n_fds)
{
    struct wire_queued *queued = n_fds <= WIRE_FDS ? mem_alloc(sizeof *queued + len) : NULL;

    if (!queued)
        return -ENOMEM;
    *queued = (struct wire_queued){.len = len};
    memcpy(queued->msg, msg, len);
    for (; queued->n_fds < n_fds; queued->n_fds++)
        if ((queued->fds[queued->n_fds] = fcntl(fds[queued->n_fds], F_DUPFD_CLOEXEC, SANDBOX_FD_MIN)) < 0) {
            queue_free(queued);
            return -EMFILE;
        }
    if (spawner->queue)
        spawner->queue_end->next = queued;
    else
        spawner->queue = queued;
    spawner->queue_end = queued;
    spawner->n_queued++;
    watch_engine(spawner);
    return 0;
}

void spawner_flush(struct spawner *spawner)
{
    while (spawner->queue) {
        struct wire_queued *first = spawner->queue;
        int r = fd_send_nowait(spawner->engine_fd, first->msg, first->len, first->fds, first->n_fds);
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            spawner->stop = true;
            return;
        }
        spawner->queue = first->next;
        spawner->n_queued--;
        queue_free(first);
    }
    watch_engine(spawner);
}

void spawner_drop_queue(struct spawner *spawner)
{
    for (struct wire_queued *next; spawner->queue; spawner->queue = next) {
        next = spawner->queue->next;
        queue_free(spawner->queue);
    }
    spawner->n_queued = 0;
}

void spawner_send(struct spawner *spawner, const void *msg, const int *fds, size_t n_fds)
{
    const struct wire_head *head = msg;
    size_t len = wire_size(head->type);

    if (spawner->engine_fd < 0)
        return;
    int r = spawner->queue ? -EAGAIN : fd_send_nowait(spawner->engine_fd, msg, len, fds, n_fds);
    if (r == -EAGAIN)
        r = enqueue(spawner, msg, len, fds, n_fds);
    if (r < 0)
        spawner->stop = true; /* it can be told nothing any more: its end is as good as closed */
}

bool spawner_is_refusal(const struct brig_err *err)
{
    switch (err->code) {
    case BRIG_E_USAGE:
    case BRIG_E_REFUSED:
    case BRIG_E_UNSUPPORTED:
    case BRIG_E_NOT_FOUND:
    case BRIG_E_CONFLICT:
    case BRIG_E_LIMIT: return true;
    default: return false;
    }
}

static void fail(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err, bool distrust)
{
    struct wire_done done = {.head = {WIRE_MAGIC, WIRE_VERSION, WIRE_DONE, run->number},
                             .ended_at_ns = clock_real_ns(),
                             .limits = run->limits,
                             .distrust = distrust};

    done.refused = spawner_is_refusal(err);
    done.code = (uint32_t)err->code;
    done.cause = done.refused ? BRIG_CAUSE_POLICY : BRIG_CAUSE_HOST_ERROR;
    done.usage = (struct brig_usage){
        0, 0, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, BRIG_USAGE_UNKNOWN, 0, 0};
    str_assign(done.detail, err->message);
    spawner_send(spawner, &done, NULL, 0);
}

void spawner_fail(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err)
{
    fail(spawner, run, err, false);
}

void spawner_refuse(struct spawner *spawner, const struct run_spec *run, const struct brig_err *err)
{
    fail(spawner, run, err, true);
}
