/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked for: states and their table, specs of sandboxes and of processes, and every way to ask wrongly. */
#include "sandbox_rig.h"

/* ---- states ------------------------------------------------------------------------------------------------ */

static void table_of_states(void **state UNUSED)
{
    static const char *const expected[SBOX_STATE_MAX] = {
        /* to: creating running pausing paused resuming stopping ended */
        [SBOX_CREATING] = ".r...s.", [SBOX_RUNNING] = "c.p..s.",  [SBOX_PAUSING] = "cr.p.s.", [SBOX_PAUSED] = "c...rs.",
        [SBOX_RESUMING] = "cr.p.s.", [SBOX_STOPPING] = "......e", [SBOX_ENDED] = ".......",
    };

    for (int from = 0; from < SBOX_STATE_MAX; from++)
        for (int to = 0; to < SBOX_STATE_MAX; to++)
            assert_int_equal(state_allows((enum sbox_state)from, (enum sbox_state)to), expected[from][to] != '.');
    assert_string_equal(sbox_state_name(SBOX_PAUSING), "pausing");
    assert_string_equal(sbox_state_name(SBOX_STATE_MAX), "unknown");
}

/* ---- specs --------------------------------------------------------------------------------------------------- */

static void refused(struct rig *rig, const char *text, const char *message)
{
    struct sbox_spec spec;
    struct brig_err err = {0};

    if (rig_spec(rig, text, &spec, &err) == 0)
        fail_msg("%s was accepted", text);
    if (!strstr(err.message, message))
        fail_msg("%s: \"%s\" does not hold \"%s\"", text, err.message, message);
    assert_int_equal(err.code, BRIG_E_USAGE);
}

/* 33 times the same name. An older version took that, so a sandbox that it stored is read. */
static void stored_services_may_be_older_than_a_bound(void **state)
{
    struct rig *rig = *state;
    AUTO_BUF struct buf text = BUF_INIT(4096);
    struct sbox_spec spec;
    struct brig_err err = {0};

    assert_int_equal(buf_append_str(&text, "{\"services\":[{\"name\":\"a\",\"argv\":[\"x\"]},"
                                           "{\"name\":\"b\",\"argv\":[\"x\"],\"after\":[\"a\""),
                     0);
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(buf_append_str(&text, ",\"a\""), 0);
    assert_int_equal(buf_append_str(&text, "]}]}"), 0);
    refused(rig, text.data, "service b: after: must be an array of at most 32 names");
    struct json_doc *doc = rig_json(text.data);
    if (spec_parse_stored(json_root(doc), &rig->config, &rig->caller, &spec, &err) < 0)
        fail_msg("%s", err.message);
    assert_string_equal(spec.service_names, "a b");
    sbox_spec_done(&spec);
    json_doc_free(doc);
}

