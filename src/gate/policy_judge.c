/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_judge.c: decides what a policy allows. Theory of operation:
 *
 * A question is judged in one or more *modes*, the ways of speaking that the gate can tell apart: TLS that it does not
 * open, an HTTP request, other bytes. What was seen selects one mode. Before the first byte (POLICY_SEEN_NOTHING) all
 * three are judged, and one that is allowed is enough. For every mode the first deny that matches and the first allow
 * are kept:
 *
 *     allowed  =  no deny
 *                 and  (an allow, or default allow)
 *                 and  (a public address, or a cidr allow that names the private one)
 *
 * An exact name is one look-up; a wildcard is one more for each parent of the name. Rules about addresses are walked
 * one by one.
 *
 * Where no request is visible, a rule with methods or paths is decided for safety: an allow does not match, a deny
 * does. A deny without protocol denies every mode. An allow without protocol allows TLS and HTTP, not other bytes.
 *
 * A range *names* a private address only if the range is private itself: "0.0.0.0/0" does not open the metadata
 * service. The host's own public addresses count as private, because its services trust connections from there; only a
 * cidr of exactly that address names one. A deny of an IPv4 range also holds for IPv6 addresses that are translated to
 * it (NAT64, 6to4); otherwise there would be a way around the deny.
 */

#include "base/str.h"
#include "gate/policy.h"
#include "gate/policy_priv.h"

#define PATH_MAX_DECODED 8192u

enum mode { MODE_TLS, MODE_HTTP, MODE_OTHER, MODE_MAX };

struct verdict {
    const struct policy *policy;
    const struct policy_question *q;
    const char *private_why;                              /* of the address; NULL when public or unknown */
    int allow[MODE_MAX], deny[MODE_MAX], named[MODE_MAX]; /* rules, or POLICY_NONE */
    int near;       /* an allow for this name or address that does not match otherwise */
    int path_state; /* 0: not decoded yet, 1: decoded, -1: tricky */
    char path[PATH_MAX_DECODED];
};

/* ---- the rules of a name ------------------------------------------------------------------------------ */

struct walk {
    const struct policy *policy;
    const char *name; /* now: the name itself, then its parents */
    bool parent;
    int at;
};

static struct walk walk_begin(const struct policy *policy, const char *name)
{
    return (struct walk){policy, name, false, policy_chain(policy, name)};
}

static int walk_next(struct walk *walk)
{
    for (;;) {
        while (walk->at != POLICY_NONE) {
            int found = walk->at;
            const struct policy_rule *rule = &walk->policy->rules[found];
            walk->at = rule->next;
            if (rule->wildcard == walk->parent && str_eq(rule->name, walk->name))
                return found;
        }
        const char *dot = strchr(walk->name, '.');
        if (!dot)
            return POLICY_NONE;
        walk->name = dot + 1;
        walk->parent = true;
        walk->at = policy_chain(walk->policy, walk->name);
    }
}

/* ---- one rule ----------------------------------------------------------------------------------------- */

static bool speaks(const struct policy_rule *rule, enum mode mode, bool opened_tls)
{
    switch (rule->protocol) {
    case RULE_TLS: return mode == MODE_TLS || (mode == MODE_HTTP && opened_tls);
    case RULE_HTTP: return mode == MODE_HTTP;
    case RULE_TCP: return true;
    default: return mode != MODE_OTHER || !rule->allow;
    }
}

static bool has_method(const struct policy_rule *rule, const char *method)
{
    for (size_t i = 0; i < rule->n_methods; i++) {
        if (str_eq(rule->methods[i], method))
            return true;
    }
    return rule->n_methods == 0;
}

static bool has_path(struct verdict *v, const struct policy_rule *rule)
{
    if (rule->n_paths == 0)
        return true;
    if (v->path_state == 0)
        v->path_state = v->q->path && policy_path_decode(v->q->path, v->path, sizeof v->path) == 0 ? 1 : -1;
    if (v->path_state < 0)
        return !rule->allow;
    for (size_t i = 0; i < rule->n_paths; i++) {
        if (policy_path_under(v->path, rule->paths[i]))
            return true;
    }
    return false;
}

static bool covers(struct verdict *v, const struct policy_rule *rule, enum mode mode)
{
    bool conditional = rule->n_methods > 0 || rule->n_paths > 0;

    if (conditional && mode != MODE_HTTP)
        return !rule->allow;
    if (!speaks(rule, mode, v->q->opened_tls))
        return false;
    if (!conditional)
        return true;
    if (v->q->seen != POLICY_SEEN_HTTP)
        return rule->allow; /* some request would be allowed; some request would not be denied */
    if (!v->q->method)
        return !rule->allow;
    return has_method(rule, v->q->method) && has_path(v, rule);
}

