/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of brig-egress that can be looked at by themselves: buckets, authorities, heads, and what agrees with what.
 */
#include "base/clock.h"
#include "egress/egress_priv.h"
#include "unit.h"

/* ---- buckets -------------------------------------------------------------------------------------------- */

static void test_a_bucket_fills_at_its_rate_and_no_higher_than_its_burst(void **state UNUSED)
{
    struct bucket bucket;

    bucket_init(&bucket, 1000, 100, 5 * NS_PER_SEC);
    for (int i = 0; i < 100; i++)
        assert_true(bucket_take(&bucket, 5 * NS_PER_SEC, 1));
    assert_false(bucket_take(&bucket, 5 * NS_PER_SEC, 1));
    assert_true(bucket_take(&bucket, 5 * NS_PER_SEC + 50 * NS_PER_MS, 49));
    assert_false(bucket_take(&bucket, 5 * NS_PER_SEC + 50 * NS_PER_MS, 2));
    assert_true(bucket_level(&bucket, 3600 * NS_PER_SEC) == 100.0);
    assert_true(bucket_level(&bucket, 1) == 100.0); /* a clock that goes back gives nothing */
    bucket_init(&bucket, 0, 0, 0);
    assert_true(bucket_take(&bucket, 0, 1e18)); /* no rate: no limit */
}

static void test_a_budget_is_granted_to_the_last_byte(void **state UNUSED)
{
    struct slot slot = {.limits = {.bytes_in = 1000}};
    struct conn conn = {.slot = &slot};
    size_t n = 0;

    assert_int_equal(budget_grant(&conn, true, 600, &n), GRANT_SOME);
    assert_int_equal(n, 600);
    budget_charge(&conn, true, 600);
    assert_int_equal(budget_grant(&conn, true, 600, &n), GRANT_SOME);
    assert_int_equal(n, 400);
    budget_charge(&conn, true, 400);
    assert_int_equal(budget_grant(&conn, true, 1, &n), GRANT_OVER);
    assert_int_equal(budget_grant(&conn, false, 1, &n), GRANT_SOME);
    assert_int_equal(slot.counts.bytes_in, 1000);
    assert_int_equal(conn.bytes_in, 1000);
}

static void test_limits_may_be_raised_later(void **state UNUSED)
{
    struct slot slot = {.limits = {.bytes_in = 10}, .over_in = true, .counts = {.bytes_in = 10}};
    struct policy_limits more = {.bytes_in = 20};

    budget_limits(&slot, &more);
    assert_false(slot.over_in);
    slot.over_in = true;
    slot.counts.bytes_in = 20;
    budget_limits(&slot, &more);
    assert_true(slot.over_in);
}

/* ---- authorities ---------------------------------------------------------------------------------------- */

static void test_authorities(void **state UNUSED)
{
    struct authority a;

    assert_int_equal(authority_parse("Example.COM.", 12, &a), 0);
    assert_string_equal(a.name, "example.com");
    assert_int_equal(a.port, 0);
    assert_int_equal(authority_parse("example.com:8080", 16, &a), 0);
    assert_int_equal(a.port, 8080);
    assert_int_equal(authority_parse("10.1.2.3:80", 11, &a), 0);
    assert_string_equal(a.name, "");
    assert_true(gate_addr_is_v4(&a.addr) && a.addr.ip[12] == 10 && a.addr.ip[15] == 3);
    assert_int_equal(authority_parse("[2001:db8::1]:443", 17, &a), 0);
    assert_int_equal(a.port, 443);
    assert_int_equal(authority_parse("[::1]", 5, &a), 0);
    assert_int_equal(a.addr.ip[15], 1);
}

static void test_what_is_no_authority(void **state UNUSED)
{
    static const char *const bad[] = {
        "",          ":80",  "host:", "host:0", "host:65536", "host:1x",      "host:80:80",     "host:+80",
        "host:-1",   "[::1", "[]",    "[::1]x", "[::1]:",     "[10.0.0.1]",   "[fe80::1%lo]",   "2001:db8::1",
        "user@host", "a b",  "127.1", "0x7f.1", "2130706433", "017700000001", "ex\303mple.com", "a..b",
    };
    struct authority a;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (authority_parse(bad[i], strlen(bad[i]), &a) != -EINVAL)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    assert_int_equal(authority_parse("evil\0.example", 13, &a), -EINVAL);
    assert_int_equal(authority_parse("10.0.0.1\0", 9, &a), -EINVAL);
}

