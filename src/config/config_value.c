/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_value.c: reads one value from text or TOML into its member of struct config, and writes it for people.
 * Defaults, files, variables and flags all pass through config_set(), so each key has one rule. A refusal is one line:
 * the place, the value, the rule. The value of a secret is not in it.
 */
#include <inttypes.h>
#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "config/config_keys.h"

#define TEXT_MAX 4096u

static void *member(const struct config *config, const struct config_key *key)
{
    return (char *)(uintptr_t)config + key->offset;
}

/* ---- for people ------------------------------------------------------------------------------------- */

static void show_size(uint64_t value, char *out, size_t size)
{
    static const char units[] = "tgmk";
    unsigned shift = 40;

    for (const char *unit = units; *unit; unit++, shift -= 10) {
        if (value != 0 && (value & ((UINT64_C(1) << shift) - 1)) == 0) {
            (void)!str_format(out, size, "%" PRIu64 "%c", value >> shift, *unit);
            return;
        }
    }
    (void)!str_format(out, size, "%" PRIu64, value);
}

static void show_number(enum config_type type, uint64_t value, char *out, size_t size)
{
    if (type == CONFIG_SIZE)
        show_size(value, out, size);
    else if (type == CONFIG_MS && value % 1000 != 0)
        (void)!str_format(out, size, "%" PRIu64 "ms", value);
    else if (type == CONFIG_MS && value != 0)
        (void)!str_format(out, size, "%" PRIu64 "s", value / 1000);
    else if (type == CONFIG_SECONDS && value != 0)
        (void)!str_format(out, size, "%" PRIu64 "s", value);
    else if (type == CONFIG_CPUS && value % 1000 != 0)
        (void)!str_format(out, size, "%" PRIu64 ".%03u", value / 1000, (unsigned)(value % 1000));
    else
        (void)!str_format(out, size, "%" PRIu64, type == CONFIG_CPUS ? value / 1000 : value);
}

/* A URL without its password: postgresql://user:***@host/name?password=***. */
static void show_url(const char *url, char *out, size_t size)
{
    const char *host = strstr(url, "://");
    const char *at = host ? strchr(host + 3, '@') : NULL;
    const char *colon = at ? memchr(host + 3, ':', (size_t)(at - host - 3)) : NULL;
    const char *query = strchr(url, '?');
    size_t len = query ? (size_t)(query - url) : strlen(url);

    if (colon && (!query || at < query))
        (void)!str_format(out, size, "%.*s:***%.*s%s", (int)(colon - url), url, (int)(len - (size_t)(at - url)), at,
                          query ? "?***" : "");
    else
        (void)!str_format(out, size, "%.*s%s", (int)len, url, query ? "?***" : "");
    if (out[0] == '\0' && url[0] != '\0')
        (void)!str_copy(out, size, "***");
}

void config_show(const struct config *config, const struct config_key *key, bool secrets, char *out, size_t size)
{
    const void *at = member(config, key);

    out[0] = '\0';
    if (key->type == CONFIG_TEXT) {
        const char *text = *(char *const *)at;
        /* The image is shown as it was asked for: it is what people look for in their file. */
        if (str_eq(key->key, "image") && config->image_asked)
            text = config->image_asked;
        if (!text)
            return;
        if (key->secret && !secrets && !str_eq(key->section, "store")) /* a key; of the data base's URL only the
                                                                          password is one */
            (void)!str_copy(out, size, text[0] ? "***" : "");
        else if (key->secret && !secrets)
            show_url(text, out, size);
        else if (str_copy(out, size, text) < 0)
            (void)!str_format(out, size, "%.*s...", (int)size - 4, text);
    } else if (key->type == CONFIG_BOOL) {
        (void)!str_copy(out, size, *(const bool *)at ? "true" : "false");
    } else {
        show_number(key->type, *(const uint64_t *)at, out, size);
    }
}

bool config_same(const struct config *a, const struct config *b, const struct config_key *key)
{
    const void *x = member(a, key), *y = member(b, key);

    if (key->type == CONFIG_TEXT)
        return str_eq(*(char *const *)x, *(char *const *)y);
    if (key->type == CONFIG_BOOL)
        return *(const bool *)x == *(const bool *)y;
    return *(const uint64_t *)x == *(const uint64_t *)y;
}

