/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_update.c: gives a running sandbox another policy, because a client asks for it, or because the named policy
 * that it uses has changed.
 *
 * Listeners come first: a port that the new policy needs is opened and given to brig-egress, which refuses everything
 * on it while the old policy holds. Then PREPARE with a higher version swaps the policy in one step, and connections
 * that it forbids are cut. So if anything fails, the old policy is in force as a whole. There is one update at a time;
 * a named policy that changes meanwhile is looked up again at the end.
 */
#include <stdio.h>

#include "sandbox/private.h"

struct net_update {
    struct sbox_network *net;
    struct network_choice choice;
    char *network; /* for the spec; NULL: it says the same as before */
    uint64_t version;
    struct caller caller;
    sbox_done_fn *done; /* NULL: nobody waits */
    void *ctx;
};

static int begin(struct sbox_network *net, struct network_choice *choice, char *network, const struct caller *caller,
                 sbox_done_fn *done, void *ctx, struct brig_err *err);

static void update_free(struct net_update *update)
{
    network_choice_done(&update->choice);
    mem_free(update->network);
    mem_free(update);
}

void network_drop_update(struct sbox_network *net, const struct brig_err *why)
{
    struct net_update *update = take_ptr(&net->update);
    struct brig_err gone = {0};

    if (!update)
        return;
    if (net->sbox->manager->network)
        gate_client_cancel(net->sbox->manager->network->client, update);
    if (!why) {
        (void)err_set(&gone, BRIG_E_CONFLICT, 0, "sandbox %s has ended", sbox_label(net->sbox));
        why = &gone;
    }
    if (update->done && net->sbox->manager->network)
        update->done(update->ctx, net->sbox, why);
    update_free(update);
}

/* The named policy may have changed while the last update was on its way. */
void network_look_again(struct sbox_network *net)
{
    struct network *network = net->sbox->manager->network;

    if (!net->stale)
        return;
    net->stale = false;
    const struct object *policy =
        net->choice.named ? policies_find(network->policies, net->sbox->org_id, net->choice.name) : NULL;
    if (policy)
        network_policy_changed(network, policy);
}

static void audit(const struct net_update *update, const struct brig_err *err)
{
    const struct sbox *sbox = update->net->sbox;
    char detail[512];

    if (sbox->priv->internal) /* the run's own event says which policy it had */
        return;
    snprintf(detail, sizeof detail, "policy %s version %llu%s%s", update->choice.name,
             (unsigned long long)update->version, err ? ": " : "", err ? err->message : "");
    sandbox_audit(sbox->manager, update->caller.actor[0] ? &update->caller : NULL, sbox->org_id, "network.update",
                  sbox->id, err ? "failed" : "ok", detail, true);
}

static void failed(struct net_update *update, const struct brig_err *err)
{
    struct sbox_network *net = update->net;
    struct brig_err copy = *err;

    audit(update, &copy);
    network_drop_update(net, &copy);
    network_look_again(net);
}

static void on_written(void *ctx, const struct brig_err *err)
{
    struct net_update update = *(struct net_update *)ctx;

    mem_free(ctx);
    if (update.done)
        update.done(update.ctx, update.net->sbox, err);
}

static void on_prepared(void *ctx, const struct gate_prepared *prepared, const char *ca UNUSED,
                        const struct brig_err *err)
{
    struct net_update *update = ctx;
    struct sbox_network *net = update->net;
    struct sbox *sbox = net->sbox;
    struct brig_err why = {0};

    if (!prepared) {
        failed(update, err);
        return;
    }
    net->update = NULL;
    net->version = update->version;
    network_choice_done(&net->choice);
    net->choice = update->choice;
    update->choice = (struct network_choice){0};
    if (update->network) {
        mem_free(sbox->spec.network);
        sbox->spec.network = take_ptr(&update->network);
    }
    const struct net_update said = {
        .net = net, .choice = net->choice, .version = net->version, .caller = update->caller};
    audit(&said, NULL);
    sandbox_event(sbox, "sandbox.network", net->choice.name);
    sbox->updated_at_ns = clock_real_ns();
    /* It is in force; a row that cannot be written is old news at the next start. */
    if (sbox->spec.ephemeral || row_write(sbox, on_written, update, &why) < 0) {
        if (update->done)
            update->done(update->ctx, sbox, NULL);
        update_free(update);
    }
    network_look_again(net);
}