static void specs_are_strict(void **state)
{
    struct rig *rig = *state;

    refused(rig, "[]", "must be a JSON object");
    refused(rig, "{\"nam\":\"x\"}", "nam: there is no such member");
    refused(rig, "{\"name\":1}", "name 1: must be a string");
    refused(rig, "{\"name\":\"-x\"}", "name -x: must be 1 to 63 of");
    refused(rig, "{\"name\":\"brig\"}", "is reserved");
    refused(rig, "{\"name\":\"Host\"}", "is reserved");
    refused(rig, "{\"name\":\"run-x\"}", "names that start with \"run-\" are reserved");
    refused(rig, "{\"name\":\"sandbox-1\"}", "reserved");
    refused(rig, "{\"name\":\"abcdefghijklmnopqrstuvwxyz\"}", "has the form of an id");
    refused(rig, "{\"name\":\"a\\r\\nb\"}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"a\\nb\":\"c\"}}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"a\":\"c\\r\\nX: y\"}}", "must not hold control characters");
    refused(rig, "{\"metadata\":{\"\":\"c\"}}", "must not be empty");
    refused(rig, "{\"metadata\":{\"a\":1}}", "metadata a: must be a string");
    refused(rig, "{\"env\":{\"A=B\":\"c\"}}", "must not hold spaces or \"=\"");
    refused(rig, "{\"env\":{\"A B\":\"c\"}}", "must not hold spaces");
    refused(rig, "{\"env\":{\"A\":\"c\\u0000d\"}}", "must not hold a NUL");
    refused(rig, "{\"limits\":{\"memry\":1}}", "limits.memry: there is no such limit");
    refused(rig, "{\"limits\":{\"memory\":1}}", "memory 1: must be between");
    refused(rig, "{\"require\":\"wings\"}", "require wings: there is no such layer");
    refused(rig, "{\"profile\":\"lax\"}", "profile \"lax\": must be one of default, paranoid, compat");
    refused(rig, "{\"workdir\":\"x\"}", "must be absolute");
    refused(rig, "{\"workdir\":\"/a/../b\"}", "must not hold \"..\"");
    refused(rig, "{\"user\":\"ad min\"}", "user \"ad min\": must be");
    refused(rig, "{\"network\":1}", "network: must be the name of a policy");
    refused(rig, "{\"network\":[]}", "network: must be the name of a policy");
    refused(rig, "{\"network\":\"a\\nb\"}", "network \"a\\x0ab\": must not hold control characters");
    refused(rig, "{\"secrets\":{}}", "secrets: must be an array");
    refused(rig, "{\"secrets\":[{}]}", "secrets.name: must be given");
    refused(rig, "{\"secrets\":[{\"name\":\"a.b\"}]}", "secrets.env a.b: must be the name of a variable");
    refused(rig, "{\"secrets\":[{\"name\":\"A\",\"value\":\"x\"}]}", "secrets.value: there is no such member");
    refused(rig, "{\"secrets\":[{\"name\":\"A\",\"expose\":1}]}", "secrets.expose 1: must be true or false");
    refused(rig, "{\"secrets\":[{\"name\":\"A\"},{\"name\":\"B\",\"env\":\"A\"}]}",
            "secrets.env A: two secrets in one variable");
    refused(rig, "{\"secrets\":[{\"name\":\"A\"}],\"env\":{\"A\":\"x\"}}", "secrets.env A: env sets it too");
    refused(rig, "{\"on_timeout\":\"stop\"}", "must be one of kill, pause");
    refused(rig, "{\"on_death\":null}", "on_death null: must be one of none, recreate");
    refused(rig, "{\"confine\":\"/\"}", "must be one of root, workdir");
    refused(rig, "{\"writable_root\":1}", "must be true or false");
    refused(rig, "{\"template\":\"nope\"}", "template nope: nothing here can supply it");
    refused(rig, "{\"template\":\"../x\"}", "must be a name of");
    refused(rig, "{\"image\":\"a b\"}", "a b");
    refused(rig, "{\"image\":\"Registry/x\"}", "Registry/x");
    refused(rig, "{\"image\":\"x/../y\"}", "x/../y");
    refused(rig, "{\"image\":\"\"}", "image");
    refused(rig, "{\"template\":\"--privileged\"}", "must be a name of");
}

