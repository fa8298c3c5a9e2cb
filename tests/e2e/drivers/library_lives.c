/* SPDX-License-Identifier: Apache-2.0 */
/* library_lives.c: engines, sandboxes and hosts that live and die, most of it watched from outside by test_library.py;
 * pools; descriptors. */
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "library_host.h"

void destroyed_while_running(void)
{
    struct brig_engine *engine = make_engine(2);

    for (int i = 0; i < 5; i++)
        start_shell(engine, "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.02; done",
                    i % 2 ? BRIG_RUN_STDIN : BRIG_RUN_TTY);
    for (int i = 0; i < 20; i++)
        EXPECT(brig_engine_dispatch(engine, 10, &host_err) == 0);
    say_and_wait("up");
    brig_engine_destroy(engine);
    say_and_wait("destroyed"); /* all must be gone while we still live */
}

void spawner_killed(void)
{
    struct brig_engine *engine = make_engine(0);
    struct brig_run *run = start_shell(engine, "echo before; exec sleep 1000", BRIG_RUN_KEEP_OUTPUT),
                    *second = start_shell(engine, "exec sleep 1000", 0);

    for (int i = 0; i < 20; i++)
        EXPECT(brig_engine_dispatch(engine, 10, &host_err) == 0);
    say_and_wait("up");
    const struct brig_receipt *receipt = wait_for(run);
    EXPECT(receipt->cause == BRIG_CAUSE_SANDBOX_GONE && brig_exit_status(receipt) == 125 && receipt->detail[0]);
    EXPECT(kept_is(receipt, BRIG_STDOUT, "before\n"));
    EXPECT(brig_run_done(second) && brig_run_receipt(second)->cause == BRIG_CAUSE_SANDBOX_GONE);
    const char *const argv[] = {"/bin/true", NULL};
    const struct brig_spec spec = {.size = sizeof spec, .argv = argv};
    struct brig_run *third = NULL;
    EXPECT(brig_run_start(engine, &spec, &third, &host_err) < 0 && host_err.code == BRIG_E_GONE && third == NULL);
    EXPECT(brig_engine_dispatch(engine, 0, &host_err) < 0 && host_err.code == BRIG_E_GONE);
    EXPECT(brig_engine_fill(engine, &host_err) < 0);
    brig_run_cancel(run);
    brig_run_destroy(run);
    brig_engine_destroy(engine); /* and second with it */
    engine = make_engine(0);
    EXPECT(wait_for(start_shell(engine, "exit 4", 0))->exit_code == 4);
    brig_engine_destroy(engine);
}

/* The host dies without a word; nothing of it may stay. */
void host_killed(void)
{
    struct brig_engine *engine = make_engine(3);

    EXPECT(brig_engine_fill(engine, &host_err) == 0);
    start_shell(engine, "exec sleep 1000", 0);
    for (int i = 0; i < 20; i++)
        EXPECT(brig_engine_dispatch(engine, 10, &host_err) == 0);
    say_and_wait("up");
}

void pool(void)
{
    struct brig_engine *engine = make_engine(4);

    EXPECT(brig_engine_fill(engine, &host_err) == 0);
    say_and_wait("filled");
    struct brig_run *run = start_shell(engine, "echo up; exec sleep 1000", BRIG_RUN_PULL);
    char data[16];
    while (brig_run_read(run, BRIG_STDOUT, data, sizeof data) == 0)
        EXPECT(brig_engine_dispatch(engine, 1000, &host_err) == 0);
    say_and_wait("running");
    brig_run_destroy(run);

    /* Runs with other limits, and more of them than are parked. */
    for (int round = 0; round < 3; round++)
        run_many(engine, 12);
    /* A parked sandbox has this run's limits, read back, and its own protection. */
    const char *const argv[] = {"/bin/true", NULL};
    const struct brig_spec spec = {.size = sizeof spec,
                                   .argv = argv,
                                   .require = BRIG_REQUIRE_ALL,
                                   .limits = {.memory = 48 << 20, .pids = 7, .cpus = 300}};
    EXPECT(brig_run_start(engine, &spec, &run, &host_err) == 0);
    const struct brig_receipt *receipt = wait_for(run);
    EXPECT(receipt->cause == BRIG_CAUSE_EXITED && receipt->limits.memory == 48 << 20 && receipt->limits.pids == 7);
    EXPECT(receipt->protection_complete == true);
    brig_engine_destroy(engine);
    say_and_wait("destroyed");
}

