/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sbox_lifecycle.c: pauses, resumes and updates a sandbox, and asks for statistics. Pausing and resuming are states of
 * their own while the provider works; an end that comes in between wins, and the caller that paused gets an error.
 */
#include "base/list.h"
#include "sandbox/private.h"
#include "sandbox/processes.h"

/* Somebody who waits until the row is written. */
struct update {
    struct update *next;
    struct sbox *sbox;
    sbox_done_fn *done;
    void *ctx;
};

static void update_drop(struct update *update)
{
    struct update **at = &update->sbox->priv->updates;

    while (*at != update)
        at = &(*at)->next;
    *at = update->next;
    mem_free(update);
}

void sbox_drop_updates(struct sbox *sbox)
{
    while (sbox->priv->updates)
        update_drop(sbox->priv->updates);
}

static void tell_change(struct sbox *sbox, const struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    sbox_done_fn *done = take_ptr(&priv->change_done);

    if (done)
        done(priv->change_ctx, sbox, err);
}

void sbox_fail_change(struct sbox *sbox, const struct brig_err *err)
{
    tell_change(sbox, err);
}

static void audit_change(struct sbox *sbox, const char *action, const struct brig_err *err)
{
    const struct caller *by = sbox->priv->changer.actor[0] ? &sbox->priv->changer : NULL;

    sandbox_audit(sbox->manager, by, sbox->org_id, action, sbox->id, err ? "failed" : "ok", err ? err->message : "",
                  false);
}

/* Overtaken: it has another state than the one the answer belongs to. */
static bool overtaken(struct sbox *sbox, enum sbox_state expected)
{
    struct brig_err err = {0};

    if (sbox->state == expected)
        return false;
    (void)err_set(&err, BRIG_E_CONFLICT, 0, "sandbox %s is %s", sbox_label(sbox), sbox_state_name(sbox->state));
    tell_change(sbox, &err);
    return true;
}

static void not_written(struct sbox *sbox, const struct brig_err *err)
{
    sandbox_audit(sbox->manager, NULL, sbox->org_id, "sandbox.store", sbox->id, "failed", err->message, false);
}

/* It is in force, whatever the store says; only a restart would not know. */
static void on_written(void *ctx, const struct brig_err *err)
{
    struct update update = *(struct update *)ctx;

    update_drop(ctx);
    if (err)
        not_written(update.sbox, err);
    if (update.done)
        update.done(update.ctx, update.sbox, NULL);
}

/* The state is in the row, so that a restart finds it as it was left; then the caller is told. */
static void changed(struct sbox *sbox, const char *action)
{
    struct update *update = sbox->spec.ephemeral ? NULL : mem_zalloc(sizeof *update);
    struct brig_err err = {0};

    idle_arm(sbox);
    audit_change(sbox, action, NULL);
    sandbox_event(sbox, action, NULL);
    if (update) {
        *update = (struct update){sbox->priv->updates, sbox, sbox->priv->change_done, sbox->priv->change_ctx};
        if (row_write(sbox, on_written, update, &err) == 0) {
            sbox->priv->updates = update;
            sbox->priv->change_done = NULL; /* another change may come meanwhile */
            return;
        }
        mem_free(update);
        not_written(sbox, &err);
    }
    tell_change(sbox, NULL);
}

static void on_frozen(void *ctx, const struct brig_err *err)
{
    struct sbox *sbox = ctx;

    if (overtaken(sbox, SBOX_PAUSING))
        return;
    sbox_moved(sbox, err ? SBOX_RUNNING : SBOX_PAUSED);
    if (err) {
        audit_change(sbox, "sandbox.pause", err);
        processes_resumed(sbox, 0);
        idle_arm(sbox);
        tell_change(sbox, err);
        return;
    }
    sbox->priv->paused_at_ns = clock_mono_ns();
    changed(sbox, "sandbox.pause");
}

int sbox_pause_by(struct sbox *sbox, const struct caller *caller, bool by_timeout, sbox_done_fn *done, void *ctx,
                  struct brig_err *err)
{
    const struct provider_ops *ops = sbox_ops(sbox);
    struct sbox_private *priv = sbox->priv;

    if (!(ops->caps & PROVIDER_PAUSE))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s cannot pause", ops->name);
    int r = sbox_move(sbox, SBOX_PAUSING, err);
    if (r < 0)
        return r;
    r = ops->freeze(priv->box, true, on_frozen, sbox, err);
    if (r < 0) {
        sbox_moved(sbox, SBOX_RUNNING);
        return r;
    }
    priv->changer = caller ? *caller : (struct caller){0};
    priv->change_done = done;
    priv->change_ctx = ctx;
    priv->paused_by_timeout = by_timeout;
    return 0;
}

int sbox_pause(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    return sbox_pause_by(sbox, caller, false, done, ctx, err);
}

