/* SPDX-License-Identifier: Apache-2.0 */
/* AWS signatures against the vectors that AWS has published (its "Signature Version 4 test suite": key AKIDEXAMPLE,
 * 20150830T123600Z). */
#include "unit.h"

#include "egress/broker_priv.h"

#define KEY_ID "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MARK "brig-secret-0123456789abcdef0123456789abcdef"

static struct sigv4_request vector(const char *method, const char *target)
{
    return (struct sigv4_request){.method = method,
                                  .target = target,
                                  .amz_date = "20150830T123600Z",
                                  .region = "us-east-1",
                                  .service = "service",
                                  .payload = EMPTY,
                                  .key_id = KEY_ID,
                                  .key_id_len = sizeof(KEY_ID) - 1,
                                  .secret = SECRET,
                                  .secret_len = sizeof(SECRET) - 1,
                                  .fields = {{"X-Amz-Date", "20150830T123600Z"}, {"Host", "example.amazonaws.com"}},
                                  .n_fields = 2};
}

static void expect(struct sigv4_request request, const char *names, const char *signature)
{
    struct wbuf out = WBUF_INIT(8192);
    char want[1024];

    assert_int_equal(sigv4_authorization(&request, &out), 0);
    assert_int_equal(wbuf_append(&out, "", 1), 0);
    assert_true(
        snprintf(want, sizeof(want),
                 "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/%s/aws4_request, SignedHeaders=%s, "
                 "Signature=%s",
                 request.service, names, signature) > 0);
    assert_string_equal(wbuf_at(&out), want);
    wbuf_done(&out);
}

static void test_get_vanilla(UNUSED void **state)
{
    expect(vector("GET", "/"), "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    expect(vector("POST", "/"), "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
}

static void test_query_is_sorted(UNUSED void **state)
{
    /* get-vanilla-query-order-key-case */
    expect(vector("GET", "/?Param2=value2&Param1=value1"), "host;x-amz-date",
           "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
    /* get-vanilla-query-unreserved */
    expect(
        vector(
            "GET",
            "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVW"
            "XYZabcdefghijklmnopqrstuvwxyz"),
        "host;x-amz-date", "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197");
}

static void test_fields(UNUSED void **state)
{
    /* get-header-value-trim */
    struct sigv4_request request = vector("GET", "/");
    request.fields[request.n_fields++] = (struct sigv4_field){"My-Header1", " value1"};
    request.fields[request.n_fields++] = (struct sigv4_field){"My-Header2", " \"a   b   c\""};
    expect(request, "host;my-header1;my-header2;x-amz-date",
           "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736");
    /* post-x-www-form-urlencoded */
    request = vector("POST", "/");
    request.fields[request.n_fields++] = (struct sigv4_field){"Content-Type", "application/x-www-form-urlencoded"};
    request.payload = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"; /* Param1=value1 */
    expect(request, "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a");
}

static void test_path_is_encoded_again_but_for_s3(UNUSED void **state)
{
    struct wbuf a = WBUF_INIT(8192), b = WBUF_INIT(8192), c = WBUF_INIT(8192);
    struct sigv4_request plain = vector("GET", "/a%20b"), s3 = vector("GET", "/a%20b"),
                         twice = vector("GET", "/a%2520b");

    s3.service = twice.service = plain.service = "s3";
    assert_int_equal(sigv4_authorization(&s3, &a), 0);
    assert_int_equal(sigv4_authorization(&twice, &b), 0);
    assert_int_not_equal(memcmp(wbuf_at(&a), wbuf_at(&b), wbuf_size(&a)), 0);
    plain.service = "service";
    assert_int_equal(sigv4_authorization(&plain, &c), 0);
    assert_int_not_equal(wbuf_size(&a), 0);
    wbuf_done(&a), wbuf_done(&b), wbuf_done(&c);
}

static void test_parse(UNUSED void **state)
{
    struct sigv4_scope scope;

    assert_int_equal(sigv4_parse("AWS4-HMAC-SHA256 Credential=" MARK
                                 "/20150830/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=0a",
                                 MARK, &scope),
                     0);
    assert_string_equal(scope.date, "20150830");
    assert_string_equal(scope.region, "eu-west-1");
    assert_string_equal(scope.service, "s3");
    assert_string_equal(scope.signed_headers, "host;x-amz-date");
    /* some clients leave out the blanks */
    assert_int_equal(sigv4_parse("AWS4-HMAC-SHA256 Credential=" MARK
                                 "/20150830/eu-west-1/s3/aws4_request,SignedHeaders=host,Signature=0a",
                                 MARK, &scope),
                     0);
    assert_int_equal(sigv4_parse("Bearer " MARK, MARK, &scope), -ENOENT);
    assert_int_equal(
        sigv4_parse(
            "AWS4-HMAC-SHA256 Credential=AKIA/20150830/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0a",
            MARK, &scope),
        -ENOENT);
    static const char *const bad[] = {
        "AWS4-HMAC-SHA256 Credential=" MARK "/2015083/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0a",
        "AWS4-HMAC-SHA256 Credential=" MARK "/20150830//s3/aws4_request, SignedHeaders=host, Signature=0a",
        "AWS4-HMAC-SHA256 Credential=" MARK "/20150830/eu-west-1/s3/aws5_request, SignedHeaders=host, Signature=0a",
        "AWS4-HMAC-SHA256 Credential=" MARK "/20150830/eu-west-1/s3/aws4_request/x, SignedHeaders=host, Signature=0a",
        "AWS4-HMAC-SHA256 Credential=" MARK "/20150830/eu\twest/s3/aws4_request, SignedHeaders=host, Signature=0a",
        "AWS4-HMAC-SHA256 Credential=" MARK "/20150830/eu-west-1/s3/aws4_request, Signature=0a",
        "AWS4-ECDSA-P256-SHA256 Credential=" MARK
        "/20150830/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature=0a",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(sigv4_parse(bad[i], MARK, &scope), -EINVAL);
}

static void split(const char *value, int want, const char *key_id, const char *secret, const char *token)
{
    struct sigv4_keys keys;

    assert_int_equal(sigv4_split((const uint8_t *)value, strlen(value), &keys), want);
    if (want < 0)
        return;
    assert_int_equal(keys.key_id_len, strlen(key_id));
    assert_memory_equal(keys.key_id, key_id, keys.key_id_len);
    assert_int_equal(keys.secret_len, strlen(secret));
    assert_memory_equal(keys.secret, secret, keys.secret_len);
    assert_int_equal(keys.token_len, strlen(token));
    assert_memory_equal(keys.token, token, keys.token_len);
}

static void test_split(UNUSED void **state)
{
    split("AKID:secret", 0, "AKID", "secret", "");
    split("AKID:secret:token:with:colons", 0, "AKID", "secret", "token:with:colons");
    split("AKID", -EINVAL, NULL, NULL, NULL);
    split(":secret", -EINVAL, NULL, NULL, NULL);
    split("AKID:", -EINVAL, NULL, NULL, NULL);
    split("AKID:secret:", -EINVAL, NULL, NULL, NULL);
    split("", -EINVAL, NULL, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_get_vanilla), cmocka_unit_test(test_query_is_sorted),
        cmocka_unit_test(test_fields),      cmocka_unit_test(test_path_is_encoded_again_but_for_s3),
        cmocka_unit_test(test_parse),       cmocka_unit_test(test_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
