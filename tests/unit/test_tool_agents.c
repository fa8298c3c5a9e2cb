/* SPDX-License-Identifier: Apache-2.0 */
/* Agents: members that are given replace, others stay; states that are refused; secrets that are sealed; changes side
 * by side. */
#include "store_kit.h"

#include "base/err.h"
#include "records/agents.h"

#define ORG "org-1"
#define K1 "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K2 "k2:ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define T1 "tool-123e4567-e89b-42d3-8456-426614174000"
#define T2 "tool-123e4567-e89b-42d3-8456-426614174001"

struct told {
    unsigned n, failed;
    struct brig_err err;
    char id[128], text[8192];
    uint64_t version, resealed;
};

static void on_object(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct told *told = ctx;

    told->n++;
    if (err) {
        told->failed++;
        told->err = *err;
        return;
    }
    snprintf(told->id, sizeof told->id, "%s", object->id);
    snprintf(told->text, sizeof told->text, "%s", object->text);
    told->version = object->version;
}

static void on_rotated(void *ctx, uint64_t resealed, const struct brig_err *err)
{
    struct told *told = ctx;

    told->n++;
    told->failed += err != NULL;
    told->resealed = resealed;
}

static void wait_for(struct kit *kit, const struct told *told, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (told->n < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

static int put(struct agents *agents, const char *id, const char *text, struct told *told, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    assert_int_equal(json_read(text, strlen(text), 100000, &doc, NULL), 0);
    int r = agents_put(agents, ORG, "key-1", id, json_root(doc), on_object, told, err);
    json_doc_free(doc);
    return r;
}

static void must_put(struct kit *kit, struct agents *agents, const char *id, const char *text, struct told *told)
{
    struct brig_err err = {0};
    unsigned n = told->n;

    if (put(agents, id, text, told, &err) < 0)
        fail_msg("%s", err.message);
    wait_for(kit, told, n + 1);
    if (told->failed)
        fail_msg("%s", told->err.message);
}

static int add_pair(void *ctx, const char *name, const char *value, size_t len)
{
    char *out = ctx;
    size_t at = strlen(out);

    assert_int_equal(strlen(value), len);
    snprintf(out + at, 256 - at, "%s=%s;", name, value);
    return 0;
}

static void assert_secrets(struct agents *agents, const char *id, const char *want)
{
    char out[256] = "";
    struct brig_err err = {0};

    if (agent_secrets(agents, objects_find(agents_objects(agents), ORG, id), add_pair, out, &err) < 0)
        fail_msg("%s", err.message);
    assert_string_equal(out, want);
}

static void test_life(void **state)
{
    struct kit *kit = *state;
    struct told told = {0};
    struct brig_err err = {0};
    struct keyring *ring = NULL;
    struct agents *agents = NULL;
    char id[128];

    assert_int_equal(keyring_parse(K1, strlen(K1), &ring, NULL), 0);
    kit_put_org(kit, ORG);
    assert_int_equal(agents_create(kit->store, ring, false, &agents, NULL), 0);
    must_put(kit, agents, NULL,
             "{\"name\":\"a\",\"project_id\":\"p\",\"tool_ids\":[\"" T1 "\",\"" T1
             "\"],\"secrets\":{\"TOKEN\":\"hunter2\",\"E\":\"\"},\"model\":\"m\",\"llm_config\":{\"x\":[1.50]},"
             "\"state\":{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"v\",\"limit\":10}]},"
             "\"free\":12345678901234567890123}}",
             &told);
    memcpy(id, told.id, sizeof id);
    assert_true(objects_id_ok("agent", id));
    assert_null(strstr(told.text, "hunter2"));
    assert_non_null(strstr(told.text, "\"other\":{\"model\":\"m\",\"llm_config\":{\"x\":[1.50]}}"));
    const struct object *agent = objects_find(agents_objects(agents), ORG, id);
    assert_string_equal(agent_name(agent), "a");
    assert_string_equal(agent_project(agent), "p");
    assert_true(agent_has_tool(agent, T1) && !agent_has_tool(agent, T2));
    assert_int_equal(agent_tools(agent)->count, 1);
    assert_non_null(json_get(agent_state(agent), "free"));
    assert_secrets(agents, id, "TOKEN=hunter2;E=;");
    char secret_id[64];
    snprintf(secret_id, sizeof secret_id, "%s", json_get(agent_secret_list(agent)->first, "id")->string);
    assert_true(objects_id_ok("agent-env", secret_id));

    /* PATCH: what is given */
    must_put(kit, agents, id, "{\"name\":\"b\",\"project_id\":null,\"model\":\"n\",\"more\":null}", &told);
    agent = objects_find(agents_objects(agents), ORG, id);
    assert_string_equal(agent_name(agent), "b");
    assert_string_equal(agent_project(agent), "p");
    assert_non_null(strstr(told.text, "\"other\":{\"llm_config\":{\"x\":[1.50]},\"model\":\"n\",\"more\":null}"));
    assert_secrets(agents, id, "TOKEN=hunter2;E=;");
    must_put(kit, agents, id, "{\"secrets\":{\"TOKEN\":\"other\",\"NEW\":null}}", &told);
    assert_secrets(agents, id, "TOKEN=other;NEW=;");
    agent = objects_find(agents_objects(agents), ORG, id);
    assert_string_equal(json_get(agent_secret_list(agent)->first, "id")->string, secret_id);
    must_put(kit, agents, id, "{\"secrets\":null,\"tool_exec_environment_variables\":{\"OLD\":\"x\"}}", &told);
    assert_secrets(agents, id, "OLD=x;");
    must_put(kit, agents, id, "{\"secrets\":{}}", &told);
    assert_secrets(agents, id, "");
    assert_true(put(agents, "agent-nobody", "{}", &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);

    /* side by side: none undoes another */
    told = (struct told){0};
    assert_int_equal(put(agents, id, "{\"name\":\"c\"}", &told, NULL), 0);
    assert_int_equal(agents_attach(agents, ORG, "key-2", id, T2, true, on_object, &told, NULL), 0);
    assert_int_equal(agents_attach(agents, ORG, "key-2", id, T1, false, on_object, &told, NULL), 0);
    /* is off already */
    assert_int_equal(agents_attach(agents, ORG, "key-2", id, T1, false, on_object, &told, NULL), 0);
    assert_int_equal(agents_set_state(agents, ORG, id, 0, " {\"k\":1} ", 9, on_object, &told, NULL), 0);
    assert_int_equal(put(agents, id, "{\"secrets\":{\"S\":\"1\"}}", &told, NULL), 0);
    wait_for(kit, &told, 6);
    assert_int_equal(told.failed, 0);
    agent = objects_find(agents_objects(agents), ORG, id);
    assert_string_equal(agent_name(agent), "c");
    assert_true(!agent_has_tool(agent, T1) && agent_has_tool(agent, T2));
    assert_int_equal(json_get(agent_state(agent), "k")->i64, 1);
    assert_secrets(agents, id, "S=1;");
    assert_true(agents_attach(agents, ORG, NULL, id, "tool-x", true, on_object, &told, &err) < 0);
    assert_true(agents_attach(agents, ORG, NULL, "agent-nobody", T1, true, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    /* of a version that is not the last */
    assert_true(agents_set_state(agents, ORG, id, 1, "{}", 2, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);

    kit_close(kit);
    agents_destroy(agents);
    keyring_destroy(ring);
    kit_open(kit);
    /* another key: rotated, and the old one is not needed */
    assert_int_equal(keyring_parse(K2 K1, strlen(K2 K1), &ring, NULL), 0);
    assert_int_equal(agents_create(kit->store, ring, false, &agents, NULL), 0);
    told = (struct told){0};
    assert_int_equal(agents_rotate(agents, on_rotated, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_int_equal(told.resealed, 1);
    assert_int_equal(told.failed, 0);
    kit_close(kit);
    agents_destroy(agents);
    keyring_destroy(ring);
    kit_open(kit);
    assert_int_equal(keyring_parse(K2, strlen(K2), &ring, NULL), 0);
    assert_int_equal(agents_create(kit->store, ring, false, &agents, NULL), 0);
    assert_secrets(agents, id, "S=1;");
    assert_string_equal(agent_name(objects_find(agents_objects(agents), ORG, id)), "c");
    kit_close(kit);
    agents_destroy(agents);
    keyring_destroy(ring);
    kit_open(kit);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "must be an object"},
        {"{\"name\":5}", "name: must be a string"},
        {"{\"name\":\"a\\u0000\"}", "name"},
        {"{\"project_id\":[]}", "project_id"},
        {"{\"tools\":\"x\"}", "tools: must be a list"},
        {"{\"tools\":[\"x\"]}", "tools: each is an id"},
        {"{\"tools\":[1]}", "tools: each is an id"},
        {"{\"tool_ids\":[\"agent-123e4567-e89b-42d3-8456-426614174000\"]}", "tools"},
        {"{\"state\":[]}", "state: must be an object"},
        {"{\"state\":{\"memory\":[]}}", "state.memory: must be an object"},
        {"{\"state\":{\"memory\":{\"blocks\":{}}}}", "state.memory.blocks: must be a list"},
        {"{\"state\":{\"memory\":{\"blocks\":[1]}}}", "`label`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"value\":\"x\"}]}}}", "`label`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"\",\"value\":\"x\"}]}}}", "`label`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\"}]}}}", "needs a `value`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\",\"value\":5}]}}}", "needs a `value`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\",\"value\":\"x\",\"limit\":\"5\"}]}}}", "`limit`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\",\"value\":\"x\",\"limit\":0}]}}}", "`limit`"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\",\"value\":\"\xc3\xa9\xc3\xa9\xc3\xa9\",\"limit\":2}]}}}",
         "more than 2 characters"},
        {"{\"state\":{\"memory\":{\"blocks\":[{\"label\":\"a\",\"value\":\"x\"},{\"label\":\"a\",\"value\":\"y\"}]}}}",
         "a is there twice"},
        {"{\"memory_blocks\":[{\"label\":\"a\"}]}", "needs a `value`"},
        {"{\"secrets\":[]}", "secrets: must be an object"},
        {"{\"secrets\":{\"A-B\":\"x\"}}", "secrets: \"A-B\""},
        {"{\"secrets\":{\"A\":5}}", "secrets: A: must be a string"},
        {"{\"secrets\":{\"A\":\"x\\u0000\"}}", "secrets: A: has a NUL"},
    };
    struct kit *kit = *state;
    struct told told = {0};
    struct brig_err err = {0};
    struct agents *agents = NULL;

    kit_put_org(kit, ORG);
    assert_int_equal(agents_create(kit->store, NULL, true, &agents, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        err = (struct brig_err){0};
        if (put(agents, NULL, cases[i].text, &told, &err) == 0)
            fail_msg("%s", cases[i].text);
        if (err.code != BRIG_E_INVALID || !strstr(err.message, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.message);
    }
    /* without a ring, with the switch: as they are, and the document says so */
    must_put(kit, agents, NULL, "{\"secrets\":{\"A\":\"x\"},\"memory_blocks\":[{\"label\":\"human\",\"value\":\"v\"}]}",
             &told);
    assert_non_null(strstr(told.text, "\"key_id\":\"plain\""));
    assert_non_null(strstr(told.text, "\"state\":{\"memory\":{\"blocks\":[{\"label\":\"human\",\"value\":\"v\"}]}}"));
    assert_secrets(agents, told.id, "A=x;");
    kit_close(kit);
    agents_destroy(agents);
    kit_open(kit);
    /* the switch is off again: neither written nor used */
    assert_int_equal(agents_create(kit->store, NULL, false, &agents, NULL), 0);
    assert_true(put(agents, NULL, "{\"secrets\":{\"A\":\"x\"}}", &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    char out[256] = "";
    assert_true(agent_secrets(agents, objects_find(agents_objects(agents), ORG, told.id), add_pair, out, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_true(agents_rotate(agents, on_rotated, &told, &err) < 0);
    kit_close(kit);
    agents_destroy(agents);
    kit_open(kit);
}

static void set_secret(struct kit *kit, struct agents *agents, const char *id, const char *key, const char *value,
                       const char *description, struct told *told)
{
    const struct agent_secret secret = {
        .value = value ? value : "", .len = value ? strlen(value) : 0, .description = description};
    struct brig_err err = {0};
    unsigned n = told->n;

    if (agents_set_secret(agents, ORG, "key-2", id, key, value ? &secret : NULL, on_object, told, &err) < 0)
        fail_msg("%s", err.message);
    wait_for(kit, told, n + 1);
}

/* One secret at a time: the others, their order, ids and descriptions stay. */
static void test_one_secret(void **state)
{
    struct kit *kit = *state;
    struct told told = {0};
    struct brig_err err = {0};
    struct agents *agents = NULL;
    struct keyring *ring = NULL;
    char id[128], large[VARIABLE_VALUE_MAX + 2];

    kit_put_org(kit, ORG);
    assert_int_equal(keyring_parse(K1, strlen(K1), &ring, NULL), 0);
    assert_int_equal(agents_create(kit->store, ring, false, &agents, NULL), 0);
    must_put(kit, agents, NULL, "{\"name\":\"a\",\"secrets\":{\"A\":\"1\",\"B\":\"2\"},\"model\":\"m\"}", &told);
    snprintf(id, sizeof id, "%s", told.id);
    set_secret(kit, agents, id, "C", "3", "third", &told);
    assert_secrets(agents, id, "A=1;B=2;C=3;");
    set_secret(kit, agents, id, "A", "one", NULL, &told);
    set_secret(kit, agents, id, "C", "", NULL, &told); /* an empty value is one; the description stays */
    assert_int_equal(told.failed, 0);
    assert_secrets(agents, id, "A=one;B=2;C=;");
    assert_non_null(strstr(told.text, "\"description\":\"third\""));
    assert_non_null(strstr(told.text, "\"model\":\"m\""));
    assert_non_null(strstr(told.text, "\"last_updated_by_id\":\"key-2\""));
    assert_null(strstr(told.text, "\"one\"")); /* sealed */
    set_secret(kit, agents, id, "B", NULL, NULL, &told);
    assert_secrets(agents, id, "A=one;C=;");
    /* refused: at once */
    memset(large, 'x', sizeof large);
    const struct agent_secret too_large = {.value = large, .len = VARIABLE_VALUE_MAX + 1},
                              with_nul = {.value = "a\0b", .len = 3}, fine = {.value = "x", .len = 1};
    assert_true(agents_set_secret(agents, ORG, NULL, id, "B", NULL, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_true(agents_set_secret(agents, ORG, NULL, id, "a-b", &fine, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    assert_true(agents_set_secret(agents, ORG, NULL, id, "A", &too_large, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    assert_true(agents_set_secret(agents, ORG, NULL, id, "A", &with_nul, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    assert_true(agents_set_secret(agents, ORG, NULL, "agent-123e4567-e89b-42d3-8456-426614174000", "A", &fine,
                                  on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_secrets(agents, id, "A=one;C=;");
    kit_close(kit);
    agents_destroy(agents);
    kit_open(kit);
    /* as it was stored; and nothing is sealed without a key */
    assert_int_equal(agents_create(kit->store, NULL, false, &agents, NULL), 0);
    assert_true(agents_set_secret(agents, ORG, NULL, id, "A", &fine, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    set_secret(kit, agents, id, "C", NULL, NULL, &told); /* removing needs none */
    assert_int_equal(told.failed, 0);
    kit_close(kit);
    agents_destroy(agents);
    keyring_destroy(ring);
    kit_open(kit);
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_life), KIT_CASE(test_one_secret), KIT_CASE(test_refused)};

    return kit_run("tool_agents", cases, ARRAY_SIZE(cases), true);
}
