/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netgate_nft.c: makes the redirect of any-port mode with messages to the kernel: the spawner cannot see nft and does
 * not need it. In nft's words:
 *
 *     table inet brig {
 *         chain own {
 *             type filter hook output priority raw;
 *             ip saddr 127.0.0.0/8 ip daddr 127.0.0.0/8 notrack      # a program's talk with itself (ip6: ::1)
 *         }
 *         chain out {
 *             type nat hook output priority dstnat;
 *             ct count over 8192 drop                                # left out where the kernel cannot
 *             ip daddr 127.0.0.0/8 accept                            # a program's own servers (ip6: ::1)
 *             ip daddr 198.18.0.1 tcp dport 3128 accept              # the proxy is where it is
 *             udp dport 53 dnat ip to 198.18.0.1:65053               # and tcp; ip6 to 2001:2:0:ffff::1
 *             meta l4proto tcp dnat ip to 198.18.0.1:65001
 *         }
 *     }
 *
 * For a guest behind a gate namespace both chains are at the hook prerouting.
 *
 * It uses dnat and not `redirect`, which would lead to 127.0.0.1, where the program's servers are. Other packets (UDP,
 * ICMP) stay inside, where nobody listens. The count is there because the kernel remembers every flow in memory that no
 * cgroup pays for, up to a large number for the whole host.
 */
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "host/netgate.h"
#include "host/netlink.h"
#include "jail/sys.h"

#define TABLE "brig"
#define PRIORITY_RAW (-300)
#define PRIORITY_DSTNAT (-100)
#define FLOWS_MAX 8192u

enum action { LET_ALONE, DNAT, NOTRACK, LIMIT };

/* What a packet must be, and what is then done with it. */
struct rule {
    const char *chain;
    enum action action;
    uint8_t family;           /* NFPROTO_IPV4 or NFPROTO_IPV6; 0: either */
    uint8_t proto;            /* 0: any */
    uint16_t port;            /* of the destination; 0: any */
    uint8_t from_len, to_len; /* leading bytes of the address; 0: any */
    const void *from, *to;
    uint16_t dnat_port;
};

/* ---- expressions -------------------------------------------------------------------------------------- */

struct expr {
    size_t elem, data;
};

static struct expr begin_expr(struct nl *nl, const char *name)
{
    struct expr e = {.elem = nl_nest(nl, NFTA_LIST_ELEM)};

    nl_put_text(nl, NFTA_EXPR_NAME, name);
    e.data = nl_nest(nl, NFTA_EXPR_DATA);
    return e;
}

static void end_expr(struct nl *nl, struct expr e)
{
    nl_unnest(nl, e.data);
    nl_unnest(nl, e.elem);
}

static void put_value(struct nl *nl, uint16_t type, const void *data, size_t len)
{
    size_t at = nl_nest(nl, type);

    nl_put(nl, NFTA_DATA_VALUE, data, len);
    nl_unnest(nl, at);
}

static void load_meta(struct nl *nl, uint32_t key)
{
    struct expr e = begin_expr(nl, "meta");

    nl_put_be32(nl, NFTA_META_KEY, key);
    nl_put_be32(nl, NFTA_META_DREG, NFT_REG_1);
    end_expr(nl, e);
}

static void load_payload(struct nl *nl, uint32_t base, uint32_t offset, uint32_t len)
{
    struct expr e = begin_expr(nl, "payload");

    nl_put_be32(nl, NFTA_PAYLOAD_DREG, NFT_REG_1);
    nl_put_be32(nl, NFTA_PAYLOAD_BASE, base);
    nl_put_be32(nl, NFTA_PAYLOAD_OFFSET, offset);
    nl_put_be32(nl, NFTA_PAYLOAD_LEN, len);
    end_expr(nl, e);
}

static void must_equal(struct nl *nl, const void *data, size_t len)
{
    struct expr e = begin_expr(nl, "cmp");

    nl_put_be32(nl, NFTA_CMP_SREG, NFT_REG_1);
    nl_put_be32(nl, NFTA_CMP_OP, NFT_CMP_EQ);
    put_value(nl, NFTA_CMP_DATA, data, len);
    end_expr(nl, e);
}

static void load_value(struct nl *nl, uint32_t reg, const void *data, size_t len)
{
    struct expr e = begin_expr(nl, "immediate");

    nl_put_be32(nl, NFTA_IMMEDIATE_DREG, reg);
    put_value(nl, NFTA_IMMEDIATE_DATA, data, len);
    end_expr(nl, e);
}

