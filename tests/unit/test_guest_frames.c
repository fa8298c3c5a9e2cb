/* SPDX-License-Identifier: Apache-2.0 */
/* What brig-init does with frames: obeys SIGNAL, and ends without a word when the other side breaks the protocol or
 * goes. */
#include "guest_driver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- frames -------------------------------------------------------------------------------------- */

static void signals_the_main_process(void **state)
{
    struct guest g;
    char text[8];

    (void)state;
    guest_start(&g, ARGV("sh", "-c", "trap 'exit 9' TERM; echo up; exec >&-; while :; do sleep 0.01; done"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    send_signal(&g, SIGTERM);
    guest_finish(&g);
    assert_int_equal(WEXITSTATUS((int)g.exited.status), 9);
}

static void obeys_a_signal_sent_along_with_start(void **state)
{
    struct guest g;

    (void)state;
    guest_start_lasting(&g);
    send_signal(&g, SIGKILL);
    expect_hello(&g);
    guest_finish(&g);
    assert_int_equal(WTERMSIG((int)g.exited.status), SIGKILL);
}

static void expect_exit_2(const void *data, size_t len, bool running, const int *fds, size_t n_fds)
{
    struct guest g;

    if (running) {
        guest_start_lasting(&g);
        assert_true(read_until(&g, FRAME_HELLO));
        assert_true(read_until(&g, FRAME_STARTED));
    } else {
        guest_spawn(&g);
        assert_true(read_until(&g, FRAME_HELLO));
    }
    send_bytes(&g, data, len, fds, n_fds);
    assert_false(read_until(&g, FRAME_EXITED)); /* no reply */
    assert_int_equal(guest_reap(&g), 2);
}

static void malformed_frames_end_it(void **state)
{
    uint8_t out[1024], zero[64] = {0};
    size_t hello, len;
    int fds[4] = {0, 1, 2, 0};

    (void)state;
    expect_exit_2(zero, FRAME_HEADER, false, NULL, 0);                           /* type 0 */
    expect_exit_2(out, put_frame(out, FRAME_START, 0, zero, 8), false, NULL, 0); /* a shorter one, without HELLO */
    expect_exit_2(out, put_frame(out, FRAME_HELLO, 0, zero, 8), false, NULL, 0); /* version 0 */
    hello = put_hello(out);
    len = hello + put_frame(out + hello, FRAME_START, 0, zero, sizeof zero);
    expect_exit_2(out, len, false, NULL, 0); /* a short START */
    len = hello + put_frame(out + hello, FRAME_SIGNAL, 0, "\x0f\0\0\0", 4);
    expect_exit_2(out, len, false, NULL, 0); /* SIGNAL before START */
    len = hello + put_hello(out + hello);
    expect_exit_2(out, len, false, NULL, 0);                                             /* HELLO twice */
    expect_exit_2(out, hello, false, fds, 4);                                            /* too many descriptors */
    expect_exit_2(out, put_hello(out), true, NULL, 0);                                   /* HELLO again */
    expect_exit_2(out, put_frame(out, FRAME_SIGNAL, 0, "\0\0\0\0", 4), true, NULL, 0);   /* signal 0 */
    expect_exit_2(out, put_frame(out, FRAME_SIGNAL, 0, "\x41\0\0\0", 4), true, NULL, 0); /* signal 65 */
    expect_exit_2(out, put_frame(out, FRAME_SIGNAL, 0, "\x0f\0\0", 3), true, NULL, 0);
    /* a descriptor nobody asked for */
    expect_exit_2(out, put_frame(out, FRAME_SIGNAL, 0, "\x0f\0\0\0", 4), true, fds, 1);
}

static void descriptors_must_match_the_flags(void **state)
{
    struct guest_start start = plain_start();
    int fds[3] = {0, 1, 2};

    (void)state;
    for (size_t n = 0; n <= 3; n++) {
        struct guest g;

        if (n == 2)
            continue;
        guest_spawn(&g);
        expect_hello(&g);
        send_start(&g, &start, ARGV("/bin/true"), plain_env, FRAME_PAYLOAD_MAX, fds, n);
        assert_false(read_until(&g, FRAME_EXITED));
        assert_int_equal(guest_reap(&g), 2);
    }
}

static void a_closed_socket_ends_it(void **state)
{
    struct guest g;

    (void)state;
    guest_spawn(&g);
    expect_hello(&g);
    close(g.control);
    g.control = -1;
    assert_int_equal(guest_reap(&g), 1);

    guest_start_lasting(&g);
    expect_hello(&g);
    assert_true(read_until(&g, FRAME_STARTED));
    close(g.control);
    g.control = -1;
    assert_int_equal(guest_reap(&g), 1);
}

/* Signals of every kind leave pid 1 as it was; only the kernel's KILL and STOP are beyond it. */
static void blocks_all_signals(void **state)
{
    struct guest g;

    (void)state;
    guest_spawn(&g);
    expect_hello(&g);
    for (int sig = 1; sig <= 64; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            kill(g.pid, sig);
    int out[2], err[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    struct guest_start start = plain_start();
    send_start(&g, &start, ARGV("/bin/true"), plain_env, FRAME_PAYLOAD_MAX, (int[]){out[1], err[1]}, 2);
    close(out[1]);
    close(err[1]);
    g.out = out[0];
    g.err = err[0];
    guest_finish(&g);
    assert_int_equal(g.exited.status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_the_main_process), cmocka_unit_test(obeys_a_signal_sent_along_with_start),
        cmocka_unit_test(malformed_frames_end_it),  cmocka_unit_test(descriptors_must_match_the_flags),
        cmocka_unit_test(a_closed_socket_ends_it),  cmocka_unit_test(blocks_all_signals),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
