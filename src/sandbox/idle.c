/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idle.c: ends or pauses sandboxes that have lived long enough, or that nobody has used for long enough.
 *
 * Deadlines are CLOCK_BOOTTIME, so that a suspended machine does not lend time and a changed wall clock takes none. The
 * loop's timers are monotonic: after a suspend they are late, and the pass every cleanup_interval finds what they
 * missed. A use only notes the time; if the timer finds that it was later than expected, it arms itself again.
 */
#include "sandbox/private.h"

static bool sbox_is_idle(const struct sbox *sbox, uint64_t now)
{
    if (sbox->spec.idle_timeout_ms == 0 || sbox->state != SBOX_RUNNING || sbox->busy > 0)
        return false;
    if (sbox->processes > 0 && !sbox->spec.idle_ignores_processes)
        return false;
    return now > sbox->last_used_boot_ns && now - sbox->last_used_boot_ns > sbox->spec.idle_timeout_ms * NS_PER_MS;
}

static void timed_out(struct sbox *sbox)
{
    struct brig_err err = {0};

    sbox->ends_at_boot_ns = 0;
    if (sbox->spec.on_timeout == SBOX_TIMEOUT_PAUSE) {
        if (sbox->state == SBOX_PAUSED) {
            sbox->priv->paused_by_timeout = true;
            return;
        }
        if (sbox_pause_by(sbox, NULL, true, NULL, NULL, &err) == 0) {
            sbox->manager->stats.timed_out++;
            sandbox_audit(sbox->manager, NULL, sbox->org_id, "sandbox.timeout", sbox->id, "ok", "paused", false);
            return;
        }
        sandbox_audit(sbox->manager, NULL, sbox->org_id, "sandbox.timeout", sbox->id, "failed", err.message, false);
    }
    if (sbox_move(sbox, SBOX_STOPPING, NULL) == 0) {
        sbox->manager->stats.timed_out++;
        sbox_stop(sbox, NULL, "timeout", "timeout");
    }
}

/* What is due now; false: nothing was. */
static bool check(struct sbox *sbox, uint64_t now)
{
    if (sbox->ends_at_boot_ns && now >= sbox->ends_at_boot_ns) {
        /* In the middle of a pause or its end: a moment later it is clear which. */
        if (sbox->state == SBOX_PAUSING || sbox->state == SBOX_RESUMING || sbox->state == SBOX_CREATING)
            return false;
        timed_out(sbox);
        return true;
    }
    if (sbox_is_idle(sbox, now) && sbox_move(sbox, SBOX_STOPPING, NULL) == 0) {
        sbox->manager->stats.idle_reaped++;
        sbox_stop(sbox, NULL, "idle", "idle");
        return true;
    }
    return false;
}

static void on_deadline(struct loop_timer *timer)
{
    struct sbox *sbox = timer->ctx;

    if (!check(sbox, sandbox_boot_ns()))
        idle_arm(sbox);
}

void idle_arm(struct sbox *sbox)
{
    struct loop_timer *timer = &sbox->priv->deadline;
    uint64_t now = sandbox_boot_ns(), at = UINT64_MAX;

    if (sbox->state >= SBOX_STOPPING)
        return;
    if (sbox->ends_at_boot_ns)
        at = sbox->ends_at_boot_ns;
    if (sbox->spec.idle_timeout_ms && sbox->state == SBOX_RUNNING) {
        uint64_t idle_ns = sbox->spec.idle_timeout_ms * NS_PER_MS, idle = sbox->last_used_boot_ns + idle_ns + 1;
        /* Busy now: look again after another span. */
        if (idle <= now)
            idle = now + idle_ns + 1;
        at = idle < at ? idle : at;
    }
    if (at == UINT64_MAX) {
        loop_timer_clear(sbox->manager->loop, timer);
        return;
    }
    timer->fn = on_deadline;
    timer->ctx = sbox;
    uint64_t wait = at > now ? at - now : NS_PER_MS * 100;
    (void)!loop_timer_set(sbox->manager->loop, timer, loop_now_ns() + wait, NULL); /* failing: the pass finds it */
}

/* ---- the pass ------------------------------------------------------------------------------------------------ */

static void on_cleanup(struct loop_timer *timer)
{
    struct manager *manager = timer->ctx;
    uint64_t now = sandbox_boot_ns();

    for (struct sbox *sbox = manager->first, *next; sbox; sbox = next) {
        next = sbox->next; /* what is due is stopped, not freed */
        if (!check(sbox, now))
            idle_arm(sbox);
    }
    idem_expire(manager, clock_real_ns() - IDEM_KEEP_NS);
    uint64_t seconds = manager->config->cleanup_interval ? manager->config->cleanup_interval : 300;
    (void)!loop_timer_set(manager->loop, timer, loop_now_ns() + seconds * NS_PER_SEC, NULL);
}

void idle_start(struct manager *manager)
{
    manager->cleanup.fn = on_cleanup;
    manager->cleanup.ctx = manager;
    (void)!loop_timer_set(manager->loop, &manager->cleanup, loop_now_ns(), NULL);
}
