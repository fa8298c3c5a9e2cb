/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_priv.h: what the files of the broker share (authority.c, broker*.c, sigv4.c, wbuf.c).
 *
 * A secret is in clear only in struct values (opened for one exchange), in the rewritten head (struct wbuf), and in
 * what an upstream sent before it was scanned (struct wbuf). All three are memory of crypto_secret_alloc() and are
 * wiped when the exchange is over.
 */
#ifndef BRIG_EGRESS_BROKER_PRIV_H
#define BRIG_EGRESS_BROKER_PRIV_H

#include <openssl/ssl.h>

#include "codec/http/http.h"
#include "crypto/keyring.h"
#include "egress/egress.h"

#define BROKER_HEAD_MAX (64u << 10) /* The head of a request or a response, as received. */
#define BROKER_OUT_MAX (512u << 10) /* A rewritten head with values in it, all percent-encoded at worst. */
#define BROKER_SPOOL_MAX (4u << 20) /* A body that must be hashed before its head can be signed. */

/* ---- wbuf.c: a buffer that wipes what leaves it ---------------------------------------------------------------- */

/* The content is data[from, len), in memory of crypto_secret_alloc(). The buffer has a ceiling. */
struct wbuf {
    char *data;
    size_t from, len, cap, max;
};
#define WBUF_INIT(limit) ((struct wbuf){.max = (limit)})
int wbuf_append(struct wbuf *buf, const void *data, size_t len) MUST_CHECK; /* Returns 0, -ENOMEM or -EMSGSIZE. */
int wbuf_append_str(struct wbuf *buf, const char *text) MUST_CHECK;
int wbuf_append_all(struct wbuf *buf, ...) MUST_CHECK __attribute__((sentinel)); /* Texts, and NULL at the end. */
int wbuf_reserve(struct wbuf *buf, size_t extra) MUST_CHECK;                     /* Makes room at data + len. */
void wbuf_consume(struct wbuf *buf, size_t len);                                 /* Removes bytes from the front. */
void wbuf_clear(struct wbuf *buf); /* Wipes the content and keeps the memory. */
/* Wipes the content and keeps the memory only if it is small. */
void wbuf_rest(struct wbuf *buf);
void wbuf_done(struct wbuf *buf);
static inline char *wbuf_at(const struct wbuf *buf)
{
    return buf->data + buf->from;
}
static inline size_t wbuf_size(const struct wbuf *buf)
{
    return buf->len - buf->from;
}

/* ---- authority.c ------------------------------------------------------------------------------------------------ */

struct authority;
/* hosts are the names that it may sign for; "example.com" includes all names below it. */
/* seed has 32 bytes from which its key and name follow, so that the next brig-egress makes the same. NULL: random. */
int authority_create(const char *const *hosts, size_t n, const uint8_t *seed, struct authority **ret,
                     struct brig_err *err) MUST_CHECK;
void authority_destroy(struct authority *authority);
int authority_put_pem(const struct authority *authority, struct buf *out) MUST_CHECK;
/*
 * Returns the certificate and the key for one name, and makes them if they are new. The caller may use them until the
 * next call.
 */
int authority_leaf(struct authority *authority, const char *name, X509 **ret_cert, EVP_PKEY **ret_key,
                   struct brig_err *err) MUST_CHECK;

/* ---- broker.c --------------------------------------------------------------------------------------------------- */

struct broker_secret {
    char name[SECRET_NAME_MAX];
    char placeholder[PLACEHOLDER_LEN + 1];
    char *context;
    struct sealed sealed;
    struct broker_rule rule;
};

#define BROKER_SESSIONS 32u /* The TLS sessions of upstreams that can be resumed. */
struct broker {
    struct egress *egress;
    const struct keyring *keys;
    struct authority *authority;
    SSL_CTX *server, *client;
    struct {
        char name[DNS_NAME_MAX];
        uint16_t port;
        SSL_SESSION *session;
    } sessions[BROKER_SESSIONS];
    unsigned next_session;
    size_t n_secrets;
    struct broker_secret *secrets;
};

