/* SPDX-License-Identifier: Apache-2.0 */
/* brig-init as a service: processes, their output, their input and their end. */
#include "guest_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codec/wire/le.h"

/* ---- START, ATTACH, WAIT ------------------------------------------------------------------------ */

static void runs_a_program(void **state)
{
    struct rig rig;
    struct answer start = {0}, attach = {0}, wait = {0};
    struct svc_proc_started started;
    struct svc_proc_exit exit;
    (void)state;

    rig_open(&rig, 0);
    assert_int_equal(rig.g.started.missing, 0);
    assert_int_equal(rig.g.started.readings[BRIG_LAYER_FDS].on, 1);
    /* All three in one write. */
    rig_start_with(&rig, &start, 1, &(struct start_opts){0}, ARGV("sh", "-c", "echo out; echo err >&2; exit 7"));
    rig_attach_proc(&rig, &attach, 1, 6, 0);
    rig_number(&rig, &wait, SVC_PROC_WAIT, 1);
    rig_until(&rig, &wait.done);
    rig_until(&rig, &attach.done);
    assert_int_equal(start.errnum, 0);
    assert_int_equal(svc_proc_started_parse(start.data, start.len, &started), 0);
    assert_true(started.pid > 1 && started.at_ns > 0);
    assert_int_equal(attach.errnum, 0);
    assert_int_equal(answer_attached(&attach).first[1], 0);
    assert_text(attach.out[1], "out\n");
    assert_text(attach.out[2], "err\n");
    assert_true(attach.eof[1] && attach.eof[2]);
    assert_int_equal(svc_proc_exit_parse(wait.data, wait.len, &exit), 0);
    assert_int_equal(exit.status, 7 << 8);
    assert_int_equal(exit.output[1], 4);
    assert_int_equal(exit.output[2], 4);
    assert_int_equal(exit.started_ns, started.at_ns);
    assert_true(exit.ended_ns > exit.started_ns);
    assert_int_equal(exit.leaf, 0);
    assert_int_equal(exit.killed, 0);
    assert_true(exit.memory_peak > 100000 && exit.memory_peak != UINT64_MAX);
    rig_forget(&start);
    rig_forget(&attach);
    rig_forget(&wait);
    rig_close(&rig);
}

