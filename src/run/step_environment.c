/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_environment.c: the second step puts the environment of a run together from all of its sources, and makes the
 * automaton that keeps its secrets out of the output. Variables of the call and the forced ids are added while the
 * request is there; the rest is looked up when it is due, so that a run that waited for an approval has today's.
 */
#include <stdio.h>
#include <string.h>

#include "crypto/keyring.h"
#include "records/secrets.h"
#include "run/run_priv.h"

int environment_begin(struct run *run, struct brig_err *err)
{
    if (environment_create(run->arena, &run->env) < 0)
        return err_nomem(err);
    int r = environment_add_base(run->env, run->executor->o.config->tools_pass_env, err);
    if (r == 0)
        r = environment_add_json(run->env, ENV_RUNTIME, run->ask->env_vars, err);
    if (r == 0)
        r = environment_add_text(run->env, ENV_WEBHOOK, "PROJECT_ID", run->project, err);
    if (r == 0)
        r = environment_add_text(run->env, ENV_FORCED, "LETTA_AGENT_ID", run->agent_id, err);
    if (r == 0)
        r = environment_add_text(run->env, ENV_FORCED, "LETTA_PROJECT_ID", run->project, err);
    if (r == 0)
        r = environment_add_text(run->env, ENV_FORCED, "LETTA_TOOL_ID", run->tool.id, err);
    return r == 0 ? environment_add_text(run->env, ENV_FORCED, "BRIG_RUN_ID", run->id, err) : r;
}

static int add_variables(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const struct object *config = o->configs ? configs_by_type(o->configs, run->caller.org_id, "local") : NULL;
    int r = 0;

    if (!config)
        return 0;
    for (const struct object *v = objects_first(configs_variables(o->configs), run->caller.org_id); v && r == 0;
         v = v->next) {
        const char *key = json_get_text(v->json, "key", NULL);
        uint8_t *value = NULL;
        size_t len = 0;
        if (!key || !json_get_is(v->json, "config_id", config->id))
            continue;
        r = variable_reveal(o->configs, v, &value, &len, err);
        if (r == 0)
            r = environment_add(run->env, ENV_SANDBOX, key, (const char *)value, len, true, err);
        crypto_secret_free(value, len);
    }
    return r;
}

/* Stored secrets that the tool is to see as they are; brokered ones are placeholders, which the sandbox knows. */
static int add_exposed(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    int r = 0;

    for (size_t i = 0; i < run->n_secrets && r == 0; i++) {
        uint8_t *value = NULL;
        size_t len = 0;
        if (!run->secrets[i].expose)
            continue;
        const struct secret_use use = run_secret_use(run, i);
        r = secrets_expose(o->secrets, &use, &value, &len, err);
        if (r == 0)
            r = environment_add(run->env, ENV_SANDBOX, run->secrets[i].env, (const char *)value, len, true, err);
        crypto_secret_free(value, len);
    }
    return r;
}

struct adding {
    struct run *run;
    struct brig_err *err;
};

static int add_agent(void *ctx, const char *name, const char *value, size_t len)
{
    struct adding *a = ctx;

    return environment_add(a->run->env, ENV_AGENT, name, value, len, true, a->err);
}

static void add_secret(void *ctx, const char *value, size_t len)
{
    struct run *run = ctx;

    if (len < SCRUB_MIN)
        return;
    int r = run->scrub ? 0 : scrub_create(&run->scrub);
    r = r < 0 ? r : scrub_add(run->scrub, value, len);
    if (r < 0)
        run->refused.code = r == -E2BIG ? BRIG_E_TOO_LARGE : BRIG_E_NOMEM;
}

static int make_scrub(struct run *run, struct brig_err *err)
{
    environment_each_secret(run->env, add_secret, run);
    int failed = run->refused.code;
    run->refused.code = 0;
    /* A run whose secrets cannot be kept does not begin. */
    if (failed == BRIG_E_TOO_LARGE)
        return err_set(err, BRIG_E_TOO_LARGE, 0,
                       "environment: its variables are too long to be kept out of the output");
    return failed || (run->scrub && scrub_ready(run->scrub) < 0) ? err_nomem(err) : 0;
}

