/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's limits: time, size, numbers, who may ask, who has left, and what happens without memory or descriptors.
 */
#include "server_rig.h"

#include "http/server_conn.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/resource.h>

/* ---- who may ask -------------------------------------------------------------------------------- */

static void check_request(const char *head, const char *status)
{
    char text[512];

    snprintf(text, sizeof(text), "GET /hello HTTP/1.1\r\n%s\r\n", head);
    rig_answer(text, status);
}

static void test_host(UNUSED void **state)
{
    static const char *const good[] = {"localhost",      "LOCALHOST:99", "127.0.0.1",          "127.9.9.9:1",
                                       "[::1]:2744",     "brig.test",    "3000-abc.brig.test", "one.example",
                                       "Two.example:80", "x.localhost"};
    static const char *const bad[] = {
        "evil.example", "brig.test.evil.example", "evilbrig.test", "10.0.0.1", "localhost.evil.example",
        "example",      "one.example.com",        "[::2]",         "0x7f.1",   "127.0.0.1.nip.io",
        "2130706433"};
    char text[256];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        snprintf(text, sizeof(text), "Host: %s\r\n", good[i]);
        check_request(text, "200 OK");
    }
    unsigned before = rig.n_requests;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        snprintf(text, sizeof(text), "Host: %s\r\n", bad[i]);
        check_request(text, "421 Misdirected Request");
    }
    assert_int_equal(rig.n_requests, before); /* no handler saw them */
    rig_answer("GET /hello HTTP/1.0\r\n\r\n", "421 ");
    rig_answer("GET http://localhost/hello HTTP/1.1\r\n" HOST "\r\n", "200 OK");
    rig_answer("GET http://evil.example/hello HTTP/1.1\r\n" HOST "\r\n", "400 ");
    rig_answer("GET http://evil.example/hello HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421 ");
    rig.http.listen = "some.name:2744";
    server_configure(rig.server, &rig.http);
    check_request("Host: some.name:2744\r\n", "200 OK");
}

static void test_origin(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    check_request("Host: localhost:99\r\nOrigin: http://localhost:99\r\n", "200 OK");
    check_request("Host: localhost\r\nOrigin: http://localhost:80\r\n", "200 OK");
    check_request("Host: localhost:99\r\nOrigin: http://localhost:98\r\n", "403 Forbidden");
    check_request("Host: localhost:99\r\nOrigin: https://localhost:99\r\n", "403 Forbidden");
    check_request("Host: localhost\r\nOrigin: http://evil.example\r\n", "403 Forbidden");
    check_request("Host: localhost\r\nOrigin: null\r\n", "403 Forbidden");
    check_request("Host: localhost\r\nOrigin:\r\n", "403 Forbidden");
    check_request("Host: localhost\r\nOrigin: https://ui.example.evil.example\r\n", "403 Forbidden");
    /* a page of a preview is another origin than the API */
    check_request("Host: localhost:99\r\nOrigin: http://3000-abc.brig.test:99\r\n", "403 Forbidden");
    /* one that is allowed is told so */
    client_send(&c, "GET /hello HTTP/1.1\r\n" HOST "Origin: https://ui.example\r\n\r\n");
    client_expect(&c, "hello");
    assert_true(client_has(&c, "Access-Control-Allow-Origin: https://ui.example\r\n") &&
                client_has(&c, "Vary: Origin"));
    client_forget(&c);
    unsigned before = rig.n_requests;
    client_send(&c, "OPTIONS /v1/x HTTP/1.1\r\n" HOST
                    "Origin: https://ui.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n");
    client_expect(&c, "204 No Content");
    assert_true(client_has(&c, "Access-Control-Allow-Methods: ") && client_has(&c, "Authorization"));
    assert_int_equal(rig.n_requests, before);
}

