/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview_cookie.c: gives a program the cookies that it set itself, and no others.
 *
 * By host name every preview has a host of its own, so it is enough that no cookie is set for the domain above it. By
 * path all previews share one host with the API, and with whatever else runs on another port of that host: there, a
 * cookie that the program calls "sid" is "brig-8080-<id>-sid" outside, with a path below the preview's own, and only
 * such cookies come back in.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "brigd/preview.h"

/* Takes the next "..." up to a semicolon, without the spaces around it. False at the end. */
static bool next_part(const char **at, const char **ret, size_t *ret_len)
{
    if (**at == '\0')
        return false;
    const char *begin = *at;
    size_t len = strcspn(begin, ";");

    *at = begin + len + (begin[len] == ';');
    for (; len > 0 && (*begin == ' ' || *begin == '\t'); len--)
        begin++;
    while (len > 0 && (begin[len - 1] == ' ' || begin[len - 1] == '\t'))
        len--;
    *ret = begin;
    *ret_len = len;
    return true;
}

static bool is_named(const char *part, size_t len, const char *name)
{
    size_t n = strlen(name);

    return len > n && part[n] == '=' && memcmp(part, name, n) == 0;
}

/* The prefix of a browser is compared without case, so ours is too. */
static bool is_ours(const char *part, size_t len)
{
    size_t n = strcspn(part, "=;");

    for (; n > 0 && (part[n - 1] == ' ' || part[n - 1] == '\t'); n--)
        ;
    return n <= len && ((n == sizeof(PREVIEW_COOKIE) - 1 && strncasecmp(part, PREVIEW_COOKIE, n) == 0) ||
                        (n == sizeof(PREVIEW_HOST_COOKIE) - 1 && strncasecmp(part, PREVIEW_HOST_COOKIE, n) == 0));
}

/* What the names of a preview by path begin with outside. */
static size_t outer_name(const struct preview_way *way, char *out, size_t size)
{
    return way->prefix[0] ? (size_t)snprintf(out, size, "brig-%u-%s-", way->port, way->id) : 0;
}

bool preview_next_token(const char **cookies, const struct preview_way *way, char *out, size_t size)
{
    const char *name = way->tls && !way->prefix[0] ? PREVIEW_HOST_COOKIE : PREVIEW_COOKIE, *part;
    size_t len, skip = strlen(name) + 1;

    while (next_part(cookies, &part, &len)) {
        if (!is_named(part, len, name) || len - skip >= size)
            continue;
        memcpy(out, part + skip, len - skip);
        out[len - skip] = '\0';
        return true;
    }
    return false;
}

int preview_put_cookies(struct buf *out, const char *value, const struct preview_way *way)
{
    AUTO_BUF struct buf kept = BUF_INIT(PREVIEW_HEAD_MAX);
    char outer[96] = "";
    size_t skip = outer_name(way, outer, sizeof(outer)), len;
    const char *part;
    int r = 0;

    while (r == 0 && next_part(&value, &part, &len)) {
        if (len <= skip || memcmp(part, outer, skip) != 0 || is_ours(part, len))
            continue;
        r = kept.len > 0 ? buf_append(&kept, "; ", 2) : 0;
        if (r == 0)
            r = buf_append(&kept, part + skip, len - skip);
    }
    if (r == 0 && kept.len > 0 && (r = buf_append(&kept, "", 1)) == 0)
        r = http_put_field(out, "Cookie", kept.data);
    return r;
}

static bool is_attribute(const char *part, size_t len, const char *name)
{
    size_t n = strlen(name);

    return len >= n && strncasecmp(part, name, n) == 0 &&
           (len == n || part[n] == '=' || part[n] == ' ' || part[n] == '\t');
}

/* By path: below the preview's own, whatever the program says. */
static int put_path(struct buf *out, const struct preview_way *way, const char *path, size_t len)
{
    int r = buf_append_str(out, "; Path=");

    if (r == 0)
        r = buf_append_str(out, way->prefix);
    if (r == 0)
        r = len > 0 && *path == '/' ? buf_append(out, path, len) : buf_append(out, "/", 1);
    return r;
}

int preview_put_set_cookie(struct buf *out, const char *value, const struct preview_way *way)
{
    const char *part, *path = NULL;
    char outer[96] = "";
    size_t len, path_len = 0, outer_len = outer_name(way, outer, sizeof(outer));

    if (!next_part(&value, &part, &len) || !memchr(part, '=', len) || part[0] == '=' || is_ours(part, len))
        return -EINVAL; /* without a name it could be read back as any cookie */
    int r = buf_append(out, outer, outer_len);
    if (r == 0)
        r = buf_append(out, part, len);
    while (r == 0 && next_part(&value, &part, &len)) {
        if (is_attribute(part, len, "domain"))
            continue;
        if (outer_len > 0 && is_attribute(part, len, "path")) {
            const char *equals = memchr(part, '=', len);
            path = equals ? equals + 1 : NULL;
            path_len = equals ? len - (size_t)(equals + 1 - part) : 0;
            continue;
        }
        r = buf_append(out, "; ", 2);
        if (r == 0)
            r = buf_append(out, part, len);
    }
    if (r == 0 && outer_len > 0)
        r = put_path(out, way, path, path_len);
    return r < 0 ? r : buf_append(out, "", 1);
}
