/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies: JSON text, then after a NUL a path as a client would send it. Whatever compiles has a canonical JSON that
 * compiles to itself, and its answers agree with each other: for the names, addresses and ports of its own rules and
 * for others.
 */
#include "fuzz.h"

#include "base/str.h"
#include "codec/json/json_read.h"
#include "gate/policy.h"
#include "gate/policy_priv.h"

static bool ask(const struct policy *policy, struct policy_question question, enum policy_seen seen)
{
    struct policy_answer answer;

    question.seen = seen;
    policy_judge(policy, &question, &answer);
    FUZZ_CHECK(answer.why[0] != '\0' && memchr(answer.why, '\0', sizeof answer.why));
    FUZZ_CHECK(answer.rule >= -2 && answer.rule < (int)POLICY_RULES_MAX);
    if (answer.rule >= 0)
        FUZZ_CHECK(policy->rules[answer.rule].allow == answer.allow);
    else if (answer.allow)
        FUZZ_CHECK(policy->default_allow && answer.rule == -1);
    return answer.allow;
}

/* A private address is reached only by a range that is private itself. */
static bool private_is_named(const struct policy *policy, const struct gate_addr *addr, uint16_t port)
{
    for (size_t i = 0; i < policy->n_rules; i++) {
        const struct policy_rule *rule = &policy->rules[i];
        if (rule->is_cidr && rule->allow && gate_cidr_has(&rule->cidr, addr) && rule_has_port(rule, port) &&
            rule->cidr.bits >= 7)
            return true;
    }
    return false;
}

static void judge(const struct policy *policy, const char *name, const struct gate_addr *addr, uint16_t port,
                  const char *path)
{
    const struct policy_question question = {.name = name, .addr = addr, .port = port, .method = "GET", .path = path};
    bool tls = ask(policy, question, POLICY_SEEN_TLS), http = ask(policy, question, POLICY_SEEN_HTTP),
         other = ask(policy, question, POLICY_SEEN_OTHER);
    bool nothing = ask(policy, question, POLICY_SEEN_NOTHING), any_port = false,
         raw = policy_raw(policy, name, addr, port);
    uint16_t ports[POLICY_PORTS_MAX];

    if (tls || http || other)
        FUZZ_CHECK(nothing);
    if (raw)
        FUZZ_CHECK(tls && http && other);
    if (nothing && name)
        FUZZ_CHECK(policy_knows_name(policy, name));
    if (nothing && addr && gate_addr_private(addr))
        FUZZ_CHECK(private_is_named(policy, addr, port));
    size_t n = policy_ports(policy, ports, &any_port);
    bool served = any_port || port == 53;
    for (size_t i = 0; i < n; i++) {
        served = served || ports[i] == port;
        FUZZ_CHECK(i == 0 || ports[i - 1] < ports[i]);
    }
    if (nothing)
        FUZZ_CHECK(served);
}

static void judge_all(const struct policy *policy, const char *path)
{
    static const char *const names[] = {"x.org", "a.b.c.example.com", "localhost"}, *const addrs[] = {"10.0.0.1",
                                                                                                      "8.8.8.8", "::1",
                                                                                                      "64:ff9b::a00:1",
                                                                                                      "2606:4700::1"};
    char below[DNS_NAME_MAX + 4];
    struct gate_addr addr;

    for (size_t i = 0; i < policy->n_rules && i < 20; i++) {
        const struct policy_rule *rule = &policy->rules[i];
        uint16_t port = rule->any_port ? 9 : rule->ports[rule->n_ports - 1].last;
        if (rule->is_cidr) {
            addr = (struct gate_addr){.port = 0};
            memcpy(addr.ip, rule->cidr.ip, sizeof addr.ip);
            judge(policy, NULL, &addr, port, path);
            judge(policy, "x.org", &addr, port, path);
            continue;
        }
        judge(policy, rule->name, NULL, port, path);
        if (strlen(rule->name) + 2 < DNS_NAME_MAX) {
            snprintf(below, sizeof below, "w.%s", rule->name);
            judge(policy, below, NULL, port, path);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        judge(policy, names[i], NULL, 443, path);
    for (size_t i = 0; i < ARRAY_SIZE(addrs); i++) {
        FUZZ_CHECK(gate_addr_parse(addrs[i], &addr) == 0);
        judge(policy, NULL, &addr, 80, path);
        judge(policy, "x.org", &addr, 443, path);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, '\0', size) : NULL;
    size_t len = nul ? (size_t)(nul - data) : size;
    AUTO_BUF struct buf first = BUF_INIT(64u << 20), second = BUF_INIT(64u << 20);
    struct policy *policy = NULL, *again = NULL;
    struct brig_err err = {0};
    char *text = malloc(len ? len : 1), *path = calloc(1, size - len + 2), decoded[256];

    FUZZ_CHECK(text && path);
    if (len)
        memcpy(text, data, len);
    path[0] = '/';
    if (nul)
        memcpy(path, nul + 1, size - len - 1);
    if (policy_path_decode(path, decoded, sizeof decoded) == 0)
        FUZZ_CHECK(decoded[0] == '/' && !strstr(decoded, "/../") && !strstr(decoded, "//") && !strchr(decoded, '\\'));
    if (policy_compile_text(text, len, &policy, &err) == 0) {
        FUZZ_CHECK(policy_put_json(policy, &first) == 0);
        if (first.len <= POLICY_JSON_MAX) {
            FUZZ_CHECK(policy_compile_text(first.data, first.len, &again, &err) == 0);
            FUZZ_CHECK(policy_put_json(again, &second) == 0);
            FUZZ_CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
        }
        judge_all(policy, path);
    } else {
        FUZZ_CHECK(err.code != BRIG_E_NONE && err.message[0] != '\0');
    }
    policy_unref(policy);
    policy_unref(again);
    free(text);
    free(path);
    return 0;
}
