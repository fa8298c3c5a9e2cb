/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids.h: the user and group ids of sandboxes. Two sandboxes never share one while they live: a slot is a byte
 * of one lock file, held by an open-file-description lock, so concurrent `brig run`s and a daemon exclude
 * each other and a crash releases everything.
 */
#ifndef BRIG_JAIL_IDS_H
#define BRIG_JAIL_IDS_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

enum ids_kind {
    IDS_RANGE, /* root: 65,536 ids per sandbox from 0x70000000 up (unused by anyone, see systemd's UIDS-GIDS) */
    IDS_PAIR,  /* plain user with subordinate ids: two of them per sandbox */
    IDS_ONE,   /* plain user: the user's own id */
};

#define IDS_SLOTS 4096u

struct ids {
    enum ids_kind kind;
    int lock_fd;
    unsigned slots, next;
    uint64_t held[IDS_SLOTS / 64];
};

struct ids_claim {
    int slot; /* -1: none held */
    uid_t root, user; /* in the spawner's user namespace; gids are the same numbers */
};

/* run_fd: the run directory, for the lock file. sub_ids: how many subordinate ids are mapped from 1 up (IDS_PAIR). */
int ids_init(struct ids *ids, enum ids_kind kind, int run_fd, unsigned sub_ids, struct brig_err *err) MUST_CHECK;
void ids_done(struct ids *ids);
int ids_claim(struct ids *ids, struct ids_claim *ret, struct brig_err *err) MUST_CHECK;
void ids_share(struct ids *ids, struct ids_claim *claim); /* instead: the one range that is nobody's own */
void ids_release(struct ids *ids, struct ids_claim *claim);
/* The text for uid_map and gid_map of a sandbox with this claim. */
int ids_map(const struct ids *ids, const struct ids_claim *claim, char *out, size_t size) MUST_CHECK;

#endif
