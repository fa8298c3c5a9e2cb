/* SPDX-License-Identifier: Apache-2.0 */
/* Sandbox configurations: which type is meant, what is completed and refused, the fingerprint's golden values,
 * variables and their rotation. */
#include "store_kit.h"

#include "base/err.h"
#include "crypto/crypto.h"
#include "records/configs.h"

#define ORG "org-00000000-0000-4000-8000-000000000000"
#define OTHER_ORG "org-123e4567-e89b-42d3-8456-426614174000"
#define K1 "k1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define K2 "k2:ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define LEGACY_KEY "test-master-key-1234567890abcdef"
#define LEGACY "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGzbn82O+HFfTQlUUKodsIOQ1xZO6kxXwdkX7KNLKtHqQzuztug=="
#define DIR "/root/.letta/tool_execution_dir"

static char empty[] = "", exec_dir[] = DIR, allowed[] = "/srv/tools:/opt/a//b/../c/", venv[] = "myenv",
            template[] = "tpl", legacy[] = LEGACY_KEY;
static struct config settings;

static struct keyring *ring_of(const char *text)
{
    struct keyring *ring = NULL;

    assert_int_equal(keyring_parse(text, strlen(text), &ring, NULL), 0);
    return ring;
}

static void plain_settings(void)
{
    settings = (struct config){.tools_exec_dir = exec_dir,
                               .allowed_dirs = allowed,
                               .tools_venv_name = empty,
                               .tools_e2b_template = empty,
                               .tools_legacy_key = legacy};
}

