/* SPDX-License-Identifier: Apache-2.0 */
/*
 * death.c: ends a sandbox, asked or unasked. All ways lead through the provider's `ended`: nothing is forgotten while a
 * box may still be there.
 *
 *     asked:    STOPPING -> provider->end() -> ended -> certificate committed -> ENDED, forgotten
 *     unasked:  ended -> STOPPING -> certificate ...
 *               or, with on_death: recreate, ended -> CREATING -> a new box
 *
 * If a link ends while the box lives, brig-init is broken or has been taken over; the death of pid 1 looks the same for
 * a moment. So the provider has GRACE to say what happened, and then the box is ended.
 */
#include "sandbox/private.h"
#include "sandbox/processes.h"
#include "sandbox/services/services_priv.h"

#define GRACE_NS (100 * NS_PER_MS)
#define BACKOFF_NS (50 * NS_PER_MS)
#define LINGER_NS \
    NS_PER_SEC /* for a stream whose other end is dead: its end comes at once, and with it the answers to calls */

static void later(struct sbox *sbox, loop_timer_fn *fn, uint64_t delay_ns)
{
    struct sbox_private *priv = sbox->priv;

    priv->later.fn = fn;
    priv->later.ctx = sbox;
    /* moves it: cannot fail */
    (void)!loop_timer_set(sbox->manager->loop, &priv->later, loop_now_ns() + delay_ns, NULL);
}

static void on_nothing(struct loop_timer *timer UNUSED)
{
}

/* Armed from its first day, far away: what must happen later never fails for want of memory. */
int sbox_park_later(struct sbox *sbox)
{
    sbox->priv->later.fn = on_nothing;
    sbox->priv->later.ctx = sbox;
    return loop_timer_set(sbox->manager->loop, &sbox->priv->later, INT64_MAX, NULL);
}

void sbox_unpin(struct sbox *sbox)
{
    if (--sbox->priv->pins == 0 && sbox->state == SBOX_ENDED)
        sbox_forget(sbox);
}

static void on_lingered(struct loop_timer *timer)
{
    sbox_forget(timer->ctx);
}

void sbox_linger(struct sbox *sbox)
{
    sbox->priv->lingered = true;
    later(sbox, on_lingered, LINGER_NS);
}

/* ---- the link ---------------------------------------------------------------------------------------------- */

static void on_link_grace(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;
    struct sbox_private *priv = sbox->priv;

    (void)!sbox_park_later(sbox);
    if (priv->link_gone)
        link_destroy(take_ptr(&priv->link));
    if (priv->box && sbox->state != SBOX_STOPPING)
        sbox_ops(sbox)->end(priv->box); /* unasked: `ended` finds the state as it is */
}

void sbox_link_gone(void *ctx, const struct brig_err *why)
{
    struct sbox *sbox = ctx;
    struct sbox_private *priv = sbox->priv;

    priv->link_gone = true;
    priv->link_why = *why;
    sbox->link = NULL;
    if (sbox->state == SBOX_ENDED)
        later(sbox, on_lingered, 0);
    else if (priv->box)
        later(sbox, on_link_grace, GRACE_NS);
}

/* ---- asked ------------------------------------------------------------------------------------------------- */

static void on_no_box(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;

    (void)!sbox_park_later(sbox);
    sbox->priv->end.ended_at_ns = clock_real_ns();
    sbox->priv->end.cause = BRIG_CAUSE_CANCELLED;
    if (!sbox->priv->announced) { /* its network was being prepared */
        create_ended(sbox);
        return;
    }
    sbox_tell_watches(sbox);
    sbox_finish(sbox);
}

void sbox_stop(struct sbox *sbox, const struct caller *caller, const char *why, const char *by)
{
    struct sbox_private *priv = sbox->priv;
    struct ending *ending = &priv->ending;

    str_cut(ending->why, sizeof ending->why, why);
    str_cut(ending->by, sizeof ending->by, by);
    str_cut(ending->actor, sizeof ending->actor, caller ? caller->actor : "system");
    str_cut(ending->request_id, sizeof ending->request_id, caller ? caller->request_id : "");
    loop_timer_clear(sbox->manager->loop, &priv->deadline);
    if (priv->box)
        sbox_ops(sbox)->end(priv->box);
    else
        later(sbox, on_no_box, 0); /* between two lives */
}

/* A runner that hangs must not hold whoever waits. The sandbox ends when it, or the next one, answers. */
static void on_end_late(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;
    sbox_done_fn *done = take_ptr(&sbox->priv->end_done);
    struct brig_err err;

    (void)err_set(
        &err, BRIG_E_BUSY, ETIMEDOUT,
        "the provider %s has not ended sandbox %s within start_timeout, %llu ms; it ends when its runner answers",
        sbox_ops(sbox)->name, sbox_label(sbox), (unsigned long long)(sbox->priv->box->provider->end_ns / NS_PER_MS));
    if (done)
        done(sbox->priv->end_ctx, sbox, &err);
}

