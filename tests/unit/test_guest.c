/* SPDX-License-Identifier: Apache-2.0 */
/* What brig-init does with programs: what they find, how they end, why they are not executed. */
#include "guest_driver.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- programs ------------------------------------------------------------------------------------ */

static void runs_a_program(void **state)
{
    struct guest g;

    (void)state;
    guest_start(&g, ARGV("/bin/true"));
    expect_hello(&g);
    assert_true(read_until(&g, FRAME_STARTED));
    assert_true(g.started.at_ns > 0);
    assert_int_equal(g.started.missing, 0);
    guest_finish(&g);
    assert_int_equal(g.exited.status, 0);
    assert_int_equal(g.exited.failed, 0);
    assert_true(g.exited.at_ns >= g.started.at_ns);
}

static void outside_a_sandbox_no_layer_is_on(void **state)
{
    static const enum brig_layer inside[] = {
        BRIG_LAYER_USER_NS, BRIG_LAYER_MOUNT_NS,  BRIG_LAYER_PID_NS,  BRIG_LAYER_NET_NS,   BRIG_LAYER_IPC_NS,
        BRIG_LAYER_UTS_NS,  BRIG_LAYER_CGROUP_NS, BRIG_LAYER_SECCOMP, BRIG_LAYER_LANDLOCK, BRIG_LAYER_PROC,
        BRIG_LAYER_DISK,    BRIG_LAYER_INODES,    BRIG_LAYER_TIME_NS,
    };
    struct guest g;

    (void)state;
    guest_start(&g, ARGV("/bin/true"));
    expect_hello(&g);
    guest_finish(&g);
    for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
        assert_int_equal(g.started.readings[inside[i]].on, 0);
        assert_int_not_equal(g.started.readings[inside[i]].why, WHY_NONE);
    }
    assert_int_equal(g.started.readings[BRIG_LAYER_FDS].on, 1); /* brig-init's own doing */
}

static void passes_exit_codes_on(void **state)
{
    struct guest g;

    (void)state;
    guest_start(&g, ARGV("sh", "-c", "exit 7"));
    expect_hello(&g);
    guest_finish(&g);
    assert_true(WIFEXITED((int)g.exited.status));
    assert_int_equal(WEXITSTATUS((int)g.exited.status), 7);
}

static void passes_signals_on(void **state)
{
    struct guest g;

    (void)state;
    guest_start(&g, ARGV("sh", "-c", "kill -SEGV $$"));
    expect_hello(&g);
    guest_finish(&g);
    assert_true(WIFSIGNALED((int)g.exited.status));
    assert_int_equal(WTERMSIG((int)g.exited.status), SIGSEGV);
    assert_int_equal(g.exited.failed, 0);
}