/* ---- first bytes ---------------------------------------------------------------------------------------- */

static bool begins(const char *text, bool *more)
{
    return http_begins((const uint8_t *)text, strlen(text), more);
}

static bool line(const char *text, bool *more)
{
    return http_line((const uint8_t *)text, strlen(text), more);
}

static void test_what_looks_like_a_request(void **state UNUSED)
{
    bool more;

    assert_true(begins("GET / HTTP/1.1\r\n", &more));
    assert_true(begins("PROPFIND /", &more));
    assert_false(begins("GE", &more));
    assert_true(more);
    assert_false(begins("SSH-2.0-x\r\n", &more));
    assert_false(more);
    assert_false(begins("get / HTTP/1.1", &more) || more);
    assert_false(begins("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA /", &more) || more);
    assert_true(line("GET / HTTP/1.1\r\nHost: x\r\n", &more));
    assert_false(line("GET / HTTP/1.1", &more));
    assert_true(more);
    assert_false(line("EHLO example\r\n", &more) || more);
    assert_false(line("USER x\n", &more) || more);
    assert_false(line("GET / HTTP/2.0\r\n", &more) || more);
}

/* ---- heads ---------------------------------------------------------------------------------------------- */

static void assert_head(const char *text, bool proxied, const char *expected)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct http_head head;
    char copy[2048];
    size_t scanned = 0;

    assert_true(strlen(text) < sizeof copy);
    memcpy(copy, text, strlen(text) + 1);
    assert_true(http_request_parse(copy, strlen(text), NULL, &scanned, &head, NULL) > 0);
    assert_int_equal(plain_put_head(&out, &head, proxied), 0);
    assert_string_equal(out.data, expected);
}

static void test_heads_are_made_anew(void **state UNUSED)
{
    assert_head("GET /a?b HTTP/1.1\r\nHost:  x.org \r\nX-Y:z\r\n\r\n", false,
                "GET /a?b HTTP/1.1\r\nHost: x.org\r\nX-Y: z\r\n\r\n");
    assert_head(
        "GET http://x.org/a?b HTTP/1.1\r\nHost: x.org\r\nProxy-Authorization: s\r\nproxy-connection: close\r\n\r\n",
        true, "GET /a?b HTTP/1.1\r\nHost: x.org\r\n\r\n");
    assert_head("GET http://x.org HTTP/1.0\r\nHost: x.org\r\n\r\n", true, "GET / HTTP/1.0\r\nHost: x.org\r\n\r\n");
    assert_head("GET http://x.org?q HTTP/1.1\r\nHost: x.org\r\n\r\n", true, "GET /?q HTTP/1.1\r\nHost: x.org\r\n\r\n");
    assert_head("GET / HTTP/1.1\r\nHost: x.org\r\nConnection: upgrade, http2-settings\r\nUpgrade: h2c\r\n"
                "HTTP2-Settings: a\r\n\r\n",
                false, "GET / HTTP/1.1\r\nHost: x.org\r\n\r\n");
}

static void test_paths(void **state UNUSED)
{
    assert_string_equal(plain_target_path("/a?b"), "/a?b");
    assert_string_equal(plain_target_path("*"), "*");
    assert_string_equal(plain_target_path("http://x.org/a?b"), "/a?b");
    assert_string_equal(plain_target_path("http://x.org"), "/");
    assert_string_equal(plain_target_path("http://x.org?q"), "?q");
}

/* ---- judging -------------------------------------------------------------------------------------------- */

static bool judge(struct conn *conn, const char *text, struct policy_answer *answer)
{
    struct http_head head;
    char copy[1024];
    size_t scanned = 0;

    assert_true(strlen(text) < sizeof copy);
    memcpy(copy, text, strlen(text) + 1);
    assert_true(http_request_parse(copy, strlen(text), NULL, &scanned, &head, NULL) > 0);
    return judge_request(conn, &head, answer);
}

