/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network.c: handles a sandbox's slot in brig-egress, from its creation to its end.
 *
 * Theory of operation. A create with a network has two steps more than one without (sbox_create.c calls them, and
 * nothing else does):
 *
 *     network_begin()   policy chosen, secrets judged; PREPARE -> PREPARED: an authority where it brokers
 *     the provider makes the box with the policy's listeners, meanwhile, unless the authority must be in it
 *     network_listen()  LISTEN -> LISTENING: from now on there is somebody behind them
 *
 * Whatever fails in between, the slot is forgotten with the box. The slot's number, its policy and the placeholders are
 * in the sandbox's row; so a new brigd (or a new brig-egress: both begin with on_sync) PREPAREs every slot again with
 * the number and version it had. For a slot that it has, brig-egress changes nothing; for a slot without listeners, it
 * gets those that the spawner kept (relisten). Slots nobody mentions are forgotten.
 *
 * A sandbox without network and secrets has no struct sbox_network and comes through here in one comparison.
 */
#include <sys/random.h>

#include "crypto/crypto.h"
#include "sandbox/private.h"

#define LOOK_NS (10 * NS_PER_SEC)
#define VERSION_SKIP 1000u

/* ---- the table ----------------------------------------------------------------------------------------------- */

static struct sbox_network **bucket(struct network *network, uint64_t slot)
{
    return &network->by_slot[(slot ^ slot >> 32) % BUCKETS];
}

struct sbox_network *network_by_slot(const struct network *network, uint64_t slot)
{
    struct sbox_network *net = network->by_slot[(slot ^ slot >> 32) % BUCKETS];

    while (net && net->slot != slot)
        net = net->by_slot;
    return net;
}

static void table_add(struct sbox_network *net)
{
    struct network *network = net->sbox->manager->network;
    struct sbox_network **head = bucket(network, net->slot);

    net->by_slot = *head;
    *head = net;
    if (network->n_slots++ == 0)
        (void)!loop_timer_set(network->manager->loop, &network->look, loop_now_ns() + LOOK_NS, NULL);
}

static void table_remove(struct sbox_network *net)
{
    struct network *network = net->sbox->manager->network;
    struct sbox_network **at = bucket(network, net->slot);

    while (*at && *at != net)
        at = &(*at)->by_slot;
    if (!*at)
        return;
    *at = net->by_slot;
    if (--network->n_slots == 0)
        loop_timer_clear(network->manager->loop, &network->look);
}

/* Numbers are never used twice, and are positive in every JSON reader. */
static int new_slot(struct sbox_network *net, struct brig_err *err)
{
    uint64_t slot = 0;

    while (slot == 0) {
        if (getrandom(&slot, sizeof slot, 0) != sizeof slot)
            return err_host(err, "random numbers");
        slot &= INT64_MAX;
    }
    net->slot = slot;
    table_add(net);
    return 0;
}

void network_adopt(struct sbox_network *net, uint64_t slot)
{
    net->slot = slot;
    table_add(net);
}

/* ---- PREPARE ------------------------------------------------------------------------------------------------- */

static int prepare(struct sbox_network *net, gate_prepared_fn *done, struct brig_err *err)
{
    AUTO_BUF struct buf spec = BUF_INIT(SLOT_SPEC_MAX);
    int r = slot_json(net, &net->choice, &spec, err);

    return r < 0 ? r
                 : gate_client_prepare(net->sbox->manager->network->client, net->slot, net->version,
                                       net->choice.learn ? GATE_LEARN : 0, spec.data, spec.len, done, net, err);
}

/* A child's first policy denies all, but its gate is made for the policy of its claim. */
static void shape_ports(struct sbox_network *net)
{
    const struct sbox_spec *spec = &net->sbox->spec;

    net->any_port = net->any_port || spec->any_port;
    if (spec->proxy_port && !net->any_port && net->n_ports < POLICY_PORTS_MAX)
        net->ports[net->n_ports++] = GATE_PROXY_PORT;
}

static void take_ports(struct sbox_network *net, const struct gate_prepared *prepared)
{
    net->any_port = prepared->any_port != 0;
    net->n_ports = prepared->n_ports <= POLICY_PORTS_MAX ? prepared->n_ports : 0;
    memcpy(net->ports, prepared->ports, net->n_ports * sizeof net->ports[0]);
    shape_ports(net);
}

static void on_prepared(void *ctx, const struct gate_prepared *prepared, const char *ca, const struct brig_err *err)
{
    struct sbox_network *net = ctx;
    struct brig_err why = {0};

    net->preparing = false;
    if (prepared) {
        take_ports(net, prepared);
        mem_free(net->ca);
        net->ca = ca ? mem_strdup(ca) : NULL;
        if (ca && !net->ca) {
            (void)err_nomem(&why);
            err = &why;
        }
    }
    create_prepared(net->sbox, err);
}

