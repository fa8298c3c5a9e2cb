/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_priv.h: what the files of the process share: the process, a slot, a connection.
 *
 * Lifetimes. A connection that is over is closed at once but freed only between two rounds of the loop (egress_reap()),
 * so that every function may end the one it works on. A slot goes the same way: after its connections.
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
#define EGRESS_EVENTS 4096u       /* waiting for the controller, of all slots */
#define SLOT_EVENTS 512u          /* and of one */
#define EGRESS_CHUNK (256u << 10) /* read at once, into memory that all connections share */
#define EGRESS_PIPE (512u << 10)  /* spliced at once, where the host allows pipes that large */
#define SLOT_PENDING \
    (16u << 20)          /* more than that waits for a slot's slow readers: others are read in small pieces only */
#define SLOT_LOOKUPS 64u /* names that one slot has resolved at a time */
#define EGRESS_PENDING (128u << 20)                /* the same of all slots */
#define CONN_DESCRIPTORS 2u                        /* of a connection: one of each side */
#define CONN_SNIFF_NS (UINT64_C(10) * 1000000000u) /* to show what it is */
#define CONN_IDLE_NS (UINT64_C(300) * 1000000000u)

struct keyring;

/* ---- budget.c ------------------------------------------------------------------------------------------------ */

struct bucket { /* of tokens; rate 0: no limit */
    double rate, burst, level;
    uint64_t at_ns;
};
void bucket_init(struct bucket *bucket, uint64_t rate, uint64_t burst, uint64_t now_ns); /* full */
double bucket_level(struct bucket *bucket, uint64_t now_ns);
bool bucket_take(struct bucket *bucket, uint64_t now_ns, double n);

enum grant { GRANT_SOME, GRANT_WAIT, GRANT_OVER };
/* How many of these bytes a connection may move now. OVER: none, for good, if there is even one more. */
enum grant budget_grant(struct conn *conn, bool in, size_t want, size_t *ret);
void budget_charge(struct conn *conn, bool in, size_t n);
void budget_wait(struct conn *conn); /* conn_resume() is called when there is something */
void budget_leave(struct conn *conn);
/* it is used up: told once, and new connections are denied */
void budget_note_over(struct slot *slot, bool in, bool is);
void budget_over(struct slot *slot, bool in); /* cuts every connection, once and for all */
void budget_limits(struct slot *slot, const struct policy_limits *limits);

/* ---- share.c: what an organisation may have of what all share ------------------------------------------------ */

enum share_kind {
    SHARE_CONNECTIONS, /* descriptors: two of each connection */
    SHARE_LISTENERS,   /* descriptors: listeners, and DNS over TCP */
    SHARE_LOOKUPS,     /* names being resolved, a descriptor each */
    SHARE_MEMORY,      /* bytes that wait for slow readers */
    SHARE_EVENTS,      /* waiting for the controller */
    SHARE_MAX
};
struct share; /* of one organisation */
void share_init(struct egress *egress);
int share_join(struct slot *slot, const char *org) MUST_CHECK;           /* -ENOMEM, -EINVAL: a name that is too long */
void share_leave(struct slot *slot);                                     /* when it has given everything back */
bool share_has(const struct slot *slot, enum share_kind kind, size_t n); /* so many more may be taken */
bool share_take(struct slot *slot, enum share_kind kind, size_t n) MUST_CHECK;
void share_charge(struct slot *slot, enum share_kind kind, size_t n); /* whether it may or not */
void share_give(struct slot *slot, enum share_kind kind, size_t n);
/* Still taken, but nobody's: egress->shared has them until they go */
void share_orphan(struct slot *slot, enum share_kind kind, size_t n);

/* ---- the process ---------------------------------------------------------------------------------------------- */

struct outgoing; /* one packet for the controller */

