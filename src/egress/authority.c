/* SPDX-License-Identifier: Apache-2.0 */
/*
 * authority.c: a certificate authority that lives as long as one sandbox, in this process only. Its key follows from a
 * seed that the key ring gives. So a brig-egress that replaces another one signs as that one did, and the sandbox goes
 * on trusting it. Critical name constraints let it sign only for the hosts of the sandbox's brokered secrets, so that
 * even its key would open no other host; addresses are excluded.
 *
 * A server certificate is made when a name is asked for first, and kept. LEAVES of them are kept, and the oldest is
 * replaced. They share one key: whoever has it has the memory of this process. The extensions are complete enough for
 * verifiers that follow RFC 5280 to the letter (key identifiers, critical basic constraints and key usage).
 */
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

#define LEAVES 64u
#define DAY (24 * 3600)
#define AUTHORITY_DAYS 30
#define COMMON_NAME_MAX 64u /* ub-common-name */

struct authority {
    EVP_PKEY *key, *leaf_key;
    X509 *cert;
    struct {
        char name[DNS_NAME_MAX];
        X509 *cert;
    } leaves[LEAVES];
    unsigned next;
};

static int failed(struct brig_err *err, const char *what)
{
    ERR_clear_error();
    return err_set(err, BRIG_E_HOST, EIO, "%s", what);
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    if (!extension)
        return false;
    int ok = X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return ok == 1;
}

static bool set_serial(X509 *cert)
{
    uint8_t bytes[16];

    if (crypto_random(bytes, sizeof(bytes)) < 0)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and of one length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return ok;
}

/* What both kinds have in common: version, serial, times, key, the subject's common name. */
static X509 *new_cert(EVP_PKEY *key, const char *common_name)
{
    X509 *cert = X509_new();

    if (!cert)
        return NULL;
    bool ok = X509_set_version(cert, X509_VERSION_3) && set_serial(cert) &&
              X509_gmtime_adj(X509_getm_notBefore(cert), -DAY) &&
              X509_gmtime_adj(X509_getm_notAfter(cert), (long)AUTHORITY_DAYS * DAY) && X509_set_pubkey(cert, key);
    if (ok && strlen(common_name) < COMMON_NAME_MAX)
        ok = X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                                        (const unsigned char *)common_name, -1, -1, 0);
    if (!ok) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

static int put_constraints(const char *const *hosts, size_t n, struct buf *out)
{
    int r = buf_append_str(out, "critical");

    for (size_t i = 0; i < n && r == 0; i++)
        r = buf_printf(out, ",permitted;DNS:%s", hosts[i]);
    if (r == 0)
        r = buf_append_str(out, ",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0");
    return r;
}

/* The private number is the seed, reduced to 1 .. order - 1. */
static EVP_PKEY *key_of(const uint8_t seed[32])
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    OSSL_PARAM *params = NULL;
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    EC_POINT *point = group ? EC_POINT_new(group) : NULL;
    BIGNUM *number = BN_secure_new(), *most = BN_new();
    BN_CTX *numbers = BN_CTX_secure_new();
    uint8_t public_key[65];

    bool ok =
        ctx && build && point && number && most && numbers && BN_bin2bn(seed, 32, number) &&
        BN_copy(most, EC_GROUP_get0_order(group)) && BN_sub_word(most, 1) && BN_mod(number, number, most, numbers) &&
        BN_add_word(number, 1) && EC_POINT_mul(group, point, number, NULL, NULL, numbers) &&
        EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, public_key, sizeof(public_key), numbers) ==
            sizeof(public_key) &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, public_key, sizeof(public_key)) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, number);
    if (ok && (params = OSSL_PARAM_BLD_to_param(build)) && EVP_PKEY_fromdata_init(ctx) == 1)
        (void)!EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params);
    OSSL_PARAM_free(params); /* clears what is secret in it */
    OSSL_PARAM_BLD_free(build);
    BN_CTX_free(numbers);
    BN_clear_free(number);
    BN_free(most);
    EC_POINT_clear_free(point);
    EC_GROUP_free(group);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static int make_root(struct authority *authority, const char *const *hosts, size_t n, const uint8_t *seed,
                     struct brig_err *err)
{
    char random[17], name[COMMON_NAME_MAX];
    uint8_t bytes[32];
    AUTO_BUF struct buf constraints = BUF_INIT(1u << 20);

