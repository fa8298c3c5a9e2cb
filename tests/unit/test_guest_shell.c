/* SPDX-License-Identifier: Apache-2.0 */
/* Persistent shells: what a command changes stays, its output is its own, and it cannot break the shell by accident. */
#include "guest_rig.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "codec/wire/le.h"

struct ran {
    struct answer answer;
    struct svc_shell_result result;
    char cwd[SVC_PATH_MAX];
};

static void run_begin(struct rig *rig, uint32_t proc, const char *command, struct ran *ran)
{
    struct svc_bytes text = {command, (uint32_t)strlen(command)};
    uint8_t *wire = malloc(text.len + 8);

    assert_non_null(wire);
    memset(ran, 0, sizeof(*ran));
    struct svc_cursor out = {wire, wire + text.len + 8, false};
    svc_put_u32(&out, proc);
    svc_put_bytes(&out, text);
    rig_call(rig, &ran->answer, SVC_SHELL_RUN, wire, text.len + 8);
    free(wire);
}

static void run_end(struct rig *rig, struct ran *ran)
{
    rig_until(rig, &ran->answer.done);
    if (ran->answer.errnum != 0)
        return;
    assert_true(ran->answer.eof[1] && ran->answer.eof[2]);
    assert_int_equal(svc_shell_result_parse(ran->answer.data, ran->answer.len, &ran->result), 0);
    memcpy(ran->cwd, ran->result.cwd.data, ran->result.cwd.len);
}

/* Runs it, expects this status and this output on both streams (NULL: whatever). */
static void expect(struct rig *rig, uint32_t proc, const char *command, uint32_t status, const char *out,
                   const char *err)
{
    static struct ran ran;

    run_begin(rig, proc, command, &ran);
    run_end(rig, &ran);
    assert_int_equal(ran.answer.errnum, 0);
    assert_int_equal(ran.result.ended, 0);
    if (ran.result.status != status)
        fail_msg("`%s`: status %u, not %u; %.*s", command, ran.result.status, status, (int)ran.answer.out[2].len,
                 ran.answer.out[2].data ? ran.answer.out[2].data : "");
    for (unsigned i = 1; i < 3; i++) {
        const char *text = i == 1 ? out : err;
        if (text && (ran.answer.out[i].len != strlen(text) ||
                     (ran.answer.out[i].len > 0 && memcmp(ran.answer.out[i].data, text, strlen(text)) != 0)))
            fail_msg("`%s`: %.*s, not %s", command, (int)ran.answer.out[i].len,
                     ran.answer.out[i].data ? ran.answer.out[i].data : "", text);
    }
    rig_forget(&ran.answer);
}

static const char *const shells[] = {"bash", "dash"};

static void state_stays_and_output_is_exact(void **state)
{
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        uint32_t proc = p + 1;

        rig_start(&rig, proc, SVC_PROC_SHELL, ARGV(shells[p]));
        expect(&rig, proc, "x=5; cd /usr; export Y=6", 0, "", "");
        expect(&rig, proc, "echo $x $PWD; sh -c 'echo $Y'", 0, "5 /usr\n6\n", "");
        expect(&rig, proc, "f() { echo fn $1; }", 0, "", "");
        expect(&rig, proc, "f a", 0, "fn a\n", "");
        expect(&rig, proc, "exec 3>/tmp/test_guest_shell.$$; echo three >&3", 0, "", "");
        expect(&rig, proc, "echo four >&3; exec 3>&-; cat /tmp/test_guest_shell.$$; rm /tmp/test_guest_shell.$$", 0,
               "three\nfour\n", "");
        /* What others lose: numbers, blank lines, the missing newline, several lines, the status. */
        expect(&rig, proc, "echo 123", 0, "123\n", "");
        expect(&rig, proc, "echo a; echo 42; echo b", 0, "a\n42\nb\n", "");
        expect(&rig, proc, "printf '\\n\\n x \\n\\n'", 0, "\n\n x \n\n", "");
        expect(&rig, proc, "printf abc", 0, "abc", "");
        expect(&rig, proc, "echo a\necho b\n", 0, "a\nb\n", "");
        expect(&rig, proc, "false", 1, "", "");
        expect(&rig, proc, "echo '$ '; echo $?", 0, "$ \n0\n", "");
        expect(&rig, proc, "echo out; echo err >&2; (exit 7)", 7, "out\n", "err\n");
        expect(&rig, proc, "f() { return 9; }; f", 9, "", "");
        expect(&rig, proc, "cat <<X\nhere $x\nX", 0, "here 5\n", "");
        expect(&rig, proc, "", 0, "", "");
        expect(&rig, proc, "   # nothing", 0, "", "");
        expect(&rig, proc, "printf '%s|' '\xc3\xa9\x81\xff' '  two  '", 0, "\xc3\xa9\x81\xff|  two  |", "");
        expect(&rig, proc, "cat", 0, "", ""); /* stdin is /dev/null */
        expect(&rig, proc, "ls /proc/self/fd | tr '\\n' ' '", 0, "0 1 2 3 ", "");
    }
    rig_close(&rig);
}

