/* SPDX-License-Identifier: Apache-2.0 */
/* The opening of a connection with a carried brig-init: golden bytes, every cut, every field out of range. */
#include "unit.h"

#include "codec/wire/guest_carry.h"
#include "codec/wire/le.h"

static const char golden_carry_hello[] = "10000000 0100 0000 00000000 00000000 01000000 00000000 8877665544332211";
static const char golden_carry_hello_answer[] =
    "10000000 0100 0000 00000000 00000000 01000000 18000000 8877665544332211";
static const char golden_carry_attach[] = "00000000 0600 0000 00000000 00000000";
static const char golden_carry_start[] =
    "70000000 0200 0000 00000000 00000000"
    "44000000 e8030000 e8030000 0000 0000 00000000 00000000" /* flags, uid, gid, rows, cols, profile, store_by */
    "00070000 00000000 00000000 00000000"                    /* require: caps, no_new_privs, seccomp; skip */
    "00000000 00000000 00000000 00000000"                    /* disk, inodes */
    "01000000 02000000 03000000 04000000 05000000 06000000 07000000 08000000"
    "00000000 00000000 01000000 00000000" /* landlock_abi, writable_root, n_argv, n_env */
    "2f00 2f6461746100";                  /* "/", "/data" */

static void hello_golden(void **state)
{
    struct carry_hello msg = {FRAME_VERSION, 0, UINT64_C(0x1122334455667788)}, back;
    uint8_t bytes[64] = {0};
    (void)state;

    assert_int_equal(carry_hello_put(bytes, CARRY_HELLO_FRAME - 1, &msg), -EMSGSIZE);
    assert_int_equal(carry_hello_put(bytes, sizeof(bytes), &msg), CARRY_HELLO_FRAME);
    unit_assert_hex(bytes, CARRY_HELLO_FRAME, golden_carry_hello);
    for (size_t cut = 0; cut < CARRY_HELLO_FRAME; cut++)
        assert_int_equal(carry_hello_take(bytes, cut, &back), 0);
    assert_int_equal(carry_hello_take(bytes, sizeof(bytes), &back), CARRY_HELLO_FRAME);
    assert_memory_equal(&back, &msg, sizeof(msg));
    msg.capabilities = GUEST_CAP_SERVICE | GUEST_CAP_CARRIED;
    assert_int_equal(carry_hello_put(bytes, sizeof(bytes), &msg), CARRY_HELLO_FRAME);
    unit_assert_hex(bytes, CARRY_HELLO_FRAME, golden_carry_hello_answer);
}

/* Each is refused by its header, or by its payload, whatever follows. */
static void hello_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {
        {0, 15},
        {0, CARRY_HELLO_MAX + 1},
        {0, UINT32_MAX},
        {4, FRAME_START},
        {4, FRAME_ATTACH},
        {4, 16},
        {4, FRAME_HELLO | 1u << 16 /* MORE */},
        {8, 1},
        {12, 1},
        {16, 0},
        {16, FRAME_VERSION + 2},
        {16, UINT32_MAX},
    };
    uint8_t bytes[FRAME_HEADER + CARRY_HELLO_MAX] = {0};
    struct carry_hello back;
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        unit_hex(golden_carry_hello, bytes, sizeof(bytes));
        le_put_u32(bytes + bad[i].at, bad[i].value);
        assert_int_equal(carry_hello_take(bytes, sizeof(bytes), &back), -EPROTO);
        if (bad[i].at < FRAME_HEADER) /* The header alone decides. */
            assert_int_equal(carry_hello_take(bytes, FRAME_HEADER, &back), -EPROTO);
    }
    unit_hex(golden_carry_hello, bytes, sizeof(bytes));
    le_put_u32(bytes, CARRY_HELLO_MAX); /* A later version's. */
    assert_int_equal(carry_hello_take(bytes, sizeof(bytes), &back), FRAME_HEADER + CARRY_HELLO_MAX);
    assert_int_equal(back.nonce, UINT64_C(0x1122334455667788));
}