static void resumed(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;
    uint64_t now = sandbox_boot_ns();

    sbox_moved(sbox, SBOX_RUNNING);
    sbox->last_used_boot_ns = now;
    /* One that its age had paused gets its time anew: else it would be paused again at once. */
    if (priv->paused_by_timeout && sbox->spec.timeout_ms)
        sbox->ends_at_boot_ns = now + sbox->spec.timeout_ms * NS_PER_MS;
    priv->paused_by_timeout = false;
    processes_resumed(sbox, priv->paused_at_ns ? clock_mono_ns() - priv->paused_at_ns : 0);
    priv->paused_at_ns = 0;
    changed(sbox, "sandbox.resume");
}

static void on_attached(struct sbox *sbox, const struct brig_err *err)
{
    if (overtaken(sbox, SBOX_RESUMING))
        return;
    if (!err) {
        resumed(sbox);
        return;
    }
    /* It runs, but nobody can talk to it. */
    audit_change(sbox, "sandbox.resume", err);
    tell_change(sbox, err);
    if (sbox->priv->box)
        sbox_ops(sbox)->end(sbox->priv->box);
}

static void on_thawed(void *ctx, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct brig_err why = {0};

    if (overtaken(sbox, SBOX_RESUMING))
        return;
    if (err) {
        sbox_moved(sbox, SBOX_PAUSED);
        audit_change(sbox, "sandbox.resume", err);
        tell_change(sbox, err);
        return;
    }
    if (sbox->priv->link) {
        resumed(sbox);
        return;
    }
    /* Recovered while it was paused: nobody has spoken with it since. */
    if (recover_attach(sbox, on_attached, &why) < 0)
        on_attached(sbox, &why);
}

int sbox_resume(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    int r = sbox_move(sbox, SBOX_RESUMING, err);

    if (r < 0)
        return r;
    r = sbox_ops(sbox)->freeze(priv->box, false, on_thawed, sbox, err);
    if (r < 0) {
        sbox_moved(sbox, SBOX_PAUSED);
        return r;
    }
    priv->changer = *caller;
    priv->change_done = done;
    priv->change_ctx = ctx;
    return 0;
}

/* ---- update -------------------------------------------------------------------------------------------------- */

static void on_updated(void *ctx, const struct brig_err *err)
{
    struct update update = *(struct update *)ctx;

    update_drop(ctx);
    update.done(update.ctx, update.sbox, err);
}

static int copy_pairs(const struct sbox_pair *from, size_t n, char **ret_memory, struct sbox_pair **ret,
                      struct brig_err *err)
{
    size_t size = n * sizeof *from + 1;

    for (size_t i = 0; i < n; i++)
        size += strlen(from[i].name) + strlen(from[i].value) + 2;
    char *memory = mem_alloc(size);
    if (!memory)
        return err_nomem(err);
    struct sbox_pair *pairs = (struct sbox_pair *)(void *)memory;
    char *at = memory + n * sizeof *pairs;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(from[i].name) + 1;
        pairs[i].name = memcpy(at, from[i].name, len);
        at += len;
        len = strlen(from[i].value) + 1;
        pairs[i].value = memcpy(at, from[i].value, len);
        at += len;
    }
    *ret_memory = memory;
    *ret = pairs;
    return 0;
}

