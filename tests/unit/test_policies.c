/* SPDX-License-Identifier: Apache-2.0 */
/* Named policies over a real store: what is kept, in which order changes are in force, and what `network` means. */
#include "store_kit.h"

#include "records/policies.h"

static struct json_doc *doc;

static const struct json_value *json(const char *text)
{
    struct brig_err err = {0};

    json_doc_free(doc);
    doc = NULL;
    if (json_read(text, strlen(text), 10000, &doc, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return json_root(doc);
}

static struct policies *open_policies(struct kit *kit)
{
    struct policies *policies = NULL;
    struct brig_err err = {0};

    if (policies_create(kit->store, NULL, &policies, &err) < 0)
        fail_msg("%s", err.message);
    return policies;
}

static void on_changed(void *ctx, const struct object *policy, const struct brig_err *err)
{
    (void)policy;
    on_done(ctx, err);
}

static void put(struct kit *kit, struct policies *policies, const char *org, const char *name, const char *text)
{
    struct answer answer = {0};
    struct brig_err err = {0};

    if (policies_put(policies, org, name, json(text), on_changed, &answer, &err) < 0)
        fail_msg("%s: %s", name, err.message);
    kit_wait_ok(kit, &answer, 1);
}

static void put_refused(struct policies *policies, const char *name, const char *text, int code, const char *message)
{
    struct brig_err err = {0};

    assert_true(policies_put(policies, "org-1", name, json(text), NULL, NULL, &err) < 0);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, message))
        fail_msg("said \"%s\", not \"%s\"", err.message, message);
}

static bool allows(const struct policy *policy, const char *name)
{
    const struct policy_question question = {.name = name, .port = 443, .seen = POLICY_SEEN_TLS};
    struct policy_answer answer;

    policy_judge(policy, &question, &answer);
    return answer.allow;
}

#define RULE(action, name) "{\"action\":\"" action "\",\"domain\":\"" name "\"}"
#define ALLOW(name) "{\"rules\":[" RULE("allow", name) "]}"

static const char *names_of(const struct policies *policies, const char *org)
{
    static char text[256];
    size_t len = 0;

    text[0] = '\0';
    for (const struct object *policy = objects_first(policies_objects(policies), org); policy; policy = policy->next)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s ", policy->id);
    return text;
}

static void test_kept(void **state)
{
    struct kit *kit = *state;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    struct policies *policies = open_policies(kit);
    put(kit, policies, "org-1", "web", ALLOW("A.org"));
    put(kit, policies, "org-2", "web", ALLOW("b.org"));
    put(kit, policies, "org-1", "a.b_c-9", ALLOW("c.org"));
    put(kit, policies, "org-1", "web", ALLOW("d.org"));
    assert_null(policies_find(policies, "org-2", "a.b_c-9"));
    for (int again = 0; again < 2; again++) {
        const struct object *web = policies_find(policies, "org-1", "web");
        assert_non_null(web);
        assert_int_equal(web->version, 2);
        assert_true(web->created_at_ns > 0 && web->created_at_ns < web->updated_at_ns);
        assert_true(allows(web->extra, "d.org") && !allows(web->extra, "a.org"));
        assert_non_null(strstr(web->text, "\"ports\":[80,443]"));
        assert_true(allows(policies_find(policies, "org-2", "web")->extra, "b.org"));
        assert_string_equal(names_of(policies, "org-1"), "a.b_c-9 web ");
        assert_string_equal(names_of(policies, "org-2"), "web ");
        kit_reopen(kit); /* then all over from what the store has */
        policies_destroy(policies);
        policies = open_policies(kit);
    }
    policies_destroy(policies);
}

static void test_delete(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    struct policies *policies = open_policies(kit);
    put(kit, policies, "org-1", "web", ALLOW("a.org"));
    assert_int_equal(objects_delete(policies_objects(policies), "org-2", "web", NULL, NULL, &err), -ENOENT);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    assert_int_equal(objects_delete(policies_objects(policies), "org-1", "web", on_changed, &answer, &err), 0);
    assert_non_null(policies_find(policies, "org-1", "web")); /* until it is committed */
    kit_wait_ok(kit, &answer, 1);
    assert_null(policies_find(policies, "org-1", "web"));
    kit_reopen(kit);
    policies_destroy(policies);
    policies = open_policies(kit);
    assert_null(policies_find(policies, "org-1", "web"));
    policies_destroy(policies);
}

