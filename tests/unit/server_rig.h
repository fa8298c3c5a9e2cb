/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_rig.h: a server in this process, with a handler that does what the path says, and clients that are plain
 * sockets. The loop runs only while a client waits for something, so a test sees every state it wants to see.
 */
#ifndef BRIG_TESTS_SERVER_RIG_H
#define BRIG_TESTS_SERVER_RIG_H

#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "http/server.h"

#define HOST "Host: localhost\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" HOST "\r\n"

static UNUSED struct rig {
    struct loop *loop;
    struct server *server;
    struct http_options http;
    uint16_t port;
    char socket_path[64];
    struct exchange *kept; /* by /later and what streams */
    unsigned n_requests, n_gone, n_drained, n_closed, n_logged, n_eof, n_end;
    unsigned close_code, logged_status;
    uint64_t logged_bytes;
    size_t to_send, body_bytes, max_piece;
    bool hold;      /* do not proceed */
    char last[256]; /* what the last request was */
    struct buf got;
} rig;

static inline void rig_gone(UNUSED void *ctx, struct exchange *x)
{
    rig.n_gone++;
    if (rig.kept == x)
        rig.kept = NULL;
}

static inline void rig_echo_all(UNUSED void *ctx, struct exchange *x, char *data, size_t len)
{
    assert_int_equal(data[len], 0);
    exchange_reply(x, 200, "application/octet-stream", data, len);
}

static inline void rig_hold(UNUSED void *ctx, struct exchange *x, char *data, size_t len)
{
    char *own = exchange_take_body(x, data);

    rig.body_bytes += len;
    mem_free(own); /* as if a run had it */
}

static inline void rig_body_data(UNUSED void *ctx, struct exchange *x, const char *data, size_t len)
{
    rig.body_bytes += len;
    if (len > rig.max_piece)
        rig.max_piece = len;
    if (rig.got.len + len < 4096)
        assert_int_equal(buf_append(&rig.got, data, len), 0);
    if (rig.kept && exchange_data(x) == &rig)
        exchange_write(x, data, len);
    if (!rig.hold)
        exchange_body_proceed(x);
}

static inline void rig_body_end(UNUSED void *ctx, struct exchange *x)
{
    rig.n_end++;
    if (exchange_data(x) == &rig) {
        exchange_end(x);
        rig.kept = NULL;
    } else {
        exchange_reply(x, 200, "text/plain", "got it", 6);
    }
}

static inline void rig_fill(UNUSED void *ctx, struct exchange *x)
{
    static char piece[65536];

    memset(piece, 'x', sizeof(piece));
    rig.n_drained++;
    while (rig.to_send > 0) {
        size_t n = rig.to_send < sizeof(piece) ? rig.to_send : sizeof(piece);
        rig.to_send -= n;
        if (!exchange_write(x, piece, n) && rig.to_send > 0)
            return;
    }
    exchange_end(x);
}

static inline void rig_message(UNUSED void *ctx, struct exchange *x, bool text, const void *data, size_t len)
{
    rig.n_requests++;
    if (len == 5 && memcmp(data, "close", 5) == 0)
        exchange_ws_close(x, 4000, "as you wish");
    else
        exchange_ws_send(x, text, data, len);
}

static inline void rig_closed(UNUSED void *ctx, UNUSED struct exchange *x, unsigned code)
{
    rig.n_closed++;
    rig.close_code = code;
    rig.kept = NULL;
}

static inline void rig_ws_drained(UNUSED void *ctx, UNUSED struct exchange *x)
{
    rig.n_drained++;
}

static inline void rig_tunnel_eof(UNUSED void *ctx, struct exchange *x)
{
    rig.n_eof++;
    exchange_write(x, "bye", 3);
    exchange_end(x);
    rig.kept = NULL;
}

