/* SPDX-License-Identifier: Apache-2.0 */
/* The server: requests and answers of every shape over real sockets, in one process. */
#include "server_rig.h"

static void test_hello(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, GET("/hello"));
    client_expect(&c, "hello");
    assert_true(client_has(&c, "HTTP/1.1 200 OK\r\n"));
    assert_true(client_has(&c, "\r\nDate: "));
    assert_true(client_has(&c, " GMT\r\n"));
    assert_true(client_has(&c, "\r\nContent-Type: text/plain\r\n"));
    assert_true(client_has(&c, "\r\nContent-Length: 5\r\n"));
    assert_true(client_has(&c, "\r\nX-Request-Id: req-"));
    assert_false(client_has(&c, "Connection:"));
    assert_true(strcmp(c.in.data + c.in.len - 9, "\r\n\r\nhello") == 0);
    assert_int_equal(rig.n_logged, 1);
    assert_int_equal(rig.logged_status, 200);
    assert_int_equal(rig.logged_bytes, 5);
    assert_int_equal(server_connections(rig.server), 1);
    assert_int_equal(server_exchanges(rig.server), 0);
}

static void test_keep_alive(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    for (int i = 0; i < 100; i++) {
        client_send(&c, GET("/hello"));
        client_expect(&c, "hello");
        client_forget(&c);
    }
    client_send(&c, "GET /hello HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
    client_expect_end(&c);
    assert_true(client_has(&c, "Connection: close\r\n"));
    rig_until(server_connections(rig.server) == 0);
}

static void test_http10(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp(), e AUTO_CLIENT = client_tcp();

    client_send(&c, "GET /hello HTTP/1.0\r\n" HOST "\r\n");
    client_expect_end(&c);
    assert_true(client_has(&c, "Connection: close"));
    client_send(&d, "GET /hello HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n");
    client_expect(&d, "hello");
    assert_true(client_has(&d, "Connection: keep-alive"));
    /* no chunks for it */
    rig.to_send = 100;
    client_send(&e, "GET /big?chunked=1 HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n");
    client_expect_end(&e);
    assert_false(client_has(&e, "chunked"));
    assert_true(client_has(&e, "\r\n\r\nxxx") && client_has(&e, "Connection: close"));
}

static void test_pipelining(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();
    struct buf all AUTO_BUF = BUF_INIT(1u << 20);

    /* more than one buffer of them, a body in between, and a late answer that the next ones wait for */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buf_append_str(&all, GET("/hello")), 0);
    assert_int_equal(buf_append_str(&all, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 4\r\n\r\nbody"), 0);
    assert_int_equal(
        buf_append_str(&all, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
        0);
    assert_int_equal(buf_append_str(&all, GET("/later") GET("/empty")), 0);
    client_send_n(&c, all.data, all.len);
    rig_run(50);
    client_read(&c);
    assert_int_equal(rig.n_requests, 1003);
    assert_non_null(rig.kept);
    assert_int_equal(server_exchanges(rig.server), 1);
    assert_true(client_has(&c, "\r\n\r\nbody"));
    assert_true(client_has(&c, "\r\n\r\nabc"));
    exchange_reply(rig.kept, 200, "text/plain", "late", 4);
    client_expect(&c, "204 No Content");
    assert_true(strstr(c.in.data, "late") < strstr(c.in.data, "204"));
    assert_null(strstr(strstr(c.in.data, "204"), "Content-Length"));
}

static void test_head_in_pieces(UNUSED void **state)
{
    static const char request[] = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" GET("/peer");
    struct client c AUTO_CLIENT = client_tcp();

    for (size_t i = 0; i < strlen(request); i++) {
        client_send_n(&c, request + i, 1);
        if (i % 7 == 0)
            assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
    }
    client_expect(&c, "\r\n\r\nhello");
    client_expect(&c, "127.0.0.1 0 -1 0");
}

static void test_head_method(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, "HEAD /hello HTTP/1.1\r\n" HOST "\r\n");
    client_expect(&c, "Content-Length: 5\r\n");
    rig.to_send = 3000000;
    client_send(&c, "HEAD /big HTTP/1.1\r\n" HOST "\r\n");
    client_expect(&c, "Content-Length: 3000000\r\n");
    rig.to_send = 3000000;
    client_send(&c, "HEAD /big?chunked=1 HTTP/1.1\r\n" HOST "\r\nGET /peer HTTP/1.1\r\n" HOST "\r\n");
    client_expect(&c, "127.0.0.1");
    assert_false(client_has(&c, "xxx") || client_has(&c, "hello"));
}

static void test_unix(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_unix();
    char expected[64];

    snprintf(expected, sizeof(expected), "unix 1 %d 0", (int)getuid());
    client_send(&c, "GET /peer HTTP/1.1\r\nHost: anything.at.all\r\n\r\n");
    client_expect(&c, expected);
    client_send(&c, "GET /hello HTTP/1.0\r\n\r\n");
    client_expect_end(&c);
    assert_true(client_has(&c, "hello"));
}

static void test_ipv6(UNUSED void **state)
{
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    if (probe < 0 || bind(probe, (struct sockaddr *)&address, sizeof(address)) < 0) {
        base_close_fd(&probe);
        skip();
    }
    close(probe);
    rig_listen_tcp(AF_INET6);
    address.sin6_port = htons(rig.port);
    struct client c AUTO_CLIENT = {.fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), .in = BUF_INIT(65536)};
    assert_int_equal(connect(c.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    client_send(&c, "GET /peer HTTP/1.1\r\nHost: [::1]:1234\r\n\r\n");
    client_expect(&c, "::1 0 -1 0");
}

/* ---- bodies ------------------------------------------------------------------------------------- */

static void test_read_all(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();
    static char big[100001];

    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n");
    client_expect(&c, "Content-Length: 0\r\n");
    client_send(&c, GET("/echo"));
    client_forget(&c);
    client_expect(&c, "Content-Length: 0\r\n");
    client_forget(&c);
    memset(big, 'b', sizeof(big));
    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n");
    client_send_n(&c, big, 100000);
    client_expect(&c, "Content-Length: 100000\r\n");
    client_expect_bytes(&c, 100000);
    client_forget(&c);
    /* chunked, in many pieces, with trailers */
    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 300; i++) {
        client_send(&c, "1\r\n");
        client_send(&c, i < 299 ? "y\r\n" : "z\r\n");
        if (i % 50 == 0)
            rig_run(1);
    }
    client_send(&c, "0\r\nT: u\r\n\r\n" GET("/peer"));
    client_expect(&c, "Content-Length: 300\r\n");
    client_expect(&c, "yyyyz");
    client_expect(&c, "127.0.0.1 0");
}

static void test_too_large(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();
    static char piece[50000];

    /* told before it is sent, and found out on the way */
    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100001\r\nExpect: 100-continue\r\n\r\n");
    client_expect_end(&c);
    assert_true(client_has(&c, "HTTP/1.1 413 ") && client_has(&c, "\"too_large\"") &&
                client_has(&c, "Connection: close"));
    assert_false(client_has(&c, "100 Continue"));
    assert_int_equal(rig.n_gone, 1);
    memset(piece, 'p', sizeof(piece));
    client_send(&d, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        client_send(&d, "c350\r\n");
        client_send_n(&d, piece, sizeof(piece));
        client_send(&d, "\r\n");
    }
    client_expect(&d, "HTTP/1.1 413 ");
    shutdown(d.fd, SHUT_WR);
    client_expect_end(&d);
    assert_int_equal(rig.n_gone, 2);
}

static void test_upload(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();
    static char piece[1u << 20];

    /* held: the client is stopped by the kernel's buffers, then it goes on */
    rig.hold = true;
    client_send(&c, "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 33554432\r\n\r\n");
    int n_blocked = 0;
    size_t sent = 0;
    while (sent < sizeof(piece) * 32) {
        size_t want = sizeof(piece) * 32 - sent < sizeof(piece) ? sizeof(piece) * 32 - sent : sizeof(piece);
        ssize_t n = send(c.fd, piece, want, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        rig_run(20);
        if (++n_blocked == 3) {
            assert_true(rig.body_bytes > 0 && rig.body_bytes <= 256u << 10);
            rig.hold = false;
            exchange_body_proceed(rig.kept);
        }
        assert_true(n_blocked < 10000);
    }
    assert_true(n_blocked >= 3);
    client_expect(&c, "got it");
    assert_int_equal(rig.body_bytes, 33554432);
    assert_true(rig.max_piece >= 64u << 10 && rig.max_piece <= 256u << 10);
    assert_int_equal(rig.n_end, 1);
    client_send(&c, GET("/hello"));
    client_expect(&c, "hello");
}

static void test_chunked_both_ways(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, "POST /both HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    client_expect(&c, "Transfer-Encoding: chunked\r\n");
    client_send(&c, "5\r\nhello\r\n3\r\nabc\r\n");
    client_expect(&c, "\r\n\r\n8\r\nhelloabc\r\n");
    client_send(&c, "1\r\nz\r\n0\r\n\r\n");
    client_expect(&c, "1\r\nz\r\n0\r\n\r\n");
    client_expect_end(&c); /* the body was still coming when the answer began */
}

static void test_continue(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp(), e AUTO_CLIENT = client_tcp();

    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client_expect(&c, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(&c, "hello");
    client_expect(&c, "\r\n\r\nhello");
    /* not when the body is there already */
    client_forget(&c);
    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    client_expect(&c, "\r\n\r\nhello");
    assert_false(client_has(&c, "100 Continue"));
    /* nor when nobody asks for it: then the connection ends, for the client may send it or not */
    client_send(&d, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client_expect_end(&d);
    assert_true(client_has(&d, "403 Forbidden") && client_has(&d, "Connection: close"));
    assert_false(client_has(&d, "100 Continue"));
    client_send(&e, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\nExpect: a-miracle\r\n\r\n");
    client_expect(&e, "417 Expectation Failed");
}

/* The answer arrives although the client is still sending, and what it sends is not taken for a request. */
static void test_early_answer(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();
    static char body[600000];

    memset(body, '\n', sizeof(body));
    client_send(&c, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 600000\r\n\r\n");
    client_send_n(&c, body, sizeof(body));
    client_expect_end(&c);
    assert_true(client_has(&c, "403 Forbidden") && client_has(&c, "Connection: close"));
    assert_null(strstr(strstr(c.in.data, "HTTP/1.1") + 1, "HTTP/1.1"));
    assert_int_equal(rig.n_requests, 1);
    /* a body that has come with the head costs nothing */
    client_send(&d, "POST /early HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello" GET("/hello"));
    client_expect(&d, "\r\n\r\nhello");
}

static void test_bad_body(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();

    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nx\r\n");
    client_expect(&c, "400 Bad Request");
    client_expect_end(&c);
    assert_int_equal(rig.n_gone, 1);
    /* after the answer has begun, only the end of the connection can say it */
    client_send(&d, "POST /both HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    client_expect(&d, "1\r\na\r\n");
    client_send(&d, "nonsense");
    client_expect(&d, NULL);
    assert_false(client_has(&d, "0\r\n\r\n") || client_has(&d, "400"));
    assert_int_equal(rig.n_gone, 2);
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void test_streams(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, GET("/stream"));
    client_expect(&c, "\r\n\r\n"); /* the head comes before the first event */
    assert_true(exchange_sse(rig.kept, "stdout", "1,2", "a\nb\r\nc\rd", 8));
    client_expect(&c, "event: stdout\nid: 1,2\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
    assert_true(exchange_sse(rig.kept, "x\nid: evil", NULL, "", 0));
    client_expect(&c, "event: x\ndata: \n\n");
    assert_true(exchange_sse(rig.kept, NULL, NULL, "a\n", 2));
    client_expect(&c, "\ndata: a\ndata: \n\n");
    exchange_end(rig.kept);
    client_expect(&c, "0\r\n\r\n");
    client_send(&c, GET("/hello"));
    client_expect(&c, "hello");
}

static void test_big(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    for (int chunked = 0; chunked < 2; chunked++) {
        rig.to_send = 20000000;
        rig.n_drained = 0;
        client_send(&c, chunked ? GET("/big?chunked=1") : GET("/big"));
        rig_run(20);
        assert_true(rig.to_send > 0); /* the client does not read: it waits */
        client_expect_bytes(&c, 20000000 + 100);
        if (chunked)
            client_expect(&c, "\r\n0\r\n\r\n");
        assert_true(rig.n_drained > 0); /* how often depends on how much the kernel takes at once */
        client_forget(&c);
    }
    client_send(&c, GET("/hello"));
    client_expect(&c, "hello");
}

static void test_wrong_length(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp(), e AUTO_CLIENT = client_tcp();

    client_send(&c, GET("/sized"));
    rig_run(5);
    exchange_write(rig.kept, "12345", 5);
    exchange_end(rig.kept); /* too short: the client must notice */
    client_expect(&c, NULL);
    assert_true(client_has(&c, "\r\n\r\n12345"));
    client_send(&d, GET("/sized"));
    rig_run(5);
    exchange_write(rig.kept, "123456789012", 12);
    exchange_end(rig.kept);
    client_expect(&d, NULL);
    assert_false(client_has(&d, "12345678901"));
    client_send(&e, GET("/stream"));
    client_expect(&e, "\r\n\r\n");
    exchange_write(rig.kept, "abc", 3);
    exchange_abort(rig.kept);
    client_expect(&e, NULL);
    assert_true(client_has(&e, "3\r\nabc\r\n"));
    assert_false(client_has(&e, "0\r\n\r\n"));
    assert_int_equal(rig.n_gone, 0);
    assert_int_equal(server_exchanges(rig.server), 0);
}

static void test_fields(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, GET("/fields") GET("/hello"));
    client_expect(&c, "hello");
    assert_true(client_has(&c, "\r\nX-Good: yes\r\n"));
    assert_false(client_has(&c, "Evil") || client_has(&c, "X-Bad") || client_has(&c, "Content-Length: 7"));
    assert_null(strstr(strstr(c.in.data, "X-Good") + 1, "X-Good")); /* not in the next answer */
}

static void test_errors(UNUSED void **state)
{
    static const struct {
        const char *request, *status, *code, *field;
    } cases[] = {
        {GET("/fail/b"), "400 ", "invalid_argument", ""},
        {GET("/fail/c"), "422 ", "refused", ""},
        {GET("/fail/d"), "422 ", "unsupported", ""},
        {GET("/fail/e"), "500 ", "host_error", ""},
        {GET("/fail/f"), "503 ", "out_of_memory", ""},
        {GET("/fail/g"), "503 ", "sandbox_gone", ""},
        {GET("/fail/h"), "401 ", "unauthenticated", "WWW-Authenticate: Bearer\r\n"},
        {GET("/fail/i"), "403 ", "forbidden", ""},
        {GET("/fail/j"), "404 ", "not_found", ""},
        {GET("/fail/k"), "409 ", "conflict", ""},
        {GET("/fail/l"), "429 ", "limit", "Retry-After: 1\r\n"},
        {GET("/fail/m"), "413 ", "too_large", ""},
        {GET("/fail/n"), "408 ", "timeout", ""},
        {GET("/fail/o"), "503 ", "busy", "Retry-After: 1\r\n"},
        {GET("/fail/p"), "422 ", "invalid", ""},
        {GET("/fail/q"), "501 ", "not_enabled", ""},
        {GET("/fail/r"), "500 ", "internal", ""},
    };
    struct client c AUTO_CLIENT = client_tcp();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[128];
        client_send(&c, cases[i].request);
        client_expect(&c, "}}\n");
        snprintf(text, sizeof(text),
                 "{\"error\":{\"code\":\"%s\",\"message\":\"a \\\"message\\\"\",\"hint\":", cases[i].code);
        assert_true(client_has(&c, text));
        assert_true(client_has(&c, cases[i].status) && client_has(&c, cases[i].field));
        const char *id = strstr(c.in.data, "X-Request-Id: ") + 14;
        snprintf(text, sizeof(text), "\"request_id\":\"%.30s\"}}", id);
        assert_true(client_has(&c, text));
        client_forget(&c);
    }
}

static void test_tunnel(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();

    client_send(&c, "GET /tunnel HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: raw\r\n\r\nfirst");
    client_expect(&c, "\r\n\r\nfirst");
    client_send(&c, "\r\n\r\n0\r\nGET / HTTP/1.1\r\n\r\n");
    client_expect(&c, "\r\n\r\n0\r\nGET / HTTP/1.1\r\n\r\n");
    shutdown(c.fd, SHUT_WR);
    client_expect_end(&c);
    assert_true(client_has(&c, "bye"));
    assert_int_equal(rig.n_eof, 1);
    assert_int_equal(rig.n_gone, 0);
    client_send(&d, "GET /tunnel HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: raw\r\n\r\n");
    client_expect(&d, "\r\n\r\n");
    struct linger reset = {.l_onoff = 1};
    setsockopt(d.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    base_close_fd(&d.fd);
    rig_until(rig.n_gone == 1);
    rig_answer("POST /tunnel HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx", "400 Bad Request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
        T(test_hello),
        T(test_keep_alive),
        T(test_http10),
        T(test_pipelining),
        T(test_head_in_pieces),
        T(test_head_method),
        T(test_unix),
        T(test_ipv6),
        T(test_read_all),
        T(test_too_large),
        T(test_upload),
        T(test_chunked_both_ways),
        T(test_continue),
        T(test_early_answer),
        T(test_bad_body),
        T(test_streams),
        T(test_big),
        T(test_wrong_length),
        T(test_fields),
        T(test_errors),
        T(test_tunnel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
