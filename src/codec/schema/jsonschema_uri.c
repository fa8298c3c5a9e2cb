/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jsonschema_uri.c: resolves a reference against a base (RFC 3986, 5.2), only to compare two names: nothing is ever
 * fetched. Names are then compared as bytes; no percent sign is decoded and no host is brought into lower case.
 */
#include "codec/schema/jsonschema_priv.h"

#include "base/str.h"

struct part {
    const char *at;
    size_t len;
    bool there;
};

struct uri {
    struct part scheme, authority, path, query;
};

static size_t span(const char *at, size_t len, const char *stops)
{
    size_t n = 0;

    while (n < len && !strchr(stops, at[n]))
        n++;
    return n;
}

static struct uri split(const char *text, size_t len)
{
    struct uri uri = {0};
    size_t n = span(text, len, ":/?#");

    len = span(text, len, "#");
    if (n > 0 && n < len && text[n] == ':') {
        uri.scheme = (struct part){text, n, true};
        text += n + 1;
        len -= n + 1;
    }
    if (len >= 2 && text[0] == '/' && text[1] == '/') {
        n = span(text + 2, len - 2, "/?");
        uri.authority = (struct part){text + 2, n, true};
        text += n + 2;
        len -= n + 2;
    }
    n = span(text, len, "?");
    uri.path = (struct part){text, n, true};
    if (n < len)
        uri.query = (struct part){text + n + 1, len - n - 1, true};
    return uri;
}

/* RFC 3986, 5.2.4, in place. Segments that are `.` go, and those that are `..` take the one before along. */
static void remove_dots(char *path)
{
    char *out = path;
    const char *in = path;
    bool rooted = *path == '/';

    while (*in) {
        size_t lead = *in == '/', len = lead + span(in + lead, strlen(in + lead), "/");
        bool last = in[len] == '\0', one = len == lead + 1 && in[lead] == '.',
             two = len == lead + 2 && in[lead] == '.' && in[lead + 1] == '.';
        if (two)
            while (out > path && *--out != '/')
                ;
        if (!one && !two) {
            memmove(out, in, len);
            out += len;
        } else if (last && (lead || out > path)) {
            *out++ = '/';
        }
        in += len;
    }
    *out = '\0';
    if (!rooted && *path == '/')
        memmove(path, path + 1, strlen(path));
}

static int merge(const struct uri *base, const struct part *path, char *out, size_t size)
{
    size_t keep = base->path.len;

    if (path->len > 0 && path->at[0] == '/')
        return str_format(out, size, "%.*s", (int)path->len, path->at);
    if (base->authority.there && base->path.len == 0)
        return str_format(out, size, "/%.*s", (int)path->len, path->at);
    while (keep > 0 && base->path.at[keep - 1] != '/')
        keep--;
    return str_format(out, size, "%.*s%.*s", (int)keep, base->path.at, (int)path->len, path->at);
}

int schema_uri_resolve(const char *base_text, const char *reference, size_t len, char out[static SCHEMA_URI])
{
    struct uri ref = split(reference, len), base = split(base_text, strlen(base_text)), target = ref;
    char path[SCHEMA_URI];
    int r;

    if (!ref.scheme.there) {
        target.scheme = base.scheme;
        if (!ref.authority.there) {
            target.authority = base.authority;
            if (ref.path.len == 0 && !ref.query.there)
                target.query = base.query;
        }
    }
    if (ref.scheme.there || ref.authority.there)
        r = str_format(path, sizeof(path), "%.*s", (int)ref.path.len, ref.path.at);
    else if (ref.path.len == 0)
        r = str_format(path, sizeof(path), "%.*s", (int)base.path.len, base.path.at);
    else
        r = merge(&base, &ref.path, path, sizeof(path));
    if (r < 0)
        return r;
    remove_dots(path);
    r = str_format(out, SCHEMA_URI, "%.*s%s%s%.*s%s%s%.*s", (int)target.scheme.len,
                   target.scheme.there ? target.scheme.at : "", target.scheme.there ? ":" : "",
                   target.authority.there ? "//" : "", (int)target.authority.len,
                   target.authority.there ? target.authority.at : "", path, target.query.there ? "?" : "",
                   (int)target.query.len, target.query.there ? target.query.at : "");
    return r < 0 ? r : 0;
}
