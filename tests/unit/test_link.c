/* SPDX-License-Identifier: Apache-2.0 */
/* A link against a peer that the test plays: numbers, credit, ends, and every way to break the protocol. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"
#include "codec/wire/le.h"
#include "link/link.h"
#include "loop/loop.h"

struct bed {
    struct loop *loop;
    struct link *link;
    int peer;
    uint8_t in[4u << 20]; /* what the link has sent */
    size_t in_len;
    unsigned hellos, gones;
    struct brig_err why;
};

struct probe {
    struct bed *bed;
    struct call *call;
    void (*on_reply)(struct probe *probe);
    void (*on_event)(struct probe *probe);
    size_t got[3], eofs[3];
    char reply[64];
    size_t reply_len;
    unsigned events, replies, writables;
    uint32_t errnum, stage;
    bool consume;
};

static void bed_hello(void *ctx, const struct svc_hello *hello)
{
    struct bed *bed = ctx;

    assert_int_equal(hello->version, SVC_VERSION);
    bed->hellos++;
}

static void bed_gone(void *ctx, const struct brig_err *why)
{
    struct bed *bed = ctx;

    bed->gones++;
    bed->why = *why;
}

static void peer_send(struct bed *bed, const void *data, size_t len)
{
    const uint8_t *at = data;

    while (len > 0) {
        ssize_t n = send(bed->peer, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            assert_int_equal(loop_run_once(bed->loop, 0, NULL), 0);
            continue;
        }
        if (n < 0)
            return; /* the link has judged already */
        at += n;
        len -= (size_t)n;
    }
}

