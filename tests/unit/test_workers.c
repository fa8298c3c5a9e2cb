/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of threads: order, whose thread calls what, posting from outside, and an end that loses nothing. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "loop/workers.h"

static struct loop *loop;
static struct workers *workers;
static pthread_t loop_thread;
static unsigned n_done;
static char order[64];
static size_t n_order;

struct item {
    struct job job;
    char name;
    bool worked, again;
    sigset_t mask;
};

static void work(struct job *job)
{
    struct item *item = (struct item *)job;

    assert_false(pthread_equal(pthread_self(), loop_thread));
    pthread_sigmask(SIG_SETMASK, NULL, &item->mask);
    item->worked = true;
}

static void work_anywhere(struct job *job)
{
    ((struct item *)job)->worked = true;
}

static void done(struct job *job)
{
    struct item *item = (struct item *)job;

    assert_true(pthread_equal(pthread_self(), loop_thread));
    assert_true(item->worked);
    n_done++;
    if (n_order < sizeof(order))
        order[n_order++] = item->name;
    if (item->again) {
        item->again = false;
        item->worked = false;
        item->job.work = work_anywhere;
        workers_add(workers, job);
    }
}

static int setup(UNUSED void **state)
{
    n_done = 0;
    n_order = 0;
    loop_thread = pthread_self();
    return loop_create(&loop, NULL);
}

static int teardown(UNUSED void **state)
{
    loop_destroy(loop);
    return 0;
}

static void run_until(unsigned n)
{
    for (int i = 0; i < 10000 && n_done < n; i++)
        assert_int_equal(loop_run_once(loop, 1000, NULL), 0);
    assert_int_equal(n_done, n);
}

static void test_jobs(UNUSED void **state)
{
    static struct item items[1000];

    assert_int_equal(workers_create(loop, 4, &workers, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
        items[i] = (struct item){.job = {.work = work, .done = done}};
        workers_add(workers, &items[i].job);
    }
    run_until(1000);
    for (int sig = 1; sig < 32; sig++) {
        if (sig != SIGKILL && sig != SIGSTOP)
            assert_true(sigismember(&items[0].mask, sig));
    }
    workers_destroy(workers);
}

static void test_order(UNUSED void **state)
{
    struct item items[26];

    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
        items[i] = (struct item){.job = {.work = work, .done = done}, .name = (char)('a' + i)};
        workers_add(workers, &items[i].job);
    }
    run_until(26);
    assert_memory_equal(order, "abcdefghijklmnopqrstuvwxyz", 26);
    workers_destroy(workers);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static atomic_bool at_the_gate;

static void wait_at_the_gate(struct job *job)
{
    at_the_gate = true;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    work(job);
}

/* Owners take turns, and one of them has only so many jobs that wait, unless they are bounded elsewhere. */
static void test_owners(UNUSED void **state)
{
    static struct item items[WORKERS_WAITING + 1];
    struct item first = {.job = {.work = wait_at_the_gate, .done = done}, .name = '.'};
    struct item theirs[] = {{.job = {.work = work, .done = done}, .name = 'B'},
                            {.job = {.work = work, .done = done}, .name = 'B'},
                            {.job = {.work = work, .done = done}, .name = 'C'},
                            {.job = {.work = work, .done = done}, .name = '*'}};
    const uint64_t owners[] = {2, 2, 3, 0};

    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    pthread_mutex_lock(&gate);
    assert_int_equal(workers_add_for(workers, 1, &first.job), 0);
    while (!at_the_gate)
        sched_yield();
    for (size_t i = 0; i < WORKERS_WAITING; i++) {
        items[i] = (struct item){.job = {.work = work, .done = done}, .name = 'A'};
        assert_int_equal(workers_add_for(workers, 1, &items[i].job), 0);
    }
    items[WORKERS_WAITING] = (struct item){.job = {.work = work, .done = done}, .name = 'X'};
    assert_int_equal(workers_add_for(workers, 1, &items[WORKERS_WAITING].job), -EAGAIN);
    workers_add_bounded(workers, 1, &items[WORKERS_WAITING].job);
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        assert_int_equal(workers_add_for(workers, owners[i], &theirs[i].job), 0);
    pthread_mutex_unlock(&gate);
    run_until(6 + WORKERS_WAITING);
    assert_memory_equal(order, ".ABC*ABA", 8);
    workers_destroy(workers);
}

/* What is queued is finished, and what that adds, too. */
static void test_destroy_finishes(UNUSED void **state)
{
    struct item items[8];

    assert_int_equal(workers_create(loop, 2, &workers, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
        items[i] = (struct item){.job = {.work = work, .done = done}, .again = i == 3};
        workers_add(workers, &items[i].job);
    }
    workers_destroy(workers);
    assert_int_equal(n_done, 9);
    workers_destroy(NULL);
}

static void posted(void *ctx)
{
    assert_true(pthread_equal(pthread_self(), loop_thread));
    assert_int_equal(*(unsigned *)ctx, n_done);
    n_done++;
}

static void *poster(UNUSED void *arg)
{
    static unsigned numbers[100];

    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
        numbers[i] = i;
        if (workers_post(workers, posted, &numbers[i]) < 0)
            abort();
    }
    return NULL;
}

static void test_post(UNUSED void **state)
{
    pthread_t thread;
    static unsigned number = 100, last = 101;

    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, poster, NULL), 0);
    run_until(100);
    pthread_join(thread, NULL);
    assert_int_equal(workers_post(workers, posted, &number), 0);
    run_until(101);
    assert_int_equal(loop_run_once(loop, 0, NULL), 0);
    mem_fail_after(0);
    assert_int_equal(workers_post(workers, posted, &last), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(workers_post(workers, posted, &last), 0);
    workers_destroy(workers);
    assert_int_equal(n_done, 102);
}

static void post_again(void *ctx)
{
    n_done++;
    if (!*(bool *)ctx && workers_post(workers, post_again, ctx) < 0)
        abort();
}

static void tick(struct loop_timer *timer)
{
    *(bool *)timer->ctx = true;
}

/* A callback that posts itself again leaves the others their turn. */
static void test_no_starvation(UNUSED void **state)
{
    bool ticked = false;
    struct loop_timer timer = {.fn = tick, .ctx = &ticked};

    assert_int_equal(workers_create(loop, 1, &workers, NULL), 0);
    assert_int_equal(workers_post(workers, post_again, &ticked), 0);
    assert_int_equal(loop_timer_set(loop, &timer, loop_now_ns() + 1000000, NULL), 0);
    for (int i = 0; i < 1000000 && !ticked; i++)
        assert_int_equal(loop_run_once(loop, 1000, NULL), 0);
    assert_true(ticked && n_done > 1);
    workers_destroy(workers);
}

static void test_create_failures(UNUSED void **state)
{
    size_t fds = unit_count_fds();
    struct brig_err err;

    assert_int_equal(workers_create(loop, 0, &workers, &err), -EINVAL);
    assert_int_equal(workers_create(loop, 65, &workers, &err), -EINVAL);
    for (size_t n = 0;; n++) {
        mem_fail_after(n);
        int r = workers_create(loop, 2, &workers, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            workers_destroy(workers);
            assert_false(failed);
            break;
        }
        assert_int_equal(r, -ENOMEM);
        assert_int_equal(unit_count_fds(), fds);
    }
    assert_int_equal(unit_count_fds(), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_owners, setup, teardown),
        cmocka_unit_test_setup_teardown(test_destroy_finishes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_post, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_starvation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_create_failures, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
