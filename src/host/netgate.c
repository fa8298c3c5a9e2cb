/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netgate.c: gives a sandbox's network namespace its only way out: sockets that a process outside serves.
 *
 * Theory of operation. The namespace has nothing but `lo`. With `local` routes for all addresses of both families,
 * every address that a program connects to is the sandbox itself. The connection lands on a listener of ours, or the
 * kernel refuses it at once:
 *
 *     listener mode   There is one wildcard socket for each port that the policy names, and for 53. The wanted
 *                     address is the connection's own local address. Everything else is ECONNREFUSED, because
 *                     nobody listens there.
 *     any-port mode   netfilter's dnat on output leads all TCP except loopback's to one socket, and port 53 to
 *                     the DNS sockets. The wanted address is SO_ORIGINAL_DST. The sockets have an address of
 *                     their own, so loopback and wildcard belong to the program.
 *
 * A guest with a network stack of its own (gVisor) has none of this inside. Its namespace is joined by a pair of
 * devices with a *gate namespace*, which has the routes and the listeners:
 *
 *     guest: eth0, 198.18.0.2, default via 198.18.0.1 ==== gate: `guest`, local 0.0.0.0/0 dev lo, listeners
 *
 * There every address is local, the guest's own too, and what comes from a local address is not answered. So its
 * address is a longer, plain route in the same table. A table of its own with a rule does not do: the kernel looks for
 * a source address in the local table only. IPv6 is the same; but its gateway must be an address of the device, because
 * neighbours are not answered for by routes.
 *
 * A helper (inside.c) enters the namespace, does all of it and ends. Invariants:
 *
 *   - Nothing of ours is ever shared: no SO_REUSEPORT, no SO_REUSEADDR. A program cannot bind over, beside or
 *     before us (it has not started; later, a port that it has taken is an error).
 *   - A gate whose maker has died is opened again: routes and the redirect stay, and a port that brig-egress still has
 *     is left to it. The kernel names the user of a socket, and no program of a sandbox is ours.
 *   - The helper checks where it is before it changes anything: routes like these would cut the host off.
 *   - Missing IPv6 is not an error; IPv6 without routes would only be unreachable.
 */
#include "host/netgate.h"

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "host/inside.h"
#include "host/netlink.h"
#include "host/netns.h"
#include "jail/plan.h"
#include "jail/sys.h"

#define BACKLOG 1024
#define LOOPBACK_INDEX 1u /* in every network namespace */

/* What the helper is to do, and how far it came. */
struct job {
    const struct netgate_place *place;
    const struct netgate_want *want;
    struct netgate *gate;
    bool fresh; /* nothing is there yet */
    bool v6;
    int fd_min;
    struct brig_err *err;
};

/* ---- the namespace ------------------------------------------------------------------------------------ */

static int enter(const struct netgate_place *place, int ns_fd, struct brig_err *err)
{
    struct stat st;

    if (SYS(setns(ns_fd, CLONE_NEWNET)) < 0)
        return err_host(err, "network: enter the sandbox's namespace");
    if (fstatat(place->proc_fd, "thread-self/ns/net", &st, 0) < 0)
        return err_host(err, "network: which namespace this is");
    if (place->host_ns == 0 || (uint32_t)st.st_ino == place->host_ns)
        return err_set(err, BRIG_E_REFUSED, 0, "network: the sandbox has no network namespace of its own");
    return 0;
}

/* What a route or an address is: len bytes of address, in network order. */
struct target {
    uint8_t family, bits, len;
    const void *bytes;
    unsigned device;
};

static int put_one(int sock, struct nl *nl, size_t at)
{
    nl_end(nl, at);
    int r = nl_talk(sock, nl);
    return r == -EEXIST ? 0 : r;
}

/* Begins a message that makes something. One helper at a time uses the buffer, which is not on its small stack. */
static struct nl *begin_new(uint16_t type, const void *head, size_t head_len, size_t *ret_at)
{
    static struct nl nl;

