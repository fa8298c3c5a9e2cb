/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked before a tool runs: lists of tools, rules about arguments (of a send_email and a delete_file
 * among them), rates, approvals. */
#include "unit.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "records/rules.h"
#include "run/approvals.h"
#include "run/rates.h"

#define SECOND UINT64_C(1000000000)

static struct json_doc *must_read(const char *text)
{
    struct json_doc *doc = NULL;
    struct brig_err err = {0};

    if (json_read(text, strlen(text), JSON_READ_VALUES, &doc, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return doc;
}

/* ---- lists ---------------------------------------------------------------------------------------- */

static bool may(const char *org, const char *key, bool default_deny, const char *name)
{
    struct json_doc *org_doc = org ? must_read(org) : NULL, *key_doc = key ? must_read(key) : NULL;
    struct brig_err err = {0};
    int r = tool_allowed(org_doc ? json_root(org_doc) : NULL, key_doc ? json_root(key_doc) : NULL, default_deny, name,
                         &err);

    if (r < 0) {
        char want[100];
        assert_int_equal(err.code, BRIG_E_FORBIDDEN);
        assert_true(str_format(want, sizeof(want), "Tool '%s' not allowed", name) > 0);
        assert_string_equal(err.message, want);
    }
    json_doc_free(org_doc);
    json_doc_free(key_doc);
    return r == 0;
}

static void lists_decide_in_order(void **state)
{
    static const char list[] =
        "{\"tools\":{\"allow\":[\"search_*\",\"calculate\"],\"deny\":[\"search_secret*\",\"*rm*\"]}}";
    (void)state;

    assert_true(may(NULL, NULL, false, "x"));
    assert_false(may(NULL, NULL, true, "x"));
    assert_true(may("{}", "{}", false, "x"));
    assert_true(may(list, NULL, false, "calculate"));
    assert_true(may(list, NULL, true, "search_web"));
    assert_false(may(list, NULL, false, "search_secrets")); /* deny beats allow */
    assert_false(may(list, NULL, false, "calculate2"));     /* an allow-list denies the rest */
    assert_false(may(list, NULL, false, "Calculate"));
    assert_false(may("{\"tools\":{\"deny\":[\"*rm*\"]}}", NULL, false, "format"));
    assert_true(may("{\"tools\":{\"deny\":[\"*rm*\"]}}", NULL, false, "fromat"));
    assert_false(may("{\"tools\":{\"deny\":[]}}", NULL, true, "x"));
    assert_true(may("{\"tools\":{\"deny\":[],\"default\":\"allow\"}}", NULL, true, "x"));
    assert_true(may("{\"tools\":{\"allow\":[],\"default\":\"allow\"}}", NULL, true, "x"));
    assert_false(may("{\"tools\":{\"allow\":[]}}", NULL, false, "x"));
    assert_false(may("{\"tools\":{\"default\":\"deny\"}}", NULL, false, "x"));
}

static void both_must_allow(void **state)
{
    static const char org[] = "{\"tools\":{\"allow\":[\"a\",\"b\"]}}", key[] = "{\"tools\":{\"allow\":[\"b\",\"c\"]}}";
    (void)state;

    assert_false(may(org, key, false, "a"));
    assert_true(may(org, key, false, "b"));
    assert_false(may(org, key, false, "c"));
    assert_true(may(org, "{}", true, "a"));  /* a key without a list leaves it to the organisation */
    assert_false(may("{}", key, true, "b")); /* and cannot open what is shut by default */
    assert_true(may(org, "{\"tools\":{\"deny\":[\"b\"]}}", true, "a"));
    assert_false(may(org, "{\"tools\":{\"deny\":[\"b\"]}}", true, "b"));
}

static void lists_of_another_shape_deny(void **state)
{
    static const char *const bad[] = {"true",
                                      "[]",
                                      "{\"allow\":\"*\"}",
                                      "{\"allow\":[\"*\",1]}",
                                      "{\"deny\":\"y\"}",
                                      "{\"deny\":[null]}",
                                      "{\"default\":true}",
                                      "{\"default\":\"maybe\"}"};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[100];
        assert_true(str_format(text, sizeof(text), "{\"tools\":%s}", bad[i]) > 0);
        assert_false(may(text, NULL, false, "x"));
        assert_false(may(NULL, text, false, "x"));
    }
}

static void stars_take_little_time(void **state)
{
    char name[65];
    (void)state;

    memset(name, 'a', 64);
    name[64] = '\0';
    assert_false(
        may("{\"tools\":{\"allow\":[\"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab\"]}}", NULL, false, name));
}

/* ---- rules ---------------------------------------------------------------------------------------- */

/* What is said of the arguments; "" when they pass. */
static const char *said(const char *rules_text, const char *args_text)
{
    static struct brig_err err;
    struct json_doc *rules_doc = must_read(rules_text), *args = must_read(args_text);
    struct rule *rules = NULL;
    size_t n = 0;

    err = (struct brig_err){0};
    if (rules_parse(json_root(rules_doc), &rules, &n, &err) < 0)
        fail_msg("%s: %s", rules_text, err.message);
    int r = rules_check(rules, n, json_root(args), &err);
    assert_int_equal(err.code, r < 0 ? BRIG_E_INVALID : BRIG_E_NONE);
    rules_free(rules, n);
    json_doc_free(rules_doc);
    json_doc_free(args);
    return err.message;
}

/* A valid address, and only of the company. */
static void send_email(void **state)
{
    static const char rules[] = "[{\"field\":\"to\",\"format\":\"email\",\"allow\":\"@company\\\\.com$\"}]";
    (void)state;

    assert_string_equal(said(rules, "{\"to\":\"ada@company.com\",\"body\":\"hi\"}"), "");
    assert_string_equal(said(rules, "{\"to\":\"not an address\"}"), "to: must be in the format email");
    assert_string_equal(said(rules, "{\"to\":\"eve@evil.com\"}"), "to: must match @company\\.com$");
    assert_string_equal(said(rules, "{\"to\":\"eve@company.com.evil.com\"}"), "to: must match @company\\.com$");
    assert_string_equal(said(rules, "{\"to\":\"eve@evil.com\\n@company.com\"}"), "to: must be in the format email");
    assert_string_equal(said(rules, "{\"to\":\"ada@company.com\\n\"}"), "to: must be in the format email");
    assert_string_equal(said(rules, "{\"to\":[\"eve@evil.com\"]}"), "to: must be a string");
    assert_string_equal(said(rules, "{\"to\":7}"), "to: must be a string");
    assert_string_equal(said(rules, "{\"body\":\"to nobody\"}"), "");
    assert_string_equal(said(rules, "{\"to\":null}"), "");
    assert_string_equal(said(rules, "[]"), "arguments: must be an object");
}

static void each_recipient(void **state)
{
    static const char rules[] =
        "[{\"field\":\"to[]\",\"allow\":\"@company\\\\.com$\"},{\"field\":\"mail.cc[].address\",\"deny\":\"evil\"}]";
    (void)state;

    assert_string_equal(said(rules, "{\"to\":[\"a@company.com\",\"b@company.com\"]}"), "");
    assert_string_equal(said(rules, "{\"to\":[\"a@company.com\",\"b@evil.com\"]}"),
                        "to[1]: must match @company\\.com$");
    assert_string_equal(said(rules, "{\"to\":\"b@evil.com\"}"), "to: must match @company\\.com$");
    assert_string_equal(said(rules, "{\"to\":[[\"a@company.com\"]]}"), "to[0]: must be a string");
    assert_string_equal(said(rules, "{\"to\":[]}"), "");
    assert_string_equal(said(rules, "{\"mail\":{\"cc\":[{\"address\":\"a\"},{},{\"address\":\"evil\"}]}}"),
                        "mail.cc[2].address: must not match evil");
    assert_string_equal(said(rules, "{\"mail\":{\"cc\":{\"address\":\"evil\"}}}"),
                        "mail.cc.address: must not match evil");
    assert_string_equal(said(rules, "{\"mail\":[\"evil\"]}"), "mail: must be an object");
    assert_string_equal(said(rules, "{\"mail\":{\"cc\":[\"evil\"]}}"), "mail.cc[0]: must be an object");
}

/* No system files; and what a list of forbidden beginnings lets through, but a directory to stay in does
 * not. */
static void delete_file(void **state)
{
    static const char deny[] = "[{\"field\":\"path\",\"deny\":\"^/system/\"}]",
                      within[] = "[{\"field\":\"path\",\"within\":\"/workspace/data/\"}]";
    (void)state;

    assert_string_equal(said(deny, "{\"path\":\"/system/kernel\"}"), "path: must not match ^/system/");
    assert_string_equal(said(deny, "{\"path\":\"/home/x\"}"), "");
    assert_string_equal(said(deny, "{\"path\":\"//system/kernel\"}"), "");
    assert_string_equal(said(within, "{\"path\":\"//system/kernel\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"/workspace/data/../../system/kernel\"}"),
                        "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"data/x\"}"), "");
    assert_string_equal(said(within, "{\"path\":\"./data/./a/../x\"}"), "");
    assert_string_equal(said(within, "{\"path\":\"/workspace//data\"}"), "");
    assert_string_equal(said(within, "{\"path\":\"x\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"data2/x\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"data/..\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"data/\\u0000/../../x\"}"), "path: must be within /workspace/data/");
    assert_string_equal(said(within, "{\"path\":\"../../../workspace/data/x\"}"), "");
    assert_string_equal(said("[{\"field\":\"path\",\"within\":\"/\"}]", "{\"path\":\"/etc\"}"), "");
}