static void programs_find_nothing_of_init(void **state)
{
    struct rig rig;
    struct answer output = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_sh(&rig, 1,
           "echo $MARK $PWD $(umask); readlink /proc/self/fd/0; ls /proc/self/fd | tr '\\n' ' '; "
           "grep -E '^Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$ | tr -d ' '; echo $$",
           &output);
    char *text = output.out[1].data;
    assert_non_null(
        strstr(text, "here /tmp 0022\n/dev/null\n0 1 2 3 SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
    char *sid = strstr(text, "SigIgn:") + 24;
    char *end = strchr(sid, '\n');
    assert_memory_equal(sid, end + 1, (size_t)(end - sid)); /* a session of its own */
    rig_forget(&output);
    rig_close(&rig);
}

static void failures_name_their_stage(void **state)
{
    static const struct {
        const char *argv0, *workdir;
        uint32_t errnum, stage;
    } cases[] = {
        {"no-such-program", NULL, ENOENT, STAGE_EXEC},
        {"/etc/passwd", NULL, EACCES, STAGE_EXEC},
        {"true", "/no/such/dir", ENOENT, STAGE_WORKDIR},
        {"true", "/proc/self", EPERM, STAGE_WORKDIR},
    };
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct answer start = {0}, attach = {0}, wait = {0}, list = {0};

        rig_start_with(&rig, &start, 1 + i, &(struct start_opts){.workdir = cases[i].workdir}, ARGV(cases[i].argv0));
        rig_attach_proc(&rig, &attach, 1 + i, 6, 0);
        rig_number(&rig, &wait, SVC_PROC_WAIT, 1 + i);
        rig_until(&rig, &wait.done);
        assert_true(start.done && attach.done);
        assert_int_equal(start.errnum, cases[i].errnum);
        assert_int_equal(start.stage, cases[i].stage);
        assert_int_equal(attach.errnum, ESRCH);
        assert_int_equal(wait.errnum, ESRCH);
        rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
        assert_int_equal(list.n_events, 0);
        rig_forget(&start);
        rig_forget(&attach);
        rig_forget(&wait);
        rig_forget(&list);
    }
    rig_close(&rig);
}

static void nonsense_is_refused(void **state)
{
    struct rig rig;
    struct answer answer = {0};
    (void)state;

    rig_open(&rig, 0);
    for (unsigned type = SVC_CALL_MIN; type < SVC_FILE_MIN; type++) {
        rig_ask(&rig, &answer, (enum svc_type)type, "x", 1);
        assert_true(answer.errnum == EINVAL || answer.errnum == ENOSYS);
        rig_forget(&answer);
    }
    rig_start(&rig, 5, 0, ARGV("sleep", "100"));
    rig_start_with(&rig, &answer, 5, &(struct start_opts){0}, ARGV("true"));
    rig_until(&rig, &answer.done);
    assert_int_equal(answer.errnum, EEXIST);
    rig_forget(&answer);
    rig_start_with(&rig, &answer, 6, &(struct start_opts){.flags = SVC_PROC_SHELL | SVC_PROC_TTY}, ARGV("sh"));
    rig_until(&rig, &answer.done);
    assert_int_equal(answer.errnum, EINVAL);
    rig_forget(&answer);
    rig_number(&rig, &answer, SVC_PROC_FORGET, 5);
    rig_until(&rig, &answer.done);
    assert_int_equal(answer.errnum, EBUSY);
    rig_forget(&answer);
    rig_number(&rig, &answer, SVC_PROC_INPUT, 5);
    rig_until(&rig, &answer.done);
    assert_int_equal(answer.errnum, EPIPE); /* its stdin is /dev/null */
    rig_forget(&answer);
    assert_int_equal(rig_signal(&rig, 99, SIGTERM, 0), ESRCH);
    assert_int_equal(rig_signal(&rig, 5, SIGTERM, SVC_SIGNAL_ALL), EINVAL);
    assert_int_equal(rig_signal(&rig, 5, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_wait_exit(&rig, 5);
    rig_close(&rig);
}

/* ---- output ------------------------------------------------------------------------------------- */

static void the_ring_keeps_the_last_bytes(void **state)
{
    struct rig rig;
    struct answer start = {0}, attach = {0}, again = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start_with(&rig, &start, 1, &(struct start_opts){.ring = 64 * 1024}, ARGV("sh", "-c", "seq 1 100000"));
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.output[1], 588895);
    rig_attach_proc(&rig, &attach, 1, 2, 0);
    rig_until(&rig, &attach.done);
    /* What is lost is said, and the rest is exactly the end. */
    assert_int_equal(answer_attached(&attach).first[1], 588895 - 64 * 1024);
    assert_int_equal(attach.out[1].len, 64 * 1024);
    assert_memory_equal(attach.out[1].data + attach.out[1].len - 13, "99999\n100000\n", 13);
    /* And again, from where somebody stopped. */
    rig_attach_proc(&rig, &again, 1, 2, 588895 - 7);
    rig_until(&rig, &again.done);
    assert_text(again.out[1], "100000\n");
    rig_forget(&again);
    rig_attach_proc(&rig, &again, 1, 6, SVC_FROM_NOW);
    rig_until(&rig, &again.done);
    assert_int_equal(again.out[1].len, 0);
    assert_int_equal(answer_attached(&again).first[1], 588895);
    rig_forget(&start);
    rig_forget(&attach);
    rig_forget(&again);
    rig_close(&rig);
}

static void a_slow_reader_slows_the_program(void **state)
{
    struct rig rig;
    struct answer attach = {0}, fast = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sh", "-c", "read x; seq 1 2000000"));
    attach.hold = true;
    rig_attach_proc(&rig, &attach, 1, 2, 0);
    rig_attach_proc(&rig, &fast, 1, 2, 0);
    struct answer input = {0};
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "go\n", 3);
    rig_wait_for(&rig, attach.out[1].len == SVC_WINDOW);
    rig_run(&rig, 200);
    /* No more than its window, its ring and the pipe: the other one has no more than that, and nothing is lost. */
    assert_int_equal(attach.out[1].len, SVC_WINDOW);
    assert_true(fast.out[1].len <= SVC_WINDOW + 256 * 1024);
    attach.hold = false;
    call_consumed(attach.call, 1, attach.held[1]);
    rig_until(&rig, &attach.done);
    rig_until(&rig, &fast.done);
    assert_int_equal(attach.out[1].len, 14888896);
    assert_int_equal(fast.out[1].len, 14888896);
    assert_memory_equal(attach.out[1].data, fast.out[1].data, 14888896);
    const char *at = attach.out[1].data;
    for (unsigned i = 1; i <= 2000000; i += 1) {
        unsigned value = 0;
        for (; *at != '\n'; at++)
            value = value * 10 + (unsigned)(*at - '0');
        at++;
        if (value != i)
            assert_int_equal(value, i);
    }
    rig_forget(&input);
    rig_forget(&attach);
    rig_forget(&fast);
    rig_close(&rig);
}

static void a_reader_that_leaves_lets_the_program_go(void **state)
{
    struct rig rig;
    struct answer attach = {.hold = true};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sh", "-c", "sleep 0.1; seq 1 1000000"));
    rig_attach_proc(&rig, &attach, 1, 2, 0);
    rig_wait_for(&rig, attach.out[1].len == SVC_WINDOW);
    rig_forget(&attach); /* cancels */
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.output[1], 6888896);
    rig_close(&rig);
}