static void bound_end(struct sbox *sbox)
{
    const struct box *box = sbox->priv->box;
    struct loop_timer *timer = &sbox->priv->deadline; /* nobody else needs it from here on */

    if (!box || box->provider->end_ns == 0)
        return;
    timer->fn = on_end_late;
    timer->ctx = sbox;
    (void)!loop_timer_set(sbox->manager->loop, timer, loop_now_ns() + box->provider->end_ns, NULL);
}

int sbox_end(struct sbox *sbox, const struct caller *caller, const char *why, sbox_done_fn *done, void *ctx,
             struct brig_err *err)
{
    int r = sbox_move(sbox, SBOX_STOPPING, err);

    if (r < 0)
        return r;
    sbox->priv->end_done = done;
    sbox->priv->end_ctx = ctx;
    sbox_stop(sbox, caller, why, caller ? caller->actor : why);
    bound_end(sbox);
    return 0;
}

/* ---- recreation -------------------------------------------------------------------------------------------- */

static void give_up(struct sbox *sbox, const char *detail)
{
    struct sbox_private *priv = sbox->priv;

    if (!priv->end.detail[0])
        str_cut(priv->end.detail, sizeof priv->end.detail, detail);
    snprintf(priv->ending.by, sizeof priv->ending.by, "sandbox");
    if (sbox->state != SBOX_STOPPING)
        sbox_moved(sbox, SBOX_STOPPING);
    sbox_tell_watches(sbox);
    sbox_finish(sbox);
}

static void on_recreate(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;
    struct brig_err err = {0};

    (void)!sbox_park_later(sbox);
    link_destroy(take_ptr(&sbox->priv->link));
    if (sbox->state != SBOX_CREATING)
        return;
    sbox->priv->create_err = (struct brig_err){0};
    if (create_box(sbox, &err) < 0) {
        snprintf(sbox->priv->end.detail, sizeof sbox->priv->end.detail, "made again: %.200s", err.message);
        give_up(sbox, "");
    }
}

/* How many times it died within the window, this time included. */
static unsigned count_death(struct sbox_private *priv)
{
    uint64_t now = sandbox_boot_ns();
    unsigned n = 0;

    priv->deaths[priv->n_deaths++ % RECREATE_MAX] = now;
    for (unsigned i = 0; i < RECREATE_MAX; i++)
        n += priv->deaths[i] != 0 && now - priv->deaths[i] < RECREATE_WINDOW_NS;
    return n;
}

static bool try_recreate(struct sbox *sbox)
{
    struct manager *manager = sbox->manager;
    struct sbox_private *priv = sbox->priv;
    const char *cause = brig_cause_name(priv->end.cause);

    if (sbox->spec.on_death != SBOX_DEATH_RECREATE || manager->shutting_down)
        return false;
    unsigned n = count_death(priv);
    if (n >= RECREATE_MAX) {
        sandbox_audit(manager, NULL, sbox->org_id, "sandbox.recreate", sbox->id, "failed", "it died too often", false);
        return false;
    }
    if (sbox->state != SBOX_CREATING)
        sbox_moved(sbox, SBOX_CREATING);
    network_forget(sbox);
    priv->up = priv->pooled = false;
    priv->recreated++;
    priv->has_seen = false;
    sandbox_event(sbox, "sandbox.died", cause);
    later(sbox, on_recreate, BACKOFF_NS << (n - 1));
    return true;
}

/* ---- ended ------------------------------------------------------------------------------------------------- */

static void tell_of_end(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;
    struct caller by = {0};
    const char *why = priv->ending.why;
    const char *action = str_eq(why, "timeout") ? "sandbox.timeout"
                         : str_eq(why, "idle")  ? "sandbox.idle"
                         : why[0]               ? "sandbox.delete"
                                                : "sandbox.died";

    str_cut(by.actor, sizeof by.actor, priv->ending.actor[0] ? priv->ending.actor : "system");
    str_assign(by.request_id, priv->ending.request_id);
    sandbox_audit(sbox->manager, &by, sbox->org_id, action, sbox->id, why[0] ? "ok" : brig_cause_name(priv->end.cause),
                  priv->end.detail, false);
    sandbox_event(sbox, action, why[0] ? why : brig_cause_name(priv->end.cause));
}

/* The cause as the provider saw it, unless it only saw us ending a box whose link had gone. */
static void settle_cause(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;

    if (sbox->state == SBOX_STOPPING || priv->end.cause != BRIG_CAUSE_CANCELLED)
        return;
    priv->end.cause = BRIG_CAUSE_SANDBOX_GONE;
    if (priv->link_gone)
        str_assign(priv->end.detail, priv->link_why.message);
}

