/* SPDX-License-Identifier: Apache-2.0 */
/* DNS messages byte by byte, and the canonical form of host names. */
#include "unit.h"

#include "base/mem.h"
#include "codec/dns/dns.h"

#define QUERY "1234 0100 0001 0000 0000 0000 " NAME " 0001 0001"
#define NAME "03617069 076578616d706c65 03636f6d 00" /* api.example.com */
#define QUESTION NAME " 0001 0001"

static int parse_query(const char *hex, struct dns_question *ret)
{
    uint8_t data[1024];
    bool id_known;

    return dns_query_parse(data, unit_hex(hex, data, sizeof(data)), ret, &id_known);
}

static int parse_reply(const char *hex, uint16_t type, struct dns_reply *ret)
{
    uint8_t data[4096];

    return dns_reply_parse(data, unit_hex(hex, data, sizeof(data)), 0x1234, "api.example.com", type, ret);
}

static void test_query(UNUSED void **state)
{
    struct dns_question q;

    assert_int_equal(parse_query(QUERY, &q), 0);
    assert_string_equal(q.name, "api.example.com");
    assert_true(q.id == 0x1234 && q.type == DNS_A && q.class == 1 && q.recursion_desired && !q.edns &&
                q.udp_size == 512);
    assert_int_equal(q.question_len, 21);
    /* upper case, and EDNS with a cookie */
    assert_int_equal(
        parse_query(
            "0001 0000 0001 0000 0000 0001 0341504907 4558414d504c45 03434f4d00 001c 0001 00 0029 1000 00000000 000c "
            "000a 0008 0102030405060708",
            &q),
        0);
    assert_string_equal(q.name, "api.example.com");
    assert_true(q.type == DNS_AAAA && q.edns && q.udp_size == 4096 && !q.recursion_desired && q.edns_version == 0);
    assert_int_equal(parse_query("0001 0000 0001 0000 0000 0001 00 0002 0001 00 0029 0100 00010000 0000", &q), 0);
    assert_true(q.edns_version == 1 && q.udp_size == 512 && q.name[0] == '\0'); /* never less than 512 */
    assert_int_equal(parse_query("0001 2800 0001 0000 0000 0000", &q), 0);
    assert_int_equal(q.opcode, 5);
}

static void test_bad_queries(UNUSED void **state)
{
    static const char *const bad[] = {
        "1234 01",                                                                   /* short */
        "1234 0100 0001 0000 0000 00",                                               /* of the header */
        "1234 8100 0001 0000 0000 0000 " QUESTION,                                   /* a response */
        "1234 0100 0000 0000 0000 0000",                                             /* no question */
        "1234 0100 0002 0000 0000 0000 " QUESTION QUESTION,                          /* two */
        "1234 0100 0001 0001 0000 0000 " QUESTION "c00c 0001 0001 00000000 0000",    /* an answer */
        "1234 0100 0001 0000 0001 0000 " QUESTION "c00c 0001 0001 00000000 0000",    /* authority */
        "1234 0100 0001 0000 0000 0001 " QUESTION "00 00fa 00ff 00000000 0000",      /* TSIG */
        "1234 0100 0001 0000 0000 0001 " QUESTION "0161 00 0029 1000 00000000 0000", /* OPT with an owner */
        "1234 0100 0001 0000 0000 0001 " QUESTION,                                   /* OPT announced, not there */
        /* an option longer than OPT */
        "1234 0100 0001 0000 0000 0001 " QUESTION "00 0029 1000 00000000 0004 000a 0001",
        "1234 0100 0001 0000 0000 0000 " QUESTION "00",                 /* a rest */
        "1234 0100 0001 0000 0000 0000 " NAME "0001 00",                /* cut */
        "1234 0100 0001 0000 0000 0000 c00c 0001 0001",                 /* a pointer */
        "1234 0100 0001 0000 0000 0000 0161 c000 0001 0001",            /* ... behind a label */
        "1234 0100 0001 0000 0000 0000 03612e62 03636f6d 00 0001 0001", /* a dot in a label */
        "1234 0100 0001 0000 0000 0000 03610062 03636f6d 00 0001 0001", /* a NUL */
        "1234 0100 0001 0000 0000 0000 0161 01ff 00 0001 0001",         /* over 127 */
        "1234 0100 0001 0000 0000 0000 0120 00 0001 0001",              /* a space */
        "1234 0100 0001 0000 0000 0000 4161 00 0001 0001",              /* reserved kinds of label */
        "1234 0100 0001 0000 0000 0000 8161 00 0001 0001", "1234 0100 0001 0000 0000 0000 0361", /* past the end */
    };
    struct dns_question q;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (parse_query(bad[i], &q) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
    }
}

