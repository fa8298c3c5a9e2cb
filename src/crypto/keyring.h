/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyring.h: seals and opens secrets at rest: AES-256-GCM with key ids. A ring has one key to seal with (the first) and
 * any number to open with, so that keys can be rotated. The associated data is "brig-secret-v1\n<context>\n<key id>",
 * so a sealed value cannot be moved to another organisation or row.
 *
 * The text form (a key file, an environment variable, a command's output) has one key per line: "ID:64 hex digits" or
 * "ID:base64 of 32 bytes", and '#' comments. An ID is [A-Za-z0-9_.-]{1,32}, but not "plain". A ring lives in one
 * allocation that is locked, not dumped and wiped.
 */
#ifndef BRIG_CRYPTO_KEYRING_H
#define BRIG_CRYPTO_KEYRING_H

#include <brig.h>

#include "base/base.h"
#include "base/buf.h"

#define KEYRING_KEYS_MAX 32u
#define KEY_ID_MAX 33u
#define KEY_ID_PLAIN "plain" /* The id of a value that is not sealed (`[secrets] insecure_plaintext`). */
#define SEAL_NONCE 12u
#define SEAL_TAG 16u

struct keyring;

int keyring_parse(const char *text, size_t len, struct keyring **ret,
                  struct brig_err *err) MUST_CHECK;      /* An error names the line, never its content. */
void keyring_destroy(struct keyring *ring);              /* Wipes the keys. ring may be NULL. */
const char *keyring_current(const struct keyring *ring); /* The id of the key that seals. */
bool keyring_has(const struct keyring *ring, const char *id);
size_t keyring_count(const struct keyring *ring);

struct sealed {
    char key_id[KEY_ID_MAX];
    uint8_t nonce[SEAL_NONCE];
    uint8_t *data; /* The ciphertext and the tag; free it with mem_free(). */
    size_t len;
};
int keyring_seal(const struct keyring *ring, const char *context, const void *value, size_t len,
                 struct sealed *ret) MUST_CHECK;
/*
 * Opens a value into wiping memory (crypto_secret_free()). ring may be NULL. With the key id KEY_ID_PLAIN the data are
 * the value itself. The code that stores values decides whether that is allowed, so the code that opens them needs no
 * case for it. -ENOKEY: the ring does not have this id; -EBADMSG: the value was changed or moved, or sealed with
 * another key of that id.
 */
int keyring_open(const struct keyring *ring, const char *context, const struct sealed *sealed, uint8_t **ret,
                 size_t *ret_len) MUST_CHECK;
void sealed_done(struct sealed *sealed);
/* Derives 32 bytes that only this key and this context give (HMAC-SHA256). Returns 0 or -ENOKEY. */
int keyring_derive(const struct keyring *ring, const char *key_id, const char *context, uint8_t out[32]) MUST_CHECK;

/*
 * Allocates zeroed memory that is locked where that is allowed, left out of core dumps, zero in a forked child, and
 * wiped when it is freed. A zero byte follows it. Returns NULL when memory is short.
 */
void *crypto_secret_alloc(size_t len);
void crypto_secret_free(void *data, size_t len);

/*
 * Decodes either alphabet of RFC 4648, with or without padding. Returns 0, -EINVAL, or -EMSGSIZE if it has more than
 * size bytes. The caller wipes the result.
 */
int crypto_unbase64(const char *text, size_t len, void *out, size_t size, size_t *ret_len) MUST_CHECK;

#endif