/* An address of this machine that is not the loopback's stands for another machine. */
static bool find_address(struct sockaddr_in *ret)
{
    struct ifaddrs *list = NULL;
    bool found = false;

    if (getifaddrs(&list) < 0)
        return false;
    for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
            continue;
        unit_put(ret, at->ifa_addr, sizeof(*ret));
        found = (ntohl(ret->sin_addr.s_addr) >> 24) != 127;
    }
    freeifaddrs(list);
    return found;
}

static void test_other_machine(UNUSED void **state)
{
    struct sockaddr_in own = {0}, any = {.sin_family = AF_INET};
    socklen_t len = sizeof(any);
    char request[128], text[INET_ADDRSTRLEN];

    if (!find_address(&own))
        skip();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&any, &len), 0);
    assert_int_equal(server_listen(rig.server, fd, false, NULL), 0);
    own.sin_port = any.sin_port;
    inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
    snprintf(request, sizeof(request), "GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n", text);
    for (int insecure = 0; insecure < 2; insecure++) {
        struct client c AUTO_CLIENT = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .in = BUF_INIT(65536)};
        rig.http.insecure = insecure == 1;
        server_configure(rig.server, &rig.http);
        assert_int_equal(connect(c.fd, (struct sockaddr *)&own, sizeof(own)), 0);
        client_send(&c, request);
        client_expect(&c, insecure ? "\r\n\r\nhello" : "HTTP/1.1 403 ");
    }
}

/* ---- sizes -------------------------------------------------------------------------------------- */

static void test_refused_heads(UNUSED void **state)
{
    static char big[70000];
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp(), e AUTO_CLIENT = client_tcp(),
                    f AUTO_CLIENT = client_tcp();

    memset(big, 'a', sizeof(big));
    unit_put(big, "GET /", 5);
    client_send_n(&c, big, 10000); /* never ends */
    client_expect(&c, "HTTP/1.1 414 ");
    client_expect_end(&c);
    assert_true(client_has(&c, "\"target_too_long\""));
    client_send(&d, "GET / HTTP/1.1\r\n" HOST "X: ");
    client_send_n(&d, big, sizeof(big));
    client_expect(&d, "HTTP/1.1 431 ");
    client_expect_end(&d);
    client_send(&e, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 50; i++)
        client_send(&e, "A: b\r\n");
    client_send(&e, "\r\n");
    client_expect(&e, "HTTP/1.1 431 ");
    client_expect_end(&e);
    /* what follows a refused request is no request */
    client_send(&f, "POST / HTTP/1.1\r\n" HOST
                    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET("/hello"));
    client_expect(&f, "HTTP/1.1 400 ");
    client_expect_end(&f);
    assert_false(client_has(&f, "200 OK"));
    assert_int_equal(rig.n_requests, 0);
    assert_int_equal(rig.n_logged, 4);
    rig_answer("GET / HTTP/2.0\r\n\r\n", "HTTP/1.1 505 ");
    rig_answer("GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 ");
    rig_answer("GET /a/%2e%2e/b HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 400 ");
    rig_answer("GET /a%00b HTTP/1.1\r\n" HOST "\r\n", "HTTP/1.1 400 ");
    rig_answer("GET /\r\n\r\n", "HTTP/1.1 400 ");
    rig_answer("\x16\x03\x01\x02\n", "HTTP/1.1 400 "); /* TLS where there is none */
}

/* ---- time --------------------------------------------------------------------------------------- */

static void test_slow_head(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = {.fd = -1};
    uint64_t start = clock_mono_ns();

    rig.http.idle_timeout = 60000; /* a head has a time of its own */
    server_configure(rig.server, &rig.http);
    client_send(&c, "GET / HTTP/1.1\r\n");
    /* a byte now and then does not help */
    for (int i = 0; i < 100 && !c.eof; i++) {
        client_send(&c, "X");
        rig_run(20);
        client_read(&c);
    }
    assert_true(client_has(&c, "HTTP/1.1 408 "));
    assert_true((clock_mono_ns() - start) / NS_PER_MS >= 190);
    /* nothing at all: closed without a word when the idle time is over */
    rig.http.idle_timeout = 100;
    server_configure(rig.server, &rig.http);
    d = client_tcp();
    client_expect(&d, NULL);
    assert_int_equal(d.in.len, 0);
}

