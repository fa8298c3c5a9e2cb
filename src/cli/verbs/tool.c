/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.c: `brig tool add|ls|show|run|rm|schema`: manages the tools of an organisation. Sources go to the daemon as they
 * are; it finds the parameters of a Python function in a sandbox.
 */
#include "cli/verbs/tool.h"

#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/escape.h"
#include "cli/listing.h"

struct tool_options {
    const char *schema, *description, *network;
    struct words pip, npm, tags;
    bool json, quiet, approval;
};
#define AT(field) offsetof(struct tool_options, field)

static const struct flag add_flags[] = {
    {"schema", "FILE",
     "its JSON Schema (name, description, parameters); default: from the Python function and its docstring",
     flag_set_text, AT(schema), 0},
    {"description", "TEXT", "for those who choose tools", flag_set_text, AT(description), 0},
    {"pip", "REQUIREMENT", "a Python package, such as requests==2.31.0; repeatable", flag_add_word, AT(pip), 0},
    {"npm", "REQUIREMENT", "a Node package; repeatable", flag_add_word, AT(npm), 0},
    {"tag", "TAG", "repeatable", flag_add_word, AT(tags), 0},
    {"network", "POLICY", "network policy of its runs (default none)", flag_set_text, AT(network), 0},
    {"approval", NULL, "every run waits for `brig approve`", flag_set_true, AT(approval), 0},
    FLAG_QUIET("print only the id", AT(quiet)),
    FLAG_TABLE(AT(json)),
};
static const struct flag show_flags[] = {
    {NULL, "FORMAT", "json: the whole object", flag_set_table, AT(json), 'o'},
};

static const struct flag_table add_table = {
    .usage = "brig tool add [flags] FILE",
    .purpose =
        "Registers the tool in a file, or replaces the one of that name: its next version. The language is the file's: "
        ".py, .ts, .js, .sh.\n"
        "All but Python needs --schema.",
    FLAGS(add_flags),
};
static const struct flag_table show_table = {.usage = "brig tool show [-o json] NAME",
                                             .purpose = "Prints a tool's source; with -o json all there is.",
                                             FLAGS(show_flags)};
static const struct flag_table rm_table = {
    .usage = "brig tool rm [-q] NAME...", .purpose = "Removes tools. Receipts of their runs stay.", FLAGS(listing_rm)};
static const struct flag_table schema_table = {
    .usage = "brig tool schema FILE",
    .purpose = "Prints the JSON Schema of a Python function, as registering it would find it.",
};

/* ---- words ---------------------------------------------------------------------------------------------- */

static const struct {
    const char *end, *language;
} languages[] = {{".py", "python"},     {".ts", "typescript"},  {".mts", "typescript"},
                 {".js", "javascript"}, {".mjs", "javascript"}, {".sh", "bash"}};

static const char *language_of(const char *file)
{
    size_t len = strlen(file);

    for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
        size_t n = strlen(languages[i].end);
        if (len > n && str_eq(file + len - n, languages[i].end))
            return languages[i].language;
    }
    return NULL;
}

bool tool_is_file(const char *word)
{
    return strchr(word, '/') || language_of(word);
}

const char *tool_language_of(const char *file)
{
    const char *language = language_of(file);

    if (!language)
        cli_error("%s: a tool's file ends in .py, .ts, .js or .sh", file);
    return language;
}

/* The tool of this name, or with this id, as the daemon has it. */
static bool find_tool(struct client *client, const char *word, struct json_doc **ret)
{
    if (str_starts(word, "tool-") && strlen(word) == 41)
        return service_call(client, "GET", NULL, ret, "/v1/tools/%s", word);
    if (!service_call(client, "GET", NULL, ret, "/v1/tools/?name=%s&limit=1", word))
        return false;
    if (json_root(*ret)->count == 1)
        return true;
    return cli_error("no tool \"%s\"", word), false;
}

static const struct json_value *the_tool(const struct json_doc *doc)
{
    const struct json_value *root = json_root(doc);

    return root->type == JSON_ARRAY ? root->first : root;
}

/* ---- add ------------------------------------------------------------------------------------------------ */

/* {"name": "requests", "version": "2.31.0"} of requests==2.31.0, lodash@4 */
static void put_requirements(struct json *json, const char *key, const struct words *words, const char *separator)
{
    if (words->n == 0)
        return;
    json_key_array(json, key);
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->items[i], *at = strstr(word + 1, separator);
        json_object(json);
        json_key(json, "name"), json_string_n(json, word, at ? (size_t)(at - word) : strlen(word));
        if (at)
            json_key_string(json, "version", at + strlen(separator));
        json_end(json);
    }
    json_end(json);
}

