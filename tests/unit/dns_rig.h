/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns_rig.h: a name server on 127.0.0.1, UDP and TCP on one port, in a thread. What it answers depends on the first
 * label of the name. It allocates nothing, so that tests can make allocations fail.
 */
#ifndef BRIG_TESTS_DNS_RIG_H
#define BRIG_TESTS_DNS_RIG_H

#include "unit.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "codec/dns/dns.h"

struct dns_out { /* an answer being written */
    uint8_t data[8192];
    size_t len;
    unsigned n;
};

struct dns_rig {
    struct dns_out out, forged;
    int udp, tcp, stop[2];
    uint16_t port;
    pthread_t thread;
    atomic_uint asked, asked_tcp; /* questions of type A */
    atomic_uint ports[64];        /* where the first of them came from */
    atomic_uint ids[64];
    atomic_bool mute, servfail;
};

static inline void rig_u16(struct dns_out *out, unsigned value)
{
    out->data[out->len++] = (uint8_t)(value >> 8);
    out->data[out->len++] = (uint8_t)value;
}

static inline void rig_begin(struct dns_out *out, const uint8_t *query, const struct dns_question *q, unsigned flags)
{
    memset(out, 0, 12);
    out->len = out->n = 0;
    rig_u16(out, q->id);
    rig_u16(out, 0x8180 | flags);
    out->data[5] = 1;
    out->len = 12;
    memcpy(out->data + 12, query + 12, q->question_len);
    out->len += q->question_len;
}

/* owner: NULL for the question's name, or labels as they are on the wire, with the NUL that C adds. */
static inline void rig_record(struct dns_out *out, const char *owner, unsigned type, uint32_t ttl, const void *rdata,
                              size_t len)
{
    if (owner) {
        memcpy(out->data + out->len, owner, strlen(owner) + 1);
        out->len += strlen(owner) + 1;
    } else {
        rig_u16(out, 0xc00c);
    }
    rig_u16(out, type);
    rig_u16(out, 1);
    rig_u16(out, ttl >> 16);
    rig_u16(out, ttl & 0xffff);
    rig_u16(out, (unsigned)len);
    memcpy(out->data + out->len, rdata, len);
    out->len += len;
    out->data[7] = (uint8_t)++out->n;
}

/* 192.0.2.last or 2001:db8::last */
static inline void rig_address(struct dns_out *out, const char *owner, uint16_t type, uint32_t ttl, uint8_t last)
{
    const uint8_t v4[4] = {192, 0, 2, last}, v6[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = last};

    rig_record(out, owner, type, ttl, type == DNS_A ? v4 : v6, type == DNS_A ? 4 : 16);
}

static inline bool rig_is(const struct dns_question *q, const char *label)
{
    return strncmp(q->name, label, strlen(label)) == 0 && q->name[strlen(label)] == '.';
}

static inline void rig_send(int fd, const struct dns_out *out, const struct sockaddr_in *to)
{
    (void)!sendto(fd, out->data, out->len, MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof(*to));
}

/* Forgeries first: another id, another question, rubbish; n times. */
static inline void rig_forge(struct dns_rig *rig, const uint8_t *query, const struct dns_question *q, unsigned n,
                             const struct sockaddr_in *to)
{
    struct dns_out *out = &rig->forged;

    for (unsigned i = 0; i < n; i++) {
        rig_begin(out, query, q, 0);
        rig_address(out, NULL, q->type, 60, 66);
        if (i % 3 == 0)
            out->data[1] ^= 1;
        else if (i % 3 == 1)
            out->data[13] ^= 2; /* another letter */
        else
            out->len = 11;
        rig_send(rig->udp, out, to);
    }
}

/* The answer; false: none is sent. */
static inline bool rig_answer(struct dns_rig *rig, const uint8_t *query, const struct dns_question *q, bool tcp,
                              struct dns_out *out)
{
    bool a = q->type == DNS_A;
    unsigned n = rig->asked;

    rig_begin(out, query, q, 0);
    if (rig->mute || rig_is(q, "mute"))
        return false;
    if (rig->servfail || rig_is(q, "servfail") || (rig_is(q, "half") && !a)) {
        rig_begin(out, query, q, DNS_SERVFAIL);
    } else if (rig_is(q, "nx")) {
        rig_begin(out, query, q, DNS_NXDOMAIN);
    } else if (rig_is(q, "cname")) {
        rig_record(out, NULL, DNS_CNAME, 60, "\4next\4test", 11);
        rig_record(out, "\4next\4test", DNS_CNAME, 60, "\3end\4test", 10);
        rig_address(out, "\3end\4test", q->type, 60, 7);
    } else if (rig_is(q, "big") || rig_is(q, "cut")) {
        if (!tcp)
            rig_begin(out, query, q, 0x200);
        for (uint8_t i = 0; tcp && i < 40; i++)
            rig_address(out, NULL, q->type, 60, i);
    } else if (rig_is(q, "old") && q->edns) { /* knows no EDNS, and no question in its answer */
        rig_begin(out, query, q, DNS_FORMERR);
        out->data[5] = 0;
        out->len = 12;
    } else if (rig_is(q, "broken")) {
        rig_address(out, NULL, q->type, 60, 1);
        out->len--;
    } else if (rig_is(q, "ttl0")) {
        rig_address(out, NULL, q->type, 0, (uint8_t)n);
    } else if (rig_is(q, "v4only")) {
        if (a)
            rig_address(out, NULL, q->type, 60, 4);
    } else if (!rig_is(q, "empty")) {
        rig_address(out, NULL, q->type, rig_is(q, "ttl1") ? 1 : 60, 1);
    }
    return true;
}

