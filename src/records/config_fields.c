/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_fields.c: what is in a sandbox configuration: one table of fields with their types and defaults, read as laxly
 * as Letta reads ("60" is 60, "yes" is true), written without nulls and with defaults, so that its fingerprint
 * is Letta's. Types that are not known here (other providers) keep their scalars and requirement lists as they
 * were given.
 *
 * The directory of local runs is a path on this host that a tenant names: it must lie, after lexical cleaning, in the
 * default directory or in one the administrator has named. Whoever mounts it resolves links below the named directory.
 */
#include <math.h>
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/path.h"
#include "base/str.h"
#include "records/configs_priv.h"
#include "records/requirement.h"

#define TIMEOUT_MAX INT64_C(31536000)
#define TEXT_MAX 4096u
#define CONFIG_REQUIREMENTS_MAX 200u
#define OTHER_KEYS_MAX 100u

#define invalid(err, ...) err_set(err, BRIG_E_INVALID, 0, __VA_ARGS__)

enum field_type {
    FIELD_DIR,
    FIELD_BOOL,
    FIELD_SWITCH,
    FIELD_NAME,
    FIELD_TEXT,
    FIELD_SECONDS,
    FIELD_LANGUAGE,
    FIELD_PIP_OBJECTS,
    FIELD_PIP,
    FIELD_NPM,
    FIELD_TYPE_MAX
};

static const struct field {
    const char *of, *name;
    enum field_type type;
    int64_t number; /* FIELD_SECONDS: the default */
} fields[] = {
    {"local", "sandbox_dir", FIELD_DIR, 0},
    {"local", "use_venv", FIELD_BOOL, 0},
    {"local", "venv_name", FIELD_NAME, 0},
    {"local", "pip_requirements", FIELD_PIP_OBJECTS, 0},
    /* ours: written only when on, so that without it the fingerprint is Letta's */
    {"local", "persist", FIELD_SWITCH, 0},
    {"e2b", "timeout", FIELD_SECONDS, 300},
    {"e2b", "template", FIELD_TEXT, 0},
    {"e2b", "pip_requirements", FIELD_PIP, 0},
    {"modal", "timeout", FIELD_SECONDS, 60},
    {"modal", "pip_requirements", FIELD_PIP, 0},
    {"modal", "npm_requirements", FIELD_NPM, 0},
    {"modal", "language", FIELD_LANGUAGE, 0},
};

/* ---- which type --------------------------------------------------------------------------------------- */

bool config_type_ok(const char *type)
{
    return str_is_name(type, CONFIG_TYPE_MAX - 1, ASCII_LOWER, ASCII_LOWER ASCII_DIGITS "_-");
}

static const struct field *field_of(const char *type, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (str_eq(fields[i].of, type) && str_eq(fields[i].name, name))
            return &fields[i];
    return NULL;
}

bool config_type_known(const char *type)
{
    return field_of(type, "pip_requirements") != NULL; /* each of them has it */
}

bool config_has_field_of(const struct json_value *config, const char *type)
{
    for (const struct json_value *item = config->first; item; item = item->next)
        if (field_of(type, item->key))
            return true;
    return false;
}

static bool has_strings(const struct json_value *list)
{
    return list && list->type == JSON_ARRAY && list->first && list->first->type == JSON_STRING;
}

int config_resolve(const struct json_value *config, char type[CONFIG_TYPE_MAX], struct brig_err *err)
{
    const struct json_value *given = json_get(config, "type");
    const char *found = "local";

    if (!config || config->type != JSON_OBJECT)
        return invalid(err, "config: must be an object");
    if (given && given->type != JSON_NULL) {
        if (given->type != JSON_STRING || strlen(given->string) != given->len || !config_type_ok(given->string))
            return invalid(err, "config.type: must be the name of a provider, such as local, e2b or modal");
        return str_copy(type, CONFIG_TYPE_MAX, given->string);
    }
    const bool local = json_get(config, "sandbox_dir") || json_get(config, "use_venv") ||
                       json_get(config, "venv_name") || json_get(config, "persist");
    if (json_get(config, "language") || json_get(config, "npm_requirements"))
        found = "modal";
    else if (json_get(config, "template") || (json_get(config, "timeout") && !local) ||
             has_strings(json_get(config, "pip_requirements")))
        found = "e2b";
    return str_copy(type, CONFIG_TYPE_MAX, found);
}

