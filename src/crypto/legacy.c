/* SPDX-License-Identifier: Apache-2.0 */
/*
 * legacy.c: opens Letta's stored values (legacy.h). The derived key and any plaintext that was not authenticated are
 * wiped; nothing here writes the format.
 */
#include "crypto/legacy.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/base64.h"
#include "base/mem.h"
#include "crypto/crypto.h"
#include "crypto/keyring.h"

#define KEY_SIZE 32u
#define FRAME (LEGACY_SALT + LEGACY_NONCE + LEGACY_TAG)

int legacy_derive(const char *password, const uint8_t salt[LEGACY_SALT], uint8_t out[KEY_SIZE])
{
    size_t len = strlen(password);

    if (len > LEGACY_TEXT_MAX)
        return -EMSGSIZE;
    return PKCS5_PBKDF2_HMAC(password, (int)len, salt, (int)LEGACY_SALT, LEGACY_ITERATIONS, EVP_sha256(), (int)KEY_SIZE,
                             out) == 1
               ? 0
               : -EIO;
}

/* Python's lax b64decode(): others than the alphabet's are skipped, and the padding must be right. How many bytes, or
 * -1. */
static ptrdiff_t lax_length(const char *text, size_t len)
{
    size_t n = 0, pads = 0;

    for (size_t i = 0; i < len; i++) {
        if ((uint8_t)text[i] >= 0x80)
            return -1;
        if (text[i] == '=') {
            if (n % 4 >= 2 && n % 4 + ++pads >= 4) /* the end: what follows is not looked at */
                return (ptrdiff_t)(n / 4 * 3 + n % 4 - 1);
        } else if (base64_value(text[i], "+/") >= 0) {
            n++;
            pads = 0;
        }
    }
    return n % 4 == 0 ? (ptrdiff_t)(n / 4 * 3) : -1;
}

bool legacy_looks_encrypted(const char *text, size_t len)
{
    static const char *const prefixes[] = {"sk-",   "pk-",   "api-", "key-", "token-", "Bearer ",
                                           "xoxb-", "xoxp-", "ghp_", "gho_", "ghu_",   "ghs_",
                                           "ghr_",  "AKIA",  "ABIA", "ACCA", "ASIA"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        if (len >= n && memcmp(text, prefixes[i], n) == 0)
            return false;
    }
    return lax_length(text, len) >= (ptrdiff_t)(FRAME + 1);
}

static int decrypt(const uint8_t key[KEY_SIZE], const uint8_t *data, size_t len, uint8_t *out)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    const uint8_t *nonce = data + LEGACY_SALT, *body = nonce + LEGACY_NONCE;
    uint8_t tag[LEGACY_TAG];
    const size_t n = len - FRAME;
    int done = 0, last = 0;

    memcpy(tag, body + n, LEGACY_TAG);
    bool ok = ctx && EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce) == 1 &&
              EVP_DecryptUpdate(ctx, out, &done, body, (int)n) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, (int)LEGACY_TAG, tag) == 1 &&
              EVP_DecryptFinal_ex(ctx, out + done, &last) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : -EBADMSG;
}

static int open_frame(const char *password, const uint8_t *data, size_t len, uint8_t **ret, size_t *ret_len)
{
    const size_t n = len - FRAME;
    uint8_t key[KEY_SIZE];
    uint8_t *value = crypto_secret_alloc(n);

    if (!value)
        return -ENOMEM;
    int r = legacy_derive(password, data, key);
    if (r == 0)
        r = decrypt(key, data, len, value);
    crypto_wipe(key, sizeof key);
    if (r < 0) {
        crypto_secret_free(value, n);
        return r;
    }
    *ret = value;
    *ret_len = n;
    return 0;
}

static int as_it_is(const char *text, size_t len, uint8_t **ret, size_t *ret_len)
{
    uint8_t *value = crypto_secret_alloc(len);

    if (!value)
        return -ENOMEM;
    memcpy(value, text, len);
    *ret = value;
    *ret_len = len;
    return 0;
}

int legacy_open(const char *password, const char *text, size_t len, uint8_t **ret, size_t *ret_len)
{
    const bool looks = legacy_looks_encrypted(text, len);
    int r = -EBADMSG;

    if (len > LEGACY_TEXT_MAX)
        return -EMSGSIZE;
    if (password[0] == '\0')
        return looks ? -ENOKEY : as_it_is(text, len, ret, ret_len);
    uint8_t *data = mem_alloc(len + 1);
    size_t n = 0;
    if (!data)
        return -ENOMEM;
    if (crypto_unbase64(text, len, data, len, &n) == 0 && n >= FRAME)
        r = open_frame(password, data, n, ret, ret_len);
    mem_free(data);
    return r == -EBADMSG && !looks ? as_it_is(text, len, ret, ret_len) : r;
}
