/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect.c: `brig inspect`: prints all that the daemon knows about a sandbox, one of its processes, or how it ended.
 */
#include <string.h>

#include "cli/service.h"

struct inspect_options {
    bool json;
};

static const struct flag inspect_flags[] = {
    {NULL, "FORMAT", "json (there is no other)", flag_set_table, offsetof(struct inspect_options, json), 'o'},
};

static const struct flag_table inspect_table = {
    .usage = "brig inspect SANDBOX|RUN...",
    .purpose =
        "Prints a sandbox as JSON: limits, protection, metadata. For a sandbox that has ended, its death certificate;\n"
        "for run-..., the receipt of that run.\n\n"
        "  brig inspect build | jq .protection",
    FLAGS(inspect_flags),
};

/* 0, or the error of the sandbox itself: that of its certificate would confuse. */
static int find(struct client *client, const char *id, struct json_doc **ret, struct brig_err *err)
{
    struct brig_err ignored;
    bool run = strncmp(id, "run-", 4) == 0;
    int r = service_try(client, "GET", NULL, ret, err, run ? "/v1/runs/%s" : "/v1/sandboxes/%s", id);

    if (r < 0 && client_status(client) == 404 && !run)
        r = service_try(client, "GET", NULL, ret, &ignored, "/v1/certificates/%s", id) == 0 ? 0 : r;
    return r;
}

static int inspect_main(int argc, char **argv)
{
    struct inspect_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    if (!service_parse(&inspect_table, argc, argv, &options, 1, -1, "sandbox", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    status = 0;
    for (int i = rest; i < argc; i++) {
        AUTO_JSON struct json_doc *doc = NULL;
        struct brig_err err = {0};
        if (find(client, argv[i], &doc, &err) < 0)
            status = cli_error("%s", err.message);
        else if (doc && service_print_json(doc) != 0)
            return CLI_FAILED;
    }
    return status;
}

const struct cli_verb cli_verb_inspect = {"inspect", "all about a sandbox, a run or a death certificate, as JSON",
                                          .main = inspect_main};