static void test_refused(void **state)
{
    struct kit *kit = *state;
    static const char *const names[] = {
        "",         "Web",   ".x",     "-x",
        "a b",      "a/b",   "none",   "open",
        "packages", "learn", "custom", "a23456789012345678901234567890123456789012345678901234567890abcd"};

    kit_put_org(kit, "org-1");
    struct policies *policies = open_policies(kit);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        put_refused(policies, names[i], "{}", BRIG_E_USAGE, "policy ");
    put_refused(policies, "x", "{\"rules\":[{}]}", BRIG_E_USAGE, "rules[0].action");
    put_refused(policies, "x", "{\"learn\":true}", BRIG_E_USAGE, "learn: ");
    put_refused(policies, "x", "{\"extends\":\"learn\"}", BRIG_E_USAGE, "extends: learn");
    put_refused(policies, "x", "{\"extends\":\"nobody\"}", BRIG_E_NOT_FOUND, "nobody");
    assert_null(policies_find(policies, "org-1", "x"));
    policies_destroy(policies);
}

/* The organisation is not there: the store refuses, and memory does not have it either. */
static void test_store_refuses(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};

    struct policies *policies = open_policies(kit);
    assert_int_equal(policies_put(policies, "org-x", "web", json(ALLOW("a.org")), on_changed, &answer, &err), 0);
    assert_null(policies_find(policies, "org-x", "web"));
    kit_wait(kit, &answer, 1);
    assert_int_equal(answer.failed, 1);
    assert_null(policies_find(policies, "org-x", "web"));
    policies_destroy(policies);
}

struct seen {
    unsigned n;
    uint64_t version;
};

static void on_seen(void *ctx, const struct object *policy)
{
    struct seen *seen = ctx;

    seen->n++;
    seen->version = policy->version;
}

/* Several under way at once: in the order they were asked for. */
static void test_order(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};
    struct seen seen = {0};

    kit_put_org(kit, "org-1");
    struct policies *policies = open_policies(kit);
    policies_on_change(policies, on_seen, &seen);
    assert_int_equal(policies_put(policies, "org-1", "web", json(ALLOW("a.org")), on_changed, &answer, &err), 0);
    assert_int_equal(policies_put(policies, "org-1", "web", json(ALLOW("b.org")), on_changed, &answer, &err), 0);
    assert_null(policies_find(policies, "org-1", "web"));
    assert_string_equal(names_of(policies, "org-1"), ""); /* nor listed before it is committed */
    kit_wait_ok(kit, &answer, 2);
    assert_true(allows(policies_find(policies, "org-1", "web")->extra, "b.org"));
    assert_int_equal(seen.n, 2);
    assert_int_equal(seen.version, 2);
    assert_int_equal(objects_delete(policies_objects(policies), "org-1", "web", on_changed, &answer, &err), 0);
    assert_int_equal(policies_put(policies, "org-1", "web", json(ALLOW("c.org")), on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 4);
    assert_true(allows(policies_find(policies, "org-1", "web")->extra, "c.org"));
    assert_int_equal(seen.version, 3);
    kit_close(kit);
    policies_destroy(policies);
}

static struct network_choice choose(struct policies *policies, const char *text)
{
    struct network_choice choice;
    struct brig_err err = {0};

