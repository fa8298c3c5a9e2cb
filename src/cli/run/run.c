/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c: `brig run`: runs one program in one sandbox, in the foreground. The order matters: all words are judged before
 * anything is created; the spawner is forked before signals are blocked, so that it does not inherit that; the terminal
 * becomes raw last and is restored first.
 */
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/run/run.h"

static int deliver(const struct run_options *options, const struct brig_receipt *receipt, struct brig_err *err)
{
    AUTO_FREE char *json = NULL;
    size_t len = 0;
    if (!options->json && !options->receipt)
        return 0;
    int r = brig_receipt_json(receipt, &json, &len, err);
    if (r == 0 && options->receipt)
        r = run_receipt_write(options->receipt, json, len, err);
    if (r == 0 && options->json)
        r = run_receipt_print(json, len, err);
    return r;
}

/* After the run: its receipt, its line, its status. */
static int finish(const struct run_options *options, const struct run_loop *loop, const struct brig_run *run,
                  struct brig_err *err)
{
    const struct brig_receipt *receipt = brig_run_receipt(run);
    int broken = loop->out.failed != 0 ? loop->out.failed : loop->err_out.failed;
    int r = deliver(options, receipt, err);
    if (r < 0)
        return r == -EPIPE ? CLI_SIGPIPE : cli_error("%s", err->message);
    if (broken == -EPIPE)
        return CLI_SIGPIPE;
    if (broken != 0)
        return cli_error("%s: %s", loop->out.failed != 0 ? "standard output" : "standard error", strerror(-broken));
    run_end_say(receipt, options->quiet || options->json);
    if (receipt->learned && !options->json)
        run_end_learned(receipt->learned, strlen(receipt->learned));
    return brig_exit_status(receipt);
}

static int run_in(struct brig_engine *engine, struct run_options *options, struct brig_err *err)
{
    struct run_loop loop;
    struct brig_run *run = NULL;
    int status = CLI_FAILED;
    int r = run_loop_init(&loop, engine, options, err);
    if (r < 0)
        goto out;
    if (!options->json) {
        options->spec.on_output = run_loop_output;
        options->spec.ctx = &loop;
    }
    r = brig_run_start(engine, &options->spec, &run, err);
    if (r < 0)
        goto out;
    if (options->tty && options->interactive)
        r = run_tty_raw(err);
    if (r == 0)
        r = run_loop_until_done(&loop, run, err);
    run_tty_restore();
    if (r == 0)
        status = finish(options, &loop, run, err);
out:
    if (r < 0)
        status = cli_error("%s", err->message);
    brig_run_destroy(run);
    run_loop_done(&loop);
    return status;
}

static int run_main(int argc, char **argv)
{
    const struct brig_engine_options how = {.size = sizeof(how), .flags = BRIG_ENGINE_FORK};
    struct brig_engine *engine = NULL;
    struct run_options options = {0};
    struct brig_err err = {0};
    int status = CLI_FAILED;
    int r = run_options_parse(&options, argc, argv, &status, &err);
    if (r == 0 && !options.template)              /* which is the daemon's to judge */
        r = brig_spec_check(&options.spec, &err); /* before anything is made */
    if (r == 0 && options.language && run_code(&options, &status))
        r = 1;
    if (r == 0 && run_remote(&options, &status))
        r = 1;
    if (r == 0 && run_needs_provider(&options))
        r = err_set(&err, BRIG_E_OFF, 0,
                    "--provider %s: providers other than local are a daemon's, and none answers (brig serve)",
                    options.provider);
    if (r == 0 && options.template)
        r = err_set(&err, BRIG_E_UNSUPPORTED, 0,
                    "--template %s: templates are a daemon's, and none answers (brig serve)", options.template);
    if (r == 0)
        r = run_options_local(&options, &err);
    if (r == 0)
        r = brig_engine_create(&how, &engine, &err);
    if (r == 0)
        status = run_in(engine, &options, &err);
    else if (r < 0)
        status = cli_error("%s", err.message);
    brig_engine_destroy(engine);
    run_options_done(&options);
    return status;
}

const struct cli_verb cli_verb_run = {"run", "run a program in a sandbox of its own", .main = run_main};