struct egress {
    struct loop *loop;
    struct resolver *resolver;
    struct keyring *keys;
    char *ca;
    size_t ca_len;
    char *resolv_conf, *hosts;
    int parent, control;
    int routes; /* own_open() */
    uint32_t route_seq;
    struct loop_source parent_source, control_source;
    struct slot *slots[EGRESS_BUCKETS];
    size_t n_slots;
    struct outgoing *out_first, *out_last;
    size_t n_answers;
    bool paused; /* some slot does not accept because of its events */
    struct conn *dead;
    struct slot *dead_slots;
    uint64_t next_conn;
    int pipe[2]; /* for splice(2); empty between two calls. -1: none */
    size_t pipe_size;
    size_t descriptors;       /* that sandboxes can have */
    size_t shared[SHARE_MAX]; /* taken by all slots */
    struct share *shares;
    bool over;
    char *chunk; /* EGRESS_CHUNK bytes */
};

int egress_init(struct egress *egress, struct brig_err *err) MUST_CHECK;
void egress_done(struct egress *egress);
void egress_reap(struct egress *egress);
int egress_file(struct egress *egress, const char *name, int fd, struct brig_err *err) MUST_CHECK; /* GATE_FILE */

/* own.c */
int own_open(struct brig_err *err) MUST_CHECK; /* the socket for own_ask(); the lock-down allows no other of its kind */
enum policy_own own_ask(struct egress *egress, const struct gate_addr *addr); /* of a public address; NO of others */

/* egress_lockdown.c */
int lockdown_begin(struct brig_err *err) MUST_CHECK; /* before anything was read */
int lockdown_serve(struct brig_err *err) MUST_CHECK; /* no way back */

/* egress_control.c */
int control_take(struct egress *egress, int sock, struct brig_err *err) MUST_CHECK; /* in place of the last one */
void control_close(struct egress *egress);

/* outbox.c */
int outbox_answer(struct egress *egress, const void *msg, int fd) MUST_CHECK; /* takes fd over, also on failure */
int outbox_event(struct slot *slot, const struct gate_event *event) MUST_CHECK;
void outbox_flush(struct egress *egress);
bool outbox_full(const struct slot *slot);
void outbox_forget(struct slot *slot); /* its events stay, but no longer point to it */
void outbox_clear(struct egress *egress);

/* ---- a slot -------------------------------------------------------------------------------------------------- */

struct listener {
    struct slot *slot;
    struct loop_source source;
    struct loop_timer retry; /* after EMFILE */
    int fd;                  /* -1: none */
    uint16_t port;
    uint8_t kind, family;
};

#define NAMES_SEEN 64u /* DNS questions that were told a moment ago */
#define DNS_TCP_MAX_OPEN 16u

struct slot {
    struct egress *egress;
    struct slot *next;
    struct share *share;
    uint64_t number, version;
    uint32_t flags;
    bool mentioned;         /* since SYNC */
    bool paused;            /* its listeners are not watched: too many events wait */
    bool over_in, over_out; /* a budget is used up */
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
    size_t pending;   /* bytes in struct pend, and what the broker holds */
    unsigned lookups; /* under way */
    struct bucket bytes, starts, questions;
    struct conn *wait_first, *wait_last; /* for bytes per second, in turn */
    size_t n_waiting;
    bool resuming;
    struct loop_timer bytes_timer;
    uint64_t limit_told_ns[4]; /* events about limits, at most one per second and kind */
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
                struct brig_err *err) MUST_CHECK; /* takes fds over */
void slot_forget(struct slot *slot);              /* closed at once; freed by egress_reap() */
void slot_free(struct slot *slot);
/* An event about the slot and no connection of it. */
void slot_tell(struct slot *slot, enum gate_verdict verdict, const char *why);
void slot_tell_limit(struct slot *slot, unsigned kind, enum brig_limit limit, const char *why); /* rate-limited */

/* listener.c */
int listener_open(struct listener *listener, struct slot *slot, int fd, const struct gate_listener *what,
                  struct brig_err *err) MUST_CHECK;
void listener_close(struct listener *listener);
void listeners_pause(struct slot *slot);
void listeners_resume(struct slot *slot);

/* dns_port.c */
void dns_udp_ready(struct listener *listener);
void dns_tcp_accept(struct slot *slot, int fd); /* takes it over */
void dns_tcp_close_all(struct slot *slot);

