/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_network.c: reads the members `network` and `secrets` of a create. It checks only the form, which needs no
 * look-up. When the sandbox is made, policies.c decides what a name or a policy means, and network.c whether a secret
 * may be used.
 */

#include "gate/slot_spec.h"
#include "sandbox/private.h"

/*
 * A policy may do what its maker may do: a maker without that right could name the host's loopback, its metadata
 * service, or the network that it is in. The same holds for a request's policy, a tool's, and a stored one, which
 * others use by name because its maker was allowed to write it.
 */
static int check_private(const struct json_value *policy, const char *who, struct brig_err *err)
{
    const struct json_value *base = json_get(policy, "extends");
    struct gate_cidr cidr;

    for (const struct json_value *rule = json_get_items(policy, "rules"); rule; rule = rule->next) {
        const char *range = json_get_text(rule, "cidr", NULL);
        if (range && !json_get_is(rule, "action", "deny") && gate_cidr_parse(range, &cidr, NULL) == 0 &&
            (gate_cidr_private(&cidr) || cidr.bits == 128))
            return err_set(
                err, BRIG_E_FORBIDDEN, 0, "network: cidr %.64s is %s; only %s may allow it ([gate] private_ranges)",
                range, gate_cidr_private(&cidr) ? "private" : "a single address, which may be this host's own", who);
    }
    return base && base->type == JSON_OBJECT ? check_private(base, who, err) : 0; /* as deep as JSON may be */
}

bool policy_may_private(enum standing who, const struct config *config)
{
    return str_eq(config->gate_private_ranges, "all") ||
           who >= (str_eq(config->gate_private_ranges, "admin") ? STANDING_ADMIN : STANDING_SOCKET);
}

int policy_ranges_check(const struct json_value *policy, enum standing who, const struct config *config,
                        struct brig_err *err)
{
    const bool admins = str_eq(config->gate_private_ranges, "admin");

    if (policy_may_private(who, config))
        return 0;
    return check_private(policy, admins ? "an administrator" : "the administrator on the unix socket", err);
}

int spec_connections(int64_t connections, const char *where, enum standing who, const struct config *config,
                     struct brig_err *err)
{
    if (who >= STANDING_ADMIN || connections <= 0 || (uint64_t)connections <= config->gate_user_connections)
        return 0;
    return err_set(err, BRIG_E_FORBIDDEN, 0,
                   "%s %lld: a key that is not an administrator's may ask for at most %llu ([gate] user_connections)",
                   where, (long long)connections, (unsigned long long)config->gate_user_connections);
}

/* A stored policy is an administrator's; what a request brings along is its caller's own, however deep. */
static int check_connections(const struct json_value *policy, enum standing who, const struct config *config,
                             struct brig_err *err)
{
    for (; policy && policy->type == JSON_OBJECT; policy = json_get(policy, "extends")) {
        const struct json_value *limits = json_get(policy, "limits"),
                                *most = limits && limits->type == JSON_OBJECT ? json_get(limits, "connections") : NULL;
        int r = most && most->type == JSON_NUMBER
                    ? spec_connections(most->i64, "network: limits.connections", who, config, err)
                    : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int spec_network(const struct json_value *v, enum standing who, const struct config *config, char **ret,
                 struct brig_err *err)
{
    struct buf buf = BUF_INIT(POLICY_JSON_MAX);
    struct json json = JSON_INIT(&buf);
    const char *text;
    int r = 0;

    if (v->type == JSON_STRING)
        r = spec_string(v, "network", 63, false, &text, err);
    else if (v->type != JSON_OBJECT)
        r = err_usage(
            err, "network: must be the name of a policy (none, packages, open, learn, or one of your own) or a policy");
    if (r == 0 && v->type == JSON_OBJECT)
        r = policy_ranges_check(v, who, config, err);
    if (r == 0)
        r = check_connections(v, who, config, err);
    if (r < 0)
        return r;
    json_value_put(&json, v);
    r = json_finish(&json);
    char *made = r == 0 ? buf_take(&buf, NULL) : NULL;
    buf_done(&buf);
    if (r == -EMSGSIZE)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "network: a policy must be at most %u bytes", POLICY_JSON_MAX);
    if (!made)
        return err_nomem(err);
    mem_free(*ret);
    *ret = made;
    return 0;
}

int spec_network_judge(const char *network, const struct caller *caller, const struct config *config,
                       struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;

    /* Only a rule with a range can name a private one; most networks have none, and nothing needs to be read. */
    if (!network || !strstr(network, "\"cidr\""))
        return 0;
    int r = json_read(network, strlen(network), JSON_READ_VALUES, &doc, err);
    if (r == 0 && json_root(doc)->type == JSON_OBJECT)
        r = policy_ranges_check(json_root(doc), caller_standing(caller), config, err);
    return r;
}

int spec_network_default(const struct config *config, char **ret, struct brig_err *err)
{
    const char *name = config->network && config->network[0] ? config->network
                       : config->network_enabled             ? "open"
                                                             : "none";
    char text[80];

    if (str_format(text, sizeof text, "\"%s\"", name) < 0)
        return err_usage(err, "sandbox.network: too long");
    *ret = mem_strdup(text);
    return *ret ? 0 : err_nomem(err);
}

static int read_secret(const struct json_value *v, struct spec_memory *memory, struct sbox_secret *ret,
                       struct brig_err *err)
{
    const char *name = NULL, *env = NULL;
    int r = 0;

