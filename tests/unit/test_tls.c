/* SPDX-License-Identifier: Apache-2.0 */
/* TLS and plain on one port, reloading the certificate, and peers that break off. */
#include "server_rig.h"

#include "base/fd.h"
#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <fcntl.h>

static char cert_path[64], key_path[64];

/* A certificate of its own, with this serial number. */
static void make_certificate(long serial)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    FILE *file;

    assert_true(key && cert);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1,
                               -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    snprintf(cert_path, sizeof(cert_path), "/tmp/brig-test-tls.%d.crt", (int)getpid());
    snprintf(key_path, sizeof(key_path), "/tmp/brig-test-tls.%d.key", (int)getpid());
    file = fopen(cert_path, "we");
    assert_true(file && PEM_write_X509(file, cert) == 1);
    fclose(file);
    file = fopen(key_path, "we");
    assert_true(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* As the supervisor hands them over. */
static int set_tls(const char *cert, const char *key, struct brig_err *err)
{
    static char texts[2][65536];
    ssize_t cert_len = fd_read_file(AT_FDCWD, cert, texts[0], sizeof texts[0]);
    ssize_t key_len = fd_read_file(AT_FDCWD, key, texts[1], sizeof texts[1]);
    const struct tls_pem pem = {.cert = texts[0],
                                .cert_len = cert_len < 0 ? 0 : (size_t)cert_len,
                                .cert_name = cert,
                                .key = texts[1],
                                .key_len = key_len < 0 ? 0 : (size_t)key_len,
                                .key_name = key};

    return server_set_tls(rig.server, &pem, err);
}

static int setup(void **state)
{
    if (rig_setup(state) < 0)
        return -1;
    make_certificate(1);
    return set_tls(cert_path, key_path, NULL);
}

static int teardown(void **state)
{
    unlink(cert_path);
    unlink(key_path);
    return rig_teardown(state);
}

struct secure {
    struct client c;
    SSL_CTX *ctx;
    SSL *ssl;
};

static struct secure secure_open(int max_version)
{
    struct secure s = {.c = client_tcp(), .ctx = SSL_CTX_new(TLS_client_method())};

    SSL_CTX_set_max_proto_version(s.ctx, max_version);
    SSL_CTX_set_min_proto_version(s.ctx, TLS1_VERSION);
    SSL_CTX_set_security_level(s.ctx, 0);
    s.ssl = SSL_new(s.ctx);
    SSL_set_fd(s.ssl, s.c.fd);
    SSL_set_alpn_protos(s.ssl, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    SSL_set_mode(s.ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return s;
}

static void secure_done(struct secure *s)
{
    SSL_free(s->ssl);
    SSL_CTX_free(s->ctx);
    client_done(&s->c);
}
#define AUTO_SECURE __attribute__((cleanup(secure_done)))

/* Runs the loop until the call has succeeded; false when it failed for good. */
static bool retry(struct secure *s, int r)
{
    int code = SSL_get_error(s->ssl, r);

    ERR_clear_error();
    if (code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE)
        return false;
    assert_int_equal(loop_run_once(rig.loop, 1, NULL), 0);
    return true;
}

static bool secure_connect(struct secure *s)
{
    int r;

    while ((r = SSL_connect(s->ssl)) != 1) {
        if (!retry(s, r))
            return false;
    }
    return true;
}

static void secure_send_n(struct secure *s, const void *data, size_t len)
{
    size_t at = 0;

    while (at < len) {
        int r = SSL_write(s->ssl, (const char *)data + at, len - at > 65536 ? 65536 : (int)(len - at));
        if (r > 0)
            at += (size_t)r;
        else
            assert_true(retry(s, r));
    }
}

static void secure_send(struct secure *s, const char *text)
{
    secure_send_n(s, text, strlen(text));
}

static bool secure_read(struct secure *s, const char *text, size_t bytes)
{
    static char data[65536];
    uint64_t until = clock_mono_ns() + 5 * NS_PER_SEC;

    while (clock_mono_ns() < until) {
        int r = SSL_read(s->ssl, data, sizeof(data));
        if (r > 0)
            assert_int_equal(buf_append(&s->c.in, data, (size_t)r), 0);
        else if (!retry(s, r))
            s->c.eof = true;
        if (bytes > 0 ? s->c.in.len >= bytes : text ? client_has(&s->c, text) : s->c.eof)
            return true;
        if (s->c.eof)
            return false;
    }
    return false;
}

static void test_request(UNUSED void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        struct secure s AUTO_SECURE = secure_open(versions[i]);
        const unsigned char *alpn;
        unsigned alpn_len;
        assert_true(secure_connect(&s));
        SSL_get0_alpn_selected(s.ssl, &alpn, &alpn_len);
        assert_int_equal(alpn_len, 8);
        for (int k = 0; k < 3; k++) {
            secure_send(&s, GET("/peer") GET("/hello"));
            assert_true(secure_read(&s, "127.0.0.1 0 -1 1", 0));
            assert_true(secure_read(&s, "\r\n\r\nhello", 0));
            client_forget(&s.c);
        }
        secure_send(&s,
                    "GET /hello HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\nConnection: close\r\n\r\n");
        assert_true(secure_read(&s, NULL, 0));
        assert_true(client_has(&s.c, "hello"));
        assert_true((SSL_get_shutdown(s.ssl) & SSL_RECEIVED_SHUTDOWN) != 0);
    }
}

static void test_plain_on_the_same_port(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_unix();

    client_send(&c, GET("/peer"));
    client_expect(&c, "127.0.0.1 0 -1 0");
    client_send(&d, GET("/hello"));
    client_expect(&d, "hello");
}

static void test_bodies(UNUSED void **state)
{
    struct secure s AUTO_SECURE = secure_open(TLS1_3_VERSION);
    static char body[3000000];

    memset(body, 'b', sizeof(body));
    assert_true(secure_connect(&s));
    secure_send(&s, "PUT /upload HTTP/1.1\r\n" HOST "Content-Length: 3000000\r\n\r\n");
    secure_send_n(&s, body, sizeof(body));
    assert_true(secure_read(&s, "got it", 0));
    assert_int_equal(rig.body_bytes, 3000000);
    /* held in the middle of a record, then on */
    client_forget(&s.c);
    rig.hold = true;
    secure_send(&s, "PUT /upload HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    rig_run(10);
    secure_send(&s, "3\r\ndef\r\n0\r\n\r\n" GET("/hello"));
    rig_run(10);
    assert_int_equal(rig.body_bytes, 3000003);
    rig.hold = false;
    exchange_body_proceed(rig.kept);
    assert_true(secure_read(&s, "\r\n\r\nhello", 0));
    assert_int_equal(rig.body_bytes, 3000006);
    /* an answer larger than every buffer */
    client_forget(&s.c);
    rig.to_send = 20000000;
    secure_send(&s, GET("/big"));
    rig_run(30);
    assert_true(rig.to_send > 0);
    assert_true(secure_read(&s, NULL, 20000000));
    client_forget(&s.c);
    secure_send(&s, GET("/hello"));
    assert_true(secure_read(&s, "\r\n\r\nhello", 0));
}

static long serial_of(struct secure *s)
{
    X509 *cert = SSL_get1_peer_certificate(s->ssl);
    long serial = ASN1_INTEGER_get(X509_get_serialNumber(cert));

    X509_free(cert);
    return serial;
}

static void test_reload(UNUSED void **state)
{
    struct secure before AUTO_SECURE = secure_open(TLS1_3_VERSION), after AUTO_SECURE = secure_open(TLS1_3_VERSION);
    struct brig_err err;

    assert_true(secure_connect(&before));
    assert_int_equal(serial_of(&before), 1);
    make_certificate(2);
    assert_int_equal(set_tls(cert_path, key_path, &err), 0);
    assert_true(secure_connect(&after));
    assert_int_equal(serial_of(&after), 2);
    secure_send(&before, GET("/hello")); /* who is connected stays */
    assert_true(secure_read(&before, "hello", 0));
    /* what cannot be loaded changes nothing */
    assert_true(set_tls("/nonexistent", key_path, &err) < 0);
    assert_non_null(strstr(err.message, "/nonexistent"));
    assert_true(set_tls(cert_path, cert_path, &err) < 0);
    secure_send(&after, GET("/hello"));
    assert_true(secure_read(&after, "hello", 0));
}

static void test_old_version(UNUSED void **state)
{
    struct secure s AUTO_SECURE = secure_open(TLS1_1_VERSION);

    assert_false(secure_connect(&s));
    rig_run(10);
    assert_int_equal(server_connections(rig.server), 0);
}

static void test_broken_off(UNUSED void **state)
{
    struct client c AUTO_CLIENT = client_tcp(), d AUTO_CLIENT = client_tcp();
    struct secure s AUTO_SECURE = secure_open(TLS1_3_VERSION);

    /* a handshake that never ends, and one that is none */
    rig.http.header_timeout = 200;
    server_configure(rig.server, &rig.http);
    client_send_n(&c, "\x16\x03\x01\x01\x00\x01", 6);
    client_send_n(&d,
                  "\x16"
                  "garbage garbage garbage",
                  24);
    client_expect(&d, NULL);
    client_expect(&c, NULL);
    /* a client that vanishes in the middle of a stream */
    assert_true(secure_connect(&s));
    secure_send(&s, GET("/stream"));
    assert_true(secure_read(&s, "\r\n\r\n", 0));
    struct linger reset = {.l_onoff = 1};
    setsockopt(s.c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    base_close_fd(&s.c.fd);
    rig_run(10);
    assert_int_equal(rig.n_gone, 1);
    assert_int_equal(server_connections(rig.server), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_request),    T(test_plain_on_the_same_port), T(test_bodies), T(test_reload), T(test_old_version),
        T(test_broken_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
