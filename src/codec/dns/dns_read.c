/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns_read.c: reads DNS messages. Nothing here trusts a length: every byte is fetched through a cursor that knows the
 * end of the message. A name is text from the moment it is read and has one spelling. If a name cannot be written that
 * way, its record cannot be used; and if that record was wanted, the message is malformed.
 *
 * A reply is looked at only after its id and its question have been compared. Until then it belongs to somebody else
 * (-ENOMSG), so that a forged datagram cannot end a query by being malformed.
 */
#include "codec/dns/dns.h"

#include "base/ascii.h"
#include "base/str.h"

#define HEADER 12u
#define CHAIN_MAX 16u    /* CNAMEs in one reply */
#define RECORDS_MAX 512u /* in one section; each is read once per step of the chain */

struct cursor {
    const uint8_t *data;
    size_t len, at;
};

struct record {
    char name[DNS_NAME_MAX];
    bool name_ok;
    uint16_t type, class, rdata_len;
    uint32_t ttl;
    size_t rdata; /* where it starts */
};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)u16_at(p) << 16 | u16_at(p + 2);
}

static bool name_byte(char *c)
{
    *c = ascii_lower(*c);
    return ascii_is_alnum(*c) || *c == '-' || *c == '_';
}

/* One label of len bytes at label, behind those that out has. false: it does not fit, or has a byte that no name here
 * has. */
