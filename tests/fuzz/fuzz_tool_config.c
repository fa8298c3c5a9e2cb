/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configurations, states of agents and stored values of Letta, from anyone: what is complete completes to itself
 * and stays in the directories that were named, whatever it is merged with; a fingerprint is a number.
 */
#include "fuzz.h"

#include "base/str.h"
#include "crypto/legacy.h"
#include "records/agents_priv.h"
#include "records/configs_priv.h"

static const char *const types[] = {"local", "e2b", "modal", "docker"};

static struct json_doc *must_read(const struct buf *text)
{
    struct json_doc *doc = NULL;

    FUZZ_CHECK(json_read(text->data, text->len, 100000, &doc, NULL) == 0);
    return doc;
}

static void check_complete(const struct configs *configs, const char *type, const struct json_value *config)
{
    AUTO_BUF struct buf first = BUF_INIT(1 << 20), second = BUF_INIT(1 << 20), merged = BUF_INIT(1 << 20);
    char fingerprint[FINGERPRINT_MAX] = "";
    struct brig_err err = {0};

    if (config_complete(configs, type, config, NULL, &first, &err) < 0) {
        FUZZ_CHECK(err.code == BRIG_E_INVALID || err.code == BRIG_E_FORBIDDEN || err.code == BRIG_E_TOO_LARGE);
        FUZZ_CHECK(err.message[0] != '\0' && !strchr(err.message, '\n'));
        return;
    }
    struct json_doc *doc = must_read(&first);
    const struct json_value *dir = json_get(json_root(doc), "sandbox_dir");
    if (dir && str_eq(type, "local"))
        FUZZ_CHECK(config_dir_allowed(configs, dir->string) && !strstr(dir->string, "/../") &&
                   (str_starts(dir->string, "/dir") || str_starts(dir->string, "/srv/t")));
    FUZZ_CHECK(config_complete(configs, type, json_root(doc), NULL, &second, NULL) == 0 &&
               str_eq(first.data, second.data));
    if (config_type_known(type)) /* over what it has made itself it changes nothing */
        FUZZ_CHECK(config_complete(configs, type, config, json_root(doc), &merged, NULL) == 0 &&
                   str_eq(merged.data, first.data));
    FUZZ_CHECK(config_fingerprint(type, "org-1", json_root(doc), fingerprint) == 0);
    FUZZ_CHECK(strlen(fingerprint) > 0 && strlen(fingerprint) <= 78 &&
               strspn(fingerprint, "0123456789") == strlen(fingerprint));
    json_doc_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char none[] = "", dir[] = "/dir", dirs[] = "/srv/t:/srv/tt/..//t";
    static const struct config config = {.tools_exec_dir = dir,
                                         .allowed_dirs = dirs,
                                         .tools_venv_name = none,
                                         .tools_e2b_template = none,
                                         .tools_legacy_key = none};
    static const struct configs configs = {.options = {.config = &config}, .default_dir = "/dir"};
    char type[CONFIG_TYPE_MAX];
    struct json_doc *doc = NULL;
    uint8_t *value = NULL;
    size_t len = 0;

    if (legacy_open("", (const char *)data, size, &value, &len) == 0) {
        FUZZ_CHECK(len == size);
        crypto_secret_free(value, len);
    } else {
        FUZZ_CHECK(legacy_looks_encrypted((const char *)data, size) || size > LEGACY_TEXT_MAX);
    }
    if (json_read((const char *)data, size, 10000, &doc, NULL) < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        check_complete(&configs, types[i], json_root(doc));
    if (config_resolve(json_root(doc), type, NULL) == 0)
        FUZZ_CHECK(config_type_ok(type));
    (void)!agent_state_check(json_root(doc), NULL);
    json_doc_free(doc);
    return 0;
}
