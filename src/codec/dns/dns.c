/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns.c: writes DNS messages, and brings host names into their one spelling.
 *
 * An answer repeats the bytes of the question as they came, because a resolver that randomises the case of letters
 * compares them. The records' names point to the question. Nothing else is compressed: there is nothing to compress.
 */
#include "codec/dns/dns.h"

#include "base/ascii.h"

#define HEADER 12u
#define EDE_OPTION 15u /* RFC 8914 */

static void put_u16(uint8_t *p, unsigned value)
{
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static int append_u16(struct buf *out, unsigned value)
{
    uint8_t bytes[2];

    put_u16(bytes, value);
    return buf_append(out, bytes, sizeof(bytes));
}

static int append_header(struct buf *out, uint16_t id, unsigned flags, unsigned questions, unsigned answers,
                         unsigned additional)
{
    uint8_t header[HEADER] = {0};

    put_u16(header, id);
    put_u16(header + 2, flags);
    put_u16(header + 4, questions);
    put_u16(header + 6, answers);
    put_u16(header + 10, additional);
    return buf_append(out, header, sizeof(header));
}

/* OPT with what we take over UDP, the high bits of the rcode, and an Extended DNS Error unless ede is -1. */
static int append_opt(struct buf *out, unsigned rcode, int ede)
{
    uint8_t opt[DNS_OPT_LEN + 6] = {[2] = DNS_OPT};

    put_u16(opt + 3, DNS_UDP_MAX);
    opt[5] = (uint8_t)(rcode >> 4);
    if (ede < 0)
        return buf_append(out, opt, DNS_OPT_LEN);
    put_u16(opt + 9, 6);
    put_u16(opt + 11, EDE_OPTION);
    put_u16(opt + 13, 2);
    put_u16(opt + 15, (unsigned)ede);
    return buf_append(out, opt, sizeof(opt));
}

static int append_address(struct buf *out, uint16_t type, const uint8_t *address, uint32_t ttl)
{
    uint8_t record[12 + 16] = {0xc0, HEADER, [5] = 1};
    size_t size = type == DNS_A ? 4 : 16;

    put_u16(record + 2, type);
    put_u16(record + 6, ttl >> 16);
    put_u16(record + 8, ttl & 0xffff);
    put_u16(record + 10, (unsigned)size);
    memcpy(record + 12, address, size);
    return buf_append(out, record, 12 + size);
}

static int append_answer(struct buf *out, const uint8_t *query, const struct dns_question *question, unsigned rcode,
                         const uint8_t *addresses, size_t n, uint32_t ttl, int ede, bool truncated)
{
    /* a response with recursion available; opcode and RD as asked */
    unsigned flags = 0x8080 | question->opcode << 11 | (question->recursion_desired ? 0x0100u : 0) |
                     (truncated ? 0x0200u : 0) | (rcode & 15);
    size_t size = question->type == DNS_A ? 4 : 16;
    int r = append_header(out, question->id, flags, question->question_len > 0, (unsigned)n, question->edns);

    if (r == 0)
        r = buf_append(out, query + HEADER, question->question_len);
    for (size_t i = 0; r == 0 && i < n; i++)
        r = append_address(out, question->type, addresses + i * size, ttl);
    if (r == 0 && question->edns)
        r = append_opt(out, rcode, ede);
    return r;
}

int dns_answer_put(struct buf *out, const uint8_t *query, const struct dns_question *question, unsigned rcode,
                   const uint8_t *addresses, size_t n, uint32_t ttl, int ede, size_t max)
{
    size_t before = out->len, size = question->type == DNS_A ? 4 : 16;
    size_t need = HEADER + question->question_len + n * (12 + size) + (question->edns ? DNS_OPT_LEN + 6 : 0);
    bool truncated = n > DNS_ADDRESSES_MAX || need > max;
    int r = append_answer(out, query, question, rcode, addresses, truncated ? 0 : n, ttl, ede, truncated);

    if (r < 0 && out->data) {
        out->len = before;
        out->data[before] = '\0';
    }
    return r;
}

int dns_formerr_put(struct buf *out, uint16_t id, unsigned opcode)
{
    return append_header(out, id, 0x8080 | (opcode & 15) << 11 | DNS_FORMERR, 0, 0, 0);
}

static int append_name(struct buf *out, const char *name)
{
    while (*name) {
        size_t len = strcspn(name, ".");
        uint8_t n = (uint8_t)len;
        if (len == 0 || len > 63)
            return -EINVAL;
        int r = buf_append(out, &n, 1);
        if (r == 0)
            r = buf_append(out, name, len);
        if (r < 0)
            return r;
        name += len;
        if (*name == '.' && *++name == '\0')
            return -EINVAL;
    }
    return buf_append(out, "", 1);
}

int dns_query_put(struct buf *out, uint16_t id, const char *name, uint16_t type)
{
    size_t before = out->len;
    int r = strlen(name) < DNS_NAME_MAX ? append_header(out, id, 0x0100, 1, 0, 1) : -EINVAL;

    if (r == 0)
        r = append_name(out, name);
    if (r == 0)
        r = append_u16(out, type);
    if (r == 0)
        r = append_u16(out, 1);
    if (r == 0)
        r = append_opt(out, 0, -1);
    if (r < 0 && out->data) {
        out->len = before;
        out->data[before] = '\0';
    }
    return r;
}

/* ---- names -------------------------------------------------------------------------------------------------- */

/*
 * Could a resolver somewhere read this name as a number? inet_aton() reads one to four parts that are decimal, octal or
 * hexadecimal. No real name ends in such a part (RFC 3696, 2), so the last part decides, as in the URLs of WHATWG.
 */
static bool ends_in_number(const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;

    if (last[0] == '0' && last[1] == 'x')
        return last[2 + strspn(last + 2, "0123456789abcdef")] == '\0';
    return last[strspn(last, "0123456789")] == '\0';
}

int dns_name_canonical(const char *text, size_t len, char out[DNS_NAME_MAX])
{
    size_t label = 0;

    out[0] = '\0';
    if (len > 0 && text[len - 1] == '.')
        len--;
    if (len == 0 || len >= DNS_NAME_MAX)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        char c = ascii_lower(text[i]);
        bool plain = ascii_is_alnum(c) || c == '-' || c == '_';
        label = c == '.' ? 0 : label + 1;
        if ((!plain && c != '.') || label > 63 || (c == '.' && (i == 0 || text[i - 1] == '.'))) {
            out[0] = '\0';
            return -EINVAL;
        }
        out[i] = c;
    }
    out[len] = '\0';
    if (out[len - 1] == '.' || ends_in_number(out)) {
        out[0] = '\0';
        return -EINVAL;
    }
    return 0;
}
