/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot.c: the network of one sandbox. PREPARE makes it, a PREPARE with a higher version changes it, and FORGET ends it.
 * A change is atomic: everything that can fail is done before the first thing is replaced. Then the new policy judges
 * the open connections, and those that it forbids are cut.
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define CA_MAX (64u << 10)

struct egress *slot_egress(const struct slot *slot)
{
    return slot->egress;
}

struct policy *slot_policy(const struct slot *slot)
{
    return slot->policy;
}

static struct slot **bucket_of(struct egress *egress, uint64_t number)
{
    return &egress->slots[(number ^ number >> 32) % EGRESS_BUCKETS];
}

struct slot *slot_find(struct egress *egress, uint64_t number)
{
    struct slot *slot = *bucket_of(egress, number);

    while (slot && slot->number != number)
        slot = slot->next;
    return slot;
}

/* ---- the specification ---------------------------------------------------------------------------------------- */

static int limit_over(const struct json_value *limits, const char *key, uint64_t *ret, struct brig_err *err)
{
    const struct json_value *value = json_get(limits, key);

    if (!value)
        return 0;
    if (value->type != JSON_NUMBER || !value->integer || value->i64 < 0)
        return err_usage(err, "limits.%s: a number that is not negative", key);
    if (value->i64 > 0)
        *ret = (uint64_t)value->i64;
    return 0;
}

static int limits_read(const struct json_value *limits, struct policy_limits *ret, struct brig_err *err)
{
    struct {
        const char *key;
        uint64_t *value;
    } all[] = {{"net_bytes_in", &ret->bytes_in},
               {"net_bytes_out", &ret->bytes_out},
               {"net_bps", &ret->bps},
               {"connections", &ret->connections},
               {"connections_per_second", &ret->connections_per_second}};
    const struct json_value *lifetime = json_get(limits, "lifetime"); /* seconds, as in a policy */
    int r = 0;

    if (limits && limits->type != JSON_OBJECT)
        return err_usage(err, "limits: an object");
    for (size_t i = 0; r == 0 && limits && i < ARRAY_SIZE(all); i++)
        r = limit_over(limits, all[i].key, all[i].value, err);
    if (r == 0 && lifetime &&
        (lifetime->type != JSON_NUMBER || !(lifetime->number >= 0 && lifetime->number <= 31536000)))
        r = err_usage(err, "limits.lifetime: seconds");
    if (r == 0 && lifetime && lifetime->number > 0)
        ret->lifetime_ms = (uint64_t)(lifetime->number * 1000.0 + 0.5);
    if (ret->connections == 0)
        ret->connections = EGRESS_CONNECTIONS;
    return r;
}

struct parts { /* of a new version, until it is taken */
    struct policy *policy;
    struct policy_limits limits;
    struct broker *broker;
    struct buf ca;
    char org[64]; /* whose sandbox it is; "": there is only one */
};

static void parts_done(struct parts *parts)
{
    policy_unref(parts->policy);
    if (parts->broker)
        broker_destroy(parts->broker);
    buf_done(&parts->ca);
}

static int parts_read(struct egress *egress, const struct slot_spec_in *in, bool broker, struct parts *ret,
                      struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(in->spec, in->len, JSON_READ_VALUES, &doc, err);

    if (r < 0)
        return r;
    const struct json_value *root = json_root(doc), *secrets = json_get(root, "secrets");
    r = policy_compile(json_get(root, "policy"), &ret->policy, err);
    if (r == 0) {
        ret->limits = *policy_limits(ret->policy);
        r = limits_read(json_get(root, "limits"), &ret->limits, err);
    }
    const struct json_value *org = json_get(root, "org");
    if (r == 0 && org && (org->type != JSON_STRING || str_copy(ret->org, sizeof ret->org, org->string) < 0))
        r = err_usage(err, "org: a text of at most %zu bytes", sizeof ret->org - 1);
    /* A slot's authority is what its sandbox was told to trust: it is made once. */
    if (r == 0 && broker && secrets && secrets->type == JSON_ARRAY && secrets->count > 0)
        r = broker_create(egress, secrets, egress->keys, &ret->broker, &ret->ca, err);
    return r;
}