static void verdict(struct nl *nl, uint32_t code)
{
    struct expr e = begin_expr(nl, "immediate");

    nl_put_be32(nl, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = nl_nest(nl, NFTA_IMMEDIATE_DATA);
    size_t is = nl_nest(nl, NFTA_DATA_VERDICT);
    nl_put_be32(nl, NFTA_VERDICT_CODE, code);
    nl_unnest(nl, is);
    nl_unnest(nl, data);
    end_expr(nl, e);
}

static void drop_above(struct nl *nl, uint32_t flows)
{
    struct expr e = begin_expr(nl, "connlimit");

    nl_put_be32(nl, NFTA_CONNLIMIT_COUNT, flows);
    nl_put_be32(nl, NFTA_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
    end_expr(nl, e);
    verdict(nl, NF_DROP);
}

static void dnat(struct nl *nl, uint8_t family, uint16_t port)
{
    const struct in6_addr v6 = GATE_INSIDE_V6;
    const uint16_t port_be = htons(port);
    struct in_addr v4;

    if (family == NFPROTO_IPV6)
        load_value(nl, NFT_REG_1, &v6, sizeof v6);
    else if (inet_pton(AF_INET, GATE_RESOLVER_V4, &v4) == 1)
        load_value(nl, NFT_REG_1, &v4, sizeof v4);
    load_value(nl, NFT_REG_2, &port_be, sizeof port_be);
    struct expr e = begin_expr(nl, "nat");
    nl_put_be32(nl, NFTA_NAT_TYPE, NFT_NAT_DNAT);
    nl_put_be32(nl, NFTA_NAT_FAMILY, family);
    nl_put_be32(nl, NFTA_NAT_REG_ADDR_MIN, NFT_REG_1);
    nl_put_be32(nl, NFTA_NAT_REG_PROTO_MIN, NFT_REG_2);
    end_expr(nl, e);
}

/* ---- messages ----------------------------------------------------------------------------------------- */

static size_t begin_message(struct nl *nl, unsigned type, uint16_t flags)
{
    const struct nfgenmsg head = {.nfgen_family = NFPROTO_INET};

    return nl_begin(nl, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_REQUEST | flags, &head, sizeof head);
}

static void put_batch(struct nl *nl, uint16_t type)
{
    const struct nfgenmsg head = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};

    nl_end(nl, nl_begin(nl, type, NLM_F_REQUEST, &head, sizeof head));
}

static void put_table(struct nl *nl)
{
    size_t at = begin_message(nl, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);

    nl_put_text(nl, NFTA_TABLE_NAME, TABLE);
    nl_end(nl, at);
}

static void put_chain(struct nl *nl, const char *name, const char *type, uint32_t hooknum, int priority)
{
    size_t at = begin_message(nl, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);

    nl_put_text(nl, NFTA_CHAIN_TABLE, TABLE);
    nl_put_text(nl, NFTA_CHAIN_NAME, name);
    nl_put_text(nl, NFTA_CHAIN_TYPE, type);
    size_t hook = nl_nest(nl, NFTA_CHAIN_HOOK);
    nl_put_be32(nl, NFTA_HOOK_HOOKNUM, hooknum);
    nl_put_be32(nl, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    nl_unnest(nl, hook);
    nl_end(nl, at);
}

static void match_address(struct nl *nl, uint8_t family, bool from, const void *bytes, uint8_t len)
{
    uint32_t v4 = from ? 12 : 16, v6 = from ? 8 : 24; /* in the header */

    load_payload(nl, NFT_PAYLOAD_NETWORK_HEADER, family == NFPROTO_IPV6 ? v6 : v4, len);
    must_equal(nl, bytes, len);
}

static void match(struct nl *nl, const struct rule *rule)
{
    const uint16_t port = htons(rule->port);

    if (rule->family) {
        load_meta(nl, NFT_META_NFPROTO);
        must_equal(nl, &rule->family, sizeof rule->family);
    }
    if (rule->from_len)
        match_address(nl, rule->family, true, rule->from, rule->from_len);
    if (rule->to_len)
        match_address(nl, rule->family, false, rule->to, rule->to_len);
    if (rule->proto) {
        load_meta(nl, NFT_META_L4PROTO);
        must_equal(nl, &rule->proto, sizeof rule->proto);
    }
    if (rule->port) {
        load_payload(nl, NFT_PAYLOAD_TRANSPORT_HEADER, 2, sizeof port);
        must_equal(nl, &port, sizeof port);
    }
}

static void put_rule(struct nl *nl, const struct rule *rule, bool last)
{
    size_t at = begin_message(nl, NFT_MSG_NEWRULE, (uint16_t)(NLM_F_CREATE | NLM_F_APPEND | (last ? NLM_F_ACK : 0)));

    nl_put_text(nl, NFTA_RULE_TABLE, TABLE);
    nl_put_text(nl, NFTA_RULE_CHAIN, rule->chain);
    size_t list = nl_nest(nl, NFTA_RULE_EXPRESSIONS);
    match(nl, rule);
    switch (rule->action) {
    case LET_ALONE: verdict(nl, NF_ACCEPT); break;
    case DNAT: dnat(nl, rule->family, rule->dnat_port); break;
    case NOTRACK: end_expr(nl, begin_expr(nl, "notrack")); break;
    case LIMIT: drop_above(nl, FLOWS_MAX); break;
    }
    nl_unnest(nl, list);
    nl_end(nl, at);
}

static int install(int sock, bool v6, bool behind, bool limit)
{
    static struct nl nl;
    static const uint8_t loopback = 127;
    struct in_addr proxy;
    const struct rule rules[] = {
        {"own", NOTRACK, NFPROTO_IPV4, .from = &loopback, .from_len = 1, .to = &loopback, .to_len = 1},
        {.chain = "out", .action = LIMIT},
        {"out", LET_ALONE, NFPROTO_IPV4, .to = &loopback, .to_len = 1},
        {"out", LET_ALONE, NFPROTO_IPV4, IPPROTO_TCP, GATE_PROXY_PORT, .to = &proxy, .to_len = sizeof proxy},
        {"out", DNAT, NFPROTO_IPV4, IPPROTO_UDP, 53, .dnat_port = GATE_DNS_PORT},
        {"out", DNAT, NFPROTO_IPV4, IPPROTO_TCP, 53, .dnat_port = GATE_DNS_PORT},
        {"out", DNAT, NFPROTO_IPV4, IPPROTO_TCP, .dnat_port = GATE_REDIRECT_PORT},
        {"own", NOTRACK, NFPROTO_IPV6, .from = &in6addr_loopback, .from_len = 16, .to = &in6addr_loopback,
         .to_len = 16},
        {"out", LET_ALONE, NFPROTO_IPV6, .to = &in6addr_loopback, .to_len = 16},
        {"out", DNAT, NFPROTO_IPV6, IPPROTO_UDP, 53, .dnat_port = GATE_DNS_PORT},
        {"out", DNAT, NFPROTO_IPV6, IPPROTO_TCP, 53, .dnat_port = GATE_DNS_PORT},
        {"out", DNAT, NFPROTO_IPV6, IPPROTO_TCP, .dnat_port = GATE_REDIRECT_PORT},
    };
    size_t n = v6 ? ARRAY_SIZE(rules) : 7;
    const uint32_t hook = behind ? NF_INET_PRE_ROUTING : NF_INET_LOCAL_OUT;

    if (inet_pton(AF_INET, GATE_RESOLVER_V4, &proxy) != 1)
        return -EINVAL;
    nl.len = 0;
    nl.full = false;
    put_batch(&nl, NFNL_MSG_BATCH_BEGIN);
    put_table(&nl);
    put_chain(&nl, "own", "filter", hook, PRIORITY_RAW);
    put_chain(&nl, "out", "nat", hook, PRIORITY_DSTNAT);
    for (size_t i = 0; i < n; i++)
        if (limit || rules[i].action != LIMIT)
            put_rule(&nl, &rules[i], i + 1 == n);
    put_batch(&nl, NFNL_MSG_BATCH_END);
    return nl_talk(sock, &nl); /* all of it or nothing */
}

int netgate_redirect(bool v6, bool behind, bool again)
{
    AUTO_FD int sock = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));

    if (sock < 0)
        return -errno;
    int r = install(sock, v6, behind, true);
    if (r == -ENOENT || r == -EOPNOTSUPP)
        r = install(sock, v6, behind, false);
    return again && r == -EEXIST ? 0 : r; /* if its table is there, all of it is */
}
