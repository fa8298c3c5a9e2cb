/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_stats.c: turns samples into percentiles (nearest rank), rows and ratios, and decides the order of measurements.
 * It makes no averages, because one outlier would change them. Percentiles count from the good end, so that p99 is the
 * bad one for speeds too: 99 of 100 runs were at least that fast.
 */
#include <stdarg.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"

int bench_samples_init(struct bench_samples *samples, size_t cap)
{
    *samples = (struct bench_samples){.values = calloc(cap, sizeof(double)), .cap = cap};
    return samples->values ? 0 : -ENOMEM;
}

void bench_samples_add(struct bench_samples *samples, double value)
{
    if (samples->n < samples->cap)
        samples->values[samples->n++] = value;
}

void bench_samples_done(struct bench_samples *samples)
{
    free(samples->values);
    *samples = (struct bench_samples){0};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_speed(const void *a, const void *b)
{
    return by_value(b, a);
}

static double percentile(const struct bench_samples *samples, unsigned percent)
{
    size_t rank = (samples->n * percent + 99) / 100;
    return samples->values[rank > 0 ? rank - 1 : 0];
}

struct bench_row *bench_add_row(struct bench *bench, const char *name, const char *unit, struct bench_samples *samples)
{
    if (samples->n == 0 || bench->n_rows == BENCH_ROWS)
        return NULL;
    qsort(samples->values, samples->n, sizeof(double), strcmp(unit, "ops/s") == 0 ? by_speed : by_value);
    struct bench_row *row = &bench->rows[bench->n_rows++];
    *row = (struct bench_row){.unit = unit,
                              .n = samples->n,
                              .p50 = percentile(samples, 50),
                              .p95 = percentile(samples, 95),
                              .p99 = percentile(samples, 99)};
    str_cut(row->name, sizeof(row->name), name);
    return row;
}

void bench_compare(struct bench_row *row, const struct bench_row *with)
{
    if (!row || !with)
        return;
    str_assign(row->against, with->name);
    row->ratio = with->p50 > 0 ? row->p50 / with->p50 : 0;
}

bool bench_row_met(const struct bench_row *row)
{
    double value = row->against[0] != '\0' ? row->ratio : row->p50;
    return row->at_least ? value >= row->bound : value <= row->bound;
}

void bench_shuffle(struct bench *bench, unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; i > 1; i--) {
        uint64_t x = bench->random != 0 ? bench->random : 88172645463325252u; /* xorshift64: the same in every run */
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bench->random = x;
        unsigned k = (unsigned)((x >> 32) % i), last = order[i - 1];
        order[i - 1] = order[k];
        order[k] = last;
    }
}

static void add_rows(struct bench *bench, const struct bench_turns *turns, struct bench_samples *samples)
{
    struct bench_row *rows[ARRAY_SIZE(turns->sides)] = {NULL};
    for (size_t i = 0; i < turns->n; i++)
        rows[i] = bench_add_row(bench, turns->sides[i].name, turns->unit, &samples[i]);
    for (size_t i = 0; i < turns->n; i++) {
        const struct bench_side *side = &turns->sides[i];
        if (side->against > 0)
            bench_compare(rows[i], rows[side->against - 1]);
        if (rows[i]) {
            rows[i]->bound = side->bound;
            rows[i]->at_least = side->at_least;
        }
    }
}

int bench_take_turns(struct bench *bench, const struct bench_turns *turns, struct brig_err *err)
{
    struct bench_samples samples[ARRAY_SIZE(turns->sides)] = {{0}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < turns->n; i++)
        r = bench_samples_init(&samples[i], bench->runs) < 0 ? err_nomem(err) : 0;
    for (uint64_t turn = 1; r == 0 && turn <= bench->runs; turn++) {
        unsigned order[ARRAY_SIZE(turns->sides)];
        bench_shuffle(bench, order, (unsigned)turns->n);
        for (size_t k = 0; r == 0 && k < turns->n; k++) {
            const struct bench_side *side = &turns->sides[order[k]];
            double value = 0;
            r = side->measure(side->ctx, &value, err);
            bench_samples_add(&samples[order[k]], value);
        }
        if (turns->progress && turn % 50 == 0)
            bench_say("%s: %llu of %llu", turns->progress, (unsigned long long)turn, (unsigned long long)bench->runs);
    }
    if (r == 0)
        add_rows(bench, turns, samples);
    for (size_t i = 0; i < turns->n; i++)
        bench_samples_done(&samples[i]);
    return r;
}

void bench_nap(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)RETRY(nanosleep(&ts, &ts));
}

void bench_say(const char *format, ...)
{
    char line[512] = "bench: ";
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line + n, sizeof(line) - n - 1, format, args);
    va_end(args);
    if (len < 0)
        return;
    n = strlen(line);
    line[n++] = '\n';
    if (cli_write(STDERR_FILENO, line, n) < 0)
        return; /* progress only */
}

void bench_skip(struct bench *bench, const char *name, const char *format, ...)
{
    if (bench->n_skips == BENCH_SKIPS)
        return;
    struct bench_skip *skip = &bench->skips[bench->n_skips++];
    str_cut(skip->name, sizeof(skip->name), name);
    va_list args;
    va_start(args, format);
    vsnprintf(skip->reason, sizeof(skip->reason), format, args);
    va_end(args);
    bench_say("%s skipped: %s", skip->name, skip->reason);
}