static void peer_frame(struct bed *bed, unsigned type, uint32_t request, uint32_t stream, const void *payload,
                       size_t len)
{
    static uint8_t out[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    const struct frame frame = {.type = (uint16_t)type, .request = request, .stream = stream, .length = (uint32_t)len};

    frame_put_header(out, &frame);
    if (len > 0)
        memcpy(out + FRAME_HEADER, payload, len);
    peer_send(bed, out, FRAME_HEADER + len);
}

static void peer_reply(struct bed *bed, uint32_t request, uint32_t errnum, const char *text)
{
    uint8_t wire[64];
    struct svc_cursor out = {wire, wire + sizeof(wire), false};

    svc_put_u32(&out, errnum);
    svc_put_u32(&out, 0);
    svc_put_raw(&out, text, text ? strlen(text) : 0);
    peer_frame(bed, SVC_REPLY, request, 0, wire, (size_t)(out.at - wire));
}

static void peer_hello(struct bed *bed)
{
    uint8_t wire[16];

    assert_int_equal(svc_hello_put(wire, sizeof(wire), &(struct svc_hello){.version = SVC_VERSION, .boot = 7}), 16);
    peer_frame(bed, SVC_HELLO, 0, 0, wire, 16);
}

/* Runs the loop until it has nothing more to do, taking what the link sends. */
static void settle(struct bed *bed)
{
    struct pollfd loop = {.fd = loop_fd(bed->loop), .events = POLLIN};
    ssize_t n;

    for (unsigned idle = 0; idle < 2; idle++) {
        while (poll(&loop, 1, 0) > 0) {
            assert_int_equal(loop_run_once(bed->loop, 0, NULL), 0);
            idle = 0;
        }
        while ((n = recv(bed->peer, bed->in + bed->in_len, sizeof(bed->in) - bed->in_len, MSG_DONTWAIT)) > 0) {
            bed->in_len += (size_t)n;
            idle = 0;
        }
    }
}

/* The next frame the link has sent; asserts that there is one of this type. */
static struct frame expect(struct bed *bed, unsigned type)
{
    static uint8_t copy[FRAME_HEADER + FRAME_PAYLOAD_MAX];
    struct frame frame;

    settle(bed);
    int used = svc_frame_parse(bed->in, bed->in_len, &frame);
    assert_true(used > 0);
    memcpy(copy, bed->in, (size_t)used);
    memmove(bed->in, bed->in + used, bed->in_len - (size_t)used);
    bed->in_len -= (size_t)used;
    assert_int_equal(svc_frame_parse(copy, (size_t)used, &frame), used);
    assert_int_equal(frame.type, type);
    return frame;
}

static struct bed *bed_create(bool greeted)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    const struct link_events events = {bed_hello, bed_gone, bed};
    int pair[2];

    assert_non_null(bed);
    assert_int_equal(loop_create(&bed->loop, NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    bed->peer = pair[1];
    assert_int_equal(link_create(bed->loop, pair[0], &events, &bed->link, NULL), 0);
    if (greeted) {
        peer_hello(bed);
        expect(bed, SVC_HELLO);
        assert_int_equal(bed->hellos, 1);
    }
    return bed;
}

static void bed_destroy(struct bed *bed)
{
    link_destroy(bed->link);
    loop_destroy(bed->loop);
    close(bed->peer);
    free(bed);
}

/* ---- a call ------------------------------------------------------------------------------------- */

static void probe_event(void *ctx, const uint8_t *data, size_t len)
{
    struct probe *probe = ctx;

    (void)data;
    (void)len;
    probe->events++;
    if (probe->on_event)
        probe->on_event(probe);
}

static void probe_data(void *ctx, unsigned stream, const uint8_t *data, size_t len)
{
    struct probe *probe = ctx;

    (void)data;
    probe->got[stream] += len;
    if (probe->consume)
        call_consumed(probe->call, stream, len);
}

static void probe_eof(void *ctx, unsigned stream)
{
    struct probe *probe = ctx;

    probe->eofs[stream]++;
}

static void probe_writable(void *ctx)
{
    struct probe *probe = ctx;

    probe->writables++;
}

static void probe_reply(void *ctx, uint32_t errnum, uint32_t stage, const uint8_t *data, size_t len)
{
    struct probe *probe = ctx;

    probe->replies++;
    probe->errnum = errnum;
    probe->stage = stage;
    assert_true(len <= sizeof(probe->reply));
    if (len > 0)
        memcpy(probe->reply, data, len);
    probe->reply_len = len;
    probe->call = NULL;
    if (probe->on_reply)
        probe->on_reply(probe);
}

static int probe_open(struct bed *bed, struct probe *probe, const void *payload, size_t len)
{
    const struct call_events events = {probe_event, probe_data, probe_eof, probe_writable, probe_reply, probe};

    probe->bed = bed;
    return link_call(bed->link, SVC_PROC_ATTACH, payload, len, &events, &probe->call, NULL);
}

static void a_call_from_end_to_end(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "abc", 3), 0);
    struct frame open = expect(bed, SVC_PROC_ATTACH);
    assert_int_equal(open.length, 3);
    assert_memory_equal(open.payload, "abc", 3);
    peer_frame(bed, SVC_EVENT, open.request, 0, "x", 1);
    peer_frame(bed, SVC_DATA, open.request, 1, "hello", 5);
    peer_frame(bed, SVC_DATA, open.request, 2, "err", 3);
    peer_frame(bed, SVC_EOF, open.request, 1, NULL, 0);
    peer_reply(bed, open.request, 0, "done");
    settle(bed);
    assert_int_equal(probe.events, 1);
    assert_int_equal(probe.got[1], 5);
    assert_int_equal(probe.got[2], 3);
    assert_int_equal(probe.eofs[1], 1);
    assert_int_equal(probe.eofs[2], 0);
    assert_int_equal(probe.replies, 1);
    assert_memory_equal(probe.reply, "done", 4);
    assert_int_equal(bed->gones, 0);
    /* The number is free again, and frames with the old one are not legal any more. */
    peer_reply(bed, open.request, 0, NULL);
    settle(bed);
    assert_int_equal(bed->gones, 1);
    bed_destroy(bed);
}

static void calls_before_hello_wait(void **state)
{
    struct bed *bed = bed_create(false);
    struct probe probe = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "abc", 3), 0);
    expect(bed, SVC_HELLO);
    assert_int_equal(bed->in_len, 0);
    peer_hello(bed);
    expect(bed, SVC_PROC_ATTACH);
    bed_destroy(bed);
}

