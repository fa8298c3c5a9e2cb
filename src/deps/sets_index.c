/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets_index.c: finds where the host's own pip and npm take packages from, for the installers inside: PIP_INDEX_URL and
 * its kind, /etc/pip.conf, npm_config_registry, /etc/npmrc. The preset `packages` allows the same places
 * (gate/packages.c). Names and passwords in URLs stay out, because a package could read them while it is installed.
 */
#include <string.h>

#include "deps/sets_priv.h"

/* Takes name and password out of every URL of a list with blanks between. In place. */
static void set_index_strip(char *urls)
{
    for (char *p = strstr(urls, "://"); p; p = strstr(p, "://")) {
        p += 3;
        size_t len = strcspn(p, "/?# \t\n");
        char *at = NULL;
        for (size_t i = 0; i < len; i++)
            if (p[i] == '@')
                at = p + i;
        if (at)
            memmove(p, at + 1, strlen(at + 1) + 1);
    }
}

static const char *skip(const char *p)
{
    return p + strspn(p, " \t");
}

/* The value of `key = value` in a line, or NULL. */
static const char *value_of(const char *line, const char *key)
{
    size_t len = strlen(key);

    line = skip(line);
    if (strncmp(line, key, len) != 0)
        return NULL;
    line = skip(line + len);
    return *line == '=' || *line == ':' ? skip(line + 1) : NULL;
}

static void keep(char *out, size_t size, const char *value, size_t len)
{
    while (len > 0 && strchr(" \t\r", value[len - 1]))
        len--;
    if (len > 0 && len < size && !memchr(value, '\0', len)) {
        memcpy(out, value, len);
        out[len] = '\0';
    }
}

/* One setting of a file: its first line. Lists that go over several lines are for extra-index-url: the lines that
 * follow and are indented. */
static void from_file(const char *text, const char *key, char *out, size_t size)
{
    char value[2048] = "";
    size_t n = 0;
    bool inside = false;

    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t len = strcspn(line, "\n");
        const char *v = value_of(line, key), *end = line + len;
        if (!v && inside && (*line == ' ' || *line == '\t'))
            v = skip(line);
        else
            inside = v != NULL;
        if (!v || v >= end || n + (size_t)(end - v) + 2 > sizeof value)
            continue;
        if (n > 0)
            value[n++] = ' ';
        memcpy(value + n, v, (size_t)(end - v));
        n += (size_t)(end - v);
        while (n > 0 && strchr(" \t\r", value[n - 1]))
            n--;
        value[n] = '\0';
    }
    keep(out, size, value, n);
}

static void from_env(const char *name, char *out, size_t size)
{
    const char *value = getenv(name);

    if (value)
        keep(out, size, value, strcspn(value, "\n"));
}

void set_index_read(struct set_index *index, const char *conf, const char *npmrc)
{
    *index = (struct set_index){.pip = ""};
    from_file(conf, "index-url", index->pip, sizeof index->pip);
    from_file(conf, "extra-index-url", index->extra, sizeof index->extra);
    from_file(conf, "trusted-host", index->trusted, sizeof index->trusted);
    from_file(npmrc, "registry", index->npm, sizeof index->npm);
    from_env("PIP_INDEX_URL", index->pip, sizeof index->pip);
    from_env("PIP_EXTRA_INDEX_URL", index->extra, sizeof index->extra);
    from_env("PIP_TRUSTED_HOST", index->trusted, sizeof index->trusted);
    from_env("NPM_CONFIG_REGISTRY", index->npm, sizeof index->npm);
    from_env("npm_config_registry", index->npm, sizeof index->npm);
    set_index_strip(index->pip);
    set_index_strip(index->extra);
    set_index_strip(index->npm);
}