static bool brokers(const struct sbox_network *net)
{
    for (size_t i = 0; i < net->sbox->spec.n_secrets; i++)
        if (net->placeholders[i][0])
            return true;
    return false;
}

static int begin_gated(struct sbox_network *net, struct brig_err *err)
{
    struct manager *manager = net->sbox->manager;
    int r = 0;

    if (!(sbox_ops(net->sbox)->caps & PROVIDER_GATE))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s has no network", sbox_ops(net->sbox)->name);
    if (!gate_client_connected(manager->network->client))
        return err_set(err, BRIG_E_BUSY, EAGAIN, "network %s: brig-egress is not running; only none works without it",
                       net->choice.name);
    net->version = net->choice.version > net->version ? net->choice.version : net->version + 1;
    net->gated = true;
    r = new_slot(net, err);
    if (r == 0)
        r = prepare(net, on_prepared, err);
    if (r < 0)
        return r;
    net->preparing = true;
    if (brokers(net))
        return 1;
    /* Its answer will be the same: it is the same code. LISTEN comes after PREPARE whoever is faster. */
    net->n_ports = net->choice.policy ? policy_ports(net->choice.policy, net->ports, &net->any_port) : 0;
    shape_ports(net);
    return 0;
}

static int network_of(struct sbox *sbox, struct sbox_network **ret)
{
    if (!sbox->priv->network) {
        sbox->priv->network = mem_zalloc(sizeof *sbox->priv->network);
        if (!sbox->priv->network)
            return -ENOMEM;
        sbox->priv->network->sbox = sbox;
    }
    *ret = sbox->priv->network;
    return 0;
}

int network_begin(struct sbox *sbox, struct brig_err *err)
{
    struct network_choice choice = {0};
    struct sbox_network *net = NULL;

    if (slot_is_none(&sbox->spec))
        return 0;
    int r = slot_choose(sbox->manager, sbox->org_id, sbox->spec.network, &choice, err);
    if (r == 0)
        r = slot_check_secrets(sbox, &choice, err);
    if (r == 0 && network_of(sbox, &net) < 0)
        r = err_nomem(err);
    if (r < 0) {
        network_choice_done(&choice);
        return r;
    }
    network_choice_done(&net->choice);
    net->choice = choice;
    r = slot_secrets(net, err);
    if (r == 0 && choice.learn && !net->learn && learn_create(&net->learn) < 0)
        r = err_nomem(err);
    if (r == 0 && !choice.none)
        r = begin_gated(net, err);
    if (r < 0)
        network_forget(sbox);
    return r;
}

int network_want(struct sbox *sbox, struct provider_gate *ret, int *ret_trust, struct brig_err *err)
{
    struct sbox_network *net = sbox->priv->network;
    const struct config *config = sbox->manager->config;

    *ret = (struct provider_gate){.trust_fd = -1};
    *ret_trust = -1;
    if (!net || !net->gated)
        return 0;
    ret->on = true;
    ret->any_port = net->any_port;
    ret->n_ports = net->any_port ? 0 : net->n_ports;
    memcpy(ret->ports, net->ports, ret->n_ports * sizeof ret->ports[0]);
    net->trust = net->ca || (config->gate_ca_bundle && config->gate_ca_bundle[0]);
    if (!net->trust)
        return 0;
    *ret_trust = slot_trust(net, err);
    ret->trust = true;
    ret->trust_fd = *ret_trust;
    return *ret_trust < 0 ? *ret_trust : 0;
}

/* ---- LISTEN -------------------------------------------------------------------------------------------------- */

static int give_listeners(struct sbox_network *net, struct box_listeners *listeners, gate_done_fn *done,
                          struct brig_err *err)
{
    int r = listeners && listeners->n > 0 ? 0 : err_set(err, BRIG_E_HOST, 0, "the sandbox has no listeners");

    if (r == 0)
        r = gate_client_listen(net->sbox->manager->network->client, net->slot, net->sbox->id, listeners->what,
                               listeners->fds, listeners->n, done, net, err);
    return r;
}

static void on_listening(void *ctx, const struct brig_err *err)
{
    struct sbox_network *net = ctx;

    net->listening = false;
    create_listening(net->sbox, err);
}

int network_listen(struct sbox *sbox, struct box_listeners *listeners, struct brig_err *err)
{
    struct sbox_network *net = sbox->priv->network;

    if (!net || !net->gated)
        return 0;
    int r = give_listeners(net, listeners, on_listening, err);
    net->listening = r == 0;
    return r;
}

