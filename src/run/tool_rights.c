/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_rights.c: decides who may change a tool, and what it may ask for (registry.h). The verdict is about who wrote
 * the row, not about who runs it: a tool that a user key wrote stays a user key's tool when an administrator runs it,
 * and a tool with a policy cannot be replaced by the keys that the policy must bind.
 */
#include "run/tool_rights.h"

#include "base/err.h"
#include "base/str.h"
#include "records/secrets.h"
#include "sandbox/spec.h"

bool tool_exposes(const struct tool *tool)
{
    for (const struct json_value *item = tool->secrets ? tool->secrets->first : NULL; item; item = item->next) {
        const struct json_value *expose = json_get(item, "expose");
        if (expose && !(expose->type == JSON_BOOL && !expose->boolean))
            return true;
    }
    return false;
}

static bool has_policy(const struct tool *tool)
{
    return tool->n_rules || tool->rate_max || tool->requires_approval || tool->needs_credentials || tool->network ||
           (tool->secrets && tool->secrets->count > 0);
}

int tool_may_change(const struct tool *tool, const struct caller *caller, struct brig_err *err)
{
    const struct tool_hand *guard = &tool->guard;

    if (!has_policy(tool) || caller_is_admin(caller))
        return 0;
    if (guard->as != STANDING_USER)
        return err_set(err, BRIG_E_FORBIDDEN, 0,
                       "tool %s: an administrator has set its policy; only an administrator may change or delete it",
                       tool->name);
    if (!guard->key_id || !str_eq(guard->key_id, caller->key_id))
        return err_set(
            err, BRIG_E_FORBIDDEN, 0,
            "tool %s: another key has set its policy; only that key or an administrator may change or delete it",
            tool->name);
    return 0;
}

void tool_hands(const struct tool *old, const struct caller *caller, bool whole, bool policy,
                struct tool_hand *registrant, struct tool_hand *guard)
{
    const struct tool_hand mine = {.key_id = caller->key_id, .as = caller_standing(caller)};

    *registrant = !old || whole || mine.as <= old->registrant.as ? mine : old->registrant;
    *guard = !old || whole || policy ? mine : old->guard;
}

static int may_expose(const struct tool *tool, const struct caller *caller, const struct secrets *secrets,
                      struct brig_err *err)
{
    AUTO_FREE char *memory = NULL;
    struct sbox_secret *list = NULL;
    size_t n = 0;

    if (!tool->secrets || tool->secrets->count == 0)
        return 0;
    int r = spec_secrets_read(tool->secrets, &memory, &list, &n, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct secret_use use = {
            .caller = caller, .registrant = &tool->registrant.as, .name = list[i].name, .object = ""};
        if (list[i].expose)
            r = secrets_may_expose(secrets, &use, err);
    }
    return r;
}

int tool_may_ask(const struct tool *tool, const struct caller *caller, const struct secrets *secrets,
                 const struct config *config, struct brig_err *err)
{
    AUTO_FREE char *text = NULL;
    struct brig_limits limits = {0};
    int r = may_expose(tool, caller, secrets, err);

    if (r == 0 && tool->limits && tool->limits->type != JSON_NULL)
        r = spec_limits_asked(tool->limits, &limits, err);
    if (r == 0)
        r = spec_connections((int64_t)limits.connections, "limits.connections", tool->registrant.as, config, err);
    return r == 0 && tool->network ? spec_network(tool->network, tool->registrant.as, config, &text, err) : r;
}