static void test_long_names(UNUSED void **state)
{
    uint8_t data[512] = {0x12, 0x34, 1, 0, 0, 1};
    struct dns_question q;
    bool id_known;

    for (unsigned last = 60; last <= 63; last++) {
        size_t n = 12;
        for (unsigned i = 0; i < 4; i++) {
            unsigned len = i < 3 ? 63 : last;
            data[n++] = (uint8_t)len;
            memset(data + n, 'a', len);
            n += len;
        }
        unit_put(data + n, "\0\0\1\0\1", 5);
        int r = dns_query_parse(data, n + 5, &q, &id_known);
        assert_int_equal(r, last <= 61 ? 0 : -EBADMSG); /* 253 characters */
        assert_true(id_known && q.id == 0x1234);
        if (r == 0)
            assert_int_equal(strlen(q.name), 3 * 64 + last);
    }
}

static void test_answer(UNUSED void **state)
{
    static const uint8_t address[] = {198, 19, 0, 7};
    AUTO_BUF struct buf out = BUF_INIT(4096);
    uint8_t data[512];
    struct dns_question q;
    bool id_known;
    size_t len = unit_hex(QUERY, data, sizeof(data));

    assert_int_equal(dns_query_parse(data, len, &q, &id_known), 0);
    assert_int_equal(dns_answer_put(&out, data, &q, DNS_NOERROR, address, 1, 60, 18, 512), 0);
    unit_assert_hex(out.data, out.len,
                    "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0001 0001 0000003c 0004 c6130007");
    out.len = 0;
    assert_int_equal(dns_answer_put(&out, data, &q, DNS_REFUSED, NULL, 0, 0, 18, 512), 0); /* no EDNS: no reason */
    unit_assert_hex(out.data, out.len, "1234 8185 0001 0000 0000 0000 " QUESTION);
    out.len = 0;
    assert_int_equal(dns_answer_put(&out, data, &q, DNS_NOERROR, address, 1, 60, -1, 40), 0); /* too long: TC */
    unit_assert_hex(out.data, out.len, "1234 8380 0001 0000 0000 0000 " QUESTION);
    out.len = 0;
    q.edns = true;
    assert_int_equal(dns_answer_put(&out, data, &q, DNS_REFUSED, NULL, 0, 0, 18, 512), 0);
    unit_assert_hex(out.data, out.len,
                    "1234 8185 0001 0000 0000 0001 " QUESTION " 00 0029 04d0 00000000 0006 000f 0002 0012");
    out.len = 0;
    assert_int_equal(dns_answer_put(&out, data, &q, DNS_BADVERS, NULL, 0, 0, -1, 512), 0);
    unit_assert_hex(out.data, out.len, "1234 8180 0001 0000 0000 0001 " QUESTION " 00 0029 04d0 01000000 0000");
    out.len = 0;
    assert_int_equal(dns_formerr_put(&out, 0xabcd, 2), 0);
    unit_assert_hex(out.data, out.len, "abcd 9081 0000 0000 0000 0000");
}

