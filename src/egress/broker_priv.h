/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_priv.h: what the broker's files share: authority.c, broker.c, wbuf.c, broker_tls.c, broker_conn.c,
 * broker_flow.c, broker_http.c, broker_scan.c, sigv4.c.
 *
 * Where a secret is in clear: struct values (opened for one exchange), the rewritten head (struct wbuf), and what an
 * upstream sent before it was scanned (struct wbuf). All three are memory of crypto_secret_alloc(), and wiped when the
 * exchange is over.
 */
#ifndef BRIG_EGRESS_BROKER_PRIV_H
#define BRIG_EGRESS_BROKER_PRIV_H

#include <openssl/ssl.h>

#include "codec/http/http.h"
#include "crypto/keyring.h"
#include "egress/egress.h"

#define BROKER_HEAD_MAX (64u << 10) /* of a request or a response, as received */
#define BROKER_OUT_MAX (512u << 10) /* a rewritten head: with values in it, percent-encoded at worst */
#define BROKER_SPOOL_MAX (4u << 20) /* a body that must be hashed before its head can be signed */

/* ---- wbuf.c: a buffer that wipes what leaves it ---------------------------------------------------------------- */

/* The content is data[from, len). Born with a ceiling; in memory of crypto_secret_alloc(). */
struct wbuf {
    char *data;
    size_t from, len, cap, max;
};
#define WBUF_INIT(limit) ((struct wbuf){.max = (limit)})
int wbuf_append(struct wbuf *buf, const void *data, size_t len) MUST_CHECK; /* -ENOMEM, -EMSGSIZE */
int wbuf_append_str(struct wbuf *buf, const char *text) MUST_CHECK;
int wbuf_reserve(struct wbuf *buf, size_t extra) MUST_CHECK; /* room at data + len */
void wbuf_consume(struct wbuf *buf, size_t len);             /* from the front */
void wbuf_clear(struct wbuf *buf);                           /* wiped, the memory is kept */
void wbuf_rest(struct wbuf *buf);                            /* wiped, and kept only where it is small */
void wbuf_done(struct wbuf *buf);
static inline char *wbuf_at(const struct wbuf *buf)
{
    return buf->data + buf->from;
}
static inline size_t wbuf_size(const struct wbuf *buf)
{
    return buf->len - buf->from;
}

/* RFC 4648 with padding, strict. -EINVAL, or how many bytes; out has room for 3 bytes per 4 characters. */
ssize_t broker_unbase64(const char *text, size_t len, uint8_t *out) MUST_CHECK;

/* ---- authority.c ------------------------------------------------------------------------------------------------ */

struct authority;
/* hosts: what it may sign for, "example.com" also for all below it. */
/* seed: 32 bytes that its key and name follow from, so that the next brig-egress makes the same; NULL: random. */
int authority_create(const char *const *hosts, size_t n, const uint8_t *seed, struct authority **ret,
                     struct brig_err *err) MUST_CHECK;
void authority_destroy(struct authority *authority);
int authority_put_pem(const struct authority *authority, struct buf *out) MUST_CHECK;
/* Certificate and key for one name, made when it is new; the caller may use them until the next call. */
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

#define BROKER_SESSIONS 32u /* of upstreams, to be resumed */
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

struct value { /* a secret in clear */
    const struct broker_secret *secret;
    uint8_t *data;
    size_t len;
};
struct values {
    size_t n;
    struct value items[SLOT_SECRETS_MAX];
};
/* Opens every secret that is for this host. */
int values_open(const struct broker *broker, const char *name, uint16_t port, struct values *ret,
                struct brig_err *err) MUST_CHECK;
void values_close(struct values *values); /* wipes; idempotent on zeroes */

/* ---- broker_scan.c ---------------------------------------------------------------------------------------------- */

/* One text to be kept out, and what comes in its place. */
struct scan_value {
    const uint8_t *data;
    size_t len;
    const char *placeholder;
    uint16_t modes[256]; /* by the first byte: which spellings may begin with it */
};
#define SCAN_VALUES_MAX (SLOT_SECRETS_MAX * 3)
struct scan {
    struct scan_value *values; /* wiped memory */
    size_t n, size;
    bool any[256];
    struct wbuf held; /* a true prefix of some spelling: the rest may come */
    size_t shown;     /* bytes of it that were let out because the stream paused */
    uint64_t hits;
};
/* values must outlive it. */
int scan_init(struct scan *scan, const struct values *values) MUST_CHECK;
void scan_done(struct scan *scan); /* takes zeroes */
/* The same for one exchange after the other: wiped, but the memory stays for the next. Begins with zeroes. */
int scan_begin(struct scan *scan, const struct values *values) MUST_CHECK;
void scan_end(struct scan *scan);
/* Appends to out what may go on. last: nothing follows. */
int scan_feed(struct scan *scan, const char *data, size_t len, bool last, struct buf *out) MUST_CHECK;
/* The stream pauses: lets the first bytes of what is held out, so few that they say nothing. */
int scan_pause(struct scan *scan, struct buf *out) MUST_CHECK;
static inline bool scan_holds(const struct scan *scan)
{
    return wbuf_size(&scan->held) > scan->shown;
}