/* One that was used is never used again. */
void pool_is_single_use(void)
{
    struct brig_engine *engine = make_engine(1);

    for (int i = 0; i < 10; i++) {
        EXPECT(brig_engine_fill(engine, &host_err) == 0);
        struct brig_run *run = start_shell(engine, "test ! -e /tmp/mark && echo > /tmp/mark && test $$ -le 3", 0);
        EXPECT(wait_for(run)->exit_code == 0);
        brig_run_destroy(run);
    }
    brig_engine_destroy(engine);
}

void fill_without_a_pool(void)
{
    struct brig_engine *engine = make_engine(0);

    EXPECT(brig_engine_fill(engine, &host_err) == 0);
    brig_engine_destroy(engine);
}

void descriptors(void)
{
    size_t before = count_fds();

    for (int i = 0; i < 5; i++) {
        struct brig_engine *engine = make_engine((unsigned)i % 2);
        size_t with_engine = count_fds();
        for (int k = 0; k < 6; k++) {
            static const unsigned flags[] = {
                0, BRIG_RUN_STDIN, BRIG_RUN_TTY | BRIG_RUN_STDIN, BRIG_RUN_KEEP_OUTPUT, BRIG_RUN_PULL, BRIG_RUN_TTY};
            struct brig_run *run = start_shell(engine, k % 2 ? "echo x" : "exit 1", flags[k]);
            wait_for(run);
            EXPECT(count_fds() == with_engine); /* not even before destroy */
            brig_run_destroy(run);
            EXPECT(count_fds() == with_engine);
        }
        brig_run_destroy(start_shell(engine, "exec sleep 1000", BRIG_RUN_STDIN));
        EXPECT(count_fds() == with_engine);
        brig_engine_destroy(engine);
        EXPECT(count_fds() == before);
    }
}

/* What the host has open is not in the sandbox, inheritable or not, high or low. */
void descriptors_stay_outside(void)
{
    int fd = open("/etc/passwd", 0), high = fcntl(fd, F_DUPFD, 300);
    struct brig_engine *engine = make_engine(1);

    EXPECT(fd >= 0 && high >= 300);
    for (int i = 0; i < 2; i++) {
        struct brig_run *run = start_shell(engine, "ls /proc/self/fd", BRIG_RUN_KEEP_OUTPUT);
        EXPECT(kept_is(wait_for(run), BRIG_STDOUT, "0\n1\n2\n3\n"));
        brig_run_destroy(run);
    }
    brig_engine_destroy(engine);
}

/* A host that is busy with something else while many runs end: nothing is lost, and nobody is killed for it. */
void busy_elsewhere(void)
{
    enum { COUNT = 400 };
    static struct brig_run *runs[COUNT];
    struct brig_engine *engine = make_engine(0);

    for (int i = 0; i < COUNT; i++)
        runs[i] = start_shell(engine, "echo x", BRIG_RUN_KEEP_OUTPUT);
    say_and_wait("busy");
    for (int i = 0; i < COUNT; i++) {
        const struct brig_receipt *receipt = wait_for(runs[i]);
        EXPECT(receipt->cause == BRIG_CAUSE_EXITED && kept_is(receipt, BRIG_STDOUT, "x\n"));
    }
    brig_engine_destroy(engine);
}

/* A single-threaded caller may have the spawner forked; it is then a child, and goes with its engine. */
void forked(void)
{
    const struct brig_engine_options options = {.size = sizeof options, .flags = BRIG_ENGINE_FORK, .pool = 1};

    for (int i = 0; i < 3; i++) {
        struct brig_engine *engine = NULL;
        EXPECT(brig_engine_create(&options, &engine, &host_err) == 0);
        EXPECT(wait_for(start_shell(engine, "exit 3", 0))->exit_code == 3);
        brig_engine_destroy(engine);
        EXPECT(waitpid(-1, NULL, WNOHANG) == -1); /* no zombie for the host to find */
    }
}