static inline void rig_handler(UNUSED void *ctx, struct exchange *x)
{
    const struct http_target *target = exchange_target(x);
    const char *path = target->n_parts > 0 ? target->parts[0] : "";
    const struct body_events body = {.data = rig_body_data, .end = rig_body_end};
    struct brig_err err = {0};
    int r = 0;

    rig.n_requests++;
    snprintf(rig.last, sizeof(rig.last), "%s %s", exchange_head(x)->method, exchange_head(x)->target);
    exchange_on_gone(x, rig_gone, &rig);
    if (strcmp(path, "hello") == 0) {
        exchange_reply(x, 200, "text/plain", "hello", 5);
    } else if (strcmp(path, "peer") == 0) {
        char text[128];
        int n = snprintf(text, sizeof(text), "%s %d %d %d", exchange_peer(x), exchange_is_unix(x),
                         (int)exchange_peer_uid(x), exchange_is_tls(x));
        exchange_reply(x, 200, "text/plain", text, (size_t)n);
    } else if (strcmp(path, "echo") == 0) {
        r = exchange_read_all(x, 100000, rig_echo_all, &rig, &err);
    } else if (strcmp(path, "upload") == 0) {
        rig.kept = x;
        r = exchange_read(x, &body, &err);
    } else if (strcmp(path, "both") == 0) {
        rig.kept = x;
        exchange_set_data(x, &rig);
        exchange_begin(x, 200, "text/plain", UINT64_MAX);
        r = exchange_read(x, &body, &err);
    } else if (strcmp(path, "early") == 0) {
        exchange_reply(x, 403, "text/plain", "no", 2);
    } else if (strcmp(path, "later") == 0) {
        rig.kept = x;
    } else if (strcmp(path, "stream") == 0) {
        rig.kept = x;
        exchange_begin(x, 200, "text/event-stream", UINT64_MAX);
    } else if (strcmp(path, "sized") == 0) {
        rig.kept = x;
        exchange_begin(x, 200, "text/plain", 10);
    } else if (strcmp(path, "big") == 0) {
        exchange_on_drained(x, rig_fill, &rig);
        exchange_begin(x, 200, "application/octet-stream", http_query(target, "chunked") ? UINT64_MAX : rig.to_send);
        rig_fill(&rig, x);
    } else if (strcmp(path, "owe") == 0) { /* a long answer for the organisation that the path names */
        static char text[4u << 20];
        assert_true(exchange_join(x, target->parts[1]));
        exchange_reply(x, 200, "text/plain", text, sizeof(text));
    } else if (strcmp(path, "flood") == 0) { /* a stream for it, by a handler that does not care who reads */
        rig.kept = x;
        assert_true(exchange_join(x, target->parts[1]));
        exchange_begin(x, 200, "text/event-stream", UINT64_MAX);
    } else if (strcmp(path, "hold") == 0) { /* a long body of it, and no answer */
        rig.kept = x;
        assert_true(exchange_join(x, target->parts[1]));
        r = exchange_read_all(x, 8u << 20, rig_hold, &rig, &err);
    } else if (strcmp(path, "empty") == 0) {
        exchange_reply(x, 204, NULL, NULL, 0);
    } else if (strcmp(path, "fields") == 0) {
        assert_int_equal(exchange_add_field(x, "X-Good", "yes"), 0);
        assert_int_equal(exchange_add_field(x, "X-Bad", "a\r\nEvil: 1"), -EINVAL);
        assert_int_equal(exchange_add_field(x, "Content-Length", "7"), -EINVAL);
        exchange_reply(x, 200, "text/plain", "ok", 2);
    } else if (strcmp(path, "fail") == 0) {
        err.code = target->parts[1][0] - 'a';
        snprintf(err.message, sizeof(err.message), "a \"message\"");
        exchange_fail(x, &err);
    } else if (strcmp(path, "ws") == 0) {
        const struct ws_events ws = {.message = rig_message, .closed = rig_closed, .drained = rig_ws_drained};
        rig.kept = x;
        r = exchange_websocket(x, &ws, http_field(exchange_head(x), "sec-websocket-protocol"), &err);
    } else if (strcmp(path, "tunnel") == 0) {
        static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\n";
        const struct tunnel_events tunnel = {.data = rig_body_data, .eof = rig_tunnel_eof, .drained = rig_ws_drained};
        rig.kept = x;
        exchange_set_data(x, &rig);
        r = exchange_tunnel(x, &tunnel, &err);
        if (r == 0)
            exchange_write(x, head, sizeof(head) - 1);
    } else {
        err.code = BRIG_E_NOT_FOUND;
        snprintf(err.message, sizeof(err.message), "no such path");
        exchange_fail(x, &err);
    }
    if (r < 0) {
        rig.kept = NULL;
        exchange_fail(x, &err);
    }
}

static inline void rig_log(UNUSED void *ctx, const struct exchange *x, unsigned status, UNUSED uint64_t duration_ns,
                           uint64_t bytes)
{
    assert_non_null(exchange_head(x)->method);
    assert_int_equal(strlen(exchange_id(x)), 30);
    rig.n_logged++;
    rig.logged_status = status;
    rig.logged_bytes = bytes;
}

/* ---- life --------------------------------------------------------------------------------------- */

static inline UNUSED void rig_listen_tcp(int family)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
    struct sockaddr *address = family == AF_INET ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, address, len), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(getsockname(fd, address, &len), 0);
    rig.port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
    assert_int_equal(server_listen(rig.server, fd, false, NULL), 0);
}

static inline UNUSED void rig_listen_unix(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(rig.socket_path, sizeof(rig.socket_path), "/tmp/brig-test-server.%d", (int)getpid());
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", rig.socket_path);
    unlink(un.sun_path);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(server_listen(rig.server, fd, true, NULL), 0);
}

