/* SPDX-License-Identifier: Apache-2.0 */
/* key.c: `brig key create|ls|revoke`: API keys. The daemon keeps only a hash: what create prints is never seen again.
 */
#include <string.h>

#include "base/str.h"
#include "cli/service.h"

static int key_main(int argc, char **argv);

const struct cli_verb cli_verb_key = {
    .name = "key",
    .summary = "API keys: create, ls, revoke",
    .main = key_main,
};

struct key_options {
    const char *name, *org, *role, *expires;
    bool json, quiet, all, metrics;
};

#define AT(field) offsetof(struct key_options, field)
#define FORMAT                                                                   \
    {                                                                            \
        NULL, "FORMAT", "table (default) or json", flag_set_table, AT(json), 'o' \
    }

static const struct flag create_flags[] = {
    {"name", "NAME", "what it is for", flag_set_text, AT(name), 0},
    {"org", "ORG", "organisation (default: the first one)", flag_set_text, AT(org), 0},
    {"role", "ROLE", "admin, user (default) or read-only", flag_set_text, AT(role), 0},
    {"expires", "TIME", "such as 12h or 90d (default: never)", flag_set_text, AT(expires), 0},
    {"metrics", NULL, "/metrics shows it the whole service (made on the socket only)", flag_set_true, AT(metrics), 0},
    {"quiet", NULL, "print only the key", flag_set_true, AT(quiet), 'q'},
    FORMAT,
};
static const struct flag ls_flags[] = {
    {"all", NULL, "revoked and expired ones, too", flag_set_true, AT(all), 'a'},
    {"quiet", NULL, "print only ids", flag_set_true, AT(quiet), 'q'},
    FORMAT,
};
static const struct flag revoke_flags[] = {
    {"quiet", NULL, "say nothing", flag_set_true, AT(quiet), 'q'},
};

static const struct flag_table create_table = {
    .usage = "brig key create [flags]",
    .purpose = "Makes a key and prints it: the only time it can be seen.\n\n"
               "  export BRIG_API_KEY=$(brig key create -q --name ci --expires 90d)",
    .flags = create_flags,
    .n_flags = ARRAY_SIZE(create_flags),
};
static const struct flag_table ls_table = {
    .usage = "brig key ls [-a] [-q] [-o FORMAT]",
    .purpose =
        "Lists keys. The keys themselves are not kept: only their hashes, and the last four characters (-o json).",
    .flags = ls_flags,
    .n_flags = ARRAY_SIZE(ls_flags),
};
static const struct flag_table revoke_table = {
    .usage = "brig key revoke [-q] ID...",
    .purpose = "Makes keys useless, from the next request on.",
    .flags = revoke_flags,
    .n_flags = ARRAY_SIZE(revoke_flags),
};

static int create(int argc, char **argv)
{
    struct key_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(256), body = BUF_INIT(64 << 10);
    AUTO_DOC struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&create_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    json_object(&json);
    service_put_text(&json, "name", options.name);
    service_put_text(&json, "org", options.org);
    service_put_text(&json, "role", options.role);
    service_put_text(&json, "expires", options.expires);
    if (options.metrics)
        json_key(&json, "metrics"), json_bool(&json, true);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("out of memory");
    if (!service_open(&client) || !service_target(&target, "/v1/keys") ||
        !service_ask(client, "POST", &target, &body, &doc))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const struct json_value *key = json_root(doc);
    status = service_say("%s", get_text(key, "key", ""));
    if (status == 0 && !options.quiet)
        cli_error("this is key %s, and the only time it is shown", get_text(key, "id", "-"));
    return status;
}

/* Where all are of one organisation, which is most places, it needs no column. */
static bool of_several_orgs(const struct json_value *keys)
{
    for (const struct json_value *key = keys ? keys->first : NULL; key; key = key->next)
        if (!str_eq(get_text(key, "org", ""), get_text(keys->first, "org", "")))
            return true;
    return false;
}

static void put_row(struct table *table, const struct json_value *key, bool with_org)
{
    char created[SHOW_SIZE], left[SHOW_SIZE];

    table_cell(table, "%s", get_text(key, "id", "-"));
    table_cell(table, "%s", get_text(key, "name", "-"));
    table_cell(table, "%s", get_text(key, "role", "-"));
    table_cell(table, "%s", show_age(created, get_text(key, "created_at", "")));
    if (*get_text(key, "revoked_at", "") != '\0')
        table_cell(table, "revoked");
    else
        table_cell(table, "%s", show_until(left, get_text(key, "expires_at", "")));
    if (with_org)
        table_cell(table, "%s", get_text(key, "org", "-"));
}

static int list(int argc, char **argv)
{
    static const char *const headers[] = {"ID", "*NAME", "ROLE", ">AGE", ">LEFT", "*ORGANISATION"};
    struct key_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(256);
    AUTO_DOC struct json_doc *doc = NULL;
    AUTO_TABLE struct table table = {0};
    char left[SHOW_SIZE];
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_open(&client) || !service_target(&target, "/v1/keys") ||
        !service_ask(client, "GET", &target, NULL, &doc))
        return CLI_FAILED;
    if (options.json)
        return service_print_json(doc);
    const struct json_value *keys = json_get(json_root(doc), "keys");
    bool with_org = of_several_orgs(keys);
    table_init(&table, headers, ARRAY_SIZE(headers) - !with_org);
    for (const struct json_value *key = keys ? keys->first : NULL; key; key = key->next) {
        bool useless = *get_text(key, "revoked_at", "") != '\0' ||
                       str_eq(show_until(left, get_text(key, "expires_at", "")), "past");
        if (useless && !options.all)
            continue;
        if (!options.quiet)
            put_row(&table, key, with_org);
        else if (service_say("%s", get_text(key, "id", "")) != 0)
            return CLI_FAILED;
    }
    return options.quiet ? 0 : table_print(&table);
}

static int revoke_keys(int argc, char **argv)
{
    struct key_options options = {0};
    int rest, status;

    if (!service_parse(&revoke_table, argc, argv, &options, 1, -1, "key", &rest, &status))
        return status;
    return service_delete_each("/v1/keys/%s", argv + rest, options.quiet);
}

static int key_main(int argc, char **argv)
{
    static const struct cli_sub subs[] = {
        {"create", "make a key and print it", create},
        {"ls", "list keys", list},
        {"revoke", "make keys useless", revoke_keys},
    };
    return cli_sub_main("key", subs, ARRAY_SIZE(subs), argc, argv);
}
