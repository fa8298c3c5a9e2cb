/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socks.h: the server's side of SOCKS5 (RFC 1928): only CONNECT, no authentication. SOCKS4, BIND and UDP ASSOCIATE are
 * refused. A name is bytes with a length, and dns_name_canonical() gets that length, so a NUL in it is refused. It has
 * no sockets.
 */
#ifndef BRIG_CODEC_SOCKS_H
#define BRIG_CODEC_SOCKS_H

#include "codec/dns/dns.h"

enum socks_reply {
    SOCKS_OK,
    SOCKS_FAILURE,
    SOCKS_NOT_ALLOWED,
    SOCKS_NET_UNREACHABLE,
    SOCKS_HOST_UNREACHABLE,
    SOCKS_REFUSED,
    SOCKS_TTL_EXPIRED,
    SOCKS_BAD_COMMAND,
    SOCKS_BAD_ADDRESS
};

struct socks_request {
    bool is_name;
    char name[DNS_NAME_MAX];
    bool v6;
    uint8_t address[16]; /* 4 or 16 bytes */
    uint16_t port;
};

/*
 * Parses "05 n methods". Returns the bytes taken, 0 if more are needed, -EPROTO (not version 5) or -EACCES ("no
 * authentication" is not offered).
 */
int socks_greeting_parse(const uint8_t *data, size_t len) MUST_CHECK;
/*
 * Parses the request. Returns the bytes taken, 0 if more are needed, or a negative errno with *ret_reply set: -EPROTO,
 * -EOPNOTSUPP (another command or address type) or -EINVAL (a bad name).
 */
int socks_request_parse(const uint8_t *data, size_t len, struct socks_request *ret,
                        enum socks_reply *ret_reply) MUST_CHECK;
/* Write the 2 bytes that choose a method (0x00, or 0xff for none) and the 10 bytes that answer a request. */
void socks_put_method(uint8_t out[2], bool accepted);
void socks_put_reply(uint8_t out[10], enum socks_reply reply);

#endif
