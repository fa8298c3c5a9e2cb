/* SPDX-License-Identifier: Apache-2.0 */
/* config_reload.c: `brig config reload`: the daemon reads its configuration again; a bad one changes nothing. */
#include <string.h>

#include "cli/service.h"

struct reload_options {
    bool json;
};

static const struct flag reload_flags[] = {
    FLAG_TABLE(offsetof(struct reload_options, json)),
};

static const struct flag_table reload_table = {
    .usage = "brig config reload [-o FORMAT]",
    .purpose =
        "Makes the daemon read its configuration again. It is checked first, and swapped as a whole or not at all.\n"
        "Keys that need a restart are named.",
    FLAGS(reload_flags),
};

int cli_config_reload(int argc, char **argv)
{
    struct reload_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(256);
    AUTO_DOC struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&reload_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_open(&client) || !service_target(&target, "/v1/config/reload") ||
        !service_ask(client, "POST", &target, NULL, &doc))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const char *waiting = get_text(json_root(doc), "needs_restart", "");
    status = service_say("reloaded");
    if (status == 0 && *waiting != '\0')
        cli_error("these need a restart: %s", waiting);
    return status;
}
