/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_remote.c: `brig run` by a daemon. The daemon makes and ends a sandbox for this run; its program uses our stdin,
 * stdout, signals and terminal. The user sees the same as from a run in this process; the receipt says via: daemon.
 *
 * These are not done by a daemon: -v, --rootfs and --tmpfs (they name things of the caller, or are not in its
 * interface), --cpu-time (the daemon does not count the CPU time of a process against a limit), and words that are not
 * UTF-8, which JSON does not carry.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/attach.h"

#define TIMEOUT_MS UINT64_C(300000) /* the defaults of a run, which the daemon has only for commands it waits for */
#define SPEC_MAX ((size_t)1 << 20)  /* one message, as the daemon takes it */

/* ---- what is asked for ---------------------------------------------------------------------------- */

void run_put_limits(struct json *json, const struct brig_limits *l, const struct net_flags *net)
{
    const struct {
        uint64_t value;
        enum brig_limit name;
        bool thousandths;
    } limits[] = {
        {l->memory, BRIG_LIMIT_MEMORY, false},
        {l->cpus, BRIG_LIMIT_CPUS, true},
        {l->cpu_time, BRIG_LIMIT_CPU_TIME, true},
        {l->pids, BRIG_LIMIT_PIDS, false},
        {l->disk, BRIG_LIMIT_DISK, false},
        {l->inodes, BRIG_LIMIT_INODES, false},
        {l->open_files, BRIG_LIMIT_OPEN_FILES, false},
        {l->file_size, BRIG_LIMIT_FILE_SIZE, false},
        {l->io_read_bps, BRIG_LIMIT_IO_READ_BPS, false},
        {l->io_write_bps, BRIG_LIMIT_IO_WRITE_BPS, false},
    };

    json_key_object(json, "limits");
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        if (limits[i].value == 0)
            continue;
        json_key(json, brig_limit_name(limits[i].name));
        if (limits[i].thousandths)
            json_thousandths(json, limits[i].value);
        else
            json_u64(json, limits[i].value);
    }
    net_flags_put_limits(net, json);
    json_end(json);
}

static void put_require(struct json *json, uint64_t require)
{
    if (require == 0)
        return;
    json_key_array(json, "require");
    if ((require & BRIG_REQUIRE_ALL) == BRIG_REQUIRE_ALL) {
        json_string(json, "all");
        require &= ~BRIG_REQUIRE_ALL;
    }
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        if (require & BRIG_LAYER_BIT(i))
            json_string(json, brig_layer_name((enum brig_layer)i));
    json_end(json);
}

/* The words are the program; or arguments of a template's entry point, and without words its command stays. */
static int put_program(struct json *json, const struct run_options *options, struct brig_err *err)
{
    const char *const *words = options->spec.argv;

    if (!options->template || options->entrypoint)
        return service_put_words(json, "argv", options->entrypoint, words, err);
    return words[0] ? service_put_words(json, "args", NULL, words, err) : 0;
}

static int put_process(struct json *json, const struct run_options *options, struct brig_err *err)
{
    const struct brig_spec *spec = &options->spec;
    size_t n_env = 0;

    while (spec->env && spec->env[n_env])
        n_env++;
    json_key_object(json, "process");
    int r = put_program(json, options, err);
    if (r == 0)
        r = service_put_pairs(json, "env", spec->env, n_env, err);
    json_key(json, "timeout"), json_thousandths(json, spec->limits.timeout > 0 ? spec->limits.timeout : TIMEOUT_MS);
    if (options->kill_on_output) {
        json_key_u64(json, "output", spec->limits.output > 0 ? spec->limits.output : OUTPUT_BYTES);
        json_key_string(json, "on_output_limit", "kill");
    }
    if (options->interactive)
        json_key_bool(json, "stdin_open", true);
    if (options->tty) {
        json_key_bool(json, "tty", true);
        json_key_u64(json, "rows", spec->tty_rows);
        json_key_u64(json, "cols", spec->tty_cols);
    }
    json_end(json);
    return r;
}

static int put_spec(struct buf *out, const struct run_options *options, struct brig_err *err)
{
    const struct brig_spec *spec = &options->spec;
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_object(&json, "sandbox");
    service_put_text(&json, "template", options->template);
    service_put_text(&json, "provider", options->provider);
    service_put_text(&json, "name", spec->name);
    service_put_text(&json, "workdir", spec->workdir);
    if (spec->profile != BRIG_PROFILE_DEFAULT)
        service_put_text(&json, "profile", brig_profile_name(spec->profile));
    if (options->writable_root)
        json_key_bool(&json, "writable_root", true);
    if (options->sudo)
        json_key_bool(&json, "sudo", true);
    service_put_text(&json, "user", options->user);
    run_put_limits(&json, &spec->limits, &options->net);
    put_require(&json, spec->require);
    net_flags_put(&options->net, &json);
    json_end(&json);
    int r = put_process(&json, options, err);
    json_end(&json);
    if (r < 0)
        return r;
    r = json_finish(&json);
    return r == -EMSGSIZE ? -E2BIG : r;
}

