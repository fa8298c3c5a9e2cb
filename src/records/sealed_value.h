/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_value.h: a value inside a document: {"key_id", "nonce", "sealed"} as secrets are kept (crypto/keyring.h), or
 * {"legacy": text} as Letta stored it. Variables of configurations and agents' secrets use it. A value may be empty.
 */
#ifndef BRIG_RECORDS_SEALED_VALUE_H
#define BRIG_RECORDS_SEALED_VALUE_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "crypto/keyring.h"

#define SEALED_CONTEXT 480u

struct sealer {
    const struct keyring *ring; /* or NULL */
    bool plain;                 /* without a ring, values are stored as they are; values like that may be used */
    const char *legacy_key;     /* "" none */
};

/* BRIG_E_CONFLICT if there is no key and plain is not set. */
int sealer_check(const struct sealer *sealer, struct brig_err *err) MUST_CHECK;
/* "<org>\n<owner>\n<name>" */
int sealed_context(const char *org, const char *owner, const char *name, char out[SEALED_CONTEXT]) MUST_CHECK;
/* Writes the object. */
int sealed_value_put(const struct sealer *sealer, const char *context, const void *value, size_t len, struct json *json,
                     struct brig_err *err) MUST_CHECK;
/*
 * The same in steps, for a document that has other members too (secrets.c). sealed_put() writes members of an object
 * that is open. A struct sealed may have a plain value in it: sealed_wipe() it.
 */
int sealer_seal(const struct sealer *sealer, const char *context, const void *value, size_t len, struct sealed *ret,
                struct brig_err *err) MUST_CHECK;
void sealed_put(const struct sealed *sealed, struct json *json);
int sealed_read(const struct json_value *json, struct sealed *ret) MUST_CHECK; /* -EBADMSG: damaged; -ENOMEM */
bool sealed_stale(const struct sealer *sealer, const struct sealed *sealed);
/* BRIG_E_REFUSED (-ENOKEY) if its key is missing. The value is not opened. */
int sealed_usable(const struct sealer *sealer, const struct sealed *sealed, const char *what,
                  struct brig_err *err) MUST_CHECK;
int sealed_open(const struct sealer *sealer, const char *context, const struct sealed *sealed, const char *what,
                uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
void sealed_wipe(struct sealed *sealed);
/* Does it have the shape of a sealed value? */
bool sealed_value_ok(const struct json_value *sealed);
/* The value; crypto_secret_free() it. what: for the message ("variable X"). BRIG_E_REFUSED if the key is missing, or
 * the value was changed or moved. */
int sealed_value_open(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                      const char *what, uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
/* Is it sealed with another key than the one that would be used now? */
bool sealed_value_stale(const struct sealer *sealer, const struct json_value *sealed);
/* Writes the same value sealed with the current key. A value that has that key is copied; so is one that does not open,
 * unless must_open is set. */
int sealed_value_renew(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                       const char *what, bool must_open, struct json *json, struct brig_err *err) MUST_CHECK;

#endif