static int slot_create(struct egress *egress, uint64_t number, const char *org, struct slot **ret, struct brig_err *err)
{
    struct slot *slot = mem_zalloc(sizeof *slot);

    if (!slot)
        return err_nomem(err);
    slot->egress = egress;
    slot->number = number;
    slot->ca = BUF_INIT(CA_MAX);
    bucket_init(&slot->questions, 1000, 2000, loop_now_ns());
    int r = share_join(slot, org);
    if (r < 0) {
        mem_free(slot);
        return r == -EINVAL ? err_usage(err, "org: too long") : err_nomem(err);
    }
    if (names_create(&slot->names) < 0) {
        share_leave(slot);
        mem_free(slot);
        return err_nomem(err);
    }
    *ret = slot;
    return 0;
}

/* What the new policy forbids ends now. */
static void judge_all(struct slot *slot)
{
    struct policy_answer answer;
    struct conn *next;

    for (struct conn *conn = slot->conns; conn; conn = next) {
        next = conn->next;
        if (conn->stage != CONN_REFUSE && conn->stage != CONN_LINGER && !judge_again(conn, &answer)) {
            conn_tell(conn, GATE_DENIED, &answer, NULL);
            conn_reset(conn, answer.why);
        } else {
            sniff_refresh(conn);
        }
    }
}

int slot_prepare(struct egress *egress, const struct slot_spec_in *in, struct slot **ret, struct brig_err *err)
{
    struct slot *slot = slot_find(egress, in->number);
    struct parts parts = {.ca = BUF_INIT(CA_MAX)};
    bool fresh = !slot;

    if (slot && in->version <= slot->version) {
        *ret = slot;
        return in->version == slot->version ? 0
                                            : err_set(err, BRIG_E_CONFLICT, EEXIST, "the slot has version %llu",
                                                      (unsigned long long)slot->version);
    }
    int r = parts_read(egress, in, !slot || !slot->broker, &parts, err);
    if (r == 0 && fresh)
        r = slot_create(egress, in->number, parts.org, &slot, err);
    if (r < 0) {
        parts_done(&parts);
        return r;
    }
    struct policy *old = slot->policy;
    slot->policy = take_ptr(&parts.policy);
    slot->version = in->version;
    slot->flags = in->flags;
    budget_limits(slot, &parts.limits);
    if (parts.broker) {
        slot->broker = take_ptr(&parts.broker);
        buf_done(&slot->ca);
        slot->ca = parts.ca;
        parts.ca = BUF_INIT(CA_MAX);
    }
    if (fresh) {
        struct slot **bucket = bucket_of(egress, in->number);
        slot->next = *bucket;
        *bucket = slot;
        egress->n_slots++;
    } else {
        judge_all(slot);
    }
    policy_unref(old);
    parts_done(&parts);
    *ret = slot;
    return 0;
}

/* ---- listeners ------------------------------------------------------------------------------------------------ */

static struct listener *listener_place(struct slot *slot, const struct gate_listener *what)
{
    for (size_t i = 0; i < slot->n_listeners; i++) {
        struct listener *l = &slot->listeners[i];
        if (l->port == what->port && l->kind == what->kind && l->family == what->family)
            return l;
    }
    if (slot->n_listeners == GATE_LISTENERS_MAX)
        return NULL;
    slot->listeners[slot->n_listeners].fd = -1;
    return &slot->listeners[slot->n_listeners++];
}

