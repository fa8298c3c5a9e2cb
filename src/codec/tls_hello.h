/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls_hello.h: what a TLS ClientHello says about the name it wants (RFC 8446, 6066, 9849). Strict: every length must
 * add up, a repeated extension, two names in server_name, or a name that dns_name_canonical() refuses make it
 * malformed. The hello may be spread over several records; nothing else may be between them. Pure.
 */
#ifndef BRIG_CODEC_TLS_HELLO_H
#define BRIG_CODEC_TLS_HELLO_H

#include "codec/dns/dns.h"

#define TLS_HELLO_MAX (32u << 10) /* all its records together */

struct tls_hello {
    bool has_name;
    bool ech;        /* an encrypted_client_hello extension: what it wants may be another */
    bool early_data; /* 0-RTT */
    char name[DNS_NAME_MAX];
    size_t n_alpn; /* how many protocols it offers */
    bool alpn_h2, alpn_http11;
};

/* The first bytes of a connection: > 0: a complete hello took so many bytes; 0: more are needed; -EBADMSG: it is TLS
 * but malformed, or too long; -EPROTO: not TLS at all (can be said from the first byte). */
int tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret) MUST_CHECK;

#endif
