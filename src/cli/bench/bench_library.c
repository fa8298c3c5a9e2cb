/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_library.c: measures what an embedder pays with a running engine: one run at a time from the pool and without
 * it, a hundred at once, and an interpreter. A measured run is create, run and destroy. Refilling the pool in between
 * is not measured, because real callers do not wait for it.
 */
#include <string.h>

#include "base/err.h"
#include "cli/bench/bench.h"

#define BURST 100
#define POOL 8
#define BURST_PAUSE_MS 100 /* or the kernel still takes a hundred sandboxes apart while the next is measured */

static const char *const true_argv[] = {"/bin/true", NULL};
static const char *const python_argv[] = {"/usr/bin/python3", "-I", "-S", "-c", "pass", NULL};

int bench_engine(unsigned pool, struct brig_engine **ret, struct brig_err *err)
{
    const struct brig_engine_options options = {.size = sizeof(options), .pool = pool};
    int r = brig_engine_create(&options, ret, err);
    if (r == 0 && pool > 0) {
        r = brig_engine_fill(*ret, err);
        if (r < 0) {
            brig_engine_destroy(*ret);
            *ret = NULL;
        }
    }
    return r;
}

int bench_check(const struct brig_run *run, struct brig_err *err)
{
    const struct brig_receipt *receipt = brig_run_receipt(run);
    if (receipt && receipt->cause == BRIG_CAUSE_EXITED && receipt->exit_code == 0)
        return 0;
    return err_set(err, BRIG_E_HOST, 0, "a run ended by %s: %s", receipt ? brig_cause_name(receipt->cause) : "nothing",
                   receipt ? receipt->detail : "");
}

struct subject {
    struct brig_engine *engine;
    bool pooled; /* filled after each measurement, or its refill would run beside the next */
};

static int refill(const struct subject *subject, struct brig_err *err)
{
    return subject->pooled ? brig_engine_fill(subject->engine, err) : 0;
}

/* Create, run, destroy; the time of all three. */
static int run_once(const struct subject *on, const char *const *argv, double *ret_us, struct brig_err *err)
{
    const struct brig_spec spec = {.size = sizeof(spec), .argv = argv};
    struct brig_run *run = NULL;
    double start = bench_now_us();
    int r = brig_run_start(on->engine, &spec, &run, err);
    if (r == 0)
        r = brig_run_wait(run, err);
    if (r == 0)
        r = bench_check(run, err);
    brig_run_destroy(run);
    *ret_us = bench_now_us() - start;
    return r < 0 ? r : refill(on, err);
}

int bench_library(struct bench *bench, struct brig_err *err)
{
    struct subject pooled = {NULL, true}, cold = {NULL, false};
    struct bench_samples from_pool = {0}, without = {0};
    int r = bench_engine(POOL, &pooled.engine, err);
    if (r == 0)
        r = bench_engine(0, &cold.engine, err);
    if (r == 0 && (bench_samples_init(&from_pool, bench->runs) < 0 || bench_samples_init(&without, bench->runs) < 0))
        r = err_nomem(err);
    bench_say("library: %llu runs of /bin/true, from the pool and without", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        unsigned order[2];
        bench_shuffle(bench, order, 2);
        for (size_t k = 0; r == 0 && k < 2; k++) {
            double us = 0;
            r = run_once(order[k] == 0 ? &pooled : &cold, true_argv, &us, err);
            bench_samples_add(order[k] == 0 ? &from_pool : &without, us);
        }
    }
    if (r == 0) {
        struct bench_row *row = bench_add_row(bench, "library, pooled", "us", &from_pool);
        if (row)
            row->bound = 2000;
        row = bench_add_row(bench, "library, pool off", "us", &without);
        if (row)
            row->bound = 4000;
    }
    bench_samples_done(&from_pool);
    bench_samples_done(&without);
    brig_engine_destroy(pooled.engine);
    brig_engine_destroy(cold.engine);
    return r;
}

