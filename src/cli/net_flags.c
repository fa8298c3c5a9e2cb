/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_flags.c: reads the flags about the network. Only syntax is judged here: is it a host, a port, a range? The gate's
 * rules (gate/policy.h) say what a name may be and what a policy means; they judge the resulting policy before anything
 * runs.
 */
#include "cli/net_flags.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/ascii.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"
#include "cli/net_policy.h"

#define HOST_MAX 253u

/* ---- HOST[:PORT] ---------------------------------------------------------------------------------- */

static bool is_address(const char *text)
{
    uint8_t bytes[16];

    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* ADDRESS or ADDRESS/BITS; that no bit is set below the mask is the policy's rule. */
static bool is_range(const char *text)
{
    char address[INET6_ADDRSTRLEN + 1];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    uint64_t bits = 0;

    if (len >= sizeof(address))
        return false;
    memcpy(address, text, len);
    address[len] = '\0';
    if (!is_address(address))
        return false;
    return !slash || (parse_u64(slash + 1, &bits) == 0 && bits <= (strchr(address, ':') ? 128u : 32u));
}

/* "127.1", "2130706433", "0x7f.1": some programs take these for addresses, so they are no names here. */
static bool looks_numeric(const char *text)
{
    const char *dot = strrchr(text, '.'), *last = dot ? dot + 1 : text;

    return last[strspn(last, "0123456789")] == '\0' || str_starts(last, "0x") || str_starts(last, "0X");
}

/* NULL, or what is wrong with it. Which letters a name may have is for the policy: they may be of any script. */
static const char *check_name(const char *text)
{
    const char *name = str_starts(text, "*.") ? text + 2 : text;

    if (*name == '\0')
        return "the host is empty";
    if (strstr(text, "://"))
        return "must be a host, not a URL";
    if (strlen(name) > HOST_MAX)
        return "a name has at most 253 bytes";
    if (strchr(name, '*'))
        return "* stands only at the beginning, as in *.example.org";
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p <= ' ' || *p == 0x7f || strchr("/@?#[]:,\"\\", *p))
            return "must be a name, *.name, an address or a range such as 10.0.0.0/8";
    return looks_numeric(name) ? "looks like an address, and is none" : NULL;
}

/* Cuts "host:port" in two where the colon is. Brackets are needed only where an IPv6 address has a port. */
static const char *split_port(char *value, char **ret_host, char **ret_port)
{
    char *first = strchr(value, ':'), *last = strrchr(value, ':');

    *ret_host = value;
    *ret_port = NULL;
    if (*value == '[') {
        char *end = strchr(value, ']');
        if (!end || (end[1] != '\0' && end[1] != ':'))
            return "must be [ADDRESS] or [ADDRESS]:PORT";
        *ret_host = value + 1;
        *ret_port = end[1] == ':' ? end + 2 : NULL;
        *end = '\0';
        return strchr(*ret_host, ':') && is_range(*ret_host) ? NULL : "between [ and ] there must be an IPv6 address";
    }
    if (first != last && !strstr(value, "://")) /* an IPv6 address, without a port */
        return is_range(value) ? NULL : "must be HOST:PORT; an IPv6 address with a port is [ADDRESS]:PORT";
    if (last && !strstr(value, "://")) {
        *last = '\0';
        *ret_port = last + 1;
    }
    return NULL;
}

static const char *parse_rule(char *value, struct net_rule *ret)
{
    char *host, *port;
    const char *wrong = split_port(value, &host, &port);
    uint64_t number = 0;

    if (wrong)
        return wrong;
    ret->host = host;
    ret->cidr = is_range(host);
    wrong = ret->cidr ? NULL : check_name(host);
    if (wrong || !port)
        return wrong;
    ret->any_port = str_eq(port, "any");
    if (!ret->any_port && (parse_u64(port, &number) < 0 || number < 1 || number > 65535))
        return "the port must be a number from 1 to 65535, or any";
    ret->port = (uint16_t)number;
    return NULL;
}

static int add_rule(struct net_flags *flags, bool allow, const char *given, char *value, struct brig_err *err)
{
    char shown[96]; /* the parser cuts the value */

    str_cut(shown, sizeof(shown), value);
    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    if (flags->n_rules == NET_RULES_MAX)
        return flag_refuse(err, given, value, "at most 256 hosts as flags; write a policy (--policy FILE)");
    struct net_rule *rules = reallocarray(flags->rules, flags->n_rules + 1, sizeof(*rules));
    if (!rules)
        return err_nomem(err);
    flags->rules = rules;
    rules[flags->n_rules] = (struct net_rule){.allow = allow};
    const char *wrong = parse_rule(value, &rules[flags->n_rules]);
    if (wrong)
        return flag_refuse(err, given, shown, wrong);
    flags->n_rules++;
    return 0;
}

/* ---- flags ---------------------------------------------------------------------------------------- */

static void *at(void *ctx, const struct flag *flag)
{
    return (char *)ctx + flag->field;
}

/* What a policy may be called; the daemon knows whether there is one. */
static bool is_policy_name(const char *text)
{
    return str_is_name(text, NET_NAME_MAX - 1, ASCII_LOWER ASCII_DIGITS, ASCII_LOWER ASCII_DIGITS "_.-");
}

int net_flag_net(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    struct net_flags *flags = at(ctx, flag);

    if (!is_policy_name(value))
        return flag_refuse(err, given, value, "must be none, packages, open, learn, or a policy's name");
    flags->net = value;
    return 0;
}

