/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server, as a stranger meets it: the input is what a client sends over the socket, in a few pieces. By the first
 * byte it is WebSocket frames after a good handshake, or everything from the first byte of the connection. Whatever it
 * is, the server survives, its handler hears the end of every exchange exactly once, and nothing stays behind.
 */
#include "fuzz.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "http/server.h"

static struct loop *fuzz_loop;
static struct server *fuzz_server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_len;
static int n_open; /* exchanges that the handler has */

static void on_gone(UNUSED void *ctx, UNUSED struct exchange *x)
{
    n_open--;
}

static void on_all(UNUSED void *ctx, struct exchange *x, char *data, size_t len)
{
    FUZZ_CHECK(data[len] == '\0' && len <= 1000);
    n_open--;
    exchange_reply(x, 200, "text/plain", data, len);
}

static void on_data(UNUSED void *ctx, struct exchange *x, const char *data, size_t len)
{
    FUZZ_CHECK(len > 0);
    exchange_write(x, data, len);
    exchange_body_proceed(x);
}

static void on_end(UNUSED void *ctx, struct exchange *x)
{
    n_open--;
    exchange_end(x);
}

static void on_message(UNUSED void *ctx, struct exchange *x, bool text, const void *data, size_t len)
{
    static unsigned n;

    FUZZ_CHECK(len <= 1u << 20);
    if (len == 1)
        exchange_ws_close(x, 1000, "one");
    exchange_ws_pause(x, ++n % 3 == 0);
    exchange_ws_pause(x, false);
    exchange_ws_send(x, text, data, len);
}

static void on_closed(UNUSED void *ctx, UNUSED struct exchange *x, unsigned code)
{
    FUZZ_CHECK(code >= 1000);
    n_open--;
}

static void handler(UNUSED void *ctx, struct exchange *x)
{
    const struct ws_events ws = {.message = on_message, .closed = on_closed};
    const struct body_events body = {.data = on_data, .end = on_end};
    const struct http_target *target = exchange_target(x);
    char which = target->n_parts > 0 ? target->parts[0][0] : '\0';
    struct brig_err err;
    int r = 0;

    n_open++;
    exchange_on_gone(x, on_gone, NULL);
    if (which == 'w') {
        r = exchange_websocket(x, &ws, NULL, &err);
    } else if (which == 'a') {
        r = exchange_read_all(x, 1000, on_all, NULL, &err);
    } else if (which == 's') {
        exchange_begin(x, 200, "text/plain", UINT64_MAX);
        r = exchange_read(x, &body, &err);
    } else if (which != 'l') { /* l: later, that is never */
        n_open--;
        exchange_reply(x, 200, "text/plain", "hello", 5);
    }
    if (r < 0) {
        n_open--;
        exchange_fail(x, &err);
    }
}

static void start(void)
{
    static const struct server_options options = {
        .http = {.max_connections = 10, .header_timeout = 10000, .body_timeout = 10000, .idle_timeout = 10000},
        .handler = handler};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* an abstract name: no file is left */
    int n = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "brig-fuzz-%d", (int)getpid());
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    FUZZ_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, address_len) == 0 && listen(fd, 16) == 0);
    FUZZ_CHECK(loop_create(&fuzz_loop, NULL) == 0);
    FUZZ_CHECK(server_create(fuzz_loop, &options, &fuzz_server, NULL) == 0);
    FUZZ_CHECK(server_listen(fuzz_server, fd, true, NULL) == 0);
}

/* Until nothing more happens. */
static void run(void)
{
    for (int i = 0; i < 3; i++)
        FUZZ_CHECK(loop_run_once(fuzz_loop, 0, NULL) == 0);
}

static void drain(int fd)
{
    char text[65536];

    while (recv(fd, text, sizeof(text), MSG_DONTWAIT) > 0)
        ;
}

static void send_some(int fd, const void *data, size_t len)
{
    if (len > 0)
        (void)!send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    run();
    drain(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char handshake[] =
        "GET /w HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    if (size < 2 || size > 65536)
        return 0;
    if (!fuzz_server)
        start();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_len) == 0);
    if (data[0] % 2 == 0)
        send_some(fd, handshake, sizeof(handshake) - 1);
    size_t cut = 2 + (size_t)data[1] * (size - 2) / 256;
    send_some(fd, data + 2, cut - 2);
    send_some(fd, data + cut, size - cut);
    if (data[0] & 2)
        shutdown(fd, SHUT_WR);
    run();
    close(fd);
    for (int i = 0; i < 20 && server_connections(fuzz_server) > 0; i++)
        run();
    FUZZ_CHECK(server_connections(fuzz_server) == 0 && server_exchanges(fuzz_server) == 0 && n_open == 0);
    return 0;
}
