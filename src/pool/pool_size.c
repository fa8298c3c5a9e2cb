/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_size.c: decides how many children each key should have, and which is made next.
 *
 * A key aims at half as many again as the most claims of any second of the last ten, at least what a prewarm asked for,
 * at most `[tools] pool_max`. Waiting claims are served before anything is made for later. After that the key that
 * lacks most (in parts of what it aims at) comes first. All parked children together stay within `[tools] pool_memory`;
 * for a waiting claim, the key that was used longest ago gives one up. A key that nobody has used for a minute is
 * removed. A provider other than local makes its sandboxes slowly, so a key of it aims at one child for that whole
 * minute; pool_holder.c bounds the children of each provider.
 */
#include <string.h>

#include "pool/pool_priv.h"

size_t group_target(const struct group *group)
{
    uint64_t most = 0, limit = group->pool->config->tools_pool_max;

    for (size_t i = 0; i < POOL_SECONDS; i++)
        if (group->seconds[i] > most)
            most = group->seconds[i];
    most += (most + 1) / 2;
    if (group->prewarm > most)
        most = group->prewarm;
    if (most == 0 && group->claims > 0 && !holder_is_local(group->holder))
        most = 1;
    if (most > holder_bound(group->pool, group->holder))
        most = holder_bound(group->pool, group->holder);
    return (size_t)(most < limit ? most : limit);
}

static uint64_t group_child_bytes(const struct group *group)
{
    return group->n_parked                  ? group->bytes / group->n_parked
           : holder_is_local(group->holder) ? POOL_CHILD_BYTES
                                            : POOL_GUEST_BYTES;
}

void group_count(struct group *group)
{
    group->seconds[0]++;
    group->claims++;
    group->holder->claims++;
    group->last_used_ns = loop_now_ns();
}

void pool_refill_soon(struct pool *pool)
{
    pool->pausing = false;
    /* without memory for it the tick does it */
    pool->refilling = loop_timer_set(pool->loop, &pool->refill, loop_now_ns(), NULL) == 0;
}

/*
 * Making a child costs a core some milliseconds and keeps the spawner busy, while runs that end just then need both
 * too. So after a claim the refill waits until the present runs are over, and while there are children enough also for
 * a pause: whoever makes one call after the other gets the next one before its child is replaced. It does not wait for
 * ever, and not if somebody waits for a child.
 */
void pool_refill_later(struct pool *pool)
{
    uint64_t now = loop_now_ns();

    pool->running++;
    if (!pool->held_since_ns)
        pool->held_since_ns = now;
    if (now - pool->held_since_ns > POOL_HELD_NS)
        pool_refill_soon(pool);
    else if (!pool->refilling || pool->pausing)
        pool->refilling = loop_timer_set(pool->loop, &pool->refill, pool->held_since_ns + POOL_HELD_NS, NULL) == 0;
    pool->pausing = false;
}

static bool has_enough(const struct pool *pool)
{
    for (const struct group *g = pool->groups; g; g = g->next)
        if (g->waits || 2 * g->n_parked < group_target(g))
            return false;
    return true;
}

static void refill_after_a_pause(struct pool *pool)
{
    const uint64_t pause = loop_now_ns() + POOL_PAUSE_NS, last = pool->held_since_ns + POOL_HELD_NS;

    pool->pausing = pool->refilling = loop_timer_set(pool->loop, &pool->refill, pause < last ? pause : last, NULL) == 0;
}

void pool_breathe(struct pool *pool)
{
    if (pool->running > 0)
        pool->running--;
    if (pool->running > 0 || !pool->held_since_ns)
        return;
    if (has_enough(pool))
        refill_after_a_pause(pool);
    else
        pool_refill_soon(pool);
}

/* Those in making will be as large as the others. */
static bool memory_left(const struct pool *pool, const struct group *group)
{
    uint64_t planned = pool->bytes + pool->n_making * group_child_bytes(group);

    return planned + group_child_bytes(group) <= pool->config->tools_pool_memory;
}

/* Parked ones count in `[tools] max_runs` like those that run: for later only half of it is filled. */
static bool room_left(const struct pool *pool)
{
    uint64_t n = pool->n_making;

    for (const struct group *g = pool->groups; g; g = g->next)
        n += g->n_parked;
    return n < (pool->config->tools_max_runs + 1) / 2;
}

