/* SPDX-License-Identifier: Apache-2.0 */
/* secrets_priv.h: shared by secrets.c and secrets_rotate.c. */
#ifndef BRIG_SANDBOX_SECRETS_PRIV_H
#define BRIG_SANDBOX_SECRETS_PRIV_H

#include "sandbox/secrets.h"

struct entry {
    struct secret_info info;
    struct sealed sealed; /* of KEY_ID_PLAIN: the value itself */
};

/* A write on its way to the store. */
struct secret_change {
    struct secrets *secrets;
    store_done_fn *done;
    void *ctx;
    struct entry *entry; /* put; NULL: a deletion */
    char org_id[64], name[SECRET_NAME_MAX];
    struct secret_change *next, *prev;
};

struct secrets {
    struct store *store;
    const struct keyring *ring;
    bool plain;
    struct entry **entries;        /* sorted by organisation, then name, by bytes */
    size_t n, cap, pending;        /* pending: puts under way, each has room */
    struct secret_change *changes; /* under way */
};

struct entry *secrets_entry(const struct secrets *secrets, const char *org, const char *name); /* or NULL */
/* The value itself: crypto_secret_free(). Nobody has asked who wants it; that is secrets_expose(). */
int secrets_reveal(const struct secrets *secrets, const char *org, const char *name, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err) MUST_CHECK;
/*
 * The same value and rule, sealed with the current key. 1: nothing is written: it is gone, is under that key, or
 * another write of it is under way, which this one would undo when it is committed behind it; that write seals with the
 * current key itself.
 */
int secrets_reseal(struct secrets *secrets, const char *org, const char *name, store_done_fn *done, void *ctx,
                   struct brig_err *err) MUST_CHECK;

#endif
