/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: commas, escapes, numbers, refusals, and base64. */
#include "unit.h"

#include "base/mem.h"
#include "codec/json/json.h"

static void writes_a_document(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct json j = JSON_INIT(&b);
    (void)state;

    json_object(&j);
    json_key(&j, "id"), json_string(&j, "run-1");
    json_key(&j, "outcome"), json_object(&j);
    json_key(&j, "exit_code"), json_i64(&j, -3);
    json_key(&j, "signal"), json_null(&j);
    json_key(&j, "limits_hit"), json_array(&j), json_end(&j);
    json_end(&j);
    json_key(&j, "argv"), json_array(&j);
    json_string(&j, "ls"), json_string(&j, "");
    json_array(&j), json_u64(&j, 1), json_bool(&j, false), json_object(&j), json_end(&j), json_end(&j);
    json_end(&j);
    json_key(&j, "on"), json_bool(&j, true);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_string_equal(b.data, "{\"id\":\"run-1\",\"outcome\":{\"exit_code\":-3,\"signal\":null,\"limits_hit\":[]},"
                                "\"argv\":[\"ls\",\"\",[1,false,{}]],\"on\":true}");
}

static void writes_members(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct json j = JSON_INIT(&b);
    (void)state;

    json_object(&j);
    json_key_string(&j, "s", "x"), json_key_string(&j, "t", NULL);
    json_key_u64(&j, "u", UINT64_MAX), json_key_i64(&j, "i", -1);
    json_key_bool(&j, "b", true), json_key_null(&j, "n");
    json_key_raw(&j, "r", "[1]", 3), json_key_raw(&j, "q", NULL, 0);
    json_key_object(&j, "o"), json_end(&j);
    json_key_array(&j, "a"), json_end(&j);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_string_equal(b.data, "{\"s\":\"x\",\"t\":null,\"u\":18446744073709551615,\"i\":-1,\"b\":true,\"n\":null,"
                                "\"r\":[1],\"q\":null,\"o\":{},\"a\":[]}");
}

