/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: sources and timers, and what callbacks may do to them while a round is going on. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "loop/loop.h"

/* A pipe with its reading end in the loop; the callback notes the call and may act on others. */
struct probe {
    struct loop *loop;
    struct loop_source source;
    int fds[2];
    unsigned calls;
    uint32_t events;
    struct probe *victim; /* removed by the callback */
    bool re_add;          /* ... and added again */
};

static void probe_ready(struct loop_source *source, uint32_t events)
{
    struct probe *probe = source->ctx;
    char data[64];

    probe->calls++;
    probe->events = events;
    if ((events & EPOLLIN) != 0)
        assert_true(read(source->fd, data, sizeof(data)) >= 0 || errno == EAGAIN);
    if (probe->victim) {
        int fd = probe->victim->fds[0];
        loop_remove(probe->loop, &probe->victim->source);
        if (probe->re_add)
            assert_int_equal(loop_add(probe->loop, &probe->victim->source, fd, EPOLLIN, NULL), 0);
    }
}

static void probe_init(struct probe *probe, struct loop *loop)
{
    *probe = (struct probe){.loop = loop, .source = {.fd = -1, .fn = probe_ready, .ctx = probe}};
    assert_int_equal(pipe2(probe->fds, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(loop_add(loop, &probe->source, probe->fds[0], EPOLLIN, NULL), 0);
    assert_int_equal(probe->source.fd, probe->fds[0]);
}

static void probe_poke(struct probe *probe)
{
    assert_int_equal(fd_write_all(probe->fds[1], "x", 1), 0);
}

static void probe_done(struct probe *probe)
{
    loop_remove(probe->loop, &probe->source);
    fd_close_all(probe->fds, 2);
}

static int set_up(void **state)
{
    return loop_create((struct loop **)state, NULL);
}

static int tear_down(void **state)
{
    loop_destroy(*state);
    return 0;
}

static void loop_delivers_events(void **state)
{
    struct loop *loop = *state;
    struct probe a, b;

    probe_init(&a, loop);
    probe_init(&b, loop);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls + b.calls, 0);
    probe_poke(&a);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 0);
    probe_poke(&a);
    probe_poke(&b);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(a.calls, 2);
    assert_int_equal(b.calls, 1);
    base_close_fd(&b.fds[1]);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_true((b.events & EPOLLHUP) != 0);
    probe_done(&a);
    probe_done(&b);
}

static void loop_modify_changes_interest(void **state)
{
    struct loop *loop = *state;
    struct probe a;

    probe_init(&a, loop);
    probe_poke(&a);
    assert_int_equal(loop_modify(loop, &a.source, 0, NULL), 0);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 0);
    assert_int_equal(loop_modify(loop, &a.source, EPOLLIN, NULL), 0);
    assert_int_equal(loop_modify(loop, &a.source, EPOLLIN, NULL), 0);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 1);
    probe_done(&a);
    assert_int_equal(loop_modify(loop, &a.source, EPOLLIN, NULL), -ENOENT);
}

static void loop_refuses_nonsense(void **state)
{
    struct loop *loop = *state;
    struct loop_source zeroed = {0};
    struct loop_timer timer = {0};
    struct brig_err err;
    struct probe a;

    probe_init(&a, loop);
    assert_int_equal(loop_add(loop, &a.source, a.fds[0], EPOLLIN, &err), -EEXIST);
    struct loop_source twice = {.fd = -1};
    assert_int_equal(loop_add(loop, &twice, a.fds[0], EPOLLIN, &err), -EEXIST);
    assert_int_equal(loop_add(loop, &twice, -1, EPOLLIN, &err), -EBADF);
    assert_string_equal(err.message, "watch descriptor -1: Bad file descriptor");
    /* All zeroes is "not registered", also while slot 0 and descriptor 0 are others'. */
    loop_remove(loop, &zeroed);
    loop_remove(loop, &zeroed);
    loop_timer_clear(loop, &timer);
    probe_poke(&a);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 1);
    probe_done(&a);
    loop_remove(loop, &a.source);
    loop_destroy(NULL);
}

