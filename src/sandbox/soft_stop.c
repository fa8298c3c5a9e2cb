/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soft_stop.c: stops a sandbox whose image names a stop signal: its programs get the signal, and the sandbox ends when
 * none of them runs any more, or SOFT_STOP_NS later. An end that comes for another reason meanwhile wins, and whoever
 * asked for the stop is told so. Other sandboxes end at once.
 */
#include <signal.h>
#include <strings.h>

#include "base/parse.h"
#include "sandbox/processes.h"

#define SOFT_STOP_NS (UINT64_C(10) * NS_PER_SEC)

struct soft_stop {
    struct sbox *sbox;
    struct caller caller;
    struct loop_timer timer;
    struct sbox_watch watch;
    sbox_done_fn *done;
    void *ctx;
};

/* "SIGTERM", "TERM", "15", "SIGRTMIN+3"; 0 if it is none. */
static int signal_of(const char *text)
{
    uint32_t number = 0;

    if (parse_u32(text, &number) == 0)
        return number >= 1 && number <= (uint32_t)SIGRTMAX ? (int)number : 0;
    if (strncasecmp(text, "SIG", 3) == 0)
        text += 3;
    if (strncasecmp(text, "RTMIN+", 6) == 0 && parse_u32(text + 6, &number) == 0)
        return number <= (uint32_t)(SIGRTMAX - SIGRTMIN) ? SIGRTMIN + (int)number : 0;
    if (strncasecmp(text, "RTMAX-", 6) == 0 && parse_u32(text + 6, &number) == 0)
        return number <= (uint32_t)(SIGRTMAX - SIGRTMIN) ? SIGRTMAX - (int)number : 0;
    for (int n = 1; n < NSIG; n++) {
        const char *name = sigabbrev_np(n);
        if (name && strcasecmp(name, text) == 0)
            return n;
    }
    return 0;
}

static void soft_stop_free(struct soft_stop *stop)
{
    stop->sbox->priv->soft_stop = NULL;
    loop_timer_clear(stop->sbox->manager->loop, &stop->timer);
    sbox_unwatch(stop->sbox, &stop->watch);
    mem_free(stop);
}

/* Ends it now, in the name of whoever asked. */
static void finish(struct soft_stop *stop)
{
    struct soft_stop asked = *stop;
    struct brig_err err = {0};

    soft_stop_free(stop);
    if (sbox_end(asked.sbox, &asked.caller, "stopped", asked.done, asked.ctx, &err) < 0)
        asked.done(asked.ctx, NULL, &err);
}

void soft_stop_drop(struct sbox *sbox)
{
    if (sbox->priv->soft_stop)
        soft_stop_free(sbox->priv->soft_stop);
}

static void on_time(struct loop_timer *timer)
{
    finish(timer->ctx);
}

static void on_ended(void *ctx, struct sbox *sbox)
{
    struct soft_stop asked = *(struct soft_stop *)ctx;
    struct brig_err err = {0};

    soft_stop_free(ctx);
    (void)err_set(&err, BRIG_E_CONFLICT, 0, "sandbox %s was ended meanwhile", sbox_label(sbox));
    asked.done(asked.ctx, NULL, &err);
}

static unsigned count_running(const struct sbox *sbox)
{
    unsigned n = 0;

    for (const struct process *p = sbox->priv->first; p; p = p->next)
        n += !p->shell && p->prog.state < PROGRAM_JUDGING;
    return n;
}

void soft_stop_check(struct sbox *sbox)
{
    struct soft_stop *stop = sbox->priv->soft_stop;

    if (stop && count_running(sbox) == 0) /* in a turn of its own: the process is still being told of */
        (void)!loop_timer_set(sbox->manager->loop, &stop->timer, loop_now_ns(), NULL);
}

int sbox_stop_softly(struct sbox *sbox, const struct caller *caller, sbox_done_fn *done, void *ctx,
                     struct brig_err *err)
{
    int signum = sbox->spec.image ? signal_of(sbox->spec.image->info.image.stop_signal) : 0;

    if (signum == 0 || sbox->state != SBOX_RUNNING || sbox->priv->soft_stop || count_running(sbox) == 0)
        return sbox_end(sbox, caller, "stopped", done, ctx, err);
    struct soft_stop *stop = mem_zalloc(sizeof *stop);
    if (!stop)
        return err_nomem(err);
    *stop = (struct soft_stop){.sbox = sbox, .caller = *caller, .done = done, .ctx = ctx};
    stop->timer = (struct loop_timer){.fn = on_time, .ctx = stop};
    stop->watch = (struct sbox_watch){.ended = on_ended, .ctx = stop};
    int r = loop_timer_set(sbox->manager->loop, &stop->timer, loop_now_ns() + SOFT_STOP_NS, err);
    if (r < 0) {
        mem_free(stop);
        return r;
    }
    sbox_watch(sbox, &stop->watch);
    sbox->priv->soft_stop = stop;
    for (struct process *p = sbox->priv->first; p; p = p->next)
        if (!p->shell && p->prog.state < PROGRAM_JUDGING)
            (void)!process_signal(p, caller, signum, 0, NULL, NULL, NULL);
    return 0;
}