struct value { /* One secret in clear. */
    const struct broker_secret *secret;
    uint8_t *data;
    size_t len;
};
struct values {
    size_t n;
    struct value items[SLOT_SECRETS_MAX];
};
/* Opens every secret of this host. */
int values_open(const struct broker *broker, const char *name, uint16_t port, struct values *ret,
                struct brig_err *err) MUST_CHECK;
void values_close(struct values *values); /* Wipes the values. It does nothing to a struct of zeroes. */

/* ---- broker_scan.c ---------------------------------------------------------------------------------------------- */

/* One text that must not pass, and what replaces it. */
struct scan_value {
    const uint8_t *data;
    size_t len;
    const char *placeholder;
    uint16_t modes[256]; /* For each first byte: the spellings that may begin with it. */
};
#define SCAN_VALUES_MAX (SLOT_SECRETS_MAX * 3)
struct scan {
    struct scan_value *values; /* This memory is wiped. */
    size_t n, size;
    bool any[256];
    struct wbuf held; /* The bytes that are a true prefix of some spelling; the rest may follow. */
    size_t shown;     /* The bytes of it that were let out because the stream paused. */
    uint64_t hits;
};
/* values must live longer than scan. */
int scan_init(struct scan *scan, const struct values *values) MUST_CHECK;
void scan_done(struct scan *scan); /* It accepts a struct of zeroes. */
/* The same for one exchange after the other: the memory is wiped and stays for the next. scan begins as zeroes. */
int scan_begin(struct scan *scan, const struct values *values) MUST_CHECK;
void scan_end(struct scan *scan);
/* Appends to out what may pass. last: nothing follows. */
int scan_feed(struct scan *scan, const char *data, size_t len, bool last, struct buf *out) MUST_CHECK;
/* The stream pauses: lets out so few of the held bytes that they say nothing. */
int scan_pause(struct scan *scan, struct buf *out) MUST_CHECK;
static inline bool scan_holds(const struct scan *scan)
{
    return wbuf_size(&scan->held) > scan->shown;
}

/* ---- broker_http.c, broker_reply_head.c: heads, pure ---------------------------------------------------- */

struct rewrite_report {
    const struct broker_secret *used[SLOT_SECRETS_MAX]; /* The secrets that were substituted. */
    size_t n_used;
    /* Secrets whose placeholder was seen for a host that is not theirs. */
    const struct broker_secret *foreign[SLOT_SECRETS_MAX];
    size_t n_foreign;
    unsigned status; /* If it is refused: the status for the client. */
};
struct rewrite {
    const struct broker *broker; /* All of its placeholders are looked for. */
    const struct values *values; /* The values of this host. If it is empty nothing is substituted (plain HTTP). */
    const char *name;
    uint16_t port, default_port;
    const char *payload_sha256; /* The hexadecimal hash of a body that was read for it, or NULL. */
    uint64_t spooled;           /* The length of that body. */
};
/* Must a signature be made that needs the body's hash, and does the request not give the hash? */
bool rewrite_needs_body(const struct broker *broker, const char *name, uint16_t port, const struct http_head *head);
/* Is the Host this one? Returns 0, or -400 or -421 with err. */
int broker_check_host(const struct http_head *head, const char *name, uint16_t port, uint16_t default_port,
                      struct brig_err *err) MUST_CHECK;
/* Writes the head for the upstream. Returns -EPERM or -EINVAL if it is refused; report->status and err say why. */
int rewrite_request(const struct rewrite *rewrite, const struct http_head *head, struct wbuf *out,
                    struct rewrite_report *report, struct brig_err *err) MUST_CHECK;
/* The transfer that the client gets. */
enum reply_body { REPLY_NONE, REPLY_CHUNKED, REPLY_UNTIL_CLOSE };
/*
 * Writes the head for the client, scanned and framed again. close: the head says so. Returns -EPERM if the body is
 * encoded, because then it cannot be scanned.
 */
int rewrite_reply(const struct http_head *head, struct scan *scan, unsigned client_minor, bool close, bool websocket,
                  struct buf *out, enum reply_body *ret_body, struct brig_err *err) MUST_CHECK;
