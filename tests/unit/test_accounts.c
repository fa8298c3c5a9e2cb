/* SPDX-License-Identifier: Apache-2.0 */
/* Organisations and keys: found by id and by text, revoked before the commit, forgotten in time, read again at a start.
 * On both data bases. */
#include "store_kit.h"

#include "base/err.h"
#include "codec/json/json_read.h"
#include "crypto/crypto.h"
#include "records/accounts.h"
#include "records/rules.h"

#define DAY (INT64_C(86400) * SEC)

struct told {
    unsigned n, failed, over, forgotten, logged;
    struct brig_err err;
    char id[128], last_over[128], log[512];
};

static void on_object(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct told *told = ctx;

    told->n++;
    if (err) {
        told->failed++;
        told->err = *err;
    } else if (object) {
        memcpy(told->id, object->id, sizeof told->id);
    }
}

static void on_over(void *ctx, const char *key_id, bool forgotten)
{
    struct told *told = ctx;

    told->over++;
    told->forgotten += forgotten;
    snprintf(told->last_over, sizeof told->last_over, "%s", key_id);
}

static void on_log(void *ctx, const char *text)
{
    struct told *told = ctx;

    told->logged++;
    snprintf(told->log, sizeof told->log, "%s", text);
}

static void wait_for(struct kit *kit, const unsigned *count, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (*count < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

static struct accounts *open_accounts(struct kit *kit, struct told *told)
{
    const struct accounts_options options = {
        .loop = kit->loop, .store = kit->store, .over = on_over, .log = on_log, .ctx = told};
    struct accounts *accounts = NULL;
    struct brig_err err = {0};

    if (accounts_create(&options, &accounts, &err) < 0)
        fail_msg("%s", err.message);
    return accounts;
}

/* As the daemon ends and starts. */
static struct accounts *restart(struct kit *kit, struct accounts *accounts, struct told *told)
{
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
    return open_accounts(kit, told);
}

static void must_org(struct kit *kit, struct accounts *accounts, const char *name, char id[128])
{
    struct told told = {0};

    assert_int_equal(org_create(accounts, name, on_object, &told, NULL), 0);
    wait_for(kit, &told.n, 1);
    assert_int_equal(told.failed, 0);
    memcpy(id, told.id, sizeof told.id);
}

static void must_key(struct kit *kit, struct accounts *accounts, const char *org, const struct key *like, char id[128],
                     char text[KEY_TEXT + 1])
{
    struct told told = {0};

    assert_int_equal(key_create(accounts, org, like, "{}", 1000, text, on_object, &told, NULL), 0);
    wait_for(kit, &told.n, 1);
    assert_int_equal(told.failed, 0);
    memcpy(id, told.id, sizeof told.id);
}

static int check(struct accounts *accounts, const char *text)
{
    const struct object *key = key_by_text(accounts, text);
    struct brig_err err = {0};

    return key ? key_check(accounts, key, &err) : -ENOENT;
}

static void put_lists(struct accounts *accounts, const char *org, const char *key, const char *text,
                      struct json_doc **doc, struct told *told)
{
    assert_int_equal(json_read(text, strlen(text), JSON_READ_VALUES, doc, NULL), 0);
    assert_int_equal(lists_check(json_root(*doc), NULL), 0);
    assert_int_equal(lists_put(accounts, org, key, json_root(*doc), on_object, told, NULL), 0);
}

static void test_life(void **state)
{
    struct kit *kit = *state;
    struct told all = {0};
    struct accounts *accounts = open_accounts(kit, &all);
    const struct key like = {.name = "robot", .role = STORE_ROLE_READ_ONLY};
    char org[128], other[128], id[128], text[KEY_TEXT + 1], id2[128], text2[KEY_TEXT + 1];

    assert_non_null(org_find(accounts, ACCOUNTS_DEFAULT_ORG));
    must_org(kit, accounts, "one", org);
    must_org(kit, accounts, "two", other);
    must_key(kit, accounts, org, &like, id, text);
    must_key(kit, accounts, other, &like, id2, text2);
    for (int again = 0; again < 2; again++) {
        assert_string_equal(org_first(accounts)->id, ACCOUNTS_DEFAULT_ORG);
        assert_string_equal(org_first(accounts)->next->id, org);
        assert_string_equal(org_of(org_find(accounts, other))->name, "two");
        const struct object *key = key_find(accounts, id);
        assert_non_null(key);
        assert_ptr_equal(key_by_text(accounts, text), key);
        assert_ptr_equal(key_first(accounts, org), key);
        assert_null(key->next); /* another organisation's is not in the list */
        assert_string_equal(key->org_id, org);
        assert_string_equal(key_of(key)->name, "robot");
        assert_string_equal(key_of(key)->hint, text + KEY_TEXT - 4);
        assert_int_equal(key_of(key)->role, STORE_ROLE_READ_ONLY);
        assert_int_equal(check(accounts, text), 0);
        assert_ptr_equal(key_by_text(accounts, text2), key_find(accounts, id2));
        text[KEY_TEXT - 1] ^= 1;
        assert_null(key_by_text(accounts, text));
        text[KEY_TEXT - 1] ^= 1;
        assert_null(key_by_text(accounts, "e2b_"));
        accounts = restart(kit, accounts, &all);
    }
    assert_int_equal(all.logged, 0);
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
}

/* A revocation is in force at once, over every version that was on its way, and after a start. */
static void test_revoked_before_the_commit(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, lists = {0}, told = {0};
    struct accounts *accounts = open_accounts(kit, &all);
    const struct key like = {.name = "robot", .role = STORE_ROLE_USER};
    struct json_doc *first = NULL, *second = NULL;
    char id[128], text[KEY_TEXT + 1];

    must_key(kit, accounts, ACCOUNTS_DEFAULT_ORG, &like, id, text);
    put_lists(accounts, ACCOUNTS_DEFAULT_ORG, id, "{\"allow\":[\"a\"]}", &first, &lists);
    put_lists(accounts, ACCOUNTS_DEFAULT_ORG, id, "{\"allow\":[\"b\"]}", &second, &lists);
    assert_int_equal(check(accounts, text), 0);
    assert_int_equal(key_revoke(accounts, key_find(accounts, id), on_object, &told, NULL), 0);
    assert_true(check(accounts, text) < 0);
    wait_for(kit, &lists.n, 1);
    assert_true(check(accounts, text) < 0); /* the version that was made before */
    assert_int_equal(told.n, 0);
    wait_for(kit, &told.n, 1);
    assert_int_equal(told.failed + lists.failed, 0);
    assert_true(check(accounts, text) < 0);
    accounts = restart(kit, accounts, &all);
    assert_true(check(accounts, text) < 0);
    assert_true(key_of(key_find(accounts, id))->revoked_at_ns > 0);
    assert_string_equal(key_doc(accounts, id), "{\"tools\":{\"allow\":[\"b\"]}}");
    json_doc_free(first);
    json_doc_free(second);
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
}

static void test_store_refuses(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0}, lists = {0};
    struct accounts *accounts = open_accounts(kit, &all);
    const struct key like = {.name = "robot", .role = STORE_ROLE_USER};
    struct json_doc *doc = NULL;
    char org[128], id[128], text[KEY_TEXT + 1];

    must_org(kit, accounts, "one", org);
    must_key(kit, accounts, org, &like, id, text);

    /* an organisation that the store keeps: its keys are refused meanwhile, and are keys again */
    struct answer answer = {0};
    struct store_sandbox box = {.id = "sbx-1", .state = "running", .provider = "local", .doc = "{}"};
    memcpy(box.org_id, org, sizeof box.org_id - 1);
    assert_int_equal(store_put_sandbox(kit->store, &box, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_int_equal(org_delete(accounts, org, on_object, &told, NULL), 0);
    assert_true(check(accounts, text) < 0);
    wait_for(kit, &told.n, 1);
    assert_int_equal(told.failed, 1);
    assert_int_equal(told.err.code, BRIG_E_CONFLICT);
    assert_int_equal(check(accounts, text), 0);

    /* a revocation that is not stored is in force all the same */
    put_lists(accounts, org, id, "{}", &doc, &lists); /* its commit comes when the store closes; the other waits */
    assert_int_equal(key_revoke(accounts, key_find(accounts, id), on_object, &told, NULL), 0);
    kit_close(kit);
    assert_int_equal(told.failed, 2);
    assert_int_equal(told.err.code, BRIG_E_BUSY);
    assert_true(check(accounts, text) < 0);
    json_doc_free(doc);
    accounts_destroy(accounts);
    kit_open(kit);
}

static void test_deleted(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct accounts *accounts = open_accounts(kit, &all);
    const struct key like = {.name = "robot", .role = STORE_ROLE_USER};
    struct json_doc *doc = NULL;
    char org[128], id[128], text[KEY_TEXT + 1];

    must_org(kit, accounts, "one", org);
    must_key(kit, accounts, org, &like, id, text);
    put_lists(accounts, org, NULL, "{\"deny\":[\"a\"]}", &doc, &told); /* it is on its way when the deletion comes */
    assert_int_equal(org_delete(accounts, org, on_object, &told, NULL), 0);
    assert_true(check(accounts, text) < 0);
    wait_for(kit, &told.n, 1);
    assert_true(check(accounts, text) < 0);
    wait_for(kit, &told.n, 2);
    assert_int_equal(told.failed, 0);
    org_forget(accounts, org);
    assert_null(org_find(accounts, org));
    assert_null(key_find(accounts, id));
    assert_null(key_by_text(accounts, text));
    accounts = restart(kit, accounts, &all);
    assert_null(org_find(accounts, org));
    assert_null(key_find(accounts, id));
    json_doc_free(doc);
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
}

static void put_row(struct kit *kit, const char *id, const char *org, int64_t expires_ns, int64_t revoked_ns)
{
    struct answer answer = {0};
    struct store_key row = {.name = "old",
                            .hint = "abcd",
                            .role = STORE_ROLE_ADMIN,
                            .created_at_ns = SEC,
                            .expires_at_ns = expires_ns,
                            .revoked_at_ns = revoked_ns,
                            .doc = "{\"metrics\":true}"};

    snprintf(row.id, sizeof row.id, "%s", id);
    snprintf(row.org_id, sizeof row.org_id, "%s", org);
    assert_int_equal(crypto_sha256(id, strlen(id), row.hash), 0);
    assert_int_equal(store_put_key(kit->store, &row, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
}

/* Rows as a program before this one has written them. */
static void test_over(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    const struct key like = {.name = "robot", .role = STORE_ROLE_USER};
    const int64_t now = clock_real_ns();
    struct brig_err err = {0};
    char id[128], text[KEY_TEXT + 1];

    kit_put_org(kit, "org-1");
    put_row(kit, "key-good", "org-1", 0, 0);
    put_row(kit, "key-old", "org-1", 0, now - 8 * DAY);
    put_row(kit, "key-expired", "org-1", now - 6 * DAY, 0);
    put_row(kit, "key-soon", "org-1", now + SEC / 2, 0);
    struct accounts *accounts = open_accounts(kit, &all);
    assert_int_equal(all.over, 0);
    assert_null(key_find(accounts, "key-old")); /* its row goes with the next look */
    assert_non_null(key_find(accounts, "key-expired"));
    assert_true(key_check(accounts, key_find(accounts, "key-expired"), &err) < 0);
    assert_string_equal(err.message, "the key has expired");
    assert_int_equal(key_check(accounts, key_find(accounts, "key-good"), &err), 0);
    assert_true(key_has(accounts, "key-good", "metrics"));
    assert_false(key_has(accounts, "key-good", "user_ids"));
    wait_for(kit, &all.over, 1); /* told when its time comes, and not one that was over before */
    assert_string_equal(all.last_over, "key-soon");
    assert_int_equal(all.forgotten, 0);

    /* a full organisation loses what is over, and only that */
    assert_true(key_create(accounts, "org-1", &like, "{}", 1, text, on_object, &told, &err) < 0);
    assert_string_equal(err.message, "an organisation has at most 1 keys ([manager] org_max_keys); revoke some");
    assert_int_equal(all.forgotten, 2);
    assert_null(key_find(accounts, "key-expired"));
    assert_non_null(key_find(accounts, "key-good"));
    assert_int_equal(key_create(accounts, "org-1", &like, "{}", 2, text, on_object, &told, &err), 0);
    assert_true(key_create(accounts, "org-1", &like, "{}", 2, text, on_object, &told, &err) < 0); /* one is coming */
    wait_for(kit, &told.n, 1);

    /* what is removed while a change of it waits does not come back */
    must_key(kit, accounts, "org-1", &like, id, text);
    assert_int_equal(key_revoke(accounts, key_find(accounts, id), on_object, &told, NULL), 0);
    wait_for(kit, &told.n, 2);
    key_of(key_find(accounts, id))->revoked_at_ns = now - 8 * DAY;
    assert_int_equal(key_revoke(accounts, key_find(accounts, id), on_object, &told, NULL), 0);
    assert_int_equal(accounts_prune(accounts, NULL), 0);
    assert_null(key_find(accounts, id));
    wait_for(kit, &told.n, 3);
    assert_null(key_find(accounts, id));
    accounts = restart(kit, accounts, &all);
    assert_null(key_find(accounts, id));
    assert_non_null(key_find(accounts, "key-good"));
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
}

static void test_lists(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct accounts *accounts = open_accounts(kit, &all);
    const struct key like = {.name = "robot", .role = STORE_ROLE_USER};
    struct caller caller = {.org_id = ACCOUNTS_DEFAULT_ORG};
    struct json_doc *docs[3] = {NULL};
    char id[128], text[KEY_TEXT + 1];

    must_key(kit, accounts, ACCOUNTS_DEFAULT_ORG, &like, id, text);
    memcpy(caller.key_id, id, sizeof caller.key_id - 1);
    assert_int_equal(caller_may_run(accounts, &caller, false, "a", NULL), 0);
    assert_true(caller_may_run(accounts, &caller, true, "a", NULL) < 0);
    put_lists(accounts, ACCOUNTS_DEFAULT_ORG, NULL, "{\"deny\":[\"a\"]}", &docs[0], &told);
    assert_int_equal(caller_may_run(accounts, &caller, false, "a", NULL), 0); /* not before its commit */
    put_lists(accounts, ACCOUNTS_DEFAULT_ORG, id, "{\"deny\":[\"b\"]}", &docs[1], &told);
    wait_for(kit, &told.n, 2);
    for (int again = 0; again < 2; again++) {
        assert_true(caller_may_run(accounts, &caller, false, "a", NULL) < 0);
        assert_true(caller_may_run(accounts, &caller, false, "b", NULL) < 0);
        assert_int_equal(caller_may_run(accounts, &caller, false, "c", NULL), 0);
        accounts = restart(kit, accounts, &all);
    }
    put_lists(accounts, ACCOUNTS_DEFAULT_ORG, NULL, "{}", &docs[2], &told);
    wait_for(kit, &told.n, 3);
    assert_string_equal(org_doc(accounts, ACCOUNTS_DEFAULT_ORG), "{}");
    assert_int_equal(caller_may_run(accounts, &caller, false, "a", NULL), 0);
    assert_int_equal(told.failed, 0);
    for (size_t i = 0; i < ARRAY_SIZE(docs); i++)
        json_doc_free(docs[i]);
    kit_close(kit);
    accounts_destroy(accounts);
    kit_open(kit);
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_life),    KIT_CASE(test_revoked_before_the_commit),
                                       KIT_CASE(test_deleted), KIT_CASE(test_store_refuses),
                                       KIT_CASE(test_over),    KIT_CASE(test_lists)};

    return kit_run("accounts", cases, ARRAY_SIZE(cases), true);
}
