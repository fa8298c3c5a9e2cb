/* SPDX-License-Identifier: Apache-2.0 */
/* auth.h: the tables of auth.c, for the files beside it (auth_keys.c, auth_orgs.c, auth_lists.c). */
#ifndef BRIG_API_AUTH_H
#define BRIG_API_AUTH_H

#include "api/api.h"

#define AUTH_KEY_PREFIX "e2b_"
#define AUTH_KEY_TEXT 44u /* a key has so many bytes */

struct new_key;

struct auth {
    struct api *api;
    struct store_key *keys;
    size_t n_keys, cap_keys;
    uint32_t *by_hash; /* places in keys plus one, 0: free; found by the first bytes of a key's hash, then onwards */
    size_t n_by_hash;  /* a power of two, at least twice as many as there can be keys */
    struct store_org *orgs;
    size_t n_orgs, cap_orgs;
    struct new_key *making; /* keys on their way to the store */
    size_t making_orgs;     /* organisations on their way there */
    struct loop_timer on_expiry;
    int64_t expired_until_ns; /* keys that expired up to then have had their streams cut */
};

struct store_key *auth_find_key(struct auth *auth, const char *id);
struct store_org *auth_find_org(struct auth *auth, const char *id);
/*
 * Room for one more beside those that are coming; BRIG_E_LIMIT past the bound. Asked before the store is. Then the row
 * is taken over with its document, which cannot fail.
 */
int auth_key_room(struct auth *auth, size_t coming, struct brig_err *err) MUST_CHECK;
void auth_add_key(struct auth *auth, const struct store_key *key);
void auth_index_keys(struct auth *auth); /* after keys have changed their places */
int auth_org_room(struct auth *auth, size_t coming, struct brig_err *err) MUST_CHECK;
void auth_add_org(struct auth *auth, const struct store_org *org);
int auth_grow(void **list, size_t n, size_t *cap, size_t size, struct brig_err *err) MUST_CHECK;
/* Keys that were over (revoked, expired) before that time are removed, here and from the store. org "": of all. */
int auth_forget_keys(struct auth *auth, const char *org, int64_t before_ns, struct brig_err *err) MUST_CHECK;
bool auth_visible(const struct request *rq, const char *org_id);
/* A copy that replaces *doc (which is ours, or NULL). */
int auth_set_doc(const char **doc, const char *text, struct brig_err *err) MUST_CHECK;

#endif
