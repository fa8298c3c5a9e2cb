/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c: a compiled policy as an object: its life, its index, and what it says about itself (canonical JSON, ports,
 * one rule as text). policy_read.c makes it and policy_judge.c asks it. Nothing changes after policy_index().
 */
#include "gate/policy.h"

#include <arpa/inet.h>
#include <stdarg.h>

#include "base/mem.h"
#include "codec/json/json.h"
#include "gate/policy_priv.h"

const char *const rule_protocol_names[RULE_PROTOCOL_MAX] = {
    [RULE_TLS] = "tls", [RULE_HTTP] = "http", [RULE_TCP] = "tcp"};

/* ---- its life ----------------------------------------------------------------------------------------- */

static void list_free(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(list[i]);
    mem_free(list);
}

struct policy *policy_ref(struct policy *policy)
{
    policy->refs++;
    return policy;
}

void policy_unref(struct policy *policy)
{
    if (!policy || --policy->refs > 0)
        return;
    for (size_t i = 0; i < policy->n_rules; i++) {
        struct policy_rule *rule = &policy->rules[i];
        mem_free(rule->name);
        list_free(rule->methods, rule->n_methods);
        list_free(rule->paths, rule->n_paths);
    }
    mem_free(policy->rules);
    mem_free(policy->heads);
    mem_free(policy);
}

const struct policy_limits *policy_limits(const struct policy *policy)
{
    return &policy->limits;
}

bool policy_allows_ech(const struct policy *policy)
{
    return policy->ech;
}

bool policy_allows_no_sni(const struct policy *policy)
{
    return policy->no_sni;
}

/* ---- its index ---------------------------------------------------------------------------------------- */

/* FNV-1a. There are at most 1024 rules, so a chain is bounded for all names. */
static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    return hash;
}

int policy_chain(const struct policy *policy, const char *name)
{
    return policy->heads ? policy->heads[name_hash(name) & (policy->n_heads - 1)] : POLICY_NONE;
}

int policy_index(struct policy *policy)
{
    size_t n = 8;

    while (n < 2 * policy->n_rules)
        n *= 2;
    policy->cidrs = POLICY_NONE;
    policy->heads = mem_realloc_array(NULL, n, sizeof *policy->heads);
    if (!policy->heads)
        return -ENOMEM;
    policy->n_heads = n;
    for (size_t i = 0; i < n; i++)
        policy->heads[i] = POLICY_NONE;
    for (size_t i = policy->n_rules; i-- > 0;) { /* backwards: then chains have the order of the rules */
        struct policy_rule *rule = &policy->rules[i];
        int *head = rule->is_cidr ? &policy->cidrs : &policy->heads[name_hash(rule->name) & (n - 1)];
        rule->next = *head;
        *head = (int)i;
    }
    return 0;
}

bool rule_has_port(const struct policy_rule *rule, uint16_t port)
{
    if (rule->any_port)
        return port != 0;
    for (size_t i = 0; i < rule->n_ports && rule->ports[i].first <= port; i++) {
        if (port <= rule->ports[i].last)
            return true;
    }
    return false;
}

/* ---- what it says about itself ------------------------------------------------------------------------ */

static bool cidr_is_v4(const struct gate_cidr *cidr)
{
    struct gate_addr addr = {.port = 0};

    memcpy(addr.ip, cidr->ip, sizeof addr.ip);
    return cidr->bits >= 96 && gate_addr_is_v4(&addr);
}

static void cidr_text(const struct gate_cidr *cidr, char out[GATE_ADDR_TEXT])
{
    bool v4 = cidr_is_v4(cidr);
    char ip[INET6_ADDRSTRLEN] = "";

    if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? cidr->ip + 12 : cidr->ip, ip, sizeof ip))
        ip[0] = '\0'; /* cannot be: the room is enough */
    snprintf(out, GATE_ADDR_TEXT, "%s/%u", ip, v4 ? cidr->bits - 96 : cidr->bits);
}

PRINTF_LIKE(4, 5) static void put(char *out, size_t size, size_t *at, const char *format, ...)
{
    va_list args;

    if (*at + 1 >= size)
        return;
    va_start(args, format);
    int n = vsnprintf(out + *at, size - *at, format, args);
    va_end(args);
    if (n > 0)
        *at = *at + (size_t)n < size ? *at + (size_t)n : size - 1;
}

void rule_text(const struct policy_rule *rule, char *out, size_t size)
{
    char cidr[GATE_ADDR_TEXT] = "";
    size_t at = 0;

    out[0] = '\0';
    if (rule->is_cidr)
        cidr_text(&rule->cidr, cidr);
    put(out, size, &at, "%s %s%.80s:", rule->allow ? "allow" : "deny", rule->wildcard ? "*." : "",
        rule->is_cidr ? cidr : rule->name);
    if (rule->any_port)
        put(out, size, &at, "any");
    for (size_t i = 0; i < rule->n_ports; i++) {
        if (i == 4) {
            put(out, size, &at, ",...");
            break;
        }
        put(out, size, &at, "%s%u", i ? "," : "", (unsigned)rule->ports[i].first);
        if (rule->ports[i].last != rule->ports[i].first)
            put(out, size, &at, "-%u", (unsigned)rule->ports[i].last);
    }
    if (rule->protocol != RULE_WEB)
        put(out, size, &at, " %s", rule_protocol_names[rule->protocol]);
    for (size_t i = 0; i < rule->n_methods && i < 4; i++)
        put(out, size, &at, "%c%s", i ? ',' : ' ', rule->methods[i]);
    if (rule->n_paths > 0)
        put(out, size, &at, " %.40s%s", rule->paths[0], rule->n_paths > 1 ? ",..." : "");
}

