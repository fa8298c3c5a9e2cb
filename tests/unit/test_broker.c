/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's pure parts: the scanner against every way of cutting a stream, heads written anew, the authority, and
 * memory that runs out. */
#include "unit.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/base64.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "crypto/crypto.h"
#include "egress/broker_priv.h"

#define MARK_A "brig-secret-00000000000000000000000000000aaa"
#define MARK_B "brig-secret-00000000000000000000000000000bbb"
#define VALUE "s3cr3t/Val+ue=with&odd\"bytes"

/* What process.c would give. */
const char *egress_ca(UNUSED const struct egress *egress, size_t *ret_len)
{
    *ret_len = 0;
    return "";
}

static struct broker_secret secrets[2];
static struct broker broker = {.secrets = secrets, .n_secrets = 2};
static struct values values;

/* A for its place, B for another host. */
static void set_up(enum broker_where where, const char *field, const char *format, const char *value)
{
    memset(secrets, 0, sizeof(secrets));
    memcpy(secrets[0].name, "A", 2);
    memcpy(secrets[1].name, "B", 2);
    memcpy(secrets[0].placeholder, MARK_A, sizeof(MARK_A));
    memcpy(secrets[1].placeholder, MARK_B, sizeof(MARK_B));
    for (size_t i = 0; i < 2; i++) {
        secrets[i].rule.where = where;
        unit_put(secrets[i].rule.field, field, strlen(field));
        unit_put(secrets[i].rule.format, format, strlen(format));
        secrets[i].rule.n_hosts = 1;
        unit_put(secrets[i].rule.hosts[0].name, i == 0 ? "a.test" : "b.test", 7);
        secrets[i].rule.hosts[0].port = 443;
    }
    values = (struct values){.n = 1, .items = {{&secrets[0], (uint8_t *)(uintptr_t)value, strlen(value)}}};
}

/* ---- the scanner ---------------------------------------------------------------------------------------- */

static void scan_in_pieces(const char *text, size_t piece, const char *want, uint64_t hits)
{
    struct scan scan;
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    size_t len = strlen(text);

    assert_int_equal(scan_init(&scan, &values), 0);
    for (size_t at = 0; at < len; at += piece)
        assert_int_equal(scan_feed(&scan, text + at, len - at < piece ? len - at : piece, false, &out), 0);
    assert_int_equal(scan_feed(&scan, "", 0, true, &out), 0);
    assert_int_equal(scan.hits, hits);
    assert_string_equal(out.data ? out.data : "", want);
    assert_false(scan_holds(&scan));
    scan_done(&scan);
}

static void expect_scan(const char *text, const char *want, uint64_t hits)
{
    for (size_t piece = 1; piece <= strlen(text) + 1; piece++)
        scan_in_pieces(text, piece, want, hits);
}

static void test_scan_spellings(UNUSED void **state)
{
    static const char *const spellings[] = {
        VALUE,
        "s3cr3t%2FVal%2Bue%3Dwith%26odd%22bytes",
        "%73%33%63%72%33%74%2f%56%61%6c%2b%75%65%3d%77%69%74%68%26%6f%64%64%22%62%79%74%65%73",
        "s3cr3t\\/Val+ue=with&odd\\\"bytes",
        "s3cr3t\\u002fVal\\u002Bue=with\\u0026odd\\u0022bytes",
        "s3cr3t/Val\\x2bue=with&odd\\\"bytes",
        "s3cr3t/Val+ue=with&amp;odd&quot;bytes",
        "s3cr3t&#47;Val&#x2B;ue&#61;with&amp;odd&#34;bytes",
        "7333637233742f56616c2b75653d77697468266f6464226279746573",
        "7333637233742F56616C2B75653D77697468266F6464226279746573",
    };
    char text[512], want[512];

    set_up(BROKER_HEADER, "Authorization", "Bearer %s", VALUE);
    for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
        assert_true(snprintf(text, sizeof(text), "[%s] s3cr %s!", spellings[i], spellings[i]) > 0);
        assert_true(snprintf(want, sizeof(want), "[%s] s3cr %s!", MARK_A, MARK_A) > 0);
        expect_scan(text, want, 2);
    }
}

