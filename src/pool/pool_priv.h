/* SPDX-License-Identifier: Apache-2.0 */
/* pool_priv.h: what pool.c and pool_size.c share. */
#ifndef BRIG_POOL_POOL_PRIV_H
#define BRIG_POOL_POOL_PRIV_H

#include "base/clock.h"
#include "loop/loop.h"
#include "pool/pool.h"

#define POOL_SECONDS 10u /* of claims that are remembered */
#define POOL_IDLE_NS (60 * NS_PER_SEC)
#define POOL_MAKING_PER_CORE 4u        /* children in making at once: more only get into each other's way */
#define POOL_HELD_NS (150 * NS_PER_MS) /* a refill waits for short runs no longer than this */
#define POOL_ROOM_NS (10 * NS_PER_MS)  /* between two looks for room under `[tools] max_runs` */
#define POOL_ROOM_TRIES 100u
#define POOL_EXEC_NS (10 * NS_PER_SEC) /* without a zygote after it has failed */
#define POOL_FAILURES_MAX 6u           /* doublings of the pause after a child that was not to be made */
#define POOL_CHILD_BYTES (8u << 20)    /* what one is taken for before any of its kind was measured */

struct pool_wait {
    struct group *group;
    struct pool_wait *next, *prev;
    void (*given)(void *ctx, struct child *child, const struct brig_err *err);
    void *ctx;
    struct brig_err why; /* it failed, and is told from the loop */
    struct child *child; /* it has one, and is told from the loop */
};

struct member { /* one child of the pool, from its making until it is given away */
    struct group *group;
    struct child *child;
    struct member *next, *prev; /* of the parked ones, oldest first; or of those in making */
    bool parked, forked;        /* forked: by a zygote */
    uint64_t bytes;             /* what it counts for: it may be measured later */
};

/* Everything with one pool key. */
struct group {
    struct pool *pool;
    struct group *next, *prev;
    char *key;             /* the text that is compared; the want's strings lie behind it */
    struct pool_want want; /* set: only host_path, key */
    struct set set;
    const struct set *held; /* or NULL: set_release() at its end */
    char zygote[160];
    struct member *parked, *parked_last, *making;
    size_t n_parked, n_making;
    struct pool_wait *waits, *waits_last; /* in the order they came */
    size_t n_waits;
    uint32_t seconds[POOL_SECONDS];      /* claims of each of the last seconds; [0] is now */
    unsigned prewarm, failures, limited; /* limited: times in a row that there was no room for one who waits */
    uint64_t last_used_ns, not_before_ns;
    uint64_t exec_until_ns;         /* its zygote has failed: interpreters are executed until then */
    uint64_t claims, misses, bytes; /* bytes: of those that are parked */
};

struct pool {
    struct loop *loop;
    struct manager *manager;
    const struct config *config;
    struct sets *sets; /* or NULL */
    struct group *groups;
    size_t n_making, making_max;
    uint64_t bytes;
    struct loop_timer refill, tick;
    size_t running;                     /* taken, and not over yet */
    uint64_t held_since_ns;             /* a refill waits since then; 0: none */
    struct pool_wait *told, *told_last; /* to be called from the loop */
    struct loop_timer tell;
    bool ticking, refilling; /* the timers are armed */
};

/* pool_size.c */
size_t group_target(const struct group *group);
uint64_t group_child_bytes(const struct group *group);
void group_count(struct group *group); /* one claim */
void pool_tick(struct loop_timer *timer);
void pool_refill(struct loop_timer *timer);
void pool_refill_soon(struct pool *pool);
void pool_refill_later(struct pool *pool); /* one was taken */

/* pool.c */
int group_make(struct group *group, struct brig_err *err) MUST_CHECK;
void group_end_one(struct group *group);                               /* the oldest of the parked */
void group_weigh(struct group *group);                                 /* its children may have been measured since */
void group_free(struct group *group);                                  /* and everything in it; nobody waits */
void group_fail_wait(struct group *group, const struct brig_err *why); /* the first that waits */

#endif