/* ---- a connection --------------------------------------------------------------------------------------------- */

struct pend { /* bytes that a socket did not take yet */
    size_t at, len, cap;
    char data[];
};

struct side {
    struct loop_source source;
    struct pend *pend; /* for this side */
    int fd;            /* -1: none */
    bool eof;          /* all it sent was read */
    bool shut;         /* we have sent our FIN, or will when pend is empty */
    bool fin_sent;
    bool bulk; /* it sends much at once */
};

enum conn_stage {
    CONN_PROXY,  /* proxy.c: says where to */
    CONN_SNIFF,  /* conn.c: says what it is */
    CONN_REFUSE, /* refuse.c: denied; does it speak HTTP? */
    CONN_LINGER, /* refuse.c: answered; wait until it has read that */
    CONN_DIAL,
    CONN_PLAIN, /* plain.c: HTTP, request by request */
    CONN_RELAY,
    CONN_BROKER,
    CONN_DEAD,
};

struct conn {
    struct slot *slot;
    struct conn *prev, *next;
    struct conn *wait_next;
    uint64_t id;
    struct side client, server;
    struct loop_timer timer;
    uint64_t until_ns; /* its lifetime ends; UINT64_MAX: never */
    uint64_t last_ns;  /* bytes went through */
    uint64_t bytes_in, bytes_out;
    uint64_t version; /* of the policy that its dial began under */
    struct gate_addr wanted, dialled;
    char *name; /* NULL: an address */
    char *why;  /* CONN_REFUSE: what a 403 will say */
    struct buf first;
    struct dial *dial;
    struct broker_conn *broker;
    struct plain *plain;
    uint32_t proxy_state;
    int rule;
    uint16_t port;
    uint8_t stage;    /* enum conn_stage */
    uint8_t seen;     /* enum policy_seen */
    bool waiting;     /* in the slot's queue for bytes per second */
    bool proxied;     /* came through the explicit proxy */
    bool raw;         /* any bytes: a rule says so */
    bool open;        /* any bytes: the default says so */
    bool looking;     /* open, and the client has not yet shown what it is: first is held back */
    bool untold;      /* CONN_REFUSE of a slot that learns: the event waits for the first bytes */
    bool ech, no_sni; /* was let through because the policy allows these */
    bool announced;   /* ALLOWED was told: so CLOSED must be */
    bool spoken;      /* the proxy has answered: errors cannot be told as HTTP any more */
};

/* conn.c */
void conn_accept(struct slot *slot, int fd, enum gate_kind kind); /* takes fd over */
void conn_judge_wanted(struct conn *conn); /* wanted and port (or name) are set: refuse, sniff or dial */
void conn_dial(struct conn *conn);
void conn_peer_text(const struct conn *conn, char *out, size_t size); /* "name:port" */
void conn_end(struct conn *conn, const char *why);                    /* FIN where it was not sent; CLOSED is told */
void conn_reset(struct conn *conn, const char *why);                  /* RST on both sides */
void conn_resume(struct conn *conn);                                  /* budget.c: bytes may flow again */
void conn_free(struct conn *conn);
void conn_io(struct loop_source *source, uint32_t events);
/* false: it could not be told, so it must not happen. */
bool conn_tell(struct conn *conn, enum gate_verdict verdict, const struct policy_answer *answer, const char *secret);
bool conn_arm(struct conn *conn, uint64_t after_ns);

/* sniff.c */
void conn_proceed(struct conn *conn);   /* judged by name or address: sniff, or dial at once where any bytes may go */
void sniff_refresh(struct conn *conn);  /* the policy is another one */
void conn_sniff(struct conn *conn);     /* begins: first may have bytes already */
void sniff_look(struct conn *conn);     /* first has grown */
void conn_look_late(struct conn *conn); /* the same of an open connection that was dialled already */
/* Appends what is there to first, within the budget. > 0: bytes; 0: none now, or it is over (and ended). */
ssize_t conn_read_first(struct conn *conn, size_t max) MUST_CHECK;

/* conn_broker.c */
bool conn_brokered(const struct conn *conn);
void conn_to_broker(struct conn *conn, bool plain);

