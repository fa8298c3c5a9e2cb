/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of frames and the small messages inside them, as the engine side reads them from a brig-init that may have
 * been taken over. What is accepted must encode to the same bytes again, and no prefix may be judged differently.
 */
#include "fuzz.h"

#include "codec/wire/frame.h"
#include "codec/wire/guest_msg.h"

static void check_payload(const struct frame *frame)
{
    uint8_t again[GUEST_STARTED_SIZE];
    const uint8_t *in = frame->payload;
    size_t len = frame->length;
    struct guest_hello hello;
    struct guest_started started;
    struct guest_exited exited;
    uint32_t number;

    if (guest_hello_parse(in, len, &hello) == 0) {
        FUZZ_CHECK(guest_hello_put(again, sizeof(again), &hello) == GUEST_HELLO_SIZE);
        FUZZ_CHECK(memcmp(again, in, GUEST_HELLO_SIZE) == 0);
        FUZZ_CHECK(guest_hello_agree(&hello, &number) < 0 || number == FRAME_VERSION || number + 1 == FRAME_VERSION);
    }
    if (guest_started_parse(in, len, &started) == 0) {
        FUZZ_CHECK(guest_started_put(again, sizeof(again), &started) == GUEST_STARTED_SIZE);
        if (len == GUEST_STARTED_SIZE)
            FUZZ_CHECK(memcmp(again, in, len) == 0);
        for (size_t i = 0; i < BRIG_LAYER_MAX; i++) {
            FUZZ_CHECK(reading_by_text((enum reading_by)started.readings[i].by) != NULL);
            FUZZ_CHECK(reading_why_text((enum reading_why)started.readings[i].why) != NULL);
        }
    }
    if (guest_exited_parse(in, len, &exited) == 0) {
        FUZZ_CHECK(guest_exited_put(again, sizeof(again), &exited) == GUEST_EXITED_SIZE);
        FUZZ_CHECK(memcmp(again, in, GUEST_EXITED_SIZE) == 0);
    }
    if (guest_signal_parse(in, len, &number) == 0)
        FUZZ_CHECK(number >= 1 && number <= 64 && len == GUEST_SIGNAL_SIZE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    while (size > 0) {
        struct frame frame;
        uint8_t header[FRAME_HEADER];
        int n = frame_parse(data, size, &frame);

        if (n <= 0) {
            FUZZ_CHECK(n == 0 || n == -EPROTO);
            break;
        }
        FUZZ_CHECK((size_t)n == FRAME_HEADER + frame.length && (size_t)n <= size);
        FUZZ_CHECK(frame.payload == data + FRAME_HEADER);
        frame_put_header(header, &frame);
        FUZZ_CHECK(memcmp(header, data, FRAME_HEADER) == 0);
        struct frame cut;
        FUZZ_CHECK(frame_parse(data, (size_t)n - 1, &cut) == 0);
        check_payload(&frame);
        data += n;
        size -= (size_t)n;
    }
    return 0;
}