bool network_waits(const struct sbox *sbox)
{
    return sbox->priv->network && (sbox->priv->network->preparing || sbox->priv->network->listening);
}

void network_running(struct sbox *sbox)
{
    const struct sbox_network *net = sbox->priv->network;

    for (size_t i = 0; net && i < sbox->spec.n_secrets; i++)
        if (net->exposed[i]) {
            const struct secret_use use = slot_use(sbox, i);
            secrets_say_exposed(&use);
        }
}

/* ---- again, with the listeners that the provider kept -------------------------------------------------------- */

static void say_lost(struct sbox_network *net, const struct brig_err *err)
{
    sandbox_audit(net->sbox->manager, NULL, net->sbox->org_id, "network.lost", net->sbox->id, "failed", err->message,
                  false);
}

static void on_heard(void *ctx, const struct brig_err *err)
{
    if (err)
        say_lost(ctx, err);
}

static void on_fetched(void *ctx, struct box_listeners *listeners, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct sbox_network *net = sbox->priv->network;
    struct brig_err why = {0};

    if (!net || net->slot == 0)
        return;
    if (err || give_listeners(net, listeners, on_heard, &why) < 0)
        say_lost(net, err ? err : &why);
}

static MUST_CHECK int network_relisten(struct sbox_network *net, struct brig_err *err)
{
    struct sbox *sbox = net->sbox;
    struct provider_gate want = {
        .on = true, .any_port = net->any_port, .n_ports = net->any_port ? 0 : net->n_ports, .trust_fd = -1};

    net->unheard = !sbox->priv->box;
    if (net->unheard || !sbox->priv->up)
        return 0; /* with its box: network_recovered(), network_listen() */
    memcpy(want.ports, net->ports, want.n_ports * sizeof want.ports[0]);
    return sbox_ops(sbox)->gate(sbox->priv->box, &want, on_fetched, sbox, err);
}

void network_recovered(struct sbox *sbox)
{
    struct sbox_network *net = sbox->priv->network;
    struct brig_err err = {0};

    if (net && net->unheard && net->slot && network_relisten(net, &err) < 0)
        say_lost(net, &err);
}

static void on_prepared_again(void *ctx, const struct gate_prepared *prepared, const char *ca,
                              const struct brig_err *err)
{
    struct sbox_network *net = ctx;
    struct brig_err why = {0};

    if (err && err->code == BRIG_E_CONFLICT && !net->skipped) {
        /* It has a later version than our row: a change whose row was not written any more. Ours is in force then, with
         * a later one still. */
        net->skipped = true;
        net->version += VERSION_SKIP;
        if (prepare(net, on_prepared_again, &why) == 0)
            return;
        err = &why;
    }
    if (err) {
        say_lost(net, err);
        return;
    }
    net->skipped = false;
    net->stale = true;
    if (prepared->listening) {
        network_look_again(net);
        return;
    }
    network_restarted(net);
    if (ca && net->ca && !crypto_same_authority(ca, net->ca)) /* a new one, which the sandbox does not know */
        sandbox_audit(
            net->sbox->manager, NULL, net->sbox->org_id, "network.authority", net->sbox->id, "failed",
            "brig-egress is new, and with it the authority of brokered connections (its key is no more): they fail "
            "until the sandbox is recreated",
            false);
    if (network_relisten(net, &why) < 0)
        say_lost(net, &why);
    network_look_again(net);
}

static void on_sync(void *ctx)
{
    struct network *network = ctx;
    struct brig_err err = {0};

    network->stats.up = true;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct sbox_network *net = network->by_slot[i]; net; net = net->by_slot)
            if (!net->preparing && prepare(net, on_prepared_again, &err) < 0)
                say_lost(net, &err);
    if (gate_client_synced(network->client, &err) < 0)
        sandbox_audit(network->manager, NULL, "", "network.lost", "", "failed", err.message, false);
}

/* Decisions are never dropped for being many: brig-egress waits for the log. */
static bool on_busy(void *ctx)
{
    struct network *network = ctx;

    return network->manager->audit && audit_busy(network->manager->audit);
}