/* ---- how it went ---------------------------------------------------------------------------------- */

/* What was wrong with the request comes as {"error","code"} in the receipt's place. */
static int refused(const struct json_value *receipt)
{
    char message[256];

    str_cut(message, sizeof(message), get_text(receipt, "error", "the sandbox is gone"));
    int status = status_in_message(message, CLI_FAILED);
    cli_error("%s", message);
    return status;
}

static int deliver(const struct run_options *options, const struct attach *attach, uint64_t limit, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(SIZE_MAX / 2);

    if (!options->json && !options->receipt)
        return 0;
    if (receipt_with_output(attach, limit, &text) < 0)
        return err_nomem(err);
    int r = options->receipt ? run_receipt_write(options->receipt, text.data, text.len, err) : 0;
    if (r == 0 && options->json)
        r = run_receipt_print(text.data, text.len, err);
    return r;
}

static void say_learned(const struct json_value *receipt)
{
    const struct json_value *learned = json_get(json_get(receipt, "network"), "learned");
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);

    if (learned && json_print_line(learned, &text) == 0)
        run_end_learned(text.data, text.len);
}

static int finish(const struct run_options *options, const struct attach *attach, uint64_t limit, struct brig_err *err)
{
    int broken = attach->out.failed != 0 ? attach->out.failed : attach->err_out.failed;
    struct brig_receipt receipt;

    if (!attach->receipt || json_get(attach->receipt, "error"))
        return refused(attach->receipt);
    int r = deliver(options, attach, limit, err);
    if (r < 0)
        return r == -EPIPE ? CLI_SIGPIPE : cli_error("%s", err->message);
    if (broken == -EPIPE)
        return CLI_SIGPIPE;
    if (broken != 0)
        return cli_error("%s: %s", attach->out.failed != 0 ? "standard output" : "standard error", strerror(-broken));
    receipt_read(attach->receipt, &receipt);
    receipt.truncated[BRIG_STDOUT] |= attach->truncated[BRIG_STDOUT];
    receipt.truncated[BRIG_STDERR] |= attach->truncated[BRIG_STDERR];
    if (receipt.limits.output == 0)
        receipt.limits.output = limit;
    run_end_say(&receipt, options->quiet || options->json);
    if (!options->json)
        say_learned(attach->receipt);
    return brig_exit_status(&receipt);
}

static int run_over(struct client *client, const struct run_options *options, const struct buf *spec)
{
    uint64_t limit = options->spec.limits.output > 0 ? options->spec.limits.output : OUTPUT_BYTES;
    const struct attach_options how = {
        .interactive = options->interactive,
        .tty = options->tty,
        .silent = options->json,
        .keep = options->json || options->receipt ? limit : 0,
        .output = limit,
        .on_cancel = "{\"type\":\"signal\",\"signal\":\"KILL\"}",
    };
    struct brig_err err = {0};
    struct attach attach;
    struct ws *ws = NULL;
    int status = CLI_FAILED;

    int r = attach_init(&attach, client, &how, &err);
    if (r == 0)
        r = ws_open(client, "/v1/runs/attach", &ws, &err);
    if (r == 0)
        r = ws_send(ws, WS_TEXT, spec->data, spec->len, &err);
    if (r == 0)
        r = attach_run(&attach, take_ptr(&ws), &err);
    if (r == 0)
        status = finish(options, &attach, limit, &err);
    else if (attach.out.failed == -EPIPE || attach.err_out.failed == -EPIPE)
        status = CLI_SIGPIPE;
    else
        status = cli_error("%s", err.message);
    ws_destroy(ws);
    attach_done(&attach);
    return status;
}

bool run_remote(const struct run_options *options, int *ret_status)
{
    const struct brig_spec *spec = &options->spec;
    AUTO_CLIENT struct client *client = NULL;
    AUTO_BUF struct buf text = BUF_INIT(SPEC_MAX);
    struct brig_err err = {0};

    if (options->local || spec->n_binds > 0 || spec->rootfs || spec->n_tmpfs > 0 || spec->limits.cpu_time > 0)
        return false;
    int r = client_open(&client, &err);
    if (r < 0 && !client_is_remote())
        return false;
    if (r == 0)
        r = put_spec(&text, options, &err);
    if ((r == -EILSEQ || r == -E2BIG) && !client_is_remote())
        return false;
    *ret_status =
        r < 0 ? cli_error("%s", err.message[0] ? err.message : strerror(-r)) : run_over(client, options, &text);
    return true;
}
