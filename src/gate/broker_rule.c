/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_rule.c: reads the rules that say where a secret may be put. brigd reads a rule before it stores it, and
 * brig-egress reads it before it uses it. Both use this code, so a stored rule never means something else at the gate.
 *
 * It refuses fields that frame or route a message (a value there would be a smuggled request, not a credential), names
 * that are addresses, and a format that would put the value twice or not at all. Hosts are kept in the one form that
 * everything compares: IDN through libidn2 as in a policy, then dns_name_canonical().
 */
#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "codec/json/json.h"
#include "gate/slot_spec.h"

#define DEFAULT_PORT 443u

bool secret_name_ok(const char *name)
{
    return str_is_name(name, SECRET_NAME_MAX - 1, ASCII_LETTERS "_", ASCII_ALNUM "_.-");
}

/* A string of ours: not empty, without a NUL inside. */
static bool is_text(const struct json_value *value)
{
    return value && value->type == JSON_STRING && value->len > 0 && strlen(value->string) == value->len;
}

/* ---- hosts -------------------------------------------------------------------------------------------- */

static int read_name(const char *text, char out[DNS_NAME_MAX], struct brig_err *err)
{
    int r = policy_name(text, out); /* the one form that everything compares */

    if (r == -ENOMEM)
        return err_nomem(err);
    return r < 0 ? err_usage(err, "broker.hosts: %.80s: not a host name", text) : 0;
}

/* [*.]NAME[:PORT] */
static int read_host(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    char name[4 * DNS_NAME_MAX]; /* an IDN is longer in UTF-8 */
    uint32_t port = DEFAULT_PORT;

    if (!is_text(value) || str_copy(name, sizeof name, value->string) < 0)
        return err_usage(err,
                         "broker.hosts: must be host names, such as \"api.example.com\" or \"*.example.org:8443\"");
    char *colon = strrchr(name, ':');
    if (colon) {
        if (parse_u32(colon + 1, &port) < 0 || port == 0 || port > UINT16_MAX || strlen(colon + 1) > 5)
            return err_usage(err, "broker.hosts: %.80s: the port must be a number from 1 to 65535", value->string);
        *colon = '\0';
    }
    const bool wildcard = str_starts(name, "*.");
    const char *text = wildcard ? name + 2 : name;
    if (strchr(text, '*'))
        return err_usage(err, "broker.hosts: %.80s: \"*\" can only be the whole first label: \"*.example.com\"",
                         value->string);
    int r = read_name(text, rule->hosts[rule->n_hosts].name, err);
    if (r < 0)
        return r;
    rule->hosts[rule->n_hosts].wildcard = wildcard;
    rule->hosts[rule->n_hosts].port = (uint16_t)port;
    rule->n_hosts++;
    return 0;
}

