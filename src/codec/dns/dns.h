/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.h: DNS messages (RFC 1035, 6891), strict and small: what the gate's responder reads from a sandbox and its stub
 * resolver from a server. Pure: bytes in, structs out.
 *
 * Names become text at once, lower case, without the root's dot: only letters, digits, '-', '_' and '.' between labels
 * are accepted, a label has 1 to 63 bytes, a name at most 253. Anything else (a NUL, a dot inside a label, bytes over
 * 127) is -EBADMSG: nothing that is compared later can be cut short or mean two things. Compression pointers go
 * backwards only and at most DNS_JUMPS times; in a question they are refused.
 */
#ifndef BRIG_CODEC_DNS_DNS_H
#define BRIG_CODEC_DNS_DNS_H

#include "base/base.h"
#include "base/buf.h"

#define DNS_NAME_MAX 254u /* with the NUL */
#define DNS_UDP_MAX 1232u /* what we send and advertise over UDP */
#define DNS_TCP_MAX 65535u
#define DNS_ADDRESSES_MAX 32u
#define DNS_JUMPS 32u

enum { DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_PTR = 12, DNS_TXT = 16, DNS_AAAA = 28, DNS_OPT = 41 };
enum { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED, DNS_BADVERS = 16 };

struct dns_question {
    uint16_t id, type, class;
    bool recursion_desired;
    bool edns;            /* the asker sent an OPT record */
    uint16_t udp_size;    /* what it can take: 512 without EDNS */
    uint8_t edns_version; /* anything but 0 is answered BADVERS */
    unsigned opcode;      /* anything but 0 is answered NOTIMP; then nothing else is set */
    size_t question_len;  /* bytes of the question section, to be copied into the answer */
    char name[DNS_NAME_MAX];
};

/*
 * A query. 0; -EBADMSG: it is none (too short, a response, not exactly one question, records we do not expect, a bad
 * name): *ret has the id and opcode as far as they could be read, for a FORMERR (id_known; not for a response, which
 * gets no answer at all). The root's name is "".
 */
int dns_query_parse(const uint8_t *data, size_t len, struct dns_question *ret, bool *ret_id_known) MUST_CHECK;

/* The answer to that query: n addresses (4 bytes each for DNS_A, 16 for DNS_AAAA) with one ttl, or none. ede: an
 * Extended DNS Error code (RFC 8914) when the asker has EDNS and it is not -1. Appends to out; TC and no records when
 * over max bytes. */
int dns_answer_put(struct buf *out, const uint8_t *query, const struct dns_question *question, unsigned rcode,
                   const uint8_t *addresses, size_t n, uint32_t ttl, int ede, size_t max) MUST_CHECK;
/* FORMERR for something that could not be parsed. */
int dns_formerr_put(struct buf *out, uint16_t id, unsigned opcode) MUST_CHECK;

/* A query of our own, with EDNS and RD. The last DNS_OPT_LEN bytes are the OPT record: a server that answers FORMERR
 * can be asked without (and 0 in the header's last two bytes). */
#define DNS_OPT_LEN 11u
int dns_query_put(struct buf *out, uint16_t id, const char *name, uint16_t type) MUST_CHECK;

struct dns_reply {
    unsigned rcode;
    bool truncated;
    size_t n;                                 /* addresses of `type`, at the end of the chain of CNAMEs */
    uint8_t addresses[DNS_ADDRESSES_MAX][16]; /* 4 or 16 bytes used */
    uint32_t ttl;                 /* the least of the chain; of the SOA for a negative answer; capped by the caller */
    char canonical[DNS_NAME_MAX]; /* the end of the chain */
};
/* A reply to exactly that query (id, question compared): 0, -EBADMSG, -ENOMSG when it answers something else (a spoof:
 * wait on). */
int dns_reply_parse(const uint8_t *data, size_t len, uint16_t id, const char *name, uint16_t type,
                    struct dns_reply *ret) MUST_CHECK;

/*
 * A host name as people and protocols write it -> the one form everything compares: lower case, no trailing dot, the
 * bytes above, and not an IP address in any spelling that inet_aton() would take ("127.1", "0x7f.1", "2130706433").
 * -EINVAL otherwise. len counts: a NUL inside is refused. Wildcards are the policy's business.
 */
int dns_name_canonical(const char *text, size_t len, char out[DNS_NAME_MAX]) MUST_CHECK;

#endif
