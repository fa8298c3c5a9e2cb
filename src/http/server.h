/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server.h: connections. Accepts on the given listeners, reads requests with codec/http/http.h, gives each to the
 * handler as a struct exchange, writes what the handler answers. TLS and plain on one port (first byte). Keep-alive and
 * pipelining (one exchange at a time per connection), 100-continue, early responses, WebSocket upgrade, raw tunnels.
 *
 * Time limits: head (header_timeout), body without progress (body_timeout), between requests (idle_timeout), a
 * response the peer does not read (body_timeout without progress). Limits: struct http_options. A connection past
 * max_connections (or three quarters of the descriptors) is answered 503 + Connection: close, on the unix socket only
 * when 16 more are taken; past max_connections_per_peer 429. A client that leaves is noticed while its exchange is idle
 * (EPOLLRDHUP): gone() is called.
 *
 * The handler's callbacks come from the loop only, never from inside a function of this header: a call never destroys
 * what its caller still uses. An answer that fails on its way is told by gone() in the same way.
 *
 * Host is checked for every TCP request (allowed: loopback names and addresses, the listen address, <domain> and below,
 * allowed_hosts; else 421); Origin, when present and not same-origin and not allowed: 403. The unix socket has no Host
 * rule. An allowed Origin gets its Access-Control fields, and its preflights are answered here. Plain text from another
 * machine is 403 unless the options say `insecure`.
 */
#ifndef BRIG_HTTP_SERVER_H
#define BRIG_HTTP_SERVER_H

#include <brig.h>
#include <sys/types.h>

#include "codec/http/http.h"
#include "loop/loop.h"

struct server;
struct exchange;
struct tls_pem;

/* What can change while the server runs. The server copies the struct and borrows its strings, which stay until the
 * next server_configure() or the server's end. NULL is "" in a string. */
struct http_options {
    const char *listen, *domain;                        /* names that Host may have: see above */
    const char *allowed_hosts, *allowed_origins;        /* words with blanks between them */
    bool insecure;                                      /* plain text from other machines is answered */
    uint64_t max_connections, max_connections_per_peer; /* 0: no limit of its own */
    uint64_t max_headers_bytes, max_headers;
    uint64_t header_timeout, body_timeout, idle_timeout; /* ms */
};

struct server_options {
    struct http_options http;
    /* A request's head has come. The handler answers it, now or later, with the functions below. */
    void (*handler)(void *ctx, struct exchange *x);
    void *ctx;
    /* called after each request; or NULL */
    void (*log)(void *ctx, const struct exchange *x, unsigned status, uint64_t duration_ns, uint64_t bytes);
};

int server_create(struct loop *loop, const struct server_options *options, struct server **ret,
                  struct brig_err *err) MUST_CHECK;
void server_destroy(struct server *server);
void server_configure(struct server *server, const struct http_options *http);
/* Takes over a listening socket. is_unix: its requests have exchange_peer_uid(). */
int server_listen(struct server *server, int fd, bool is_unix, struct brig_err *err) MUST_CHECK;
/* Called again after a reload. */
int server_set_tls(struct server *server, const struct tls_pem *pem, struct brig_err *err) MUST_CHECK;
void server_drain(struct server *server); /* no new connections; answers in progress go on, then Connection: close */
size_t server_connections(const struct server *server);
size_t server_exchanges(const struct server *server); /* being answered */

/* ---- the request -------------------------------------------------------------------------------------- */
const struct http_head *exchange_head(const struct exchange *x);
const struct http_target *exchange_target(const struct exchange *x);
const char *exchange_id(const struct exchange *x); /* request id: "req-" and 26 characters; also sent as X-Request-Id */
bool exchange_is_unix(const struct exchange *x);
bool exchange_is_tls(const struct exchange *x);
uid_t exchange_peer_uid(const struct exchange *x);      /* unix only, else (uid_t)-1 */
const char *exchange_peer(const struct exchange *x);    /* "127.0.0.1", "unix" */
void exchange_set_data(struct exchange *x, void *data); /* the handler's own, for callbacks */
void *exchange_data(const struct exchange *x);
/* A short text that lives as long as the exchange (its trace's parent); longer ones are not kept. */
void exchange_keep(struct exchange *x, const char *text);
const char *exchange_kept(const struct exchange *x);            /* "" when nothing was */
void exchange_close_after(struct exchange *x);                  /* its answer is the last on this connection */
void exchange_set_owner(struct exchange *x, const char *owner); /* whose it is (a key's id), for server_cut() */
/* The connection counts as this organisation's from now on. False if the organisation has too many: answer 429. */
bool exchange_join(struct exchange *x, const char *org) MUST_CHECK;
/* Ends every exchange of that owner, but not `but` (or NULL), as if its client had left: a key that is revoked takes
 * its streams with it. */
void server_cut(struct server *server, const char *owner, const struct exchange *but);

