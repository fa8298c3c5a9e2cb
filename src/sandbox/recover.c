/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover.c: recovers sandboxes at the start. The store says which sandboxes there were, the provider which boxes there
 * are.
 *
 *     row and box         taken up again: its open runs from the store, a new stream, its processes from brig-init
 *     row without a box   gone while nobody looked: a certificate, cause sandbox-gone
 *     box without a row   an orphan (a create that was never committed, a run of its own): ended
 *
 * The store's open runs are read before anything else can start one: those of living sandboxes become processes that
 * brig-init's list has to confirm, the others are closed as host-error. Only then is the service ready. A sandbox that
 * does not answer within ANSWER_NS is not waited for, and ended.
 */
#include "sandbox/parked/parked.h"
#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/sbox_place.h"
#include "sandbox/sbox_disks.h"

#define ANSWER_NS (10 * NS_PER_SEC)
#define PAGE 50u /* open runs at a time: each may have a long command */

struct recovery {
    unsigned waiting; /* sandboxes that are not settled, and 1 for the providers */
    unsigned finding; /* providers that have not listed all of their boxes */
    struct loop_timer late;
    char last[64]; /* of the page of open runs before */
};

/* ---- ready ---------------------------------------------------------------------------------------------- */

static void on_ready(struct loop_timer *timer)
{
    struct manager *manager = timer->ctx;

    recover_done(manager);
    manager->is_ready = true;
    disks_collect(manager);
    parked_look(manager);
    if (manager->ready)
        manager->ready(manager->ready_ctx);
}

static void settled(struct manager *manager)
{
    if (!manager->recovery || --manager->recovery->waiting > 0)
        return;
    loop_timer_clear(manager->loop, &manager->recovery->late);
    manager->start = (struct loop_timer){.fn = on_ready, .ctx = manager};
    if (loop_timer_set(manager->loop, &manager->start, loop_now_ns(), NULL) < 0)
        on_ready(&manager->start);
}

void recover_sbox_settled(struct sbox *sbox)
{
    if (!sbox->priv->unsettled)
        return;
    sbox->priv->unsettled = false;
    settled(sbox->manager);
}

void recover_done(struct manager *manager)
{
    if (!manager->recovery)
        return;
    loop_timer_clear(manager->loop, &manager->recovery->late);
    mem_free(take_ptr(&manager->recovery));
}

/* ---- one that lives ------------------------------------------------------------------------------------- */

void recover_late(struct manager *manager)
{
    for (struct sbox *sbox = manager->first, *next; sbox; sbox = next) {
        next = sbox->next;
        if (!sbox->priv->unsettled)
            continue;
        if (sbox->priv->box)
            sbox_ops(sbox)->end(sbox->priv->box); /* unasked: its end is a fault */
        recover_sbox_settled(sbox);
    }
}

static void on_late(struct loop_timer *timer)
{
    recover_late(timer->ctx);
}

static void on_stream(void *ctx, int fd, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct brig_err why = {0};
    int r = 0;

    if (err)
        why = *err;
    else
        r = sbox_connect(sbox, fd, &why);
    if (!err && r == 0) {
        sbox->link = sbox->state == SBOX_RUNNING ? sbox->priv->link : NULL;
        r = processes_list(sbox, &why);
    }
    if (err || r < 0) {
        void (*done)(struct sbox * s, const struct brig_err *e) = take_ptr(&sbox->priv->attach_done);
        if (done)
            done(sbox, &why);
    }
}

int recover_attach(struct sbox *sbox, void (*done)(struct sbox *sbox, const struct brig_err *err), struct brig_err *err)
{
    sbox->priv->attach_done = done;
    int r = sbox_ops(sbox)->attach(sbox->priv->box, on_stream, sbox, err);
    if (r < 0)
        sbox->priv->attach_done = NULL;
    return r;
}

static void on_attached(struct sbox *sbox, const struct brig_err *err)
{
    struct manager *manager = sbox->manager;

    if (err) {
        sandbox_audit(manager, NULL, sbox->org_id, "sandbox.recover", sbox->id, "failed", err->message, false);
        if (sbox->priv->box)
            sbox_ops(sbox)->end(sbox->priv->box);
    } else {
        manager->stats.recovered++;
        sandbox_audit(manager, NULL, sbox->org_id, "sandbox.recover", sbox->id, "ok", "", false);
        sandbox_event(sbox, "sandbox.recover", NULL);
        idle_arm(sbox);
    }
    recover_sbox_settled(sbox);
}

