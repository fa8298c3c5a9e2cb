/* SPDX-License-Identifier: Apache-2.0 */
/* The strict JSON reader: what it reads, what it refuses and where, its bounds, and that time stays linear. */
#include "unit.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"

static struct json_doc *must_read(const char *text, size_t len)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    int r = json_read(text, len, JSON_READ_VALUES, &doc, &err);

    if (r < 0)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

#define READ(text) must_read(text, sizeof(text) - 1)

static void reads_every_type(void **state)
{
    struct json_doc *doc =
        READ(" {\"n\":null,\"t\":true,\"f\":false,\"i\":-12,\"d\":1.5e2,\r\n\t\"s\":\"x\\ty\",\"a\":[1,[],{}],"
             "\"o\":{\"k\":\"v\"}} ");
    const struct json_value *root = json_root(doc), *value;
    (void)state;

    assert_int_equal(root->type, JSON_OBJECT);
    assert_int_equal(root->count, 8);
    assert_null(root->key);
    assert_int_equal(json_get(root, "n")->type, JSON_NULL);
    assert_true(json_get(root, "t")->boolean);
    assert_false(json_get(root, "f")->boolean);
    value = json_get(root, "i");
    assert_true(value->integer && value->i64 == -12 && value->number == -12);
    value = json_get(root, "d");
    assert_true(!value->integer && value->number == 150);
    value = json_get(root, "s");
    assert_string_equal(value->string, "x\ty");
    assert_int_equal(value->len, 3);
    value = json_get(root, "a");
    assert_int_equal(value->count, 3);
    assert_int_equal(value->first->i64, 1);
    assert_int_equal(value->first->next->type, JSON_ARRAY);
    assert_int_equal(value->first->next->next->type, JSON_OBJECT);
    assert_null(value->first->next->next->next);
    value = json_get(json_get(root, "o"), "k");
    assert_string_equal(value->string, "v");
    assert_string_equal(value->key, "k");
    assert_null(json_get(root, "absent"));
    assert_null(json_get(value, "k"));
    assert_null(json_get(NULL, "k"));
    json_doc_free(doc);
}

static void reads_a_lone_value(void **state)
{
    static const char *const texts[] = {"null", "0", "\"\"", "[]", "{}", " true\n"};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        json_doc_free(must_read(texts[i], strlen(texts[i])));
}

static void assert_raw(const struct json_value *value, const char *want)
{
    assert_int_equal(value->raw_len, strlen(want));
    assert_memory_equal(value->raw, want, value->raw_len);
}

static void remembers_the_text(void **state)
{
    static const char text[] =
        " { \"big\" : 123456789012345678901234567890 , \"f\":1.50e+00,\"s\":\"a\\u0041\" , \"a\" : [ 1 ,[ ], {} , "
        "true ] } ";
    struct json_doc *doc = READ(text);
    const struct json_value *root = json_root(doc), *array = json_get(root, "a");
    (void)state;

    assert_ptr_equal(root->raw, text + 1);
    assert_int_equal(root->raw_len, strlen(text) - 2);
    assert_raw(json_get(root, "big"), "123456789012345678901234567890");
    assert_raw(json_get(root, "f"), "1.50e+00");
    assert_raw(json_get(root, "s"), "\"a\\u0041\"");
    assert_raw(array, "[ 1 ,[ ], {} , true ]");
    assert_raw(array->first, "1");
    assert_raw(array->first->next, "[ ]");
    assert_raw(array->first->next->next, "{}");
    assert_raw(array->first->next->next->next, "true");
    json_doc_free(doc);
}

static void unescapes(void **state)
{
    struct json_doc *doc = READ("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\udEa2h\xc3\xa9\x7f\"");
    static const char want[] = "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\xa2h\xc3\xa9\x7f";
    (void)state;

    assert_int_equal(json_root(doc)->len, sizeof(want) - 1);
    assert_memory_equal(json_root(doc)->string, want, sizeof(want));
    json_doc_free(doc);

    doc = READ("\"a\\u0000b\"");
    assert_int_equal(json_root(doc)->len, 3);
    assert_memory_equal(json_root(doc)->string, "a\0b", 4);
    json_doc_free(doc);
}

