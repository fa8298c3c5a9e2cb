/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netgate.h: the inner half of a sandbox's network: routes that make every address local, and the sockets that
 * brig-egress serves from outside. The room `egress` is the outer half.
 */
#ifndef BRIG_HOST_NETGATE_H
#define BRIG_HOST_NETGATE_H

#include <brig.h>
#include <netinet/in.h>

#include "gate/gate_wire.h"

/*
 * Any-port mode: the ports that the redirect leads to. They are high, so that no program meets them by chance; its own
 * servers may have every other port.
 */
#define GATE_REDIRECT_PORT 65001u
#define GATE_DNS_PORT 65053u
/* The counterpart of GATE_RESOLVER_V4, the target of the redirect for IPv6: 2001:2:0:ffff::1. */
#define GATE_INSIDE_V6 ((struct in6_addr){{{0x20, 0x01, 0, 2, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}}})

/* The guest's own addresses behind a gate namespace, whose own are its gateways. */
#define GATE_GUEST_V4 "198.18.0.2"
#define GATE_GUEST_V6 ((struct in6_addr){{{0x20, 0x01, 0, 2, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 2}}})

/* The listeners of one sandbox, which we hold as long as it lives. */
struct netgate {
    bool any_port;
    unsigned n;
    struct gate_listener what[GATE_LISTENERS_MAX];
    int fds[GATE_LISTENERS_MAX];
};

/* The network that is meant, and the one that it must not be. */
struct netgate_place {
    int ns_fd;        /* a pidfd of pid 1 of the sandbox, or a network namespace */
    bool behind;      /* The guest is behind a device of netgate_link(). */
    bool again;       /* A process that has died made the gate: what is there already is no mistake. */
    int proc_fd;      /* a full procfs */
    bool own_proc;    /* Look at sysctls through a procfs of its own (see enter_proc()). */
    uint32_t host_ns; /* the inode of the host's network namespace */
};

/* The network that a sandbox must have, as the engine says it. */
struct netgate_want {
    uint32_t on;       /* 0 means no network at all; the rest is then 0. */
    uint32_t any_port; /* Redirect mode; the ports are then not looked at. */
    uint32_t n_ports;
    uint16_t ports[POLICY_PORTS_MAX]; /* No port occurs twice; none is 0 or 53. */
};

/* Checks counts and ports, in any order; 0, 53 and duplicates are refused. Returns 0 or -EPROTO. */
int netgate_check(const struct netgate_want *want, struct brig_err *err) MUST_CHECK;
/*
 * Opens what is wanted and not there yet; *gate is made if it is NULL. On failure nothing is added (and *gate stays
 * NULL), but routes that were made stay: they lead only to ECONNREFUSED. The caller's table gets the descriptors at or
 * above fd_min.
 */
int netgate_open(struct netgate **gate, const struct netgate_place *place, const struct netgate_want *want, int fd_min,
                 struct brig_err *err) MUST_CHECK;
void netgate_free(struct netgate *gate); /* Closes them. gate may be NULL. */

/*
 * For a guest with a network stack of its own: joins the network namespace of the guest, which has nothing but `lo`,
 * with the gate namespace `place` by one pair of devices. The guest's is called eth0 and has the addresses and the
 * default routes that such a guest takes over. A namespace that was joined halfway is of no use; whoever made it drops
 * it.
 */
int netgate_link(const struct netgate_place *place, int guest_ns_fd, struct brig_err *err) MUST_CHECK;

/*
 * netgate_nft.c: makes the redirect of any-port mode in the network namespace of the caller: of what is sent there, or
 * of what comes from a guest behind it. again: one that is there is as good. Returns 0 or a negative errno.
 */
int netgate_redirect(bool v6, bool behind, bool again) MUST_CHECK;

#endif