/* ---- broker_http.c, broker_reply_head.c: heads, pure ---------------------------------------------------- */

struct rewrite_report {
    const struct broker_secret *used[SLOT_SECRETS_MAX]; /* substituted */
    size_t n_used;
    const struct broker_secret *foreign[SLOT_SECRETS_MAX]; /* seen where they are not for */
    size_t n_foreign;
    unsigned status; /* when refused: what the client is told */
};
struct rewrite {
    const struct broker *broker; /* all its placeholders are looked for */
    const struct values *values; /* those for this host; empty: nothing is substituted (plain HTTP) */
    const char *name;
    uint16_t port, default_port;
    const char *payload_sha256; /* hexadecimal, of a body that was read for it; or NULL */
    uint64_t spooled;           /* with it: its length */
};
/* Is there a signature to be made that needs the body's hash, which the request does not give? */
bool rewrite_needs_body(const struct broker *broker, const char *name, uint16_t port, const struct http_head *head);
/* Host is this one: 0, or -400, -421 with err. */
int broker_check_host(const struct http_head *head, const char *name, uint16_t port, uint16_t default_port,
                      struct brig_err *err) MUST_CHECK;
/* The head for the upstream, written anew. -EPERM, -EINVAL: refused, report->status and err say why. */
int rewrite_request(const struct rewrite *rewrite, const struct http_head *head, struct wbuf *out,
                    struct rewrite_report *report, struct brig_err *err) MUST_CHECK;
/* Which transfer the client gets. */
enum reply_body { REPLY_NONE, REPLY_CHUNKED, REPLY_UNTIL_CLOSE };
/* The head for the client: scanned, reframed. close: say so. -EPERM: it is encoded, so it cannot be scanned. */
int rewrite_reply(const struct http_head *head, struct scan *scan, unsigned client_minor, bool close, bool websocket,
                  struct buf *out, enum reply_body *ret_body, struct brig_err *err) MUST_CHECK;
bool broker_listed(const char *const *names, size_t n, const char *name);              /* in any case */
bool broker_of_this_hop(const struct http_head *head, const struct http_field *field); /* Connection names it */
bool broker_wants_websocket(const struct http_head *head);
/* A streaming search for the slot's placeholders in what a client sends. */
struct placeholder_search {
    char tail[PLACEHOLDER_LEN];
    size_t len;
    bool seen[SLOT_SECRETS_MAX];
};
/* Calls found for each secret when it is seen first. */
void placeholder_feed(struct placeholder_search *search, const struct broker *broker, const char *data, size_t len,
                      void (*found)(void *ctx, const struct broker_secret *secret), void *ctx);

/* ---- sigv4.c ---------------------------------------------------------------------------------------------------- */

#define SIGV4_FIELDS 64u
struct sigv4_field {
    const char *name, *value; /* name in any case */
};
struct sigv4_request {
    const char *method, *target; /* as sent: path?query, encoded */
    const char *amz_date;        /* 20150830T123600Z */
    const char *region, *service;
    const char *payload;         /* the hash, or UNSIGNED-PAYLOAD */
    const char *key_id, *secret; /* lengths: they are parts of the value */
    size_t key_id_len, secret_len;
    struct sigv4_field fields[SIGV4_FIELDS]; /* to be signed; one with a repeated name is joined by the caller */
    size_t n_fields;
};
/*
 * "AWS4-HMAC-SHA256 Credential=.., SignedHeaders=.., Signature=.." appended. Sorts fields. -EINVAL, -EMSGSIZE, -ENOMEM.
 */
int sigv4_authorization(struct sigv4_request *request, struct wbuf *out) MUST_CHECK;
struct sigv4_scope {
    char date[9], region[65], service[65];
    char signed_headers[2048];
};
/* What a client's Authorization says, when it is of that algorithm and its key id is this placeholder. -ENOENT: of
 * another; -EINVAL: malformed. */
int sigv4_parse(const char *authorization, const char *placeholder, struct sigv4_scope *ret) MUST_CHECK;
/* The parts of "KEY_ID:SECRET[:TOKEN]". */
struct sigv4_keys {
    const char *key_id, *secret, *token;
    size_t key_id_len, secret_len, token_len;
};
int sigv4_split(const uint8_t *value, size_t len, struct sigv4_keys *ret) MUST_CHECK;

/* ---- broker_tls.c: one side of a brokered connection ---------------------------------------------------- */