/* Its freezer is as the row says now. A paused one is not spoken with until it is resumed. */
static void on_freezer(void *ctx, const struct brig_err *err)
{
    struct sbox *sbox = ctx;
    struct brig_err why = {0};

    if (sbox->state == SBOX_PAUSED) {
        on_attached(sbox, err);
        return;
    }
    if (err || recover_attach(sbox, on_attached, &why) < 0)
        on_attached(sbox, err ? err : &why);
}

static void take_up(struct sbox *sbox)
{
    const struct provider_ops *ops = sbox_ops(sbox);
    struct brig_err err = {0};

    sbox->priv->unsettled = true;
    sbox->manager->recovery->waiting++;
    network_recovered(sbox);
    if (!(ops->caps & PROVIDER_PAUSE))
        on_freezer(sbox, NULL);
    else if (ops->freeze(sbox->priv->box, sbox->state == SBOX_PAUSED, on_freezer, sbox, &err) < 0)
        on_freezer(sbox, &err);
}

static void take_up_all(struct manager *manager)
{
    for (struct sbox *sbox = manager->first, *next; sbox; sbox = next) {
        next = sbox->next;
        if (sbox->priv->box && sbox->state < SBOX_STOPPING)
            take_up(sbox);
    }
    manager->recovery->late = (struct loop_timer){.fn = on_late, .ctx = manager};
    (void)!loop_timer_set(manager->loop, &manager->recovery->late, loop_now_ns() + ANSWER_NS, NULL);
    settled(manager);
}

/* ---- runs ----------------------------------------------------------------------------------------------- */

static void on_runs(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                    const struct brig_err *err);

static void on_closed(void *ctx, const struct brig_err *err UNUSED)
{
    take_up_all(ctx);
}

/* The runs cannot be read: then none of them is known, and what lives is found in the sandboxes' own lists. */
static void close_all(struct manager *manager, const struct brig_err *why)
{
    struct store_op *op = store_op_new(manager, NULL, on_closed, NULL, manager);

    sandbox_audit(manager, NULL, "", "run.store", "", "failed", why->message, false);
    if (op && store_close_open_runs(manager->store, brig_cause_name(BRIG_CAUSE_HOST_ERROR), clock_real_ns(),
                                    store_op_done, op, NULL) == 0)
        return;
    store_op_drop(op);
    take_up_all(manager);
}

static void scan_runs(struct manager *manager)
{
    const char *last = manager->recovery->last;
    const struct store_query query = {.org_id = "", .cause = "", .after = last[0] ? last : NULL, .limit = PAGE};
    struct brig_err err = {0};
    struct store_op *op = store_op_new(manager, NULL, NULL, on_runs, manager);

    if (op && store_find_runs(manager->store, &query, store_op_rows, op, &err) == 0)
        return;
    store_op_drop(op);
    close_all(manager, &err);
}

