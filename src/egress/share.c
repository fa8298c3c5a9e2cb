/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.c: divides the resources of one brig-egress among organisations.
 *
 * The rule is the same for all resources (base/share.h). It counts per organisation, so that an organisation does not
 * get more by having more sandboxes, policies or connections.
 *
 *     descriptors  |<------------ 3/4: connections, two each ------------>|<-- 1/4 kept back: listeners, DNS -->|
 *
 * Connections never take the last quarter. The listeners of new sandboxes and DNS take whatever is free.
 */
#include <sys/resource.h>

#include "base/mem.h"
#include "base/share.h"
#include "base/str.h"
#include "egress/egress_priv.h"

#define OWN_DESCRIPTORS 32u /* control, loop, pipe, what a message brings */
#define DESCRIPTORS_MAX (1u << 20)

struct share {
    struct share *next;
    size_t n_slots;
    size_t used[SHARE_MAX];
    char org[64];
};

void share_init(struct egress *egress)
{
    struct rlimit files = {.rlim_cur = 1024};

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur > DESCRIPTORS_MAX)
        files.rlim_cur = DESCRIPTORS_MAX;
    egress->descriptors = files.rlim_cur > OWN_DESCRIPTORS ? (size_t)files.rlim_cur - OWN_DESCRIPTORS : 0;
}

static size_t less(size_t all, size_t used)
{
    return all > used ? all - used : 0;
}

static size_t free_of(const struct egress *egress, enum share_kind kind)
{
    const size_t *used = egress->shared, all = egress->descriptors;
    size_t waiting = used[SHARE_LISTENERS] + used[SHARE_LOOKUPS];

    switch (kind) {
    case SHARE_CONNECTIONS: return less(all - all / 4, used[SHARE_CONNECTIONS] + less(waiting, all / 8));
    case SHARE_LISTENERS: return less(all, used[SHARE_CONNECTIONS] + waiting);
    case SHARE_LOOKUPS: return less(all / 8 < LOOKUPS_MAX ? all / 8 : LOOKUPS_MAX, used[SHARE_LOOKUPS]);
    case SHARE_MEMORY: return less(EGRESS_PENDING, used[SHARE_MEMORY]);
    case SHARE_EVENTS: return less(EGRESS_EVENTS, used[SHARE_EVENTS]);
    case SHARE_MAX:
    default: return 0;
    }
}

bool share_has(const struct slot *slot, enum share_kind kind, size_t n)
{
    return share_allows(slot->share->used[kind], free_of(slot->egress, kind), n);
}

void share_charge(struct slot *slot, enum share_kind kind, size_t n)
{
    slot->share->used[kind] += n;
    slot->egress->shared[kind] += n;
}

void share_give(struct slot *slot, enum share_kind kind, size_t n)
{
    slot->share->used[kind] -= n;
    slot->egress->shared[kind] -= n;
}

void share_orphan(struct slot *slot, enum share_kind kind, size_t n)
{
    slot->share->used[kind] -= n;
}

bool share_take(struct slot *slot, enum share_kind kind, size_t n)
{
    if (!share_has(slot, kind, n))
        return false;
    share_charge(slot, kind, n);
    return true;
}

int share_join(struct slot *slot, const char *org)
{
    struct share *share = slot->egress->shares;

    while (share && !str_eq(share->org, org))
        share = share->next;
    if (!share) {
        share = mem_zalloc(sizeof *share);
        if (!share)
            return -ENOMEM;
        if (str_copy(share->org, sizeof share->org, org) < 0) {
            mem_free(share);
            return -EINVAL;
        }
        share->next = slot->egress->shares;
        slot->egress->shares = share;
    }
    share->n_slots++;
    slot->share = share;
    return 0;
}

void share_leave(struct slot *slot)
{
    struct share **at = &slot->egress->shares;

    if (!slot->share || --slot->share->n_slots > 0)
        return;
    while (*at != slot->share)
        at = &(*at)->next;
    *at = slot->share->next;
    mem_free(take_ptr(&slot->share));
}
