/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy_read.c: compiles JSON into a policy. It is strict: an unknown member, a name that could be read in two ways,
 * or a rule that can never match is refused, and the message says where ("rules[2].domain: ..."). Host names are
 * brought into the form of dns_name_canonical() here, once, and international names into their A-label (IDNA 2008,
 * non-transitional, RFC 5891). Later code never folds, trims or decodes a name.
 */
#include <arpa/inet.h>
#include <idn2.h>
#include <inttypes.h>
#include <math.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/json/json_read.h"
#include "gate/policy.h"
#include "gate/policy_priv.h"

#define CONNECTIONS_DEFAULT 256u
#define LIFETIME_MAX_MS (UINT64_C(31536000) * 1000)
#define VALUES_MAX 65536u

/* Where we are, for messages: rules[rule].member, or member. */
struct place {
    struct brig_err *err;
    int rule;
};

static int refuse(const struct place *place, const char *member, const char *why)
{
    if (place->rule >= 0 && *member)
        return err_usage(place->err, "rules[%d].%s: %s", place->rule, member, why);
    if (place->rule >= 0)
        return err_usage(place->err, "rules[%d]: %s", place->rule, why);
    return err_usage(place->err, "%s%s%s", member, *member ? ": " : "", why);
}

static bool is_text(const struct json_value *v)
{
    return v->type == JSON_STRING && !memchr(v->string, '\0', v->len);
}

static bool is_word(const struct json_value *v, const char *word)
{
    return is_text(v) && str_eq(v->string, word);
}

static bool known(const char *key, const char *const *members, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(key, members[i]))
            return true;
    }
    return false;
}

static int only_members(const struct place *place, const char *box, const struct json_value *object,
                        const char *const *members, size_t n)
{
    char member[96];

    for (const struct json_value *m = object->first; m; m = m->next) {
        if (known(m->key, members, n))
            continue;
        snprintf(member, sizeof member, "%s%s%.64s", box, *box ? "." : "", m->key);
        return refuse(place, member, "unknown member");
    }
    return 0;
}

/* "allow" or "deny"; a missing one leaves *ret. */
static int read_action(const struct place *place, const char *member, const struct json_value *v, bool *ret)
{
    if (!v)
        return 0;
    bool allow = is_word(v, "allow");
    if (!allow && !is_word(v, "deny"))
        return refuse(place, member, "must be \"allow\" or \"deny\"");
    *ret = allow;
    return 0;
}

/* ---- names -------------------------------------------------------------------------------------------- */

static bool is_address(const char *text)
{
    char inner[DNS_NAME_MAX + 2];
    struct in6_addr v6;
    struct in_addr v4;
    size_t len = strlen(text);

    if (len >= 2 && text[0] == '[' && text[len - 1] == ']')
        text++, len -= 2;
    if (len == 0 || len >= sizeof inner)
        return false;
    memcpy(inner, text, len);
    inner[len] = '\0';
    if (inner[len - 1] == '.')
        inner[len - 1] = '\0';
    inner[strcspn(inner, "/%")] = '\0';
    return inet_pton(AF_INET6, inner, &v6) == 1 || inet_aton(inner, &v4) == 1;
}

/* text (UTF-8) -> the form that is compared. */
int policy_name(const char *text, char out[DNS_NAME_MAX])
{
    bool ascii = true;
    char *label = NULL;

    for (const char *at = text; *at; at++)
        ascii = ascii && (unsigned char)*at < 0x80;
    if (ascii)
        return dns_name_canonical(text, strlen(text), out);
    int r = idn2_lookup_u8((const uint8_t *)text, (uint8_t **)&label, IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT);
    if (r != IDN2_OK)
        return r == IDN2_MALLOC ? -ENOMEM : -EINVAL;
    r = dns_name_canonical(label, strlen(label), out);
    if (r < 0 && is_address(label))
        r = -EADDRNOTAVAIL;
    idn2_free(label);
    return r;
}

