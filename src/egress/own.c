/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.c: finds out whether an address is one of this machine's own. Through such an address its services can be reached
 * past every firewall in front of it. The kernel's routing table knows: a route of type "local" is one to the machine
 * itself, be it an interface's first address, a secondary one or a whole range that was routed to lo.
 *
 * The question is RTM_GETROUTE on a socket that is opened before the process is locked down. It sends nothing to the
 * network, and the answer is there when send() returns. It does not depend on what an administrator can set elsewhere,
 * as other ways to ask do: connect() on the MTU of lo, bind() on net.ipv4.ip_nonlocal_bind. No answer, or one that is
 * not understood, is POLICY_OWN_UNKNOWN, which the policy refuses like POLICY_OWN_YES.
 */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "base/err.h"
#include "egress/egress_priv.h"

#define ANSWER_ROOM 4096u /* what matters is at its beginning */
#define ANSWERS_MAX 16u   /* read for one question: older ones that nobody waited for, then its own */

struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr to_head;
    uint8_t to[16]; /* the last attribute: IPv4 uses four bytes of it */
};

int own_open(struct brig_err *err)
{
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    AUTO_FD int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    /* Connected: nothing that another process sends is taken for the kernel's. */
    if (fd < 0 || connect(fd, (const struct sockaddr *)&kernel, sizeof kernel) < 0)
        return err_host(err, "rtnetlink, to tell the host's own addresses from others");
    return take_fd(&fd);
}

static enum policy_own from_error(int error)
{
    /* Without any way to it, connect() says so. */
    return error == -ENETUNREACH || error == -EHOSTUNREACH ? POLICY_OWN_NO : POLICY_OWN_UNKNOWN;
}

static enum policy_own from_type(unsigned type)
{
    switch (type) {
    case RTN_UNICAST:
    case RTN_UNREACHABLE: return POLICY_OWN_NO;
    case RTN_LOCAL:
    case RTN_ANYCAST:
    case RTN_BROADCAST:
    case RTN_MULTICAST: return POLICY_OWN_YES;
    default: return POLICY_OWN_UNKNOWN;
    }
}

/* false: the answer to an older question. */
static bool read_answer(const uint8_t *data, size_t len, uint32_t seq, enum policy_own *ret)
{
    struct nlmsghdr head;
    struct nlmsgerr error;
    struct rtmsg route;

    *ret = POLICY_OWN_UNKNOWN;
    if (len < NLMSG_HDRLEN)
        return true;
    memcpy(&head, data, sizeof head);
    if (head.nlmsg_seq != seq)
        return false;
    if (head.nlmsg_type == NLMSG_ERROR && len >= NLMSG_HDRLEN + sizeof error) {
        memcpy(&error, data + NLMSG_HDRLEN, sizeof error);
        *ret = from_error(error.error);
    } else if (head.nlmsg_type == RTM_NEWROUTE && len >= NLMSG_HDRLEN + sizeof route) {
        memcpy(&route, data + NLMSG_HDRLEN, sizeof route);
        *ret = from_type(route.rtm_type);
    }
    return true;
}

static enum policy_own ask(struct egress *egress, const struct gate_addr *addr)
{
    bool v4 = gate_addr_is_v4(addr);
    unsigned size = v4 ? 4 : 16;
    struct question question = {
        .head = {.nlmsg_len = (uint32_t)(offsetof(struct question, to) + size),
                 .nlmsg_type = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++egress->route_seq},
        .route = {.rtm_family = v4 ? AF_INET : AF_INET6, .rtm_dst_len = (uint8_t)(8 * size)},
        .to_head = {.rta_len = (uint16_t)RTA_LENGTH(size), .rta_type = RTA_DST},
    };
    uint8_t answer[ANSWER_ROOM];
    enum policy_own own = POLICY_OWN_UNKNOWN;

    memcpy(question.to, v4 ? addr->ip + 12 : addr->ip, size);
    if (send(egress->routes, &question, question.head.nlmsg_len, 0) < 0)
        return POLICY_OWN_UNKNOWN;
    for (unsigned i = 0; i < ANSWERS_MAX; i++) {
        ssize_t n = recv(egress->routes, answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0)
            return POLICY_OWN_UNKNOWN;
        if (read_answer(answer, (size_t)n, question.head.nlmsg_seq, &own))
            return own;
    }
    return POLICY_OWN_UNKNOWN;
}

enum policy_own own_ask(struct egress *egress, const struct gate_addr *addr)
{
    struct gate_addr inner;

    if (gate_addr_private(addr))
        return POLICY_OWN_NO; /* refused for what it is; a rule that names its range allows the host's too */
    enum policy_own own = ask(egress, addr);
    if (own == POLICY_OWN_NO && gate_addr_translated(addr, &inner))
        own = ask(egress, &inner);
    return own;
}
