/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.h: what a sandbox may reach, as an immutable object. It is compiled once from JSON (docs/NETWORK.md) and
 * shared by reference; a new version is a new object. brigd compiles it to check and explain it, and brig-egress to
 * enforce it, with the same code.
 *
 *   {"default": "deny" | "allow",
 *    "rules": [{"action": "allow" | "deny", "domain": NAME | "*.NAME"  or  "cidr": "10.0.0.0/8",
 *               "ports": [443, "8000-8010"] | "any", "protocol": "tls" | "http" | "tcp",
 *               "methods": ["GET"], "paths": ["/v1/"]}],
 *    "tls": {"ech": "deny" | "allow", "no_sni": "deny" | "allow"},
 *    "limits": {"net_bytes_in": .., "net_bytes_out": .., "net_bps": .., "connections": ..,
 *               "connections_per_second": .., "lifetime": ..}}
 *
 * A missing `default` is deny. With no rules, nothing is allowed. "*.x.org" is every name below x.org, at any depth,
 * and not x.org itself. Rules have no order: a deny that matches wins over every allow, and the default comes last.
 * Without `ports`, an allow means 80 and 443, and a deny means any port. Without `protocol`, an allow means TLS or
 * HTTP, whichever the first bytes are, and a deny means everything; "tcp" is any bytes, also from a server that speaks
 * first. `methods` and `paths` (prefixes of the decoded path: "/v1/", not "/v1x") make a rule about HTTP requests:
 * where the gate cannot see HTTP, such an allow does not match, and such a deny denies all. A cidr rule judges
 * connections to addresses, and the addresses that names resolve to. A cidr allow opens private addresses only when
 * the range is private itself: 0.0.0.0/0 does not. A domain rule never lets a private address through: for that, a
 * cidr allow must have the address that the name resolved to.
 */
#ifndef BRIG_GATE_POLICY_H
#define BRIG_GATE_POLICY_H

#include <brig.h>

#include "base/buf.h"
#include "codec/dns/dns.h"
#include "codec/json/json_read.h"
#include "gate/address.h"

#define POLICY_RULES_MAX 1024u
#define POLICY_PORTS_MAX \
    64u /* The distinct ports that need a listener. More of them, or a wider range, need any-port mode. */
#define POLICY_JSON_MAX (256u << 10)

struct policy;

struct policy_limits {            /* 0 means that no limit is set. */
    uint64_t bytes_in, bytes_out; /* For the whole life of the sandbox; in is towards the sandbox. */
    uint64_t bps;                 /* Bytes per second in both directions together. */
    uint64_t connections;         /* The connections that are open at once; the default is 256. */
    uint64_t connections_per_second;
    uint64_t lifetime_ms; /* The longest life of one connection. */
};

/*
 * Compiles a JSON object. A refusal names the member and the rule: "rules[2].domain: ...". The caller gets one
 * reference.
 */
int policy_compile(const struct json_value *json, struct policy **ret, struct brig_err *err) MUST_CHECK;
int policy_compile_text(const char *text, size_t len, struct policy **ret, struct brig_err *err) MUST_CHECK;
/*
 * Compiles json on top of base, which may be NULL. The rules of json follow those of base; everything else in json
 * replaces what base says. json may have `extends` and `learn`, which the caller handles.
 */
int policy_compile_onto(const struct policy *base, const struct json_value *json, struct policy **ret,
                        struct brig_err *err) MUST_CHECK;
/*
 * Brings a host name as people write it (UTF-8, any case) into the form that rules have: dns_name_canonical() after
 * IDNA. Returns a negative errno if it is no name, or an address.
 */
int policy_name(const char *text, char out[DNS_NAME_MAX]) MUST_CHECK;
int policy_port(const char *text, size_t len, uint16_t *ret) MUST_CHECK; /* 1 to 65535, in digits; or -EINVAL */
struct policy *policy_ref(struct policy *policy);
void policy_unref(struct policy *policy); /* policy may be NULL. */
/* Writes the canonical JSON: names are normalised and defaults are written out. Compiling it gives the same policy. */
int policy_put_json(const struct policy *policy, struct buf *out) MUST_CHECK;
const struct policy_limits *policy_limits(const struct policy *policy);

