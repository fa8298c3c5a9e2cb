/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_run.c: one program in an ephemeral sandbox of the service's own (own_run.h). The order of ends is fixed: the
 * program's output and receipt, the sandbox's own end, then done(). A sandbox that dies first is the same without a
 * receipt.
 */
#include "sandbox/own_run.h"

#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"

#define OWN_MEMORY_MAX (8u << 20) /* the words of one run and its receipt */

enum own_state {
    OWN_NEW,
    OWN_CREATING, /* on_created() follows */
    OWN_STARTING, /* on_started() follows */
    OWN_RUNNING,  /* on_answer() follows */
    OWN_ENDING    /* on_ended() or, if others end the sandbox, on_gone() follows */
};

struct own_run {
    struct arena *arena; /* It has the strings of spec and program, and the receipt. */
    struct manager *manager;
    struct caller caller;
    struct sbox_spec spec; /* empty once the manager has taken it over */
    struct process_spec program;
    enum own_state state;
    bool forgotten;
    struct sbox *sbox; /* NULL before it is made, and when it is gone */
    struct sbox_watch watch;
    struct process_run *process; /* One of the two, while it runs: by whether there is events.data. */
    struct output *output;
    const struct json_value *receipt; /* NULL until it has come */
    struct brig_err err;
    struct own_run_events events;
};

void own_run_destroy(struct own_run *run)
{
    if (!run)
        return;
    sbox_spec_done(&run->spec);
    arena_destroy(run->arena);
    mem_free(run);
}

static void fail(struct own_run *run, const struct brig_err *why)
{
    if (!run->err.code)
        run->err = *why;
}

/* The sandbox is gone, or never was. */
static void finish(struct own_run *run)
{
    const struct json_value *outcome = json_get(run->receipt, "outcome"), *code = json_get(outcome, "exit_code");
    struct own_run_result result = {.cause = json_get_text(outcome, "cause", ""), .receipt = run->receipt};

    if (!run->receipt && !run->err.code)
        (void)err_set(&run->err, BRIG_E_GONE, 0, "the sandbox ended before its program");
    result.err = run->err.code ? &run->err : NULL;
    result.good = !result.err && str_eq(result.cause, "exited") && code && code->type == JSON_NUMBER && code->integer &&
                  code->i64 == 0;
    if (!run->forgotten)
        run->events.done(run->events.ctx, &result);
    own_run_destroy(run);
}

static void on_ended(void *ctx, struct sbox *sbox UNUSED, const struct brig_err *err UNUSED)
{
    finish(ctx);
}

static void end(struct own_run *run)
{
    run->state = OWN_ENDING;
    if (run->output)
        output_close(take_ptr(&run->output));
    if (run->process)
        process_run_cancel(take_ptr(&run->process));
    if (sbox_end(run->sbox, &run->caller, run->err.code ? "stopped" : "run ended", on_ended, run, NULL) < 0)
        return; /* it is ending already: on_gone() tells when nothing in it lives any more */
    sbox_unwatch(take_ptr(&run->sbox), &run->watch);
}

static void on_gone(void *ctx, struct sbox *sbox UNUSED)
{
    struct own_run *run = ctx;

    run->sbox = NULL;
    if (run->state == OWN_ENDING)
        finish(run); /* else the last call of what is under way does */
}

/* ---- the program -------------------------------------------------------------------------------------- */

static void on_answer(void *ctx, const char *receipt, size_t len, const struct brig_err *err)
{
    struct own_run *run = ctx;

    run->process = NULL;
    run->output = NULL;
    if (err)
        fail(run, err);
    if (receipt && json_read_in(run->arena, receipt, len, JSON_READ_VALUES, &run->receipt, NULL) < 0 && !run->err.code)
        (void)err_nomem(&run->err);
    if (run->sbox)
        end(run);
    else
        finish(run);
}

static void on_output_end(void *ctx, const char *receipt, size_t len)
{
    on_answer(ctx, receipt, len, NULL);
}

static void on_data(void *ctx, unsigned stream, uint64_t offset UNUSED, const uint8_t *data, size_t len)
{
    struct own_run *run = ctx;

    if (run->forgotten)
        own_run_consumed(run, stream, len);
    else
        run->events.data(run->events.ctx, stream, data, len);
}

static void on_started(void *ctx, struct process *process, const struct brig_err *err)
{
    static const uint64_t from[3] = {0};
    struct own_run *run = ctx;
    const struct output_events events = {.data = on_data, .end = on_output_end, .ctx = run};

    run->state = OWN_RUNNING;
    if (err)
        fail(run, err);
    if (!run->sbox) /* it went meanwhile */
        finish(run);
    else if (run->err.code || run->forgotten ||
             output_open(process, (1u << 1) | (1u << 2), from, &events, &run->output, &run->err) < 0)
        end(run);
}

