/* SPDX-License-Identifier: Apache-2.0 */
/* The client: targets, server-sent events, WebSocket frames over a socket pair, and whole exchanges with a server that
 * misbehaves. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "client/client.h"
#include "client/sha1.h"

/* ---- targets and digests -------------------------------------------------------------------------- */

static void escapes_targets(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);
    (void)state;

    assert_int_equal(client_target(&out, "/v1/%s/files?path=%s&n=%u%%", "a/b c", "\xff&=?#%+", UINT64_C(12)), 0);
    assert_string_equal(out.data, "/v1/a%2Fb%20c/files?path=%FF%26%3D%3F%23%25%2B&n=12%");
    assert_int_equal(client_target(&out, "%d", 1), -EINVAL);
}

static void knows_sha1(void **state)
{
    uint8_t digest[SHA1_SIZE];
    char million[1000];
    char accept[32];
    (void)state;

    sha1("abc", 3, digest);
    unit_assert_hex(digest, sizeof(digest), "a9993e364706816aba3e25717850c26c9cd0d89d");
    sha1("", 0, digest);
    unit_assert_hex(digest, sizeof(digest), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, digest);
    unit_assert_hex(digest, sizeof(digest), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    memset(million, 'a', sizeof(million));
    sha1(million, sizeof(million), digest);
    unit_assert_hex(digest, sizeof(digest), "291e9a6c66994949b57ba5e650361e98fc36b1ba");
    ws_accept_value("dGhlIHNhbXBsZSBub25jZQ==", accept); /* RFC 6455, 1.3 */
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

/* ---- server-sent events --------------------------------------------------------------------------- */

struct seen {
    char text[4096];
    int stop;
};

static int note(void *ctx, const char *event, const char *id, const char *data, size_t len, struct brig_err *err)
{
    struct seen *seen = ctx;
    size_t at = strlen(seen->text);
    (void)err;

    assert_int_equal(strlen(data), len);
    snprintf(seen->text + at, sizeof(seen->text) - at, "[%s|%s|%s]", event, id, data);
    return seen->stop;
}

static const char *events_of(const char *text, size_t step)
{
    static struct seen seen;
    struct sse sse = SSE_INIT(note, &seen);
    struct brig_err err;
    size_t len = strlen(text);

    seen = (struct seen){0};
    for (size_t at = 0; at < len; at += step)
        assert_int_equal(sse_feed(&sse, text + at, step < len - at ? step : len - at, &err), 0);
    sse_done(&sse);
    return seen.text;
}

static void reads_events(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"data: a\n\n", "[message||a]"},
        {"data:a\r\rdata: b\r\n\r\n", "[message||a][message||b]"},
        {"event: end\nid: 3,4\ndata: {}\n\ndata: x\n\n", "[end|3,4|{}][message|3,4|x]"},
        {"data: a\ndata: b\ndata\n\n", "[message||a\nb\n]"},
        {": comment\n\nevent: nothing\n\ndata:  two blanks\n\n", "[message|| two blanks]"},
        {"retry: 5\nunknown: 1\ndata: x:y\n\n", "[message||x:y]"},
        {"data: cut", ""},
        {"data: cut\n", ""},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t step = 1; step < 8; step++)
            assert_string_equal(events_of(cases[i].text, step), cases[i].want);
}

static void stops_and_bounds_events(void **state)
{
    struct seen seen = {.stop = -EPIPE};
    struct sse sse = SSE_INIT(note, &seen);
    struct brig_err err;
    (void)state;

    assert_int_equal(sse_feed(&sse, "data: a\n\ndata: b\n\n", 18, &err), -EPIPE);
    assert_string_equal(seen.text, "[message||a]");
    sse_done(&sse);

    struct sse bounded = SSE_INIT(note, &seen);
    bounded.line.max = 100;
    char line[200];
    memset(line, 'x', sizeof(line));
    assert_int_equal(sse_feed(&bounded, line, sizeof(line), &err), -EMSGSIZE);
    sse_done(&bounded);
}

/* ---- WebSocket ------------------------------------------------------------------------------------ */

struct pair {
    struct ws *ws;
    int peer;
};

static struct pair open_pair(const char *early, size_t len)
{
    struct pair pair = {0};
    struct brig_err err;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(ws_adopt(fds[0], early, len, &pair.ws, &err), 0);
    pair.peer = fds[1];
    return pair;
}

static void close_pair(struct pair *pair)
{
    ws_destroy(pair->ws);
    close(pair->peer);
}

#define FEED(pair, bytes) assert_int_equal(write((pair).peer, bytes, sizeof(bytes) - 1), sizeof(bytes) - 1)

