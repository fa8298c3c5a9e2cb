/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a serving brig-init: they come and go, some are hostile, and the processes live on. */
#include "guest_rig.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "codec/wire/le.h"

static void processes_outlive_connections(void **state)
{
    struct rig rig;
    struct answer out = {0}, input = {0}, list = {0};
    (void)state;

    rig_open(&rig, 0);
    uint64_t boot = rig.hello.boot;
    assert_true(boot != 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sh", "-c", "while read x; do echo got $x; done; echo over"));
    rig_attach_proc(&rig, &out, 1, 2, 0);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "one\n", 4);
    rig_wait_for(&rig, out.out[1].len == 8);
    out.call = input.call = NULL; /* they go with the link */
    rig_forget(&out);
    rig_forget(&input);
    rig_attach(&rig);
    assert_true(rig.hello.boot == boot);
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    assert_int_equal(list.n_events, 1);
    rig_attach_proc(&rig, &out, 1, 2, 4);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "two\n", 4);
    assert_int_equal(call_eof(input.call), 0);
    rig_until(&rig, &out.done);
    assert_int_equal(answer_attached(&out).first[1], 4);
    assert_text(out.out[1], "one\ngot two\nover\n");
    rig_forget(&out);
    rig_forget(&input);
    rig_forget(&list);
    rig_close(&rig);
}

static void a_lost_stream_is_waited_for(void **state)
{
    struct rig rig;
    struct answer out = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sh", "-c", "echo one; read x"));
    link_destroy(rig.link);
    rig.link = NULL;
    rig_run(&rig, 50);
    rig_attach(&rig);
    rig_attach_proc(&rig, &out, 1, 2, 0);
    rig_wait_for(&rig, out.out[1].len == 4);
    out.call = NULL;
    rig_forget(&out);
    /* And when a new one comes while the old one is still there. */
    for (int i = 0; i < 20; i++)
        rig_attach(&rig);
    rig_attach_proc(&rig, &out, 1, 2, 0);
    rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL);
    rig_until(&rig, &out.done);
    assert_text(out.out[1], "one\n");
    rig_forget(&out);
    rig_close(&rig);
}

/* Bytes on a new stream, after which init must have closed it and still serve. */
static void send_to_stream(struct rig *rig, const void *data, size_t len, bool expect_close)
{
    uint8_t out[FRAME_HEADER], in[4096];
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    link_destroy(rig->link);
    rig->link = NULL;
    send_bytes(&rig->g, out, put_frame(out, FRAME_ATTACH, 0, "", 0), &pair[1], 1);
    close(pair[1]);
    assert_int_equal(send(pair[0], data, len, MSG_NOSIGNAL), len);
    if (expect_close)
        while (recv(pair[0], in, sizeof(in), 0) > 0)
            ;
    close(pair[0]);
}

static size_t hello_and(uint8_t *out, unsigned type, unsigned flags, uint32_t stream, uint32_t request,
                        const void *payload, size_t len)
{
    uint8_t wire[16];
    struct frame frame = {.type = SVC_HELLO, .length = 16};

    assert_int_equal(svc_hello_put(wire, sizeof(wire), &(struct svc_hello){.version = 1}), 16);
    frame_put_header(out, &frame);
    memcpy(out + FRAME_HEADER, wire, 16);
    frame = (struct frame){.type = (uint16_t)type,
                           .flags = (uint16_t)flags,
                           .stream = stream,
                           .request = request,
                           .length = (uint32_t)len};
    frame_put_header(out + 32, &frame);
    if (len > 0)
        memcpy(out + 48, payload, len);
    return 48 + len;
}

static void breaches_end_the_stream_only(void **state)
{
    static const struct {
        unsigned type, flags;
        uint32_t stream, request;
        const char *payload;
        size_t len;
    } breaches[] = {
        {SVC_HELLO, 0, 0, 0, "", 0},
        {SVC_REPLY, 0, 0, 1, "\0\0\0\0\0\0\0\0", 8},
        {SVC_EVENT, 0, 0, 1, "", 0},
        {SVC_DATA, 0, 5, 1, "x", 1},
        {SVC_DATA, FRAME_MORE, 0, 1, "x", 1},
        {SVC_PROC_LIST, 0, 1, 1, "", 0},
        {SVC_PROC_LIST, 0, 0, 0, "", 0},
        {SVC_PROC_LIST, 0, 0, 0x80000000u, "", 0},
        {SVC_PROC_LIST, FRAME_MORE, 0, 1, "", 0},
        {31, 0, 0, 1, "", 0},
        {200, 0, 0, 1, "", 0},
        {1, 0, 0, 1, "", 0},
    };
    uint8_t wire[256];
    struct rig rig;
    struct answer list = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sleep", "1000"));
    for (unsigned i = 0; i < ARRAY_SIZE(breaches); i++)
        send_to_stream(&rig, wire,
                       hello_and(wire, breaches[i].type, breaches[i].flags, breaches[i].stream, breaches[i].request,
                                 breaches[i].payload, breaches[i].len),
                       true);
    send_to_stream(&rig, "nonsense that is no frame at all", 32, true);
    /* Half an open, then another frame between. */
    size_t len = hello_and(wire, SVC_PROC_START, FRAME_MORE, 0, 1, "abc", 3);
    const struct frame list_frame = {.type = SVC_PROC_LIST, .request = 2};
    frame_put_header(wire + len, &list_frame);
    send_to_stream(&rig, wire, len + FRAME_HEADER, true);
    /* The same number twice. */
    len = hello_and(wire, SVC_PROC_WAIT, 0, 0, 1, "\1\0\0\0", 4);
    memcpy(wire + len, wire + 32, len - 32);
    send_to_stream(&rig, wire, 2 * len - 32, true);
    /* Frames of calls that do not exist are only late. */
    send_to_stream(&rig, wire, hello_and(wire, SVC_CANCEL, 0, 0, 77, "", 0), false);
    rig_attach(&rig);
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    assert_int_equal(list.n_events, 1);
    rig_forget(&list);
    rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 1);
    rig_close(&rig);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