static void on_runs(void *ctx, const char *const *docs, const char *const *ids, size_t n, bool more,
                    const struct brig_err *err)
{
    struct manager *manager = ctx;

    if (err) {
        close_all(manager, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        process_recover(manager, docs[i], ids[i]);
    if (more && n > 0 && str_copy(manager->recovery->last, sizeof manager->recovery->last, ids[n - 1]) == 0) {
        scan_runs(manager);
        return;
    }
    take_up_all(manager);
}

/* ---- rows and boxes ------------------------------------------------------------------------------------- */

static int on_row(void *ctx, const struct store_sandbox *row)
{
    struct manager *manager = ctx;
    struct brig_err err = {0};
    struct sbox *sbox = sbox_new(manager, false);

    if (!sbox)
        return -ENOMEM;
    sbox->priv->announced = sbox->priv->row = true;
    if (row_read(manager, row, sbox, &err) < 0) {
        /* Its box, if there is one, has no row then: an orphan. */
        sandbox_audit(manager, NULL, row->org_id, "sandbox.recover", row->id, "failed", err.message, false);
        (void)!certificate_write_gone(manager, row, err.message, NULL);
        sbox_moved(sbox, SBOX_STOPPING);
        sbox_moved(sbox, SBOX_ENDED);
        sbox_retire(sbox);
        sbox_forget(sbox);
        return 0;
    }
    sbox_table_add(sbox);
    sbox_name_add(sbox);
    enum sbox_state state = SBOX_RUNNING;
    if (str_eq(row->state, sbox_state_name(SBOX_PAUSED)) || str_eq(row->state, sbox_state_name(SBOX_RESUMING)))
        state = SBOX_PAUSED;
    sbox_moved(sbox, SBOX_RUNNING);
    if (state == SBOX_PAUSED) {
        sbox_moved(sbox, SBOX_PAUSING);
        sbox_moved(sbox, SBOX_PAUSED);
    }
    sbox->updated_at_ns = row->updated_at_ns;
    return 0;
}

static void on_orphan_ended(void *ctx, const struct box_end *end UNUSED)
{
    struct manager *manager = ctx;

    manager->orphans--;
}

bool manager_is_settled(const struct manager *manager)
{
    return manager->is_ready && manager->orphans == 0;
}

static bool on_found(void *ctx, struct box *box, const struct box_up *up, struct box_events *ret)
{
    struct manager *manager = ctx;
    struct sbox *sbox = manager->first;

    while (sbox && (sbox->priv->box || sbox->priv->provider != box->provider || !str_eq(sbox->priv->box_id, up->id)))
        sbox = sbox->next;
    if (!sbox) {
        manager->stats.orphans++;
        sandbox_audit(manager, NULL, "", "sandbox.orphan", up->id, "ok", "ended: no row belongs to it", false);
        manager->orphans++;
        *ret = (struct box_events){.ended = on_orphan_ended, .ctx = manager};
        return false;
    }
    sbox->priv->box = box;
    sbox->priv->up = true;
    place_take(sbox, up);
    *ret = (struct box_events){.ended = sbox_box_ended, .ctx = sbox};
    return true;
}

static void on_all_found(void *ctx)
{
    struct manager *manager = ctx;

    if (manager->recovery->finding > 0 && --manager->recovery->finding > 0)
        return; /* other providers are still looking */
    for (struct sbox *sbox = manager->first, *next; sbox; sbox = next) {
        next = sbox->next;
        if (sbox->priv->box)
            continue;
        snprintf(sbox->priv->end.detail, sizeof sbox->priv->end.detail, "it was gone when the service started");
        sbox->priv->end.cause = BRIG_CAUSE_SANDBOX_GONE;
        sbox->priv->end.ended_at_ns = clock_real_ns();
        sbox->priv->end.usage = USAGE_UNKNOWN;
        sbox->priv->end.usage.wall_ms = BRIG_USAGE_UNKNOWN;
        sbox->priv->unsettled = true; /* until its certificate is written */
        manager->recovery->waiting++;
        sbox_moved(sbox, SBOX_STOPPING);
        sbox_finish(sbox);
    }
    scan_runs(manager);
}

static void on_nothing_to_find(struct loop_timer *timer)
{
    on_all_found(timer->ctx);
}

int recover_start(struct manager *manager, struct brig_err *err)
{
    int r = store_each_sandbox(manager->store, on_row, manager, err);

    if (r < 0)
        return r;
    manager->recovery = mem_zalloc(sizeof *manager->recovery);
    if (!manager->recovery)
        return err_nomem(err);
    manager->recovery->waiting = 1;
    struct provider *provider;
    for (size_t i = 0; (provider = place_at(manager, i)); i++) {
        if (!(provider->ops->caps & PROVIDER_RECOVER))
            continue;
        r = provider->ops->recover(provider, on_found, on_all_found, manager, err);
        if (r < 0)
            return r;
        manager->recovery->finding++;
    }
    if (manager->recovery->finding > 0)
        return 0;
    manager->start = (struct loop_timer){.fn = on_nothing_to_find, .ctx = manager};
    return loop_timer_set(manager->loop, &manager->start, loop_now_ns(), err);
}
