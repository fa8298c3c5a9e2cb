/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server_conn.h: what the server's files share; nobody else includes it.
 *
 * Theory of operation
 *
 * A connection is a small struct (a few hundred bytes); what a request needs (buffer, head, target) is a struct
 * exchange from the server's pool, taken when bytes come and given back when the answer has been written. So an idle
 * connection has no buffers, and a keep-alive connection allocates nothing per request. A head that comes slowly is
 * parked in a block of its own size and the exchange goes back to the pool meanwhile.
 *
 *      accept -> HEAD -> BUSY -> FLUSH -> HEAD ...
 *                  \       \        \-> LINGER -> DEAD
 *                   \-------\----------------------^
 *   HEAD    idle, or a head is coming
 *   BUSY    the handler has an exchange
 *   FLUSH   the exchange is over; its last bytes wait for the peer
 *   LINGER  our side is shut down; what still comes is read and dropped for a moment, so that a reset does not lose
 *           the answer
 *   DEAD    closed; freed at the end of the loop's round
 *
 * One function, conn_run(), moves a connection as far as it can go; it is called for events, by the timer and at the
 * end of a round for every connection that something was done to (conn_touch()). The functions of server.h only note
 * what is wanted and try to write; they never call back. So a callback of the handler always comes from conn_run(), and
 * never from inside a call the handler makes.
 */
#ifndef BRIG_HTTP_SERVER_CONN_H
#define BRIG_HTTP_SERVER_CONN_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "http/server.h"

#define IN_SIZE 16384u                  /* first size of an exchange's buffer */
#define SCRATCH_SIZE (256u << 10)       /* one piece of a body */
#define OUT_HIGH (1u << 20)             /* more than enough waits */
#define OUT_SMALL (64u << 10)           /* the number of connections is bound enough */
#define OUT_HARD (64u << 20)            /* a handler that does not listen loses its client */
#define ANSWERS_MAX ((size_t)512 << 20) /* bytes of long answers and streams that wait for all clients */
#define BODIES_MAX ((size_t)2 << 30)    /* bytes of long bodies of requests under way */
#define BODY_SMALL (64u << 10)          /* the number of connections is bound enough */
#define MESSAGES_MAX \
    ((size_t)256 << 20) /* bytes of WebSocket messages that are not complete, or wait for their reader */
#define MESSAGE_SMALL (16u << 10)
#define LAZY_MAX (16u << 10) /* smaller pieces are sent together at the end of the round */
#define LINGER_MS 2000u
#define LINGER_BYTES (1u << 20)
#define WHEEL_SLOTS 512u
#define WHEEL_TICK_MS 50u
#define POOL_MAX 128u
#define PEER_BUCKETS 1024u
#define SHARE_BUCKETS 256u
#define SOCKET_PLACES 16u /* over max_connections, for the unix socket */
#define ID_SIZE 31u       /* "req-", 26 characters, NUL */
#define STATUS_GONE 499u  /* in the log only: the client did not wait */

struct tls;
struct tls_conn;
struct websocket;
struct peer;
struct server_share;

enum conn_state { CONN_HEAD, CONN_BUSY, CONN_FLUSH, CONN_LINGER, CONN_DEAD };

