/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP codec: what it reads, every shape it refuses with its status, bodies cut at every byte, targets, writing. */
#include "unit.h"

#include "base/mem.h"
#include "codec/http/http.h"

#define GET "GET / HTTP/1.1\r\n"
#define HOST "Host: localhost\r\n"

static struct http_head head;
static char text[65536];

static int parse_n(const char *data, size_t len, const struct http_limits *limits)
{
    struct brig_err err = {0};
    size_t scanned = 0;

    assert_true(len <= sizeof(text));
    unit_put(text, data, len);
    int r = http_request_parse(text, len, limits, &scanned, &head, &err);
    assert_true(r >= 0 || err.message[0] != '\0');
    return r;
}

static int parse(const char *data)
{
    return parse_n(data, strlen(data), NULL);
}

static int parse_response(const char *data, const char *method)
{
    struct brig_err err = {0};
    size_t scanned = 0, len = strlen(data);

    unit_put(text, data, len);
    int r = http_response_parse(text, len, method, NULL, &scanned, &head, &err);
    assert_true(r >= 0 || err.message[0] != '\0');
    return r;
}

static void test_request(UNUSED void **state)
{
    static const char data[] =
        "POST /v1/x?a=b HTTP/1.1\r\nhOST: localhost:2744\r\nX-Empty:\r\nX-Two: \t a  b \t \r\nContent-Length: 5\r\n"
        "Expect: 100-Continue\r\nConnection: foo, Upgrade\r\nUpgrade: websocket\r\n\r\nhello";

    assert_int_equal(parse(data), strlen(data) - 5);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.target, "/v1/x?a=b");
    assert_int_equal(head.minor, 1);
    assert_int_equal(head.body, HTTP_BODY_LENGTH);
    assert_int_equal(head.content_length, 5);
    assert_true(head.keep_alive && head.expect_continue && head.upgrade);
    assert_int_equal(head.n_fields, 7);
    assert_string_equal(http_field(&head, "host"), "localhost:2744");
    assert_string_equal(http_field(&head, "x-empty"), "");
    assert_string_equal(http_field(&head, "X-TWO"), "a  b");
    assert_int_equal(head.fields[2].value_len, 4);
    assert_null(http_field(&head, "x-none"));
}

