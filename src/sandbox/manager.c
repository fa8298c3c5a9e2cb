/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager.c: the table of this daemon's sandboxes, which are found by id or name, newest first. sbox_create.c,
 * sbox_lifecycle.c, death.c and idle.c have what happens to one of them.
 *
 * Invariant: every sbox is in the list; in the table of ids from the moment it has one; in that of names if it has a
 * name. It leaves all three in sbox_forget().
 */
#include "audit/suspicion.h"
#include "base/list.h"
#include "sandbox/parked/parked.h"
#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/services/services_priv.h"

#ifdef BRIG_TEST
uint64_t sandbox_clock_skew;
#endif

uint64_t sandbox_boot_ns(void)
{
    struct timespec ts = {0};

    clock_gettime(CLOCK_BOOTTIME, &ts);
    uint64_t now = (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
#ifdef BRIG_TEST
    now += sandbox_clock_skew;
#endif
    return now;
}

/* FNV-1a; the ids are random, names are the organisation's own problem. */
unsigned sandbox_bucket(const char *a, const char *b)
{
    return str_hash(a, b) % BUCKETS;
}

static void manager_check_shut(struct manager *manager);

const char *sbox_label(const struct sbox *sbox)
{
    return sbox->id[0] ? sbox->id : sbox->spec.name[0] ? sbox->spec.name : "(new)";
}

uint64_t sandbox_audit(struct manager *manager, const struct caller *caller, const char *org, const char *action,
                       const char *object, const char *outcome, const char *detail, bool sync)
{
    struct audit_event event = {
        .action = action,
        .actor = caller ? caller->actor : "system",
        .org = org      ? org
               : caller ? caller->org_id
                        : "",
        .object = object ? object : "",
        .outcome = outcome,
        .detail = detail ? detail : "",
        .request_id = caller ? caller->request_id : "",
        .sync = sync,
    };

    return manager->audit ? audit_add(manager->audit, &event, NULL, NULL) : 0;
}

void sandbox_suspect(const struct sbox *sbox, const struct caller *caller, const char *outcome, const char *detail)
{
    struct manager *manager = sbox->manager;

    if (manager->suspicion && caller->actor[0] &&
        suspicion_note(manager->suspicion, caller->actor, clock_mono_ns(), (unsigned)manager->config->suspicious_count,
                       (unsigned)manager->config->suspicious_seconds))
        sandbox_audit(manager, caller, sbox->org_id, "suspicious", sbox->id, outcome, detail, true);
}

/* ---- list and tables ------------------------------------------------------------------------------------ */

static struct sbox **list_of(struct sbox *sbox)
{
    return sbox->priv->internal ? &sbox->manager->children : &sbox->manager->first;
}

struct sbox *sbox_new(struct manager *manager, bool internal)
{
    struct sbox *sbox = mem_zalloc(sizeof *sbox);
    struct sbox_private *priv = mem_zalloc(sizeof *priv);

    if (!sbox || !priv) {
        mem_free(sbox);
        mem_free(priv);
        return NULL;
    }
    sbox->priv = priv;
    priv->internal = internal;
    priv->provider = manager->provider;
    sbox->manager = manager;
    if (sbox_park_later(sbox) < 0) {
        mem_free(sbox);
        mem_free(priv);
        return NULL;
    }
    sbox->next_proc = 1;
    priv->reserved = 1 + PROC_RESERVE;
    priv->next_shell = 1;
    sbox->created_at_ns = sbox->updated_at_ns = clock_real_ns();
    sbox->last_used_boot_ns = sandbox_boot_ns();
    for (int i = 0; i < BRIG_LAYER_MAX; i++)
        sbox->layers[i].by = sbox->layers[i].why = "";
    list_push(list_of(sbox), sbox);
    if (internal) {
        manager->n_children++;
    } else {
        manager->count++;
        manager->stats.sandboxes[sbox->state]++;
    }
    return sbox;
}

void sbox_adopt(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct sbox_private *priv = sbox->priv;

    list_remove(list_of(sbox), sbox);
    manager->n_children--;
    manager->n_parked--;
    priv->internal = priv->parked = false;
    list_push(list_of(sbox), sbox);
    manager->count++;
    manager->stats.sandboxes[sbox->state]++;
    sbox_moved(sbox, SBOX_CREATING);
    sbox_table_add(sbox);
    priv->announced = priv->settling = false;
    priv->pooled = true;
    sbox->created_at_ns = sbox->updated_at_ns = clock_real_ns();
}

void sbox_table_add(struct sbox *sbox)
{
    struct sbox **head = &sbox->manager->by_id[sandbox_bucket(sbox->id, NULL)];

    sbox->priv->by_id = *head;
    *head = sbox;
}

void sbox_name_add(struct sbox *sbox)
{
    if (!sbox->spec.name[0])
        return;
    struct sbox **head = &sbox->manager->by_name[sandbox_bucket(sbox->spec.name, NULL)];
    sbox->priv->by_name = *head;
    *head = sbox;
}

static void table_remove(struct sbox *sbox)
{
    struct sbox **at = &sbox->manager->by_id[sandbox_bucket(sbox->id, NULL)];

    while (*at && *at != sbox)
        at = &(*at)->priv->by_id;
    if (*at)
        *at = sbox->priv->by_id;
    at = &sbox->manager->by_name[sandbox_bucket(sbox->spec.name, NULL)];
    while (*at && *at != sbox)
        at = &(*at)->priv->by_name;
    if (*at)
        *at = sbox->priv->by_name;
}

struct sbox *sbox_by_id(struct manager *manager, const char *id)
{
    struct sbox *sbox = manager->by_id[sandbox_bucket(id, NULL)];

    while (sbox && !str_eq(sbox->id, id))
        sbox = sbox->priv->by_id;
    return sbox;
}

struct sbox *sbox_by_name(struct manager *manager, const char *org_id, const char *name)
{
    struct sbox *sbox = manager->by_name[sandbox_bucket(name, NULL)];

    while (sbox && !(str_eq(sbox->spec.name, name) && str_eq(sbox->org_id, org_id)))
        sbox = sbox->priv->by_name;
    return sbox;
}

struct sbox *manager_find(struct manager *manager, const struct caller *caller, const char *id)
{
    struct sbox *sbox = id[0] ? sbox_by_id(manager, id) : NULL;

    if (sbox) {
        if (caller->socket || (str_eq(sbox->org_id, caller->org_id) && !sbox->spec.service))
            return sbox;
        if (str_eq(sbox->org_id, caller->org_id))
            return NULL;
        /* For the host's administrator only: that there is one is nothing for the caller's organisation to read. */
        sandbox_audit(manager, caller, "", "denied", id, "denied", "a sandbox of another organisation", true);
        return NULL;
    }
    /*
     * A name is looked for in the caller's own organisation only, because another one could have given it to a sandbox
     * of its own.
     */
    sbox = id[0] ? sbox_by_name(manager, caller->org_id, id) : NULL;
    return sbox && sbox->spec.service && !caller->socket ? NULL : sbox;
}

struct sbox *manager_first(struct manager *manager)
{
    return manager->first;
}

struct sbox *sbox_next(const struct sbox *sbox)
{
    return sbox->next;
}

struct sbox *sbox_by_reuse(struct manager *manager, const struct caller *caller, const char *mark)
{
    struct sbox *sbox = manager->first;

    while (sbox && !(str_eq(sbox->spec.reuse, mark) && str_eq(sbox->org_id, caller->org_id) &&
                     str_eq(sbox->key_id, caller->key_id)))
        sbox = sbox->next;
    return sbox;
}

const char *sbox_id(const struct sbox *sbox)
{
    return sbox->id;
}

const char *sbox_org(const struct sbox *sbox)
{
    return sbox->org_id;
}

enum sbox_state sbox_state(const struct sbox *sbox)
{
    return sbox->state;
}

int64_t sbox_created(const struct sbox *sbox)
{
    return sbox->created_at_ns;
}

const struct sbox_spec *sbox_spec(const struct sbox *sbox)
{
    return &sbox->spec;
}

const struct brig_limits *sbox_limits(const struct sbox *sbox)
{
    return &sbox->limits;
}

unsigned sbox_processes(const struct sbox *sbox)
{
    return sbox->processes;
}

struct link *sbox_link(const struct sbox *sbox)
{
    return sbox->link;
}

/* ---- the end of one -------------------------------------------------------------------------------------- */

void sbox_retire(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;

    if (sbox->priv->retired)
        return;
    sbox->priv->retired = true;
    table_remove(sbox);
    list_remove(list_of(sbox), sbox);
    if (sbox->priv->internal) {
        manager->n_children--;
        manager->n_parked -= sbox->priv->parked;
    } else {
        manager->count--;
        manager->stats.sandboxes[sbox->state]--;
    }
    list_push(&manager->retired, sbox);
    manager_check_shut(manager);
}

static void sbox_free(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct sbox_private *priv = sbox->priv;

    loop_timer_clear(manager->loop, &priv->deadline);
    loop_timer_clear(manager->loop, &priv->later);
    soft_stop_drop(sbox);
    children_free(sbox);
    processes_free(sbox);
    services_free(sbox);
    link_destroy(priv->link);
    sbox_drop_updates(sbox);
    while (priv->tickets) {
        struct ticket *ticket = priv->tickets;
        priv->tickets = ticket->next;
        mem_free(ticket);
    }
    sbox_retire(sbox);
    list_remove(&manager->retired, sbox);
    network_free(sbox);
    sbox_spec_done(&sbox->spec);
    mem_free(priv->metadata_memory);
    mem_free(priv);
    mem_free(sbox);
}

void sbox_forget(struct sbox *sbox)
{
    if (sbox->priv->pins > 0)
        return; /* the last pin comes back here */
    sbox_tell_watches(sbox);
    if (sbox->priv->link && !sbox->priv->link_gone && !sbox->priv->lingered)
        sbox_linger(sbox);
    else
        sbox_free(sbox);
}

void sbox_watch(struct sbox *sbox, struct sbox_watch *watch)
{
    list_push(&sbox->priv->watches, watch);
}

void sbox_unwatch(struct sbox *sbox, struct sbox_watch *watch)
{
    if (watch->prev)
        watch->prev->next = watch->next;
    else if (sbox->priv->watches == watch)
        sbox->priv->watches = watch->next;
    if (watch->next)
        watch->next->prev = watch->prev;
    watch->next = watch->prev = NULL;
}

void sbox_tell_watches(struct sbox *sbox)
{
    while (sbox->priv->watches) {
        struct sbox_watch *watch = sbox->priv->watches;
        sbox_unwatch(sbox, watch);
        watch->ended(watch->ctx, sbox);
    }
}

/* ---- the manager ----------------------------------------------------------------------------------------- */

int manager_create(const struct manager_options *options, void (*ready)(void *ctx), void *ctx, struct manager **ret,
                   struct brig_err *err)
{
    struct manager *manager = mem_zalloc(sizeof *manager);

    if (!manager)
        return err_nomem(err);
    manager->loop = options->loop;
    manager->provider = options->provider;
    manager->providers = options->providers;
    manager->store = options->store;
    manager->audit = options->audit;
    manager->suspicion = options->suspicion;
    manager->templates = options->templates;
    manager->volumes = options->volumes;
    manager->snapshots = options->snapshots;
    manager->config = options->config;
    manager->ready = ready;
    manager->ready_ctx = ctx;
    manager->event_seq = (uint64_t)clock_real_ns() / 1000;
    manager->kept_pool = KEPT_POOL;
    manager->idem_max = IDEM_MAX;
    int r = disks_start(manager, err);
    if (r == 0)
        r = network_start(manager, options, err);
    if (r == 0)
        r = quota_load(manager, err);
    if (r == 0)
        r = idem_load(manager, err);
    if (r == 0)
        r = parked_start(manager, err);
    if (r == 0)
        r = recover_start(manager, err);
    if (r == 0 && (manager->provider->ops->caps & PROVIDER_POOL)) {
        /* Without prepared ones it works too, only slower: no reason not to start. */
        struct brig_err why = {0};
        if (manager->provider->ops->pool(manager->provider, (unsigned)manager->config->pool, &why) < 0)
            sandbox_audit(manager, NULL, "", "provider.pool", manager->provider->ops->name, "failed", why.message,
                          false);
    }
    if (r < 0) {
        manager_destroy(manager);
        return r;
    }
    idle_start(manager);
    *ret = manager;
    return 0;
}

void manager_destroy(struct manager *manager)
{
    if (!manager)
        return;
    loop_timer_clear(manager->loop, &manager->cleanup);
    loop_timer_clear(manager->loop, &manager->retry);
    loop_timer_clear(manager->loop, &manager->shut);
    loop_timer_clear(manager->loop, &manager->start);
    recover_done(manager);
    parked_stop(manager);
    disks_stop(manager);
    store_ops_orphan(manager);
    network_stop(manager); /* before the sandboxes: their slots live on */
    while (manager->first)
        sbox_free(manager->first);
    while (manager->children)
        sbox_free(manager->children);
    while (manager->retired)
        sbox_free(manager->retired);
    idem_done(manager);
    quota_done(manager);
    events_done(manager);
    certificates_done(manager);
    mem_free(manager);
}

void manager_configure(struct manager *manager, const struct config *config)
{
    bool pool = config->pool != manager->config->pool;

    manager->config = config;
    if (pool && (manager->provider->ops->caps & PROVIDER_POOL))
        (void)!manager->provider->ops->pool(manager->provider, (unsigned)config->pool, NULL);
    idle_start(manager);
    parked_configure(manager);
}

void manager_stats(const struct manager *manager, struct manager_stats *ret)
{
    *ret = manager->stats;
}

/* ---- shutting down --------------------------------------------------------------------------------------- */

static void on_shut(struct loop_timer *timer)
{
    struct manager *manager = timer->ctx;
    void (*done)(void *ctx) = manager->shut_done;

    manager->shut_done = NULL;
    if (done)
        done(manager->shut_ctx);
}

static bool keeps(const struct sbox *sbox)
{
    const struct config *config = sbox->manager->config;

    return (sbox_ops(sbox)->caps & PROVIDER_RECOVER) && config->on_shutdown && str_eq(config->on_shutdown, "keep");
}

static void manager_check_shut(struct manager *manager)
{
    if (!manager->shutting_down || !manager->shut_done)
        return;
    if (manager->leaving ? manager->n_parked > 0 : manager->children != NULL)
        return;
    for (struct sbox *sbox = manager->leaving ? NULL : manager->first; sbox; sbox = sbox->next)
        if (sbox->state == SBOX_STOPPING || sbox->state == SBOX_CREATING || !keeps(sbox))
            return;
    manager->shut.fn = on_shut;
    manager->shut.ctx = manager;
    if (loop_timer_set(manager->loop, &manager->shut, loop_now_ns(), NULL) < 0)
        on_shut(&manager->shut);
}

void manager_leave(struct manager *manager, void (*done)(void *ctx), void *ctx)
{
    manager->shutting_down = manager->leaving = true;
    manager->shut_done = done;
    manager->shut_ctx = ctx;
    for (struct sbox *sbox = manager->children, *next; sbox; sbox = next) {
        next = sbox->next;
        if (sbox->priv->parked && sbox_move(sbox, SBOX_STOPPING, NULL) == 0)
            sbox_stop(sbox, NULL, "shutdown", "shutdown");
    }
    manager_check_shut(manager);
}

void manager_shut_down(struct manager *manager, void (*done)(void *ctx), void *ctx)
{
    manager->shutting_down = true;
    manager->shut_done = done;
    manager->shut_ctx = ctx;
    for (struct sbox *sbox = manager->children, *next; sbox; sbox = next) {
        next = sbox->next;
        if (sbox_move(sbox, SBOX_STOPPING, NULL) == 0)
            sbox_stop(sbox, NULL, "shutdown", "shutdown");
    }
    for (struct sbox *sbox = manager->first, *next; sbox; sbox = next) {
        next = sbox->next;
        /* A create that nobody will hear of any more is not kept. */
        if (keeps(sbox) && sbox->state != SBOX_CREATING)
            continue;
        if (sbox_move(sbox, SBOX_STOPPING, NULL) == 0)
            sbox_stop(sbox, NULL, "shutdown", "shutdown");
    }
    manager_check_shut(manager);
}

/* ---- being used ------------------------------------------------------------------------------------------ */

void sbox_hold(struct sbox *sbox)
{
    sbox->busy++;
    sbox->last_used_boot_ns = sandbox_boot_ns();
}

void sbox_release(struct sbox *sbox)
{
    if (sbox->busy > 0)
        sbox->busy--;
    sbox->last_used_boot_ns = sandbox_boot_ns();
}