static bool put_label(char out[DNS_NAME_MAX], size_t *out_len, const uint8_t *label, size_t len)
{
    size_t n = *out_len;

    if (n + (n > 0) + len >= DNS_NAME_MAX)
        return false;
    if (n > 0)
        out[n++] = '.';
    for (size_t i = 0; i < len; i++) {
        char c = (char)label[i];
        if (!name_byte(&c))
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    *out_len = n;
    return true;
}

/*
 * Reads the name at the cursor and moves the cursor behind it. Returns -EBADMSG if it is no name at all. *ret_ok is
 * false if it is a name that is too long or has other bytes than ours. Each pointer must lead to a place before the
 * start of the labels that it ends, so the walk ends.
 */
static int read_name(struct cursor *c, bool pointers, char out[DNS_NAME_MAX], bool *ret_ok)
{
    size_t at = c->at, start = c->at, end = 0, len = 0, wire = 0;
    unsigned jumps = 0;
    bool ok = true;

    out[0] = '\0';
    for (;;) {
        if (at >= c->len)
            return -EBADMSG;
        uint8_t n = c->data[at];
        if (n == 0)
            break;
        if (n >= 0xc0) {
            if (!pointers || c->len - at < 2 || ++jumps > DNS_JUMPS)
                return -EBADMSG;
            size_t to = (size_t)(n & 0x3f) << 8 | c->data[at + 1];
            if (to < HEADER || to >= start)
                return -EBADMSG;
            if (end == 0)
                end = at + 2;
            at = start = to;
            continue;
        }
        if (n > 63 || c->len - at < 1u + n || (wire += 1u + n) > 254)
            return -EBADMSG;
        ok = ok && put_label(out, &len, c->data + at + 1, n);
        at += 1u + n;
    }
    c->at = end > 0 ? end : at + 1;
    *ret_ok = ok;
    return 0;
}

static int read_record(struct cursor *c, struct record *ret)
{
    int r = read_name(c, true, ret->name, &ret->name_ok);

    if (r < 0)
        return r;
    if (c->len - c->at < 10)
        return -EBADMSG;
    const uint8_t *p = c->data + c->at;
    ret->type = u16_at(p);
    ret->class = u16_at(p + 2);
    ret->ttl = u32_at(p + 4);
    if (ret->ttl > INT32_MAX) /* RFC 2181, 8 */
        ret->ttl = 0;
    ret->rdata_len = u16_at(p + 8);
    c->at += 10;
    ret->rdata = c->at;
    if (c->len - c->at < ret->rdata_len)
        return -EBADMSG;
    c->at += ret->rdata_len;
    return 0;
}

/* ---- queries ------------------------------------------------------------------------------------------------ */

/* The one record a query may bring (RFC 6891). */
static int read_opt(struct cursor *c, struct dns_question *q)
{
    struct record opt;
    bool root = c->at < c->len && c->data[c->at] == 0;

    if (!root || read_record(c, &opt) < 0 || opt.type != DNS_OPT)
        return -EBADMSG;
    for (size_t at = opt.rdata; at < c->at;) {
        if (c->at - at < 4 || c->at - at - 4 < u16_at(c->data + at + 2))
            return -EBADMSG;
        at += 4u + u16_at(c->data + at + 2);
    }
    q->edns = true;
    q->edns_version = c->data[opt.rdata - 5]; /* of the TTL's four bytes the second */
    if (opt.class > q->udp_size)
        q->udp_size = opt.class;
    return 0;
}

int dns_query_parse(const uint8_t *data, size_t len, struct dns_question *ret, bool *ret_id_known)
{
    struct cursor c = {data, len, HEADER};
    bool ok;

    *ret = (struct dns_question){.udp_size = 512};
    *ret_id_known = len >= 4;
    if (len < 4)
        return -EBADMSG;
    ret->id = u16_at(data);
    ret->opcode = data[2] >> 3 & 15;
    ret->recursion_desired = data[2] & 0x01;
    if (data[2] & 0x80) { /* a response: not even FORMERR, or two responders could play for ever */
        *ret_id_known = false;
        return -EBADMSG;
    }
    if (len < HEADER || len > DNS_TCP_MAX)
        return -EBADMSG;
    if (ret->opcode != 0) /* what follows is of another shape */
        return 0;
    if (u16_at(data + 4) != 1 || u16_at(data + 6) != 0 || u16_at(data + 8) != 0 || u16_at(data + 10) > 1)
        return -EBADMSG;
    if (read_name(&c, false, ret->name, &ok) < 0 || !ok || len - c.at < 4) {
        ret->name[0] = '\0';
        return -EBADMSG;
    }
    ret->type = u16_at(data + c.at);
    ret->class = u16_at(data + c.at + 2);
    c.at += 4;
    ret->question_len = c.at - HEADER;
    if (u16_at(data + 10) == 1 && read_opt(&c, ret) < 0)
        return -EBADMSG;
    return c.at == len ? 0 : -EBADMSG;
}

/* ---- replies ------------------------------------------------------------------------------------------------ */

static int read_target(const struct cursor *c, const struct record *record, char out[DNS_NAME_MAX])
{
    struct cursor inner = {c->data, record->rdata + record->rdata_len, record->rdata};
    bool ok;

    if (read_name(&inner, true, out, &ok) < 0 || !ok || inner.at != inner.len || out[0] == '\0')
        return -EBADMSG;
    return 0;
}

/*
 * Reads all records of the answer that `name` owns: addresses of the type into ret, or the target of a CNAME into next
 * ("" if there is none).
 */
static int read_answers(struct cursor c, unsigned n_records, uint16_t type, const char *name, struct dns_reply *ret,
                        char next[DNS_NAME_MAX], uint32_t *ttl)
{
    size_t size = type == DNS_A ? 4 : 16;
    struct record record;

    next[0] = '\0';
    for (unsigned i = 0; i < n_records; i++) {
        if (read_record(&c, &record) < 0)
            return -EBADMSG;
        if (record.class != 1 || !record.name_ok || !str_eq(record.name, name))
            continue;
        if (record.type == type) {
            if (record.rdata_len != size)
                return -EBADMSG;
            if (ret->n < DNS_ADDRESSES_MAX)
                memcpy(ret->addresses[ret->n++], c.data + record.rdata, size);
        } else if (record.type == DNS_CNAME && next[0] == '\0') {
            if (read_target(&c, &record, next) < 0)
                return -EBADMSG;
        } else {
            continue;
        }
        if (record.ttl < *ttl)
            *ttl = record.ttl;
    }
    return 0;
}

/* How long "there is none" may be believed (RFC 2308, 5): the lesser of the SOA's own TTL and its last field. 0 without
 * one. */
static uint32_t negative_ttl(struct cursor *c, unsigned n_authority)
{
    struct record record;

    for (unsigned i = 0; i < n_authority; i++) {
        if (read_record(c, &record) < 0)
            return 0;
        if (record.type == DNS_SOA && record.class == 1 && record.rdata_len >= 22) {
            uint32_t minimum = u32_at(c->data + record.rdata + record.rdata_len - 4);
            return minimum < record.ttl ? minimum : record.ttl;
        }
    }
    return 0;
}

/* Is it the answer to that question at all? The cursor then stands behind the question. */
static int match_question(struct cursor *c, uint16_t id, const char *name, uint16_t type)
{
    char asked[DNS_NAME_MAX];
    bool ok;

    if (c->len < HEADER || u16_at(c->data) != id || (c->data[2] & 0xf8) != 0x80)
        return -ENOMSG;
    c->at = HEADER;
    unsigned rcode = c->data[3] & 15;
    if (u16_at(c->data + 4) == 0 && (rcode == DNS_FORMERR || rcode == DNS_NOTIMP)) /* servers that do not know EDNS cut
                                                                                      it off */
        return 0;
    if (u16_at(c->data + 4) != 1 || read_name(c, false, asked, &ok) < 0 || !ok || !str_eq(asked, name) ||
        c->len - c->at < 4)
        return -ENOMSG;
    if (u16_at(c->data + c->at) != type || u16_at(c->data + c->at + 2) != 1)
        return -ENOMSG;
    c->at += 4;
    return 0;
}

int dns_reply_parse(const uint8_t *data, size_t len, uint16_t id, const char *name, uint16_t type,
                    struct dns_reply *ret)
{
    struct cursor c = {data, len, 0};
    struct dns_reply reply = {.ttl = INT32_MAX};
    char next[DNS_NAME_MAX];
    int r = match_question(&c, id, name, type);

    if (r < 0)
        return r;
    reply.rcode = data[3] & 15;
    reply.truncated = data[2] & 0x02;
    if (str_copy(reply.canonical, sizeof(reply.canonical), name) < 0)
        return -EBADMSG;
    unsigned n_answers = u16_at(data + 6), n_authority = u16_at(data + 8);
    if (reply.truncated || (reply.rcode != DNS_NOERROR && reply.rcode != DNS_NXDOMAIN)) {
        reply.ttl = 0;
        *ret = reply;
        return 0;
    }
    if (n_answers > RECORDS_MAX || n_authority > RECORDS_MAX)
        return -EBADMSG;
    for (unsigned step = 0;; step++) {
        r = read_answers(c, n_answers, type, reply.canonical, &reply, next, &reply.ttl);
        if (r < 0)
            return r;
        if (reply.n > 0 || next[0] == '\0')
            break;
        if (step == CHAIN_MAX || str_copy(reply.canonical, sizeof(reply.canonical), next) < 0)
            return -EBADMSG;
    }
    if (reply.n == 0) {
        struct record skipped;
        for (unsigned i = 0; i < n_answers; i++) {
            if (read_record(&c, &skipped) < 0)
                return -EBADMSG;
        }
        uint32_t ttl = negative_ttl(&c, n_authority);
        reply.ttl = ttl < reply.ttl ? ttl : reply.ttl;
    }
    *ret = reply;
    return 0;
}
