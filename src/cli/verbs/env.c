/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.c: `brig env set|ls|rm|show`: variables that every run of a configuration, or of an agent, gets. Values are
 * sealed in the store and never listed; they come from stdin, a file or a variable. show says, for a run, which layer
 * each variable came from.
 */
#include <string.h>

#include "base/str.h"
#include "cli/listing.h"
#include "cli/secret_value.h"

struct env_options {
    struct value_source from;
    const char *agent, *type, *description;
    struct listing_options list;
};
#define AT(field) offsetof(struct env_options, field)
#define AGENT                                                                                   \
    {                                                                                           \
        "agent", "ID", "of this agent, instead of a configuration", flag_set_text, AT(agent), 0 \
    }
#define TYPE                                                                                                  \
    {                                                                                                         \
        "type", "TYPE", "of this configuration: local (default), e2b, modal, ...", flag_set_text, AT(type), 0 \
    }
#define QUIET(words) FLAG_QUIET(words, AT(list.quiet))

static const struct flag set_flags[] = {
    AGENT,
    TYPE,
    {"description", "TEXT", "for people", flag_set_text, AT(description), 0},
    {"from-env", "VAR", "the value is in this variable", flag_set_text, AT(from.variable), 0},
    {"from-file", "FILE", "the value is in this file (one newline at its end is cut)", flag_set_text, AT(from.file), 0},
    QUIET("say nothing"),
    FLAG_TABLE(AT(list.json))};
static const struct flag ls_flags[] = {AGENT, TYPE, QUIET("print only names"), FLAG_TABLE(AT(list.json))};
static const struct flag rm_flags[] = {AGENT, TYPE, QUIET("say nothing")};
static const struct flag show_flags[] = {FLAG_TABLE(AT(list.json))};

static const struct flag_table set_table = {
    .usage = "brig env set [--agent ID | --type TYPE] NAME [flags]",
    .purpose =
        "Sets a variable. The value is read from stdin unless a flag says otherwise; one newline at its end is cut.\n\n"
        "  printf %s \"$TOKEN\" | brig env set API_TOKEN",
    FLAGS(set_flags)};
static const struct flag_table ls_table = {.usage = "brig env ls [--agent ID | --type TYPE] [-q] [-o FORMAT]",
                                           .purpose = "Lists variables, without values.",
                                           FLAGS(ls_flags)};
static const struct flag_table rm_table = {
    .usage = "brig env rm [--agent ID | --type TYPE] [-q] NAME...", .purpose = "Removes variables.", FLAGS(rm_flags)};
static const struct flag_table show_table = {.usage = "brig env show [-o FORMAT] RUN-ID",
                                             .purpose = "Says which layer each variable of a run came from.",
                                             FLAGS(show_flags)};

/* The id of the configuration, which is made when it is not there yet. */
static bool find_config(struct client *client, const char *type, char id[64])
{
    AUTO_BUF struct buf body = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL, *made = NULL;
    struct json json = JSON_INIT(&body);

    if (!service_call(client, "GET", NULL, &doc, "/v1/sandbox-config/?sandbox_type=%s", type))
        return false;
    const struct json_value *config = json_root(doc)->first;
    if (!config) {
        json_object(&json);
        json_key_object(&json, "config");
        json_key_string(&json, "type", type);
        json_end(&json);
        json_end(&json);
        if (json_finish(&json) < 0 || !service_call(client, "POST", &body, &made, "/v1/sandbox-config/"))
            return false;
        config = json_root(made);
    }
    return str_copy(id, 64, get_text(config, "id", "")) == 0 || (cli_error("the daemon's answer has no id"), false);
}

/* ---- set ------------------------------------------------------------------------------------------------- */

static bool put_value(struct buf *body, const char *name, const struct env_options *options,
                      const struct secret_value *value)
{
    struct json json = JSON_INIT(body);

    if (buf_reserve(body, body->max - 1) < 0) { /* at once: growing would leave copies behind */
        cli_error("out of memory");
        return false;
    }
    json_object(&json);
    json_key_string(&json, "key", name);
    json_key(&json, "value"), json_string_n(&json, value->data, value->len);
    service_put_text(&json, "description", options->description);
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    return cli_error("%s: the value is not UTF-8 text", name), false;
}

static int send_value(const char *name, const struct env_options *options, const struct secret_value *value)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf body = BUF_INIT(SECRET_VALUE_BYTES * 6 + (64u << 10));
    AUTO_JSON struct json_doc *doc = NULL;
    char id[64] = "";
    int status = CLI_FAILED;

    if (put_value(&body, name, options, value) && service_open(&client)) {
        bool asked = options->agent ? service_call(client, "PUT", &body, &doc, "/v1/agents/%s/secrets", options->agent)
                                    : find_config(client, options->type, id) &&
                                          service_call(client, "POST", &body, &doc,
                                                       "/v1/sandbox-config/%s/environment-variable", id);
        if (asked)
            status = options->list.json ? service_print_json(doc) : options->list.quiet ? 0 : service_say("%s", name);
    }
    if (body.data)
        explicit_bzero(body.data, body.cap);
    return status;
}

