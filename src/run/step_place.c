/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_place.c: the fourth step decides which provider runs it, and where. The order is: what the call wishes, what the
 * tool wishes, what the organisation wishes, then E2B where it is enabled, then `[manager] provider`; each once.
 * `fallback: none` (of the call, the tool, or `[tools] fallback`) leaves only the first, and without `fallback: auto`
 * of the call none that has fewer layers than the first is tried. The list of providers (provider/providers.h) says who
 * can be used; one of the stream form gives a parked child or a live sandbox (reuse.c), one of the narrow form needs
 * nothing before the request is sent.
 *
 * The started boundary: a failure before the request was sent is, when it may pass (BRIG_E_BUSY, or a child that died
 * before it began), tried twice more with a pause, and then it is the next provider's turn; once the request was sent
 * nothing is run again, whatever happens. Everything that was passed over is in the receipt, with why. This is the only
 * way back in a run: place_failed().
 */
#include <stdio.h>

#include "config/provider_names.h"
#include "run/run_priv.h"

/* ---- order ---------------------------------------------------------------------------------------------- */

static void wish(struct run *run, const char *name)
{
    if (!name || !name[0] || run->n_order >= ARRAY_SIZE(run->order))
        return;
    name = provider_known_name(name);
    for (size_t i = 0; i < run->n_order; i++)
        if (str_eq(run->order[i], name))
            return;
    run->order[run->n_order++] = name;
}

void place_order(struct run *run)
{
    const struct executor *executor = run->executor;
    const struct run_ask *ask = run->ask;
    struct provider *e2b = NULL;

    /* a name that is cut is as long as the array, and no provider's */
    str_cut(run->wish, sizeof run->wish, ask->provider);
    str_cut(run->org_wish, sizeof run->org_wish, json_get_text(json_get(ask->org_doc, "tools"), "provider", NULL));
    wish(run, run->wish);
    wish(run, run->tool.provider);
    wish(run, run->org_wish);
    if (!run->sandbox_id[0] && !run->template_name[0] && run->reuse == REUSE_NONE &&
        providers_find(executor->o.providers, "e2b", &e2b, NULL) == 0)
        wish(run, "e2b");
    wish(run, executor->o.config->provider ? provider_known_name(executor->o.config->provider) : "local");
    run->fallback_said = ask->fallback != NULL;
    run->no_fallback = (ask->fallback ? str_eq(ask->fallback, "none") : run->tool.no_fallback) ||
                       (!ask->fallback && str_eq(executor->o.config->tools_fallback, "none"));
    if (run->sandbox_id[0]) { /* a live sandbox is where it is */
        const struct sbox *sbox = manager_find(executor->o.manager, &run->caller, run->sandbox_id);
        run->order[0] = sbox ? sbox_provider(sbox) : "local";
        run->n_order = 1;
    }
}

static void passed_over(struct run *run, const char *name, const char *why)
{
    if (run->n_tried >= TRIED_MAX)
        return;
    struct tried *t = &run->tried[run->n_tried++];
    snprintf(t->provider, sizeof t->provider, "%.31s", name);
    snprintf(t->why, sizeof t->why, "%.*s", (int)sizeof t->why - 1, why);
}

/* ---- a failure before the request was sent -------------------------------------------------------------- */

static void pause_before(struct run *run)
{
    uint64_t ms = RETRY_FIRST_MS;

    for (unsigned i = 1; i < run->attempts; i++)
        ms *= 4;
    if (loop_timer_set(run->executor->o.loop, &run->later, loop_now_ns() + ms * NS_PER_MS, NULL) < 0)
        run_advance(run);
}

/*
 * Has the next one fewer layers than the one that was wanted first, by the call, the tool or the organisation? Only the
 * call itself can say that this does not matter. The layers of one that is off are not known, but its name says whether
 * it would have a kernel of its own.
 */
