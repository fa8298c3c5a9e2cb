/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dns_server.c: answers DNS questions inside a sandbox. It invents its answers: a name that the policy knows has an
 * address of the gate's own range, and everything else is refused. No query leaves, so a name cannot carry data out.
 * What a name really resolves to is decided when somebody dials it.
 *
 * A refusal is REFUSED and not NXDOMAIN: the name may exist, and resolvers that ask for the next search domain after
 * NXDOMAIN should not do so. With EDNS the reason is sent too (RFC 8914: 18, prohibited).
 */
#include "egress/egress.h"

#include "base/str.h"

#define TTL 60u /* seconds; names_take() keeps a name at least five times as long */
#define EDE_PROHIBITED 18
#define EDE_NONE (-1)

enum { CLASS_IN = 1, TYPE_META_FIRST = 249, TYPE_META_LAST = 255 }; /* TKEY, TSIG, IXFR, AXFR, MAILB, MAILA, ANY */

static bool is_localhost(const char *name)
{
    size_t len = strlen(name);

    return str_eq(name, "localhost") || (len > 10 && str_eq(name + len - 10, ".localhost"));
}

/* Is it a question we have an answer to, if only an empty one? */
static bool allowed(const struct policy *policy, const struct dns_question *question)
{
    char canonical[DNS_NAME_MAX];

    if (question->class != CLASS_IN || (question->type >= TYPE_META_FIRST && question->type <= TYPE_META_LAST) ||
        question->type == DNS_OPT)
        return false;
    /* "127.1" as a name: somebody behind us could take it for an address */
    if (dns_name_canonical(question->name, strlen(question->name), canonical) < 0 || is_localhost(canonical))
        return false;
    return policy_knows_name(policy, canonical);
}

int dns_serve(struct names *names, const struct policy *policy, const uint8_t *query, size_t len, bool tcp,
              struct buf *out, struct dns_verdict *ret)
{
    struct dns_verdict verdict = {0};
    struct dns_question question;
    struct gate_addr addr = {0};
    size_t n = 0, max = tcp ? DNS_TCP_MAX : DNS_UDP_MAX;
    unsigned rcode = DNS_NOERROR;
    int ede = EDE_NONE;
    bool id_known;
    int r = dns_query_parse(query, len, &question, &id_known);

    *ret = verdict;
    if (r < 0)
        return id_known ? dns_formerr_put(out, question.id, question.opcode) : 0;
    verdict.valid = true;
    (void)!str_copy(verdict.name, sizeof(verdict.name), question.name);
    if (!tcp && question.udp_size < max)
        max = question.udp_size;
    if (question.opcode != 0) {
        rcode = DNS_NOTIMP;
    } else if (question.edns_version != 0) {
        rcode = DNS_BADVERS;
    } else if (!allowed(policy, &question)) {
        rcode = DNS_REFUSED;
        ede = EDE_PROHIBITED;
    } else {
        uint32_t number = 0;
        verdict.allowed = true;
        if (question.type == DNS_A || question.type == DNS_AAAA) {
            r = names_take(names, question.name, &number);
            rcode = r < 0 ? DNS_SERVFAIL : DNS_NOERROR;
            n = r < 0 ? 0 : 1;
            gate_fake_make(number, question.type == DNS_AAAA, &addr);
        }
    }
    r = dns_answer_put(out, query, &question, rcode, question.type == DNS_A ? addr.ip + 12 : addr.ip, n, TTL, ede, max);
    if (r < 0)
        return r;
    *ret = verdict;
    return 0;
}
