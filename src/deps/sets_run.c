/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_run.c: runs one script in an ephemeral sandbox of its own, and returns what it printed. The sandbox is made by
 * the manager as any other, for the organisation that asks (it counts in its quotas), in the name of this service,
 * because only administrators may bind directories. done() comes when the sandbox is gone: nothing in it writes any
 * more.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "deps/sets_priv.h"
#include "sandbox/process.h"

struct sets_run {
    struct caller caller;
    char *script;
    struct words args, env;
    uint64_t timeout_ms;
    struct sbox *sbox;
    struct sbox_watch watch;
    struct process_run *process;
    bool creating, ending, answered, forgotten;
    struct brig_err err;
    struct json_doc *receipt;
    char *text; /* of the receipt: the document points into it */
    void (*done)(void *ctx, const struct sets_result *result);
    void *ctx;
};

static void run_free(struct sets_run *run)
{
    json_doc_free(run->receipt);
    mem_free(run->text);
    mem_free(run->script);
    words_done(&run->args);
    words_done(&run->env);
    mem_free(run);
}

static void judge(const struct sets_run *run, struct sets_result *ret)
{
    const struct json_value *root = run->receipt ? json_root(run->receipt) : NULL, *outcome = json_get(root, "outcome");
    const struct json_value *code = json_get(outcome, "exit_code"), *out = json_get(root, "stdout");

    *ret = (struct sets_result){
        .err = run->err.code ? &run->err : NULL, .cause = json_get_text(outcome, "cause", ""), .output = ""};
    ret->good = str_eq(ret->cause, "exited") && code && code->type == JSON_NUMBER && code->integer && code->i64 == 0;
    if (out && out->type == JSON_STRING && json_get_is(root, "stdout_encoding", "utf-8"))
        ret->output = out->string;
}

/* The sandbox is gone. */
static void finish(struct sets_run *run)
{
    struct sets_result result;

    if (run->forgotten) {
        run_free(run);
        return;
    }
    if (!run->answered && !run->err.code)
        (void)err_set(&run->err, BRIG_E_GONE, 0, "the install sandbox ended before its program");
    judge(run, &result);
    run->done(run->ctx, &result);
    run_free(run);
}

static void on_ended(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    finish(ctx);
}

static void end(struct sets_run *run, const char *why)
{
    if (sbox_end(run->sbox, &run->caller, why, on_ended, run, NULL) < 0)
        return; /* it is ending already: on_gone() tells when nothing in it lives any more */
    run->ending = true;
    sbox_unwatch(take_ptr(&run->sbox), &run->watch);
}

static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct sets_run *run = ctx;

    run->sbox = NULL;
    if (!run->process && !run->ending)
        finish(run);
}

static void on_receipt(void *ctx, const char *receipt, size_t len, const struct brig_err *err)
{
    struct sets_run *run = ctx;

    run->process = NULL;
    run->answered = true;
    if (err && !run->err.code)
        run->err = *err;
    run->text = receipt ? mem_alloc(len + 1) : NULL;
    if (run->text) {
        memcpy(run->text, receipt, len);
        run->text[len] = '\0';
        if (json_read(run->text, len, JSON_READ_VALUES, &run->receipt, NULL) < 0)
            run->receipt = NULL;
    }
    if (!run->receipt && !run->err.code)
        (void)err_nomem(&run->err);
    if (run->sbox)
        end(run, "run ended");
    else if (!run->ending)
        finish(run);
}

static int start(struct sets_run *run)
{
    const char *argv[REQUIREMENTS_MAX + 5] = {"/bin/sh", "-s", "--"};

    for (size_t i = 0; i < run->args.n && i < REQUIREMENTS_MAX; i++)
        argv[3 + i] = run->args.items[i];
    const char *env[32] = {NULL};
    for (size_t i = 0; i < run->env.n && i < ARRAY_SIZE(env) - 1; i++)
        env[i] = run->env.items[i];
    const struct process_spec spec = {.argv = argv,
                                      .env = env,
                                      .timeout_ms = run->timeout_ms,
                                      .output = 16384,
                                      .input = run->script,
                                      .input_len = strlen(run->script)};
    return process_run(run->sbox, &run->caller, &spec, on_receipt, run, &run->process, &run->err);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct sets_run *run = ctx;

    run->creating = false;
    if (err) {
        if (!run->err.code)
            run->err = *err;
        finish(run);
        return;
    }
    run->sbox = sbox;
    run->watch = (struct sbox_watch){.ended = on_gone, .ctx = run};
    sbox_watch(sbox, &run->watch);
    if (run->err.code || run->forgotten || start(run) < 0)
        end(run, "run ended");
}

static int copy(struct words *to, const char *const *from)
{
    int r = 0;

    for (size_t i = 0; r == 0 && from && from[i]; i++)
        r = words_add(to, from[i]);
    return r;
}

static int create(struct sets_run *run, struct manager *manager, const struct config *config, const char *text,
                  struct brig_err *err)
{
    static const uint8_t no_fingerprint[SHA256_SIZE];
    AUTO_JSON struct json_doc *doc = NULL;
    struct sbox_spec spec;
    int r = json_read(text, strlen(text), JSON_READ_VALUES, &doc, err);

    if (r == 0)
        r = sbox_spec_parse(json_root(doc), config, manager_templates(manager), &run->caller, &spec, err);
    if (r < 0)
        return r;
    spec.ephemeral = true;
    spec.service = true; /* a set may be shared: whoever it is built for must not get a program into its installation */
    return manager_create_sandbox(manager, &run->caller, &spec, NULL, no_fingerprint, on_created, run, err);
}

int sets_run(struct manager *manager, const struct config *config, const struct sets_run_spec *spec,
             void (*done)(void *ctx, const struct sets_result *result), void *ctx, struct sets_run **ret,
             struct brig_err *err)
{
    struct sets_run *run = mem_zalloc(sizeof *run);

    if (!run)
        return err_nomem(err);
    *run = (struct sets_run){.caller = {.actor = "requirement-sets", .role = STORE_ROLE_ADMIN},
                             .timeout_ms = spec->timeout_ms,
                             .creating = true,
                             .done = done,
                             .ctx = ctx};
    run->script = mem_strdup(spec->script);
    int r = run->script && copy(&run->args, spec->args) == 0 && copy(&run->env, spec->env) == 0 ? 0 : err_nomem(err);
    if (r == 0 && str_copy(run->caller.org_id, sizeof run->caller.org_id, spec->org) < 0)
        r = err_usage(err, "organisation: too long");
    if (r == 0)
        r = create(run, manager, config, spec->spec, err);
    if (r < 0)
        run_free(run);
    else
        *ret = run;
    return r;
}

void sets_run_stop(struct sets_run *run, const char *why)
{
    if (!run->err.code)
        (void)err_set(&run->err, BRIG_E_INVALID, 0, "%s", why);
    if (run->process)
        process_run_cancel(take_ptr(&run->process));
    if (run->sbox)
        end(run, "stopped");
}

void sets_run_forget(struct sets_run *run)
{
    run->forgotten = true;
    if (run->process)
        process_run_cancel(take_ptr(&run->process));
    if (run->sbox)
        end(run, "stopped");
}