/* Attack A20: none of them wraps into something small, none is taken for "no limit". */
static void integer_edges(void **state)
{
    static const char *const values[] = {"0",      "-1",      "2147483648",          "1e308",     "1e-9", "\"0\"",
                                         "\"-1\"", "\"1e9\"", "9223372036854775807", "\"9e99G\"", "true", "[]"};
    struct rig *rig = *state;
    char text[128];

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        snprintf(text, sizeof text, "{\"timeout\":%s}", values[i]);
        refused(rig, text, "must be between 0.001 and 31536000 seconds");
        snprintf(text, sizeof text, "{\"idle_timeout\":%s}", values[i]);
        refused(rig, text, "must be between 0.001 and 31536000 seconds");
        snprintf(text, sizeof text, "{\"limits\":{\"timeout\":%s}}", values[i]);
        refused(rig, text, "must be between");
        snprintf(text, sizeof text, "{\"limits\":{\"cpus\":%s}}", values[i]);
        refused(rig, text, "must be between");
        snprintf(text, sizeof text, "{\"limits\":{\"pids\":%s}}", values[i]);
        refused(rig, text, "must be");
        if (!str_eq(values[i], "2147483648")) {
            snprintf(text, sizeof text, "{\"limits\":{\"memory\":%s}}", values[i]);
            refused(rig, text, "must be");
        }
    }
    refused(rig, "{\"limits\":{\"memory\":\"9e99G\"}}", "limits.memory \"9e99G\": must be a positive number of bytes");
    refused(rig, "{\"limits\":{\"memory\":1.5}}", "must be a positive number of bytes");
    refused(rig, "{\"limits\":{\"cpus\":0.001}}", "cpus 1: must be between");
}

