/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_bounds.c: checks what a run may have: limits and wall clock (the call wins over the tool, the tool over the
 * configuration, the configuration over the settings), network and secrets. It is a part of the step `check`: nothing
 * is made here, and what the caller may not give is refused.
 */
#include <string.h>

#include "records/secrets.h"
#include "run/run_priv.h"
#include "sandbox/spec.h"

/* ---- limits --------------------------------------------------------------------------------------------- */

/* Those that are given win over those before. */
int check_limits(struct run *run, struct brig_err *err)
{
    const struct run_ask *ask = run->ask;
    const struct config *config = run->executor->o.config;
    const struct json_value *own = json_get(run_config(run), "timeout");
    uint64_t of_config = 0;
    int r = 0;

    if (ask->tool->limits && ask->tool->limits->type != JSON_NULL)
        r = spec_limits_asked(ask->tool->limits, &run->limits, err);
    if (r == 0) /* the tool's own are of who registered it */
        r = spec_connections((int64_t)run->limits.connections, "limits.connections",
                             run->of_row ? run->tool.registrant.as : caller_standing(&run->caller), config, err);
    uint64_t of_tool = run->limits.timeout;
    if (r == 0 && ask->limits && ask->limits->type != JSON_NULL) {
        run->limits.timeout = 0;
        r = spec_limits_asked(ask->limits, &run->limits, err);
        if (r == 0 && json_get(ask->limits, "connections"))
            r = spec_connections((int64_t)run->limits.connections, "limits.connections", caller_standing(&run->caller),
                                 config, err);
    }
    if (r < 0)
        return r;
    uint64_t of_call = ask->timeout_ms ? ask->timeout_ms : ask->limits ? run->limits.timeout : 0;
    if (own && own->type == JSON_NUMBER && spec_duration(own, "timeout", &of_config, NULL) < 0)
        of_config = 0;
    run->timeout_ms = of_call ? of_call : of_tool ? of_tool : of_config ? of_config : config->tools_timeout;
    if (run->timeout_ms > config->tools_max_timeout)
        run->timeout_ms = config->tools_max_timeout;
    run->limits.timeout = 0; /* the claim has it */
    return 0;
}

/* ---- network and secrets -------------------------------------------------------------------------------- */

static bool is_none(const struct json_value *network)
{
    return !network || network->type == JSON_NULL || (network->type == JSON_STRING && str_eq(network->string, "none"));
}

struct secret_use run_secret_use(const struct run *run, size_t i)
{
    return (struct secret_use){.caller = &run->caller,
                               .registrant = run->row_secrets ? &run->tool.registrant.as : NULL,
                               .name = run->secrets[i].name,
                               .object = run->id,
                               .audit = run->executor->o.audit};
}

/* Those of the list that are not exposed. */
static int keep_brokered(struct run *run, const struct json_value *list)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct json json = JSON_INIT(&text);
    const struct json_value *item = list->first;
    size_t n = 0;

    json_array(&json);
    for (size_t i = 0; i < run->n_secrets; i++, item = item->next)
        if (!run->secrets[i].expose) {
            json_value_put(&json, item);
            n++;
        }
    json_end(&json);
    if (n == 0)
        return 0;
    if (json_finish(&json) < 0)
        return -ENOMEM;
    size_t len = text.len;
    return run_parse(run, take_ptr(&text.data), len, &run->secrets_json);
}

/* Who could have asked for this network. */
static enum standing network_needs(const struct run *run)
{
    enum standing who = STANDING_USER;

    while (run->network && who < STANDING_SOCKET &&
           policy_ranges_check(run->network, who, run->executor->o.config, NULL) < 0)
        who++;
    return who;
}

