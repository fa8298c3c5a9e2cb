/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apt_sources.c: the package sources of this host, as apt's own files name them: one line for each suite, "URI SUITE
 * COMPONENT...". Only sources that Debian's own keyring signs are taken, and none with a name or password in its URI:
 * the lines become a part of templates. What is missing, too large or broken counts as none.
 */
#include <string.h>

#include "base/str.h"
#include "gate/apt_sources.h"
#include "gate/packages_priv.h"

#define VALUE_MAX 4096u

struct sources {
    struct buf *out;
    int error;
};

struct stanza { /* values with blanks between their words */
    char types[VALUE_MAX], uris[VALUE_MAX], suites[VALUE_MAX], components[VALUE_MAX], signed_by[VALUE_MAX],
        enabled[VALUE_MAX];
    bool too_long; /* a value does not fit, so nothing is known of it */
};

static bool next_word(const char **at, const char **word, size_t *len)
{
    *at += strspn(*at, " \t");
    *word = *at;
    *len = strcspn(*at, " \t");
    *at += *len;
    return *len > 0;
}

static bool has_word(const char *text, const char *wanted)
{
    const char *word;
    size_t len;

    while (next_word(&text, &word, &len))
        if (len == strlen(wanted) && memcmp(word, wanted, len) == 0)
            return true;
    return false;
}

static bool is_plain(const char *word, size_t len, const char *chars)
{
    for (size_t i = 0; i < len; i++)
        if (!((word[i] >= 'a' && word[i] <= 'z') || (word[i] >= 'A' && word[i] <= 'Z') ||
              (word[i] >= '0' && word[i] <= '9') || strchr(chars, word[i])))
            return false;
    return true;
}

/* No "@": a name or password would be in a template. */
static bool is_uri(const char *word, size_t len)
{
    return ((len > 7 && memcmp(word, "http://", 7) == 0) || (len > 8 && memcmp(word, "https://", 8) == 0)) &&
           is_plain(word, len, ":/.-_~%+[]");
}

static void add(struct sources *sources, const char *uri, size_t uri_len, const char *suite, size_t suite_len,
                const char *components)
{
    const char *word;
    size_t len;

    if (!is_uri(uri, uri_len) || !is_plain(suite, suite_len, ".-_/") || suite[suite_len - 1] == '/')
        return;
    int r = buf_printf(sources->out, "%.*s %.*s", (int)uri_len, uri, (int)suite_len, suite);
    while (r >= 0 && next_word(&components, &word, &len))
        if (is_plain(word, len, ".-_/"))
            r = buf_printf(sources->out, " %.*s", (int)len, word);
    if (r >= 0)
        r = buf_append_str(sources->out, "\n");
    if (r < 0)
        sources->error = r;
}

/* What apt takes for a no; it reads anything else as a yes. */
static bool is_off(const char *text)
{
    static const char *const words[] = {"no", "false", "without", "off", "disable", "0"};
    const char *word;
    size_t len;

    while (next_word(&text, &word, &len))
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
            if (len == strlen(words[i]) && strncasecmp(word, words[i], len) == 0)
                return true;
    return false;
}

static void add_stanza(struct sources *sources, const struct stanza *stanza)
{
    const char *uris = stanza->uris, *uri, *suite;
    size_t uri_len, suite_len;

    if (stanza->too_long || !has_word(stanza->types, "deb") || is_off(stanza->enabled) ||
        (stanza->signed_by[0] && !has_word(stanza->signed_by, APT_SOURCES_KEYRING)))
        return;
    while (next_word(&uris, &uri, &uri_len))
        for (const char *suites = stanza->suites; next_word(&suites, &suite, &suite_len);)
            add(sources, uri, uri_len, suite, suite_len, stanza->components);
}

/* deb822: lines further in go on. */
static char *field(struct stanza *stanza, const char *key, size_t len)
{
    const struct {
        const char *name;
        char *value;
    } fields[] = {{"Types", stanza->types},           {"URIs", stanza->uris},           {"Suites", stanza->suites},
                  {"Components", stanza->components}, {"Signed-By", stanza->signed_by}, {"Enabled", stanza->enabled}};

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (strlen(fields[i].name) == len && strncasecmp(fields[i].name, key, len) == 0)
            return fields[i].value;
    return NULL;
}

static void append(struct stanza *stanza, char *value, const char *text, size_t len)
{
    size_t at = strlen(value);

    if (at + len + 2 > VALUE_MAX) {
        stanza->too_long = true;
        return;
    }
    value[at++] = ' ';
    memcpy(value + at, text, len);
    value[at + len] = '\0';
}

static void read_stanzas(void *ctx, const char *text)
{
    struct stanza stanza = {.types = ""};
    char *value = NULL;
    const char *line;
    size_t len, at = 0;

    while (config_next_line(&text, &line, &len)) {
        size_t blank = strspn(line, " \t");
        if (blank >= len) {
            add_stanza(ctx, &stanza);
            stanza = (struct stanza){.types = ""};
            value = NULL;
            continue;
        }
        if (line[0] == '#')
            continue;
        if (blank == 0) {
            size_t key = config_split_key(line, len, ':', &at);
            value = field(&stanza, line, key);
        } else {
            at = blank;
        }
        if (value)
            append(&stanza, value, line + at, len - at);
    }
    add_stanza(ctx, &stanza);
}

/* "name=value ...]": does it name other keys than Debian's alone? */
static bool signed_by_others(const char *options)
{
    static const char name[] = "signed-by=";
    const char *word;
    size_t len;

    while (*options != ']' && next_word(&options, &word, &len)) {
        const char *end = memchr(word, ']', len), *value = word + strlen(name);
        if (end) {
            len = (size_t)(end - word);
            options = end;
        }
        if (len >= strlen(name) && strncasecmp(word, name, strlen(name)) == 0 &&
            (len - strlen(name) != strlen(APT_SOURCES_KEYRING) ||
             memcmp(value, APT_SOURCES_KEYRING, strlen(APT_SOURCES_KEYRING)) != 0))
            return true;
    }
    return false;
}

/* "deb [options] URI suite component..." */
static void read_lines(void *ctx, const char *text)
{
    const char *start, *rest, *uri, *suite;
    size_t len, uri_len, suite_len;
    char line[VALUE_MAX];

    while (config_next_line(&text, &start, &len)) {
        const char *comment = memchr(start, '#', len);
        if (comment)
            len = (size_t)(comment - start);
        if (str_format(line, sizeof line, "%.*s", (int)len, start) < 0)
            continue;
        rest = line + strspn(line, " \t");
        if (!str_starts(rest, "deb") || (rest[3] != ' ' && rest[3] != '\t'))
            continue;
        rest += 3 + strspn(rest + 3, " \t");
        const char *options = *rest == '[' ? strchr(rest, ']') : NULL;
        if (options && signed_by_others(rest + 1))
            continue;
        if (options)
            rest = options + 1;
        if (next_word(&rest, &uri, &uri_len) && next_word(&rest, &suite, &suite_len))
            add(ctx, uri, uri_len, suite, suite_len, rest);
    }
}

int apt_sources(int root_fd, struct buf *out)
{
    struct sources sources = {.out = out};

    config_read_file(root_fd, "etc/apt/sources.list", read_lines, &sources);
    config_read_apt_dir(root_fd, read_lines, read_stanzas, &sources);
    return sources.error;
}
