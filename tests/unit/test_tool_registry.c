/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of tools: what a tool's document must be, its hash as Letta computes it, names and versions. */
#include "store_kit.h"

#include "base/err.h"
#include "records/registry.h"

#define ORG "org-1"
#define SRC "\"source_code\":\"def f():\\n    return 1\\n\""

static int parse(const char *text, struct tool *tool, struct json_doc **doc, struct brig_err *err)
{
    *doc = NULL;
    if (json_read(text, strlen(text), 10000, doc, err) < 0)
        fail_msg("%s", text);
    return tool_parse(json_root(*doc), tool, err);
}

static void test_parse(void **state)
{
    static const char text[] =
        "{\"name\":\"f\"," SRC
        ",\"source_type\":\"python\",\"description\":\"does\",\"tags\":[\"a\"],\"return_char_limit\":7,"
        "\"json_schema\":{\"name\":\"f\",\"description\":\"other\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"x\":{\"type\":\"integer\"}}}},"
        "\"pip_requirements\":[{\"name\":\"numpy\",\"version\":\"1.26.0\"},\"requests>=2\",{\"name\":\"a\","
        "\"version\":null}],\"npm_requirements\":null,"
        "\"default_requires_approval\":false,\"enable_parallel_execution\":true,\"metadata_\":{\"sandbox\":\"modal\","
        "\"x\":1},\"project_id\":null,\"unknown\":5,"
        "\"brig\":{\"network\":\"packages\",\"secrets\":[\"KEY\"],\"limits\":{\"memory\":\"64m\"},"
        "\"rate_limit\":{\"max_calls\":10,\"window_seconds\":60},"
        "\"approval\":true,\"needs_credentials\":true,\"fallback\":\"none\"}}";
    struct tool tool = {0};
    struct json_doc *doc;
    struct brig_err err = {0};

    (void)state;
    if (parse(text, &tool, &doc, &err) < 0)
        fail_msg("%s", err.message);
    assert_string_equal(tool.name, "f");
    assert_string_equal(tool.source, "def f():\n    return 1\n");
    assert_int_equal(tool.source_len, strlen(tool.source));
    assert_string_equal(tool.description, "does");
    assert_int_equal(tool.language, TOOL_PYTHON);
    assert_int_equal(tool.return_limit, 7);
    assert_int_equal(tool.n_pip, 3);
    assert_string_equal(tool.pip[0].name, "numpy");
    assert_string_equal(tool.pip[0].version, "1.26.0");
    assert_string_equal(tool.pip[1].name, "requests>=2");
    assert_null(tool.pip[1].version);
    assert_null(tool.pip[2].version);
    assert_int_equal(tool.n_npm, 0);
    assert_string_equal(tool.provider, "modal");
    assert_string_equal(tool.network->string, "packages");
    assert_int_equal(tool.secrets->count, 1);
    assert_non_null(tool.limits);
    assert_int_equal(tool.rate_max, 10);
    assert_int_equal(tool.rate_window_s, 60);
    assert_true(tool.requires_approval && tool.needs_credentials && tool.no_fallback);
    assert_non_null(tool.json_schema);
    assert_int_equal(tool.version, 0);
    tool_done(&tool);
    json_doc_free(doc);

    /* the least there is */
    assert_int_equal(parse("{\"name\":\"f\"," SRC "}", &tool, &doc, NULL), 0);
    assert_int_equal(tool.language, TOOL_PYTHON);
    assert_int_equal(tool.return_limit, TOOL_RETURN_LIMIT);
    assert_null(tool.schema);
    assert_null(tool.description);
    assert_false(tool.requires_approval || tool.needs_credentials || tool.no_fallback);
    tool_done(&tool);
    json_doc_free(doc);
    assert_int_equal(
        parse("{\"name\":\"up\",\"source_type\":\"command\",\"brig\":{\"command\":[\"/usr/bin/uptime\",\"\"]}}", &tool,
              &doc, NULL),
        0);
    assert_int_equal(tool.language, TOOL_COMMAND);
    assert_int_equal(tool.command->count, 2);
    tool_done(&tool);
    tool_done(NULL);
    json_doc_free(doc);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *says;
        int code;
    } cases[] = {
        {"[]", "must be an object", BRIG_E_INVALID},
        {"{\"name\":\"f\"}", "source_code: is required", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"source_code\":\"\"}", "source_code: is empty", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"source_code\":5}", "source_code: must be a string", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"source_code\":\"a\\u0000b\"}", "source_code: has a NUL", BRIG_E_INVALID},
        {"{" SRC "}", "name: a tool needs one", BRIG_E_USAGE},
        {"{\"name\":\"\"," SRC "}", "name: \"\"", BRIG_E_USAGE},
        {"{\"name\":\"a b\"," SRC "}", "name: \"a b\"", BRIG_E_USAGE},
        {"{\"name\":\"1a\"," SRC "}", "name: \"1a\"", BRIG_E_USAGE},
        {"{\"name\":\"a/b\"," SRC "}", "name: \"a/b\"", BRIG_E_USAGE},
        {"{\"name\":\"a2345678901234567890123456789012345678901234567x9\"," SRC "}", "more than 48", BRIG_E_USAGE},
        {"{\"name\":\"run\"," SRC "}", "reserved", BRIG_E_USAGE},
        {"{\"name\":\"count\"," SRC "}", "reserved", BRIG_E_USAGE},
        {"{\"name\":\"search\"," SRC "}", "reserved", BRIG_E_USAGE},
        {"{\"name\":\"generate-schema\"," SRC "}", "reserved", BRIG_E_USAGE},
        {"{\"json_schema\":{\"name\":\"add-base-tools\"}," SRC "}", "reserved", BRIG_E_USAGE},
        {"{\"name\":\"f\",\"json_schema\":{\"name\":\"g\"}," SRC "}", "is not the name in json_schema", BRIG_E_USAGE},
        {"{\"name\":\"f\",\"source_type\":\"cobol\"," SRC "}",
         "Tool source type is not supported at this time. Found cobol", BRIG_E_USAGE},
        {"{\"name\":\"f\",\"source_type\":\"typescript\"," SRC "}",
         "TypeScript tools require an explicit json_schema parameter.", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"json_schema\":[]," SRC "}", "json_schema: must be an object", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"json_schema\":{\"name\":\"f\",\"parameters\":5}," SRC "}", "parameters: must be an object",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"return_char_limit\":0," SRC "}", "return_char_limit: must be an integer from 1 to 1000000",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"return_char_limit\":1000001," SRC "}", "return_char_limit", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"return_char_limit\":1.5," SRC "}", "return_char_limit", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"return_char_limit\":\"5\"," SRC "}", "return_char_limit", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"pip_requirements\":{}," SRC "}", "pip_requirements: must be a list", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"pip_requirements\":[5]," SRC "}", "pip_requirements: each is", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"pip_requirements\":[{\"version\":\"1\"}]," SRC "}", "pip_requirements: one has no name",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"npm_requirements\":[\"\"]," SRC "}", "npm_requirements: one has no name", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"npm_requirements\":[{\"name\":\"a\",\"version\":1}]," SRC "}",
         "npm_requirements: version: must be a string", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"pip_requirements\":[\"a\\n--index-url x\"]," SRC "}", "pip_requirements", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"tags\":\"a\"," SRC "}", "tags", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"tags\":[1]," SRC "}", "tags", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"description\":1," SRC "}", "description: must be a string", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"metadata_\":[]," SRC "}", "metadata_: must be an object", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"metadata_\":{\"sandbox\":\"../x\"}," SRC "}", "metadata_.sandbox", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"default_requires_approval\":\"yes\"," SRC "}",
         "default_requires_approval: must be true or false", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":5," SRC "}", "brig: must be an object", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"netwrk\":1}," SRC "}", "brig.netwrk: is not known", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"secrets\":\"A\"}," SRC "}", "brig.secrets: must be a list", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"limits\":1}," SRC "}", "brig.limits", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"rate_limit\":{\"max_calls\":1}}," SRC "}", "brig.rate_limit: needs both",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"rate_limit\":{\"max_calls\":0,\"window_seconds\":1}}," SRC "}", "brig.max_calls",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"rules\":5}," SRC "}", "brig.rules", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"approval\":1}," SRC "}", "brig.approval: must be true or false", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"fallback\":\"maybe\"}," SRC "}", "brig.fallback: must be \"auto\" or \"none\"",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"brig\":{\"command\":[]}," SRC "}", "brig.command", BRIG_E_INVALID},
        {"{\"name\":\"f\",\"source_type\":\"command\"}", "command: a tool of source_type \"command\" needs it",
         BRIG_E_INVALID},
        {"{\"name\":\"f\",\"source_type\":\"command\",\"brig\":{\"command\":[\"\"]}}", "brig.command", BRIG_E_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tool tool = {0};
        struct json_doc *doc;
        struct brig_err err = {0};
        if (parse(cases[i].text, &tool, &doc, &err) == 0)
            fail_msg("%s", cases[i].text);
        json_doc_free(doc);
        if (!strstr(err.message, cases[i].says) || err.code != cases[i].code)
            fail_msg("%s: %s", cases[i].text, err.message);
    }
}