static void mistakes_do_not_break_it(void **state)
{
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        uint32_t proc = p + 1;

        rig_start(&rig, proc, SVC_PROC_SHELL, ARGV(shells[p]));
        expect(&rig, proc, "x=1", 0, "", "");
        expect(&rig, proc, "echo \"unterminated", 2, "", NULL);
        expect(&rig, proc, "if true", 2, "", NULL);
        expect(&rig, proc, ")", 2, "", NULL);
        expect(&rig, proc, "echo ${bad", 2, "", NULL);
        expect(&rig, proc, "no-such-program", 127, "", NULL);
        expect(&rig, proc, "continue", 0, NULL, NULL);
        expect(&rig, proc, "break", 0, NULL, NULL);
        expect(&rig, proc, "for i in 1 2 3; do echo $i; break; done", 0, "1\n", "");
        expect(&rig, proc, "exec 8>&- 9<&-", 0, "", "");
        expect(&rig, proc, "while read -r line; do :; done", 0, "", "");
        expect(&rig, proc, "set -x; echo a", 0, "a\n", p == 0 ? "+++ echo a\n" : "+ echo a\n");
        expect(&rig, proc, "echo b", 0, "b\n", p == 0 ? "+++ echo b\n" : "+ echo b\n");
        expect(&rig, proc, "set +x", 0, "", NULL);
        expect(&rig, proc, "true &\nwait", 0, "", "");
        expect(&rig, proc, "set -u", 0, "", "");
        expect(&rig, proc, "set +u; echo $x", 0, "1\n", "");
        expect(&rig, proc, "exec >/dev/null", 0, "", "");
        expect(&rig, proc, "echo nobody; echo sees >&2", 0, "", "sees\n");
    }
    rig_close(&rig);
}

static void the_directory_is_told(void **state)
{
    struct rig rig;
    struct ran ran;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        run_begin(&rig, p + 1, "mkdir -p '/tmp/with\nnewline' && cd '/tmp/with\nnewline'", &ran);
        run_end(&rig, &ran);
        assert_string_equal(ran.cwd, "/tmp/with\nnewline");
        rig_forget(&ran.answer);
        run_begin(&rig, p + 1, "cd /; rmdir '/tmp/with\nnewline'", &ran);
        run_end(&rig, &ran);
        assert_string_equal(ran.cwd, "/");
        rig_forget(&ran.answer);
    }
    rig_close(&rig);
}

/*
 * A directory that is deeper than a path may be: the command ends like any other, and its record is not mixed up with
 * the next. bash goes there step by step; dash cannot, but $PWD is the user's to set.
 */
static void a_directory_too_deep_to_tell(void **state)
{
    static const char *const down[] = {
        "cd $top && d=$(printf %0200d 0) && i=0 && "
        "while [ $i -lt $n ]; do mkdir -p $d && cd $d || exit 9; i=$((i+1)); done; echo ${#PWD}",
        "PWD=$top$(printf %0$((201*n))d 0); echo ${#PWD}"};
    static const struct {
        unsigned depth;
        const char *out;
        size_t told;
    } cases[] = {{20, "4036\n", 4036}, {21, "4237\n", 0}, {400, "80416\n", 0}}; /* the last is more than a pipe has */
    char top[] = "/tmp/brig-XXXXXX";
    struct rig rig;
    struct ran ran;
    char command[256];
    (void)state;

    assert_non_null(mkdtemp(top));
    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            snprintf(command, sizeof command, "top=%s; n=%u; %s", top, cases[i].depth, down[p]);
            run_begin(&rig, p + 1, command, &ran);
            run_end(&rig, &ran);
            assert_int_equal(ran.answer.errnum, 0);
            assert_int_equal(ran.result.ended, 0);
            assert_int_equal(ran.result.status, 0);
            assert_int_equal(ran.result.cwd.len, cases[i].told);
            assert_int_equal(ran.answer.out[1].len, strlen(cases[i].out));
            assert_memory_equal(ran.answer.out[1].data, cases[i].out, strlen(cases[i].out));
            rig_forget(&ran.answer);
            expect(&rig, p + 1, "(exit 7)", 7, "", "");
        }
        run_begin(&rig, p + 1, "cd /; rm -rf $top/*", &ran);
        run_end(&rig, &ran);
        assert_int_equal(ran.result.status, 0);
        assert_int_equal(ran.result.cwd.len, 1);
        rig_forget(&ran.answer);
    }
    assert_int_equal(rmdir(top), 0);
    rig_close(&rig);
}

