/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump.h: bytes from a descriptor to a callback, with backpressure. Data is streamed in this one way only.
 *
 *   pump_init(&pump, loop, fd, chunk, sizeof(chunk), on_data, on_end, ctx);   not reading yet
 *   pump_proceed(&pump, err);   read whenever there is something
 *   pump_stop(&pump);           leave it in the kernel (so the writer blocks) until the next pump_proceed()
 *   pump_done(&pump);           forget the descriptor; idempotent
 *
 * The descriptor is not owned and must not block; one that epoll cannot watch (a regular file) is always ready. The
 * chunk is the caller's and holds data only during on_data, so many pumps of one loop may share one. on_data may
 * stop, proceed or end any pump, its own included, but not free the struct; on_end is the last call and may free it.
 */
#ifndef BRIG_LOOP_PUMP_H
#define BRIG_LOOP_PUMP_H

#include "loop/loop.h"

struct pump;
typedef void pump_data_fn(struct pump *pump, const void *data, size_t len);
/* error: 0 at the end of the stream (a PTY whose other side is closed included), else a negative errno. Called once. */
typedef void pump_end_fn(struct pump *pump, int error);

enum pump_state { PUMP_STOPPED, PUMP_FLOWING, PUMP_ENDED, PUMP_STATE_MAX };

struct pump {
    int fd; /* -1 after the end */
    void *ctx;
    uint64_t bytes; /* handed to on_data so far */
    enum pump_state state;
    /* private */
    struct loop *loop;
    struct loop_source source;
    struct loop_timer timer; /* stands in for epoll where that says EPERM */
    pump_data_fn *on_data;
    pump_end_fn *on_end;
    char *chunk;
    size_t chunk_size;
};

void pump_init(struct pump *pump, struct loop *loop, int fd, char *chunk, size_t chunk_size, pump_data_fn *on_data,
               pump_end_fn *on_end, void *ctx);
int pump_proceed(struct pump *pump, struct brig_err *err) MUST_CHECK;
void pump_stop(struct pump *pump);
void pump_done(struct pump *pump); /* on_end is not called */

/*
 * Reads what is there at this moment, at most max bytes (rounded up to a chunk), without waiting and whatever the
 * state was: for a writer that may never close its end. Stops early when on_data stopped or ended the pump.
 */
void pump_drain(struct pump *pump, uint64_t max);

#endif