static void test_languages(void **state)
{
    static const struct {
        const char *name;
        enum tool_language language;
    } cases[] = {{"python", TOOL_PYTHON},         {"py", TOOL_PYTHON},     {"javascript", TOOL_JAVASCRIPT},
                 {"node", TOOL_JAVASCRIPT},       {"js", TOOL_JAVASCRIPT}, {"ts", TOOL_TYPESCRIPT},
                 {"typescript", TOOL_TYPESCRIPT}, {"bash", TOOL_BASH},     {"sh", TOOL_BASH},
                 {"command", TOOL_COMMAND}};
    enum tool_language language;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(tool_language_parse(cases[i].name, &language), 0);
        assert_int_equal(language, cases[i].language);
    }
    assert_int_equal(tool_language_parse("Python", &language), -EINVAL);
    assert_string_equal(tool_language_name(TOOL_TYPESCRIPT), "typescript");
}

static void test_hash(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{\"name\":\"f\"," SRC "}", "f3c5e04f87b1"}, /* Letta's own */
        {"{\"name\":\"f\",\"pip_requirements\":[{\"name\":\"numpy\",\"version\":\"1.26.0\"},{\"name\":\"it's\"}],"
         "\"npm_requirements\":[{\"name\":\"a\"}]," SRC "}",
         "bba8297c2493"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct tool tool = {0};
        struct json_doc *doc;
        char out[13];
        assert_int_equal(parse(cases[i].text, &tool, &doc, NULL), 0);
        assert_int_equal(tool_hash(&tool, out), 0);
        assert_string_equal(out, cases[i].want);
        tool_done(&tool);
        json_doc_free(doc);
    }
}