static void what_ends_it_is_told(void **state)
{
    static const struct {
        const char *command;
        uint32_t status;
    } ends[] = {
        {"echo last; exit 3", 3 << 8},
        {"echo last; exec sh -c 'exit 4'", 4 << 8},
        {"echo last; set -e; false; echo not reached", 1 << 8},
        {"echo last; kill -9 $$", SIGKILL},
    };
    struct rig rig;
    struct ran ran;
    uint32_t proc = 1;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++)
        for (unsigned i = 0; i < ARRAY_SIZE(ends); i++, proc++) {
            rig_start(&rig, proc, SVC_PROC_SHELL, ARGV(shells[p]));
            expect(&rig, proc, "(sleep 1000 &)", 0, "", "");
            run_begin(&rig, proc, ends[i].command, &ran);
            run_end(&rig, &ran);
            assert_int_equal(ran.answer.errnum, 0);
            assert_int_equal(ran.result.ended, 1);
            assert_int_equal(ran.result.status, ends[i].status);
            assert_int_equal(ran.answer.out[1].len, 5);
            rig_forget(&ran.answer);
            assert_int_equal(rig_wait_exit(&rig, proc).status, ends[i].status);
            run_begin(&rig, proc, "echo more", &ran);
            run_end(&rig, &ran);
            assert_int_equal(ran.answer.errnum, ESRCH);
            rig_forget(&ran.answer);
        }
    rig_close(&rig);
}

static void a_command_that_hangs_can_be_ended(void **state)
{
    struct rig rig;
    struct ran ran, second;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        expect(&rig, p + 1, "x=kept", 0, "", "");
        /* the child itself says that it is there to be killed */
        run_begin(&rig, p + 1, "sh -c 'echo begin; exec sleep 1000'; echo after $?", &ran);
        rig_wait_for(&rig, ran.answer.out[1].len == 6);
        run_begin(&rig, p + 1, "echo no", &second);
        run_end(&rig, &second);
        assert_int_equal(second.answer.errnum, EBUSY);
        rig_forget(&second.answer);
        assert_int_equal(rig_signal(&rig, p + 1, SIGKILL, SVC_SIGNAL_CHILDREN), 0);
        run_end(&rig, &ran);
        assert_memory_equal(ran.answer.out[1].data, "begin\nafter 137\n", 16);
        rig_forget(&ran.answer);
        expect(&rig, p + 1, "echo $x", 0, "kept\n", "");
        /* Given up, it runs on; when it is done the shell takes commands again. */
        run_begin(&rig, p + 1, "sleep 0.3; echo stale", &ran);
        rig_run(&rig, 20);
        rig_forget(&ran.answer);
        for (int i = 0; i < 100; i++) {
            run_begin(&rig, p + 1, "echo fresh", &ran);
            run_end(&rig, &ran);
            if (ran.answer.errnum == 0)
                break;
            assert_int_equal(ran.answer.errnum, EBUSY);
            rig_forget(&ran.answer);
            rig_run(&rig, 20);
        }
        assert_int_equal(ran.answer.out[1].len, 6);
        assert_memory_equal(ran.answer.out[1].data, "fresh\n", 6);
        rig_forget(&ran.answer);
    }
    rig_close(&rig);
}

/* The rest of the line does not run, wherever in it the shell was; and a stop between two commands is nobody's. */
static void a_stop_ends_the_whole_line(void **state)
{
    static const char *const lines[] = {
        "echo begin; sleep 1000; echo late",
        "f() { echo begin; sleep 1000; echo late; }; g() { f || echo late; (echo late); }; g; (echo late)\necho late",
        "(echo begin; sleep 1000; echo late) || echo late",
        "echo begin; while :; do :; done; echo late",
        "echo begin | cat; y=$(sleep 1000; echo late >&2); echo late",
        "trap '' INT; echo begin; sleep 1000 | cat; echo late",
    };
    struct rig rig;
    struct ran ran;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        expect(&rig, p + 1, "x=kept; fn() { echo function; }; cd /usr", 0, "", "");
        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
            run_begin(&rig, p + 1, lines[i], &ran);
            rig_wait_for(&rig, ran.answer.out[1].len == 6);
            assert_int_equal(rig_signal(&rig, p + 1, SVC_SHELL_STOP, 0), 0);
            assert_int_equal(rig_signal(&rig, p + 1, SIGKILL, SVC_SIGNAL_CHILDREN), 0);
            run_end(&rig, &ran);
            if (ran.result.ended || ran.result.status != 137 || ran.answer.out[1].len != 6)
                fail_msg("%s `%s`: status %u, %.*s", shells[p], lines[i], ran.result.status, (int)ran.answer.out[1].len,
                         ran.answer.out[1].data);
            rig_forget(&ran.answer);
            assert_int_equal(rig_signal(&rig, p + 1, SVC_SHELL_STOP, 0), 0);
            expect(&rig, p + 1, "echo $x $PWD; fn", 0, "kept /usr\nfunction\n", NULL);
        }
    }
    rig_close(&rig);
}