struct conn {
    struct loop_source source;
    struct server *server;
    struct conn *prev, *next; /* all of the server's */
    struct conn *touched_next;
    struct conn **wheel_prev, *wheel_next;
    uint64_t wheel_tick;  /* 0: not in the wheel */
    uint64_t since_ms;    /* the last progress */
    uint64_t deadline_ms; /* 0: none */
    struct peer *peer;
    struct server_share *share; /* of the organisation whose requests come on it; NULL: nobody's yet */
    struct tls_conn *tls;
    struct exchange *x;
    char *parked; /* input that waits without an exchange */
    size_t parked_len, parked_scanned;
    struct buf out;
    size_t out_at;  /* bytes of out that are gone */
    size_t owed;    /* how many of them count for its share */
    size_t held;    /* bytes of the request's body that do */
    size_t partial; /* bytes of WebSocket messages that do */
    uint32_t revents;
    uint32_t lingered;
    uid_t uid;
    uint8_t state;
    bool is_unix, is_loopback, counted;
    bool sniffed;       /* TLS or plain is known */
    bool running;       /* inside conn_run() */
    bool touched;       /* in the server's list for the end of the round */
    bool broken;        /* reading or writing failed */
    bool blocked;       /* the kernel takes no more: EPOLLOUT */
    bool muted;         /* bytes wait that nobody wants now: no EPOLLIN */
    bool half;          /* the peer has shut its side, but a body may still be in the kernel: no EPOLLRDHUP */
    bool close, linger; /* after this exchange */
    char peer_name[INET6_ADDRSTRLEN];
};

enum input { INPUT_NONE, INPUT_FLOWING, INPUT_PAUSED };
enum reading { READING_NOTHING, READING_ALL, READING_STREAM, READING_TUNNEL, READING_WEBSOCKET };

struct exchange {
    struct exchange *next_free;
    struct conn *conn;
    char *in; /* the head is [0, in_at), what follows [in_at, in_len) */
    size_t in_len, in_cap, in_at, scanned;
    bool starved; /* the head needs more bytes */
    struct buf target_memory, fields, body;
    char id[ID_SIZE];
    char owner[64]; /* "": nobody's */
    char kept[64];
    uint64_t started_ns;
    void *data;
    void (*gone)(void *ctx, struct exchange *x);
    void *gone_ctx;

    /* the request's body */
    uint8_t input, reading;
    bool body_end, too_large;
    struct http_body_reader reader;
    size_t read_max;
    void (*read_done)(void *ctx, struct exchange *x, char *data, size_t len);
    void *read_ctx;
    union {
        struct body_events body_events;
        struct tunnel_events tunnel_events;
    };
    struct websocket *ws;

    /* the answer */
    bool shut_due, shut; /* a tunnel: our side ends when everything is written; it has ended */
    bool begun, over, aborted, no_body, chunked, until_close, want_drained, wrong_length;
    size_t drain_at;         /* want_drained: when no more than this waits */
    const char *cors_origin; /* an allowed origin that is not our own */
    unsigned status;
    uint64_t length_left, bytes;
    void (*drained)(void *ctx, struct exchange *x);
    void *drained_ctx;

    struct http_head head;
    struct http_target target;
};

struct listener {
    struct loop_source source;
    struct server *server;
    struct listener *next;
    bool is_unix;
};

struct wheel {
    struct conn *slots[WHEEL_SLOTS];
    uint64_t next_tick;  /* the first that was not looked at */
    uint64_t armed_tick; /* 0: the timer is not set */
    struct loop_timer timer;
};

struct server {
    struct loop *loop;
    struct server_options options;
    struct listener *listeners;
    struct conn *conns, *touched;
    size_t n_conns, n_exchanges, n_refused;
    struct loop_timer turn_timer, accept_timer;
    struct wheel wheel;
    struct tls *tls;
    struct exchange *pool;
    size_t n_pool;
    char *scratch;         /* NULL: in use */
    struct buf head, text; /* for building answers */
    struct peer *peers[PEER_BUCKETS];
    struct server_share *shares[SHARE_BUCKETS];
    size_t descriptors;          /* that connections can have */
    size_t owed, owed_max;       /* bytes of long answers that count for somebody (server_share.c) */
    size_t held, held_max;       /* and of long bodies */
    size_t partial, partial_max; /* and of messages */
    uint64_t now_ms;
    int spare_fd;
    bool draining, destroying, turn_set;
    uint8_t random[4096];
    size_t random_left;
    time_t date_of;
    char date[48]; /* "Date: ...\r\n" */
    size_t date_len;
};