static void receives_messages(void **state)
{
    struct pair pair = open_pair("\x81\x02hi", 4);
    struct ws_message message;
    struct brig_err err;
    (void)state;

    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_int_equal(message.kind, WS_TEXT);
    assert_int_equal(message.len, 2);
    assert_memory_equal(message.data, "hi", 2);
    assert_int_equal(ws_receive(pair.ws, &message, &err), 0);
    FEED(pair, "\x82");
    assert_int_equal(ws_receive(pair.ws, &message, &err), 0);
    FEED(pair, "\x03"
               "abc"
               "\x82\x00");
    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_memory_equal(message.data, "abc", 3);
    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_int_equal(message.len, 0);
    /* in pieces, with a ping in between */
    FEED(pair, "\x01\x02he\x89\x01p\x00\x02ll\x80\x01o");
    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_int_equal(message.kind, WS_TEXT);
    assert_int_equal(message.len, 5);
    assert_memory_equal(message.data, "hello", 5);
    uint8_t pong[16];
    assert_int_equal(read(pair.peer, pong, sizeof(pong)), 7);
    assert_int_equal(pong[0], 0x8a);
    assert_int_equal(pong[1], 0x81);
    assert_int_equal(pong[6] ^ pong[2], 'p');
    FEED(pair, "\x88\x04\x03\xf0no");
    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_int_equal(message.kind, WS_CLOSE);
    assert_int_equal(message.code, 1008);
    assert_memory_equal(message.data, "no", 2);
    assert_int_equal(ws_receive(pair.ws, &message, &err), 0);
    assert_int_equal(read(pair.peer, pong, sizeof(pong)), 8); /* our close */
    assert_int_equal(pong[0], 0x88);
    close_pair(&pair);
}

static void receives_large_messages(void **state)
{
    static const size_t sizes[] = {125, 126, 65535, 65536, 300000};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t len = sizes[i], head = len < 126 ? 2 : len < 65536 ? 4 : 10, sent = 0;
        struct pair pair = open_pair("", 0);
        struct ws_message message;
        struct brig_err err;
        uint8_t *frame = calloc(1, head + len);
        assert_non_null(frame);
        frame[0] = 0x82;
        frame[1] = (uint8_t)(len < 126 ? len : len < 65536 ? 126 : 127);
        for (size_t k = 2; k < head; k++)
            frame[k] = (uint8_t)(len >> (8 * (head - 1 - k)));
        for (size_t k = 0; k < len; k++)
            frame[head + k] = (uint8_t)(k * 7);
        int r = 0;
        while (r == 0) {
            ssize_t n = write(pair.peer, frame + sent, head + len - sent);
            if (n > 0)
                sent += (size_t)n;
            r = ws_receive(pair.ws, &message, &err);
        }
        assert_int_equal(r, 1);
        assert_int_equal(message.len, len);
        assert_memory_equal(message.data, frame + head, len);
        free(frame);
        close_pair(&pair);
    }
}

static void sends_masked_frames(void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536};
    struct brig_err err;
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct pair pair = open_pair("", 0);
        size_t len = sizes[i], head = (len < 126 ? 2 : len < 65536 ? 4 : 10) + 4, got = 0;
        uint8_t *data = malloc(len + 1), *frame = malloc(head + len);
        assert_true(data && frame);
        for (size_t k = 0; k < len; k++)
            data[k] = (uint8_t)k;
        assert_int_equal(ws_send(pair.ws, WS_BINARY, data, len, &err), 0);
        while (got < head + len) {
            ssize_t n = read(pair.peer, frame + got, head + len - got);
            if (n > 0)
                got += (size_t)n;
            assert_int_equal(ws_flush(pair.ws, &err), 0);
        }
        assert_int_equal(ws_pending(pair.ws), 0);
        assert_int_equal(frame[0], 0x82);
        assert_true(frame[1] & 0x80);
        for (size_t k = 0; k < len; k++)
            assert_int_equal(frame[head + k] ^ frame[head - 4 + (k & 3)], data[k]);
        free(data);
        free(frame);
        close_pair(&pair);
    }
}