static void knows_integers(void **state)
{
    static const struct {
        const char *text;
        bool integer;
        int64_t i64;
        double number;
    } cases[] = {
        {"0", true, 0, 0},
        {"-0", true, 0, -0.0},
        {"9223372036854775807", true, INT64_MAX, 9223372036854775807.0},
        {"-9223372036854775808", true, INT64_MIN, -9223372036854775808.0},
        {"9223372036854775808", false, 0, 9223372036854775808.0},
        {"-9223372036854775809", false, 0, -9223372036854775809.0},
        {"1.0", false, 0, 1},
        {"1e3", false, 0, 1000},
        {"1E+3", false, 0, 1000},
        {"12e-1", false, 0, 1.2},
        {"0.1", false, 0, 0.1},
        {"1e-999", false, 0, 0},
        {"1.7976931348623157e308", false, 0, 1.7976931348623157e308},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc *doc = must_read(cases[i].text, strlen(cases[i].text));
        const struct json_value *value = json_root(doc);
        assert_int_equal(value->type, JSON_NUMBER);
        assert_int_equal(value->integer, cases[i].integer);
        if (value->integer)
            assert_true(value->i64 == cases[i].i64);
        assert_memory_equal(&value->number, &cases[i].number, sizeof(double));
        json_doc_free(doc);
    }
}

static void refuses_with_the_place(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "JSON, byte 0: a value is missing"},
        {"  ", "JSON, byte 2: a value is missing"},
        {"{} x", "JSON, byte 3: more text after the value"},
        {"1 2", "JSON, byte 2: more text after the value"},
        {"[1,]", "JSON, byte 3: not a value"},
        {"[1 2]", "JSON, byte 3: expected , or ]"},
        {"[1", "JSON, byte 2: expected , or ]"},
        {"[", "JSON, byte 1: a value is missing"},
        {"[,1]", "JSON, byte 1: not a value"},
        {"[1}", "JSON, byte 2: expected , or ]"},
        {"{\"a\":1,}", "JSON, byte 7: a key is missing"},
        {"{a:1}", "JSON, byte 1: a key is missing"},
        {"{'a':1}", "JSON, byte 1: a key is missing"},
        {"{\"a\" 1}", "JSON, byte 5: a colon is missing"},
        {"{\"a\":}", "JSON, byte 5: not a value"},
        {"{\"a\":1", "JSON, byte 6: expected , or }"},
        {"{\"a\":1]", "JSON, byte 6: expected , or }"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "JSON, byte 13: a key that was there before"},
        {"{\"a\":1,\"\\u0061\":3}", "JSON, byte 7: a key that was there before"},
        {"{\"\":1,\"\":3}", "JSON, byte 6: a key that was there before"},
        {"{\"a\\u0000\":1}", "JSON, byte 3: a key may not contain \\u0000"},
        {"NaN", "JSON, byte 0: not a value"},
        {"Infinity", "JSON, byte 0: not a value"},
        {"-Infinity", "JSON, byte 0: not a value"},
        {"nul", "JSON, byte 0: not a value"},
        {"nulll", "JSON, byte 4: more text after the value"},
        {"True", "JSON, byte 0: not a value"},
        {"1e999", "JSON, byte 0: a number that is too large"},
        {"[-1e999]", "JSON, byte 1: a number that is too large"},
        {"01", "JSON, byte 0: a number may not begin with 0"},
        {"-01", "JSON, byte 0: a number may not begin with 0"},
        {"+1", "JSON, byte 0: not a value"},
        {"-", "JSON, byte 0: not a value"},
        {".5", "JSON, byte 0: not a value"},
        {"1.", "JSON, byte 2: a digit must follow the point"},
        {"1.e1", "JSON, byte 2: a digit must follow the point"},
        {"1e", "JSON, byte 2: a digit must follow the exponent's e"},
        {"1e+", "JSON, byte 3: a digit must follow the exponent's e"},
        {"0x10", "JSON, byte 1: more text after the value"},
        {"\"abc", "JSON, byte 0: a string without end"},
        {"\"abc\\", "JSON, byte 4: no such escape"},
        {"\"\\x41\"", "JSON, byte 1: no such escape"},
        {"\"\\u12g4\"", "JSON, byte 1: \\u needs four hexadecimal digits"},
        {"\"\\u123", "JSON, byte 1: \\u needs four hexadecimal digits"},
        {"\"\\ud800\"", "JSON, byte 1: half of a surrogate pair"},
        {"\"\\udc00\"", "JSON, byte 1: half of a surrogate pair"},
        {"\"\\ud800\\u0041\"", "JSON, byte 1: half of a surrogate pair"},
        {"\"\\ud800\\ud800\"", "JSON, byte 1: half of a surrogate pair"},
        {"\"a\nb\"", "JSON, byte 2: a control byte in a string; it must be escaped"},
        {"\"a\xff\"", "JSON, byte 2: not UTF-8"},
        {"\"\xc0\x80\"", "JSON, byte 1: not UTF-8"},
        {"\"\xed\xa0\x80\"", "JSON, byte 1: not UTF-8"},
        {"\"\xe2\x82\"", "JSON, byte 1: not UTF-8"},
        {"\xef\xbb\xbf{}", "JSON, byte 0: not a value"},
        {"[1] // c", "JSON, byte 4: more text after the value"},
        {"\v1", "JSON, byte 0: not a value"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc *doc = (void *)&cases;
        struct brig_err err = {0};
        int r = json_read(cases[i].text, strlen(cases[i].text), JSON_READ_VALUES, &doc, &err);
        if (r != -EINVAL || strcmp(err.message, cases[i].message) != 0)
            fail_msg("%s: %d, %s", cases[i].text, r, err.message);
        assert_ptr_equal(doc, &cases);
        assert_int_equal(err.code, BRIG_E_USAGE);
    }
}

