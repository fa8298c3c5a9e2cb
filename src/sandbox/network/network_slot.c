/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_slot.c: makes what a slot of brig-egress needs: the policy that `network` means, the sandbox's own limits
 * over it, and its brokered secrets, sealed as they are (gate/slot_spec.h). It refuses a secret that does not exist,
 * that nothing brokers and nobody said to expose, or that could be used nowhere because the policy allows none of its
 * hosts.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "sandbox/child/child.h"
#include "sandbox/private.h"

#define BUNDLE_MAX (8u << 20)

bool slot_is_none(const struct sbox_spec *spec)
{
    return spec->n_secrets == 0 && (!spec->network || str_eq(spec->network, "\"none\""));
}

int slot_choose(struct manager *manager, const char *org, const char *network, struct network_choice *ret,
                struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;

    *ret = (struct network_choice){.none = true, .version = 1, .name = "none"};
    if (!network || str_eq(network, "\"none\""))
        return 0;
    if (!manager->network)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "network: this service has no gate; only none");
    int r = json_read(network, strlen(network), JSON_READ_VALUES, &doc, err);
    if (r == 0)
        r = policies_choose(manager->network->policies, org, json_root(doc), ret, err);
    if (r < 0 && err && err->code == BRIG_E_NOT_FOUND)
        err->code = BRIG_E_REFUSED; /* what was asked for is a sandbox: that is not what is missing */
    return r;
}

int network_shape(struct manager *manager, const char *org, const struct json_value *network, enum gate_shape *ret,
                  struct brig_err *err)
{
    struct network_choice choice = {0};
    uint16_t ports[POLICY_PORTS_MAX];
    bool any = false;

    *ret = GATE_SHAPE_PORTS;
    if (!manager->network)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "network: this service has no gate; only none");
    int r = policies_choose(manager->network->policies, org, network, &choice, err);
    if (r < 0 && err && err->code == BRIG_E_NOT_FOUND)
        err->code = BRIG_E_REFUSED; /* as slot_choose() has it */
    size_t n = r == 0 && choice.policy ? policy_ports(choice.policy, ports, &any) : 0;
    for (size_t i = 0; i < n; i++)
        if (ports[i] == GATE_PROXY_PORT)
            *ret = GATE_SHAPE_PROXY;
    if (any)
        *ret = GATE_SHAPE_ANY;
    network_choice_done(&choice);
    return r;
}

/* ---- secrets ----------------------------------------------------------------------------------------------- */

static const struct secret_info *find_secret(const struct sbox *sbox, const char *name, struct brig_err *err)
{
    const struct network *network = sbox->manager->network;
    const struct secret_info *info =
        network && network->secrets ? secrets_find(network->secrets, sbox->org_id, name) : NULL;

    if (!info)
        (void)err_set(err, BRIG_E_REFUSED, 0, "secrets.name %s: the organisation has no secret of that name", name);
    return info;
}

/* "*.x.org" of a broker rule: does the policy have a rule to allow something there? */
static bool allows_below(const struct network_choice *choice, const char *name)
{
    AUTO_JSON struct json_doc *doc = NULL;
    bool found = false;

    if (!choice->json || json_read(choice->json, strlen(choice->json), JSON_READ_VALUES, &doc, NULL) < 0)
        return false;
    for (const struct json_value *rule = json_get_items(json_root(doc), "rules"); rule && !found; rule = rule->next) {
        const char *text = json_get_text(rule, "domain", NULL);
        if (!text || !json_get_is(rule, "action", "allow"))
            continue;
        text += str_starts(text, "*.") ? 2 : 0;
        size_t len = strlen(text), tail = strlen(name);
        found = (len > tail && text[len - tail - 1] == '.' && str_eq(text + len - tail, name)) || str_eq(text, name) ||
                (tail > len && name[tail - len - 1] == '.' && str_eq(name + tail - len, text));
    }
    return found;
}