static int read_name(const struct place *place, const char *text, char out[DNS_NAME_MAX])
{
    int r = policy_name(text, out);

    if (r == -ENOMEM)
        return err_nomem(place->err);
    if (r == -EADDRNOTAVAIL || (r < 0 && is_address(text)))
        return refuse(place, "domain", "this is an IP address: use \"cidr\"");
    return r < 0 ? refuse(place, "domain", "not a host name") : 0;
}

static int read_domain(const struct place *place, const struct json_value *v, struct policy_rule *rule)
{
    char name[DNS_NAME_MAX];

    if (!is_text(v) || v->len == 0)
        return refuse(place, "domain", "must be a host name, or \"*.\" and one");
    if (str_eq(v->string, "*"))
        return refuse(place, "domain", "\"*\" is every name: use \"default\": \"allow\" for that");
    rule->wildcard = str_starts(v->string, "*.");
    const char *text = rule->wildcard ? v->string + 2 : v->string;
    if (strchr(text, '*'))
        return refuse(place, "domain", "\"*\" can only be the whole first label: \"*.example.com\"");
    int r = read_name(place, text, name);
    if (r < 0)
        return r;
    rule->name = mem_strdup(name);
    return rule->name ? 0 : err_nomem(place->err);
}

static int read_cidr(const struct place *place, const struct json_value *v, struct policy_rule *rule)
{
    struct brig_err why;

    if (!is_text(v))
        return refuse(place, "cidr", "must be a string like \"10.0.0.0/8\"");
    if (gate_cidr_parse(v->string, &rule->cidr, &why) < 0)
        return refuse(place, "cidr", why.message);
    rule->is_cidr = true;
    return 0;
}

/* ---- ports -------------------------------------------------------------------------------------------- */

int policy_port(const char *text, size_t len, uint16_t *ret)
{
    char digits[6];
    uint32_t port;

    if (len == 0 || len >= sizeof digits)
        return -EINVAL;
    memcpy(digits, text, len);
    digits[len] = '\0';
    if (parse_u32(digits, &port) < 0 || port == 0 || port > UINT16_MAX)
        return -EINVAL;
    *ret = (uint16_t)port;
    return 0;
}

static int read_port(const struct place *place, const struct json_value *v, struct rule_ports *ret)
{
    static const char rule[] = "a port is 1 to 65535, a range a string like \"8000-8010\"";

    if (v->type == JSON_NUMBER) {
        if (!v->integer || v->i64 < 1 || v->i64 > UINT16_MAX)
            return refuse(place, "ports", rule);
        ret->first = ret->last = (uint16_t)v->i64;
        return 0;
    }
    const char *dash = is_text(v) ? strchr(v->string, '-') : NULL;
    if (!dash || policy_port(v->string, (size_t)(dash - v->string), &ret->first) < 0 ||
        policy_port(dash + 1, strlen(dash + 1), &ret->last) < 0)
        return refuse(place, "ports", rule);
    return ret->first <= ret->last ? 0 : refuse(place, "ports", "the range ends before it begins");
}

static int by_first(const void *a, const void *b)
{
    return (int)((const struct rule_ports *)a)->first - (int)((const struct rule_ports *)b)->first;
}

/* Sorted, and what overlaps or touches is one. */
static void merge_ports(struct policy_rule *rule)
{
    size_t n = 0;

    qsort(rule->ports, rule->n_ports, sizeof rule->ports[0], by_first);
    for (size_t i = 1; i < rule->n_ports; i++) {
        struct rule_ports *last = &rule->ports[n];
        if (rule->ports[i].first <= (uint32_t)last->last + 1) {
            if (rule->ports[i].last > last->last)
                last->last = rule->ports[i].last;
        } else {
            rule->ports[++n] = rule->ports[i];
        }
    }
    rule->n_ports = n + 1;
}

static int read_ports(const struct place *place, const struct json_value *v, struct policy_rule *rule)
{
    if ((!v && !rule->allow) || (v && is_word(v, "any"))) { /* what is not said must not weaken a deny */
        rule->any_port = true;
        return 0;
    }
    if (!v) {
        rule->ports[0] = (struct rule_ports){80, 80};
        rule->ports[1] = (struct rule_ports){443, 443};
        rule->n_ports = 2;
        return 0;
    }
    if (v->type != JSON_ARRAY || v->count == 0 || v->count > POLICY_LIST_MAX)
        return refuse(place, "ports", "must be \"any\" or an array of 1 to 64 ports and ranges");
    for (const struct json_value *item = v->first; item; item = item->next) {
        int r = read_port(place, item, &rule->ports[rule->n_ports]);
        if (r < 0)
            return r;
        rule->n_ports++;
    }
    merge_ports(rule);
    return 0;
}

