/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_tls.c: OpenSSL under a brokered connection. Towards the sandbox it uses a certificate of the sandbox's own
 * authority, only for the name of the connection. Towards the world it verifies by name against the host's bundle. It
 * speaks TLS 1.2 and later and HTTP/1.1 only, without renegotiation and 0-RTT.
 *
 * The BIO is the broker's own: it passes on what was read before the broker took over, counts bytes on the wire, and
 * sends without SIGPIPE. What an upstream sent may carry a secret, so OpenSSL is told to cleanse decrypted records;
 * what is sent is encrypted in place in its buffer.
 */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/broker_priv.h"

static const unsigned char alpn[] = "\x08http/1.1";

/* ---- the BIO -------------------------------------------------------------------------------------------- */

static ssize_t wire_read(struct bside *side, void *data, size_t size)
{
    ssize_t n;

    if (side->first_len > 0) {
        size_t take = size < side->first_len ? size : side->first_len;
        memcpy(data, side->first, take);
        side->first += take;
        side->first_len -= take;
        return (ssize_t)take;
    }
    n = RETRY(recv(side->fd, data, size, MSG_DONTWAIT));
    if (n > 0)
        side->bytes_in += (uint64_t)n;
    side->ended = n == 0;
    return n;
}

static ssize_t wire_write(struct bside *side, const void *data, size_t len)
{
    ssize_t n = RETRY(send(side->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT));
    if (n > 0)
        side->bytes_out += (uint64_t)n;
    return n;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    ssize_t n = wire_write(BIO_get_data(bio), data, (size_t)len);

    BIO_clear_retry_flags(bio);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    return (int)n;
}

static int bio_read(BIO *bio, char *data, int len)
{
    ssize_t n = wire_read(BIO_get_data(bio), data, (size_t)len);

    BIO_clear_retry_flags(bio);
    if (n < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    return (int)n;
}

/* Without an answer to BIO_CTRL_EOF the end of a stream would be an error to OpenSSL 3. */
static long bio_ctrl(BIO *bio, int command, UNUSED long number, UNUSED void *data)
{
    if (command == BIO_CTRL_EOF)
        return ((const struct bside *)BIO_get_data(bio))->ended;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/* One for the process: sides come and go with any broker. */
static BIO_METHOD *wire_method(void)
{
    static BIO_METHOD *method;

    if (method)
        return method;
    BIO_METHOD *made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "brig wire");
    if (made && BIO_meth_set_write(made, bio_write) && BIO_meth_set_read(made, bio_read) &&
        BIO_meth_set_ctrl(made, bio_ctrl))
        method = made;
    else
        BIO_meth_free(made);
    return method;
}

/* ---- contexts ------------------------------------------------------------------------------------------- */

static int select_alpn(UNUSED SSL *ssl, const unsigned char **out, unsigned char *out_len, const unsigned char *in,
                       unsigned in_len, UNUSED void *arg)
{
    if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, alpn, sizeof(alpn) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK; /* a client without ALPN's http/1.1 is told nothing, and speaks it or fails */
    return SSL_TLSEXT_ERR_OK;
}

/* Core has compared the hello's name; this is the name that OpenSSL itself read. */
static int check_name(SSL *ssl, int *alert, UNUSED void *arg)
{
    const struct bside *side = SSL_get_app_data(ssl);
    const char *said = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    if (said ? strcasecmp(said, side->name) == 0 : side->may_lack_name)
        return SSL_TLSEXT_ERR_OK;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static void set_common(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF); /* where messages end, HTTP says */
    SSL_CTX_set_read_ahead(ctx, 1);                         /* one call for a record, not one for its head too */
    SSL_CTX_set_mode(ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
}

static SSL_CTX *new_server(void)
{
    static const unsigned char id[] = "brig";
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (!ctx)
        return NULL;
    set_common(ctx);
    SSL_CTX_set_session_id_context(ctx, id, sizeof(id) - 1);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets: nothing is kept here */
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, NULL);
    SSL_CTX_set_tlsext_servername_callback(ctx, check_name);
    return ctx;
}

static int add_bundle(SSL_CTX *ctx, const char *pem, size_t len)
{
    BIO *bio = len <= INT32_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    int n = 0;

    if (!bio)
        return -ENOMEM;
    for (;;) {
        X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (!cert)
            break;
        n += X509_STORE_add_cert(store, cert);
        X509_free(cert);
    }
    BIO_free(bio);
    ERR_clear_error();
    return n;
}

static SSL_CTX *new_client(const char *pem, size_t len)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    if (!ctx)
        return NULL;
    set_common(ctx);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_alpn_protos(ctx, alpn, sizeof(alpn) - 1) != 0 || add_bundle(ctx, pem, len) < 0) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    return ctx;
}

/* Reading a bundle of 150 certificates takes milliseconds, so that all brokers share what was read, until the text is
 * another. */
