/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS messages. A query that is accepted has a name of our bytes only, and the answer to it is a reply that says what
 * was put in. A reply that is accepted holds addresses of the type that was asked for, within the bounds. A host name
 * that is accepted is its own canonical form, and no address.
 */
#include "fuzz.h"

#include <arpa/inet.h>

#include "codec/dns/dns.h"

static void check_name(const char *name)
{
    size_t len = strlen(name), label = 0;

    FUZZ_CHECK(len < DNS_NAME_MAX);
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        label = c == '.' ? 0 : label + 1;
        FUZZ_CHECK(label <= 63);
        FUZZ_CHECK((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                   (c == '.' && i > 0 && i + 1 < len && name[i - 1] != '.'));
    }
}

static void check_query(const uint8_t *data, size_t size)
{
    static const uint8_t addresses[2][16] = {{192, 0, 2, 1, 192, 0, 2, 2}, {0}};
    struct dns_question question;
    struct dns_reply reply;
    bool id_known;
    AUTO_BUF struct buf out = BUF_INIT(DNS_TCP_MAX);
    int r = dns_query_parse(data, size, &question, &id_known);

    FUZZ_CHECK(r == 0 || r == -EBADMSG);
    FUZZ_CHECK(id_known || r < 0);
    check_name(question.name);
    if (r < 0 || question.opcode != 0)
        return;
    FUZZ_CHECK(question.question_len + 12 <= size && question.udp_size >= 512);
    bool wanted = question.class == 1 && (question.type == DNS_A || question.type == DNS_AAAA);
    FUZZ_CHECK(dns_answer_put(&out, data, &question, DNS_NOERROR, addresses[0], wanted ? 2 : 0, 60, 18, DNS_UDP_MAX) ==
               0);
    FUZZ_CHECK(out.len <= DNS_UDP_MAX);
    if (question.class != 1)
        return;
    FUZZ_CHECK(dns_reply_parse((uint8_t *)out.data, out.len, question.id, question.name, question.type, &reply) == 0);
    if (wanted)
        FUZZ_CHECK(reply.n == 2 && reply.ttl == 60 && memcmp(reply.addresses[0], addresses[0], 4) == 0);
    FUZZ_CHECK(dns_reply_parse((uint8_t *)out.data, out.len, question.id ^ 1, question.name, question.type, &reply) ==
               -ENOMSG);
}

static void check_reply(const uint8_t *data, size_t size, uint16_t type)
{
    struct dns_reply reply;
    int r = dns_reply_parse(data, size, 0x1234, "api.example.com", type, &reply);

    FUZZ_CHECK(r == 0 || r == -EBADMSG || r == -ENOMSG);
    if (r < 0)
        return;
    FUZZ_CHECK(reply.n <= DNS_ADDRESSES_MAX && reply.ttl <= INT32_MAX);
    FUZZ_CHECK(!reply.truncated || reply.n == 0);
    check_name(reply.canonical);
}

static void check_canonical(const char *data, size_t size)
{
    char name[DNS_NAME_MAX], again[DNS_NAME_MAX];
    struct in_addr addr;

    if (dns_name_canonical(data, size, name) < 0)
        return;
    check_name(name);
    FUZZ_CHECK(name[0] != '\0' && inet_aton(name, &addr) == 0);
    FUZZ_CHECK(strlen(name) == size || (strlen(name) == size - 1 && data[size - 1] == '.'));
    FUZZ_CHECK(dns_name_canonical(name, strlen(name), again) == 0 && strcmp(name, again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_query(data, size);
    check_reply(data, size, DNS_A);
    check_reply(data, size, DNS_AAAA);
    check_canonical((const char *)data, size);
    return 0;
}
