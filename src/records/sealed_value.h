/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sealed_value.h: a value inside a document: {"key_id", "nonce", "sealed"} as secrets are kept (crypto/keyring.h), or
 * {"legacy": text} as Letta stored it. For variables of configurations and agents. Empty values are values.
 */
#ifndef BRIG_RECORDS_SEALED_VALUE_H
#define BRIG_RECORDS_SEALED_VALUE_H

#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "crypto/keyring.h"

#define SEALED_CONTEXT 480u

struct sealer {
    const struct keyring *ring; /* or NULL */
    bool plain;                 /* without a ring: values as they are; and such values may be used */
    const char *legacy_key;     /* "" none */
};

/* BRIG_E_CONFLICT: there is neither key nor switch. */
int sealer_check(const struct sealer *sealer, struct brig_err *err) MUST_CHECK;
/* "<org>\n<owner>\n<name>" */
int sealed_context(const char *org, const char *owner, const char *name, char out[SEALED_CONTEXT]) MUST_CHECK;
/* Writes the object. */
int sealed_value_put(const struct sealer *sealer, const char *context, const void *value, size_t len, struct json *json,
                     struct brig_err *err) MUST_CHECK;
/*
 * The same in two steps, for a document that has more beside it (secrets.c): sealed, written as the members of an
 * object that is open, read, opened. A plain value is in it as it is: sealed_wipe().
 */
int sealer_seal(const struct sealer *sealer, const char *context, const void *value, size_t len, struct sealed *ret,
                struct brig_err *err) MUST_CHECK;
void sealed_put(const struct sealed *sealed, struct json *json);
int sealed_read(const struct json_value *json, struct sealed *ret) MUST_CHECK; /* -EBADMSG: damaged; -ENOMEM */
bool sealed_stale(const struct sealer *sealer, const struct sealed *sealed);
/* BRIG_E_REFUSED (-ENOKEY): its key is not there, as far as can be told without opening it. */
int sealed_usable(const struct sealer *sealer, const struct sealed *sealed, const char *what,
                  struct brig_err *err) MUST_CHECK;
int sealed_open(const struct sealer *sealer, const char *context, const struct sealed *sealed, const char *what,
                uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
void sealed_wipe(struct sealed *sealed);
/* Whether it has the shape of one; for documents that are read. */
bool sealed_value_ok(const struct json_value *sealed);
/* crypto_secret_free(). what: for the message ("variable X"). BRIG_E_REFUSED: no such key, changed, moved. */
int sealed_value_open(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                      const char *what, uint8_t **ret, size_t *ret_len, struct brig_err *err) MUST_CHECK;
/* It is not under the key that would be used now. */
bool sealed_value_stale(const struct sealer *sealer, const struct json_value *sealed);
/* The same value under the current key; as it is when it is, or does not open and must_open is not set. */
int sealed_value_renew(const struct sealer *sealer, const char *context, const struct json_value *sealed,
                       const char *what, bool must_open, struct json *json, struct brig_err *err) MUST_CHECK;

#endif
