/* SPDX-License-Identifier: Apache-2.0 */
/* The channel of a process of a serving brig-init, and a process that was there before it. */
#include "guest_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGE (2u << 20)

static void bytes_go_both_ways(void **state)
{
    static const unsigned modes[] = {0, GUEST_START_LEAVES};
    (void)state;

    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        struct answer start = {0}, call = {0}, output = {0};

        rig_open(&rig, modes[i]);
        /* All in one write. */
        rig_start_with(
            &rig, &start, 1, &(struct start_opts){.flags = SVC_PROC_CHANNEL | SVC_PROC_HOLD},
            ARGV(
                "sh", "-c",
                "for i in 4 5 6 7 8 9 10 11 12 13 14 15 16; do [ -e /proc/self/fd/$i ] && echo open $i >&2; done; echo "
                "ready >&3;"
                "while read x <&3; do echo got $x >&3; done; echo end; echo last >&3"));
        rig_attach_proc(&rig, &output, 1, 6, 0);
        rig_channel(&rig, &call, 1, 0);
        rig_wait_for(&rig, call.out[1].len == 6);
        assert_text(call.out[1], "ready\n");
        answer_write(&call, "one\ntwo\n", 8);
        rig_wait_for(&rig, call.out[1].len == 22);
        assert_text(call.out[1], "ready\ngot one\ngot two\n");
        assert_false(call.done);
        assert_int_equal(call_eof(call.call), 0);
        rig_until(&rig, &call.done);
        assert_int_equal(call.errnum, 0);
        assert_true(call.eof[1]);
        assert_text(call.out[1], "ready\ngot one\ngot two\nlast\n");
        rig_until(&rig, &output.done);
        assert_text(output.out[1], "end\n");
        assert_text(output.out[2], "");
        assert_int_equal(rig_wait_exit(&rig, 1).status, 0);
        rig_forget(&start);
        rig_forget(&call);
        rig_forget(&output);
        rig_close(&rig);
    }
}

static uint32_t ask(struct rig *rig, uint32_t proc)
{
    struct answer call = {0};

    rig_channel(rig, &call, proc, 0);
    rig_until(rig, &call.done);
    uint32_t errnum = call.errnum;
    rig_forget(&call);
    return errnum;
}

