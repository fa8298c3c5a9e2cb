/* SPDX-License-Identifier: Apache-2.0 */
/* ids.c: claims and releases id slots by byte locks on one file; see ids.h for why. */
#include "jail/ids.h"

#include <stdio.h>

#include "base/err.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define RANGE_BASE 0x70000000u

int ids_init(struct ids *ids, enum ids_kind kind, int run_fd, unsigned sub_ids, struct brig_err *err)
{
    *ids = (struct ids){.kind = kind, .lock_fd = -1, .slots = kind == IDS_RANGE || sub_ids / 2 > IDS_SLOTS ? IDS_SLOTS : sub_ids / 2};
    if (kind == IDS_ONE)
        return 0;
    ids->lock_fd = openat(run_fd, "ids", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (ids->lock_fd < 0)
        return err_host(err, "lock file of the id ranges");
    ids->next = (unsigned)getpid() % ids->slots; /* neighbours start apart, so the first try mostly succeeds */
    return 0;
}

void ids_done(struct ids *ids)
{
    base_close_fd(&ids->lock_fd);
}

static int lock_slot(struct ids *ids, unsigned slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    return fcntl(ids->lock_fd, F_OFD_SETLK, &lock);
}

/* Open-file-description locks do not exclude their own description: what this spawner holds is kept in a bitmap. */
static bool is_held(const struct ids *ids, unsigned slot)
{
    return ids->held[slot / 64] & (1ULL << (slot % 64));
}

int ids_claim(struct ids *ids, struct ids_claim *ret, struct brig_err *err)
{
    if (ids->kind == IDS_ONE) {
        *ret = (struct ids_claim){.slot = -1};
        return 0;
    }
    for (unsigned tried = 0; tried < ids->slots; tried++) {
        unsigned slot = ids->next;
        ids->next = (ids->next + 1) % ids->slots;
        if (is_held(ids, slot) || lock_slot(ids, slot, F_WRLCK) < 0)
            continue;
        ids->held[slot / 64] |= 1ULL << (slot % 64);
        ret->slot = (int)slot;
        ret->root = ids->kind == IDS_RANGE ? RANGE_BASE + slot * INSIDE_RANGE : 1 + 2 * slot;
        ret->user = ids->kind == IDS_RANGE ? ret->root + INSIDE_USER : ret->root + 1;
        return 0;
    }
    return err_set(err, BRIG_E_HOST, EAGAIN, "all %u id ranges are in use", ids->slots);
}

void ids_share(struct ids *ids, struct ids_claim *claim)
{
    ids_release(ids, claim);
    if (ids->kind == IDS_RANGE)
        *claim = (struct ids_claim){.slot = -1, .root = RANGE_BASE, .user = RANGE_BASE + INSIDE_USER};
}

void ids_release(struct ids *ids, struct ids_claim *claim)
{
    if (claim->slot < 0)
        return;
    ids->held[claim->slot / 64] &= ~(1ULL << (claim->slot % 64));
    (void)!lock_slot(ids, (unsigned)claim->slot, F_UNLCK);
    claim->slot = -1;
}

int ids_map(const struct ids *ids, const struct ids_claim *claim, char *out, size_t size)
{
    switch (ids->kind) {
    case IDS_RANGE:
        return snprintf(out, size, "0 %u %u", claim->root, INSIDE_RANGE);
    case IDS_PAIR:
        return snprintf(out, size, "%u %u 1\n%u %u 1", INSIDE_ROOT, claim->root, INSIDE_USER, claim->user);
    case IDS_ONE:
        break;
    }
    return snprintf(out, size, "%u 0 1", INSIDE_USER);
}