struct told {
    unsigned n, failed;
    struct brig_err err;
    char id[128];
    uint64_t version;
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
    told->version = object->version;
}

static void wait_for(struct kit *kit, const struct told *told, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (told->n < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

static void test_registry(void **state)
{
    static const char one[] = "{\"name\":\"f\"," SRC "}", two[] = "{\"name\":\"f\",\"description\":\"two\"," SRC "}",
                      bad[] = "{\"name\":\"run\"," SRC "}";
    static const char schema[] = "{\"json_schema\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\"}}," SRC "}";
    struct kit *kit = *state;
    struct told told = {0};
    struct brig_err err = {0};
    struct objects *registry = NULL;
    char id[128];

    kit_put_org(kit, ORG);
    assert_int_equal(registry_create(kit->store, &registry, NULL), 0);
    /*
     * two at once of one name: the second was made of what is no more, and is told; made of what is there it is the
     * next version
     */
    assert_int_equal(registry_upsert(registry, ORG, NULL, one, strlen(one), on_object, &told, NULL), 0);
    assert_int_equal(registry_upsert(registry, ORG, NULL, two, strlen(two), on_object, &told, NULL), 0);
    wait_for(kit, &told, 2);
    assert_int_equal(told.failed, 1);
    assert_int_equal(told.err.code, BRIG_E_CONFLICT);
    assert_int_equal(told.version, 1);
    memcpy(id, told.id, sizeof id);
    told.failed = 0;
    assert_int_equal(
        registry_upsert(registry, ORG, objects_by_key(registry, ORG, "f"), two, strlen(two), on_object, &told, NULL),
        0);
    wait_for(kit, &told, 3);
    assert_int_equal(told.failed, 0);
    assert_int_equal(told.version, 2);
    assert_string_equal(told.id, id);
    assert_true(objects_id_ok("tool", id));
    const struct object *object = objects_by_key(registry, ORG, "f");
    assert_string_equal(tool_of(object)->description, "two");
    assert_string_equal(tool_of(object)->id, id);
    assert_int_equal(tool_of(object)->version, 2);
    assert_null(objects_by_key(registry, "org-2", "f"));
    assert_true(registry_upsert(registry, ORG, NULL, bad, strlen(bad), on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_int_equal(registry_upsert(registry, ORG, NULL, schema, strlen(schema), on_object, &told, NULL), 0);
    wait_for(kit, &told, 4);
    /* a deletion of what is another by now is none */
    struct objects_change gone = {.org = ORG, .id = id, .expect_version = 1, .done = on_object, .ctx = &told};
    assert_true(objects_change(registry, &gone, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    /* a name that another tool has */
    assert_true(objects_put(registry, ORG, told.id, one, strlen(one), 0, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    kit_close(kit);
    objects_destroy(registry);
    kit_open(kit);
    assert_int_equal(registry_create(kit->store, &registry, NULL), 0);
    assert_int_equal(tool_of(objects_by_key(registry, ORG, "f"))->version, 2);
    assert_int_equal(objects_count(registry, ORG), 2);
    kit_close(kit);
    objects_destroy(registry);
    kit_open(kit);
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_parse), KIT_CASE(test_refused), KIT_CASE(test_languages),
                                       KIT_CASE(test_hash), KIT_CASE(test_registry)};

    return kit_run("tool_registry", cases, ARRAY_SIZE(cases), true);
}
