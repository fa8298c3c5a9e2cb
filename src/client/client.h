/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client.h: talks to a daemon, for the command line: HTTP/1.1 over its unix socket, or over TCP with a key. It blocks,
 * with time limits, and makes one request at a time. Bodies stream both ways and are never held whole.
 *
 *   struct client *client = NULL;
 *   struct json_doc *doc = NULL;
 *   client_open(&client, &err);
 *   client_json(client, &(struct client_request){.method = "GET", .target = "/v1/sandboxes"}, &doc, &err);
 *
 * An answer of 400 or more is a failure: err has the daemon's own message, hint included, and client_status() its
 * number. The connection is kept for the next request where both sides allow it.
 */
#ifndef BRIG_CLIENT_CLIENT_H
#define BRIG_CLIENT_CLIENT_H

#include <brig.h>
#include <stdarg.h>
#include <sys/types.h>

#include "base/buf.h"
#include "codec/json/json_read.h"

struct client;

/*
 * Connects to BRIG_HOST=http://ADDRESS:PORT (with BRIG_API_KEY), else to BRIG_SOCKET, else to brig.sock in the run
 * directory, and for a plain user then to /run/brig/brig.sock. It connects at once, so that a missing daemon is
 * reported now: BRIG_E_GONE, with a message that says what to do. -ENOENT, -ECONNREFUSED or -EACCES: no socket could be
 * opened.
 */
int client_open(struct client **ret, struct brig_err *err) MUST_CHECK;
/* Connects to this socket and nowhere else. */
int client_open_socket(const char *path, struct client **ret, struct brig_err *err) MUST_CHECK;
bool client_is_remote(void);                           /* BRIG_HOST is set, so nothing falls back to this machine. */
void client_close(struct client *client);              /* client may be NULL. */
const char *client_where(const struct client *client); /* "/run/brig/brig.sock", "http://127.0.0.1:2744" */
/*
 * When this descriptor (a signalfd) becomes readable, every call ends with -ECANCELED. -1 for none. It is neither read
 * nor owned.
 */
void client_set_cancel(struct client *client, int fd);

#define CLIENT_TIMEOUT_MS 120000u
#define CLIENT_NO_TIMEOUT UINT32_MAX
#define CLIENT_LENGTH_UNKNOWN UINT64_MAX

struct client_request {
    const char *method;
    const char *target;       /* It is percent-encoded; client_target() helps. */
    const char *content_type; /* The type of the body; NULL means application/json. */
    const char *accept;       /* or NULL */
    const char *last_event;   /* Last-Event-ID, or NULL */
    const char *range;        /* or NULL */
    const char *idempotency;  /* Idempotency-Key, or NULL */
    /* The body is this, */
    const void *body;
    size_t body_len;
    /*
     * or what this function gives: bytes put into data, 0 at the end, negative to stop. It is sent with its length if
     * that is known, else chunked.
     */
    ssize_t (*read)(void *ctx, void *data, size_t size, struct brig_err *err);
    int read_fd; /* With read: the descriptor to wait for before each call, or -1. */
    uint64_t length;
    /*
     * Gets the answer's body (2xx) as it comes; a negative result stops the call and is returned. NULL: the body is
     * kept for client_reply(), up to max_reply.
     */
    int (*data)(void *ctx, const void *data, size_t len, struct brig_err *err);
    int (*head)(void *ctx, struct client *client, struct brig_err *err); /* Called before the first data; or NULL. */
    void *ctx;
    size_t max_reply;    /* 0 means 64 MiB. */
    uint32_t timeout_ms; /* The time without any progress; 0 means CLIENT_TIMEOUT_MS. */
};

/* Returns 0 for 2xx. */
int client_call(struct client *client, const struct client_request *request, struct brig_err *err) MUST_CHECK;
/* Does the same and reads the answer as JSON; *ret is NULL if the answer is empty (204). */
int client_json(struct client *client, const struct client_request *request, struct json_doc **ret,
                struct brig_err *err) MUST_CHECK;

/* About the last call: */
unsigned client_status(const struct client *client); /* 0 if there was no answer. */
/* The length of the body, or CLIENT_LENGTH_UNKNOWN. */
uint64_t client_length(const struct client *client);
const char *client_field(const struct client *client, const char *name); /* This is valid during head() and data(). */
const struct buf *client_reply(const struct client *client);
const char *client_error_code(const struct client *client); /* "not-found", ...; "" if there is none. */

/*
 * Writes a target such as "/v1/sandboxes/%s/files?path=%s". Every %s is percent-encoded, %u is a number (uint64_t) and
 * %% is a %; nothing else is understood.
 */
int client_target(struct buf *out, const char *format, ...) MUST_CHECK;
int client_target_args(struct buf *out, const char *format, va_list args) MUST_CHECK;

/* Finds libexec/brig as the engine does. */
int client_find_libexec(char *out, size_t size, struct brig_err *err) MUST_CHECK;

/* ---- server-sent events ------------------------------------------------------------------------- */

struct sse {
    struct buf line, data, event, id;
    bool after_cr, has_data;
    /* id is "" and event is "message" if they were not sent. A negative result stops the stream. */
    int (*on_event)(void *ctx, const char *event, const char *id, const char *data, size_t len, struct brig_err *err);
    void *ctx;
};

#define SSE_EVENT_MAX ((size_t)16 << 20)
#define SSE_INIT(call, context)                                                                                  \
    ((struct sse){BUF_INIT(SSE_EVENT_MAX), BUF_INIT(SSE_EVENT_MAX), BUF_INIT(256), BUF_INIT(1024), false, false, \
                  (call), (context)})
int sse_feed(struct sse *sse, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
void sse_done(struct sse *sse);

/* ---- WebSocket (RFC 6455, client side) ------------------------------------------------------------ */

struct ws;
enum ws_kind { WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8 };

struct ws_message {
    enum ws_kind kind;
    const uint8_t *data; /* This is valid until the next ws_ call. */
    size_t len;
    unsigned code; /* WS_CLOSE: 1000 and up; 1005 if there was no code, 1006 if the connection broke. */
};

/* Upgrades the connection, which then belongs to the ws; the client makes a new one when it needs it. */
int ws_open(struct client *client, const char *target, struct ws **ret, struct brig_err *err) MUST_CHECK;
void ws_destroy(struct ws *ws); /* Sends no close frame. ws may be NULL. */
int ws_fd(const struct ws *ws); /* It does not block. Poll it for POLLIN, and for POLLOUT while ws_pending() > 0. */
/*
 * Returns 1 for a message, 0 if there is nothing more for now (poll), or -EPROTO, -ECONNRESET, -EMSGSIZE, ... After
 * WS_CLOSE there is nothing more. Pings are answered here.
 */
int ws_receive(struct ws *ws, struct ws_message *ret, struct brig_err *err) MUST_CHECK;
/* Queues the message and sends what can be sent now. There is no SIGPIPE. */
int ws_send(struct ws *ws, enum ws_kind kind, const void *data, size_t len, struct brig_err *err) MUST_CHECK;
int ws_flush(struct ws *ws, struct brig_err *err) MUST_CHECK;
size_t ws_pending(const struct ws *ws);

/* Private, for the unit test and the fuzzer: makes a ws over this descriptor, as after the upgrade. */
int ws_adopt(int fd, const void *early, size_t early_len, struct ws **ret, struct brig_err *err) MUST_CHECK;
void ws_accept_value(const char *key, char out[32]); /* Writes Sec-WebSocket-Accept for a key. */

#endif
