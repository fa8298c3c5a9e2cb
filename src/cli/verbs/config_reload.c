/* SPDX-License-Identifier: Apache-2.0 */
/* config_reload.c: `brig config reload`: the daemon reads its configuration again; a bad one changes nothing. */

#include "cli/listing.h"

static const struct flag_table reload_table = {
    .usage = "brig config reload [-o FORMAT]",
    .purpose =
        "Makes the daemon read its configuration again. It is checked first, and swapped as a whole or not at all.\n"
        "Keys that need a restart are named.",
    .flags = listing_names + 1,
    .n_flags = 1,
};

int cli_config_reload(int argc, char **argv)
{
    struct listing_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&reload_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_call(NULL, "POST", NULL, &doc, "/v1/config/reload"))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const char *waiting = get_text(json_root(doc), "needs_restart", "");
    status = service_say("reloaded");
    if (status == 0 && *waiting != '\0')
        cli_error("these need a restart: %s", waiting);
    return status;
}
