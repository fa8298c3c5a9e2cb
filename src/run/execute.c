/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execute.c: makes a run from a request, leads it through its steps, and ends it with a receipt.
 *
 * Theory of operation. executor_run() takes over the arena of the request and advances: each step (step_*.c, in the
 * order of enum run_step) returns at once (0), or waits (1) for one callback that goes on with run_next(), or refuses.
 * With a child parked, everything up to the write of the request happens in that one call, without a timer; the next
 * thing is the answer. executor_run() never calls back: a refusal comes from the loop.
 *
 * The answer leads to the last two steps: step_result(), then step_receipt(), which tells the caller and frees the run.
 */
#include <string.h>

#include "base/id.h"
#include "base/list.h"
#include "run/run_priv.h"

#define CHUNK 8192u

/* ---- memory --------------------------------------------------------------------------------------------- */

int run_parse(struct run *run, char *text, size_t len, const struct json_value **ret)
{
    int r = arena_adopt(run->arena, text, len);

    return r < 0 ? r : json_read_in(run->arena, text, len, JSON_READ_VALUES, ret, NULL);
}

/* What it was asked for. */
static void free_request(struct run *run)
{
    object_release(run->tool_object);
    object_release(run->agent);
    arena_destroy(run->arena);
}

static void uncount(struct run *run)
{
    run->executor->n_runs -= run->counted;
    run->counted = false;
}

void run_free(struct run *run)
{
    struct executor *executor = run->executor;

    run_drop_waits(run);
    loop_timer_clear(executor->o.loop, &run->later);
    if (run->set && executor->o.sets)
        set_release(executor->o.sets, run->set);
    if (run->outcome)
        outcome_done(run->outcome);
    environment_destroy(run->env);
    scrub_destroy(run->scrub);
    for (size_t i = 0; i < ARRAY_SIZE(run->streams); i++)
        buf_done(&run->streams[i].held);
    free_request(run);
    mem_free(run->secrets_memory);
    crypto_wipe(run->key, sizeof run->key);
    list_remove(&executor->runs, run);
    uncount(run);
    if (run->breathes)
        pool_breathe(executor->o.pool);
    mem_free(run);
}

void run_drop_waits(struct run *run)
{
    struct executor_options *o = &run->executor->o;

    if (run->asked)
        approvals_withdraw(o->approvals, run->id);
    run->asked = false;
    if (run->webhook)
        webhook_cancel(take_ptr(&run->webhook));
    if (run->build)
        set_build_cancel(take_ptr(&run->build));
    if (run->wait)
        pool_cancel(take_ptr(&run->wait));
    if (run->reusing)
        reuse_cancel(take_ptr(&run->reusing));
    loop_timer_clear(o->loop, &run->later);
}

/* ---- the ends ------------------------------------------------------------------------------------------- */

static void tell_refused(struct run *run)
{
    if (run->background)
        run_store_refused(run);
    if (run->events.done)
        run->events.done(run->events.ctx, NULL, &run->refused, run->retry_s);
    run_free(run);
}

static void on_later(struct loop_timer *timer)
{
    struct run *run = timer->ctx;

    if (run->refused.code)
        tell_refused(run);
    else if (run->outcome)
        run_over(run);
    else if (run->cancelled)
        run_result_error(run, BRIG_CAUSE_CANCELLED, "CancelledError", run->note);
    else
        run_advance(run);
}

void run_put_off(struct run *run)
{
    run->stuck = loop_timer_set(run->executor->o.loop, &run->later, loop_now_ns(), NULL) < 0;
}

void run_refuse(struct run *run, const struct brig_err *why)
{
    run->refused = *why;
    if (!run->refused.code)
        run->refused.code = BRIG_E_HOST;
    uncount(run);
    run_drop_waits(run);
    run_audit_refused(run);
    run->step = STEP_RECEIPT;
    if (run->entered)
        run_put_off(run);
    else
        tell_refused(run);
}

/* ---- the steps ------------------------------------------------------------------------------------------ */

void run_advance(struct run *run)
{
    static int (*const steps[])(struct run * run, struct brig_err * err) = {
        [STEP_CHECK] = step_check, [STEP_ENVIRONMENT] = step_environment,
        [STEP_DEPS] = step_deps,   [STEP_PLACE] = step_place,
        [STEP_SEND] = step_send,
    };
    struct brig_err err = {0};
    int r;

    while ((r = steps[run->step](run, &err)) == 0)
        run->step++;
    if (r < 0)
        run_refuse(run, &err);
}