static void long_paths_fail(void **state)
{
    struct buf args = BUF_INIT(1 << 20);
    (void)state;

    assert_int_equal(buf_append_str(&args, "{\"path\":\"data"), 0);
    for (unsigned i = 0; i < 3000; i++)
        assert_int_equal(buf_append_str(&args, "/x"), 0);
    assert_int_equal(buf_append_str(&args, "\"}"), 0);
    assert_string_equal(said("[{\"field\":\"path\",\"within\":\"/workspace/data\"}]", args.data),
                        "path: must be within /workspace/data");
    buf_done(&args);
}

static void work_without_end_fails(void **state)
{
    static const char *const kinds[] = {"allow", "deny"};
    char args[3000] = "{\"x\":\"";
    (void)state;

    memset(args + 6, 'a', 2900);
    unit_put(args + 2906, "!\"}", 4);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char rules[100];
        assert_true(str_format(rules, sizeof(rules), "[{\"field\":\"x\",\"%s\":\"^(a+)+$\"}]", kinds[i]) > 0);
        assert_string_equal(said(rules, args), "x: takes too much work to match against ^(a+)+$");
    }
}

/* One call has one budget: many items, or many rules, that each stay within it are too much work as well. */
static void work_is_of_the_whole_call(void **state)
{
    struct buf args = BUF_INIT(1 << 20), rules = BUF_INIT(1 << 16);
    (void)state;

    assert_int_equal(buf_append_str(&args, "{\"x\":["), 0);
    for (unsigned i = 0; i < 60; i++) {
        assert_int_equal(buf_append_str(&args, i ? ",\"" : "\""), 0);
        for (unsigned k = 0; k < 300; k++)
            assert_int_equal(buf_append_str(&args, "a"), 0);
        assert_int_equal(buf_append_str(&args, "\""), 0);
        if (i == 0) { /* quadratic, and one of them is well within it */
            AUTO_BUF struct buf one = BUF_INIT(1 << 12);
            assert_int_equal(buf_printf(&one, "%s]}", args.data), 0);
            assert_string_equal(said("[{\"field\":\"x[]\",\"allow\":\"(?:a*a*b|)\"}]", one.data), "");
        }
    }
    assert_int_equal(buf_append_str(&args, "]}"), 0);
    assert_non_null(
        strstr(said("[{\"field\":\"x[]\",\"allow\":\"(?:a*a*b|)\"}]", args.data), "takes too much work to match"));
    args.len = 0;
    assert_int_equal(buf_append_str(&args, "{\"x\":[\"/a\""), 0);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buf_append_str(&args, ",\"/a\""), 0);
    assert_int_equal(buf_append_str(&args, "]}"), 0);
    assert_string_equal(said("[{\"field\":\"x[]\",\"within\":\"/a\"}]", args.data), "");
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(buf_append_str(&rules, i ? ",{\"field\":\"x[]\",\"within\":\"/a\"}"
                                                  : "[{\"field\":\"x[]\",\"within\":\"/a\"}"),
                         0);
    assert_int_equal(buf_append_str(&rules, "]"), 0);
    assert_non_null(strstr(said(rules.data, args.data), "takes too much work to match"));
    buf_done(&args);
    buf_done(&rules);
}