    nl.len = 0;
    nl.full = false;
    *ret_at = nl_begin(&nl, type, NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, head, head_len);
    return &nl;
}

static int put_route(int sock, const struct rtmsg *route, const struct target *to, const struct target *by)
{
    size_t at;
    struct nl *nl = begin_new(RTM_NEWROUTE, route, sizeof *route, &at);

    if (to->len > 0)
        nl_put(nl, RTA_DST, to->bytes, to->len);
    if (by)
        nl_put(nl, RTA_GATEWAY, by->bytes, by->len);
    nl_put_u32(nl, RTA_OIF, to->device);
    return put_one(sock, nl, at);
}

/* All addresses of a family are ours. */
static int add_route(int sock, uint8_t family)
{
    const struct rtmsg route = {.rtm_family = family,
                                .rtm_table = RT_TABLE_LOCAL,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_HOST,
                                .rtm_type = RTN_LOCAL};

    return put_route(sock, &route, &(struct target){.family = family, .device = LOOPBACK_INDEX}, NULL);
}

static int put_address(int sock, const struct target *own)
{
    const struct ifaddrmsg message = {.ifa_family = own->family,
                                      .ifa_prefixlen = own->bits,
                                      .ifa_flags = IFA_F_NODAD, /* nobody else can have it */
                                      .ifa_scope = RT_SCOPE_UNIVERSE,
                                      .ifa_index = own->device};
    size_t at;
    struct nl *nl = begin_new(RTM_NEWADDR, &message, sizeof message, &at);

    nl_put(nl, IFA_LOCAL, own->bytes, own->len);
    nl_put(nl, IFA_ADDRESS, own->bytes, own->len);
    return put_one(sock, nl, at);
}

/*
 * Adds an address beside loopback's: without one, getaddrinfo() with AI_ADDRCONFIG assumes that there is no IPv4. IPv6
 * gets none: those callers get IPv4 addresses, which is all that they need.
 */
static int add_address(int sock)
{
    struct in_addr own;

    if (inet_pton(AF_INET, GATE_RESOLVER_V4, &own) != 1)
        return -EINVAL;
    return put_address(sock, &(struct target){AF_INET, 32, sizeof own, &own, LOOPBACK_INDEX});
}

/* Switched off by a sysctl: as good as not there. */
static bool no_v6(int r)
{
    return r == -EACCES || r == -EOPNOTSUPP || r == -EAFNOSUPPORT;
}

static int add_routes(const struct job *job)
{
    AUTO_FD int sock = SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));

    if (sock < 0)
        return err_host(job->err, "network: rtnetlink");
    int r = add_route(sock, AF_INET);
    if (r < 0)
        return err_set(job->err, BRIG_E_HOST, -r, "network: route");
    if ((r = add_address(sock)) < 0)
        return err_set(job->err, BRIG_E_HOST, -r, "network: address");
    r = job->v6 ? add_route(sock, AF_INET6) : 0;
    if (r < 0 && !no_v6(r))
        return err_set(job->err, BRIG_E_HOST, -r, "network: IPv6 route");
    return 0;
}