static void give_up_one(struct pool *pool, const struct group *but)
{
    struct group *oldest = NULL;

    for (struct group *g = pool->groups; g; g = g->next)
        if (g != but && g->n_parked && (!oldest || g->last_used_ns < oldest->last_used_ns))
            oldest = g;
    if (oldest)
        group_end_one(oldest);
}

/* Does `a` come before `b`, of two that somebody waits for? The organisation with the fewest in making is first. */
static bool comes_first(const struct group *a, const struct group *b)
{
    if (a->maker->n_making != b->maker->n_making)
        return a->maker->n_making < b->maker->n_making;
    return a->n_waits - a->n_making > b->n_waits - b->n_making;
}

/* Somebody waits, and fewer are in making than wait. */
static struct group *next_waited(struct pool *pool)
{
    struct group *best = NULL;

    for (struct group *g = pool->groups; g; g = g->next)
        if (g->n_waits > g->n_making && maker_can_make(pool, g->maker) && (!best || comes_first(g, best)))
            best = g;
    return best;
}

static struct group *next_wanted(struct pool *pool, uint64_t now)
{
    struct group *best = NULL;
    size_t best_have = 0, best_target = 1;

    if (!room_left(pool))
        return NULL;
    for (struct group *g = pool->groups; g; g = g->next) {
        size_t target = group_target(g), have = g->n_parked + (g->n_making > g->n_waits ? g->n_making - g->n_waits : 0);
        if (have >= target || now < g->not_before_ns || !memory_left(pool, g) || !maker_can_park(pool, g->maker))
            continue;
        if (!best || have * best_target < best_have * target) {
            best = g;
            best_have = have;
            best_target = target;
        }
    }
    return best;
}

void pool_refill(struct loop_timer *timer)
{
    struct pool *pool = timer->ctx;
    uint64_t now = loop_now_ns();
    struct brig_err err = {0};

    pool->refilling = pool->pausing = false;
    pool->held_since_ns = 0;
    for (;;) {
        struct group *group = next_waited(pool);
        bool waited = group != NULL;
        if (!group)
            group = next_wanted(pool, now);
        if (!group)
            return;
        if (waited && !memory_left(pool, group))
            give_up_one(pool, group);
        if (group_make(group, &err) == 0) {
            group->limited = 0;
        } else if (waited && err.code == BRIG_E_LIMIT && group->limited++ < POOL_ROOM_TRIES) {
            /* No room: somebody else's goes, or one that runs ends. */
            give_up_one(pool, group);
            pool->refilling = loop_timer_set(pool->loop, &pool->refill, now + POOL_ROOM_NS, NULL) == 0;
            return;
        } else {
            group->not_before_ns =
                now + (UINT64_C(50) * NS_PER_MS
                       << (group->failures < POOL_FAILURES_MAX ? group->failures : POOL_FAILURES_MAX));
            group->failures++;
            group->holder->failures++;
            if (waited)
                group_fail_wait(group, &err), group->limited = 0;
        }
    }
}

static void shrink(struct group *group)
{
    size_t target = group_target(group);

    /* A quarter a second: one quiet second in a busy minute is not the end of the demand. */
    for (size_t n = group->n_parked > target ? (group->n_parked - target + 3) / 4 : 0; n > 0; n--)
        group_end_one(group);
}

void pool_tick(struct loop_timer *timer)
{
    struct pool *pool = timer->ctx;
    uint64_t now = loop_now_ns();

    for (struct group *g = pool->groups, *next; g; g = next) {
        next = g->next;
        memmove(g->seconds + 1, g->seconds, sizeof g->seconds - sizeof g->seconds[0]);
        g->seconds[0] = 0;
        group_weigh(g);
        if (now - g->last_used_ns > POOL_IDLE_NS && !g->waits && !(g->want.keep && g->prewarm))
            group_free(g);
        else
            shrink(g);
    }
    pool_refill_soon(pool);
    pool->ticking = pool->groups && loop_timer_set(pool->loop, timer, now + NS_PER_SEC, NULL) == 0;
}