static void bad_rules_are_refused(void **state)
{
    static const char *const bad[] = {"{}",
                                      "[1]",
                                      "[{}]",
                                      "[{\"field\":\"a\"}]",
                                      "[{\"allow\":\"a\"}]",
                                      "[{\"field\":7,\"allow\":\"a\"}]",
                                      "[{\"field\":\"\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a\",\"allow\":\"(\"}]",
                                      "[{\"field\":\"a\",\"deny\":\"(?i)a\"}]",
                                      "[{\"field\":\"a\",\"deny\":1}]",
                                      "[{\"field\":\"a\",\"within\":\"data\"}]",
                                      "[{\"field\":\"a\",\"format\":\"nonsense\"}]",
                                      "[{\"field\":\"a\",\"allow\":\"a\",\"alow\":\"b\"}]",
                                      "[{\"field\":\"a.\",\"allow\":\"a\"}]",
                                      "[{\"field\":\".a\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a..b\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"[]\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a[\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a[0]\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a[]b\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a]\",\"allow\":\"a\"}]",
                                      "[{\"field\":\"a\",\"allow\":\"b\\u0000c\"}]"};
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct json_doc *doc = must_read(bad[i]);
        struct rule *rules = NULL;
        struct brig_err err = {0};
        size_t n = 0;
        if (rules_parse(json_root(doc), &rules, &n, &err) == 0)
            fail_msg("taken: %s", bad[i]);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_null(rules);
        json_doc_free(doc);
    }
}