static void refusals(void **state)
{
    struct rig rig;
    struct answer call = {0}, start = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_CHANNEL, ARGV("sleep", "1000"));
    rig_start(&rig, 2, 0, ARGV("sleep", "1000"));
    rig_channel(&rig, &call, 1, 0);
    assert_int_equal(ask(&rig, 1), EBUSY);
    assert_int_equal(ask(&rig, 2), ENOTCONN);
    assert_int_equal(ask(&rig, 3), ESRCH);
    rig_forget(&call);
    rig_ask(&rig, &call, SVC_CHANNEL, "\1\0\0", 3);
    assert_int_equal(call.errnum, EINVAL);
    rig_forget(&call);
    /* Dropped: the next may have it. The process's end ends it. */
    rig_channel(&rig, &call, 1, 0);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_until(&rig, &call.done);
    assert_int_equal(call.errnum, 0);
    rig_forget(&call);
    assert_int_equal(ask(&rig, 1), 0); /* nothing is left of it */
    rig_start_with(&rig, &start, 4, &(struct start_opts){.flags = SVC_PROC_CHANNEL | SVC_PROC_SHELL}, ARGV("sh"));
    rig_until(&rig, &start.done);
    assert_int_equal(start.errnum, EINVAL);
    rig_forget(&start);
    /* One that never executes has no channel to wait for. */
    rig_start_with(&rig, &start, 5, &(struct start_opts){.flags = SVC_PROC_CHANNEL}, ARGV("/nowhere/at/all"));
    rig_channel(&rig, &call, 5, 0);
    rig_until(&rig, &call.done);
    assert_int_equal(call.errnum, ESRCH);
    rig_until(&rig, &start.done);
    assert_int_equal(start.errnum, ENOENT);
    rig_forget(&start);
    rig_forget(&call);
    assert_int_equal(rig_signal(&rig, 2, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_close(&rig);
}

/* The spawner is told once, when the whole of the frame that was asked for is there: also one that is larger than the
 * ring, in pieces. */
static void frames_are_counted(void **state)
{
    struct rig rig;
    struct answer call = {0}, other = {0};
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig_start(&rig, 1, SVC_PROC_CHANNEL | SVC_PROC_STDIN,
              ARGV("sh", "-c",
                   "printf '\\2\\0\\0\\0hi' >&3; printf '\\0\\0' >&3; read x; printf '\\10\\0' >&3; "
                   "head -c 524287 /dev/zero >&3; read x; printf '\\0\\1\\0\\0\\0a' >&3; sleep 1000"));
    rig_start(&rig, 2, SVC_PROC_CHANNEL, ARGV("sh", "-c", "printf '\\0\\0\\0\\0' >&3; sleep 1000"));
    rig_channel(&rig, &call, 1, 2);
    rig_wait_for(&rig, call.out[1].len == 8);
    struct answer input = {0};
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "\n", 1);
    rig_wait_for(&rig, call.out[1].len == 10 + 524287);
    assert_int_equal(rig.n_count, 0);
    answer_write(&input, "\n", 1);
    rig_wait_for(&rig, call.out[1].len == 10 + 524288 + 5 && rig.n_count == 1);
    rig_channel(&rig, &other, 2, 1);
    rig_wait_for(&rig, other.out[1].len == 4);
    assert_int_equal(rig_signal(&rig, 2, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_until(&rig, &other.done);
    assert_int_equal(rig.n_count, 1);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_until(&rig, &call.done);
    rig_forget(&call);
    rig_forget(&other);
    rig_forget(&input);
    rig_close(&rig);
}

/* Nobody reads: it waits. Somebody reads and goes: what they had not been sent is there for the next. */
static void nothing_is_forgotten(void **state)
{
    struct rig rig;
    struct answer call = {0}, output = {0};
    size_t had;
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_CHANNEL,
              ARGV("sh", "-c", "head -c 2097152 /dev/zero >&3; echo written; exec 3>&-; sleep 1000"));
    rig_attach_proc(&rig, &output, 1, 6, 0);
    rig_run(&rig, 100);
    assert_int_equal(output.out[1].len, 0);
    call.hold = true;
    rig_channel(&rig, &call, 1, 0);
    rig_wait_for(&rig, call.out[1].len == SVC_WINDOW);
    rig_run(&rig, 50);
    had = call.out[1].len;
    assert_int_equal(had, SVC_WINDOW);
    assert_int_equal(output.out[1].len, 0);
    rig_forget(&output);
    rig_forget(&call);
    rig_attach(&rig);
    rig_channel(&rig, &call, 1, 0);
    rig_until(&rig, &call.done);
    assert_int_equal(call.out[1].len + had, LARGE);
    rig_forget(&call);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_close(&rig);
}

/* What was written to stdout and stderr before the channel is there before it, however much it is and however slow its
 * reader. */
static void output_comes_first(void **state)
{
    struct rig rig;
    struct answer call = {0}, output = {0};
    const size_t large = SVC_WINDOW + 256 * 1024 + 48 * 1024; /* the window, the ring, and some in the pipe */
    char script[128];
    (void)state;

    snprintf(script, sizeof(script), "head -c %zu /dev/zero; echo error >&2; echo answer >&3; sleep 1000", large);
    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_CHANNEL | SVC_PROC_HOLD, ARGV("sh", "-c", script));
    rig_channel(&rig, &call, 1, 0);
    output.hold = true;
    rig_attach_proc(&rig, &output, 1, 6, 0);
    rig_wait_for(&rig, output.out[1].len == SVC_WINDOW);
    rig_wait_for(&rig, output.out[2].len == 6);
    rig_run(&rig, 100);
    assert_int_equal(call.out[1].len, 0);
    output.hold = false;
    call_consumed(output.call, 1, output.held[1]);
    rig_wait_for(&rig, call.out[1].len > 0);
    assert_int_equal(output.out[1].len, large);
    assert_text(output.out[2], "error\n");
    assert_text(call.out[1], "answer\n");
    rig_forget(&output);
    rig_forget(&call);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_close(&rig);
}

/* The reader of the output goes: nobody is left to be waited for. */
static void a_reader_that_goes_holds_nothing_back(void **state)
{
    struct rig rig;
    struct answer call = {0}, output = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_CHANNEL | SVC_PROC_HOLD,
              ARGV("sh", "-c", "head -c 1200000 /dev/zero; echo answer >&3"));
    rig_channel(&rig, &call, 1, 0);
    output.hold = true;
    rig_attach_proc(&rig, &output, 1, 6, 0);
    rig_wait_for(&rig, output.out[1].len == SVC_WINDOW);
    rig_run(&rig, 50);
    assert_int_equal(call.out[1].len, 0);
    rig_forget(&output);
    rig_until(&rig, &call.done);
    assert_text(call.out[1], "answer\n");
    rig_forget(&call);
    rig_close(&rig);
}

/* ---- adoption --------------------------------------------------------------------------------------- */

static const char fake[] =
    "echo ready >&3; while read x <&3; do echo out $x; echo err $x >&2; (sleep 1000 &) ; echo got $x >&3; "
    "[ $x = die ] && exit 7; done; exit 0";

/* pid 1 of a pid namespace of its own: forks the program as pid 2, then executes brig-init. */
static void be_pid_1(int control, const char *init)
{
    int out[2], err[2], channel[2], probe = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC),
                                    null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0 ||
        pipe(out) != 0 || pipe(err) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0)
        _exit(98);
    if (fork() == 0) {
        int mine[4] = {null, out[1], err[1], channel[1]};

        for (int fd = 0; fd < 4; fd++)
            mine[fd] = fcntl(mine[fd], F_DUPFD, 40);
        for (int fd = 0; fd < 4; fd++)
            dup2(mine[fd], fd);
        close_range(4, ~0u, 0);
        execl("/bin/sh", "sh", "-c", fake, (char *)NULL);
        _exit(97);
    }
    int theirs[] = {null, null, null, control, probe, -1, out[0], err[0], channel[0]};
    for (int fd = 0; fd < 9; fd++)
        theirs[fd] = theirs[fd] < 0 ? -1 : fcntl(theirs[fd], F_DUPFD, 40);
    for (int fd = 0; fd < 9; fd++)
        if (theirs[fd] >= 0)
            dup2(theirs[fd], fd);
    close(5);
    close_range(9, ~0u, 0);
    execl(init, "brig-init", (char *)NULL);
    _exit(99);
}

