/* SPDX-License-Identifier: Apache-2.0 */
/* cli_services.c: `brig service ls|start|stop|restart`: the programs that brig-init keeps running in a sandbox. */
#include <string.h>

#include "cli/listing.h"

static int put_detail(struct buf *out, const struct json_value *row)
{
    const char *detail = get_text(row, "detail", ""), *ready = get_text(row, "ready", "");

    return buf_append_str(out, *detail ? detail : *ready ? ready : "-");
}

static const struct listing services = {
    .words = {"brig service ls [-o FORMAT] SANDBOX",
              "Lists the services of a sandbox in the order in which they start.", listing_names + 1, 1, 0},
    .path = "/v1/sandboxes/%s/services",
    .word = "sandbox",
    .member = "services",
    .columns = {COLUMN("NAME", "name"), COLUMN("STATE", "state"), COLUMN(">PID", "pid", .kind = COLUMN_NUMBER),
                COLUMN(">RESTARTS", "restarts", .kind = COLUMN_NUMBER), COLUMN(">SINCE", "since", .kind = COLUMN_AGE),
                COLUMN("*DETAIL", "detail", .put = put_detail)},
};

struct control_options {
    bool quiet;
};
static const struct flag control_flags[] = {
    FLAG_QUIET("say nothing", offsetof(struct control_options, quiet)),
};

/* argv[0] is the verb, which is the last part of the path, too. */
static int control(int argc, char **argv, const struct flag_table *table)
{
    struct control_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    const char *what = argv[0];
    int rest, status;

    if (!service_parse(table, argc, argv, &options, 2, INT32_MAX, "sandbox and service", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    status = 0;
    for (int i = rest + 1; i < argc; i++) {
        AUTO_JSON struct json_doc *doc = NULL;
        AUTO_BUF struct buf target = BUF_INIT(64 << 10);
        struct brig_err err = {0};

        if (!service_target(&target, "/v1/sandboxes/%s/services/%s/%s", argv[rest], argv[i], what))
            return CLI_FAILED;
        /* The answer comes when it is up or has ended, for which it has a time of its own. */
        const struct client_request request = {
            .method = "POST", .target = target.data, .timeout_ms = CLIENT_NO_TIMEOUT};
        if (client_json(client, &request, &doc, &err) < 0)
            status = cli_error("%s", err.message);
        else if (doc && !options.quiet)
            status |= service_say("%s %s", argv[i], get_text(json_root(doc), "state", "-"));
    }
    return status;
}

static const struct flag_table start_table = {
    .usage = "brig service start [-q] SANDBOX SERVICE...",
    .purpose = "Starts services, and waits until each is up.",
    FLAGS(control_flags),
};
static const struct flag_table stop_table = {
    .usage = "brig service stop [-q] SANDBOX SERVICE...",
    .purpose = "Ends services: SIGTERM, then SIGKILL to everything that they have started.",
    FLAGS(control_flags),
};
static const struct flag_table restart_table = {
    .usage = "brig service restart [-q] SANDBOX SERVICE...",
    .purpose = "Ends services, starts them again, and waits until each is up.",
    FLAGS(control_flags),
};

static int start_main(int argc, char **argv)
{
    return control(argc, argv, &start_table);
}

static int stop_main(int argc, char **argv)
{
    return control(argc, argv, &stop_table);
}

static int restart_main(int argc, char **argv)
{
    return control(argc, argv, &restart_table);
}

static const struct cli_verb subs[] = {
    {"ls", "list the services of a sandbox", .list = &services},
    {"start", "start services", .main = start_main},
    {"stop", "end services", .main = stop_main},
    {"restart", "end services and start them again", .main = restart_main},
};

const struct cli_verb cli_verb_service = {"service", "services of a sandbox: ls, start, stop, restart", CLI_SUBS(subs)};
