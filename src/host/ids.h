/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ids.h: the user and group ids of sandboxes. Two sandboxes never share one while they live. A slot is a byte of one
 * lock file, held by an open-file-description lock, so several `brig run` and a daemon exclude each other, and a crash
 * releases everything.
 *
 * The ids belong to the host (root) or to the user, and so does the file: its place does not depend on a variable or a
 * configuration. Root's is /run/brig/ids. A plain user's is brig-ids-UID in /run/lock, or in /dev/shm if /run/lock is
 * not open to everybody. If that place cannot be used, the file lies in the run directory, and `scope` says so.
 *
 * Sandboxes of a runner live on when the runner dies, and its locks do not. So a runner also marks the byte itself.
 * Whoever gets the lock of a marked slot looks for a process with its ids, and leaves the slot alone if there is one.
 */
#ifndef BRIG_HOST_IDS_H
#define BRIG_HOST_IDS_H

#include <brig.h>
#include <sys/types.h>

#include "base/base.h"

enum ids_kind {
    IDS_RANGE, /* root: 65,536 ids per sandbox from 0x70000000 up (nobody else uses them, see systemd's UIDS-GIDS) */
    IDS_PAIR,  /* plain user with subordinate ids: two of them per sandbox */
    IDS_ONE,   /* plain user: the user's own id */
};

#define IDS_SLOTS 4096u
/*
 * IDS_PAIR: the first of the 65,536 ids that a plain user's sandboxes with root inside share. Files on disk have these
 * ids, and only root can show them as others.
 */
#define IDS_SHARED_ROOT 1u

/* Which other services cannot give out the same ids. */
enum ids_scope {
    IDS_RUN_DIR,   /* those with the same run directory; somebody else may have the ids */
    IDS_CONTAINER, /* all that see this /run; it cannot be told whether the host's own /run is another one */
    IDS_HOST,      /* everybody; for a plain user, all services of the user */
};

struct ids {
    enum ids_kind kind;
    enum ids_scope scope;
    int lock_fd;
    int proc_fd;  /* A full procfs, which is not ours to close; -1: marks are not looked at. */
    bool outlive; /* What has these ids may outlive this process, so slots are marked. */
    unsigned slots, next, sub_ids;
    uint64_t held[IDS_SLOTS / 64];
};

struct ids_claim {
    int slot;         /* -1 if none is held. */
    uid_t root, user; /* In the spawner's user namespace. The gids are the same numbers. */
    bool whole;       /* INSIDE_RANGE ids from root up are mapped. */
    bool shared;      /* Others have the same ids. */
};

/*
 * Opens the lock file, before a plain user enters a user namespace, because its name has the uid. run_fd is the run
 * directory or -1. Returns a descriptor or a negative errno.
 */
int ids_open(bool privileged, int run_fd, enum ids_scope *ret_scope, struct brig_err *err) MUST_CHECK;
/* Opens a plain user's lock file in one of these directories, for ids_open() and its test. */
int ids_open_user(const char *const *dirs, size_t n, uid_t uid);
/* Owns *lock_fd from now on. sub_ids is the number of subordinate ids that are mapped from 1 up (IDS_PAIR). */
int ids_init(struct ids *ids, enum ids_kind kind, int *lock_fd, enum ids_scope scope, unsigned sub_ids,
             struct brig_err *err) MUST_CHECK;
void ids_done(struct ids *ids);
/* whole: a range of INSIDE_RANGE ids, for root inside. BRIG_E_UNSUPPORTED if there are not so many. */
int ids_claim(struct ids *ids, bool whole, struct ids_claim *ret, struct brig_err *err) MUST_CHECK;
/* Claims a slot that a sandbox has from an earlier process. -EBUSY: somebody else has it by now. */
int ids_claim_again(struct ids *ids, int slot, struct ids_claim *ret) MUST_CHECK;
void ids_share(struct ids *ids, struct ids_claim *claim); /* Uses the one shared range instead of a claim. */
void ids_release(struct ids *ids, struct ids_claim *claim);
/* Writes the text for uid_map and gid_map of a sandbox with this claim. */
int ids_map(const struct ids *ids, const struct ids_claim *claim, char *out, size_t size) MUST_CHECK;

#endif
