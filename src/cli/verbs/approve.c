/* SPDX-License-Identifier: Apache-2.0 */
/* approve.c: `brig approve` and `brig deny`: a yes or a no to runs that wait for one; without a word: which those are.
 */
#include "base/str.h"
#include "cli/service.h"

static int decide_main(int argc, char **argv);

const struct cli_verb cli_verb_approve = {
    .name = "approve", .summary = "let waiting runs go on; without an id: list them", .main = decide_main};
const struct cli_verb cli_verb_deny = {.name = "deny", .summary = "refuse waiting runs", .main = decide_main};

struct decide_options {
    const char *reason;
    bool json, quiet;
};
#define AT(field) offsetof(struct decide_options, field)

static const struct flag decide_flags[] = {
    {"reason", "TEXT", "for the receipt and the log", flag_set_text, AT(reason), 'r'},
    {"quiet", NULL, "say nothing; of the list: only ids", flag_set_true, AT(quiet), 'q'},
    {NULL, "FORMAT", "of the list: table (default) or json", flag_set_table, AT(json), 'o'},
};
static const struct flag_table approve_table = {.usage = "brig approve [--reason TEXT] [RUN-ID...]",
                                                .purpose =
                                                    "Lets runs go on that wait for a yes. Without an id: lists them.",
                                                .flags = decide_flags,
                                                .n_flags = ARRAY_SIZE(decide_flags)};
static const struct flag_table deny_table = {.usage = "brig deny [--reason TEXT] RUN-ID...",
                                             .purpose = "Refuses runs that wait for a yes: nothing of them runs.",
                                             .flags = decide_flags,
                                             .n_flags = ARRAY_SIZE(decide_flags)};

static int list(const struct decide_options *options)
{
    static const char *const headers[] = {"RUN", "TOOL", "ASKED BY", ">AGE", "*ARGUMENTS"};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(64);
    AUTO_DOC struct json_doc *doc = NULL;
    AUTO_TABLE struct table table = {0};
    char age[SHOW_SIZE];

    if (!service_open(&client) || !service_target(&target, "/v1/approvals") ||
        !service_ask(client, "GET", &target, NULL, &doc))
        return CLI_FAILED;
    if (options->json)
        return service_print_json(doc);
    const struct json_value *approvals = json_get(json_root(doc), "approvals");
    table_init(&table, headers, ARRAY_SIZE(headers));
    for (const struct json_value *one = approvals ? approvals->first : NULL; one; one = one->next) {
        const struct json_value *args = json_get(one, "arguments");
        if (options->quiet) {
            if (service_say("%s", get_text(one, "run_id", "")) != 0)
                return CLI_FAILED;
            continue;
        }
        table_cell(&table, "%s", get_text(one, "run_id", get_text(one, "id", "-")));
        table_cell(&table, "%s", get_text(one, "tool", "-"));
        table_cell(&table, "%s", get_text(one, "asked_by", "-"));
        table_cell(&table, "%s", show_age(age, get_text(one, "asked_at", "")));
        table_cell(&table, "%.200s", args && args->type == JSON_STRING ? args->string : "-");
    }
    return options->quiet ? 0 : table_print(&table);
}

static int decide_main(int argc, char **argv)
{
    bool yes = str_eq(argv[0], "approve");
    struct decide_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf body = BUF_INIT(8192);
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(yes ? &approve_table : &deny_table, argc, argv, &options, yes ? 0 : 1, -1, "RUN-ID", &rest,
                       &status))
        return status;
    if (rest == argc)
        return list(&options);
    json_object(&json);
    service_put_text(&json, "reason", options.reason);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("--reason: is not UTF-8, or too long");
    if (!service_open(&client))
        return CLI_FAILED;
    for (status = 0; rest < argc; rest++) {
        AUTO_BUF struct buf target = BUF_INIT(4096);
        if (!service_target(&target, yes ? "/v1/approvals/%s/approve" : "/v1/approvals/%s/deny", argv[rest]) ||
            !service_ask(client, "POST", &target, &body, NULL) ||
            (!options.quiet && service_say("%s", argv[rest]) != 0))
            status = CLI_FAILED;
    }
    return status;
}