/* ---- rates ---------------------------------------------------------------------------------------- */

static int take(struct rates *rates, const char *org, const char *tool, uint64_t max, uint64_t at_ms, uint64_t *retry)
{
    struct brig_err err = {0};
    int r = rates_take(rates, org, tool, max, 60, at_ms * 1000000, retry, &err);

    if (r < 0) {
        assert_int_equal(err.code, BRIG_E_LIMIT);
        assert_true(str_starts(err.message, "Rate limit exceeded for "));
    }
    return r;
}

static void windows_slide(void **state)
{
    struct rates *rates = NULL;
    uint64_t retry = 0;
    (void)state;

    assert_int_equal(rates_create(&rates, NULL), 0);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(take(rates, "o", "t", 10, 1000 + i * 1000, &retry), 0);
    assert_int_equal(take(rates, "o", "t", 10, 11000, &retry), -EAGAIN);
    assert_int_equal(retry, 50); /* the first leaves at 61 s */
    assert_int_equal(take(rates, "o", "t", 10, 60999, &retry), -EAGAIN);
    assert_int_equal(retry, 1);
    assert_int_equal(take(rates, "o", "t", 10, 61000, &retry), 0);       /* exactly then */
    assert_int_equal(take(rates, "o", "t", 10, 61000, &retry), -EAGAIN); /* and just one */
    assert_int_equal(take(rates, "o", "t", 10, 62000, &retry), 0);       /* the refused ones did not count */
    assert_int_equal(take(rates, "o", "t", 3, 63000, &retry), -EAGAIN);  /* lowered: it takes more than one to leave */
    assert_int_equal(take(rates, "p", "t", 1, 63000, &retry), 0);
    assert_int_equal(take(rates, "o", "u", 1, 63000, &retry), 0);
    assert_int_equal(take(rates, "o", "u", 1, 63000, &retry), -EAGAIN);
    assert_int_equal(take(rates, "oa", "t", 1, 63000, &retry), 0); /* names do not run together */
    assert_int_equal(take(rates, "o", "z", 0, 63000, &retry), -EAGAIN);
    assert_int_equal(retry, 60);
    rates_destroy(rates);
    rates_destroy(NULL);
}

static void a_lowered_limit_says_when(void **state)
{
    struct rates *rates = NULL;
    uint64_t retry = 0;
    (void)state;

    assert_int_equal(rates_create(&rates, NULL), 0);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(take(rates, "o", "t", 5, i * 1000, &retry), 0);
    assert_int_equal(take(rates, "o", "t", 2, 5000, &retry), -EAGAIN);
    assert_int_equal(retry, 58); /* calls at 0 to 3 s must leave: the last of them at 63 s */
    assert_int_equal(take(rates, "o", "t", 2, 62999, &retry), -EAGAIN);
    assert_int_equal(take(rates, "o", "t", 2, 63000, &retry), 0);
    rates_destroy(rates);
}

/* Against a list of all calls, which is what exact means. */
static void counts_exactly(void **state)
{
    struct rates *rates = NULL;
    uint64_t times[3000], now = 0, retry, seed = 7;
    size_t n = 0;
    (void)state;

    assert_int_equal(rates_create(&rates, NULL), 0);
    for (unsigned i = 0; i < 3000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        now += (seed >> 33) % 9000;
        size_t inside = 0;
        for (size_t j = 0; j < n; j++)
            inside += now - times[j] < 60000;
        bool took = take(rates, "o", "t", 13, now, &retry) == 0;
        assert_int_equal(took, inside < 13);
        if (took)
            times[n++] = now;
    }
    rates_destroy(rates);
}

