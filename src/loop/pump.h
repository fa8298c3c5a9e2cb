/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pump.h: moves bytes from a descriptor to a callback, with backpressure. All data is streamed in this one way.
 *
 *   pump_init(&pump, loop, fd, chunk, sizeof(chunk), on_data, on_end, ctx);   does not read yet
 *   pump_proceed(&pump, err);   reads whenever there is something
 *   pump_stop(&pump);           leaves the data in the kernel, so the writer blocks, until the next pump_proceed()
 *   pump_done(&pump);           forgets the descriptor; a second call does nothing
 *
 * The descriptor is not owned and must not block. A descriptor that epoll cannot watch (a regular file) is always
 * ready. The chunk belongs to the caller and holds data only during on_data, so many pumps of one loop may share one.
 * on_data may stop, proceed or end any pump, its own included, but must not free the struct. on_end is the last call
 * and may free it.
 */
#ifndef BRIG_LOOP_PUMP_H
#define BRIG_LOOP_PUMP_H

#include "loop/loop.h"

struct pump;
typedef void pump_data_fn(struct pump *pump, const void *data, size_t len);
/*
 * Called once. error is 0 at the end of the stream (also when the other side of a PTY is closed), else a negative
 * errno.
 */
typedef void pump_end_fn(struct pump *pump, int error);

enum pump_state { PUMP_STOPPED, PUMP_FLOWING, PUMP_ENDED, PUMP_STATE_MAX };

struct pump {
    int fd; /* -1 after the end */
    void *ctx;
    uint64_t bytes; /* The number of bytes that on_data has got so far. */
    enum pump_state state;
    /* private */
    struct loop *loop;
    struct loop_source source;
    struct loop_timer timer; /* Replaces epoll where that answers EPERM. */
    pump_data_fn *on_data;
    pump_end_fn *on_end;
    char *chunk;
    size_t chunk_size;
};

void pump_init(struct pump *pump, struct loop *loop, int fd, char *chunk, size_t chunk_size, pump_data_fn *on_data,
               pump_end_fn *on_end, void *ctx);
int pump_proceed(struct pump *pump, struct brig_err *err) MUST_CHECK;
void pump_stop(struct pump *pump);
void pump_done(struct pump *pump); /* Does not call on_end. */

/*
 * Reads what is there at this moment, at most max bytes (rounded up to a chunk), without waiting and in any state. It
 * is for a writer that may never close its end. It stops early when on_data stops or ends the pump.
 */
void pump_drain(struct pump *pump, uint64_t max);

#endif