static struct brig_err gone_err(const struct sbox *sbox)
{
    struct brig_err err = {0};

    (void)err_set(&err, BRIG_E_CONFLICT, 0, "sandbox %s has ended", sbox_label(sbox));
    return err;
}

void create_failure(const struct sbox *sbox, struct brig_err *err)
{
    const struct sbox_private *priv = sbox->priv;
    const char *detail = priv->end.detail[0] ? priv->end.detail : brig_cause_name(priv->end.cause);

    if (priv->create_err.code)
        *err = priv->create_err;
    else if (priv->ending.why[0])
        (void)err_set(err, str_eq(priv->ending.why, "shutdown") ? BRIG_E_BUSY : BRIG_E_CONFLICT, 0,
                      "the sandbox was ended (%s) while it was created", priv->ending.why);
    else if (priv->end.code) /* the provider says which kind of refusal it is */
        (void)err_set(err, priv->end.code, 0, "%s", detail);
    else if (priv->end.cause == BRIG_CAUSE_POLICY)
        (void)err_set(err, BRIG_E_REFUSED, 0, "%s", detail);
    else
        (void)err_set(err, BRIG_E_HOST, 0, "Failed to create sandbox: %s", detail);
}

void sbox_box_ended(void *ctx, const struct box_end *end)
{
    struct sbox *sbox = ctx;
    struct sbox_private *priv = sbox->priv;
    bool asked = sbox->state == SBOX_STOPPING;
    struct brig_err err = gone_err(sbox);

    priv->box = NULL;
    priv->end = *end;
    if (end->distrust) /* we have checked it too: whoever asked for it was not us, or one of us is wrong */
        sandbox_audit(sbox->manager, &priv->creator, sbox->org_id, "provider.refused", sbox_ops(sbox)->name, "denied",
                      end->detail, false);
    if (priv->end.ended_at_ns == 0)
        priv->end.ended_at_ns = clock_real_ns();
    settle_cause(sbox);
    sbox->link = NULL;
    loop_timer_clear(sbox->manager->loop, &priv->deadline);
    (void)!sbox_park_later(sbox);
    if (priv->mkdir)
        call_drop(take_ptr(&priv->mkdir));
    if (priv->find_user)
        call_drop(take_ptr(&priv->find_user));
    if (priv->announced)
        children_gone(sbox); /* before their questions fail: an answer that was waiting for one is still an answer */
    sbox_fail_tickets(sbox);
    services_gone(sbox);
    sbox_fail_change(sbox, &err);
    processes_gone(sbox);
    if (!priv->announced) {
        create_ended(sbox);
        return;
    }
    const bool asked_too_late = !asked && sbox->state == SBOX_STOPPING; /* by one who was told just now */
    if (asked_too_late)
        (void)!sbox_park_later(sbox); /* takes back on_no_box() */
    else if (!asked && try_recreate(sbox))
        return;
    else if (!asked)
        sbox_moved(sbox, SBOX_STOPPING);
    if (!asked) {
        priv->ending = (struct ending){0};
        str_assign(priv->ending.by, "sandbox");
    }
    sbox_tell_watches(sbox);
    sbox_finish(sbox);
}

/* ---- the certificate --------------------------------------------------------------------------------------- */

static void over(struct sbox *sbox, const struct brig_err *err)
{
    struct sbox_private *priv = sbox->priv;
    sbox_done_fn *done = take_ptr(&priv->end_done);

    sbox->manager->stats.ended += !priv->internal;
    sbox_moved(sbox, SBOX_ENDED);
    sbox_retire(sbox);
    recover_sbox_settled(sbox);
    if (done)
        done(priv->end_ctx, sbox, err);
}

static void on_certificate(void *ctx, const struct brig_err *err)
{
    struct sbox *sbox = ctx;

    if (err)
        certificate_keep(sbox);
    over(sbox, err); /* the unpinning that follows forgets it */
}

static void on_finish_now(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;

    over(sbox, sbox->priv->create_err.code ? &sbox->priv->create_err : NULL);
    sbox_forget(sbox);
}

static void finish(struct sbox *sbox)
{
    struct sbox_private *priv = sbox->priv;
    struct brig_err err = {0};

    if (sbox->id[0] && !priv->internal)
        tell_of_end(sbox);
    if (priv->row) {
        int r = certificate_write(sbox, on_certificate, sbox, &err);
        if (r == 0)
            return;
        certificate_keep(sbox);
        priv->create_err = err; /* what the one who ended it is told */
    } else {
        priv->create_err = (struct brig_err){0};
    }
    later(sbox, on_finish_now, 0);
}

void sbox_finish(struct sbox *sbox)
{
    if (sbox->priv->finishing)
        return;
    sbox->priv->finishing = true;
    if (!network_end(sbox, finish)) /* the certificate has the last counts */
        finish(sbox);
}