static void test_requests_must_agree_with_their_connection(void **state UNUSED)
{
    static const char json[] = "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"paths\":[\"/v1/\"]}]}";
    struct slot slot = {0};
    struct conn conn = {.slot = &slot, .name = (char[]){"x.org"}, .port = 80};
    struct policy_answer answer;

    assert_int_equal(policy_compile_text(json, sizeof json - 1, &slot.policy, NULL), 0);
    assert_true(judge(&conn, "GET /v1/a?/../../x HTTP/1.1\r\nHost: X.ORG:80\r\n\r\n", &answer));
    assert_true(judge(&conn, "GET http://x.org/v1/ HTTP/1.1\r\nHost: x.org\r\n\r\n", &answer));
    assert_false(judge(&conn, "GET /v1/../secret HTTP/1.1\r\nHost: x.org\r\n\r\n", &answer));
    assert_false(judge(&conn, "GET / HTTP/1.1\r\nHost: x.org\r\n\r\n", &answer));
    assert_false(judge(&conn, "GET /v1/ HTTP/1.1\r\nHost: y.org\r\n\r\n", &answer));
    assert_string_equal(answer.why, "Host is y.org");
    assert_false(judge(&conn, "GET /v1/ HTTP/1.1\r\nHost: x.org:81\r\n\r\n", &answer));
    assert_false(judge(&conn, "GET http://y.org/v1/ HTTP/1.1\r\nHost: x.org\r\n\r\n", &answer));
    assert_false(judge(&conn, "GET /v1/ HTTP/1.0\r\n\r\n", &answer));
    assert_false(judge(&conn, "CONNECT x.org:80 HTTP/1.1\r\nHost: x.org\r\n\r\n", &answer));
    assert_false(
        judge(&conn, "GET /v1/ HTTP/1.1\r\nHost: x.org\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", &answer));
    policy_unref(slot.policy);
}

static void test_hellos_must_agree_with_their_connection(void **state UNUSED)
{
    static const char json[] =
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\"},{\"action\":\"allow\",\"cidr\":\"203.0.113.0/24\"},"
        "{\"action\":\"deny\",\"domain\":\"evil.org\"}]}";
    struct slot slot = {0};
    struct conn conn = {.slot = &slot, .name = (char[]){"x.org"}, .port = 443};
    struct tls_hello hello = {.has_name = true, .name = "x.org"};
    struct policy_answer answer;

    assert_int_equal(policy_compile_text(json, sizeof json - 1, &slot.policy, NULL), 0);
    assert_true(judge_hello(&conn, &hello, &answer));
    hello.ech = true;
    assert_false(judge_hello(&conn, &hello, &answer));
    hello = (struct tls_hello){.has_name = true, .name = "y.org"};
    assert_false(judge_hello(&conn, &hello, &answer));
    hello = (struct tls_hello){0};
    assert_false(judge_hello(&conn, &hello, &answer));
    /* To an address: no name is needed, any may be said, but none that is denied. */
    conn.name = NULL;
    assert_int_equal(gate_addr_parse("203.0.113.9", &conn.wanted), 0);
    assert_true(judge_hello(&conn, &hello, &answer));
    hello = (struct tls_hello){.has_name = true, .name = "y.org"};
    assert_true(judge_hello(&conn, &hello, &answer));
    hello = (struct tls_hello){.has_name = true, .name = "evil.org"};
    assert_false(judge_hello(&conn, &hello, &answer));
    assert_int_equal(answer.rule, 2);
    policy_unref(slot.policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bucket_fills_at_its_rate_and_no_higher_than_its_burst),
        cmocka_unit_test(test_a_budget_is_granted_to_the_last_byte),
        cmocka_unit_test(test_limits_may_be_raised_later),
        cmocka_unit_test(test_authorities),
        cmocka_unit_test(test_what_is_no_authority),
        cmocka_unit_test(test_what_looks_like_a_request),
        cmocka_unit_test(test_heads_are_made_anew),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_requests_must_agree_with_their_connection),
        cmocka_unit_test(test_hellos_must_agree_with_their_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
