/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_events.c: turns the decisions of brig-egress into events of the audit log, and its counters into numbers for
 * receipts, certificates and metrics.
 *
 * Counters are one slot's in one brig-egress process. `now` is the last answer, `before` the sum of slots and processes
 * that are gone: their sum never falls. The daemon's own sums grow by the difference whenever an answer comes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "sandbox/private.h"
#include "sandbox/process.h"
#include "sandbox/processes.h"

#define RULES_TOLD 16 /* of a policy, each a kind of its own in the log's counts */

/* ---- counters -------------------------------------------------------------------------------------------------- */

static void add(struct gate_counts *to, const struct gate_counts *from)
{
    to->bytes_in += from->bytes_in;
    to->bytes_out += from->bytes_out;
    to->allowed += from->allowed;
    to->denied += from->denied;
    to->names_allowed += from->names_allowed;
    to->names_refused += from->names_refused;
    to->substituted += from->substituted;
    to->foreign_placeholders += from->foreign_placeholders;
    to->scrubbed += from->scrubbed;
    to->limits_hit |= from->limits_hit;
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return now > before ? now - before : 0;
}

void network_counted(struct sbox_network *net, const struct gate_counts *counts)
{
    struct network_stats *stats = &net->sbox->manager->network->stats;

    stats->bytes_in += grown(net->now.bytes_in, counts->bytes_in);
    stats->bytes_out += grown(net->now.bytes_out, counts->bytes_out);
    net->now = *counts;
}

void network_restarted(struct sbox_network *net)
{
    add(&net->before, &net->now);
    net->now = (struct gate_counts){0};
}

void network_totals(const struct sbox_network *net, struct gate_counts *ret)
{
    *ret = net->before;
    add(ret, &net->now);
    ret->open = net->now.open;
}

void sbox_network(const struct sbox *sbox, uint64_t *ret_in, uint64_t *ret_out)
{
    struct gate_counts counts = {0};

    if (sbox->priv->network)
        network_totals(sbox->priv->network, &counts);
    *ret_in = counts.bytes_in;
    *ret_out = counts.bytes_out;
}

/* ---- asked for by a client ------------------------------------------------------------------------------------- */

struct counting {
    struct sbox *sbox;
    sbox_done_fn *done;
    void *ctx;
};

static void on_counted(void *ctx, const struct gate_counts *counts, const struct brig_err *err UNUSED)
{
    struct counting counting = *(struct counting *)ctx;

    mem_free(ctx);
    if (counts && counting.sbox->priv->network && counting.sbox->priv->network->slot)
        network_counted(counting.sbox->priv->network, counts);
    counting.done(counting.ctx, counting.sbox, NULL);
    sbox_unpin(counting.sbox);
}

int sbox_count_network(struct sbox *sbox, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    struct sbox_network *net = sbox->priv->network;

    if (!net || net->slot == 0 || net->over || !gate_client_connected(sbox->manager->network->client))
        return 0;
    struct counting *counting = mem_zalloc(sizeof *counting);
    if (!counting)
        return err_nomem(err);
    *counting = (struct counting){sbox, done, ctx};
    int r = gate_client_count(sbox->manager->network->client, net->slot, on_counted, counting, err);
    if (r < 0) {
        mem_free(counting);
        return r;
    }
    sbox->priv->pins++;
    return 1;
}

/* ---- of one process -------------------------------------------------------------------------------------------- */

static void on_process_start(void *ctx, const struct gate_counts *counts, const struct brig_err *err UNUSED)
{
    struct process *process = ctx;
    struct sbox_network *net = process->sbox->priv->network;

    if (!counts || !net || net->slot == 0)
        return;
    network_counted(net, counts);
    network_totals(net, &process->net);
}

static void on_process_end(void *ctx, const struct gate_counts *counts, const struct brig_err *err UNUSED)
{
    struct process *process = ctx;
    struct sbox_network *net = process->sbox->priv->network;

    if (counts && net && net->slot)
        network_counted(net, counts);
    if (process->prog.state == PROGRAM_JUDGING)
        process_ended(process);
}