static void test_own_query(UNUSED void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct dns_question q;
    bool id_known;

    assert_int_equal(dns_query_put(&out, 0x1234, "api.example.com", DNS_AAAA), 0);
    unit_assert_hex(out.data, out.len, "1234 0100 0001 0000 0000 0001 " NAME " 001c 0001 00 0029 04d0 00000000 0000");
    assert_int_equal(dns_query_parse((uint8_t *)out.data, out.len, &q, &id_known), 0);
    assert_string_equal(q.name, "api.example.com");
    size_t before = out.len;
    assert_int_equal(dns_query_put(&out, 1, "a..b", DNS_A), -EINVAL);
    assert_int_equal(dns_query_put(&out, 1, "a.", DNS_A), -EINVAL);
    assert_int_equal(dns_query_put(&out, 1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", DNS_A),
                     -EINVAL);
    assert_int_equal(out.len, before);
}

static void test_reply(UNUSED void **state)
{
    struct dns_reply r;

    assert_int_equal(parse_reply("1234 8180 0001 0002 0000 0000 " QUESTION
                                 " c00c 0001 0001 0000003c 0004 c0000201  c00c 0001 0001 0000001e 0004 c0000202",
                                 DNS_A, &r),
                     0);
    assert_true(r.n == 2 && r.ttl == 30 && r.rcode == 0 && !r.truncated);
    unit_assert_hex(r.addresses[1], 4, "c0000202");
    assert_string_equal(r.canonical, "api.example.com");
    /* a chain, in the wrong order, with a record of a stranger and a signature between */
    assert_int_equal(
        parse_reply(
            "1234 8180 0001 0005 0000 0000 " QUESTION
            " 01630178 00 0001 0001 00000005 0004 c0000203  c00c 0005 0001 0000003c 0005 0162 0178 00"
            " 01620178 00 0005 0001 00000009 0002 c021  0164 00 0001 0001 00000000 0004 7f000001  c00c 002e 0001 "
            "00000000 0000",
            DNS_A, &r),
        0);
    assert_true(r.n == 1 && r.ttl == 5);
    unit_assert_hex(r.addresses[0], 4, "c0000203");
    assert_string_equal(r.canonical, "c.x");
    /* a TTL with the top bit set is 0 */
    assert_int_equal(
        parse_reply("1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0001 0001 80000000 0004 c0000201", DNS_A, &r), 0);
    assert_true(r.n == 1 && r.ttl == 0);
    /* nothing there: for how long, says the SOA */
    assert_int_equal(
        parse_reply("1234 8183 0001 0000 0001 0000 " QUESTION
                    " 03636f6d00 0006 0001 0000003c 001a 01610001 6200 00000001 00000002 00000003 00000004 00000007",
                    DNS_A, &r),
        0);
    assert_true(r.n == 0 && r.rcode == DNS_NXDOMAIN && r.ttl == 7);
    assert_int_equal(parse_reply("1234 8180 0001 0000 0000 0000 " QUESTION, DNS_A, &r), 0);
    assert_true(r.n == 0 && r.ttl == 0);
    /* cut anywhere, it is only TC */
    assert_int_equal(parse_reply("1234 8380 0001 0002 0000 0000 " QUESTION " c00c 0001", DNS_A, &r), 0);
    assert_true(r.truncated && r.n == 0);
    assert_int_equal(parse_reply("1234 8181 0000 0000 0000 0000", DNS_A, &r), 0); /* a server that does not know EDNS */
    assert_int_equal(r.rcode, DNS_FORMERR);
}

static void test_bad_replies(UNUSED void **state)
{
    static const char *const others[] = {
        "1235 8180 0001 0000 0000 0000 " QUESTION, /* id */
        "1234 0180 0001 0000 0000 0000 " QUESTION, /* a query */
        "1234 9180 0001 0000 0000 0000 " QUESTION, /* opcode */
        "1234 8180 0001 0000 0000 0000 " NAME " 001c 0001",
        "1234 8180 0001 0000 0000 0000 " NAME " 0001 0003",
        "1234 8180 0001 0000 0000 0000 03617068 076578616d706c65 03636f6d 00 0001 0001",
        "1234 8180 0000 0000 0000 0000", /* no question, and no FORMERR either */
        "1234 8180",
        "",
    };
    static const char *const bad[] = {
        "1234 8180 0001 0001 0000 0000 " QUESTION " c021 0001 0001 0000003c 0004 c0000201", /* to itself */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c030 0001 0001 0000003c 0004 c0000201", /* forward */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c000 0001 0001 0000003c 0004 c0000201", /* into the header */
        /* ... where it reads as the root */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c008 0001 0001 0000003c 0004 c0000201",
        "1234 8180 0001 0002 0000 0000 " QUESTION " c031 0001 0001 0000003c 0004 c0000201 " NAME
        " 0001 0001 0000003c 0004 c0000202", /* forward to a good name */
        /* a loop over a label */
        "1234 8180 0001 0001 0000 0000 " QUESTION " 0161c021 0001 0001 0000003c 0004 c0000201",
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0001 0001 0000003c 0005 c000020100",
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0001 0001 0000003c 0004 c00002",
        "1234 8180 0001 0002 0000 0000 " QUESTION " c00c 0001 0001 0000003c 0004 c0000201",   /* one is missing */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0005 0001 0000003c 0002 c00c",       /* a CNAME to itself */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0005 0001 0000003c 0005 03612e6200", /* a dot in its target */
        /* a rest behind it */
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0005 0001 0000003c 0006 0162 0178 00 00",
        "1234 8180 0001 0001 0000 0000 " QUESTION " c00c 0005 0001 0000003c 0001 00", /* the root */
        "1234 8180 0001 ffff 0000 0000 " QUESTION,
    };
    struct dns_reply r;

    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        if (parse_reply(others[i], DNS_A, &r) != -ENOMSG)
            fail_msg("not another's: %s", others[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (parse_reply(bad[i], DNS_A, &r) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
    }
}

static void test_names(UNUSED void **state)
{
    static const struct {
        const char *text, *canonical; /* NULL: refused */
    } cases[] = {
        {"example.com", "example.com"},
        {"EXAMPLE.Com.", "example.com"},
        {"_acme.x-y.example", "_acme.x-y.example"},
        {"localhost", "localhost"},
        {"1.example", "1.example"},
        {"0x7f.com", "0x7f.com"},
        {"a.0xg", "a.0xg"},
        {"xn--bcher-kva.example", "xn--bcher-kva.example"},
        {"", NULL},
        {".", NULL},
        {"..", NULL},
        {".a", NULL},
        {"a..b", NULL},
        {"a..", NULL},
        {"*.a", NULL},
        {"a b", NULL},
        {"a\tb", NULL},
        {"a/b", NULL},
        {"a:80", NULL},
        {"a%00b", NULL},
        {"a@b", NULL},
        {"b\xc3\xbc"
         "cher.example",
         NULL},
        {"127.0.0.1", NULL},
        {"127.0.0.1.", NULL},
        {"127.1", NULL},
        {"0x7f.1", NULL},
        {"0X7F.0x1", NULL},
        {"2130706433", NULL},
        {"0x7f000001", NULL},
        {"017700000001", NULL},
        {"a.1", NULL},
        {"a.0x", NULL},
        {"::1", NULL},
        {"[::1]", NULL},
    };
    char out[DNS_NAME_MAX], text[300];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = dns_name_canonical(cases[i].text, strlen(cases[i].text), out);
        if (r != (cases[i].canonical ? 0 : -EINVAL))
            fail_msg("\"%s\": %d", cases[i].text, r);
        assert_string_equal(out, cases[i].canonical ? cases[i].canonical : "");
    }
    assert_int_equal(dns_name_canonical("evil\0.allowed.com", 17, out), -EINVAL);
    assert_int_equal(dns_name_canonical("allowed.com\0", 12, out), -EINVAL);
    assert_int_equal(dns_name_canonical("allowed.comX", 11, out), 0);
    memset(text, 'a', sizeof(text));
    assert_int_equal(dns_name_canonical(text, 63, out), 0);
    assert_int_equal(dns_name_canonical(text, 64, out), -EINVAL);
    for (size_t i = 60; i < sizeof(text); i += 60)
        text[i] = '.';
    assert_int_equal(dns_name_canonical(text, 253, out), 0);
    assert_int_equal(dns_name_canonical(text, 254, out), -EINVAL);
    text[253] = '.';
    assert_int_equal(dns_name_canonical(text, 254, out), 0);
}

static void test_memory(UNUSED void **state)
{
    struct dns_question q = {.question_len = 21, .type = DNS_A, .edns = true};
    static const uint8_t query[33], address[4];

    for (size_t n = 0;; n++) {
        AUTO_BUF struct buf out = BUF_INIT(4096);
        mem_fail_after(n);
        int r = dns_query_put(&out, 1, "api.example.com", DNS_A);
        if (r == 0)
            r = dns_answer_put(&out, query, &q, 0, address, 1, 1, -1, 512);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        if (!failed)
            break;
    }
    AUTO_BUF struct buf small = BUF_INIT(40); /* over the ceiling: nothing stays */
    assert_int_equal(dns_answer_put(&small, query, &q, 0, address, 1, 1, -1, 512), -EMSGSIZE);
    assert_int_equal(small.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),       cmocka_unit_test(test_bad_queries), cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_answer),      cmocka_unit_test(test_own_query),   cmocka_unit_test(test_reply),
        cmocka_unit_test(test_bad_replies), cmocka_unit_test(test_names),       cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