/* ---- HTTP --------------------------------------------------------------------------------------------- */

static const char *method_wrong(const char *text)
{
    if (strlen(text) > POLICY_METHOD_MAX || *text == '\0')
        return "a method is a word like \"GET\", of at most 32 characters";
    for (const char *at = text; *at; at++) { /* token of RFC 9110, 5.6.2 */
        bool letter = ascii_is_alnum(*at);
        if (!letter && !strchr("!#$%&'*+-.^_`|~", *at))
            return "a method is a word like \"GET\"";
    }
    return NULL;
}

static const char *path_wrong(const char *text)
{
    if (*text != '/')
        return "a path begins with \"/\"";
    if (strlen(text) > POLICY_PATH_MAX)
        return "a path has at most 1024 bytes";
    if (strpbrk(text, "?#%"))
        return "a path has no query, and is written without escapes: it is compared with the decoded path";
    if (policy_path_tricky(text))
        return "a path has no \".\" or \"..\" segments, no \"//\", no \"\\\" and no control characters";
    return NULL;
}

static int read_list(const struct place *place, const char *member, const struct json_value *v,
                     const char *(*wrong)(const char *), char ***ret, size_t *ret_n)
{
    if (!v)
        return 0;
    if (v->type != JSON_ARRAY || v->count == 0 || v->count > POLICY_LIST_MAX)
        return refuse(place, member, "must be an array of 1 to 64 strings");
    *ret = mem_zalloc(v->count * sizeof **ret);
    if (!*ret)
        return err_nomem(place->err);
    for (const struct json_value *item = v->first; item; item = item->next) {
        const char *why = is_text(item) ? wrong(item->string) : "must be an array of strings";
        if (why)
            return refuse(place, member, why);
        (*ret)[*ret_n] = mem_strdup(item->string);
        if (!(*ret)[*ret_n])
            return err_nomem(place->err);
        (*ret_n)++;
    }
    return 0;
}

static int read_protocol(const struct place *place, const struct json_value *v, struct policy_rule *rule)
{
    if (v) {
        for (int i = RULE_TLS; i < RULE_PROTOCOL_MAX; i++) {
            if (is_word(v, rule_protocol_names[i]))
                rule->protocol = (enum rule_protocol)i;
        }
        if (rule->protocol == RULE_WEB)
            return refuse(place, "protocol", "must be \"tls\", \"http\" or \"tcp\"");
    }
    if ((rule->n_methods > 0 || rule->n_paths > 0) && (rule->protocol == RULE_TLS || rule->protocol == RULE_TCP))
        return refuse(place, "protocol", "methods and paths are about HTTP: \"http\", or none");
    return 0;
}

/* ---- rules -------------------------------------------------------------------------------------------- */

static int read_rule(const struct place *place, const struct json_value *v, struct policy_rule *rule)
{
    static const char *const members[] = {"action", "domain", "cidr", "ports", "protocol", "methods", "paths"};
    const struct json_value *action = json_get(v, "action"), *domain = json_get(v, "domain"),
                            *cidr = json_get(v, "cidr");
    int r;

    if (v->type != JSON_OBJECT)
        return refuse(place, "", "must be an object");
    if ((r = only_members(place, "", v, members, ARRAY_SIZE(members))) < 0)
        return r;
    if (!action)
        return refuse(place, "action", "is missing: \"allow\" or \"deny\"");
    if (!domain == !cidr)
        return refuse(place, "", domain ? "has domain and cidr: make two rules" : "needs domain or cidr");
    if ((r = read_action(place, "action", action, &rule->allow)) < 0)
        return r;
    r = domain ? read_domain(place, domain, rule) : read_cidr(place, cidr, rule);
    if (r < 0 || (r = read_ports(place, json_get(v, "ports"), rule)) < 0)
        return r;
    if ((r = read_list(place, "methods", json_get(v, "methods"), method_wrong, &rule->methods, &rule->n_methods)) < 0)
        return r;
    if ((r = read_list(place, "paths", json_get(v, "paths"), path_wrong, &rule->paths, &rule->n_paths)) < 0)
        return r;
    return read_protocol(place, json_get(v, "protocol"), rule);
}

