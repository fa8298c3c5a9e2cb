/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: what is refused and how it is said, what they mean, and that the canonical JSON is the same policy. */
#include "unit.h"

#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "gate/policy.h"

static struct policy *compile(const char *text)
{
    struct policy *policy = NULL;
    struct brig_err err = {0};

    if (policy_compile_text(text, strlen(text), &policy, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return policy;
}

static void refused(const char *text, const char *message)
{
    struct policy *policy = NULL;
    struct brig_err err = {0};

    if (policy_compile_text(text, strlen(text), &policy, &err) == 0)
        fail_msg("accepted: %s", text);
    assert_null(policy);
    assert_int_equal(err.code, BRIG_E_USAGE);
    if (!strstr(err.message, message))
        fail_msg("%s: said \"%s\", not \"%s\"", text, err.message, message);
}

/* name NULL: the address alone; addr NULL: not resolved yet. */
static struct policy_answer ask(const struct policy *policy, const char *name, const char *addr, uint16_t port,
                                enum policy_seen seen)
{
    struct policy_question question = {.name = name, .port = port, .seen = seen};
    struct policy_answer answer;
    struct gate_addr where;

    if (addr) {
        assert_int_equal(gate_addr_parse(addr, &where), 0);
        question.addr = &where;
    }
    if (seen == POLICY_SEEN_HTTP)
        question.method = "GET", question.path = "/";
    policy_judge(policy, &question, &answer);
    assert_true(answer.why[0] != '\0' && memchr(answer.why, '\0', sizeof answer.why));
    return answer;
}

static bool request(const struct policy *policy, const char *name, const char *method, const char *path)
{
    struct policy_question question = {
        .name = name, .port = 80, .seen = POLICY_SEEN_HTTP, .method = method, .path = path};
    struct policy_answer answer;

    policy_judge(policy, &question, &answer);
    return answer.allow;
}

#define allowed(...) assert_true(ask(__VA_ARGS__).allow)
#define denied(...) assert_false(ask(__VA_ARGS__).allow)

/* ---- what is refused ---------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    static const char *const cases[][2] = {
        {"[]", "must be an object"},
        {"{\"defualt\":\"deny\"}", "defualt: unknown member"},
        {"{\"default\":\"no\"}", "default: must be \"allow\" or \"deny\""},
        {"{\"default\":\"deny\",\"default\":\"allow\"}", "byte"},
        {"{\"extends\":\"open\"}", "extends: unknown member"},
        {"{\"rules\":{}}", "rules: must be an array"},
        {"{\"rules\":[1]}", "rules[0]: must be an object"},
        {"{\"rules\":[{\"domain\":\"x.org\"}]}", "rules[0].action: is missing"},
        {"{\"rules\":[{\"action\":\"permit\",\"domain\":\"x.org\"}]}", "rules[0].action: must be"},
        {"{\"rules\":[{\"action\":\"allow\"}]}", "rules[0]: needs domain or cidr"},
        {"{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"cidr\":\"10.0.0.0/8\"}]}",
         "rules[0]: has domain and cidr"},
        {"{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"port\":[1]}]}", "rules[0].port: unknown member"},
        {"{\"rules\":[{\"action\":\"allow\",\"domain\":\"a\"},{\"action\":\"allow\",\"domain\":\"\"}]}",
         "rules[1].domain: "},
        {"{\"rules\":[{\"action\":\"allow\",\"cidr\":\"10.0.0.1/8\"}]}", "rules[0].cidr: "},
        {"{\"rules\":[{\"action\":\"allow\",\"cidr\":\"x.org\"}]}", "rules[0].cidr: "},
        {"{\"tls\":{\"ech\":true}}", "tls.ech: must be"},
        {"{\"tls\":{\"sni\":\"deny\"}}", "tls.sni: unknown member"},
        {"{\"limits\":{\"bytes\":1}}", "limits.bytes: unknown member"},
        {"{\"limits\":{\"net_bytes_in\":0}}", "limits.net_bytes_in: must be"},
        {"{\"limits\":{\"net_bps\":-1}}", "limits.net_bps: must be"},
        {"{\"limits\":{\"connections\":\"10k\"}}", "limits.connections: must be"},
        {"{\"limits\":{\"lifetime\":0}}", "limits.lifetime: must be"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        refused(cases[i][0], cases[i][1]);
}

static void refused_member(const char *member, const char *value, const char *message)
{
    char text[512];

    snprintf(text, sizeof text, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"%s\":%s}]}", member, value);
    refused(text, message);
}

static void test_bad_members(void **state)
{
    static const char *const ports[] = {
        "[]",        "443",        "\"443\"", "[0]",           "[65536]",     "[-1]",      "[1.5]",
        "[\"0-5\"]", "[\"10-5\"]", "[\"5\"]", "[\"1-70000\"]", "[\"1-2-3\"]", "[\"any\"]", "[\" 1-2\"]"};
    static const char *const methods[] = {"[]", "\"GET\"", "[\"\"]", "[\"G T\"]", "[1]", "[\"G\\u0000T\"]"};
    static const char *const paths[] = {"[]",         "[\"v1\"]",   "[\"\"]",     "[\"/a/../b\"]", "[\"/./\"]",
                                        "[\"//x\"]",  "[\"/x?y\"]", "[\"/%2e\"]", "[\"/a\\\\b\"]", "[\"/a\\u0000\"]",
                                        "[\"/..;/\"]"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ports); i++)
        refused_member("ports", ports[i], "rules[0].ports: ");
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        refused_member("methods", methods[i], "rules[0].methods: ");
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        refused_member("paths", paths[i], "rules[0].paths: ");
    refused_member("protocol", "\"udp\"", "rules[0].protocol: ");
    refused_member("protocol", "\"tls\",\"methods\":[\"GET\"]", "rules[0].protocol: methods and paths are about HTTP");
    refused_member("protocol", "\"tcp\",\"paths\":[\"/\"]", "rules[0].protocol: methods and paths are about HTTP");
}

static void test_bad_names(void **state)
{
    static const char *const names[] = {
        "*",      "*.",        "*.*.org", "a*.org",        "a.*.org", "**.org",       ".x.org",
        "x..org", "x.org:443", "x org",   "https://x.org", "x.org/",  "a\\u0000.org", "\\u202e.org"};
    static const char *const addresses[] = {"127.0.0.1",
                                            "127.1",
                                            "0x7f.1",
                                            "2130706433",
                                            "0177.0.0.1",
                                            "::1",
                                            "[::1]",
                                            "10.0.0.0/8",
                                            "127.0.0.1.",
                                            "*.127.0.0.1",
                                            "\\uff11\\uff12\\uff17.0.0.1"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(text, sizeof text, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"%s\"}]}", names[i]);
        refused(text, "rules[0].domain: ");
    }
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        snprintf(text, sizeof text, "{\"rules\":[{\"action\":\"allow\",\"domain\":\"%s\"}]}", addresses[i]);
        refused(text, "use \"cidr\"");
    }
    refused("{\"rules\":[{\"action\":\"allow\",\"domain\":\"*\"}]}", "use \"default\": \"allow\"");
}

static void test_too_many(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct policy *policy = NULL;
    struct brig_err err;

    (void)state;
    assert_int_equal(buf_append_str(&text, "{\"rules\":["), 0);
    for (unsigned i = 0; i < POLICY_RULES_MAX; i++)
        assert_int_equal(buf_printf(&text, "{\"action\":\"allow\",\"domain\":\"h%u.org\"},", i), 0);
    assert_int_equal(buf_append_str(&text, "{\"action\":\"allow\",\"domain\":\"last.org\"}]}"), 0);
    refused(text.data, "rules: a policy has at most 1024");
    buf_done(&text);
    text = BUF_INIT(1u << 20);
    while (text.len <= POLICY_JSON_MAX)
        assert_int_equal(buf_append_str(&text, "                                "), 0);
    assert_int_equal(policy_compile_text(text.data, text.len, &policy, &err), -EMSGSIZE);
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
}

/* ---- what it means ------------------------------------------------------------------------------------ */

static void test_empty_allows_nothing(void **state)
{
    static const char *const texts[] = {"{}", "{\"rules\":[]}", "{\"default\":\"deny\",\"rules\":[]}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct policy *policy = compile(texts[i]);
        for (int seen = POLICY_SEEN_NOTHING; seen <= POLICY_SEEN_OTHER; seen++) {
            denied(policy, "x.org", NULL, 443, (enum policy_seen)seen);
            denied(policy, NULL, "8.8.8.8", 443, (enum policy_seen)seen);
        }
        assert_false(policy_knows_name(policy, "x.org"));
        assert_false(policy_raw(policy, "x.org", NULL, 443));
        assert_string_equal(ask(policy, "x.org", NULL, 443, POLICY_SEEN_TLS).why, "default deny");
        assert_false(policy_allows_ech(policy));
        assert_false(policy_allows_no_sni(policy));
        assert_int_equal(policy_limits(policy)->connections, 256);
        policy_unref(policy);
    }
}

static void test_names(void **state)
{
    struct policy *policy = compile(
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"X.Org.\"},{\"action\":\"allow\",\"domain\":\"*.y.org\"},"
        "{\"action\":\"allow\",\"domain\":\"*.test\"}]}");

    (void)state;
    allowed(policy, "x.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "x.org", NULL, 80, POLICY_SEEN_HTTP);
    denied(policy, "x.org", NULL, 8080, POLICY_SEEN_HTTP);
    denied(policy, "a.x.org", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "xx.org", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "x.org.evil.com", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "y.org", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "evily.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "a.y.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "a.b.c.y.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "anything.test", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "test", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, NULL, "93.184.216.34", 443, POLICY_SEEN_TLS); /* the site's own address, by number */
    assert_true(policy_knows_name(policy, "x.org"));
    assert_true(policy_knows_name(policy, "deep.a.y.org"));
    assert_false(policy_knows_name(policy, "org"));
    assert_string_equal(ask(policy, "a.y.org", NULL, 443, POLICY_SEEN_TLS).why, "rule 1 (allow *.y.org:80,443)");
    assert_int_equal(ask(policy, "a.y.org", NULL, 443, POLICY_SEEN_TLS).rule, 1);
    assert_string_equal(ask(policy, "x.org", NULL, 22, POLICY_SEEN_TLS).why,
                        "default deny; rule 0 (allow x.org:80,443) does not match");
    assert_int_equal(ask(policy, "x.org", NULL, 22, POLICY_SEEN_TLS).rule, -1);
    denied(policy, "x.org", NULL, 0, POLICY_SEEN_TLS);
    denied(policy, NULL, NULL, 443, POLICY_SEEN_TLS);
    policy_unref(policy);
}

static void test_idn(void **state)
{
    struct policy *policy =
        compile("{\"rules\":[{\"action\":\"allow\",\"domain\":\"B\\u00dcCHER.example\"},{\"action\":\"allow\","
                "\"domain\":\"*.fa\\u00df.de\"},"
                "{\"action\":\"allow\",\"domain\":\"r3---sn_a.video\"}]}");

    (void)state;
    allowed(policy, "xn--bcher-kva.example", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "a.xn--fa-hia.de", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "a.fass.de", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "r3---sn_a.video", NULL, 443, POLICY_SEEN_TLS);
    policy_unref(policy);
}

static void test_deny_wins(void **state)
{
    struct policy *policy =
        compile("{\"rules\":[{\"action\":\"deny\",\"domain\":\"bad.x.org\",\"ports\":\"any\"},{\"action\":\"allow\","
                "\"domain\":\"*.x.org\"},"
                "{\"action\":\"allow\",\"domain\":\"bad.x.org\"},{\"action\":\"deny\",\"domain\":\"*.sub.x.org\","
                "\"ports\":[443]}]}");

    (void)state;
    denied(policy, "bad.x.org", NULL, 443, POLICY_SEEN_TLS);
    assert_string_equal(ask(policy, "bad.x.org", NULL, 443, POLICY_SEEN_TLS).why, "rule 0 (deny bad.x.org:any)");
    assert_false(policy_knows_name(policy, "bad.x.org"));
    allowed(policy, "good.x.org", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "a.sub.x.org", NULL, 443, POLICY_SEEN_NOTHING);
    allowed(policy, "a.sub.x.org", NULL, 80, POLICY_SEEN_HTTP);
    assert_true(policy_knows_name(policy, "a.sub.x.org")); /* on port 80 */
    policy_unref(policy);
    policy =
        compile("{\"default\":\"allow\",\"rules\":[{\"action\":\"deny\",\"domain\":\"*.x.org\",\"ports\":\"any\"}]}");
    denied(policy, "a.x.org", NULL, 22, POLICY_SEEN_OTHER);
    assert_false(policy_knows_name(policy, "a.x.org"));
    allowed(policy, "x.org", NULL, 22, POLICY_SEEN_OTHER);
    assert_string_equal(ask(policy, "x.org", NULL, 22, POLICY_SEEN_OTHER).why, "default allow");
    policy_unref(policy);
    /* a deny without ports is of all */
    policy = compile("{\"default\":\"allow\",\"rules\":[{\"action\":\"deny\",\"domain\":\"x.org\"}]}");
    denied(policy, "x.org", NULL, 8443, POLICY_SEEN_TLS);
    denied(policy, "x.org", NULL, 22, POLICY_SEEN_OTHER);
    assert_false(policy_knows_name(policy, "x.org"));
    policy_unref(policy);
}

static void test_private(void **state)
{
    static const char *const private[] = {
        "127.0.0.1",       "10.1.2.3",        "192.168.0.1",    "172.16.0.1",    "169.254.169.254",
        "100.100.100.200", "0.0.0.0",         "224.0.0.1",      "::1",           "fe80::1",
        "fd00:ec2::254",   "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "::"};
    struct policy *open = compile("{\"default\":\"allow\"}");
    struct policy *wide =
        compile("{\"rules\":[{\"action\":\"allow\",\"cidr\":\"0.0.0.0/0\",\"ports\":\"any\"},{\"action\":\"allow\","
                "\"cidr\":\"::/0\",\"ports\":\"any\"},"
                "{\"action\":\"allow\",\"domain\":\"x.org\"}]}");
    struct policy *named =
        compile("{\"rules\":[{\"action\":\"allow\",\"cidr\":\"10.0.0.0/8\",\"ports\":[443]},{\"action\":\"allow\","
                "\"domain\":\"x.org\"}]}");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(private); i++) {
        denied(open, NULL, private[i], 443, POLICY_SEEN_TLS);
        denied(open, "x.org", private[i], 443, POLICY_SEEN_NOTHING);
        denied(wide, NULL, private[i], 443, POLICY_SEEN_TLS);
        denied(wide, "x.org", private[i], 443, POLICY_SEEN_TLS);
        assert_int_equal(ask(open, "x.org", private[i], 443, POLICY_SEEN_TLS).rule, -2);
    }
    allowed(open, "x.org", "93.184.216.34", 443, POLICY_SEEN_TLS);
    allowed(wide, NULL, "93.184.216.34", 443, POLICY_SEEN_TLS);
    allowed(wide, NULL, "2606:2800:220:1::1", 443, POLICY_SEEN_TLS);
    allowed(named, NULL, "10.1.2.3", 443, POLICY_SEEN_TLS);
    allowed(named, NULL, "::ffff:10.1.2.3", 443, POLICY_SEEN_TLS);
    denied(named, NULL, "10.1.2.3", 80, POLICY_SEEN_HTTP);
    denied(named, NULL, "192.168.0.1", 443, POLICY_SEEN_TLS);
    allowed(named, "x.org", "10.1.2.3", 443, POLICY_SEEN_TLS);
    denied(named, "x.org", "10.1.2.3", 80, POLICY_SEEN_HTTP);
    denied(named, "y.org", "10.1.2.3", 443, POLICY_SEEN_TLS); /* a range does not allow names */
    assert_string_equal(ask(named, "x.org", "10.1.2.3", 80, POLICY_SEEN_HTTP).why,
                        "10.1.2.3 is private, and no cidr rule names it");
    policy_unref(open);
    policy_unref(wide);
    policy_unref(named);
}

/* A public address of this very host is as good as a private one. */
static void test_own_addresses(void **state)
{
    struct policy *open = compile(
        "{\"default\":\"allow\",\"rules\":[{\"action\":\"allow\",\"cidr\":\"93.184.216.0/24\",\"ports\":\"any\"}]}");
    struct policy *named = compile(
        "{\"rules\":[{\"action\":\"allow\",\"cidr\":\"93.184.216.34\"},{\"action\":\"allow\",\"domain\":\"x.org\"}]}");
    struct gate_addr own;
    struct policy_question question = {.addr = &own, .port = 443, .seen = POLICY_SEEN_TLS, .own = POLICY_OWN_YES};
    struct policy_answer answer;

    (void)state;
    assert_int_equal(gate_addr_parse("93.184.216.34", &own), 0);
    policy_judge(open, &question, &answer);
    assert_false(answer.allow);
    assert_int_equal(answer.rule, -2);
    assert_string_equal(answer.why, "93.184.216.34 is this host's own, and no cidr rule names it");
    policy_judge(named, &question, &answer);
    assert_true(answer.allow);
    question.name = "x.org";
    policy_judge(named, &question, &answer);
    assert_true(answer.allow);
    policy_judge(open, &question, &answer);
    assert_false(answer.allow);
    question.own = POLICY_OWN_UNKNOWN;
    policy_judge(open, &question, &answer);
    assert_false(answer.allow);
    assert_int_equal(answer.rule, -2);
    assert_string_equal(answer.why, "93.184.216.34 is not known to be another host's (the kernel tells no route), "
                                    "and no cidr rule names it");
    policy_judge(named, &question, &answer);
    assert_true(answer.allow);
    policy_unref(open);
    policy_unref(named);
}

static void test_cidr_denies(void **state)
{
    struct policy *policy = compile(
        "{\"default\":\"allow\",\"rules\":[{\"action\":\"deny\",\"cidr\":\"93.184.216.0/24\",\"ports\":\"any\"}]}");

    (void)state;
    denied(policy, NULL, "93.184.216.34", 443, POLICY_SEEN_TLS);
    denied(policy, "x.org", "93.184.216.34", 443, POLICY_SEEN_TLS);
    denied(policy, "x.org", "64:ff9b::5db8:d822", 443, POLICY_SEEN_TLS); /* NAT64 of it */
    denied(policy, NULL, "2002:5db8:d822::1", 443, POLICY_SEEN_TLS);
    allowed(policy, "x.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "x.org", "93.184.217.1", 443, POLICY_SEEN_TLS);
    assert_string_equal(ask(policy, "x.org", "93.184.216.34", 443, POLICY_SEEN_TLS).why,
                        "rule 0 (deny 93.184.216.0/24:any)");
    policy_unref(policy);
}

static void test_protocols(void **state)
{
    struct policy *policy = compile(
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"web.org\"},{\"action\":\"allow\",\"domain\":\"tls.org\","
        "\"protocol\":\"tls\"},"
        "{\"action\":\"allow\",\"domain\":\"http.org\",\"protocol\":\"http\"},{\"action\":\"allow\","
        "\"domain\":\"tcp.org\",\"ports\":[22],\"protocol\":\"tcp\"},"
        "{\"action\":\"allow\",\"domain\":\"mixed.org\",\"ports\":[443],\"protocol\":\"tcp\"},{\"action\":\"deny\","
        "\"domain\":\"mixed.org\",\"protocol\":\"http\"},"
        "{\"action\":\"allow\",\"domain\":\"shut.org\",\"protocol\":\"tcp\"},{\"action\":\"deny\","
        "\"domain\":\"shut.org\"}]}");
    static const struct {
        const char *name;
        uint16_t port;
        bool tls, http, other, nothing, raw;
    } cases[] = {
        {"web.org", 443, true, true, false, true, false},   {"tls.org", 443, true, false, false, true, false},
        {"http.org", 443, false, true, false, true, false}, {"tcp.org", 22, true, true, true, true, true},
        {"mixed.org", 443, true, false, true, true, false}, {"shut.org", 443, false, false, false, false, false},
    };
    struct policy_question opened = {
        .name = "tls.org", .port = 443, .seen = POLICY_SEEN_HTTP, .method = "GET", .path = "/", .opened_tls = true};
    struct policy_answer answer;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(ask(policy, cases[i].name, NULL, cases[i].port, POLICY_SEEN_TLS).allow, cases[i].tls);
        assert_int_equal(ask(policy, cases[i].name, NULL, cases[i].port, POLICY_SEEN_HTTP).allow, cases[i].http);
        assert_int_equal(ask(policy, cases[i].name, NULL, cases[i].port, POLICY_SEEN_OTHER).allow, cases[i].other);
        assert_int_equal(ask(policy, cases[i].name, NULL, cases[i].port, POLICY_SEEN_NOTHING).allow, cases[i].nothing);
        assert_int_equal(policy_raw(policy, cases[i].name, NULL, cases[i].port), cases[i].raw);
        assert_int_equal(policy_knows_name(policy, cases[i].name), cases[i].nothing);
    }
    policy_judge(policy, &opened, &answer);
    assert_true(answer.allow);
    policy_unref(policy);
}

static void test_methods(void **state)
{
    struct policy *policy = compile(
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"methods\":[\"GET\",\"HEAD\"]},{\"action\":\"allow\","
        "\"domain\":\"y.org\"},"
        "{\"action\":\"deny\",\"domain\":\"y.org\",\"methods\":[\"POST\"]}]}");

    (void)state;
    assert_true(request(policy, "x.org", "GET", "/"));
    assert_true(request(policy, "x.org", "HEAD", "/../x")); /* no rule about paths: not our business */
    assert_false(request(policy, "x.org", "get", "/"));
    assert_false(request(policy, "x.org", "GETX", "/"));
    assert_false(request(policy, "x.org", "POST", "/"));
    denied(policy, "x.org", NULL, 443, POLICY_SEEN_TLS); /* not visible there */
    allowed(policy, "x.org", NULL, 443, POLICY_SEEN_NOTHING);
    assert_true(request(policy, "y.org", "GET", "/"));
    assert_false(request(policy, "y.org", "POST", "/"));
    denied(policy, "y.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "y.org", NULL, 80, POLICY_SEEN_NOTHING);
    policy_unref(policy);
}

static void test_paths(void **state)
{
    static const struct {
        const char *path;
        bool v1, v1_slash; /* under "/v1", under "/v1/" */
    } cases[] = {
        {"/v1", true, false},
        {"/v1/", true, true},
        {"/v1/x", true, true},
        {"/v1x", false, false},
        {"/", false, false},
        {"/v1/a%20b", true, true},
        {"/%76%31/x", true, true},
        {"/v1/..%2fx", false, false},
        {"/v1/../x", false, false},
        {"/v1/%2e%2e/x", false, false},
        {"/v1/.%2E/x", false, false},
        {"/v1/./x", false, false},
        {"/v1//x", false, false},
        {"//v1/x", false, false},
        {"/v1/%2f", false, false},
        {"/v1/%5c..%5cx", false, false},
        {"/v1/..\\x", false, false},
        {"/v1/%00", false, false},
        {"/v1/%", false, false},
        {"/v1/%4", false, false},
        {"/v1/%zz", false, false},
        {"/v1/%252e%252e/x", false, false},
        {"/v1/..;/x", false, false},
        {"/v1/..", false, false},
        {"/v1/...", true, true},
        {"/v1/.well", true, true},
        {"/v1/a;b=1", true, true},
        {"*", false, false},
        {"", false, false},
        {"v1/x", false, false},
        {"http://x.org/v1/x", false, false},
        {"/V1/x", false, false},
        {"/v1%2fx", false, false},
        {"/v1/x?y", false, false},
    };
    struct policy *policy =
        compile("{\"rules\":[{\"action\":\"allow\",\"domain\":\"a.org\",\"paths\":[\"/v1\"]},{\"action\":\"allow\","
                "\"domain\":\"b.org\",\"paths\":[\"/v1/\"]},"
                "{\"action\":\"allow\",\"domain\":\"c.org\"},{\"action\":\"deny\",\"domain\":\"c.org\","
                "\"paths\":[\"/admin\"]}]}");

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (request(policy, "a.org", "GET", cases[i].path) != cases[i].v1 ||
            request(policy, "b.org", "GET", cases[i].path) != cases[i].v1_slash)
            fail_msg("path %s", cases[i].path);
    }
    assert_true(request(policy, "c.org", "GET", "/x"));
    assert_false(request(policy, "c.org", "GET", "/admin/x"));
    assert_false(request(policy, "c.org", "GET", "/%61dmin"));
    assert_false(request(policy, "c.org", "GET", "/x/../admin"));
    assert_false(request(policy, "c.org", "GET", "//admin"));
    assert_true(request(policy, "c.org", "GET", "/administrator"));
    policy_unref(policy);
}

static void test_ports(void **state)
{
    struct policy *policy = compile(
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"ports\":[8443,\"8000-8002\",8002,\"8003-8004\"]},"
        "{\"action\":\"deny\",\"domain\":\"x.org\",\"ports\":[9000]},{\"action\":\"allow\",\"domain\":\"dns.org\","
        "\"ports\":[53]}]}");
    static const uint16_t want[] = {80, 443, 8000, 8001, 8002, 8003, 8004, 8443};
    uint16_t ports[POLICY_PORTS_MAX];
    bool any = true;

    (void)state;
    assert_int_equal(policy_ports(policy, ports, &any), ARRAY_SIZE(want));
    assert_false(any);
    assert_memory_equal(ports, want, sizeof want);
    allowed(policy, "x.org", NULL, 8004, POLICY_SEEN_TLS);
    denied(policy, "x.org", NULL, 8005, POLICY_SEEN_TLS);
    policy_unref(policy);
    static const char *const wide[] = {
        "{\"default\":\"allow\"}", "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"ports\":\"any\"}]}",
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"ports\":[\"1000-1063\"]}]}"};
    for (size_t i = 0; i < ARRAY_SIZE(wide); i++) {
        policy = compile(wide[i]);
        any = false;
        policy_ports(policy, ports, &any);
        assert_true(any);
        policy_unref(policy);
    }
}

/* ---- canonical JSON ----------------------------------------------------------------------------------- */

static void test_canonical(void **state)
{
    static const char text[] =
        "{\"rules\":[{\"domain\":\"*.B\\u00dccher.Example.\",\"action\":\"allow\",\"ports\":[9,\"7-8\",443],"
        "\"methods\":[\"GET\"],\"paths\":[\"/v1/\"],\"protocol\":\"http\"},"
        "{\"action\":\"deny\",\"cidr\":\"10.0.0.0/8\"},{\"action\":\"allow\",\"cidr\":\"fd00::/8\",\"ports\":\"any\","
        "\"protocol\":\"tcp\"}],"
        "\"tls\":{\"ech\":\"allow\"},\"limits\":{\"net_bytes_in\":\"1m\",\"lifetime\":\"1.5s\","
        "\"connections_per_second\":7,\"net_bps\":4096,\"net_bytes_out\":5}}";
    static const char want[] =
        "{\"default\":\"deny\",\"rules\":[{\"action\":\"allow\",\"domain\":\"*.xn--bcher-kva.example\","
        "\"ports\":[\"7-9\",443],\"protocol\":\"http\",\"methods\":[\"GET\"],"
        "\"paths\":[\"/v1/\"]},{\"action\":\"deny\",\"cidr\":\"10.0.0.0/8\",\"ports\":\"any\"},{\"action\":\"allow\","
        "\"cidr\":\"fd00::/8\",\"ports\":\"any\",\"protocol\":\"tcp\"}],"
        "\"tls\":{\"ech\":\"allow\",\"no_sni\":\"deny\"},\"limits\":{\"net_bytes_in\":1048576,\"net_bytes_out\":5,"
        "\"net_bps\":4096,\"connections\":256,"
        "\"connections_per_second\":7,\"lifetime\":1.5}}";
    AUTO_BUF struct buf first = BUF_INIT(1u << 16), second = BUF_INIT(1u << 16);

    (void)state;
    struct policy *policy = compile(text);
    assert_int_equal(policy_put_json(policy, &first), 0);
    assert_string_equal(first.data, want);
    policy_unref(policy);
    policy = compile(first.data);
    assert_int_equal(policy_put_json(policy, &second), 0);
    assert_string_equal(second.data, want);
    struct policy *other = policy_ref(policy);
    policy_unref(policy);
    policy_unref(other);
    policy_unref(NULL);
    buf_done(&second);
}

static void test_onto(void **state)
{
    static const char text[] =
        "{\"extends\":\"packages\",\"learn\":true,\"rules\":[{\"action\":\"deny\",\"domain\":\"a.org\"}],"
        "\"limits\":{\"net_bytes_in\":7}}";
    struct policy *base =
        compile("{\"rules\":[{\"action\":\"allow\",\"domain\":\"a.org\"},{\"action\":\"allow\",\"domain\":\"b.org\"}],"
                "\"tls\":{\"ech\":\"allow\"},\"limits\":{\"net_bytes_out\":9}}");
    struct policy *policy = NULL;
    struct json_doc *doc = NULL;
    struct brig_err err;

    (void)state;
    assert_int_equal(json_read(text, strlen(text), 100, &doc, &err), 0);
    assert_int_equal(policy_compile_onto(base, json_root(doc), &policy, &err), 0);
    denied(policy, "a.org", NULL, 443, POLICY_SEEN_TLS);
    assert_int_equal(ask(policy, "a.org", NULL, 443, POLICY_SEEN_TLS).rule, 2);
    allowed(policy, "b.org", NULL, 443, POLICY_SEEN_TLS);
    assert_true(policy_allows_ech(policy));
    assert_int_equal(policy_limits(policy)->bytes_in, 7);
    assert_int_equal(policy_limits(policy)->bytes_out, 9);
    policy_unref(policy);
    assert_int_equal(policy_compile(json_root(doc), &policy, &err), -EINVAL); /* elsewhere they are unknown */
    json_doc_free(doc);
    policy_unref(base);
}

/* ---- presets ------------------------------------------------------------------------------------------ */

static struct policy *preset(const char *name, const char *packages)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 18);
    struct brig_err err;

    assert_int_equal(policy_preset(name, packages, &text, &err), 0);
    return compile(text.data);
}

static void test_presets(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1024);
    struct brig_err err;

    (void)state;
    struct policy *policy = preset("none", NULL);
    denied(policy, "pypi.org", NULL, 443, POLICY_SEEN_NOTHING);
    policy_unref(policy);
    policy = preset("open", NULL);
    allowed(policy, "anything.org", "93.184.216.34", 22, POLICY_SEEN_OTHER);
    denied(policy, "anything.org", "10.0.0.1", 443, POLICY_SEEN_TLS);
    assert_true(policy_raw(policy, "anything.org", NULL, 22));
    policy_unref(policy);
    policy = preset("packages", NULL);
    allowed(policy, "pypi.org", NULL, 443, POLICY_SEEN_TLS);
    allowed(policy, "deb.debian.org", NULL, 80, POLICY_SEEN_HTTP);
    denied(policy, "evil.org", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "pypi.org", NULL, 22, POLICY_SEEN_OTHER);
    policy_unref(policy);
    policy = preset("packages", "[{\"action\":\"allow\",\"domain\":\"mirror.example\"}]");
    allowed(policy, "mirror.example", NULL, 443, POLICY_SEEN_TLS);
    denied(policy, "pypi.org", NULL, 443, POLICY_SEEN_TLS);
    policy_unref(policy);
    assert_int_equal(policy_preset("opne", NULL, &text, &err), -ENOENT);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
}

/* ---- speed and memory --------------------------------------------------------------------------------- */

static void test_fast(void **state)
{
    AUTO_BUF struct buf text = BUF_INIT(1u << 20);
    struct timespec from, to;

    (void)state;
    assert_int_equal(buf_append_str(&text, "{\"rules\":["), 0);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(buf_printf(&text, "%s{\"action\":\"allow\",\"domain\":\"%shost%u.example.org\"}", i ? "," : "",
                                    i % 2 ? "*." : "", i),
                         0);
    assert_int_equal(buf_append_str(&text, "]}"), 0);
    struct policy *policy = compile(text.data);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (unsigned i = 0; i < 20000; i++) {
        allowed(policy, "host500.example.org", NULL, 443, POLICY_SEEN_TLS);
        allowed(policy, "a.b.host501.example.org", NULL, 443, POLICY_SEEN_TLS);
        denied(policy, "a.b.c.d.e.nowhere.example.net", NULL, 443, POLICY_SEEN_TLS);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double each = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / 60000;
    print_message("one judgement of 1000 rules: %.0f ns\n", each);
    assert_true(each < 20000); /* walking the list would take more, also on a busy machine */
    policy_unref(policy);
}

static void test_no_memory(void **state)
{
    static const char text[] =
        "{\"rules\":[{\"action\":\"allow\",\"domain\":\"x.org\",\"methods\":[\"GET\",\"PUT\"],\"paths\":[\"/a\","
        "\"/b\"]},{\"action\":\"deny\",\"cidr\":\"10.0.0.0/8\"}]}";

    (void)state;
    for (size_t n = 0;; n++) {
        struct policy *policy = NULL;
        struct brig_err err;
        mem_fail_after(n);
        int r = policy_compile_text(text, strlen(text), &policy, &err);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (!failed) {
            assert_int_equal(r, 0);
            policy_unref(policy);
            break;
        }
        assert_int_equal(r, -ENOMEM);
        assert_null(policy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_members),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_empty_allows_nothing),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_idn),
        cmocka_unit_test(test_deny_wins),
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_own_addresses),
        cmocka_unit_test(test_cidr_denies),
        cmocka_unit_test(test_protocols),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_canonical),
        cmocka_unit_test(test_onto),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