static void memory_is_bounded(void **state)
{
    struct rates *rates = NULL;
    uint64_t retry = 0;
    unsigned taken = 0;
    char tool[32];
    (void)state;

    assert_int_equal(rates_create(&rates, NULL), 0);
    for (unsigned i = 0; i < 20000; i++) {
        assert_true(str_format(tool, sizeof(tool), "tool-%u", i) > 0);
        taken += take(rates, "o", tool, 1, 1000, &retry) == 0;
    }
    assert_true(taken > 1000 && taken < 20000); /* an organisation has so many windows, then no call goes uncounted */
    assert_int_equal(take(rates, "other", "t", 1, 1000, &retry), 0); /* the others do not feel it */
    taken = 0;
    for (unsigned i = 0; i < 2000; i++) /* a minute later all are forgotten, a few at a time */
        taken += take(rates, "other", "t", 10000, 62000, &retry) == 0;
    assert_int_equal(taken, 2000);
    assert_int_equal(take(rates, "o", "new", 1, 62000, &retry), 0);
    rates_destroy(rates);
}

/* ---- approvals ------------------------------------------------------------------------------------ */

struct heard {
    unsigned n;
    enum verdict verdict;
    char by[100], reason[300];
};

static void hear(void *ctx, enum verdict verdict, const char *by, const char *reason)
{
    struct heard *heard = ctx;

    heard->n++;
    heard->verdict = verdict;
    assert_int_equal(str_copy(heard->by, sizeof(heard->by), by), 0);
    assert_int_equal(str_copy(heard->reason, sizeof(heard->reason), reason), 0);
}

static struct approval ask_of(const char *run, const char *org)
{
    struct approval ask = {.asked_at_ns = 5, .arguments = "{\"x\":1}"};

    assert_int_equal(str_copy(ask.run_id, sizeof(ask.run_id), run), 0);
    assert_int_equal(str_copy(ask.org_id, sizeof(ask.org_id), org), 0);
    assert_int_equal(str_copy(ask.tool, sizeof(ask.tool), "deploy"), 0);
    return ask;
}

static bool count_one(void *ctx, const struct approval *approval)
{
    assert_string_equal(approval->tool, "deploy");
    assert_int_equal(approval->expires_at_ns, 5 + INT64_C(3600000) * 1000000);
    ++*(unsigned *)ctx;
    return true;
}

static bool stop_at_once(void *ctx, const struct approval *approval)
{
    (void)approval;
    ++*(unsigned *)ctx;
    return false;
}

static unsigned count(const struct approvals *approvals, const char *org)
{
    unsigned n = 0;

    approvals_each(approvals, org, count_one, &n);
    return n;
}

static void somebody_decides(void **state)
{
    struct loop *loop = NULL;
    struct approvals *approvals = NULL;
    struct heard one = {0}, two = {0};
    struct brig_err err = {0};
    struct approval a = ask_of("run-1", "o"), b = ask_of("run-2", "p");
    unsigned n = 0;
    (void)state;

    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(approvals_create(loop, &approvals, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &a, 3600000, hear, &one, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &b, 3600000, hear, &two, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &a, 3600000, hear, &one, &err), -EEXIST);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_int_equal(count(approvals, "o"), 1);
    assert_int_equal(count(approvals, ""), 2);
    approvals_each(approvals, "", stop_at_once, &n);
    assert_int_equal(n, 1);

    /* another organisation's */
    assert_int_equal(approvals_decide(approvals, "p", "run-1", true, "key-9", "", &err), -ENOENT);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_int_equal(approvals_decide(approvals, "o", "run-3", true, "key-9", "", &err), -ENOENT);
    assert_int_equal(approvals_decide(approvals, "o", "run-1", true, "key-9", "looks fine", &err), 0);
    assert_int_equal(one.n, 0); /* from the loop, not from within */
    assert_int_equal(count(approvals, ""), 1);
    assert_int_equal(approvals_decide(approvals, "o", "run-1", false, "key-9", "", &err), -ENOENT); /* only once */
    assert_int_equal(approvals_decide(approvals, "", "run-2", false, "root", NULL, &err), 0);
    assert_int_equal(loop_run_once(loop, 1000, NULL), 0);
    assert_int_equal(one.n, 1);
    assert_int_equal(one.verdict, VERDICT_APPROVED);
    assert_string_equal(one.by, "key-9");
    assert_string_equal(one.reason, "looks fine");
    assert_int_equal(two.n, 1);
    assert_int_equal(two.verdict, VERDICT_DENIED);
    assert_string_equal(two.reason, "");
    assert_int_equal(approvals_ask(approvals, &a, 3600000, hear, &one, NULL), 0); /* nothing of it is left */
    approvals_destroy(approvals);
    assert_int_equal(one.n, 1); /* nobody is told */
    approvals_destroy(NULL);
    loop_destroy(loop);
}

