/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump.c: the pump. It reads one chunk per event, so that a flood on one descriptor leaves the others and the timers
 * their turn. Only when the writer is gone (EPOLLHUP), and no more than the kernel's buffer can be left, it reads to
 * the end at once.
 *
 * A stopped pump is taken out of epoll; it is not left in with no events, because EPOLLHUP cannot be masked and would
 * make the loop spin.
 */
#include "loop/pump.h"

#include <sys/epoll.h>

#include "base/err.h"

static void pump_end(struct pump *pump, int error)
{
    pump_done(pump);
    pump->on_end(pump, error);
}

/* Reads one chunk. Returns bytes, 0 when there is nothing now, or -1: the pump has ended and may be freed memory. */
static ssize_t pump_read(struct pump *pump)
{
    ssize_t n = RETRY(read(pump->fd, pump->chunk, pump->chunk_size));
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0) {
        /* EIO is how a PTY master reports that the last slave is closed. */
        pump_end(pump, n == 0 || errno == EIO ? 0 : -errno);
        return -1;
    }
    pump->bytes += (uint64_t)n;
    pump->on_data(pump, pump->chunk, (size_t)n);
    return n;
}

static void on_ready(struct loop_source *source, uint32_t events)
{
    struct pump *pump = source->ctx;
    bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
    ssize_t n;

    do {
        n = pump_read(pump);
    } while (n > 0 && hung_up && pump->state == PUMP_FLOWING);
}

static void on_turn(struct loop_timer *timer)
{
    struct pump *pump = timer->ctx;

    if (pump_read(pump) < 0 || pump->state != PUMP_FLOWING)
        return;
    /* The slot in the heap was free a moment ago, so this cannot run out of memory; if it fails anyway, say so. */
    int r = loop_timer_set(pump->loop, &pump->timer, 0, NULL);
    if (r < 0)
        pump_end(pump, r);
}

void pump_init(struct pump *pump, struct loop *loop, int fd, char *chunk, size_t chunk_size, pump_data_fn *on_data,
               pump_end_fn *on_end, void *ctx)
{
    *pump = (struct pump){
        .fd = fd,
        .ctx = ctx,
        .state = PUMP_STOPPED,
        .loop = loop,
        .source = {.fd = -1, .fn = on_ready, .ctx = pump},
        .timer = {.fn = on_turn, .ctx = pump},
        .on_data = on_data,
        .on_end = on_end,
        .chunk = chunk,
        .chunk_size = chunk_size,
    };
}

int pump_proceed(struct pump *pump, struct brig_err *err)
{
    if (pump->state != PUMP_STOPPED)
        return 0;
    int r = loop_add(pump->loop, &pump->source, pump->fd, EPOLLIN, NULL);
    if (r == -EPERM)
        r = loop_timer_set(pump->loop, &pump->timer, 0, NULL);
    if (r < 0)
        return err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_HOST, r, "read from descriptor %d", pump->fd);
    pump->state = PUMP_FLOWING;
    return 0;
}

void pump_stop(struct pump *pump)
{
    if (pump->state != PUMP_FLOWING)
        return;
    loop_remove(pump->loop, &pump->source);
    loop_timer_clear(pump->loop, &pump->timer);
    pump->state = PUMP_STOPPED;
}

void pump_done(struct pump *pump)
{
    pump_stop(pump);
    pump->state = PUMP_ENDED;
    pump->fd = -1;
}

void pump_drain(struct pump *pump, uint64_t max)
{
    enum pump_state before = pump->state;
    uint64_t done = 0;

    while (pump->state == before && pump->state != PUMP_ENDED && done < max) {
        ssize_t n = pump_read(pump);
        if (n <= 0)
            return;
        done += (uint64_t)n;
    }
}