/* server.c */
struct exchange *exchange_take(struct server *server);
void exchange_reset(struct exchange *x);
void exchange_release(struct server *server, struct exchange *x);
char *scratch_take(struct server *server);
void scratch_give(struct server *server, char *scratch);
static inline uint64_t server_clock(struct server *server)
{
    struct timespec ts = {0};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    server->now_ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / NS_PER_MS;
    return server->now_ms;
}

/* server_accept.c */
void listener_close_all(struct server *server);
void accept_again(struct loop_timer *timer);
void peer_leave(struct conn *conn);

/* server_reply.c: after a write of a stream: may its handler go on? If not, drained() follows. */
bool exchange_goes_on(struct exchange *x);
/* server_share.c */
void share_init(struct server *server);
bool share_owe(struct conn *conn, size_t len) MUST_CHECK; /* an answer of so many bytes; false: it has its share */
bool share_owe_stream(struct conn *conn) MUST_CHECK;      /* the same for all that waits to be read of a stream */
void share_paid(struct conn *conn);                       /* they are gone */
/* size: what the body takes now, of max at most. false: it has its share. */
bool share_hold(struct conn *conn, size_t size, size_t max) MUST_CHECK;
/* size: all that a WebSocket keeps of messages now. false: it has its share. */
bool share_partial(struct conn *conn, size_t size) MUST_CHECK;
void share_let_go(struct conn *conn);                           /* the request is answered */
size_t share_places(const struct server *server, bool is_unix); /* the same, with those kept back for the socket */
void share_leave(struct conn *conn);

/* server_wheel.c */
void wheel_init(struct server *server);
void wheel_update(struct conn *conn); /* after deadline_ms was set */
void wheel_remove(struct conn *conn);

/* server_conn.c */
void conn_event(struct loop_source *source, uint32_t events);
void conn_run(struct conn *conn);
void conn_touch(struct conn *conn); /* conn_run() at the end of this round */
void conn_timeout(struct conn *conn);
void conn_fail(struct conn *conn); /* with an exchange that hears of it */
void conn_settle(struct conn *conn);
int conn_park(struct conn *conn, const char *data, size_t len, size_t scanned) MUST_CHECK;

/* server_io.c */
ssize_t conn_read(struct conn *conn, char *data, size_t size); /* clears the event; 0: the end; -EAGAIN; other errors */
bool conn_tls_pending(const struct conn *conn);
void conn_write(struct conn *conn, const struct iovec *iov, size_t n_iov, bool lazy); /* takes all of it */
void conn_flush(struct conn *conn);
static inline size_t conn_pending(const struct conn *conn)
{
    return conn->out.len - conn->out_at;
}

/* server_request.c */
void request_start(struct conn *conn); /* the head has been read */
void conn_refuse_head(struct conn *conn, unsigned status, const char *code, const char *message); /* and close */

/* server_host.c */
bool host_allowed(const struct conn *conn, const char *host);
bool origin_same(const struct conn *conn, const char *origin, const char *host);
bool word_listed(const char *words, const char *word, size_t len); /* space-separated, ASCII case ignored */

/* server_body.c */
bool body_step(struct exchange *x);          /* true: something was done */
bool body_skip_buffered(struct exchange *x); /* true: the body's end has been seen */
bool body_watch(struct exchange *x);         /* nobody reads: only see whether the client leaves */
void exchange_flow(struct exchange *x);
void exchange_deliver_gone(struct exchange *x);

/* server_reply.c */
void exchange_over(struct exchange *x);
void reply_error(struct exchange *x, unsigned status, const char *code, const char *message, const char *hint);

/* websocket.c */
bool websocket_step(struct exchange *x);
void websocket_gone(struct exchange *x);
void websocket_timeout(struct exchange *x);
bool websocket_closing(const struct exchange *x);
void websocket_free(struct websocket *ws);

static inline bool conn_readable(const struct conn *conn)
{
    return (conn->revents & ~(uint32_t)EPOLLOUT) != 0 || (conn->tls && conn_tls_pending(conn));
}

#endif