void run_next(struct run *run)
{
    run->step++;
    run_advance(run);
}

/* ---- a request ------------------------------------------------------------------------------------------ */

/* For a tool that is not a row: its lists are its caller's, their strings the arena's. */
static int copy_requirements(struct run *run, struct requirement **list, size_t n)
{
    struct requirement *copy = arena_alloc(run->arena, n * sizeof **list);

    if (!copy)
        return -ENOMEM;
    if (n > 0)
        memcpy(copy, *list, n * sizeof *copy);
    *list = copy;
    return 0;
}

static int take_tool(struct run *run, const struct run_ask *ask)
{
    struct tool *tool = &run->tool;

    *tool = *ask->tool;
    tool->schema = NULL;
    tool->rules = NULL;
    tool->n_rules = 0;
    if (!tool->source) {
        tool->source = "";
        tool->source_len = 0;
    }
    if (ask->tool_object) {
        run->tool_object = object_hold(ask->tool_object);
        return 0;
    }
    int r = copy_requirements(run, &tool->pip, tool->n_pip);
    return r < 0 ? r : copy_requirements(run, &tool->npm, tool->n_npm);
}

/* The call's, else the tool's, unless the run goes to a sandbox that has its own. */
static int take_template(struct run *run, const struct run_ask *ask)
{
    bool live = ask->sandbox_id || ask->reuse != REUSE_NONE;
    const char *name = ask->template_name                               ? ask->template_name
                       : !live && ask->tool && ask->tool->template_name ? ask->tool->template_name
                                                                        : "";

    return str_copy(run->template_name, sizeof run->template_name, str_eq(name, "host") ? "" : name);
}

static int take_ask(struct run *run, const struct run_ask *ask)
{
    run->ask = ask;
    run->caller = *ask->caller;
    run->kind = ask->kind;
    run->of_row = ask->tool_object != NULL;
    run->strict = ask->strict || run->executor->o.config->tools_strict;
    run->background = ask->background;
    run->reuse = (int)ask->reuse;
    int r = str_copy(run->sandbox_id, sizeof run->sandbox_id, ask->sandbox_id ? ask->sandbox_id : "");
    if (r == 0)
        r = take_template(run, ask);
    if (r < 0)
        return r;
    run->args = ask->args ? ask->args : "{}";
    run->args_len = ask->args ? ask->args_len : 2;
    run->files = ask->files;
    run->collect = ask->collect;
    run->state = ask->agent_state;
    if (ask->agent) {
        run->agent = object_hold(ask->agent);
        str_assign(run->agent_id, ask->agent->id);
        run->agent_version = ask->agent->version;
        run->project = agent_project(ask->agent);
        run->state = agent_state(ask->agent);
    }
    return take_tool(run, ask);
}

/* It is over, and there is no memory for the timer that would tell. */
static int end_stuck(struct run *run, struct run **ret, struct brig_err *err)
{
    int r = err_nomem(&run->refused);

    if (err)
        *err = run->refused;
    if (run->background)
        run_store_refused(run);
    run_free(run);
    *ret = NULL;
    return r;
}

int executor_run(struct executor *executor, const struct run_ask *ask, const struct run_events *events,
                 struct run **ret, struct brig_err *err)
{
    struct run *run = mem_zalloc(sizeof *run);
    struct brig_err why = {0};

    if (!run)
        return err_nomem(err);
    if (!ask->arena || !*ask->arena) {
        run->arena = arena_create(RUN_ARENA_MAX);
        if (!run->arena) {
            mem_free(run);
            return err_nomem(err);
        }
    }
    int r = id_run(run->id);
    if (r < 0 || crypto_random(run->key, sizeof run->key) < 0) {
        arena_destroy(run->arena);
        mem_free(run);
        return err_set(err, BRIG_E_HOST, r ? -r : EIO, "random bytes");
    }
    run->executor = executor;
    run->events = *events;
    run->entered = true;
    run->later = (struct loop_timer){.fn = on_later, .ctx = run};
    run->created_ns = loop_now_ns();
    run->created_at_ns = clock_real_ns();
    for (size_t i = 0; i < ARRAY_SIZE(run->streams); i++)
        run->streams[i].held = BUF_INIT(TEXT_MAX);
    list_push(&executor->runs, run);
    executor->n_runs++;
    run->counted = true;
    *ret = run;
    if (!run->arena)
        run->arena = take_ptr(ask->arena);
    r = take_ask(run, ask);
    if (r < 0) {
        (void)(r == -ENOMEM ? err_nomem(&why) : err_set(&why, BRIG_E_TOO_LARGE, -r, "the request is too large"));
        run_refuse(run, &why);
    } else {
        run_advance(run);
    }
    run->ask = NULL;
    run->entered = false;
    return run->stuck ? end_stuck(run, ret, err) : 0;
}