static int start(struct own_run *run)
{
    if (run->events.data) {
        run->state = OWN_STARTING;
        run->program.hold = true;
        return process_start(run->sbox, &run->caller, &run->program, on_started, run, &run->err);
    }
    run->state = OWN_RUNNING;
    return process_run(run->sbox, &run->caller, &run->program, on_answer, run, &run->process, &run->err);
}

static void on_created(void *ctx, struct sbox *sbox, const struct brig_err *err)
{
    struct own_run *run = ctx;

    if (err) {
        fail(run, err);
        finish(run);
        return;
    }
    run->sbox = sbox;
    run->watch = (struct sbox_watch){.ended = on_gone, .ctx = run};
    sbox_watch(sbox, &run->watch);
    if (run->err.code || run->forgotten || start(run) < 0)
        end(run);
}

/* ---- its start ---------------------------------------------------------------------------------------- */

/* A copy with a NULL at its end; or NULL if memory is short. */
static const char *const *copy_list(struct arena *arena, const char *const *from, size_t n)
{
    const char **list = arena_alloc(arena, (n + 1) * sizeof *list);

    for (size_t i = 0; list && i < n; i++) {
        list[i] = arena_copy(arena, from[i], strlen(from[i]));
        if (!list[i])
            return NULL;
    }
    if (list)
        list[n] = NULL;
    return list;
}

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

/* What the sandbox and its program need stays here: the caller's may go. */
static int copy_words(struct own_run *run, const struct own_run_spec *spec, struct brig_err *err)
{
    struct arena *arena = run->arena;
    struct sbox_spec *box = &run->spec;

    box->new_layer = spec->new_layer ? arena_copy(arena, spec->new_layer, strlen(spec->new_layer)) : NULL;
    box->below = copy_list(arena, spec->below, spec->n_below);
    box->n_below = spec->n_below;
    box->raw_upper = spec->raw_upper;
    if (spec->disk) {
        struct sbox_volume *volume = arena_alloc(arena, sizeof *volume);
        if (!volume || str_copy(volume->disk, sizeof volume->disk, spec->disk) < 0)
            return err_nomem(err);
        volume->name[0] = '\0';
        volume->target = OWN_RUN_DISK;
        volume->read_only = true;
        box->volumes = volume;
        box->n_volumes = 1;
    }
    run->program = spec->program;
    run->program.argv = copy_list(arena, spec->program.argv, count(spec->program.argv));
    run->program.env = copy_list(arena, spec->program.env, count(spec->program.env));
    return (spec->new_layer && !box->new_layer) || !box->below || !run->program.argv || !run->program.env
               ? err_nomem(err)
               : 0;
}

static int prepare(struct own_run *run, const struct config *config, const struct own_run_spec *spec,
                   struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;

    run->arena = arena_create(OWN_MEMORY_MAX);
    if (!run->arena)
        return err_nomem(err);
    if (str_copy(run->caller.org_id, sizeof run->caller.org_id, spec->org) < 0 ||
        str_copy(run->caller.actor, sizeof run->caller.actor, spec->actor) < 0)
        return err_usage(err, "organisation: too long");
    int r = json_read(spec->sandbox, strlen(spec->sandbox), JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = sbox_spec_parse_own(json_root(doc), config, manager_templates(run->manager), &run->caller, &run->spec, err);
    if (r < 0)
        return r;
    run->spec.ephemeral = run->spec.service = true;
    return copy_words(run, spec, err);
}

int own_run_create(struct manager *manager, const struct config *config, const struct own_run_spec *spec,
                   const struct own_run_events *events, struct own_run **ret, struct brig_err *err)
{
    struct own_run *run = mem_zalloc(sizeof *run);

    if (!run)
        return err_nomem(err);
    *run = (struct own_run){.manager = manager, .caller = {.role = STORE_ROLE_ADMIN}, .events = *events};
    int r = prepare(run, config, spec, err);
    if (r < 0)
        own_run_destroy(run);
    else
        *ret = run;
    return r;
}

int own_run_start(struct own_run *run, struct brig_err *err)
{
    static const uint8_t no_fingerprint[SHA256_SIZE];

    if (run->err.code) {
        *err = run->err;
        return -ECANCELED;
    }
    run->state = OWN_CREATING;
    return manager_create_sandbox(run->manager, &run->caller, &run->spec, NULL, no_fingerprint, on_created, run, err);
}

/* ---- while it runs ------------------------------------------------------------------------------------ */

void own_run_consumed(struct own_run *run, unsigned stream, size_t len)
{
    if (run->output)
        output_consumed(run->output, stream, len);
}

void own_run_stop(struct own_run *run, const struct brig_err *why)
{
    fail(run, why);
    if (run->sbox && run->state == OWN_RUNNING)
        end(run);
}

void own_run_forget(struct own_run *run)
{
    run->forgotten = true;
    if (run->sbox && run->state == OWN_RUNNING)
        end(run);
}