static bool make_tool(const char *file, const struct tool_options *options, struct buf *body)
{
    AUTO_BUF struct buf source = BUF_INIT(TOOL_SOURCE_LIMIT + 65536), schema = BUF_INIT(TOOL_SOURCE_LIMIT + 65536);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(body);
    struct brig_err err;
    const char *language = tool_language_of(file);

    if (language && !str_eq(language, "python") && !options->schema)
        return cli_error("%s: what a tool in %s takes must be said: --schema FILE", file, language), false;
    if (!language || !service_read_file(file, &source) ||
        (options->schema && !service_read_file(options->schema, &schema)))
        return false;
    if (options->schema && json_read(schema.data ? schema.data : "", schema.len, JSON_READ_VALUES, &doc, &err) < 0)
        return cli_error("%s: %s", options->schema, err.message), false;
    json_object(&json);
    json_key(&json, "source_code"), json_string_n(&json, source.data ? source.data : "", source.len);
    json_key_string(&json, "source_type", language);
    if (options->schema)
        json_key_raw(&json, "json_schema", json_root(doc)->raw, json_root(doc)->raw_len);
    service_put_text(&json, "description", options->description);
    put_requirements(&json, "pip_requirements", &options->pip, "==");
    put_requirements(&json, "npm_requirements", &options->npm, "@");
    if (options->tags.n) {
        json_key_array(&json, "tags");
        for (size_t i = 0; i < options->tags.n; i++)
            json_string(&json, options->tags.items[i]);
        json_end(&json);
    }
    if (options->approval)
        json_key_bool(&json, "default_requires_approval", true);
    if (options->network) {
        json_key_object(&json, "brig");
        service_put_text(&json, "network", options->network);
        json_end(&json);
    }
    json_end(&json);
    if (json_finish(&json) == 0)
        return true;
    return cli_error("%s: is not UTF-8, or too large", file), false;
}

static int add(int argc, char **argv)
{
    struct tool_options options = {0};
    AUTO_BUF struct buf body = BUF_INIT(16u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    int rest, status;

    if (!service_parse(&add_table, argc, argv, &options, 1, 1, "FILE", &rest, &status))
        return status;
    status = CLI_FAILED;
    if (make_tool(argv[rest], &options, &body) && service_call(NULL, "PUT", &body, &doc, "/v1/tools/"))
        status = options.json ? service_print_json(doc)
                 : options.quiet
                     ? service_say("%s", get_text(json_root(doc), "id", ""))
                     : service_say("%s  %s", get_text(json_root(doc), "name", "-"), get_text(json_root(doc), "id", ""));
    words_done(&options.pip), words_done(&options.npm), words_done(&options.tags);
    return status;
}

/* ---- ls, show, rm, schema ------------------------------------------------------------------------------- */

/* The first line of the description. */
static int put_summary(struct buf *out, const struct json_value *tool)
{
    const char *text = get_text(tool, "description", "");

    return buf_append(out, text, strcspn(text, "\n"));
}

static const struct listing tools = {
    .words = {"brig tool ls [-q] [-o FORMAT]", "Lists tools.", listing_names, ARRAY_SIZE(listing_names), 0},
    .path = "/v1/tools/?limit=10000&order=asc",
    .columns = {COLUMN("NAME", "name"), COLUMN("LANGUAGE", "source_type"), COLUMN("ID", "id"),
                COLUMN("*DESCRIPTION", "description", .put = put_summary)},
};

static int show(int argc, char **argv)
{
    struct tool_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf out = BUF_INIT(64u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    struct escape escape = ESCAPE_INIT(ESCAPE_TERMINAL);
    int rest, status;

    if (!service_parse(&show_table, argc, argv, &options, 1, 1, "tool", &rest, &status))
        return status;
    if (!service_open(&client) || !find_tool(client, argv[rest], &doc))
        return CLI_FAILED;
    const struct json_value *tool = the_tool(doc), *source = json_get(tool, "source_code");
    if (options.json || !source || source->type != JSON_STRING)
        return service_print_value(tool);
    int r = isatty(STDOUT_FILENO) ? escape_append(&escape, source->string, source->len, &out)
                                  : buf_append(&out, source->string, source->len);
    return r < 0 ? cli_error("out of memory") : cli_print(&out, 0);
}

static int remove_tools(int argc, char **argv)
{
    struct listing_options options = {0};
    AUTO_CLIENT struct client *client = NULL;
    int rest, status;

    if (!service_parse(&rm_table, argc, argv, &options, 1, -1, "tool", &rest, &status))
        return status;
    if (!service_open(&client))
        return CLI_FAILED;
    for (status = 0; rest < argc; rest++) {
        AUTO_JSON struct json_doc *found = NULL;
        bool gone = find_tool(client, argv[rest], &found) &&
                    service_call(client, "DELETE", NULL, NULL, "/v1/tools/%s", get_text(the_tool(found), "id", ""));
        if (!gone || (!options.quiet && service_say("%s", argv[rest]) != 0))
            status = CLI_FAILED;
    }
    return status;
}

static int schema(int argc, char **argv)
{
    struct tool_options options = {0};
    AUTO_TOOL_SERVICE struct tool_service service = {0};
    AUTO_BUF struct buf source = BUF_INIT(TOOL_SOURCE_LIMIT + 65536), body = BUF_INIT(16u << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    int rest, status;

    if (!service_parse(&schema_table, argc, argv, &options, 1, 1, "FILE", &rest, &status))
        return status;
    if (!service_read_file(argv[rest], &source))
        return CLI_FAILED;
    json_object(&json);
    json_key(&json, "code"), json_string_n(&json, source.data ? source.data : "", source.len);
    json_end(&json);
    if (json_finish(&json) < 0)
        return cli_error("%s: is not UTF-8, or too large", argv[rest]);
    if (!tool_service_open(&service) || !service_call(service.client, "POST", &body, &doc, "/v1/tools/generate-schema"))
        return tool_service_signal(&service);
    return service_print_json(doc);
}

static const struct cli_verb subs[] = {
    {"add", "register the tool in a file", .main = add},
    {"ls", "list tools", .list = &tools},
    {"show", "print a tool", .main = show},
    {"run", "run a tool, registered or in a file", .main = tool_run_main},
    {"rm", "remove tools", .main = remove_tools},
    {"schema", "print the schema of a Python function", .main = schema},
};

const struct cli_verb cli_verb_tool = {"tool", "tools: add, ls, show, run, rm, schema", CLI_SUBS(subs)};