/*
 * Says which ports need listeners. They are in ascending order and always include 80 and 443, so that refusals there
 * are seen; 53 is always there and not among them. Returns how many there are, or sets *ret_any_port.
 */
size_t policy_ports(const struct policy *policy, uint16_t ports[POLICY_PORTS_MAX], bool *ret_any_port);

/* ---- judging ----------------------------------------------------------------------------------------------- */

enum policy_seen {
    POLICY_SEEN_NOTHING, /* Before the first byte: would anything be allowed there? */
    POLICY_SEEN_TLS,     /* TLS that the gate does not open. */
    POLICY_SEEN_HTTP,    /* A request; method and path are set. */
    POLICY_SEEN_OTHER,   /* Other bytes, or no bytes before the server spoke. */
};
enum policy_own { POLICY_OWN_NO, POLICY_OWN_YES, POLICY_OWN_UNKNOWN }; /* Does the address belong to this host? */
struct policy_question {
    const char *name; /* The canonical name. NULL for a connection to an address that stands for no name. */
    /* The address that the name resolved to, or the wanted one. NULL if it is not known yet. */
    const struct gate_addr *addr;
    uint16_t port;
    enum policy_seen seen;
    const char *method, *path; /* path is as it was sent, up to '?'. */
    /*
     * SEEN_HTTP: the request was inside TLS that the gate opened. Then a rule with the protocol "tls" matches it too.
     */
    bool opened_tls;
    /* For addr: YES and UNKNOWN are refused as private, unless a cidr allow is exactly that address. */
    enum policy_own own;
};
struct policy_answer {
    bool allow;
    int rule;      /* The index in `rules`; -1 for the default, -2 for a built-in rule (private addresses). */
    char why[160]; /* "rule 3 (allow *.x.org:443)", "default deny", "10.0.0.1 is private, and no cidr rule names it" */
};
/*
 * Judges a question. A deny wins. With a name and no address the rules of the name decide. With both (before the dial),
 * cidr denies count too, and a private address is refused unless a cidr allow names it. With an address alone, cidr
 * rules decide, then the default; private addresses are refused unless a cidr allow names them. SEEN_NOTHING answers
 * "allow" if some way of speaking would be allowed.
 */
void policy_judge(const struct policy *policy, const struct policy_question *question, struct policy_answer *ret);
/* May this name be resolved at all (on any port)? */
bool policy_knows_name(const struct policy *policy, const char *name);
/* Must bytes be looked at before the dial, or may the server speak first (protocol "tcp")? */
bool policy_raw(const struct policy *policy, const char *name, const struct gate_addr *addr, uint16_t port);
bool policy_allows_ech(const struct policy *policy);
bool policy_allows_no_sni(const struct policy *policy);

/* ---- presets ----------------------------------------------------------------------------------------------- */

/*
 * Writes the JSON text of a preset: "none", "open" or "packages". packages is the text of packages_rules(), or NULL for
 * the well-known indexes alone. Returns -ENOENT if there is no such name.
 */
int policy_preset(const char *name, const char *packages, struct buf *out, struct brig_err *err) MUST_CHECK;

/*
 * packages.c (libc only): writes a JSON array of rules for the indexes that this host's pip, npm and apt configuration
 * names, and for the public ones. It reads files below root_fd, `home` (or NULL) and the environment: PIP_INDEX_URL,
 * PIP_EXTRA_INDEX_URL, UV_INDEX_URL, npm_config_registry, ...
 */
int packages_rules(int root_fd, const char *home, char *const *env, struct buf *out, struct brig_err *err) MUST_CHECK;

/* ---- learning ---------------------------------------------------------------------------------------------- */

/*
 * learn.c (libc only): makes a minimal policy from what was tried (name or address, port, seen). The JSON is sorted and
 * has no repetition.
 */
struct learn;
int learn_create(struct learn **ret) MUST_CHECK;
void learn_destroy(struct learn *learn);
/* Returns -ENOSPC when the list is full. */
int learn_add(struct learn *learn, const char *name_or_address, uint16_t port, enum policy_seen seen) MUST_CHECK;
int learn_put_json(const struct learn *learn, struct buf *out) MUST_CHECK;

#endif