static int ask(struct process *process, gate_counts_fn *done)
{
    const struct sbox_network *net = process->sbox->priv->network;

    if (!net || net->slot == 0 || net->over)
        return -ENOENT;
    return gate_client_count(process->sbox->manager->network->client, net->slot, done, process, NULL);
}

/* The version of a child's own sandbox counts its claim too: there the policy's own number is told. */
void network_name(const struct sbox *sbox, bool own_child, struct brig_network *ret)
{
    const struct sbox_network *net = sbox->priv->network;
    bool gated = net && net->gated;

    (void)!str_copy(ret->policy, sizeof ret->policy, gated ? net->choice.name : "none");
    ret->version = !gated ? 0 : own_child ? net->choice.version : net->version;
}

void network_process_started(struct process *process)
{
    network_name(process->sbox, false, &process->policy);
    if (!process->sbox->priv->network)
        return;
    network_totals(process->sbox->priv->network, &process->net);
    (void)!ask(process, on_process_start);
}

bool network_process_ending(struct process *process)
{
    return ask(process, on_process_end) == 0;
}

void network_process_free(struct process *process)
{
    if (process->sbox->priv->network && process->sbox->manager->network)
        gate_client_cancel(process->sbox->manager->network->client, process);
}

void network_fill(const struct sbox *sbox, const struct gate_counts *before, struct brig_receipt *r,
                  struct buf *learned)
{
    const struct sbox_network *net = sbox->priv->network;
    struct gate_counts now;

    if (!net || !net->gated)
        return;
    network_totals(net, &now);
    r->network.allowed = grown(before->allowed, now.allowed);
    r->network.denied = grown(before->denied + before->names_refused, now.denied + now.names_refused);
    r->usage.net_in_bytes = grown(before->bytes_in, now.bytes_in);
    r->usage.net_out_bytes = grown(before->bytes_out, now.bytes_out);
    if (net->learn && learn_put_json(net->learn, learned) == 0)
        r->learned = learned->data;
    r->limits_hit |= now.limits_hit & ~before->limits_hit;
}

void network_process_fill(const struct process *process, struct brig_receipt *r, struct buf *learned)
{
    r->network = process->policy;
    if (!r->network.policy[0]) /* it never began */
        network_name(process->sbox, false, &r->network);
    network_fill(process->sbox, &process->net, r, learned);
}

/* ---- decisions ------------------------------------------------------------------------------------------------- */

static const char *action_of(const struct gate_event *event)
{
    if (event->secret[0])
        return event->verdict == GATE_DENIED ? "secret.foreign" : "secret.use";
    switch (event->verdict) {
    case GATE_ALLOWED: return "network.allow";
    case GATE_DENIED: return "network.deny";
    case GATE_CLOSED: return "network.close";
    default: return "network.fail";
    }
}

/* The run that it belongs to is known where only one is going on. */
static const char *run_of(struct sbox *sbox)
{
    const struct process *found = NULL;

    for (struct process *process = process_each(sbox, NULL); process; process = process_each(sbox, process)) {
        if (!process_running(process))
            continue;
        if (found)
            return "";
        found = process;
    }
    return found ? process_run_id(found) : "";
}

static bool is_zero(const struct gate_addr *addr)
{
    static const uint8_t none[sizeof addr->ip];

    return memcmp(addr->ip, none, sizeof none) == 0;
}

static void describe(struct sbox *sbox, const struct gate_event *event, char *out, size_t size)
{
    const struct gate_addr *addr = is_zero(&event->dialled) ? &event->wanted : &event->dialled;
    char address[GATE_ADDR_TEXT] = "", bytes[80] = "", rule[24] = "default";
    const char *run = run_of(sbox);

    if (!event->dns && !is_zero(addr))
        gate_addr_text(addr, address);
    if (event->verdict == GATE_CLOSED)
        snprintf(bytes, sizeof bytes, " bytes_in=%" PRIu64 " bytes_out=%" PRIu64, event->bytes_in, event->bytes_out);
    if (event->rule >= 0)
        snprintf(rule, sizeof rule, "%d", event->rule);
    else if (event->rule < -1)
        snprintf(rule, sizeof rule, "built-in");
    snprintf(out, size, "%s%s%s%sname=%s address=%s port=%u rule=%s version=%" PRIu64 "%s%s%s%s%s",
             run[0] ? "run=" : "", run, run[0] ? " " : "", event->dns ? "dns " : "", event->name[0] ? event->name : "-",
             address[0] ? address : "-", event->wanted.port, rule, event->policy_version, bytes,
             event->secret[0] ? " secret=" : "", event->secret, event->why[0] ? " why=" : "", event->why);
}