static void opens_travel_in_one_write(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe[3] = {{0}, {0}, {0}};
    (void)state;

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(probe_open(bed, &probe[i], "abc", 3), 0);
    while (bed->in_len == 0) {
        assert_int_equal(loop_run_once(bed->loop, 0, NULL), 0);
        ssize_t n = recv(bed->peer, bed->in, sizeof(bed->in), MSG_DONTWAIT);
        bed->in_len = n > 0 ? (size_t)n : 0;
    }
    assert_int_equal(bed->in_len, 3 * (FRAME_HEADER + 3));
    bed_destroy(bed);
}

static void a_long_open_is_cut(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    size_t len = SVC_OPEN_MAX, at = 0;
    uint8_t *long_one = malloc(len + 1);
    (void)state;

    assert_non_null(long_one);
    for (size_t i = 0; i <= len; i++)
        long_one[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(probe_open(bed, &probe, long_one, len + 1), -EMSGSIZE);
    assert_int_equal(probe_open(bed, &probe, long_one, len), 0);
    while (at < len) {
        struct frame frame = expect(bed, SVC_PROC_ATTACH);
        assert_memory_equal(frame.payload, long_one + at, frame.length);
        at += frame.length;
        assert_int_equal(frame.flags, at < len ? FRAME_MORE : 0);
    }
    free(long_one);
    bed_destroy(bed);
}

/* ---- credit ------------------------------------------------------------------------------------- */

static void input_stops_at_the_window(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    uint8_t *data = calloc(1, 3u << 20), wire[4];
    size_t sent = 0;
    (void)state;

    assert_non_null(data);
    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    assert_int_equal(call_write(probe.call, data, 3u << 20), SVC_WINDOW);
    assert_int_equal(call_write(probe.call, data, 1), 0);
    while (sent < SVC_WINDOW)
        sent += expect(bed, SVC_DATA).length;
    assert_int_equal(sent, SVC_WINDOW);
    assert_int_equal(probe.writables, 0);
    le_put_u32(wire, 1000);
    peer_frame(bed, SVC_CREDIT, request, 0, wire, 4);
    settle(bed);
    assert_int_equal(probe.writables, 1);
    assert_int_equal(call_write(probe.call, data, 5000), 1000);
    assert_int_equal(expect(bed, SVC_DATA).length, 1000);
    assert_int_equal(call_eof(probe.call), 0);
    expect(bed, SVC_EOF);
    assert_int_equal(call_eof(probe.call), -EPIPE);
    assert_int_equal(call_write(probe.call, data, 1), -EPIPE);
    free(data);
    bed_destroy(bed);
}

static void an_end_is_told_when_there_is_room_for_it(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe early = {0}, filler[16] = {0};
    uint8_t *data = calloc(1, SVC_WINDOW);
    unsigned ends = 0;
    (void)state;

    assert_non_null(data);
    assert_int_equal(probe_open(bed, &early, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(probe_open(bed, &filler[i], "", 0), 0);
    for (unsigned i = 0; i < 16; i++)
        assert_true(call_write(filler[i].call, data, SVC_WINDOW) >= 0);
    assert_int_equal(call_write(filler[15].call, data, 1), 0); /* full */
    assert_int_equal(call_eof(early.call), 0);
    for (unsigned idle = 0; ends == 0 && idle < 2;) {
        struct frame frame;
        settle(bed);
        int used = svc_frame_parse(bed->in, bed->in_len, &frame);
        idle = used > 0 ? 0 : idle + 1;
        if (used <= 0)
            continue;
        ends += frame.type == SVC_EOF && frame.request == request;
        memmove(bed->in, bed->in + used, bed->in_len - (size_t)used);
        bed->in_len -= (size_t)used;
    }
    assert_int_equal(ends, 1);
    free(data);
    bed_destroy(bed);
}

static void output_is_credited_when_consumed(void **state)
{
    static uint8_t block[FRAME_PAYLOAD_MAX];
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    size_t credited = 0;
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    for (unsigned i = 0; i < SVC_WINDOW / sizeof(block); i++)
        peer_frame(bed, SVC_DATA, request, 1, block, sizeof(block));
    settle(bed);
    assert_int_equal(probe.got[1], SVC_WINDOW);
    assert_int_equal(bed->in_len, 0); /* nothing is given back by itself */
    call_consumed(probe.call, 1, SVC_WINDOW + 5);
    struct frame credit = expect(bed, SVC_CREDIT);
    assert_int_equal(credit.stream, 1);
    assert_int_equal(le_get_u32(credit.payload), SVC_WINDOW);
    /* And so on for ever, as long as it is consumed. */
    probe.consume = true;
    for (unsigned i = 0; i < 64; i++) {
        peer_frame(bed, SVC_DATA, request, 1, block, sizeof(block));
        settle(bed);
    }
    for (size_t at = 0; at < bed->in_len; at += FRAME_HEADER + 4)
        credited += le_get_u32(bed->in + at + FRAME_HEADER);
    assert_true(credited > 64 * sizeof(block) - SVC_WINDOW / 4);
    assert_int_equal(bed->gones, 0);
    bed_destroy(bed);
}

static void data_beyond_its_credit_ends_the_link(void **state)
{
    static uint8_t block[FRAME_PAYLOAD_MAX];
    struct bed *bed = bed_create(true);
    struct probe probe = {0}, other = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    assert_int_equal(probe_open(bed, &other, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    for (unsigned i = 0; i < SVC_WINDOW / sizeof(block); i++)
        peer_frame(bed, SVC_DATA, request, 1, block, sizeof(block));
    peer_frame(bed, SVC_DATA, request, 1, "x", 1);
    settle(bed);
    assert_int_equal(probe.got[1], SVC_WINDOW);
    assert_int_equal(bed->gones, 1);
    assert_int_equal(bed->why.code, BRIG_E_GONE);
    assert_string_equal(bed->why.message, "brig-init broke the protocol: data beyond its credit");
    assert_int_equal(probe.replies, 1);
    assert_int_equal(probe.errnum, ENOTCONN);
    assert_int_equal(other.replies, 1);
    struct probe late = {0};
    assert_int_equal(probe_open(bed, &late, "", 0), -ENOTCONN);
    bed_destroy(bed);
}

/* ---- breaking the protocol ---------------------------------------------------------------------- */

static void breaches_end_the_link(void **state)
{
    static const struct {
        unsigned type, stream;
        uint32_t request; /* 0: that of the open call */
        const char *payload;
        size_t len;
    } breaches[] = {
        {SVC_HELLO, 0, 0, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16}, /* twice; request is 0 here */
        {SVC_DATA, 1, 99999, "x", 1},
        {SVC_DATA, 0, 0, "x", 1},
        {SVC_DATA, 1, 0, "", 0},
        {SVC_DATA, 3, 0, "x", 1},
        {SVC_EOF, 0, 0, "", 0},
        {SVC_EOF, 1, 0, "x", 1},
        {SVC_CREDIT, 0, 0, "\1\0\0\0", 4}, /* for nothing */
        {SVC_CREDIT, 1, 0, "\1\0\0\0", 4},
        {SVC_CREDIT, 0, 0, "\0\0\0\0", 4},
        {SVC_CREDIT, 0, 0, "\1\0\0", 3},
        {SVC_CANCEL, 0, 0, "", 0},
        {SVC_PROC_START, 0, 0, "x", 1},
        {SVC_REPLY, 0, 0, "\0\0\0\0", 4},
        {SVC_REPLY, 0, 0, "\1\0\0\0\0\0\0\0x", 9},
        {SVC_REPLY, 0, 0, "\0\0\1\0\0\0\0\0", 8}, /* no such errno */
        {SVC_EVENT, 0, 7777, "", 0},
        {1, 0, 0, "", 0},
        {23, 0, 0, "", 0},
        {SVC_TYPE_MAX, 0, 0, "", 0},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(breaches); i++) {
        struct bed *bed = bed_create(true);
        struct probe probe = {0};

        assert_int_equal(probe_open(bed, &probe, "", 0), 0);
        uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
        if (breaches[i].request)
            request = breaches[i].request;
        if (breaches[i].type == SVC_HELLO)
            request = 0;
        peer_frame(bed, breaches[i].type, request, breaches[i].stream, breaches[i].payload, breaches[i].len);
        settle(bed);
        assert_int_equal(bed->gones, 1);
        assert_int_equal(probe.replies, 1);
        assert_int_equal(probe.errnum, ENOTCONN);
        assert_non_null(strstr(bed->why.message, "brig-init broke the protocol: "));
        bed_destroy(bed);
    }
}

static void data_after_its_end_is_a_breach(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    peer_frame(bed, SVC_EOF, request, 1, NULL, 0);
    peer_frame(bed, SVC_DATA, request, 1, "x", 1);
    settle(bed);
    assert_int_equal(bed->gones, 1);
    bed_destroy(bed);
}

static void nothing_comes_before_hello(void **state)
{
    struct bed *bed = bed_create(false);
    (void)state;

    peer_frame(bed, SVC_EVENT, 1, 0, NULL, 0);
    settle(bed);
    assert_int_equal(bed->gones, 1);
    bed_destroy(bed);
}

static void every_cut_is_waited_for(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    uint8_t wire[FRAME_HEADER + 8 + 2] = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    frame_put_header(wire,
                     &(struct frame){.type = SVC_REPLY, .length = 10, .request = expect(bed, SVC_PROC_ATTACH).request});
    wire[FRAME_HEADER + 8] = 'o';
    wire[FRAME_HEADER + 9] = 'k';
    for (size_t i = 0; i < sizeof(wire); i++) {
        assert_int_equal(probe.replies, 0);
        peer_send(bed, wire + i, 1);
        settle(bed);
    }
    assert_int_equal(probe.replies, 1);
    assert_memory_equal(probe.reply, "ok", 2);
    bed_destroy(bed);
}

/* ---- ends --------------------------------------------------------------------------------------- */

static void a_dropped_call_is_silent(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    call_drop(probe.call);
    assert_int_equal(expect(bed, SVC_CANCEL).request, request);
    peer_frame(bed, SVC_DATA, request, 1, "x", 1); /* crossed */
    peer_reply(bed, request, ECANCELED, NULL);
    settle(bed);
    assert_int_equal(probe.got[1], 0);
    assert_int_equal(probe.replies, 0);
    assert_int_equal(bed->gones, 0);
    bed_destroy(bed);
}

static void what_was_said_before_the_end_counts(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {0}, other = {0};
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
    peer_reply(bed, request, 0, "last");
    close(bed->peer);
    assert_int_equal(probe_open(bed, &other, "", 0), 0);
    bed->peer = open("/dev/null", O_RDONLY | O_CLOEXEC);
    settle(bed);
    assert_int_equal(probe.replies, 1);
    assert_int_equal(probe.errnum, 0);
    assert_int_equal(other.errnum, ENOTCONN);
    assert_int_equal(bed->gones, 1);
    bed_destroy(bed);
}

static void destroy_link(struct probe *probe)
{
    link_destroy(probe->bed->link);
    probe->bed->link = NULL;
}

static void drop_call(struct probe *probe)
{
    call_drop(probe->call);
}

static void callbacks_may_destroy(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct bed *bed = bed_create(true);
        struct probe probe = {.on_event = i == 0 ? destroy_link : drop_call, .on_reply = destroy_link}, other = {0};

        assert_int_equal(probe_open(bed, &probe, "", 0), 0);
        assert_int_equal(probe_open(bed, &other, "", 0), 0);
        uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
        if (i < 2)
            peer_frame(bed, SVC_EVENT, request, 0, NULL, 0);
        peer_frame(bed, SVC_DATA, request, 1, "x", 1);
        peer_reply(bed, request, 0, NULL);
        settle(bed);
        assert_int_equal(probe.got[1], i == 2 ? 1 : 0);
        assert_int_equal(probe.replies, i == 2 ? 1 : 0);
        assert_int_equal(other.replies, 0);
        assert_int_equal(bed->gones, 0);
        bed_destroy(bed);
    }
}

static void open_again(struct probe *probe)
{
    if (probe->replies < 50)
        assert_int_equal(probe_open(probe->bed, probe, "", 0), 0);
}

static void numbers_are_not_reused_at_once(void **state)
{
    struct bed *bed = bed_create(true);
    struct probe probe = {.on_reply = open_again};
    uint32_t last = 0;
    (void)state;

    assert_int_equal(probe_open(bed, &probe, "", 0), 0);
    for (unsigned i = 0; i < 50; i++) {
        uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
        assert_int_not_equal(request, last);
        last = request;
        peer_reply(bed, request, 0, NULL);
    }
    settle(bed);
    assert_int_equal(probe.replies, 50);
    bed_destroy(bed);
}

/* ---- bounds ------------------------------------------------------------------------------------- */

static void so_many_calls_and_no_more(void **state)
{
    static struct probe probes[SVC_CALLS_MAX + 1];
    struct bed *bed = bed_create(true);
    (void)state;

    memset(probes, 0, sizeof(probes));
    for (unsigned i = 0; i < SVC_CALLS_MAX; i++)
        assert_int_equal(probe_open(bed, &probes[i], "", 0), 0);
    assert_int_equal(probe_open(bed, &probes[SVC_CALLS_MAX], "", 0), -EAGAIN);
    peer_reply(bed, expect(bed, SVC_PROC_ATTACH).request, 0, NULL);
    settle(bed);
    assert_int_equal(probe_open(bed, &probes[SVC_CALLS_MAX], "", 0), 0);
    bed_destroy(bed);
}

static void a_peer_that_does_not_read_is_bounded(void **state)
{
    static struct probe probes[32];
    struct bed *bed = bed_create(true);
    uint8_t *payload = calloc(1, 1u << 20);
    unsigned n = 0;
    int r = 0;
    (void)state;

    assert_non_null(payload);
    memset(probes, 0, sizeof(probes));
    for (; n < ARRAY_SIZE(probes) && r == 0; n++) {
        r = probe_open(bed, &probes[n], payload, 1u << 20);
        assert_int_equal(loop_run_once(bed->loop, 0, NULL), 0);
    }
    assert_int_equal(r, -EAGAIN);
    assert_true(n >= 8 && n <= 10);
    free(payload);
    settle(bed); /* and all of it goes out once it is read */
    assert_true(bed->in_len == sizeof(bed->in));
    bed_destroy(bed);
}

static void without_memory_nothing_breaks(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        struct bed *bed = bed_create(true);
        struct probe probe = {0};
        uint8_t data[4096] = {0};

        mem_fail_after(n);
        int r = probe_open(bed, &probe, data, sizeof(data));
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            uint32_t request = expect(bed, SVC_PROC_ATTACH).request;
            mem_fail_after(n);
            peer_frame(bed, SVC_DATA, request, 1, "x", 1);
            settle(bed);
            failed |= mem_has_failed();
            mem_fail_after(MEM_FAIL_NEVER);
            assert_true(probe.got[1] == 1 || bed->gones == 1);
        } else {
            assert_int_equal(r, -ENOMEM);
            settle(bed);
            assert_int_equal(bed->in_len, 0);
        }
        bed_destroy(bed);
        if (!failed)
            break;
        assert_true(n < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_from_end_to_end),
        cmocka_unit_test(calls_before_hello_wait),
        cmocka_unit_test(opens_travel_in_one_write),
        cmocka_unit_test(a_long_open_is_cut),
        cmocka_unit_test(input_stops_at_the_window),
        cmocka_unit_test(an_end_is_told_when_there_is_room_for_it),
        cmocka_unit_test(output_is_credited_when_consumed),
        cmocka_unit_test(data_beyond_its_credit_ends_the_link),
        cmocka_unit_test(breaches_end_the_link),
        cmocka_unit_test(data_after_its_end_is_a_breach),
        cmocka_unit_test(nothing_comes_before_hello),
        cmocka_unit_test(every_cut_is_waited_for),
        cmocka_unit_test(a_dropped_call_is_silent),
        cmocka_unit_test(what_was_said_before_the_end_counts),
        cmocka_unit_test(callbacks_may_destroy),
        cmocka_unit_test(numbers_are_not_reused_at_once),
        cmocka_unit_test(so_many_calls_and_no_more),
        cmocka_unit_test(a_peer_that_does_not_read_is_bounded),
        cmocka_unit_test(without_memory_nothing_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
