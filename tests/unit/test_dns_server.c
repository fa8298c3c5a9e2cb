/* SPDX-License-Identifier: Apache-2.0 */
/* Port 53 inside a sandbox, and the names its addresses stand for; with a real policy. */
#include "unit.h"

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"

#define POLICY                                                                                                    \
    "{\"rules\": [{\"action\": \"allow\", \"domain\": \"api.example.com\"}, {\"action\": \"allow\", \"domain\": " \
    "\"*.wild.org\"}]}"
#define OPEN "{\"default\": \"allow\"}"

struct rig {
    struct names *names;
    struct policy *policy;
    struct buf out;
    struct dns_verdict verdict;
    struct dns_reply reply; /* of the last question that was understood */
};

static void rig_init(struct rig *rig, const char *policy)
{
    *rig = (struct rig){.out = BUF_INIT(DNS_TCP_MAX)};
    assert_int_equal(names_create(&rig->names), 0);
    assert_int_equal(policy_compile_text(policy, strlen(policy), &rig->policy, NULL), 0);
}

static void rig_done(struct rig *rig)
{
    names_destroy(rig->names);
    policy_unref(rig->policy);
    buf_done(&rig->out);
}

static void serve(struct rig *rig, const void *query, size_t len, bool tcp)
{
    rig->out.len = 0;
    assert_int_equal(dns_serve(rig->names, rig->policy, query, len, tcp, &rig->out, &rig->verdict), 0);
}

/* Asks and reads the answer; the rcode. */
static unsigned ask(struct rig *rig, const char *name, uint16_t type)
{
    AUTO_BUF struct buf query = BUF_INIT(512);

    assert_int_equal(dns_query_put(&query, 0x1234, name, type), 0);
    serve(rig, query.data, query.len, false);
    assert_int_equal(dns_reply_parse((uint8_t *)rig->out.data, rig->out.len, 0x1234, name, type, &rig->reply), 0);
    assert_true(rig->verdict.valid);
    assert_string_equal(rig->verdict.name, name);
    return rig->reply.rcode;
}

static unsigned raw(struct rig *rig, const char *hex)
{
    uint8_t query[512];

    serve(rig, query, unit_hex(hex, query, sizeof(query)), true);
    return rig->out.len < 12 ? 99 : (uint8_t)rig->out.data[3] & 15;
}

static void test_allowed(UNUSED void **state)
{
    struct rig rig;
    struct gate_addr v4 = {.ip = {[10] = 0xff, [11] = 0xff}}, v6 = {0};
    uint32_t number, twin;

    rig_init(&rig, POLICY);
    assert_int_equal(ask(&rig, "api.example.com", DNS_A), DNS_NOERROR);
    assert_true(rig.verdict.allowed && rig.reply.n == 1 && rig.reply.ttl == 60);
    memcpy(v4.ip + 12, rig.reply.addresses[0], 4);
    assert_int_equal(ask(&rig, "api.example.com", DNS_AAAA), DNS_NOERROR);
    assert_int_equal(rig.reply.n, 1);
    memcpy(v6.ip, rig.reply.addresses[0], 16);
    assert_true(gate_fake_number(&v4, &number) && gate_fake_number(&v6, &twin) && number == twin);
    assert_string_equal(names_find(rig.names, number), "api.example.com");
    /* other types: the name is there, the record is not */
    static const uint16_t types[] = {DNS_TXT, DNS_NS, DNS_SOA, DNS_PTR, DNS_CNAME, 15, 65, 64, 33, 43};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        assert_int_equal(ask(&rig, "api.example.com", types[i]), DNS_NOERROR);
        assert_true(rig.verdict.allowed && rig.reply.n == 0);
    }
    /* each name its own */
    assert_int_equal(ask(&rig, "a.wild.org", DNS_A), DNS_NOERROR);
    assert_memory_not_equal(rig.reply.addresses[0], v4.ip + 12, 4);
    rig_done(&rig);
}

static void test_refused(UNUSED void **state)
{
    static const char *const names[] = {"example.com", "wild.org", "xapi.example.com",
                                        "localhost",   "com",      "1.0.19.198.in-addr.arpa"};
    struct rig rig;

    rig_init(&rig, POLICY);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(ask(&rig, names[i], DNS_A), DNS_REFUSED);
        assert_true(!rig.verdict.allowed && rig.reply.n == 0);
        /* ... with the reason, as it was asked with EDNS: prohibited */
        unit_assert_hex(rig.out.data + rig.out.len - 8, 8, "0006 000f 0002 0012");
    }
    static const uint16_t types[] = {249, 250, 251, 252, 253, 254, 255, DNS_OPT};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        assert_int_equal(ask(&rig, "api.example.com", types[i]), DNS_REFUSED);
    rig_done(&rig);

    /* where everything is allowed, still nothing that is an address or this machine */
    rig_init(&rig, OPEN);
    assert_int_equal(ask(&rig, "anything.example", DNS_A), DNS_NOERROR);
    static const char *const never[] = {"127.0.0.1", "127.1", "2130706433", "a.0x7f", "localhost", "x.localhost"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        assert_int_equal(ask(&rig, never[i], DNS_A), DNS_REFUSED);
    assert_null(names_find(rig.names, 1));
    rig_done(&rig);
}

