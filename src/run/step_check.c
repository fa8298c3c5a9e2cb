/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_check.c: the first step checks everything before anything is made: whether the run is allowed, whether the tool
 * was called too often, whether its arguments are right, whether it may have its limits, network, secrets and variables
 * (check_bounds.c), and whether somebody must approve it. Each question fails closed.
 */
#include <stdio.h>

#include "base/share.h"
#include "records/accounts.h"
#include "run/run_priv.h"

#define REQUESTS_MAX ((size_t)2 << 30)
#define REQUEST_SMALL (256u << 10) /* their number is bound enough */

/* Variables make interpreters and shells run what they say (BASH_ENV, NODE_OPTIONS), and a sandbox has files of whoever
 * was there before: with either the caller brings source along. Those who write the lists are not asked. */
static bool brings_source(const struct run *run)
{
    const struct run_ask *ask = run->ask;

    return !ask->tool_object ||
           (!caller_is_admin(&run->caller) && ((ask->env_vars && ask->env_vars->count > 0) || run->sandbox_id[0]));
}

static int check_call(struct run *run, struct brig_err *err)
{
    const struct run_ask *ask = run->ask;
    const struct executor_options *o = &run->executor->o;
    const struct tool *tool = ask->tool;

    if (ask->args_json && ask->args_json->type != JSON_OBJECT)
        return err_usage(err, "args: must be an object");
    if (run->kind == FRAME_SCHEMA)
        return 0;
    /* Whoever brings the source can call it as he likes: all of it is `run`, a name that no tool can have. */
    const char *name = tool->name ? tool->name : "";
    const bool deny = str_eq(o->config->tools_default, "deny");
    int r = ask->tool_object ? tool_allowed(ask->org_doc, ask->key_doc, deny, name, err) : 0;
    if (r == 0 && brings_source(run))
        r = tool_allowed(ask->org_doc, ask->key_doc, deny, TOOL_UNREGISTERED, err);
    if (r < 0 || run->kind != FRAME_TOOL)
        return r;
    if (r == 0 && tool->rate_max && o->rates)
        r = rates_take(o->rates, run->caller.org_id, name, tool->rate_max, tool->rate_window_s, loop_now_ns(),
                       &run->retry_s, err);
    if (r == 0 && tool->schema && ask->args_json && !ask->no_schema_check)
        r = schema_check(tool->schema, ask->args_json, err);
    if (r == 0 && tool->n_rules && ask->args_json)
        r = rules_check(tool->rules, tool->n_rules, ask->args_json, err);
    return r;
}

/* ---- approval ------------------------------------------------------------------------------------------- */