static int check_update(struct sbox *sbox, uint64_t timeout_ms, const struct sbox_pair *metadata, size_t n,
                        struct brig_err *err)
{
    if (sbox->state == SBOX_CREATING || sbox->state >= SBOX_STOPPING)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s", sbox_label(sbox), sbox_state_name(sbox->state));
    if (sbox->spec.ephemeral)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s belongs to one run", sbox->id);
    if (timeout_ms != UINT64_MAX && timeout_ms > DURATION_MAX_MS)
        return err_usage(err, "timeout: at most 31536000 seconds");
    if (metadata && n > PAIRS_MAX)
        return err_usage(err, "metadata: %zu members, at most %u", n, PAIRS_MAX);
    for (size_t i = 0; metadata && i < n; i++) {
        int r = spec_pair_check("metadata", metadata[i].name, strlen(metadata[i].name), metadata[i].value,
                                strlen(metadata[i].value), false, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int sbox_update(struct sbox *sbox, const struct caller *caller, uint64_t timeout_ms, const struct sbox_pair *metadata,
                size_t n_metadata, sbox_done_fn *done, void *ctx, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    struct sbox_spec before = sbox->spec;
    uint64_t ends_before = sbox->ends_at_boot_ns;
    char *memory = NULL;
    int r = check_update(sbox, timeout_ms, metadata, n_metadata, err);

    if (r == 0 && metadata)
        r = copy_pairs(metadata, n_metadata, &memory, &sbox->spec.metadata, err);
    struct update *update = r == 0 ? mem_zalloc(sizeof *update) : NULL;
    if (r == 0 && !update)
        r = err_nomem(err);
    if (r == 0) {
        *update = (struct update){NULL, sbox, done, ctx};
        if (metadata)
            sbox->spec.n_metadata = n_metadata;
        if (timeout_ms != UINT64_MAX) { /* counted from now: who asks for ten minutes means the next ten */
            sbox->spec.timeout_ms = timeout_ms;
            sbox->ends_at_boot_ns = timeout_ms ? sandbox_boot_ns() + timeout_ms * NS_PER_MS : 0;
        }
        sbox->updated_at_ns = clock_real_ns();
        r = row_write(sbox, on_updated, update, err);
    }
    if (r < 0) {
        sbox->spec = before;
        sbox->ends_at_boot_ns = ends_before;
        mem_free(memory);
        mem_free(update);
        return r;
    }
    update->next = priv->updates;
    priv->updates = update;
    if (metadata) {
        mem_free(priv->metadata_memory);
        priv->metadata_memory = memory;
    }
    idle_arm(sbox);
    sandbox_audit(sbox->manager, caller, sbox->org_id, "sandbox.update", sbox->id, "ok", "", false);
    sandbox_event(sbox, "sandbox.update", NULL);
    return 0;
}

/* ---- statistics ---------------------------------------------------------------------------------------------- */

static void ticket_drop(struct ticket *ticket)
{
    list_remove(&ticket->sbox->priv->tickets, ticket);
    mem_free(ticket);
}

static void on_stats(void *ctx, const struct box_stats *stats, const struct brig_err *err)
{
    struct ticket *ticket = ctx;
    struct ticket copy = *ticket;

    ticket_drop(ticket);
    if (copy.stats_done)
        copy.stats_done(copy.ctx, stats, err);
    else if (copy.limits_done)
        copy.limits_done(copy.ctx, NULL, err);
}

static void on_limits(void *ctx, const struct brig_limits *limits, const struct brig_err *err)
{
    struct ticket *ticket = ctx;
    struct ticket copy = *ticket;

    ticket_drop(ticket);
    if (!err) {
        copy.sbox->limits.memory = limits->memory;
        copy.sbox->limits.cpus = limits->cpus;
        copy.sbox->limits.pids = limits->pids;
    }
    if (copy.limits_done)
        copy.limits_done(copy.ctx, limits, err);
}

static struct ticket *ticket_new(struct sbox *sbox, void *ctx, struct brig_err *err)
{
    struct ticket *ticket = mem_zalloc(sizeof *ticket);

    if (!ticket) {
        (void)err_nomem(err);
        return NULL;
    }
    *ticket = (struct ticket){.sbox = sbox, .ctx = ctx};
    list_push(&sbox->priv->tickets, ticket);
    return ticket;
}

int sbox_set_limits(struct sbox *sbox, const struct brig_limits *limits,
                    void (*done)(void *ctx, const struct brig_limits *limits, const struct brig_err *err), void *ctx,
                    struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    const struct provider_ops *ops = sbox_ops(sbox);

    if (!priv->box || !priv->up || sbox->state >= SBOX_STOPPING)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s", sbox_label(sbox), sbox_state_name(sbox->state));
    if (!(ops->caps & PROVIDER_LIMITS))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "the provider %s cannot change limits", ops->name);
    struct ticket *ticket = ticket_new(sbox, ctx, err);
    if (!ticket)
        return -ENOMEM;
    ticket->limits_done = done;
    int r = ops->limits(priv->box, limits, on_limits, ticket, err);
    if (r < 0)
        ticket_drop(ticket);
    return r;
}

void sbox_drop_stats(struct sbox *sbox, const void *ctx)
{
    for (struct ticket *ticket = sbox->priv->tickets; ticket; ticket = ticket->next)
        if (ticket->ctx == ctx) {
            ticket->stats_done = NULL;
            ticket->limits_done = NULL;
        }
}

int sbox_stats(struct sbox *sbox, void (*done)(void *ctx, const struct box_stats *stats, const struct brig_err *err),
               void *ctx, struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;

    if (!priv->box || !priv->up || sbox->state >= SBOX_STOPPING)
        return err_set(err, BRIG_E_CONFLICT, 0, "sandbox %s is %s", sbox_label(sbox), sbox_state_name(sbox->state));
    struct ticket *ticket = ticket_new(sbox, ctx, err);
    if (!ticket)
        return -ENOMEM;
    ticket->stats_done = done;
    int r = sbox_ops(sbox)->stats(priv->box, on_stats, ticket, err);
    if (r < 0)
        ticket_drop(ticket);
    return r;
}

void sbox_fail_tickets(struct sbox *sbox)
{
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_CONFLICT, 0, "sandbox %s has ended", sbox_label(sbox));
    while (sbox->priv->tickets)
        on_stats(sbox->priv->tickets, NULL, &err);
}