static void on_lost(void *ctx)
{
    struct network *network = ctx;

    network->stats.up = false;
    network->stats.restarts++;
    sandbox_audit(network->manager, NULL, "", "network.lost", "brig-egress", "failed",
                  "it has ended; networks wait for the next one", false);
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

static void on_forgotten(void *ctx UNUSED, const struct gate_counts *counts UNUSED, const struct brig_err *err UNUSED)
{
}

void network_forget(struct sbox *sbox)
{
    struct sbox_network *net = sbox->priv->network;

    if (!net || net->slot == 0)
        return;
    struct gate_client *client = sbox->manager->network->client;
    gate_client_cancel(client, net);
    network_drop_update(net, NULL);
    table_remove(net);
    if (gate_client_connected(client)) /* if not: the next one is not told of it, and forgets it */
        (void)!gate_client_forget(client, net->slot, on_forgotten, NULL, NULL);
    network_restarted(net);
    net->slot = 0;
    net->preparing = net->listening = net->unheard = false;
}

static void on_last_counts(void *ctx, const struct gate_counts *counts, const struct brig_err *err UNUSED)
{
    struct sbox_network *net = ctx;
    void (*over)(struct sbox * sbox) = net->over;

    if (counts)
        network_counted(net, counts);
    table_remove(net);
    network_restarted(net);
    net->slot = 0;
    net->over = NULL;
    if (over)
        over(net->sbox);
}

bool network_end(struct sbox *sbox, void (*over)(struct sbox *sbox))
{
    struct sbox_network *net = sbox->priv->network;

    if (!net || net->slot == 0 || net->over)
        return false;
    struct gate_client *client = sbox->manager->network->client;
    gate_client_cancel(client, net);
    network_drop_update(net, NULL);
    net->preparing = net->listening = net->unheard = false;
    if (!gate_client_connected(client) || gate_client_forget(client, net->slot, on_last_counts, net, NULL) < 0) {
        table_remove(net);
        net->slot = 0;
        return false;
    }
    net->over = over;
    return true;
}

void network_free(struct sbox *sbox)
{
    struct sbox_network *net = sbox->priv->network;

    if (!net)
        return;
    if (sbox->manager->network) { /* if not: the daemon ends, and the slot lives on with its sandbox */
        network_forget(sbox);
        gate_client_cancel(sbox->manager->network->client, net);
    }
    network_drop_update(net, NULL);
    for (size_t i = 0; net->exposed && i < sbox->spec.n_secrets; i++)
        if (net->exposed[i])
            crypto_secret_free(net->exposed[i], net->exposed_len[i]);
    mem_free(net->exposed);
    mem_free(net->exposed_len);
    mem_free(net->placeholders);
    mem_free(net->ca);
    learn_destroy(net->learn);
    network_choice_done(&net->choice);
    mem_free(net);
    sbox->priv->network = NULL;
}

/* ---- the manager's part -------------------------------------------------------------------------------------- */

static void on_looked(void *ctx, const struct gate_counts *counts, const struct brig_err *err UNUSED)
{
    if (counts)
        network_counted(ctx, counts);
}

static void on_look(struct loop_timer *timer)
{
    struct network *network = timer->ctx;

    for (size_t i = 0; i < BUCKETS && gate_client_connected(network->client); i++)
        for (struct sbox_network *net = network->by_slot[i]; net; net = net->by_slot)
            if (!net->over)
                (void)!gate_client_count(network->client, net->slot, on_looked, net, NULL);
    (void)!loop_timer_set(network->manager->loop, timer, loop_now_ns() + LOOK_NS, NULL);
}

int network_start(struct manager *manager, const struct manager_options *options, struct brig_err *err)
{
    if (!options->policies)
        return 0;
    struct network *network = mem_zalloc(sizeof *network);
    if (!network)
        return err_nomem(err);
    const struct gate_client_events events = {
        .event = network_event, .on_sync = on_sync, .busy = on_busy, .lost = on_lost, .ctx = network};
    int r = gate_client_create(manager->loop, &events, &network->client, err);
    if (r < 0) {
        mem_free(network);
        return r;
    }
    network->manager = manager;
    network->policies = options->policies;
    network->secrets = options->secrets;
    network->look = (struct loop_timer){.fn = on_look, .ctx = network};
    manager->network = network;
    policies_on_change(network->policies, network_policy_changed, network);
    return 0;
}

void network_stop(struct manager *manager)
{
    struct network *network = take_ptr(&manager->network);

    if (!network)
        return;
    policies_on_change(network->policies, NULL, NULL);
    loop_timer_clear(manager->loop, &network->look);
    gate_client_destroy(network->client);
    mem_free(network);
}

int manager_gate(struct manager *manager, int sock, struct brig_err *err)
{
    AUTO_FD int fd = sock;

    if (!manager->network)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "this service has no gate");
    return gate_client_connect(manager->network->client, take_fd(&fd), err);
}

void manager_network_stats(const struct manager *manager, struct network_stats *ret)
{
    *ret = manager->network ? manager->network->stats : (struct network_stats){0};
    ret->sandboxes = manager->network ? manager->network->n_slots : 0;
}