static void specs_are_read(void **state)
{
    struct rig *rig = *state;
    struct sbox_spec spec;
    struct brig_err err = {0};

    assert_int_equal(rig_spec(rig, "{}", &spec, &err), 0);
    assert_string_equal(spec.template_name, "host");
    assert_string_equal(spec.workdir, "/workspace");
    assert_int_equal(spec.idle_timeout_ms, 3600000);
    assert_int_equal(spec.timeout_ms, 0);
    assert_string_equal(spec.network, "\"none\"");
    sbox_spec_done(&spec);
    sbox_spec_done(&spec); /* twice is fine */

    assert_true(rig_spec(rig, "{\"secrets\":[{\"name\":\"U\",\"expose\":true}]}", &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    rig->caller.role = STORE_ROLE_ADMIN;
    assert_int_equal(
        rig_spec(rig,
                 "{\"network\":{\"default\":\"deny\",\"rules\":[{\"domain\":\"x.org\",\"ports\":[443,\"80-90\"]}]},"
                 "\"secrets\":[{\"name\":\"T\",\"env\":\"TOKEN\"},"
                 "{\"name\":\"U\",\"expose\":true}]}",
                 &spec, &err),
        0);
    assert_string_equal(spec.network,
                        "{\"default\":\"deny\",\"rules\":[{\"domain\":\"x.org\",\"ports\":[443,\"80-90\"]}]}");
    assert_int_equal(spec.n_secrets, 2);
    assert_string_equal(spec.secrets[0].env, "TOKEN");
    assert_string_equal(spec.secrets[1].env, "U");
    assert_true(spec.secrets[1].expose);
    sbox_spec_done(&spec);
    rig->caller.role = STORE_ROLE_USER;
    rig->config.network_enabled = true;
    assert_int_equal(rig_spec(rig, "{}", &spec, &err), 0);
    assert_string_equal(spec.network, "\"open\"");
    sbox_spec_done(&spec);
    rig->config.network = (char *)(uintptr_t) "mine";
    assert_int_equal(rig_spec(rig, "{}", &spec, &err), 0);
    assert_string_equal(spec.network, "\"mine\"");
    sbox_spec_done(&spec);
    rig->config.network_enabled = false;
    rig->config.network = NULL;

    assert_int_equal(
        rig_spec(
            rig,
            "{\"name\":\"a.b\",\"metadata\":{\"k\":\"v\"},\"env\":{\"A\":\"b\\nc\"},\"limits\":{\"memory\":\"64m\","
            "\"cpus\":0.5,\"timeout\":1.5,"
            "\"pids\":10,\"output\":100},\"require\":[\"seccomp\"],\"profile\":\"paranoid\",\"workdir\":\"/w\","
            "\"user\":\"user\",\"network\":\"none\","
            "\"timeout\":\"2m\",\"idle_timeout\":null,\"on_timeout\":\"pause\",\"on_death\":\"recreate\","
            "\"idle_policy\":\"requests\","
            "\"confine\":\"workdir\",\"writable_root\":true,\"template\":\"python:2.7\"}",
            &spec, &err),
        0);
    assert_string_equal(spec.name, "a.b");
    assert_string_equal(spec.metadata[0].value, "v");
    assert_string_equal(spec.env[0].value, "b\nc");
    assert_int_equal(spec.limits.memory, 64u << 20);
    assert_int_equal(spec.limits.cpus, 500);
    assert_int_equal(spec.limits.timeout, 1500);
    assert_int_equal(spec.require, BRIG_LAYER_BIT(BRIG_LAYER_SECCOMP));
    assert_int_equal(spec.profile, BRIG_PROFILE_PARANOID);
    assert_int_equal(spec.timeout_ms, 120000);
    assert_int_equal(spec.idle_timeout_ms, 0);
    assert_int_equal(spec.on_timeout, SBOX_TIMEOUT_PAUSE);
    assert_int_equal(spec.on_death, SBOX_DEATH_RECREATE);
    assert_true(spec.idle_ignores_processes && spec.confine && spec.writable_root);
    assert_non_null(strstr(spec.note, "python:2.7"));
    sbox_spec_done(&spec);

    /* binds and paths are the administrator's */
    assert_true(rig_spec(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/data\"}]}", &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    assert_true(rig_spec(rig, "{\"template\":\"/srv/root\"}", &spec, &err) < 0);
    assert_int_equal(err.code, BRIG_E_FORBIDDEN);
    rig->caller.role = STORE_ROLE_ADMIN;
    assert_int_equal(
        rig_spec(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/data\",\"read_only\":true}]}", &spec, &err), 0);
    assert_true(spec.binds[0].read_only);
    sbox_spec_done(&spec);
    refused(rig, "{\"binds\":[{\"source\":\"srv\",\"target\":\"/data\"}]}", "must be absolute");
    refused(rig, "{\"binds\":[{\"source\":\"/srv\",\"target\":\"/proc/x\"}]}", "must not be in /proc");
}

static void specs_without_memory(void **state)
{
    struct rig *rig = *state;
    struct json_doc *doc = rig_json("{\"metadata\":{\"k\":\"v\"},\"env\":{\"A\":\"b\"}}");
    struct sbox_spec spec;
    struct brig_err err = {0};

    mem_fail_after(0);
    int r = sbox_spec_parse(json_root(doc), &rig->config, rig->templates, &rig->caller, &spec, &err);
    mem_fail_after(MEM_FAIL_NEVER);
    assert_int_equal(r, -ENOMEM);
    json_doc_free(doc);
}

/* ---- specs ---------------------------------------------------------------------------------------------- */

static void spec_refused(struct sbox *sbox, const char *text, const char *message)
{
    struct json_doc *doc = rig_json(text);
    struct process_spec_parsed parsed;
    struct brig_err err = {0};

    if (process_spec_parse(json_root(doc), sbox, &parsed, &err) == 0)
        fail_msg("%s was accepted", text);
    if (!strstr(err.message, message))
        fail_msg("%s: \"%s\" does not hold \"%s\"", text, err.message, message);
    assert_int_equal(err.code, BRIG_E_USAGE);
    json_doc_free(doc);
}

static void process_specs(void **state)
{
    struct rig *rig = *state;
    struct sbox *sbox = rig_sandbox(rig, "{\"workdir\":\"/w\"}");
    struct process_spec_parsed parsed;
    struct json_doc *doc;

    spec_refused(sbox, "[]", "must be a JSON object");
    spec_refused(sbox, "{}", "argv: must be given, or command");
    spec_refused(sbox, "{\"argv\":[]}", "argv: must be an array");
    spec_refused(sbox, "{\"argv\":[\"\"]}", "must not be empty");
    spec_refused(sbox, "{\"argv\":[\"a\\u0000b\"]}", "must not hold a NUL");
    spec_refused(sbox, "{\"argv\":[1]}", "argv 1: must be a string");
    spec_refused(sbox, "{\"argv\":[\"a\"],\"command\":\"b\"}", "only one of them");
    spec_refused(sbox, "{\"command\":\"\"}", "must not be empty");
    spec_refused(sbox, "{\"command\":\"a\",\"cwd\":\"../x\"}", "must not hold \"..\"");
    spec_refused(sbox, "{\"command\":\"a\",\"timeout\":0}", "timeout 0: must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"timeout\":-1}", "must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"output\":0}", "must be a positive number of bytes");
    spec_refused(sbox, "{\"command\":\"a\",\"on_output_limit\":\"x\"}", "must be one of drop, kill");
    spec_refused(sbox, "{\"command\":\"a\",\"rows\":70000}", "must be a whole number between 1 and 65535");
    spec_refused(sbox, "{\"command\":\"a\",\"ring\":1}", "ring: must be between");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"?\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"aa=a\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"stdin\":\"ab==\",\"stdin_encoding\":\"base64\"}", "is not base64");
    spec_refused(sbox, "{\"command\":\"a\",\"tty\":true,\"stdin\":\"x\"}", "not for a terminal");
    spec_refused(sbox, "{\"command\":\"a\",\"env\":{\"A\\nB\":\"\"}}", "must not hold control characters");
    spec_refused(sbox, "{\"command\":\"a\",\"x\":1}", "x: there is no such member");

    doc = rig_json(
        "{\"command\":\"ls -l\",\"cwd\":\"sub\",\"env\":{\"A\":\"b=c\"},\"stdin\":\"/wA=\","
        "\"stdin_encoding\":\"base64\",\"timeout\":\"1.5s\","
        "\"output\":\"1k\",\"on_output_limit\":\"kill\",\"ring\":\"1m\",\"rows\":3,\"cols\":4,\"stdin_open\":true}");
    assert_int_equal(process_spec_parse(json_root(doc), sbox, &parsed, NULL), 0);
    json_doc_free(doc);
    assert_string_equal(parsed.spec.argv[0], "/bin/sh");
    assert_string_equal(parsed.spec.argv[2], "ls -l");
    assert_null(parsed.spec.argv[3]);
    assert_string_equal(parsed.spec.workdir, "/w/sub");
    assert_string_equal(parsed.spec.env[0], "A=b=c");
    assert_int_equal(parsed.spec.input_len, 2);
    assert_memory_equal(parsed.spec.input, "\xff\x00", 2);
    assert_int_equal(parsed.spec.timeout_ms, 1500);
    assert_int_equal(parsed.spec.output, 1024);
    assert_true(parsed.spec.kill_on_output && parsed.spec.stdin_open);
    assert_int_equal(parsed.spec.ring, 1u << 20);
    process_spec_done(&parsed);
    process_spec_done(&parsed);

    doc = rig_json("{\"env\":{\"A\":\"b\"},\"cwd\":\"/x\"}");
    assert_int_equal(process_spec_parse_shell(json_root(doc), sbox, &parsed, NULL), 0);
    assert_null(parsed.spec.argv);
    process_spec_done(&parsed);
    json_doc_free(doc);
    doc = rig_json("{\"argv\":[\"x\"]}");
    assert_true(process_spec_parse_shell(json_root(doc), sbox, &parsed, NULL) < 0);
    json_doc_free(doc);
    assert_int_equal(process_spec_parse_shell(NULL, sbox, &parsed, NULL), 0);
    process_spec_done(&parsed);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(table_of_states),
        CASE(specs_are_strict),
        CASE(stored_services_may_be_older_than_a_bound),
        CASE(integer_edges),
        CASE(specs_are_read),
        CASE(specs_without_memory),
        CASE(process_specs),
    };

    return cmocka_run_group_tests_name("sandbox_spec", cases, NULL, NULL);
}