    *ret = (struct sbox_secret){0};
    if (v->type != JSON_OBJECT)
        return err_usage(err, "secrets: each must be an object with name, env and expose");
    for (const struct json_value *m = v->first; r == 0 && m; m = m->next) {
        if (str_eq(m->key, "name"))
            r = spec_string(m, "secrets.name", SECRET_NAME_MAX - 1, false, &name, err);
        else if (str_eq(m->key, "env"))
            r = spec_string(m, "secrets.env", 127, false, &env, err);
        else if (str_eq(m->key, "expose"))
            r = spec_bool(m, "secrets.expose", &ret->expose, err);
        else
            r = err_usage(err, "secrets.%.64s: there is no such member", m->key);
    }
    if (r == 0 && (!name || !name[0]))
        r = err_usage(err, "secrets.name: must be given");
    env = env ? env : name; /* a secret's own name is a variable's, mostly */
    if (r == 0 && !str_is_variable(env, 127))
        r = err_usage(err, "secrets.env %.64s: must be the name of a variable, of letters, digits and _", env);
    if (r < 0)
        return r;
    ret->name = spec_copy(memory, name, strlen(name));
    ret->env = env == name ? ret->name : spec_copy(memory, env, strlen(env));
    return 0;
}

int spec_secrets(const struct json_value *v, struct spec_memory *memory, struct sbox_secret **ret, size_t *ret_n,
                 struct brig_err *err)
{
    if (v->type != JSON_ARRAY)
        return err_usage(err, "secrets: must be an array");
    if (v->count > SLOT_SECRETS_MAX)
        return err_usage(err, "secrets: %zu of them, at most %u", v->count, SLOT_SECRETS_MAX);
    struct sbox_secret *secrets = spec_take(memory, v->count * sizeof *secrets, _Alignof(struct sbox_secret));
    size_t n = 0;
    for (const struct json_value *item = v->first; item; item = item->next) {
        int r = read_secret(item, memory, &secrets[n++], err);
        if (r < 0)
            return r;
    }
    *ret = secrets;
    *ret_n = n;
    return 0;
}

int spec_secrets_read(const struct json_value *v, char **ret_memory, struct sbox_secret **ret, size_t *ret_n,
                      struct brig_err *err)
{
    struct spec_memory memory;

    if (spec_memory_init(&memory, v, 256) < 0)
        return err_nomem(err);
    int r = spec_secrets(v, &memory, ret, ret_n, err);
    if (r < 0)
        mem_free(memory.base);
    else
        *ret_memory = memory.base;
    return r;
}

/* One variable has one value. */
int spec_secrets_check(const struct sbox_spec *spec, struct brig_err *err)
{
    for (size_t i = 0; i < spec->n_secrets; i++) {
        for (size_t k = 0; k < i; k++)
            if (str_eq(spec->secrets[i].env, spec->secrets[k].env))
                return err_usage(err, "secrets.env %s: two secrets in one variable", spec->secrets[i].env);
        for (size_t k = 0; k < spec->n_env; k++)
            if (str_eq(spec->secrets[i].env, spec->env[k].name))
                return err_usage(err, "secrets.env %s: env sets it too", spec->secrets[i].env);
    }
    return 0;
}
