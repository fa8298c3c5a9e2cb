/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h: a small epoll loop with timers, single-threaded. Sources and timers are embedded in their owners'
 * structs (no allocation per registration beyond the loop itself). A callback may remove or add any source
 * or timer, its own included; a source removed during dispatch is not called again in that round. Sources and
 * timers that are all zeroes count as not registered. A callback may call loop_run_once(): then others may have
 * seen an event before it is delivered, so descriptors should not block.
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
    int fd;        /* -1 when not registered; not owned */
    uint32_t slot; /* private: place in the loop's table + 1 (0: not registered) */
    loop_io_fn *fn;
    void *ctx;
};

struct loop_timer {
    loop_timer_fn *fn;
    void *ctx;
    /* private: position in the heap + 1 (0: not armed), the deadline, and the order of arming for equal ones */
    size_t pos;
    uint64_t at_ns;
    uint64_t seq;
};

int loop_create(struct loop **ret, struct brig_err *err) MUST_CHECK;
void loop_destroy(struct loop *loop); /* takes NULL; sources and timers are simply forgotten */
/* Readable when loop_run_once() has something to do, timers included. Owned by the loop; or a negative errno. */
int loop_fd(const struct loop *loop);
uint64_t loop_now_ns(void); /* CLOCK_MONOTONIC */

/* events: EPOLLIN, EPOLLOUT, ... (level-triggered). add fills source->fd. */
int loop_add(struct loop *loop, struct loop_source *source, int fd, uint32_t events, struct brig_err *err) MUST_CHECK;
int loop_modify(struct loop *loop, struct loop_source *source, uint32_t events, struct brig_err *err) MUST_CHECK;
void loop_remove(struct loop *loop, struct loop_source *source); /* idempotent; before closing the fd */

/* Arms, or moves, a timer; one whose time has passed is due in the next round. Equal deadlines fire in the order set.
 */
int loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t at_ns, struct brig_err *err) MUST_CHECK;
void loop_timer_clear(struct loop *loop, struct loop_timer *timer); /* idempotent */

/*
 * Waits at most timeout_ms (-1: no limit) for the first event, then handles what is ready: up to 64 sources, then
 * every timer that is due. Returns 0 or -errno; a signal handler that ran ends the wait early with 0.
 */
int loop_run_once(struct loop *loop, int timeout_ms, struct brig_err *err) MUST_CHECK;

#endif
