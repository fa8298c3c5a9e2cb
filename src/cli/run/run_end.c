/* SPDX-License-Identifier: Apache-2.0 */
/* run_end.c: prints one line about the end of a run, local or remote, and what --net learn found out. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/run/run.h"
#include "cli/service.h"

/* "64 MiB", or the bytes where that would not be exact. */
static void show_size(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit + 1 < ARRAY_SIZE(units) && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 32, "%llu %s", (unsigned long long)bytes, units[unit]);
}

/* One line about what ended the run, or brig itself. */
void run_end_say(const struct brig_receipt *receipt, bool quiet)
{
    char size[32];
    const char *cause = brig_cause_name(receipt->cause);
    unsigned long long wall = receipt->usage.wall_ms, cpu = receipt->limits.cpu_time;
    bool failed = receipt->cause == BRIG_CAUSE_HOST_ERROR || receipt->cause == BRIG_CAUSE_SANDBOX_GONE ||
                  receipt->cause == BRIG_CAUSE_POLICY;
    if (failed || !receipt->started) { /* -q is about limits, not about failures */
        if (receipt->cause != BRIG_CAUSE_CANCELLED)
            cli_error("%s", receipt->detail[0] != '\0' ? receipt->detail : cause);
        return;
    }
    if (quiet)
        return;
    switch (receipt->cause) {
    case BRIG_CAUSE_TIMEOUT: cli_error("ended by %s after %llu.%llu s", cause, wall / 1000, wall % 1000 / 100); break;
    case BRIG_CAUSE_CPU_LIMIT:
        cli_error("ended by %s after %llu.%llu s of CPU time", cause, cpu / 1000, cpu % 1000 / 100);
        break;
    case BRIG_CAUSE_OUTPUT_LIMIT:
        show_size(size, receipt->limits.output);
        cli_error("ended by %s: more than %s of output", cause, size);
        break;
    case BRIG_CAUSE_OOM:
        show_size(size, receipt->limits.memory);
        if (receipt->detail[0]) /* memory that the limit does not count */
            cli_error("ended by %s: %s", cause, receipt->detail);
        else
            cli_error("ended by %s: more than %s of memory", cause, size);
        break;
    case BRIG_CAUSE_DISK_LIMIT:
        show_size(size, receipt->limits.disk);
        cli_error("ended by %s: the store of %s was full", cause, size);
        break;
    case BRIG_CAUSE_PIDS_LIMIT:
        cli_error("ended by %s: more than %llu processes", cause, (unsigned long long)receipt->limits.pids);
        break;
    case BRIG_CAUSE_CANCELLED: cli_error("cancelled"); break;
    default:
        if (receipt->truncated[BRIG_STDOUT] || receipt->truncated[BRIG_STDERR]) {
            show_size(size, receipt->limits.output);
            cli_error("output past %s was dropped", size);
        }
        break;
    }
}

/* On stderr, where the program's own output is not; indented, so that it can be kept as it is (--policy FILE). */
void run_end_learned(const char *json, size_t len)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    AUTO_JSON struct json_doc *doc = NULL;

    if (json_read(json, len, JSON_READ_VALUES, &doc, NULL) < 0 || json_print(json_root(doc), &text) < 0 ||
        buf_append(&text, "\n", 1) < 0)
        return;
    (void)!cli_write(STDERR_FILENO, text.data, text.len);
}