static int read_rules(struct policy *policy, const struct json_value *v, struct brig_err *err)
{
    struct place place = {err, -1};

    if (!v)
        return 0;
    if (v->type != JSON_ARRAY)
        return refuse(&place, "rules", "must be an array");
    if (policy->n_rules + v->count > POLICY_RULES_MAX)
        return refuse(&place, "rules", "a policy has at most 1024");
    if (v->count == 0)
        return 0;
    struct policy_rule *rules = mem_realloc_array(policy->rules, policy->n_rules + v->count, sizeof *rules);
    if (!rules)
        return err_nomem(err);
    policy->rules = rules;
    place.rule = 0;
    for (const struct json_value *item = v->first; item; item = item->next, place.rule++) {
        struct policy_rule *rule = &rules[policy->n_rules++]; /* counted before it is whole: then it is freed */
        *rule = (struct policy_rule){.next = POLICY_NONE};
        int r = read_rule(&place, item, rule);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the rest ----------------------------------------------------------------------------------------- */

static int read_limit(const struct place *place, const char *member, bool is_size, uint64_t min, uint64_t max,
                      const struct json_value *v, uint64_t *ret)
{
    char name[64], why[96];
    uint64_t value = 0;

    if (!v)
        return 0;
    if (v->type == JSON_NUMBER && v->integer && v->i64 > 0)
        value = (uint64_t)v->i64;
    else if (!is_size || !is_text(v) || brig_parse_size(v->string, &value) < 0)
        value = 0;
    if (value >= min && value <= max) {
        *ret = value;
        return 0;
    }
    snprintf(name, sizeof name, "limits.%s", member);
    snprintf(why, sizeof why, "must be a number from %" PRIu64 " to %" PRIu64 "%s", min, max,
             is_size ? ", or a size like \"10m\"" : "");
    return refuse(place, name, why);
}

static int read_lifetime(const struct place *place, const struct json_value *v, uint64_t *ret_ms)
{
    uint64_t ms = 0;

    if (!v)
        return 0;
    if (v->type == JSON_NUMBER && isfinite(v->number) && v->number > 0 && v->number <= (double)LIFETIME_MAX_MS / 1000)
        ms = (uint64_t)(v->number * 1000 + 1e-6);
    else if (!is_text(v) || brig_parse_duration(v->string, &ms) < 0)
        ms = 0;
    if (ms == 0 || ms > LIFETIME_MAX_MS)
        return refuse(place, "limits.lifetime",
                      "must be between 0.001 and 31536000 seconds, as a number or a string like \"30s\"");
    *ret_ms = ms;
    return 0;
}

static int read_limits(struct policy_limits *limits, const struct json_value *v, struct brig_err *err)
{
    static const char *const members[] = {"net_bytes_in", "net_bytes_out",          "net_bps",
                                          "connections",  "connections_per_second", "lifetime"};
    const uint64_t much = UINT64_C(1) << 62;
    const struct place place = {err, -1};
    int r;

    if (!v)
        return 0;
    if (v->type != JSON_OBJECT)
        return refuse(&place, "limits", "must be an object");
    if ((r = only_members(&place, "limits", v, members, ARRAY_SIZE(members))) < 0 ||
        (r = read_limit(&place, members[0], true, 1, much, json_get(v, members[0]), &limits->bytes_in)) < 0 ||
        (r = read_limit(&place, members[1], true, 1, much, json_get(v, members[1]), &limits->bytes_out)) < 0 ||
        (r = read_limit(&place, members[2], true, 1024, UINT64_C(1) << 40, json_get(v, members[2]), &limits->bps)) <
            0 ||
        (r = read_limit(&place, members[3], false, 1, 65536, json_get(v, members[3]), &limits->connections)) < 0 ||
        (r = read_limit(&place, members[4], false, 1, 1000000, json_get(v, members[4]),
                        &limits->connections_per_second)) < 0)
        return r;
    return read_lifetime(&place, json_get(v, members[5]), &limits->lifetime_ms);
}

static int read_tls(struct policy *policy, const struct json_value *v, struct brig_err *err)
{
    static const char *const members[] = {"ech", "no_sni"};
    const struct place place = {err, -1};
    int r;

    if (!v)
        return 0;
    if (v->type != JSON_OBJECT)
        return refuse(&place, "tls", "must be an object");
    if ((r = only_members(&place, "tls", v, members, ARRAY_SIZE(members))) < 0 ||
        (r = read_action(&place, "tls.ech", json_get(v, "ech"), &policy->ech)) < 0)
        return r;
    return read_action(&place, "tls.no_sni", json_get(v, "no_sni"), &policy->no_sni);
}

/* n of members: without or with what belongs to choosing a policy, not to the policy. */
static int read_policy(struct policy *policy, const struct json_value *json, bool choosing, struct brig_err *err)
{
    static const char *const members[] = {"default", "rules", "tls", "limits", "extends", "learn"};
    const struct place place = {err, -1};
    int r;

    if (!json || json->type != JSON_OBJECT)
        return refuse(&place, "", "a policy must be an object");
    if ((r = only_members(&place, "", json, members, ARRAY_SIZE(members) - (choosing ? 0 : 2))) < 0 ||
        (r = read_action(&place, "default", json_get(json, "default"), &policy->default_allow)) < 0 ||
        (r = read_rules(policy, json_get(json, "rules"), err)) < 0 ||
        (r = read_tls(policy, json_get(json, "tls"), err)) < 0)
        return r;
    return read_limits(&policy->limits, json_get(json, "limits"), err);
}

static int read_text(struct policy *policy, const char *text, size_t len, struct brig_err *err)
{
    AUTO_JSON struct json_doc *doc = NULL;
    int r = json_read(text, len, VALUES_MAX, &doc, err);

    return r < 0 ? r : read_policy(policy, json_root(doc), false, err);
}

static struct policy *policy_new(void)
{
    struct policy *policy = mem_zalloc(sizeof *policy);

    if (!policy)
        return NULL;
    policy->refs = 1;
    policy->limits.connections = CONNECTIONS_DEFAULT;
    policy->cidrs = POLICY_NONE;
    return policy;
}

static int finish(struct policy *policy, int r, struct policy **ret, struct brig_err *err)
{
    if (r == 0 && policy_index(policy) < 0)
        r = err_nomem(err);
    if (r == 0)
        *ret = policy;
    else
        policy_unref(policy);
    return r;
}

int policy_compile(const struct json_value *json, struct policy **ret, struct brig_err *err)
{
    struct policy *policy = policy_new();

    return policy ? finish(policy, read_policy(policy, json, false, err), ret, err) : err_nomem(err);
}

int policy_compile_text(const char *text, size_t len, struct policy **ret, struct brig_err *err)
{
    if (len > POLICY_JSON_MAX)
        return err_set(err, BRIG_E_TOO_LARGE, EMSGSIZE, "a policy has at most %u bytes", POLICY_JSON_MAX);
    struct policy *policy = policy_new();
    return policy ? finish(policy, read_text(policy, text, len, err), ret, err) : err_nomem(err);
}

int policy_compile_onto(const struct policy *base, const struct json_value *json, struct policy **ret,
                        struct brig_err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(4 * POLICY_JSON_MAX);
    struct policy *policy = policy_new();
    int r = 0;

    if (!policy)
        return err_nomem(err);
    if (base) { /* through its own JSON: what is copied is what would be read */
        r = policy_put_json(base, &text);
        r = r < 0 ? err_set(err, BRIG_E_NOMEM, -r, "copy of a policy") : read_text(policy, text.data, text.len, err);
    }
    if (r == 0)
        r = read_policy(policy, json, true, err);
    return finish(policy, r, ret, err);
}