static void nobody_decides(void **state)
{
    struct loop *loop = NULL;
    struct approvals *approvals = NULL;
    struct heard one = {0}, two = {0}, three = {0};
    struct approval a = ask_of("run-1", "o"), b = ask_of("run-2", "o"), c = ask_of("run-3", "o");
    (void)state;

    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(approvals_create(loop, &approvals, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &a, 1, hear, &one, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &b, 1, hear, &two, NULL), 0);
    assert_int_equal(approvals_ask(approvals, &c, 3600000, hear, &three, NULL), 0);
    approvals_withdraw(approvals, "run-2");
    approvals_withdraw(approvals, "run-2");
    assert_int_equal(approvals_decide(approvals, "o", "run-3", true, "x", "y", NULL), 0);
    approvals_withdraw(approvals, "run-3"); /* decided, but not told yet */
    while (one.n == 0)
        assert_int_equal(loop_run_once(loop, 1000, NULL), 0);
    assert_int_equal(one.verdict, VERDICT_EXPIRED);
    assert_int_equal(two.n + three.n, 0);
    assert_int_equal(count(approvals, ""), 0);
    approvals_destroy(approvals);
    loop_destroy(loop);
}

static bool arguments_are_whole(void *ctx, const struct approval *approval)
{
    assert_int_equal(strlen(approval->arguments), 32768);
    ++*(unsigned *)ctx;
    return true;
}

static void waiting_is_bounded(void **state)
{
    struct loop *loop = NULL;
    struct approvals *approvals = NULL;
    struct heard heard = {0};
    struct brig_err err = {0};
    struct approval ask = ask_of("run", "p");
    static char text[32770];
    unsigned n = 0, taken = 0;
    (void)state;

    assert_int_equal(loop_create(&loop, NULL), 0);
    assert_int_equal(approvals_create(loop, &approvals, NULL), 0);
    memset(text, 'a', sizeof text - 1);
    ask.arguments = text;
    assert_true(approvals_ask(approvals, &ask, 1000, hear, &heard, &err) < 0);
    assert_int_equal(err.code, BRIG_E_TOO_LARGE);
    assert_string_equal(err.message,
                        "arguments: 32769 bytes; a call that waits for an approval has at most 32768, so that "
                        "whoever decides sees all of them");
    err = (struct brig_err){0};
    text[32768] = '\0';
    assert_int_equal(approvals_ask(approvals, &ask, 1000, hear, &heard, NULL), 0);
    approvals_each(approvals, "p", arguments_are_whole, &n);
    assert_int_equal(n, 1);
    for (unsigned i = 0; i < 1000; i++) {
        struct approval more = ask_of("", "o");
        assert_true(str_format(more.run_id, sizeof(more.run_id), "run-%u", i) > 0);
        int r = approvals_ask(approvals, &more, 1000, hear, &heard, &err);
        taken += r == 0;
        assert_int_equal(err.code, r == 0 ? BRIG_E_NONE : BRIG_E_LIMIT);
    }
    assert_int_equal(taken, 256);
    approvals_withdraw(approvals, "run-17");
    ask = ask_of("run-again", "o");
    assert_int_equal(approvals_ask(approvals, &ask, 1000, hear, &heard, NULL), 0);
    approvals_destroy(approvals);
    loop_destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_decide_in_order),
        cmocka_unit_test(both_must_allow),
        cmocka_unit_test(lists_of_another_shape_deny),
        cmocka_unit_test(stars_take_little_time),
        cmocka_unit_test(send_email),
        cmocka_unit_test(each_recipient),
        cmocka_unit_test(delete_file),
        cmocka_unit_test(long_paths_fail),
        cmocka_unit_test(work_without_end_fails),
        cmocka_unit_test(work_is_of_the_whole_call),
        cmocka_unit_test(bad_rules_are_refused),
        cmocka_unit_test(windows_slide),
        cmocka_unit_test(a_lowered_limit_says_when),
        cmocka_unit_test(counts_exactly),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(somebody_decides),
        cmocka_unit_test(nobody_decides),
        cmocka_unit_test(waiting_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
