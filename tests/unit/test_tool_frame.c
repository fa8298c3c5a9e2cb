/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime protocol: the request is JSON that says everything, and an answer is one only with the run's code. */
#include "unit.h"

#include "base/mem.h"
#include "crypto/crypto.h"
#include "run/runtime_frame.h"
#include "sandbox/manager.h"

static const uint8_t key[FRAME_KEY] = "0123456789abcdef0123456789abcde";

static size_t seal(const uint8_t with[FRAME_KEY], const char *payload, char *out, size_t size)
{
    uint8_t code[SHA256_SIZE];

    assert_int_equal(crypto_hmac_sha256(with, FRAME_KEY, payload, strlen(payload), code), 0);
    crypto_hex(code, sizeof code, out);
    snprintf(out + 64, size - 64, "\n%s", payload);
    return 65 + strlen(payload);
}

static int read_answer(const char *payload, struct frame_answer *ret)
{
    static char text[65536];
    size_t n = seal(key, payload, text, sizeof text);

    return frame_answer_read(key, text, n, ret);
}

static const char *string_at(const struct json_value *object, const char *name)
{
    const struct json_value *v = json_get(object, name);

    return v && v->type == JSON_STRING ? v->string : NULL;
}

static void request_says_everything(void **state UNUSED)
{
    static const char both[] = "{\"schema\":{\"name\":\"add\"},\"state\":{\"memory\":{}}}";
    struct tool tool = {.name = "add",
                        .source = "def add(a):\n  return \"\xc3\xa9\"\n",
                        .source_len = strlen("def add(a):\n  return \"\xc3\xa9\"\n"),
                        .language = TOOL_PYTHON};
    const struct sbox_pair env[] = {{"A", "1"}, {"B", "x\ny"}};
    struct frame_request q = {.kind = FRAME_TOOL,
                              .tool = &tool,
                              .args = "{\"a\": 123456789012345678901234567890}",
                              .env = env,
                              .n_env = 2,
                              .agent_id = "agent-1",
                              .site = "/opt/brig/venv"};
    struct buf out = BUF_INIT(1u << 20);
    struct json_doc *doc = NULL, *given = NULL;

    assert_int_equal(json_read(both, sizeof both - 1, 100, &given, NULL), 0);
    tool.json_schema = json_get(json_root(given), "schema");
    q.agent_state = json_get(json_root(given), "state");
    q.args_len = strlen(q.args);
    memcpy(q.key, key, sizeof key);
    assert_int_equal(frame_request_put(&q, &out), 0);
    /* as it came: no digit is lost */
    assert_non_null(strstr(out.data, "\"args\":{\"a\": 123456789012345678901234567890}"));
    assert_int_equal(json_read(out.data, out.len, 1000, &doc, NULL), 0);
    const struct json_value *root = json_root(doc);
    assert_int_equal(json_get(root, "v")->i64, 1);
    assert_int_equal(strlen(string_at(root, "key")), 64);
    assert_string_equal(string_at(root, "kind"), "tool");
    assert_string_equal(string_at(root, "language"), "python");
    assert_string_equal(string_at(root, "name"), "add");
    assert_string_equal(string_at(root, "source"), tool.source);
    assert_string_equal(string_at(json_get(root, "env"), "B"), "x\ny");
    assert_string_equal(string_at(json_get(root, "schema"), "name"), "add");
    assert_string_equal(string_at(root, "cwd"), "/workspace");
    assert_string_equal(string_at(root, "site"), "/opt/brig/venv");
    assert_string_equal(string_at(root, "agent_id"), "agent-1");
    assert_non_null(json_get(json_get(root, "agent_state"), "memory"));
    json_doc_free(doc);
    json_doc_free(given);
    buf_done(&out);
}

static void state_is_absent_unless_given(void **state UNUSED)
{
    const struct tool tool = {.source = "1", .source_len = 1, .language = TOOL_BASH};
    const struct frame_request q = {.kind = FRAME_CODE, .tool = &tool};
    struct buf out = BUF_INIT(1u << 20);
    struct json_doc *doc = NULL;

    assert_int_equal(frame_request_put(&q, &out), 0);
    assert_int_equal(json_read(out.data, out.len, 1000, &doc, NULL), 0);
    assert_null(json_get(json_root(doc), "agent_state"));
    assert_int_equal(json_get(json_root(doc), "name")->type, JSON_NULL);
    assert_int_equal(json_get(json_root(doc), "site")->type, JSON_NULL);
    assert_int_equal(json_get(json_root(doc), "args")->count, 0);
    json_doc_free(doc);
    buf_done(&out);
}

