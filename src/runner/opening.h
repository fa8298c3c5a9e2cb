/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opening.h: the opening of a connection with a carried brig-init, from the host's side (codec/wire/guest_carry.h), on
 * a non-blocking socket in the loop. What comes after STARTED is left in the socket for whoever gets it.
 */
#ifndef BRIG_RUNNER_OPENING_H
#define BRIG_RUNNER_OPENING_H

#include "codec/wire/guest_carry.h"
#include "loop/loop.h"

struct opening {
    struct loop *loop;
    struct loop_source on_io;
    int fd; /* -1 when none is under way */
    uint64_t nonce;
    uint8_t out[CARRY_OPENING_MAX];
    size_t out_len, out_at;
    uint8_t in[1024];
    size_t in_len;
    bool greeted;
    /*
     * Called once. fd is the callee's; on failure it is -1 with err. started is what brig-init has read back, also if
     * a required layer is missing (started->missing), and then fd is -1 too.
     */
    void (*done)(void *ctx, int fd, const struct guest_started *started, const struct brig_err *err);
    void *ctx;
};
#define OPENING_INIT ((struct opening){.fd = -1, .on_io = {.fd = -1}})

/*
 * Owns fd, also on failure. start is NULL for ATTACH; its strings are n_argv paths one after the other, with
 * strings_len bytes.
 */
int opening_begin(struct opening *opening, int fd, const struct guest_start *start, size_t strings_len,
                  struct brig_err *err) MUST_CHECK;
void opening_drop(struct opening *opening); /* Nobody is told. */

#endif