static void test_strange(UNUSED void **state)
{
#define NAME "03617069 076578616d706c65 03636f6d 00"
    struct rig rig;

    rig_init(&rig, POLICY);
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0000 " NAME " 0001 0001"), DNS_NOERROR);
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0000 " NAME " 0001 0003"), DNS_REFUSED); /* CHAOS */
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0000 " NAME " 0001 00ff"), DNS_REFUSED); /* any class */
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0000 00 0002 0001"), DNS_REFUSED);       /* the root */
    assert_int_equal(raw(&rig, "1234 2800 0001 0000 0000 0000 " NAME " 0006 0001"), DNS_NOTIMP);  /* UPDATE */
    unit_assert_hex(rig.out.data, rig.out.len, "1234 a884 0000 0000 0000 0000");
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0001 " NAME " 0001 0001 00 0029 1000 00010000 0000"),
                     0); /* EDNS 1: BADVERS */
    assert_int_equal(rig.out.data[rig.out.len - 6], 1);
    assert_false(rig.verdict.allowed);
    assert_int_equal(raw(&rig, "1234 0100 0001 0000 0000 0000 03610062 00 0001 0001"), DNS_FORMERR);
    unit_assert_hex(rig.out.data, rig.out.len, "1234 8081 0000 0000 0000 0000");
    assert_false(rig.verdict.valid);
    assert_int_equal(raw(&rig, "1234 01"), 99);                                          /* no answer at all */
    assert_int_equal(raw(&rig, "1234 8180 0001 0000 0000 0000 " NAME " 0001 0001"), 99); /* nor to an answer */
    rig_done(&rig);
#undef NAME
}

static void test_names_full(UNUSED void **state)
{
    struct rig rig;
    char name[64];
    uint32_t numbers[2], number, reused;

    rig_init(&rig, POLICY);
    for (unsigned i = 0; i < EGRESS_NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.wild.org", i);
        assert_int_equal(names_take(rig.names, name, i < 2 ? &numbers[i] : &number), 0);
    }
    for (unsigned i = 0; i < EGRESS_NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.wild.org", i);
        assert_int_equal(names_take(rig.names, name, &number), 0);
        assert_string_equal(names_find(rig.names, number), name);
    }
    assert_int_equal(names_take(rig.names, "more.wild.org", &number), -ENOSPC);
    assert_int_equal(ask(&rig, "more.wild.org", DNS_A), DNS_SERVFAIL);
    /* five minutes later the one that was not used goes, and its number means nothing */
    names_age(rig.names, 299 * NS_PER_SEC);
    assert_int_equal(names_take(rig.names, "more.wild.org", &number), -ENOSPC);
    names_age(rig.names, 2 * NS_PER_SEC);
    assert_string_equal(names_find(rig.names, numbers[0]), "n0.wild.org");
    assert_int_equal(names_take(rig.names, "more.wild.org", &reused), 0);
    assert_int_equal(reused % EGRESS_NAMES_MAX, numbers[1]);
    assert_int_not_equal(reused, numbers[1]);
    assert_null(names_find(rig.names, numbers[1]));
    assert_string_equal(names_find(rig.names, reused), "more.wild.org");
    assert_string_equal(names_find(rig.names, numbers[0]), "n0.wild.org");
    assert_int_equal(names_take(rig.names, "n1.wild.org", &number), 0); /* anew, elsewhere */
    assert_int_not_equal(number, numbers[1]);
    assert_null(names_find(rig.names, GATE_FAKE_MAX - 1));
    rig_done(&rig);
}

static void test_memory(UNUSED void **state)
{
    for (size_t n = 0;; n++) {
        struct names *names = NULL;
        uint32_t number;
        char name[32];

        mem_fail_after(n);
        int r = names_create(&names);
        for (unsigned i = 0; r == 0 && i < 40; i++) {
            snprintf(name, sizeof(name), "n%u.org", i);
            r = names_take(names, name, &number);
            if (r == 0)
                assert_string_equal(names_find(names, number), name);
        }
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        assert_int_equal(r, failed ? -ENOMEM : 0);
        names_destroy(names);
        if (!failed)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allowed), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_strange), cmocka_unit_test(test_names_full),
                                       cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
