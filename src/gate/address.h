/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h: IP addresses as the gate compares them: always 16 bytes, IPv4 as ::ffff:a.b.c.d, so that one spelling is
 * one address. What is not the public internet is one table here (RFC 6890 and the metadata services of clouds);
 * addresses that wrap an IPv4 address (mapped, compatible, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, 6to4 2002::/16,
 * Teredo 2001::/32, ISATAP) are judged by what they wrap as well. Documentation ranges (192.0.2.0/24, 198.51.100.0/24,
 * 203.0.113.0/24, 2001:db8::/32) count as public: mirrors use them.
 */
#ifndef BRIG_GATE_ADDRESS_H
#define BRIG_GATE_ADDRESS_H

#include <brig.h>
#include <netinet/in.h>

#include "base/base.h"

struct gate_addr {
    uint8_t ip[16];
    uint16_t port; /* host order; 0 where none is meant */
};

#define GATE_ADDR_TEXT 64u
/* The gate's own addresses inside a sandbox, and the range that stands for names: 198.18.0.0/15 and its twin
 * 2001:2::/48. */
#define GATE_RESOLVER_V4 "198.18.0.1" /* /etc/resolv.conf names it; every address works */
#define GATE_PROXY_PORT 3128u         /* CONNECT and SOCKS5, on GATE_RESOLVER_V4 only */

int gate_addr_from(const struct sockaddr_storage *from, struct gate_addr *ret) MUST_CHECK; /* -EAFNOSUPPORT */
/* A sockaddr for a socket of that family; v4 addresses on an AF_INET6 socket are mapped. Returns its length. */
socklen_t gate_addr_to(const struct gate_addr *addr, sa_family_t family, struct sockaddr_storage *ret);
bool gate_addr_is_v4(const struct gate_addr *addr);
bool gate_addr_equal(const struct gate_addr *a, const struct gate_addr *b); /* the ip only */
/* "1.2.3.4", "1.2.3.4:443", "[::1]:443"; the port when it is not 0. */
void gate_addr_text(const struct gate_addr *addr, char out[GATE_ADDR_TEXT]);
/* One address, dotted quad or IPv6, nothing else (no "127.1"). */
int gate_addr_parse(const char *text, struct gate_addr *ret) MUST_CHECK;

struct gate_cidr {
    uint8_t ip[16];
    unsigned bits; /* of 128 */
};
/* "10.0.0.0/8", "10.1.2.3", "fd00::/8". -EINVAL: not one, or bits below the mask are set. */
int gate_cidr_parse(const char *text, struct gate_cidr *ret, struct brig_err *err) MUST_CHECK;
bool gate_cidr_is_v4(const struct gate_cidr *cidr);
/* Is the range a piece of private space? The widest there is are 10.0.0.0/8 and fc00::/7: "0.0.0.0/0" is not. */
bool gate_cidr_private(const struct gate_cidr *cidr);
bool gate_cidr_has(const struct gate_cidr *cidr, const struct gate_addr *addr);

/* NULL: public. Else why not: "loopback", "private", "link-local", "metadata service", "multicast", "reserved", "this
 * host", "the gate's own", "NAT64 of private", ... Static text. */
const char *gate_addr_private(const struct gate_addr *addr);

/* The IPv4 address that an IPv6 one is translated to on its way: 64:ff9b::/96, 2002::/16, ::/96. false: none. */
bool gate_addr_translated(const struct gate_addr *addr, struct gate_addr *ret);

/* Synthetic addresses: number 0 .. GATE_FAKE_MAX-1 <-> an address of either family. */
#define GATE_FAKE_MAX 65536u
void gate_fake_make(uint32_t number, bool v6, struct gate_addr *ret);
bool gate_fake_number(const struct gate_addr *addr, uint32_t *ret); /* false: not of the range */

#endif
