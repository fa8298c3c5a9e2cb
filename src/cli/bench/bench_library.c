/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_library.c: measures what an embedder pays with a running engine: one run at a time from the pool and without
 * it, a hundred at once, and an interpreter. A measured run is create, run and destroy. Refilling the pool in between
 * is not measured, because real callers do not wait for it.
 */

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
    const char *const *argv;
    bool pooled; /* filled after each measurement, or its refill would run beside the next */
};

static int refill(const struct subject *subject, struct brig_err *err)
{
    return subject->pooled ? brig_engine_fill(subject->engine, err) : 0;
}

/* Create, run, destroy; the time of all three. */
static int run_once(const void *subject, double *ret_us, struct brig_err *err)
{
    const struct subject *on = subject;
    const struct brig_spec spec = {.size = sizeof(spec), .argv = on->argv};
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

/* With the engines of both subjects, for as long as it takes. */
static int with_engines(struct bench *bench, struct subject *pooled, unsigned pool, struct subject *cold,
                        const struct bench_turns *turns, struct brig_err *err)
{
    int r = bench_engine(pool, &pooled->engine, err);
    if (r == 0 && cold)
        r = bench_engine(0, &cold->engine, err);
    if (r == 0)
        r = bench_take_turns(bench, turns, err);
    brig_engine_destroy(pooled->engine);
    brig_engine_destroy(cold ? cold->engine : NULL);
    return r;
}

int bench_library(struct bench *bench, struct brig_err *err)
{
    struct subject pooled = {NULL, true_argv, true}, cold = {NULL, true_argv, false};
    const struct bench_turns turns = {.unit = "us",
                                      .n = 2,
                                      .sides = {{"library, pooled", run_once, &pooled, .bound = 2000},
                                                {"library, pool off", run_once, &cold, .bound = 4000}}};
    bench_say("library: %llu runs of /bin/true, from the pool and without", (unsigned long long)bench->runs);
    return with_engines(bench, &pooled, POOL, &cold, &turns, err);
}

static int burst_once(const void *subject, double *ret_us, struct brig_err *err)
{
    const struct subject *on = subject;
    const struct brig_spec spec = {.size = sizeof(spec), .argv = on->argv};
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

static int burst_plain(const void *ctx UNUSED, double *ret_us, struct brig_err *err)
{
    bench_nap(BURST_PAUSE_MS);
    return bench_spawn_many(true_argv, BURST, ret_us) == 0
               ? 0
               : err_set(err, BRIG_E_HOST, 0, "100 plain /bin/true at once failed");
}

int bench_burst(struct bench *bench, struct brig_err *err)
{
    struct subject pooled = {NULL, true_argv, true}, cold = {NULL, true_argv, false};
    const struct bench_turns turns = {
        .unit = "us",
        .progress = "burst",
        .n = 3,
        .sides = {{"100 at once, pooled", burst_once, &pooled, .against = 3, .bound = 2.0},
                  {"100 at once, pool off", burst_once, &cold, .against = 3},
                  {.name = "100 posix_spawn", .measure = burst_plain}}};
    bench_say("burst: %llu times 100 at once", (unsigned long long)bench->runs);
    return with_engines(bench, &pooled, BURST, &cold, &turns, err);
}

static int python_outside(const void *ctx UNUSED, double *ret_us, struct brig_err *err)
{
    return bench_spawn(python_argv, ret_us) == 0 ? 0 : err_set(err, BRIG_E_HOST, 0, "python3 outside failed");
}

int bench_python(struct bench *bench, struct brig_err *err)
{
    struct subject pooled = {NULL, python_argv, true};
    const struct bench_turns turns = {.unit = "us",
                                      .n = 2,
                                      .sides = {{"python3, library", run_once, &pooled, .against = 2, .bound = 1.25},
                                                {.name = "python3, outside", .measure = python_outside}}};
    if (access(python_argv[0], X_OK) < 0) {
        bench_skip(bench, "python3", "%s is not installed", python_argv[0]);
        return 0;
    }
    bench_say("python: %llu runs of python3 -I -S -c pass, inside and outside", (unsigned long long)bench->runs);
    return with_engines(bench, &pooled, POOL, NULL, &turns, err);
}
