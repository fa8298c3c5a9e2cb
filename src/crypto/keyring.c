/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyring.c: AES-256-GCM over OpenSSL's EVP, with keys that have names.
 *
 * Invariants. Keys are only in memory from crypto_secret_alloc(): pages of their own, locked, out of core dumps, zero
 * in a forked child, wiped when freed. OpenSSL wipes its own copy of a key when the context is freed. A nonce is 96
 * random bits and used once: at 2^32 seals with one key the chance of a repeat is 2^-33 (NIST SP 800-38D, 8.3), and
 * secrets are set by people. A plaintext that was not authenticated is wiped before anybody can look at it. An error
 * names a line's number and never its text.
 */
#include "crypto/keyring.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"

#define KEY_SIZE 32u
#define AAD_PREFIX "brig-secret-v1\n"
#define CONTEXT_MAX 512u

#define SPARE_PAGES 16u

struct key {
    char id[KEY_ID_MAX];
    uint8_t bytes[KEY_SIZE];
};

struct keyring {
    size_t n;
    struct key keys[KEYRING_KEYS_MAX];
};

/* ---- memory ------------------------------------------------------------------------------------------- */

/*
 * These are whole pages: the kernel locks and advises per page, and a neighbour on the heap would share that or undo
 * it. Where the limit on locked memory is reached, the memory is not locked, but it still stays out of dumps and forks.
 */
static size_t pages_of(size_t len)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t up;

    if (__builtin_add_overflow(len, page, &up)) /* len + 1, rounded up: a zero byte follows */
        return 0;
    return up / page * page;
}

/* Single pages are wiped and kept for the next caller: mapping, advising and locking one costs more than its use. */
static struct {
    pthread_mutex_t lock;
    void *pages[SPARE_PAGES];
    unsigned n;
} spare = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *take_spare(size_t size)
{
    void *page = NULL;

    if (size != (size_t)sysconf(_SC_PAGESIZE))
        return NULL;
    pthread_mutex_lock(&spare.lock);
    if (spare.n > 0)
        page = spare.pages[--spare.n];
    pthread_mutex_unlock(&spare.lock);
    return page;
}

static bool put_spare(void *page, size_t size)
{
    bool kept = false;

    if (size != (size_t)sysconf(_SC_PAGESIZE))
        return false;
    pthread_mutex_lock(&spare.lock);
    if (spare.n < SPARE_PAGES) {
        spare.pages[spare.n++] = page;
        kept = true;
    }
    pthread_mutex_unlock(&spare.lock);
    return kept;
}

void *crypto_secret_alloc(size_t len)
{
    const size_t size = pages_of(len);
#ifdef BRIG_TEST
    void *door = mem_alloc(1); /* so that tests can fail this one too */

    mem_free(door);
    if (!door)
        return NULL;
#endif
    if (size == 0)
        return NULL;
    void *data = take_spare(size);
    if (data)
        return data;
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NULL;
    /* Linux has had these since 3.4 and 4.14. */
    if (madvise(data, size, MADV_DONTDUMP) < 0 || madvise(data, size, MADV_WIPEONFORK) < 0) {
        munmap(data, size);
        return NULL;
    }
    (void)mlock(data, size); /* EPERM, ENOMEM: not more than the limit */
    return data;
}

