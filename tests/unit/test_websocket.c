/* SPDX-License-Identifier: Apache-2.0 */
/* WebSocket: the handshake, echo of every size, closing from both sides, and clients that do not behave. */
#include "server_rig.h"

#define UPGRADE "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"
#define OPEN "GET /ws HTTP/1.1\r\n" HOST UPGRADE KEY VERSION "\r\n"

static struct client open_ws(void)
{
    struct client c = client_tcp();

    client_send(&c, OPEN);
    client_expect(&c, "\r\n\r\n");
    assert_true(client_has(&c, "HTTP/1.1 101 ") &&
                client_has(&c, "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    client_forget(&c);
    return c;
}

/* A frame as a client sends it; first: FIN, reserved bits and opcode. */
static size_t make_frame(uint8_t *out, uint8_t first, bool masked, const void *data, size_t len)
{
    static const uint8_t mask[4] = {0x12, 0x34, 0x56, 0x78};
    size_t n = 2;

    out[0] = first;
    out[1] = (uint8_t)((masked ? 0x80 : 0) | (len < 126 ? len : len < 65536 ? 126 : 127));
    if (len >= 126) {
        size_t bytes = len < 65536 ? 2 : 8;
        for (size_t i = 0; i < bytes; i++)
            out[n++] = (uint8_t)((uint64_t)len >> (8 * (bytes - 1 - i)));
    }
    if (masked) {
        unit_put(out + n, mask, 4);
        n += 4;
    }
    for (size_t i = 0; i < len; i++)
        out[n + i] = (uint8_t)(((const uint8_t *)data)[i] ^ (masked ? mask[i % 4] : 0));
    return n + len;
}

static void send_frame(struct client *c, uint8_t first, const void *data, size_t len)
{
    static uint8_t frame[(2u << 20) + 32];

    client_send_n(c, frame, make_frame(frame, first, true, data, len));
}

/* A close frame with this code came, and the handler heard of it. */
static void expect_close(struct client *c, unsigned code)
{
    client_expect(c, NULL);
    const uint8_t *in = (const uint8_t *)c->in.data;
    size_t at = 0;
    bool seen = false;
    while (at + 2 <= c->in.len) {
        size_t len = in[at + 1] & 127u, head = 2;
        if (len == 126)
            len = (size_t)in[at + 2] << 8 | in[at + 3], head = 4;
        if ((in[at] & 15) == 8) {
            assert_int_equal(in[at + 2] << 8 | in[at + 3], code);
            seen = true;
        }
        at += head + len;
    }
    assert_true(seen);
    assert_int_equal(rig.n_closed, 1);
    assert_int_equal(rig.n_gone, 0);
    rig_until(server_exchanges(rig.server) == 0);
}

static void test_handshake(UNUSED void **state)
{
    rig_answer("GET /ws HTTP/1.1\r\n" HOST KEY VERSION "\r\n", "400 Bad Request");
    rig_answer("GET /ws HTTP/1.1\r\n" HOST UPGRADE KEY "\r\n", "Sec-WebSocket-Version: 13\r\n");
    rig_answer("GET /ws HTTP/1.1\r\n" HOST UPGRADE VERSION "\r\n", "400 Bad Request");
    rig_answer("GET /ws HTTP/1.1\r\n" HOST UPGRADE VERSION "Sec-WebSocket-Key: short\r\n\r\n", "400 Bad Request");
    rig_answer("POST /ws HTTP/1.1\r\n" HOST UPGRADE VERSION KEY "\r\n", "400 Bad Request");
    rig_answer("GET /ws HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n" UPGRADE VERSION KEY "\r\n",
               "403 Forbidden");
    struct client c AUTO_CLIENT = client_tcp();
    client_send(&c, "GET /ws HTTP/1.1\r\n" HOST UPGRADE KEY VERSION "Sec-WebSocket-Protocol: brig\r\n"
                    "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n");
    client_expect(&c, "\r\n\r\n");
    assert_true(client_has(&c, "Sec-WebSocket-Protocol: brig\r\n"));
    assert_false(client_has(&c, "Extensions"));
}

static void test_echo(UNUSED void **state)
{
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 1u << 20};
    static uint8_t data[1u << 20], frame[(1u << 20) + 32];
    struct client c AUTO_CLIENT = open_ws();

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        size_t n = make_frame(frame, 0x82, false, data, sizes[i]);
        send_frame(&c, 0x82, data, sizes[i]);
        client_expect_bytes(&c, n);
        assert_int_equal(c.in.len, n);
        assert_memory_equal(c.in.data, frame, n);
        client_forget(&c);
    }
    /* fragments with a ping in between, all of it byte by byte */
    uint8_t pieces[64];
    size_t n = make_frame(pieces, 0x01, true, "he", 2);
    n += make_frame(pieces + n, 0x89, true, "p", 1);
    n += make_frame(pieces + n, 0x00, true, "ll", 2);
    n += make_frame(pieces + n, 0x80, true, "o", 1);
    for (size_t i = 0; i < n; i++) {
        client_send_n(&c, pieces + i, 1);
        rig_run(0);
    }
    client_expect_bytes(&c, 10);
    unit_assert_hex(c.in.data, c.in.len, "8a0170 810568656c6c6f");
}