static void swap_policy(struct net_update *update)
{
    struct sbox_network *net = update->net;
    AUTO_BUF struct buf spec = BUF_INIT(SLOT_SPEC_MAX);
    struct brig_err err = {0};
    int r = slot_json(net, &update->choice, &spec, &err);

    if (r == 0)
        r = gate_client_prepare(net->sbox->manager->network->client, net->slot, update->version,
                                update->choice.learn ? GATE_LEARN : 0, spec.data, spec.len, on_prepared, update, &err);
    if (r < 0)
        failed(update, &err);
}

/* ---- listeners ------------------------------------------------------------------------------------------------- */

static bool has_port(const struct sbox_network *net, uint16_t port)
{
    for (size_t i = 0; i < net->n_ports; i++)
        if (net->ports[i] == port)
            return true;
    return false;
}

/* What the policy listens on that the sandbox does not yet; together with what it has. False: nothing new. */
static bool more_ports(const struct sbox_network *net, const struct policy *policy, struct provider_gate *ret)
{
    uint16_t ports[POLICY_PORTS_MAX];
    bool any = false, more = false;
    size_t n = policy ? policy_ports(policy, ports, &any) : 0;

    *ret = (struct provider_gate){.on = true, .any_port = any || net->any_port, .trust_fd = -1};
    for (size_t i = 0; i < net->n_ports; i++)
        ret->ports[ret->n_ports++] = net->ports[i];
    for (size_t i = 0; i < n; i++) {
        if (has_port(net, ports[i]))
            continue;
        more = true;
        if (ret->n_ports == POLICY_PORTS_MAX)
            ret->any_port = true;
        else
            ret->ports[ret->n_ports++] = ports[i];
    }
    if (net->any_port)
        more = false; /* it takes every port already */
    else if (ret->any_port)
        more = true;
    if (ret->any_port)
        ret->n_ports = 0;
    return more;
}

static void on_listening(void *ctx, const struct brig_err *err)
{
    if (err)
        failed(ctx, err);
    else
        swap_policy(ctx);
}

static void on_opened(void *ctx, struct box_listeners *listeners, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct sbox_network *net = sbox->priv->network;
    struct net_update *update = net ? net->update : NULL;
    struct gate_listener what[GATE_LISTENERS_MAX];
    int fds[GATE_LISTENERS_MAX];
    struct brig_err why = {0};
    struct provider_gate want;
    size_t n = 0;
    int r = 0;

    if (!update)
        return;
    if (err) {
        failed(update, err);
        return;
    }
    (void)!more_ports(net, update->choice.policy, &want);
    /* brig-egress has the others; the same one twice would be two. */
    for (size_t i = 0; i < listeners->n; i++) {
        const struct gate_listener *l = &listeners->what[i];
        if (l->kind == GATE_REDIRECT ? net->any_port : l->kind != GATE_TCP || has_port(net, l->port))
            continue;
        what[n] = *l;
        fds[n++] = listeners->fds[i];
    }
    if (n == 0) {
        swap_policy(update);
        return;
    }
    r = gate_client_listen(sbox->manager->network->client, net->slot, sbox->id, what, fds, n, on_listening, update,
                           &why);
    if (r < 0) {
        failed(update, &why);
        return;
    }
    net->any_port = want.any_port;
    net->n_ports = want.n_ports;
    memcpy(net->ports, want.ports, want.n_ports * sizeof want.ports[0]);
}