/* "debug info error" becomes "must be debug, info or error". */
static void put_words(const char *words, char *out, size_t size)
{
    size_t len = 0;

    for (const char *before = "must be "; *words;) {
        size_t n = strcspn(words, " "), gap = strspn(words + n, " ");
        int r = str_format(out + len, size - len, "%s%.*s", before, (int)n, words);
        len += r > 0 ? (size_t)r : 0;
        words += n + gap;
        before = strchr(words, ' ') ? ", " : " or ";
    }
}

static bool is_word(const char *text, const char *words)
{
    size_t len = strlen(text);

    for (size_t n; *words; words += n + strspn(words + n, " ")) {
        n = strcspn(words, " ");
        if (n == len && memcmp(words, text, n) == 0)
            return true;
    }
    return false;
}

static void rule_of(const struct config_key *key, char *out, size_t size)
{
    static const char *const kinds[] = {
        [CONFIG_COUNT] = "a whole number",
        [CONFIG_SIZE] = "a size (bytes, or like 512m)",
        [CONFIG_MS] = "a time (seconds, or like 30s)",
        [CONFIG_SECONDS] = "a time (seconds, or like 30s)",
        [CONFIG_CPUS] = "a number of CPUs",
    };
    char least[32], most[32];

    if (key->words) {
        put_words(key->words, out, size);
        return;
    }
    if (key->type == CONFIG_TEXT || key->type == CONFIG_BOOL) {
        (void)!str_copy(out, size,
                        key->type == CONFIG_BOOL ? "must be true or false"
                                                 : "must be text (at most 4096 bytes, without control characters)");
        return;
    }
    show_number(key->type, key->min, least, sizeof(least));
    show_number(key->type, key->max, most, sizeof(most));
    (void)!str_format(out, size, "must be %s from %s to %s%s", kinds[key->type], least, most,
                      key->zero ? ", or 0" : "");
}

static int refuse(const struct config_key *key, const char *where, const char *text, const char *rule,
                  struct brig_err *err)
{
    char kind[128];

    rule_of(key, kind, sizeof(kind));
    if (key->secret)
        return err_usage(err, "%s: %s", where, rule ? rule : kind);
    return err_usage(err, "%s = %.60s%s: %s", where, text, strlen(text) > 60 ? "..." : "", rule ? rule : kind);
}

/* ---- in --------------------------------------------------------------------------------------------- */

static int parse_number(enum config_type type, const char *text, uint64_t *ret)
{
    int r;

    if (str_eq(text, "0")) {
        *ret = 0;
        return 0;
    }
    switch (type) {
    case CONFIG_SIZE: return brig_parse_size(text, ret);
    case CONFIG_CPUS: return brig_parse_cpus(text, ret);
    case CONFIG_MS: return brig_parse_duration(text, ret);
    case CONFIG_SECONDS:
        r = brig_parse_duration(text, ret);
        if (r == 0)
            *ret = *ret / 1000 + (*ret % 1000 != 0);
        return r;
    default: return parse_u64(text, ret);
    }
}

static int replace(char **slot, const char *text, struct brig_err *err)
{
    char *copy = mem_strdup(text);

    if (!copy)
        return err_nomem(err);
    mem_free(*slot);
    *slot = copy;
    return 0;
}

static int set_text(struct config *config, const struct config_key *key, const char *where, const char *text,
                    struct brig_err *err)
{
    bool plain = strlen(text) <= TEXT_MAX;

    for (const unsigned char *p = (const unsigned char *)text; plain && *p; p++)
        plain = *p >= 0x20 && *p != 0x7f;
    const char *rule = plain && key->rule ? key->rule(text) : NULL;
    if (!plain || rule || (key->words && !is_word(text, key->words)))
        return refuse(key, where, text, rule, err);
    if (str_eq(key->section, "sandbox") && str_eq(key->key, "image")) {
        int r = replace(&config->image_asked, text, err);
        if (r < 0)
            return r;
        /* What OpenManus runs in its Python container runs with the host's Python here. */
        if (str_eq(text, "python") || str_starts(text, "python:"))
            text = "host";
    }
    return replace((char **)member(config, key), text, err);
}

