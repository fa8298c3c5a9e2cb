/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.c: `brig agent add|ls|show|rm|attach|detach`: the agents for which tools run: their variables, their state, and
 * the tools that they may use.
 */

#include "base/str.h"
#include "cli/listing.h"

struct agent_options {
    const char *state;
    bool json, quiet;
};
#define AT(field) offsetof(struct agent_options, field)

static const struct flag add_flags[] = {
    {"state", "FILE", "its state as JSON, such as {\"memory\": {\"blocks\": [...]}}; - is stdin", flag_set_text,
     AT(state), 0},
    FLAG_QUIET("print only the id", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag_table add_table = {.usage = "brig agent add [--state FILE] NAME",
                                            .purpose =
                                                "Makes an agent. Its variables are set with `brig env set --agent`.",
                                            FLAGS(add_flags)};
static const struct flag_table show_table = {
    .usage = "brig agent show ID",
    .purpose = "Prints an agent, without values of its variables.",
};
static const struct removal removal = {
    .words = {"brig agent rm [-q] ID...", "Removes agents.", FLAGS(listing_rm)},
    .word = "agent",
    .path = "/v1/agents/%s",
};
static const struct flag_table attach_table = {
    .usage = "brig agent attach|detach AGENT-ID TOOL",
    .purpose = "Gives an agent a tool (its name or id), or takes it away.",
};

static bool make_agent(const char *name, const struct agent_options *options, struct buf *body)
{
    AUTO_BUF struct buf state = BUF_INIT((size_t)2 << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(body);
    struct brig_err err;

    if (options->state && !service_read_file(options->state, &state))
        return false;
    if (options->state && json_read(state.data ? state.data : "", state.len, JSON_READ_VALUES, &doc, &err) < 0)
        return cli_error("%s: %s", options->state, err.message), false;
    json_object(&json);
    json_key_string(&json, "name", name);
    if (doc)
        json_key_raw(&json, "state", json_root(doc)->raw, json_root(doc)->raw_len);
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    return cli_error("%s: is not UTF-8, or too large", name), false;
}

static int add(int argc, char **argv)
{
    struct agent_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(8u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&add_table, argc, argv, &options, 1, 1, "NAME", &rest, &status))
        return status;
    if (!make_agent(argv[rest], &options, &body) || !service_call(NULL, "POST", &body, &doc, "/v1/agents/"))
        return CLI_FAILED;
    return options.json ? service_print_json(doc) : service_say("%s", get_text(json_root(doc), "id", ""));
}

static const struct listing agents = {
    .words = {"brig agent ls [-q] [-o FORMAT]", "Lists agents.", listing_ids, ARRAY_SIZE(listing_ids), 0},
    .path = "/v1/agents/?limit=1000&order=asc",
    .columns = {COLUMN("ID", "id"), COLUMN("*NAME", "name"), COLUMN(">TOOLS", "tools", .kind = COLUMN_COUNT)},
};

static int show(int argc, char **argv)
{
    struct agent_options options = {0};
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&show_table, argc, argv, &options, 1, 1, "agent", &rest, &status))
        return status;
    return service_call(NULL, "GET", NULL, &doc, "/v1/agents/%s", argv[rest]) ? service_print_json(doc) : CLI_FAILED;
}

/* The route takes ids only; people know names. */
static bool tool_id(struct client *client, const char *word, struct json_doc **ret, const char **ret_id)
{
    *ret_id = word;
    if (str_starts(word, "tool-"))
        return true;
    if (!service_call(client, "GET", NULL, ret, "/v1/tools/?name=%s&limit=1", word))
        return false;
    *ret_id = get_text(json_root(*ret)->first, "id", "");
    if (**ret_id)
        return true;
    return cli_error("no tool \"%s\"", word), false;
}

/* And detach: the verb is also the word in the path. */
static int attach(int argc, char **argv)
{
    struct agent_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_JSON struct json_doc *doc = NULL, *found = NULL;
    const char *tool;
    int rest, status;

    if (!service_parse(&attach_table, argc, argv, &options, 2, 2, "AGENT-ID and TOOL", &rest, &status))
        return status;
    if (!service_open(&client) || !tool_id(client, argv[rest + 1], &found, &tool) ||
        !service_call(client, "PATCH", NULL, &doc, "/v1/agents/%s/tools/%s/%s", argv[rest], argv[0], tool))
        return CLI_FAILED;
    return service_say("%s", argv[rest]);
}

static const struct cli_verb subs[] = {
    {"add", "make an agent", .main = add},        {"ls", "list agents", .list = &agents},
    {"show", "print an agent", .main = show},     {"rm", "remove agents", .remove = &removal},
    {"attach", "give it a tool", .main = attach}, {"detach", "take a tool away", .main = attach},
};

const struct cli_verb cli_verb_agent = {"agent", "agents: add, ls, show, rm, attach, detach", CLI_SUBS(subs)};
