/* SPDX-License-Identifier: Apache-2.0 */
/*
 * token.c: tokens that say "whoever has this may do PURPOSE with SUBJECT until EXPIRY". Nobody can make one without the
 * key.
 *
 *     base64url(subject "." expiry) "." base64url(MAC)
 *     MAC = HMAC-SHA256(key, "brig-token-v1" NUL purpose NUL subject NUL expiry NUL)
 *
 * The purpose is under the signature but not in the token, so a token for one purpose is invalid for another. A NUL
 * follows every part, and no part can contain one: no two different lists of parts are the same bytes. The caller knows
 * the subject that it asks about. The token is made again from it and compared in constant time; nothing in the token
 * is parsed except the expiry.
 */
#include <inttypes.h>

#include "base/base64.h"
#include "base/str.h"
#include "crypto/crypto.h"

#define VERSION "brig-token-v1"
#define SUBJECT_MAX 256u

int crypto_token_make(const uint8_t key[32], const char *purpose, const char *subject, int64_t expires_at,
                      char out[TOKEN_MAX])
{
    char payload[SUBJECT_MAX + 32], signed_text[sizeof(VERSION) + 64 + SUBJECT_MAX + 32];
    uint8_t mac[SHA256_SIZE];

    if (expires_at < 0 || strlen(subject) > SUBJECT_MAX || strlen(purpose) > 63)
        return -EINVAL;
    int payload_len = str_format(payload, sizeof(payload), "%s.%" PRId64, subject, expires_at);
    int len = str_format(signed_text, sizeof(signed_text), "%s%c%s%c%s%c%" PRId64 "%c", VERSION, 0, purpose, 0, subject,
                         0, expires_at, 0);
    if (payload_len < 0 || len < 0)
        return -EINVAL;
    int r = crypto_hmac_sha256(key, 32, signed_text, (size_t)len, mac);
    if (r < 0)
        return r;
    size_t at = base64_encode(payload, (size_t)payload_len, "-_", false, out); /* RFC 4648, 5 */
    out[at++] = '.';
    at += base64_encode(mac, sizeof(mac), "-_", false, out + at);
    out[at] = '\0';
    crypto_wipe(mac, sizeof(mac));
    return 0;
}

/* The number behind the last dot of the payload. */
static int read_expiry(const char *token, size_t len, int64_t *ret)
{
    char payload[SUBJECT_MAX + 32];
    ssize_t n = base64_decode(token, len, "-_", payload, sizeof(payload) - 1);

    if (n < 0)
        return -EBADMSG;
    payload[n] = '\0';
    const char *dot = strrchr(payload, '.');
    int64_t value = 0;
    if (!dot || dot[1] == '\0' || strlen(dot + 1) > 18)
        return -EBADMSG;
    for (const char *p = dot + 1; *p; p++) {
        if (*p < '0' || *p > '9')
            return -EBADMSG;
        value = value * 10 + (*p - '0');
    }
    *ret = value;
    return 0;
}

int crypto_token_expiry(const char *token, int64_t *ret)
{
    return read_expiry(token, strcspn(token, "."), ret);
}

int crypto_token_check(const uint8_t key[32], const char *purpose, const char *subject, const char *token, int64_t now)
{
    char want[TOKEN_MAX];
    int64_t expires_at;
    size_t len = strlen(token);

    if (len >= TOKEN_MAX)
        return -EBADMSG;
    int r = read_expiry(token, strcspn(token, "."), &expires_at);
    if (r < 0)
        return r;
    r = crypto_token_make(key, purpose, subject, expires_at, want);
    if (r < 0)
        return r == -EINVAL ? -EBADMSG : r;
    bool same = strlen(want) == len && crypto_equal(want, token, len);
    crypto_wipe(want, sizeof(want));
    if (!same)
        return -EBADMSG;
    return now < expires_at ? 0 : -ETIME;
}