/* The first frames come in one piece with the request. */
static void test_frames_with_head(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp();
    uint8_t all[1024];
    size_t n = strlen(OPEN);

    unit_put(all, OPEN, n);
    n += make_frame(all + n, 0x81, true, "first", 5);
    n += make_frame(all + n, 0x81, true, "second", 6);
    client_send_n(&c, all, n);
    client_expect(&c, "second");
    assert_true(client_has(&c, "first"));
}

static void test_closing(UNUSED void **state)
{
    struct client c AUTO_CLIENT = open_ws();

    send_frame(&c, 0x88,
               "\x03\xe8"
               "bye",
               5);
    expect_close(&c, 1000);
    assert_int_equal(rig.close_code, 1000);

    rig.n_closed = 0;
    struct client d AUTO_CLIENT = open_ws();
    send_frame(&d, 0x81, "close", 5);
    client_expect_bytes(&d, 15);
    unit_assert_hex(d.in.data, 4, "880d0fa0");
    assert_int_equal(rig.n_closed, 0); /* until the client has answered */
    send_frame(&d, 0x81, "more", 4);
    send_frame(&d, 0x88, "\x0f\xa0", 2);
    expect_close(&d, 4000);
    assert_int_equal(rig.close_code, 4000);
    assert_int_equal(rig.n_requests, 3); /* "more" was not delivered */

    rig.n_closed = 0;
    struct client e AUTO_CLIENT = open_ws();
    base_close_fd(&e.fd);
    rig_until(rig.n_closed == 1);
    assert_int_equal(rig.close_code, 1006);
    assert_int_equal(rig.n_gone, 0);
}

/* A client that never answers our close is not waited for longer than a moment. */
static void test_close_unanswered(UNUSED void **state)
{
    UNUSED struct client c AUTO_CLIENT = open_ws();
    uint64_t start = clock_mono_ns();

    exchange_ws_close(rig.kept, 1001, NULL);
    while (rig.n_closed == 0 && clock_mono_ns() - start < 5 * NS_PER_SEC)
        rig_run(10);
    assert_int_equal(rig.n_closed, 1);
    assert_int_equal(rig.close_code, 1001);
    assert_true(clock_mono_ns() - start > NS_PER_SEC);
}

/* ---- hostile clients (A10) ---------------------------------------------------------------------- */

static void hostile(const char *hex, unsigned code)
{
    struct client c AUTO_CLIENT = open_ws();
    uint8_t bytes[256];

    rig.n_closed = 0;
    client_send_n(&c, bytes, unit_hex(hex, bytes, sizeof(bytes)));
    expect_close(&c, code);
    assert_int_equal(rig.close_code, code);
}

