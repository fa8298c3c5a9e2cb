/* SPDX-License-Identifier: Apache-2.0 */
/* SOCKS5 requests: taken whole, a byte at a time, and what is refused. */
#include "unit.h"

#include "codec/socks.h"

static int greeting(const char *hex)
{
    uint8_t data[300];

    return socks_greeting_parse(data, unit_hex(hex, data, sizeof(data)));
}

static void test_greeting(UNUSED void **state)
{
    uint8_t out[2];

    assert_int_equal(greeting(""), 0);
    assert_int_equal(greeting("05"), 0);
    assert_int_equal(greeting("0502"), 0);
    assert_int_equal(greeting("050200"), 0); /* known already, but not all there */
    assert_int_equal(greeting("05020200"), 4);
    assert_int_equal(greeting("050100 05010001"), 3);
    assert_int_equal(greeting("050102"), -EACCES);
    assert_int_equal(greeting("0500"), -EACCES);
    assert_int_equal(greeting("04"), -EPROTO);
    assert_int_equal(greeting("474554"), -EPROTO);
    socks_put_method(out, true);
    unit_assert_hex(out, 2, "0500");
    socks_put_method(out, false);
    unit_assert_hex(out, 2, "05ff");
}

static int request(const char *hex, struct socks_request *ret, enum socks_reply *ret_reply)
{
    uint8_t data[300];
    size_t len = unit_hex(hex, data, sizeof(data));
    int r = socks_request_parse(data, len, ret, ret_reply);

    /* fewer bytes are not enough, and never something else */
    for (size_t i = 0; r > 0 && i < (size_t)r; i++)
        assert_int_equal(socks_request_parse(data, i, ret, ret_reply), 0);
    return socks_request_parse(data, len, ret, ret_reply);
}

static void test_request(UNUSED void **state)
{
    struct socks_request q;
    enum socks_reply reply;

    assert_int_equal(request("05010003 0b 4578616d706c652e6f7267 01bb 16", &q, &reply), 18);
    assert_true(q.is_name && q.port == 443);
    assert_string_equal(q.name, "example.org");
    assert_int_equal(request("05010001 c0000201 0050", &q, &reply), 10);
    assert_true(!q.is_name && !q.v6 && q.port == 80);
    unit_assert_hex(q.address, 4, "c0000201");
    assert_int_equal(request("05010004 20010db8000000000000000000000001 0050", &q, &reply), 22);
    assert_true(!q.is_name && q.v6);
    unit_assert_hex(q.address, 16, "20010db8000000000000000000000001");
}

static void test_refused(UNUSED void **state)
{
    static const struct {
        const char *hex;
        int r;
        enum socks_reply reply;
    } cases[] = {
        {"04010050 7f000001 00", -EPROTO, SOCKS_FAILURE},
        {"04010050 00000001 00 61 00", -EPROTO, SOCKS_FAILURE}, /* SOCKS4a */
        {"0502", -EOPNOTSUPP, SOCKS_BAD_COMMAND},               /* BIND */
        {"0503", -EOPNOTSUPP, SOCKS_BAD_COMMAND},               /* UDP ASSOCIATE */
        {"050101", -EPROTO, SOCKS_FAILURE},
        {"05010002", -EOPNOTSUPP, SOCKS_BAD_ADDRESS},
        {"05010000", -EOPNOTSUPP, SOCKS_BAD_ADDRESS},
        {"05010003 11 6576696c 00 2e616c6c6f7765642e636f6d 01bb", -EINVAL, SOCKS_NOT_ALLOWED}, /* evil\0.allowed.com */
        {"05010003 00 01bb", -EINVAL, SOCKS_NOT_ALLOWED},
        {"05010003 09 3132372e302e302e31 01bb", -EINVAL, SOCKS_NOT_ALLOWED},   /* 127.0.0.1 */
        {"05010003 0a 32313330373036343333 01bb", -EINVAL, SOCKS_NOT_ALLOWED}, /* 2130706433 */
        {"05010003 05 612e636f0a 01bb", -EINVAL, SOCKS_NOT_ALLOWED},
    };
    struct socks_request q;
    enum socks_reply reply;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = request(cases[i].hex, &q, &reply);
        if (r != cases[i].r || reply != cases[i].reply)
            fail_msg("%s: %d, %d", cases[i].hex, r, (int)reply);
    }

    uint8_t longest[5 + 255 + 2] = {5, 1, 0, 3, 255};
    memset(longest + 5, 'a', 255);
    assert_int_equal(socks_request_parse(longest, sizeof(longest) - 1, &q, &reply), 0);
    assert_int_equal(socks_request_parse(longest, sizeof(longest), &q, &reply), -EINVAL);
}

static void test_reply(UNUSED void **state)
{
    uint8_t out[10];

    socks_put_reply(out, SOCKS_NOT_ALLOWED);
    unit_assert_hex(out, sizeof(out), "0502 0001 00000000 0000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greeting), cmocka_unit_test(test_request),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_reply)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