/* lax: a switch that others named first is also read as they do ("True", "yes", "off"). -1: neither. */
static int read_bool(const char *text, bool lax)
{
    static const char *const yes[] = {"true", "1", "t", "yes", "y", "on"}, *const no[] = {"false", "0", "f",
                                                                                          "no",    "n", "off"};

    for (size_t i = 0; i < (lax ? ARRAY_SIZE(yes) : 2); i++)
        if ((lax ? strcasecmp(text, yes[i]) : strcmp(text, yes[i])) == 0 ||
            (lax ? strcasecmp(text, no[i]) : strcmp(text, no[i])) == 0)
            return (lax ? strcasecmp(text, yes[i]) : strcmp(text, yes[i])) == 0;
    return -1;
}

int config_set(struct config *config, const struct config_key *key, const char *where, const char *text,
               struct brig_err *err)
{
    uint64_t value;

    if (key->type == CONFIG_TEXT)
        return set_text(config, key, where, text, err);
    if (key->type == CONFIG_BOOL) {
        int yes = read_bool(text, key->env && !str_starts(key->env, "BRIG_"));
        if (yes < 0)
            return refuse(key, where, text, NULL, err);
        *(bool *)member(config, key) = yes;
        return 0;
    }
    if (parse_number(key->type, text, &value) < 0 || (value == 0 ? !key->zero : value < key->min || value > key->max))
        return refuse(key, where, text, NULL, err);
    *(uint64_t *)member(config, key) = value;
    return 0;
}

/* A float as the parsers of base/parse.h want it: no exponent, six digits. Those too large or no number at all become
 * words. */
static void write_float(double number, char *out, size_t size)
{
    if (isnan(number) || fabs(number) > 1e18)
        (void)!str_copy(out, size, isnan(number) ? "nan" : "a huge number");
    else
        (void)!str_format(out, size, "%.6f", number);
}

/* ["a", "b"] as "a b"; an item with a blank would be two, so there is none. */
static int set_list(struct config *config, const struct config_key *key, const char *where,
                    const struct toml_value *value, struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);

    for (const struct toml_value *item = value->first; item; item = item->next) {
        if (item->type != TOML_STRING || strlen(item->string) != item->len || item->len == 0 ||
            strchr(item->string, ' '))
            return refuse(key, where, "(an array)", "must be text, or an array of strings without blanks", err);
        if (buf_printf(&text, "%s%s", text.len ? " " : "", item->string) < 0)
            return refuse(key, where, "(an array)", NULL, err);
    }
    return config_set(config, key, where, text.data ? text.data : "", err);
}

int config_set_toml(struct config *config, const struct config_key *key, const char *where,
                    const struct toml_value *value, struct brig_err *err)
{
    static const char *const other[] = {
        [TOML_DATETIME] = "(a date)",          [TOML_LOCAL_DATETIME] = "(a date)", [TOML_LOCAL_DATE] = "(a date)",
        [TOML_LOCAL_TIME] = "(a time of day)", [TOML_ARRAY] = "(an array)",        [TOML_TABLE] = "(a table)",
    };
    const bool is_number = key->type != CONFIG_TEXT && key->type != CONFIG_BOOL;
    char text[64];

    switch (value->type) {
    case TOML_STRING:
        /* A size, a time and (for those who quote it) CPUs may be strings; a count and a switch may not. */
        if (key->type == CONFIG_BOOL || key->type == CONFIG_COUNT || strlen(value->string) != value->len) {
            (void)!str_format(text, sizeof(text), "\"%.40s\"", value->string);
            return refuse(key, where, text, NULL, err);
        }
        return config_set(config, key, where, value->string, err);
    case TOML_INTEGER:
        (void)!str_format(text, sizeof(text), "%" PRId64, value->integer);
        return is_number ? config_set(config, key, where, text, err) : refuse(key, where, text, NULL, err);
    case TOML_FLOAT:
        write_float(value->number, text, sizeof(text));
        if (key->type == CONFIG_CPUS || key->type == CONFIG_MS || key->type == CONFIG_SECONDS)
            return config_set(config, key, where, text, err);
        return refuse(key, where, text, NULL, err);
    case TOML_BOOL:
        (void)!str_copy(text, sizeof(text), value->boolean ? "true" : "false");
        return key->type == CONFIG_BOOL ? config_set(config, key, where, text, err)
                                        : refuse(key, where, text, NULL, err);
    case TOML_ARRAY:
        if (key->list)
            return set_list(config, key, where, value, err);
        return refuse(key, where, other[value->type], NULL, err);
    default: return refuse(key, where, other[value->type], NULL, err);
    }
}
