/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell.c: `brig shell`: opens a shell with a terminal in a sandbox. Ctrl-P Ctrl-Q leaves it running, and one can come
 * back to it.
 */

#include "base/err.h"
#include "cli/attach.h"

struct shell_options {
    uint64_t attach;
    const char *workdir;
    struct words env;
};

#define AT(field) offsetof(struct shell_options, field)
static const struct flag shell_flags[] = {
    {"attach", "N", "go back to process N (a shell that was left, or exec -it)", flag_set_count, AT(attach), 0},
    {"env", "K=V", "set a variable of the shell", flag_add_pair, AT(env), 'e'},
    {"workdir", "DIR", "where it starts (default: the sandbox's)", flag_set_text, AT(workdir), 'w'},
};

static const struct flag_table shell_table = {
    .usage = "brig shell [flags] SANDBOX",
    .purpose =
        "Opens a shell (bash, else sh) with a terminal in the sandbox. Ctrl-P Ctrl-Q leaves it running; --attach goes\n"
        "back to it. Its exit status is ours.\n\n"
        "  brig shell build",
    FLAGS(shell_flags),
};

/* What is executed: bash where there is one. */
#define SHELL "command -v bash >/dev/null 2>&1 && exec bash; exec sh"

static int put_env(struct json *json, const struct words *words, struct brig_err *err)
{
    const char **env = calloc(words->n + 1, sizeof(*env));
    char term[80];

    if (!env)
        return err_nomem(err);
    snprintf(term, sizeof(term), "TERM=%s", run_env_terminal());
    env[0] = term; /* first, so that -e can say otherwise */
    for (size_t i = 0; i < words->n; i++)
        env[1 + i] = words->items[i];
    int r = service_put_pairs(json, "env", env, words->n + 1, err);
    free(env);
    return r;
}

static uint64_t start(struct client *client, const struct shell_options *options, const char *sandbox)
{
    static const char *const argv[] = {"/bin/sh", "-c", SHELL, NULL};
    AUTO_BUF struct buf body = BUF_INIT(4 << 20);
    AUTO_JSON struct json_doc *doc = NULL;
    struct json json = JSON_INIT(&body);
    struct brig_err err = {0};
    uint16_t rows, cols;

    run_tty_size(&rows, &cols);
    json_object(&json);
    int r = service_put_argv(&json, argv, &err);
    service_put_text(&json, "cwd", options->workdir);
    json_key_bool(&json, "tty", true);
    json_key_bool(&json, "stdin_open", true);
    json_key_u64(&json, "rows", rows);
    json_key_u64(&json, "cols", cols);
    if (r == 0)
        r = put_env(&json, &options->env, &err);
    json_end(&json);
    if (r < 0 || json_finish(&json) < 0) {
        cli_error("%s", r < 0 ? err.message : "out of memory");
        return 0;
    }
    if (!service_call(client, "POST", &body, &doc, "/v1/sandboxes/%s/processes", sandbox))
        return 0;
    int64_t number = get_i64(json_root(doc), "number", 0);
    return number > 0 ? (uint64_t)number : 0;
}

static int shell_in(const struct shell_options *options, const char *sandbox)
{
    AUTO_CLIENT struct client *client = NULL;
    const struct attach_options how = {
        .interactive = true,
        .tty = true,
        .detachable = true,
        .on_cancel = "{\"type\":\"signal\",\"signal\":\"HUP\"}",
        .sandbox = sandbox,
    };
    struct brig_err err = {0};
    struct attach attach;
    int status = CLI_FAILED;

    if (!isatty(STDIN_FILENO))
        return cli_error("standard input is not a terminal; use brig exec -i");
    if (!service_open(&client))
        return CLI_FAILED;
    int r = attach_init(&attach, client, &how, &err);
    uint64_t number = r < 0 ? 0 : options->attach > 0 ? options->attach : start(client, options, sandbox);
    if (number > 0) {
        attach.options.number = number;
        r = attach_to(&attach, &err);
        if (r == 0)
            status = attach_finish(&attach, false);
    }
    if (r < 0)
        status = cli_error("%s", err.message);
    attach_done(&attach);
    return status;
}

static int shell_main(int argc, char **argv)
{
    struct shell_options options = {0};
    int rest, status;

    if (service_parse(&shell_table, argc, argv, &options, 1, 1, "sandbox", &rest, &status))
        status = shell_in(&options, argv[rest]);
    words_done(&options.env);
    return status;
}

const struct cli_verb cli_verb_shell = {"shell", "an interactive shell in a sandbox", .main = shell_main};
