/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: one spelling each, which are not public and why, ranges, and the synthetic ones. */
#include "unit.h"

#include <arpa/inet.h>

#include "gate/address.h"

static struct gate_addr addr(const char *text)
{
    struct gate_addr ret;

    assert_int_equal(gate_addr_parse(text, &ret), 0);
    return ret;
}

static const char *private(const char *text)
{
    struct gate_addr a = addr(text);

    return gate_addr_private(&a);
}

static void assert_private(const char *text, const char *why)
{
    const char *said = private(text);

    if (!said)
        fail_msg("%s is called public", text);
    if (said && strcmp(said, why) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", text, said, why);
}

static void test_private_v4(UNUSED void **state)
{
    static const struct {
        const char *first, *last, *why;
    } ranges[] = {
        {"0.0.0.0", "0.255.255.255", "this host"},
        {"10.0.0.0", "10.255.255.255", "private"},
        {"100.64.0.0", "100.127.255.255", "shared (carrier NAT)"},
        {"127.0.0.0", "127.255.255.255", "loopback"},
        {"169.254.0.0", "169.254.255.255", "link-local"},
        {"172.16.0.0", "172.31.255.255", "private"},
        {"192.0.0.0", "192.0.0.255", "reserved"},
        {"192.88.99.0", "192.88.99.255", "reserved"},
        {"192.168.0.0", "192.168.255.255", "private"},
        {"198.18.0.0", "198.19.255.255", "the gate's own"},
        {"224.0.0.0", "239.255.255.255", "multicast"},
        {"240.0.0.0", "255.255.255.254", "reserved"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        char mapped[64];

        assert_private(ranges[i].first, ranges[i].why);
        assert_private(ranges[i].last, ranges[i].why);
        snprintf(mapped, sizeof(mapped), "::ffff:%s", ranges[i].first);
        assert_private(mapped, ranges[i].why);
    }
    assert_private("255.255.255.255", "broadcast");
    assert_private("169.254.169.254", "metadata service");
    assert_private("169.254.170.2", "metadata service");
    assert_private("100.100.100.200", "metadata service");
    assert_private("168.63.129.16", "metadata service");
    assert_private("192.0.0.192", "metadata service");
}

static void test_public(UNUSED void **state)
{
    /* the addresses beside each range, and the documentation ranges */
    static const char *const texts[] = {
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.2.1",
        "192.88.98.255",
        "192.88.100.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "198.51.100.7",
        "203.0.113.7",
        "223.255.255.255",
        "8.8.8.8",
        "2001:db8::1",
        "2606:4700::1111",
        "2000::",
        "2001:200::1",
        "2003::1",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
        "3ffe::1",
        "2620:4f:8000::1",
        "2001:0:808:808::f7f7:f7f7",
        "2a00::5efe:8.8.8.8",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (private(texts[i]))
            fail_msg("%s: %s", texts[i], private(texts[i]));
    }
}

static void test_private_v6(UNUSED void **state)
{
    assert_private("::", "this host");
    assert_private("::1", "loopback");
    assert_private("fc00::", "private");
    assert_private("fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private");
    assert_private("fd00:ec2::254", "metadata service");
    assert_private("fd00:ec2::23", "metadata service");
    assert_private("fd20:ce::254", "metadata service");
    assert_private("fe80::1", "link-local");
    assert_private("febf::1", "link-local");
    assert_private("fec0::1", "private");
    assert_private("ff02::1", "multicast");
    assert_private("2001:2::1", "the gate's own");
    assert_private("2001:1::1", "reserved");
    assert_private("2001:20::1", "reserved");
    assert_private("2001:1ff:ffff::1", "reserved");
    assert_private("100::1", "reserved");
    assert_private("5f00::1", "reserved");
    assert_private("3fff::1", "reserved");
    assert_private("4000::1", "reserved");
    assert_private("1fff::1", "reserved");
    assert_private("::ffff:0:127.0.0.1", "reserved"); /* SIIT */
    assert_private("::2", "IPv4-compatible of this host");
}

static void test_wrapped(UNUSED void **state)
{
    assert_private("::127.0.0.1", "IPv4-compatible of loopback");
    assert_private("::8.8.8.8", "reserved");
    assert_private("64:ff9b::10.0.0.1", "NAT64 of private");
    assert_private("64:ff9b::169.254.169.254", "NAT64 of metadata service");
    assert_private("64:ff9b:1::10.0.0.1", "local NAT64 of private");
    assert_private("64:ff9b:1:a00:1::", "local NAT64 of private"); /* /48: 10.0.0.1 around the skipped byte */
    assert_private("64:ff9b:1::8.8.8.8", "reserved");
    assert_private("2002:7f00:1::1", "6to4 of loopback");
    assert_private("2002:a9fe:a9fe::", "6to4 of metadata service");
    assert_private("2002:c0a8:101::5efe:8.8.8.8", "6to4 of private");
    assert_private("2002:808:808::5efe:10.0.0.1", "ISATAP of private");
    assert_private("2001:0:a00:1::f7f7:f7f7", "Teredo of private");   /* the server */
    assert_private("2001:0:808:808::f5ff:fffe", "Teredo of private"); /* the client, 10.0.0.1 inverted */
    assert_private("2001:db8::5efe:192.168.0.1", "ISATAP of private");
    assert_private("2001:db8::200:5efe:127.0.0.1", "ISATAP of loopback");
    assert_private("fe80::5efe:8.8.8.8", "link-local");
}

static void test_text(UNUSED void **state)
{
    static const char *const bad[] = {"",           "127.1",    "0x7f.0.0.1", "2130706433", "010.0.0.1", "1.2.3.4.5",
                                      "1.2.3.256",  " 1.2.3.4", "1.2.3.4 ",   "[::1]",      "::1%lo",    "fe80::1%1",
                                      "1.2.3.4:80", ":",        ":::",        "localhost",  "1.2.3.",    "1::2::3"};
    struct gate_addr a;
    char text[GATE_ADDR_TEXT];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(gate_addr_parse(bad[i], &a), -EINVAL);
    a = addr("::ffff:1.2.3.4");
    gate_addr_text(&a, text);
    assert_string_equal(text, "1.2.3.4");
    a.port = 443;
    gate_addr_text(&a, text);
    assert_string_equal(text, "1.2.3.4:443");
    a = addr("2001:DB8:0:0::1");
    gate_addr_text(&a, text);
    assert_string_equal(text, "2001:db8::1");
    a.port = 65535;
    gate_addr_text(&a, text);
    assert_string_equal(text, "[2001:db8::1]:65535");
}

static void test_sockaddr(UNUSED void **state)
{
    struct gate_addr a = addr("1.2.3.4"), b, six = addr("2001:db8::1");
    struct sockaddr_storage storage;

    a.port = 443;
    assert_int_equal(gate_addr_to(&a, AF_INET, &storage), sizeof(struct sockaddr_in));
    assert_int_equal(ntohs(((struct sockaddr_in *)&storage)->sin_port), 443);
    assert_int_equal(gate_addr_from(&storage, &b), 0);
    assert_true(gate_addr_equal(&a, &b) && b.port == 443);
    assert_int_equal(gate_addr_to(&a, AF_INET6, &storage), sizeof(struct sockaddr_in6));
    assert_int_equal(gate_addr_from(&storage, &b), 0);
    assert_true(gate_addr_equal(&a, &b) && b.port == 443 && gate_addr_is_v4(&b));
    assert_int_equal(gate_addr_to(&six, AF_INET, &storage), 0);
    storage.ss_family = AF_UNIX;
    assert_int_equal(gate_addr_from(&storage, &b), -EAFNOSUPPORT);
}

static bool in_cidr(const char *cidr, const char *text)
{
    struct gate_addr a = addr(text);
    struct gate_cidr c;

    assert_int_equal(gate_cidr_parse(cidr, &c, NULL), 0);
    return gate_cidr_has(&c, &a);
}

static void test_cidr(UNUSED void **state)
{
    static const char *const bad[] = {"10.0.0.1/8", "10.0.0.0/33",  "10.0.0.0/",   "10.0.0.0/8/8", "10.0.0.0/-1",
                                      "fd00::/129", "fd00::1/64",   "/8",          "10/8",         "x",
                                      "",           "10.0.0.0/08x", "10.0.0.0 /8", "::1%lo/128"};
    struct gate_cidr c;
    struct brig_err err;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(gate_cidr_parse(bad[i], &c, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
    }
    assert_true(in_cidr("10.0.0.0/8", "10.255.255.255"));
    assert_false(in_cidr("10.0.0.0/8", "11.0.0.0"));
    assert_true(in_cidr("10.1.2.3", "::ffff:10.1.2.3"));
    assert_false(in_cidr("10.1.2.3", "10.1.2.2"));
    assert_true(in_cidr("172.16.0.0/12", "172.31.0.1"));
    assert_false(in_cidr("172.16.0.0/12", "172.32.0.1"));
    assert_true(in_cidr("fd00::/8", "fd12::1"));
    assert_true(in_cidr("0.0.0.0/0", "8.8.8.8"));
    assert_false(in_cidr("0.0.0.0/0", "2001:db8::1"));
    assert_true(in_cidr("::/0", "2001:db8::1"));
    assert_false(in_cidr("::/0", "10.0.0.1")); /* a rule about IPv6 says nothing about IPv4 */
    assert_true(in_cidr("::ffff:10.0.0.0/104", "10.2.3.4"));
}

static void test_fake(UNUSED void **state)
{
    static const char *const others[] = {"198.18.0.1",         "198.20.0.0", "2001:2::1",       "2001:2::c612:1",
                                         "2001:2:0:1::c613:1", "::c613:1",   "2001:2:1::c613:1"};
    struct gate_addr a;
    uint32_t number;
    char text[GATE_ADDR_TEXT];

    for (uint32_t i = 0; i < GATE_FAKE_MAX; i++) {
        gate_fake_make(i, i % 2 == 0, &a);
        assert_true(gate_fake_number(&a, &number) && number == i);
        assert_string_equal(gate_addr_private(&a), "the gate's own");
        assert_int_equal(gate_addr_is_v4(&a), i % 2 != 0);
    }
    gate_fake_make(258, false, &a);
    gate_addr_text(&a, text);
    assert_string_equal(text, "198.19.1.2");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        a = addr(others[i]);
        assert_false(gate_fake_number(&a, &number));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private_v4), cmocka_unit_test(test_public), cmocka_unit_test(test_private_v6),
        cmocka_unit_test(test_wrapped),    cmocka_unit_test(test_text),   cmocka_unit_test(test_sockaddr),
        cmocka_unit_test(test_cidr),       cmocka_unit_test(test_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