static void test_request_kinds(UNUSED void **state)
{
    assert_true(parse("\r\n" GET HOST "\r\n") > 0); /* one empty line before it is forgiven */
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_true(parse("GET / HTTP/1.0\r\n\r\n") > 0);
    assert_false(head.keep_alive);
    assert_int_equal(head.minor, 0);
    assert_true(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n") > 0);
    assert_true(head.keep_alive);
    assert_true(parse(GET HOST "Connection: x\r\nConnection: y , close\r\n\r\n") > 0);
    assert_false(head.keep_alive);
    assert_true(parse(GET HOST "Transfer-Encoding: Chunked\r\n\r\n") > 0);
    assert_int_equal(head.body, HTTP_BODY_CHUNKED);
    assert_true(parse(GET HOST "Content-Length: 7\r\nContent-Length: 7\r\n\r\n") > 0);
    assert_int_equal(head.content_length, 7);
    assert_true(parse(GET HOST "Content-Length: 0\r\n\r\n") > 0);
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_true(parse(GET HOST "Upgrade: websocket\r\n\r\n") > 0);
    assert_false(head.upgrade); /* Connection does not name it */
    assert_true(parse(GET "Host: [::1]:80\r\n\r\n") > 0);
    assert_true(parse("GET http://localhost/x HTTP/1.1\r\n" HOST "\r\n") > 0);
    assert_true(parse("OPTIONS * HTTP/1.1\r\n" HOST "\r\n") > 0);
    assert_true(parse("CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n") > 0);
    assert_true(parse("X-OWN! /{a}|b[]^`\\ HTTP/1.1\r\n" HOST "X: \x80\xff\r\n\r\n") > 0);
}

/* Every prefix of a good head needs more; a head is found however it is cut. */
static void test_request_piecewise(UNUSED void **state)
{
    static const char data[] = "\r\nGET /path HTTP/1.1\r\n" HOST "A: b\r\n\r\n";
    size_t len = strlen(data), scanned = 0;
    struct brig_err err;

    for (size_t n = 0; n < len; n++) {
        unit_put(text, data, len);
        assert_int_equal(http_request_parse(text, n, NULL, &scanned, &head, &err), 0);
        assert_true(scanned <= n);
    }
    assert_int_equal(http_request_parse(text, len, NULL, &scanned, &head, &err), len);
    assert_string_equal(head.target, "/path");
}

static const struct {
    const char *data;
    int status;
} refused[] = {
    /* lines */
    {GET "Host: a\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: a\n\n", 400},
    {"\n", 400},
    {GET HOST "A: b\rc\r\n\r\n", 400},
    {GET HOST "A: b\r\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\r\n" HOST "\r\n", 400},
    {GET HOST "A: b\r\n c\r\n\r\n", 400},
    {GET HOST "A: b\r\n\tc: d\r\n\r\n", 400},
    {GET " A: b\r\n" HOST "\r\n", 400},
    {GET HOST "A : b\r\n\r\n", 400},
    {GET HOST "A\t: b\r\n\r\n", 400},
    {GET HOST ": b\r\n\r\n", 400},
    {GET HOST "A\r\n\r\n", 400},
    {GET HOST "A(: b\r\n\r\n", 400},
    {GET HOST "A\x80: b\r\n\r\n", 400},
    {GET HOST "A: \x01\r\n\r\n", 400},
    {GET HOST "A: \x7f\r\n\r\n", 400},
    {"\r\n\r\n" GET HOST "\r\n", 400},
    /* the first line */
    {"GET /\r\n\r\n", 400},
    {"GET / \r\n\r\n", 400},
    {"GET  / HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET /  HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET / HTTP/1.1 \r\n" HOST "\r\n", 400},
    {"GET\t/ HTTP/1.1\r\n" HOST "\r\n", 400},
    {" GET / HTTP/1.1\r\n" HOST "\r\n", 400},
    {"G(T / HTTP/1.1\r\n" HOST "\r\n", 400},
    {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET /\x01 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET x HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET * HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET a:443 HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET http:/// HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 400},
    {"CONNECT /x HTTP/1.1\r\n" HOST "\r\n", 400},
    {"GET / http/1.1\r\n" HOST "\r\n", 400},
    {"GET / HTTP/11\r\n" HOST "\r\n", 400},
    {"GET / HTTP/1.10\r\n" HOST "\r\n", 400},
    {"GET / HTTP/1.2\r\n" HOST "\r\n", 505},
    {"GET / HTTP/0.9\r\n" HOST "\r\n", 505},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
    /* Host */
    {GET "\r\n", 400},
    {GET "Host:\r\n\r\n", 400},
    {GET "Host: \t \r\n\r\n", 400},
    {GET HOST HOST "\r\n", 400},
    {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", 400},
    {GET "Host: a,b\r\n\r\n", 400},
    {GET "Host: a b\r\n\r\n", 400},
    {GET "Host: a/b\r\n\r\n", 400},
    {GET "Host: u@a\r\n\r\n", 400},
    {GET "Host: a:x\r\n\r\n", 400},
    {GET "Host: a:1:2\r\n\r\n", 400},
    {GET "Host: :80\r\n\r\n", 400},
    {GET "Host: [::1\r\n\r\n", 400},
    {GET "Host: []\r\n\r\n", 400},
    {GET "Host: [::1]x\r\n\r\n", 400},
    /* where the body ends */
    {GET HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400},
    {GET HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
    {GET HOST "Content-Length: 5, 5\r\n\r\n", 400},
    {GET HOST "Content-Length: +5\r\n\r\n", 400},
    {GET HOST "Content-Length: -1\r\n\r\n", 400},
    {GET HOST "Content-Length: 0x5\r\n\r\n", 400},
    {GET HOST "Content-Length: 5 \xc2\xa0\r\n\r\n", 400},
    {GET HOST "Content-Length: 1 2\r\n\r\n", 400},
    {GET HOST "Content-Length:\r\n\r\n", 400},
    {GET HOST "Content-Length: 9223372036854775808\r\n\r\n", 400},
    {GET HOST "Content-Length: 18446744073709551617\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked, chunked\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked, gzip\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding:\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: ,chunked\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: chunked;q=1\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: \x0b"
              "chunked\r\n\r\n",
     400},
    {GET HOST "Transfer-Encoding: \"chunked\"\r\n\r\n", 400},
    {GET HOST "Transfer-Encoding: identity\r\n\r\n", 501},
    {GET HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {GET HOST "Transfer-Encoding: xchunked\r\n\r\n", 501},
    {"GET / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400},
};

static void test_refused(UNUSED void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        int r = parse(refused[i].data);
        if (r != -refused[i].status)
            print_error("%s -> %d\n", refused[i].data, r);
        assert_int_equal(r, -refused[i].status);
    }
    assert_int_equal(parse_n("GET / HTTP/1.1\r\nHost: a\r\nB: \0\r\n\r\n", 33, NULL), -400);
    assert_int_equal(parse_n("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29, NULL), -400);
    assert_int_equal(parse_n("GET / HTTP/1.1\r\nHo\0st: a\r\n\r\n", 29, NULL), -400);
}

static void test_limits(UNUSED void **state)
{
    static char big[65536];
    struct http_limits limits = {.head_bytes = 64, .headers = 2};

    /* exactly at the limit and one over it; before the end came, too */
    int n = snprintf(big, sizeof(big), GET HOST "A: %025d\r\n\r\n", 0);
    assert_int_equal(n, 65);
    assert_int_equal(parse_n(big, 65, &limits), -431);
    assert_int_equal(parse_n(big, 64, &limits), -431);
    assert_int_equal(parse_n(big, 63, &limits), 0);
    limits.head_bytes = 65;
    assert_int_equal(parse_n(big, 65, &limits), 65);

    limits.head_bytes = 0;
    assert_true(parse_n(GET HOST "A: b\r\n\r\n", strlen(GET HOST "A: b\r\n\r\n"), &limits) > 0);
    assert_int_equal(parse_n(GET HOST "A: b\r\nC: d\r\n\r\n", strlen(GET HOST "A: b\r\nC: d\r\n\r\n"), &limits), -431);

    /* more than a head can hold, whatever the limit says */
    limits.headers = 1000;
    size_t len = (size_t)snprintf(big, sizeof(big), "%s", GET HOST);
    for (size_t i = 1; i < HTTP_HEADERS_MAX; i++, len += 6)
        unit_put(big + len, "A: b\r\n", 6);
    unit_put(big + len, "\r\n", 2);
    assert_int_equal(parse_n(big, len + 2, &limits), len + 2);
    assert_int_equal(head.n_fields, HTTP_HEADERS_MAX);
    unit_put(big + len, "A: b\r\n\r\n", 8);
    assert_int_equal(parse_n(big, len + 8, &limits), -431);

    /* targets */
    memset(big, 'a', sizeof(big));
    unit_put(big, "GET /", 5);
    unit_put(big + 4 + HTTP_TARGET_MAX, " HTTP/1.1\r\n" HOST "\r\n", 30);
    assert_int_equal(parse_n(big, 4 + HTTP_TARGET_MAX + 30, NULL), 4 + HTTP_TARGET_MAX + 30);
    memset(big + 4 + HTTP_TARGET_MAX, 'a', 30);
    unit_put(big + 5 + HTTP_TARGET_MAX, " HTTP/1.1\r\n" HOST "\r\n", 30);
    assert_int_equal(parse_n(big, 5 + HTTP_TARGET_MAX + 30, NULL), -414);
    memset(big + 5, 'a', 40000);
    assert_int_equal(parse_n(big, 32768, NULL), -414);
    assert_int_equal(parse_n(big, 32767, NULL), 0);
}

static void test_response(UNUSED void **state)
{
    assert_true(parse_response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET") > 0);
    assert_int_equal(head.status, 200);
    assert_string_equal(head.reason, "OK");
    assert_int_equal(head.body, HTTP_BODY_LENGTH);
    assert_true(head.keep_alive);
    assert_true(parse_response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD") > 0);
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_int_equal(head.content_length, 3);
    assert_true(parse_response("HTTP/1.1 200 \r\n\r\n", "GET") > 0);
    assert_int_equal(head.body, HTTP_BODY_UNTIL_CLOSE);
    assert_false(head.keep_alive);
    assert_true(parse_response("HTTP/1.0 404\r\nTransfer-encoding: x\r\n\r\n", "GET") < 0);
    assert_true(parse_response("HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", "GET") > 0);
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_true(parse_response("HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", "GET") > 0);
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_true(parse_response("HTTP/1.1 304 Not Modified\r\n\r\n", "GET") > 0);
    assert_int_equal(head.body, HTTP_BODY_NONE);
    assert_true(parse_response("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "GET") > 0);
    assert_true(head.upgrade);
    assert_int_equal(
        parse_response("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 2000 OK\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 20 OK\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 600 OK\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 200 O\x01K\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/2.0 200 OK\r\n\r\n", "GET"), -505);
    assert_int_equal(parse_response("HTTP/1.1  200 OK\r\n\r\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 200 OK\nA: b\n\n", "GET"), -400);
    assert_int_equal(parse_response("HTTP/1.1 200 OK\r\n", "GET"), 0);
}

/* ---- bodies ------------------------------------------------------------------------------------- */

/* Reads data in pieces of `step`; content into out. Bytes taken, or -400; *ret_end. */
static int read_body(enum http_body kind, uint64_t length, const char *data, size_t len, size_t step, struct buf *out,
                     bool *ret_end)
{
    struct http_head h = {.body = kind, .content_length = length};
    struct http_body_reader reader;
    size_t at = 0, limit = step < len ? step : len;

    http_body_init(&reader, &h);
    *ret_end = kind == HTTP_BODY_NONE;
    for (;;) {
        const char *piece;
        size_t piece_len;
        int r = http_body_take(&reader, data + at, limit - at, &piece, &piece_len, ret_end);
        if (r < 0)
            return r;
        assert_true(piece >= data + at && piece + piece_len <= data + limit);
        assert_int_equal(buf_append(out, piece, piece_len), 0);
        at += (size_t)r;
        if (*ret_end)
            return (int)at;
        if (at == limit) {
            if (limit == len)
                return (int)at;
            limit = limit + step < len ? limit + step : len;
        }
    }
}

static void check_body(const char *data, const char *expected, int taken, bool ended)
{
    for (size_t step = 1; step <= strlen(data) + 1; step++) {
        struct buf out AUTO_BUF = BUF_INIT(65536);
        bool end;
        int r = read_body(HTTP_BODY_CHUNKED, 0, data, strlen(data), step, &out, &end);
        if (r != taken)
            print_error("%s in pieces of %zu -> %d\n", data, step, r);
        assert_int_equal(r, taken);
        if (taken < 0)
            continue;
        assert_int_equal(end, ended);
        assert_int_equal(out.len, strlen(expected));
        if (out.len > 0)
            assert_memory_equal(out.data, expected, out.len);
    }
}

static void test_chunked(UNUSED void **state)
{
    check_body("5\r\nhello\r\n0\r\n\r\n", "hello", 15, true);
    check_body("5\r\nhello\r\n0\r\n\r\nGET /", "hello", 15, true); /* what follows is left alone */
    check_body("5\r\nhel", "hel", 6, false);
    check_body("A;x=\"y\"\r\n0123456789\r\n0000000000000001\r\n!\r\n0;z\r\nTrailer: x\r\nB:\r\n\r\n", "0123456789!", 65,
               true);
    check_body("0\r\n\r\n", "", 5, true);
    check_body("ffffffffffffffff\r\nabc", "abc", 21, false);
    static const char *const bad[] = {
        "\r\n",
        "g\r\n",
        " 5\r\nhello",
        "5 \r\nhello",
        "-5\r\nhello",
        "+5\r\nhello",
        "0x5\r\nhello",
        "5\nhello\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloX",
        "5\r\nhello\rX",
        "5\rX",
        "5;a\nhello",
        "5;a\x01\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\nhello",
        "0\r\n x: y\r\n\r\n",
        "0\r\nx : y\r\n\r\n",
        "0\r\nx\r\n\r\n",
        "0\r\nx: \x01\r\n\r\n",
        "0\r\n\n",
        "0\r\nx: y\n\n",
        "0\r\n\rX",
        ";\r\n",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        check_body(bad[i], "", -400, false);
}

static void test_chunked_bounds(UNUSED void **state)
{
    /* extensions and trailers are counted over the whole body */
    static const char *const units[] = {"1;123456789\r\na\r\n", "0\r\nT: 0123456789\r\n"};

    for (size_t u = 0; u < ARRAY_SIZE(units); u++) {
        struct buf data AUTO_BUF = BUF_INIT(1u << 20), out AUTO_BUF = BUF_INIT(1u << 20);
        bool end;
        for (int i = 0; i < 3000; i++)
            assert_int_equal(buf_append_str(&data, i > 0 && u == 1 ? units[u] + 3 : units[u]), 0);
        assert_int_equal(read_body(HTTP_BODY_CHUNKED, 0, data.data, data.len, data.len, &out, &end), -400);
    }
}

static void test_length_body(UNUSED void **state)
{
    for (size_t step = 1; step < 12; step++) {
        struct buf out AUTO_BUF = BUF_INIT(100);
        bool end;
        assert_int_equal(read_body(HTTP_BODY_LENGTH, 5, "helloGET /", 10, step, &out, &end), 5);
        assert_true(end);
        assert_string_equal(out.data, "hello");
    }
    struct buf out AUTO_BUF = BUF_INIT(100);
    bool end;
    assert_int_equal(read_body(HTTP_BODY_UNTIL_CLOSE, 0, "hello", 5, 2, &out, &end), 5);
    assert_false(end);
    assert_int_equal(read_body(HTTP_BODY_NONE, 0, "hello", 5, 5, &out, &end), 0);
    assert_true(end);
}

/* ---- targets ------------------------------------------------------------------------------------ */

static void test_target(UNUSED void **state)
{
    struct http_target target;
    struct brig_err err;

    assert_int_equal(http_target_parse("/v1/x%20y/a%2Fb/%ff?a=b&c&d=1+2%2B3=4&&=e&a=%C3%A4", &target, &err), 0);
    assert_int_equal(target.n_parts, 4);
    assert_string_equal(target.parts[0], "v1");
    assert_string_equal(target.parts[1], "x y");
    assert_string_equal(target.parts[2], "a/b");
    assert_int_equal(target.part_len[2], 3);
    assert_string_equal(target.parts[3], "\xff");
    assert_string_equal(target.rest_raw, "/v1/x%20y/a%2Fb/%ff");
    assert_string_equal(target.query_raw, "a=b&c&d=1+2%2B3=4&&=e&a=%C3%A4");
    assert_int_equal(target.n_query, 5);
    assert_string_equal(http_query(&target, "a"), "b");
    assert_string_equal(http_query(&target, "c"), "");
    assert_string_equal(http_query(&target, "d"), "1 2+3=4");
    assert_string_equal(http_query(&target, ""), "e");
    assert_int_equal(target.query[4].value_len, 2);
    assert_null(http_query(&target, "e"));
    http_target_done(&target);

    assert_int_equal(http_target_parse("/", &target, &err), 0);
    assert_int_equal(target.n_parts, 0);
    assert_string_equal(target.query_raw, "");
    http_target_done(&target);
    assert_int_equal(http_target_parse("/a/", &target, &err), 0);
    assert_int_equal(target.n_parts, 2);
    http_target_done(&target);
    assert_int_equal(http_target_parse("//", &target, &err), 0);
    assert_int_equal(target.n_parts, 2);
    http_target_done(&target);
    assert_int_equal(http_target_parse("HTTP://localhost:1/a/b?x=/y?z", &target, &err), 0);
    assert_int_equal(target.n_parts, 2);
    assert_string_equal(target.rest_raw, "/a/b");
    assert_string_equal(http_query(&target, "x"), "/y?z");
    http_target_done(&target);
    assert_int_equal(http_target_parse("https://localhost?x", &target, &err), 0);
    assert_string_equal(target.rest_raw, "/");
    assert_string_equal(http_query(&target, "x"), "");
    http_target_done(&target);
    assert_int_equal(http_target_parse("*", &target, &err), 0);
    assert_int_equal(target.n_parts, 0);
    http_target_done(&target);
    /* plain bytes */
    assert_int_equal(http_target_parse("/..;/...//a\\..\\b/%252e%252e?p=../..%2f", &target, &err), 0);
    assert_string_equal(target.parts[0], "..;");
    assert_string_equal(target.parts[3], "a\\..\\b");
    assert_string_equal(target.parts[4], "%2e%2e");
    assert_string_equal(http_query(&target, "p"), "../../");
    http_target_done(&target);
    http_target_done(&target);
}

static void test_target_refused(UNUSED void **state)
{
    static const char *const bad[] = {"/a/../b", "/..",     "/.",    "/a/.",         "/%2e%2e/x", "/%2E./x",
                                      "/%2e",    "/a%00b",  "/a%",   "/a%4",         "/a%zz",     "/a%0gb",
                                      "?x",      "x",       "",      "a:443",        "/?%",       "/?a=%0",
                                      "/?a=%00", "/?%00=a", "/?%zz", "http://a/../b"};
    struct http_target target;
    struct brig_err err;
    char many[1024];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int r = http_target_parse(bad[i], &target, &err);
        if (r != -400)
            print_error("%s -> %d\n", bad[i], r);
        assert_int_equal(r, -400);
    }
    for (size_t i = 0; i <= HTTP_PARTS_MAX; i++)
        unit_put(many + 2 * i, "/a", 3);
    assert_int_equal(http_target_parse(many, &target, &err), -400);
    many[2 * HTTP_PARTS_MAX] = '\0';
    assert_int_equal(http_target_parse(many, &target, &err), 0);
    http_target_done(&target);
    unit_put(many, "/?", 3);
    for (size_t i = 0; i <= HTTP_QUERY_MAX; i++)
        unit_put(many + 2 + 2 * i, "a&", 3);
    assert_int_equal(http_target_parse(many, &target, &err), -400);
    mem_fail_after(0);
    assert_int_equal(http_target_parse("/", &target, &err), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void test_writing(UNUSED void **state)
{
    struct buf out AUTO_BUF = BUF_INIT(4096);

    assert_int_equal(http_put_status(&out, 200), 0);
    assert_int_equal(http_put_field(&out, "A", "b c"), 0);
    assert_int_equal(http_put_field(&out, "B", ""), 0);
    assert_int_equal(http_put_field(&out, "X", "a\r\nB: c"), -EINVAL);
    assert_int_equal(http_put_field(&out, "X", "a\nb"), -EINVAL);
    assert_int_equal(http_put_field(&out, "X", "\x7f"), -EINVAL);
    assert_int_equal(http_put_field(&out, "X:", "a"), -EINVAL);
    assert_int_equal(http_put_field(&out, "", "a"), -EINVAL);
    assert_int_equal(http_put_end(&out), 0);
    assert_int_equal(http_put_chunk_head(&out, 0x1a), 0);
    assert_string_equal(out.data, "HTTP/1.1 200 OK\r\nA: b c\r\nB: \r\n\r\n1a\r\n");
    buf_consume(&out, out.len);
    assert_int_equal(http_put_status(&out, 404), 0);
    assert_int_equal(http_put_status(&out, 99), -EINVAL);
    assert_int_equal(http_put_status(&out, 299), 0);
    assert_int_equal(http_put_request(&out, "PUT", "/a?b"), 0);
    assert_int_equal(http_put_request(&out, "PUT", "/a b"), -EINVAL);
    assert_int_equal(http_put_request(&out, "PUT", "/a\r\nb"), -EINVAL);
    assert_int_equal(http_put_request(&out, "P T", "/"), -EINVAL);
    assert_int_equal(http_put_escaped(&out, "a/b c\0\xff~", 8, "/"), 0);
    assert_string_equal(out.data,
                        "HTTP/1.1 404 Not Found\r\nHTTP/1.1 299 Unknown\r\nPUT /a?b HTTP/1.1\r\na/b%20c%00%FF~");
    struct buf small AUTO_BUF = BUF_INIT(5);
    assert_int_equal(http_put_escaped(&small, "abcde", 5, ""), 0);
    assert_int_equal(http_put_escaped(&small, "a", 1, ""), -EMSGSIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request), cmocka_unit_test(test_request_kinds),  cmocka_unit_test(test_request_piecewise),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_limits),         cmocka_unit_test(test_response),
        cmocka_unit_test(test_chunked), cmocka_unit_test(test_chunked_bounds), cmocka_unit_test(test_length_body),
        cmocka_unit_test(test_target),  cmocka_unit_test(test_target_refused), cmocka_unit_test(test_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
