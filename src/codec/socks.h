/* SPDX-License-Identifier: Apache-2.0 */
/*
 * socks.h: the server's side of SOCKS5 (RFC 1928), CONNECT only, no authentication. SOCKS4, BIND and UDP ASSOCIATE are
 * refused. A name is bytes with a length: it goes through dns_name_canonical() with that length, so that a NUL in it is
 * a refusal. Pure.
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

/* "05 n methods": bytes taken, 0 for more, -EPROTO (not version 5), -EACCES (it does not offer "no authentication"). */
int socks_greeting_parse(const uint8_t *data, size_t len) MUST_CHECK;
/* The request: bytes taken, 0 for more, or a negative errno with *ret_reply set: -EPROTO, -EOPNOTSUPP (another command,
 * address type), -EINVAL (name). */
int socks_request_parse(const uint8_t *data, size_t len, struct socks_request *ret,
                        enum socks_reply *ret_reply) MUST_CHECK;
/* The 2 bytes that choose a method (0x00, or 0xff for none), and the 10 that answer a request. */
void socks_put_method(uint8_t out[2], bool accepted);
void socks_put_reply(uint8_t out[10], enum socks_reply reply);

#endif
