/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signer.c: Ed25519 keys in files. The private key is PKCS#8 PEM, as `openssl genpkey -algorithm ed25519` writes it. If
 * it is missing it is made here, with the public key beside it (PATH.pub, for those who verify). A private key that
 * others can read is refused and not repaired: somebody may have read it.
 */
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"

#define KEY_FILE_MAX 4096u

struct crypto_signer {
    EVP_PKEY *key;
    uint8_t public_key[ED25519_PUBLIC];
};

static EVP_PKEY *parse_private(const char *text, size_t len)
{
    BIO *bio = BIO_new_mem_buf(text, (int)len);
    /* With a callback that gives no password, an encrypted key is an error and not a prompt on somebody's terminal. */
    char none[] = "";
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, none) : NULL;

    BIO_free(bio);
    return key;
}

static int read_private(int fd, const char *path, EVP_PKEY **ret, struct brig_err *err)
{
    char text[KEY_FILE_MAX];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_host(err, "stat %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, BRIG_E_REFUSED, EPERM, "%s is no regular file", path);
    if (st.st_uid != geteuid())
        return err_set(err, BRIG_E_REFUSED, EPERM, "the key %s belongs to uid %u, not to the caller (uid %u)", path,
                       (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return err_set(err, BRIG_E_REFUSED, EPERM, "the key %s can be read by others (mode %04o, must be 0600)", path,
                       (unsigned)(st.st_mode & 07777));
    ssize_t n = fd_read_all(fd, text, sizeof(text));
    if (n < 0)
        return err_set(err, BRIG_E_HOST, (int)-n, "read %s", path);
    EVP_PKEY *key = parse_private(text, (size_t)n);
    crypto_wipe(text, sizeof(text));
    if (!key || EVP_PKEY_get_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        return err_set(err, BRIG_E_REFUSED, EINVAL, "%s holds no Ed25519 private key (PKCS#8 PEM)", path);
    }
    *ret = key;
    return 0;
}

/*
 * The key is written aside and linked into place, so it is there whole or not at all. If two processes start at once,
 * one wins; the other gets -EEXIST and reads that key.
 */
static int write_new(int dir_fd, const char *path, const char *text, size_t len, mode_t mode)
{
    char aside[PATH_MAX], hex[17];
    uint8_t random[8];

    int r = crypto_random(random, sizeof(random));
    if (r < 0)
        return r;
    crypto_hex(random, sizeof(random), hex);
    r = str_format(aside, sizeof(aside), "%s.%s", path, hex);
    if (r < 0)
        return r;
    AUTO_FD int fd = openat(dir_fd, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return -errno;
    r = fd_write_all(fd, text, len);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || linkat(dir_fd, aside, dir_fd, path, 0) < 0))
        r = -errno;
    unlinkat(dir_fd, aside, 0);
    return r;
}

static int make_private(int dir_fd, const char *path, struct brig_err *err)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *bio = BIO_new(BIO_s_secmem());
    char *text = NULL;
    int r = -ENOMEM;

    if (key && bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1) {
        long len = BIO_get_mem_data(bio, &text);
        r = write_new(dir_fd, path, text, (size_t)len, 0600);
    }
    if (text)
        crypto_wipe(text, (size_t)BIO_get_mem_data(bio, &text));
    BIO_free(bio);
    EVP_PKEY_free(key);
    return r == 0 || r == -EEXIST ? 0 : err_set(err, BRIG_E_HOST, -r, "make the key %s", path);
}

/* PATH.pub, where it is missing. Failing is no reason to stop: it can be made from the key at any time. */
static void write_public(int dir_fd, const char *path, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char name[PATH_MAX], *text = NULL;

    if (bio && PEM_write_bio_PUBKEY(bio, key) == 1 && str_format(name, sizeof(name), "%s.pub", path) > 0) {
        long len = BIO_get_mem_data(bio, &text);
        (void)!write_new(dir_fd, name, text, (size_t)len, 0644);
    }
    BIO_free(bio);
}

int crypto_signer_open(int dir_fd, const char *path, struct crypto_signer **ret, struct brig_err *err)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    size_t len = ED25519_PUBLIC;

    AUTO_FD int fd = openat(dir_fd, path, flags);
    if (fd < 0 && errno == ENOENT) {
        int r = make_private(dir_fd, path, err);
        if (r < 0)
            return r;
        fd = openat(dir_fd, path, flags);
    }
    if (fd < 0)
        return err_host(err, "open %s", path);
    struct crypto_signer *signer = mem_zalloc(sizeof(*signer));
    if (!signer)
        return err_nomem(err);
    int r = read_private(fd, path, &signer->key, err);
    if (r == 0 && EVP_PKEY_get_raw_public_key(signer->key, signer->public_key, &len) != 1)
        r = err_nomem(err);
    if (r < 0) {
        crypto_signer_destroy(signer);
        return r;
    }
    write_public(dir_fd, path, signer->key);
    *ret = signer;
    return 0;
}