static int write_sysctl(const struct netgate_place *place, const char *name, struct brig_err *err)
{
    AUTO_FD int proc = -1;

    if (place->own_proc &&
        (proc = mount_make("proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)) < 0)
        return err_host(err, "network: proc for sysctl");
    int r = SYS(fd_write_file(proc >= 0 ? proc : place->proc_fd, name, "0"));
    return r < 0 ? err_set(err, BRIG_E_HOST, -r, "network: %s", name) : 0;
}

/* ---- sockets ------------------------------------------------------------------------------------------ */

/* Those with an address of their own are bound to what only the routes make local. */
static bool has_own_address(const struct job *job, enum gate_kind kind)
{
    return kind == GATE_PROXY || job->gate->any_port;
}

static socklen_t address(const struct job *job, const struct gate_listener *what, struct sockaddr_storage *ret)
{
    bool own = has_own_address(job, (enum gate_kind)what->kind);

    *ret = (struct sockaddr_storage){.ss_family = what->family};
    if (what->family == AF_INET6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
        in6->sin6_port = htons(what->port);
        in6->sin6_addr = own ? GATE_INSIDE_V6 : in6addr_any;
        return sizeof *in6;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)ret;
    in->sin_port = htons(what->port);
    if (own && inet_pton(AF_INET, GATE_RESOLVER_V4, &in->sin_addr) != 1)
        return 0;
    return sizeof *in;
}

static int set_options(const struct job *job, int fd, const struct gate_listener *what)
{
    bool v6 = what->family == AF_INET6, own = has_own_address(job, (enum gate_kind)what->kind);
    int one = 1, only = own;

    if (v6 && SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only)) < 0)
        return -errno;
    /*
     * A local route is enough for IPv4. IPv6 wants an address of an interface, to bind and to answer from, unless it is
     * told otherwise.
     */
    if (v6 && (own || what->kind == GATE_DNS_UDP) &&
        SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one)) < 0)
        return -errno;
    if (what->kind != GATE_DNS_UDP)
        return 0;
    /* The answer must come from the address that was asked. On IPv6 this also tells of IPv4, as a mapped address. */
    int r = v6 ? SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one))
               : SYS(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof one));
    return r < 0 ? -errno : 0;
}

static int open_socket(const struct job *job, const struct gate_listener *what)
{
    int type = (what->kind == GATE_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
    AUTO_FD int fd = SYS(socket(what->family, type, 0));
    struct sockaddr_storage to;
    socklen_t len = address(job, what, &to);

    if (fd < 0)
        return -errno;
    int r = set_options(job, fd, what);
    if (r < 0)
        return r;
    if (SYS(bind(fd, (const struct sockaddr *)&to, len)) < 0)
        return -errno;
    if (what->kind != GATE_DNS_UDP && SYS(listen(fd, BACKLOG)) < 0)
        return -errno;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, job->fd_min); /* out of the numbers that children get a copy of */
    return up >= 0 ? up : take_fd(&fd);
}

static bool has(const struct netgate *gate, enum gate_kind kind, uint16_t port, int family)
{
    for (unsigned i = 0; i < gate->n; i++)
        if (gate->what[i].kind == kind && gate->what[i].port == port && (!family || gate->what[i].family == family))
            return true;
    return false;
}

static int add(struct job *job, enum gate_kind kind, unsigned port, int family)
{
    struct netgate *gate = job->gate;
    const struct gate_listener what = {.port = (uint16_t)port, .kind = (uint8_t)kind, .family = (uint8_t)family};

    if (has(gate, kind, (uint16_t)port, family))
        return 0;
    if (gate->n == GATE_LISTENERS_MAX)
        return err_set(job->err, BRIG_E_UNSUPPORTED, 0,
                       "network: more than %u ports: a network of any port needs a new sandbox", POLICY_PORTS_MAX);
    int fd = open_socket(job, &what);
    if (fd == -EADDRINUSE && job->place->again &&
        netns_has_ours(job->place->proc_fd, kind == GATE_DNS_UDP, family == AF_INET6, what.port))
        return 0;
    if (fd == -EADDRINUSE)
        return err_set(job->err, BRIG_E_CONFLICT, EADDRINUSE, "network: port %u is taken by a program of the sandbox",
                       port);
    if (fd < 0)
        return err_set(job->err, BRIG_E_HOST, -fd, "network: listen on port %u", port);
    gate->what[gate->n] = what;
    gate->fds[gate->n++] = fd;
    return 0;
}

static bool has_port(const struct netgate *gate, uint16_t port)
{
    return has(gate, GATE_TCP, port, 0);
}

static bool wants_port(const struct netgate_want *want, uint16_t port)
{
    for (unsigned i = 0; i < want->n_ports; i++)
        if (want->ports[i] == port)
            return true;
    return false;
}

