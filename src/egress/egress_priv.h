/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_priv.h: what the files of the process share: the process, a slot, a connection.
 *
 * Lifetimes. A connection that is over is closed at once but freed only between two rounds of the loop (egress_reap()),
 * so that every function may end the one it works on. A slot is freed in the same way, after its connections.
 *
 *     egress ── slots (a hash by number) ── listeners
 *        │                               └─ connections (a list)
 *        └── outbox: answers and events for the controller, in order
 */
#ifndef BRIG_EGRESS_PRIV_H
#define BRIG_EGRESS_PRIV_H

#include "base/buf.h"
#include "codec/http/http.h"
#include "egress/egress.h"

#define EGRESS_BUCKETS 1024u
#define EGRESS_EVENTS 4096u       /* The events of all slots that may wait for the controller. */
#define SLOT_EVENTS 512u          /* The events of one slot that may wait. */
#define EGRESS_CHUNK (256u << 10) /* The bytes that are read at once, into memory that all connections share. */
#define EGRESS_PIPE (512u << 10)  /* The bytes that are spliced at once, where the host allows pipes of this size. */
/* The bytes that may wait for the slow readers of a slot. Past this the others are read in small pieces only. */
#define SLOT_PENDING (16u << 20)
#define SLOT_LOOKUPS 64u                           /* The names that one slot resolves at a time. */
#define EGRESS_PENDING (128u << 20)                /* The same for all slots together. */
#define CONN_DESCRIPTORS 2u                        /* A connection has one descriptor per side. */
#define CONN_SNIFF_NS (UINT64_C(10) * 1000000000u) /* The time that a connection has to show what it is. */
#define CONN_IDLE_NS (UINT64_C(300) * 1000000000u)

struct keyring;

/* ---- budget.c ------------------------------------------------------------------------------------------------ */

struct bucket { /* A bucket of tokens. The rate 0 means no limit. */
    double rate, burst, level;
    uint64_t at_ns;
};
void bucket_init(struct bucket *bucket, uint64_t rate, uint64_t burst, uint64_t now_ns); /* It begins full. */
double bucket_level(struct bucket *bucket, uint64_t now_ns);
bool bucket_take(struct bucket *bucket, uint64_t now_ns, double n);

enum grant { GRANT_SOME, GRANT_WAIT, GRANT_OVER };
/* Says how many of these bytes a connection may move now. GRANT_OVER: none any more, if there is even one byte more. */
enum grant budget_grant(struct conn *conn, bool in, size_t want, size_t *ret);
void budget_charge(struct conn *conn, bool in, size_t n);
void budget_wait(struct conn *conn); /* conn_resume() is called when there is something. */
void budget_leave(struct conn *conn);
/* The budget is used up: this is reported once, and new connections are denied. */
void budget_note_over(struct slot *slot, bool in, bool is);
void budget_over(struct slot *slot, bool in); /* Cuts every connection for good. */
void budget_limits(struct slot *slot, const struct policy_limits *limits);

/* ---- share.c: what an organisation may have of what all share ------------------------------------------------ */

enum share_kind {
    SHARE_CONNECTIONS, /* descriptors: two for each connection */
    SHARE_LISTENERS,   /* descriptors: listeners, and DNS over TCP */
    SHARE_LOOKUPS,     /* names that are being resolved, with a descriptor each */
    SHARE_MEMORY,      /* bytes that wait for slow readers, or for the rest of their message */
    SHARE_EVENTS,      /* events that wait for the controller */
    SHARE_MAX
};
struct share; /* The share of one organisation. */
void share_init(struct egress *egress);
/* Returns 0, -ENOMEM, or -EINVAL for a name that is too long. */
int share_join(struct slot *slot, const char *org) MUST_CHECK;
/* Called when the slot has given everything back. */
void share_leave(struct slot *slot);
bool share_has(const struct slot *slot, enum share_kind kind, size_t n); /* May n more be taken? */
bool share_take(struct slot *slot, enum share_kind kind, size_t n) MUST_CHECK;
void share_charge(struct slot *slot, enum share_kind kind, size_t n); /* Takes them without asking. */
void share_give(struct slot *slot, enum share_kind kind, size_t n);
/* They are still taken but belong to no slot; egress->shared counts them until they are freed. */
void share_orphan(struct slot *slot, enum share_kind kind, size_t n);

/* ---- the process ---------------------------------------------------------------------------------------------- */

struct outgoing; /* One packet for the controller. */

