/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crypto.c: randomness, comparison, hexadecimal, SHA-256 and HMAC. Algorithms are fetched from OpenSSL's default
 * provider at each use: it caches them, and there is no global state of ours to set up or tear down in any thread.
 */
#include "crypto/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "base/mem.h"

int crypto_random(void *out, size_t len)
{
    uint8_t *at = out;

    /* The kernel's generator itself: no state of a process that a fork could copy. */
    while (len > 0) {
        ssize_t n = RETRY(getrandom(at, len, 0));
        if (n < 0)
            return -errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

bool crypto_equal(const void *a, const void *b, size_t len)
{
    return CRYPTO_memcmp(a, b, len) == 0;
}

void crypto_wipe(void *data, size_t len)
{
    if (data)
        OPENSSL_cleanse(data, len);
}

void crypto_hex(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *in = data;

    for (size_t i = 0; i < len; i++) {
        *out++ = digits[in[i] >> 4];
        *out++ = digits[in[i] & 15];
    }
    *out = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Only what crypto_hex() writes: lower case, exactly the length. One value has one spelling. */
int crypto_unhex(const char *text, size_t text_len, void *out, size_t len)
{
    uint8_t *to = out;

    if (text_len != 2 * len)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return -EINVAL;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

int crypto_sha256(const void *data, size_t len, uint8_t out[SHA256_SIZE])
{
    unsigned size = SHA256_SIZE;

    return EVP_Digest(data, len, out, &size, EVP_sha256(), NULL) == 1 && size == SHA256_SIZE ? 0 : -ENOMEM;
}

struct crypto_hash {
    EVP_MD_CTX *ctx;
};

int crypto_hash_create(struct crypto_hash **ret)
{
    struct crypto_hash *hash = mem_zalloc(sizeof(*hash));

    if (hash)
        hash->ctx = EVP_MD_CTX_new();
    if (!hash || !hash->ctx || EVP_DigestInit_ex(hash->ctx, EVP_sha256(), NULL) != 1) {
        crypto_hash_destroy(hash);
        return -ENOMEM;
    }
    *ret = hash;
    return 0;
}

int crypto_hash_add(struct crypto_hash *hash, const void *data, size_t len)
{
    return EVP_DigestUpdate(hash->ctx, data, len) == 1 ? 0 : -ENOMEM;
}

int crypto_hash_end(struct crypto_hash *hash, uint8_t out[SHA256_SIZE])
{
    unsigned size = 0;

    if (EVP_DigestFinal_ex(hash->ctx, out, &size) != 1 || size != SHA256_SIZE)
        return -ENOMEM;
    return EVP_DigestInit_ex(hash->ctx, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

void crypto_hash_destroy(struct crypto_hash *hash)
{
    if (hash)
        EVP_MD_CTX_free(hash->ctx);
    mem_free(hash);
}

int crypto_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t out[SHA256_SIZE])
{
    unsigned size = 0;

    if (key_len > INT32_MAX)
        return -EINVAL;
    if (!HMAC(EVP_sha256(), key, (int)key_len, data, len, out, &size) || size != SHA256_SIZE)
        return -ENOMEM;
    return 0;
}
