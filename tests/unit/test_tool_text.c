/* SPDX-License-Identifier: Apache-2.0 */
/* What Python prints, messages, truncation, agent state. */
#include "unit.h"

#include "base/err.h"
#include "codec/text.h"
#include "run/state.h"

static struct json_doc *parse(const char *text)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(text, strlen(text), JSON_READ_VALUES, &doc, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

static void python_prints(void **state UNUSED)
{
    /* Made with Python 3.11: print(json.loads(...)) */
    static const char *const cases[][2] = {
        {"null", "None"},
        {"true", "True"},
        {"false", "False"},
        {"42", "42"},
        {"-0", "0"},
        {"1.5", "1.5"},
        {"1.0", "1.0"},
        {"1e3", "1000.0"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"1e22", "1e+22"},
        {"123456789.123", "123456789.123"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"0.1", "0.1"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"-2.5", "-2.5"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"9223372036854775808", "9223372036854775808"},
        {"\"text\"", "text"},
        {"\"it's\"", "it's"},
        {"[]", "[]"},
        {"{}", "{}"},
        {"[1, null, true]", "[1, None, True]"},
        {"{\"a\": [1, {\"b\": null}]}", "{'a': [1, {'b': None}]}"},
        {"[\"it's\"]", "[\"it's\"]"},
        {"[\"\\\"\"]", "['\"']"},
        {"[\"'\\\"\"]", "['\\'\"']"},
        {"[\"a\\\\b\"]", "['a\\\\b']"},
        {"[\"\\n\\t\\r\\u0000\\u001f\\u007f\"]", "['\\n\\t\\r\\x00\\x1f\\x7f']"},
        {"[\"\\u00a0\\u00ad\"]", "['\\xa0\\xad']"},
        {"[\"\\u00e9\\u4e16\"]", "['\xc3\xa9\xe4\xb8\x96']"},
        {"[\"\\u2028\\ufeff\"]", "['\\u2028\\ufeff']"},
        {"[\"\\ud83d\\ude00\"]", "['\xf0\x9f\x98\x80']"},
        {"[\"\\udb40\\udc01\"]", "['\\U000e0001']"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc *doc = parse(cases[i][0]);
        struct buf out = BUF_INIT(4096);
        assert_int_equal(text_python(json_root(doc), &out), 0);
        assert_string_equal(out.data, cases[i][1]);
        buf_done(&out);
        json_doc_free(doc);
    }
}

static void friendly(void **state UNUSED)
{
    struct buf out = BUF_INIT(8192);
    char longer[3001];

    assert_int_equal(text_friendly("f", "ValueError", "no", &out), 0);
    assert_string_equal(out.data, "Error executing function f: ValueError: no");
    out.len = 0;
    assert_int_equal(text_friendly(NULL, "", "", &out), 0);
    assert_string_equal(out.data, "Error executing function None: : ");
    memset(longer, 'x', 3000);
    memcpy(longer + 958, "\xc3\xa9", 2); /* the thousandth character */
    longer[3000] = '\0';
    out.len = 0;
    assert_int_equal(text_friendly("f", "ValueError", longer, &out), 0);
    assert_int_equal(text_length(out.data, out.len), 1000);
    assert_int_equal(strlen(out.data), out.len);
    buf_done(&out);
}

static void truncation(void **state UNUSED)
{
    struct buf out = BUF_INIT(4096);

    assert_int_equal(buf_append_str(&out, "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\x41"), 0);
    assert_false(text_truncate(&out, 4));
    assert_string_equal(out.data, "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\x41");
    assert_true(text_truncate(&out, 3));
    assert_string_equal(
        out.data,
        "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80... [NOTE: function output was truncated since it exceeded the character "
        "limit: 4 > 3]");
    buf_done(&out);
}

#define STATE                                                                                                        \
    "{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\",\"blocks\":[{\"label\":\"human\"," \
    "\"value\":\"Bob\",\"limit\":5},{\"label\":\"persona\",\"value\":\"kind\",\"limit\":100}]}}"

static int apply(const char *changed, struct buf *out, struct buf *diff, struct brig_err *err)
{
    struct json_doc *before = parse(STATE), *after = parse(changed);

    *err = (struct brig_err){0};
    out->len = diff->len = 0;
    int r = state_apply(json_root(before), json_root(after), out, diff, err);
    json_doc_free(before);
    json_doc_free(after);
    return r;
}

static void state_changes(void **state UNUSED)
{
    struct buf out = BUF_INIT(65536), diff = BUF_INIT(65536);
    struct brig_err err;

    assert_int_equal(apply(STATE, &out, &diff, &err), 0);
    assert_string_equal(out.data, STATE);
    assert_int_equal(
        apply(
            "{\"memory\":{\"blocks\":[{\"label\":\"persona\",\"value\":\"\",\"limit\":100},{\"limit\":5,"
            "\"label\":\"human\",\"value\":\"Bob\"}],\"kind\":\"x\"},\"id\":\"agent-1\",\"big\":123456789012345678901}",
            &out, &diff, &err),
        1);
    assert_string_equal(
        out.data,
        "{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\",\"blocks\":[{\"label\":\"human\","
        "\"value\":\"Bob\",\"limit\":5},{\"label\":\"persona\",\"value\":\"\",\"limit\":100}]}}");
    assert_string_equal(
        diff.data,
        "{\"blocks\":{\"persona\":{\"before_sha256\":\"0b27c158feb36ab18a10ff687909ec730ece6280581dd407e2672359be7725dd"
        "\",\"after\":\"\"}}}");
    buf_done(&out);
    buf_done(&diff);
}

static void state_refusals(void **state UNUSED)
{
    static const char *const cases[][2] = {
        {"[]", "agent_state: what came back is no object"},
        {"{\"id\":\"agent-2\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\",\"blocks\":[]}}",
         "agent_state: `id` was changed; only values of memory blocks may be"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901}",
         "agent_state: `memory.kind` was changed; only values of its blocks may be"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"new\":1,\"memory\":{\"kind\":\"x\",\"blocks\":[]}}",
         "agent_state: `new` was changed; only values of memory blocks may be"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"y\",\"blocks\":[]}}",
         "agent_state: `memory.kind` was changed; only values of its blocks may be"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\",\"blocks\":[]}}",
         "agent_state: blocks were added or removed; only their values may change"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\","
         "\"blocks\":[{\"label\":\"human\",\"value\":\"Bob\",\"limit\":5},{\"label\":\"other\",\"value\":\"kind\","
         "\"limit\":100}]}}",
         "agent_state: block `persona` is missing"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\","
         "\"blocks\":[{\"label\":\"human\",\"value\":\"Bob\",\"limit\":50},{\"label\":\"persona\",\"value\":\"kind\","
         "\"limit\":100}]}}",
         "agent_state: `limit` of block `human` was changed; only values may be"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\","
         "\"blocks\":[{\"label\":\"human\",\"value\":\"Robert\",\"limit\":5},{\"label\":\"persona\",\"value\":\"kind\","
         "\"limit\":100}]}}",
         "agent_state: block `human` has 6 characters, its limit is 5"},
        {"{\"id\":\"agent-1\",\"big\":123456789012345678901,\"memory\":{\"kind\":\"x\","
         "\"blocks\":[{\"label\":\"human\",\"value\":7,\"limit\":5},{\"label\":\"persona\",\"value\":\"kind\","
         "\"limit\":100}]}}",
         "agent_state: the value of block `human` is no string"},
    };
    struct buf out = BUF_INIT(65536), diff = BUF_INIT(65536);
    struct brig_err err;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_true(apply(cases[i][0], &out, &diff, &err) < 0);
        assert_int_equal(err.code, BRIG_E_INVALID);
        assert_string_equal(err.message, cases[i][1]);
    }
    buf_done(&out);
    buf_done(&diff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_prints), cmocka_unit_test(friendly),       cmocka_unit_test(truncation),
        cmocka_unit_test(state_changes), cmocka_unit_test(state_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
