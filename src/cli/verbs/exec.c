/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c: `brig exec`: runs a program in an existing sandbox, in the foreground or (-d) in the background. */
#include <string.h>

#include "base/err.h"
#include "cli/attach.h"

#define DETACH_HINT "detached; back with: brig shell --attach %llu %s"

struct exec_options {
    bool interactive, tty, background, quiet, json;
    const char *workdir, *timeout, *user;
    uint64_t output;
    struct words env;
};

#define AT(field) offsetof(struct exec_options, field)
static const struct flag exec_flags[] = {
    {"interactive", NULL, "forward stdin; without it the program's is empty", flag_set_true, AT(interactive), 'i'},
    {"tty", NULL, "give the program a terminal", flag_set_true, AT(tty), 't'},
    {"env", "K=V", "set a variable of the program", flag_add_pair, AT(env), 'e'},
    {"workdir", "DIR", "where it starts (default: the sandbox's)", flag_set_text, AT(workdir), 'w'},
    {"user", "USER", "NAME or UID[:GROUP]; in a sandbox of a template or with root inside", flag_set_text, AT(user),
     'u'},
    {"timeout", "TIME", "wall clock, such as 30s (default: none)", flag_set_text, AT(timeout), 0},
    {"output", "SIZE", "stdout and stderr together; more is dropped (default: all; with -o json the sandbox's)",
     flag_set_size, AT(output), 0},
    {"detach", NULL, "do not wait: print its number", flag_set_true, AT(background), 'd'},
    FLAG_QUIET("do not say which limit ended it", AT(quiet)),
    {NULL, "FORMAT", "table (default): output passes through; json: the receipt, output inside", flag_set_table,
     AT(json), 'o'},
};

static const struct flag_table exec_table = {
    .usage = "brig exec [flags] SANDBOX [[--] CMD [ARGS]]",
    .purpose =
        "Runs CMD in the sandbox; without CMD, the entry point and command of its image. Its output and exit status\n"
        "pass through. 124 means that the timeout ended it, 137 another limit, 128+n a signal, 125 that brig refused\n"
        "or failed, 126 or 127 that CMD could not be executed or found. With -it the keys Ctrl-P Ctrl-Q leave it\n"
        "running.\n\n"
        "  brig exec build make -j2\n"
        "  brig exec -it build python3\n"
        "  echo hello | brig exec -i build -- tr a-z A-Z\n"
        "  n=$(brig exec -d build ./server); brig logs -f build $n",
    FLAGS(exec_flags),
    .command = 2, /* after the sandbox */
};

static int put_spec(struct buf *body, const struct exec_options *options, char **argv, struct brig_err *err)
{
    struct json json = JSON_INIT(body);
    struct words env = {0};
    char term[80];
    uint16_t rows, cols;
    int r;

    json_object(&json);
    r = *argv ? service_put_argv(&json, (const char *const *)argv, err) : 0; /* none: the image's own program */
    service_put_text(&json, "cwd", options->workdir);
    service_put_text(&json, "timeout", options->timeout);
    service_put_text(&json, "user", options->user);
    if (options->interactive)
        json_key_bool(&json, "stdin_open", true);
    if (!options->background) /* nothing is lost until we have attached */
        json_key_bool(&json, "hold", true);
    if (options->tty) {
        run_tty_size(&rows, &cols);
        json_key_bool(&json, "tty", true);
        json_key_u64(&json, "rows", rows);
        json_key_u64(&json, "cols", cols);
    }
    env.items = calloc(options->env.n + 1, sizeof(*env.items));
    if (!env.items)
        return err_nomem(err);
    snprintf(term, sizeof(term), "TERM=%s", run_env_terminal());
    if (options->tty)
        env.items[env.n++] = term; /* first, so that -e can say otherwise */
    for (size_t i = 0; i < options->env.n; i++)
        env.items[env.n++] = options->env.items[i];
    if (r == 0)
        r = service_put_pairs(&json, "env", env.items, env.n, err);
    words_done(&env);
    json_end(&json);
    if (r == 0 && json_finish(&json) < 0)
        r = err_nomem(err);
    return r;
}

/* The number of the started process, or 0 and *ret_status. */
static uint64_t start(struct client *client, const char *sandbox, const struct buf *body, int *ret_status)
{
    AUTO_JSON struct json_doc *doc = NULL;
    struct brig_err err = {0};

    *ret_status = CLI_FAILED;
    if (service_try(client, "POST", body, &doc, &err, "/v1/sandboxes/%s/processes", sandbox) < 0) {
        *ret_status = status_in_message(err.message, CLI_FAILED);
        cli_error("%s", err.message);
        return 0;
    }
    int64_t number = doc ? get_i64(json_root(doc), "number", 0) : 0;
    if (number <= 0)
        cli_error("%s: not an answer of brig", client_where(client));
    return number > 0 ? (uint64_t)number : 0;
}