/* The case of letters does not count. */
bool broker_listed(const char *const *names, size_t n, const char *name);
/* Does Connection name this field? */
bool broker_of_this_hop(const struct http_head *head, const struct http_field *field);
bool broker_wants_websocket(const struct http_head *head);
/* Searches what a client sends, piece by piece, for the placeholders of the slot. */
struct placeholder_search {
    char tail[PLACEHOLDER_LEN];
    size_t len;
    bool seen[SLOT_SECRETS_MAX];
};
/* Calls found() for each secret when it is seen first. */
void placeholder_feed(struct placeholder_search *search, const struct broker *broker, const char *data, size_t len,
                      void (*found)(void *ctx, const struct broker_secret *secret), void *ctx);

/* ---- sigv4.c ---------------------------------------------------------------------------------------------------- */

#define SIGV4_FIELDS 64u
struct sigv4_field {
    const char *name, *value; /* The name is in any case of letters. */
};
struct sigv4_request {
    const char *method, *target; /* As it was sent: path?query, encoded. */
    const char *amz_date;        /* 20150830T123600Z */
    const char *region, *service;
    const char *payload;         /* The hash of the payload, or UNSIGNED-PAYLOAD. */
    const char *key_id, *secret; /* They have lengths because they are parts of the value. */
    size_t key_id_len, secret_len;
    /* The fields that are signed. The caller joins fields with the same name. */
    struct sigv4_field fields[SIGV4_FIELDS];
    size_t n_fields;
};
/*
 * Appends "AWS4-HMAC-SHA256 Credential=.., SignedHeaders=.., Signature=..". It sorts the fields. Returns 0, -EINVAL,
 * -EMSGSIZE or -ENOMEM.
 */
int sigv4_authorization(struct sigv4_request *request, struct wbuf *out) MUST_CHECK;
struct sigv4_scope {
    char date[9], region[65], service[65];
    char signed_headers[2048];
};
/*
 * Parses a client's Authorization that has this algorithm and this placeholder as its key id. Returns -ENOENT if it is
 * another one, -EINVAL if it is malformed.
 */
int sigv4_parse(const char *authorization, const char *placeholder, struct sigv4_scope *ret) MUST_CHECK;
/* The parts of "KEY_ID:SECRET[:TOKEN]". */
struct sigv4_keys {
    const char *key_id, *secret, *token;
    size_t key_id_len, secret_len, token_len;
};
int sigv4_split(const uint8_t *value, size_t len, struct sigv4_keys *ret) MUST_CHECK;

/* ---- broker_tls.c: one side of a brokered connection ---------------------------------------------------- */

struct bside {
    int fd;                 /* -1 if there is none. */
    SSL *ssl;               /* NULL for a plain connection. */
    const char *name;       /* The host; the memory belongs to the connection. */
    bool may_lack_name;     /* For a client: it may come without server_name. */
    bool ended;             /* The peer's end of stream was seen. */
    bool ready;             /* The handshake is done, or none is needed. */
    bool want_in, want_out; /* What the last calls wait for. */
    enum bside_waits {
        WAIT_NOT,
        WAIT_IN,
        /* What they wait for in this round: they are not tried again, because the loop will report it. */
        WAIT_OUT
    } read_waits,
        write_waits;
    const uint8_t *first; /* Bytes that were read before and not yet passed on; owned. */
    size_t first_len;
    uint8_t *first_memory;
    uint64_t bytes_in, bytes_out; /* The bytes on the wire. */
    struct loop_source source;
    uint32_t events; /* The events that are registered. */
};
int broker_tls_create(struct broker *broker, struct brig_err *err) MUST_CHECK;
void broker_tls_destroy(struct broker *broker);
void bside_init(struct bside *side, int fd);
int bside_accept(struct bside *side, struct broker *broker, const char *name, bool may_lack_name,
                 struct brig_err *err) MUST_CHECK;
int bside_connect(struct bside *side, struct broker *broker, const char *name, uint16_t port,
                  struct brig_err *err) MUST_CHECK;