static void on_decided(void *ctx, enum verdict verdict, const char *by, const char *reason)
{
    struct run *run = ctx;
    const char *name = run->tool.name ? run->tool.name : run->id;
    struct brig_err err = {0};

    run->asked = false;
    if (verdict == VERDICT_APPROVED) {
        snprintf(run->note, sizeof run->note, "approved by %.80s", by);
        run_next(run);
        return;
    }
    if (verdict == VERDICT_EXPIRED)
        (void)err_set(&err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' not approved: nobody has decided in time", name);
    else
        (void)err_set(&err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' not approved: denied by %.64s%s%.80s", name, by,
                      reason && reason[0] ? ": " : "", reason ? reason : "");
    run_refuse(run, &err);
}

/* 1: on_decided() follows. */
static int ask_approval(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    struct approval ask = {.asked_at_ns = clock_real_ns(), .arguments = run->args};

    if (run->kind != FRAME_TOOL || !run->tool.requires_approval)
        return 0;
    if (!o->approvals)
        return err_set(err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' needs an approval, and nobody can give one here",
                       run->tool.name ? run->tool.name : "");
    ask.expires_at_ns = ask.asked_at_ns + (int64_t)(o->config->tools_approval_timeout * NS_PER_MS);
    str_assign(ask.run_id, run->id);
    str_assign(ask.org_id, run->caller.org_id);
    snprintf(ask.tool, sizeof ask.tool, "%.63s", run->tool.name ? run->tool.name : "");
    snprintf(ask.agent_id, sizeof ask.agent_id, "%.63s", run->agent_id);
    str_assign(ask.actor, run->caller.actor);
    int r = approvals_ask(o->approvals, &ask, o->config->tools_approval_timeout, on_decided, run, err);
    run->asked = r == 0;
    return r < 0 ? r : 1;
}

/* One organisation of several has a share of the runs, by the rule of base/share.h; the socket's administrator all. */
static int check_number(const struct run *run, struct brig_err *err)
{
    const struct executor *executor = run->executor;
    const size_t max = executor->o.config->tools_max_runs, all = executor->n_runs - 1; /* the others */
    const struct object *org = executor->o.accounts ? org_first(executor->o.accounts) : NULL;
    size_t own = 0;

    if (all >= max)
        return err_set(err, BRIG_E_LIMIT, 0, "Maximum number of runs (%zu) reached", max);
    if (run->caller.socket || !org || !org->next || share_allows(all, max - all, 1))
        return 0;
    for (const struct run *other = executor->runs; other; other = other->next)
        own += other != run && other->counted && str_eq(other->caller.org_id, run->caller.org_id);
    if (share_allows(own, max - all, 1))
        return 0;
    return err_set(err, BRIG_E_LIMIT, 0,
                   "Maximum number of runs of one organisation reached: it has %zu of %zu, and %zu are left for all",
                   own, max, max - all);
}

/*
 * A run keeps its request until it has ended, and what was read of it takes many times the bytes that came. So large
 * ones are bounded together, by the rule of base/share.h.
 */
static int check_memory(const struct run *run, struct brig_err *err)
{
    const size_t max = run->executor->o.requests_max ? run->executor->o.requests_max : REQUESTS_MAX;
    const size_t wants = arena_bytes(run->arena);
    size_t own = 0, all = 0;

    if (wants <= REQUEST_SMALL || run->caller.socket)
        return 0;
    for (const struct run *other = run->executor->runs; other; other = other->next) {
        size_t bytes = other == run ? 0 : arena_bytes(other->arena);
        if (bytes <= REQUEST_SMALL)
            continue;
        all += bytes;
        own += str_eq(other->caller.org_id, run->caller.org_id) ? bytes : 0;
    }
    if (all <= max && share_allows(own, max - all, wants))
        return 0;
    return err_set(err, BRIG_E_LIMIT, 0, "the organisation's runs keep %zu MiB of requests in memory", own >> 20);
}

/*
 * What the template's name means is looked up once, here. The value of a secret is not given to an image that user keys
 * could put in its place: with [templates] allow, or with a commit under a name that meant nothing at that moment.
 */
static int check_template(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const char *name = run->template_name;

    if (!name[0])
        return 0;
    const struct templates *templates = manager_templates(o->manager);
    int r = sbox_template_check(name, o->config, templates, &run->caller, err);
    const struct object *object = r == 0 && templates ? templates_find(templates, run->caller.org_id, name) : NULL;
    if (r < 0 || !object)
        return r;
    const struct template_info *info = template_of(object);
    const bool of_users = !info->shared && (o->config->templates_allow[0] || str_eq(info->source, "commit"));
    if ((run->exposes || run->tool.needs_credentials) && of_users)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "template %s: others than administrators may have made it (%s), so it is not given the value of "
                       "a secret",
                       name, o->config->templates_allow[0] ? "[templates] allow" : "commit");
    return str_copy(run->template_id, sizeof run->template_id, template_content(info)) < 0
               ? err_usage(err, "template %s: the name of its layer is too long", name)
               : 0;
}

int step_check(struct run *run, struct brig_err *err)
{
    int r = check_number(run, err);

    if (r == 0)
        r = check_memory(run, err);
    if (r == 0)
        r = check_call(run, err);
    if (r == 0)
        r = check_network(run, err);
    if (r == 0)
        r = check_limits(run, err);
    if (r == 0)
        r = check_template(run, err);
    if (r == 0)
        r = environment_begin(run, err);
    if (r < 0)
        return r;
    place_order(run);
    if (run->background)
        run_store_open(run);
    return ask_approval(run, err);
}