struct egress {
    struct loop *loop;
    struct resolver *resolver;
    struct keyring *keys;
    char *ca;
    size_t ca_len;
    char *resolv_conf, *hosts;
    int parent, control;
    int routes; /* The socket of own_open(). */
    uint32_t route_seq;
    struct loop_source parent_source, control_source;
    struct slot *slots[EGRESS_BUCKETS];
    size_t n_slots;
    struct outgoing *out_first, *out_last;
    size_t n_answers;
    bool paused; /* Some slot does not accept because of its events. */
    struct conn *dead;
    struct slot *dead_slots;
    uint64_t next_conn;
    int pipe[2]; /* For splice(2). It is empty between two calls; -1 if there is none. */
    size_t pipe_size;
    size_t descriptors;       /* The descriptors that sandboxes can have. */
    size_t shared[SHARE_MAX]; /* What all slots together have taken. */
    struct share *shares;
    bool over;
    char *chunk; /* It has EGRESS_CHUNK bytes. */
};

int egress_init(struct egress *egress, struct brig_err *err) MUST_CHECK;
void egress_done(struct egress *egress);
void egress_reap(struct egress *egress);
int egress_file(struct egress *egress, const char *name, int fd, struct brig_err *err) MUST_CHECK; /* GATE_FILE */

/* own.c */
/* Opens the socket for own_ask(). The lock-down allows no other socket of its kind. */
int own_open(struct brig_err *err) MUST_CHECK;
enum policy_own own_ask(struct egress *egress, const struct gate_addr *addr); /* For a public address; NO for others. */

/* egress_lockdown.c */
int lockdown_begin(struct brig_err *err) MUST_CHECK; /* Call it before anything is read. */
int lockdown_serve(struct brig_err *err) MUST_CHECK; /* This cannot be undone. */

/* egress_control.c */
/* The new socket replaces the last one. */
int control_take(struct egress *egress, int sock, struct brig_err *err) MUST_CHECK;
void control_close(struct egress *egress);

/* outbox.c */
int outbox_answer(struct egress *egress, const void *msg, int fd) MUST_CHECK; /* It owns fd, also on failure. */
int outbox_event(struct slot *slot, const struct gate_event *event) MUST_CHECK;
void outbox_flush(struct egress *egress);
bool outbox_full(const struct slot *slot);
void outbox_forget(struct slot *slot); /* Its events stay but no longer point to it. */
void outbox_clear(struct egress *egress);

/* ---- a slot -------------------------------------------------------------------------------------------------- */

struct listener {
    struct slot *slot;
    struct loop_source source;
    struct loop_timer retry; /* Retries after EMFILE. */
    int fd;                  /* -1: none */
    uint16_t port;
    uint8_t kind, family;
};

#define NAMES_SEEN 64u /* DNS questions that were reported a moment ago. */
#define DNS_TCP_MAX_OPEN 16u

struct slot {
    struct egress *egress;
    struct slot *next;
    struct share *share;
    uint64_t number, version;
    uint32_t flags;
    bool mentioned;         /* It was mentioned since SYNC. */
    bool paused;            /* Its listeners are not watched because too many events wait. */
    bool over_in, over_out; /* A budget is used up. */
    char sandbox_id[32];
    struct policy *policy;
    struct policy_limits limits;
    struct names *names;
    struct broker *broker;
    struct buf ca;
    struct gate_counts counts;
    struct listener listeners[GATE_LISTENERS_MAX];
    size_t n_listeners;
    struct conn *conns;
    struct dns_tcp *dns_tcp;
    unsigned n_dns_tcp;
    size_t n_events;
    size_t pending;   /* The bytes in struct pend and those that the broker holds. */
    unsigned lookups; /* Lookups that are under way. */
    struct bucket bytes, starts, questions;
    struct conn *wait_first, *wait_last; /* The connections that wait for bytes per second, in turn. */
    size_t n_waiting;
    bool resuming;
    struct loop_timer bytes_timer;
    uint64_t limit_told_ns[4]; /* When an event about a limit was last reported: at most one per second and kind. */
    struct {
        uint64_t hash, at_ns;
    } seen[NAMES_SEEN];
};
enum { TOLD_OPEN, TOLD_RATE, TOLD_QUESTIONS, TOLD_SHARE };

struct slot *slot_find(struct egress *egress, uint64_t number);
struct slot_spec_in {
    uint64_t number, version;
    uint32_t flags;
    const char *spec;
    size_t len;
};
int slot_prepare(struct egress *egress, const struct slot_spec_in *in, struct slot **ret,
                 struct brig_err *err) MUST_CHECK;
int slot_listen(struct slot *slot, const struct gate_listen *msg, int *fds, size_t n_fds,
                struct brig_err *err) MUST_CHECK; /* It owns fds. */