static int begin(struct sbox_network *net, struct network_choice *choice, char *network, const struct caller *caller,
                 sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    struct sbox *sbox = net->sbox;
    struct net_update *update = mem_zalloc(sizeof *update);
    struct provider_gate want;

    if (!update || (choice->learn && !net->learn && learn_create(&net->learn) < 0)) {
        mem_free(update);
        network_choice_done(choice);
        mem_free(network);
        return err_nomem(err);
    }
    *update = (struct net_update){.net = net, .choice = *choice, .network = network, .done = done, .ctx = ctx};
    update->version = choice->version > net->version ? choice->version : net->version + 1;
    if (caller)
        update->caller = *caller;
    net->update = update;
    if (!more_ports(net, choice->policy, &want)) {
        swap_policy(update);
        return 0;
    }
    int r = sbox_ops(sbox)->gate(sbox->priv->box, &want, on_opened, sbox, err);
    if (r < 0) {
        net->update = NULL;
        update_free(update);
    }
    return r;
}

/* ---- who asks -------------------------------------------------------------------------------------------------- */

int sbox_set_network(struct sbox *sbox, const struct caller *caller, const struct json_value *network,
                     sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    struct sbox_network *net = sbox->priv->network;
    struct network_choice choice = {0};
    char *text = NULL;

    if ((sbox->state != SBOX_RUNNING && sbox->state != SBOX_PAUSED) || !sbox->priv->box)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s", sbox_label(sbox), sbox_state_name(sbox->state));
    if (!net || !net->gated)
        return err_set(err, BRIG_E_CONFLICT, 0, "network: sandbox %s was created without one, and stays without",
                       sbox_label(sbox));
    int r = sbox_check_change(sbox, caller, err);
    if (r < 0)
        return r;
    if (net->update)
        return err_set(err, BRIG_E_CONFLICT, 0, "network: another change of sandbox %s is under way", sbox_label(sbox));
    if (net->slot == 0 || !gate_client_connected(sbox->manager->network->client))
        return err_set(err, BRIG_E_BUSY, EAGAIN, "network: brig-egress is not running");
    r = spec_network(network, caller_standing(caller), sbox->manager->config, &text, err);
    if (r == 0)
        r = slot_choose(sbox->manager, sbox->org_id, text, &choice, err);
    if (r == 0)
        r = slot_check_secrets(sbox, &choice, err);
    if (r < 0) {
        mem_free(text);
        network_choice_done(&choice);
        return r;
    }
    return begin(net, &choice, text, caller, done, ctx, err);
}

static void follow(struct sbox_network *net, const struct object *policy)
{
    struct network_choice choice = {.named = true, .version = policy->version};
    struct sbox *sbox = net->sbox;
    struct brig_err err = {0};

    if (net->update || net->preparing || net->listening || !sbox->priv->box) {
        net->stale = true;
        return;
    }
    memcpy(choice.name, net->choice.name, sizeof choice.name); /* the policy that has changed is the one of this name */
    choice.json = mem_strdup(policy->text);
    choice.policy = policy_ref(policy->extra);
    int r = choice.json ? begin(net, &choice, NULL, NULL, NULL, NULL, &err) : err_nomem(&err);
    if (!choice.json)
        network_choice_done(&choice);
    if (r < 0)
        sandbox_audit(sbox->manager, NULL, sbox->org_id, "network.update", sbox->id, "failed", err.message, true);
}

void network_policy_changed(void *ctx, const struct object *policy)
{
    struct network *network = ctx;

    for (size_t i = 0; i < BUCKETS; i++)
        for (struct sbox_network *net = network->by_slot[i]; net; net = net->by_slot)
            if (net->choice.named && str_eq(net->choice.name, policy->id) &&
                str_eq(net->sbox->org_id, policy->org_id) && policy->version > net->choice.version)
                follow(net, policy);
}
