/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ports.c: lists the ports that listen inside, and connects to them and to unix sockets.
 *
 * The network namespace is the sandbox's, and pid 1 is in it, so a connection needs nothing from outside: brigd's bytes
 * go through a call. Each direction ends by itself, as TCP's do; the call ends when both have.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

#define PORT_RING (256u * 1024)
#define PORTS_MAX 4096u
#define TABLE_SIZE (64u * 1024)
#define STATE_LISTEN 0x0a

struct port {
    struct call *call;
    struct source connecting;
    struct outlet out;
    struct inlet in;
    uint16_t number;
    bool tried_v6;
    bool in_ended;
};

static struct pool pool = {.size = sizeof(struct port)};

/* ---- connections ----------------------------------------------------------------------------------- */

void port_done(struct call *call)
{
    struct port *port = call->port;

    source_close(&port->connecting);
    outlet_done(&port->out);
    inlet_close(&port->in);
    pool_give(&pool, port);
}

static void maybe_over(struct port *port)
{
    if (port->in_ended && port->call->reader[0].ended)
        call_reply(port->call, 0, 0, NULL, 0);
}

static void out_drained(struct call *call)
{
    maybe_over(call->port);
}

/* Whether by its end or because the other side reads no more: what still comes out is not lost by that. */
static void in_ended(struct inlet *inlet)
{
    struct port *port = owner_of(inlet, struct port, in);

    port->in_ended = true;
    port->call->inlet = NULL;
    if (port->out.source.fd >= 0)
        raw_call2(SYS_shutdown, port->out.source.fd, SHUT_WR);
    maybe_over(port);
}

static int connected(struct port *port)
{
    int fd = port->connecting.fd;
    long copy = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0), own = raw_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
    int ret = raw_failed(copy) ? (int)copy : raw_failed(own) ? (int)own : 0;

    /* One descriptor per direction: epoll knows each once. */
    if (ret == 0 && (ret = outlet_open(&port->out, (int)own, PORT_RING)) == 0)
        own = -1;
    if (ret == 0 && (ret = inlet_open(&port->in, (int)copy)) == 0)
        copy = -1;
    if (!raw_failed(copy))
        raw_call1(SYS_close, copy);
    if (!raw_failed(own))
        raw_call1(SYS_close, own);
    source_close(&port->connecting);
    if (ret != 0)
        return ret;
    send_frame(SVC_EVENT, port->call->request, 0, NULL, 0);
    return 0;
}

static void on_connecting(struct source *source, uint32_t events);

long connect_loopback(long fd, uint16_t port, bool v6)
{
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    return v6 ? raw_call3(SYS_connect, fd, &six, sizeof(six)) : raw_call3(SYS_connect, fd, &four, sizeof(four));
}

/* Begins a connection to 127.0.0.1, or to ::1. Returns 0, or a negative errno. */
static long begin(struct port *port, bool v6)
{
    long fd = raw_call3(SYS_socket, v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), ret;

    if (raw_failed(fd))
        return fd;
    port->tried_v6 = v6;
    port->connecting.ready = on_connecting;
    ret = connect_loopback(fd, port->number, v6);
    if (ret == 0 || ret == -EINPROGRESS)
        ret = source_add(&port->connecting, (int)fd, EPOLLOUT); /* either way it tells */
    if (ret != 0)
        raw_call1(SYS_close, fd);
    return ret;
}

