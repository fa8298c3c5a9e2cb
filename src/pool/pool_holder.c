/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_holder.c: bounds and counts the children of each provider, over all keys.
 *
 * `[pool] providers` has NAME=COUNT for each provider whose interpreters may be parked. One that is not named has none
 * ready, and every run of it starts its own; but local is then bounded only by `[tools] pool_max` and `pool_memory`.
 * Nothing is parked for a provider that no run and no prewarm has named. Sandboxes of other providers take the
 * processor for a long time while they start, so fewer are made at once, and only a quarter of these for later.
 *
 * A child that is slow to come up, or never does, holds a place of its own organisation: the places of all together are
 * some times those of one, and are divided by the rule of base/share.h.
 */
#include "base/list.h"
#include "base/mem.h"
#include "base/share.h"
#include "base/str.h"
#include "config/config.h"
#include "config/provider_names.h"
#include "pool/pool_priv.h"

void holders_init(struct pool *pool)
{
    const struct provider_known *known;

    for (size_t i = 0; i < POOL_HOLDERS_MAX && (known = provider_known_at(i)); i++)
        pool->holders[i].name = known->name;
}

struct holder *holder_find(struct pool *pool, const char *name)
{
    for (size_t i = 0; i < POOL_HOLDERS_MAX && pool->holders[i].name; i++)
        if (str_eq(pool->holders[i].name, name))
            return &pool->holders[i];
    return NULL;
}

bool holder_is_local(const struct holder *holder)
{
    return str_eq(holder->name, "local");
}

size_t holder_bound(const struct pool *pool, const struct holder *holder)
{
    uint64_t count = holder_is_local(holder) ? SIZE_MAX : 0;

    (void)provider_count(pool->config->pool_providers, holder->name, &count);
    return (size_t)count;
}

struct maker *maker_join(struct pool *pool, struct holder *holder, const char *org)
{
    struct maker *maker = pool->makers;

    while (maker && !(maker->holder == holder && str_eq(maker->org, org)))
        maker = maker->next;
    if (!maker && (maker = mem_zalloc(sizeof *maker))) {
        maker->holder = holder;
        str_cut(maker->org, sizeof maker->org, org);
        list_push(&pool->makers, maker);
    }
    if (maker)
        maker->n_groups++;
    return maker;
}

void maker_leave(struct pool *pool, struct maker *maker)
{
    if (--maker->n_groups > 0)
        return;
    list_remove(&pool->makers, maker);
    mem_free(maker);
}

bool maker_can_make(const struct pool *pool, const struct maker *maker)
{
    const size_t most = holder_is_local(maker->holder) ? pool->making_max : pool->guests_max;
    const size_t places = POOL_MAKING_SHARES * most, all = maker->holder->n_making;

    return maker->n_making < most && all < places && share_allows(maker->n_making, places - all, 1);
}

/* Those in making that nobody waits for. */
static size_t making_ahead(const struct pool *pool, const struct holder *holder)
{
    size_t n = 0;

    for (const struct group *g = pool->groups; g; g = g->next)
        if (g->holder == holder && g->n_making > g->n_waits)
            n += g->n_making - g->n_waits;
    return n;
}

bool maker_can_park(const struct pool *pool, const struct maker *maker)
{
    const struct holder *holder = maker->holder;
    const size_t bound = holder_bound(pool, holder);

    if (!maker_can_make(pool, maker))
        return false;
    if (bound == SIZE_MAX)
        return true;
    size_t ahead = making_ahead(pool, holder);
    return holder->n_parked + ahead < bound && (holder_is_local(holder) || ahead < (pool->guests_max + 3) / 4);
}

bool pool_stats(const struct pool *pool, size_t index, struct pool_stats *ret)
{
    const struct holder *holder = index < POOL_HOLDERS_MAX ? &pool->holders[index] : NULL;

    if (!holder || !holder->name)
        return false;
    *ret = (struct pool_stats){.provider = holder->name,
                               .parked = holder->n_parked,
                               .making = holder->n_making,
                               .claims = holder->claims,
                               .misses = holder->misses,
                               .failures = holder->failures};
    return true;
}