void crypto_signer_public(const struct crypto_signer *signer, uint8_t out[ED25519_PUBLIC])
{
    memcpy(out, signer->public_key, ED25519_PUBLIC);
}

int crypto_sign(const struct crypto_signer *signer, const void *data, size_t len, uint8_t out[ED25519_SIGNATURE])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t size = ED25519_SIGNATURE;
    bool done = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, signer->key) == 1 &&
                EVP_DigestSign(ctx, out, &size, data, len) == 1;

    EVP_MD_CTX_free(ctx);
    return done && size == ED25519_SIGNATURE ? 0 : -ENOMEM;
}

void crypto_signer_destroy(struct crypto_signer *signer)
{
    if (signer)
        EVP_PKEY_free(signer->key); /* wipes the key's bytes */
    mem_free(signer);
}

int crypto_verify(const uint8_t public_key[ED25519_PUBLIC], const void *data, size_t len,
                  const uint8_t signature[ED25519_SIGNATURE])
{
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, ED25519_PUBLIC);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int r = -ENOMEM;

    if (key && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1)
        r = EVP_DigestVerify(ctx, signature, ED25519_SIGNATURE, data, len) == 1 ? 0 : -EBADMSG;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return r;
}

int crypto_public_read(int dir_fd, const char *path, uint8_t out[ED25519_PUBLIC], struct brig_err *err)
{
    char text[KEY_FILE_MAX];
    size_t len = ED25519_PUBLIC;

    ssize_t n = fd_read_file(dir_fd, path, text, sizeof(text));
    if (n < 0)
        return err_set(err, BRIG_E_USAGE, (int)-n, "%s", path);
    size_t end = (size_t)n;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r' || text[end - 1] == ' '))
        end--;
    if (crypto_unhex(text, end, out, ED25519_PUBLIC) == 0)
        return 0;
    BIO *bio = BIO_new_mem_buf(text, (int)n);
    EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;
    bool good = key && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519 && EVP_PKEY_get_raw_public_key(key, out, &len) == 1;
    BIO_free(bio);
    EVP_PKEY_free(key);
    return good ? 0 : err_usage(err, "%s holds no Ed25519 public key (PEM, or 64 hexadecimal digits)", path);
}

/* ---- certificates ------------------------------------------------------------------------------------------- */

static X509 *read_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    return cert;
}

bool crypto_same_authority(const char *pem, const char *other)
{
    X509 *a = read_certificate(pem), *b = read_certificate(other);
    bool same = a && b && X509_NAME_cmp(X509_get_subject_name(a), X509_get_subject_name(b)) == 0 &&
                EVP_PKEY_eq(X509_get0_pubkey(a), X509_get0_pubkey(b)) == 1;

    X509_free(a);
    X509_free(b);
    ERR_clear_error();
    return same;
}