static bool allows_host(const struct network_choice *choice, const struct broker_rule *rule, size_t i)
{
    struct policy_answer answer;
    char name[DNS_NAME_MAX + 8];
    struct policy_question question = {
        .name = rule->hosts[i].name, .port = rule->hosts[i].port, .seen = POLICY_SEEN_NOTHING};

    if (rule->hosts[i].wildcard) {
        if (str_format(name, sizeof name, "any.%s", rule->hosts[i].name) < 0)
            return false;
        question.name = name;
    }
    policy_judge(choice->policy, &question, &answer);
    return answer.allow || (rule->hosts[i].wildcard && allows_below(choice, rule->hosts[i].name));
}

static int check_hosts(const struct network_choice *choice, const char *name, const struct broker_rule *rule,
                       struct brig_err *err)
{
    if (choice->learn)
        return 0;
    for (size_t i = 0; choice->policy && i < rule->n_hosts; i++)
        if (allows_host(choice, rule, i))
            return 0;
    return err_set(err, BRIG_E_REFUSED, 0, "secrets.name %s: the network %s allows none of its hosts (%s%s:%u%s)", name,
                   choice->name, rule->n_hosts && rule->hosts[0].wildcard ? "*." : "",
                   rule->n_hosts ? rule->hosts[0].name : "", rule->n_hosts ? rule->hosts[0].port : 0u,
                   rule->n_hosts > 1 ? ", ..." : "");
}

struct secret_use slot_use(const struct sbox *sbox, size_t i)
{
    return (struct secret_use){.caller = &sbox->priv->creator,
                               .name = sbox->spec.secrets[i].name,
                               .object = sbox->id,
                               .audit = sbox->manager->audit};
}

int slot_check_secrets(const struct sbox *sbox, const struct network_choice *choice, struct brig_err *err)
{
    for (size_t i = 0; i < sbox->spec.n_secrets; i++) {
        const struct sbox_secret *secret = &sbox->spec.secrets[i];
        const struct secret_info *info = find_secret(sbox, secret->name, err);
        int r = 0;

        if (!info)
            return -ENOENT;
        if (secret->expose && !sbox->priv->announced) {
            const struct secret_use use = slot_use(sbox, i);
            r = secrets_may_expose(sbox->manager->network->secrets, &use, err);
        } else if (secret->expose) {
            continue; /* it has the value already */
        } else if (info->brokered)
            r = check_hosts(choice, secret->name, &info->rule, err);
        else
            r = err_set(err, BRIG_E_REFUSED, 0,
                        "secrets.name %s: it has no broker rule, so the sandbox would see its value; say expose: true "
                        "(--expose) to allow that",
                        secret->name);
        if (r < 0)
            return r;
    }
    return 0;
}

static int expose(struct sbox_network *net, size_t i, struct brig_err *err)
{
    const struct sbox *sbox = net->sbox;
    const struct secret_use use = slot_use(sbox, i);
    uint8_t *value = NULL;
    size_t len = 0;
    int r = secrets_expose(sbox->manager->network->secrets, &use, &value, &len, err);

    if (r < 0)
        return r;
    net->exposed[i] = memchr(value, '\0', len) ? NULL : crypto_secret_alloc(len + 1);
    net->exposed_len[i] = len + 1;
    if (net->exposed[i]) {
        memcpy(net->exposed[i], value, len);
        net->exposed[i][len] = '\0';
    }
    r = net->exposed[i]
            ? 0
            : err_set(err, BRIG_E_REFUSED, 0, "secrets.name %s: a value with a NUL fits no variable", use.name);
    crypto_secret_free(value, len);
    return r;
}