/* Inside a longer text the letters at the seams carry bits of both; they stay, and what they say about the value is
 * less than a byte at each end. */
static void test_scan_base64(UNUSED void **state)
{
    set_up(BROKER_BASIC_PASSWORD, "", "%s", VALUE);
    for (size_t before = 0; before < 7; before++) {
        for (size_t after = 0; after < 4; after++) {
            char plain[128], text[256], safe[256];
            AUTO_BUF struct buf encoded = BUF_INIT(512), out = BUF_INIT(1024);
            struct scan scan;
            int n = snprintf(plain, sizeof(plain), "%.*s%s%.*s", (int)before, "user12:", VALUE, (int)after, "xyz");
            assert_int_equal(base64_append(&encoded, plain, (size_t)n), 0);
            memcpy(text, encoded.data, encoded.len + 1);
            for (size_t i = 0; i <= encoded.len; i++)
                safe[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
            for (size_t k = 0; k < 2; k++) {
                out.len = 0;
                assert_int_equal(scan_init(&scan, &values), 0);
                for (size_t i = 0; i < encoded.len; i++)
                    assert_int_equal(scan_feed(&scan, (k == 0 ? text : safe) + i, 1, false, &out), 0);
                assert_int_equal(scan_feed(&scan, "", 0, true, &out), 0);
                assert_int_equal(scan.hits, 1);
                assert_non_null(strstr(out.data, MARK_A));
                assert_true(out.len - PLACEHOLDER_LEN <= encoded.len - sizeof(VALUE) / 3 * 4 + 4);
                scan_done(&scan);
            }
        }
    }
}

static void test_scan_passes_what_only_begins_like_it(UNUSED void **state)
{
    set_up(BROKER_HEADER, "Authorization", "Bearer %s", VALUE);
    expect_scan("s3cr3t/Val+ue=with&odd\"byte", "s3cr3t/Val+ue=with&odd\"byte", 0);
    expect_scan("s3cr3s3cr3t/Va %s3 \\u &am %4", "s3cr3s3cr3t/Va %s3 \\u &am %4", 0);
    expect_scan("733363723374", "733363723374", 0);
    expect_scan("", "", 0);
    /* overlapping beginnings */
    expect_scan("s3crs3cr3t/Val+ue=with&odd\"bytess3c", "s3cr" MARK_A "s3c", 1);
}

static void test_scan_two_values(UNUSED void **state)
{
    set_up(BROKER_HEADER, "X", "%s", "abcdefgh");
    values.items[1] = (struct value){&secrets[1], (uint8_t *)(uintptr_t) "abcdefghijkl", 12};
    values.n = 2;
    expect_scan("abcdefghijk abcdefghijkl abcdefgh", MARK_A "ijk " MARK_B " " MARK_A, 3);
}

static void test_scan_short_values_are_left_alone(UNUSED void **state)
{
    set_up(BROKER_HEADER, "X", "%s", "abc");
    expect_scan("abcabc", "abcabc", 0);
}

static void test_scan_pause(UNUSED void **state)
{
    struct scan scan;
    AUTO_BUF struct buf out = BUF_INIT(4096);

    set_up(BROKER_HEADER, "X", "%s", VALUE);
    assert_int_equal(scan_init(&scan, &values), 0);
    assert_int_equal(scan_feed(&scan, "x s3cr3t/Val+ue=", 16, false, &out), 0);
    assert_string_equal(out.data, "x ");
    assert_true(scan_holds(&scan));
    for (int i = 0; i < 5; i++) /* however long it takes */
        assert_int_equal(scan_pause(&scan, &out), 0);
    assert_string_equal(out.data, "x s3cr3t/"); /* a quarter of it */
    assert_int_equal(scan_feed(&scan, "with&odd\"bytes.", 15, false, &out), 0);
    assert_string_equal(out.data, "x s3cr3t/" MARK_A ".");
    out.len = 0;
    assert_int_equal(scan_feed(&scan, "s3c", 3, false, &out), 0);
    assert_int_equal(scan_pause(&scan, &out), 0);
    assert_false(scan_holds(&scan));
    assert_int_equal(scan_feed(&scan, "onds", 4, true, &out), 0);
    assert_string_equal(out.data, "s3conds");
    scan_done(&scan);
}

/* ---- heads ---------------------------------------------------------------------------------------------- */

static struct http_head head;
static char head_text[8192];

static int rewritten(const char *text, char *out, size_t size, struct rewrite_report *report, struct brig_err *err)
{
    struct rewrite rewrite = {.broker = &broker, .values = &values, .name = "a.test", .port = 443, .default_port = 443};
    struct wbuf buf = WBUF_INIT(BROKER_OUT_MAX);
    size_t scanned = 0;

    assert_true(strlen(text) < sizeof(head_text));
    memcpy(head_text, text, strlen(text) + 1);
    assert_true(http_request_parse(head_text, strlen(text), NULL, &scanned, &head, err) > 0);
    int r = rewrite_request(&rewrite, &head, &buf, report, err);
    assert_true(wbuf_size(&buf) < size);
    if (wbuf_size(&buf) > 0)
        memcpy(out, wbuf_at(&buf), wbuf_size(&buf));
    out[wbuf_size(&buf)] = '\0';
    wbuf_done(&buf);
    return r;
}

static void expect_head(const char *text, const char *want, size_t used, size_t foreign)
{
    struct rewrite_report report;
    struct brig_err err = {0};
    char out[8192];

    assert_int_equal(rewritten(text, out, sizeof(out), &report, &err), 0);
    assert_string_equal(out, want);
    assert_int_equal(report.n_used, used);
    assert_int_equal(report.n_foreign, foreign);
}

#define FIRST "Host: a.test\r\nAccept-Encoding: identity\r\n"

static void test_rewrite_header(UNUSED void **state)
{
    set_up(BROKER_HEADER, "Authorization", "Bearer %s", VALUE);
    expect_head("GET /x HTTP/1.1\r\nhost: A.Test\r\nAUTHORIZATION: Bearer " MARK_A "\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "AUTHORIZATION: Bearer " VALUE "\r\n\r\n", 1, 0);
    expect_head("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: " MARK_A "\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "Authorization: Bearer " VALUE "\r\n\r\n", 1, 0);
    /* what the rule does not say around it, and a second one, stay placeholders */
    expect_head("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: token=" MARK_A "," MARK_A "\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "Authorization: token=" MARK_A "," MARK_A "\r\n\r\n", 0, 1);
    expect_head("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: bearer " MARK_A "\r\nAuthorization: Bearer " MARK_A
                "\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "Authorization: bearer " VALUE "\r\nAuthorization: Bearer " MARK_A
                "\r\n\r\n",
                1, 1);
    expect_head("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: Digest username=\"AAAA" MARK_A "\"\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "Authorization: Digest username=\"AAAA" MARK_A "\"\r\n\r\n", 0, 1);
    /* no pieces of an answer */
    expect_head(
        "GET /x HTTP/1.1\r\nHost: a.test\r\nRange: bytes=0-3\r\nIf-Range: \"x\"\r\nAuthorization: Bearer " MARK_A
        "\r\n\r\n",
        "GET /x HTTP/1.1\r\n" FIRST "Authorization: Bearer " VALUE "\r\n\r\n", 1, 0);
    /* of another host, in another header, cut short */
    expect_head("GET /x HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer " MARK_B "\r\nX-A: " MARK_A
                "\r\nX-B: brig-secret-00\r\n\r\n",
                "GET /x HTTP/1.1\r\n" FIRST "Authorization: Bearer " MARK_B "\r\nX-A: " MARK_A
                "\r\nX-B: brig-secret-00\r\n\r\n",
                0, 2);
}

static void test_rewrite_drops_what_is_of_one_hop(UNUSED void **state)
{
    set_up(BROKER_HEADER, "Authorization", "%s", VALUE);
    expect_head(
        "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
        "Upgrade: h2c\r\n"
        "Accept-Encoding: gzip\r\nProxy-Authorization: x\r\nX-Stays: 1\r\n\r\n",
        "GET / HTTP/1.1\r\n" FIRST "X-Stays: 1\r\n\r\n", 0, 0);
    expect_head("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 007\r\nExpect: 100-continue\r\n\r\n",
                "POST / HTTP/1.1\r\n" FIRST "Content-Length: 7\r\nExpect: 100-continue\r\n\r\n", 0, 0);
    expect_head("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
                "POST / HTTP/1.1\r\n" FIRST "Transfer-Encoding: chunked\r\n\r\n", 0, 0);
    expect_head("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
                "POST / HTTP/1.1\r\n" FIRST "Content-Length: 0\r\n\r\n", 0, 0);
    expect_head(
        "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: "
        "x\r\n\r\n",
        "GET / HTTP/1.1\r\n" FIRST "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 0, 0);
}

static void test_rewrite_query_and_basic(UNUSED void **state)
{
    set_up(BROKER_QUERY, "key", "%s", VALUE);
    expect_head("GET /" MARK_A "?a=" MARK_A "&key=" MARK_A "&" MARK_A " HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /" MARK_A "?a=" MARK_A "&key=s3cr3t%2FVal%2Bue%3Dwith%26odd%22bytes&" MARK_A " HTTP/1.1\r\n" FIRST
                "\r\n",
                1, 1);
    expect_head("GET /?KEY=" MARK_A "&key=aa" MARK_A " HTTP/1.1\r\nHost: a.test\r\n\r\n",
                "GET /?KEY=" MARK_A "&key=aa" MARK_A " HTTP/1.1\r\n" FIRST "\r\n", 0, 1);
    set_up(BROKER_BASIC_PASSWORD, "", "%s", "pw");
    expect_head(
        "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: basic bWU6YnJpZy1zZWNyZXQtMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA"
        "wMDBhYWE=\r\n\r\n",
        "GET / HTTP/1.1\r\n" FIRST "Authorization: Basic bWU6cHc=\r\n\r\n", 1, 0);
    /* not base64: left as it is */
    expect_head("GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic !!\r\n\r\n",
                "GET / HTTP/1.1\r\n" FIRST "Authorization: Basic !!\r\n\r\n", 0, 0);
}

static void test_rewrite_refuses_values_that_are_no_header(UNUSED void **state)
{
    static const char *const bad[] = {"x\r\ny: z", "x\ny", "x\ry", "x\001", "\177"};
    struct rewrite_report report;
    struct brig_err err = {0};
    char out[8192];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        set_up(BROKER_HEADER, "Authorization", "%s", bad[i]);
        assert_int_equal(rewritten("GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: " MARK_A "\r\n\r\n", out,
                                   sizeof(out), &report, &err),
                         -EPERM);
        assert_int_equal(report.status, 502);
        assert_string_equal(out, "");
    }
    /* a NUL inside */
    set_up(BROKER_HEADER, "Authorization", "%s", "x");
    values.items[0].data = (uint8_t *)(uintptr_t) "x\0y";
    values.items[0].len = 3;
    assert_int_equal(rewritten("GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: " MARK_A "\r\n\r\n", out, sizeof(out),
                               &report, &err),
                     -EPERM);
}

static void test_reply(UNUSED void **state)
{
    static const struct {
        const char *text, *want;
        unsigned minor;
        bool close;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\nAlt-Svc: h3\r\n\r\n",
         "HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n", 1, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 0, true},
        {"HTTP/1.1 302 " VALUE "\r\nLocation: /?t=" VALUE "\r\n"
         "Content-Length: 0\r\n\r\n",
         "HTTP/1.1 302 " MARK_A "\r\nLocation: /?t=" MARK_A "\r\nContent-Length: 0\r\n\r\n", 1, false},
        {"HTTP/1.1 204 x\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n", "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n", 1,
         true},
        {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", NULL, 1, false},
        {"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n\r\n",
         "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 1, false},
    };

    set_up(BROKER_HEADER, "Authorization", "%s", VALUE);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(4096);
        struct scan scan;
        struct brig_err err = {0};
        enum reply_body body;
        size_t scanned = 0;

        memcpy(head_text, cases[i].text, strlen(cases[i].text) + 1);
        assert_true(http_response_parse(head_text, strlen(cases[i].text), "GET", NULL, &scanned, &head, &err) > 0);
        assert_int_equal(scan_init(&scan, &values), 0);
        assert_int_equal(rewrite_reply(&head, &scan, cases[i].minor, cases[i].close, false, &out, &body, &err),
                         cases[i].want ? 0 : -EPERM);
        if (cases[i].want)
            assert_string_equal(out.data, cases[i].want);
        scan_done(&scan);
    }
}

static unsigned n_found;
static void found(UNUSED void *ctx, const struct broker_secret *secret)
{
    assert_true(secret == &secrets[1]);
    n_found++;
}

static void test_placeholders_in_bodies(UNUSED void **state)
{
    static const char text[] = "xx brig-secret-brig-secret-" MARK_B " yy " MARK_B;

    set_up(BROKER_HEADER, "X", "%s", VALUE);
    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct placeholder_search search = {0};
        n_found = 0;
        for (size_t at = 0; at < sizeof(text) - 1; at += piece)
            placeholder_feed(&search, &broker, text + at, sizeof(text) - 1 - at < piece ? sizeof(text) - 1 - at : piece,
                             found, NULL);
        assert_int_equal(n_found, 1);
    }
    assert_string_equal(broker_finds_placeholder(&broker, text, sizeof(text) - 1), "B");
    assert_null(broker_finds_placeholder(&broker, text, 60));
    assert_null(broker_finds_placeholder(&broker, "", 0));
}

/* ---- the authority -------------------------------------------------------------------------------------- */

static int verify(const char *pem, X509 *leaf, const char *name)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *root = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();

    assert_non_null(root);
    assert_int_equal(X509_STORE_add_cert(store, root), 1);
    assert_int_equal(X509_STORE_CTX_init(ctx, store, leaf, NULL), 1);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM_set1_host(param, name, 0);
    X509_verify_cert(ctx);
    int error = X509_STORE_CTX_get_error(ctx);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    X509_free(root);
    BIO_free(bio);
    return error;
}

/* Whoever trusts the authority of a seed trusts what the next process signs with that seed, and nothing of another. */
static void test_authority_from_a_seed(UNUSED void **state)
{
    static const char *const hosts[] = {"api.example.com"};
    uint8_t seeds[3][32] = {{7}, {7}, {8}};
    struct authority *made[3] = {NULL};
    struct buf pem[3] = {BUF_INIT(65536), BUF_INIT(65536), BUF_INIT(65536)};
    X509 *leaf;
    EVP_PKEY *key;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(authority_create(hosts, 1, seeds[i], &made[i], NULL), 0);
        assert_int_equal(authority_put_pem(made[i], &pem[i]), 0);
    }
    assert_int_equal(authority_leaf(made[1], "api.example.com", &leaf, &key, NULL), 0);
    assert_int_equal(verify(pem[0].data, leaf, "api.example.com"), X509_V_OK);
    assert_int_not_equal(verify(pem[2].data, leaf, "api.example.com"), X509_V_OK);
    assert_true(crypto_same_authority(pem[0].data, pem[1].data));
    assert_false(crypto_same_authority(pem[0].data, pem[2].data));
    assert_false(crypto_same_authority(pem[0].data, "none"));
    memset(seeds[0], 0xff, 32); /* more than the curve's order */
    authority_destroy(made[0]);
    assert_int_equal(authority_create(hosts, 1, seeds[0], &made[0], NULL), 0);
    for (int i = 0; i < 3; i++) {
        authority_destroy(made[i]);
        buf_done(&pem[i]);
    }
}

static void test_authority(UNUSED void **state)
{
    static const char *const hosts[] = {"api.example.com", "example.org"};
    char longest[DNS_NAME_MAX];
    struct authority *authority = NULL;
    struct brig_err err = {0};
    AUTO_BUF struct buf pem = BUF_INIT(65536);
    X509 *leaf, *again;
    EVP_PKEY *key;

    assert_int_equal(authority_create(hosts, 2, NULL, &authority, &err), 0);
    assert_int_equal(authority_put_pem(authority, &pem), 0);
    assert_int_equal(authority_leaf(authority, "api.example.com", &leaf, &key, &err), 0);
    assert_int_equal(verify(pem.data, leaf, "api.example.com"), X509_V_OK);
    assert_int_equal(verify(pem.data, leaf, "example.org"), X509_V_ERR_HOSTNAME_MISMATCH);
    assert_int_equal(X509_check_private_key(leaf, key), 1);
    assert_int_equal(authority_leaf(authority, "api.example.com", &again, &key, &err), 0);
    assert_ptr_equal(leaf, again);
    /* Not of its hosts: the name constraints say so, even if it were made. */
    assert_int_equal(authority_leaf(authority, "bank.example.net", &leaf, &key, &err), 0);
    assert_int_equal(verify(pem.data, leaf, "bank.example.net"), X509_V_ERR_PERMITTED_VIOLATION);
    /* Longer than a common name may be, below a wildcard. */
    memset(longest, 'a', sizeof(longest));
    for (size_t i = 50; i < 240; i += 50)
        longest[i] = '.';
    memcpy(longest + 240, ".example.org", 13);
    assert_int_equal(authority_leaf(authority, longest, &leaf, &key, &err), 0);
    assert_int_equal(verify(pem.data, leaf, longest), X509_V_OK);
    /* More names than are kept. */
    for (int i = 0; i < 100; i++) {
        char name[64];
        assert_true(snprintf(name, sizeof(name), "h%d.example.org", i) > 0);
        assert_int_equal(authority_leaf(authority, name, &leaf, &key, &err), 0);
    }
    assert_int_equal(verify(pem.data, leaf, "h99.example.org"), X509_V_OK);
    authority_destroy(authority);
    authority_destroy(NULL);
}

/* ---- the object ----------------------------------------------------------------------------------------- */

#define KEY "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

static void put_spec(const struct keyring *ring, struct buf *out, const char *placeholder, const char *rule)
{
    struct sealed sealed;
    AUTO_BUF struct buf nonce = BUF_INIT(64), data = BUF_INIT(1024);

    assert_int_equal(keyring_seal(ring, "org|A", VALUE, sizeof(VALUE) - 1, &sealed), 0);
    assert_int_equal(base64_append(&nonce, sealed.nonce, sizeof(sealed.nonce)), 0);
    assert_int_equal(base64_append(&data, sealed.data, sealed.len), 0);
    assert_int_equal(
        buf_printf(out,
                   "[{\"name\":\"A\",\"placeholder\":\"%s\",\"key_id\":\"k1\",\"nonce\":\"%s\",\"sealed\":\"%s\","
                   "\"context\":\"org|A\",\"broker\":%s}]",
                   placeholder, nonce.data, data.data, rule),
        0);
    sealed_done(&sealed);
}

static int create(const char *spec, size_t len, const struct keyring *ring, struct broker **ret, struct buf *ca,
                  struct brig_err *err)
{
    struct json_doc *doc;
    int r = json_read(spec, len, JSON_READ_VALUES, &doc, err);

    if (r == 0) {
        r = broker_create(NULL, json_root(doc), ring, ret, ca, err);
        json_doc_free(doc);
    }
    return r;
}

static void test_create(UNUSED void **state)
{
    static const char rule[] = "{\"hosts\":[\"api.example.com\",\"*.example.org:8443\"],\"header\":\"Authorization\"}";
    struct keyring *ring;
    struct brig_err err = {0};
    struct broker *made = NULL;
    struct values open = {0};
    AUTO_BUF struct buf spec = BUF_INIT(8192), ca = BUF_INIT(65536), bad = BUF_INIT(8192);

    assert_int_equal(keyring_parse(KEY, sizeof(KEY) - 1, &ring, &err), 0);
    put_spec(ring, &spec, MARK_A, rule);
    assert_int_equal(create(spec.data, spec.len, ring, &made, &ca, &err), 0);
    assert_non_null(strstr(ca.data, "BEGIN CERTIFICATE"));
    assert_true(broker_covers(made, "api.example.com", 443));
    assert_true(broker_covers(made, "x.example.org", 8443));
    assert_false(broker_covers(made, "example.org", 8443));
    assert_false(broker_covers(made, "api.example.com", 8443));
    assert_int_equal(values_open(made, "api.example.com", 443, &open, &err), 0);
    assert_int_equal(open.n, 1);
    assert_int_equal(open.items[0].len, sizeof(VALUE) - 1);
    assert_memory_equal(open.items[0].data, VALUE, sizeof(VALUE) - 1);
    values_close(&open);
    assert_int_equal(values_open(made, "other.example.com", 443, &open, &err), 0);
    assert_int_equal(open.n, 0);
    broker_destroy(made);

    assert_true(create(spec.data, spec.len, NULL, &made, &ca, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_true(create("[]", 2, ring, &made, &ca, &err) < 0);
    assert_true(create("{}", 2, ring, &made, &ca, &err) < 0);
    put_spec(ring, &bad, "brig-secret-short", rule);
    assert_true(create(bad.data, bad.len, ring, &made, &ca, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    char *at = strstr(spec.data, "org|A"); /* moved to another row */
    at[4] = 'B';
    assert_true(create(spec.data, spec.len, ring, &made, &ca, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    at[4] = 'A';

    /* Memory that ends anywhere leaves nothing behind (the sanitizers look). */
    for (size_t n = 0;; n++) {
        AUTO_BUF struct buf out = BUF_INIT(65536);
        mem_fail_after(n);
        int r = create(spec.data, spec.len, ring, &made, &out, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0)
            broker_destroy(made);
        if (!failed)
            break;
        assert_true(r < 0);
    }
    keyring_destroy(ring);
}

static void test_unbase64(UNUSED void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"", ""},       {"YQ==", "a"},  {"YWI=", "ab"},    {"YWJj", "abc"}, {"YR==", NULL},
                 {"YWJ", NULL},  {"YQ=", NULL},  {"=", NULL},       {"====", NULL},  {"Y===", NULL},
                 {"YW-j", NULL}, {"Y Wj", NULL}, {"YQ==YQ==", NULL}};
    uint8_t out[64];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ssize_t n = base64_decode_padded(cases[i].text, strlen(cases[i].text), out, sizeof(out));
        if (!cases[i].want) {
            assert_int_equal(n, -EINVAL);
            continue;
        }
        assert_int_equal(n, strlen(cases[i].want));
        assert_memory_equal(out, cases[i].want, (size_t)n);
    }
}

static void test_wbuf_leaves_nothing(UNUSED void **state)
{
    struct wbuf buf = WBUF_INIT(20000);
    char fill[8192];

    memset(fill, 'x', sizeof(fill));
    assert_int_equal(wbuf_append(&buf, fill, 4000), 0);
    wbuf_consume(&buf, 3999);
    for (size_t i = 0; i < 3999; i++)
        assert_int_equal(buf.data[i], 0);
    assert_int_equal(wbuf_append(&buf, fill, 90), 0);   /* fits behind */
    assert_int_equal(wbuf_append(&buf, fill, 3000), 0); /* moved to the front */
    assert_int_equal(buf.from, 0);
    for (size_t i = wbuf_size(&buf); i < buf.cap; i++)
        assert_int_equal(buf.data[i], 0);
    assert_int_equal(wbuf_append(&buf, fill, sizeof(fill)), 0); /* grown */
    assert_int_equal(wbuf_size(&buf), 1 + 90 + 3000 + sizeof(fill));
    assert_int_equal(wbuf_append(&buf, fill, 8192), 0);
    assert_int_equal(wbuf_append(&buf, fill, 1000), -EMSGSIZE);
    wbuf_clear(&buf);
    for (size_t i = 0; i < buf.cap; i++)
        assert_int_equal(buf.data[i], 0);
    wbuf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scan_spellings),
        cmocka_unit_test(test_scan_base64),
        cmocka_unit_test(test_scan_passes_what_only_begins_like_it),
        cmocka_unit_test(test_scan_two_values),
        cmocka_unit_test(test_scan_short_values_are_left_alone),
        cmocka_unit_test(test_scan_pause),
        cmocka_unit_test(test_rewrite_header),
        cmocka_unit_test(test_rewrite_drops_what_is_of_one_hop),
        cmocka_unit_test(test_rewrite_query_and_basic),
        cmocka_unit_test(test_rewrite_refuses_values_that_are_no_header),
        cmocka_unit_test(test_reply),
        cmocka_unit_test(test_placeholders_in_bodies),
        cmocka_unit_test(test_authority),
        cmocka_unit_test(test_authority_from_a_seed),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_unbase64),
        cmocka_unit_test(test_wbuf_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