static void refuses_bad_frames(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        int error;
    } cases[] = {
        {"\xc1\x00", 2, -EPROTO}, /* a reserved bit */
        {"\x81\x81"
         "aaaab",
         7, -EPROTO},             /* masked */
        {"\x83\x00", 2, -EPROTO}, /* unknown */
        {"\x8b\x00", 2, -EPROTO},
        {"\x09\x00", 2, -EPROTO},         /* a ping in pieces */
        {"\x89\x7e\x00\x80", 4, -EPROTO}, /* a long ping */
        {"\x80\x00", 2, -EPROTO},         /* continues nothing */
        {"\x01\x00\x81\x00", 4, -EPROTO}, /* a message in a message */
        {"\x81\x7e\x00\x05", 4, -EPROTO}, /* a length that needs no second form */
        {"\x81\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 10, -EPROTO},
        {"\x88\x01x", 3, -EPROTO},
        {"\x82\x7f\x00\x00\x00\x00\x01\x00\x00\x01", 10, -EMSGSIZE},
        {"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10, -EMSGSIZE},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pair pair = open_pair(cases[i].bytes, cases[i].len);
        struct ws_message message;
        struct brig_err err = {0};
        assert_int_equal(ws_receive(pair.ws, &message, &err), cases[i].error);
        assert_true(err.message[0] != '\0');
        assert_true(ws_send(pair.ws, WS_TEXT, "x", 1, &err) < 0);
        close_pair(&pair);
    }
}

static void notices_a_broken_connection(void **state)
{
    struct pair pair = open_pair("\x81\x05he", 4);
    struct ws_message message;
    struct brig_err err;
    (void)state;

    close(pair.peer);
    assert_int_equal(ws_receive(pair.ws, &message, &err), 1);
    assert_int_equal(message.kind, WS_CLOSE);
    assert_int_equal(message.code, 1006);
    assert_int_equal(ws_send(pair.ws, WS_TEXT, "x", 1, &err), -EPIPE);
    ws_destroy(pair.ws);
}

/* ---- whole exchanges ------------------------------------------------------------------------------ */

struct server {
    char path[108];
    pid_t pid;
};

static void hear(int conn, const char *marker)
{
    char in[65536];
    size_t have = 0;

    while (!memmem(in, have, marker, strlen(marker))) {
        ssize_t n = read(conn, in + have, sizeof(in) - have);
        if (n <= 0)
            return;
        have += (size_t)n;
    }
}

/* Answers each request on one connection with the next script; reads until the script's marker was seen. */
static struct server serve(const char *const *scripts, const char *marker)
{
    struct server server = {0};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    snprintf(server.path, sizeof(server.path), "/tmp/brig-test-client-%ld.sock", (long)getpid());
    unlink(server.path);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", server.path);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(sock >= 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(sock, 5), 0);
    server.pid = fork();
    if (server.pid != 0) {
        close(sock);
        return server;
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; scripts[i];) {
        int conn = accept(sock, NULL, NULL);
        if (scripts[i][0] == '\0') /* closed without an answer, but not before it was asked */
            hear(conn, marker);
        for (; scripts[i] && scripts[i][0] != '\0'; i++) {
            hear(conn, marker);
            if (write(conn, scripts[i], strlen(scripts[i])) < 0)
                break;
        }
        if (scripts[i]) /* "": a new connection */
            i++;
        close(conn);
    }
    _exit(0);
}

static void stop(struct server *server)
{
    int status;
    waitpid(server->pid, &status, 0);
    unlink(server->path);
}

static void asks_and_keeps_the_connection(void **state)
{
    static const char *const scripts[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n"
        "0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 62\r\n\r\n{\"error\":{\"code\":\"not_found\",\"message\":\"no x\","
        "\"hint\":\"try y\"}}",
        "HTTP/1.1 204 No Content\r\n\r\n",
        NULL,
    };
    const struct client_request get = {.method = "GET", .target = "/x"};
    struct server server = serve(scripts, "\r\n\r\n");
    struct client *client = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(client_open_socket(server.path, &client, &err), 0);
    assert_int_equal(client_json(client, &get, &doc, &err), 0);
    assert_int_equal(json_get(json_root(doc), "a")->i64, 1);
    json_doc_free(doc);
    assert_int_equal(client_json(client, &get, &doc, &err), 0);
    assert_int_equal(json_root(doc)->count, 2);
    json_doc_free(doc);
    assert_int_equal(client_json(client, &get, &doc, &err), -ENOENT);
    assert_int_equal(client_status(client), 404);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_string_equal(err.message, "no x (try y)");
    assert_string_equal(client_error_code(client), "not_found");
    assert_int_equal(client_json(client, &get, &doc, &err), 0);
    assert_null(doc);
    client_close(client);
    stop(&server);
}

static void connects_again_after_a_close(void **state)
{
    static const char *const scripts[] = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1", "",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2", NULL};
    const struct client_request get = {.method = "GET", .target = "/x"};
    struct server server = serve(scripts, "\r\n\r\n");
    struct client *client = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(client_open_socket(server.path, &client, &err), 0);
    for (int i = 1; i <= 2; i++) {
        const struct timespec pause = {.tv_nsec = 50000000};
        assert_int_equal(client_json(client, &get, &doc, &err), 0);
        assert_int_equal(json_root(doc)->i64, i);
        json_doc_free(doc);
        nanosleep(&pause, NULL); /* clock: for its close to arrive; right if it came later, too */
    }
    client_close(client);
    stop(&server);
}