static void results_are_the_bytes_that_came(void **state UNUSED)
{
    static const struct {
        const char *payload, *result;
    } cases[] = {
        {"{\"status\":\"ok\",\"result\":42}", "42"},
        {"{\"status\":\"ok\",\"result\":123456789012345678901234567890}", "123456789012345678901234567890"},
        {"{\"status\":\"ok\"}", "null"},
        {"{\"status\":\"ok\",\"result\": null }", "null"},
        {" { \"agent_state\" : null , \"result\" : [ 1, {\"result\":\"}\\\"]\"} ] , \"status\":\"ok\" } ",
         "[ 1, {\"result\":\"}\\\"]\"} ]"},
        {"{\"result\":\"a\\\\\",\"status\":\"ok\"}", "\"a\\\\\""},
        {"{\"notes\":[\"result\"],\"result\":{\"a\":[[]]},\"status\":\"ok\"}", "{\"a\":[[]]}"},
        {"{\"status\":\"ok\",\"result\":1.0}", "1.0"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct frame_answer a;
        char got[256];
        assert_int_equal(read_answer(cases[i].payload, &a), 0);
        assert_true(a.ok);
        snprintf(got, sizeof got, "%.*s", (int)a.result_len, a.result);
        assert_string_equal(got, cases[i].result);
        frame_answer_done(&a);
    }
}

static void errors_are_structured(void **state UNUSED)
{
    struct frame_answer a;

    assert_int_equal(
        read_answer(
            "{\"status\":\"error\",\"error\":{\"type\":\"ValueError\",\"message\":\"no\",\"traceback\":\"Traceback\"},"
            "\"out\":false}",
            &a),
        0);
    assert_false(a.ok);
    assert_string_equal(a.error_type, "ValueError");
    assert_string_equal(a.error_message, "no");
    assert_string_equal(a.traceback, "Traceback");
    assert_true(a.nothing_left);
    frame_answer_done(&a);
}

static void only_with_the_code(void **state UNUSED)
{
    static const uint8_t other[FRAME_KEY] = "another key";
    struct frame_answer a;
    char text[256], copy[256];
    size_t n = seal(key, "{\"status\":\"ok\",\"result\":1}", text, sizeof text);

    assert_int_equal(frame_answer_read(key, text, n, &a), 0);
    frame_answer_done(&a);
    assert_int_equal(frame_answer_read(other, text, n, &a), -EBADMSG);
    for (size_t i = 0; i < n; i++) { /* any byte that is another */
        memcpy(copy, text, n);
        copy[i] ^= 1;
        assert_true(frame_answer_read(key, copy, n, &a) < 0);
    }
    for (size_t i = 0; i < n; i++)
        assert_true(frame_answer_read(key, text, i, &a) < 0);
    text[n] = ' '; /* and none may be added */
    assert_int_equal(frame_answer_read(key, text, n + 1, &a), -EBADMSG);
}

static void types_are_checked(void **state UNUSED)
{
    static const char *const bad[] = {
        "",
        "1",
        "[]",
        "{}",
        "{\"status\":1}",
        "{\"status\":\"fine\"}",
        "{\"status\":\"error\"}",
        "{\"status\":\"error\",\"error\":\"x\"}",
        "{\"status\":\"error\",\"error\":{\"type\":1}}",
        "{\"status\":\"ok\",\"agent_state\":[]}",
        "{\"status\":\"ok\",\"files\":{}}",
        "{\"status\":\"ok\",\"status\":\"ok\"}",
        "{\"status\":\"ok\",\"result\":1}x",
        "{\"status\":\"ok\",\"result\":NaN}",
        "{\"status\":\"ok\",\"out\":0}",
        "\xff",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct frame_answer a;
        assert_int_equal(read_answer(bad[i], &a), -EPROTO);
    }
}

static void survives_lack_of_memory(void **state UNUSED)
{
    for (size_t n = 0;; n++) {
        struct frame_answer a = {0};
        mem_fail_after(n);
        int r = read_answer("{\"status\":\"ok\",\"result\":{\"a\":[1,2,3]}}", &a);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        frame_answer_done(&a);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        if (!failed)
            return;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_says_everything),
        cmocka_unit_test(state_is_absent_unless_given),
        cmocka_unit_test(results_are_the_bytes_that_came),
        cmocka_unit_test(errors_are_structured),
        cmocka_unit_test(only_with_the_code),
        cmocka_unit_test(types_are_checked),
        cmocka_unit_test(survives_lack_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