    if (policies_choose(policies, "org-1", json(text), &choice, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return choice;
}

static void test_choose(void **state)
{
    struct kit *kit = *state;
    struct brig_err err = {0};
    struct network_choice choice;

    kit_put_org(kit, "org-1");
    struct policies *policies = open_policies(kit);
    put(kit, policies, "org-1", "web", ALLOW("a.org"));
    put(kit, policies, "org-1", "more", "{\"extends\":\"web\",\"rules\":[" RULE("allow", "b.org") "]}");
    choice = choose(policies, "\"none\"");
    assert_true(choice.none && !choice.policy && !choice.json);
    network_choice_done(&choice);
    choice = choose(policies, "\"open\"");
    assert_true(!choice.none && !choice.learn && !choice.named && allows(choice.policy, "any.org"));
    network_choice_done(&choice);
    choice = choose(policies, "\"packages\"");
    assert_true(allows(choice.policy, "pypi.org") && !allows(choice.policy, "any.org"));
    network_choice_done(&choice);
    choice = choose(policies, "\"learn\"");
    assert_true(choice.learn && allows(choice.policy, "any.org"));
    network_choice_done(&choice);
    choice = choose(policies, "\"web\"");
    assert_true(choice.named && choice.version == 1 && allows(choice.policy, "a.org"));
    assert_string_equal(choice.name, "web");
    network_choice_done(&choice);
    choice = choose(policies, "\"more\"");
    assert_true(allows(choice.policy, "a.org") && allows(choice.policy, "b.org"));
    network_choice_done(&choice);
    choice = choose(policies,
                    "{\"extends\":\"packages\",\"rules\":[" RULE("deny", "pypi.org") "," RULE("allow", "x.org") "]}");
    assert_string_equal(choice.name, "custom");
    assert_true(!choice.named && allows(choice.policy, "x.org") && allows(choice.policy, "crates.io") &&
                !allows(choice.policy, "pypi.org"));
    network_choice_done(&choice);
    choice = choose(policies, "{\"extends\":\"none\",\"learn\":true,"
                              "\"rules\":[" RULE("allow", "x.org") "]}");
    assert_true(choice.learn && !choice.none && allows(choice.policy, "x.org") && !allows(choice.policy, "y.org"));
    network_choice_done(&choice);
    choice = choose(policies, "null");
    assert_true(choice.none);
    network_choice_done(&choice);
    static const char *const wrong[] = {"true",
                                        "1",
                                        "[]",
                                        "\"\"",
                                        "\"nobody\"",
                                        "\"open\\u0000\"",
                                        "{\"extends\":1}",
                                        "{\"learn\":1}",
                                        "{\"extends\":\"open\",\"x\":1}"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        if (policies_choose(policies, "org-1", json(wrong[i]), &choice, &err) == 0)
            fail_msg("accepted %s", wrong[i]);
    }
    assert_true(policies_choose(policies, "org-2", json("\"web\""), &choice, &err) < 0); /* another organisation's */
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    policies_destroy(policies);
}

static void test_full(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct brig_err err = {0};
    char name[32];

    kit_put_org(kit, "org-1");
    struct policies *policies = open_policies(kit);
    const struct json_value *empty = json("{}");
    for (unsigned i = 0; i < POLICIES_PER_ORG; i++) {
        snprintf(name, sizeof name, "p%u", i);
        assert_int_equal(policies_put(policies, "org-1", name, empty, on_changed, &answer, &err), 0);
    }
    assert_true(policies_put(policies, "org-1", "one-more", empty, on_changed, &answer, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    /* a change needs no room */
    assert_int_equal(policies_put(policies, "org-1", "p7", empty, on_changed, &answer, &err), 0);
    kit_wait_ok(kit, &answer, POLICIES_PER_ORG + 1);
    policies_destroy(policies);
}

/* What cannot be understood is not taken for less than it was. */
static void test_broken_row(void **state)
{
    struct kit *kit = *state;
    struct policies *policies = NULL;
    struct answer answer = {0};
    struct brig_err err = {0};
    const struct store_object object = {.kind = "policy",
                                        .org_id = "org-1",
                                        .name = "web",
                                        .version = 1,
                                        .doc = "{\"rules\":[{\"action\":\"audit\"}]}"};

    kit_put_org(kit, "org-1");
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, &err), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_true(policies_create(kit->store, NULL, &policies, &err) < 0);
    assert_non_null(strstr(err.message, "web"));
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_kept),          KIT_CASE(test_delete),    KIT_CASE(test_refused),
                                       KIT_CASE(test_store_refuses), KIT_CASE(test_order),     KIT_CASE(test_choose),
                                       KIT_CASE(test_full),          KIT_CASE(test_broken_row)};

    int failed = kit_run("policies", cases, ARRAY_SIZE(cases), false);
    json_doc_free(doc);
    return failed;
}