static void orders_golden(void **state)
{
    struct guest_start msg = {.flags = GUEST_START_SERVICE | GUEST_START_PLACES,
                              .uid = 1000,
                              .gid = 1000,
                              .require = BRIG_LAYER_BIT(BRIG_LAYER_CAPS) | BRIG_LAYER_BIT(BRIG_LAYER_NO_NEW_PRIVS) |
                                         BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP),
                              .ns_host = {1, 2, 3, 4, 5, 6, 7, 8},
                              .n_argv = 1,
                              .workdir = "/"};
    struct frame frame = {.type = FRAME_START};
    uint8_t bytes[256];
    struct carry_order order;
    (void)state;

    int n = guest_start_put_head(bytes + FRAME_HEADER, sizeof(bytes) - FRAME_HEADER, &msg);
    assert_true(n > 0);
    memcpy(bytes + FRAME_HEADER + n, "/data", 6);
    frame.length = (uint32_t)n + 6;
    frame_put_header(bytes, &frame);
    size_t len = FRAME_HEADER + frame.length;
    unit_assert_hex(bytes, len, golden_carry_start);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(carry_order_take(bytes, cut, &order), 0);
    assert_int_equal(carry_order_take(bytes, len, &order), (int)len);
    assert_false(order.attach);
    assert_string_equal(order.start.strings, "/data");
    assert_int_equal(carry_start_refusal(&order.start), 0);

    len = unit_hex(golden_carry_attach, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(carry_order_take(bytes, cut, &order), 0);
    assert_int_equal(carry_order_take(bytes, len, &order), (int)len);
    assert_true(order.attach);
}

static void orders_refused(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
    } bad[] = {
        {0, CARRY_START_MAX + 1}, {4, FRAME_START | 1u << 16 /* MORE */}, {4, FRAME_HELLO}, {4, FRAME_SIGNAL},
        {4, FRAME_LEAF_READY},    {4, FRAME_ATTACH /* with a payload */}, {8, 1},
    };
    uint8_t bytes[256];
    struct carry_order order;
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        unit_hex(golden_carry_start, bytes, sizeof(bytes));
        le_put_u32(bytes + bad[i].at, bad[i].value);
        assert_int_equal(carry_order_take(bytes, FRAME_HEADER, &order), -EPROTO);
    }
    /* Places: none, too many, a variable beside them, a relative one, without SERVICE. */
    static const struct {
        size_t at;
        uint32_t value;
    } fields[] = {{16 + 96, 0}, {16 + 96, 2}, {16 + 100, 1}, {16 + 106, 0x2f64612e}, {16, 0x40}, {16, 0x45}};
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        size_t len = unit_hex(golden_carry_start, bytes, sizeof(bytes));
        le_put_u32(bytes + fields[i].at, fields[i].value);
        assert_int_equal(carry_order_take(bytes, len, &order), -EPROTO);
    }
}

static void too_many_places(void **state)
{
    uint8_t bytes[1024];
    struct carry_order order;
    (void)state;

    for (uint32_t n = GUEST_PLACES_MAX; n <= GUEST_PLACES_MAX + 1; n++) {
        unit_hex(golden_carry_start, bytes, sizeof(bytes));
        le_put_u32(bytes, 106 + 3 * n);
        le_put_u32(bytes + 16 + 96, n);
        for (uint32_t i = 0; i < n; i++)
            memcpy(bytes + 16 + 106 + 3 * i, "/x", 3);
        assert_int_equal(carry_order_take(bytes, 16 + 106 + 3 * n, &order),
                         n <= GUEST_PLACES_MAX ? (int)(16 + 106 + 3 * n) : -EPROTO);
    }
}

static void what_only_the_jail_can_do(void **state)
{
    struct guest_start start = {.flags = GUEST_START_SERVICE};
    (void)state;

    assert_int_equal(carry_start_refusal(&start), 0);
    start.flags |= GUEST_START_ROOT | GUEST_START_VOLUMES;
    assert_int_equal(carry_start_refusal(&start), 0);
    start.flags |= GUEST_START_LEAVES;
    assert_int_equal(carry_start_refusal(&start), EOPNOTSUPP);
    start.flags = GUEST_START_SERVICE | GUEST_START_ADOPT;
    assert_int_equal(carry_start_refusal(&start), EOPNOTSUPP);
    start.flags = GUEST_START_SERVICE | GUEST_START_ROOT | GUEST_START_SUDO;
    assert_int_equal(carry_start_refusal(&start), EOPNOTSUPP);
    start.flags = GUEST_START_STDIN;
    assert_int_equal(carry_start_refusal(&start), EOPNOTSUPP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_golden),    cmocka_unit_test(hello_refused),
        cmocka_unit_test(orders_golden),   cmocka_unit_test(orders_refused),
        cmocka_unit_test(too_many_places), cmocka_unit_test(what_only_the_jail_can_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