static int burst_once(const struct subject *on, double *ret_us, struct brig_err *err)
{
    const struct brig_spec spec = {.size = sizeof(spec), .argv = true_argv};
    struct brig_run *runs[BURST] = {NULL};
    int r = 0;
    bench_nap(BURST_PAUSE_MS);
    double start = bench_now_us();
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = brig_run_start(on->engine, &spec, &runs[i], err);
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = brig_run_wait(runs[i], err);
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = bench_check(runs[i], err);
    for (size_t i = 0; i < BURST; i++)
        brig_run_destroy(runs[i]);
    *ret_us = bench_now_us() - start;
    return r < 0 ? r : refill(on, err);
}

static int burst_plain(double *ret_us, struct brig_err *err)
{
    bench_nap(BURST_PAUSE_MS);
    return bench_spawn_many(true_argv, BURST, ret_us) == 0
               ? 0
               : err_set(err, BRIG_E_HOST, 0, "100 plain /bin/true at once failed");
}

int bench_burst(struct bench *bench, struct brig_err *err)
{
    enum { POOLED, COLD, PLAIN, N };
    struct bench_samples samples[N] = {{0}};
    struct subject pooled = {NULL, true}, cold = {NULL, false};
    int r = bench_engine(BURST, &pooled.engine, err);
    if (r == 0)
        r = bench_engine(0, &cold.engine, err);
    for (size_t i = 0; r == 0 && i < N; i++)
        if (bench_samples_init(&samples[i], bench->runs) < 0)
            r = err_nomem(err);
    bench_say("burst: %llu times 100 at once", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        unsigned order[N];
        bench_shuffle(bench, order, N);
        for (size_t k = 0; r == 0 && k < N; k++) {
            double us = 0;
            r = order[k] == PLAIN ? burst_plain(&us, err) : burst_once(order[k] == POOLED ? &pooled : &cold, &us, err);
            bench_samples_add(&samples[order[k]], us);
        }
        if ((i + 1) % 50 == 0)
            bench_say("burst: %llu of %llu", (unsigned long long)i + 1, (unsigned long long)bench->runs);
    }
    if (r == 0) {
        struct bench_row *a = bench_add_row(bench, "100 at once, pooled", "us", &samples[POOLED]);
        struct bench_row *b = bench_add_row(bench, "100 at once, pool off", "us", &samples[COLD]);
        struct bench_row *c = bench_add_row(bench, "100 posix_spawn", "us", &samples[PLAIN]);
        bench_compare(a, c);
        bench_compare(b, c);
        if (a)
            a->bound = 2.0;
    }
    for (size_t i = 0; i < N; i++)
        bench_samples_done(&samples[i]);
    brig_engine_destroy(pooled.engine);
    brig_engine_destroy(cold.engine);
    return r;
}

int bench_python(struct bench *bench, struct brig_err *err)
{
    struct subject pooled = {NULL, true};
    struct bench_samples inside = {0}, outside = {0};
    if (access(python_argv[0], X_OK) < 0) {
        bench_skip(bench, "python3", "%s is not installed", python_argv[0]);
        return 0;
    }
    int r = bench_engine(POOL, &pooled.engine, err);
    if (r == 0 && (bench_samples_init(&inside, bench->runs) < 0 || bench_samples_init(&outside, bench->runs) < 0))
        r = err_nomem(err);
    bench_say("python: %llu runs of python3 -I -S -c pass, inside and outside", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        unsigned order[2];
        bench_shuffle(bench, order, 2);
        for (size_t k = 0; r == 0 && k < 2; k++) {
            double us = 0;
            if (order[k] == 0)
                r = run_once(&pooled, python_argv, &us, err);
            else if (bench_spawn(python_argv, &us) != 0)
                r = err_set(err, BRIG_E_HOST, 0, "python3 outside failed");
            bench_samples_add(order[k] == 0 ? &inside : &outside, us);
        }
    }
    if (r == 0) {
        struct bench_row *a = bench_add_row(bench, "python3, library", "us", &inside);
        struct bench_row *b = bench_add_row(bench, "python3, outside", "us", &outside);
        bench_compare(a, b);
        if (a)
            a->bound = 1.25;
    }
    bench_samples_done(&inside);
    bench_samples_done(&outside);
    brig_engine_destroy(pooled.engine);
    return r;
}
