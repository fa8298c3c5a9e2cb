/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preview_head.c: writes the heads of previews again; preview_cookie.c handles cookies. What belongs to one connection
 * stays on it: the fields that say so, and those that Connection names. Keys and tokens are brigd's and are removed
 * wherever the codec would have found them, so the names in a query are compared after decoding.
 */
#include "brigd/preview.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "base/str.h"
#include "codec/http/http_chars.h"
#include "records/accounts.h"

static bool in_list(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A field that a Connection field names. */
static bool nominated(const struct http_head *head, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < head->n_fields; i++) {
        if (strcasecmp(head->fields[i].name, "connection") != 0)
            continue;
        for (const char *at = head->fields[i].value; *at;) {
            at += strspn(at, " \t,");
            size_t n = strcspn(at, " \t,");
            if (n > 0 && n == len && strncasecmp(at, name, n) == 0)
                return true;
            at += n;
        }
    }
    return false;
}

bool preview_passes(const struct http_head *head, const char *name)
{
    /* From the second line on: what would hold for all that is served from this host, or from the domain above it. */
    static const char *const never[] = {"connection",
                                        "keep-alive",
                                        "proxy-connection",
                                        "transfer-encoding",
                                        "te",
                                        "trailer",
                                        "upgrade",
                                        "content-length",
                                        "service-worker-allowed",
                                        "clear-site-data",
                                        "strict-transport-security",
                                        "public-key-pins",
                                        "alt-svc",
                                        "nel",
                                        "report-to"};

    return !in_list(name, never, ARRAY_SIZE(never)) && !nominated(head, name);
}

/* Whether a parameter "name=value" of a raw query has our name, however it is written. */
static bool is_token(const char *at, size_t len)
{
    static const char name[] = PREVIEW_COOKIE;
    size_t matched = 0, i = 0;

    while (i < len && at[i] != '=') {
        int c = (unsigned char)at[i++];
        if (c == '%' && len - i >= 2) { /* the codec has checked the digits */
            c = ascii_hex(at[i]) << 4 | ascii_hex(at[i + 1]);
            i += 2;
        }
        if (matched >= sizeof name - 1 || c != name[matched++])
            return false;
    }
    return matched == sizeof name - 1;
}

int preview_put_query(struct buf *out, const char *query)
{
    char mark = '?';
    int r = 0;

    for (const char *at = query; r == 0 && *at;) {
        size_t n = strcspn(at, "&");
        if (!is_token(at, n)) {
            r = buf_append(out, &mark, 1);
            if (r == 0)
                r = buf_append(out, at, n);
            mark = '&';
        }
        at += n + (at[n] == '&');
    }
    return r;
}

/* One of our keys, also where nobody looks for one. */
static bool is_key(const struct accounts *accounts, const char *value)
{
    const char *blank = strrchr(value, ' ');

    return key_by_text(accounts, blank ? blank + 1 : value) != NULL;
}

static int put_fields(struct buf *out, const struct http_head *head, const struct preview_way *way,
                      const struct accounts *accounts)
{
    static const char *const ours[] = {"expect", "x-api-key", "x-brig-token", "x-forwarded-proto"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < head->n_fields; i++) {
        const char *name = head->fields[i].name, *value = head->fields[i].value;
        bool upgrade = head->upgrade && strcasecmp(name, "upgrade") == 0;

        if ((!upgrade && !preview_passes(head, name)) || in_list(name, ours, ARRAY_SIZE(ours)) ||
            (way->by_key && strcasecmp(name, "authorization") == 0) || is_key(accounts, value))
            continue;
        r = strcasecmp(name, "cookie") == 0 ? preview_put_cookies(out, value, way) : http_put_field(out, name, value);
    }
    if (r == 0)
        r = http_put_field(out, "Connection", head->upgrade ? "Upgrade" : "close");
    if (r == 0 && head->body == HTTP_BODY_CHUNKED)
        r = http_put_field(out, "Transfer-Encoding", "chunked");
    if (r == 0 && head->body == HTTP_BODY_LENGTH) {
        char length[32];
        snprintf(length, sizeof length, "%llu", (unsigned long long)head->content_length);
        r = http_put_field(out, "Content-Length", length);
    }
    if (r == 0)
        r = http_put_field(out, "X-Forwarded-Proto", way->tls ? "https" : "http");
    return r == 0 ? http_put_end(out) : r;
}

int preview_put_request(struct buf *out, const struct http_head *head, const char *path, size_t path_len,
                        const char *query, const struct preview_way *way, const struct accounts *accounts)
{
    AUTO_BUF struct buf target = BUF_INIT(HTTP_TARGET_MAX + 1);
    int r = buf_append(&target, path, path_len);

    if (r == 0)
        r = preview_put_query(&target, query);
    if (r == 0)
        r = buf_append(&target, "", 1);
    if (r == 0)
        r = http_put_request(out, head->method, target.data);
    return r == 0 ? put_fields(out, head, way, accounts) : r;
}
