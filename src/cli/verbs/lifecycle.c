/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifecycle.c: `brig pause`, `resume`, `stop` and `rm`: one request per sandbox, in order. If one fails, the others are
 * still asked; the exit status says that one failed.
 */
#include <string.h>

#include "cli/service.h"

static int pause_main(int argc, char **argv);
static int resume_main(int argc, char **argv);
static int stop_main(int argc, char **argv);
static int rm_main(int argc, char **argv);

const struct cli_verb cli_verb_pause = {
    .name = "pause", .summary = "freeze sandboxes; memory and files stay", .main = pause_main};
const struct cli_verb cli_verb_resume = {
    .name = "resume", .summary = "let paused sandboxes go on", .main = resume_main};
const struct cli_verb cli_verb_stop = {
    .name = "stop", .summary = "end sandboxes and say how each ended", .main = stop_main};
const struct cli_verb cli_verb_rm = {.name = "rm", .summary = "end and remove sandboxes", .main = rm_main};

struct options {
    bool json, quiet, force;
};

#define QUIET                                                                             \
    {                                                                                     \
        "quiet", NULL, "say nothing", flag_set_true, offsetof(struct options, quiet), 'q' \
    }

static const struct flag change_flags[] = {QUIET, FLAG_TABLE(offsetof(struct options, json))};
static const struct flag rm_flags[] = {
    {"force", NULL, "one that is not there is no error", flag_set_true, offsetof(struct options, force), 'f'},
    QUIET,
};

static const struct flag_table pause_table = {
    .usage = "brig pause [-q] SANDBOX...",
    .purpose =
        "Freezes every process of the sandboxes. They use no CPU until brig resume; memory and files stay as they are.",
    FLAGS(change_flags),
};
static const struct flag_table resume_table = {
    .usage = "brig resume [-q] SANDBOX...",
    .purpose = "Lets paused sandboxes go on where they were.",
    FLAGS(change_flags),
};
static const struct flag_table stop_table = {
    .usage = "brig stop [-q] [-o FORMAT] SANDBOX...",
    .purpose = "Ends the sandboxes with everything in them, and says how each ended and what it used last.\n\n"
               "  brig stop -o json build",
    FLAGS(change_flags),
};
static const struct flag_table rm_table = {
    .usage = "brig rm [-f] [-q] SANDBOX...",
    .purpose = "Ends the sandboxes with everything in them. Running or paused makes no difference.\n\n"
               "  brig rm build\n"
               "  brig rm -f $(brig ps -q)",
    FLAGS(rm_flags),
};

static int say_certificate(const struct json_value *certificate, const char *id)
{
    const char *cause = get_text(certificate, "cause", get_text(certificate, "why", "stopped"));
    return service_say("%s  %s", get_text(certificate, "id", get_text(certificate, "sandbox_id", id)), cause);
}

/* method NULL: POST to the action. */
static int each(const struct flag_table *table, const char *action, int argc, char **argv)
{
    struct options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    if (!service_parse(table, argc, argv, &options, 1, -1, "sandbox", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    status = 0;
    for (int i = rest; i < argc; i++) {
        AUTO_BUF struct buf target = BUF_INIT(64 << 10);
        AUTO_DOC struct json_doc *doc = NULL;
        struct brig_err err = {0};
        if (!service_target(&target, action ? "/v1/sandboxes/%s/" : "/v1/sandboxes/%s", argv[i]) ||
            (action && buf_append_str(&target, action) < 0))
            return CLI_FAILED;
        if (service_try(client, action ? "POST" : "DELETE", &target, NULL, &doc, &err) < 0) {
            if (options.force && client_status(client) == 404)
                continue;
            status = cli_error("%s", err.message);
        } else if (options.json && doc) {
            status = service_print_json(doc) != 0 ? CLI_FAILED : status;
        } else if (!options.quiet) {
            int said = action && strcmp(action, "stop") == 0 && doc ? say_certificate(json_root(doc), argv[i])
                                                                    : service_say("%s", argv[i]);
            status = said != 0 ? said : status;
        }
    }
    return status;
}

static int pause_main(int argc, char **argv)
{
    return each(&pause_table, "pause", argc, argv);
}

static int resume_main(int argc, char **argv)
{
    return each(&resume_table, "resume", argc, argv);
}

static int stop_main(int argc, char **argv)
{
    return each(&stop_table, "stop", argc, argv);
}

static int rm_main(int argc, char **argv)
{
    return each(&rm_table, NULL, argc, argv);
}
