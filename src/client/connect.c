/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect.c: finds the daemon and connects to it. The order of places is a contract: if the user names a place, only
 * that one is tried; otherwise a user's own daemon comes before the machine's.
 */
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "client/internal.h"
#include "engine/engine.h"
#include "host/dirs.h"

#define MACHINE_SOCKET "/run/brig/brig.sock"
#define REPLY_MAX ((size_t)64 << 20)
#define IN_MAX ((size_t)64 << 10) /* twice the largest head */
#define CONNECT_MS 10000

static int connect_unix(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (str_copy(addr.sun_path, sizeof(addr.sun_path), path) < 0)
        return -ENAMETOOLONG;
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* Blocks while the daemon's queue is full, as it should: then there is a daemon. */
    while (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
        if (errno != EINTR)
            return -errno;
    if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
        return -errno;
    return take_fd(&fd);
}

static int connect_one(const struct addrinfo *addr)
{
    int one = 1, error = 0;
    socklen_t len = sizeof(error);

    AUTO_FD int fd = socket(addr->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, addr->ai_addr, addr->ai_addrlen) < 0) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (errno != EINPROGRESS)
            return -errno;
        int n;
        do
            n = poll(&wait, 1, CONNECT_MS);
        while (n < 0 && errno == EINTR);
        if (n == 0)
            return -ETIMEDOUT;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || error != 0)
            return error != 0 ? -error : -errno;
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
        return -errno;
    return take_fd(&fd);
}

/* "127.0.0.1:2744", "[::1]:2744", "name:2744". */
static int connect_tcp(const char *authority, struct brig_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[CLIENT_WHERE];
    const char *colon = strrchr(authority, ':');
    size_t len = colon ? (size_t)(colon - authority) : 0;
    bool bracket = len >= 2 && authority[0] == '[' && authority[len - 1] == ']';

    memcpy(host, authority + bracket, len - 2 * bracket);
    host[len - 2 * bracket] = '\0';
    int r = getaddrinfo(host, colon + 1, &hints, &found);
    if (r != 0)
        return err_set(err, BRIG_E_GONE, 0, "BRIG_HOST=http://%s: %s", authority, gai_strerror(r));
    int fd = -ECONNREFUSED;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
        fd = connect_one(at);
    freeaddrinfo(found);
    if (fd < 0)
        err_set(err, BRIG_E_GONE, -fd, "no daemon answers on http://%s", authority);
    return fd;
}

static int no_daemon(struct brig_err *err, const char *path, int error)
{
    if (error == -EACCES || error == -EPERM)
        err_set(err, BRIG_E_GONE, 0, "%s: permission denied (its users are root and the group brig)", path);
    else if (error == -ENOENT || error == -ECONNREFUSED || error == -ENOTDIR)
        err_set(err, BRIG_E_GONE, 0, "no daemon answers on %s (start one with: brig serve)", path);
    else
        err_set(err, BRIG_E_GONE, -error, "%s", path);
    return error;
}

int client_connect(struct client *client, struct brig_err *err)
{
    client_disconnect(client);
    int fd = client->remote ? connect_tcp(client->authority, err) : connect_unix(client->where);
    if (fd < 0)
        return client->remote ? fd : no_daemon(err, client->where, fd);
    client->fd = fd;
    return 0;
}

void client_disconnect(struct client *client)
{
    base_close_fd(&client->fd);
}

static struct client *create(void)
{
    struct client *client = mem_zalloc(sizeof(*client));

    if (!client)
        return NULL;
    client->fd = client->cancel_fd = -1;
    client->in = BUF_INIT(IN_MAX);
    client->reply = BUF_INIT(REPLY_MAX);
    snprintf(client->authority, sizeof(client->authority), "localhost");
    return client;
}

