/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address.c: IP addresses, and which of them are not the public internet.
 *
 * The table follows IANA's special-purpose registries (RFC 6890, 8190) with three differences. Documentation ranges are
 * public. The metadata services of clouds have a name of their own (one of them, 168.63.129.16, would be public). In
 * IPv6, everything outside 2000::/3 is reserved unless it is listed, so that a new range of IANA is refused until
 * somebody looks at it. Tables are read from the top and the first match counts. An address that another address wraps
 * is judged as well, because a NAT64 or 6to4 router near this host would unwrap it. A translator with a prefix of the
 * network's own cannot be recognised.
 *
 * The file needs only libc, because it is part of libbrig.
 */
#include "gate/address.h"

#include <arpa/inet.h>

#include "base/err.h"
#include "base/parse.h"
#include "base/str.h"

#define DNS_PORT 53u

enum class {
    PUBLIC,
    LOOPBACK,
    PRIVATE,
    LINK_LOCAL,
    METADATA,
    MULTICAST,
    RESERVED,
    THIS_HOST,
    GATE,
    SHARED,
    BROADCAST,
    CLASS_MAX
};
enum wrapping { PLAIN, COMPATIBLE, NAT64, LOCAL_NAT64, SIX_TO_FOUR, TEREDO, ISATAP, WRAPPING_MAX };

#define REASONS(prefix)                                                                                           \
    {                                                                                                             \
        [LOOPBACK] = (prefix "loopback"), [PRIVATE] = (prefix "private"), [LINK_LOCAL] = (prefix "link-local"),   \
        [METADATA] = (prefix "metadata service"), [MULTICAST] = (prefix "multicast"),                             \
        [RESERVED] = (prefix "reserved"), [THIS_HOST] = (prefix "this host"), [GATE] = (prefix "the gate's own"), \
        [SHARED] = (prefix "shared (carrier NAT)"), [BROADCAST] = (prefix "broadcast")                            \
    }
static const char *const reasons[WRAPPING_MAX][CLASS_MAX] = {
    [PLAIN] = REASONS(""),
    [COMPATIBLE] = REASONS("IPv4-compatible of "),
    [NAT64] = REASONS("NAT64 of "),
    [LOCAL_NAT64] = REASONS("local NAT64 of "),
    [SIX_TO_FOUR] = REASONS("6to4 of "),
    [TEREDO] = REASONS("Teredo of "),
    [ISATAP] = REASONS("ISATAP of "),
};

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

static const struct {
    uint32_t ip;
    unsigned bits;
    enum class class;
} table_v4[] = {
    {V4(169, 254, 169, 254), 32, METADATA}, /* most of them */
    {V4(169, 254, 170, 2), 32, METADATA},   /* ECS tasks */
    {V4(169, 254, 170, 23), 32, METADATA},  /* EKS pods */
    {V4(100, 100, 100, 200), 32, METADATA}, /* Alibaba */
    {V4(192, 0, 0, 192), 32, METADATA},     /* Oracle */
    {V4(168, 63, 129, 16), 32, METADATA},   /* Azure's wire server */
    {V4(0, 0, 0, 0), 8, THIS_HOST},          {V4(10, 0, 0, 0), 8, PRIVATE},        {V4(100, 64, 0, 0), 10, SHARED},
    {V4(127, 0, 0, 0), 8, LOOPBACK},         {V4(169, 254, 0, 0), 16, LINK_LOCAL}, {V4(172, 16, 0, 0), 12, PRIVATE},
    {V4(192, 0, 0, 0), 24, RESERVED},   /* protocol assignments: DS-Lite, PCP, NAT64 discovery */
    {V4(192, 88, 99, 0), 24, RESERVED}, /* 6to4 relays, RFC 7526 */
    {V4(192, 168, 0, 0), 16, PRIVATE},       {V4(198, 18, 0, 0), 15, GATE},        {V4(224, 0, 0, 0), 4, MULTICAST},
    {V4(255, 255, 255, 255), 32, BROADCAST}, {V4(240, 0, 0, 0), 4, RESERVED},
};