static bool is_weaker(const struct run *run)
{
    const struct providers *providers = run->executor->o.providers;
    struct provider *first = NULL, *next = NULL;
    uint64_t layers = provider_has_own_kernel(run->order[0]) ? BRIG_LAYER_BIT(BRIG_LAYER_OWN_KERNEL) : 0;

    if (run->fallback_said || providers_find(providers, run->order[run->at], &next, NULL) < 0)
        return false; /* one that cannot be used either is passed over, with its reason */
    if (providers_find(providers, run->order[0], &first, NULL) == 0)
        layers |= first->ops->protects;
    return (layers & ~next->ops->protects) != 0;
}

void place_failed(struct run *run, const struct brig_err *why, bool transient)
{
    run->step = STEP_PLACE;
    passed_over(run, run->order[run->at], why->message);
    run->provider = NULL;
    run->provider_run = NULL;
    if (transient && ++run->attempts < ATTEMPTS_MAX) {
        pause_before(run);
        return;
    }
    run->attempts = 0;
    run->at++;
    for (; run->at < run->n_order && !run->no_fallback && is_weaker(run); run->at++)
        passed_over(run, run->order[run->at], "it has fewer layers than the one that was wanted");
    if (run->at < run->n_order && !run->no_fallback)
        run_advance(run);
    else
        run_refuse(run, why);
}

/* ---- a place -------------------------------------------------------------------------------------------- */

static void on_given(void *ctx, struct child *child, const struct brig_err *why)
{
    struct run *run = ctx;

    run->wait = NULL;
    run->child = child;
    if (child)
        run_next(run);
    else
        place_failed(run, why, why->code == BRIG_E_BUSY);
}

/* What a claim cannot change: it is part of the key. */
static struct brig_limits fixed_limits(const struct run *run)
{
    struct brig_limits fixed = run->limits;

    if (run->place->ops->caps & PROVIDER_LIMITS)
        fixed.memory = fixed.cpus = fixed.pids = 0;
    fixed.cpu_time = fixed.timeout = fixed.output = 0;
    return fixed;
}

/* A sandbox that brig-init answers in: of the pool, or one that lives on. 1: it is waited for. */
static int place_stream(struct run *run, struct brig_err *err)
{
    struct pool *pool = run->executor->o.pool;
    struct pool_want want = {.org_id = run->caller.org_id,
                             .template_name = run->template_name[0] ? run->template_name : NULL,
                             .provider = run->place->ops->name,
                             .template_id = run->template_id,
                             .language = run->tool.language,
                             .set = run->set,
                             .strict = run->strict,
                             .network = run->has_network,
                             .workspace = run->workspace,
                             .persist = run->persist,
                             .limits = fixed_limits(run)};

    if (!pool)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "there is no pool");
    if (!run->fingerprint[0])
        run_fingerprint(run);
    if (run->sandbox_id[0] || run->reuse != REUSE_NONE || run->secrets_json)
        return place_live(run, err);
    int r = run->has_network
                ? network_shape(run->executor->o.manager, run->caller.org_id, run->network, &want.shape, err)
                : 0;
    if (r < 0)
        return r;
    run->keep_files = run->executor->o.artifacts_fd >= 0 && run->kind != FRAME_SCHEMA;
    run->child = pool_try(pool, &want);
    if (!run->child) {
        r = pool_take(pool, &want, on_given, run, &run->wait, err);
        return r < 0 ? r : 1;
    }
    if (run->breathes)
        pool_breathe(pool); /* the second one: the first is gone */
    run->breathes = true;
    return 0;
}

int step_place(struct run *run, struct brig_err *err UNUSED)
{
    const struct provider_spec needs = {.require = sbox_required(run->executor->o.config),
                                        .n_layers = run->template_id[0] ? 1 : 0};
    struct brig_err why = {0};
    int r = providers_find(run->executor->o.providers, run->order[run->at], &run->place, &why);

    if (r == 0)
        r = provider_fits(run->place->ops, &needs, &why);
    if (r == 0 && !run->place->ops->run)
        r = place_stream(run, &why);
    if (r < 0) {
        place_failed(run, &why, why.code == BRIG_E_BUSY);
        return 1;
    }
    return r;
}
