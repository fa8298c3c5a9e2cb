/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_hello.h: reads the name that a TLS ClientHello asks for (RFC 8446, 6066, 9849). It is strict: a length that does
 * not add up, a repeated extension, two names in server_name, or a name that dns_name_canonical() refuses make the
 * hello malformed. The hello may be spread over several records, with nothing else between them. It has no sockets.
 */
#ifndef BRIG_CODEC_TLS_HELLO_H
#define BRIG_CODEC_TLS_HELLO_H

#include "codec/dns/dns.h"

#define TLS_HELLO_MAX (32u << 10) /* The length of all its records together. */

struct tls_hello {
    bool has_name;
    bool ech;        /* It has an encrypted_client_hello extension, so the real name may be another. */
    bool early_data; /* 0-RTT */
    char name[DNS_NAME_MAX];
    size_t n_alpn; /* The number of protocols that it offers. */
    bool alpn_h2, alpn_http11;
};

/*
 * Parses the first bytes of a connection. Returns the length of a complete hello, 0 if more bytes are needed, -EBADMSG
 * (it is TLS, but malformed or too long) or -EPROTO (it is not TLS; the first byte can decide that).
 */
int tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret) MUST_CHECK;

#endif
