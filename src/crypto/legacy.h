/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.h: opens values as Letta stored them: standard base64 of salt (16), nonce (12), ciphertext and tag (16), which
 * is AES-256-GCM without associated data under PBKDF2-HMAC-SHA256(password, salt, 100000). Users who move from Letta
 * keep their secrets this way. Such values are never written: they have no key id, and nothing binds a value to its
 * row. One derivation takes tens of milliseconds.
 */
#ifndef BRIG_CRYPTO_LEGACY_H
#define BRIG_CRYPTO_LEGACY_H

#include <brig.h>

#include "base/base.h"

#define LEGACY_SALT 16u
#define LEGACY_NONCE 12u
#define LEGACY_TAG 16u
#define LEGACY_ITERATIONS 100000
#define LEGACY_TEXT_MAX (256u * 1024u)

/*
 * Opens a value into wiping memory (crypto_secret_free()), as Letta reads it. A text that does not open is the value
 * itself, unless it looks encrypted; then the result is -EBADMSG (it was changed, or there is another password).
 * -ENOKEY: the password is empty and the text looks encrypted. -EMSGSIZE: the text is too long.
 */
int legacy_open(const char *password, const char *text, size_t len, uint8_t **ret, size_t *ret_len) MUST_CHECK;
/*
 * Letta guesses that a text is encrypted if it has no prefix of API keys and is base64 of at least 45 bytes; other
 * characters are skipped.
 */
bool legacy_looks_encrypted(const char *text, size_t len);
int legacy_derive(const char *password, const uint8_t salt[LEGACY_SALT], uint8_t out[32]) MUST_CHECK;

#endif
