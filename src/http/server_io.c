/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes in and out of a connection. Writing tries the socket at once with everything that waits in one call, and copies
 * only what the kernel did not take; EPOLLOUT is asked for only then. A failure is noted (broken) and acted upon in
 * conn_run().
 */
#include "http/server_conn.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "http/tls.h"

#define TLS_GATHER (16u << 10) /* a record */

bool conn_tls_pending(const struct conn *conn)
{
    return tls_pending(conn->tls);
}

/* Records are small: as many as fit, up to 64 KiB, become one piece. */
static ssize_t read_tls(struct conn *conn, char *data, size_t size)
{
    size_t have = 0;

    while (have < size && have < (64u << 10)) {
        ssize_t n = tls_read(conn->tls, data + have, size - have);
        if (n > 0)
            have += (size_t)n;
        else if (have > 0)
            break; /* an end or an error is found again by the next read */
        else
            return n;
    }
    return (ssize_t)have;
}

/* The first byte of a connection: 0x16 begins a TLS record, and no method does. */
static int sniff(struct conn *conn)
{
    uint8_t first;
    ssize_t n = recv(conn->source.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0)
        return -errno;
    conn->sniffed = true;
    if (n == 1 && first == 0x16 && conn->server->tls)
        return tls_accept(conn->server->tls, conn->source.fd, &conn->tls);
    return 0;
}

ssize_t conn_read(struct conn *conn, char *data, size_t size)
{
    ssize_t n;

    conn->revents &= EPOLLOUT;
    if (!conn->sniffed) {
        int r = sniff(conn);
        if (r < 0)
            return r;
    }
    if (conn->tls) {
        n = read_tls(conn, data, size);
    } else {
        n = RETRY(recv(conn->source.fd, data, size, MSG_DONTWAIT));
        if (n < 0)
            n = -errno;
    }
    return n;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static ssize_t write_tls(struct conn *conn, const struct iovec *iov, size_t n_iov)
{
    char record[TLS_GATHER];
    size_t total = 0, sent = 0;

    for (size_t i = 0; i < n_iov; i++)
        total += iov[i].iov_len;
    if (n_iov > 1 && total <= sizeof(record)) {
        size_t at = 0;
        for (size_t i = 0; i < n_iov; i++) {
            memcpy(record + at, iov[i].iov_base, iov[i].iov_len);
            at += iov[i].iov_len;
        }
        return tls_write(conn->tls, record, total);
    }
    for (size_t i = 0; i < n_iov; i++) {
        size_t at = 0;
        while (at < iov[i].iov_len) {
            ssize_t n = tls_write(conn->tls, (const char *)iov[i].iov_base + at, iov[i].iov_len - at);
            if (n < 0)
                return sent > 0 && n == -EAGAIN ? (ssize_t)sent : n;
            at += (size_t)n;
            sent += (size_t)n;
        }
    }
    return (ssize_t)sent;
}

static ssize_t write_plain(struct conn *conn, struct iovec *iov, size_t n_iov)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_iov};
    ssize_t n;

    do {
        if (n_iov == 1)
            n = send(conn->source.fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
        else
            n = sendmsg(conn->source.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static void drop_output(struct conn *conn)
{
    conn->broken = true;
    buf_done(&conn->out);
    conn->out_at = 0;
}

static void keep(struct conn *conn, const char *data, size_t len)
{
    if (conn->out_at > 0 && conn->out_at >= conn->out.len / 2) {
        buf_consume(&conn->out, conn->out_at);
        conn->out_at = 0;
    }
    if (buf_append(&conn->out, data, len) < 0)
        drop_output(conn);
}

/* Sends what waits and then iov; keeps what is left. */
static void push(struct conn *conn, const struct iovec *iov, size_t n_iov)
{
    struct iovec all[5];
    size_t n = 0, total = 0;

    if (conn_pending(conn) > 0)
        all[n++] = (struct iovec){conn->out.data + conn->out_at, conn_pending(conn)};
    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].iov_len > 0)
            all[n++] = iov[i];
    }
    for (size_t i = 0; i < n; i++)
        total += all[i].iov_len;
    if (total == 0)
        return;
    ssize_t sent = conn->tls ? write_tls(conn, all, n) : write_plain(conn, all, n);
    if (sent < 0 && sent != -EAGAIN)
        return drop_output(conn);
    size_t left = sent > 0 ? (size_t)sent : 0;
    conn->blocked = left < total;
    if (left > 0)
        conn->since_ms = conn->server->now_ms;
    if (conn_pending(conn) > 0) {
        size_t took = left < conn_pending(conn) ? left : conn_pending(conn);
        conn->out_at += took;
        left -= took;
        if (conn_pending(conn) == 0)
            conn->out.len = conn->out_at = 0;
    }
    for (size_t i = 0; i < n_iov && !conn->broken; i++) {
        size_t took = left < iov[i].iov_len ? left : iov[i].iov_len;
        left -= took;
        if (took < iov[i].iov_len)
            keep(conn, (const char *)iov[i].iov_base + took, iov[i].iov_len - took);
    }
}

void conn_write(struct conn *conn, const struct iovec *iov, size_t n_iov, bool lazy)
{
    size_t total = conn_pending(conn);

    if (conn->broken || conn->state == CONN_DEAD)
        return;
    if (total == 0)
        conn->since_ms = server_clock(conn->server); /* the time for it to be read begins */
    for (size_t i = 0; i < n_iov; i++)
        total += iov[i].iov_len;
    if (conn->blocked || (lazy && total < LAZY_MAX)) {
        for (size_t i = 0; i < n_iov && !conn->broken; i++)
            keep(conn, iov[i].iov_base, iov[i].iov_len);
    } else {
        push(conn, iov, n_iov);
    }
    conn_touch(conn);
}

void conn_flush(struct conn *conn)
{
    if (!conn->blocked && !conn->broken)
        push(conn, NULL, 0);
}
