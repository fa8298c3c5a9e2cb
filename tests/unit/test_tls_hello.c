/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ClientHellos: those of real programs, the same in pieces, and everything on which a server might read another name.
 */
#include "unit.h"

#include "codec/tls_hello.h"

/* The version, random, session, suites and compression of a hello by OpenSSL; the extensions are put together below. */
static const uint8_t head[] = {3,  3,  1,  2,  3,  4,  5,  6,    7,    8,    9,    10, 11, 12, 13,
                               14, 15, 16, 17, 18, 19, 20, 21,   22,   23,   24,   25, 26, 27, 28,
                               29, 30, 31, 32, 0,  0,  4,  0x13, 0x01, 0x13, 0x02, 1,  0};

struct made {
    uint8_t data[4096]; /* the message */
    size_t len;
    uint8_t wire[16384];
    size_t wire_len;
};

static void put(struct made *m, const void *data, size_t len)
{
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

static void put_u16(struct made *m, unsigned value)
{
    put(m, (uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

static void begin(struct made *m)
{
    m->len = 0;
    put(m, "\1\0\0\0", 4);
    put(m, head, sizeof(head));
    put_u16(m, 0);
}

static void put_ext(struct made *m, unsigned type, const void *data, size_t len)
{
    put_u16(m, type);
    put_u16(m, (unsigned)len);
    put(m, data, len);
}

static void put_name(struct made *m, const char *name, size_t len)
{
    uint8_t ext[300] = {0, (uint8_t)(len + 3), 0, 0, (uint8_t)len};

    unit_put(ext + 5, name, len);
    put_ext(m, 0, ext, len + 5);
}

/* Writes the lengths, and the records with at most `piece` bytes each. */
static void finish(struct made *m, size_t piece)
{
    size_t body = m->len - 4, extensions = m->len - 4 - sizeof(head) - 2;

    m->data[2] = (uint8_t)(body >> 8);
    m->data[3] = (uint8_t)body;
    m->data[4 + sizeof(head)] = (uint8_t)(extensions >> 8);
    m->data[4 + sizeof(head) + 1] = (uint8_t)extensions;
    m->wire_len = 0;
    for (size_t at = 0; at < m->len; at += piece) {
        size_t n = m->len - at < piece ? m->len - at : piece;
        uint8_t *p = m->wire + m->wire_len;
        p[0] = 22;
        p[1] = 3;
        p[2] = 1;
        p[3] = (uint8_t)(n >> 8);
        p[4] = (uint8_t)n;
        memcpy(p + 5, m->data + at, n);
        m->wire_len += 5 + n;
    }
}

static int parse(const struct made *m, struct tls_hello *ret)
{
    return tls_hello_parse(m->wire, m->wire_len, ret);
}

static void make(struct made *m, const char *name)
{
    begin(m);
    put_name(m, name, strlen(name));
    put_ext(m, 43, "\4\3\4\3\3", 5);
}

/* openssl s_client -servername www.example.org, as it was sent. */
static const char openssl_hello[] =
    "160301013c01000138030331b494cca9b5268367b39f2995a24cc59e5232b8e2455544de589352ac11c6612005c21bfe4ef28bb4703c5856"
    "9424583e"
    "24d65e7e3569598d97674900e80e7c35003e130213031301c02cc030009fcca9cca8ccaac02bc02f009ec024c028006bc023c0270067c00a"
    "c0140039"
    "c009c0130033009d009c003d003c0035002f00ff010000b100000014001200000f7777772e6578616d706c652e6f7267000b000403000102"
    "000a0016"
    "0014001d0017001e0019001801000101010201030104002300000016000000170000000d002a0028040305030603080708080809080a080b"
    "08040805"
    "0806040105010601030303010302040205020602002b0009080304030303020301002d00020101003300260024001d00208b345220640bd4"
    "7a3b053a"
    "099f190f2fa2103f3a92d95b8e0ce26dc9cf594b45";

static void test_real(UNUSED void **state)
{
    uint8_t data[2048];
    size_t len = unit_hex(openssl_hello, data, sizeof(data));
    struct tls_hello hello;

    assert_int_equal(tls_hello_parse(data, len, &hello), len);
    assert_true(hello.has_name && !hello.ech && !hello.early_data && hello.n_alpn == 0);
    assert_string_equal(hello.name, "www.example.org");
    for (size_t i = 0; i < len; i++)
        assert_int_equal(tls_hello_parse(data, i, &hello), 0);
    data[len] = 0x17; /* what follows is not ours */
    assert_int_equal(tls_hello_parse(data, len + 1, &hello), len);
}

static void test_name(UNUSED void **state)
{
    struct made m;
    struct tls_hello hello;

    make(&m, "API.Example.com");
    finish(&m, 16384);
    assert_int_equal(parse(&m, &hello), m.wire_len);
    assert_string_equal(hello.name, "api.example.com");
    begin(&m);
    put_ext(&m, 43, "\4\3\4\3\3", 5);
    finish(&m, 16384);
    assert_int_equal(parse(&m, &hello), m.wire_len);
    assert_false(hello.has_name);
    /* no extensions at all: TLS 1.2 may */
    m.len = 4 + sizeof(head);
    m.wire[4] = (uint8_t)m.len;
    m.wire[3] = 0;
    m.wire[7] = 0;
    m.wire[8] = (uint8_t)sizeof(head);
    assert_int_equal(tls_hello_parse(m.wire, 5 + m.len, &hello), 5 + m.len);
    assert_false(hello.has_name);
}

static void test_pieces(UNUSED void **state)
{
    static const size_t pieces[] = {1, 2, 3, 4, 5, 7, 50, 64};
    struct made m;
    struct tls_hello hello;

    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        make(&m, "api.example.com");
        finish(&m, pieces[i]);
        assert_int_equal(parse(&m, &hello), m.wire_len);
        assert_string_equal(hello.name, "api.example.com");
        for (size_t n = 0; n < m.wire_len; n++)
            assert_int_equal(tls_hello_parse(m.wire, n, &hello), 0);
        /* another kind of record between */
        m.wire[5 + pieces[i]] = 21;
        assert_int_equal(parse(&m, &hello), -EBADMSG);
    }
}

static void test_extensions(UNUSED void **state)
{
    struct made m;
    struct tls_hello hello;

    make(&m, "a.org");
    put_ext(&m, 16, "\0\14\2h2\10http/1.1", 14);
    put_ext(&m, 42, "", 0);
    finish(&m, 16384);
    assert_int_equal(parse(&m, &hello), m.wire_len);
    assert_true(hello.n_alpn == 2 && hello.alpn_h2 && hello.alpn_http11 && hello.early_data && !hello.ech);
    static const unsigned ech[] = {0xfe0d, 0xfe08, 0xffce};
    for (size_t i = 0; i < ARRAY_SIZE(ech); i++) {
        make(&m, "a.org");
        put_ext(&m, ech[i], "\0\0\1\0\1", 5);
        finish(&m, 16384);
        assert_int_equal(parse(&m, &hello), m.wire_len);
        assert_true(hello.ech);
    }
}

static void assert_bad(struct made *m)
{
    struct tls_hello hello;

    finish(m, 16384);
    assert_int_equal(parse(m, &hello), -EBADMSG);
    finish(m, 40);
    assert_int_equal(parse(m, &hello), -EBADMSG);
}

static void test_bad_names(UNUSED void **state)
{
    static const struct {
        const char *name;
        size_t len;
    } names[] = {{"allowed.com\0.evil.com", 21},
                 {"", 0},
                 {"127.0.0.1", 9},
                 {"::1", 3},
                 {"a b", 3},
                 {"a..b", 4},
                 {"*.a.org", 7},
                 {"b\xc3\xbc.de", 6},
                 {"127.1", 5}};
    struct made m;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        begin(&m);
        put_name(&m, names[i].name, names[i].len);
        assert_bad(&m);
    }
    /* two names in one, of either kind; two extensions */
    begin(&m);
    put_ext(&m, 0, "\0\14\0\0\3a.b\0\0\3c.d", 14);
    assert_bad(&m);
    begin(&m);
    put_ext(&m, 0, "\0\14\0\0\3a.b\1\0\3c.d", 14);
    assert_bad(&m);
    begin(&m);
    put_ext(&m, 0, "\0\6\1\0\3a.b", 8);
    assert_bad(&m);
    make(&m, "a.org");
    put_name(&m, "b.org", 5);
    assert_bad(&m);
    begin(&m); /* nothing in it */
    put_ext(&m, 0, "", 0);
    assert_bad(&m);
    begin(&m);
    put_ext(&m, 0, "\0\0", 2);
    assert_bad(&m);
    begin(&m); /* a rest behind the list; a list longer than the extension */
    put_ext(&m, 0, "\0\6\0\0\3a.bx", 9);
    assert_bad(&m);
    begin(&m);
    put_ext(&m, 0, "\0\7\0\0\3a.b", 8);
    assert_bad(&m);
}

static void test_bad_lengths(UNUSED void **state)
{
    struct made m;
    struct tls_hello hello;

    make(&m, "a.org");
    put_ext(&m, 16, "\0\2\2h", 4);
    assert_bad(&m);
    make(&m, "a.org");
    put_ext(&m, 16, "\0\1\0", 3);
    assert_bad(&m);
    make(&m, "a.org");
    put_ext(&m, 42, "x", 1);
    assert_bad(&m);
    make(&m, "a.org");
    put_ext(&m, 99, "", 0);
    put_ext(&m, 99, "", 0); /* twice, whatever it is */
    assert_bad(&m);
    make(&m, "a.org"); /* half an extension; a rest behind all of them, in the message */
    put(&m, "x", 1);
    assert_bad(&m);
    finish(&m, 16384);
    m.wire[5 + 4 + sizeof(head) + 1]--;
    assert_int_equal(parse(&m, &hello), -EBADMSG);
    make(&m, "a.org"); /* ... and in the record */
    finish(&m, 16384);
    m.wire[4]++;
    assert_int_equal(tls_hello_parse(m.wire, m.wire_len + 1, &hello), -EBADMSG);
    make(&m, "a.org"); /* an odd list of suites, no compression, a long session */
    m.data[4 + 36] = 3;
    assert_bad(&m);
    make(&m, "a.org");
    m.data[4 + 34] = 33;
    assert_bad(&m);
    make(&m, "a.org");
    m.data[4] = 2; /* the version */
    assert_bad(&m);
    make(&m, "a.org");
    for (unsigned i = 0; i < 70; i++)
        put_ext(&m, 1000 + i, "", 0);
    assert_bad(&m);
}

static void test_bad_records(UNUSED void **state)
{
    static const struct {
        const char *hex;
        int r;
    } cases[] = {
        {"", 0},
        {"16", 0},
        {"1603010200 01", 0},
        {"474554202f", -EPROTO},
        {"80", -EPROTO}, /* SSL 2 */
        {"17", -EPROTO},
        {"1602", -EPROTO},
        {"1603010000", -EBADMSG},           /* empty */
        {"1603014001", -EBADMSG},           /* over 2^14 */
        {"1603010005 02", -EBADMSG},        /* not a ClientHello */
        {"1603014000 01 010000", -EBADMSG}, /* 64 KiB of it */
        {"1603010004 01 000000", -EBADMSG}, /* nothing in it */
        {"1603010001 01 15", -EBADMSG},
        {"1603010001 01 1602", -EBADMSG},
        {"1603010001 01 1603010000", -EBADMSG},
    };
    uint8_t data[64];
    struct tls_hello hello;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = tls_hello_parse(data, unit_hex(cases[i].hex, data, sizeof(data)), &hello);
        if (r != cases[i].r)
            fail_msg("%s: %d", cases[i].hex, r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real),        cmocka_unit_test(test_name),      cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_extensions),  cmocka_unit_test(test_bad_names), cmocka_unit_test(test_bad_lengths),
        cmocka_unit_test(test_bad_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
