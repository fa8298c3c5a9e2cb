/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_check.c: what is asked before anything runs: is it allowed, too often, are its arguments right, does somebody
 * have to say yes, are there credentials, and the packages it needs. Each fails closed.
 */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "deps/config_set.h"
#include "run/run_priv.h"

#define RUN_REQUIREMENTS_MAX 512u

/* Variables make interpreters and shells run what they say (BASH_ENV, NODE_OPTIONS), and a sandbox has files of whoever
 * was there before: with either the caller brings source along. Those who write the lists are not asked. */
static bool brings_source(const struct run *run, const struct run_ask *ask)
{
    return !ask->tool_object ||
           (!caller_is_admin(&run->caller) && ((ask->env_vars && ask->env_vars->count > 0) || run->sandbox_id[0]));
}

int step_checks(struct run *run, struct steps_ask *checks, struct brig_err *err)
{
    const struct run_ask *ask = checks->ask;
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
    if (r == 0 && brings_source(run, ask))
        r = tool_allowed(ask->org_doc, ask->key_doc, deny, TOOL_UNREGISTERED, err);
    if (r < 0 || run->kind != FRAME_TOOL)
        return r;
    if (r == 0 && tool->rate_max && o->rates)
        r = rates_take(o->rates, run->caller.org_id, name, tool->rate_max, tool->rate_window_s, loop_now_ns(),
                       &checks->retry_s, err);
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
        run->step++;
        run_advance(run);
        return;
    }
    if (verdict == VERDICT_EXPIRED)
        (void)err_set(&err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' not approved: nobody has decided in time", name);
    else
        (void)err_set(&err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' not approved: denied by %.64s%s%.80s", name, by,
                      reason && reason[0] ? ": " : "", reason ? reason : "");
    run_refuse(run, &err, 0);
}

int step_approval(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    struct approval ask = {.asked_at_ns = clock_real_ns(), .arguments = run->args};

    if (run->kind != FRAME_TOOL || !run->tool.requires_approval)
        return 0;
    if (!o->approvals)
        return err_set(err, BRIG_E_FORBIDDEN, 0, "Tool '%.64s' needs an approval, and nobody can give one here",
                       run->tool.name ? run->tool.name : "");
    ask.expires_at_ns = ask.asked_at_ns + (int64_t)(o->config->tools_approval_timeout * NS_PER_MS);
    snprintf(ask.run_id, sizeof ask.run_id, "%s", run->id);
    snprintf(ask.org_id, sizeof ask.org_id, "%s", run->caller.org_id);
    snprintf(ask.tool, sizeof ask.tool, "%.63s", run->tool.name ? run->tool.name : "");
    snprintf(ask.agent_id, sizeof ask.agent_id, "%.63s", run->agent_id);
    snprintf(ask.actor, sizeof ask.actor, "%s", run->caller.actor);
    int r = approvals_ask(o->approvals, &ask, o->config->tools_approval_timeout, on_decided, run, err);
    run->asked = r == 0;
    return r < 0 ? r : 1;
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
    if (r < 0) {
        run_refuse(run, &err, 0);
        return;
    }
    run->step++;
    run_advance(run);
}

/*
 * Whose credentials to ask for. By the tool's name only where no user key says what is called that, or what runs beside
 * it: an administrator registered the tool, and an administrator runs it or it is guarded (guard_credentials()).
 */
static const char *credentials_of(const struct run *run)
{
    bool guarded = run->tool.needs_credentials || caller_is_admin(&run->caller);

    return run->of_row && run->tool.registrant.as >= STANDING_ADMIN && guarded ? run->tool.name : TOOL_UNREGISTERED;
}

int step_credentials(struct run *run, struct brig_err *err)
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

/* ---- the requirement set -------------------------------------------------------------------------------- */

struct wants {
    const char *pip[RUN_REQUIREMENTS_MAX], *npm[REQUIREMENTS_MAX];
    size_t n_pip, n_config_pip, n_npm;
};

static int add(struct run *run, const char **list, size_t *n, const char *name, const char *version, bool npm)
{
    char text[512];
    bool bare = !version || !version[0], compared = !bare && strchr("=<>~!", version[0]);

    if (*n >= RUN_REQUIREMENTS_MAX)
        return -E2BIG;
    int r = str_format(text, sizeof text, "%s%s%s", name,
                       bare       ? ""
                       : npm      ? "@"
                       : compared ? ""
                                  : "==",
                       bare ? "" : version);
    if (r < 0)
        return r;
    list[*n] = run_copy_text(run, text);
    if (!list[*n])
        return -ENOMEM;
    (*n)++;
    return 0;
}