static void test_protocol_errors(UNUSED void **state)
{
    unsigned before = rig.n_requests;

    hostile("8103 616263", 1002); /* no mask */
    hostile("8203 616263", 1002);
    hostile("c183 00000000 616263", 1002); /* reserved bits */
    hostile("8383 00000000 616263", 1002); /* a reserved opcode */
    hostile("8b80 00000000", 1002);
    hostile("8080 00000000", 1002);                     /* a continuation of nothing */
    hostile("0181 00000000 61 8181 00000000 62", 1002); /* a new message inside a message */
    hostile("0980 00000000", 1002);                     /* a control frame in fragments */
    hostile("89fe 007e 00000000", 1002);                /* a long control frame */
    hostile("8882 00000000 03e7", 1002);                /* a close with a code that may not be sent */
    hostile("82ff 8000000000000000 00000000", 1002);    /* 2^63 bytes */
    hostile("82fe 0001 00000000 61", 1002);             /* a length not in its shortest form */
    hostile("8182 00000000 c328", 1007);                /* text that is none */
    hostile("82ff 7fffffffffffffff 00000000 00", 1009); /* 2^63 - 1 bytes */
    hostile("82ff 0000000000100001 00000000 00", 1009); /* one more than is allowed */
    assert_int_equal(rig.n_requests, before + 15);      /* the handshakes, and no message */
}

static void test_endless_fragments(UNUSED void **state)
{
    static const size_t sizes[] = {0, 1, 60000};
    static uint8_t piece[60000], frame[60032];

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct client c AUTO_CLIENT = open_ws();
        rig.n_closed = 0;
        for (int k = 0; k < 5000 && !c.eof; k++) {
            client_send_n(&c, frame, make_frame(frame, k == 0 ? 0x02 : 0x00, true, piece, sizes[i]));
            if (k % 16 == 0) {
                rig_run(0);
                client_read(&c);
            }
        }
        expect_close(&c, 1009);
    }
}

static void test_ping_flood(UNUSED void **state)
{
    struct client c AUTO_CLIENT = open_ws();

    for (int k = 0; k < 5000 && !c.eof; k++) {
        send_frame(&c, 0x89, "x", 1);
        if (k % 16 == 0) {
            rig_run(0);
            client_read(&c);
        }
    }
    expect_close(&c, 1008);
    assert_true(c.in.len < 2000); /* some pongs, then the close */
}

static void test_slow_reader(UNUSED void **state)
{
    struct client c AUTO_CLIENT = open_ws();
    static char data[100000];
    bool more = true;
    int n = 0;

    while (more && n++ < 1000) {
        more = exchange_ws_send(rig.kept, false, data, sizeof(data));
        rig_run(0);
    }
    assert_false(more);
    while (rig.n_drained == 0) {
        rig_run(2);
        client_read(&c);
    }
    assert_int_equal(rig.n_drained, 1);
    /* And one that does not read at all. The kernel may take late what waits, and then there is nothing to wait for. */
    rig.http.body_timeout = 250;
    server_configure(rig.server, &rig.http);
    unsigned drained = rig.n_drained;
    for (more = true; rig.n_closed == 0; rig_run(1))
        if (more || rig.n_drained > drained) {
            drained = rig.n_drained;
            more = exchange_ws_send(rig.kept, false, data, sizeof(data));
        }
    assert_int_equal(rig.close_code, 1006);
}

static void test_pause(UNUSED void **state)
{
    struct client c AUTO_CLIENT = open_ws();
    static uint8_t data[20000];

    exchange_ws_pause(rig.kept, true);
    for (int i = 0; i < 3; i++)
        send_frame(&c, 0x82, data, sizeof(data));
    rig_run(30);
    assert_int_equal(rig.n_requests, 1); /* the handshake */
    unsigned rounds = 0;
    for (uint64_t until = clock_mono_ns() + 50 * NS_PER_MS; clock_mono_ns() < until; rounds++)
        assert_int_equal(loop_run_once(rig.loop, 10, NULL), 0);
    assert_true(rounds < 20);
    exchange_ws_pause(rig.kept, false);
    client_expect_bytes(&c, 3 * (sizeof(data) + 4));
    assert_int_equal(rig.n_requests, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
        T(test_handshake),         T(test_echo),
        T(test_frames_with_head),  T(test_closing),
        T(test_close_unanswered),  T(test_protocol_errors),
        T(test_endless_fragments), T(test_ping_flood),
        T(test_slow_reader),       T(test_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