/* ---- lax values --------------------------------------------------------------------------------------- */

/* Text between the blanks around it, in lower case, or "" when it is longer than any word that matters. */
static void lower_word(const struct json_value *value, char out[16])
{
    const char *text = value->string;
    size_t len = value->len;

    out[0] = '\0';
    while (len > 0 && strchr(" \t\r\n", text[0]))
        text++, len--;
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    if (len >= 16)
        return;
    for (size_t i = 0; i < len; i++)
        out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    out[len] = '\0';
}

static int lax_bool(const struct json_value *value, bool *ret)
{
    static const char *const yes[] = {"true", "t", "yes", "y", "on", "1"}, *const no[] = {"false", "f",   "no",
                                                                                          "n",     "off", "0"};
    char word[16];

    if (value->type == JSON_BOOL) {
        *ret = value->boolean;
        return 0;
    }
    if (value->type == JSON_NUMBER && (value->number == 0 || value->number == 1)) {
        *ret = value->number == 1;
        return 0;
    }
    if (value->type != JSON_STRING)
        return -EINVAL;
    lower_word(value, word);
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (str_eq(word, yes[i]) || str_eq(word, no[i])) {
            *ret = str_eq(word, yes[i]);
            return 0;
        }
    return -EINVAL;
}

static int lax_int(const struct json_value *value, int64_t *ret)
{
    char word[16];
    uint64_t number = 0;

    if (value->type == JSON_BOOL) {
        *ret = value->boolean;
        return 0;
    }
    if (value->type == JSON_NUMBER &&
        (value->integer || (floor(value->number) == value->number && fabs(value->number) < 1e15))) {
        *ret = value->integer ? value->i64 : (int64_t)value->number;
        return 0;
    }
    if (value->type != JSON_STRING)
        return -EINVAL;
    lower_word(value, word);
    size_t len = strlen(word), zeros = len;
    while (zeros > 0 && word[zeros - 1] == '0')
        zeros--;
    if (zeros > 0 && zeros < len && word[zeros - 1] == '.') /* "60.0" */
        word[zeros - 1] = '\0';
    if (parse_u64(word[0] == '+' ? word + 1 : word, &number) < 0 || number > INT64_MAX)
        return -EINVAL;
    *ret = (int64_t)number;
    return 0;
}

static bool is_text(const struct json_value *value)
{
    return value->type == JSON_STRING && strlen(value->string) == value->len && value->len < TEXT_MAX;
}

/* ---- directories -------------------------------------------------------------------------------------- */

static int clean_path(const char *path, char out[TEXT_MAX])
{
    return path[0] == '/' ? path_clean_absolute("", path, out, TEXT_MAX) : -EINVAL;
}

static bool is_below_named(const struct configs *configs, const char *path)
{
    const char *list = configs->options.config->allowed_dirs;
    char dir[TEXT_MAX], clean[TEXT_MAX];

    if (clean_path(configs->default_dir, clean) > 0 && path_is_in(path, clean))
        return true;
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (str_format(dir, sizeof dir, "%.*s", (int)n, list) > 0 && clean_path(dir, clean) > 0 &&
            path_is_in(path, clean))
            return true;
        list += n + (list[n] == ':');
    }
    return false;
}

bool config_dir_allowed(const struct configs *configs, const char *path)
{
    char clean[TEXT_MAX];

    return clean_path(path, clean) > 0 && is_below_named(configs, clean);
}

static int put_dir(const struct configs *configs, const struct json_value *value, struct json *json,
                   struct brig_err *err)
{
    char clean[TEXT_MAX];

    if (!value) {
        json_string(json, configs->default_dir);
        return 0;
    }
    if (!is_text(value) || clean_path(value->string, clean) < 0)
        return invalid(err, "config.sandbox_dir: must be an absolute path");
    if (!is_below_named(configs, clean))
        return err_set(
            err, BRIG_E_FORBIDDEN, 0,
            "config.sandbox_dir: %.200s is neither the default directory nor in one of [sandbox] allowed_dirs", clean);
    json_string(json, clean);
    return 0;
}

/* ---- requirements ------------------------------------------------------------------------------------- */