/* Of a configuration: [{name, version}] or ["name==1"]. */
static int add_json(struct run *run, const struct json_value *list, const char **out, size_t *n, bool npm)
{
    int r = 0;

    for (const struct json_value *v = list && list->type == JSON_ARRAY ? list->first : NULL; v && r == 0; v = v->next) {
        const struct json_value *name = v->type == JSON_OBJECT ? json_get(v, "name") : v,
                                *version = json_get(v, "version");
        if (name && name->type == JSON_STRING)
            r = add(run, out, n, name->string, version && version->type == JSON_STRING ? version->string : NULL, npm);
    }
    return r;
}

static int collect(struct run *run, struct wants *wants, const struct json_value *config)
{
    int r = run->tool.language == TOOL_PYTHON
                ? add_json(run, json_get(config, "pip_requirements"), wants->pip, &wants->n_pip, false)
                : 0;

    wants->n_config_pip = wants->n_pip;
    for (size_t i = 0; r == 0 && i < run->tool.n_pip; i++)
        r = add(run, wants->pip, &wants->n_pip, run->tool.pip[i].name, run->tool.pip[i].version, false);
    for (size_t i = 0; r == 0 && i < run->tool.n_npm; i++)
        r = add(run, wants->npm, &wants->n_npm, run->tool.npm[i].name, run->tool.npm[i].version, true);
    if (r == 0 && (run->tool.language == TOOL_JAVASCRIPT || run->tool.language == TOOL_TYPESCRIPT))
        r = add_json(run, json_get(config, "npm_requirements"), wants->npm, &wants->n_npm, true);
    return r;
}

static void on_set(void *ctx, const struct set *set, const struct brig_err *why)
{
    struct run *run = ctx;

    struct set_build *build = take_ptr(&run->build);
    if (!set && why->code == BRIG_E_INVALID) {
        const char *whole = build ? set_build_error(build) : NULL;
        run_result_error(run, BRIG_CAUSE_POLICY, "RuntimeError", whole && whole[0] ? whole : why->message);
        return;
    }
    if (!set) {
        run_refuse(run, why, 0);
        return;
    }
    run->set = set;
    run->step++;
    run_advance(run);
}

int step_set(struct run *run, struct brig_err *err)
{
    const struct executor_options *o = &run->executor->o;
    const struct json_value *config = run_config(run);
    struct wants wants = {.n_pip = 0};
    AUTO_BUF struct buf text = BUF_INIT(CONFIG_TXT_MAX);

    if (run->sandbox_id[0] || run->reuse != REUSE_NONE || run->kind == FRAME_SCHEMA)
        return 0; /* a live sandbox has what it has */
    int r = run_workspace(run, run->tool.language == TOOL_PYTHON ? &text : NULL);
    if (r == -EACCES)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "sandbox_dir %.200s: is not below a directory of [sandbox] allowed_dirs any more",
                       config_set_dir(config, o->config));
    if (r == 0)
        r = collect(run, &wants, config);
    if (r < 0)
        return r == -ENOMEM ? err_nomem(err)
                            : err_set(err, BRIG_E_TOO_LARGE, -r, "requirements: too many, or too long");
    if (wants.n_pip + wants.n_npm + text.len == 0)
        return 0;
    if (!o->sets)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "requirements cannot be installed here");
    const struct set_want want = {.org_id = run->caller.org_id,
                                  .pip = wants.pip,
                                  .n_pip = wants.n_pip,
                                  .n_config_pip = wants.n_config_pip,
                                  .npm = wants.npm,
                                  .n_npm = wants.n_npm,
                                  .venv_name = config_set_venv(config, o->config),
                                  .python = "/usr/bin/python3",
                                  .requirements_txt = text.len ? text.data : NULL};
    r = sets_get(o->sets, &run->caller, &want, false, on_set, run, &run->build, err);
    if (r < 0 && err->code == BRIG_E_INVALID) {
        struct brig_err why = *err;
        run_result_error(run, BRIG_CAUSE_POLICY, "RuntimeError", why.message);
        return 1;
    }
    return r < 0 ? r : 1;
}
