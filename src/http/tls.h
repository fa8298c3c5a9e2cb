/* SPDX-License-Identifier: Apache-2.0 */
/* tls.h: TLS of the server's side on sockets that do not block (OpenSSL). TLS 1.2 and later, no renegotiation, ALPN
 * http/1.1. */
#ifndef BRIG_HTTP_TLS_H
#define BRIG_HTTP_TLS_H

#include <brig.h>

#include "base/base.h"

struct tls;      /* a certificate and its key */
struct tls_conn; /* one connection */

/* The texts of a certificate chain and its key, and what messages call them. */
struct tls_pem {
    const char *cert, *key;
    size_t cert_len, key_len;
    const char *cert_name, *key_name;
};

int tls_create(const struct tls_pem *pem, struct tls **ret, struct brig_err *err) MUST_CHECK;
void tls_destroy(struct tls *tls); /* connections go on */

int tls_accept(struct tls *tls, int fd, struct tls_conn **ret) MUST_CHECK; /* fd stays the caller's */
void tls_free(struct tls_conn *conn);
/* Bytes, 0 at the end (with or without close_notify), -EAGAIN, or another negative errno. The handshake happens on the
 * way. */
ssize_t tls_read(struct tls_conn *conn, void *data, size_t size) MUST_CHECK;
/* after -EAGAIN the same bytes must come again */
ssize_t tls_write(struct tls_conn *conn, const void *data, size_t len) MUST_CHECK;
bool tls_pending(const struct tls_conn *conn);   /* decrypted bytes wait: no event will tell */
bool tls_ready(const struct tls_conn *conn);     /* the handshake is done */
bool tls_wants_out(const struct tls_conn *conn); /* a read waits until the socket can be written */
void tls_shutdown(struct tls_conn *conn);        /* close_notify, as far as it can be sent */

#endif
