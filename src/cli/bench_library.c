/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_library.c: what an embedder pays with the engine up: one run at a time from the pool and without it, a
 * hundred at once, and an interpreter. A measured run is create, run, destroy; refilling the pool in between
 * is not measured, as it is not waited for in life.
 */
#include <string.h>

#include "base/err.h"
#include "cli/bench.h"

#define BURST 100
#define POOL 8

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

/* Create, run, destroy; the time of all three. */
static int run_once(struct brig_engine *engine, const char *const *argv, double *ret_us, struct brig_err *err)
{
    const struct brig_spec spec = {.size = sizeof(spec), .argv = argv};
    struct brig_run *run = NULL;
    double start = bench_now_us();
    int r = brig_run_start(engine, &spec, &run, err);
    if (r == 0)
        r = brig_run_wait(run, err);
    if (r == 0)
        r = bench_check(run, err);
    brig_run_destroy(run);
    *ret_us = bench_now_us() - start;
    return r;
}

int bench_library(struct bench *bench, struct brig_err *err)
{
    struct brig_engine *pooled = NULL, *cold = NULL;
    struct bench_samples from_pool = {0}, without = {0};
    int r = bench_engine(POOL, &pooled, err);
    if (r == 0)
        r = bench_engine(0, &cold, err);
    if (r == 0 && (bench_samples_init(&from_pool, bench->runs) < 0 || bench_samples_init(&without, bench->runs) < 0))
        r = err_nomem(err);
    bench_say("library: %llu runs of /bin/true, from the pool and without", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        double a = 0, b = 0;
        r = brig_engine_fill(pooled, err);
        if (r == 0)
            r = run_once(pooled, true_argv, &a, err);
        if (r == 0)
            r = brig_engine_fill(pooled, err); /* or its refill would run beside the other's measurement */
        if (r == 0)
            r = run_once(cold, true_argv, &b, err);
        bench_samples_add(&from_pool, a);
        bench_samples_add(&without, b);
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
    brig_engine_destroy(pooled);
    brig_engine_destroy(cold);
    return r;
}

static int burst_once(struct brig_engine *engine, double *ret_us, struct brig_err *err)
{
    const struct brig_spec spec = {.size = sizeof(spec), .argv = true_argv};
    struct brig_run *runs[BURST] = {NULL};
    int r = 0;
    double start = bench_now_us();
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = brig_run_start(engine, &spec, &runs[i], err);
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = brig_run_wait(runs[i], err);
    for (size_t i = 0; r == 0 && i < BURST; i++)
        r = bench_check(runs[i], err);
    for (size_t i = 0; i < BURST; i++)
        brig_run_destroy(runs[i]);
    *ret_us = bench_now_us() - start;
    return r;
}

int bench_burst(struct bench *bench, struct brig_err *err)
{
    enum { POOLED, COLD, PLAIN, N };
    struct bench_samples samples[N] = {{0}};
    struct brig_engine *pooled = NULL, *cold = NULL;
    int r = bench_engine(BURST, &pooled, err);
    if (r == 0)
        r = bench_engine(0, &cold, err);
    for (size_t i = 0; r == 0 && i < N; i++)
        if (bench_samples_init(&samples[i], bench->runs) < 0)
            r = err_nomem(err);
    bench_say("burst: %llu times 100 at once", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        double us[N] = {0};
        r = brig_engine_fill(pooled, err);
        if (r == 0)
            r = burst_once(pooled, &us[POOLED], err);
        if (r == 0)
            r = brig_engine_fill(pooled, err);
        if (r == 0)
            r = burst_once(cold, &us[COLD], err);
        if (r == 0 && bench_spawn_many(true_argv, BURST, &us[PLAIN]) != 0)
            r = err_set(err, BRIG_E_HOST, 0, "100 plain /bin/true at once failed");
        for (size_t k = 0; k < N; k++)
            bench_samples_add(&samples[k], us[k]);
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
    brig_engine_destroy(pooled);
    brig_engine_destroy(cold);
    return r;
}

int bench_python(struct bench *bench, struct brig_err *err)
{
    struct brig_engine *engine = NULL;
    struct bench_samples inside = {0}, outside = {0};
    if (access(python_argv[0], X_OK) < 0) {
        bench_skip(bench, "python3", "%s is not installed", python_argv[0]);
        return 0;
    }
    int r = bench_engine(POOL, &engine, err);
    if (r == 0 && (bench_samples_init(&inside, bench->runs) < 0 || bench_samples_init(&outside, bench->runs) < 0))
        r = err_nomem(err);
    bench_say("python: %llu runs of python3 -I -S -c pass, inside and outside", (unsigned long long)bench->runs);
    for (uint64_t i = 0; r == 0 && i < bench->runs; i++) {
        double a = 0, b = 0;
        r = brig_engine_fill(engine, err);
        if (r == 0)
            r = run_once(engine, python_argv, &a, err);
        if (r == 0)
            r = brig_engine_fill(engine, err);
        if (r == 0 && bench_spawn(python_argv, &b) != 0)
            r = err_set(err, BRIG_E_HOST, 0, "python3 outside failed");
        bench_samples_add(&inside, a);
        bench_samples_add(&outside, b);
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
    brig_engine_destroy(engine);
    return r;
}