static inline void rig_count(struct dns_rig *rig, const struct dns_question *q, const struct sockaddr_in *from)
{
    if (q->type != DNS_A)
        return;
    unsigned n = rig->asked++;
    if (n < ARRAY_SIZE(rig->ports)) {
        rig->ports[n] = ntohs(from->sin_port);
        rig->ids[n] = q->id;
    }
}

static inline void rig_udp(struct dns_rig *rig)
{
    struct dns_out *out = &rig->out;
    uint8_t query[2048];
    struct sockaddr_in from;
    socklen_t from_len = sizeof(from);
    struct dns_question q;
    bool id_known;
    ssize_t n = recvfrom(rig->udp, query, sizeof(query), 0, (struct sockaddr *)&from, &from_len);

    if (n < 0 || dns_query_parse(query, (size_t)n, &q, &id_known) < 0)
        return;
    rig_count(rig, &q, &from);
    if (rig_is(&q, "spoof"))
        rig_forge(rig, query, &q, 30, &from);
    if (rig_is(&q, "flood") && rig->asked == 1)
        rig_forge(rig, query, &q, 150, &from);
    if (rig_answer(rig, query, &q, false, out))
        rig_send(rig->udp, out, &from);
}

static inline void rig_tcp(struct dns_rig *rig)
{
    struct dns_out *out = &rig->out;
    struct sockaddr_in from;
    socklen_t from_len = sizeof(from);
    AUTO_FD int fd = accept4(rig->tcp, (struct sockaddr *)&from, &from_len, SOCK_CLOEXEC);
    uint8_t query[2048], len[2];
    struct dns_question q;
    bool id_known;

    if (fd < 0 || recv(fd, len, 2, MSG_WAITALL) != 2)
        return;
    ssize_t want = len[0] << 8 | len[1];
    if (want > (ssize_t)sizeof(query) || recv(fd, query, (size_t)want, MSG_WAITALL) != want)
        return;
    if (dns_query_parse(query, (size_t)want, &q, &id_known) < 0)
        return;
    rig->asked_tcp++;
    rig_answer(rig, query, &q, true, out);
    len[0] = (uint8_t)(out->len >> 8);
    len[1] = (uint8_t)out->len;
    (void)!send(fd, len, 1, MSG_NOSIGNAL); /* in pieces */
    poll(NULL, 0, 5);                      /* clock: each piece by itself */
    (void)!send(fd, len + 1, 1, MSG_NOSIGNAL);
    (void)!send(fd, out->data, 100, MSG_NOSIGNAL);
    poll(NULL, 0, 5); /* clock: each piece by itself */
    if (!rig_is(&q, "cut"))
        (void)!send(fd, out->data + 100, out->len - 100, MSG_NOSIGNAL);
}

static inline void *rig_main(void *ctx)
{
    struct dns_rig *rig = ctx;

    for (;;) {
        struct pollfd fds[] = {{.fd = rig->udp, .events = POLLIN},
                               {.fd = rig->tcp, .events = POLLIN},
                               {.fd = rig->stop[0], .events = POLLIN}};
        poll(fds, 3, -1);
        if (fds[2].revents)
            return NULL;
        if (fds[0].revents)
            rig_udp(rig);
        if (fds[1].revents)
            rig_tcp(rig);
    }
}

static inline void dns_rig_start(struct dns_rig *rig)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);

    memset(rig, 0, sizeof(*rig));
    for (unsigned i = 0;; i++) { /* the same port for both, which somebody may have taken between */
        assert_true(i < 20);
        at.sin_port = 0;
        rig->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        rig->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(rig->udp, (struct sockaddr *)&at, sizeof(at)), 0);
        assert_int_equal(getsockname(rig->udp, (struct sockaddr *)&at, &len), 0);
        if (bind(rig->tcp, (struct sockaddr *)&at, sizeof(at)) == 0)
            break;
        close(rig->udp);
        close(rig->tcp);
    }
    assert_int_equal(listen(rig->tcp, 16), 0);
    assert_int_equal(pipe(rig->stop), 0);
    rig->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&rig->thread, NULL, rig_main, rig), 0);
}

static inline void dns_rig_stop(struct dns_rig *rig)
{
    assert_int_equal(write(rig->stop[1], "x", 1), 1);
    assert_int_equal(pthread_join(rig->thread, NULL), 0);
    close(rig->udp);
    close(rig->tcp);
    close(rig->stop[0]);
    close(rig->stop[1]);
}

#endif