void crypto_secret_free(void *data, size_t len)
{
    if (!data)
        return;
    crypto_wipe(data, len);
    if (!put_spare(data, pages_of(len)))
        munmap(data, pages_of(len)); /* unlocks as well */
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static bool id_ok(const char *id, size_t len)
{
    static const char more[] = "_.-";

    if (len == 0 || len >= KEY_ID_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char c = id[i];
        if (!(ascii_is_alnum(c) || (c && strchr(more, c))))
            return false;
    }
    return true;
}

int crypto_unbase64(const char *text, size_t len, void *out, size_t size, size_t *ret_len)
{
    ssize_t n = base64_decode(text, base64_unpadded(text, len), NULL, out, size);

    if (n < 0)
        return (int)n;
    *ret_len = (size_t)n;
    return 0;
}

static int unbase64_key(const char *text, size_t len, uint8_t out[KEY_SIZE])
{
    size_t n = 0;

    return crypto_unbase64(text, len, out, KEY_SIZE, &n) < 0 || n != KEY_SIZE ? -EINVAL : 0;
}

static int unhex_key(const char *text, uint8_t out[KEY_SIZE])
{
    char lower[2 * KEY_SIZE];

    for (size_t i = 0; i < sizeof lower; i++)
        lower[i] = ascii_lower(text[i]);
    int r = crypto_unhex(lower, sizeof lower, out, KEY_SIZE);
    crypto_wipe(lower, sizeof lower);
    return r;
}

static const struct key *find(const struct keyring *ring, const char *id, size_t len)
{
    for (size_t i = 0; i < ring->n; i++)
        if (strlen(ring->keys[i].id) == len && memcmp(ring->keys[i].id, id, len) == 0)
            return &ring->keys[i];
    return NULL;
}

/* len: without the line's end and blanks around it; not empty, not a comment. */
static int parse_line(struct keyring *ring, const char *line, size_t len, unsigned number, struct brig_err *err)
{
    const char *colon = memchr(line, ':', len);

    if (!colon)
        return err_usage(err, "key ring, line %u: not of the form ID:KEY", number);
    const size_t id_len = (size_t)(colon - line), key_len = len - id_len - 1;
    if (!id_ok(line, id_len))
        return err_usage(err, "key ring, line %u: an ID has 1 to %u letters, digits, '_', '.' or '-'", number,
                         KEY_ID_MAX - 1);
    if (id_len == strlen(KEY_ID_PLAIN) && memcmp(line, KEY_ID_PLAIN, id_len) == 0)
        return err_usage(err, "key ring, line %u: the ID \"plain\" means no key", number);
    if (find(ring, line, id_len))
        return err_usage(err, "key ring, line %u: an ID that an earlier line has", number);
    if (ring->n == KEYRING_KEYS_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, 0, "key ring, line %u: more than %u keys", number, KEYRING_KEYS_MAX);
    struct key *key = &ring->keys[ring->n];
    if ((key_len == 2 * KEY_SIZE ? unhex_key(colon + 1, key->bytes) : unbase64_key(colon + 1, key_len, key->bytes)) < 0)
        return err_usage(err, "key ring, line %u: a key is 64 hexadecimal digits, or 32 bytes in base64", number);
    static const uint8_t zero[KEY_SIZE];
    if (crypto_equal(key->bytes, zero, KEY_SIZE)) /* a template that nobody has filled in */
        return err_usage(err, "key ring, line %u: the key is all zero", number);
    memcpy(key->id, line, id_len); /* the rest is zero */
    ring->n++;
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int parse_lines(struct keyring *ring, const char *text, size_t len, struct brig_err *err)
{
    const char *at = text, *end = text + len;

    for (unsigned number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *next = newline ? newline + 1 : end,
                   *last = newline ? newline : end;
        while (at < last && is_blank(*at))
            at++;
        while (last > at && is_blank(last[-1]))
            last--;
        if (at < last && *at != '#') {
            int r = parse_line(ring, at, (size_t)(last - at), number, err);
            if (r < 0)
                return r;
        }
        at = next;
    }
    return ring->n ? 0 : err_usage(err, "key ring: there is no key in it");
}

int keyring_parse(const char *text, size_t len, struct keyring **ret, struct brig_err *err)
{
    struct keyring *ring = crypto_secret_alloc(sizeof *ring);

    if (!ring)
        return err_nomem(err);
    int r = parse_lines(ring, text, len, err);
    if (r < 0) {
        keyring_destroy(ring);
        return r;
    }
    *ret = ring;
    return 0;
}

void keyring_destroy(struct keyring *ring)
{
    crypto_secret_free(ring, sizeof *ring);
}

const char *keyring_current(const struct keyring *ring)
{
    return ring->keys[0].id;
}

bool keyring_has(const struct keyring *ring, const char *id)
{
    return find(ring, id, strlen(id)) != NULL;
}

size_t keyring_count(const struct keyring *ring)
{
    return ring->n;
}

/* ---- sealing ------------------------------------------------------------------------------------------ */

/* A context has no way to look like another: the key's id comes last and has no newline. */
static int make_aad(const char *context, const char *key_id, char *out, size_t size)
{
    return str_format(out, size, AAD_PREFIX "%s\n%s", context, key_id);
}

static int gcm_seal(EVP_CIPHER_CTX *ctx, const struct key *key, const char *aad, int aad_len, const void *value,
                    int len, struct sealed *out)
{
    int n = 0, tail = 0;

    if (EVP_EncryptInit_ex2(ctx, EVP_aes_256_gcm(), key->bytes, out->nonce, NULL) != 1 ||
        EVP_EncryptUpdate(ctx, NULL, &n, (const uint8_t *)aad, aad_len) != 1 ||
        (len > 0 && (EVP_EncryptUpdate(ctx, out->data, &n, value, len) != 1 || n != len)) ||
        EVP_EncryptFinal_ex(ctx, out->data + len, &tail) != 1 || tail != 0 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, (int)SEAL_TAG, out->data + len) != 1)
        return -EIO;
    return 0;
}

int keyring_seal(const struct keyring *ring, const char *context, const void *value, size_t len, struct sealed *ret)
{
    const struct key *key = &ring->keys[0];
    struct sealed out = {.len = len + SEAL_TAG};
    char aad[CONTEXT_MAX];
    const int aad_len = make_aad(context, key->id, aad, sizeof aad);

    if (aad_len < 0 || len > INT32_MAX - SEAL_TAG)
        return -EMSGSIZE;
    memcpy(out.key_id, key->id, sizeof out.key_id);
    int r = crypto_random(out.nonce, sizeof out.nonce);
    if (r < 0)
        return r;
    out.data = mem_alloc(out.len);
    EVP_CIPHER_CTX *ctx = out.data ? EVP_CIPHER_CTX_new() : NULL;
    r = ctx ? gcm_seal(ctx, key, aad, aad_len, value, (int)len, &out) : -ENOMEM;
    EVP_CIPHER_CTX_free(ctx);
    if (r < 0) {
        sealed_done(&out);
        return r;
    }
    *ret = out;
    return 0;
}

static int gcm_open(EVP_CIPHER_CTX *ctx, const struct key *key, const char *aad, int aad_len,
                    const struct sealed *sealed, uint8_t *out, int len)
{
    uint8_t tag[SEAL_TAG];
    int n = 0, tail = 0;

    memcpy(tag, sealed->data + len, sizeof tag);
    if (EVP_DecryptInit_ex2(ctx, EVP_aes_256_gcm(), key->bytes, sealed->nonce, NULL) != 1 ||
        EVP_DecryptUpdate(ctx, NULL, &n, (const uint8_t *)aad, aad_len) != 1 ||
        (len > 0 && (EVP_DecryptUpdate(ctx, out, &n, sealed->data, len) != 1 || n != len)) ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, (int)SEAL_TAG, tag) != 1)
        return -EIO;
    return EVP_DecryptFinal_ex(ctx, out + len, &tail) == 1 && tail == 0 ? 0 : -EBADMSG;
}