static void loop_removal_during_dispatch(void **state)
{
    struct loop *loop = *state;
    struct probe a, b;

    for (int order = 0; order < 2; order++) {
        probe_init(&a, loop);
        probe_init(&b, loop);
        a.victim = &b;
        b.victim = &a;
        probe_poke(order ? &b : &a);
        probe_poke(order ? &a : &b);
        assert_int_equal(loop_run_once(loop, 0, NULL), 0);
        assert_int_equal(a.calls + b.calls, 1); /* whoever was first took the other out */
        assert_int_equal(loop_run_once(loop, 0, NULL), 0);
        assert_int_equal(a.calls + b.calls, 1);
        probe_done(&a);
        probe_done(&b);
    }
}

static void loop_removing_itself(void **state)
{
    struct loop *loop = *state;
    struct probe a;

    probe_init(&a, loop);
    a.victim = &a;
    probe_poke(&a);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.source.fd, -1);
    probe_poke(&a);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 1);
    probe_done(&a);
}

static void loop_stale_events_miss_the_new_owner(void **state)
{
    struct loop *loop = *state;
    struct probe a, b;

    /* The victim is taken out and put in again: the same slot, the same descriptor, but not the fetched event. */
    probe_init(&a, loop);
    probe_init(&b, loop);
    a.victim = &b, a.re_add = true;
    b.victim = &a, b.re_add = true;
    probe_poke(&a);
    probe_poke(&b);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls + b.calls, 1);
    a.victim = b.victim = NULL;
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 1);
    probe_done(&a);
    probe_done(&b);
}

static void loop_takes_many_sources(void **state)
{
    struct loop *loop = *state;
    static struct probe probes[200];
    unsigned calls = 0;

    for (size_t i = 0; i < ARRAY_SIZE(probes); i++)
        probe_init(&probes[i], loop);
    for (size_t i = 0; i < ARRAY_SIZE(probes); i += 2)
        loop_remove(loop, &probes[i].source);
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++)
        probe_poke(&probes[i]);
    for (size_t i = 0; i < ARRAY_SIZE(probes); i += 4)
        assert_int_equal(loop_add(loop, &probes[i].source, probes[i].fds[0], EPOLLIN, NULL), 0);
    for (int round = 0; round < 4; round++)
        assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(probes); i++) {
        assert_int_equal(probes[i].calls, i % 2 == 1 || i % 4 == 0);
        calls += probes[i].calls;
        probe_done(&probes[i]);
    }
    assert_int_equal(calls, 150);
}

/* ---- timers ------------------------------------------------------------------------------------- */

static int fired[256];
static size_t n_fired;

struct tick {
    struct loop_timer timer;
    struct loop *loop;
    struct tick *clear; /* cleared by the callback */
    int number;
    unsigned again; /* times to arm itself again, for a moment long past */
};

static void tick_fire(struct loop_timer *timer)
{
    struct tick *tick = timer->ctx;

    fired[n_fired++ % ARRAY_SIZE(fired)] = tick->number;
    if (tick->clear)
        loop_timer_clear(tick->loop, &tick->clear->timer);
    if (tick->again > 0) {
        tick->again--;
        assert_int_equal(loop_timer_set(tick->loop, timer, 0, NULL), 0);
    }
}

static void ticks_init(struct tick *ticks, size_t n, struct loop *loop)
{
    n_fired = 0;
    for (size_t i = 0; i < n; i++)
        ticks[i] = (struct tick){.timer = {.fn = tick_fire, .ctx = &ticks[i]}, .loop = loop, .number = (int)i};
}

static void timers_fire_in_order(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[100];
    uint64_t base = loop_now_ns() - NS_PER_SEC;

    ticks_init(ticks, 100, loop);
    /* 37 is prime to 100: every number once, shuffled; all of them are due. */
    for (size_t i = 0; i < 100; i++) {
        size_t k = i * 37 % 100;
        assert_int_equal(loop_timer_set(loop, &ticks[k].timer, base + k, NULL), 0);
    }
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(n_fired, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fired[i], i);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 100);
}

