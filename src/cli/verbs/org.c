/* SPDX-License-Identifier: Apache-2.0 */
/* org.c: `brig org create|ls|rm`: organisations, which see nothing of each other. Only the socket's administrator has
 * them. */
#include <string.h>

#include "cli/service.h"

static int org_main(int argc, char **argv);

const struct cli_verb cli_verb_org = {
    .name = "org",
    .summary = "organisations: create, ls, rm",
    .main = org_main,
};

struct org_options {
    bool json, quiet;
};

static const struct flag flags[] = {
    {"quiet", NULL, "print only ids; of rm: nothing", flag_set_true, offsetof(struct org_options, quiet), 'q'},
    {NULL, "FORMAT", "table (default) or json", flag_set_table, offsetof(struct org_options, json), 'o'},
};

static const struct flag_table create_table = {
    .usage = "brig org create [-q] [-o FORMAT] NAME",
    .purpose = "Makes an organisation and prints its id. Keys for it: brig key create --org ID.",
    .flags = flags,
    .n_flags = ARRAY_SIZE(flags),
};
static const struct flag_table ls_table = {
    .usage = "brig org ls [-q] [-o FORMAT]",
    .purpose = "Lists the organisations.",
    .flags = flags,
    .n_flags = ARRAY_SIZE(flags),
};
static const struct flag_table rm_table = {
    .usage = "brig org rm [-q] ID...",
    .purpose = "Removes organisations. Their keys are useless from then on.",
    .flags = flags,
    .n_flags = ARRAY_SIZE(flags),
};

static int create(int argc, char **argv)
{
    struct org_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(256), body = BUF_INIT(64 << 10);
    AUTO_DOC struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&create_table, argc, argv, &options, 1, 1, "name", &rest, &status))
        return status;
    json_object(&json);
    service_put_text(&json, "name", argv[rest]);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory");
    if (!service_open(&client) || !service_target(&target, "/v1/orgs") ||
        !service_ask(client, "POST", &target, &body, &doc))
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : service_say("%s", get_text(json_root(doc), "id", ""));
}

static int list(int argc, char **argv)
{
    static const char *const headers[] = {"ID", "*NAME", ">AGE"};
    struct org_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(256);
    AUTO_DOC struct json_doc *doc = NULL;
    AUTO_TABLE struct table table = {0};
    char age[SHOW_SIZE];
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_open(&client) || !service_target(&target, "/v1/orgs") ||
        !service_ask(client, "GET", &target, NULL, &doc))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    table_init(&table, headers, ARRAY_SIZE(headers));
    const struct json_value *orgs = json_get(json_root(doc), "orgs");
    for (const struct json_value *org = orgs ? orgs->first : NULL; org; org = org->next) {
        if (options.quiet && service_say("%s", get_text(org, "id", "")) != 0)
            return CLI_FAILED;
        table_cell(&table, "%s", get_text(org, "id", "-"));
        table_cell(&table, "%s", get_text(org, "name", "-"));
        table_cell(&table, "%s", show_age(age, get_text(org, "created_at", "")));
    }
    return options.quiet ? 0 : table_print(&table);
}

static int rm(int argc, char **argv)
{
    struct org_options options = {0};
    int rest, status;

    if (!service_parse(&rm_table, argc, argv, &options, 1, -1, "organisation", &rest, &status))
        return status;
    return service_delete_each("/v1/orgs/%s", argv + rest, options.quiet);
}

static int org_main(int argc, char **argv)
{
    static const struct cli_sub subs[] = {
        {"create", "make an organisation", create},
        {"ls", "list organisations", list},
        {"rm", "remove organisations", rm},
    };
    return cli_sub_main("org", subs, ARRAY_SIZE(subs), argc, argv);
}
