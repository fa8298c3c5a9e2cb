/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The opening of a connection as a carried brig-init reads it: what is accepted encodes to the same bytes again, no
 * prefix is judged differently, and nobody waits for more than the longest opening.
 */
#include "fuzz.h"

#include "codec/wire/guest_carry.h"

static void check_start(const uint8_t *payload, const struct guest_start *start)
{
    static uint8_t again[GUEST_START_HEAD + GUEST_WORKDIR_MAX];
    int n = guest_start_put_head(again, sizeof(again), start), refusal = carry_start_refusal(start);

    FUZZ_CHECK(n > 0 && (const char *)payload + n == start->strings);
    FUZZ_CHECK(memcmp(again, payload, (size_t)n) == 0);
    FUZZ_CHECK(refusal == 0 || refusal == EOPNOTSUPP);
    if (start->flags & GUEST_START_PLACES)
        FUZZ_CHECK(start->n_argv >= 1 && start->n_argv <= GUEST_PLACES_MAX && start->strings[0] == '/');
    if (refusal == 0)
        FUZZ_CHECK(start->n_env == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct carry_hello hello;
    struct carry_order order;
    uint8_t again[CARRY_HELLO_FRAME];
    int n = carry_hello_take(data, size, &hello);

    if (n <= 0) {
        FUZZ_CHECK(n == -EPROTO || (n == 0 && size < FRAME_HEADER + CARRY_HELLO_MAX));
        return 0;
    }
    FUZZ_CHECK((size_t)n <= size && (size_t)n <= FRAME_HEADER + CARRY_HELLO_MAX);
    FUZZ_CHECK(carry_hello_put(again, sizeof(again), &hello) == (int)sizeof(again));
    FUZZ_CHECK(memcmp(again + FRAME_HEADER, data + FRAME_HEADER, CARRY_HELLO_SIZE) == 0);
    FUZZ_CHECK(carry_hello_take(data, (size_t)n - 1, &hello) == 0);
    data += n;
    size -= (size_t)n;
    n = carry_order_take(data, size, &order);
    if (n <= 0) {
        FUZZ_CHECK(n == -EPROTO || (n == 0 && size < FRAME_HEADER + CARRY_START_MAX));
        return 0;
    }
    FUZZ_CHECK((size_t)n <= size && (!order.attach || n == (int)FRAME_HEADER));
    if (!order.attach)
        check_start(data + FRAME_HEADER, &order.start);
    return 0;
}