static int copy_plain(const struct sealed *sealed, uint8_t **ret, size_t *ret_len)
{
    uint8_t *out = crypto_secret_alloc(sealed->len);

    if (!out)
        return -ENOMEM;
    if (sealed->len)
        memcpy(out, sealed->data, sealed->len);
    *ret = out;
    *ret_len = sealed->len;
    return 0;
}

int keyring_open(const struct keyring *ring, const char *context, const struct sealed *sealed, uint8_t **ret,
                 size_t *ret_len)
{
    char aad[CONTEXT_MAX];

    if (str_eq(sealed->key_id, KEY_ID_PLAIN))
        return copy_plain(sealed, ret, ret_len);
    if (sealed->len < SEAL_TAG || sealed->len > INT32_MAX || strnlen(sealed->key_id, KEY_ID_MAX) == KEY_ID_MAX)
        return -EBADMSG;
    const struct key *key = ring ? find(ring, sealed->key_id, strlen(sealed->key_id)) : NULL;
    if (!key)
        return -ENOKEY;
    const int aad_len = make_aad(context, key->id, aad, sizeof aad);
    if (aad_len < 0)
        return -EMSGSIZE;
    const size_t len = sealed->len - SEAL_TAG;
    uint8_t *out = crypto_secret_alloc(len);
    EVP_CIPHER_CTX *ctx = out ? EVP_CIPHER_CTX_new() : NULL;
    int r = ctx ? gcm_open(ctx, key, aad, aad_len, sealed, out, (int)len) : -ENOMEM;
    EVP_CIPHER_CTX_free(ctx);
    if (r < 0) {
        crypto_secret_free(out, len);
        return r;
    }
    *ret = out;
    *ret_len = len;
    return 0;
}

void sealed_done(struct sealed *sealed)
{
    mem_free(sealed->data);
    *sealed = (struct sealed){0};
}

int keyring_derive(const struct keyring *ring, const char *key_id, const char *context, uint8_t out[32])
{
    const struct key *key = ring ? find(ring, key_id, strlen(key_id)) : NULL;

    return key ? crypto_hmac_sha256(key->bytes, sizeof key->bytes, context, strlen(context), out) : -ENOKEY;
}