struct told {
    unsigned n, failed;
    struct brig_err err;
    char id[128], text[4096], before[FINGERPRINT_MAX], after[FINGERPRINT_MAX];
    uint64_t version, resealed;
    unsigned changes;
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

static void on_change(void *ctx, const char *org, const char *type, const char *id, const char *before,
                      const char *after)
{
    struct told *told = ctx;

    (void)org, (void)type, (void)id;
    told->changes++;
    snprintf(told->before, sizeof told->before, "%s", before);
    snprintf(told->after, sizeof told->after, "%s", after);
}

static void on_rotated(void *ctx, uint64_t resealed, const struct brig_err *err)
{
    struct told *told = ctx;

    told->n++;
    told->resealed = resealed;
    if (err) {
        told->failed++;
        told->err = *err;
    }
}

static void wait_for(struct kit *kit, const struct told *told, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (told->n < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

static struct configs *make(struct kit *kit, const struct keyring *ring, bool plain, struct told *told)
{
    const struct configs_options options = {
        .store = kit->store, .ring = ring, .plain = plain, .config = &settings, .on_change = on_change, .ctx = told};
    struct configs *configs = NULL;
    struct brig_err err = {0};

    if (configs_create(&options, &configs, &err) < 0)
        fail_msg("%s", err.message);
    return configs;
}

/* ---- types -------------------------------------------------------------------------------------------- */

/* Every row of Letta's table, with our answer; where it is another, what was meant wins over which class has
 * most fields. */
static void test_resolve(void **state)
{
    static const struct {
        const char *config, *type;
    } cases[] = {
        {"{}", "local"},
        {"{\"sandbox_dir\":\"/x\"}", "local"},
        {"{\"use_venv\":true}", "local"},
        {"{\"pip_requirements\":[]}", "local"},
        {"{\"pip_requirements\":[{\"name\":\"a\"}]}", "local"},
        {"{\"timeout\":60}", "e2b"},
        {"{\"template\":\"x\"}", "e2b"}, /* Letta: local, and the template is lost */
        {"{\"timeout\":60,\"template\":\"x\"}", "e2b"},
        {"{\"pip_requirements\":[\"cowsay\"]}", "e2b"},
        {"{\"language\":\"python\"}", "modal"}, /* Letta: local */
        /* Letta: e2b, so that its own modal configuration could not be updated */
        {"{\"timeout\":60,\"language\":\"python\"}", "modal"},
        {"{\"timeout\":60,\"language\":\"typescript\",\"npm_requirements\":[\"a\"]}", "modal"},
        {"{\"timeout\":60,\"pip_requirements\":null,\"npm_requirements\":null,\"language\":null}", "modal"},
        {"{\"foo\":1}", "local"},
        {"{\"sandbox_dir\":\"/x\",\"timeout\":5,\"template\":\"t\"}", "e2b"},
        {"{\"pip_requirements\":[{\"name\":\"\"}]}", "local"}, /* and then refused */
        {"{\"sandbox_dir\":\"/x\",\"timeout\":5}", "local"},
        {"{\"type\":\"docker\",\"image\":\"x\"}", "docker"},
        {"{\"type\":\"local\",\"timeout\":5}", "local"},
        {"{\"type\":null,\"timeout\":5}", "e2b"},
        {"{\"type\":5}", NULL},
        {"{\"type\":\"\"}", NULL},
        {"{\"type\":\"Local\"}", NULL},
        {"{\"type\":\"a\\u0000b\"}", NULL},
        {"[]", NULL},
        {"null", NULL},
        {"{\"type\":\"a123456789012345678901234567890x\"}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc *doc = NULL;
        char type[CONFIG_TYPE_MAX] = "";
        struct brig_err err = {0};
        assert_int_equal(json_read(cases[i].config, strlen(cases[i].config), 1000, &doc, NULL), 0);
        int r = config_resolve(json_root(doc), type, &err);
        json_doc_free(doc);
        if (cases[i].type ? r < 0 || !str_eq(type, cases[i].type) : r == 0 || err.code != BRIG_E_INVALID)
            fail_msg("%s: %d %s %s", cases[i].config, r, type, err.message);
    }
}

static int complete(const struct configs *configs, const char *type, const char *config, const char *old,
                    struct buf *out, struct brig_err *err)
{
    struct json_doc *doc = NULL, *old_doc = NULL;

    assert_int_equal(json_read(config, strlen(config), 10000, &doc, NULL), 0);
    if (old)
        assert_int_equal(json_read(old, strlen(old), 10000, &old_doc, NULL), 0);
    int r = config_complete(configs, type, json_root(doc), old_doc ? json_root(old_doc) : NULL, out, err);
    json_doc_free(doc);
    json_doc_free(old_doc);
    return r;
}

static void test_complete(void **state)
{
    static const struct {
        const char *type, *config, *old, *want;
    } cases[] = {
        {"local", "{}", NULL,
         "{\"sandbox_dir\":\"" DIR "\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[]}"},
        {"e2b", "{}", NULL, "{\"timeout\":300}"},
        {"modal", "{}", NULL, "{\"timeout\":60,\"language\":\"python\"}"},
        {"local", "{\"use_venv\":\"yes\",\"venv_name\":null,\"foo\":1,\"type\":\"local\"}", NULL,
         "{\"sandbox_dir\":\"" DIR "\",\"use_venv\":true,\"venv_name\":\"venv\",\"pip_requirements\":[]}"},
        {"local",
         "{\"pip_requirements\":[{\"name\":\"a\",\"version\":\"1.0\",\"x\":1},{\"name\":\"b\",\"version\":null},"
         "\"c==2\"]}",
         NULL,
         "{\"sandbox_dir\":\"" DIR
         "\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[{\"name\":\"a\",\"version\":\"1.0\"},"
         "{\"name\":\"b\"},{\"name\":\"c==2\"}]}"},
        {"local", "{\"persist\":true,\"sandbox_dir\":\"/srv/tools/./x//y/\"}", NULL,
         "{\"sandbox_dir\":\"/srv/tools/x/y\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[],"
         "\"persist\":true}"},
        {"local", "{\"persist\":\"off\",\"sandbox_dir\":\"/opt/a/c\"}", NULL,
         "{\"sandbox_dir\":\"/opt/a/c\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[]}"},
        {"e2b", "{\"timeout\":\" 60 \",\"template\":\"x\",\"pip_requirements\":[\"cowsay\"]}", NULL,
         "{\"timeout\":60,\"template\":\"x\",\"pip_requirements\":[\"cowsay\"]}"},
        {"e2b", "{\"timeout\":60.0}", NULL, "{\"timeout\":60}"},
        {"e2b", "{\"timeout\":\"60.0\"}", NULL, "{\"timeout\":60}"},
        {"e2b", "{\"timeout\":true}", NULL, "{\"timeout\":1}"},
        {"e2b", "{\"template\":\"y\"}", "{\"timeout\":90,\"template\":\"x\",\"pip_requirements\":[\"a\"]}",
         "{\"timeout\":90,\"template\":\"y\",\"pip_requirements\":[\"a\"]}"},
        {"e2b", "{\"template\":null,\"timeout\":null}", "{\"timeout\":90,\"template\":\"x\"}", "{\"timeout\":300}"},
        {"modal", "{\"npm_requirements\":[\"left-pad@1.0.0\"],\"language\":\"typescript\"}", NULL,
         "{\"timeout\":60,\"npm_requirements\":[\"left-pad@1.0.0\"],\"language\":\"typescript\"}"},
        {"docker",
         "{\"type\":\"docker\",\"image\":\"python:3\",\"cpus\":1.50,\"on\":true,\"nothing\":null,\"deep\":{\"a\":1},"
         "\"pip_requirements\":[\"a\"]}",
         NULL, "{\"image\":\"python:3\",\"cpus\":1.50,\"on\":true,\"pip_requirements\":[\"a\"]}"},
        {"docker", "{\"image\":null,\"more\":1}", "{\"image\":\"python:3\",\"cpus\":2}", "{\"cpus\":2,\"more\":1}"},
    };
    struct kit *kit = *state;
    struct told told = {0};

    plain_settings();
    struct configs *configs = make(kit, NULL, true, &told);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(65536);
        struct brig_err err = {0};
        if (complete(configs, cases[i].type, cases[i].config, cases[i].old, &out, &err) < 0)
            fail_msg("%s: %s", cases[i].config, err.message);
        assert_string_equal(out.data, cases[i].want);
    }
    /* the settings' defaults */
    AUTO_BUF struct buf local = BUF_INIT(65536), e2b = BUF_INIT(65536);
    settings.tools_venv_name = venv;
    settings.tools_e2b_template = template;
    assert_int_equal(complete(configs, "local", "{}", NULL, &local, NULL), 0);
    assert_string_equal(local.data, "{\"sandbox_dir\":\"" DIR
                                    "\",\"use_venv\":true,\"venv_name\":\"myenv\",\"pip_requirements\":[]}");
    assert_int_equal(complete(configs, "e2b", "{}", NULL, &e2b, NULL), 0);
    assert_string_equal(e2b.data, "{\"timeout\":300,\"template\":\"tpl\"}");
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
}

static void test_refused(void **state)
{
    static const struct {
        const char *type, *config, *says;
        int code;
    } cases[] = {
        {"local", "[]", "config: must be an object", BRIG_E_INVALID},
        {"local", "{\"sandbox_dir\":5}", "sandbox_dir", BRIG_E_INVALID},
        {"local", "{\"sandbox_dir\":\"x/y\"}", "absolute", BRIG_E_INVALID},
        {"local", "{\"sandbox_dir\":\"/etc\"}", "/etc", BRIG_E_FORBIDDEN},
        {"local", "{\"sandbox_dir\":\"/srv/tools/../../etc\"}", "/etc", BRIG_E_FORBIDDEN},
        {"local", "{\"sandbox_dir\":\"/srv/toolsy\"}", "/srv/toolsy", BRIG_E_FORBIDDEN},
        {"local", "{\"sandbox_dir\":\"/opt/a/b\"}", "/opt/a/b", BRIG_E_FORBIDDEN},
        {"local", "{\"sandbox_dir\":\"/\"}", "/", BRIG_E_FORBIDDEN},
        {"local", "{\"sandbox_dir\":\"/srv/tools\\u0000/x\"}", "sandbox_dir", BRIG_E_INVALID},
        {"local", "{\"use_venv\":\"maybe\"}", "use_venv", BRIG_E_INVALID},
        {"local", "{\"use_venv\":2}", "use_venv", BRIG_E_INVALID},
        {"local", "{\"venv_name\":\"../x\"}", "venv_name", BRIG_E_INVALID},
        {"local", "{\"venv_name\":\"..\"}", "venv_name", BRIG_E_INVALID},
        {"local", "{\"pip_requirements\":[{\"name\":\"\"}]}", "name", BRIG_E_INVALID},
        {"local", "{\"pip_requirements\":[{\"name\":\"a\",\"version\":1}]}", "version", BRIG_E_INVALID},
        {"local", "{\"pip_requirements\":\"a\"}", "pip_requirements", BRIG_E_INVALID},
        {"local", "{\"pip_requirements\":[{\"name\":\"--index-url\"}]}", "pip_requirements", BRIG_E_INVALID},
        {"local", "{\"pip_requirements\":[{\"name\":\"a\",\"version\":\"1 --pre\"}]}", "pip_requirements",
         BRIG_E_INVALID},
        {"e2b", "{\"pip_requirements\":[\"git+https://x/y\"]}", "pip_requirements", BRIG_E_INVALID},
        {"e2b", "{\"pip_requirements\":[\"/etc/passwd\"]}", "pip_requirements", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":\"soon\"}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":1.5}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":0}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":-5}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":\"-5\"}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"timeout\":99999999999999999999}", "timeout", BRIG_E_INVALID},
        {"e2b", "{\"template\":5}", "template", BRIG_E_INVALID},
        {"modal", "{\"language\":\"cobol\"}", "language", BRIG_E_INVALID},
        {"docker", "{\"image\":\"a\\u0000\"}", "image", BRIG_E_INVALID},
    };
    struct kit *kit = *state;
    struct told told = {0};

    plain_settings();
    struct configs *configs = make(kit, NULL, true, &told);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(65536);
        struct brig_err err = {0};
        if (complete(configs, cases[i].type, cases[i].config, NULL, &out, &err) == 0)
            fail_msg("%s: %s", cases[i].config, out.data);
        if (!strstr(err.message, cases[i].says) || err.code != cases[i].code)
            fail_msg("%s: %s", cases[i].config, err.message);
    }
    settings.tools_allow_urls = true;
    AUTO_BUF struct buf out = BUF_INIT(65536);
    assert_int_equal(complete(configs, "e2b", "{\"pip_requirements\":[\"git+https://x/y\"]}", NULL, &out, NULL), 0);
    assert_true(config_dir_allowed(configs, DIR) && config_dir_allowed(configs, "/srv/tools/a") &&
                !config_dir_allowed(configs, "/srv") && !config_dir_allowed(configs, "x"));
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
}