void slot_forget(struct slot *slot);              /* Closed at once, and freed by egress_reap(). */
void slot_free(struct slot *slot);
/* Reports an event about the slot as a whole. */
void slot_tell(struct slot *slot, enum gate_verdict verdict, const char *why);
/* This is rate-limited. */
void slot_tell_limit(struct slot *slot, unsigned kind, enum brig_limit limit, const char *why);

/* listener.c */
int listener_open(struct listener *listener, struct slot *slot, int fd, const struct gate_listener *what,
                  struct brig_err *err) MUST_CHECK;
void listener_close(struct listener *listener);
void listeners_resume(struct slot *slot);

/* dns_port.c */
void dns_udp_ready(struct listener *listener);
void dns_tcp_accept(struct slot *slot, int fd); /* It owns fd. */
void dns_tcp_close_all(struct slot *slot);

/* ---- a connection --------------------------------------------------------------------------------------------- */

struct pend { /* Bytes that a socket has not taken yet. */
    size_t at, len, cap;
    char data[];
};

struct side {
    struct loop_source source;
    struct pend *pend; /* The bytes for this side. */
    int fd;            /* -1: none */
    bool eof;          /* All that it sent was read. */
    bool shut;         /* The FIN was sent, or will be when pend is empty. */
    bool fin_sent;
    bool bulk; /* It sends much at once. */
};

enum conn_stage {
    CONN_PROXY,  /* proxy.c: says where to */
    CONN_SNIFF,  /* conn.c: says what it is */
    CONN_REFUSE, /* refuse.c: denied; does it speak HTTP? */
    CONN_LINGER, /* refuse.c: answered; waits until the client has read that */
    CONN_DIAL,
    CONN_PLAIN, /* plain.c: HTTP, request by request */
    CONN_RELAY,
    CONN_BROKER,
    CONN_DEAD,
};

struct conn {
    struct slot *slot;
    struct conn *prev, *next;
    struct conn *wait_next, *wait_prev; /* In the slot's queue for bytes per second. */
    uint64_t id;
    struct side client, server;
    struct loop_timer timer;
    uint64_t until_ns; /* When its lifetime ends; UINT64_MAX for never. */
    uint64_t last_ns;  /* When bytes last went through. */
    uint64_t bytes_in, bytes_out;
    uint64_t version; /* The version of the policy under which its dial began. */
    struct gate_addr wanted, dialled;
    char *name; /* NULL for an address. */
    char *why;  /* CONN_REFUSE: the text of a 403. */
    struct buf first;
    size_t held; /* How many bytes of first, and of what plain.c keeps, count for the slot's memory. */
    struct dial *dial;
    struct broker_conn *broker;
    struct plain *plain;
    uint32_t proxy_state;
    int rule;
    uint16_t port;
    uint8_t stage;    /* enum conn_stage */
    uint8_t seen;     /* enum policy_seen */
    bool waiting;     /* It is in the slot's queue for bytes per second. */
    bool proxied;     /* It came through the explicit proxy. */
    bool raw;         /* A rule allows any bytes. */
    bool open;        /* The default allows any bytes. */
    bool looking;     /* It is open and the client has not shown yet what it is; first is held back. */
    bool untold;      /* CONN_REFUSE in a slot that learns: the event waits for the first bytes. */
    bool ech, no_sni; /* It passed because the policy allows these. */
    bool announced;   /* ALLOWED was reported, so CLOSED must be. */
    bool spoken;      /* The proxy has answered, so errors cannot be sent as HTTP any more. */
};

/* conn.c */
void conn_accept(struct slot *slot, int fd, enum gate_kind kind); /* It owns fd. */
void conn_dial(struct conn *conn);
void conn_peer_text(const struct conn *conn, char *out, size_t size); /* Writes "name:port". */
/* Sends FIN if it was not sent, and reports CLOSED. */
void conn_end(struct conn *conn, const char *why);
void conn_reset(struct conn *conn, const char *why); /* Sends RST on both sides. */
void conn_resume(struct conn *conn);                 /* Called by budget.c: bytes may flow again. */
void conn_free(struct conn *conn);
/* Reports a decision. If it returns false, the decision could not be reported, so it must not happen. */
bool conn_tell(struct conn *conn, enum gate_verdict verdict, const struct policy_answer *answer, const char *secret);
bool conn_arm(struct conn *conn, uint64_t after_ns);

/* sniff.c */
/* After the decision by name or address: sniffs, or dials at once where any bytes may pass. */
void conn_proceed(struct conn *conn);
void sniff_refresh(struct conn *conn);  /* The policy has changed. */
void sniff_look(struct conn *conn);     /* first has grown. */
void conn_look_late(struct conn *conn); /* The same for an open connection that was dialled already. */
/*
 * Appends what is there to first, within the budget. Returns the number of bytes, or 0 if there are none now or the
 * connection was ended.
 */