    int r = seed ? crypto_hmac_sha256(seed, 32, "name", 4, bytes) : crypto_random(bytes, sizeof(bytes));
    if (r < 0 || put_constraints(hosts, n, &constraints) < 0)
        return err_nomem(err);
    crypto_hex(bytes, 8, random);
    if (str_format(name, sizeof(name), "brig sandbox authority %s", random) < 0)
        return failed(err, "the authority's name is too long");
    X509 *cert = authority->cert = new_cert(authority->key, name);
    if (!cert || !X509_set_issuer_name(cert, X509_get_subject_name(cert)) ||
        !add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(cert, cert, NID_subject_key_identifier, "hash") ||
        !add_extension(cert, cert, NID_name_constraints, constraints.data) ||
        !X509_sign(cert, authority->key, EVP_sha256()))
        return failed(err, "the authority's certificate could not be made");
    return 0;
}

int authority_create(const char *const *hosts, size_t n, const uint8_t *seed, struct authority **ret,
                     struct brig_err *err)
{
    struct authority *authority = mem_zalloc(sizeof(*authority));

    if (!authority)
        return err_nomem(err);
    authority->key = seed ? key_of(seed) : EVP_EC_gen("P-256");
    authority->leaf_key = EVP_EC_gen("P-256");
    int r = authority->key && authority->leaf_key ? make_root(authority, hosts, n, seed, err)
                                                  : failed(err, "the authority's keys could not be made");
    if (r < 0) {
        authority_destroy(authority);
        return r;
    }
    *ret = authority;
    return 0;
}

void authority_destroy(struct authority *authority)
{
    if (!authority)
        return;
    for (size_t i = 0; i < LEAVES; i++)
        X509_free(authority->leaves[i].cert);
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key); /* OpenSSL clears private numbers */
    EVP_PKEY_free(authority->leaf_key);
    mem_free(authority);
}

int authority_put_pem(const struct authority *authority, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text;
    int r = -ENOMEM;

    if (bio && PEM_write_bio_X509(bio, authority->cert)) {
        long len = BIO_get_mem_data(bio, &text);
        r = len > 0 ? buf_append(out, text, (size_t)len) : -EIO;
    }
    BIO_free(bio);
    ERR_clear_error();
    return r;
}

static X509 *make_leaf(const struct authority *authority, const char *name)
{
    AUTO_BUF struct buf names = BUF_INIT(512);
    X509 *cert = new_cert(authority->leaf_key, name);

    if (!cert)
        return NULL;
    /* an empty subject makes the other names critical */
    bool named = X509_NAME_entry_count(X509_get_subject_name(cert)) > 0;
    if (buf_printf(&names, "%sDNS:%s", named ? "" : "critical,", name) < 0 ||
        !X509_set1_notAfter(cert, X509_get0_notAfter(authority->cert)) ||
        !X509_set_issuer_name(cert, X509_get_subject_name(authority->cert)) ||
        !add_extension(cert, authority->cert, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(cert, authority->cert, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(cert, authority->cert, NID_ext_key_usage, "serverAuth") ||
        !add_extension(cert, authority->cert, NID_subject_key_identifier, "hash") ||
        !add_extension(cert, authority->cert, NID_authority_key_identifier, "keyid:always") ||
        !add_extension(cert, authority->cert, NID_subject_alt_name, names.data) ||
        !X509_sign(cert, authority->key, EVP_sha256())) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

int authority_leaf(struct authority *authority, const char *name, X509 **ret_cert, EVP_PKEY **ret_key,
                   struct brig_err *err)
{
    size_t i = 0;

    while (i < LEAVES && !(authority->leaves[i].cert && str_eq(authority->leaves[i].name, name)))
        i++;
    if (i == LEAVES) {
        X509 *cert = make_leaf(authority, name);
        if (!cert)
            return failed(err, "a certificate could not be made");
        i = authority->next++ % LEAVES;
        X509_free(authority->leaves[i].cert);
        authority->leaves[i].cert = NULL;
        if (str_copy(authority->leaves[i].name, sizeof(authority->leaves[i].name), name) < 0) {
            X509_free(cert);
            return failed(err, "the name is too long");
        }
        authority->leaves[i].cert = cert;
    }
    *ret_cert = authority->leaves[i].cert;
    *ret_key = authority->leaf_key;
    return 0;
}
