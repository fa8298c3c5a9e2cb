/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child_frame.c: reads frames of the runtime protocol from the bytes of a channel. Nothing is trusted: a length over
 * the limit is known from the head alone, and memory grows with the bytes that came, never with those that were
 * promised. One frame is taken; what follows it is only noted.
 */
#include "codec/wire/le.h"
#include "sandbox/child/child_private.h"

void frames_done(struct frames *frames)
{
    buf_done(&frames->payload);
    *frames = (struct frames){0};
}

void frames_begin(struct frames *frames, uint64_t max)
{
    frames_done(frames);
    frames->max = max;
    frames->payload = BUF_INIT((size_t)max);
}

int frames_take(struct frames *frames, const uint8_t *data, size_t len)
{
    while (len > 0 && frames->head_len < 4) {
        frames->head[frames->head_len++] = *data++;
        len--;
        if (frames->head_len == 4) {
            frames->len = le_get_u32(frames->head);
            frames->too_large = frames->len > frames->max;
            frames->complete = frames->len == 0;
        }
    }
    if (frames->head_len < 4 || frames->too_large)
        return 0;
    size_t left = (size_t)frames->len - frames->payload.len, take = len < left ? len : left;
    if (take > 0 && buf_append(&frames->payload, data, take) < 0)
        return -ENOMEM;
    frames->complete = frames->payload.len == frames->len;
    frames->more = frames->more || len > take;
    return 0;
}
