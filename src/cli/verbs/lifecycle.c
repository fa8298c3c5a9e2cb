/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifecycle.c: `brig pause`, `resume`, `stop` and `rm`: one request per sandbox, in order. If one fails, the others are
 * still asked; the exit status says that one failed.
 */
#include <string.h>

#include "cli/service.h"

struct options {
    bool json, quiet, force;
};

#define QUIET FLAG_QUIET("say nothing", offsetof(struct options, quiet))

static const struct flag change_flags[] = {QUIET, FLAG_TABLE(offsetof(struct options, json))};
static const struct flag rm_flags[] = {
    {"force", NULL, "one that is not there is no error", flag_set_true, offsetof(struct options, force), 'f'},
    QUIET,
};

static const struct action {
    const char *verb;
    struct flag_table words;
} actions[] = {
    {"pause",
     {"brig pause [-q] SANDBOX...",
      "Freezes every process of the sandboxes. They use no CPU until brig resume; memory and files stay as they are.",
      FLAGS(change_flags)}},
    {"resume", {"brig resume [-q] SANDBOX...", "Lets paused sandboxes go on where they were.", FLAGS(change_flags)}},
    {"stop",
     {"brig stop [-q] [-o FORMAT] SANDBOX...",
      "Ends the sandboxes with everything in them, and says how each ended and what it used last.\n\n"
      "  brig stop -o json build",
      FLAGS(change_flags)}},
    {"rm",
     {"brig rm [-f] [-q] SANDBOX...",
      "Ends the sandboxes with everything in them. Running or paused makes no difference.\n\n"
      "  brig rm build\n"
      "  brig rm -f $(brig ps -q)",
      FLAGS(rm_flags)}},
};

static int say_certificate(const struct json_value *certificate, const char *id)
{
    const char *cause = get_text(certificate, "cause", get_text(certificate, "why", "stopped"));
    return service_say("%s  %s", get_text(certificate, "id", get_text(certificate, "sandbox_id", id)), cause);
}

/* All are a POST to the action of the verb's name, but rm, which is a DELETE. */
static int each_main(int argc, char **argv)
{
    const struct action *action = actions;
    struct options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    while (strcmp(action->verb, argv[0]) != 0)
        action++;
    const bool rm = strcmp(argv[0], "rm") == 0, stop = strcmp(argv[0], "stop") == 0;
    if (!service_parse(&action->words, argc, argv, &options, 1, -1, "sandbox", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    status = 0;
    for (int i = rest; i < argc; i++) {
        AUTO_JSON struct json_doc *doc = NULL;
        struct brig_err err = {0};
        int r = rm ? service_try(client, "DELETE", NULL, &doc, &err, "/v1/sandboxes/%s", argv[i])
                   : service_try(client, "POST", NULL, &doc, &err, "/v1/sandboxes/%s/%s", argv[i], argv[0]);
        if (r < 0 && options.force && client_status(client) == 404)
            continue;
        if (r < 0) {
            status = cli_error("%s", err.message);
        } else if (options.json && doc) {
            status = service_print_json(doc) != 0 ? CLI_FAILED : status;
        } else if (!options.quiet) {
            int said = stop && doc ? say_certificate(json_root(doc), argv[i]) : service_say("%s", argv[i]);
            status = said != 0 ? said : status;
        }
    }
    return status;
}

const struct cli_verb cli_verb_pause = {"pause", "freeze sandboxes; memory and files stay", .main = each_main};
const struct cli_verb cli_verb_resume = {"resume", "let paused sandboxes go on", .main = each_main};
const struct cli_verb cli_verb_stop = {"stop", "end sandboxes and say how each ended", .main = each_main};
const struct cli_verb cli_verb_rm = {"rm", "end and remove sandboxes", .main = each_main};