static void spawn_with_program(struct guest *g)
{
    const char *init = getenv("BRIG_INIT");
    int pair[2], status;

    *g = (struct guest){.control = -1, .out = -1, .err = -1, .in = -1, .master = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    g->pid = fork();
    assert_true(g->pid >= 0);
    if (g->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
            _exit(96);
        pid_t inner = fork();
        if (inner == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_pid_1(pair[1], init);
        }
        close(pair[1]);
        close(pair[0]);
        if (waitpid(inner, &status, 0) != inner)
            _exit(95);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 94);
    }
    close(pair[1]);
    g->control = pair[0];
}

static void a_program_that_was_there_is_process_1(void **state)
{
    static const unsigned modes[] = {0, GUEST_START_LEAVES};
    (void)state;

    if (geteuid() != 0)
        skip();
    for (unsigned i = 0; i < 2; i++) {
        struct rig rig;
        struct answer call = {0}, output = {0}, list = {0}, start = {0};
        struct svc_proc_info info;
        struct svc_proc_exit exit;

        rig_open_with(&rig, modes[i] | GUEST_START_ADOPT, spawn_with_program);
        rig_channel(&rig, &call, 1, 0);
        rig_attach_proc(&rig, &output, 1, 6, 0);
        rig_wait_for(&rig, call.out[1].len == 6);
        rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
        assert_int_equal(list.n_events, 1);
        assert_int_equal(svc_proc_info_parse((const uint8_t *)list.events.data + 4, list.events.len - 4, &info), 0);
        assert_int_equal(info.proc, 1);
        assert_int_equal(info.pid, 2);
        assert_int_equal(info.running, 1);
        assert_int_equal(info.flags, SVC_PROC_CHANNEL | SVC_PROC_HOLD);
        /* Its number is taken; others work as ever, and live on when it has gone. */
        rig_start_with(&rig, &start, 1, &(struct start_opts){0}, ARGV("true"));
        rig_until(&rig, &start.done);
        assert_int_equal(start.errnum, EEXIST);
        rig_start(&rig, 2, 0, ARGV("sleep", "1000"));
        answer_write(&call, "one\n", 4);
        rig_wait_for(&rig, call.out[1].len == 14);
        assert_text(call.out[1], "ready\ngot one\n");
        assert_text(output.out[1], "out one\n");
        assert_text(output.out[2], "err one\n");
        answer_write(&call, "die\n", 4);
        rig_until(&rig, &call.done);
        exit = rig_wait_exit(&rig, 1);
        assert_int_equal(exit.status, 7 << 8);
        assert_int_equal(exit.leaf, 0);
        assert_true(exit.cpu_ns != UINT64_MAX && exit.memory_peak > 0);
        rig_until(&rig, &output.done); /* nothing that it left behind holds its pipes */
        assert_text(output.out[1], "out one\nout die\n");
        rig_forget(&list);
        rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
        assert_int_equal(list.n_events, 2);
        assert_int_equal(svc_proc_info_parse((const uint8_t *)list.events.data + 4, 0, &info), -EPROTO);
        assert_int_equal(rig_signal(&rig, 2, SIGKILL, SVC_SIGNAL_ALL), 0);
        rig_forget(&list);
        rig_forget(&call);
        rig_forget(&output);
        rig_forget(&start);
        rig_close(&rig);
    }
}

static void an_adopted_one_is_killed_with_its_own(void **state)
{
    struct rig rig;
    struct answer call = {0}, output = {0};
    struct svc_proc_exit exit;
    (void)state;

    if (geteuid() != 0)
        skip();
    rig_open_with(&rig, GUEST_START_ADOPT, spawn_with_program);
    rig_channel(&rig, &call, 1, 0);
    rig_attach_proc(&rig, &output, 1, 6, 0);
    answer_write(&call, "one\n", 4);
    rig_wait_for(&rig, call.out[1].len == 14);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.status, SIGKILL);
    assert_int_equal(exit.killed, 1);
    rig_until(&rig, &call.done);
    rig_until(&rig, &output.done);
    rig_forget(&call);
    rig_forget(&output);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways),
        cmocka_unit_test(refusals),
        cmocka_unit_test(frames_are_counted),
        cmocka_unit_test(nothing_is_forgotten),
        cmocka_unit_test(output_comes_first),
        cmocka_unit_test(a_reader_that_goes_holds_nothing_back),
        cmocka_unit_test(a_program_that_was_there_is_process_1),
        cmocka_unit_test(an_adopted_one_is_killed_with_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