/* refuse.c */
void conn_refuse(struct conn *conn, const struct policy_answer *answer); /* tells DENIED, then 403 or RST */
/* tells DENIED; it is HTTP */
void conn_refuse_http(struct conn *conn, unsigned status, const struct policy_answer *answer);
void conn_fail(struct conn *conn, const char *why);                     /* tells FAILED; 502 or RST */
void conn_answer(struct conn *conn, unsigned status, const char *text); /* tells nothing */
void conn_refuse_io(struct conn *conn);
void conn_refuse_late(struct conn *conn); /* it said nothing */
void conn_linger_io(struct conn *conn);
bool http_begins(const uint8_t *data, size_t len, bool *ret_more); /* like a request; more: too early to say */
bool http_line(const uint8_t *data, size_t len, bool *ret_more);   /* the same by the whole first line */

/* judge.c */
void judge_deny(struct policy_answer *ret, const char *format, ...) PRINTF_LIKE(2, 3); /* built in: rule -2 */
bool judge_wanted(struct conn *conn, struct policy_answer *ret); /* finds the name of a synthetic address */
bool judge_hello(struct conn *conn, const struct tls_hello *hello, struct policy_answer *ret);
bool judge_again(const struct conn *conn, struct policy_answer *ret); /* by the slot's present policy */
/* One authority: "host", "host:80", "[::1]:80". name "" when it is an address. */
struct authority {
    char name[DNS_NAME_MAX];
    struct gate_addr addr;
    uint16_t port; /* 0: not said */
};
int authority_parse(const char *text, size_t len, struct authority *ret) MUST_CHECK; /* -EINVAL */
/* A request of a plain connection: Host, absolute target and the connection agree, and the policy lets method and path
 * through. */
bool judge_request(struct conn *conn, const struct http_head *head, struct policy_answer *ret);
bool judge_method(const struct conn *conn, const struct policy *policy, const char *method, const char *path,
                  struct policy_answer *ret);

/* plain.c */
int plain_start(struct conn *conn) MUST_CHECK; /* takes first over */
void plain_dialled(struct conn *conn);
void plain_client(struct conn *conn, const char *data, size_t len);
void plain_server(struct conn *conn, const char *data, size_t len);
void plain_eof(struct conn *conn, struct side *side);
void plain_progress(struct conn *conn); /* after io: the next request, if one is there */
bool plain_wants(const struct conn *conn, const struct side *side);
size_t plain_room(const struct conn *conn, const struct side *side); /* what may be read at once */
bool plain_answering(const struct conn *conn); /* a response has begun: none of ours can be sent */
const char *plain_method(const struct conn *conn);
const char *plain_path(const struct conn *conn); /* NULL: no request is under way */
void plain_free(struct conn *conn);
/* plain_head.c: what is sent on: exactly what was understood. */
int plain_put_head(struct buf *out, const struct http_head *head, bool proxied) MUST_CHECK;
const char *plain_target_path(const char *target); /* of absolute-form as well; begins with '/' (or is "*") */
bool plain_upgrade_is_h2c(const struct http_head *head);

/* proxy.c */
void proxy_start(struct conn *conn);
void proxy_io(struct conn *conn);
/* The target of an absolute-form request becomes where this connection goes; false: refused and answered. */
bool proxy_target(struct conn *conn, const struct http_head *head);

/* relay.c */
void relay_start(struct conn *conn);
void relay_first(struct conn *conn); /* first goes to the server */
void relay_io(struct conn *conn, struct side *side, uint32_t events);
void relay_watch(struct conn *conn); /* after anything that changes what is waited for */
int side_watch(struct conn *conn, struct side *side, uint32_t events) MUST_CHECK;
/* sends, or keeps; -errno: it is gone */
int side_put(struct conn *conn, struct side *side, const void *data, size_t len) MUST_CHECK;
int side_flush(struct conn *conn, struct side *side) MUST_CHECK; /* 0: all gone or it waits */
void side_shut(struct side *side);                               /* FIN, after what is pending */
void side_close(struct conn *conn, struct side *side, bool reset);

#endif