static int open_any_port(struct job *job)
{
    static const int families[] = {AF_INET, AF_INET6};
    /* A program is promised every port for its own servers. */
    int r = write_sysctl(job->place, "sys/net/ipv4/ip_unprivileged_port_start", job->err);

    for (size_t i = 0; r == 0 && i < (job->v6 ? 2u : 1u); i++) {
        r = add(job, GATE_REDIRECT, GATE_REDIRECT_PORT, families[i]);
        if (r == 0)
            r = add(job, GATE_DNS_UDP, GATE_DNS_PORT, families[i]);
        if (r == 0)
            r = add(job, GATE_DNS_TCP, GATE_DNS_PORT, families[i]);
    }
    if (r == 0)
        r = add(job, GATE_PROXY, GATE_PROXY_PORT, AF_INET);
    if (r < 0)
        return r;
    r = netgate_redirect(job->v6, job->place->behind, job->place->again); /* last: from here on it leads somewhere */
    if (r == -ENOMEM)
        return err_nomem(job->err);
    return r < 0 ? err_set(job->err, BRIG_E_UNSUPPORTED, -r,
                           "network of any port: this kernel has no nf_tables (nat) for us")
                 : 0;
}

static int open_ports(struct job *job)
{
    const struct netgate_want *want = job->want;
    int family = job->v6 ? AF_INET6 : AF_INET;
    int r = add(job, GATE_DNS_UDP, 53, family);

    if (r == 0)
        r = add(job, GATE_DNS_TCP, 53, family);
    /* A policy that names the proxy's port has a wildcard there; both cannot be. */
    if (r == 0 && !wants_port(want, GATE_PROXY_PORT) && !has_port(job->gate, GATE_PROXY_PORT))
        r = add(job, GATE_PROXY, GATE_PROXY_PORT, AF_INET);
    for (unsigned i = 0; r == 0 && i < want->n_ports; i++)
        r = add(job, GATE_TCP, want->ports[i], family);
    return r;
}

static bool has_v6(void)
{
    AUTO_FD int fd = SYS(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    return fd >= 0;
}

static int open_inside(void *arg)
{
    struct job *job = arg;
    int r = enter(job->place, job->place->ns_fd, job->err);

    if (r < 0)
        return r;
    job->v6 = has_v6();
    if (job->fresh)
        r = add_routes(job);
    if (r < 0)
        return r;
    return job->gate->any_port ? open_any_port(job) : open_ports(job);
}

/* ---- a guest behind it -------------------------------------------------------------------------------- */

#define GATE_DEVICE "guest"
#define GUEST_DEVICE "eth0"

struct link {
    const struct netgate_place *place;
    int guest_ns_fd;
    bool v6;
    struct in_addr gate_v4, guest_v4;
    struct in6_addr gate_v6, guest_v6;
    struct brig_err *err;
};

static int put_pair(int sock, int guest_ns_fd)
{
    const struct ifinfomsg device = {0};
    size_t at;
    struct nl *nl = begin_new(RTM_NEWLINK, &device, sizeof device, &at);

    nl_put_text(nl, IFLA_IFNAME, GATE_DEVICE);
    size_t info = nl_nest(nl, IFLA_LINKINFO);
    nl_put_text(nl, IFLA_INFO_KIND, "veth");
    size_t data = nl_nest(nl, IFLA_INFO_DATA);
    size_t peer = nl_nest(nl, VETH_INFO_PEER);
    nl_put_raw(nl, &device, sizeof device);
    nl_put_text(nl, IFLA_IFNAME, GUEST_DEVICE);
    nl_put_u32(nl, IFLA_NET_NS_FD, (uint32_t)guest_ns_fd);
    nl_unnest(nl, peer);
    nl_unnest(nl, data);
    nl_unnest(nl, info);
    return put_one(sock, nl, at);
}

static int bring_up(const char *name, unsigned *ret_device)
{
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    AUTO_FD int sock = SYS(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

    if (str_copy(request.ifr_name, sizeof request.ifr_name, name) < 0)
        return -ENAMETOOLONG;
    if (sock < 0 || SYS(ioctl(sock, SIOCSIFFLAGS, &request)) < 0)
        return -errno;
    *ret_device = if_nametoindex(name);
    return *ret_device > 0 ? 0 : -errno;
}

/* The guest's address is a plain route that is longer than the one which makes all addresses ours. */
static int route_guest(int sock, const struct target *guest)
{
    const struct rtmsg route = {.rtm_family = guest->family,
                                .rtm_dst_len = guest->bits,
                                .rtm_table = RT_TABLE_LOCAL,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_LINK,
                                .rtm_type = RTN_UNICAST};

    return put_route(sock, &route, guest, NULL);
}

static int link_gate(void *arg)
{
    static const char *const off[] = {"sys/net/ipv4/conf/all/rp_filter", "sys/net/ipv4/conf/" GATE_DEVICE "/rp_filter"};
    struct link *link = arg;
    int r = enter(link->place, link->place->ns_fd, link->err);
    AUTO_FD int sock = r < 0 ? -1 : SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));

    if (sock < 0)
        return r < 0 ? r : err_host(link->err, "network: rtnetlink");
    link->v6 = has_v6();
    unsigned device = 0;
    if ((r = put_pair(sock, link->guest_ns_fd)) < 0 || (r = bring_up(GATE_DEVICE, &device)) < 0)
        return err_set(link->err, BRIG_E_HOST, -r, "network: veth");
    for (size_t i = 0; i < ARRAY_SIZE(off); i++)
        if ((r = write_sysctl(link->place, off[i], link->err)) < 0)
            return r;
    r = route_guest(sock, &(struct target){AF_INET, 32, sizeof link->guest_v4, &link->guest_v4, device});
    if (r == 0 && link->v6)
        r = put_address(sock, &(struct target){AF_INET6, 128, sizeof link->gate_v6, &link->gate_v6, device});
    if (r == 0 && link->v6)
        r = route_guest(sock, &(struct target){AF_INET6, 128, sizeof link->guest_v6, &link->guest_v6, device});
    link->v6 = link->v6 && !no_v6(r);
    return r < 0 && !no_v6(r) ? err_set(link->err, BRIG_E_HOST, -r, "network: route to the guest") : 0;
}