/* ---- input -------------------------------------------------------------------------------------- */

static void input_goes_in_and_ends(void **state)
{
    struct rig rig;
    struct answer attach = {0}, input = {0};
    size_t size = 5u << 20;
    char *data = malloc(size);
    (void)state;

    assert_non_null(data);
    for (size_t i = 0; i < size; i++)
        data[i] = (char)(i * 31 + i / 4093);
    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("cat"));
    rig_attach_proc(&rig, &attach, 1, 6, 0);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, data, size);
    assert_int_equal(call_eof(input.call), 0);
    rig_until(&rig, &input.done);
    assert_int_equal(input.errnum, 0);
    rig_until(&rig, &attach.done);
    assert_int_equal(attach.out[1].len, size);
    assert_memory_equal(attach.out[1].data, data, size);
    assert_int_equal(rig_wait_exit(&rig, 1).status, 0);
    rig_forget(&input);
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    rig_until(&rig, &input.done);
    assert_int_equal(input.errnum, EPIPE);
    rig_forget(&input);
    rig_forget(&attach);
    free(data);
    rig_close(&rig);
}

static void input_that_nobody_reads_waits_and_fails(void **state)
{
    struct rig rig;
    struct answer input = {0}, second = {0};
    char *data = calloc(1, SVC_WINDOW);
    (void)state;

    assert_non_null(data);
    rig_open(&rig, 0);
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sleep", "100"));
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, data, SVC_WINDOW);
    /* A second one is welcome; what does not fit any more is refused. */
    rig_number(&rig, &second, SVC_PROC_INPUT, 1);
    answer_write(&second, data, SVC_WINDOW);
    rig_run(&rig, 50);
    assert_false(input.done);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_until(&rig, &input.done);
    assert_int_equal(input.errnum, EPIPE);
    rig_forget(&input);
    rig_forget(&second);
    rig_start(&rig, 2, SVC_PROC_STDIN, ARGV("sh", "-c", "exec <&-; sleep 100"));
    rig_number(&rig, &input, SVC_PROC_INPUT, 2);
    rig_run(&rig, 50);
    for (int i = 0; i < 20 && !input.done; i++) {
        answer_write(&input, "x", 1);
        rig_run(&rig, 10);
    }
    assert_true(input.done);
    assert_int_equal(input.errnum, EPIPE);
    rig_forget(&input);
    rig_signal(&rig, 2, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 2);
    free(data);
    rig_close(&rig);
}