static void writes_times(void **state)
{
    static const struct {
        int64_t ns;
        unsigned digits;
        const char *want;
    } cases[] = {
        {0, 3, "1970-01-01T00:00:00.000Z"},
        {INT64_C(1709208000123456789), 9, "2024-02-29T12:00:00.123456789Z"},
        {INT64_C(1709208000123456789), 6, "2024-02-29T12:00:00.123456Z"},
        {INT64_C(1709208000999999999), 3, "2024-02-29T12:00:00.999Z"}, /* cut, not rounded */
        {INT64_C(1709208000999999999), 0, "2024-02-29T12:00:00Z"},
        {-1, 9, "1969-12-31T23:59:59.999999999Z"},
        {-1000000000, 3, "1969-12-31T23:59:59.000Z"},
        {INT64_MIN, 3, "1677-09-21T00:12:43.145Z"},
        {INT64_MAX, 3, "2262-04-11T23:47:16.854Z"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        struct json j = JSON_INIT(&b);
        char want[80];

        json_object(&j);
        json_key_time(&j, "t", cases[i].ns, cases[i].digits);
        json_end(&j);
        assert_int_equal(json_finish(&j), 0);
        snprintf(want, sizeof want, "{\"t\":\"%s\"}", cases[i].want);
        assert_string_equal(b.data, want);
    }
}

/* The text of one top-level value. */
static const char *string_of(const char *data, size_t len)
{
    static char text[512];
    AUTO_BUF struct buf b = BUF_INIT(sizeof(text) - 1);
    struct json j = JSON_INIT(&b);

    json_string_n(&j, data, len);
    assert_int_equal(json_finish(&j), 0);
    assert_true(json_utf8_valid(b.data, b.len));
    memcpy(text, b.data, b.len + 1);
    return text;
}

#define STRING(text) string_of(text, sizeof(text) - 1)

static void escapes_strings(void **state)
{
    (void)state;
    assert_string_equal(STRING(""), "\"\"");
    assert_string_equal(STRING("plain / text"), "\"plain / text\"");
    assert_string_equal(STRING("\"\\\b\f\n\r\t"), "\"\\\"\\\\\\b\\f\\n\\r\\t\"");
    assert_string_equal(STRING("a\0b\x01\x1f"), "\"a\\u0000b\\u0001\\u001f\"");
    assert_string_equal(STRING("\x1b[2J\x7f"), "\"\\u001b[2J\\u007f\"");
    assert_string_equal(STRING("\xc2\x80\xc2\x9b\xc2\xa0"), "\"\\u0080\\u009b\xc2\xa0\"");
    assert_string_equal(STRING("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa6"), "\"\\u2028\\u2029\xe2\x80\xa6\"");
    assert_string_equal(STRING("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\xa2"),
                        "\"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\xa2\"");
}

#define FFFD "\xef\xbf\xbd"

static void replaces_what_is_not_utf8(void **state)
{
    (void)state;
    assert_string_equal(STRING("a\xff"
                               "b"),
                        "\"a" FFFD "b\"");
    assert_string_equal(STRING("\xc3"), "\"" FFFD "\"");
    assert_string_equal(STRING("\xe2\x82"), "\"" FFFD FFFD "\"");
    assert_string_equal(STRING("\xed\xa0\x80"), "\"" FFFD FFFD FFFD "\"");
    assert_string_equal(STRING("\xc0\xaf\""), "\"" FFFD FFFD "\\\"\"");
}

static void validates_utf8(void **state)
{
    (void)state;
    assert_true(json_utf8_valid("", 0));
    assert_true(json_utf8_valid("a\0b", 3));
    assert_true(json_utf8_valid("h\xc3\xa9\xf4\x8f\xbf\xbf", 7));
    assert_false(json_utf8_valid("h\xc3", 2));
    assert_false(json_utf8_valid("\xc3\xa9\x80", 3));
    assert_false(json_utf8_valid("\xed\xbf\xbf", 3));
}

/* Control bytes are six in a string: a program that prints little else is told in base64. */
static void output_that_is_mostly_escapes_is_no_text(void **state)
{
    enum { N = 200 << 10 };
    AUTO_FREE char *text = mem_alloc(N);
    (void)state;

    assert_true(json_is_text("", 0));
    assert_true(json_is_text("\x1b[1mbold\x1b[0m\0", 14));
    assert_false(json_is_text("\xff", 1));
    memset(text, 1, N);
    assert_false(json_is_text(text, N));
    assert_true(json_is_text(text, 10 << 10)); /* a little of it is no work */
    memset(text, '\n', N);
    assert_true(json_is_text(text, N)); /* twice as long */
    for (size_t i = 0; i < N; i += 4)
        memcpy(text + i, "\x1b[1m", 4);
    assert_false(json_is_text(text, N));
    for (size_t i = 0; i < N; i += 8)
        memcpy(text + i, "\x1b[1mbold", 8);
    assert_true(json_is_text(text, N));
}

static void writes_numbers(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct json j = JSON_INIT(&b);
    (void)state;

    json_array(&j);
    json_u64(&j, 0), json_u64(&j, UINT64_MAX), json_i64(&j, INT64_MIN), json_i64(&j, INT64_MAX);
    json_thousandths(&j, 0), json_thousandths(&j, 1), json_thousandths(&j, 1500), json_thousandths(&j, 2000);
    json_thousandths(&j, 50), json_thousandths(&j, 1234), json_thousandths(&j, 250), json_thousandths(&j, UINT64_MAX);
    json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_string_equal(b.data, "[0,18446744073709551615,-9223372036854775808,9223372036854775807,"
                                "0,0.001,1.5,2,0.05,1.234,0.25,18446744073709551.615]");
}

#define REFUSED(...)                                     \
    do {                                                 \
        AUTO_BUF struct buf b_ = BUF_INIT(4096);         \
        struct json json_ = JSON_INIT(&b_), *j = &json_; \
        __VA_ARGS__;                                     \
        assert_int_equal(json_finish(j), -EINVAL);       \
    } while (0)

static void refuses_what_is_no_json(void **state)
{
    (void)state;
    REFUSED((void)j);                                            /* nothing */
    REFUSED(json_null(j), json_null(j));                         /* two values */
    REFUSED(json_object(j), json_end(j), json_object(j));        /* two values */
    REFUSED(json_object(j), json_null(j), json_end(j));          /* a value without a key */
    REFUSED(json_array(j), json_key(j, "k"), json_end(j));       /* a key in an array */
    REFUSED(json_key(j, "k"), json_null(j));                     /* a key at the top */
    REFUSED(json_object(j), json_key(j, "k"), json_end(j));      /* a key without a value */
    REFUSED(json_object(j), json_key(j, "k"), json_key(j, "l")); /* two keys */
    REFUSED(json_array(j));                                      /* not closed */
    REFUSED(json_array(j), json_end(j), json_end(j));            /* closed twice */
    REFUSED(for (unsigned i = 0; i <= JSON_DEPTH_MAX; i++) json_array(j));
}

static void nests_to_its_limit(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct json j = JSON_INIT(&b);
    (void)state;

    for (unsigned i = 0; i < JSON_DEPTH_MAX; i += 2)
        json_array(&j), json_object(&j), json_key(&j, "k");
    json_null(&j);
    for (unsigned i = 0; i < JSON_DEPTH_MAX; i++)
        json_end(&j);
    assert_int_equal(json_finish(&j), 0);
    assert_int_equal(b.len, 32 * 8 + 4); /* 32 of [{"k": and }], and null */
}

static void keeps_the_first_failure(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(8);
    struct json j = JSON_INIT(&b);
    (void)state;

    json_array(&j);
    json_string(&j, "longer than eight");
    json_end(&j);
    json_key(&j, "nonsense");
    assert_int_equal(json_finish(&j), -EMSGSIZE);
}

static int document(struct buf *b)
{
    struct json j = JSON_INIT(b);

    json_array(&j);
    for (int i = 0; i < 100; i++)
        json_string(&j, "text\n"), json_u64(&j, 123456789), json_base64(&j, "bytes", 5), json_thousandths(&j, 1234);
    json_end(&j);
    return json_finish(&j);
}

static void survives_every_allocation_failure(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        struct buf b = BUF_INIT(1u << 20);
        mem_fail_after(n);
        int r = document(&b);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        buf_done(&b);
        if (!failed) {
            assert_in_range(n, 3, 20);
            return;
        }
    }
}

