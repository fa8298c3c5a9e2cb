/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota.c: bounds how many sandboxes there may be, and how much of the host those of one organisation or one key may
 * have.
 *
 * Nothing is counted along the way: a create walks the list and adds up what the others have, from the moment when they
 * were accepted until they are gone. A sum that is made again each time cannot drift.
 */
#include <inttypes.h>

#include "host/limits.h"
#include "sandbox/private.h"
#include "sandbox/sbox_place.h"

/*
 * What a sandbox is promised: its limits, or else those of its spec with the defaults that the jail would choose. What
 * its provider needs around it is memory of whoever has it.
 */
static struct brig_limits promised(const struct manager *manager, const struct sbox_spec *spec,
                                   const struct brig_limits *has)
{
    struct brig_limits limits = has ? *has : spec->limits;
    struct provider *provider = manager->provider;

    (void)!place_find(manager, spec->provider, &provider, NULL); /* one that cannot be used is refused elsewhere */
    if (!has)
        limits_fill(&limits, spec_has_disk(spec) ||
                                 (provider->image_store && limits_want_image(&spec->limits, spec->writable_root)));
    limits.memory += provider->around;
    return limits;
}

static struct quota sum(struct manager *manager, const char *org_id, const char *key_id, const struct sbox *without)
{
    struct quota total = {.disk = disks_bytes(manager, org_id, key_id)};

    for (const struct disk_user *user = manager->disk_users; user; user = user->next)
        total.disk += user->bytes(user->ctx, org_id, key_id);
    for (const struct sbox *sbox = manager->first; sbox; sbox = sbox->next) {
        if (sbox == without || !str_eq(sbox->org_id, org_id) || (key_id && !str_eq(sbox->key_id, key_id)))
            continue;
        struct brig_limits limits = promised(manager, &sbox->spec, sbox->priv->up ? &sbox->limits : NULL);
        total.sandboxes++;
        total.cpus += limits.cpus;
        total.memory += limits.memory;
        total.disk += limits.disk;
    }
    return total;
}