/* An address, and everything else by the gate. */
static int give_guest(int sock, const struct target *own, const struct target *gate)
{
    const struct rtmsg route = {.rtm_family = own->family,
                                .rtm_table = RT_TABLE_MAIN,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_UNIVERSE,
                                .rtm_type = RTN_UNICAST};
    const struct target all = {.family = own->family, .device = own->device};
    int r = put_address(sock, own);

    return r < 0 ? r : put_route(sock, &route, &all, gate);
}

static int link_guest(void *arg)
{
    struct link *link = arg;
    int r = enter(link->place, link->guest_ns_fd, link->err);
    AUTO_FD int sock = r < 0 ? -1 : SYS(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));

    if (sock < 0)
        return r < 0 ? r : err_host(link->err, "network: rtnetlink");
    unsigned device = 0;
    if ((r = bring_up(GUEST_DEVICE, &device)) < 0)
        return err_set(link->err, BRIG_E_HOST, -r, "network: device of the guest");
    const struct target v4 = {AF_INET, 30, sizeof link->guest_v4, &link->guest_v4, device};
    const struct target v6 = {AF_INET6, 64, sizeof link->guest_v6, &link->guest_v6, device};
    r = give_guest(sock, &v4, &(struct target){AF_INET, 0, sizeof link->gate_v4, &link->gate_v4, device});
    if (r == 0 && link->v6)
        r = give_guest(sock, &v6, &(struct target){AF_INET6, 0, sizeof link->gate_v6, &link->gate_v6, device});
    return r < 0 ? err_set(link->err, BRIG_E_HOST, -r, "network: addresses of the guest") : 0;
}