/* Called once if the client leaves or the exchange fails before its end; after it, nothing of x may be used. */
void exchange_on_gone(struct exchange *x, void (*gone)(void *ctx, struct exchange *x), void *ctx);

/* Reads the whole body, at most max bytes. A longer one is answered with 413: gone() is called and done is not. data
 * ends with a NUL and is valid during the call. */
int exchange_read_all(struct exchange *x, size_t max,
                      void (*done)(void *ctx, struct exchange *x, char *data, size_t len), void *ctx,
                      struct brig_err *err) MUST_CHECK;
/* Called within done of exchange_read_all(), with its data. The memory then belongs to the caller, who wipes and frees
 * it. Returns NULL if the body lies among other input; it is then gone after done. */
char *exchange_take_body(struct exchange *x, const char *data);
/* Reads the body as it comes. After each data() the server reads on once exchange_body_proceed() was called. end()
 * comes after the last piece has proceeded. If the body stops or is malformed, the server answers 408 or 400 and calls
 * gone(). */
struct body_events {
    void (*data)(void *ctx, struct exchange *x, const char *data, size_t len);
    void (*end)(void *ctx, struct exchange *x);
    void *ctx;
};
int exchange_read(struct exchange *x, const struct body_events *events, struct brig_err *err) MUST_CHECK;
void exchange_body_proceed(struct exchange *x);
bool exchange_body_known(const struct exchange *x, uint64_t *ret_length); /* a Content-Length was sent */

/* ---- the answer --------------------------------------------------------------------------------------- */
/* Fields are added before exchange_begin()/exchange_reply(). A bad value is dropped (and -EINVAL). */
int exchange_add_field(struct exchange *x, const char *name, const char *value);
/* A complete answer. body may be NULL. The exchange is over. */
void exchange_reply(struct exchange *x, unsigned status, const char *content_type, const void *body, size_t len);
/* The error shape {"error":{"code","message","hint","request_id"}} with the status of the code (http/errors.h). */
void exchange_fail(struct exchange *x, const struct brig_err *err);
/* The same shape for what has no code of its own; hint may be NULL. */
void exchange_error(struct exchange *x, unsigned status, const char *code, const char *message, const char *hint);
/* A streamed answer: length UINT64_MAX is chunked. */
void exchange_begin(struct exchange *x, unsigned status, const char *content_type, uint64_t length);
/* Copies the bytes. False if many bytes wait for the client by now: write the next ones when drained() is called. */
bool exchange_write(struct exchange *x, const void *data, size_t len);
void exchange_on_drained(struct exchange *x, void (*drained)(void *ctx, struct exchange *x), void *ctx);
void exchange_end(struct exchange *x);
/* Something failed after exchange_begin(): closes the connection before the end of the body, so that the client
 * notices. */
void exchange_abort(struct exchange *x);

/* ---- other protocols ---------------------------------------------------------------------------------- */
bool exchange_wants_websocket(const struct exchange *x);
struct ws_events {
    /* at most 1 MiB; larger: close 1009 */
    void (*message)(void *ctx, struct exchange *x, bool text, const void *data, size_t len);
    void (*closed)(void *ctx, struct exchange *x, unsigned code); /* instead of gone(); the last call */
    void (*drained)(void *ctx, struct exchange *x);
    void *ctx;
};
/* Answers 101. From then on only the ws functions may be used. A protocol error closes with 1002, a flood of pings with
 * 1008. */
int exchange_websocket(struct exchange *x, const struct ws_events *events, const char *protocol,
                       struct brig_err *err) MUST_CHECK;
bool exchange_ws_send(struct exchange *x, bool text, const void *data, size_t len); /* false as exchange_write() */
void exchange_ws_pause(struct exchange *x, bool on); /* stop reading messages: backpressure */
void exchange_ws_close(struct exchange *x, unsigned code, const char *reason);

/* The connection becomes a pair of byte streams (previews' upgrades): the caller writes the head itself. */
struct tunnel_events {
    void (*data)(void *ctx, struct exchange *x, const char *data, size_t len); /* exchange_body_proceed() for more */
    void (*eof)(void *ctx, struct exchange *x);
    void (*drained)(void *ctx, struct exchange *x);
    void *ctx;
};
int exchange_tunnel(struct exchange *x, const struct tunnel_events *events,
                    struct brig_err *err) MUST_CHECK; /* then exchange_write(), exchange_end() */
/* Nothing more will be written to a tunnel: the client sees the end after the last byte. What the client sends is still
 * read until it is silent for body_timeout. */
void exchange_tunnel_shut(struct exchange *x);

/* Server-sent events (after exchange_begin(x, 200, "text/event-stream", UINT64_MAX)): id and event may be NULL; data
 * may have newlines. */
bool exchange_sse(struct exchange *x, const char *event, const char *id, const void *data, size_t len);

#endif
