/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crypto.h: the cryptographic primitives that brigd needs, over OpenSSL's EVP. Keys are wiped; nothing here logs or
 * prints. Functions return 0 or a negative errno (-EBADMSG: the signature is wrong).
 */
#ifndef BRIG_CRYPTO_CRYPTO_H
#define BRIG_CRYPTO_CRYPTO_H

#include <brig.h>

#include "base/base.h"

#define SHA256_SIZE 32u
#define SHA256_HEX 65u
#define ED25519_SEED 32u
#define ED25519_PUBLIC 32u
#define ED25519_SIGNATURE 64u

int crypto_random(void *out, size_t len) MUST_CHECK;
bool crypto_equal(const void *a, const void *b, size_t len); /* Takes the same time for all content. */
void crypto_wipe(void *data, size_t len);
void crypto_hex(const void *data, size_t len, char *out); /* Writes 2 * len + 1 bytes. */
int crypto_unhex(const char *text, size_t text_len, void *out, size_t len) MUST_CHECK;

int crypto_sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE]) MUST_CHECK;
/* A hash over several pieces. */
struct crypto_hash;
int crypto_hash_create(struct crypto_hash **ret) MUST_CHECK;
int crypto_hash_add(struct crypto_hash *hash, const void *data, size_t len) MUST_CHECK;
/* The object is then ready for the next hash. */
int crypto_hash_end(struct crypto_hash *hash, uint8_t out[SHA256_SIZE]) MUST_CHECK;
void crypto_hash_destroy(struct crypto_hash *hash);

int crypto_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len,
                       uint8_t out[SHA256_SIZE]) MUST_CHECK;

/*
 * Do two certificates (PEM) have the same name and the same key? Then a client that trusts one trusts what the other
 * signed.
 */
bool crypto_same_authority(const char *pem, const char *other);

struct crypto_signer; /* It holds an Ed25519 private key. */
/*
 * Reads the key (PKCS#8 PEM, mode 0600, owned by the caller) or makes it if the file is missing. Writes PATH.pub if
 * that is missing. dir_fd is as for openat(2).
 */
int crypto_signer_open(int dir_fd, const char *path, struct crypto_signer **ret, struct brig_err *err) MUST_CHECK;
void crypto_signer_public(const struct crypto_signer *signer, uint8_t out[ED25519_PUBLIC]);
int crypto_sign(const struct crypto_signer *signer, const void *data, size_t len,
                uint8_t out[ED25519_SIGNATURE]) MUST_CHECK;
void crypto_signer_destroy(struct crypto_signer *signer);
/* Reads a public key from a file: PEM (as in PATH.pub) or 64 hexadecimal digits. */
int crypto_public_read(int dir_fd, const char *path, uint8_t out[ED25519_PUBLIC], struct brig_err *err) MUST_CHECK;
int crypto_verify(const uint8_t public_key[ED25519_PUBLIC], const void *data, size_t len,
                  const uint8_t signature[ED25519_SIGNATURE]) MUST_CHECK;

/*
 * Signed tokens that expire (for previews): base64url(subject "." expiry) "." base64url(HMAC-SHA256). `purpose`
 * separates the uses of one key.
 */
#define TOKEN_MAX 512u
/*
 * The subject has at most 256 bytes and the purpose 63. expires_at is in seconds since 1970 and not negative. Otherwise
 * -EINVAL.
 */
int crypto_token_make(const uint8_t key[32], const char *purpose, const char *subject, int64_t expires_at,
                      char out[TOKEN_MAX]) MUST_CHECK;
/* Returns 0 if the token is valid now for this purpose and subject, else -EBADMSG or -ETIME. */
int crypto_token_check(const uint8_t key[32], const char *purpose, const char *subject, const char *token,
                       int64_t now) MUST_CHECK;
/* Says when a token that was checked expires. */
int crypto_token_expiry(const char *token, int64_t *ret) MUST_CHECK;

#endif