int netgate_link(const struct netgate_place *place, int guest_ns_fd, struct brig_err *err)
{
    struct link link = {
        .place = place, .guest_ns_fd = guest_ns_fd, .gate_v6 = GATE_INSIDE_V6, .guest_v6 = GATE_GUEST_V6, .err = err};

    if (inet_pton(AF_INET, GATE_RESOLVER_V4, &link.gate_v4) != 1 ||
        inet_pton(AF_INET, GATE_GUEST_V4, &link.guest_v4) != 1)
        return err_usage(err, "network: addresses of the guest");
    /* Before a device is put there. */
    struct stat st;
    if (fstat(guest_ns_fd, &st) < 0)
        return err_host(err, "network: namespace of the guest");
    if (place->host_ns == 0 || (uint32_t)st.st_ino == place->host_ns)
        return err_set(err, BRIG_E_REFUSED, 0, "network: the guest has no network namespace of its own");
    err->code = BRIG_E_NONE;
    int r = inside_run(link_gate, &link);
    if (r == 0)
        r = inside_run(link_guest, &link);
    return r < 0 && err->code == BRIG_E_NONE ? err_set(err, BRIG_E_HOST, -r, "network: helper") : r;
}

/* ---- from outside ------------------------------------------------------------------------------------- */

int netgate_check(const struct netgate_want *want, struct brig_err *err)
{
    bool good = want->on <= 1 && want->any_port <= 1 && want->n_ports <= POLICY_PORTS_MAX &&
                (want->on || (!want->any_port && want->n_ports == 0));

    for (unsigned i = 0; good && !want->any_port && i < want->n_ports; i++) {
        good = want->ports[i] != 0 && want->ports[i] != 53;
        for (unsigned j = 0; good && j < i; j++)
            good = want->ports[j] != want->ports[i];
    }
    return good ? 0 : err_set(err, BRIG_E_HOST, EPROTO, "network of the run");
}

/* What cannot be added to a gate that is there. */
static int check_change(const struct netgate *gate, const struct netgate_want *want, struct brig_err *err)
{
    if (want->any_port && !gate->any_port)
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "network: from named ports to any port needs a new sandbox");
    if (!gate->any_port && wants_port(want, GATE_PROXY_PORT) && has(gate, GATE_PROXY, GATE_PROXY_PORT, 0))
        return err_set(err, BRIG_E_UNSUPPORTED, 0, "network: port %u is the proxy's here, and needs a new sandbox",
                       GATE_PROXY_PORT);
    return 0;
}

static bool has_all(const struct netgate *gate, const struct netgate_want *want)
{
    if (!gate->any_port && !has(gate, GATE_DNS_UDP, 53, 0))
        return false;
    for (unsigned i = 0; !gate->any_port && i < want->n_ports; i++)
        if (!has_port(gate, want->ports[i]))
            return false;
    return !gate->any_port || has(gate, GATE_REDIRECT, GATE_REDIRECT_PORT, 0);
}

int netgate_open(struct netgate **gate, const struct netgate_place *place, const struct netgate_want *want, int fd_min,
                 struct brig_err *err)
{
    bool fresh = !*gate;
    struct netgate *it = fresh ? mem_zalloc(sizeof *it) : *gate;
    int r = it ? 0 : err_nomem(err);

    if (r == 0 && fresh)
        it->any_port = want->any_port;
    else if (r == 0)
        r = check_change(it, want, err);
    if (r < 0 || (!fresh && has_all(it, want)))
        return r;
    struct job job = {.place = place, .want = want, .gate = it, .fresh = fresh, .fd_min = fd_min, .err = err};
    unsigned n = it->n;
    err->code = BRIG_E_NONE;
    r = inside_run(open_inside, &job);
    if (r < 0 && err->code == BRIG_E_NONE)
        (void)err_set(err, BRIG_E_HOST, -r, "network: helper");
    if (r == 0) {
        *gate = it;
        return 0;
    }
    fd_close_all(it->fds + n, it->n - n);
    it->n = n;
    if (fresh)
        netgate_free(it);
    return r;
}

void netgate_free(struct netgate *gate)
{
    if (!gate)
        return;
    fd_close_all(gate->fds, gate->n);
    mem_free(gate);
}