ssize_t conn_read_first(struct conn *conn, size_t max) MUST_CHECK;

/* conn_broker.c */
bool conn_brokered(const struct conn *conn);
void conn_to_broker(struct conn *conn, bool plain);

/* refuse.c */
void conn_refuse(struct conn *conn, const struct policy_answer *answer); /* Reports DENIED, then sends 403 or RST. */
/* Reports DENIED for a connection that is HTTP. */
void conn_refuse_http(struct conn *conn, unsigned status, const struct policy_answer *answer);
void conn_fail(struct conn *conn, const char *why); /* Reports FAILED, then sends 502 or RST. */
void conn_refuse_io(struct conn *conn);
void conn_refuse_late(struct conn *conn); /* The client sent nothing. */
void conn_linger_io(struct conn *conn);
/* Does it begin like a request? *ret_more: it is too early to say. */
bool http_begins(const uint8_t *data, size_t len, bool *ret_more);
bool http_line(const uint8_t *data, size_t len, bool *ret_more); /* The same, judged by the whole first line. */

/* judge.c */
void judge_deny(struct policy_answer *ret, const char *format, ...) PRINTF_LIKE(2, 3); /* A built-in denial: rule -2. */
bool judge_wanted(struct conn *conn, struct policy_answer *ret); /* Finds the name of a synthetic address. */
bool judge_hello(struct conn *conn, const struct tls_hello *hello, struct policy_answer *ret);
bool judge_again(const struct conn *conn, struct policy_answer *ret); /* Judges by the slot's present policy. */
/* One authority: "host", "host:80", "[::1]:80". name is "" for an address. */
struct authority {
    char name[DNS_NAME_MAX];
    struct gate_addr addr;
    uint16_t port; /* 0 if it has none. */
};
int authority_parse(const char *text, size_t len, struct authority *ret) MUST_CHECK; /* -EINVAL */
/*
 * Judges a request of a plain connection: Host, absolute target and the connection must agree, and the policy must
 * allow method and path.
 */
bool judge_request(struct conn *conn, const struct http_head *head, struct policy_answer *ret);
bool judge_method(const struct conn *conn, const struct policy *policy, const char *method, const char *path,
                  struct policy_answer *ret);

/* plain.c */
int plain_start(struct conn *conn) MUST_CHECK; /* It owns first from now on. */
void plain_dialled(struct conn *conn);
void plain_client(struct conn *conn, const char *data, size_t len);
void plain_server(struct conn *conn, const char *data, size_t len);
void plain_eof(struct conn *conn, struct side *side);
void plain_progress(struct conn *conn); /* After io: begins the next request if one is there. */
bool plain_wants(const struct conn *conn, const struct side *side);
size_t plain_kept(const struct conn *conn);                          /* The bytes of memory that its buffers have. */
size_t plain_room(const struct conn *conn, const struct side *side); /* The bytes that may be read at once. */
bool plain_answering(const struct conn *conn); /* A response has begun, so brig-egress cannot send one of its own. */
const char *plain_method(const struct conn *conn);
const char *plain_path(const struct conn *conn); /* NULL if no request is under way. */
void plain_free(struct conn *conn);
/* plain_head.c: writes exactly what was understood. */
int plain_put_head(struct buf *out, const struct http_head *head, bool proxied) MUST_CHECK;
/* Also for the absolute form. The result begins with '/' or is "*". */
const char *plain_target_path(const char *target);
bool plain_upgrade_is_h2c(const struct http_head *head);

/* proxy.c */
void proxy_start(struct conn *conn);
void proxy_io(struct conn *conn);
/*
 * The target of an absolute-form request becomes the destination of this connection. Returns false if it was refused
 * and answered.
 */
bool proxy_target(struct conn *conn, const struct http_head *head);

/* relay.c */
void relay_start(struct conn *conn);
void relay_first(struct conn *conn); /* Sends first to the server. */
void relay_io(struct conn *conn, struct side *side, uint32_t events);
void relay_watch(struct conn *conn); /* Called after anything that changes what is waited for. */
int side_watch(struct conn *conn, struct side *side, uint32_t events) MUST_CHECK;
/* Sends the bytes or keeps them. Returns a negative errno if the side is gone. */
int side_put(struct conn *conn, struct side *side, const void *data, size_t len) MUST_CHECK;
int side_flush(struct conn *conn, struct side *side) MUST_CHECK; /* Returns 0 if all was sent or if it waits. */
void side_shut(struct side *side);                               /* Sends FIN after the pending bytes. */
void side_close(struct conn *conn, struct side *side, bool reset);

#endif