/* A NUL within the text is a byte like another, and the text ends at len, not at a NUL. */
static void takes_the_length_as_given(void **state)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    (void)state;

    assert_int_equal(json_read("1\0", 2, 10, &doc, &err), -EINVAL);
    assert_int_equal(json_read("\"a\0b\"", 5, 10, &doc, &err), -EINVAL);
    assert_int_equal(json_read("123", 2, 10, &doc, &err), 0);
    assert_int_equal(json_root(doc)->i64, 12);
    json_doc_free(doc);
}

static void bounds_depth_and_values(void **state)
{
    char text[2 * JSON_READ_DEPTH + 3];
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    (void)state;

    memset(text, '[', JSON_READ_DEPTH);
    memset(text + JSON_READ_DEPTH, ']', JSON_READ_DEPTH);
    json_doc_free(must_read(text, (size_t)2 * JSON_READ_DEPTH));
    memset(text, '[', JSON_READ_DEPTH + 1);
    memset(text + JSON_READ_DEPTH + 1, ']', JSON_READ_DEPTH + 1);
    assert_int_equal(json_read(text, (size_t)2 * JSON_READ_DEPTH + 2, 1000, &doc, &err), -EINVAL);
    assert_string_equal(err.message, "JSON, byte 64: nested too deeply");

    assert_int_equal(json_read("[1,2,3]", 7, 4, &doc, &err), 0);
    json_doc_free(doc);
    assert_int_equal(json_read("[1,2,3]", 7, 3, &doc, &err), -EMSGSIZE);
    assert_string_equal(err.message, "JSON, byte 5: too many values");
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    assert_int_equal(json_read("1", 1, 0, &doc, &err), -EMSGSIZE);
    assert_int_equal(json_read("\"[,,,,[{\\\",,\"", 13, 1, &doc, &err), 0); /* those are no values */
    json_doc_free(doc);
}

/* An object of n members whose keys are written by make(). */
static void make_object(struct buf *text, size_t n, const char *format)
{
    assert_int_equal(buf_append_str(text, "{"), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(buf_append_str(text, i > 0 ? ",\"" : "\""), 0);
        char key[128];
        snprintf(key, sizeof(key), "%s%zu", format, i);
        assert_int_equal(buf_append_str(text, key), 0);
        assert_int_equal(buf_printf(text, "\":%zu", i), 0);
    }
    assert_int_equal(buf_append_str(text, "}"), 0);
}