static void test_idle(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    /* every request begins the time anew */
    for (int i = 0; i < 6; i++) {
        client_send(&c, GET("/hello"));
        client_expect(&c, "hello");
        client_forget(&c);
        rig_run(150);
    }
    assert_false(client_read(&c));
    uint64_t start = clock_mono_ns();
    client_expect_end(&c);
    assert_true((clock_mono_ns() - start) / NS_PER_MS < 2000);
    assert_int_equal(c.in.len, 0);
}

/* A body that comes slowly, but goes on. False: the machine kept the test waiting for longer than the client may. */
static bool sends_slowly(struct client *c)
{
    client_send(c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        uint64_t before = clock_mono_ns();
        client_send(c, "b");
        rig_run(30);
        if (clock_mono_ns() - before > rig.http.body_timeout / 2 * NS_PER_MS)
            return false;
    }
    return true;
}

static void test_slow_body(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = {.fd = -1};

    while (!sends_slowly(&c)) { /* until there is a quiet moment; the driver ends what never has one */
        client_done(&c);
        c = client_tcp();
    }
    client_expect(&c, "bbbbbbbbbbbbbbbbbbbb");
    rig_run(10);
    const unsigned gone = (unsigned)rig.n_gone;
    d = client_tcp();
    client_send(&d, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20\r\n\r\nabc");
    client_expect_end(&d);
    assert_true(client_has(&d, "HTTP/1.1 408 ") && client_has(&d, "Connection: close"));
    assert_int_equal(rig.n_gone, gone + 1);
    assert_int_equal(rig.logged_status, 408);
}

/* A handler may take its time: no limit of the connection's ends it. */
static void test_slow_handler(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, GET("/later"));
    rig_run(600);
    assert_int_equal(rig.n_gone, 0);
    exchange_reply(rig.kept, 200, "text/plain", "done", 4);
    client_expect(&c, "done");
    rig_run(100);
    assert_false(client_read(&c)); /* and the idle time begins only now */
}

static void test_slow_reader(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();

    rig.to_send = 200000000;
    client_send(&c, GET("/big"));
    rig_until(rig.to_send < 200000000);
    client_send(&d, GET("/hello")); /* others do not notice */
    client_expect(&d, "hello");
    rig_until(rig.n_gone == 1);
    assert_true(rig.to_send > 100000000); /* bounded: the kernel's buffers and ours */
    assert_int_equal(rig.logged_status, 499);
    assert_int_equal(server_exchanges(rig.server), 0);
    /* the same with an answer that is complete but not taken */
    struct client e AUTO_CLIENT = client_tcp();
    static char body[32u << 20];
    client_send(&e, GET("/later"));
    rig_until(rig.kept);
    base_close_fd(&d.fd); /* so that only the slow reader is left to be closed by the clock */
    rig_until(server_connections(rig.server) == 1);
    exchange_reply(rig.kept, 200, "text/plain", body, sizeof(body));
    assert_int_equal(server_connections(rig.server), 1);
    rig_until(server_connections(rig.server) == 0);
    client_expect(&e, NULL);
    assert_in_range(e.in.len, 1, sizeof(body) - 1); /* it was cut off */
    assert_int_equal(rig.n_gone, 1);                /* the handler had its say */
}

/* ---- leaving ------------------------------------------------------------------------------------ */

static void test_gone_while_idle(UNUSED void **state)
{
    for (int how = 0; how < 4; how++) {
        struct client c AUTO_CLIENT = how % 2 ? client_unix() : client_tcp();
        unsigned before = rig.n_gone;
        client_send(&c, how < 2 ? GET("/later") : GET("/stream"));
        rig_until(server_exchanges(rig.server) == 1);
        assert_non_null(rig.kept);
        base_close_fd(&c.fd);
        rig_until(rig.n_gone == before + 1 && server_exchanges(rig.server) == 0);
        assert_null(rig.kept);
    }
    /* also when the next request is waiting already */
    struct client c AUTO_CLIENT = client_tcp();
    client_send(&c, GET("/later") GET("/hello"));
    rig_run(10);
    unsigned before = rig.n_gone;
    base_close_fd(&c.fd);
    rig_until(rig.n_gone == before + 1 && server_connections(rig.server) == 0);
}

