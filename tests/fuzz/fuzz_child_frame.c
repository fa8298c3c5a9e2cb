/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program says on its channel (sandbox/child/child_frame.c): the first byte is the size of the pieces that it
 * comes in, the second the limit. However it is cut, the same frame comes out, never more than the limit, and never
 * more memory than what came.
 */
#include "fuzz.h"

#include "codec/wire/le.h"
#include "sandbox/child/child_private.h"

static void feed(struct frames *frames, const uint8_t *data, size_t size, size_t piece)
{
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        FUZZ_CHECK(frames_take(frames, data + at, n) == 0);
        FUZZ_CHECK(frames->payload.len <= frames->max && frames->payload.len <= at + n);
        FUZZ_CHECK(!(frames->complete && frames->too_large));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frames cut = {0}, whole = {0};

    if (size < 2)
        return 0;
    size_t piece = data[0] ? data[0] : 1, max = (size_t)data[1] * 16;
    data += 2;
    size -= 2;
    frames_begin(&cut, max);
    frames_begin(&whole, max);
    feed(&cut, data, size, piece);
    feed(&whole, data, size, size ? size : 1);
    FUZZ_CHECK(cut.complete == whole.complete && cut.too_large == whole.too_large && cut.more == whole.more &&
               cut.payload.len == whole.payload.len);
    FUZZ_CHECK(cut.payload.len == 0 || memcmp(cut.payload.data, whole.payload.data, cut.payload.len) == 0);
    if (size >= 4) {
        uint32_t len = le_get_u32(data);
        FUZZ_CHECK(whole.too_large == (len > max));
        FUZZ_CHECK(whole.complete == (len <= max && size - 4 >= len));
        FUZZ_CHECK(whole.too_large || whole.more == (size - 4 > len));
        FUZZ_CHECK(whole.payload.len == 0 || memcmp(whole.payload.data, data + 4, whole.payload.len) == 0);
    }
    frames_done(&cut);
    frames_done(&whole);
    return 0;
}