/* 1500 is "1.5". */
static const char *show(uint64_t value, bool thousandths, char *out, size_t size)
{
    if (!thousandths)
        snprintf(out, size, "%" PRIu64, value);
    else if (value % 1000 == 0)
        snprintf(out, size, "%" PRIu64, value / 1000);
    else
        snprintf(out, size, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
    return out;
}

static int check_one(const char *whose, const char *what, uint64_t limit, uint64_t used, uint64_t asked,
                     bool thousandths, struct brig_err *err)
{
    char a[32], b[32], c[32];

    if (limit == 0 || (asked <= limit && used <= limit - asked))
        return 0;
    return err_set(err, BRIG_E_LIMIT, 0, "%s quota %s reached: limit %s, used %s, asked %s", whose, what,
                   show(limit, thousandths, a, sizeof a), show(used, thousandths, b, sizeof b),
                   show(asked, thousandths, c, sizeof c));
}

static int check_all(const char *whose, const struct quota *quota, const struct quota *used, const struct quota *asked,
                     struct brig_err *err)
{
    int r = check_one(whose, "max_sandboxes", quota->sandboxes, used->sandboxes, asked->sandboxes, false, err);

    r = r < 0 ? r : check_one(whose, "max_cpus", quota->cpus, used->cpus, asked->cpus, true, err);
    r = r < 0 ? r : check_one(whose, "max_memory", quota->memory, used->memory, asked->memory, false, err);
    return r < 0 ? r : check_one(whose, "max_disk", quota->disk, used->disk, asked->disk, false, err);
}

/* An own quota replaces the configuration's, member by member. */
static struct quota effective(const struct manager *manager, const char *id, struct quota base)
{
    for (const struct quota_of *q = manager->quotas[sandbox_bucket(id, NULL)]; q; q = q->next)
        if (str_eq(q->id, id)) {
            base.sandboxes = q->quota.sandboxes ? q->quota.sandboxes : base.sandboxes;
            base.cpus = q->quota.cpus ? q->quota.cpus : base.cpus;
            base.memory = q->quota.memory ? q->quota.memory : base.memory;
            base.disk = q->quota.disk ? q->quota.disk : base.disk;
        }
    return base;
}

/* The quotas of the organisation, then those of the key. */
static int check_both(struct manager *manager, const struct caller *caller, const struct quota *asked,
                      const struct sbox *without, struct brig_err *err)
{
    const struct config *c = manager->config;
    struct quota used = sum(manager, caller->org_id, NULL, without);
    struct quota limit =
        effective(manager, caller->org_id,
                  (struct quota){c->org_max_sandboxes, c->org_max_cpus, c->org_max_memory, c->org_max_disk});
    int r = check_all("organization", &limit, &used, asked, err);

    if (r < 0 || !caller->key_id[0])
        return r;
    used = sum(manager, caller->org_id, caller->key_id, without);
    limit = effective(manager, caller->key_id,
                      (struct quota){c->key_max_sandboxes, c->key_max_cpus, c->key_max_memory, c->key_max_disk});
    return check_all("key", &limit, &used, asked, err);
}

void manager_add_disk_user(struct manager *manager, struct disk_user *user)
{
    user->next = manager->disk_users;
    manager->disk_users = user;
}

int quota_check_disk(struct manager *manager, const struct caller *caller, uint64_t bytes, struct brig_err *err)
{
    return check_both(manager, caller, &(struct quota){.disk = bytes}, NULL, err);
}

int quota_check(struct manager *manager, const struct caller *caller, const struct sbox_spec *spec, unsigned count,
                const struct sbox *without, struct brig_err *err)
{
    const struct config *c = manager->config;
    struct brig_limits one = promised(manager, spec, NULL);
    const struct quota asked = {count, count * one.cpus, count * one.memory, count * one.disk};
    const size_t others = manager->count - (without != NULL);

    if (spec->parked)
        return 0;         /* parked/ asks for none for which there is no room, and they give way */
    if (spec->internal) { /* whose run it is, and may have, is known when it is claimed */
        if (manager->n_children - manager->n_parked >= c->tools_max_runs)
            return err_set(err, BRIG_E_LIMIT, 0, "Maximum number of runs (%" PRIu64 ") reached", c->tools_max_runs);
        return 0;
    }
    if (others + count > c->max_sandboxes)
        return err_set(err, BRIG_E_LIMIT, 0, "Maximum number of sandboxes (%" PRIu64 ") reached", c->max_sandboxes);
    if (c->create_queue && manager->creating + count > c->create_queue)
        return err_set(err, BRIG_E_LIMIT, 0, "%zu sandboxes are being created: at most %" PRIu64 " at a time",
                       manager->creating, c->create_queue);
    return check_both(manager, caller, &asked, without, err);
}

/* ---- quotas of their own --------------------------------------------------------------------------------- */

static int parse(const struct json_value *doc, struct quota *ret, struct brig_err *err)
{
    const struct json_value *v;
    struct quota quota = {0};
    int r = 0;

    if ((v = json_get(doc, "max_sandboxes")) && v->type != JSON_NULL)
        r = spec_count(v, "max_sandboxes", 1, INT64_MAX, &quota.sandboxes, err);
    if (r == 0 && (v = json_get(doc, "max_cpus")) && v->type != JSON_NULL)
        r = spec_cpus(v, "max_cpus", &quota.cpus, err);
    if (r == 0 && (v = json_get(doc, "max_memory")) && v->type != JSON_NULL)
        r = spec_size(v, "max_memory", &quota.memory, err);
    if (r == 0 && (v = json_get(doc, "max_disk")) && v->type != JSON_NULL)
        r = spec_size(v, "max_disk", &quota.disk, err);
    if (r == 0)
        *ret = quota;
    return r;
}

static void forget(struct manager *manager, const char *id)
{
    for (struct quota_of **at = &manager->quotas[sandbox_bucket(id, NULL)]; *at; at = &(*at)->next)
        if (str_eq((*at)->id, id)) {
            struct quota_of *q = *at;
            *at = q->next;
            mem_free(q);
            return;
        }
}

int manager_set_quota(struct manager *manager, const char *id, const struct json_value *doc, struct brig_err *err)
{
    struct quota quota = {0};
    int r = doc ? parse(doc, &quota, err) : 0;

    if (r < 0)
        return r;
    if (!quota.sandboxes && !quota.cpus && !quota.memory && !quota.disk) {
        forget(manager, id);
        return 0;
    }
    struct quota_of *q = mem_zalloc(sizeof *q);
    if (!q)
        return err_nomem(err);
    if (str_copy(q->id, sizeof q->id, id) < 0) {
        mem_free(q);
        return err_usage(err, "organisation %.64s: the id is too long", id);
    }
    forget(manager, id);
    q->quota = quota;
    struct quota_of **head = &manager->quotas[sandbox_bucket(id, NULL)];
    q->next = *head;
    *head = q;
    return 0;
}

struct loading {
    struct manager *manager;
    struct brig_err *err;
};

static int load_one(struct loading *in, const char *id, const char *text)
{
    AUTO_JSON struct json_doc *doc = NULL;

    if (!text || !text[0])
        return 0;
    int r = json_read(text, strlen(text), JSON_READ_VALUES, &doc, in->err);
    return r < 0 ? r : manager_set_quota(in->manager, id, json_root(doc), in->err);
}

static int on_org(void *ctx, const struct store_org *org)
{
    return load_one(ctx, org->id, org->doc);
}

static int on_key(void *ctx, const struct store_key *key)
{
    return load_one(ctx, key->id, key->doc);
}

int quota_load(struct manager *manager, struct brig_err *err)
{
    struct loading in = {manager, err};
    int r = store_each_org(manager->store, on_org, &in, err);

    return r < 0 ? r : store_each_key(manager->store, on_key, &in, err);
}

void quota_done(struct manager *manager)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        while (manager->quotas[i])
            forget(manager, manager->quotas[i]->id);
}