struct bside {
    int fd;                 /* -1: none */
    SSL *ssl;               /* NULL: plain */
    const char *name;       /* the host, the connection's memory */
    bool may_lack_name;     /* of a client: without server_name */
    bool ended;             /* the peer's end of stream was seen */
    bool ready;             /* the handshake is done (or none is needed) */
    bool want_in, want_out; /* what the last calls wait for */
    enum bside_waits {
        WAIT_NOT,
        WAIT_IN,
        WAIT_OUT
    } read_waits,
        write_waits;      /* in this run: not tried again, the loop will tell */
    const uint8_t *first; /* read before, not yet given on; owned */
    size_t first_len;
    uint8_t *first_memory;
    uint64_t bytes_in, bytes_out; /* on the wire */
    struct loop_source source;
    uint32_t events; /* registered */
};
int broker_tls_create(struct broker *broker, struct brig_err *err) MUST_CHECK;
void broker_tls_destroy(struct broker *broker);
void bside_init(struct bside *side, int fd);
int bside_accept(struct bside *side, struct broker *broker, const char *name, bool may_lack_name,
                 struct brig_err *err) MUST_CHECK;
int bside_connect(struct bside *side, struct broker *broker, const char *name, uint16_t port,
                  struct brig_err *err) MUST_CHECK;
/* 0: done; -EAGAIN; or a negative errno, err says why. */
int bside_handshake(struct bside *side, struct brig_err *err) MUST_CHECK;
void bside_keep_session(struct bside *side, struct broker *broker, const char *name, uint16_t port);
/* Bytes, 0 at the end, -EAGAIN (want_in or want_out is set), or a negative errno. */
ssize_t bside_read(struct bside *side, void *data, size_t size) MUST_CHECK;
ssize_t bside_write(struct bside *side, const void *data, size_t len) MUST_CHECK;
void bside_shutdown(struct bside *side); /* close_notify and FIN, as far as they can be sent */
void bside_close(struct bside *side, struct loop *loop);

/* ---- broker_conn.c, broker_flow.c: one connection ------------------------------------------------------- */

/* What is done with the request, in this order; one exchange goes from HEAD to SENT and back. */
enum request_state {
    REQUEST_HANDSHAKE, /* TLS with the client */
    REQUEST_HEAD,      /* reading it; idle before its first byte */
    REQUEST_SPOOL,     /* reading a body that must be hashed first */
    REQUEST_CONNECT,   /* dialling, and TLS with the upstream */
    REQUEST_SEND,      /* the head, with values in it */
    REQUEST_BODY,      /* streaming */
    REQUEST_SENT,      /* nothing more to read; waits for the reply's end */
    REQUEST_TUNNEL,    /* a WebSocket: bytes */
    REQUEST_CLOSING,   /* what is left goes out, then it ends */
    REQUEST_LINGER     /* until the client has read it, and closes */
};
enum reply_state { REPLY_IDLE, REPLY_HEAD, REPLY_BODY, REPLY_OVER, REPLY_TUNNEL };

struct broker_conn {
    struct broker_start start;
    char name[DNS_NAME_MAX];
    struct loop *loop;
    struct bside client, up;
    struct dial *dial;
    bool dialling, running; /* running: within a round, which goes on by itself */
    struct gate_addr dialled;
    struct loop_timer kick, idle, pause;

    enum request_state request;
    struct buf in; /* from the client, not yet taken */
    size_t in_scanned;
    struct buf head_memory; /* what head points into */
    struct http_head head;
    struct http_body_reader body;
    struct buf spool;
    size_t spool_taken;  /* of the slot's memory, for it */
    struct buf to_up;    /* of the body, framed */
    struct wbuf up_head; /* with values */
    struct placeholder_search search;
    struct policy_answer answer; /* of this request */

    enum reply_state reply;
    struct wbuf from_up; /* not yet scanned */
    size_t from_up_scanned;
    struct http_head reply_head;
    struct http_body_reader reply_body;
    enum reply_body reply_kind;
    struct values values; /* open during an exchange */
    struct scan scan;
    struct buf to_client;

    bool up_used;                /* carried an exchange before this one */
    bool reply_begun;            /* its head is on the way: no other answer can be given */
    bool close_client, close_up; /* after this exchange */
    const char *cut;             /* what is there still goes out, but no proper end: why */
    bool over;
    char why[160];
    uint64_t charged_in, charged_out;
};

#define BROKER_HIGH (64u << 10) /* bytes waiting for one side; then the other is not read */
#define BROKER_PIECE (16u << 10)

/* broker_conn.c */
void bconn_end(struct broker_conn *conn, const char *why); /* at the end of this round */
int bconn_dial(struct broker_conn *conn, struct brig_err *err) MUST_CHECK;
void bconn_event(struct broker_conn *conn, enum gate_verdict verdict, const char *why, const char *secret);
void bconn_drop_up(struct broker_conn *conn); /* closes the upstream, keeps its session */
/* broker_flow.c: true when something moved. */
bool request_step(struct broker_conn *conn);
bool reply_step(struct broker_conn *conn);
void flow_pause(struct broker_conn *conn); /* the upstream has been silent for a while */
/* A reply of our own, then the end. Where one has begun, the end. */
void flow_answer(struct broker_conn *conn, unsigned status, const char *text);
void flow_fail(struct broker_conn *conn, unsigned status, const char *text); /* the same, and an event */
void flow_over(struct broker_conn *conn);                                    /* wipes what an exchange has opened */

#endif
