/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.h: IP addresses as the gate compares them: always 16 bytes, IPv4 as ::ffff:a.b.c.d, so that one address has
 * one spelling. One table here says what is not the public internet (RFC 6890 and the metadata services of clouds). An
 * address that wraps an IPv4 address (mapped, compatible, NAT64 64:ff9b::/96 and 64:ff9b:1::/48, 6to4 2002::/16, Teredo
 * 2001::/32, ISATAP) is also judged by what it wraps. Documentation ranges (192.0.2.0/24, 198.51.100.0/24,
 * 203.0.113.0/24, 2001:db8::/32) count as public, because mirrors use them.
 */
#ifndef BRIG_GATE_ADDRESS_H
#define BRIG_GATE_ADDRESS_H

#include <brig.h>
#include <netinet/in.h>

#include "base/base.h"

struct gate_addr {
    uint8_t ip[16];
    uint16_t port; /* In host order; 0 where no port is meant. */
};

#define GATE_ADDR_TEXT 64u
/*
 * The gate's own addresses inside a sandbox. The addresses that stand for names are in 198.18.0.0/15 and 2001:2::/48.
 */
#define GATE_RESOLVER_V4 "198.18.0.1" /* /etc/resolv.conf names it. DNS works at every other address as well. */
#define GATE_PROXY_PORT 3128u         /* CONNECT and SOCKS5, only on GATE_RESOLVER_V4. */

/* Returns 0 or -EAFNOSUPPORT. */
int gate_addr_from(const struct sockaddr_storage *from, struct gate_addr *ret) MUST_CHECK;
/*
 * Makes a sockaddr for a socket of that family and returns its length. On an AF_INET6 socket an IPv4 address is mapped.
 */
socklen_t gate_addr_to(const struct gate_addr *addr, sa_family_t family, struct sockaddr_storage *ret);
bool gate_addr_is_v4(const struct gate_addr *addr);
bool gate_addr_equal(const struct gate_addr *a, const struct gate_addr *b); /* Compares only the ip. */
/* Writes "1.2.3.4", "1.2.3.4:443" or "[::1]:443". The port is written if it is not 0. */
void gate_addr_text(const struct gate_addr *addr, char out[GATE_ADDR_TEXT]);
/* Parses one address: a dotted quad or IPv6, and nothing else (no "127.1"). */
int gate_addr_parse(const char *text, struct gate_addr *ret) MUST_CHECK;
/*
 * Parses a name server: "10.0.0.53", "10.0.0.53:5353", "10.0.0.53#5353", "fd00::1", "fd00::1#53" or "[fd00::1]:53". The
 * port is 53 if none is given.
 */
int gate_server_parse(const char *text, size_t len, struct gate_addr *ret) MUST_CHECK;

struct gate_cidr {
    uint8_t ip[16];
    unsigned bits; /* The length of the prefix, of 128 bits. */
};
/* Parses "10.0.0.0/8", "10.1.2.3" or "fd00::/8". Returns -EINVAL if it is none, or if bits below the mask are set. */
int gate_cidr_parse(const char *text, struct gate_cidr *ret, struct brig_err *err) MUST_CHECK;
bool gate_cidr_is_v4(const struct gate_cidr *cidr);
/* Is the whole range private? The widest private ranges are 10.0.0.0/8 and fc00::/7; "0.0.0.0/0" is not private. */
bool gate_cidr_private(const struct gate_cidr *cidr);
bool gate_cidr_has(const struct gate_cidr *cidr, const struct gate_addr *addr);

/*
 * Returns NULL if the address is public. Otherwise returns a static text that says why not: "loopback", "private",
 * "link-local", "metadata service", "multicast", "reserved", "this host", "the gate's own", "NAT64 of private", ...
 */
const char *gate_addr_private(const struct gate_addr *addr);

/*
 * Finds the IPv4 address to which an IPv6 address is translated on its way (64:ff9b::/96, 2002::/16, ::/96). Returns
 * false if there is none.
 */
bool gate_addr_translated(const struct gate_addr *addr, struct gate_addr *ret);

/* Synthetic addresses. Each number from 0 to GATE_FAKE_MAX - 1 has one address of either family. */
#define GATE_FAKE_MAX 65536u
void gate_fake_make(uint32_t number, bool v6, struct gate_addr *ret);
/* Returns false if the address is not in the range. */
bool gate_fake_number(const struct gate_addr *addr, uint32_t *ret);

#endif