static void test_gone_in_body(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();

    client_send(&c, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20\r\n\r\nabc");
    rig_run(10);
    base_close_fd(&c.fd);
    rig_until(rig.n_gone == 1);
    /* the rest of a body is read although its sender has shut its side, and nothing spins meanwhile */
    rig.hold = true;
    client_send(&d, "POST /upload HTTP/1.1\r\n" HOST "Content-Length: 40006\r\n\r\nabcdef");
    static char rest[40000]; /* little enough for the kernel to take all of it, and the end behind it */
    client_send_n(&d, rest, sizeof(rest));
    shutdown(d.fd, SHUT_WR);
    rig_run(10);
    unsigned rounds = 0;
    for (uint64_t until = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until; rounds++)
        assert_int_equal(loop_run_once(rig.loop, 10, NULL), 0);
    assert_true(rounds < 20);
    assert_int_equal(rig.n_gone, 1);
    rig.hold = false;
    exchange_body_proceed(rig.kept);
    client_expect(&d, "got it");
    assert_int_equal(rig.body_bytes, 40006);
}

/* Bytes that nobody wants now do not make the loop spin. */
static void test_no_spinning(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();
    unsigned rounds = 0;

    client_send(&c, GET("/later"));
    rig_run(5);
    client_send(&c, GET("/hello"));
    rig_run(5);
    for (uint64_t until = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until; rounds++)
        assert_int_equal(loop_run_once(rig.loop, 10, NULL), 0);
    assert_true(rounds < 20);
    exchange_reply(rig.kept, 200, "text/plain", "one", 3);
    client_expect(&c, "hello");
}

/* ---- numbers ------------------------------------------------------------------------------------ */

static void test_caps(UNUSED void **state)
{
    enum { ALL = 10, KEPT = 16 };
    struct client many[ALL + KEPT], extra AUTO_CLIENT = {.fd = -1};

    rig.http.max_connections = ALL;
    rig.http.max_connections_per_peer = 8;
    server_configure(rig.server, &rig.http);
    for (int i = 0; i < 8; i++) {
        many[i] = client_tcp();
        client_send(&many[i], GET("/hello"));
        client_expect(&many[i], "hello");
    }
    extra = client_tcp();
    client_send(&extra, GET("/hello")); /* its request does not turn the answer into a reset */
    client_expect_end(&extra);
    assert_true(client_has(&extra, "HTTP/1.1 429 ") && client_has(&extra, "Retry-After: 1") &&
                client_has(&extra, "\"limit\""));
    client_done(&extra);
    /* another peer is served until all places are taken, and the socket's after that */
    rig.http.max_connections_per_peer = 100;
    server_configure(rig.server, &rig.http);
    for (int i = 8; i < ALL + KEPT; i++) {
        many[i] = i < ALL ? client_tcp() : client_unix();
        client_send(&many[i], GET("/hello"));
        client_expect(&many[i], "hello");
        if (i < ALL - 1)
            continue;
        extra = client_tcp();
        client_expect_end(&extra);
        assert_true(client_has(&extra, "HTTP/1.1 503 ") && client_has(&extra, "Connection: close"));
        client_done(&extra);
    }
    extra = client_unix();
    client_expect_end(&extra);
    assert_true(client_has(&extra, "HTTP/1.1 503 ") && client_has(&extra, "Connection: close"));
    assert_int_equal(server_connections(rig.server), ALL + KEPT);
    client_done(&extra);
    for (int i = ALL; i < ALL + KEPT; i++)
        client_done(&many[i]);
    client_done(&many[0]);
    rig_run(10);
    many[0] = client_tcp();
    client_send(&many[0], GET("/hello"));
    client_expect(&many[0], "hello");
    for (int i = 0; i < ALL; i++)
        client_done(&many[i]);
    rig_until(server_connections(rig.server) == 0);
}

/* Answers that nobody reads are in memory: an organisation has a share of it. */
static void test_answers_that_wait(UNUSED void **state)
{
    static const char ask[] = GET("/owe/one"), other[] = GET("/owe/two");
    struct client slow AUTO_CLIENT = client_unix(), more AUTO_CLIENT = client_unix();
    struct client theirs AUTO_CLIENT = client_unix();

    rig.server->owed_max = 10u << 20; /* answers are of 4 MiB */
    client_send(&slow, ask);
    rig_until(rig.server->owed == 4u << 20);
    client_send(&more, ask);
    client_expect(&more, "the organisation has its share of answers that wait to be read");
    assert_true(client_has(&more, "HTTP/1.1 429 ") && client_has(&more, "Retry-After: 1"));
    client_send(&theirs, other);
    client_expect(&theirs, "HTTP/1.1 200 ");
    while (rig.server->owed > 0) { /* both are read */
        client_read(&slow);
        client_read(&theirs);
        rig_run(0);
    }
    client_forget(&more);
    client_send(&more, ask);
    client_expect(&more, "HTTP/1.1 200 ");
    client_done(&more); /* who leaves owes nothing */
    rig_until(rig.server->owed == 0);
}

/* The bytes of a stream that wait in memory, sent until the server has ended it or has this many. */
static void flood(size_t max)
{
    static char piece[256u << 10];

    for (size_t sent = 0; rig.kept && sent < max; sent += sizeof(piece)) {
        (void)!exchange_write(rig.kept, piece, sizeof(piece));
        rig_run(0);
    }
}

/* So is a stream that nobody reads, by a handler that goes on all the same. */
static void test_streams_that_wait(UNUSED void **state)
{
    struct client slow AUTO_CLIENT = client_unix(), more AUTO_CLIENT = client_unix();
    struct client theirs AUTO_CLIENT = client_unix();

    rig.server->owed_max = 32u << 20;
    client_send(&slow, GET("/flood/one"));
    rig_until(rig.kept);
    flood(12u << 20);
    assert_non_null(rig.kept); /* it has less than half */
    assert_in_range(rig.server->owed, 8u << 20, 12u << 20);
    rig.kept = NULL;
    client_send(&more, GET("/flood/one"));
    rig_until(rig.kept);
    flood(12u << 20); /* together they would have more */
    assert_null(rig.kept);
    assert_in_range(rig.server->owed, 8u << 20, 16u << 20);
    client_send(&theirs, GET("/flood/two"));
    rig_until(rig.kept);
    flood(4u << 20);
    assert_non_null(rig.kept);
    while (rig.server->owed > 0) { /* what is read does not count any more */
        client_read(&slow);
        client_read(&theirs);
        rig_run(0);
    }
    flood(4u << 20);
    assert_in_range(rig.server->owed, 2u << 20, 5u << 20);
    client_done(&theirs);
    rig_until(rig.server->owed == 0);
}

/* Many streams with little each are a share too: they wait for their clients earlier, and none is cut off. */
static void test_many_streams_with_little(UNUSED void **state)
{
    static char piece[64u << 10];
    struct client clients[16];
    struct exchange *streams[16];
    size_t all = 0;

    rig.server->owed_max = 4u << 20;
    for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
        rig.kept = NULL;
        clients[i] = client_unix();
        client_send(&clients[i], GET("/flood/one"));
        rig_until(rig.kept);
        streams[i] = rig.kept;
        while (exchange_write(streams[i], piece, sizeof(piece)))
            ;
        all += conn_pending(streams[i]->conn);
    }
    assert_true(all < 6u << 20); /* half of what there is, and a little for each; not 16 MiB */
    assert_in_range(rig.server->owed, 1u << 20, 2u << 20);
    for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
        assert_false(streams[i]->conn->broken);
    for (size_t i = 0; i < ARRAY_SIZE(clients); i++)
        client_done(&clients[i]);
    rig.kept = NULL;
    rig_until(rig.server->owed == 0);
}

