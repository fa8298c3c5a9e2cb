/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies.h: named network policies per organisation, cached in memory, written through to the store (kind "policy");
 * and what the member `network` of a sandbox means. The presets `none`, `packages` and `open` are names nobody can
 * take.
 */
#ifndef BRIG_RECORDS_POLICIES_H
#define BRIG_RECORDS_POLICIES_H

#include "codec/json/json.h"
#include "gate/policy.h"
#include "records/objects.h"

#define POLICY_NAME_MAX 64u /* [a-z0-9][a-z0-9_.-]{0,62} */
#define POLICIES_PER_ORG 1000u
#define POLICIES_ORG_BYTES (16u << 20) /* bytes of an organisation's policies: all of them are in memory */

struct policies;

/* A named policy is an object: its id is the name, its version rises with every change, its text is canonical JSON, and
 * its extra is the compiled struct policy. */
typedef void policy_changed_fn(void *ctx, const struct object *policy);

/* packages: the text of packages_rules() made by the supervisor, or NULL. Loads what the store has. */
int policies_create(struct store *store, const char *packages, struct policies **ret, struct brig_err *err) MUST_CHECK;
void policies_destroy(struct policies *policies);
/* Replaces the text of packages_rules() for sandboxes that choose `packages` from now on. If it fails the old one
 * stays. */
int policies_set_packages(struct policies *policies, const char *packages, struct brig_err *err) MUST_CHECK;
const struct object *policies_find(const struct policies *policies, const char *org, const char *name); /* or NULL */
struct objects *policies_objects(const struct policies *policies); /* in the order of their names */
/* Makes or replaces a policy, which is in force when it is committed. An error in the policy is returned at once. */
int policies_put(struct policies *policies, const char *org, const char *name, const struct json_value *json,
                 objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;
/* The organisation is gone, and its rows with it. */
/* A named policy was made or replaced: called after the commit, before done. */
void policies_on_change(struct policies *policies, policy_changed_fn *changed, void *ctx);

/* What `network` says: a preset's or policy's name, "learn", or a policy object. */
struct network_choice {
    char name[POLICY_NAME_MAX]; /* "none", "packages", "open", "learn", a policy's name, or "custom" */
    bool none, learn;
    bool named;            /* a policy of the organisation: follows its changes */
    uint64_t version;      /* of the named one; else 1 */
    struct policy *policy; /* a reference; NULL when none */
    char *json;            /* canonical; mem_free(); NULL when none */
};
int policies_choose(const struct policies *policies, const char *org, const struct json_value *network,
                    struct network_choice *ret, struct brig_err *err) MUST_CHECK;
void network_choice_done(struct network_choice *choice);

#endif