static void take(struct verdict *v, int index, int slot[MODE_MAX])
{
    for (int mode = 0; mode < MODE_MAX; mode++) {
        if (slot[mode] == POLICY_NONE && covers(v, &v->policy->rules[index], (enum mode)mode))
            slot[mode] = index;
    }
}

static void take_name_rules(struct verdict *v)
{
    struct walk walk = walk_begin(v->policy, v->q->name);

    for (int i = walk_next(&walk); i != POLICY_NONE; i = walk_next(&walk)) {
        const struct policy_rule *rule = &v->policy->rules[i];
        if (rule->allow && v->near == POLICY_NONE)
            v->near = i;
        if (rule_has_port(rule, v->q->port))
            take(v, i, rule->allow ? v->allow : v->deny);
    }
}

/* ---- addresses ---------------------------------------------------------------------------------------- */

static void take_address_rules(struct verdict *v)
{
    struct gate_addr inner;
    const struct gate_addr *addr = v->q->addr;
    bool wraps = gate_addr_translated(addr, &inner);

    for (int i = v->policy->cidrs; i != POLICY_NONE; i = v->policy->rules[i].next) {
        const struct policy_rule *rule = &v->policy->rules[i];
        bool has = gate_cidr_has(&rule->cidr, addr);
        if (!rule->allow) {
            if ((has || (wraps && gate_cidr_has(&rule->cidr, &inner))) && rule_has_port(rule, v->q->port))
                take(v, i, v->deny);
            continue;
        }
        if (!has || gate_cidr_is_v4(&rule->cidr) != gate_addr_is_v4(addr))
            continue;
        if (v->near == POLICY_NONE && !v->q->name)
            v->near = i;
        if (!rule_has_port(rule, v->q->port))
            continue;
        if (!v->q->name)
            take(v, i, v->allow);
        bool exact = v->q->own != POLICY_OWN_NO && rule->cidr.bits == 128;
        if (v->private_why && (gate_cidr_private(&rule->cidr) || exact))
            take(v, i, v->named);
    }
}

/* ---- the answer --------------------------------------------------------------------------------------- */

static bool mode_asked(const struct verdict *v, int mode)
{
    switch (v->q->seen) {
    case POLICY_SEEN_TLS: return mode == MODE_TLS;
    case POLICY_SEEN_HTTP: return mode == MODE_HTTP;
    case POLICY_SEEN_OTHER: return mode == MODE_OTHER;
    default: return true;
    }
}

static bool mode_allowed(const struct verdict *v, int mode, bool despite_private)
{
    return v->deny[mode] == POLICY_NONE && (v->allow[mode] != POLICY_NONE || v->policy->default_allow) &&
           (despite_private || !v->private_why || v->named[mode] != POLICY_NONE);
}

static const char *own_why(enum policy_own own)
{
    switch (own) {
    case POLICY_OWN_NO: return NULL;
    case POLICY_OWN_YES: return "this host's own";
    default: return "not known to be another host's (the kernel tells no route)";
    }
}

static void collect(struct verdict *v, const struct policy *policy, const struct policy_question *question)
{
    v->policy = policy;
    v->q = question;
    v->private_why = question->addr ? gate_addr_private(question->addr) : NULL;
    if (question->addr && !v->private_why)
        v->private_why = own_why(question->own);
    v->near = POLICY_NONE;
    v->path_state = 0;
    for (int mode = 0; mode < MODE_MAX; mode++)
        v->allow[mode] = v->deny[mode] = v->named[mode] = POLICY_NONE;
    if (question->name)
        take_name_rules(v);
    if (question->addr)
        take_address_rules(v);
}

static void say_rule(const struct verdict *v, int rule, struct policy_answer *ret)
{
    char text[128];

    ret->rule = rule;
    rule_text(&v->policy->rules[rule], text, sizeof text);
    snprintf(ret->why, sizeof ret->why, "rule %d (%s)", rule, text);
}

static void say_private(const struct verdict *v, struct policy_answer *ret)
{
    struct gate_addr bare = *v->q->addr;
    char text[GATE_ADDR_TEXT];

    bare.port = 0;
    gate_addr_text(&bare, text);
    ret->rule = -2;
    snprintf(ret->why, sizeof ret->why, "%s is %s, and no cidr rule names it", text, v->private_why);
}

