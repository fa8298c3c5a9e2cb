/* SPDX-License-Identifier: Apache-2.0 */
/* accounts_priv.h: shared by accounts.c (organisations), account_keys.c and account_rights.c. */
#ifndef BRIG_RECORDS_ACCOUNTS_PRIV_H
#define BRIG_RECORDS_ACCOUNTS_PRIV_H

#include "records/accounts.h"

struct accounts {
    struct accounts_options options;
    struct objects *orgs, *keys;
    struct loop_timer on_expiry;
    int64_t next_expiry_ns;   /* the timer is set for it; INT64_MAX: no key expires */
    int64_t expired_until_ns; /* keys that expired up to then have been told */
    struct {
        char org_id[64]; /* rows come by organisation */
        size_t keys_skipped, orgs_skipped;
        int64_t over_ns;
    } loading;
};

int keys_load(struct accounts *accounts, struct brig_err *err) MUST_CHECK;

#endif