static SSL_CTX *shared_client(const struct egress *egress)
{
    static struct {
        char *pem;
        size_t len;
        SSL_CTX *ctx;
    } shared;
    size_t len;
    const char *pem = egress_ca(egress, &len);

    if (shared.ctx && shared.len == len && memcmp(shared.pem, pem, len) == 0)
        return shared.ctx;
    char *copy = mem_alloc(len + 1);
    SSL_CTX *ctx = copy ? new_client(pem, len) : NULL;
    if (!ctx) {
        mem_free(copy);
        return NULL;
    }
    memcpy(copy, pem, len);
    copy[len] = '\0';
    SSL_CTX_free(shared.ctx); /* brokers that use it have references */
    mem_free(shared.pem);
    shared.pem = copy;
    shared.len = len;
    shared.ctx = ctx;
    return ctx;
}

static void drop_sessions(struct broker *broker)
{
    for (size_t i = 0; i < BROKER_SESSIONS; i++) {
        SSL_SESSION_free(broker->sessions[i].session);
        broker->sessions[i].session = NULL;
    }
}

/* The present bundle's context. Sessions that another bundle has verified are not resumed. */
static int use_client(struct broker *broker, struct brig_err *err)
{
    SSL_CTX *ctx = shared_client(broker->egress);

    if (!ctx)
        return err_nomem(err);
    if (broker->client == ctx)
        return 0;
    drop_sessions(broker);
    SSL_CTX_free(broker->client);
    SSL_CTX_up_ref(ctx);
    broker->client = ctx;
    return 0;
}

int broker_tls_create(struct broker *broker, struct brig_err *err)
{
    broker->server = new_server();
    if (!broker->server || !wire_method()) {
        ERR_clear_error();
        return err_nomem(err);
    }
    return use_client(broker, err);
}

void broker_tls_destroy(struct broker *broker)
{
    drop_sessions(broker);
    SSL_CTX_free(broker->server);
    SSL_CTX_free(broker->client);
    broker->server = broker->client = NULL;
}

/* ---- sides ---------------------------------------------------------------------------------------------- */

static int bside_open(struct bside *side, SSL_CTX *ctx, struct brig_err *err)
{
    BIO *bio = BIO_new(wire_method());

    side->ssl = SSL_new(ctx);
    if (!side->ssl || !bio) {
        BIO_free(bio);
        ERR_clear_error();
        return err_nomem(err);
    }
    BIO_set_data(bio, side);
    BIO_set_init(bio, 1);
    SSL_set_bio(side->ssl, bio, bio);
    SSL_set_app_data(side->ssl, side);
    return 0;
}

