/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_run.c: `brig tool run NAME|FILE`: one run of a tool, registered or in a file. The result is on stdout as JSON, what the tool itself printed on stderr, and the
 * exit status says whose fault it was: 0, 1 when the tool failed, else as `brig run`.
 */
#include <signal.h>
#include <string.h>

#include "base/str.h"
#include "cli/attach.h"
#include "cli/run.h"
#include "cli/tool.h"

#define EXIT_TOOL_FAILED 1
#define ARGS_LIMIT ((size_t)16 << 20)

struct tool_run_options {
    const char *args, *timeout, *agent, *network;
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
    {"strict", NULL, "a new interpreter instead of a forked one", flag_set_true, AT(strict), 0},
    {"quiet", NULL, "without what the tool printed", flag_set_true, AT(quiet), 'q'},
    {NULL, "FORMAT", "text (default), or json: the receipt", flag_set_format, AT(json), 'o'},
};
static const struct flag_table run_table = {
    .usage = "brig tool run NAME|FILE [--args JSON] [flags]",
    .purpose = "Runs a registered tool, or one in a file (a word with a slash, or ending in .py, .ts, .js or .sh), in a fresh sandbox. Without a daemon\n"
               "a service is started for this command. The result is printed as JSON; what the tool prints goes to stderr. Exit status: 0, 1 when\n"
               "the tool failed, otherwise as of `brig run`.\n\n"
               "  brig tool run examples/weather.py --args '{\"city\": \"Oslo\"}'",
    .flags = run_flags,
    .n_flags = ARRAY_SIZE(run_flags),
};

/* ---- the request -------------------------------------------------------------------------------------- */

static bool read_args(const char *given, struct buf *out)
{
    AUTO_DOC struct json_doc *doc = NULL;
    struct brig_err err;

    if (given && given[0] == '@') {
        if (!service_read_file(given + 1, out))
            return false;
    } else if (buf_append_str(out, given ? given : "{}") < 0) {
        cli_error("--args: larger than %zu MiB", ARGS_LIMIT >> 20);
        return false;
    }
    if (json_read(out->data, out->len, JSON_READ_VALUES, &doc, &err) < 0) {
        cli_error("--args: %s", err.message);
        return false;
    }
    if (json_root(doc)->type != JSON_OBJECT) {
        cli_error("--args: must be a JSON object, such as {\"city\": \"Oslo\"}");
        return false;
    }
    return true;
}

static int put_common(struct json *json, const struct tool_run_options *options, const struct buf *args, struct brig_err *err)
{
    json_key(json, "args"), json_raw(json, args->data, args->len);
    return options->env.n ? service_put_pairs(json, "env_vars", options->env.items, options->env.n, err) : 0;
}

/* Of a registered tool everything can be said; a file is run as the original's interface does it. */
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
        json_key(&json, "source_type"), json_string(&json, language);
    }
    service_put_text(&json, "timeout", options->timeout);
    service_put_text(&json, "agent_id", options->agent);
    service_put_text(&json, "network", options->network);
    if (options->strict)
        json_key(&json, "strict"), json_bool(&json, true);
    int r = put_common(&json, options, &args, &err);
    json_end(&json);
    if (r < 0) {
        cli_error("%s", err.message);
        return false;
    }
    if (json_finish(&json) < 0) {
        cli_error("%s: is not UTF-8, or too large", word);
        return false;
    }
    return file ? service_target(target, "/v1/tools/run") : service_target(target, "/v1/tools/%s/run", word);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static int exit_status(const struct json_value *receipt, bool quiet)
{
    struct brig_receipt read;

    receipt_read(receipt, &read);
    const struct json_value *error = json_get(receipt, "error");
    if (read.cause == BRIG_CAUSE_EXITED && read.exit_code == 0)
        return error && error->type == JSON_OBJECT ? EXIT_TOOL_FAILED : 0;
    run_end_say(&read, quiet);
    return brig_exit_status(&read);
}

static void print_streams(const struct json_value *receipt)
{
    AUTO_BUF struct buf out = BUF_INIT(64u << 20);

    if (service_get_bytes(receipt, "stdout", "stdout_encoding", &out) == 0 && out.len > 0)
        (void)!cli_write(STDERR_FILENO, out.data, out.len);
    out.len = 0;
    if (service_get_bytes(receipt, "stderr", "stderr_encoding", &out) == 0 && out.len > 0)
        (void)!cli_write(STDERR_FILENO, out.data, out.len);
}

static int print_answer(const struct json_value *answer, const struct tool_run_options *options)
{
    AUTO_BUF struct buf out = BUF_INIT(256u << 20);
    const struct json_value *receipt = json_get(answer, "receipt"), *result = json_get(receipt, "result");

    if (!receipt)
        return cli_error("the daemon's answer has no receipt");
    int status = exit_status(receipt, options->quiet);
    if (options->json)
        return json_print(receipt, &out) < 0 || buf_append_str(&out, "\n") < 0 ? cli_error("out of memory") : cli_print(&out, status);
    if (!options->quiet)
        print_streams(receipt);
    const struct json_value *error = json_get(receipt, "error");
    if (error && error->type == JSON_OBJECT && !get_text(error, "traceback", "")[0])
        cli_error("%s: %s", get_text(error, "type", "error"), get_text(error, "message", ""));
    if (status != 0)
        return status;
    if ((result ? json_print(result, &out) : buf_append_str(&out, "null")) < 0 || buf_append_str(&out, "\n") < 0)
        return cli_error("out of memory");
    return cli_print(&out, 0);
}

int tool_run_main(int argc, char **argv)
{
    struct tool_run_options options = {0};
    AUTO_TOOL_SERVICE struct tool_service service = {0};
    AUTO_BUF struct buf target = BUF_INIT(4096), body = BUF_INIT(ARGS_LIMIT + 4 * TOOL_SOURCE_LIMIT);
    AUTO_DOC struct json_doc *doc = NULL;
    struct brig_err err;
    int rest, ignored, status = CLI_FAILED;

    if (!service_parse(&run_table, argc, argv, &options, 1, -1, "NAME or FILE", &rest, &status))
        return status;
    /* What is run reads well before the details: flags may also come after it. */
    if (argc > rest + 1 && !service_parse(&run_table, argc - rest, argv + rest, &options, 0, 0, "", &ignored, &status)) {
        words_done(&options.env);
        return status;
    }
    status = CLI_FAILED;
    if (make_request(argv[rest], &options, &target, &body) && tool_service_open(&service)) {
        const struct client_request request = {.method = "POST", .target = target.data, .body = body.data, .body_len = body.len, .timeout_ms = CLIENT_NO_TIMEOUT, .max_reply = 256u << 20};
        if (client_json(service.client, &request, &doc, &err) < 0)
            cli_error("%s", err.message);
        else
            status = print_answer(json_root(doc), &options);
    }
    words_done(&options.env);
    return status;
}