static void encodes_base64(void **state)
{
    static const char *const cases[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"},
                                           {"\xff\xfe\xfd", "//79"},
                                           {"\xfb\xff", "+/8="}};
    (void)state;

    /* RFC 4648, section 10, and the two characters above. */
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(64);
        assert_int_equal(base64_append(&b, cases[i][0], strlen(cases[i][0])), 0);
        assert_string_equal(b.data, cases[i][1]);
        struct json j = JSON_INIT(&b);
        json_base64(&j, cases[i][0], strlen(cases[i][0]));
        assert_int_equal(json_finish(&j), 0);
        assert_int_equal(b.data[b.len - 1], '"');
    }
    AUTO_BUF struct buf small = BUF_INIT(7);
    assert_int_equal(base64_append(&small, "abcdef", 6), -EMSGSIZE);
    assert_int_equal(base64_append(&small, "abc", 3), 0);
    assert_string_equal(small.data, "YWJj");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_a_document),
        cmocka_unit_test(writes_members),
        cmocka_unit_test(writes_times),
        cmocka_unit_test(escapes_strings),
        cmocka_unit_test(replaces_what_is_not_utf8),
        cmocka_unit_test(validates_utf8),
        cmocka_unit_test(output_that_is_mostly_escapes_is_no_text),
        cmocka_unit_test(writes_numbers),
        cmocka_unit_test(refuses_what_is_no_json),
        cmocka_unit_test(nests_to_its_limit),
        cmocka_unit_test(keeps_the_first_failure),
        cmocka_unit_test(survives_every_allocation_failure),
        cmocka_unit_test(encodes_base64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
