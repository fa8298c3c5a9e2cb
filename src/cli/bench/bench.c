/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.c: `brig bench`: the numbers of docs/BENCHMARKS.md on this machine. Groups are independent: one that
 * cannot be measured here becomes a skip with its reason, and the others go on. The exit status is 0 when all
 * that was measured keeps its promise, 1 when something does not.
 */
#include <string.h>
#include <sys/utsname.h>

#include "base/err.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "cli/flags.h"

static int bench_main(int argc, char **argv);

const struct cli_verb cli_verb_bench = {
    .name = "bench",
    .summary = "measure sandboxes on this machine, against their peers",
    .main = bench_main,
};

static const struct flag bench_flags[] = {
    {.name = "runs",
     .value = "N",
     .help = "runs of each (default 200)",
     .apply = flag_set_count,
     .field = offsetof(struct bench, runs)},
    {.name = "only",
     .value = "GROUP",
     .help = "standalone, library, burst, python, memory or throughput",
     .apply = flag_set_text,
     .field = offsetof(struct bench, only)},
    {.letter = 'o',
     .value = "FORMAT",
     .help = "text (default) or json",
     .apply = flag_set_format,
     .field = offsetof(struct bench, json)},
    {.name = "loop", .value = "NAME", .apply = flag_set_text, .field = offsetof(struct bench, loop)},
};

static const struct flag_table bench_table = {
    .usage = "brig bench [--runs N] [--only GROUP] [-o FORMAT]",
    .purpose = "Measures sandboxes on this machine: p50, p95 and p99, and ratios from one run, interleaved.\n"
               "Peers that are not installed are skipped by name. Exit status: 1 when a promise is not kept.",
    .flags = bench_flags,
    .n_flags = ARRAY_SIZE(bench_flags),
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

static int put_json_row(struct buf *out, const struct bench_row *row)
{
    int r = buf_append_str(out, "{\"name\":");
    if (r == 0)
        r = cli_json_string(out, row->name);
    if (r == 0)
        r = buf_printf(out, ",\"unit\":\"%s\",\"runs\":%zu,\"p50\":%.3f,\"p95\":%.3f,\"p99\":%.3f", row->unit, row->n,
                       row->p50, row->p95, row->p99);
    if (r == 0 && row->against[0] != '\0') {
        r = buf_append_str(out, ",\"against\":");
        if (r == 0)
            r = cli_json_string(out, row->against);
        if (r == 0)
            r = buf_printf(out, ",\"ratio\":%.4f", row->ratio);
    }
    if (r == 0 && row->bound > 0)
        r = buf_printf(out, ",\"%s\":%g,\"kept\":%s", row->at_least ? "at_least" : "at_most", row->bound,
                       bench_row_met(row) ? "true" : "false");
    return r < 0 ? r : buf_append(out, "}", 1);
}

static int put_json_head(struct buf *out, const struct bench *bench)
{
    struct utsname host;
    if (uname(&host) < 0)
        return -errno;
    int r = buf_append_str(out, "{\"version\":");
    if (r == 0)
        r = cli_json_string(out, brig_version());
    if (r == 0)
        r = buf_append_str(out, ",\"commit\":");
    if (r == 0)
        r = cli_json_string(out, brig_commit());
    if (r == 0)
        r = buf_append_str(out, ",\"kernel\":");
    if (r == 0)
        r = cli_json_string(out, host.release);
    return r < 0
               ? r
               : buf_printf(out, ",\"cpus\":%ld,\"root\":%s,\"runs\":%llu,\"results\":[", sysconf(_SC_NPROCESSORS_ONLN),
                            geteuid() == 0 ? "true" : "false", (unsigned long long)bench->runs);
}

static int put_json(struct buf *out, const struct bench *bench)
{
    int r = put_json_head(out, bench);
    for (size_t i = 0; r == 0 && i < bench->n_rows; i++) {
        r = i > 0 ? buf_append(out, ",", 1) : 0;
        if (r == 0)
            r = put_json_row(out, &bench->rows[i]);
    }
    if (r == 0)
        r = buf_append_str(out, "],\"skipped\":[");
    for (size_t i = 0; r == 0 && i < bench->n_skips; i++) {
        r = buf_printf(out, "%s{\"name\":", i > 0 ? "," : "");
        if (r == 0)
            r = cli_json_string(out, bench->skips[i].name);
        if (r == 0)
            r = buf_append_str(out, ",\"reason\":");
        if (r == 0)
            r = cli_json_string(out, bench->skips[i].reason);
        if (r == 0)
            r = buf_append(out, "}", 1);
    }
    return r < 0 ? r : buf_append_str(out, "]}\n");
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
    struct brig_err err;
    int rest = 1;
    int r = flags_parse(&bench_table, argc, argv, &bench, &rest, &err);
    if (r < 0)
        return cli_error("%s", err.message);
    if (r == FLAGS_HELP)
        return flags_help(&bench_table);
    if (rest < argc)
        return cli_error("%.80s: bench takes no arguments", argv[rest]);
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
