/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress.h: the parts of brig-egress, the only way out of a sandbox.
 *
 * Theory of operation. One thread runs one epoll loop. The process lives in the host's network namespace; the listeners
 * that it serves were made inside those of the sandboxes. A connection goes through these stages, and carries nothing
 * before the last one:
 *
 *   accepted   (listener.c) The wanted address is the connection's local one, or SO_ORIGINAL_DST.
 *              A synthetic address stands for a name.
 *   judged     (judge.c)    By name or address, and port. If refused: a reset, or 403 if it speaks HTTP.
 *   sniffed    (sniff.c)    The first bytes are a ClientHello whose SNI must be the name, or an HTTP request
 *              whose Host must be; or any bytes where a rule says so.
 *   dialled    (dial.c)     The name is resolved now, every address is judged again, and the connection goes
 *              to exactly the address that was judged.
 *   relayed    (relay.c)    Bytes go both ways, counted, within budgets and rates. For hosts with a brokered
 *              secret, broker.c takes over.
 *
 * All memory and descriptors of a slot are bounded: connections, names, bytes per connection.
 */
#ifndef BRIG_EGRESS_EGRESS_H
#define BRIG_EGRESS_EGRESS_H

#include "codec/tls_hello.h"
#include "gate/gate_wire.h"
#include "gate/slot_spec.h"
#include "loop/loop.h"

#define LOOKUPS_MAX 1024u       /* The names that are being resolved, for all slots together. */
#define EGRESS_NAMES_MAX 8192u  /* The synthetic addresses per slot. */
#define EGRESS_FIRST_MAX 65536u /* The bytes that are kept before the dial: a ClientHello or the head of a request. */
#define EGRESS_CONNECTIONS 256u /* The connections per slot, unless the policy says otherwise. */

struct egress;
struct slot;
struct conn;

/* ---- egress_names.c: synthetic addresses of one slot ---------------------------------------------------- */
struct names;
int names_create(struct names **ret) MUST_CHECK;
void names_destroy(struct names *names);
/*
 * Returns the number that stands for this name and makes it if it is new. A number that nobody has asked for or
 * connected to for 5 minutes is reused. -ENOSPC: all are in use.
 */
int names_take(struct names *names, const char *name, uint32_t *ret_number) MUST_CHECK;
/* Returns the name or NULL. It is valid until the next names_take(). */
const char *names_find(struct names *names, uint32_t number);
#ifdef BRIG_TEST
void names_age(struct names *names, uint64_t ns); /* Acts as if so much time had passed. */
#endif

/* ---- dns_server.c: port 53 inside the sandbox ---------------------------------------------------------------- */
/*
 * Answers one datagram or one TCP message. No upstream server is ever asked for it. allowed: the question was about a
 * name that the policy knows. Neither query nor out has TCP's two bytes of length. out stays as it was if there should
 * be no answer (to a response, or to three bytes of garbage).
 */
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
/* Cancels the lookups that are under way. resolver may be NULL. It must not be called from a lookup's done. */
void resolver_destroy(struct resolver *resolver);
/*
 * Reads the texts of resolv.conf and hosts; it is called again when they change. It uses the "nameserver" lines (v4,
 * v6, also "ADDR#PORT") and the options timeout, attempts and rotate. search is ignored, because names are absolute.
 * BRIG_E_USAGE: there are such lines and none can be used. Then, and when memory is short, everything stays as it was.
 */
int resolver_configure(struct resolver *resolver, const char *resolv_conf, const char *hosts,
                       struct brig_err *err) MUST_CHECK;
/*
 * Looks up A and AAAA of the name, first in hosts, then at the servers: a random id and port per query, without 0x20,
 * over TCP when the reply is truncated, at the next server on failure. Answers are cached for their TTL, at most 30 s,
 * for at most 4,096 names. done is called exactly once, never from within this function. If n is 0, err says why
 * (BRIG_E_NOT_FOUND: no such name, or no address; BRIG_E_TIMEOUT; BRIG_E_HOST). -EAGAIN with BRIG_E_LIMIT: 1,024 are
 * under way.
 */
typedef void lookup_fn(void *ctx, const struct gate_addr *addresses, size_t n, const struct brig_err *err);
int resolver_lookup(struct resolver *resolver, const char *name, lookup_fn *done, void *ctx, struct lookup **ret,
                    struct brig_err *err) MUST_CHECK;
void lookup_cancel(struct lookup *lookup); /* done will not be called. Do not call this after done was called. */

