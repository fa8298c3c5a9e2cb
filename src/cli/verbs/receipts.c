/* SPDX-License-Identifier: Apache-2.0 */
/* receipts.c: `brig receipt ls|show|files`: shows what runs did, as the service has it until retention ends. */
#include <unistd.h>

#include "cli/listing.h"

struct receipt_options {
    const char *limit, *cause;
    struct listing_options list;
};
#define AT(field) offsetof(struct receipt_options, field)

static const struct flag ls_flags[] = {
    {"limit", "N", "at most so many (default 20)", flag_set_text, AT(limit), 'n'},
    {"cause", "CAUSE", "only those that ended so: exited, timeout, oom, ...", flag_set_text, AT(cause), 0},
    FLAG_QUIET("print only ids", AT(list.quiet)),
    FLAG_TABLE(AT(list.json)),
};
static const struct flag_table ls_table = {
    .usage = "brig receipt ls [flags]", .purpose = "Lists runs, newest first.", FLAGS(ls_flags)};
static const struct flag_table show_table = {
    .usage = "brig receipt show RUN-ID",
    .purpose = "Prints a receipt (docs/RECEIPT.md).",
};
static const struct flag_table files_table = {
    .usage = "brig receipt files RUN-ID > FILE.tar",
    .purpose = "Writes what a run left under /workspace/out, as a tar, to stdout.",
};

static const struct listing runs = {
    .member = "runs",
    .columns = {COLUMN("RUN", "id"), COLUMN("KIND", "kind"), COLUMN("TOOL", "name", .of = "tool"),
                COLUMN("CAUSE", "cause", .of = "outcome", .otherwise = "running"),
                COLUMN(">WALL", "wall_ms", .of = "usage", .kind = COLUMN_DURATION),
                COLUMN(">AGE", "started_at", .kind = COLUMN_AGE)},
};

static int list(int argc, char **argv)
{
    struct receipt_options options = {.limit = "20"};
    AUTO_BUF struct buf target = BUF_INIT(4096);
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_target(&target, options.cause ? "/v1/runs?limit=%s&cause=%s" : "/v1/runs?limit=%s", options.limit,
                        options.cause))
        return CLI_FAILED;
    return listing_show(&runs, &target, &options.list);
}

static int show(int argc, char **argv)
{
    struct receipt_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&show_table, argc, argv, &options, 1, 1, "RUN-ID", &rest, &status))
        return status;
    return service_call(NULL, "GET", NULL, &doc, "/v1/runs/%s", argv[rest]) ? service_print_json(doc) : CLI_FAILED;
}

static int write_out(void *ctx UNUSED, const void *data, size_t len, struct brig_err *err UNUSED)
{
    return cli_write(STDOUT_FILENO, data, len);
}

static int files(int argc, char **argv)
{
    struct receipt_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(4096);
    struct brig_err err = {0};
    int rest, status;

    if (!service_parse(&files_table, argc, argv, &options, 1, 1, "RUN-ID", &rest, &status))
        return status;
    if (isatty(STDOUT_FILENO))
        return cli_error("a tar is not for a terminal: brig receipt files %s > FILE.tar", argv[rest]);
    if (!service_open(&client) || !service_target(&target, "/v1/runs/%s/files", argv[rest]))
        return CLI_FAILED;
    const struct client_request request = {.method = "GET", .target = target.data, .data = write_out};
    return client_call(client, &request, &err) < 0
               ? cli_error("%s", err.message[0] ? err.message : "stdout: cannot be written")
               : 0;
}

static const struct cli_verb subs[] = {
    {"ls", "list runs", .main = list},
    {"show", "print a receipt", .main = show},
    {"files", "what a run left under /workspace/out", .main = files},
};

const struct cli_verb cli_verb_receipt = {"receipt", "receipts of runs: ls, show, files", CLI_SUBS(subs)};
