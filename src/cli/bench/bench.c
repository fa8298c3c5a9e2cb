/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c: `brig bench`: the numbers of docs/BENCHMARKS.md on this machine. Groups are independent: if one cannot be
 * measured here, it is skipped with its reason, and the others go on. The exit status is 0 when all that was measured
 * keeps its promise, 1 when something does not.
 */
#include <string.h>
#include <sys/utsname.h>

#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "cli/flags.h"
#include "codec/json/json.h"

static const struct flag bench_flags[] = {
    {"runs", "N", "runs of each (default 200)", flag_set_count, offsetof(struct bench, runs), 0},
    {"only", "GROUP", "standalone, library, burst, python, memory or throughput", flag_set_text,
     offsetof(struct bench, only), 0},
    {NULL, "FORMAT", "text (default) or json", flag_set_format, offsetof(struct bench, json), 'o'},
    {"loop", "NAME", NULL, flag_set_text, offsetof(struct bench, loop), 0},
};

static const struct flag_table bench_table = {
    .usage = "brig bench [--runs N] [--only GROUP] [-o FORMAT]",
    .purpose = "Measures sandboxes on this machine: p50, p95 and p99, and ratios from one run, interleaved.\n"
               "Peers that are not installed are skipped by name. Exit status: 1 when a promise is not kept.",
    FLAGS(bench_flags),
};

static const struct {
    const char *name;
    int (*measure)(struct bench *bench, struct brig_err *err);
} groups[] = {
    {"standalone", bench_standalone}, {"library", bench_library}, {"burst", bench_burst},
    {"python", bench_python},         {"memory", bench_memory},   {"throughput", bench_throughput},
};

static int put_text_row(struct buf *out, const struct bench_row *row)
{
    int digits = row->p50 < 100 ? 2 : 0;
    int r = buf_printf(out, "%-24s %12.*f %12.*f %12.*f  %-6s %5zu", row->name, digits, row->p50, digits, row->p95,
                       digits, row->p99, row->unit, row->n);
    if (r == 0 && row->against[0] != '\0')
        r = buf_printf(out, "  %5.2f x %s", row->ratio, row->against);
    if (r == 0 && row->bound > 0)
        r = buf_printf(out, "  (%s %g: %s)", row->at_least ? "at least" : "at most", row->bound,
                       bench_row_met(row) ? "kept" : "MISSED");
    return r < 0 ? r : buf_append(out, "\n", 1);
}

static int put_text(struct buf *out, const struct bench *bench)
{
    int r = buf_printf(out, "%-24s %12s %12s %12s  %-6s %5s\n", "", "p50", "p95", "p99", "unit", "runs");
    for (size_t i = 0; r == 0 && i < bench->n_rows; i++)
        r = put_text_row(out, &bench->rows[i]);
    for (size_t i = 0; r == 0 && i < bench->n_skips; i++)
        r = buf_printf(out, "%-24s skipped: %s\n", bench->skips[i].name, bench->skips[i].reason);
    return r;
}

static void put_number(struct json *json, const char *name, int digits, double value)
{
    char text[64];
    int len = snprintf(text, sizeof(text), "%.*f", digits, value);

    json_key_raw(json, name, text, (size_t)len);
}

static void put_json_row(struct json *json, const struct bench_row *row)
{
    json_object(json);
    json_key_string(json, "name", row->name);
    json_key_string(json, "unit", row->unit);
    json_key_u64(json, "runs", row->n);
    put_number(json, "p50", 3, row->p50);
    put_number(json, "p95", 3, row->p95);
    put_number(json, "p99", 3, row->p99);
    if (row->against[0] != '\0') {
        json_key_string(json, "against", row->against);
        put_number(json, "ratio", 4, row->ratio);
    }
    if (row->bound > 0) {
        put_number(json, row->at_least ? "at_least" : "at_most", 4, row->bound);
        json_key_bool(json, "kept", bench_row_met(row));
    }
    json_end(json);
}

static int put_json(struct buf *out, const struct bench *bench)
{
    struct json json = JSON_INIT(out);
    struct utsname host;

    if (uname(&host) < 0)
        return -errno;
    json_object(&json);
    json_key_string(&json, "version", brig_version());
    json_key_string(&json, "commit", brig_commit());
    json_key_string(&json, "kernel", host.release);
    json_key_i64(&json, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
    json_key_bool(&json, "root", geteuid() == 0);
    json_key_u64(&json, "runs", bench->runs);
    json_key_array(&json, "results");
    for (size_t i = 0; i < bench->n_rows; i++)
        put_json_row(&json, &bench->rows[i]);
    json_end(&json);
    json_key_array(&json, "skipped");
    for (size_t i = 0; i < bench->n_skips; i++) {
        json_object(&json);
        json_key_string(&json, "name", bench->skips[i].name);
        json_key_string(&json, "reason", bench->skips[i].reason);
        json_end(&json);
    }
    json_end(&json);
    json_end(&json);
    int r = json_finish(&json);
    return r < 0 ? r : buf_append(out, "\n", 1);
}

static bool is_group(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        if (strcmp(groups[i].name, name) == 0)
            return true;
    return false;
}

static void measure(struct bench *bench)
{
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        struct brig_err err = {0};
        if (bench->only && strcmp(bench->only, groups[i].name) != 0)
            continue;
        if (groups[i].measure(bench, &err) < 0)
            bench_skip(bench, groups[i].name, "%s", err.message);
    }
}

static int report(const struct bench *bench)
{
    struct buf out = BUF_INIT(256 << 10);
    int status = bench->n_rows > 0 ? 0 : CLI_FAILED;
    for (size_t i = 0; i < bench->n_rows; i++)
        if (bench->rows[i].bound > 0 && !bench_row_met(&bench->rows[i]))
            status = 1;
    int r = bench->json ? put_json(&out, bench) : put_text(&out, bench);
    status = r < 0 ? cli_error("bench: %s", strerror(-r)) : cli_print(&out, status);
    buf_done(&out);
    return status;
}

static int bench_main(int argc, char **argv)
{
    static struct bench bench = {.runs = 200};
    int status;
    if (!flags_only(&bench_table, argc, argv, &bench, "bench", &status))
        return status;
    if (bench.loop)
        return bench_loop_main(bench.loop);
    if (bench.only && !is_group(bench.only))
        return cli_error("--only %.80s: must be standalone, library, burst, python, memory or throughput", bench.only);
    if (bench.runs > 1000000)
        return cli_error("--runs %llu: at most 1000000", (unsigned long long)bench.runs);
    ssize_t n = readlink("/proc/self/exe", bench.self, sizeof(bench.self) - 1);
    if (n <= 0)
        return cli_error("/proc/self/exe: %s", strerror(errno));
    measure(&bench);
    return report(&bench);
}

const struct cli_verb cli_verb_bench = {"bench", "measure sandboxes on this machine, against their peers",
                                        .main = bench_main};