static void background_jobs_do_not_hold_it(void **state)
{
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        expect(&rig, p + 1, "sleep 1000 & echo started", 0, "started\n", "");
        expect(&rig, p + 1, "(sleep 0.1; echo late) & echo now", 0, "now\n", "");
        expect(&rig, p + 1, "sleep 0.3; kill %1 2>/dev/null || kill $(jobs -p | head -1); echo done", 0, NULL, NULL);
        /* One that floods: neither does its output hold anything up for ever. */
        expect(&rig, p + 1, "yes & sleep 0.1; echo x > /dev/null", 0, NULL, NULL);
        expect(&rig, p + 1, "kill $!; sleep 0.1", 0, NULL, NULL);
        expect(&rig, p + 1, "echo quiet", 0, "quiet\n", NULL);
    }
    rig_close(&rig);
}

static void large_commands_and_outputs(void **state)
{
    struct rig rig;
    struct ran ran;
    size_t size = 200000;
    char *big = malloc(size + 64);
    (void)state;

    assert_non_null(big);
    rig_open(&rig, 0);
    for (uint32_t p = 0; p < ARRAY_SIZE(shells); p++) {
        rig_start(&rig, p + 1, SVC_PROC_SHELL, ARGV(shells[p]));
        /* Forwarded while the shell is still starting; split over frames. */
        snprintf(big, size, "printf %%s '");
        for (size_t i = 0; i < size; i++)
            big[11 + i] = i % 100 == 99 ? '\n' : (char)('a' + i % 26);
        snprintf(big + 11 + size, 16, "' | wc -c");
        run_begin(&rig, p + 1, big, &ran);
        run_end(&rig, &ran);
        assert_int_equal(ran.result.status, 0);
        assert_int_equal(strtoul(ran.answer.out[1].data, NULL, 10), size);
        rig_forget(&ran.answer);
        run_begin(&rig, p + 1, "seq 1 1000000; seq 1 100000 >&2; echo end", &ran);
        run_end(&rig, &ran);
        assert_int_equal(ran.answer.out[1].len, 6888896 + 4);
        assert_int_equal(ran.answer.out[2].len, 588895);
        assert_memory_equal(ran.answer.out[1].data + 6888896 - 8, "1000000\nend\n", 12);
        rig_forget(&ran.answer);
        expect(&rig, p + 1, "echo next", 0, "next\n", "");
    }
    free(big);
    rig_close(&rig);
}

static void only_shells_run_commands(void **state)
{
    struct rig rig;
    struct ran ran;
    uint8_t nul[] = {2, 0, 0, 0, 3, 0, 0, 0, 'a', 0, 'b'};
    struct answer answer = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sleep", "1000"));
    rig_start(&rig, 2, SVC_PROC_SHELL, ARGV("bash", "--norc"));
    run_begin(&rig, 1, "echo", &ran);
    run_end(&rig, &ran);
    assert_int_equal(ran.answer.errnum, EINVAL);
    rig_forget(&ran.answer);
    rig_ask(&rig, &answer, SVC_SHELL_RUN, nul, sizeof(nul));
    assert_int_equal(answer.errnum, EINVAL);
    rig_forget(&answer);
    rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 1);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_stays_and_output_is_exact),
        cmocka_unit_test(mistakes_do_not_break_it),
        cmocka_unit_test(the_directory_is_told),
        cmocka_unit_test(a_directory_too_deep_to_tell),
        cmocka_unit_test(what_ends_it_is_told),
        cmocka_unit_test(a_command_that_hangs_can_be_ended),
        cmocka_unit_test(a_stop_ends_the_whole_line),
        cmocka_unit_test(background_jobs_do_not_hold_it),
        cmocka_unit_test(large_commands_and_outputs),
        cmocka_unit_test(only_shells_run_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