/*
 * User keys write the variables of configurations and agents: they could tell a tool where to send the value that it
 * has, or a shell what to run before it (BASH_ENV). So they stay out of a run that has what a user key could not have
 * given it: a value, a private range, a sandbox that holds such a thing.
 */
static bool runs_alone(const struct run *run)
{
    const struct sbox *sbox =
        run->sandbox_id[0] ? manager_find(run->executor->o.manager, &run->caller, run->sandbox_id) : NULL;

    return run->exposes || run->needs > STANDING_USER || (sbox && sbox_is_gifted(sbox));
}

static int look_up(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const bool alone = runs_alone(run);
    struct adding adding = {run, err};
    int r = run->exposes ? add_exposed(run, err) : alone ? 0 : add_variables(run, err);

    if (r == 0 && run->agent_version && !alone) {
        const struct object *agent =
            o->agents ? objects_find(agents_objects(o->agents), run->caller.org_id, run->agent_id) : NULL;
        if (!agent)
            return err_set(err, BRIG_E_NOT_FOUND, 0, "%.64s not found", run->agent_id);
        r = agent_secrets(o->agents, agent, add_agent, &adding, err);
    }
    return r == 0 ? make_scrub(run, err) : r;
}

/* ---- credentials ---------------------------------------------------------------------------------------- */

static void on_credentials(void *ctx, const struct json_value *vars, const struct brig_err *why)
{
    struct run *run = ctx;
    struct brig_err err = {0};
    int r = 0;

    run->webhook = NULL;
    if (vars) {
        r = environment_add_json(run->env, ENV_WEBHOOK, vars, &err);
        if (r == 0 && run->project && run->project[0]) /* in the same layer, and the agent's own wins */
            r = environment_add(run->env, ENV_WEBHOOK, "PROJECT_ID", run->project, strlen(run->project), false, &err);
    } else if (run->tool.needs_credentials) {
        r = err_set(&err, BRIG_E_BUSY, 0, "credentials: %.200s", why ? why->message : "none came");
    } else {
        snprintf(run->note, sizeof run->note, "without credentials: %.200s", why ? why->message : "none came");
    }
    r = r < 0 ? r : look_up(run, &err);
    if (r < 0)
        run_refuse(run, &err);
    else
        run_next(run);
}

/*
 * Decides whose credentials to ask for. The tool's name is used only if no user key decides what has that name, or what
 * runs beside it: an administrator registered the tool, and an administrator runs it or it is guarded
 * (guard_credentials()).
 */
static const char *credentials_of(const struct run *run)
{
    bool guarded = run->tool.needs_credentials || caller_is_admin(&run->caller);

    return run->of_row && run->tool.registrant.as >= STANDING_ADMIN && guarded ? run->tool.name : TOOL_UNREGISTERED;
}

/* 1: on_credentials() follows. */
static int ask_credentials(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const char *org = run->caller.org_id;
    char user[80]; /* the organisation's, as in every document of Letta's interface */
    const struct webhook_ask ask = {.user_id = user,
                                    .org_id = org,
                                    .tool_name = credentials_of(run),
                                    .agent_id = run->agent_id[0] ? run->agent_id : NULL};

    snprintf(user, sizeof user, "user-%s", str_starts(org, "org-") ? org + 4 : org);

    if (run->kind != FRAME_TOOL)
        return 0;
    if (!o->webhook) {
        if (!run->tool.needs_credentials)
            return 0;
        return err_set(err, BRIG_E_BUSY, 0, "credentials: the tool needs them, and no webhook is configured");
    }
    if (run->of_row && !str_eq(ask.tool_name, run->tool.name)) /* an answer's absence is told in its place */
        snprintf(run->note, sizeof run->note, "credentials: asked for as %s, not as %.100s", ask.tool_name,
                 run->tool.name);
    int r = webhook_fetch(o->webhook, &ask, on_credentials, run, &run->webhook, err);
    return r < 0 ? r : 1;
}

int step_environment(struct run *run, struct brig_err *err)
{
    int r = ask_credentials(run, err);

    return r == 0 ? look_up(run, err) : r;
}