void client_close(struct client *client)
{
    if (!client)
        return;
    client_disconnect(client);
    explicit_bzero(client->key, sizeof(client->key));
    if (client->reply.data)
        explicit_bzero(client->reply.data, client->reply.cap); /* a key may have been in it */
    mem_free(client->piece);
    buf_done(&client->in);
    buf_done(&client->reply);
    mem_free(client);
}

/* BRIG_HOST. The key goes in clear, so https is not pretended. */
static int set_host(struct client *client, const char *host, struct brig_err *err)
{
    static const char scheme[] = "http://";
    const char *key = getenv("BRIG_API_KEY"), *authority = host + strlen(scheme);

    if (str_starts(host, "https://"))
        return err_usage(err, "BRIG_HOST=%.80s: https is not spoken here; use the socket, or http:// through a tunnel",
                         host);
    size_t len = str_starts(host, scheme) ? strcspn(authority, "/") : 0;
    const char *colon = len > 0 ? memrchr(authority, ':', len) : NULL;
    if (!colon || colon == authority || colon + 1 == authority + len ||
        strspn(colon + 1, "0123456789") != (size_t)(authority + len - colon - 1) ||
        (authority[len] == '/' && authority[len + 1] != '\0') || len + 8 >= sizeof(client->where))
        return err_usage(err, "BRIG_HOST=%.80s: must be http://ADDRESS:PORT", host);
    if (key && str_copy(client->key, sizeof(client->key), key) < 0)
        return err_usage(err, "BRIG_API_KEY: longer than any key");
    if (!key || !*key)
        return err_usage(err, "BRIG_HOST needs BRIG_API_KEY, a key made with: brig key create");
    snprintf(client->where, sizeof(client->where), "http://%.*s", (int)len, authority);
    snprintf(client->authority, sizeof(client->authority), "%.*s", (int)len, authority);
    client->remote = true;
    return client_connect(client, err);
}

static int try_socket(struct client *client, const char *path, struct brig_err *err)
{
    if (str_copy(client->where, sizeof(client->where), path) < 0)
        return err_usage(err, "%.80s...: too long for a socket", path);
    return client_connect(client, err);
}

static int try_places(struct client *client, struct brig_err *err)
{
    const char *named = getenv("BRIG_SOCKET");
    char run[PATH_MAX], path[PATH_MAX + 16];
    struct brig_err second;

    if (named && *named)
        return try_socket(client, named, err);
    int r = dirs_path(BRIG_DIR_RUN, run, sizeof(run), err);
    if (r == 0) {
        snprintf(path, sizeof(path), "%s/brig.sock", run);
        r = try_socket(client, path, err);
    }
    /* A user's own daemon that is not there is the usual case: the message is about the machine's. */
    if (r < 0 && geteuid() != 0) {
        int r2 = try_socket(client, MACHINE_SOCKET, &second);
        if (r2 == 0)
            return 0;
        if (r == -ENOENT)
            *err = second;
        r = r == -ENOENT ? r2 : r;
    }
    return r;
}

bool client_is_remote(void)
{
    const char *host = getenv("BRIG_HOST");
    return host && *host;
}

int client_open(struct client **ret, struct brig_err *err)
{
    const char *host = getenv("BRIG_HOST");
    struct client *client = create();

    if (!client)
        return err_nomem(err);
    int r = host && *host ? set_host(client, host, err) : try_places(client, err);
    if (r < 0)
        return client_close(client), r;
    *ret = client;
    return 0;
}

int client_open_socket(const char *path, struct client **ret, struct brig_err *err)
{
    struct client *client = create();

    if (!client)
        return err_nomem(err);
    int r = try_socket(client, path, err);
    if (r < 0)
        return client_close(client), r;
    *ret = client;
    return 0;
}

const char *client_where(const struct client *client)
{
    return client->where;
}

void client_set_cancel(struct client *client, int fd)
{
    client->cancel_fd = fd;
}

int client_find_libexec(char *out, size_t size, struct brig_err *err)
{
    return engine_find_helpers(NULL, out, size, err);
}
