/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dist_challenge.c: reads WWW-Authenticate (RFC 9110, 11.6.1): schemes, each with parameters NAME=TOKEN or NAME="TEXT".
 * A comma stands between parameters and between challenges alike: a word that no "=" follows begins the next challenge.
 */
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "template/distribution_priv.h"

static bool is_token(char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
}

static size_t token_len(const char *text)
{
    size_t n = 0;

    while (is_token(text[n]))
        n++;
    return n;
}

static const char *skip(const char *p, const char *set)
{
    return p + strspn(p, set);
}

/* Reads a value, quoted or not, to out (or to nowhere). Returns where it ends, or NULL. */
static const char *take_value(const char *p, char *out, size_t size)
{
    size_t n = 0;

    if (out)
        out[0] = '\0';
    bool quoted = *p == '"';
    if (quoted)
        p++;
    for (; quoted ? *p != '"' : (is_token(*p) || (*p && strchr("/:=?@", *p))); p++) {
        if (quoted && *p == '\\')
            p++;
        if (*p < ' ' || *p > '~') /* also the end */
            return NULL;
        if (out && n + 1 >= size)
            return NULL;
        if (out)
            out[n++] = *p;
    }
    if (out)
        out[n] = '\0';
    return quoted ? p + 1 : p;
}

/* Where a parameter's value goes: only the first Bearer's count. */
static char *place_of(struct dist_challenge *ret, bool bearer, const char *name, size_t len, size_t *ret_size)
{
    if (!bearer)
        return NULL;
    if (len == 5 && strncasecmp(name, "realm", 5) == 0) {
        *ret_size = sizeof ret->realm;
        return ret->realm;
    }
    if (len == 7 && strncasecmp(name, "service", 7) == 0) {
        *ret_size = sizeof ret->service;
        return ret->service;
    }
    if (len == 5 && strncasecmp(name, "scope", 5) == 0) {
        *ret_size = sizeof ret->scope;
        return ret->scope;
    }
    return NULL;
}

int dist_challenge_parse(const char *text, struct dist_challenge *ret)
{
    struct dist_challenge found = {0};
    bool bearer = false;

    for (const char *p = skip(text, " \t,"); *p; p = skip(p, " \t,")) {
        size_t len = token_len(p), size = 0;
        if (len == 0)
            return -EINVAL;
        const char *name = p, *after = skip(p + len, " \t");
        if (*after != '=') {
            bearer = len == 6 && strncasecmp(name, "Bearer", 6) == 0 && !found.bearer;
            found.bearer |= bearer;
            found.basic |= len == 5 && strncasecmp(name, "Basic", 5) == 0;
            p += len;
            continue;
        }
        char *place = place_of(&found, bearer, name, len, &size);
        p = take_value(skip(after + 1, " \t"), place, size);
        if (!p || (*p && !strchr(" \t,", *p)))
            return -EINVAL;
    }
    if (found.bearer && !found.realm[0])
        return -EINVAL;
    *ret = found;
    return 0;
}
