/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSSL behind six functions. The BIO is our own, for one reason: OpenSSL's socket BIO uses write(), which raises
 * SIGPIPE where the peer has left; ours sends with MSG_NOSIGNAL. Buffers are released while a connection is idle.
 */
#include "http/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"

struct tls {
    SSL_CTX *ctx;
    BIO_METHOD *method;
    unsigned refs; /* itself and its connections: the BIO method must outlive them */
};

struct tls_conn {
    struct tls *tls;
    SSL *ssl;
    int fd;
    bool wants_out;
};

/* ---- the BIO ------------------------------------------------------------------------------------ */

static int bio_fd(BIO *bio)
{
    return ((const struct tls_conn *)BIO_get_data(bio))->fd;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    ssize_t n = RETRY(send(bio_fd(bio), data, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT));
    BIO_clear_retry_flags(bio);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    return (int)n;
}

static int bio_read(BIO *bio, char *data, int len)
{
    ssize_t n = RETRY(recv(bio_fd(bio), data, (size_t)len, MSG_DONTWAIT));
    BIO_clear_retry_flags(bio);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    return (int)n;
}

static long bio_ctrl(UNUSED BIO *bio, int command, UNUSED long number, UNUSED void *data)
{
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/* ---- certificates ------------------------------------------------------------------------------- */

static int select_alpn(UNUSED SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, UNUSED void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";

    if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    return SSL_TLSEXT_ERR_OK;
}

static int tls_error(struct brig_err *err, const char *what, const char *path)
{
    char reason[128] = "unknown";
    unsigned long code = ERR_peek_last_error();

    if (code != 0)
        ERR_error_string_n(code, reason, sizeof(reason));
    ERR_clear_error();
    return err_usage(err, "%s %s: %s", what, path, reason);
}

/* As SSL_CTX_use_certificate_chain_file() does it: the server's own first, then those that vouch for it. */
static bool use_chain(SSL_CTX *ctx, BIO *bio)
{
    X509 *cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
    bool ok = cert && SSL_CTX_use_certificate(ctx, cert) == 1 && SSL_CTX_clear_chain_certs(ctx) == 1;

    X509_free(cert);
    while (ok && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
        if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
            X509_free(cert);
            ok = false;
        }
    if (ok && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE)
        ERR_clear_error(); /* the end of the text */
    return ok && ERR_peek_last_error() == 0;
}

static bool use_key(SSL_CTX *ctx, BIO *bio)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    bool ok = key && SSL_CTX_use_PrivateKey(ctx, key) == 1;

    EVP_PKEY_free(key);
    return ok;
}

static bool use_text(SSL_CTX *ctx, const char *text, size_t len, bool (*use)(SSL_CTX *ctx, BIO *bio))
{
    BIO *bio = BIO_new_mem_buf(text, (int)len);
    bool ok = bio && use(ctx, bio);

    BIO_free(bio);
    return ok;
}

static int load(SSL_CTX *ctx, const struct tls_pem *pem, struct brig_err *err)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_CLEANSE_PLAINTEXT | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF); /* where messages end, HTTP says */
#endif
    SSL_CTX_set_mode(ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
    ERR_clear_error();
    if (!use_text(ctx, pem->cert, pem->cert_len, use_chain))
        return tls_error(err, "certificate", pem->cert_name);
    if (!use_text(ctx, pem->key, pem->key_len, use_key))
        return tls_error(err, "key", pem->key_name);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return tls_error(err, "the key does not belong to the certificate", pem->cert_name);
    return 0;
}

static void tls_unref(struct tls *tls)
{
    if (--tls->refs > 0)
        return;
    SSL_CTX_free(tls->ctx);
    BIO_meth_free(tls->method);
    mem_free(tls);
}

int tls_create(const struct tls_pem *pem, struct tls **ret, struct brig_err *err)
{
    struct tls *tls = mem_zalloc(sizeof(*tls));

    if (!tls)
        return err_nomem(err);
    tls->refs = 1;
    tls->ctx = SSL_CTX_new(TLS_server_method());
    tls->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "brig socket");
    if (!tls->ctx || !tls->method || !BIO_meth_set_write(tls->method, bio_write) ||
        !BIO_meth_set_read(tls->method, bio_read) || !BIO_meth_set_ctrl(tls->method, bio_ctrl))
        return tls_unref(tls), err_nomem(err);
    int r = load(tls->ctx, pem, err);
    if (r < 0)
        return tls_unref(tls), r;
    *ret = tls;
    return 0;
}

void tls_destroy(struct tls *tls)
{
    if (tls)
        tls_unref(tls);
}

/* ---- connections -------------------------------------------------------------------------------- */

int tls_accept(struct tls *tls, int fd, struct tls_conn **ret)
{
    struct tls_conn *conn = mem_zalloc(sizeof(*conn));
    BIO *bio = NULL;

    if (!conn)
        return -ENOMEM;
    conn->tls = tls;
    conn->fd = fd;
    tls->refs++;
    conn->ssl = SSL_new(tls->ctx);
    bio = BIO_new(tls->method);
    if (!conn->ssl || !bio) {
        BIO_free(bio);
        tls_free(conn);
        ERR_clear_error();
        return -ENOMEM;
    }
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(conn->ssl, bio, bio);
    SSL_set_accept_state(conn->ssl);
    *ret = conn;
    return 0;
}

void tls_free(struct tls_conn *conn)
{
    if (!conn)
        return;
    SSL_free(conn->ssl);
    tls_unref(conn->tls);
    mem_free(conn);
}

/* What a call that gave no bytes means. OpenSSL's queue of errors is per thread and must not be left full. */
static ssize_t outcome(struct tls_conn *conn, int r)
{
    int saved = errno;
    int code = SSL_get_error(conn->ssl, r);

    ERR_clear_error();
    conn->wants_out = code == SSL_ERROR_WANT_WRITE;
    switch (code) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return saved != 0 ? -saved : -ECONNRESET;
    default: return -EPROTO;
    }
}

ssize_t tls_read(struct tls_conn *conn, void *data, size_t size)
{
    size_t n;

    errno = 0;
    int r = SSL_read_ex(conn->ssl, data, size, &n);
    return r == 1 ? (ssize_t)n : outcome(conn, r);
}

ssize_t tls_write(struct tls_conn *conn, const void *data, size_t len)
{
    size_t n;

    errno = 0;
    int r = SSL_write_ex(conn->ssl, data, len, &n);
    if (r == 1)
        return (ssize_t)n;
    ssize_t out = outcome(conn, r);
    conn->wants_out = false; /* the caller waits for the socket anyway */
    return out == 0 ? -EPIPE : out;
}

bool tls_pending(const struct tls_conn *conn)
{
    return SSL_pending(conn->ssl) > 0;
}

bool tls_ready(const struct tls_conn *conn)
{
    return SSL_is_init_finished(conn->ssl) == 1;
}

bool tls_wants_out(const struct tls_conn *conn)
{
    return conn->wants_out;
}

void tls_shutdown(struct tls_conn *conn)
{
    if (tls_ready(conn))
        SSL_shutdown(conn->ssl);
    ERR_clear_error();
}