/* Sends the head and `len` bytes of a body of 8 MiB. */
static void send_body(struct client *client, const char *org, size_t len)
{
    static char piece[64u << 10];
    char head[128];

    snprintf(head, sizeof(head), "POST /hold/%s HTTP/1.1\r\n" HOST "Content-Length: %u\r\n\r\n", org, 8u << 20);
    client_send(client, head);
    while (len > 0) {
        ssize_t n = send(client->fd, piece, len < sizeof(piece) ? len : sizeof(piece), MSG_NOSIGNAL);
        len -= n > 0 ? (size_t)n : 0;
        rig_run(0);
        if (n < 0 && errno != EAGAIN)
            return; /* refused */
    }
}

/* And bodies: while they come, and while their requests wait. */
static void test_bodies_that_wait(UNUSED void **state)
{
    struct client half AUTO_CLIENT = client_unix(), more AUTO_CLIENT = client_unix();
    struct client theirs AUTO_CLIENT = client_unix(), whole AUTO_CLIENT = client_unix();

    rig.server->held_max = 0; /* then four of the largest, so two for one organisation */
    send_body(&half, "one", (8u << 20) - 1);
    rig_until(rig.server->held == (8u << 20) - 1);
    send_body(&whole, "one", 8u << 20);
    rig_until(rig.body_bytes == 8u << 20);
    assert_int_equal(rig.server->held, (16u << 20) - 1);
    send_body(&more, "one", 1u << 20);
    client_expect(&more, "the organisation has its share of requests with long bodies");
    assert_true(client_has(&more, "HTTP/1.1 429 ") && client_has(&more, "Retry-After: 1"));
    assert_int_equal(rig.server->held, (16u << 20) - 1);
    send_body(&theirs, "two", 8u << 20);
    rig_until(rig.body_bytes == 16u << 20);
    assert_int_equal(rig.server->held, (24u << 20) - 1);
    exchange_reply(rig.kept, 200, "text/plain", "done", 4); /* who has an answer holds nothing */
    client_expect(&theirs, "done");
    rig_until(rig.server->held == (16u << 20) - 1);
    client_done(&half); /* who leaves does not either */
    client_done(&whole);
    rig_until(rig.server->held == 0);
}

