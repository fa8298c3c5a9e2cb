/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attempt.c: one real attempt at a provider of the stream form: a box with the defaults is made, and ended when it is
 * up. That says more than the presence of a program or a device.
 *
 *     begun -> up (its layers are noted) -> end() -> ended: answered, freed
 *        \---> ended before it was up: answered with the reason, freed
 *         \--> PROVIDER_CHECK_NS are over: answered with that; freed when the box has ended
 *
 * A provider has one attempt at a time. An answer that nobody waits for any more is dropped.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "provider/provider.h"

struct provider_attempt {
    struct provider *provider;
    struct box *box;
    struct loop_timer late;
    uint64_t begun_ns;
    struct provider_check check;
    provider_checked_fn *done; /* NULL: it was called, or nobody waits. */
    void *ctx;
};

static uint64_t time_for(const struct provider *provider)
{
    return provider->check_ns ? provider->check_ns : PROVIDER_CHECK_NS;
}

static void answer(struct provider_attempt *attempt)
{
    provider_checked_fn *done = take_ptr(&attempt->done);

    if (done)
        done(attempt->ctx, &attempt->check);
}

static void on_up(void *ctx, struct box_up *up)
{
    struct provider_attempt *attempt = ctx;

    attempt->check.usable = true;
    attempt->check.took_ms = (loop_now_ns() - attempt->begun_ns) / NS_PER_MS;
    for (unsigned i = 0; i < BRIG_LAYER_MAX; i++)
        if (up->layers[i].on && !(up->word & BRIG_LAYER_BIT(i)))
            attempt->check.layers |= BRIG_LAYER_BIT(i);
    attempt->provider->ops->end(attempt->box);
}

static void on_ended(void *ctx, const struct box_end *end)
{
    struct provider_attempt *attempt = ctx;
    struct provider_check *check = &attempt->check;

    if (!check->usable && !check->missing[0])
        str_cut(check->missing, sizeof check->missing, end->detail[0] ? end->detail : brig_cause_name(end->cause));
    loop_timer_clear(attempt->provider->loop, &attempt->late);
    attempt->provider->attempt = NULL;
    answer(attempt);
    mem_free(attempt);
}

static void on_late(struct loop_timer *timer)
{
    struct provider_attempt *attempt = timer->ctx;

    if (!attempt->check.usable)
        snprintf(attempt->check.missing, sizeof attempt->check.missing, "no sandbox came up within %" PRIu64 " ms",
                 time_for(attempt->provider) / NS_PER_MS);
    answer(attempt);
    attempt->provider->ops->end(attempt->box);
}

int provider_attempt(struct provider *provider, const char *version, provider_checked_fn *done, void *ctx,
                     struct brig_err *err)
{
    const struct provider_spec spec = {.rootfs = NULL};
    struct box_events events = {.up = on_up, .ended = on_ended};

    if (provider->attempt)
        return err_set(err, BRIG_E_BUSY, 0, "provider %s: it is being checked already", provider->ops->name);
    struct provider_attempt *attempt = mem_zalloc(sizeof *attempt);
    if (!attempt)
        return err_nomem(err);
    *attempt = (struct provider_attempt){.provider = provider,
                                         .begun_ns = loop_now_ns(),
                                         .done = done,
                                         .ctx = ctx,
                                         .late = {.fn = on_late, .ctx = attempt}};
    str_cut(attempt->check.version, sizeof attempt->check.version, version);
    events.ctx = attempt;
    int r = loop_timer_set(provider->loop, &attempt->late, attempt->begun_ns + time_for(provider), err);
    if (r == 0)
        r = provider->ops->create(provider, &spec, &events, &attempt->box, err);
    if (r < 0) {
        loop_timer_clear(provider->loop, &attempt->late);
        mem_free(attempt);
        return r;
    }
    provider->attempt = attempt;
    return 0;
}

void provider_attempt_drop(struct provider *provider)
{
    struct provider_attempt *attempt = take_ptr(&provider->attempt);

    if (!attempt)
        return;
    loop_timer_clear(provider->loop, &attempt->late);
    mem_free(attempt);
}
