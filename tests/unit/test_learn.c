/* SPDX-License-Identifier: Apache-2.0 */
/* Learning: the least policy, the same for the same attempts in any order, and one that compiles and allows them. */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "gate/policy.h"

static void test_minimal(void **state)
{
    static const char want[] = "{\"default\":\"deny\",\"rules\":["
                               "{\"action\":\"allow\",\"cidr\":\"93.184.216.34\",\"ports\":[22],\"protocol\":\"tcp\"},"
                               "{\"action\":\"allow\",\"domain\":\"a.org\",\"ports\":[443,8443],\"protocol\":\"tls\"},"
                               "{\"action\":\"allow\",\"domain\":\"a.org\",\"ports\":[80],\"protocol\":\"http\"},"
                               "{\"action\":\"allow\",\"domain\":\"b.org\",\"ports\":[443]},"
                               "{\"action\":\"allow\",\"domain\":\"c.org\",\"ports\":[25],\"protocol\":\"tcp\"},"
                               "{\"action\":\"allow\",\"domain\":\"d.org\",\"ports\":[443]}]}";
    static const struct {
        const char *name;
        uint16_t port;
        enum policy_seen seen;
    } tried[] = {
        {"b.org", 443, POLICY_SEEN_TLS},          {"a.org", 8443, POLICY_SEEN_TLS},
        {"a.org", 443, POLICY_SEEN_NOTHING},      {"a.org", 443, POLICY_SEEN_TLS},
        {"a.org", 80, POLICY_SEEN_HTTP},          {"b.org", 443, POLICY_SEEN_HTTP},
        {"c.org", 25, POLICY_SEEN_OTHER},         {"c.org", 25, POLICY_SEEN_TLS},
        {"d.org", 443, POLICY_SEEN_NOTHING},      {"looked.up", 0, POLICY_SEEN_NOTHING},
        {"93.184.216.34", 22, POLICY_SEEN_OTHER}, {"a.org", 443, POLICY_SEEN_TLS},
    };

    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        AUTO_BUF struct buf out = BUF_INIT(1u << 16);
        struct learn *learn = NULL;
        assert_int_equal(learn_create(&learn), 0);
        for (size_t i = 0; i < ARRAY_SIZE(tried); i++) {
            size_t k = backwards ? ARRAY_SIZE(tried) - 1 - i : i;
            assert_int_equal(learn_add(learn, tried[k].name, tried[k].port, tried[k].seen), 0);
        }
        assert_int_equal(learn_put_json(learn, &out), 0);
        assert_string_equal(out.data, want);
        learn_destroy(learn);
    }
}

/* Whatever was tried, the policy compiles and allows exactly that. */
static void test_bounded(void **state)
{
    AUTO_BUF struct buf out = BUF_INIT(1u << 20);
    struct policy *policy = NULL;
    struct learn *learn = NULL;
    struct policy_answer answer;
    struct brig_err err = {0};
    char name[32];
    unsigned added = 0;
    int r = 0;

    (void)state;
    assert_int_equal(learn_create(&learn), 0);
    for (unsigned i = 0; i < 3000 && r == 0; i++) {
        snprintf(name, sizeof name, "h%u.org", i % 8);
        r = learn_add(learn, name, (uint16_t)(1000 + i / 8 * 2), i % 3 ? POLICY_SEEN_TLS : POLICY_SEEN_OTHER);
        added += r == 0;
    }
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(added, POLICY_RULES_MAX);
    assert_int_equal(learn_add(learn, "h0.org", 1000, POLICY_SEEN_HTTP), 0); /* what is there may still be seen again */
    assert_int_equal(learn_add(learn, "", 1, POLICY_SEEN_HTTP), -EINVAL);
    assert_int_equal(learn_put_json(learn, &out), 0);
    if (policy_compile_text(out.data, out.len, &policy, &err) < 0)
        fail_msg("%s", err.message);
    for (unsigned i = 0; i < added; i++) {
        snprintf(name, sizeof name, "h%u.org", i % 8);
        struct policy_question question = {
            .name = name, .port = (uint16_t)(1000 + i / 8 * 2), .seen = i % 3 ? POLICY_SEEN_TLS : POLICY_SEEN_OTHER};
        policy_judge(policy, &question, &answer);
        assert_true(answer.allow);
        question.port++;
        policy_judge(policy, &question, &answer);
        assert_false(answer.allow);
    }
    policy_unref(policy);
    learn_destroy(learn);
    learn_destroy(NULL);
}

static void test_no_memory(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        struct learn *learn = NULL;
        mem_fail_after(n);
        int r = learn_create(&learn);
        for (unsigned i = 0; r == 0 && i < 40; i++)
            r = learn_add(learn, "x.org", (uint16_t)(i + 1), POLICY_SEEN_TLS);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        learn_destroy(learn);
        if (!failed)
            break;
        assert_int_equal(r, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_minimal), cmocka_unit_test(test_bounded),
                                       cmocka_unit_test(test_no_memory)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