/* A frame that is well formed more often than not, about a process that may exist. */
static size_t random_frame(uint8_t *out, uint32_t *seed)
{
    static const uint8_t types[] = {17, 18, 19, 22, 32, 33, 34, 35, 36, 37, 38, 39, 40, 48, 49, 64, 65, 66, 71};
    uint32_t type = types[next_random(seed) % ARRAY_SIZE(types)], length = next_random(seed) % 64;
    const struct frame frame = {
        .type = (uint16_t)(next_random(seed) % 64 ? type : next_random(seed)),
        .flags = (uint16_t)(next_random(seed) % 16 || type < SVC_CALL_MIN ? 0 : FRAME_MORE),
        .stream = type == SVC_CREDIT ? 1 + next_random(seed) % 2 : 0,
        .request = 1 + next_random(seed) % 30,
        .length = type == SVC_CREDIT || type == SVC_PROC_WAIT ? 4
                  : type == SVC_EOF || type == SVC_CANCEL     ? 0
                                                              : length,
    };

    frame_put_header(out, &frame);
    for (uint32_t i = 0; i < frame.length; i++)
        out[FRAME_HEADER + i] = (uint8_t)(next_random(seed) % 4 ? 0 : next_random(seed));
    if (frame.length >= 4 && type < SVC_FILE_MIN)
        le_put_u32(out + FRAME_HEADER, 1 + next_random(seed) % 3);
    return FRAME_HEADER + frame.length;
}

static void storms_of_frames_pass(void **state)
{
    struct rig rig;
    struct answer list = {0};
    uint32_t seed = 20240613;
    static uint8_t wire[65536];
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("cat"));
    rig_start(&rig, 2, SVC_PROC_TTY, ARGV("cat"));
    rig_start(&rig, 3, SVC_PROC_SHELL, ARGV("dash"));
    for (unsigned i = 0; i < 300; i++) {
        size_t len = hello_and(wire, SVC_PROC_LIST, 0, 0, 99, "", 0);

        for (unsigned k = 0; k < 100; k++)
            len += random_frame(wire + len, &seed);
        send_to_stream(&rig, wire, len, false);
    }
    rig_attach(&rig);
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    assert_int_equal(list.errnum, 0);
    rig_forget(&list);
    rig_start(&rig, 1000, 0, ARGV("true"));
    assert_int_equal(rig_wait_exit(&rig, 1000).status, 0);
    for (uint32_t i = 1; i <= 3; i++)
        rig_signal(&rig, i, SIGKILL, SVC_SIGNAL_ALL);
    rig_close(&rig);
}

static void cancelled_calls_are_answered(void **state)
{
    struct rig rig;
    struct answer waits[3] = {{0}, {0}, {0}};
    uint8_t in[64];
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("cat"));
    rig_number(&rig, &waits[0], SVC_PROC_WAIT, 1);
    rig_attach_proc(&rig, &waits[1], 1, 6, 0);
    rig_number(&rig, &waits[2], SVC_PROC_INPUT, 1);
    rig_run(&rig, 20);
    for (unsigned i = 0; i < 3; i++)
        rig_forget(&waits[i]); /* sends CANCEL; the link would end if a REPLY came twice or for another */
    rig_run(&rig, 50);
    assert_int_equal(rig.gones, 0);
    (void)in;
    rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 1);
    rig_close(&rig);
}

static void the_control_socket_is_its_life(void **state)
{
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("true"));
    rig_close(&rig); /* asserts the status */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_outlive_connections), cmocka_unit_test(a_lost_stream_is_waited_for),
        cmocka_unit_test(breaches_end_the_stream_only),  cmocka_unit_test(storms_of_frames_pass),
        cmocka_unit_test(cancelled_calls_are_answered),  cmocka_unit_test(the_control_socket_is_its_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
