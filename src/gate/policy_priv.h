/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_priv.h: a compiled policy, for the policy*.c files alone.
 *
 *   rules[]       in the order of the JSON; messages name a rule by its index
 *   heads[hash]   the first rule of a chain (by rule->next) of domains with that hash. Exact and wildcard names
 *                 are in one table: a name is looked up as it is, then each of its parents as a wildcard
 *   cidrs         a chain through the rules about addresses, which are looked at one by one
 */
#ifndef BRIG_GATE_POLICY_PRIV_H
#define BRIG_GATE_POLICY_PRIV_H

#include "gate/policy.h"

#define POLICY_LIST_MAX 64u /* The most ports, methods or paths of one rule. */
#define POLICY_PATH_MAX 1024u
#define POLICY_METHOD_MAX 32u
#define POLICY_NONE (-1)

enum rule_protocol { RULE_WEB /* TLS or HTTP */, RULE_TLS, RULE_HTTP, RULE_TCP, RULE_PROTOCOL_MAX };

struct rule_ports { /* Both ends belong to the range. */
    uint16_t first, last;
};

struct policy_rule {
    bool allow, is_cidr, wildcard, any_port;
    enum rule_protocol protocol;
    char *name; /* The canonical name; for a wildcard what follows "*."; NULL if is_cidr. */
    struct gate_cidr cidr;
    struct rule_ports ports[POLICY_LIST_MAX]; /* In ascending order, with gaps between them; none if any_port. */
    size_t n_ports;
    char **methods, **paths;
    size_t n_methods, n_paths;
    int next;
};

struct policy {
    unsigned refs; /* Only one thread uses it. */
    bool default_allow, ech, no_sni;
    struct policy_limits limits;
    struct policy_rule *rules;
    size_t n_rules;
    int *heads; /* n_heads is a power of two. NULL without domain rules. */
    size_t n_heads;
    int cidrs;
};

/* policy.c */
int policy_index(struct policy *policy) MUST_CHECK;
/* Returns the first rule of the chain in which this name would be. The caller compares name and wildcard. */
int policy_chain(const struct policy *policy, const char *name);
bool rule_has_port(const struct policy_rule *rule, uint16_t port);
/* Writes "allow *.x.org:443"; a text that is too long is cut. */
void rule_text(const struct policy_rule *rule, char *out, size_t size);

/*
 * policy_path.c: decodes the path of a request once, so that prefixes can be compared with it. Returns -EINVAL if it
 * could mean something else to the server.
 */
int policy_path_decode(const char *path, char *out, size_t size) MUST_CHECK;
bool policy_path_under(const char *path, const char *prefix);
/*
 * Does a path (of a rule, or a decoded one) have dot segments, empty segments, backslashes, or escapes that are left?
 */
bool policy_path_tricky(const char *path);

extern const char *const rule_protocol_names[RULE_PROTOCOL_MAX]; /* The entry of RULE_WEB is NULL. */

#endif