static void timers_with_equal_deadlines_are_fair(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[20];
    uint64_t at = loop_now_ns() - 1;

    ticks_init(ticks, 20, loop);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(loop_timer_set(loop, &ticks[i].timer, at, NULL), 0);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(fired[i], i);
}

static void timers_move_and_clear(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[8];
    uint64_t past = loop_now_ns() - NS_PER_SEC, future = loop_now_ns() + 3600 * NS_PER_SEC;

    ticks_init(ticks, 8, loop);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(loop_timer_set(loop, &ticks[i].timer, i % 2 ? future + i : past + i, NULL), 0);
    loop_timer_clear(loop, &ticks[2].timer);
    loop_timer_clear(loop, &ticks[2].timer);
    assert_int_equal(loop_timer_set(loop, &ticks[4].timer, future, NULL), 0);
    assert_int_equal(loop_timer_set(loop, &ticks[7].timer, past, NULL), 0);
    ticks[7].clear = &ticks[6]; /* cleared in the round in which it was due */
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(n_fired, 2);
    assert_int_equal(fired[0], 0);
    assert_int_equal(fired[1], 7);
    for (size_t i = 0; i < 8; i++)
        loop_timer_clear(loop, &ticks[i].timer);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 2);
}

static void timers_that_rearm_do_not_starve(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[3];
    struct probe probe;

    ticks_init(ticks, 3, loop);
    probe_init(&probe, loop);
    probe_poke(&probe);
    ticks[0].again = 5;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(loop_timer_set(loop, &ticks[i].timer, 0, NULL), 0);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(n_fired, 3); /* the others had their turn, and itself only once */
    assert_int_equal(probe.calls, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(loop_run_once(loop, -1, NULL), 0);
    assert_int_equal(n_fired, 8);
    probe_done(&probe);
}

static void timers_wait_for_their_time(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[2];
    uint64_t at = loop_now_ns() + 3 * NS_PER_MS + 1;

    ticks_init(ticks, 2, loop);
    assert_int_equal(loop_timer_set(loop, &ticks[0].timer, at, NULL), 0);
    assert_int_equal(loop_timer_set(loop, &ticks[1].timer, UINT64_MAX, NULL), 0);
    while (n_fired == 0) {
        assert_int_equal(loop_run_once(loop, -1, NULL), 0);
        assert_true(n_fired == 0 || loop_now_ns() >= at);
    }
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 1);
}

/* ---- an outer loop ------------------------------------------------------------------------------ */

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static void loop_fd_tells_an_outer_loop(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[3];
    struct probe probe;
    uint64_t future = loop_now_ns() + 3600 * NS_PER_SEC;

    ticks_init(ticks, 3, loop);
    probe_init(&probe, loop);
    /* Armed before anybody asked for the descriptor. */
    assert_int_equal(loop_timer_set(loop, &ticks[0].timer, loop_now_ns() + NS_PER_MS, NULL), 0);
    int fd = loop_fd(loop);
    assert_true(fd >= 0);
    assert_int_equal(loop_fd(loop), fd);
    assert_true(readable(fd, -1));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 1);
    assert_false(readable(fd, 0));

    /* An earlier one while a later one is set; then only the later remains. */
    assert_int_equal(loop_timer_set(loop, &ticks[1].timer, future, NULL), 0);
    assert_false(readable(fd, 0));
    assert_int_equal(loop_timer_set(loop, &ticks[2].timer, loop_now_ns() + NS_PER_MS, NULL), 0);
    assert_true(readable(fd, -1));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 2);
    assert_false(readable(fd, 0));

    /* One that was cleared wakes at most once for nothing. */
    assert_int_equal(loop_timer_set(loop, &ticks[2].timer, loop_now_ns() + NS_PER_MS, NULL), 0);
    loop_timer_clear(loop, &ticks[2].timer);
    assert_true(readable(fd, -1));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 2);
    assert_false(readable(fd, 0));

    /* Armed from within a round. */
    ticks[0].again = 1;
    assert_int_equal(loop_timer_set(loop, &ticks[0].timer, 0, NULL), 0);
    assert_true(readable(fd, -1));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 3);
    assert_true(readable(fd, -1));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(n_fired, 4);
    assert_false(readable(fd, 0));

    probe_poke(&probe);
    assert_true(readable(fd, 0));
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_int_equal(probe.calls, 1);
    assert_false(readable(fd, 0));
    probe_done(&probe);
}