static void looks_up_in_large_objects(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        AUTO_BUF struct buf text = BUF_INIT(1 << 20);
        make_object(&text, n, "key");
        struct json_doc *doc = must_read(text.data, text.len);
        for (size_t i = 0; i < n; i++) {
            char key[32];
            snprintf(key, sizeof(key), "key%zu", i);
            assert_int_equal(json_get(json_root(doc), key)->i64, (int64_t)i);
        }
        assert_null(json_get(json_root(doc), "key"));
        assert_null(json_get(json_root(doc), "key40"));
        assert_null(json_get(json_root(doc), ""));
        /* members stay in the text's order */
        size_t i = 0;
        for (const struct json_value *m = json_root(doc)->first; m; m = m->next)
            assert_int_equal(m->i64, (int64_t)i++);
        assert_int_equal(i, n);
        json_doc_free(doc);
    }
}

static void finds_doubles_in_large_objects(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1 << 20);
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    char message[64];
    (void)state;

    make_object(&text, 500, "k");
    text.len--; /* the brace */
    size_t at = text.len + 1;
    assert_int_equal(buf_append_str(&text, ",\"k250\":0}"), 0);
    assert_int_equal(json_read(text.data, text.len, JSON_READ_VALUES, &doc, &err), -EINVAL);
    snprintf(message, sizeof(message), "JSON, byte %zu: a key that was there before", at);
    assert_string_equal(err.message, message);
}

/* 100,000 members with keys that differ in their last bytes: pairwise comparison would take minutes. */
static void stays_linear(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(64 << 20);
    struct json_doc *doc;
    uint64_t before;
    (void)state;

    make_object(&text, 100000, "a-rather-long-common-prefix-of-all-the-keys-of-this-object-");
    before = clock_mono_ns();
    doc = must_read(text.data, text.len);
    for (size_t i = 0; i < 100000; i += 7)
        assert_null(json_get(json_root(doc), "a-rather-long-common-prefix-of-all-the-keys-of-this-object-100000"));
    json_doc_free(doc);
    assert_true(clock_mono_ns() - before < 10 * NS_PER_SEC);

    /* one number of a million digits, one string of a million escapes */
    buf_consume(&text, text.len);
    assert_int_equal(buf_append_str(&text, "[0."), 0);
    for (size_t i = 0; i < 1000000; i++)
        assert_int_equal(buf_append(&text, "7", 1), 0);
    assert_int_equal(buf_append_str(&text, ",\""), 0);
    for (size_t i = 0; i < 1000000; i++)
        assert_int_equal(buf_append(&text, "\\u0041", 6), 0);
    assert_int_equal(buf_append_str(&text, "\"]"), 0);
    before = clock_mono_ns();
    doc = must_read(text.data, text.len);
    assert_int_equal(json_root(doc)->first->next->len, 1000000);
    json_doc_free(doc);
    assert_true(clock_mono_ns() - before < 10 * NS_PER_SEC);
}

static void survives_without_memory(void **state)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};
    (void)state;

    mem_fail_after(0);
    assert_int_equal(json_read("{\"a\":[1]}", 9, 10, &doc, &err), -ENOMEM);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(err.code, BRIG_E_NOMEM);
    assert_null(doc);
    json_doc_free(NULL);
}

/* Pieces of all lengths around the writer's own buffer come back as they were. */
static void long_strings_are_whole(void **state)
{
    char text[4000];
    (void)state;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 7 == 0 ? '\n' : i % 11 == 0 ? '\x01' : i % 1500 < 1100 ? 'a' : '"';
    memset(text + 100, 'b', 1500);
    for (size_t len = 0; len <= sizeof(text); len += 13) {
        AUTO_BUF struct buf b = BUF_INIT(1u << 20);
        struct json j = JSON_INIT(&b);
        struct json_doc *doc = NULL;

        json_string_n(&j, text, len);
        assert_int_equal(json_finish(&j), 0);
        assert_int_equal(json_read(b.data, b.len, 64, &doc, NULL), 0);
        assert_int_equal(json_root(doc)->len, len);
        assert_memory_equal(json_root(doc)->string, text, len);
        json_doc_free(doc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_strings_are_whole),
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(reads_a_lone_value),
        cmocka_unit_test(remembers_the_text),
        cmocka_unit_test(unescapes),
        cmocka_unit_test(knows_integers),
        cmocka_unit_test(refuses_with_the_place),
        cmocka_unit_test(takes_the_length_as_given),
        cmocka_unit_test(bounds_depth_and_values),
        cmocka_unit_test(looks_up_in_large_objects),
        cmocka_unit_test(finds_doubles_in_large_objects),
        cmocka_unit_test(stays_linear),
        cmocka_unit_test(survives_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
