/* SPDX-License-Identifier: Apache-2.0 */
/* auth.h: the tables of auth.c, for the files beside it (auth_orgs.c, auth_lists.c). */
#ifndef BRIG_API_AUTH_H
#define BRIG_API_AUTH_H

#include "api/api.h"

struct auth {
    struct api *api;
    struct store_key *keys;
    size_t n_keys, cap_keys;
    struct store_org *orgs;
    size_t n_orgs, cap_orgs;
    struct loop_timer on_expiry;
    int64_t expired_until_ns; /* keys that expired up to then have had their streams cut */
};

struct store_key *auth_find_key(struct auth *auth, const char *id);
struct store_org *auth_find_org(struct auth *auth, const char *id);
int auth_add_org(struct auth *auth, const struct store_org *org, struct brig_err *err) MUST_CHECK;
/* Room for one more; at most max. */
int auth_grow(void **list, size_t n, size_t *cap, size_t size, size_t max, struct brig_err *err) MUST_CHECK;
bool auth_visible(const struct request *rq, const char *org_id);
/* A copy that replaces *doc (which is ours, or NULL). */
int auth_set_doc(const char **doc, const char *text, struct brig_err *err) MUST_CHECK;

#endif
