/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a run: layers, refusals that name the name and never the value, and what may be shown of it. */
#include "unit.h"

#include "base/arena.h"
#include "base/mem.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"
#include "run/environment.h"

static struct arena *memory; /* of one test */

static int set_up(void **state UNUSED)
{
    memory = arena_create(1u << 20);
    return memory ? 0 : -1;
}

static int tear_down(void **state UNUSED)
{
    arena_destroy(memory);
    return 0;
}

static int add(struct environment *env, enum env_layer layer, const char *name, const char *value, struct brig_err *err)
{
    return environment_add(env, layer, name, value, strlen(value), layer == ENV_AGENT, err);
}

static const char *value_of(struct environment *env, const char *name)
{
    const struct sbox_pair *pairs;
    size_t n = environment_pairs(env, &pairs);

    for (size_t i = 0; i < n; i++)
        if (strcmp(pairs[i].name, name) == 0)
            return pairs[i].value;
    return NULL;
}

static void later_layers_win(void **state UNUSED)
{
    struct environment *env = NULL;
    const struct sbox_pair *pairs;

    assert_int_equal(environment_create(memory, &env), 0);
    for (int from = 0; from < ENV_LAYER_MAX; from++) { /* in any order */
        int layer = (from * 5 + 3) % ENV_LAYER_MAX;
        char value[16];
        snprintf(value, sizeof value, "%s", env_layer_name((enum env_layer)layer));
        for (int k = 0; k <= layer; k++) {
            char name[8] = {(char)('A' + k), 0};
            assert_int_equal(add(env, (enum env_layer)layer, name, value, NULL), 0);
        }
    }
    for (int k = 0; k < ENV_LAYER_MAX; k++) {
        char name[8] = {(char)('A' + k), 0};
        assert_string_equal(value_of(env, name), "forced");
    }
    assert_int_equal(environment_pairs(env, &pairs), ENV_LAYER_MAX);
    for (size_t i = 1; i < ENV_LAYER_MAX; i++)
        assert_true(strcmp(pairs[i - 1].name, pairs[i].name) < 0);
    environment_destroy(env);
    environment_destroy(NULL);
}

static void same_layer_is_replaced(void **state UNUSED)
{
    struct environment *env = NULL;

    assert_int_equal(environment_create(memory, &env), 0);
    assert_int_equal(add(env, ENV_BASE, "PATH", "/bin", NULL), 0);
    assert_int_equal(add(env, ENV_BASE, "PATH", "/opt/brig/venv/bin:/bin", NULL), 0);
    assert_string_equal(value_of(env, "PATH"), "/opt/brig/venv/bin:/bin");
    environment_destroy(env);
}

static void refusals_name_the_name(void **state UNUSED)
{
    static const char *const bad[] = {"", "1A", "A B", "A=B", "A\nB", "\xc3\xa9", "a-b", NULL};
    struct environment *env = NULL;
    struct brig_err err;
    char name[32], *large = mem_alloc(ENVIRONMENT_BYTES + 1);

    assert_int_equal(environment_create(memory, &env), 0);
    for (int i = 0; bad[i]; i++) {
        assert_true(add(env, ENV_RUNTIME, bad[i], "hunter2-secret", &err) < 0);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_null(strstr(err.message, "hunter2"));
    }
    assert_true(environment_add(env, ENV_RUNTIME, "TOKEN", "hun\0ter2", 8, true, &err) < 0);
    assert_non_null(strstr(err.message, "TOKEN"));
    assert_null(strstr(err.message, "hun"));
    assert_non_null(large);
    memset(large, 'x', ENVIRONMENT_BYTES);
    assert_true(environment_add(env, ENV_RUNTIME, "LARGE", large, ENVIRONMENT_BYTES, true, &err) < 0);
    mem_free(large);
    for (unsigned i = 0; i < ENVIRONMENT_MAX; i++) {
        snprintf(name, sizeof name, "V%u", i);
        assert_int_equal(add(env, ENV_RUNTIME, name, "x", &err), 0);
    }
    assert_true(add(env, ENV_RUNTIME, "ONE_MORE", "x", &err) < 0);
    assert_non_null(strstr(err.message, "ONE_MORE"));
    assert_int_equal(add(env, ENV_RUNTIME, "V7", "y", &err), 0);
    assert_string_equal(value_of(env, "V7"), "y");
    environment_destroy(env);
}