/* ---- ends --------------------------------------------------------------------------------------- */

/* The first number in the output of a process that runs on. */
static pid_t first_number(struct rig *rig, struct answer *attach)
{
    rig_wait_for(rig, attach->out[1].len > 0 && memchr(attach->out[1].data, '\n', attach->out[1].len));
    return (pid_t)strtol(attach->out[1].data, NULL, 10);
}

static void what_it_left_behind_dies_with_it(void **state)
{
    struct rig rig;
    struct answer left = {0}, other = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sh", "-c", "echo $$; exec sleep 100"));
    rig_attach_proc(&rig, &other, 1, 2, 0);
    /* setsid, a double fork, and the output held open. */
    struct svc_proc_exit exit =
        rig_sh(&rig, 2, "(setsid sh -c 'echo $$; exec sleep 1000' &) ; sleep 0.2; exit 3", &left);
    assert_int_equal(exit.status, 3 << 8);
    pid_t stray = (pid_t)strtol(left.out[1].data, NULL, 10);
    assert_true(stray > 1);
    assert_false(pid_alive(stray));
    assert_true(pid_alive(first_number(&rig, &other)));
    rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL);
    exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.status, SIGKILL);
    assert_int_equal(exit.killed, 1);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), ESRCH);
    rig_forget(&left);
    rig_forget(&other);
    rig_close(&rig);
}

static void signals_reach_whom_they_are_for(void **state)
{
    struct rig rig;
    struct answer out = {0};
    (void)state;

    rig_open(&rig, 0);
    /* the main process alone */
    rig_start(&rig, 1, 0, ARGV("sh", "-c", "trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done"));
    rig_attach_proc(&rig, &out, 1, 2, 0);
    rig_wait_for(&rig, out.out[1].len == 6);
    assert_int_equal(rig_signal(&rig, 1, SIGTERM, 0), 0);
    assert_int_equal(rig_wait_exit(&rig, 1).status, 9 << 8);
    rig_until(&rig, &out.done);
    assert_text(out.out[1], "ready\nterm\n");
    rig_forget(&out);
    /* its group */
    rig_start(&rig, 2, 0, ARGV("sh", "-c", "sleep 1000 & sleep 1000"));
    rig_run(&rig, 100);
    assert_int_equal(rig_signal(&rig, 2, SIGTERM, SVC_SIGNAL_GROUP), 0);
    assert_int_equal(rig_wait_exit(&rig, 2).status, SIGTERM);
    /* everything but the main process */
    rig_start(&rig, 3, 0,
              ARGV("sh", "-c", "(setsid sleep 1000 &); sleep 1000 & echo ready; wait $!; echo $?; sleep 0.2"));
    rig_attach_proc(&rig, &out, 3, 2, 0);
    rig_wait_for(&rig, out.out[1].len == 6);
    assert_int_equal(rig_signal(&rig, 3, SIGKILL, SVC_SIGNAL_CHILDREN), 0);
    rig_until(&rig, &out.done);
    assert_text(out.out[1], "ready\n137\n");
    struct svc_proc_exit exit = rig_wait_exit(&rig, 3);
    assert_int_equal(exit.status, 0);
    assert_int_equal(exit.killed, 0);
    rig_forget(&out);
    rig_close(&rig);
}