/* Which rule refused, for the log's counts. A policy can have many: those after the first ones are one kind. */
static void put_kind(const struct gate_event *event, char *out, size_t size)
{
    const char *what = event->dns ? "name" : "connection";

    if (event->rule >= 0 && event->rule < RULES_TOLD)
        snprintf(out, size, "%s, rule %d", what, event->rule);
    else
        snprintf(out, size, "%s, %s", what,
                 event->rule >= 0    ? "later rules"
                 : event->rule == -1 ? "default"
                                     : "built-in");
}

static void count(struct network_stats *stats, const struct gate_event *event)
{
    bool denied = event->verdict == GATE_DENIED;

    if (event->secret[0]) {
        stats->foreign += denied;
        stats->substituted += !denied;
    } else if (event->dns) {
        stats->names_refused += denied;
    } else {
        stats->allowed += event->verdict == GATE_ALLOWED;
        stats->denied += denied;
        stats->failed += event->verdict == GATE_FAILED;
    }
}

void network_event(void *ctx, const struct gate_event *event)
{
    struct network *network = ctx;
    struct sbox_network *net = network_by_slot(network, event->head.slot);
    char detail[AUDIT_FIELD_MAX], kind[32];

    if (!net)
        return; /* of one that has just been forgotten */
    struct sbox *sbox = net->sbox;
    const char *outcome = event->verdict == GATE_DENIED ? "denied" : event->verdict == GATE_FAILED ? "failed" : "ok";
    count(&network->stats, event);
    learn_event(net->learn, event);
    describe(sbox, event, detail, sizeof detail);
    put_kind(event, kind, sizeof kind);
    const struct audit_event line = {.action = action_of(event),
                                     .actor = sbox->priv->creator.actor,
                                     .org = sbox->org_id,
                                     .object = sbox->id,
                                     .outcome = outcome,
                                     .detail = detail,
                                     .request_id = sbox->priv->creator.request_id,
                                     .paced = true,
                                     .kind = kind};
    if (network->manager->audit)
        audit_add(network->manager->audit, &line, NULL, NULL);
    /* A sandbox that is refused again and again is its creator's to explain, like any other denial. */
    if (event->verdict == GATE_DENIED)
        sandbox_suspect(sbox, &sbox->priv->creator, "denied", "repeated connections that its policy refuses");
}

/* ---- for people ------------------------------------------------------------------------------------------------ */

void network_put(struct json *json, const struct sbox *sbox)
{
    const struct sbox_network *net = sbox->priv->network;
    struct gate_counts counts;

    json_key(json, "network");
    if (!net || !net->gated) {
        json_string(json, "none");
        return;
    }
    network_totals(net, &counts);
    json_object(json);
    json_key_string(json, "policy", net->choice.name);
    json_key_u64(json, "version", net->version);
    json_key_u64(json, "bytes_in", counts.bytes_in);
    json_key_u64(json, "bytes_out", counts.bytes_out);
    json_key_u64(json, "allowed", counts.allowed);
    json_key_u64(json, "denied", counts.denied);
    json_key_u64(json, "names_allowed", counts.names_allowed);
    json_key_u64(json, "names_refused", counts.names_refused);
    json_key_u64(json, "connections", counts.open);
    json_key_u64(json, "secrets_used", counts.substituted);
    json_key_u64(json, "foreign_placeholders", counts.foreign_placeholders);
    AUTO_BUF struct buf learned = BUF_INIT(POLICY_JSON_MAX);
    if (net->learn && learn_put_json(net->learn, &learned) == 0)
        json_key_raw(json, "learned", learned.data, learned.len);
    json_end(json);
}
