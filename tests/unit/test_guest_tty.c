/* SPDX-License-Identifier: Apache-2.0 */
/* Terminals of a serving brig-init. */
#include "guest_rig.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/wire/le.h"

static bool has(const struct answer *answer, const char *text)
{
    return answer->out[1].len > 0 && strstr(answer->out[1].data, text);
}

static void start_tty(struct rig *rig, uint32_t proc, const char *script, struct answer *out)
{
    struct answer start = {0};

    rig_start_with(rig, &start, proc, &(struct start_opts){.flags = SVC_PROC_TTY, .rows = 33, .cols = 77},
                   ARGV("bash", "--norc", "-c", script));
    rig_attach_proc(rig, out, proc, 6, 0);
    rig_until(rig, &start.done);
    assert_int_equal(start.errnum, 0);
    rig_forget(&start);
}

static void a_terminal_has_size_input_and_end(void **state)
{
    struct rig rig;
    struct answer out = {0}, input = {0}, resize = {0};
    uint8_t wire[8];
    (void)state;

    rig_open(&rig, 0);
    start_tty(
        &rig, 1,
        "trap 'echo now $(stty size)' WINCH; tty; stty size; echo err >&2; read line; echo got:$line; cat; echo end",
        &out);
    rig_wait_for(&rig, has(&out, "33 77\r\nerr\r\n"));
    assert_true(has(&out, "/dev/pts/"));
    le_put_u32(wire, 1);
    le_put_u16(wire + 4, 50);
    le_put_u16(wire + 6, 100);
    rig_ask(&rig, &resize, SVC_PROC_RESIZE, wire, sizeof(wire));
    assert_int_equal(resize.errnum, 0);
    rig_forget(&resize);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "typed\n", 6);
    rig_wait_for(&rig, has(&out, "got:typed"));
    assert_true(has(&out, "now 50 100"));
    answer_write(&input, "to cat\n", 7);
    rig_wait_for(&rig, has(&out, "to cat\r\nto cat\r\n"));
    assert_int_equal(call_eof(input.call), 0); /* as if ^D was typed */
    rig_until(&rig, &input.done);
    assert_int_equal(input.errnum, 0);
    rig_until(&rig, &out.done);
    assert_int_equal(out.errnum, 0);
    assert_true(out.eof[1] && out.eof[2]);
    assert_true(has(&out, "end\r\n"));
    assert_int_equal(out.out[2].len, 0);
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.status, 0);
    assert_int_equal(exit.output[1], out.out[1].len);
    rig_ask(&rig, &resize, SVC_PROC_RESIZE, wire, sizeof(wire));
    assert_int_equal(resize.errnum, ENOTTY);
    rig_forget(&resize);
    rig_forget(&input);
    rig_forget(&out);
    rig_close(&rig);
}

static void signals_go_to_the_foreground(void **state)
{
    struct rig rig;
    struct answer out = {0};
    (void)state;

    rig_open(&rig, 0);
    /* With job control the foreground has a group of its own: the shell itself is not hit. */
    start_tty(&rig, 1, "set -m; echo ready; sleep 1000; echo after:$?", &out);
    rig_wait_for(&rig, has(&out, "ready"));
    rig_run(&rig, 200);
    assert_int_equal(rig_signal(&rig, 1, SIGTERM, SVC_SIGNAL_GROUP), 0);
    rig_until(&rig, &out.done);
    assert_true(has(&out, "after:143"));
    assert_int_equal(rig_wait_exit(&rig, 1).status, 0);
    rig_forget(&out);
    rig_close(&rig);
}

static void control_characters_work(void **state)
{
    struct rig rig;
    struct answer out = {0}, input = {0};
    (void)state;

    rig_open(&rig, 0);
    start_tty(&rig, 1, "trap 'echo interrupted; exit 5' INT; echo ready; sleep 1000", &out);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    rig_wait_for(&rig, has(&out, "ready"));
    answer_write(&input, "\3", 1);
    rig_until(&rig, &out.done);
    assert_true(has(&out, "interrupted"));
    assert_int_equal(rig_wait_exit(&rig, 1).status, 5 << 8);
    rig_forget(&input);
    rig_forget(&out);
    rig_close(&rig);
}

static void what_is_typed_early_waits(void **state)
{
    struct rig rig;
    struct answer start = {0}, out = {0}, input = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start_with(&rig, &start, 1, &(struct start_opts){.flags = SVC_PROC_TTY},
                   ARGV("bash", "-c", "read a; echo \"[$a]\"; cat; echo over"));
    rig_attach_proc(&rig, &out, 1, 2, 0);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    assert_int_equal(call_write(input.call, "early\n", 6), 6);
    rig_wait_for(&rig, has(&out, "[early]"));
    assert_int_equal(call_eof(input.call), 0);
    rig_until(&rig, &out.done);
    assert_true(has(&out, "over"));
    rig_forget(&start);
    rig_forget(&input);
    rig_forget(&out);
    rig_close(&rig);
}

static void it_floods_and_is_read(void **state)
{
    struct rig rig;
    struct answer out = {0}, go = {0};
    (void)state;

    rig_open(&rig, 0);
    start_tty(&rig, 1, "read x; seq 1 200000; echo end", &out);
    rig_number(&rig, &go, SVC_PROC_INPUT, 1); /* not before it has its reader: without one the oldest bytes go */
    answer_write(&go, "go\n", 3);
    rig_until(&rig, &out.done);
    assert_int_equal(out.out[1].len, 4 + 1288895 + 200000 + 5); /* "go" is echoed */
    rig_forget(&out);
    rig_forget(&go);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_has_size_input_and_end),
        cmocka_unit_test(signals_go_to_the_foreground),
        cmocka_unit_test(control_characters_work),
        cmocka_unit_test(what_is_typed_early_waits),
        cmocka_unit_test(it_floods_and_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
