/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a request says it is for, and which page it comes from. A web page can make a browser send requests to 127.0.0.1,
 * and with a name of its own that resolves there it is even same-origin (DNS rebinding). So a request over TCP is
 * answered only when its Host is one of ours, and one with a foreign Origin only when that is on the list.
 */
#include "http/server_conn.h"

#include <strings.h>
#include <sys/socket.h>

#include "base/sockaddr.h"

bool word_listed(const char *words, const char *word, size_t len)
{
    while (words && *words) {
        words += strspn(words, " \t,");
        size_t n = strcspn(words, " \t,");
        if (n > 0 && n == len && strncasecmp(words, word, n) == 0)
            return true;
        words += n;
    }
    return false;
}

/* The name without the port, and without the brackets of an IPv6 address. The codec has checked the form. */
static size_t host_name(const char *host, const char **ret)
{
    if (*host == '[') {
        *ret = host + 1;
        return strcspn(host + 1, "]");
    }
    *ret = host;
    return strcspn(host, ":");
}

static bool same(const char *name, size_t len, const char *other, size_t other_len)
{
    return len == other_len && strncasecmp(name, other, len) == 0;
}

static bool at_or_below(const char *name, size_t len, const char *domain)
{
    size_t n = domain ? strlen(domain) : 0;

    if (n == 0)
        return false;
    if (len > n && name[len - n - 1] == '.')
        return strncasecmp(name + len - n, domain, n) == 0;
    return same(name, len, domain, n);
}

/* The address that the connection came in at: a number cannot be rebound. */
static bool is_own_address(const struct conn *conn, const char *text)
{
    union sock_addr own = {0};
    socklen_t len = sizeof(own);
    struct in6_addr v6;
    struct in_addr v4;

    if (getsockname(conn->source.fd, &own.any, &len) < 0)
        return false;
    if (inet_pton(AF_INET, text, &v4) == 1) {
        if (own.any.sa_family == AF_INET)
            return v4.s_addr == own.v4.sin_addr.s_addr;
        return own.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&own.v6.sin6_addr) &&
               memcmp(own.v6.sin6_addr.s6_addr + 12, &v4, 4) == 0;
    }
    return own.any.sa_family == AF_INET6 && inet_pton(AF_INET6, text, &v6) == 1 &&
           memcmp(&v6, &own.v6.sin6_addr, sizeof(v6)) == 0;
}

static bool is_loopback(const char *text)
{
    struct in6_addr v6;
    struct in_addr v4;

    if (inet_pton(AF_INET, text, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool host_allowed(const struct conn *conn, const char *host)
{
    const struct http_options *http = &conn->server->options.http;
    const char *name, *listen;
    size_t len = host_name(host, &name);
    char text[256];

    if (same(name, len, "localhost", 9) || same(name, len, "127.0.0.1", 9))
        return true;
    if (len == 0 || len >= sizeof(text))
        return false;
    memcpy(text, name, len);
    text[len] = '\0';
    if (at_or_below(name, len, "localhost") || at_or_below(name, len, http->domain) ||
        word_listed(http->allowed_hosts, name, len) || word_listed(http->allowed_hosts, host, strlen(host)) ||
        is_loopback(text))
        return true;
    size_t listen_len = host_name(http->listen ? http->listen : "", &listen);
    return (listen_len > 0 && same(name, len, listen, listen_len)) || is_own_address(conn, text);
}

/* An authority with its scheme's port left out. */
static size_t without_default_port(const char *authority, bool tls)
{
    size_t len = strlen(authority);
    const char *port = tls ? ":443" : ":80";
    size_t n = strlen(port);

    return len > n && strcmp(authority + len - n, port) == 0 ? len - n : len;
}

bool origin_same(const struct conn *conn, const char *origin, const char *host)
{
    bool tls = conn->tls != NULL;
    const char *scheme = tls ? "https://" : "http://";
    size_t n = strlen(scheme);

    if (!host || strncasecmp(origin, scheme, n) != 0)
        return false;
    return same(origin + n, without_default_port(origin + n, tls), host, without_default_port(host, tls));
}