/* ---- the fingerprint ---------------------------------------------------------------------------------- */

static void test_fingerprint(void **state)
{
    static const struct {
        const char *type, *org, *config, *want;
    } cases[] = {
        {"local", ORG,
         "{\"sandbox_dir\":\"" DIR "\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[]}",
         "48408990033679363701484527775310645901996820373321982248109825766489622234136"},
        {"e2b", ORG, "{\"timeout\":300}",
         "56894528977682583305824433591024591196543562763041121221751094954850843705791"},
        {"modal", OTHER_ORG,
         "{\"timeout\": 60, \"pip_requirements\":[\"pandas\",\"numpy==1.26.0\"],\"language\":\"python\"}",
         "52681298111758279050376097631774737680188320195422229229485678694039453213978"},
        {"local", ORG,
         "{\"sandbox_dir\":\"/tmp/\xf0\x9f\x98\x80\\u007f\\u0001\",\"venv_name\":\"v\\\"\\\\\\/\\n\",\"use_venv\":true,"
         "\"pip_requirements\":[]}",
         "87266598068102464539401844771970422258617355580625999566612993636084372537096"},
        {"e2b", NULL, "{}", "79350436413130118329505768474406966444199322842811470381120996735566180700588"},
        /* numbers as Python prints them, keys by code point: from Python's own json and hashlib */
        {"e2b", NULL,
         "{\"b\":[1.0,1e16,1e-5,0.1,123456789012345678901234567890,-0,-0.0,1.5e300,100000000000000000.0,0.0001],"
         "\"a\":null,\"\xc3\xa9\":true,\"B\":{}}",
         "41780855297969472690572376653657415446415558406272158193398303556680077600514"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_doc *doc = NULL;
        char out[FINGERPRINT_MAX];
        assert_int_equal(json_read(cases[i].config, strlen(cases[i].config), 1000, &doc, NULL), 0);
        assert_int_equal(config_fingerprint(cases[i].type, cases[i].org, json_root(doc), out), 0);
        json_doc_free(doc);
        assert_string_equal(out, cases[i].want);
    }
}

/* ---- configurations ----------------------------------------------------------------------------------- */

static int put(struct configs *configs, const char *id, const char *type, const char *config, bool default_only,
               struct told *told, struct brig_err *err)
{
    struct json_doc *doc = NULL;

    if (config)
        assert_int_equal(json_read(config, strlen(config), 1000, &doc, NULL), 0);
    int r = configs_put(configs, ORG, "key-1", STANDING_USER, id, type, doc ? json_root(doc) : NULL, default_only,
                        on_object, told, err);
    json_doc_free(doc);
    return r;
}

static void must_put(struct kit *kit, struct configs *configs, const char *id, const char *type, const char *config,
                     bool default_only, struct told *told)
{
    struct brig_err err = {0};
    unsigned n = told->n;

    if (put(configs, id, type, config, default_only, told, &err) < 0)
        fail_msg("%s", err.message);
    wait_for(kit, told, n + 1);
    if (told->failed)
        fail_msg("%s", told->err.message);
}

static void test_life(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct brig_err err = {0};
    char id[128];

    plain_settings();
    kit_put_org(kit, ORG);
    struct configs *configs = make(kit, NULL, true, &all);
    must_put(kit, configs, NULL, "local", NULL, true, &told);
    assert_true(objects_id_ok("sandbox", told.id));
    assert_string_equal(told.text,
                        "{\"type\":\"local\",\"config\":{\"sandbox_dir\":\"" DIR
                        "\",\"use_venv\":false,\"venv_name\":\"venv\",\"pip_requirements\":[]},"
                        "\"created_by_id\":\"key-1\",\"last_updated_by_id\":\"key-1\",\"written_as\":\"user\"}");
    assert_string_equal(all.before, "");
    assert_string_equal(all.after, "48408990033679363701484527775310645901996820373321982248109825766489622234136");
    memcpy(id, told.id, sizeof id);
    /* equal: as it is; default only: as it is */
    must_put(kit, configs, NULL, "local", "{\"use_venv\":0}", false, &told);
    assert_int_equal(told.version, 1);
    must_put(kit, configs, NULL, NULL, "{\"use_venv\":true}", true, &told);
    assert_int_equal(told.version, 1);
    assert_int_equal(all.changes, 1);
    /* another content: the same id, another fingerprint */
    must_put(kit, configs, NULL, NULL, "{\"use_venv\":true}", false, &told);
    assert_string_equal(told.id, id);
    assert_int_equal(told.version, 2);
    assert_string_equal(all.before, "48408990033679363701484527775310645901996820373321982248109825766489622234136");
    assert_string_not_equal(all.after, all.before);
    assert_string_equal(config_object_fingerprint(configs_by_type(configs, ORG, "local")), all.after);
    /* PATCH merges, whichever type would have been meant */
    must_put(kit, configs, id, NULL, "{\"venv_name\":\"other\"}", false, &told);
    assert_non_null(strstr(told.text, "\"use_venv\":true,\"venv_name\":\"other\""));
    must_put(kit, configs, NULL, "modal", "{\"timeout\":20}", false, &told);
    memcpy(id, told.id, sizeof id);
    must_put(kit, configs, id, NULL, "{\"timeout\":30}", false, &told);
    assert_non_null(strstr(told.text, "{\"timeout\":30,\"language\":\"python\"}"));
    assert_true(put(configs, id, NULL, "{\"sandbox_dir\":\"/x\"}", false, &told, &err) < 0);
    assert_string_equal(
        err.message,
        "Mismatched type for sandbox config update: tried to update sandbox_config of type modal with config of "
        "type local");
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_true(put(configs, id, NULL, "{\"type\":\"e2b\",\"timeout\":5}", false, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_true(put(configs, "sandbox-nobody", NULL, "{}", false, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_true(put(configs, NULL, "Bad", "{}", false, &told, &err) < 0);
    assert_true(put(configs, NULL, "local", "[]", false, &told, &err) < 0);
    /* two that make the same thing at once make one */
    told = (struct told){0};
    assert_int_equal(put(configs, NULL, "docker", "{\"image\":\"a\"}", false, &told, NULL), 0);
    assert_int_equal(put(configs, NULL, "docker", "{\"image\":\"b\"}", false, &told, NULL), 0);
    wait_for(kit, &told, 2);
    assert_int_equal(told.failed, 0);
    assert_int_equal(told.version, 2);
    assert_int_equal(objects_count(configs_objects(configs), ORG), 3);
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
    configs = make(kit, NULL, true, &all);
    assert_non_null(configs_by_type(configs, ORG, "docker"));
    assert_null(configs_by_type(configs, OTHER_ORG, "docker"));
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
}

/* ---- variables ---------------------------------------------------------------------------------------- */

static int set(struct configs *configs, const char *config_id, const char *id, const char *key, const char *value,
               struct told *told, struct brig_err *err)
{
    const struct variable_change change = {.key = key, .value = value, .value_len = value ? strlen(value) : 0};

    return variables_put(configs, ORG, "key-1", config_id, id, &change, on_object, told, err);
}

static void must_set(struct kit *kit, struct configs *configs, const char *config_id, const char *id, const char *key,
                     const char *value, struct told *told)
{
    struct brig_err err = {0};
    unsigned n = told->n;

    if (set(configs, config_id, id, key, value, told, &err) < 0)
        fail_msg("%s", err.message);
    wait_for(kit, told, n + 1);
    if (told->failed)
        fail_msg("%s", told->err.message);
}

static void assert_value(struct configs *configs, const char *config_id, const char *key, const char *want)
{
    const struct object *variable = variables_by_key(configs, ORG, config_id, key);
    struct brig_err err = {0};
    uint8_t *value = NULL;
    size_t len = 0;

    assert_non_null(variable);
    if (variable_reveal(configs, variable, &value, &len, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(value, want, len);
    crypto_secret_free(value, len);
}

static void test_variables(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct brig_err err = {0};
    struct keyring *ring = ring_of(K1);
    char config_id[128], id[128];
    uint8_t *value = NULL;
    size_t len = 0;

    plain_settings();
    kit_put_org(kit, ORG);
    struct configs *configs = make(kit, ring, false, &all);
    must_put(kit, configs, NULL, "local", NULL, true, &told);
    memcpy(config_id, told.id, sizeof config_id);
    must_set(kit, configs, config_id, NULL, "TOKEN", "hunter2-hunter2", &told);
    memcpy(id, told.id, sizeof id);
    assert_true(objects_id_ok("sandbox-env", id));
    assert_null(strstr(told.text, "hunter2"));
    assert_non_null(strstr(told.text, "\"key_id\":\"k1\""));
    assert_value(configs, config_id, "TOKEN", "hunter2-hunter2");
    must_set(kit, configs, config_id, NULL, "TOKEN", "hunter2-hunter2", &told); /* the same: no version */
    assert_int_equal(told.version, 1);
    must_set(kit, configs, config_id, NULL, "TOKEN", "another", &told);
    assert_string_equal(told.id, id);
    assert_int_equal(told.version, 2);
    must_set(kit, configs, config_id, NULL, "EMPTY", "", &told);
    assert_value(configs, config_id, "EMPTY", "");
    must_set(kit, configs, NULL, id, "RENAMED", NULL, &told); /* by id; the name is in the seal, so it is sealed anew */
    assert_value(configs, config_id, "RENAMED", "another");
    assert_null(variables_by_key(configs, ORG, config_id, "TOKEN"));
    must_set(kit, configs, NULL, id, NULL, "value", &told);
    assert_value(configs, config_id, "RENAMED", "value");

    static const char *const bad[] = {"", "1A", "A-B", "A B", "A=B", "\xc3\xa9", "A\n"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_true(set(configs, config_id, NULL, bad[i], "x", &told, &err) < 0 && err.code == BRIG_E_INVALID);
    const struct variable_change nul = {.key = "A", .value = "a\0b", .value_len = 3};
    assert_true(variables_put(configs, ORG, NULL, config_id, NULL, &nul, on_object, &told, &err) < 0);
    assert_true(set(configs, NULL, id, "EMPTY", NULL, &told, &err) < 0); /* another has that name */
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(set(configs, "sandbox-nobody", NULL, "A", "x", &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(set(configs, NULL, "sandbox-env-nobody", "A", "x", &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_true(set(configs, config_id, NULL, "A", NULL, &told, &err) < 0);

    /* a row that was moved to another name does not open */
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
    kit_exec(kit, "UPDATE objects SET doc = REPLACE(doc, '\"RENAMED\"', '\"MOVED\"') WHERE kind = 'variable'");
    configs = make(kit, ring, false, &all);
    assert_true(variable_reveal(configs, variables_by_key(configs, ORG, config_id, "MOVED"), &value, &len, &err) < 0);
    assert_int_equal(err.code, BRIG_E_REFUSED);
    assert_value(configs, config_id, "EMPTY", "");
    assert_non_null(variables_next(configs, ORG, config_id, variables_next(configs, ORG, config_id, NULL)));

    /* they go with their configuration */
    told = (struct told){0};
    assert_int_equal(configs_delete(configs, ORG, config_id, on_object, &told, NULL), 0);
    /* on its way while the configuration goes */
    assert_int_equal(set(configs, config_id, NULL, "LATE", "x", &told, NULL), 0);
    wait_for(kit, &told, 2);
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;
    while (objects_count(configs_variables(configs), ORG) > 0 && clock_mono_ns() < give_up)
        assert_int_equal(loop_run_once(kit->loop, 100, NULL), 0);
    assert_int_equal(objects_count(configs_variables(configs), ORG), 0);
    assert_int_equal(configs_delete(configs, ORG, config_id, on_object, &told, &err), -ENOENT);
    kit_close(kit);
    configs_destroy(configs);
    keyring_destroy(ring);
    kit_open(kit);
}

static void test_keys(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct brig_err err = {0};
    struct keyring *ring = ring_of(K1), *both = ring_of(K2 K1), *second = ring_of(K2);
    char config_id[128], name[16];

    plain_settings();
    kit_put_org(kit, ORG);
    struct configs *configs = make(kit, NULL, false, &all);
    must_put(kit, configs, NULL, "local", NULL, true, &told);
    memcpy(config_id, told.id, sizeof config_id);
    assert_true(set(configs, config_id, NULL, "A", "x", &told, &err) < 0); /* no key, no switch */
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_non_null(strstr(err.message, "keygen"));
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);

    configs = make(kit, ring, false, &all);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "V%d", i);
        must_set(kit, configs, config_id, NULL, name, name, &told);
    }
    /* Letta's stored form, opened and sealed as ours */
    const struct variable_change old = {.key = "OLD", .value_enc = LEGACY};
    told = (struct told){0};
    assert_int_equal(variables_put(configs, ORG, NULL, config_id, NULL, &old, on_object, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_value(configs, config_id, "OLD", "secret-api-key-12345");
    assert_non_null(strstr(told.text, "\"key_id\":\"k1\""));
    settings.tools_legacy_key = empty;
    assert_true(variables_put(configs, ORG, NULL, config_id, NULL, &old, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    settings.tools_legacy_key = venv;
    assert_true(variables_put(configs, ORG, NULL, config_id, NULL, &old, on_object, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    settings.tools_legacy_key = legacy;
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);

    /* a row in Letta's form opens, and is ours after the next write */
    AUTO_BUF struct buf sql = BUF_INIT(4096);
    assert_int_equal(
        buf_printf(&sql,
                   "UPDATE objects SET doc = '{\"config_id\":\"%s\",\"key\":\"OLD\",\"sealed\":{\"legacy\":\"" LEGACY
                   "\"}}' WHERE name = '%s'",
                   config_id, told.id),
        0);
    kit_exec(kit, sql.data);
    configs = make(kit, both, false, &all);
    assert_value(configs, config_id, "OLD", "secret-api-key-12345");
    const struct variable_change words = {.key = "OLD", .description = "moved"};
    told = (struct told){0};
    assert_int_equal(variables_put(configs, ORG, NULL, config_id, NULL, &words, on_object, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_null(strstr(told.text, "legacy"));
    assert_non_null(strstr(told.text, "\"key_id\":\"k2\""));
    assert_value(configs, config_id, "OLD", "secret-api-key-12345");

    /* everything else, while a change goes in between */
    told = (struct told){0};
    struct told change = {0};
    assert_int_equal(configs_rotate(configs, on_rotated, &told, NULL), 0);
    assert_int_equal(set(configs, config_id, NULL, "V39", "newer", &change, NULL), 0);
    wait_for(kit, &told, 1);
    wait_for(kit, &change, 1);
    assert_int_equal(told.failed, 0);
    assert_true(told.resealed >= 39 && told.resealed <= 40);
    assert_value(configs, config_id, "V39", "newer");
    told = (struct told){0};
    assert_int_equal(configs_rotate(configs, on_rotated, &told, NULL), 0);
    assert_int_equal(told.n, 0); /* never from within */
    wait_for(kit, &told, 1);
    assert_int_equal(told.resealed, 0);
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);

    /* the old key is not needed any more */
    configs = make(kit, second, false, &all);
    assert_value(configs, config_id, "V0", "V0");
    assert_value(configs, config_id, "V38", "V38");
    kit_close(kit);
    configs_destroy(configs);
    kit_open(kit);
    /* with a ring that has neither: counted and told, nothing is lost */
    configs = make(kit, ring, false, &all);
    told = (struct told){0};
    assert_int_equal(configs_rotate(configs, on_rotated, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_int_equal(told.resealed, 0);
    assert_non_null(strstr(told.err.message, "41 of variable could not be sealed again"));
    kit_close(kit);
    configs_destroy(configs);
    keyring_destroy(ring);
    keyring_destroy(both);
    keyring_destroy(second);
    kit_open(kit);
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_resolve), KIT_CASE(test_fingerprint), KIT_CASE(test_complete),
                                       KIT_CASE(test_refused), KIT_CASE(test_life),        KIT_CASE(test_variables),
                                       KIT_CASE(test_keys)};

    return kit_run("tool_configs", cases, ARRAY_SIZE(cases), true);
}