/* ---- those that go on ----------------------------------------------------------------------------------- */

const char *run_id(const struct run *run)
{
    return run->id;
}

bool run_waits(const struct run *run)
{
    return run->step == STEP_CHECK && run->asked;
}

bool run_is_refused(const struct run *run)
{
    return run->refused.code != 0;
}

void run_detach(struct run *run)
{
    run->events = (struct run_events){0};
}

void run_cancel(struct run *run, const char *why)
{
    if (run->step >= STEP_RESULT || run->cancelled)
        return; /* it is over already */
    run->cancelled = true;
    if (run->child) {
        child_cancel(run->child, why);
    } else if (run->provider_run) {
        run->provider->ops->cancel(run->provider, run->provider_run);
    } else {
        run_drop_waits(run);
        str_cut(run->note, sizeof run->note, why);
        if (loop_timer_set(run->executor->o.loop, &run->later, loop_now_ns(), NULL) < 0)
            on_later(&run->later);
    }
}

struct run *executor_find(struct executor *executor, const char *org, const char *id)
{
    for (struct run *run = executor->runs; run; run = run->next)
        if (str_eq(run->id, id) && run->step != STEP_RECEIPT && (!org[0] || str_eq(run->caller.org_id, org)))
            return run;
    return NULL;
}

void run_put(const struct run *run, bool now, struct json *json)
{
    static const char *const names[STEP_MAX] = {
        "waiting_for_approval", "queued", "installing", "queued", "running", "running", "running"};
    const bool placed = run->wait || run->reusing; /* a child or a sandbox is being made for it */
    static const char *const kinds[] = {"tool", "code", "command", "schema"};

    json_object(json);
    json_key_string(json, "id", run->id);
    json_key_string(json, "kind", kinds[run->kind]);
    if (now)
        json_key_string(json, "status", placed ? "running" : names[run->step]);
    json_key_string(json, "organization_id", run->caller.org_id);
    if (run->tool.name && run->kind == FRAME_TOOL) {
        json_key_object(json, "tool");
        json_key_string(json, "name", run->tool.name);
        json_key(json, "version"), run->tool.version ? json_u64(json, run->tool.version) : json_null(json);
        json_end(json);
    }
    if (run->agent_id[0])
        json_key_string(json, "agent_id", run->agent_id);
    receipt_put_time(json, "started_at", run->created_at_ns);
    json_end(json);
}

void run_json(const struct run *run, struct json *json)
{
    run_put(run, true, json);
}

/* ---- the executor --------------------------------------------------------------------------------------- */

int executor_create(const struct executor_options *options, struct executor **ret, struct brig_err *err)
{
    struct executor *executor = mem_zalloc(sizeof *executor);

    if (!executor)
        return err_nomem(err);
    executor->o = *options;
    *ret = executor;
    return 0;
}

/* Runs under way are forgotten without a word; the manager, which has their children, is destroyed before the loop
 * turns again. */
void executor_destroy(struct executor *executor)
{
    if (!executor)
        return;
    while (executor->runs) {
        struct run *run = executor->runs;
        if (run->step == STEP_RESULT) { /* the agents' objects call back with it: what is left is freed there */
            list_remove(&executor->runs, run);
            run->executor = NULL;
            free_request(run);
            continue;
        }
        run_free(run);
    }
    schemas_free(executor);
    artifacts_free(executor);
    mem_free(executor);
}

void executor_configure(struct executor *executor, const struct config *config)
{
    executor->o.config = config;
    memset(executor->fingerprints, 0, sizeof executor->fingerprints);
    executor->dir.seen_ns = 0;
}
