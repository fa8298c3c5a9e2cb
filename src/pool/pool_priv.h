/* SPDX-License-Identifier: Apache-2.0 */
/* pool_priv.h: what pool.c, pool_size.c and pool_holder.c share. */
#ifndef BRIG_POOL_POOL_PRIV_H
#define BRIG_POOL_POOL_PRIV_H

#include "base/clock.h"
#include "loop/loop.h"
#include "pool/pool.h"

#define POOL_SECONDS 10u /* The seconds of claims that are remembered. */
#define POOL_IDLE_NS (60 * NS_PER_SEC)
#define POOL_MAKING_PER_CORE 4u        /* The children in making at once, of one organisation. */
#define POOL_MAKING_SHARES 4u          /* And of all organisations together: so many times that. */
#define POOL_GUESTS_PER_CORE 2u        /* The same for one provider other than local, whose sandboxes cost more. */
#define POOL_HELD_NS (150 * NS_PER_MS) /* A refill waits for short runs no longer than this. */
#define POOL_PAUSE_NS (5 * NS_PER_MS)  /* And for the next run, while more than half of the children are there. */
#define POOL_ROOM_NS (10 * NS_PER_MS)  /* The time between two looks for room under `[tools] max_runs`. */
#define POOL_ROOM_TRIES 100u
#define POOL_EXEC_NS (10 * NS_PER_SEC) /* The time without a zygote after it has failed. */
#define POOL_FAILURES_MAX 6u           /* How often the pause doubles after a child that could not be made. */
#define POOL_CHILD_BYTES (8u << 20)    /* The assumed size of a child before one of its kind was measured. */
#define POOL_GUEST_BYTES (64u << 20)   /* The same for a provider other than local. */
#define POOL_HOLDERS_MAX 16u           /* There are fewer names of providers. */

struct pool_wait {
    struct group *group;
    struct pool_wait *next, *prev;
    void (*given)(void *ctx, struct child *child, const struct brig_err *err);
    void *ctx;
    struct brig_err why; /* It failed; the caller learns it from the loop. */
    struct child *child; /* It has one; the caller gets it from the loop. */
};

struct member { /* One child of the pool, from its making until it is given away. */
    struct group *group;
    struct child *child;
    struct member *next, *prev; /* In the list of the parked ones, oldest first, or of those in making. */
    bool parked, forked;        /* forked: a zygote forked it. */
    uint64_t bytes;             /* The bytes that it counts for; it may be measured later. */
};

/* What is kept for one provider, over all keys. */
struct holder {
    const char *name; /* NULL: the end of the table. */
    size_t n_parked, n_making;
    uint64_t claims, misses, failures;
};

/* What one organisation has in making with one provider. */
struct maker {
    struct maker *next, *prev;
    struct holder *holder;
    char org[64];
    size_t n_groups, n_making;
};

/* Everything with one pool key. */
struct group {
    struct pool *pool;
    struct holder *holder;
    struct maker *maker;
    struct group *next, *prev;
    char *key;             /* The text that is compared; the strings of the want lie behind it. */
    struct pool_want want; /* set: only host_path and key. */
    struct set set;
    const struct set *held; /* Or NULL. It gets set_release() at the end. */
    char zygote[160];
    struct member *parked, *parked_last, *making;
    size_t n_parked, n_making;
    struct pool_wait *waits, *waits_last; /* In the order in which they came. */
    size_t n_waits;
    uint32_t seconds[POOL_SECONDS];      /* The claims of each of the last seconds; [0] is now. */
    unsigned prewarm, failures, limited; /* limited: how often in a row there was no room for a claim that waits. */
    uint64_t last_used_ns, not_before_ns;
    uint64_t exec_until_ns;         /* Its zygote has failed: interpreters are executed until then. */
    uint64_t claims, misses, bytes; /* bytes: of the parked ones. */
};

struct pool {
    struct loop *loop;
    struct manager *manager;
    const struct config *config;
    uint64_t required; /* layers: those that are parked have them */
    struct sets *sets; /* or NULL */
    struct group *groups;
    struct holder holders[POOL_HOLDERS_MAX];
    struct maker *makers;
    size_t n_making, making_max, guests_max; /* guests_max: in making at once, of one provider other than local. */
    uint64_t bytes;
    struct loop_timer refill, tick;
    size_t running;                     /* Taken, and not over yet. */
    uint64_t held_since_ns;             /* A refill has waited since then; 0 if none waits. */
    struct pool_wait *told, *told_last; /* Those that must be called from the loop. */
    struct loop_timer tell;
    bool ticking, refilling; /* the timers are armed */
    bool pausing;            /* and the refill's only for a pause in the runs */
};

/* pool_size.c */
size_t group_target(const struct group *group);
void group_count(struct group *group); /* Counts one claim. */
void pool_tick(struct loop_timer *timer);
void pool_refill(struct loop_timer *timer);
void pool_refill_soon(struct pool *pool);
void pool_refill_later(struct pool *pool); /* One was taken. */

/* pool_holder.c */
void holders_init(struct pool *pool);
struct holder *holder_find(struct pool *pool, const char *name); /* NULL if there is no such provider. */
bool holder_is_local(const struct holder *holder);
size_t holder_bound(const struct pool *pool, const struct holder *holder);           /* `[pool] providers` */
struct maker *maker_join(struct pool *pool, struct holder *holder, const char *org); /* NULL: no memory. */
void maker_leave(struct pool *pool, struct maker *maker);
bool maker_can_make(const struct pool *pool, const struct maker *maker); /* One more, for whoever waits. */
bool maker_can_park(const struct pool *pool, const struct maker *maker); /* One more, for later. */

/* pool.c */
int group_make(struct group *group, struct brig_err *err) MUST_CHECK;
void group_end_one(struct group *group); /* Ends the oldest of the parked ones. */
void group_weigh(struct group *group);   /* Its children may have been measured since. */
/* Frees it with everything in it; nobody waits. */
void group_free(struct group *group);
void group_fail_wait(struct group *group, const struct brig_err *why); /* Fails the first claim that waits. */

#endif