static int check_requirement(const struct configs *configs, const char *name, const char *version, bool npm,
                             struct brig_err *err)
{
    struct brig_err why = {0};
    char text[TEXT_MAX];

    if (str_format(text, sizeof text, "%s%s%s", name, version ? (npm ? "@" : "==") : "", version ? version : "") < 0)
        return invalid(err, "config.%s_requirements: one is too long", npm ? "npm" : "pip");
    if (requirement_ok(text, npm, configs->options.config->tools_allow_urls, &why) < 0)
        return invalid(err, "config.%s_requirements: %.250s", npm ? "npm" : "pip", why.message);
    return 0;
}

/* An item as {"name", "version"} or as a string; either form is taken for either type. */
static int read_requirement(const struct json_value *item, bool npm, const char **name, const char **version,
                            struct brig_err *err)
{
    const struct json_value *member = item->type == JSON_OBJECT ? json_get(item, "name") : item;
    const struct json_value *number = item->type == JSON_OBJECT ? json_get(item, "version") : NULL;

    if (!member || !is_text(member) || member->len == 0)
        return invalid(err, "config.%s_requirements: each needs a name", npm ? "npm" : "pip");
    if (number && number->type != JSON_NULL && (!is_text(number) || number->len == 0))
        return invalid(err, "config.%s_requirements: version of %.60s: must be a string", npm ? "npm" : "pip",
                       member->string);
    *name = member->string;
    *version = number && number->type != JSON_NULL ? number->string : NULL;
    return 0;
}

static void put_requirement(const char *name, const char *version, bool npm, bool object, struct json *json)
{
    char text[TEXT_MAX];

    if (object) {
        json_object(json);
        json_key_string(json, "name", name);
        if (version)
            json_key_string(json, "version", version);
        json_end(json);
    } else if (str_format(text, sizeof text, "%s%s%s", name, version ? (npm ? "@" : "==") : "",
                          version ? version : "") > 0) {
        json_string(json, text);
    }
}

static int put_requirements(const struct configs *configs, const struct json_value *list, bool npm, bool objects,
                            struct json *json, struct brig_err *err)
{
    int r = 0;

    if (list && (list->type != JSON_ARRAY || list->count > CONFIG_REQUIREMENTS_MAX))
        return invalid(err, "config.%s_requirements: must be a list of at most %u", npm ? "npm" : "pip",
                       CONFIG_REQUIREMENTS_MAX);
    json_array(json);
    for (const struct json_value *item = list ? list->first : NULL; item && r == 0; item = item->next) {
        const char *name = NULL, *version = NULL;
        r = read_requirement(item, npm, &name, &version, err);
        if (r == 0)
            r = check_requirement(configs, name, version, npm, err);
        if (r == 0)
            put_requirement(name, version, npm, objects, json);
    }
    json_end(json);
    return r;
}

/* ---- fields ------------------------------------------------------------------------------------------- */

static int put_bool(const struct field *field, const struct json_value *value, bool fallback, struct json *json,
                    struct brig_err *err)
{
    bool on = fallback;

    if (value && lax_bool(value, &on) < 0)
        return invalid(err, "config.%s: must be true or false", field->name);
    if (field->type == FIELD_SWITCH && !on)
        return 0;
    json_key_bool(json, field->name, on);
    return 0;
}

static int put_seconds(const struct field *field, const struct json_value *value, struct json *json,
                       struct brig_err *err)
{
    int64_t seconds = field->number;

    if (value && (lax_int(value, &seconds) < 0 || seconds < 1 || seconds > TIMEOUT_MAX))
        return invalid(err, "config.%s: must be a number of seconds from 1 to %lld", field->name,
                       (long long)TIMEOUT_MAX);
    json_key_i64(json, field->name, seconds);
    return 0;
}

static bool is_venv_name(const struct json_value *value)
{
    return is_text(value) && str_is_name(value->string, 127, ASCII_ALNUM "_", ASCII_ALNUM "_.-");
}

static int put_text(const struct configs *configs, const struct field *field, const struct json_value *value,
                    struct json *json, struct brig_err *err)
{
    const char *venv = configs->options.config->tools_venv_name,
               *template = configs->options.config->tools_e2b_template, *text = NULL;

