/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_tool_run.c: `brig tool run NAME|FILE`: runs a tool once, registered or in a file. The result is on stdout as JSON
 * and the tool's own output on stderr. The exit status is 0, or 1 if the tool failed, else as for `brig run`.
 */
#include <string.h>

#include "base/ascii.h"
#include "base/str.h"
#include "cli/verbs/tool.h"

#define ARGS_LIMIT ((size_t)16 << 20)

struct tool_run_options {
    const char *args, *timeout, *agent, *network, *provider;
    struct words env;
    bool json, quiet, strict;
};
#define AT(field) offsetof(struct tool_run_options, field)

static const struct flag run_flags[] = {
    {"args", "JSON", "the arguments, an object; @FILE reads a file, @- stdin", flag_set_text, AT(args), 'a'},
    {"env", "K=V", "a variable of this run; repeatable", flag_add_pair, AT(env), 'e'},
    {"timeout", "TIME", "wall clock, such as 30s", flag_set_text, AT(timeout), 't'},
    {"agent", "ID", "the agent it runs for: its variables and state", flag_set_text, AT(agent), 0},
    {"network", "POLICY", "network policy (default: the tool's, else none)", flag_set_text, AT(network), 0},
    {"provider", "NAME", "what holds it (default: the tool's, else [manager] provider)", flag_set_text, AT(provider),
     0},
    {"strict", NULL, "a new interpreter instead of a forked one", flag_set_true, AT(strict), 0},
    FLAG_QUIET("without what the tool printed", AT(quiet)),
    {NULL, "FORMAT", "text (default), or json: the receipt", flag_set_format, AT(json), 'o'},
};
static const struct flag_table run_table = {
    .usage = "brig tool run NAME|FILE [--args JSON] [flags]",
    .purpose =
        "Runs a registered tool, or one in a file (a word with a slash, or ending in .py, .ts, .js or .sh), in a fresh "
        "sandbox. Without a daemon\n"
        "a service is started for this command. The result is printed as JSON; what the tool prints goes to stderr. "
        "Exit status: 0, 1 when\n"
        "the tool failed, otherwise as of `brig run`.\n\n"
        "  brig tool run examples/weather.py --args '{\"city\": \"Oslo\"}'",
    FLAGS(run_flags),
};

/* ---- the request -------------------------------------------------------------------------------------- */

static bool read_args(const char *given, struct buf *out)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err;

    if (given && given[0] == '@') {
        if (!service_read_file(given + 1, out))
            return false;
    } else if (buf_append_str(out, given ? given : "{}") < 0) {
        cli_error("--args: larger than %zu MiB", ARGS_LIMIT >> 20);
        return false;
    }
    if (json_read(out->data, out->len, JSON_READ_VALUES, &doc, &err) < 0)
        return cli_error("--args: %s", err.message), false;
    if (json_root(doc)->type != JSON_OBJECT)
        return cli_error("--args: must be a JSON object, such as {\"city\": \"Oslo\"}"), false;
    return true;
}

static int put_common(struct json *json, const struct tool_run_options *options, const struct buf *args,
                      struct brig_err *err)
{
    json_key_raw(json, "args", args->data, args->len);
    return options->env.n ? service_put_pairs(json, "env_vars", options->env.items, options->env.n, err) : 0;
}

/*
 * Returns "words" for examples/words.js. The service finds the function of a Python file itself, as when it is
 * registered.
 */
static void put_name(struct json *json, const char *file)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    char name[64] = "tool";
    size_t n = 0;

    for (; base[n] && base[n] != '.' && n < sizeof name - 1; n++) {
        bool good = n > 0 ? ascii_is_alnum(base[n]) : ascii_is_letter(base[n]);
        name[n] = good ? base[n] : '_';
    }
    if (n > 0)
        name[n] = '\0';
    /* paths of the interface: no tool is called so */
    bool taken = str_eq(name, "run") || str_eq(name, "count") || str_eq(name, "search");
    service_put_text(json, "name", taken ? "tool" : name);
}

/* Everything can be said about a registered tool; a file is run as Letta's interface does it. */
static bool make_request(const char *word, const struct tool_run_options *options, struct buf *target, struct buf *body)
{
    AUTO_BUF struct buf args = BUF_INIT(ARGS_LIMIT), source = BUF_INIT(TOOL_SOURCE_LIMIT + 65536);
    struct json json = JSON_INIT(body);
    struct brig_err err = {0};
    bool file = tool_is_file(word);
    const char *language = file ? tool_language_of(word) : NULL;

    if ((file && (!language || !service_read_file(word, &source))) || !read_args(options->args, &args))
        return false;
    json_object(&json);
    if (file) {
        json_key(&json, "source_code"), json_string_n(&json, source.data ? source.data : "", source.len);
        json_key_string(&json, "source_type", language);
        if (!str_eq(language, "python"))
            put_name(&json, word);
    }
    service_put_text(&json, "timeout", options->timeout);
    service_put_text(&json, "agent_id", options->agent);
    service_put_text(&json, "network", options->network);
    service_put_text(&json, "provider", options->provider);
    if (options->strict)
        json_key_bool(&json, "strict", true);
    int r = put_common(&json, options, &args, &err);
    json_end(&json);
    if (r < 0)
        return cli_error("%s", err.message), false;
    if (json_finish(&json) < 0)
        return cli_error("%s: is not UTF-8, or too large", word), false;
    return file ? service_target(target, "/v1/tools/run") : service_target(target, "/v1/tools/%s/run", word);
}

int tool_run_main(int argc, char **argv)
{
    struct tool_run_options options = {0};
    AUTO_TOOL_SERVICE struct tool_service service = {0};
    AUTO_BUF struct buf target = BUF_INIT(4096), body = BUF_INIT(ARGS_LIMIT + 4 * TOOL_SOURCE_LIMIT);
    int rest, status = CLI_FAILED;

    if (!service_parse(&run_table, argc, argv, &options, 1, 1, "NAME or FILE", &rest, &status)) {
        words_done(&options.env);
        return status;
    }
    const bool file = tool_is_file(argv[rest]);
    const struct tool_show how = {.json = options.json, .quiet = options.quiet, .stream = !file};
    status = CLI_FAILED;
    if (make_request(argv[rest], &options, &target, &body))
        status = (file ? tool_service_open(&service) : tool_service_attach(&service))
                     ? tool_ask(&service, target.data, &body, &how)
                     : tool_service_signal(&service);
    words_done(&options.env);
    return status;
}
