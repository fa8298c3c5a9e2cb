/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secrets.h: an organisation's named secrets (kind "secret"), sealed with the key ring, in memory as in the store. The
 * document is {"key_id", "nonce", "sealed", "broker": {...} | null, "size"}; the context of the seal is
 * "<org>\n<name>".
 */
#ifndef BRIG_RECORDS_SECRETS_H
#define BRIG_RECORDS_SECRETS_H

#include "audit/audit.h"
#include "codec/json/json.h"
#include "crypto/keyring.h"
#include "gate/slot_spec.h"
#include "records/caller.h"
#include "records/objects.h"
#include "records/rotate.h"

#define SECRETS_PER_ORG 1000u

struct secrets;

struct secret_info {
    char name[SECRET_NAME_MAX];
    bool brokered;
    struct broker_rule rule; /* valid when brokered */
    char key_id[KEY_ID_MAX];
    uint64_t size;
    int64_t created_at_ns, updated_at_ns;
};

/* ring outlives the secrets. It is NULL if no key is configured: then nothing can be stored unless plain is set
 * (`[secrets] insecure_plaintext`). */
int secrets_create(struct store *store, const struct keyring *ring, bool plain, struct secrets **ret,
                   struct brig_err *err) MUST_CHECK;
void secrets_destroy(struct secrets *secrets); /* after store_close(): writes under way come back here. Takes NULL */
bool secrets_can_store(const struct secrets *secrets); /* there is a key, or the switch */
const struct secret_info *secrets_find(const struct secrets *secrets, const char *org, const char *name);
const struct secret_info *secret_info_of(const struct object *object);
struct objects *secrets_objects(const struct secrets *secrets); /* in the order of their names */
/* The value is sealed before this returns; the caller wipes its own. broker: its JSON, or NULL. */
int secrets_put(struct secrets *secrets, const char *org, const char *name, const void *value, size_t len,
                const struct json_value *broker, objects_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/*
 * Seals again every secret that is sealed with an old key, while the service goes on (rotate.h).
 */
int secrets_rotate(struct secrets *secrets, rotate_done_fn *done, void *ctx, struct brig_err *err) MUST_CHECK;

/* One element of `secrets` of gate/slot_spec.h. placeholder: PLACEHOLDER_LEN characters, new for every sandbox
 * (secrets_placeholder()). */
void secrets_placeholder(char out[PLACEHOLDER_LEN + 1]);
int secrets_put_slot(const struct secrets *secrets, const char *org, const char *name, const char *placeholder,
                     struct json *json, struct brig_err *err) MUST_CHECK;

/*
 * A value leaves in one way only (`expose`): secrets_expose.c. An administrator must allow it: the caller, or, if a
 * tool's own list names the secret, whoever registered the tool and answers for its source. A brokered value never
 * leaves.
 */
struct secret_use {
    const struct caller *caller;     /* who uses it: in the audit event, and in whose organisation */
    const enum standing *registrant; /* whoever registered the tool whose list names it; NULL: the request names it */
    /* object: the run or sandbox that gets it; "" while it has no id, then secrets_say_exposed() follows */
    const char *name, *object;
    struct audit *audit; /* NULL: none is kept */
};
/*
 * May the value leave? BRIG_E_FORBIDDEN if not; BRIG_E_REFUSED if the secret is brokered. A secret that does not exist
 * passes.
 */
int secrets_may_expose(const struct secrets *secrets, const struct secret_use *use, struct brig_err *err) MUST_CHECK;
/* Writes the audit event and returns the value, if it may leave; crypto_secret_free() it. */
int secrets_expose(const struct secrets *secrets, const struct secret_use *use, uint8_t **ret, size_t *ret_len,
                   struct brig_err *err) MUST_CHECK;
void secrets_say_exposed(const struct secret_use *use);

#endif