static inline UNUSED int rig_setup(UNUSED void **state)
{
    memset(&rig, 0, sizeof(rig));
    rig.got = BUF_INIT(1u << 20);
    rig.http = (struct http_options){
        .listen = "127.0.0.1:2744",
        .domain = "brig.test",
        .allowed_hosts = "one.example two.example",
        .allowed_origins = "https://ui.example",
        .max_connections = 100,
        .max_connections_per_peer = 90,
        .max_headers_bytes = 8192,
        .max_headers = 50,
        .header_timeout = 10000,
        .body_timeout = 10000,
        .idle_timeout = 10000,
    };
    const struct server_options options = {.http = rig.http, .handler = rig_handler, .ctx = &rig, .log = rig_log};
    if (loop_create(&rig.loop, NULL) < 0 || server_create(rig.loop, &options, &rig.server, NULL) < 0)
        return -1;
    rig_listen_unix();
    rig_listen_tcp(AF_INET);
    return 0;
}

/* The same with little patience, for tests of time. */
static inline UNUSED int rig_setup_hasty(void **state)
{
    int r = rig_setup(state);

    rig.http.header_timeout = 200;
    rig.http.body_timeout = 250;
    rig.http.idle_timeout = 300;
    server_configure(rig.server, &rig.http);
    return r;
}

static inline UNUSED int rig_teardown(UNUSED void **state)
{
    server_destroy(rig.server);
    loop_destroy(rig.loop);
    unlink(rig.socket_path);
    buf_done(&rig.got);
    return 0;
}

static inline UNUSED void rig_run(int ms)
{
    uint64_t until = clock_mono_ns() + (uint64_t)ms * NS_PER_MS;

    do {
        assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
    } while (clock_mono_ns() < until);
}

/* Runs the loop until this is so; a server that never gets there is ended by the time limit of the test. */
#define rig_until(what) \
    while (!(what))     \
    assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0)

/* ---- clients ------------------------------------------------------------------------------------ */

struct client {
    struct buf in;
    int fd;
    bool eof, reset;
};

static inline UNUSED struct client client_tcp(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(rig.port)};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .in = BUF_INIT(64u << 20)};

    assert_int_equal(connect(c.fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(fd_set_nonblock(c.fd), 0);
    return c;
}

static inline UNUSED struct client client_unix(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct client c = {.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), .in = BUF_INIT(64u << 20)};

    snprintf(un.sun_path, sizeof(un.sun_path), "%s", rig.socket_path);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(fd_set_nonblock(c.fd), 0);
    return c;
}

static inline UNUSED void client_done(struct client *c)
{
    base_close_fd(&c->fd);
    buf_done(&c->in);
}
#define AUTO_CLIENT __attribute__((cleanup(client_done)))

static inline UNUSED bool client_read(struct client *c)
{
    static char text[65536];

    while (!c->eof) {
        ssize_t n = recv(c->fd, text, sizeof(text), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n <= 0) {
            c->reset = n < 0;
            c->eof = true;
            return true;
        }
        assert_int_equal(buf_append(&c->in, text, (size_t)n), 0);
    }
    return true;
}

static inline UNUSED void client_send_n(struct client *c, const void *data, size_t len)
{
    size_t at = 0;

    while (at < len) {
        ssize_t n = send(c->fd, (const char *)data + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return;
        if (n < 0) {
            assert_int_equal(errno, EAGAIN);
            assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
            client_read(c);
            continue;
        }
        at += (size_t)n;
    }
}

static inline UNUSED void client_send(struct client *c, const char *text)
{
    client_send_n(c, text, strlen(text));
}

/* Runs the loop until so many bytes have come. */
static inline UNUSED void client_expect_bytes(struct client *c, size_t len)
{
    uint64_t until = clock_mono_ns() + 5 * NS_PER_SEC;

    while (c->in.len < len) {
        assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
        assert_false(client_read(c) && c->in.len < len);
        assert_true(clock_mono_ns() < until);
    }
}

/* Runs the loop until the text has come (NULL: until the end of the connection); false after ms. */
static inline UNUSED bool client_wait(struct client *c, const char *text, int ms)
{
    uint64_t until = clock_mono_ns() + (uint64_t)ms * NS_PER_MS;

    for (;;) {
        client_read(c);
        if (text ? c->in.data && memmem(c->in.data, c->in.len, text, strlen(text)) != NULL : c->eof)
            return true;
        if (clock_mono_ns() > until || (c->eof && text))
            return false;
        assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
    }
}

static inline UNUSED void client_expect(struct client *c, const char *text)
{
    if (!client_wait(c, text, 3000))
        print_error("waiting for: %s\ngot: %s\n", text ? text : "the end", c->in.data ? c->in.data : "nothing");
    else
        return;
    fail();
}

static inline UNUSED void client_expect_end(struct client *c)
{
    client_expect(c, NULL);
    assert_false(c->reset);
}

static inline UNUSED void client_forget(struct client *c)
{
    buf_consume(&c->in, c->in.len);
}

static inline UNUSED bool client_has(const struct client *c, const char *text)
{
    return c->in.data && strstr(c->in.data, text) != NULL;
}

/* One request on a connection of its own; the whole answer. */
static inline UNUSED void rig_answer(const char *request, const char *expected)
{
    struct client c AUTO_CLIENT = client_tcp();

    client_send(&c, request);
    client_expect(&c, expected);
}

#endif