/* A connection to a unix socket is made at once, or not at all. Returns 0, or a negative errno. */
static long begin_at(struct port *port, const uint8_t *path, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (len == 0 || len >= sizeof(address.sun_path) || path[0] != '/' || __builtin_memchr(path, '\0', len))
        return -EINVAL;
    __builtin_memcpy(address.sun_path, path, len);
    long fd = raw_call3(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (raw_failed(fd))
        return fd;
    port->connecting.ready = on_connecting;
    long ret = raw_call3(SYS_connect, fd, &address, sizeof(address));
    if (ret == 0)
        ret = source_add(&port->connecting, (int)fd, EPOLLOUT);
    if (ret != 0)
        raw_call1(SYS_close, fd);
    return ret;
}

/* What there is to say about the first family counts: nobody asked for the second. */
static void failed(struct port *port, long ret)
{
    source_close(&port->connecting);
    if (ret == -ECONNREFUSED && port->number != 0 && !port->tried_v6 && begin(port, true) == 0)
        return;
    call_reply(port->call, ret == -EAFNOSUPPORT || ret == -EADDRNOTAVAIL ? ECONNREFUSED : (int)-ret, 0, NULL, 0);
}

static void on_connecting(struct source *source, uint32_t events)
{
    struct port *port = owner_of(source, struct port, connecting);
    int error = 0, len = sizeof(error);
    long ret = raw_call5(SYS_getsockopt, source->fd, SOL_SOCKET, SO_ERROR, &error, &len);

    (void)events;
    if (ret == 0 && error == 0)
        ret = connected(port);
    else if (ret == 0)
        ret = -error;
    if (ret != 0)
        failed(port, ret);
}

void port_connect(uint32_t request, const uint8_t *payload, size_t len)
{
    struct svc_reader reader = {payload, payload + len, false};
    uint16_t number = svc_get_u16(&reader);
    const uint8_t *path = reader.at;
    const size_t path_len = number == 0 ? (size_t)(reader.end - reader.at) : 0;
    struct call *call;

    reader.at += path_len;
    if (svc_done(&reader) != 0) {
        send_reply(request, EINVAL, 0, NULL, 0);
        return;
    }
    if (!(call = call_new(request, SVC_PORT_CONNECT, NULL)))
        return;
    struct port *port = pool_take(&pool);
    if (!port) {
        call_reply(call, ENOMEM, 0, NULL, 0);
        return;
    }
    call->port = port;
    port->call = call;
    port->number = number;
    port->connecting.fd = port->out.source.fd = port->in.source.fd = -1;
    port->in.waits = true;
    port->in.ended = in_ended;
    call->inlet = &port->in;
    call->drained = out_drained;
    call_attach(call, 1, &port->out, 0);
    long ret = number != 0 ? begin(port, false) : begin_at(port, path, path_len);
    if (ret != 0)
        failed(port, ret);
}

/* ---- who listens ----------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static uint32_t hex(const char *at, size_t len)
{
    uint32_t value = 0;

    for (; len > 0 && hex_digit(*at) >= 0; at++, len--)
        value = value << 4 | (uint32_t)hex_digit(*at);
    return value;
}

/* The nth field of a line, or NULL. */
static const char *field(const char *at, const char *end, unsigned nth)
{
    for (;; nth--) {
        while (at < end && *at == ' ')
            at++;
        if (at == end)
            return NULL;
        if (nth == 0)
            return at;
        while (at < end && *at != ' ')
            at++;
    }
}

static bool is_loopback(const char *address, bool v6)
{
    static const char one[] = "00000000000000000000000001000000", mapped[] = "0000000000000000FFFF0000";

    if (!v6)
        return hex(address + 6, 2) == 127;
    return __builtin_memcmp(address, one, 32) == 0 ||
           (__builtin_memcmp(address, mapped, 24) == 0 && hex(address + 30, 2) == 127);
}

/* A line of /proc/self/net/tcp: "sl local_address rem_address st tx:rx tr:when retrnsmt uid ...". */
static bool parse_line(const char *line, const char *end, bool v6, struct svc_port *ret)
{
    const char *local = field(line, end, 1), *state = field(line, end, 3), *uid = field(line, end, 7);
    size_t width = v6 ? 32 : 8;

    if (!local || !state || !uid || end - local < (long)width + 5 || local[width] != ':' ||
        hex(state, 2) != STATE_LISTEN)
        return false;
    *ret = (struct svc_port){
        .port = (uint16_t)hex(local + width + 1, 4), .family = v6 ? 6 : 4, .loopback = is_loopback(local, v6)};
    for (; uid < end && *uid >= '0' && *uid <= '9'; uid++)
        ret->uid = ret->uid * 10 + (uint32_t)(*uid - '0');
    return ret->port != 0;
}

static unsigned send_lines(uint32_t request, const char *text, size_t len, bool v6, unsigned left, size_t *used)
{
    const char *at = text, *end = text + len, *nl;
    unsigned n = 0;

    while (n < left && at < end && (nl = __builtin_memchr(at, '\n', (size_t)(end - at)))) {
        struct svc_port port;
        uint8_t wire[16];
        int size = parse_line(at, nl, v6, &port) ? svc_port_put(wire, sizeof(wire), &port) : 0;

        if (size > 0) {
            send_frame(SVC_EVENT, request, 0, wire, (size_t)size);
            n++;
        }
        at = nl + 1;
    }
    *used = (size_t)(at - text);
    return n;
}

static long send_table(uint32_t request, const char *path, bool v6, char *buf, unsigned *left)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), got = 0;
    size_t len = 0, used;

    if (raw_failed(fd))
        return fd == -ENOENT && v6 ? 0 : fd; /* a kernel without IPv6 */
    while (*left > 0 && (got = raw_call3(SYS_read, fd, buf + len, TABLE_SIZE - len)) > 0) {
        len += (size_t)got;
        *left -= send_lines(request, buf, len, v6, *left, &used);
        __builtin_memmove(buf, buf + used, len - used);
        len -= used;
        if (len == TABLE_SIZE)
            break;
    }
    raw_call1(SYS_close, fd);
    return got < 0 ? got : 0;
}

void port_list(uint32_t request, const uint8_t *payload, size_t len)
{
    char *buf = len == 0 ? pages_map(TABLE_SIZE) : NULL;
    unsigned left = PORTS_MAX;
    long ret = len != 0 ? -EINVAL : buf ? 0 : -ENOMEM;

    (void)payload;
    if (ret == 0)
        ret = send_table(request, "/proc/self/net/tcp", false, buf, &left);
    if (ret == 0)
        ret = send_table(request, "/proc/self/net/tcp6", true, buf, &left);
    pages_unmap(buf, TABLE_SIZE);
    send_reply(request, (int)-ret, 0, NULL, 0);
}