/* ---- dial.c: a connection out, judged on its address ---------------------------------------------------------- */
struct dial;
/*
 * fd is connected and does not block; the callee owns it. If it is -1, err says why (BRIG_E_REFUSED: by policy,
 * answer->why).
 */
typedef void dial_fn(void *ctx, int fd, const struct gate_addr *to, const struct policy_answer *answer,
                     const struct brig_err *err);
/* Dials a name, or wanted if the name is NULL. It tries at most 4 addresses, for 10 s in all. */
int dial_start(struct slot *slot, const char *name, const struct gate_addr *wanted, uint16_t port,
               enum policy_seen seen, dial_fn *done, void *ctx, struct dial **ret, struct brig_err *err) MUST_CHECK;
void dial_cancel(struct dial *dial);

/* ---- broker.c: hosts with a brokered secret ------------------------------------------------------------------- */
struct broker; /* The broker of one slot: its authority and its secrets. */
/*
 * secrets is the array of the slot spec; keys is the ring or NULL. The PEM of the new authority is appended to ca. The
 * error is BRIG_E_USAGE or BRIG_E_REFUSED.
 */
struct keyring;
int broker_create(struct egress *egress, const struct json_value *secrets, const struct keyring *keys,
                  struct broker **ret, struct buf *ca, struct brig_err *err) MUST_CHECK;
/* Wipes the secrets. All connections must be gone. */
void broker_destroy(struct broker *broker);
/* The ring was replaced; the old one may be freed afterwards. */
void broker_use_keys(struct broker *broker, const struct keyring *keys);
bool broker_covers(const struct broker *broker, const char *name, uint16_t port);
/*
 * Does this text carry one of the slot's placeholders (for a host that is not its own)? Returns the secret's name or
 * NULL.
 */
const char *broker_finds_placeholder(const struct broker *broker, const char *data, size_t len);

/*
 * A connection that has shown its ClientHello for such a host (or, if plain is set, the head of an HTTP request). The
 * broker takes the client's descriptor and those first bytes, terminates TLS, judges and rewrites every request, and
 * dials by itself. It calls done when it is over; until then conn belongs to it.
 */
struct broker_conn;
struct broker_start {
    struct slot *slot;
    struct broker *broker;
    const char *name;
    struct gate_addr wanted;
    uint16_t port;
    int fd; /* The broker owns it, also on failure. */
    bool plain;
    const uint8_t *first; /* The bytes that were read so far. */
    size_t first_len;
    /*
     * Counts bytes towards (in) and from (out) the sandbox. Returns false if the budget is used up; then the connection
     * ends.
     */
    bool (*charge)(void *ctx, uint64_t in, uint64_t out);
    /*
     * Reports the decision about one request, for the log. With a secret's name, ALLOWED means that it was substituted,
     * and DENIED that its placeholder stood where it is not allowed, and stays.
     */
    void (*event)(void *ctx, enum gate_verdict verdict, const struct policy_answer *answer,
                  const struct gate_addr *dialled, const char *secret);
    /* Reports how many echoes of a secret were taken out of a response; may be NULL. */
    void (*scrubbed)(void *ctx, uint64_t n);
    /* why is "" for a plain end. It is never called from within broker_start(). */
    void (*done)(void *ctx, const char *why);
    void *ctx;
};
int broker_start(const struct broker_start *start, struct broker_conn **ret, struct brig_err *err) MUST_CHECK;
void broker_stop(struct broker_conn *conn); /* Cuts the connection; done is not called. */

/* ---- what the parts see of a slot and of the process (slot.c, egress_main.c) ---------------------------- */
struct egress *slot_egress(const struct slot *slot);
struct policy *slot_policy(const struct slot *slot); /* The present policy, without a new reference. */
/*
 * Takes memory that a connection holds for a slot (a body that must be complete before it can be sent). Returns false
 * if the slot or the process has enough of that.
 */
bool slot_take_memory(struct slot *slot, size_t n) MUST_CHECK;
void slot_give_memory(struct slot *slot, size_t n);
uint64_t slot_wait_ns(struct slot *slot);  /* The time until it may carry bytes again (net_bps); 0 means now. */
bool slot_behind(const struct slot *slot); /* Its decisions are not being taken, so nothing new begins. */
struct loop *egress_loop(const struct egress *egress);
/* The PEM bundle for connections out; "" if none was given. */
const char *egress_ca(const struct egress *egress, size_t *ret_len);

#endif
