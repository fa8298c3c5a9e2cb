/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounts.h: who may call: organisations and their keys, two kinds of objects.h with tables of their own, and the
 * rights that their documents give. Who sends a request is found out in api/auth.c.
 *
 * An organisation is an object of the organisation "": its columns are a struct org. A key is an object of its
 * organisation: its columns are a struct key. The document of either has settings: `tools` (rules.h), quotas, and the
 * rights that only the socket's administrator gives. Its json is NULL when there are none.
 */
#ifndef BRIG_RECORDS_ACCOUNTS_H
#define BRIG_RECORDS_ACCOUNTS_H

#include "loop/loop.h"
#include "records/caller.h"
#include "records/objects.h"

#define ACCOUNTS_DEFAULT_ORG "org-00000000-0000-4000-8000-000000000000"
#define KEY_TEXT 44u /* a key has so many bytes */

struct accounts;

struct org {
    char name[128];
    bool deleting; /* its keys are refused until the store has answered */
};

struct key {
    char name[128];
    char hash[65]; /* SHA-256 of its text, in hexadecimal digits */
    char hint[16]; /* the last four characters of its text */
    enum store_role role;
    int64_t expires_at_ns, revoked_at_ns; /* 0: never */
};

static inline struct org *org_of(const struct object *object)
{
    return object->columns;
}
static inline struct key *key_of(const struct object *object)
{
    return object->columns;
}

struct accounts_options {
    struct loop *loop;
    struct store *store;
    /* A key has expired, or it is removed (forgotten). Whoever uses it is to be cut off. */
    void (*over)(void *ctx, const char *key_id, bool forgotten);
    void (*log)(void *ctx, const char *text); /* what a start leaves out */
    void *ctx;
};
/* Loads. Makes the default organisation if there is none. */
int accounts_create(const struct accounts_options *options, struct accounts **ret, struct brig_err *err) MUST_CHECK;
void accounts_destroy(struct accounts *accounts); /* after store_close(); takes NULL */
/* Keys that were revoked or have expired some days ago are removed. */
int accounts_prune(struct accounts *accounts, struct brig_err *err) MUST_CHECK;

/* ---- organisations ------------------------------------------------------------------------------------ */
const struct object *org_find(const struct accounts *accounts, const char *id); /* or NULL */
const struct object *org_first(const struct accounts *accounts);                /* the oldest; follow ->next */
/* name: shorter than the member of struct org */
int org_create(struct accounts *accounts, const char *name, objects_done_fn *done, void *ctx,
               struct brig_err *err) MUST_CHECK;
/*
 * Its keys are refused at once, and are keys again if the store refuses. done comes while the keys are still there;
 * org_forget() removes them after it.
 */
int org_delete(struct accounts *accounts, const char *id, objects_done_fn *done, void *ctx,
               struct brig_err *err) MUST_CHECK;
void org_forget(struct accounts *accounts, const char *id);
/* The settings as JSON text, "{}" when there are none. They stay until they change. */
const char *org_doc(const struct accounts *accounts, const char *id);

/* ---- keys --------------------------------------------------------------------------------------------- */
const struct object *key_find(const struct accounts *accounts, const char *id);      /* Searches all organisations. */
const struct object *key_by_text(const struct accounts *accounts, const char *text); /* or NULL */
const struct object *key_first(const struct accounts *accounts, const char *org);    /* the oldest; follow ->next */
/* BRIG_E_UNAUTHENTICATED for a key that was revoked or has expired. */
int key_check(const struct accounts *accounts, const struct object *key, struct brig_err *err) MUST_CHECK;
/*
 * like: name, role and expiry. max: so many keys may the organisation have; one that is full first loses its keys that
 * are over. ret_text is the only copy of the key, to be wiped.
 */
int key_create(struct accounts *accounts, const char *org, const struct key *like, const char *doc, uint64_t max,
               char ret_text[KEY_TEXT + 1], objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* It is in force at once, and stays so whatever the store says. */
int key_revoke(struct accounts *accounts, const struct object *key, objects_done_fn *done, void *ctx,
               struct brig_err *err) MUST_CHECK;
const char *key_doc(const struct accounts *accounts, const char *id); /* as org_doc() */

/* ---- rights ------------------------------------------------------------------------------------------- */
/* A right that only the socket gives: `user_ids`, `metrics`. */
bool key_has(const struct accounts *accounts, const char *id, const char *right);
/* The caller acts for this organisation from now on, if there is one and the caller may choose (the socket, or a key
 * with user_ids); otherwise nothing changes. */
void caller_choose_org(const struct accounts *accounts, const char *org, struct caller *caller);
/* Do the lists of the organisation and the key allow a tool of this name? BRIG_E_FORBIDDEN "Tool '<n>' not allowed". */
int caller_may_run(const struct accounts *accounts, const struct caller *caller, bool default_deny, const char *name,
                   struct brig_err *err) MUST_CHECK;
/* Is this a list as rules.h reads it? BRIG_E_USAGE. */
int lists_check(const struct json_value *tools, struct brig_err *err) MUST_CHECK;
/*
 * The organisation (key NULL) or the key gets other lists; they are in force when they are stored. tools stays until
 * done, and {} removes the lists. Other members of the document stay as they are.
 */
int lists_put(struct accounts *accounts, const char *org, const char *key, const struct json_value *tools,
              objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

#endif