/* 64:ff9b::/96, 2001::/32 and 2002::/16 are public as such: what they wrap decides. */
static const struct {
    uint8_t ip[16];
    unsigned bits;
    enum class class;
} table_v6[] = {
    {{[15] = 0}, 128, THIS_HOST},
    {{[15] = 1}, 128, LOOPBACK},
    {{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, METADATA}, /* EC2 */
    {{0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23}, 128, METADATA},              /* EKS pods */
    {{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128, METADATA}, /* Google */
    {{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}, 128, METADATA},              /* Scaleway */
    {{0xfc}, 7, PRIVATE},
    {{0xfe, 0x80}, 10, LINK_LOCAL},
    {{0xfe, 0xc0}, 10, PRIVATE}, /* site-local, RFC 3879 */
    {{0xff}, 8, MULTICAST},
    {{0x00, 0x64, 0xff, 0x9b}, 96, PUBLIC},
    {{0x20, 0x01, 0x00, 0x00}, 32, PUBLIC},
    {{0x20, 0x01, 0x00, 0x02}, 48, GATE},
    {{0x20, 0x01, 0x00}, 23, RESERVED}, /* protocol assignments: ORCHID, AMT, DRIP, ... */
    {{0x3f, 0xff}, 20, RESERVED},       /* RFC 9637 */
    {{0x20}, 3, PUBLIC},                /* global unicast */
    {{0}, 0, RESERVED},
};

static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned bytes = bits / 8, rest = bits % 8;

    if (memcmp(a, b, bytes) != 0)
        return false;
    return rest == 0 || (uint8_t)((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

int gate_addr_from(const struct sockaddr_storage *from, struct gate_addr *ret)
{
    struct gate_addr addr = {0};

    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        memcpy(addr.ip, v4_prefix, sizeof(v4_prefix));
        memcpy(addr.ip + 12, &in->sin_addr, 4);
        addr.port = ntohs(in->sin_port);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        memcpy(addr.ip, &in->sin6_addr, 16);
        addr.port = ntohs(in->sin6_port);
    } else {
        return -EAFNOSUPPORT;
    }
    *ret = addr;
    return 0;
}

/* 0 for what cannot be said in that family: connect() refuses it then. */
socklen_t gate_addr_to(const struct gate_addr *addr, sa_family_t family, struct sockaddr_storage *ret)
{
    *ret = (struct sockaddr_storage){.ss_family = family};
    if (family == AF_INET && gate_addr_is_v4(addr)) {
        struct sockaddr_in *in = (struct sockaddr_in *)ret;
        memcpy(&in->sin_addr, addr->ip + 12, 4);
        in->sin_port = htons(addr->port);
        return sizeof(*in);
    }
    if (family == AF_INET6) {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)ret;
        memcpy(&in->sin6_addr, addr->ip, 16);
        in->sin6_port = htons(addr->port);
        return sizeof(*in);
    }
    return 0;
}

bool gate_addr_is_v4(const struct gate_addr *addr)
{
    return memcmp(addr->ip, v4_prefix, sizeof(v4_prefix)) == 0;
}

bool gate_addr_equal(const struct gate_addr *a, const struct gate_addr *b)
{
    return memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

void gate_addr_text(const struct gate_addr *addr, char out[GATE_ADDR_TEXT])
{
    char ip[INET6_ADDRSTRLEN] = "";
    bool v4 = gate_addr_is_v4(addr);

    (void)!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? addr->ip + 12 : addr->ip, ip, sizeof(ip));
    if (addr->port == 0)
        (void)!str_copy(out, GATE_ADDR_TEXT, ip);
    else if (v4)
        (void)!str_format(out, GATE_ADDR_TEXT, "%s:%u", ip, addr->port);
    else
        (void)!str_format(out, GATE_ADDR_TEXT, "[%s]:%u", ip, addr->port);
}

/* inet_pton() knows neither "127.1" nor "0x7f.0.0.1" nor "010.0.0.1", and no "%zone". */
int gate_addr_parse(const char *text, struct gate_addr *ret)
{
    struct gate_addr addr = {0};

    memcpy(addr.ip, v4_prefix, sizeof(v4_prefix));
    if (inet_pton(AF_INET, text, addr.ip + 12) != 1 && inet_pton(AF_INET6, text, addr.ip) != 1)
        return -EINVAL;
    *ret = addr;
    return 0;
}

int gate_server_parse(const char *text, size_t len, struct gate_addr *ret)
{
    char word[64], *ip = word;
    uint32_t port = DNS_PORT;
    struct gate_addr addr;

    if (len >= sizeof(word))
        return -EINVAL;
    memcpy(word, text, len);
    word[len] = '\0';
    char *hash = strchr(word, '#'), *colon = strrchr(word, ':'), *close = strchr(word, ']'), *digits = NULL;
    if (hash) {
        *hash = '\0';
        digits = hash + 1;
    }
    if (word[0] == '[') {
        if (!close || (close[1] != '\0' && (close[1] != ':' || digits)))
            return -EINVAL;
        digits = close[1] == ':' ? close + 2 : digits;
        *close = '\0';
        ip = word + 1;
    } else if (!digits && colon && strchr(word, ':') == colon) {
        *colon = '\0';
        digits = colon + 1;
    }
    if (gate_addr_parse(ip, &addr) < 0 || (digits && (parse_u32(digits, &port) < 0 || port == 0 || port > UINT16_MAX)))
        return -EINVAL;
    addr.port = (uint16_t)port;
    *ret = addr;
    return 0;
}

int gate_cidr_parse(const char *text, struct gate_cidr *ret, struct brig_err *err)
{
    char ip[INET6_ADDRSTRLEN];
    size_t len = strcspn(text, "/");
    struct gate_addr addr;
    uint32_t bits = 128;

    if (len >= sizeof(ip))
        return err_usage(err, "\"%.64s\" is not an address or a range of addresses", text);
    memcpy(ip, text, len);
    ip[len] = '\0';
    if (gate_addr_parse(ip, &addr) < 0)
        return err_usage(err, "\"%.64s\" is not an address or a range of addresses", text);
    if (text[len] == '/') {
        unsigned most = strchr(ip, ':') ? 128 : 32;
        if (parse_u32(text + len + 1, &bits) < 0 || bits > most)
            return err_usage(err, "\"%.64s\": the prefix length is a number from 0 to %u", text, most);
        bits += 128 - most;
    }
    for (unsigned i = bits; i < 128; i++) {
        if (addr.ip[i / 8] & 0x80u >> i % 8)
            return err_usage(err, "\"%.64s\": bits after the prefix are set", text);
    }
    memcpy(ret->ip, addr.ip, sizeof(ret->ip));
    ret->bits = bits;
    return 0;
}

bool gate_cidr_is_v4(const struct gate_cidr *cidr)
{
    struct gate_addr base = {.port = 0};

    memcpy(base.ip, cidr->ip, sizeof base.ip);
    return cidr->bits >= 96 && gate_addr_is_v4(&base);
}

bool gate_cidr_private(const struct gate_cidr *cidr)
{
    struct gate_addr base = {.port = 0};

    memcpy(base.ip, cidr->ip, sizeof base.ip);
    return gate_addr_private(&base) && cidr->bits >= (gate_cidr_is_v4(cidr) ? 96u + 8u : 7u);
}

/* "::/0" is all of IPv6 and nothing of IPv4, as everybody reads it; that IPv4 lives inside the 16 bytes here is our
 * business. */
bool gate_cidr_has(const struct gate_cidr *cidr, const struct gate_addr *addr)
{
    if (cidr->bits < 96 && gate_addr_is_v4(addr))
        return false;
    return prefix_equal(cidr->ip, addr->ip, cidr->bits);
}

static enum class class_v4(const uint8_t ip[4]) {
    uint32_t host = V4(ip[0], ip[1], ip[2], ip[3]);

    for (size_t i = 0; i < ARRAY_SIZE(table_v4);
         i++){if ((host ^ table_v4[i].ip) >> (32 - table_v4[i].bits) == 0) return table_v4[i].class;}
return PUBLIC;
}

static enum class class_v6(const uint8_t ip[16]) {
    for (size_t i = 0; i < ARRAY_SIZE(table_v6);
         i++){if (prefix_equal(ip, table_v6[i].ip, table_v6[i].bits)) return table_v6[i].class;}
return RESERVED;
}

/* RFC 6052, 2.2: where the four bytes are depends on the prefix's length, which the address does not say; bits 64 to 71
 * are skipped. 64:ff9b:1::/48 may be used with each of 48, 56, 64 and 96. */
static enum class class_local_nat64(const uint8_t ip[16]) {
    const uint8_t forms[][4] = {{ip[6], ip[7], ip[9], ip[10]},
                                {ip[7], ip[9], ip[10], ip[11]},
                                {ip[9], ip[10], ip[11], ip[12]},
                                {ip[12], ip[13], ip[14], ip[15]}};
    static const unsigned order[] = {3, 0, 1, 2};

    for (size_t i = 0; i < ARRAY_SIZE(order); i++){enum class class = class_v4(forms[order[i]]);
                                                   /* a form that was not meant reads as 0.x.x.x nearly always */
                                                   if (class != PUBLIC && class != THIS_HOST) return class;}
return PUBLIC;
}

/* What the address wraps, if it is of such a kind and that is not public. */
static const char *wrapped(const uint8_t ip[16])
{
    static const uint8_t zeroes[12];
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}, local_nat64[6] = {0x00, 0x64, 0xff, 0x9b, 0x00, 0x01};
    static const uint8_t isatap[4] = {0x00, 0x00, 0x5e, 0xfe};
    const uint8_t client[4] = {(uint8_t)~ip[12], (uint8_t)~ip[13], (uint8_t)~ip[14], (uint8_t)~ip[15]};

    if (memcmp(ip, zeroes, 12) == 0)
        return reasons[COMPATIBLE][class_v4(ip + 12)];
    if (memcmp(ip, nat64, 12) == 0)
        return reasons[NAT64][class_v4(ip + 12)];
    if (memcmp(ip, local_nat64, 6) == 0)
        return reasons[LOCAL_NAT64][class_local_nat64(ip)];
    if (ip[0] == 0x20 && ip[1] == 0x02 && class_v4(ip + 2) != PUBLIC)
        return reasons[SIX_TO_FOUR][class_v4(ip + 2)];
    if (ip[0] == 0x20 && ip[1] == 0x01 && ip[2] == 0 && ip[3] == 0) {
        enum class server = class_v4(ip + 4);
        return reasons[TEREDO][server != PUBLIC ? server : class_v4(client)];
    }
    /* any prefix; the first byte's "universal" bit may be set (RFC 5214, 6.1) */
    if ((ip[8] & ~0x02) == isatap[0] && memcmp(ip + 9, isatap + 1, 3) == 0)
        return reasons[ISATAP][class_v4(ip + 12)];
    return NULL;
}

const char *gate_addr_private(const struct gate_addr *addr)
{
    if (gate_addr_is_v4(addr))
        return reasons[PLAIN][class_v4(addr->ip + 12)];

    enum class class = class_v6(addr->ip);
    if (class != PUBLIC && class != RESERVED)
        return reasons[PLAIN][class];
    const char *inner = wrapped(addr->ip);
    return inner ? inner : reasons[PLAIN][class];
}

bool gate_addr_translated(const struct gate_addr *addr, struct gate_addr *ret)
{
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b}, zero[12] = {0};
    const uint8_t *v4 = NULL;

    if (memcmp(addr->ip, nat64, 12) == 0 || memcmp(addr->ip, zero, 12) == 0)
        v4 = addr->ip + 12;
    else if (addr->ip[0] == 0x20 && addr->ip[1] == 0x02)
        v4 = addr->ip + 2;
    if (!v4)
        return false;
    *ret = (struct gate_addr){.ip = {[10] = 0xff, [11] = 0xff}, .port = addr->port};
    memcpy(ret->ip + 12, v4, 4);
    return true;
}

/*
 * 198.19.x.y and 2001:2::c613:xxyy show that they belong together. The lower half of the range stays free for the
 * resolver's address.
 */
void gate_fake_make(uint32_t number, bool v6, struct gate_addr *ret)
{
    const uint8_t v4[4] = {198, 19, (uint8_t)(number >> 8), (uint8_t)number};

    *ret = (struct gate_addr){.ip = {0x20, 0x01, 0x00, 0x02}};
    if (!v6) {
        ret->ip[0] = ret->ip[1] = ret->ip[3] = 0;
        ret->ip[10] = ret->ip[11] = 0xff;
    }
    memcpy(ret->ip + 12, v4, 4);
}

bool gate_fake_number(const struct gate_addr *addr, uint32_t *ret)
{
    uint32_t number = (uint32_t)addr->ip[14] << 8 | addr->ip[15];
    struct gate_addr v4, v6;

    gate_fake_make(number, false, &v4);
    gate_fake_make(number, true, &v6);
    if (!gate_addr_equal(addr, &v4) && !gate_addr_equal(addr, &v6))
        return false;
    *ret = number;
    return true;
}
