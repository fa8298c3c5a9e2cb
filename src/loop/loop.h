/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h: a small epoll loop with timers, for one thread. Sources and timers are embedded in the structs of their
 * owners; a registration allocates nothing beyond the loop's own tables. A source or timer that is all zeroes counts as
 * not registered.
 *
 * A callback may add or remove any source or timer, its own included; a source that is removed during a round is not
 * called again in that round. A callback may call loop_run_once(). Then others may have seen an event before it is
 * delivered, so descriptors should not block.
 */
#ifndef BRIG_LOOP_LOOP_H
#define BRIG_LOOP_LOOP_H

#include <brig.h>

#include "base/base.h"

struct loop;
struct loop_source;
struct loop_timer;

typedef void loop_io_fn(struct loop_source *source, uint32_t events);
typedef void loop_timer_fn(struct loop_timer *timer);

struct loop_source {
    int fd;        /* The descriptor, or -1 when it is not registered. The loop does not own it. */
    uint32_t slot; /* Private: the place in the loop's table + 1, or 0 when it is not registered. */
    loop_io_fn *fn;
    void *ctx;
};

struct loop_timer {
    loop_timer_fn *fn;
    void *ctx;
    /*
     * Private: the position in the heap + 1 (0: not armed), the deadline, and the order of arming for equal deadlines.
     */
    size_t pos;
    uint64_t at_ns;
    uint64_t seq;
};

int loop_create(struct loop **ret, struct brig_err *err) MUST_CHECK;
void loop_destroy(struct loop *loop); /* Forgets all sources and timers. loop may be NULL. */
/*
 * Returns a descriptor that is readable when loop_run_once() has something to do, timers included, or a negative errno.
 * The loop owns it.
 */
int loop_fd(const struct loop *loop);
uint64_t loop_now_ns(void); /* CLOCK_MONOTONIC */

/* Watches a descriptor. events are EPOLLIN, EPOLLOUT, ... (level-triggered). loop_add() sets source->fd. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events, struct brig_err *err) MUST_CHECK;
int loop_modify(struct loop *loop, struct loop_source *source, uint32_t events, struct brig_err *err) MUST_CHECK;
/* Call it before the descriptor is closed. A second call does nothing. */
void loop_remove(struct loop *loop, struct loop_source *source);

/*
 * Arms or moves a timer. If its time has passed, it is due in the next round. Timers with equal deadlines fire in the
 * order in which they were set.
 */
int loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t at_ns, struct brig_err *err) MUST_CHECK;
void loop_timer_clear(struct loop *loop, struct loop_timer *timer); /* A second call does nothing. */

/*
 * Waits at most timeout_ms (-1: without limit) for the first event. Then handles up to 64 sources that are ready and
 * every timer that is due. Returns 0 or a negative errno. If a signal handler ran, the wait ends early with 0.
 */
int loop_run_once(struct loop *loop, int timeout_ms, struct brig_err *err) MUST_CHECK;

#endif
