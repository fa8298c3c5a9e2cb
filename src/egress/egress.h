/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h: the inside of brig-egress, the only way out of a sandbox.
 *
 * Theory of operation. One thread, one epoll loop. It lives in the host's network namespace; the listeners it serves
 * were made inside the
 * sandboxes'. A connection goes through these stages, and carries nothing before the last:
 *
 *   accepted   (listener.c) the wanted address is the connection's local one, or SO_ORIGINAL_DST; a synthetic address
 *              stands for a name
 *   judged     (judge.c)    by name or address and port. No: reset, or 403 when it speaks HTTP
 *   sniffed    (conn.c)     first bytes: a ClientHello whose SNI must be the name, or an HTTP request whose Host must
 *              be; or raw where a rule says so
 *   dialled    (dial.c)     resolved now, every address judged again, connected to exactly the one that was judged
 *   relayed    (relay.c)    bytes both ways, counted, within budgets and rates; or, for hosts with a brokered secret,
 *              broker.c takes over
 *
 * All of a slot's memory and descriptors are bounded: connections, names, bytes per connection.
 */
#ifndef BRIG_EGRESS_EGRESS_H
#define BRIG_EGRESS_EGRESS_H

#include "codec/tls_hello.h"
#include "gate/gate_wire.h"
#include "gate/slot_spec.h"
#include "loop/loop.h"

#define LOOKUPS_MAX 1024u       /* names that are being resolved, of all slots */
#define EGRESS_NAMES_MAX 8192u  /* synthetic addresses per slot */
#define EGRESS_FIRST_MAX 65536u /* bytes kept before the dial: a ClientHello or a request's head */
#define EGRESS_CONNECTIONS 256u /* per slot, unless the policy says otherwise */

struct egress;
struct slot;
struct conn;

/* ---- egress_names.c: synthetic addresses of one slot ---------------------------------------------------- */
struct names;
int names_create(struct names **ret) MUST_CHECK;
void names_destroy(struct names *names);
/* The number that stands for this name, made if new; -ENOSPC when all are in use (one nobody has asked for or connected
 * to for 5 minutes is reused). */
int names_take(struct names *names, const char *name, uint32_t *ret_number) MUST_CHECK;
const char *names_find(struct names *names, uint32_t number); /* or NULL; valid until the next names_take() */
#ifdef BRIG_TEST
void names_age(struct names *names, uint64_t ns); /* as if so much time had passed */
#endif

/* ---- dns_server.c: port 53 inside the sandbox ---------------------------------------------------------------- */
/* One datagram / one TCP message -> an answer. Nothing is ever asked upstream for it. allowed: the question was about a
 * name the policy knows. Neither query nor out has TCP's two bytes of length. out stays as it was where nothing should
 * be said (a response, three bytes of garbage). */
struct dns_verdict {
    bool valid, allowed;
    char name[DNS_NAME_MAX];
};
int dns_serve(struct names *names, const struct policy *policy, const uint8_t *query, size_t len, bool tcp,
              struct buf *out, struct dns_verdict *ret) MUST_CHECK;

/* ---- resolver.c: a stub resolver of our own ------------------------------------------------------------------ */
struct resolver;
struct lookup;
#define RESOLVER_ADDRESSES 16u
int resolver_create(struct loop *loop, struct resolver **ret, struct brig_err *err) MUST_CHECK;
/* takes NULL; not from a lookup's done; lookups under way are cancelled */
void resolver_destroy(struct resolver *resolver);
/* Texts of resolv.conf and hosts; again on change. Servers: "nameserver" lines (v4, v6, also "ADDR#PORT"); options
 * timeout, attempts, rotate; search is ignored (names are absolute). BRIG_E_USAGE: there are such lines and none can be
 * used; then, and when out of memory, everything stays as it was. */
int resolver_configure(struct resolver *resolver, const char *resolv_conf, const char *hosts,
                       struct brig_err *err) MUST_CHECK;
/* A and AAAA of the name: hosts first, then the servers (random id and port per query, 0x20 not used, TCP when
 * truncated, next server on failure). Short answers are cached for their TTL, at most 30 s, at most 4,096 names. done
 * exactly once, never from within. n 0: err says why (BRIG_E_NOT_FOUND: no such name, or no address; BRIG_E_TIMEOUT;
 * BRIG_E_HOST). -EAGAIN with BRIG_E_LIMIT: 1,024 are under way. */