/* Nothing allows it. The rule that nearly does helps whoever wrote the policy. */
static void say_default(const struct verdict *v, struct policy_answer *ret)
{
    char text[96];

    ret->rule = -1;
    if (v->near == POLICY_NONE) {
        snprintf(ret->why, sizeof ret->why, "default deny");
        return;
    }
    rule_text(&v->policy->rules[v->near], text, sizeof text);
    snprintf(ret->why, sizeof ret->why, "default deny; rule %d (%s) does not match%s", v->near, text,
             v->path_state < 0 ? ": unclear path" : "");
}

static void decide(const struct verdict *v, struct policy_answer *ret)
{
    int denied = POLICY_NONE;
    bool only_private = false;

    for (int mode = 0; mode < MODE_MAX; mode++) {
        if (!mode_asked(v, mode))
            continue;
        if (mode_allowed(v, mode, false)) {
            ret->allow = true;
            if (v->allow[mode] != POLICY_NONE)
                say_rule(v, v->allow[mode], ret);
            else
                ret->rule = -1, snprintf(ret->why, sizeof ret->why, "default allow");
            return;
        }
        only_private = only_private || mode_allowed(v, mode, true);
        if (denied == POLICY_NONE)
            denied = v->deny[mode];
    }
    if (only_private || (denied == POLICY_NONE && v->private_why && !v->q->name))
        say_private(v, ret);
    else if (denied != POLICY_NONE)
        say_rule(v, denied, ret);
    else
        say_default(v, ret);
}

void policy_judge(const struct policy *policy, const struct policy_question *question, struct policy_answer *ret)
{
    struct verdict v;

    *ret = (struct policy_answer){.allow = false, .rule = -2};
    if (question->port == 0 || (!question->name && !question->addr)) {
        snprintf(ret->why, sizeof ret->why, "no destination");
        return;
    }
    collect(&v, policy, question);
    decide(&v, ret);
}

bool policy_raw(const struct policy *policy, const char *name, const struct gate_addr *addr, uint16_t port)
{
    const struct policy_question question = {.name = name, .addr = addr, .port = port, .seen = POLICY_SEEN_NOTHING};
    struct verdict v;

    if (port == 0 || (!name && !addr))
        return false;
    collect(&v, policy, &question);
    /* A deny of one way of speaking must see how it is spoken. */
    return mode_allowed(&v, MODE_OTHER, false) && v.deny[MODE_TLS] == POLICY_NONE && v.deny[MODE_HTTP] == POLICY_NONE;
}

/* ---- names on any port -------------------------------------------------------------------------------- */

struct port_set {
    uint64_t bits[65536 / 64];
};

static void set_range(struct port_set *set, uint32_t first, uint32_t last, bool value)
{
    for (uint32_t port = first; port <= last;) {
        if (port % 64 == 0 && port + 63 <= last) {
            set->bits[port / 64] = value ? UINT64_MAX : 0;
            port += 64;
            continue;
        }
        if (value)
            set->bits[port / 64] |= UINT64_C(1) << port % 64;
        else
            set->bits[port / 64] &= ~(UINT64_C(1) << port % 64);
        port++;
    }
}

static void set_rule(struct port_set *set, const struct policy_rule *rule)
{
    if (rule->any_port)
        set_range(set, 1, UINT16_MAX, rule->allow);
    for (size_t i = 0; i < rule->n_ports; i++)
        set_range(set, rule->ports[i].first, rule->ports[i].last, rule->allow);
}

static bool any_port_left(struct verdict *v, enum mode mode)
{
    struct port_set set = {.bits = {0}};

    if (v->policy->default_allow)
        set_range(&set, 1, UINT16_MAX, true);
    for (int denies = 0; denies < 2; denies++) {
        struct walk walk = walk_begin(v->policy, v->q->name);
        for (int i = walk_next(&walk); i != POLICY_NONE; i = walk_next(&walk)) {
            const struct policy_rule *rule = &v->policy->rules[i];
            if (rule->allow == (denies == 0) && covers(v, rule, mode))
                set_rule(&set, rule);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(set.bits); i++) {
        if (set.bits[i])
            return true;
    }
    return false;
}

bool policy_knows_name(const struct policy *policy, const char *name)
{
    const struct policy_question question = {.name = name, .seen = POLICY_SEEN_NOTHING};
    struct walk walk = walk_begin(policy, name);
    bool allowed = policy->default_allow, denied = false;
    struct verdict v;

    for (int i = walk_next(&walk); i != POLICY_NONE; i = walk_next(&walk)) {
        allowed = allowed || policy->rules[i].allow;
        denied = denied || !policy->rules[i].allow;
    }
    if (!allowed || !denied)
        return allowed;
    v.policy = policy;
    v.q = &question;
    v.path_state = 0;
    return any_port_left(&v, MODE_TLS) || any_port_left(&v, MODE_HTTP) || any_port_left(&v, MODE_OTHER);
}
