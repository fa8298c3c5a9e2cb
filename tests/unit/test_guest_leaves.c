/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup per process, with the test as the spawner: who asks, who waits, what is told at the end. */
#include "guest_rig.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void the_process_itself_asks_and_waits(void **state)
{
    struct rig rig;
    struct answer start = {0}, out = {0};
    struct svc_proc_started started;
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig.mute_leaves = true;
    rig_start_with(&rig, &start, 7, &(struct start_opts){0}, ARGV("sh", "-c", "echo $$; exit 3"));
    rig_attach_proc(&rig, &out, 7, 2, 0);
    rig_wait_for(&rig, rig.n_leaf == 1);
    rig_run(&rig, 50);
    assert_false(start.done); /* not a step without it */
    assert_int_equal(out.out[1].len, 0);
    const struct guest_leaf_ready ready = {7, 0};
    uint8_t wire[8], frame[64];
    assert_int_equal(guest_leaf_ready_put(wire, sizeof(wire), &ready), 8);
    send_bytes(&rig.g, frame, put_frame(frame, FRAME_LEAF_READY, 0, wire, 8), NULL, 0);
    rig_until(&rig, &start.done);
    assert_int_equal(svc_proc_started_parse(start.data, start.len, &started), 0);
    assert_int_equal(started.pid, rig.leaf_pids[7]); /* by the kernel's word, in whoever's pid namespace */
    struct svc_proc_exit exit = rig_wait_exit(&rig, 7);
    assert_int_equal(rig.n_leaf_end, 1);
    assert_int_equal(exit.status, 3 << 8);
    assert_int_equal(exit.leaf, 1);
    assert_int_equal(exit.oom_kills, 1);
    assert_int_equal(exit.pids_refused, 2);
    assert_int_equal(exit.cpu_ns, 3000);
    assert_int_equal(exit.memory_peak, 4000);
    assert_int_equal(exit.pids_peak, 5);
    rig_until(&rig, &out.done);
    assert_int_equal(strtol(out.out[1].data, NULL, 10), rig.leaf_pids[7]);
    rig_forget(&start);
    rig_forget(&out);
    rig_close(&rig);
}

static void no_leaf_no_process(void **state)
{
    struct rig rig;
    struct answer start = {0};
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig.leaf_errnum = EAGAIN;
    rig_start_with(&rig, &start, 1, &(struct start_opts){0}, ARGV("true"));
    rig_until(&rig, &start.done);
    assert_int_equal(start.errnum, EAGAIN);
    assert_int_equal(start.stage, STAGE_FORK);
    rig_forget(&start);
    rig_run(&rig, 50);
    assert_int_equal(rig.n_leaf_end, 0);
    /* The number is free again: nothing of it was left. */
    rig.leaf_errnum = 0;
    rig_start(&rig, 1, 0, ARGV("true"));
    assert_int_equal(rig_wait_exit(&rig, 1).status, 0);
    rig_close(&rig);
}

static void a_failed_start_ends_its_leaf(void **state)
{
    struct rig rig;
    struct answer start = {0}, list = {0};
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig_start_with(&rig, &start, 1, &(struct start_opts){0}, ARGV("no-such-program"));
    rig_until(&rig, &start.done);
    assert_int_equal(start.errnum, ENOENT);
    rig_wait_for(&rig, rig.n_leaf_end == 1);
    rig_ask(&rig, &list, SVC_PROC_LIST, NULL, 0);
    assert_int_equal(list.n_events, 0);
    rig_forget(&list);
    rig_forget(&start);
    rig_close(&rig);
}

static void killing_all_is_the_spawners(void **state)
{
    const struct svc_proc_signal msg = {1, SIGKILL, SVC_SIGNAL_ALL};
    struct rig rig;
    struct answer waits = {0}, kills[2] = {{0}};
    uint8_t wire[16];
    int len = svc_proc_signal_put(wire, sizeof(wire), &msg);
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig_start(&rig, 1, 0, ARGV("sh", "-c", "sleep 1000 & sleep 1000"));
    rig_number(&rig, &waits, SVC_PROC_WAIT, 1);
    /* Both are there before the spawner, which is this loop, kills anything; once is enough for it. */
    for (size_t i = 0; i < ARRAY_SIZE(kills); i++)
        rig_call(&rig, &kills[i], SVC_PROC_SIGNAL, wire, (size_t)len);
    for (size_t i = 0; i < ARRAY_SIZE(kills); i++) {
        rig_until(&rig, &kills[i].done);
        assert_int_equal(kills[i].errnum, 0);
        rig_forget(&kills[i]);
    }
    struct svc_proc_exit exit = rig_wait_exit(&rig, 1);
    assert_int_equal(exit.status, SIGKILL);
    assert_int_equal(exit.killed, 1);
    assert_int_equal(rig.n_leaf_end, 1);
    rig_until(&rig, &waits.done);
    rig_forget(&waits);
    rig_close(&rig);
}

static void killed_before_it_has_a_leaf(void **state)
{
    struct rig rig;
    struct answer start = {0};
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    rig.mute_leaves = true;
    rig_start_with(&rig, &start, 1, &(struct start_opts){0}, ARGV("true"));
    rig_wait_for(&rig, rig.n_leaf == 1);
    assert_int_equal(rig_signal(&rig, 1, SIGKILL, SVC_SIGNAL_ALL), 0);
    rig_until(&rig, &start.done);
    assert_int_equal(start.errnum, EIO);
    rig_wait_for(&rig, rig.n_leaf_end == 1); /* the spawner may have made it meanwhile */
    rig_forget(&start);
    rig_close(&rig);
}

static void answers_that_nobody_waits_for(void **state)
{
    struct rig rig;
    uint8_t wire[64], frame[128];
    (void)state;

    rig_open(&rig, GUEST_START_LEAVES);
    const struct guest_leaf_ready ready = {9, 0};
    const struct guest_leaf_gone gone = {.leaf = 9};
    assert_int_equal(guest_leaf_ready_put(wire, sizeof(wire), &ready), 8);
    send_bytes(&rig.g, frame, put_frame(frame, FRAME_LEAF_READY, 0, wire, 8), NULL, 0);
    assert_int_equal(guest_leaf_gone_put(wire, sizeof(wire), &gone), 40);
    send_bytes(&rig.g, frame, put_frame(frame, FRAME_LEAF_GONE, 0, wire, 40), NULL, 0);
    rig_start(&rig, 9, 0, ARGV("true"));
    assert_int_equal(rig_wait_exit(&rig, 9).status, 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_process_itself_asks_and_waits), cmocka_unit_test(no_leaf_no_process),
        cmocka_unit_test(a_failed_start_ends_its_leaf),      cmocka_unit_test(killing_all_is_the_spawners),
        cmocka_unit_test(killed_before_it_has_a_leaf),       cmocka_unit_test(answers_that_nobody_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