static void a_bomb_is_killed(void **state)
{
    struct rig rig;
    struct answer out = {0};
    (void)state;

    rig_open(&rig, 0);
    /* Something that keeps forking into sessions of its own, slowly enough for whoever else is on this machine. */
    rig_start(&rig, 1, 0,
              ARGV("sh", "-c", "f() { setsid sh -c 'sleep 0.01; sleep 1000' & }; while :; do f; sleep 0.005; done"));
    rig_run(&rig, 500);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    assert_int_equal(rig_wait_exit(&rig, 1).status, SIGKILL);
    rig_sh(&rig, 2, "ps -eo args= | grep -c '[s]leep 0.01; sleep 1000'", &out);
    assert_text(out.out[1], "0\n");
    rig_forget(&out);
    rig_close(&rig);
}

static void a_killed_shepherd_leaves_nothing(void **state)
{
    struct rig rig;
    struct answer out = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1, 0, ARGV("sh", "-c", "echo $$; kill -9 $PPID; exec sleep 1000"));
    rig_attach_proc(&rig, &out, 1, 2, 0);
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.status, SIGKILL);
    rig_until(&rig, &out.done);
    /* Outside of a pid namespace its orphans fall to somebody else. */
    kill((pid_t)strtol(out.out[1].data, NULL, 10), SIGKILL);
    rig_forget(&out);
    rig_close(&rig);
}

static void output_held_open_by_another_ends_all_the_same(void **state)
{
    struct rig rig;
    struct answer out = {.hold = true}, other = {0};
    (void)state;

    rig_open(&rig, 0);
    /* The second opens the first's stdout by its place in /proc, and keeps it. */
    rig_start(&rig, 1, SVC_PROC_STDIN, ARGV("sh", "-c", "echo $$; read x; seq 1 206000"));
    rig_attach_proc(&rig, &out, 1, 2, 0);
    pid_t first = first_number(&rig, &out);
    char script[128];
    snprintf(script, sizeof(script), "exec 7>/proc/%d/fd/1; echo ready; exec sleep 1000", (int)first);
    rig_start(&rig, 2, 0, ARGV("sh", "-c", script));
    rig_attach_proc(&rig, &other, 2, 2, 0);
    rig_wait_for(&rig, other.out[1].len == 6);
    struct answer input = {0};
    rig_number(&rig, &input, SVC_PROC_INPUT, 1);
    answer_write(&input, "go\n", 3);
    rig_wait_for(&rig, out.out[1].len == SVC_WINDOW);
    /* Its end is known before its output has been read, and how much there is. */
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.output[1], 1330895 + (unsigned)snprintf(NULL, 0, "%d\n", (int)first));
    out.hold = false;
    call_consumed(out.call, 1, out.held[1]);
    rig_until(&rig, &out.done);
    assert_int_equal(out.out[1].len, exit.output[1]);
    rig_signal(&rig, 2, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 2);
    rig_forget(&input);
    rig_forget(&out);
    rig_forget(&other);
    rig_close(&rig);
}

/* ---- the list ----------------------------------------------------------------------------------- */

