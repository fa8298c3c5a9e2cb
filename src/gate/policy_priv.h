/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_priv.h: a compiled policy, for the policy*.c files alone.
 *
 *   rules[]          in the order of the JSON; a rule's index is what people are told
 *   heads[hash]      first rule of a chain (by rule->next) whose domains have that hash: exact and wildcard names in
 *                    one table. A name is looked up as it is, then each of its parents as a wildcard
 *   cidrs            a chain through the rules about addresses; they are looked at one by one
 */
#ifndef BRIG_GATE_POLICY_PRIV_H
#define BRIG_GATE_POLICY_PRIV_H

#include "gate/policy.h"

#define POLICY_LIST_MAX 64u /* ports, methods or paths of one rule */
#define POLICY_PATH_MAX 1024u
#define POLICY_METHOD_MAX 32u
#define POLICY_NONE (-1)

enum rule_protocol { RULE_WEB /* TLS or HTTP */, RULE_TLS, RULE_HTTP, RULE_TCP, RULE_PROTOCOL_MAX };

struct rule_ports { /* both ends belong to it */
    uint16_t first, last;
};

struct policy_rule {
    bool allow, is_cidr, wildcard, any_port;
    enum rule_protocol protocol;
    char *name; /* canonical; a wildcard's is what follows "*."; NULL when is_cidr */
    struct gate_cidr cidr;
    struct rule_ports ports[POLICY_LIST_MAX]; /* ascending, never touching; none when any_port */
    size_t n_ports;
    char **methods, **paths;
    size_t n_methods, n_paths;
    int next;
};

struct policy {
    unsigned refs; /* one thread only */
    bool default_allow, ech, no_sni;
    struct policy_limits limits;
    struct policy_rule *rules;
    size_t n_rules;
    int *heads; /* n_heads, a power of two; NULL without domain rules */
    size_t n_heads;
    int cidrs;
};

/* policy.c */
int policy_index(struct policy *policy) MUST_CHECK;
/* The first rule of the chain where this name would be; the caller compares name and wildcard. */
int policy_chain(const struct policy *policy, const char *name);
bool rule_has_port(const struct policy_rule *rule, uint16_t port);
/* "allow *.x.org:443"; cut short where it must be */
void rule_text(const struct policy_rule *rule, char *out, size_t size);
void cidr_text(const struct gate_cidr *cidr, char out[GATE_ADDR_TEXT]);

/* policy_path.c: the path of a request as prefixes are compared with it: decoded once. -EINVAL: it could mean something
 * else to the server. */
int policy_path_decode(const char *path, char *out, size_t size) MUST_CHECK;
bool policy_path_under(const char *path, const char *prefix);
/* Does a path, of a rule or decoded, have dot segments, empty segments, backslashes, or escapes that are left? */
bool policy_path_tricky(const char *path);

extern const char *const rule_protocol_names[RULE_PROTOCOL_MAX]; /* NULL for RULE_WEB */

#endif