    if (field->type == FIELD_NAME) {
        if (value && !is_venv_name(value))
            return invalid(err, "config.%s: must be letters, digits, '_', '.' and '-'", field->name);
        text = value ? value->string : venv && venv[0] ? venv : "venv";
    } else if (field->type == FIELD_LANGUAGE) {
        if (value && (!is_text(value) || (!str_eq(value->string, "python") && !str_eq(value->string, "typescript"))))
            return invalid(err, "config.%s: must be python or typescript", field->name);
        text = value ? value->string : "python";
    } else {
        if (value && !is_text(value))
            return invalid(err, "config.%s: must be a string", field->name);
        text = value ? value->string : template && template[0] ? template : NULL;
    }
    if (text)
        json_key_string(json, field->name, text);
    return 0;
}

static int put_field(const struct configs *configs, const struct field *field, const struct json_value *value,
                     struct json *json, struct brig_err *err)
{
    const char *venv = configs->options.config->tools_venv_name;

    switch (field->type) {
    case FIELD_DIR: json_key(json, field->name); return put_dir(configs, value, json, err);
    case FIELD_BOOL: return put_bool(field, value, venv && venv[0], json, err);
    case FIELD_SWITCH: return put_bool(field, value, false, json, err);
    case FIELD_SECONDS: return put_seconds(field, value, json, err);
    case FIELD_PIP_OBJECTS:
        json_key(json, field->name);
        return put_requirements(configs, value, false, true, json, err);
    case FIELD_PIP:
    case FIELD_NPM:
        if (!value)
            return 0;
        json_key(json, field->name);
        return put_requirements(configs, value, field->type == FIELD_NPM, false, json, err);
    default: return put_text(configs, field, value, json, err);
    }
}

/* Given wins, null included (then the default); else the old one. */
static const struct json_value *pick(const struct json_value *config, const struct json_value *old, const char *name)
{
    const struct json_value *value = json_get(config, name);

    if (!value)
        value = json_get(old, name);
    return value && value->type != JSON_NULL ? value : NULL;
}

/* ---- types that are not known here --------------------------------------------------------------------- */

static int put_other(const struct configs *configs, const struct json_value *value, struct json *json,
                     struct brig_err *err)
{
    const bool npm = str_eq(value->key, "npm_requirements");

    if (value->type == JSON_NULL || str_eq(value->key, "type"))
        return 0;
    if (npm || str_eq(value->key, "pip_requirements")) {
        json_key(json, value->key);
        return put_requirements(configs, value, npm, false, json, err);
    }
    if (value->type == JSON_OBJECT || value->type == JSON_ARRAY)
        return 0;
    if (value->type == JSON_STRING && !is_text(value))
        return invalid(err, "config.%.60s: has a NUL in it, or %u bytes", value->key, TEXT_MAX);
    json_key_raw(json, value->key, value->raw, value->raw_len);
    return 0;
}

static int put_others(const struct configs *configs, const struct json_value *config, const struct json_value *old,
                      struct json *json, struct brig_err *err)
{
    int r = 0;

    if (config->count + (old ? old->count : 0) > OTHER_KEYS_MAX)
        return invalid(err, "config: more than %u keys", OTHER_KEYS_MAX);
    for (const struct json_value *item = old ? old->first : NULL; item && r == 0; item = item->next)
        if (!json_get(config, item->key))
            r = put_other(configs, item, json, err);
    for (const struct json_value *item = config->first; item && r == 0; item = item->next)
        r = put_other(configs, item, json, err);
    return r;
}

int config_complete(const struct configs *configs, const char *type, const struct json_value *config,
                    const struct json_value *old, struct buf *ret, struct brig_err *err)
{
    struct json json = JSON_INIT(ret);
    int r = 0;

    if (!config || config->type != JSON_OBJECT)
        return invalid(err, "config: must be an object");
    json_object(&json);
    if (!config_type_known(type))
        r = put_others(configs, config, old, &json, err);
    for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++)
        if (str_eq(fields[i].of, type))
            r = put_field(configs, &fields[i], pick(config, old, fields[i].name), &json, err);
    if (r < 0)
        return r;
    json_end(&json);
    r = json_finish(&json);
    return r < 0 ? err_set(err, r == -ENOMEM ? BRIG_E_NOMEM : BRIG_E_TOO_LARGE, -r, "config: write it down") : 0;
}