static int set(int argc, char **argv)
{
    static struct secret_value value;
    struct env_options options = {.type = "local"};
    int rest, status;

    if (!service_parse(&set_table, argc, argv, &options, 1, -1, "NAME", &rest, &status))
        return status;
    if (argc > rest + 1)
        return cli_error(
            "a value is not taken from the command line, where every process can read it: use stdin, --from-file or "
            "--from-env");
    status =
        secret_value_read(&options.from, argv[rest], &value) ? send_value(argv[rest], &options, &value) : CLI_FAILED;
    explicit_bzero(&value, sizeof value);
    return status;
}

/* ---- ls, rm, show ---------------------------------------------------------------------------------------- */

/* Where the variables are: an array of objects with key and id. *ret_member: as in struct listing. */
static bool put_target(struct client *client, const struct env_options *options, struct buf *target,
                       const char **ret_member)
{
    char id[64];

    *ret_member = options->agent ? "secrets" : NULL;
    if (options->agent)
        return service_target(target, "/v1/agents/%s", options->agent);
    return find_config(client, options->type, id) &&
           service_target(target, "/v1/sandbox-config/%s/environment-variable", id);
}

static int list(int argc, char **argv)
{
    struct listing variables = {
        .alone = "variables",
        .columns = {COLUMN("NAME", "key"), COLUMN("ID", "id"), COLUMN("*DESCRIPTION", "description")},
    };
    struct env_options options = {.type = "local"};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf target = BUF_INIT(4096);
    int rest, status;

    if (!service_parse(&ls_table, argc, argv, &options, 0, 0, "", &rest, &status))
        return status;
    if (!service_open(&client) || !put_target(client, &options, &target, &variables.member))
        return CLI_FAILED;
    return listing_ask(&variables, client, &target, &options.list);
}

static bool remove_one(struct client *client, const struct env_options *options, const char *name)
{
    AUTO_BUF struct buf target = BUF_INIT(4096);
    AUTO_JSON struct json_doc *doc = NULL;
    const char *member;

    if (options->agent)
        return service_call(client, "DELETE", NULL, NULL, "/v1/agents/%s/secrets/%s", options->agent, name);
    if (!put_target(client, options, &target, &member) || !service_ask(client, target.data, &doc))
        return false;
    for (const struct json_value *one = json_root(doc)->first; one; one = one->next)
        if (str_eq(get_text(one, "key", ""), name))
            return service_call(client, "DELETE", NULL, NULL, "/v1/sandbox-config/environment-variable/%s",
                                get_text(one, "id", ""));
    return cli_error("no variable \"%s\"", name), false;
}

static int remove_variables(int argc, char **argv)
{
    struct env_options options = {.type = "local"};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    if (!service_parse(&rm_table, argc, argv, &options, 1, -1, "NAME", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    for (status = 0; rest < argc; rest++)
        if (!remove_one(client, &options, argv[rest]) || (!options.list.quiet && service_say("%s", argv[rest]) != 0))
            status = CLI_FAILED;
    return status;
}

static int show(int argc, char **argv)
{
    static const char *const headers[] = {"NAME", "LAYER"};
    struct env_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    AUTO_TABLE struct table table = {0};
    int rest, status;

    if (!service_parse(&show_table, argc, argv, &options, 1, 1, "RUN-ID", &rest, &status))
        return status;
    if (!service_call(NULL, "GET", NULL, &doc, "/v1/runs/%s", argv[rest]))
        return CLI_FAILED;
    const struct json_value *environment = json_get(json_root(doc), "environment");
    if (options.list.json)
        return environment ? service_print_value(environment)
                           : cli_error("%s: its receipt has no environment", argv[rest]);
    table_init(&table, headers, ARRAY_SIZE(headers));
    for (const struct json_value *one = environment ? environment->first : NULL; one; one = one->next) {
        table_cell(&table, "%s", one->key);
        table_cell(&table, "%s", one->type == JSON_STRING ? one->string : get_text(one, "layer", "-"));
    }
    return table_print(&table);
}

static const struct cli_verb subs[] = {
    {"set", "set a variable", .main = set},
    {"ls", "list variables", .main = list},
    {"rm", "remove variables", .main = remove_variables},
    {"show", "which layer a run's variables came from", .main = show},
};

const struct cli_verb cli_verb_env = {"env", "variables of runs: set, ls, rm, show", CLI_SUBS(subs)};