static void test_many_idle(UNUSED void **state)
{
    enum { N = 400 };
    static struct client many[N];
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * N + 50)
        skip();
    rig.http.max_connections = rig.http.max_connections_per_peer = N;
    server_configure(rig.server, &rig.http);
    for (int i = 0; i < N; i++) {
        many[i] = client_tcp();
        /* half of them idle after a request, half in the middle of a head */
        client_send(&many[i], i % 2 ? "GET /hello HTTP/1.1\r\nHo" : GET("/hello"));
        if (i % 2 == 0) {
            client_expect(&many[i], "hello");
            client_forget(&many[i]);
        }
        rig_run(0);
    }
    assert_int_equal(server_connections(rig.server), N);
    for (int i = 0; i < N; i++) {
        client_send(&many[i], i % 2 ? "st: localhost\r\n\r\n" : GET("/hello"));
        client_expect(&many[i], "hello");
        client_done(&many[i]);
    }
}

/* Without descriptors a client is told, the loop does not spin, and it goes on by itself. */
static void test_no_descriptors(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = {.fd = -1}, next AUTO_CLIENT = {.fd = -1};
    struct rlimit before, limit;
    int fds[64], n = 0;

    client_send(&c, GET("/hello"));
    client_expect(&c, "hello");
    d = client_tcp(); /* connected, but not accepted yet */
    next = client_tcp();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = 40;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (n < 64 && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    uint64_t start = clock_mono_ns();
    client_expect(&d, "HTTP/1.1 503 ");
    client_expect_end(&d);
    client_expect(&next, "HTTP/1.1 503 ");
    assert_true(clock_mono_ns() - start >= 90 * NS_PER_MS); /* one at a time, with a pause */
    client_forget(&c);
    client_send(&c, GET("/hello")); /* who is in is served */
    client_expect(&c, "hello");
    client_done(&d);
    d = (struct client){.fd = -1};
    unsigned rounds = 0;
    for (uint64_t until = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until; rounds++)
        assert_int_equal(loop_run_once(rig.loop, 10, NULL), 0);
    assert_true(rounds < 20);
    while (n > 0)
        close(fds[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    struct client e AUTO_CLIENT = client_tcp();
    client_send(&e, GET("/hello"));
    client_expect(&e, "hello");
}

/* Every allocation fails once: each time an answer, an error answer or a closed connection, and no leak. */
static void test_no_memory(UNUSED void **state)
{
    static const char *const requests[] = {
        GET("/hello"),
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" GET("/hello"),
        GET("/fail/b"),
        GET("/stream"),
        "GET /ws HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        for (size_t n = 0; n < 50; n++) {
            struct client c AUTO_CLIENT = client_tcp();
            client_send(&c, requests[i]);
            mem_fail_after(n);
            for (int k = 0; k < 6; k++)
                (void)!loop_run_once(rig.loop, 1, NULL);
            bool failed = mem_has_failed();
            mem_fail_after(MEM_FAIL_NEVER);
            base_close_fd(&c.fd);
            rig_until(server_connections(rig.server) == 0 && server_exchanges(rig.server) == 0);
            if (!failed)
                break;
        }
    }
    rig_answer(GET("/hello"), "hello");
}

static void test_drain(UNUSED void **state)
{
    struct client idle AUTO_CLIENT = client_tcp(), busy AUTO_CLIENT = client_tcp();

    client_send(&idle, GET("/hello"));
    client_expect(&idle, "hello");
    client_send(&busy, GET("/later") GET("/hello"));
    rig_run(10);
    server_drain(rig.server);
    client_expect_end(&idle);
    rig_run(20);
    assert_int_equal(server_exchanges(rig.server), 1);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(rig.port)};
    AUTO_FD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), -1);
    exchange_reply(rig.kept, 200, "text/plain", "done", 4);
    client_expect_end(&busy);
    assert_true(client_has(&busy, "done") && client_has(&busy, "Connection: close"));
    assert_false(client_has(&busy, "hello"));
    base_close_fd(&busy.fd);
    rig_until(server_connections(rig.server) == 0);
}

