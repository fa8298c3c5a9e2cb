/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_foreign.c: handles the sections of an OpenManus file that brig does not use. Their types are checked, so that
 * a wrong file is not accepted, and they are noted as unused. A key that OpenManus does not know is only noted:
 * OpenManus itself ignores such keys, and an existing file must load. No value is ever shown, because most of them are
 * secrets.
 */
#include "base/err.h"
#include "base/str.h"
#include "config/config_keys.h"

enum shape { TEXT, INTEGER, NUMBER, SWITCH, TEXTS, SHAPE_MAX };

static const char *const shape_names[] = {
    [TEXT] = "a string",        [INTEGER] = "an integer",        [NUMBER] = "a number",
    [SWITCH] = "true or false", [TEXTS] = "an array of strings",
};
_Static_assert(ARRAY_SIZE(shape_names) == SHAPE_MAX, "every shape has a name");

struct foreign_key {
    const char *key;
    enum shape shape;
};

static const struct foreign_key llm[] = {
    {"model", TEXT},
    {"base_url", TEXT},
    {"api_key", TEXT},
    {"max_tokens", INTEGER},
    {"max_input_tokens", INTEGER},
    {"temperature", NUMBER},
    {"api_type", TEXT},
    {"api_version", TEXT},
};
static const struct foreign_key browser[] = {
    {"headless", SWITCH},
    {"disable_security", SWITCH},
    {"extra_chromium_args", TEXTS},
    {"chrome_instance_path", TEXT},
    {"wss_url", TEXT},
    {"cdp_url", TEXT},
    {"max_content_length", INTEGER},
};
static const struct foreign_key proxy[] = {{"server", TEXT}, {"username", TEXT}, {"password", TEXT}};
static const struct foreign_key search[] = {
    {"engine", TEXT}, {"fallback_engines", TEXTS}, {"retry_delay", INTEGER}, {"max_retries", INTEGER},
    {"lang", TEXT},   {"country", TEXT},
};
static const struct foreign_key mcp[] = {{"server_reference", TEXT}};
static const struct foreign_key runflow[] = {{"use_data_analysis_agent", SWITCH}};
static const struct foreign_key daytona[] = {
    {"daytona_api_key", TEXT},    {"daytona_server_url", TEXT}, {"daytona_target", TEXT},
    {"sandbox_image_name", TEXT}, {"sandbox_entrypoint", TEXT}, {"VNC_password", TEXT},
};

static const struct foreign {
    const char *section;
    const struct foreign_key *keys;
    size_t n_keys;
    const char *sub; /* the one sub-table; "" is any name */
    const struct foreign_key *sub_keys;
    size_t n_sub_keys;
} sections[] = {
    {"daytona", daytona, ARRAY_SIZE(daytona), NULL, NULL, 0},
    {"mcp", mcp, ARRAY_SIZE(mcp), NULL, NULL, 0},
    {"llm", llm, ARRAY_SIZE(llm), "", llm, ARRAY_SIZE(llm)},
    {"browser", browser, ARRAY_SIZE(browser), "proxy", proxy, ARRAY_SIZE(proxy)},
    {"search", search, ARRAY_SIZE(search), NULL, NULL, 0},
    {"runflow", runflow, ARRAY_SIZE(runflow), NULL, NULL, 0},
};

static const struct foreign *find(const char *section)
{
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
        if (str_eq(sections[i].section, section))
            return &sections[i];
    return NULL;
}

bool config_is_foreign(const char *section)
{
    return find(section) != NULL;
}

const char *const *config_foreign_names(size_t *ret_n)
{
    static const char *const names[] = {"server",  "store", "manager", "sandbox", "gate",   "secrets",
                                        "daytona", "mcp",   "llm",     "browser", "search", "runflow"};

    *ret_n = ARRAY_SIZE(names);
    return names;
}

static bool has_shape(const struct toml_value *value, enum shape shape)
{
    switch (shape) {
    case TEXT: return value->type == TOML_STRING;
    case INTEGER: return value->type == TOML_INTEGER;
    case NUMBER: return value->type == TOML_INTEGER || value->type == TOML_FLOAT;
    case SWITCH: return value->type == TOML_BOOL;
    default:
        if (value->type != TOML_ARRAY)
            return false;
        for (const struct toml_value *item = value->first; item; item = item->next)
            if (item->type != TOML_STRING)
                return false;
        return true;
    }
}

/* prefix: "llm" or "llm.vision". */
static int check_key(struct config_loaded *loaded, const struct toml_value *value, const char *prefix,
                     const struct foreign_key *keys, size_t n_keys, struct brig_err *err)
{
    char where[128];

    config_where(loaded, value->line, where, sizeof(where));
    for (size_t i = 0; i < n_keys; i++) {
        if (!str_eq(keys[i].key, value->key))
            continue;
        if (!has_shape(value, keys[i].shape))
            return err_usage(err, "%s: [%s] %s: must be %s", where, prefix, value->key, shape_names[keys[i].shape]);
        return 0;
    }
    if (config_add_note(loaded, "%s: unknown key `%.64s` in [%s], which is not used here anyway", where, value->key,
                        prefix) < 0)
        return err_nomem(err);
    return 0;
}

static int check_sub(struct config_loaded *loaded, const struct foreign *section, const struct toml_value *table,
                     struct brig_err *err)
{
    char prefix[96];

    if (str_format(prefix, sizeof(prefix), "%s.%.64s", section->section, table->key) < 0)
        return err_usage(err, "[%s]: the name of a sub-table is too long", section->section);
    for (const struct toml_value *value = table->first; value; value = value->next) {
        int r = check_key(loaded, value, prefix, section->sub_keys, section->n_sub_keys, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int config_check_foreign(struct config_loaded *loaded, const struct toml_value *table, struct brig_err *err)
{
    const struct foreign *section = find(table->key);
    char where[128];

    for (const struct toml_value *value = table->first; value; value = value->next) {
        bool sub =
            value->type == TOML_TABLE && section->sub && (section->sub[0] == '\0' || str_eq(section->sub, value->key));
        int r = sub ? check_sub(loaded, section, value, err)
                    : check_key(loaded, value, section->section, section->keys, section->n_keys, err);
        if (r < 0)
            return r;
    }
    config_where(loaded, table->line, where, sizeof(where));
    if (config_add_note(loaded, "%s: section [%s] is not used here", where, section->section) < 0)
        return err_nomem(err);
    return 0;
}