static void the_list_and_what_is_forgotten(void **state)
{
    struct rig rig;
    struct answer out = {0}, list = {0};
    (void)state;

    rig_open(&rig, 0);
    rig_start(&rig, 1000, SVC_PROC_STDIN, ARGV("sleep", "1000"));
    for (uint32_t i = 1; i <= 70; i++) {
        rig_start(&rig, i, 0, ARGV("echo", "hello"));
        assert_int_equal(rig_wait_exit(&rig, i).status, 0);
    }
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    assert_int_equal(list.errnum, 0);
    assert_int_equal(list.n_events, 65);
    unsigned running = 0, lowest = 1000;
    const uint8_t *at = (const uint8_t *)list.events.data;
    for (unsigned i = 0; i < list.n_events; i++) {
        struct svc_proc_info info;

        assert_int_equal(svc_proc_info_parse(at + 4, le_get_u32(at), &info), 0);
        at += 4 + le_get_u32(at);
        if (info.running) {
            running++;
            assert_int_equal(info.proc, 1000);
            assert_int_equal(info.flags, SVC_PROC_STDIN);
            assert_int_equal(info.command.len, 5);
        } else {
            assert_int_equal(info.output[1], 6);
            assert_int_equal(info.oldest[1], 0);
            assert_int_equal(info.exit.output[1], 6);
            assert_memory_equal(info.command.data, "echo", 4);
            lowest = info.proc < lowest ? info.proc : lowest;
        }
    }
    assert_int_equal(running, 1);
    assert_int_equal(lowest, 7); /* the oldest went */
    rig_forget(&list);
    rig_number(&rig, &list, SVC_PROC_FORGET, 7);
    rig_until(&rig, &list.done);
    assert_int_equal(list.errnum, 0);
    rig_forget(&list);
    rig_attach_proc(&rig, &out, 7, 2, 0);
    rig_until(&rig, &out.done);
    assert_int_equal(out.errnum, ESRCH);
    rig_forget(&out);
    rig_signal(&rig, 1000, SIGKILL, SVC_SIGNAL_ALL);
    rig_wait_exit(&rig, 1000);
    rig_close(&rig);
}

/* ---- many --------------------------------------------------------------------------------------- */

static size_t count_fds(pid_t pid)
{
    char path[64];
    size_t n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static size_t own_kib(pid_t pid)
{
    char path[64], line[256];
    size_t kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, "Anonymous:", 10) == 0)
            kib = strtoul(line + 10, NULL, 10);
    fclose(file);
    return kib;
}

static void many_at_once_leave_nothing(void **state)
{
    enum { N = 60 };
    static struct answer start[N], out[N];
    struct rig rig;
    (void)state;

    rig_open(&rig, 0);
    rig_run(&rig, 50);
    size_t fds = count_fds(rig.g.pid), kib = own_kib(rig.g.pid);
    assert_true(kib < 60);
    for (uint32_t i = 0; i < N; i++) {
        rig_start_with(&rig, &start[i], i + 1, &(struct start_opts){0},
                       ARGV("sh", "-c", "seq 1 20000; sleep 0.1; echo end"));
        rig_attach_proc(&rig, &out[i], i + 1, 6, 0);
    }
    for (uint32_t i = 0; i < N; i++) {
        rig_until(&rig, &out[i].done);
        assert_int_equal(start[i].errnum, 0);
        assert_int_equal(out[i].out[1].len, 108894 + 4);
        rig_wait_exit(&rig, i + 1);
        rig_forget(&start[i]);
        rig_forget(&out[i]);
        rig_number(&rig, &start[i], SVC_PROC_FORGET, i + 1);
        rig_until(&rig, &start[i].done);
        rig_forget(&start[i]);
    }
    rig_wait_for(&rig, count_fds(rig.g.pid) == fds);
    rig_wait_for(&rig, own_kib(rig.g.pid) < kib + 120); /* tables that are kept */
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_a_program),
        cmocka_unit_test(programs_find_nothing_of_init),
        cmocka_unit_test(failures_name_their_stage),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(the_ring_keeps_the_last_bytes),
        cmocka_unit_test(a_slow_reader_slows_the_program),
        cmocka_unit_test(a_reader_that_leaves_lets_the_program_go),
        cmocka_unit_test(input_goes_in_and_ends),
        cmocka_unit_test(input_that_nobody_reads_waits_and_fails),
        cmocka_unit_test(what_it_left_behind_dies_with_it),
        cmocka_unit_test(signals_reach_whom_they_are_for),
        cmocka_unit_test(a_bomb_is_killed),
        cmocka_unit_test(a_killed_shepherd_leaves_nothing),
        cmocka_unit_test(output_held_open_by_another_ends_all_the_same),
        cmocka_unit_test(the_list_and_what_is_forgotten),
        cmocka_unit_test(many_at_once_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
