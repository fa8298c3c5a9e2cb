/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners. Connections are taken in batches; who is one too many gets an answer and not silence: 503 over
 * max_connections, 429 over max_connections_per_peer. The unix socket has SOCKET_PLACES more, which nobody takes from
 * another machine. Without descriptors, one that was kept for this is given up to take the connection and say so, and
 * listening pauses for a moment: a level-triggered listener would spin otherwise.
 *
 * A peer is an IPv4 address, the first 64 bits of an IPv6 address (what one host can choose from), or a user of the
 * socket.
 */
#include "base/list.h"
#include "http/server_conn.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sockaddr.h"

#define ACCEPT_BATCH 64
#define ACCEPT_PAUSE_MS 100u
#define REFUSED_MAX 256u /* refused connections whose end is waited for */

struct peer {
    struct peer *next;
    uint8_t key[16];
    size_t n;
};

/* ---- peers -------------------------------------------------------------------------------------- */

/* Fills key, the name and is_loopback. */
static void describe(struct conn *conn, const union sock_addr *address, uint8_t key[16])
{
    memset(key, 0, 16);
    if (conn->is_unix) {
        struct ucred cred = {.uid = (uid_t)-1};
        socklen_t len = sizeof(cred);
        (void)getsockopt(conn->source.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
        conn->uid = cred.uid;
        conn->is_loopback = true;
        key[0] = 'u';
        memcpy(key + 8, &cred.uid, sizeof(cred.uid));
        memcpy(conn->peer_name, "unix", 5);
        return;
    }
    conn->uid = (uid_t)-1;
    memcpy(conn->peer_name, "unknown", 8);
    const uint8_t *v4 = NULL;
    if (address->any.sa_family == AF_INET) {
        v4 = (const uint8_t *)&address->v4.sin_addr;
    } else if (address->any.sa_family == AF_INET6) {
        const struct in6_addr *v6 = &address->v6.sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(v6)) {
            v4 = v6->s6_addr + 12;
        } else {
            memcpy(key, v6, 8);
            conn->is_loopback = IN6_IS_ADDR_LOOPBACK(v6);
            inet_ntop(AF_INET6, v6, conn->peer_name, sizeof(conn->peer_name));
        }
    }
    if (v4) {
        memset(key + 8, 0xff, 4);
        memcpy(key + 12, v4, 4);
        conn->is_loopback = v4[0] == 127;
        inet_ntop(AF_INET, v4, conn->peer_name, sizeof(conn->peer_name));
    }
}

static struct peer **bucket_of(struct server *server, const uint8_t key[16])
{
    uint64_t a, b;

    memcpy(&a, key, 8);
    memcpy(&b, key + 8, 8);
    a = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return &server->peers[(a >> 40) % PEER_BUCKETS];
}

static struct peer *peer_join(struct server *server, const uint8_t key[16])
{
    struct peer **bucket = bucket_of(server, key);
    struct peer *peer;

    for (peer = *bucket; peer; peer = peer->next) {
        if (memcmp(peer->key, key, 16) == 0)
            break;
    }
    if (!peer) {
        peer = mem_zalloc(sizeof(*peer));
        if (!peer)
            return NULL;
        memcpy(peer->key, key, 16);
        peer->next = *bucket;
        *bucket = peer;
    }
    peer->n++;
    return peer;
}

void peer_leave(struct conn *conn)
{
    struct peer *peer = take_ptr(&conn->peer);

    if (!peer || --peer->n > 0)
        return;
    struct peer **at = bucket_of(conn->server, peer->key);
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    mem_free(peer);
}

/* ---- connections -------------------------------------------------------------------------------- */

#define BUSY_BODY                                                                                      \
    "{\"error\":{\"code\":\"busy\",\"message\":\"too many connections\",\"hint\":\"try again later\"," \
    "\"request_id\":null}}\n"
#define LIMIT_BODY                                                                                             \
    "{\"error\":{\"code\":\"limit\",\"message\":\"too many connections from this peer\",\"hint\":\"try again " \
    "later\",\"request_id\":null}}\n"

