/* SPDX-License-Identifier: Apache-2.0 */
/* approve.c: `brig approve` and `brig deny`: answers runs that wait for an approval; without a word it lists them. */
#include "base/str.h"
#include "cli/listing.h"

struct decide_options {
    const char *reason;
    struct listing_options list;
};
#define AT(field) offsetof(struct decide_options, field)

static const struct flag decide_flags[] = {
    {"reason", "TEXT", "for the receipt and the log", flag_set_text, AT(reason), 'r'},
    FLAG_QUIET("say nothing; of the list: only ids", AT(list.quiet)),
    {NULL, "FORMAT", "of the list: table (default) or json", flag_set_table, AT(list.json), 'o'},
};
static const struct flag_table approve_table = {.usage = "brig approve [--reason TEXT] [RUN-ID...]",
                                                .purpose =
                                                    "Lets runs go on that wait for a yes. Without an id: lists them.",
                                                FLAGS(decide_flags)};
static const struct flag_table deny_table = {.usage = "brig deny [--reason TEXT] RUN-ID...",
                                             .purpose = "Refuses runs that wait for a yes: nothing of them runs.",
                                             FLAGS(decide_flags)};

static const struct listing waiting = {
    .path = "/v1/approvals",
    .member = "approvals",
    .columns = {COLUMN("RUN", "run_id"), COLUMN("TOOL", "tool"), COLUMN("ASKED BY", "asked_by"),
                COLUMN(">AGE", "asked_at", .kind = COLUMN_AGE), COLUMN("*ARGUMENTS", "arguments", .most = 200)},
};

static int decide_main(int argc, char **argv)
{
    bool yes = str_eq(argv[0], "approve");
    struct decide_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf body = BUF_INIT(8192), target = BUF_INIT(4096);
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(yes ? &approve_table : &deny_table, argc, argv, &options, yes ? 0 : 1, -1, "RUN-ID", &rest,
                       &status))
        return status;
    if (rest == argc)
        return service_target(&target, waiting.path) ? listing_show(&waiting, &target, &options.list) : CLI_FAILED;
    json_object(&json);
    service_put_text(&json, "reason", options.reason);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("--reason: is not UTF-8, or too long");
    if (!service_open(&client))
        return CLI_FAILED;
    for (status = 0; rest < argc; rest++)
        if (!service_call(client, "POST", &body, NULL, "/v1/approvals/%s/%s", argv[rest], argv[0]) ||
            (!options.list.quiet && service_say("%s", argv[rest]) != 0))
            status = CLI_FAILED;
    return status;
}

const struct cli_verb cli_verb_approve = {"approve", "let waiting runs go on; without an id: list them",
                                          .main = decide_main};
const struct cli_verb cli_verb_deny = {"deny", "refuse waiting runs", .main = decide_main};