static int print_receipt(const struct attach *attach, uint64_t limit)
{
    AUTO_BUF struct buf text = BUF_INIT(SIZE_MAX / 2);
    struct brig_err err = {0};

    if (receipt_with_output(attach, limit, &text) < 0)
        return cli_error("out of memory");
    int r = run_receipt_print(text.data, text.len, &err);
    if (r == -EPIPE)
        return CLI_SIGPIPE;
    return r < 0 ? cli_error("%s", err.message) : 0;
}

int attach_finish(struct attach *attach, bool quiet)
{
    struct brig_receipt receipt;
    int broken = attach->out.failed != 0 ? attach->out.failed : attach->err_out.failed;

    if (attach->detached)
        return cli_error(DETACH_HINT, (unsigned long long)attach->options.number, attach->options.sandbox), 0;
    if (broken == -EPIPE)
        return CLI_SIGPIPE;
    if (broken != 0)
        return cli_error("%s: %s", attach->out.failed != 0 ? "standard output" : "standard error", strerror(-broken));
    if (!attach->receipt)
        return cli_error("the sandbox is gone");
    receipt_read(attach->receipt, &receipt);
    run_end_say(&receipt, quiet);
    return brig_exit_status(&receipt);
}

int attach_to(struct attach *attach, struct brig_err *err)
{
    AUTO_BUF struct buf target = BUF_INIT(4096);
    struct ws *ws = NULL;

    if (attach_target(&target, attach->options.sandbox, attach->options.number, attach->next) < 0)
        return err_nomem(err);
    int r = ws_open(attach->client, target.data, &ws, err);
    return r < 0 ? r : attach_run(attach, ws, err);
}

static int foreground(struct client *client, const struct exec_options *options, const char *sandbox,
                      const struct buf *body)
{
    struct attach_options how = {
        .interactive = options->interactive,
        .tty = options->tty,
        .silent = options->json,
        .keep = options->json ? options->output : 0,
        .output = options->output,
        .detachable = options->interactive && options->tty,
        .on_cancel = "{\"type\":\"signal\",\"signal\":\"KILL\"}",
        .sandbox = sandbox,
    };
    struct brig_err err = {0};
    struct attach attach;
    int status = CLI_FAILED;

    int r = attach_init(&attach, client, &how, &err);
    uint64_t number = r == 0 ? start(client, sandbox, body, &status) : 0;
    if (number > 0) {
        attach.options.number = number;
        r = attach_to(&attach, &err);
        if (r == 0 && options->json && attach.receipt)
            status = print_receipt(&attach, options->output);
        if (r == 0 && (!options->json || status == 0))
            status = attach_finish(&attach, options->quiet || options->json);
    }
    if (r < 0)
        status =
            attach.out.failed == -EPIPE || attach.err_out.failed == -EPIPE ? CLI_SIGPIPE : cli_error("%s", err.message);
    attach_done(&attach);
    return status;
}

/* A receipt holds what the sandbox would keep of a command's output, unless the user says otherwise. */
static bool find_output(struct client *client, const char *sandbox, uint64_t *output)
{
    AUTO_JSON struct json_doc *doc = NULL;

    if (!service_call(client, "GET", NULL, &doc, "/v1/sandboxes/%s", sandbox))
        return false;
    const int64_t limit = doc ? get_i64(json_get(json_root(doc), "limits"), "output", 0) : 0;
    *output = limit > 0 ? (uint64_t)limit : OUTPUT_BYTES;
    return true;
}

static int exec_in(struct exec_options *options, const char *sandbox, char **argv)
{
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf body = BUF_INIT(8 << 20);
    struct brig_err err = {0};
    int status;

    if (options->tty && options->json)
        return cli_error("-t -o json: a terminal has no room for the receipt");
    if (options->tty && options->interactive && !options->background && !isatty(STDIN_FILENO))
        return cli_error("-i -t: standard input is not a terminal; leave out -t, or -i");
    if (put_spec(&body, options, argv, &err) < 0)
        return cli_error("%s", err.message);
    if (!service_open(&client))
        return CLI_FAILED;
    if (options->json && options->output == 0 && !find_output(client, sandbox, &options->output))
        return CLI_FAILED;
    if (!options->background)
        return foreground(client, options, sandbox, &body);
    uint64_t number = start(client, sandbox, &body, &status);
    return number > 0 ? service_say("%llu", (unsigned long long)number) : status;
}

static int exec_main(int argc, char **argv)
{
    struct exec_options options = {0};
    int rest, status;

    if (service_parse(&exec_table, argc, argv, &options, 1, -1, "sandbox", &rest, &status)) {
        int command = rest + 1 + (rest + 1 < argc && strcmp(argv[rest + 1], "--") == 0);
        status = exec_in(&options, argv[rest], argv + command);
    }
    words_done(&options.env);
    return status;
}

const struct cli_verb cli_verb_exec = {"exec", "run a program in a sandbox that is there", .main = exec_main};