typedef void lookup_fn(void *ctx, const struct gate_addr *addresses, size_t n, const struct brig_err *err);
int resolver_lookup(struct resolver *resolver, const char *name, lookup_fn *done, void *ctx, struct lookup **ret,
                    struct brig_err *err) MUST_CHECK;
void lookup_cancel(struct lookup *lookup); /* done will not be called; not after it was */

/* ---- dial.c: a connection out, judged on its address ---------------------------------------------------------- */
struct dial;
/* fd: connected, non-blocking, the callee takes it; -1: err says why (BRIG_E_REFUSED: by policy, answer->why). */
typedef void dial_fn(void *ctx, int fd, const struct gate_addr *to, const struct policy_answer *answer,
                     const struct brig_err *err);
/* name NULL: wanted is dialled itself. Tries at most 4 addresses, 10 s in all. */
int dial_start(struct slot *slot, const char *name, const struct gate_addr *wanted, uint16_t port,
               enum policy_seen seen, dial_fn *done, void *ctx, struct dial **ret, struct brig_err *err) MUST_CHECK;
void dial_cancel(struct dial *dial);

/* ---- broker.c: hosts with a brokered secret ------------------------------------------------------------------- */
struct broker; /* of one slot: its authority, its secrets */
/* secrets: the array of the slot spec. keys: the ring, or NULL. BRIG_E_USAGE / REFUSED. ca: PEM of the new authority,
 * appended. */
struct keyring;
int broker_create(struct egress *egress, const struct json_value *secrets, const struct keyring *keys,
                  struct broker **ret, struct buf *ca, struct brig_err *err) MUST_CHECK;
void broker_destroy(struct broker *broker);                              /* wipes; connections must be gone */
void broker_use_keys(struct broker *broker, const struct keyring *keys); /* the ring was replaced: the old one may go */
bool broker_covers(const struct broker *broker, const char *name, uint16_t port);
/* Does this text carry one of the slot's placeholders (sent to a host it is not for)? Its secret's name, or NULL. */
const char *broker_finds_placeholder(const struct broker *broker, const char *data, size_t len);

/*
 * A connection that has shown its ClientHello (or, plain is set, the head of an HTTP request) for such a host: the
 * broker takes the client's descriptor and those first bytes, terminates TLS, judges and rewrites every request, and
 * dials itself. done when it is over; until then conn belongs to it.
 */
struct broker_conn;
struct broker_start {
    struct slot *slot;
    struct broker *broker;
    const char *name;
    struct gate_addr wanted;
    uint16_t port;
    int fd; /* taken over, also on failure */
    bool plain;
    const uint8_t *first; /* what was read so far */
    size_t first_len;
    /* The slot's accounting. charge: bytes towards (in) and from the sandbox; false: the budget is used up, end. */
    bool (*charge)(void *ctx, uint64_t in, uint64_t out);
    /* One request's decision; for the log. With a secret's name: ALLOWED: it was substituted; DENIED: its placeholder
     * stood where it is not for, and stays. */
    void (*event)(void *ctx, enum gate_verdict verdict, const struct policy_answer *answer,
                  const struct gate_addr *dialled, const char *secret);
    /* So many echoes of a secret were taken out of a response; may be NULL. */
    void (*scrubbed)(void *ctx, uint64_t n);
    void (*done)(void *ctx, const char *why); /* why: "" for a plain end. Never from within broker_start() */
    void *ctx;
};
int broker_start(const struct broker_start *start, struct broker_conn **ret, struct brig_err *err) MUST_CHECK;
void broker_stop(struct broker_conn *conn); /* cut: done is not called */

/* ---- what the parts see of a slot and of the process (slot.c, egress_main.c) ---------------------------- */
struct egress *slot_egress(const struct slot *slot);
struct policy *slot_policy(const struct slot *slot); /* the present one; not a new reference */
uint64_t slot_policy_version(const struct slot *slot);
struct names *slot_names(const struct slot *slot);
/* Memory that a connection holds for a slot (a body that must be complete before it can be sent): false when the slot
 * or the process has enough of that. */
bool slot_take_memory(struct slot *slot, size_t n) MUST_CHECK;
void slot_give_memory(struct slot *slot, size_t n);
uint64_t slot_wait_ns(struct slot *slot);  /* until it may carry bytes again (net_bps); 0: now */
bool slot_behind(const struct slot *slot); /* its decisions are not being taken: nothing new begins */
struct loop *egress_loop(const struct egress *egress);
struct resolver *egress_resolver(const struct egress *egress);
/* PEM bundle for connections out; "" when none was given */
const char *egress_ca(const struct egress *egress, size_t *ret_len);

#endif