static void builds_the_process_from_nothing(void **state)
{
    struct guest g;
    char text[4096];

    (void)state;
    guest_start(&g, ARGV("sh", "-c",
                         "pwd; umask; echo $MARK; echo \"$#\"; for f in 0 1 2 3 4 5 6 7 8 9; do "
                         "[ -e /proc/$$/fd/$f ] && echo fd$f; done; "
                         "[ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo leader; read x || echo eof"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_int_equal(g.exited.status, 0);
    assert_string_equal(text, "/tmp\n0022\nhere\n0\nfd0\nfd1\nfd2\nleader\neof\n");
}

static void resets_signals(void **state)
{
    struct guest g;
    char text[256];

    (void)state;
    guest_start(&g, ARGV("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_string_equal(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

static void gives_it_exactly_its_environment(void **state)
{
    struct guest g;
    char text[256];

    (void)state;
    guest_start(&g, ARGV("/usr/bin/env"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_string_equal(text, "PATH=/usr/bin:/bin\nMARK=here\n");
}

static void feeds_stdin(void **state)
{
    struct guest_start start = plain_start();
    struct guest g;
    char text[64];

    (void)state;
    start.flags = GUEST_START_STDIN;
    guest_start_with(&g, &start, ARGV("cat"), plain_env, FRAME_PAYLOAD_MAX);
    expect_hello(&g);
    assert_int_equal(write(g.in, "hello", 5), 5);
    close(g.in);
    g.in = -1;
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_string_equal(text, "hello");
}

/* One MiB of strings, in pieces that do not match any boundary. */
static void takes_large_starts_in_pieces(void **state)
{
    enum { N = 16 };
    struct guest_start start = plain_start();
    const char *env[N + 3];
    char *big[N], text[64];
    struct guest g;

    (void)state;
    env[0] = plain_env[0];
    for (int i = 0; i < N; i++) {
        big[i] = malloc(60001);
        memset(big[i], 'a' + i, 60000);
        big[i][1] = '=';
        big[i][60000] = '\0';
        env[i + 1] = big[i];
    }
    env[N + 1] = "LAST=end";
    env[N + 2] = NULL;
    guest_start_with(&g, &start, ARGV("sh", "-c", "echo ${#p} $LAST"), env, 50001);
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_string_equal(text, "59998 end\n");
    for (int i = 0; i < N; i++)
        free(big[i]);
}

static void reaps_orphans_and_ends_with_the_main_process(void **state)
{
    struct guest g;
    char text[64];

    (void)state;
    /* the orphan holds stderr only; pid 1 does not wait for it */
    guest_start(&g,
                ARGV("sh", "-c", "(sleep 1000 >/dev/null & echo $!); for i in 1 2 3 4 5; do (true &); done; exit 3"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_int_equal(WEXITSTATUS((int)g.exited.status), 3);
    pid_t orphan = (pid_t)strtol(text, NULL, 10);
    assert_true(orphan > 1);
    kill(orphan, SIGKILL); /* no pid namespace here to do it */
}

static void await_stopped(char *pid)
{
    char path[64], stat[512];

    pid[strcspn(pid, "\n")] = '\0';
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    do {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        read_text(fd, stat, sizeof stat);
        close(fd);
        sched_yield();
    } while (!strstr(stat, ") T "));
}

static void stopped_is_not_ended(void **state)
{
    struct guest g;
    char text[16];

    (void)state;
    guest_start(&g, ARGV("sh", "-c", "echo $$; exec >&-; kill -STOP $$; exit 4"));
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    await_stopped(text);
    send_signal(&g, SIGCONT);
    guest_finish(&g);
    assert_int_equal(WEXITSTATUS((int)g.exited.status), 4);
}

/* ---- failures ------------------------------------------------------------------------------------ */

static void expect_failure(const char *const *argv, struct guest_start *start, enum guest_stage stage, int errnum,
                           int code)
{
    struct guest g;

    guest_start_with(&g, start, argv, plain_env, FRAME_PAYLOAD_MAX);
    expect_hello(&g);
    guest_finish(&g);
    assert_int_equal(g.exited.failed, 1 + stage);
    assert_int_equal(g.exited.errnum, errnum);
    assert_int_equal(WEXITSTATUS((int)g.exited.status), code);
    assert_int_equal(g.started_seen, stage == STAGE_EXEC || stage == STAGE_CHECK);
}

static void says_why_it_could_not_execute(void **state)
{
    struct guest_start start = plain_start();
    char script[] = "/tmp/brig-test-guest-XXXXXX";
    int fd = mkstemp(script);

    (void)state;
    assert_int_equal(write(fd, "exit 0\n", 7), 7); /* no #! line: the shell's business, not ours */
    close(fd);
    expect_failure(ARGV("/nonexistent"), &start, STAGE_EXEC, ENOENT, 127);
    expect_failure(ARGV("no-such-command"), &start, STAGE_EXEC, ENOENT, 127);
    expect_failure(ARGV("/etc"), &start, STAGE_EXEC, EACCES, 126);
    expect_failure(ARGV("/etc/passwd"), &start, STAGE_EXEC, EACCES, 126);
    assert_int_equal(chmod(script, 0755), 0);
    expect_failure(ARGV(script), &start, STAGE_EXEC, ENOEXEC, 126);
    unlink(script);
}

static void refuses_a_bad_working_directory(void **state)
{
    struct guest_start start = plain_start();

    (void)state;
    start.workdir = "/nonexistent";
    expect_failure(ARGV("/bin/true"), &start, STAGE_WORKDIR, ENOENT, 125);
    start.workdir = "/etc/passwd";
    expect_failure(ARGV("/bin/true"), &start, STAGE_WORKDIR, ENOTDIR, 125);
}

static void required_layers_gate_execution(void **state)
{
    struct guest_start start = plain_start();
    char mark[64];
    struct guest g;

    (void)state;
    snprintf(mark, sizeof mark, "/tmp/brig-test-mark-%d", (int)getpid());
    start.require = BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP) | BRIG_LAYER_BIT(BRIG_LAYER_FDS);
    guest_start_with(&g, &start, ARGV("touch", mark), plain_env, FRAME_PAYLOAD_MAX);
    expect_hello(&g);
    guest_finish(&g);
    assert_int_equal(g.started.missing, BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP));
    assert_int_equal(g.exited.failed, 1 + STAGE_CHECK);
    assert_int_equal(access(mark, F_OK), -1);
    /* a layer that is not for the inside to read can be required only by mistake: refused as well */
    start.require = BRIG_LAYER_BIT(BRIG_LAYER_MEMORY);
    expect_failure(ARGV("touch", mark), &start, STAGE_CHECK, EPERM, 125);
    assert_int_equal(access(mark, F_OK), -1);
}

static void takes_the_ids_it_is_told(void **state)
{
    struct guest_start start = plain_start();
    struct guest g;
    char text[256];

    (void)state;
    if (getuid() != 0) {
        start.uid = 0;
        expect_failure(ARGV("/bin/true"), &start, STAGE_IDS, EPERM, 125);
        return;
    }
    start.uid = start.gid = 4242;
    guest_start_with(&g, &start, ARGV("sh", "-c", "id -u; id -G; grep Cap /proc/self/status"), plain_env,
                     FRAME_PAYLOAD_MAX);
    expect_hello(&g);
    read_text(g.out, text, sizeof text);
    guest_finish(&g);
    assert_string_equal(text, "4242\n4242\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
                              "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n");
    assert_int_equal(g.started.readings[BRIG_LAYER_CAPS].on, 1);
}

/* ---- terminals ----------------------------------------------------------------------------------- */

static void makes_a_terminal(void **state)
{
    struct guest_start start = plain_start();
    struct guest g;
    char text[256];

    (void)state;
    start.flags = GUEST_START_TTY;
    start.rows = 33;
    start.cols = 101;
    guest_start_with(&g, &start,
                     ARGV("sh", "-c", "stty size; test -t 0 && test -t 1 && test -t 2 && : </dev/tty && echo yes"),
                     plain_env, FRAME_PAYLOAD_MAX);
    expect_hello(&g);
    assert_true(read_until(&g, FRAME_STARTED));
    assert_true(g.master >= 0);
    read_text(g.master, text, sizeof text); /* EIO at its end */
    guest_finish(&g);
    assert_int_equal(g.exited.status, 0);
    assert_string_equal(text, "33 101\r\nyes\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_a_program),
        cmocka_unit_test(outside_a_sandbox_no_layer_is_on),
        cmocka_unit_test(passes_exit_codes_on),
        cmocka_unit_test(passes_signals_on),
        cmocka_unit_test(builds_the_process_from_nothing),
        cmocka_unit_test(resets_signals),
        cmocka_unit_test(gives_it_exactly_its_environment),
        cmocka_unit_test(feeds_stdin),
        cmocka_unit_test(takes_large_starts_in_pieces),
        cmocka_unit_test(reaps_orphans_and_ends_with_the_main_process),
        cmocka_unit_test(stopped_is_not_ended),
        cmocka_unit_test(says_why_it_could_not_execute),
        cmocka_unit_test(refuses_a_bad_working_directory),
        cmocka_unit_test(required_layers_gate_execution),
        cmocka_unit_test(takes_the_ids_it_is_told),
        cmocka_unit_test(makes_a_terminal),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
