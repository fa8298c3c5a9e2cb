/* SPDX-License-Identifier: Apache-2.0 */
/*
 * org.c: `brig org create|ls|rm`: manages organisations, which see nothing of each other. Only the administrator on the
 * socket may use it.
 */

#include "cli/listing.h"

static const struct flag flags[] = {
    FLAG_QUIET("print only ids; of rm: nothing", offsetof(struct listing_options, quiet)),
    FLAG_TABLE(offsetof(struct listing_options, json)),
};

static const struct flag_table create_table = {
    .usage = "brig org create [-q] [-o FORMAT] NAME",
    .purpose = "Makes an organisation and prints its id. Keys for it: brig key create --org ID.",
    FLAGS(flags),
};
static const struct removal removal = {
    .words = {"brig org rm [-q] ID...", "Removes organisations. Their keys are useless from then on.", FLAGS(flags)},
    .word = "organisation",
    .path = "/v1/orgs/%s",
};

static int create(int argc, char **argv)
{
    struct listing_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(64 << 10);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&create_table, argc, argv, &options, 1, 1, "name", &rest, &status))
        return status;
    json_object(&json);
    service_put_text(&json, "name", argv[rest]);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory");
    if (!service_call(NULL, "POST", &body, &doc, "/v1/orgs"))
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : service_say("%s", get_text(json_root(doc), "id", ""));
}

static const struct listing orgs = {
    .words = {"brig org ls [-q] [-o FORMAT]", "Lists the organisations.", flags, ARRAY_SIZE(flags), 0},
    .path = "/v1/orgs",
    .member = "orgs",
    .columns = {COLUMN("ID", "id"), COLUMN("*NAME", "name"), COLUMN(">AGE", "created_at", .kind = COLUMN_AGE)},
};

static const struct cli_verb subs[] = {
    {"create", "make an organisation", .main = create},
    {"ls", "list organisations", .list = &orgs},
    {"rm", "remove organisations", .remove = &removal},
};

const struct cli_verb cli_verb_org = {"org", "organisations: create, ls, rm", CLI_SUBS(subs)};