static void put_list(struct json *json, const char *key, char *const *list, size_t n)
{
    if (n == 0)
        return;
    json_key_array(json, key);
    for (size_t i = 0; i < n; i++)
        json_string(json, list[i]);
    json_end(json);
}

static void put_ports(struct json *json, const struct policy_rule *rule)
{
    char range[16];

    json_key(json, "ports");
    if (rule->any_port) {
        json_string(json, "any");
        return;
    }
    json_array(json);
    for (size_t i = 0; i < rule->n_ports; i++) {
        if (rule->ports[i].first == rule->ports[i].last) {
            json_u64(json, rule->ports[i].first);
            continue;
        }
        snprintf(range, sizeof range, "%u-%u", (unsigned)rule->ports[i].first, (unsigned)rule->ports[i].last);
        json_string(json, range);
    }
    json_end(json);
}

static void put_rule(struct json *json, const struct policy_rule *rule)
{
    char text[DNS_NAME_MAX + 2];

    json_object(json);
    json_key_string(json, "action", rule->allow ? "allow" : "deny");
    if (rule->is_cidr) {
        cidr_text(&rule->cidr, text);
        json_key_string(json, "cidr", text);
    } else {
        snprintf(text, sizeof text, "%s%s", rule->wildcard ? "*." : "", rule->name);
        json_key_string(json, "domain", text);
    }
    put_ports(json, rule);
    if (rule->protocol != RULE_WEB)
        json_key_string(json, "protocol", rule_protocol_names[rule->protocol]);
    put_list(json, "methods", rule->methods, rule->n_methods);
    put_list(json, "paths", rule->paths, rule->n_paths);
    json_end(json);
}

static void put_limits(struct json *json, const struct policy_limits *limits)
{
    const struct {
        const char *key;
        uint64_t value;
    } members[] = {
        {"net_bytes_in", limits->bytes_in},
        {"net_bytes_out", limits->bytes_out},
        {"net_bps", limits->bps},
        {"connections", limits->connections},
        {"connections_per_second", limits->connections_per_second},
    };

    json_key_object(json, "limits");
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (members[i].value)
            json_key_u64(json, members[i].key, members[i].value);
    }
    if (limits->lifetime_ms)
        json_key(json, "lifetime"), json_thousandths(json, limits->lifetime_ms);
    json_end(json);
}

int policy_put_json(const struct policy *policy, struct buf *out)
{
    struct json json = JSON_INIT(out);

    json_object(&json);
    json_key_string(&json, "default", policy->default_allow ? "allow" : "deny");
    json_key_array(&json, "rules");
    for (size_t i = 0; i < policy->n_rules; i++)
        put_rule(&json, &policy->rules[i]);
    json_end(&json);
    json_key_object(&json, "tls");
    json_key_string(&json, "ech", policy->ech ? "allow" : "deny");
    json_key_string(&json, "no_sni", policy->no_sni ? "allow" : "deny");
    json_end(&json);
    put_limits(&json, &policy->limits);
    json_end(&json);
    return json_finish(&json);
}

/* Adds one to the sorted ports; false when there is no room. */
static bool add_port(uint16_t ports[POLICY_PORTS_MAX], size_t *n, uint16_t port)
{
    size_t at = 0;

    while (at < *n && ports[at] < port)
        at++;
    if (at < *n && ports[at] == port)
        return true;
    if (*n == POLICY_PORTS_MAX)
        return false;
    memmove(ports + at + 1, ports + at, (*n - at) * sizeof *ports);
    ports[at] = port;
    (*n)++;
    return true;
}

size_t policy_ports(const struct policy *policy, uint16_t ports[POLICY_PORTS_MAX], bool *ret_any_port)
{
    size_t n = 0;
    bool fits = !policy->default_allow;

    /* Where nothing is allowed on them too: what is refused there shows in the audit log, with its name. */
    fits = fits && add_port(ports, &n, 80) && add_port(ports, &n, 443);
    for (size_t i = 0; fits && i < policy->n_rules; i++) {
        const struct policy_rule *rule = &policy->rules[i];
        if (!rule->allow)
            continue;
        fits = !rule->any_port;
        for (size_t k = 0; fits && k < rule->n_ports; k++) {
            fits = rule->ports[k].last - rule->ports[k].first < (int)POLICY_PORTS_MAX;
            for (uint32_t port = rule->ports[k].first; fits && port <= rule->ports[k].last; port++)
                fits = port == 53 || add_port(ports, &n, (uint16_t)port);
        }
    }
    *ret_any_port = !fits;
    return fits ? n : 0;
}
