/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.h: strict DNS messages (RFC 1035, 6891). The gate's responder reads queries of sandboxes with it, and the stub
 * resolver reads the replies of servers. It only turns bytes into structs and back; it has no sockets.
 *
 * A name becomes text at once, in lower case and without the root's dot. Only letters, digits, '-', '_' and '.' between
 * labels are accepted; a label has 1 to 63 bytes and a name at most 253. Anything else (a NUL, a dot inside a label,
 * bytes over 127) is -EBADMSG, so that no name that is compared later can be cut short or mean two things. Compression
 * pointers go backwards only, and at most DNS_JUMPS times; in a question they are refused.
 */
#ifndef BRIG_CODEC_DNS_DNS_H
#define BRIG_CODEC_DNS_DNS_H

#include "base/base.h"
#include "base/buf.h"

#define DNS_NAME_MAX 254u /* This includes the NUL. */
#define DNS_UDP_MAX 1232u /* The size that brig sends and advertises over UDP. */
#define DNS_TCP_MAX 65535u
#define DNS_ADDRESSES_MAX 32u
#define DNS_JUMPS 32u

enum { DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_PTR = 12, DNS_TXT = 16, DNS_AAAA = 28, DNS_OPT = 41 };
enum { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED, DNS_BADVERS = 16 };

struct dns_question {
    uint16_t id, type, class;
    bool recursion_desired;
    bool edns;            /* The asker sent an OPT record. */
    uint16_t udp_size;    /* The size that the asker can take; 512 without EDNS. */
    uint8_t edns_version; /* A version other than 0 is answered BADVERS. */
    unsigned opcode;      /* An opcode other than 0 is answered NOTIMP; then nothing else is set. */
    size_t question_len;  /* The length of the question section, which the answer repeats. */
    char name[DNS_NAME_MAX];
};

/*
 * Parses a query. Returns 0, or -EBADMSG if it is none (too short, a response, not exactly one question, records that
 * do not belong there, a bad name). Then *ret has the id and the opcode as far as they could be read, and *ret_id_known
 * says whether a FORMERR can be sent; a response gets no answer at all. The root's name is "".
 */
int dns_query_parse(const uint8_t *data, size_t len, struct dns_question *ret, bool *ret_id_known) MUST_CHECK;

/*
 * Appends the answer to that query: n addresses with one ttl (4 bytes each for DNS_A, 16 for DNS_AAAA), or none. ede is
 * an Extended DNS Error code (RFC 8914) or -1; it is sent only if the asker has EDNS. An answer that would be over max
 * bytes has the flag TC and no records.
 */
int dns_answer_put(struct buf *out, const uint8_t *query, const struct dns_question *question, unsigned rcode,
                   const uint8_t *addresses, size_t n, uint32_t ttl, int ede, size_t max) MUST_CHECK;
/* Appends a FORMERR, for a message that could not be parsed. */
int dns_formerr_put(struct buf *out, uint16_t id, unsigned opcode) MUST_CHECK;

/*
 * Appends a query of brig's own, with EDNS and RD. Its last DNS_OPT_LEN bytes are the OPT record. A server that answers
 * FORMERR can be asked again without them (and with 0 in the last two bytes of the header).
 */
#define DNS_OPT_LEN 11u
int dns_query_put(struct buf *out, uint16_t id, const char *name, uint16_t type) MUST_CHECK;

struct dns_reply {
    unsigned rcode;
    bool truncated;
    size_t n;                                 /* The number of addresses of `type` at the end of the chain of CNAMEs. */
    uint8_t addresses[DNS_ADDRESSES_MAX][16]; /* 4 or 16 bytes used */
    /* The smallest TTL of the chain, or the SOA's for a negative answer. The caller caps it. */
    uint32_t ttl;
    char canonical[DNS_NAME_MAX]; /* The name at the end of the chain. */
};
/*
 * Parses a reply to exactly that query; id and question are compared. Returns 0, -EBADMSG, or -ENOMSG if it answers
 * something else. Then it is forged, and the caller waits on.
 */
int dns_reply_parse(const uint8_t *data, size_t len, uint16_t id, const char *name, uint16_t type,
                    struct dns_reply *ret) MUST_CHECK;

/*
 * Brings a host name, as people and protocols write it, into the one form that everything compares: lower case, no
 * trailing dot, only the bytes above. An IP address in any spelling that inet_aton() accepts ("127.1", "0x7f.1",
 * "2130706433") is -EINVAL, as is everything else. len counts, so a NUL inside is refused. Wildcards are the policy's
 * business.
 */
int dns_name_canonical(const char *text, size_t len, char out[DNS_NAME_MAX]) MUST_CHECK;

#endif
