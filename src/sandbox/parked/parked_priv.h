/* SPDX-License-Identifier: Apache-2.0 */
/* parked_priv.h: what parked.c and parked_fill.c share. */
#ifndef BRIG_SANDBOX_PARKED_PARKED_PRIV_H
#define BRIG_SANDBOX_PARKED_PARKED_PRIV_H

#include "sandbox/parked/parked.h"
#include "sandbox/private.h"

#define PARKED_MAKING_MAX 2u             /* So many are made at once: a create that comes meanwhile has the rest. */
#define PARKED_PLACE_NS (2 * NS_PER_SEC) /* One that takes longer leaves its place to the other entries. */
#define PARKED_QUIET_NS (2 * NS_PER_MS)  /* A refill waits so long after a claim, */
#define PARKED_HELD_NS (150 * NS_PER_MS) /* and while creates are under way, but not longer than this. */
#define PARKED_LOOK_NS (5 * NS_PER_SEC)  /* The time between two looks at the memory of the host. */
#define PARKED_PAUSE_NS NS_PER_SEC       /* After one could not be made; it doubles up to 256 s. */
#define PARKED_PAUSES_MAX 8u

/* One sandbox, from its making until it is taken or ended. */
struct parked_one {
    struct parked_group *group;
    struct sbox *sbox;
    struct sbox_watch watch; /* Only of one that waits. */
    bool waits;              /* It is up; else it is being made. */
    uint64_t since_ns;       /* Its making began then. */
    struct parked_one *next, *prev;
};

/* One entry of `[pool] templates`. */
struct parked_group {
    struct parked *parked;
    struct parked_group *next, *prev;
    char org[64], name[TEMPLATE_NAME_MAX];
    uint64_t target;
    char *shape; /* What its sandboxes are made of; NULL: it cannot be had now, and `why` says the reason. */
    char image_org[64], image_name[TEMPLATE_NAME_MAX]; /* the template that the name means, for a quick comparison */
    struct parked_one *first, *last;                   /* oldest first */
    uint64_t waiting, making, claims, misses;
    uint64_t last_used_ns, not_before_ns;
    unsigned failures; /* in a row */
    char why[256];     /* why there are fewer than there should be; "" */
};

struct parked {
    struct manager *manager;
    struct parked_group *groups;
    struct loop_timer fill, look;
    uint64_t fill_at_ns;    /* When the next fill comes; 0: none is due. */
    uint64_t held_since_ns; /* A refill has waited for creates since then; 0: none waits. */
    uint64_t waiting, making, claims, misses, failures;
};

/* parked.c */
void parked_end(struct parked_one *one, const char *why); /* Ends it, made or not; it is freed. */
void parked_drop(struct parked_group *group, const char *why);
void parked_free_one(struct parked_one *one); /* Its sandbox is gone, or somebody else's. */

/* parked_fill.c */
void parked_on_fill(struct loop_timer *timer);
void parked_on_look(struct loop_timer *timer);
void parked_fill_at(struct parked *parked, uint64_t at_ns);

#endif
