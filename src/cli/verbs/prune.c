/* SPDX-License-Identifier: Apache-2.0 */
/* prune.c: `brig prune`: ends the sandboxes that nobody uses any more. */
#include <string.h>

#include "cli/service.h"

struct prune_options {
    bool json, force;
};

static const struct flag prune_flags[] = {
    {"force", NULL, "do not ask on a terminal", flag_set_true, offsetof(struct prune_options, force), 'f'},
    FLAG_TABLE(offsetof(struct prune_options, json)),
};

static const struct flag_table prune_table = {
    .usage = "brig prune [-f] [-o FORMAT]",
    .purpose = "Ends every paused sandbox, and applies the retention of receipts and certificates now.",
    FLAGS(prune_flags),
};

static bool is_sure(void)
{
    static const char question[] = "This ends every paused sandbox. Go on? [y/N] ";
    char answer[16];

    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return true;
    if (cli_write(STDERR_FILENO, question, strlen(question)) < 0)
        return false;
    ssize_t n = read(STDIN_FILENO, answer, sizeof(answer));
    return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

static int prune_main(int argc, char **argv)
{
    struct prune_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&prune_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    if (!options.force && !is_sure())
        return cli_error("nothing was ended");
    if (!service_call(client, "POST", NULL, &doc, "/v1/prune"))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    long long n = (long long)get_i64(json_root(doc), "sandboxes", 0);
    return service_say("%lld sandbox%s ended", n, n == 1 ? "" : "es");
}

const struct cli_verb cli_verb_prune = {"prune", "end paused sandboxes and drop what is past its retention",
                                        .main = prune_main};
