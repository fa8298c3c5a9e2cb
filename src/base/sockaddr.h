/* SPDX-License-Identifier: Apache-2.0 */
/* sockaddr.h: an address of a socket, of IPv4 or IPv6. */
#ifndef BRIG_BASE_SOCKADDR_H
#define BRIG_BASE_SOCKADDR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/base.h"

union sock_addr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Reads "127.0.0.1" or "[::1]"; a name is not looked up. Returns the length for connect() and bind(), or 0. */
socklen_t sock_addr_parse(const char *host, uint16_t port, union sock_addr *ret) MUST_CHECK;

#endif