static void send_refusal(int fd, bool busy)
{
    char text[512];
    const char *body = busy ? BUSY_BODY : LIMIT_BODY;
    int n = snprintf(text, sizeof(text),
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nRetry-After: 1\r\n"
                     "Connection: close\r\n\r\n%s",
                     busy ? "503 Service Unavailable" : "429 Too Many Requests", strlen(body), body);

    (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
}

static void link_conn(struct server *server, struct conn *conn)
{
    list_push(&server->conns, conn);
}

/* Takes fd over in every case. */
static void take_connection(struct listener *listener, int fd, const union sock_addr *address)
{
    struct server *server = listener->server;
    const struct http_options *http = &server->options.http;
    struct conn *conn = mem_zalloc(sizeof(*conn));
    uint8_t key[16];

    if (!conn) {
        send_refusal(fd, true);
        close(fd);
        return;
    }
    conn->server = server;
    conn->source = (struct loop_source){.fd = fd, .fn = conn_event, .ctx = conn};
    conn->is_unix = listener->is_unix;
    conn->sniffed = listener->is_unix || !server->tls;
    conn->out = BUF_INIT(SIZE_MAX / 4);
    conn->since_ms = server->now_ms;
    describe(conn, address, key);
    conn->peer = peer_join(server, key);

    bool many = server->n_conns >= share_places(server, conn->is_unix);
    bool greedy = conn->peer && http->max_connections_per_peer > 0 && conn->peer->n > http->max_connections_per_peer;
    bool refused = many || greedy || !conn->peer;
    if (refused) {
        send_refusal(fd, !greedy || many);
        peer_leave(conn);
        conn->state = CONN_LINGER;
    }
    if ((refused && server->n_refused >= REFUSED_MAX) ||
        loop_add(server->loop, &conn->source, fd, EPOLLIN | EPOLLRDHUP, NULL) < 0) {
        peer_leave(conn);
        mem_free(conn);
        close(fd);
        return;
    }
    conn->counted = !refused;
    if (refused)
        server->n_refused++;
    else
        server->n_conns++;
    link_conn(server, conn);
    conn_settle(conn);
}

static void pause_listening(struct server *server)
{
    for (struct listener *l = server->listeners; l; l = l->next)
        (void)!loop_modify(server->loop, &l->source, 0, NULL);
    /* If even this fails, listening goes on at once: slower, not wrong. */
    if (loop_timer_set(server->loop, &server->accept_timer, clock_mono_ns() + ACCEPT_PAUSE_MS * NS_PER_MS, NULL) < 0)
        accept_again(&server->accept_timer);
}

void accept_again(struct loop_timer *timer)
{
    struct server *server = timer->ctx;

    if (server->spare_fd < 0)
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (struct listener *l = server->listeners; l; l = l->next)
        (void)!loop_modify(server->loop, &l->source, EPOLLIN, NULL);
}

static void out_of_descriptors(struct listener *listener)
{
    struct server *server = listener->server;

    if (server->spare_fd >= 0) {
        base_close_fd(&server->spare_fd);
        int fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            send_refusal(fd, true);
            close(fd);
        }
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    pause_listening(server);
}

static void on_listener(struct loop_source *source, UNUSED uint32_t events)
{
    struct listener *listener = source->ctx;

    server_clock(listener->server);
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        union sock_addr address = {0};
        socklen_t len = sizeof(address);
        int fd = accept4(source->fd, listener->is_unix ? NULL : &address.any, listener->is_unix ? NULL : &len,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            take_connection(listener, fd, &address);
            continue;
        }
        switch (errno) {
        case EAGAIN: return;
        case EMFILE:
        case ENFILE:
        case ENOMEM:
        case ENOBUFS: out_of_descriptors(listener); return;
        default: break; /* errors of the connection that was waiting (accept(2)): the next one */
        }
    }
}

/* Inherited by what is accepted (Linux), so that a connection costs no calls for them. */
static void set_tcp_options(int fd)
{
    const int on = 1, idle = 60, interval = 15, count = 4;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* Streams have no deadline while nothing is to be sent: a peer that vanished is noticed by this. */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int server_listen(struct server *server, int fd, bool is_unix, struct brig_err *err)
{
    AUTO_FD int own = fd;
    struct listener *listener = mem_zalloc(sizeof(*listener));

    if (!listener)
        return err_nomem(err);
    int r = fd_set_nonblock(fd);
    if (r == 0)
        r = fd_set_cloexec(fd, true);
    if (r < 0) {
        err_set(err, BRIG_E_HOST, -r, "listening socket");
    } else {
        if (!is_unix)
            set_tcp_options(fd);
        listener->source = (struct loop_source){.fd = -1, .fn = on_listener, .ctx = listener};
        listener->server = server;
        listener->is_unix = is_unix;
        r = loop_add(server->loop, &listener->source, fd, EPOLLIN, err);
    }
    if (r < 0) {
        mem_free(listener);
        return r;
    }
    listener->next = server->listeners;
    server->listeners = listener;
    take_fd(&own);
    return 0;
}

void listener_close_all(struct server *server)
{
    while (server->listeners) {
        struct listener *listener = server->listeners;
        server->listeners = listener->next;
        int fd = listener->source.fd;
        loop_remove(server->loop, &listener->source);
        close(fd);
        mem_free(listener);
    }
}
