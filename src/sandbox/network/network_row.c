/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_row.c: writes a sandbox's network into the store and reads it back: the slot's number, the policy in force (a
 * named one may have changed or been deleted since), and the placeholders, which programs inside have.
 */

#include "sandbox/private.h"

void network_put_row(struct json *json, const struct sbox *sbox)
{
    const struct sbox_network *net = sbox->priv->network;

    if (!net)
        return;
    json_key_object(json, "gate");
    json_key_u64(json, "slot", net->gated ? net->slot : 0);
    json_key_u64(json, "version", net->version);
    json_key_string(json, "name", net->choice.name);
    json_key_u64(json, "policy_version", net->choice.version);
    json_key_bool(json, "named", net->choice.named);
    json_key_bool(json, "learn", net->choice.learn);
    json_key_bool(json, "trust", net->trust);
    if (net->choice.json)
        json_key_raw(json, "policy", net->choice.json, strlen(net->choice.json));
    json_key_array(json, "placeholders");
    for (size_t i = 0; i < sbox->spec.n_secrets; i++)
        json_string(json, net->placeholders ? net->placeholders[i] : "");
    json_end(json);
    if (net->ca)
        json_key_string(json, "ca", net->ca);
    json_end(json);
}

static int read_choice(const struct json_value *gate, struct network_choice *ret, struct brig_err *err)
{
    const struct json_value *policy = json_get(gate, "policy");
    AUTO_BUF struct buf text = BUF_INIT(SLOT_SPEC_MAX);

    ret->none = !policy;
    ret->named = json_get_bool(gate, "named");
    ret->learn = json_get_bool(gate, "learn");
    ret->version = json_get_u64(gate, "policy_version");
    if (str_copy(ret->name, sizeof ret->name, json_get_text(gate, "name", "")) < 0)
        return err_set(err, BRIG_E_HOST, 0, "the name of its policy: too long");
    if (!policy)
        return 0;
    int r = policy_compile(policy, &ret->policy, err);
    if (r < 0)
        return r;
    return policy_put_json(ret->policy, &text) < 0 || !(ret->json = buf_take(&text, NULL)) ? err_nomem(err) : 0;
}

static void read_placeholders(struct sbox_network *net, const struct json_value *gate)
{
    const struct json_value *v = json_get_items(gate, "placeholders");

    for (size_t i = 0; v && i < net->sbox->spec.n_secrets; i++, v = v->next)
        if (v->type == JSON_STRING && v->len <= PLACEHOLDER_LEN)
            memcpy(net->placeholders[i], v->string, v->len + 1);
}

/* Values that were exposed are revealed again; of one that was deleted since, new programs have an empty variable. */
static int read_secrets(struct sbox_network *net, const struct json_value *gate, struct brig_err *err)
{
    size_t n = net->sbox->spec.n_secrets;

    if (n == 0)
        return 0;
    net->placeholders = mem_zalloc(n * sizeof *net->placeholders);
    net->exposed = mem_zalloc(n * sizeof *net->exposed);
    net->exposed_len = mem_zalloc(n * sizeof *net->exposed_len);
    if (!net->placeholders || !net->exposed || !net->exposed_len)
        return err_nomem(err);
    read_placeholders(net, gate);
    (void)!slot_secrets(net, NULL);
    return 0;
}

int network_read_row(struct sbox *sbox, const struct json_value *gate, struct brig_err *err)
{
    const char *ca = json_get_text(gate, "ca", "");

    if (!gate || !sbox->manager->network)
        return 0;
    struct sbox_network *net = sbox->priv->network = mem_zalloc(sizeof *net);
    if (!net)
        return err_nomem(err);
    net->sbox = sbox;
    net->version = json_get_u64(gate, "version");
    net->trust = json_get_bool(gate, "trust");
    net->ca = ca[0] ? mem_strdup(ca) : NULL;
    int r = read_choice(gate, &net->choice, err);
    if (r == 0 && net->choice.learn && learn_create(&net->learn) < 0)
        r = err_nomem(err);
    if (r == 0)
        r = read_secrets(net, gate, err);
    if (r < 0)
        return r;
    bool any = false;
    net->n_ports = net->choice.policy ? policy_ports(net->choice.policy, net->ports, &any) : 0;
    net->any_port = any;
    net->gated = json_get_u64(gate, "slot") != 0;
    if (net->gated)
        network_adopt(net, json_get_u64(gate, "slot"));
    return 0;
}