int net_flag_file(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    struct net_flags *flags = at(ctx, flag);

    if (*value == '\0')
        return flag_refuse(err, given, value, "the value is empty");
    if (flags->file)
        return flag_refuse(err, given, value, "there is one policy already; a second one does not add to it");
    flags->file = value;
    return 0;
}

int net_flag_allow(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    return add_rule(at(ctx, flag), true, given, value, err);
}

int net_flag_deny(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    return add_rule(at(ctx, flag), false, given, value, err);
}

int net_flag_secret(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    struct net_flags *flags = at(ctx, flag);
    char *equals = strchr(value, '=');

    if (equals)
        *equals = '\0';
    const char *variable = equals ? equals + 1 : value;
    /* Only the name is ever shown: what stands after = may be a value given by mistake. */
    if (!str_is_name(value, NET_NAME_MAX - 1, ASCII_LETTERS "_", ASCII_ALNUM "_.-"))
        return err_usage(err, "%s %.64s: a secret's name is 1 to 63 of letters, digits, _ . and -, not a digit first",
                         given, value);
    if (!str_is_variable(variable, 255))
        return err_usage(err, "%s %.64s: must be NAME=VARIABLE, with a variable of letters, digits and _", given,
                         value);
    if (flags->n_secrets == NET_SECRETS_MAX)
        return err_usage(err, "%s %.64s: at most 64 secrets", given, value);
    for (size_t i = 0; i < flags->n_secrets; i++)
        if (str_eq(flags->secrets[i].variable, variable))
            return err_usage(err, "%s %.64s: the variable %.64s has a secret already", given, value, variable);
    struct net_secret *secrets = reallocarray(flags->secrets, flags->n_secrets + 1, sizeof(*secrets));
    if (!secrets)
        return err_nomem(err);
    flags->secrets = secrets;
    secrets[flags->n_secrets++] = (struct net_secret){.name = value, .variable = variable};
    return 0;
}

int net_flag_size(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err)
{
    int r = brig_parse_size(value, at(ctx, flag));

    if (r == -ERANGE)
        return flag_refuse(err, given, value, "must be below 2^63 bytes");
    if (r < 0)
        return flag_refuse(err, given, value, "must be a size above zero: bytes, or a number with k, m, g or t");
    return 0;
}

/* ---- all of them ---------------------------------------------------------------------------------- */

/* a network was asked for, were it `none` */
static bool net_flags_network(const struct net_flags *flags)
{
    return flags->net || flags->file || flags->n_rules > 0;
}

bool net_flags_learn(const struct net_flags *flags)
{
    return flags->net && str_eq(flags->net, "learn");
}

int net_flags_finish(struct net_flags *flags, struct brig_err *err)
{
    bool limits = flags->bytes_in || flags->bytes_out || flags->bps || flags->connections;
    bool none = !flags->file && (!flags->net || str_eq(flags->net, "none")); /* but for what --allow says */
    size_t allows = 0;

    for (size_t i = 0; i < flags->n_rules; i++)
        allows += flags->rules[i].allow;
    if (flags->net && flags->file)
        return err_usage(err, "--net %s --policy: one of them; a file says \"extends\": \"%s\"", flags->net,
                         flags->net);
    if (net_flags_learn(flags) && flags->n_rules > 0)
        return err_usage(
            err, "--net learn: takes neither --allow nor --deny; it lets through what `open` does, and writes it down");
    if (none && allows == 0 && flags->n_rules > 0)
        return err_usage(err, "--deny %.80s: there is no network to deny it in; say --net, --policy or --allow too",
                         flags->rules[0].host);
    if (none && allows == 0 && limits)
        return err_usage(
            err,
            "--net-bytes-in, --net-bytes-out, --net-bps, --connections: there is no network; say --net, --policy or "
            "--allow too");
    if (flags->expose && flags->n_secrets == 0)
        return err_usage(err, "--expose: there is no --secret");
    return flags->file ? net_policy_read(flags->file, &flags->doc, err) : 0;
}

void net_flags_done(struct net_flags *flags)
{
    json_doc_free(flags->doc);
    free(flags->rules);
    free(flags->secrets);
    *flags = (struct net_flags){0};
}

static void put_secrets(const struct net_flags *flags, struct json *json)
{
    if (flags->n_secrets == 0)
        return;
    json_key_array(json, "secrets");
    for (size_t i = 0; i < flags->n_secrets; i++) {
        json_object(json);
        json_key_string(json, "name", flags->secrets[i].name);
        json_key_string(json, "env", flags->secrets[i].variable);
        if (flags->expose)
            json_key_bool(json, "expose", true);
        json_end(json);
    }
    json_end(json);
}

void net_flags_put(const struct net_flags *flags, struct json *json)
{
    if (net_flags_network(flags)) {
        json_key(json, "network");
        net_policy_put(flags, json);
    }
    put_secrets(flags, json);
}

void net_flags_put_limits(const struct net_flags *flags, struct json *json)
{
    const struct {
        enum brig_limit name;
        uint64_t value;
    } limits[] = {
        {BRIG_LIMIT_NET_BYTES_IN, flags->bytes_in},
        {BRIG_LIMIT_NET_BYTES_OUT, flags->bytes_out},
        {BRIG_LIMIT_NET_BPS, flags->bps},
        {BRIG_LIMIT_CONNECTIONS, flags->connections},
    };

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (limits[i].value > 0)
            json_key_u64(json, brig_limit_name(limits[i].name), limits[i].value);
}