static void objects_of_strings(void **state UNUSED)
{
    static const char text[] = "{\"A\": \"1\", \"B\": null, \"C\": \"x y\"}", bad[] = "{\"A\": 1}";
    struct environment *env = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err;

    assert_int_equal(environment_create(memory, &env), 0);
    assert_int_equal(environment_add_json(env, ENV_RUNTIME, NULL, &err), 0);
    assert_int_equal(json_read(text, strlen(text), 64, &doc, NULL), 0);
    assert_int_equal(environment_add_json(env, ENV_RUNTIME, json_root(doc), &err), 0);
    json_doc_free(doc);
    assert_string_equal(value_of(env, "C"), "x y");
    assert_null(value_of(env, "B"));
    assert_int_equal(json_read(bad, strlen(bad), 64, &doc, NULL), 0);
    assert_true(environment_add_json(env, ENV_RUNTIME, json_root(doc), &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    json_doc_free(doc);
    environment_destroy(env);
}

static void shown_without_values(void **state UNUSED)
{
    struct environment *env = NULL;
    struct buf out = BUF_INIT(65536);
    struct json json = JSON_INIT(&out);

    assert_int_equal(environment_create(memory, &env), 0);
    assert_int_equal(add(env, ENV_BASE, "PATH", "zz-value", NULL), 0);
    assert_int_equal(add(env, ENV_AGENT, "KEY", "zz-value", NULL), 0);
    assert_int_equal(add(env, ENV_SANDBOX, "KEY", "zz-value", NULL), 0);
    environment_json(env, false, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(out.data, "{\"KEY\":\"agent\",\"PATH\":\"base\"}");
    out.len = 0;
    json = JSON_INIT(&out);
    environment_json(env, true, &json);
    assert_int_equal(json_finish(&json), 0);
    assert_string_equal(
        out.data, "{\"KEY\":{\"layer\":\"agent\",\"over\":[\"sandbox\"]},\"PATH\":{\"layer\":\"base\",\"over\":[]}}");
    buf_done(&out);
    environment_destroy(env);
}

static void count_secret(void *ctx, const char *value, size_t len)
{
    assert_int_equal(strlen(value), len);
    (*(int *)ctx)++;
}

/* The daemon's environment stays the daemon's. */
static void base_is_an_allow_list(void **state UNUSED)
{
    struct environment *env = NULL;
    int n = 0;

    setenv("BRIG_SECRETS_KEY", "the-daemons-own", 1);
    setenv("TOOL_WEATHER_KEY", "w-123456", 1);
    setenv("TOOL_EXEC_DIR", "/srv", 1);
    assert_int_equal(environment_create(memory, &env), 0);
    assert_int_equal(environment_add_base(env, false, NULL), 0);
    assert_null(value_of(env, "BRIG_SECRETS_KEY"));
    assert_null(value_of(env, "TOOL_WEATHER_KEY"));
    assert_string_equal(value_of(env, "PYTHONWARNINGS"), "ignore");
    assert_string_equal(value_of(env, "NO_COLOR"), "1");
    assert_string_equal(value_of(env, "TERM"), "dumb");
    assert_string_equal(value_of(env, "PYTHONUNBUFFERED"), "1");
    assert_non_null(value_of(env, "PATH"));
    environment_each_secret(env, count_secret, &n);
    assert_int_equal(n, 0);
    assert_int_equal(environment_add_base(env, true, NULL), 0);
    assert_string_equal(value_of(env, "TOOL_WEATHER_KEY"), "w-123456");
    assert_null(value_of(env, "TOOL_EXEC_DIR"));
    assert_null(value_of(env, "BRIG_SECRETS_KEY"));
    environment_each_secret(env, count_secret, &n);
    assert_int_equal(n, 1);
    environment_destroy(env);
}

static void survives_lack_of_memory(void **state UNUSED)
{
    for (size_t n = 0;; n++) {
        struct environment *env = NULL;
        assert_int_equal(tear_down(NULL), 0);
        assert_int_equal(set_up(NULL), 0);
        mem_fail_after(n);
        int r = environment_create(memory, &env);
        if (r == 0)
            r = environment_add_base(env, false, NULL);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        environment_destroy(env);
        assert_int_equal(r < 0, failed);
        if (!failed)
            return;
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(later_layers_win),        CASE(same_layer_is_replaced), CASE(refusals_name_the_name),
        CASE(objects_of_strings),      CASE(shown_without_values),   CASE(base_is_an_allow_list),
        CASE(survives_lack_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