void bside_init(struct bside *side, int fd)
{
    int on = 1;

    *side = (struct bside){.fd = fd, .source = {.fd = -1}, .ready = true};
    if (fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        errno = 0; /* a socket pair of a test has none */
}

int bside_accept(struct bside *side, struct broker *broker, const char *name, bool may_lack_name, struct brig_err *err)
{
    X509 *cert;
    EVP_PKEY *key;
    int r = authority_leaf(broker->authority, name, &cert, &key, err);

    if (r < 0)
        return r;
    side->name = name;
    side->may_lack_name = may_lack_name;
    side->ready = false;
    r = bside_open(side, broker->server, err);
    if (r < 0)
        return r;
    if (SSL_use_certificate(side->ssl, cert) != 1 || SSL_use_PrivateKey(side->ssl, key) != 1) {
        ERR_clear_error();
        return err_set(err, BRIG_E_HOST, EIO, "the certificate for %s cannot be used", name);
    }
    SSL_set_accept_state(side->ssl);
    return 0;
}

static SSL_SESSION **find_session(struct broker *broker, const char *name, uint16_t port)
{
    for (size_t i = 0; i < BROKER_SESSIONS; i++) {
        if (broker->sessions[i].session && broker->sessions[i].port == port && str_eq(broker->sessions[i].name, name))
            return &broker->sessions[i].session;
    }
    return NULL;
}

int bside_connect(struct bside *side, struct broker *broker, const char *name, uint16_t port, struct brig_err *err)
{
    int r = use_client(broker, err);

    if (r < 0)
        return r;
    side->name = name;
    side->ready = false;
    r = bside_open(side, broker->client, err);
    if (r < 0)
        return r;
    SSL_set_hostflags(side->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_SESSION **session = find_session(broker, name, port);
    if (SSL_set1_host(side->ssl, name) != 1 || SSL_set_tlsext_host_name(side->ssl, name) != 1 ||
        (session && SSL_set_session(side->ssl, *session) != 1)) {
        ERR_clear_error();
        return err_nomem(err);
    }
    SSL_set_connect_state(side->ssl);
    return 0;
}

void bside_keep_session(struct bside *side, struct broker *broker, const char *name, uint16_t port)
{
    SSL_SESSION *session = side->ssl && side->ready ? SSL_get1_session(side->ssl) : NULL;

    if (!session)
        return;
    SSL_SESSION **old = find_session(broker, name, port);
    if (!SSL_SESSION_is_resumable(session) || SSL_get_SSL_CTX(side->ssl) != broker->client) {
        SSL_SESSION_free(session);
        return;
    }
    if (!old) {
        unsigned i = broker->next_session++ % BROKER_SESSIONS;
        old = &broker->sessions[i].session;
        broker->sessions[i].port = port;
        if (str_copy(broker->sessions[i].name, sizeof(broker->sessions[i].name), name) < 0) {
            SSL_SESSION_free(session);
            return;
        }
    }
    SSL_SESSION_free(*old);
    *old = session;
}

/* A call that must wait; again in the same run it would only ask the kernel once more. */
static bool still_waits(struct bside *side, enum bside_waits waits)
{
    side->want_in = side->want_in || waits == WAIT_IN;
    side->want_out = side->want_out || waits == WAIT_OUT;
    return waits != WAIT_NOT;
}

/* What a call that gave no bytes means. OpenSSL's queue of errors is per thread and must not be left full. */
static ssize_t outcome(struct bside *side, int r, int saved)
{
    switch (SSL_get_error(side->ssl, r)) {
    case SSL_ERROR_WANT_READ: side->want_in = true; return -EAGAIN;
    case SSL_ERROR_WANT_WRITE: side->want_out = true; return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return saved != 0 ? -saved : -ECONNRESET;
    default: return -EPROTO;
    }
}

static int handshake_failed(const struct bside *side, ssize_t n, struct brig_err *err)
{
    long verified = SSL_get_verify_result(side->ssl);
    unsigned long code = ERR_peek_last_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;

    if (!SSL_is_server(side->ssl) && verified != X509_V_OK)
        err_set(err, BRIG_E_REFUSED, 0, "the certificate of %s is not good: %s", side->name,
                X509_verify_cert_error_string(verified));
    else
        err_set(err, BRIG_E_HOST, 0, "TLS with %s: %s", side->name,
                reason   ? reason
                : n == 0 ? "closed"
                         : strerrordesc_np((int)-n));
    ERR_clear_error();
    return n == 0 ? -ECONNRESET : (int)n;
}

int bside_handshake(struct bside *side, struct brig_err *err)
{
    if (side->ready)
        return 0;
    errno = 0;
    int r = SSL_do_handshake(side->ssl);
    if (r == 1) {
        side->ready = true;
        return 0;
    }
    ssize_t n = outcome(side, r, errno);
    if (n == -EAGAIN) {
        ERR_clear_error();
        return -EAGAIN;
    }
    return handshake_failed(side, n, err);
}

ssize_t bside_read(struct bside *side, void *data, size_t size)
{
    size_t n = 0;

    if (still_waits(side, side->read_waits))
        return -EAGAIN;
    if (!side->ssl) {
        ssize_t got = wire_read(side, data, size);
        if (got < 0 && errno == EAGAIN) {
            side->want_in = true;
            side->read_waits = WAIT_IN;
        }
        return got < 0 ? -errno : got;
    }
    errno = 0;
    int r = SSL_read_ex(side->ssl, data, size, &n);
    if (r == 1)
        return (ssize_t)n;
    ssize_t out = outcome(side, r, errno);
    if (out == -EAGAIN)
        side->read_waits = SSL_want_write(side->ssl) ? WAIT_OUT : WAIT_IN;
    ERR_clear_error();
    return out;
}

ssize_t bside_write(struct bside *side, const void *data, size_t len)
{
    size_t n = 0;

    if (still_waits(side, side->write_waits))
        return -EAGAIN;
    if (!side->ssl) {
        ssize_t put = wire_write(side, data, len);
        if (put < 0 && errno == EAGAIN) {
            side->want_out = true;
            side->write_waits = WAIT_OUT;
        }
        return put < 0 ? -errno : put;
    }
    errno = 0;
    int r = SSL_write_ex(side->ssl, data, len, &n);
    if (r == 1)
        return (ssize_t)n;
    ssize_t out = outcome(side, r, errno);
    if (out == -EAGAIN)
        side->write_waits = SSL_want_read(side->ssl) ? WAIT_IN : WAIT_OUT;
    ERR_clear_error();
    return out == 0 ? -EPIPE : out;
}

void bside_shutdown(struct bside *side)
{
    if (side->ssl && side->ready)
        SSL_shutdown(side->ssl);
    ERR_clear_error();
    if (side->fd >= 0)
        shutdown(side->fd, SHUT_WR);
}

void bside_close(struct bside *side, struct loop *loop)
{
    loop_remove(loop, &side->source);
    SSL_free(side->ssl);
    side->ssl = NULL;
    if (side->fd >= 0)
        close(take_fd(&side->fd));
    mem_free(side->first_memory);
    side->first_memory = NULL;
    side->first_len = 0;
    side->ready = false;
    side->events = 0;
}