static int read_hosts(const struct json_value *hosts, struct broker_rule *rule, struct brig_err *err)
{
    if (!hosts || hosts->type != JSON_ARRAY || hosts->count == 0 || hosts->count > BROKER_HOSTS_MAX)
        return err_usage(err, "broker.hosts: must be an array of 1 to %u host names", BROKER_HOSTS_MAX);
    for (const struct json_value *host = hosts->first; host; host = host->next) {
        int r = read_host(host, rule, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- places ------------------------------------------------------------------------------------------- */

/* Fields that say where a message goes, where it ends, or what the next hop is to do. */
static bool is_framing(const char *field)
{
    static const char *const names[] = {
        "Host",    "Content-Length", "Transfer-Encoding", "Connection",      "Keep-Alive",    "TE", "Trailer",
        "Upgrade", "Expect",         "Content-Encoding",  "Accept-Encoding", "HTTP2-Settings"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(field, names[i]) == 0)
            return true;
    return strncasecmp(field, "Proxy-", 6) == 0;
}

static bool all_of(const char *text, const char *more)
{
    for (const char *at = text; *at; at++)
        if (!ascii_is_letter(*at) && !ascii_is_digit(*at) && !strchr(more, *at))
            return false;
    return true;
}

static int read_header(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    if (!is_text(value) || str_copy(rule->field, sizeof rule->field, value->string) < 0 ||
        !all_of(rule->field, "!#$%&'*+-.^_`|~"))
        return err_usage(err, "broker.header: must be the name of a header field, such as \"Authorization\"");
    if (is_framing(rule->field))
        return err_usage(err, "broker.header: %s frames or routes a message; a secret cannot be put there",
                         rule->field);
    rule->where = BROKER_HEADER;
    return 0;
}

static int read_query(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    if (!is_text(value) || str_copy(rule->field, sizeof rule->field, value->string) < 0 || !all_of(rule->field, "-._~"))
        return err_usage(err,
                         "broker.query: must be the name of a query parameter: letters, digits, '-', '.', '_' and '~'");
    rule->where = BROKER_QUERY;
    return 0;
}

static int read_basic(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    const bool user = is_text(value) && str_eq(value->string, "user");

    if (!user && !(is_text(value) && str_eq(value->string, "password")))
        return err_usage(err, "broker.basic: must be \"user\" or \"password\"");
    rule->where = user ? BROKER_BASIC_USER : BROKER_BASIC_PASSWORD;
    return 0;
}

static int read_kind(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    if (!is_text(value) || !str_eq(value->string, "aws-sigv4"))
        return err_usage(err, "broker.kind: must be \"aws-sigv4\"");
    rule->where = BROKER_SIGV4;
    return 0;
}

static int read_format(const struct json_value *value, struct broker_rule *rule, struct brig_err *err)
{
    static const char what[] = "must be at most 127 visible characters with one %s and no other %";

    if (!value)
        return str_copy(rule->format, sizeof rule->format, "%s");
    if (rule->where != BROKER_HEADER)
        return err_usage(err, "broker.format: only goes with broker.header");
    if (!is_text(value) || str_copy(rule->format, sizeof rule->format, value->string) < 0)
        return err_usage(err, "broker.format: %s", what);
    const char *percent = strchr(rule->format, '%');
    bool ok = percent && percent[1] == 's' && !strchr(percent + 1, '%') && rule->format[0] != ' ' &&
              rule->format[value->len - 1] != ' ';
    for (const char *at = rule->format; *at; at++)
        ok = ok && *at >= ' ' && *at < 0x7f;
    return ok ? 0 : err_usage(err, "broker.format: %s", what);
}

/* ---- the rule ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*read)(const struct json_value *value, struct broker_rule *rule, struct brig_err *err);
} places[] = {{"header", read_header}, {"query", read_query}, {"basic", read_basic}, {"kind", read_kind}};

static int check_members(const struct json_value *json, struct brig_err *err)
{
    static const char *const known[] = {"hosts", "format", "header", "query", "basic", "kind"};

    for (const struct json_value *member = json->first; member; member = member->next) {
        bool found = false;
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
            found = found || (strlen(member->key) == member->key_len && str_eq(member->key, known[i]));
        if (!found)
            return err_usage(err, "broker.%.48s: not a member of a broker rule", member->key);
    }
    return 0;
}

int broker_rule_parse(const struct json_value *json, struct broker_rule *ret, struct brig_err *err)
{
    struct broker_rule rule = {0};
    size_t n = 0;

    if (!json || json->type != JSON_OBJECT)
        return err_usage(err, "broker: must be an object");
    int r = check_members(json, err);
    if (r == 0)
        r = read_hosts(json_get(json, "hosts"), &rule, err);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(places); i++) {
        const struct json_value *value = json_get(json, places[i].name);
        if (value && n++ == 0)
            r = places[i].read(value, &rule, err);
    }
    if (r == 0 && n != 1)
        r = err_usage(err, "broker: must have exactly one of header, query, basic and kind");
    if (r == 0)
        r = read_format(json_get(json, "format"), &rule, err);
    if (r < 0)
        return r;
    *ret = rule;
    return 0;
}

static const char *host_text(const struct broker_rule *rule, size_t i, char *out, size_t size)
{
    const char *star = rule->hosts[i].wildcard ? "*." : "";
    int r = rule->hosts[i].port == DEFAULT_PORT
                ? str_format(out, size, "%s%s", star, rule->hosts[i].name)
                : str_format(out, size, "%s%s:%u", star, rule->hosts[i].name, rule->hosts[i].port);

    return r < 0 ? "" : out;
}

void broker_rule_put(const struct broker_rule *rule, struct json *json)
{
    char host[DNS_NAME_MAX + 16];

    json_object(json);
    json_key_array(json, "hosts");
    for (size_t i = 0; i < rule->n_hosts; i++)
        json_string(json, host_text(rule, i, host, sizeof host));
    json_end(json);
    switch (rule->where) {
    case BROKER_QUERY: json_key_string(json, "query", rule->field); break;
    case BROKER_BASIC_USER: json_key_string(json, "basic", "user"); break;
    case BROKER_BASIC_PASSWORD: json_key_string(json, "basic", "password"); break;
    case BROKER_SIGV4: json_key_string(json, "kind", "aws-sigv4"); break;
    default:
        json_key_string(json, "header", rule->field);
        json_key_string(json, "format", rule->format);
        break;
    }
    json_end(json);
}

int broker_rule_put_json(const struct broker_rule *rule, struct buf *out)
{
    struct json json = JSON_INIT(out);

    broker_rule_put(rule, &json);
    return json_finish(&json);
}

bool broker_rule_covers(const struct broker_rule *rule, const char *name, uint16_t port)
{
    const size_t len = strlen(name);

    for (size_t i = 0; i < rule->n_hosts; i++) {
        const char *host = rule->hosts[i].name;
        const size_t host_len = strlen(host);
        if (rule->hosts[i].port != port)
            continue;
        if (!rule->hosts[i].wildcard && str_eq(host, name))
            return true;
        /* Below it, at any depth, and not itself. */
        if (rule->hosts[i].wildcard && len > host_len + 1 && name[len - host_len - 1] == '.' &&
            str_eq(name + len - host_len, host))
            return true;
    }
    return false;
}