int slot_secrets(struct sbox_network *net, struct brig_err *err)
{
    const struct sbox *sbox = net->sbox;
    size_t n = sbox->spec.n_secrets;
    int r = 0;

    if (n == 0)
        return 0;
    if (!net->placeholders)
        net->placeholders = mem_zalloc(n * sizeof *net->placeholders);
    if (!net->exposed)
        net->exposed = mem_zalloc(n * sizeof *net->exposed);
    if (!net->exposed_len)
        net->exposed_len = mem_zalloc(n * sizeof *net->exposed_len);
    if (!net->placeholders || !net->exposed || !net->exposed_len)
        return err_nomem(err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        const struct secret_info *info = find_secret(sbox, sbox->spec.secrets[i].name, err);
        if (!info)
            return -ENOENT;
        /* By what was asked for, not by what the secret has become: a placeholder is never replaced by the value. */
        bool exposes = sbox->spec.secrets[i].expose;
        if (!exposes && info->brokered && !net->placeholders[i][0])
            secrets_placeholder(net->placeholders[i]);
        else if (exposes && !net->exposed[i])
            r = expose(net, i, err);
    }
    return r;
}

/* ---- the JSON beside PREPARE ------------------------------------------------------------------------------- */

static void put_limits(struct json *json, const struct brig_limits *limits)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"net_bytes_in", limits->net_bytes_in},
                {"net_bytes_out", limits->net_bytes_out},
                {"net_bps", limits->net_bps},
                {"connections", limits->connections}};

    json_key_object(json, "limits");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (rows[i].value)
            json_key_u64(json, rows[i].name, rows[i].value);
    json_end(json);
}

int slot_json(const struct sbox_network *net, const struct network_choice *choice, struct buf *out,
              struct brig_err *err)
{
    static const char nothing[] = "{\"default\":\"deny\",\"rules\":[]}";
    const struct sbox *sbox = net->sbox;
    const char *policy = choice->json ? choice->json : nothing;
    struct json json = JSON_INIT(out);
    int r = 0;

    json_object(&json);
    json_key_raw(&json, "policy", policy, strlen(policy));
    json_key_string(&json, "name", choice->name);
    json_key_string(&json, "org", sbox->org_id);
    put_limits(&json, &sbox->spec.limits);
    json_key_array(&json, "secrets");
    for (size_t i = 0; r == 0 && i < sbox->spec.n_secrets; i++)
        /* One that was deleted since is used no more; the rest of the network goes on. */
        if (net->placeholders[i][0] && (!sbox->priv->announced || find_secret(sbox, sbox->spec.secrets[i].name, NULL)))
            r = secrets_put_slot(sbox->manager->network->secrets, sbox->org_id, sbox->spec.secrets[i].name,
                                 net->placeholders[i], &json, err);
    json_end(&json);
    json_end(&json);
    if (r < 0)
        return r;
    r = json_finish(&json);
    if (r == -EMSGSIZE)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "network: policy and secrets together are more than %u bytes",
                       SLOT_SPEC_MAX);
    return r < 0 ? err_nomem(err) : 0;
}

/* ---- what it trusts ---------------------------------------------------------------------------------------- */

static const char *bundle_path(const struct config *config)
{
    static const char *const usual[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    struct stat st;

    if (config->gate_ca_bundle && config->gate_ca_bundle[0])
        return config->gate_ca_bundle;
    for (size_t i = 0; i < ARRAY_SIZE(usual); i++)
        if (stat(usual[i], &st) == 0)
            return usual[i];
    return NULL;
}

int slot_trust(const struct sbox_network *net, struct brig_err *err)
{
    const char *path = bundle_path(net->sbox->manager->config);
    AUTO_FREE char *text = mem_alloc(BUNDLE_MAX);
    size_t extra = net->ca ? strlen(net->ca) : 0;
    ssize_t len = 0;

    if (!text)
        return err_nomem(err);
    if (path && (len = fd_read_file(AT_FDCWD, path, text, BUNDLE_MAX - extra - 2)) < 0)
        return err_set(err, BRIG_E_HOST, (int)-len, "CA bundle %s", path);
    if (len > 0 && text[len - 1] != '\n')
        text[len++] = '\n';
    if (net->ca)
        memcpy(text + len, net->ca, extra);
    int fd = gate_memfd("ca-certificates", text, (size_t)len + extra);
    return fd < 0 ? err_set(err, BRIG_E_HOST, -fd, "CA bundle of a sandbox") : fd;
}
