/* SPDX-License-Identifier: Apache-2.0 */
/* top.c: `brig top`: the processes that were started in a sandbox, with the numbers by which other verbs know them. */
#include <string.h>

#include "cli/service.h"

static int top_main(int argc, char **argv);

const struct cli_verb cli_verb_top = {
    .name = "top",
    .summary = "processes of a sandbox",
    .main = top_main,
};

struct top_options {
    bool json, quiet, all;
};

static const struct flag top_flags[] = {
    {"all", NULL, "those that have ended, too", flag_set_true, offsetof(struct top_options, all), 'a'},
    {"quiet", NULL, "print only their numbers", flag_set_true, offsetof(struct top_options, quiet), 'q'},
    {NULL, "FORMAT", "table (default) or json", flag_set_table, offsetof(struct top_options, json), 'o'},
};

static const struct flag_table top_table = {
    .usage = "brig top [-a] [-q] [-o FORMAT] SANDBOX",
    .purpose = "Lists what was started in the sandbox by exec, shell or the API, each with its number.\n"
               "What those started in turn is seen from inside: brig exec SANDBOX ps.",
    .flags = top_flags,
    .n_flags = ARRAY_SIZE(top_flags),
};

static int put_command(struct buf *out, const struct json_value *argv)
{
    int r = 0;

    out->len = 0;
    for (const struct json_value *word = argv ? argv->first : NULL; r == 0 && word; word = word->next) {
        if (word->type != JSON_STRING)
            continue;
        r = out->len > 0 ? buf_append(out, " ", 1) : 0;
        if (r == 0)
            r = buf_append(out, word->string, word->len);
    }
    return r;
}

static void put_state(struct table *table, const struct json_value *process)
{
    const struct json_value *outcome = json_get(process, "outcome");
    const char *cause = get_text(outcome, "cause", "ended");
    int64_t code = get_i64(outcome, "exit_code", -1), signum = get_i64(outcome, "signal", -1);

    if (get_bool(process, "running"))
        table_cell(table, "running");
    else if (signum > 0)
        table_cell(table, "%s %lld", cause, (long long)signum);
    else if (code >= 0)
        table_cell(table, "%s %lld", cause, (long long)code);
    else
        table_cell(table, "%s", cause);
}

static int show(const struct top_options *options, const struct json_value *list)
{
    static const char *const headers[] = {">NUMBER", ">PID", "STATE", "TTY", ">AGE", "*COMMAND"};
    AUTO_TABLE struct table table = {0};
    AUTO_BUF struct buf command = BUF_INIT(4 << 20);
    char age[SHOW_SIZE];

    table_init(&table, headers, ARRAY_SIZE(headers));
    for (const struct json_value *process = list ? list->first : NULL; process; process = process->next) {
        long long number = (long long)get_i64(process, "number", 0);
        if (!options->all && !get_bool(process, "running"))
            continue;
        if (options->quiet) {
            if (service_say("%lld", number) != 0)
                return CLI_FAILED;
            continue;
        }
        if (put_command(&command, json_get(process, "argv")) < 0)
            return cli_error("out of memory");
        table_cell(&table, "%lld", number);
        table_cell(&table, "%lld", (long long)get_i64(process, "pid", 0));
        put_state(&table, process);
        table_cell(&table, "%s", get_bool(process, "tty") ? "yes" : "-");
        table_cell(&table, "%s", show_age(age, get_text(process, "started_at", "")));
        table_cell(&table, "%s", command.len > 0 ? command.data : "");
    }
    return options->quiet ? 0 : table_print(&table);
}

static int top_main(int argc, char **argv)
{
    struct top_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(4096);
    AUTO_DOC struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&top_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        return status;
    if (!service_open(&client) || !service_target(&target, "/v1/sandboxes/%s/processes", argv[rest]) ||
        !service_ask(client, "GET", &target, NULL, &doc))
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : show(&options, json_get(json_root(doc), "processes"));
}
