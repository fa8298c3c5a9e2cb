/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames: golden bytes (docs/PROTOCOL.md has the same, tests/lint/test_protocol.py compares), every cut, every refusal.
 */
#include "unit.h"

#include "codec/wire/frame.h"

static const char golden_frame_hello[] = "08000000 0100 0000 00000000 00000000 01000000 07000000";
static const char golden_frame_start_piece[] = "03000000 0200 0100 00000000 07000000 616263";

static void frame_golden_bytes(void **state)
{
    uint8_t bytes[64], header[FRAME_HEADER];
    struct frame frame;
    size_t len;
    (void)state;

    len = unit_hex(golden_frame_hello, bytes, sizeof(bytes));
    assert_int_equal(frame_parse(bytes, len, &frame), 24);
    assert_int_equal(frame.type, FRAME_HELLO);
    assert_int_equal(frame.length, 8);
    assert_int_equal(frame.flags, 0);
    assert_ptr_equal(frame.payload, bytes + FRAME_HEADER);
    frame_put_header(header, &frame);
    assert_memory_equal(header, bytes, FRAME_HEADER);

    len = unit_hex(golden_frame_start_piece, bytes, sizeof(bytes));
    assert_int_equal(frame_parse(bytes, len, &frame), 19);
    assert_int_equal(frame.type, FRAME_START);
    assert_int_equal(frame.flags, FRAME_MORE);
    assert_int_equal(frame.request, 7);
    assert_memory_equal(frame.payload, "abc", 3);
    frame_put_header(header, &frame);
    assert_memory_equal(header, bytes, FRAME_HEADER);
}

static void frame_waits_for_the_rest(void **state)
{
    uint8_t bytes[64];
    size_t len = unit_hex(golden_frame_start_piece, bytes, sizeof(bytes));
    struct frame frame = {.request = 4711};
    (void)state;

    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(frame_parse(bytes, cut, &frame), 0);
        assert_int_equal(frame.request, 4711);
    }
    /* What follows is not looked at. */
    memset(bytes + len, 0xff, sizeof(bytes) - len);
    assert_int_equal(frame_parse(bytes, sizeof(bytes), &frame), (int)len);
}

static int parse_header(uint32_t length, uint16_t type, uint16_t flags, uint32_t stream)
{
    static uint8_t bytes[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    struct frame frame = {.length = length, .type = type, .flags = flags, .stream = stream};

    frame_put_header(bytes, &frame);
    return frame_parse(bytes, sizeof(bytes), &frame);
}

static void frame_refuses(void **state)
{
    uint8_t header[FRAME_HEADER];
    struct frame frame = {.length = FRAME_PAYLOAD_MAX + 1, .type = FRAME_START};
    (void)state;

    for (unsigned type = 1; type < FRAME_TYPE_MAX; type++)
        assert_int_equal(parse_header(0, (uint16_t)type, 0, 0), FRAME_HEADER);
    assert_int_equal(parse_header(0, 0, 0, 0), -EPROTO);
    assert_int_equal(parse_header(0, FRAME_TYPE_MAX, 0, 0), -EPROTO);
    assert_int_equal(parse_header(0, 0xffff, 0, 0), -EPROTO);
    assert_int_equal(parse_header(1, FRAME_START, FRAME_MORE, 0), FRAME_HEADER + 1);
    for (unsigned bit = 1; bit < 16; bit++)
        assert_int_equal(parse_header(1, FRAME_START, (uint16_t)(1u << bit), 0), -EPROTO);
    assert_int_equal(parse_header(0, FRAME_START, FRAME_MORE, 0), -EPROTO); /* no progress */
    assert_int_equal(parse_header(1, FRAME_HELLO, FRAME_MORE, 0), -EPROTO);
    assert_int_equal(parse_header(0, FRAME_START, 0, 1), -EPROTO);
    assert_int_equal(parse_header(0, FRAME_START, 0, UINT32_MAX), -EPROTO);
    assert_int_equal(parse_header(FRAME_PAYLOAD_MAX, FRAME_START, 0, 0), FRAME_HEADER + FRAME_PAYLOAD_MAX);
    assert_int_equal(parse_header(FRAME_PAYLOAD_MAX + 1, FRAME_START, 0, 0), -EPROTO);
    assert_int_equal(parse_header(UINT32_MAX, FRAME_START, 0, 0), -EPROTO);
    /* The header is enough to refuse it. */
    frame_put_header(header, &frame);
    assert_int_equal(frame_parse(header, sizeof(header), &frame), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_golden_bytes),
        cmocka_unit_test(frame_waits_for_the_rest),
        cmocka_unit_test(frame_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