static int read_secrets(struct run *run, const struct json_value *list, struct brig_err *err)
{
    if (!list || list->type == JSON_NULL || !list->count)
        return 0;
    int r = spec_secrets_read(list, &run->secrets_memory, &run->secrets, &run->n_secrets, err);
    for (size_t i = 0; r == 0 && i < run->n_secrets; i++) {
        const struct secret_use use = run_secret_use(run, i);
        if (!run->secrets[i].expose)
            continue;
        run->exposes = true;
        run->needs = STANDING_ADMIN;
        r = secrets_may_expose(run->executor->o.secrets, &use, err);
    }
    /* whoever was there before could read it */
    if (r == 0 && run->exposes && (run->sandbox_id[0] || run->reuse != REUSE_NONE))
        r = err_set(err, BRIG_E_REFUSED, 0,
                    "secrets.expose: needs a sandbox of the run's own, without sandbox_id and reuse");
    if (r == 0 && keep_brokered(run, list) < 0)
        r = err_nomem(err);
    return r;
}

/* Credentials that an administrator's tool asks the webhook for are for that tool, as an exposed value is. */
static bool has_credentials(const struct run *run)
{
    return run->of_row && run->tool.needs_credentials && run->tool.registrant.as >= STANDING_ADMIN;
}

static int guard_credentials(struct run *run, struct brig_err *err)
{
    if (!has_credentials(run))
        return 0;
    run->exposes = true; /* variables that user keys write stay out */
    run->needs = STANDING_ADMIN;
    if (run->sandbox_id[0] || run->reuse != REUSE_NONE)
        return err_set(err, BRIG_E_REFUSED, 0,
                       "needs_credentials: needs a sandbox of the run's own, without sandbox_id and reuse");
    return 0;
}

/*
 * An administrator's tool that gets the value of a secret runs as the administrator wrote it: its caller does not
 * decide what is around it, or where the value may go.
 */
static int check_overrides(const struct run *run, struct brig_err *err)
{
    const struct run_ask *ask = run->ask;
    const struct {
        const char *name;
        bool given;
    } members[] = {{"env_vars", ask->env_vars && ask->env_vars->count > 0},
                   {"network", ask->network},
                   {"secrets", ask->secrets},
                   {"provider", ask->provider},
                   {"fallback", ask->fallback && !str_eq(ask->fallback, "none")},
                   {"template", ask->template_name}};

    const bool given = (run->of_row && tool_exposes(ask->tool)) || has_credentials(run);
    if (!given || caller_is_admin(&run->caller))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (members[i].given)
            return err_set(err, BRIG_E_FORBIDDEN, 0, "%s: only an administrator may say it for a tool that is given %s",
                           members[i].name, tool_exposes(ask->tool) ? "a secret's value" : "credentials");
    return 0;
}

int check_network(struct run *run, struct brig_err *err)
{
    const struct run_ask *ask = run->ask;
    const struct config *config = run->executor->o.config;
    const struct json_value *asked = ask->network ? ask->network : ask->tool->network,
                            *secrets = ask->secrets ? ask->secrets : ask->tool->secrets;
    enum standing who = caller_standing(&run->caller);
    AUTO_FREE char *text = NULL;

    run->row_secrets = run->of_row && !ask->secrets;
    int r = check_overrides(run, err);
    if (r == 0)
        r = read_secrets(run, secrets, err);
    if (r == 0)
        r = guard_credentials(run, err);
    if (r < 0 || run->kind == FRAME_SCHEMA)
        return r;
    /* A tool's own policy was written by who registered it, and is used by who runs it: the weaker counts. */
    if (run->of_row && !ask->network)
        who = standing_weaker(who, run->tool.registrant.as);
    const bool given = asked && asked->type != JSON_NULL;
    r = given ? spec_network(asked, who, config, &text, err) : spec_network_default(config, &text, err);
    if (r < 0 || !text)
        return r;
    const size_t len = strlen(text);
    if (run_parse(run, take_ptr(&text), len, &run->network) < 0)
        return err_nomem(err);
    run->has_network = !is_none(run->network);
    if (!run->has_network)
        run->network = NULL;
    const enum standing needs = network_needs(run);
    if (run->needs < needs)
        run->needs = needs;
    return 0;
}
