/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_flags.h: the flags about the network, the same for every verb that makes a sandbox.
 *
 *   net_flags.c    words -> struct net_flags; members `secrets` and `limits`
 *   net_policy.c   member `network`
 *   net_local.c    the whole policy, for a run without a daemon
 *
 *   struct my_options { struct net_flags net; ... };
 *   static const struct flag table[] = { ..., NET_FLAG_ROWS(offsetof(struct my_options, net)), ... };
 *   flags_parse(...), net_flags_finish(&options.net, &err)
 *   json_object(&json), net_flags_put(&options.net, &json)                          -> "network" and "secrets"
 *   json_key(&json, "limits"), json_object(&json), net_flags_put_limits(&options.net, &json)
 *   net_flags_done(&options.net)
 */
#ifndef BRIG_CLI_NET_FLAGS_H
#define BRIG_CLI_NET_FLAGS_H

#include "cli/flags.h"
#include "codec/json/json.h"
#include "codec/json/json_read.h"

#define NET_RULES_MAX 256u
#define NET_SECRETS_MAX 64u
#define NET_NAME_MAX 64u

struct net_rule {
    const char *host; /* A name, "*.name", an address or a range; it points into argv. */
    bool allow, cidr;
    bool any_port;
    uint16_t port; /* 0 means the default ports of a rule. */
};

struct net_secret {
    const char *name, *variable; /* They point into argv. */
};

struct net_flags {
    const char *net;      /* --net */
    const char *file;     /* --policy */
    struct json_doc *doc; /* The document of the file. */
    struct net_rule *rules;
    size_t n_rules;
    struct net_secret *secrets;
    size_t n_secrets;
    bool expose;
    uint64_t bytes_in, bytes_out, bps, connections;
};

/* apply() of the rows below. field is the offset of struct net_flags, or of its member for the numbers. */
int net_flag_net(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int net_flag_file(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int net_flag_allow(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int net_flag_deny(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int net_flag_secret(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);
int net_flag_size(void *ctx, const struct flag *flag, const char *given, char *value, struct brig_err *err);

/* clang-format off */
#define NET_FLAG_AT(at, member) ((at) + offsetof(struct net_flags, member))
#define NET_FLAG_ROWS(at) \
    {"net", "WHAT", "none (default), packages, open, learn, or a policy's name", net_flag_net, (at), 0}, \
    {"allow", "HOST[:PORT]", "a host it may reach: a name, *.name, an address or a range", net_flag_allow, (at), 0}, \
    {"deny", "HOST[:PORT]", "a host it may not reach; wins over every --allow", net_flag_deny, (at), 0}, \
    {"policy", "FILE", "a network policy as JSON; --allow and --deny add to it", net_flag_file, (at), 0}, \
    {"secret", "NAME[=VARIABLE]", "a stored secret as a placeholder in a variable", net_flag_secret, (at), 0}, \
    {"expose", NULL, "secrets that nothing brokers go in as they are", flag_set_true, NET_FLAG_AT(at, expose), 0}, \
    {"net-bytes-in", "SIZE", "bytes it may receive in all", net_flag_size, NET_FLAG_AT(at, bytes_in), 0}, \
    {"net-bytes-out", "SIZE", "bytes it may send in all", net_flag_size, NET_FLAG_AT(at, bytes_out), 0}, \
    {"net-bps", "SIZE", "bytes per second, both directions together", net_flag_size, NET_FLAG_AT(at, bps), 0}, \
    {"connections", "N", "connections open at once (default 256)", flag_set_count, NET_FLAG_AT(at, connections), 0}
/* clang-format on */

/* Checks what only the flags together can show. */
int net_flags_finish(struct net_flags *flags, struct brig_err *err) MUST_CHECK;
void net_flags_done(struct net_flags *flags);
bool net_flags_learn(const struct net_flags *flags);

/* Write members of a request's object; nothing if no flag was given. */
void net_flags_put(const struct net_flags *flags, struct json *json);
void net_flags_put_limits(const struct net_flags *flags, struct json *json);

/*
 * Without a daemon: appends the whole policy as JSON text; nothing if there is no network. name is what a receipt calls
 * it.
 */
int net_flags_policy(const struct net_flags *flags, struct buf *out, char name[NET_NAME_MAX],
                     struct brig_err *err) MUST_CHECK;

#endif