static void notices_bad_answers(void **state)
{
    static const struct {
        const char *answer, *message;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "cut off"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "cut off"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "body"},
        {"SSH-2.0-x\r\n\r\n", "not an answer of brig"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{a}", "JSON"},
        {"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://evil/\r\n\r\n", "302"},
        {"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops", "500"},
        {"", "connection"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *const scripts[] = {cases[i].answer, NULL};
        struct server server = serve(scripts, "\r\n\r\n");
        const struct client_request get = {.method = "GET", .target = "/x"};
        struct client *client = NULL;
        struct json_doc *doc = NULL;
        struct brig_err err = {0};
        assert_int_equal(client_open_socket(server.path, &client, &err), 0);
        int r = client_json(client, &get, &doc, &err);
        if (r >= 0 || !strstr(err.message, cases[i].message))
            fail_msg("%s: %d, %s", cases[i].answer, r, err.message);
        client_close(client);
        stop(&server);
    }
}

static ssize_t endless(void *ctx, void *data, size_t size, struct brig_err *err)
{
    (void)err;
    *(size_t *)ctx += size;
    memset(data, 'x', size);
    return (ssize_t)size;
}

/* A daemon that refuses half way is heard, and not fed to the end. */
static void hears_an_early_refusal(void **state)
{
    static const char *const scripts[] = {
        "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 52\r\n\r\n{\"error\":{\"code\":\"too_large\","
        "\"message\":\"too large\"}}",
        NULL};
    struct server server = serve(scripts, "\r\n\r\n");
    size_t given = 0;
    const struct client_request put = {.method = "PUT",
                                       .target = "/x",
                                       .read = endless,
                                       .read_fd = -1,
                                       .length = CLIENT_LENGTH_UNKNOWN,
                                       .ctx = &given};
    struct client *client = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(client_open_socket(server.path, &client, &err), 0);
    assert_int_equal(client_call(client, &put, &err), -EFBIG);
    assert_string_equal(err.message, "too large");
    assert_true(given < 16u << 20);
    client_close(client);
    stop(&server);
}

static void is_cancelled_and_times_out(void **state)
{
    static const char *const scripts[] = {"too late", "too late", NULL};
    struct server server = serve(scripts, "never");
    const struct client_request soon = {.method = "GET", .target = "/x", .timeout_ms = 50};
    const struct client_request any = {.method = "GET", .target = "/x", .timeout_ms = CLIENT_NO_TIMEOUT};
    struct client *client = NULL;
    struct brig_err err = {0};
    int fds[2];
    (void)state;

    assert_int_equal(client_open_socket(server.path, &client, &err), 0);
    assert_int_equal(client_call(client, &soon, &err), -ETIMEDOUT);
    assert_int_equal(err.code, BRIG_E_TIMEOUT);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    client_set_cancel(client, fds[0]);
    assert_int_equal(client_call(client, &any, &err), -ECANCELED);
    client_close(client);
    close(fds[0]);
    close(fds[1]);
    stop(&server);
}

static void says_that_there_is_no_daemon(void **state)
{
    struct client *client = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(client_open_socket("/nonexistent/brig.sock", &client, &err), -ENOENT);
    assert_int_equal(err.code, BRIG_E_GONE);
    assert_string_equal(err.message, "no daemon answers on /nonexistent/brig.sock (start one with: brig serve)");
    assert_null(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(escapes_targets),
        cmocka_unit_test(knows_sha1),
        cmocka_unit_test(reads_events),
        cmocka_unit_test(stops_and_bounds_events),
        cmocka_unit_test(receives_messages),
        cmocka_unit_test(receives_large_messages),
        cmocka_unit_test(sends_masked_frames),
        cmocka_unit_test(refuses_bad_frames),
        cmocka_unit_test(notices_a_broken_connection),
        cmocka_unit_test(asks_and_keeps_the_connection),
        cmocka_unit_test(connects_again_after_a_close),
        cmocka_unit_test(notices_bad_answers),
        cmocka_unit_test(hears_an_early_refusal),
        cmocka_unit_test(is_cancelled_and_times_out),
        cmocka_unit_test(says_that_there_is_no_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