/* Destroying it tells every handler. */
static void test_destroy(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp(), e AUTO_CLIENT = client_tcp();
    const struct server_options options = {.http = rig.http, .handler = rig_handler, .ctx = &rig};

    client_send(&c, GET("/later"));
    client_send(&d, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20\r\n\r\nabc");
    client_send(&e, "GET /x");
    rig_run(10);
    server_destroy(rig.server);
    assert_int_equal(rig.n_gone, 2);
    server_destroy(NULL);
    assert_int_equal(server_create(rig.loop, &options, &rig.server, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define HASTY(name) cmocka_unit_test_setup_teardown(name, rig_setup_hasty, rig_teardown)
        T(test_host),
        T(test_origin),
        T(test_other_machine),
        T(test_refused_heads),
        HASTY(test_slow_head),
        HASTY(test_idle),
        HASTY(test_slow_body),
        HASTY(test_slow_handler),
        HASTY(test_slow_reader),
        T(test_gone_while_idle),
        T(test_gone_in_body),
        T(test_no_spinning),
        T(test_caps),
        T(test_answers_that_wait),
        T(test_streams_that_wait),
        T(test_many_streams_with_little),
        T(test_bodies_that_wait),
        T(test_many_idle),
        T(test_no_descriptors),
        T(test_no_memory),
        T(test_drain),
        T(test_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