int slot_listen(struct slot *slot, const struct gate_listen *msg, int *fds, size_t n_fds, struct brig_err *err)
{
    size_t before = slot->n_listeners;
    int r = 0;

    if (n_fds != msg->n)
        r = err_set(err, BRIG_E_HOST, EMFILE, "%u listeners, %zu descriptors", msg->n, n_fds);
    else if (!share_has(slot, SHARE_LISTENERS, n_fds))
        r = err_set(err, BRIG_E_LIMIT, 0, "%zu listeners: the organisation has its share of the gate's descriptors",
                    n_fds);
    for (size_t i = 0; r == 0 && i < n_fds; i++) {
        struct listener *place = listener_place(slot, &msg->listeners[i]);
        if (!place) {
            r = err_set(err, BRIG_E_LIMIT, ENOSPC, "at most %u listeners", GATE_LISTENERS_MAX);
            break;
        }
        r = listener_open(place, slot, take_fd(&fds[i]), &msg->listeners[i], err);
    }
    fd_close_all(fds, n_fds);
    if (r == 0)
        memcpy(slot->sandbox_id, msg->sandbox_id, sizeof slot->sandbox_id);
    while (r < 0 && slot->n_listeners > before) /* all of the new ones or none: half a network is a riddle */
        listener_close(&slot->listeners[--slot->n_listeners]);
    return r;
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

void slot_forget(struct slot *slot)
{
    struct egress *egress = slot->egress;
    struct slot **at = bucket_of(egress, slot->number);

    while (*at != slot)
        at = &(*at)->next;
    *at = slot->next;
    egress->n_slots--;
    for (size_t i = 0; i < slot->n_listeners; i++)
        listener_close(&slot->listeners[i]);
    slot->n_listeners = 0;
    dns_tcp_close_all(slot);
    while (slot->conns)
        conn_reset(slot->conns, "the sandbox has ended");
    loop_timer_clear(egress->loop, &slot->bytes_timer);
    outbox_forget(slot);
    slot->next = egress->dead_slots;
    egress->dead_slots = slot;
}

void slot_free(struct slot *slot)
{
    if (slot->broker)
        broker_destroy(slot->broker);
    share_leave(slot);
    names_destroy(slot->names);
    policy_unref(slot->policy);
    buf_done(&slot->ca);
    mem_free(slot);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

void slot_tell(struct slot *slot, enum gate_verdict verdict, const char *why)
{
    struct gate_event event;

    memset(&event, 0, sizeof event);
    event.head = (struct gate_head){GATE_MAGIC, GATE_VERSION, GATE_EVENT, slot->number};
    event.policy_version = slot->version;
    event.verdict = verdict;
    event.rule = -2;
    if (str_copy(event.why, sizeof event.why, why) < 0 || outbox_event(slot, &event) < 0)
        return; /* the counts say it */
}

void slot_tell_limit(struct slot *slot, unsigned kind, enum brig_limit limit, const char *why)
{
    uint64_t now = loop_now_ns();

    slot->counts.limits_hit |= 1u << limit;
    if (slot->limit_told_ns[kind] != 0 && now - slot->limit_told_ns[kind] < NS_PER_SEC)
        return;
    slot->limit_told_ns[kind] = now;
    slot_tell(slot, GATE_DENIED, why);
}

bool slot_take_memory(struct slot *slot, size_t n)
{
    if (slot->pending + n > SLOT_PENDING || !share_take(slot, SHARE_MEMORY, n))
        return false;
    slot->pending += n;
    return true;
}

void slot_give_memory(struct slot *slot, size_t n)
{
    slot->pending -= n;
    share_give(slot, SHARE_MEMORY, n);
}

bool slot_behind(const struct slot *slot)
{
    return outbox_full(slot);
}

uint64_t slot_wait_ns(struct slot *slot)
{
    if (slot->limits.bps == 0)
        return 0;
    double level = bucket_level(&slot->bytes, loop_now_ns());
    if (level >= 0)
        return 0;
    slot->counts.limits_hit |= 1u << BRIG_LIMIT_NET_BPS;
    return (uint64_t)(-level / slot->bytes.rate * (double)NS_PER_SEC) + 1;
}