/* Returns 0 if it is done, -EAGAIN, or a negative errno with err. */
int bside_handshake(struct bside *side, struct brig_err *err) MUST_CHECK;
void bside_keep_session(struct bside *side, struct broker *broker, const char *name, uint16_t port);
/* Return the number of bytes, 0 at the end, -EAGAIN (want_in or want_out is set), or a negative errno. */
ssize_t bside_read(struct bside *side, void *data, size_t size) MUST_CHECK;
ssize_t bside_write(struct bside *side, const void *data, size_t len) MUST_CHECK;
void bside_shutdown(struct bside *side); /* Sends close_notify and FIN, as far as they can be sent. */
void bside_close(struct bside *side, struct loop *loop);

/* ---- broker_conn.c, broker_flow.c: one connection ------------------------------------------------------- */

/* The stages of a request, in this order. One exchange goes from HEAD to SENT and back. */
enum request_state {
    REQUEST_HANDSHAKE, /* TLS with the client */
    REQUEST_HEAD,      /* reads the head; idle before its first byte */
    REQUEST_SPOOL,     /* reads a body that must be hashed first */
    REQUEST_CONNECT,   /* dials, and TLS with the upstream */
    REQUEST_SEND,      /* sends the head, with values in it */
    REQUEST_BODY,      /* streams the body */
    REQUEST_SENT,      /* there is nothing more to read; waits for the end of the reply */
    REQUEST_TUNNEL,    /* a WebSocket; passes bytes */
    REQUEST_CLOSING,   /* sends what is left, then ends */
    REQUEST_LINGER     /* waits until the client has read it and closes */
};
enum reply_state { REPLY_IDLE, REPLY_HEAD, REPLY_BODY, REPLY_OVER, REPLY_TUNNEL };

struct broker_conn {
    struct broker_start start;
    char name[DNS_NAME_MAX];
    struct loop *loop;
    struct bside client, up;
    struct dial *dial;
    bool dialling, running; /* running: it is within a round, which goes on by itself. */
    struct gate_addr dialled;
    struct loop_timer kick, idle, pause;

    enum request_state request;
    struct buf in; /* From the client, not yet used. */
    size_t in_scanned;
    struct buf head_memory; /* head points into this. */
    struct http_head head;
    struct http_body_reader body;
    struct buf spool;
    size_t spool_taken;  /* The memory of the slot that spool holds. */
    struct buf to_up;    /* The body with its framing. */
    struct wbuf up_head; /* The head with values. */
    struct placeholder_search search;
    struct policy_answer answer; /* The answer for this request. */

    enum reply_state reply;
    struct wbuf from_up; /* Bytes that are not scanned yet. */
    size_t from_up_scanned;
    struct http_head reply_head;
    struct http_body_reader reply_body;
    enum reply_body reply_kind;
    struct values values; /* The values that are open during an exchange. */
    struct scan scan;
    struct buf to_client;

    bool up_used;                /* The upstream carried an exchange before this one. */
    bool reply_begun;            /* The head of a reply was sent, so no other answer can be given. */
    bool close_client, close_up; /* Close them after this exchange. */
    const char *cut;             /* What is there is still sent, but without a proper end; this says why. */
    bool over;
    char why[160];
    uint64_t charged_in, charged_out;
};

#define BROKER_HIGH (64u << 10) /* The bytes that may wait for one side; then the other side is not read. */
#define BROKER_PIECE (16u << 10)

/* broker_conn.c */
void bconn_end(struct broker_conn *conn, const char *why); /* The connection ends at the end of this round. */
int bconn_dial(struct broker_conn *conn, struct brig_err *err) MUST_CHECK;
void bconn_event(struct broker_conn *conn, enum gate_verdict verdict, const char *why, const char *secret);
void bconn_drop_up(struct broker_conn *conn); /* Closes the upstream and keeps its session. */
/* broker_flow.c: return true if something moved. */
bool request_step(struct broker_conn *conn);
bool reply_step(struct broker_conn *conn);
void flow_pause(struct broker_conn *conn); /* The upstream has been silent for a while. */
/* Sends a reply of the broker's own and ends. If another reply has begun, it only ends. */
void flow_answer(struct broker_conn *conn, unsigned status, const char *text);
void flow_fail(struct broker_conn *conn, unsigned status, const char *text); /* The same, with an event. */
void flow_over(struct broker_conn *conn);                                    /* Wipes what an exchange has opened. */

#endif
