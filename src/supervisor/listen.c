/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen.c: opens the listeners of the service. Reaching it from other machines must be intended: an address that is
 * not loopback needs TLS, or the switch that says it is insecure.
 */
#include <time.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/sockaddr.h"
#include "supervisor/supervisor.h"

#define BACKLOG 4096
#define LISTEN_FDS_START 3

static bool is_loopback(const union sock_addr *addr)
{
    if (addr->any.sa_family == AF_INET)
        return (ntohl(addr->v4.sin_addr.s_addr) >> 24) == 127;
    return IN6_IS_ADDR_LOOPBACK(&addr->v6.sin6_addr);
}

/* "127.0.0.1:2744", "[::1]:2744". Names are not looked up: what they stand for may change. */
static int parse_address(const char *text, union sock_addr *ret, socklen_t *ret_len, struct brig_err *err)
{
    char host[64];
    uint64_t port = 0;
    const char *colon = strrchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : 0;

    if (!colon || len == 0 || len >= sizeof host || parse_u64(colon + 1, &port) < 0 || port > UINT16_MAX)
        return err_usage(err, "server.listen %s: must be ADDRESS:PORT, such as 127.0.0.1:2744 or [::1]:2744", text);
    memcpy(host, text, len);
    host[len] = '\0';
    *ret_len = sock_addr_parse(host, (uint16_t)port, ret);
    if (*ret_len > 0)
        return 0;
    return err_usage(err, "server.listen %s: the address must be a number, such as 127.0.0.1 or [::1]", text);
}

/* Bound, not listening yet. */
static int bind_tcp(const struct config *config, int *ret_fd, struct brig_err *err)
{
    union sock_addr addr;
    socklen_t len = 0;
    int one = 1;
    int r = parse_address(config->listen, &addr, &len, err);

    if (r < 0)
        return r;
    if (!is_loopback(&addr) && !config->tls_cert[0] && !config->insecure)
        return err_usage(
            err, "server.listen %s: other machines could read keys there; set tls_cert and tls_key, or insecure = true",
            config->listen);
    AUTO_FD int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0)
        return err_host(err, "socket for %s", config->listen);
    if (addr.any.sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0)
        return err_host(err, "socket for %s", config->listen);
    if (bind(fd, &addr.any, len) < 0)
        return err_host(err, "listen on %s", config->listen);
    *ret_fd = take_fd(&fd);
    return 0;
}

int listen_tcp(const struct config *config, int *ret_fd, struct brig_err *err)
{
    AUTO_FD int fd = -1;
    int r = bind_tcp(config, &fd, err);

    if (r < 0)
        return r;
    if (listen(fd, BACKLOG) < 0)
        return err_host(err, "listen on %s", config->listen);
    *ret_fd = take_fd(&fd);
    return 0;
}

#define LEAVING_TRIES 20
#define LEAVING_MS 50

/* Does somebody listen there? A daemon whose supervisor was killed is about to die, and has a second for it. */
static bool answers(const struct sockaddr_un *addr)
{
    const struct timespec pause = {.tv_nsec = LEAVING_MS * 1000000L};

    for (int i = 0; i < LEAVING_TRIES; i++) {
        AUTO_FD int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (probe >= 0 && connect(probe, (const struct sockaddr *)addr, sizeof *addr) < 0 && errno != EAGAIN)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int unix_address(const char *path, struct sockaddr_un *ret, struct brig_err *err)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] != '/' || strlen(path) >= sizeof ret->sun_path)
        return err_usage(err, "socket %s: must be an absolute path of at most %zu bytes", path,
                         sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, strlen(path));
    return 0;
}

/* 1: a socket has that name; 0: nothing has. */
static int find_socket(const struct sockaddr_un *addr, struct brig_err *err)
{
    struct stat st;

    if (lstat(addr->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : err_host(err, "%s", addr->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return err_usage(err, "%s: there is a file of that name that is not a socket", addr->sun_path);
    return 1;
}

/* Whether bind() could make the file. The run directory is made by the start. */
static int probe_socket_dir(const char *path, const struct places *places, struct brig_err *err)
{
    char dir[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *slash = strrchr(path, '/');

    snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0 || (errno == ENOENT && strcmp(dir, places->run) == 0))
        return 0;
    return err_host(err, "%s", path);
}

int listen_look(const struct config *config, const struct places *places, struct brig_err *err)
{
    struct sockaddr_un addr;
    AUTO_FD int fd = -1;
    int r = unix_address(config->socket, &addr, err);

    if (r == 0)
        r = find_socket(&addr, err);
    if (r >= 0)
        r = probe_socket_dir(config->socket, places, err);
    if (r == 0 && config->listen[0])
        r = bind_tcp(config, &fd, err);
    return r == -EADDRINUSE ? 0 : r;
}

/* A socket file nobody listens on is a leftover; one that answers is somebody's. */
static int remove_stale(const struct sockaddr_un *addr, struct brig_err *err)
{
    int r = find_socket(addr, err);

    if (r <= 0)
        return r;
    if (answers(addr))
        return err_set(err, BRIG_E_CONFLICT, EADDRINUSE, "%s: another daemon answers there", addr->sun_path);
    return unlink(addr->sun_path) < 0 && errno != ENOENT ? err_host(err, "remove the old %s", addr->sun_path) : 0;
}

int listen_unix(const char *path, int *ret_fd, struct brig_err *err)
{
    struct sockaddr_un addr;
    bool root = geteuid() == 0;
    const struct group *group = root ? getgrnam("brig") : NULL;
    int r = unix_address(path, &addr, err);

    if (r == 0)
        r = remove_stale(&addr, err);
    if (r < 0)
        return r;
    AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_host(err, "socket");
    /* Nobody may connect between bind and chmod. */
    mode_t old = umask(0177);
    r = bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0 ? err_host(err, "%s", path) : 0;
    umask(old);
    if (r == 0 && group && (chown(path, 0, group->gr_gid) < 0 || chmod(path, 0660) < 0))
        r = err_host(err, "group of %s", path);
    if (r == 0 && listen(fd, BACKLOG) < 0)
        r = err_host(err, "listen on %s", path);
    if (r == 0)
        *ret_fd = take_fd(&fd);
    return r;
}

size_t listen_inherited(struct listener *out, size_t max)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    uint64_t owner = 0, n = 0;
    size_t taken = 0;

    if (!pid || !count || parse_u64(pid, &owner) < 0 || owner != (uint64_t)getpid() || parse_u64(count, &n) < 0)
        return 0;
    for (uint64_t i = 0; i < n && i < 64; i++) {
        int fd = LISTEN_FDS_START + (int)i;
        int domain = 0, accepting = 0;
        socklen_t len = sizeof domain;

        fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (taken == max || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0)
            continue;
        len = sizeof accepting;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepting, &len) < 0 || !accepting)
            continue;
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
            continue;
        out[taken++] = (struct listener){fd, domain == AF_UNIX};
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return taken;
}