static void nested_ready(struct loop_source *source, uint32_t events)
{
    struct probe *probe = source->ctx;

    probe_ready(source, events);
    if (probe->calls == 1)
        assert_int_equal(loop_run_once(probe->loop, 0, NULL), 0);
}

static void loop_may_be_run_from_a_callback(void **state)
{
    struct loop *loop = *state;
    struct tick ticks[1];
    struct probe a, b;
    int fd = loop_fd(loop);

    ticks_init(ticks, 1, loop);
    probe_init(&a, loop);
    probe_init(&b, loop);
    a.source.fn = b.source.fn = nested_ready;
    probe_poke(&a);
    probe_poke(&b);
    assert_int_equal(loop_timer_set(loop, &ticks[0].timer, 0, NULL), 0);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    assert_true(a.calls >= 1 && b.calls >= 1);
    assert_int_equal(n_fired, 1);
    assert_false(readable(fd, 0));
    probe_done(&a);
    probe_done(&b);
}

static void on_alarm(int signum)
{
    (void)signum;
}

static void loop_returns_after_a_signal(void **state)
{
    struct loop *loop = *state;
    struct sigaction action = {.sa_handler = on_alarm}, old;
    struct itimerval timer = {.it_value = {.tv_usec = 1000}, .it_interval = {.tv_usec = 1000}}, off = {0};

    assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
    assert_int_equal(loop_run_once(loop, -1, NULL), 0); /* would wait for ever */
    assert_int_equal(setitimer(ITIMER_REAL, &off, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

/* ---- failing allocations ------------------------------------------------------------------------ */

static int build_up(struct loop **ret, struct loop_source *sources, struct loop_timer *timers, int (*fds)[2], size_t n)
{
    struct loop *loop = NULL;
    int r = loop_create(&loop, NULL);

    for (size_t i = 0; r == 0 && i < n; i++) {
        r = loop_add(loop, &sources[i], fds[i][0], EPOLLIN, NULL);
        if (r == 0)
            r = loop_timer_set(loop, &timers[i], loop_now_ns() + NS_PER_SEC, NULL);
    }
    if (r < 0) {
        loop_destroy(loop);
        return r;
    }
    *ret = loop;
    return 0;
}

static void loop_survives_every_allocation_failure(void **state)
{
    enum { N = 40 };
    int fds[N][2];
    size_t n = 0;
    (void)state;

    for (size_t i = 0; i < N; i++)
        assert_int_equal(pipe2(fds[i], O_CLOEXEC), 0);
    size_t before = unit_count_fds();
    for (;; n++) {
        struct loop_source sources[N] = {0};
        struct loop_timer timers[N] = {0};
        struct loop *loop = NULL;
        mem_fail_after(n);
        int r = build_up(&loop, sources, timers, fds, N);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        loop_destroy(loop);
        assert_int_equal(unit_count_fds(), before);
        if (!failed)
            break;
    }
    assert_in_range(n, 5, 10);
    for (size_t i = 0; i < N; i++)
        fd_close_all(fds[i], 2);
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(loop_delivers_events),
        LOOP_TEST(loop_modify_changes_interest),
        LOOP_TEST(loop_refuses_nonsense),
        LOOP_TEST(loop_removal_during_dispatch),
        LOOP_TEST(loop_removing_itself),
        LOOP_TEST(loop_stale_events_miss_the_new_owner),
        LOOP_TEST(loop_takes_many_sources),
        LOOP_TEST(timers_fire_in_order),
        LOOP_TEST(timers_with_equal_deadlines_are_fair),
        LOOP_TEST(timers_move_and_clear),
        LOOP_TEST(timers_that_rearm_do_not_starve),
        LOOP_TEST(timers_wait_for_their_time),
        LOOP_TEST(loop_fd_tells_an_outer_loop),
        LOOP_TEST(loop_may_be_run_from_a_callback),
        LOOP_TEST(loop_returns_after_a_signal),
        cmocka_unit_test(loop_survives_every_allocation_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
