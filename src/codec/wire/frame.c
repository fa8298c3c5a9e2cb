/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.c: frame headers. The reader is strict: this version has the types of frame.h, one flag and one stream.
 * Anything else means that the two sides do not understand each other, and reading on would not help.
 */
#include "codec/wire/frame.h"

#include "codec/wire/le.h"

void frame_put_header(uint8_t out[FRAME_HEADER], const struct frame *frame)
{
    le_put_u32(out, frame->length);
    le_put_u16(out + 4, frame->type);
    le_put_u16(out + 6, frame->flags);
    le_put_u32(out + 8, frame->stream);
    le_put_u32(out + 12, frame->request);
}

void frame_get_header(const uint8_t in[FRAME_HEADER], struct frame *ret)
{
    ret->length = le_get_u32(in);
    ret->type = le_get_u16(in + 4);
    ret->flags = le_get_u16(in + 6);
    ret->stream = le_get_u32(in + 8);
    ret->request = le_get_u32(in + 12);
    ret->payload = in + FRAME_HEADER;
}

int frame_parse(const uint8_t *buf, size_t len, struct frame *ret)
{
    struct frame frame;

    if (len < FRAME_HEADER)
        return 0;
    frame_get_header(buf, &frame);
    /* Judged by the header alone, so that nobody waits for the rest of a frame that will be refused. */
    if (frame.length > FRAME_PAYLOAD_MAX || frame.type == 0 || frame.type >= FRAME_TYPE_MAX ||
        (frame.flags & ~FRAME_MORE) != 0 || frame.stream != 0)
        return -EPROTO;
    /* Only START is long enough to be cut; an empty piece that promises more would be a frame without progress. */
    if ((frame.flags & FRAME_MORE) != 0 && (frame.type != FRAME_START || frame.length == 0))
        return -EPROTO;
    if (len - FRAME_HEADER < frame.length)
        return 0;
    *ret = frame;
    return (int)(FRAME_HEADER + frame.length);
}
