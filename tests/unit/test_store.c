/* SPDX-License-Identifier: Apache-2.0 */
/* The store: what goes in comes out, to whom it belongs, in which order, and how often it is committed. Each case on
 * both data bases. */
#include "store_kit.h"

/* ---- records ------------------------------------------------------------------------------------------ */

struct seen {
    unsigned n;
    struct store_org org;
    struct store_key key;
    struct store_sandbox sandbox;
    struct store_idempotency row;
    char doc[256];
};

static int see_org(void *ctx, const struct store_org *org)
{
    struct seen *seen = ctx;
    seen->n++, seen->org = *org;
    snprintf(seen->doc, sizeof seen->doc, "%s", org->doc);
    return 0;
}

static int see_key(void *ctx, const struct store_key *key)
{
    struct seen *seen = ctx;
    seen->n++, seen->key = *key;
    snprintf(seen->doc, sizeof seen->doc, "%s", key->doc);
    return 0;
}

static int see_sandbox(void *ctx, const struct store_sandbox *sandbox)
{
    struct seen *seen = ctx;
    seen->n++, seen->sandbox = *sandbox;
    snprintf(seen->doc, sizeof seen->doc, "%s", sandbox->doc);
    return 0;
}

static int see_idempotency(void *ctx, const struct store_idempotency *row)
{
    struct seen *seen = ctx;
    seen->n++, seen->row = *row;
    snprintf(seen->doc, sizeof seen->doc, "%s", row->doc);
    return 0;
}

struct objects {
    unsigned n;
    char text[512]; /* "org/name vVERSION created-updated doc;" */
};

static int see_object(void *ctx, const struct store_object *object)
{
    struct objects *seen = ctx;
    size_t len = strlen(seen->text);

    seen->n++;
    snprintf(seen->text + len, sizeof seen->text - len, "%s/%s v%llu %lld-%lld %s;", object->org_id, object->name,
             (unsigned long long)object->version, (long long)object->created_at_ns, (long long)object->updated_at_ns,
             object->doc);
    return 0;
}

static void assert_objects(struct kit *kit, const char *kind, const char *expect)
{
    struct objects seen = {0};

    assert_int_equal(store_each_object(kit->store, kind, see_object, &seen, NULL), 0);
    assert_string_equal(seen.text, expect);
}

static int stop_at_once(void *ctx, const struct store_org *org)
{
    (void)org;
    ++*(unsigned *)ctx;
    return -ECANCELED;
}

static const struct store_key a_key = {.id = "key-1",
                                       .org_id = "org-1",
                                       .name = "Zoë's key",
                                       .hash = {0, 1, 0, 255, 7},
                                       .hint = "beef",
                                       .role = STORE_ROLE_READ_ONLY,
                                       .created_at_ns = 5,
                                       .expires_at_ns = INT64_MAX,
                                       .doc = "{\"max\":2}"};
static const struct store_sandbox a_box = {.id = "box1",
                                           .org_id = "org-1",
                                           .key_id = "key-1",
                                           .name = "dev",
                                           .state = "running",
                                           .provider = "local",
                                           .created_at_ns = 9,
                                           .updated_at_ns = 10,
                                           .doc = "{\"a\":[1,2]}"};

static void test_objects(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct store_object object = {.kind = "policy",
                                  .org_id = "org-1",
                                  .name = "web",
                                  .version = 1,
                                  .created_at_ns = 5,
                                  .updated_at_ns = 5,
                                  .doc = "{\"a\":1}"};

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    object = (struct store_object){
        .kind = "secret", .org_id = "org-1", .name = "web", .version = 7, .created_at_ns = 6, .updated_at_ns = 6};
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    object = (struct store_object){
        .kind = "policy", .org_id = "org-2", .name = "web", .version = 1, .created_at_ns = 8, .updated_at_ns = 8};
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    object.name[0] = 'W'; /* bytes, not letters */
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    object = (struct store_object){.kind = "policy",
                                   .org_id = "org-1",
                                   .name = "web",
                                   .version = 2,
                                   .created_at_ns = 99,
                                   .updated_at_ns = 9,
                                   .doc = "{\"a\":2}"};
    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 5);
    kit_reopen(kit);
    assert_objects(kit, "policy", "org-1/web v2 5-9 {\"a\":2};org-2/Web v1 8-8 {};org-2/web v1 8-8 {};");
    assert_objects(kit, "secret", "org-1/web v7 6-6 {};");
    assert_objects(kit, "none", "");

    answer = (struct answer){0};
    assert_int_equal(store_delete_object(kit->store, "policy", "org-2", "Web", on_done, &answer, NULL), 0);
    assert_int_equal(store_delete_object(kit->store, "policy", "org-2", "missing", on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 2);
    assert_objects(kit, "policy", "org-1/web v2 5-9 {\"a\":2};org-2/web v1 8-8 {};");
    answer = (struct answer){0};
    /* takes its objects of every kind along */
    assert_int_equal(store_delete_org(kit->store, "org-1", on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_objects(kit, "policy", "org-2/web v1 8-8 {};");
    assert_objects(kit, "secret", "");
}

static void test_objects_that_cannot_be(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct store_object object = {.kind = "policy", .org_id = "org-none", .name = "web", .version = 1};
    struct brig_err err = {0};

    assert_int_equal(store_put_object(kit->store, &object, on_done, &answer, NULL), 0);
    kit_wait(kit, &answer, 1);
    assert_int_equal(answer.failed, 1);
    assert_int_equal(answer.err.code, BRIG_E_CONFLICT);
    assert_objects(kit, "policy", "");
    object.name[0] = '\0';
    assert_int_equal(store_put_object(kit->store, &object, NULL, NULL, &err), -EINVAL);
    assert_string_equal(err.message, "object's name: is empty");
    memset(object.name, 'x', sizeof object.name);
    assert_int_equal(store_put_object(kit->store, &object, NULL, NULL, &err), -EINVAL);
    object = (struct store_object){.kind = "policy", .org_id = "org-1", .name = "\xff"};
    assert_int_equal(store_put_object(kit->store, &object, NULL, NULL, &err), -EINVAL);
    object = (struct store_object){.kind = "policy", .org_id = "org-1", .name = "n", .version = UINT64_MAX};
    assert_int_equal(store_put_object(kit->store, &object, NULL, NULL, &err), -EINVAL);
    assert_int_equal(store_delete_object(kit->store, "policy", "", "n", NULL, NULL, &err), -EINVAL);
}

static void test_records(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    struct store_idempotency row = {.org_id = "org-1",
                                    .key = "try 1",
                                    .fingerprint = {9, 0, 8},
                                    .created_at_ns = 77,
                                    .status = 201,
                                    .doc = "{\"id\":1}"};
    struct seen seen = {0};

    kit_put_org(kit, "org-1");
    assert_int_equal(store_put_key(kit->store, &a_key, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_sandbox(kit->store, &a_box, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_idempotency(kit->store, &row, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 3);
    kit_reopen(kit);

    assert_int_equal(store_each_org(kit->store, see_org, &seen, NULL), 0);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.org.id, "org-1");
    assert_string_equal(seen.org.name, "an org");
    assert_string_equal(seen.doc, "{\"quota\":1}");
    assert_int_equal(store_each_key(kit->store, see_key, &seen, NULL), 0);
    assert_int_equal(seen.n, 2);
    assert_string_equal(seen.key.name, a_key.name);
    assert_string_equal(seen.key.hint, "beef");
    assert_memory_equal(seen.key.hash, a_key.hash, 32);
    assert_int_equal(seen.key.role, STORE_ROLE_READ_ONLY);
    assert_int_equal(seen.key.expires_at_ns, INT64_MAX);
    assert_int_equal(store_each_sandbox(kit->store, see_sandbox, &seen, NULL), 0);
    assert_string_equal(seen.sandbox.state, "running");
    assert_string_equal(seen.sandbox.key_id, "key-1");
    assert_int_equal(seen.sandbox.updated_at_ns, 10);
    assert_string_equal(seen.doc, a_box.doc);
    assert_int_equal(store_each_idempotency(kit->store, see_idempotency, &seen, NULL), 0);
    assert_string_equal(seen.row.key, "try 1");
    assert_memory_equal(seen.row.fingerprint, row.fingerprint, 32);
    assert_int_equal(seen.row.status, 201);
    assert_int_equal(seen.n, 4);
}

static void test_each_stops(void **state)
{
    struct kit *kit = *state;
    unsigned n = 0;

    kit_put_org(kit, "org-1");
    kit_put_org(kit, "org-2");
    assert_int_equal(store_each_org(kit->store, stop_at_once, &n, NULL), -ECANCELED);
    assert_int_equal(n, 1);
}

static void test_put_again_updates(void **state)
{
    struct kit *kit = *state;
    struct store_key key = a_key;
    struct store_sandbox box = a_box;
    struct answer answer = {0};
    struct seen seen = {0};

    kit_put_org(kit, "org-1");
    assert_int_equal(store_put_key(kit->store, &key, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_sandbox(kit->store, &box, on_done, &answer, NULL), 0);
    key.revoked_at_ns = 99;
    snprintf(box.state, sizeof box.state, "paused");
    box.doc = NULL;
    assert_int_equal(store_put_key(kit->store, &key, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_sandbox(kit->store, &box, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 4);
    assert_int_equal(store_each_key(kit->store, see_key, &seen, NULL), 0);
    assert_int_equal(seen.key.revoked_at_ns, 99);
    assert_int_equal(store_each_sandbox(kit->store, see_sandbox, &seen, NULL), 0);
    assert_string_equal(seen.sandbox.state, "paused");
    assert_string_equal(seen.doc, "{}");
    assert_int_equal(seen.n, 2);
}

static void test_delete_org(void **state)
{
    struct kit *kit = *state;
    struct store_idempotency row = {.org_id = "org-1", .key = "k", .status = 200};
    struct store_certificate cert = {.sandbox_id = "box1", .org_id = "org-1", .cause = "deleted", .ended_at_ns = 3};
    struct answer answer = {0}, refused = {0}, deleted = {0};
    struct seen seen = {0};

    kit_put_org(kit, "org-1");
    assert_int_equal(store_put_key(kit->store, &a_key, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_sandbox(kit->store, &a_box, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_idempotency(kit->store, &row, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 3);
    assert_int_equal(store_delete_org(kit->store, "org-1", on_done, &refused, NULL), 0);
    kit_wait(kit, &refused, 1);
    assert_int_equal(refused.failed, 1);
    assert_int_equal(refused.err.code, BRIG_E_CONFLICT);
    assert_int_equal(store_end_sandbox(kit->store, &cert, on_done, &deleted, NULL), 0);
    assert_int_equal(store_delete_org(kit->store, "org-1", on_done, &deleted, NULL), 0);
    assert_int_equal(store_delete_org(kit->store, "org-1", on_done, &deleted, NULL), 0); /* no more there: as wanted */
    kit_wait_ok(kit, &deleted, 3);
    assert_int_equal(store_each_org(kit->store, see_org, &seen, NULL), 0);
    assert_int_equal(store_each_key(kit->store, see_key, &seen, NULL), 0);
    assert_int_equal(store_each_idempotency(kit->store, see_idempotency, &seen, NULL), 0);
    assert_int_equal(seen.n, 0);
}

static void test_end_sandbox(void **state)
{
    struct kit *kit = *state;
    struct store_certificate cert = {.sandbox_id = "box1",
                                     .org_id = "org-1",
                                     .cause = "idle",
                                     .ended_at_ns = 3 * SEC,
                                     .doc = "{\"cause\":\"idle\"}"};
    struct answer answer = {0};
    struct seen seen = {0};

    assert_int_equal(store_put_sandbox(kit->store, &a_box, NULL, NULL, NULL), 0);
    assert_int_equal(store_end_sandbox(kit->store, &cert, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    assert_int_equal(store_each_sandbox(kit->store, see_sandbox, &seen, NULL), 0);
    assert_int_equal(seen.n, 0);
    const struct page *page = FIND_CERTS(kit, .org_id = "org-1", .id = "box1");
    assert_string_equal(page->ids, "box1");
    assert_string_equal(page->doc, cert.doc);
    assert_int_equal(FIND_CERTS(kit, .org_id = "org-1", .cause = "timeout")->n, 0);
    assert_int_equal(
        FIND_CERTS(kit, .org_id = "org-1", .sandbox_id = "box1", .since_ns = 3 * SEC, .until_ns = 4 * SEC)->n, 1);
    assert_int_equal(FIND_CERTS(kit, .org_id = "org-2", .id = "box1")->n, 0);
}

static void test_audit_head(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};
    char hash[65] = "x", want[65];
    uint64_t seq = 1;
    int64_t time = 1;

    assert_int_equal(store_audit_head(kit->store, &seq, hash, &time, NULL), 0);
    assert_int_equal(seq, 0);
    memset(want, 'a', 64), want[64] = '\0';
    assert_int_equal(store_put_audit_head(kit->store, 7, "00", 8, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_audit_head(kit->store, INT64_MAX, want, 9, on_done, &answer, NULL), 0);
    assert_int_equal(store_put_audit_head(kit->store, UINT64_MAX, want, 9, on_done, &answer, NULL), -EINVAL);
    kit_wait_ok(kit, &answer, 2);
    kit_reopen(kit);
    assert_int_equal(store_audit_head(kit->store, &seq, hash, &time, NULL), 0);
    assert_int_equal(seq, INT64_MAX);
    assert_string_equal(hash, want);
    assert_int_equal(time, 9);
}

/* ---- finding ------------------------------------------------------------------------------------------ */

static void test_find_filters(void **state)
{
    struct kit *kit = *state;

    kit_put_run(kit, "run-1", "org-1", 10, 11, "{\"n\":1}");
    kit_put_run(kit, "run-2", "org-1", 20, 0, "{\"n\":2}");
    kit_put_run(kit, "run-3", "org-1", 30, 31, "{\"n\":3}");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-3 run-2 run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-2")->doc, "{\"n\":2}");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .sandbox_id = "box-3")->ids, "run-3");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .cause = "")->ids, "run-2");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .cause = "exited")->ids, "run-3 run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .since_ns = 20 * SEC)->ids, "run-3 run-2");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .until_ns = 20 * SEC)->ids, "run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .since_ns = 11 * SEC, .until_ns = 30 * SEC, .cause = "")->ids,
                        "run-2");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-4")->ids, "");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-1", .sandbox_id = "box-2")->ids, "");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-3", .sandbox_id = "box-3", .cause = "exited",
                                  .since_ns = 1, .until_ns = 99 * SEC)
                            ->ids,
                        "run-3");
}

/* Another organisation's row is not found, is no cursor, and is not changed. */
static void test_org_scope(void **state)
{
    struct kit *kit = *state;
    struct store_sandbox box = a_box;
    struct store_certificate cert = {.sandbox_id = "box1", .org_id = "org-2", .cause = "deleted", .ended_at_ns = 3};
    struct answer answer = {0}, theft = {0};
    struct seen seen = {0};

    kit_put_run(kit, "run-1", "org-1", 10, 11, "{}");
    kit_put_run(kit, "run-2", "org-2", 20, 21, "{}");
    kit_put_run(kit, "run-3", "org-1", 30, 31, "{}");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-3 run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-2")->ids, "run-2");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-2")->ids, "");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .after = "run-2")->ids, "");
    assert_string_equal(FIND_RUNS(kit, .org_id = "")->ids, "run-3 run-2 run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "", .after = "run-2")->ids, "run-1");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org")->ids, "");

    kit_put_run(kit, "run-1", "org-2", 10, 11, "{\"stolen\":1}");
    assert_string_equal(FIND_RUNS(kit, .org_id = "", .id = "run-1")->doc, "{}");
    assert_int_equal(store_put_sandbox(kit->store, &box, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    snprintf(box.org_id, sizeof box.org_id, "org-2");
    assert_int_equal(store_put_sandbox(kit->store, &box, on_done, &theft, NULL), 0);
    kit_wait(kit, &theft, 1);
    assert_int_equal(theft.err.code, BRIG_E_CONFLICT);
    assert_int_equal(store_end_sandbox(kit->store, &cert, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 2);
    assert_int_equal(store_each_sandbox(kit->store, see_sandbox, &seen, NULL), 0);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.sandbox.org_id, "org-1");
}

/* Newest first, by id where the time is the same; every row once; text is ordered by its bytes whatever the locale. */
static void test_pages(void **state)
{
    static const char *const ids[] = {"run-B", "run-a", "run-é", "run-_", "run-1", "run-10", "run-2", "run-Z"};
    struct kit *kit = *state;
    char after[64] = "";
    AUTO_BUF struct buf all = BUF_INIT(1024);

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        kit_put_run(kit, ids[i], "org-1", 50, 51, "{}");
    kit_put_run(kit, "run-0", "org-1", 60, 61, "{}");
    kit_put_run(kit, "run-x", "org-1", 40, 41, "{}");
    kit_put_run(kit, "run-y", "org-2", 50, 51, "{}");
    for (;;) {
        const struct page *page = FIND_RUNS(kit, .org_id = "org-1", .limit = 3, .after = *after ? after : NULL);
        assert_int_equal(buf_printf(&all, "%s%s", all.len ? " | " : "", page->ids), 0);
        if (!page->more)
            break;
        assert_int_equal(str_copy(after, sizeof after, page->last), 0);
    }
    assert_string_equal(all.data, "run-0 run-é run-a+ | run-_ run-Z run-B+ | run-2 run-10 run-1+ | run-x");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 10)->ids,
                        "run-0 run-é run-a run-_ run-Z run-B run-2 run-10 run-1 run-x");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .after = "run-none")->ids, "");
}

/* A page of huge documents ends before its limit. */
static void test_page_bytes(void **state)
{
    struct kit *kit = *state;
    const size_t size = 15u << 20;
    AUTO_FREE char *doc = malloc(size + 1);

    memset(doc, 'x', size);
    doc[0] = '"', doc[size - 1] = '"', doc[size] = '\0';
    for (int i = 1; i <= 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "run-%d", i);
        kit_put_run(kit, id, "org-1", i, i, doc);
    }
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-3 run-2+");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .after = "run-2")->ids, "run-1");
}

static void test_bad_queries(void **state)
{
    struct kit *kit = *state;
    struct page page = {0};
    char longer[400];
    struct brig_err err = {0};

    memset(longer, 'a', sizeof longer), longer[sizeof longer - 1] = '\0';
    const struct store_query bad[] = {{.org_id = NULL, .limit = 1},
                                      {.org_id = "o", .limit = 0},
                                      {.org_id = "o", .limit = 1001},
                                      {.org_id = "\xff", .limit = 1},
                                      {.org_id = "o", .id = "\xc0\x80", .limit = 1},
                                      {.org_id = "o", .sandbox_id = "\xed\xa0\x80", .limit = 1},
                                      {.org_id = "o", .cause = "a\x80", .limit = 1},
                                      {.org_id = "o", .after = "\xf5", .limit = 1},
                                      {.org_id = "o", .after = longer, .limit = 1}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err.code = 0;
        assert_int_equal(store_find_runs(kit->store, &bad[i], on_rows, &page, &err), -EINVAL);
        assert_int_equal(err.code, BRIG_E_USAGE);
        assert_int_equal(store_find_certificates(kit->store, &bad[i], on_rows, &page, &err), -EINVAL);
    }
}

/* ---- text --------------------------------------------------------------------------------------------- */

static void test_text_is_only_text(void **state)
{
    static const char *const nasty[] = {
        "'; DROP TABLE runs; --", "\" OR 1=1 --", "$1",   "?1", "%s%n", "\\'; SELECT 1", "a\nb\tc\x01",
        "日本語 🦀",         "E'\\x00'",     "');--"};
    struct kit *kit = *state;

    for (size_t i = 0; i < ARRAY_SIZE(nasty); i++) {
        char doc[128];
        snprintf(doc, sizeof doc, "{\"n\":\"%s \\u0000\"}", nasty[i]);
        kit_put_run(kit, nasty[i], "org-1", (int64_t)i + 1, 99, doc);
        const struct page *page = FIND_RUNS(kit, .org_id = "org-1", .id = nasty[i], .cause = "exited");
        assert_string_equal(page->ids, nasty[i]);
        assert_string_equal(page->doc, doc);
        assert_int_equal(FIND_RUNS(kit, .org_id = nasty[i])->n, 0);
        assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .cause = nasty[i])->n, 0);
        assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .after = nasty[i])->n, i);
    }
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, ARRAY_SIZE(nasty));
}

/* PostgreSQL takes no such text, SQLite takes any; both are asked for nothing. */
static void test_bad_text_is_refused(void **state)
{
    struct kit *kit = *state;
    struct store_run run = kit_run_row("run-1", "org-1", 1, 2, "{\"a\":\"\xff\"}");
    struct store_org org = {.id = "org-1", .name = "\xc3("};
    struct store_key key = a_key;
    struct brig_err err = {0};

    assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, &err), -EINVAL);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_string_equal(err.message, "run: not UTF-8");
    run.doc = "{}";
    memset(run.cause, 'x', sizeof run.cause); /* no NUL in it */
    assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, &err), -EINVAL);
    assert_string_equal(err.message, "run's cause: does not end");
    run = kit_run_row("run-1", "org-1", 1, 2, "{}");
    run.id[0] = '\0';
    assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, &err), -EINVAL);
    assert_int_equal(store_put_org(kit->store, &org, NULL, NULL, &err), -EINVAL);
    assert_int_equal(store_delete_org(kit->store, "\xff", NULL, NULL, &err), -EINVAL);
    key.role = STORE_ROLE_MAX;
    assert_int_equal(store_put_key(kit->store, &key, NULL, NULL, &err), -EINVAL);
    assert_int_equal(store_close_open_runs(kit->store, "\xff", 1, NULL, NULL, &err), -EINVAL);
    assert_int_equal(store_close_open_runs(kit->store, "host-error", 0, NULL, NULL, &err), -EINVAL);
    struct store_health health;
    store_health(kit->store, &health);
    assert_int_equal(health.queued, 0);
    assert_true(health.ok);
}

/* ---- retention ---------------------------------------------------------------------------------------- */

static void test_prune_by_age(void **state)
{
    struct kit *kit = *state;
    struct store_certificate old = {.sandbox_id = "box1", .org_id = "org-1", .ended_at_ns = 100 * SEC}, young = old;
    struct answer answer = {0};
    struct seen seen = {0};

    snprintf(young.sandbox_id, sizeof young.sandbox_id, "box2");
    young.ended_at_ns = 2000 * SEC;
    assert_int_equal(store_end_sandbox(kit->store, &old, on_done, &answer, NULL), 0);
    assert_int_equal(store_end_sandbox(kit->store, &young, on_done, &answer, NULL), 0);
    for (int i = 0; i < 300; i++) {
        struct store_idempotency row = {.org_id = "org-1", .created_at_ns = i};
        snprintf(row.key, sizeof row.key, "%d", i);
        assert_int_equal(store_put_idempotency(kit->store, &row, on_done, &answer, NULL), 0);
    }
    kit_wait_ok(kit, &answer, 302);
    kit_put_many(kit, 600, "{}");
    kit_put_run(kit, "run-long", "org-1", 1, 2000, "{}"); /* began long ago and ended just now */
    kit_put_run(kit, "run-open", "org-1", 1, 0, "{}");
    kit_prune(kit, 699, 0, 299); /* 0..597 ended before */
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-00599 run-00598 run-open run-long");
    assert_string_equal(FIND_CERTS(kit, .org_id = "org-1")->ids, "box2");
    assert_int_equal(store_each_idempotency(kit->store, see_idempotency, &seen, NULL), 0);
    assert_int_equal(seen.n, 1);
    assert_string_equal(seen.row.key, "299");
}

static void test_prune_by_size(void **state)
{
    struct kit *kit = *state;
    struct store_certificate cert = {
        .sandbox_id = "box1", .org_id = "org-1", .ended_at_ns = 100 * SEC, .doc = "{\"0123\":1}"};
    struct answer answer = {0};

    kit_put_run(kit, "run-open", "org-1", 1, 0, "{\"0123\":1}"); /* 10 bytes, like all here */
    assert_int_equal(store_end_sandbox(kit->store, &cert, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 1);
    kit_put_many(kit, 600, "{\"0123\":1}");
    kit_put_many(kit, 600, "{\"4567\":1}"); /* written again: counted once */
    kit_prune(kit, 0, 6020, 0);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 601);
    assert_int_equal(FIND_CERTS(kit, .org_id = "org-1")->n, 1);
    kit_prune(kit, 0, 6010, 0); /* the oldest that is over, to whichever table it belongs */
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 601);
    assert_int_equal(FIND_CERTS(kit, .org_id = "org-1")->n, 0);
    kit_prune(kit, 0, 45, 0);
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-00599 run-00598 run-00597 run-open");
    kit_prune(kit, 0, 1, 0);
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-open");
    kit_prune(kit, 0, 20, 0);
    kit_put_many(kit, 2, "{\"0123\":1}");
    kit_prune(kit, 0, 20, 0);
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1")->ids, "run-00001 run-open");
}

/* ---- runs that nobody ended --------------------------------------------------------------------------- */

static void test_close_open_runs(void **state)
{
    struct kit *kit = *state;
    struct answer answer = {0};

    kit_put_run(kit, "run-1", "org-1", 10, 11, "{\"outcome\":{\"cause\":\"exited\"}}");
    for (int i = 0; i < 150; i++) {
        char id[32];
        snprintf(id, sizeof id, "run-open-%03d", i);
        struct store_run run =
            kit_run_row(id, "org-1", 20, 0, "{\"id\":\"x\",\"outcome\":null,\"n\":[{\"ended_at\":1}]}");
        assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, NULL), 0);
    }
    assert_int_equal(
        store_close_open_runs(kit->store, "host-error", 1700000000 * SEC + 123456789, on_done, &answer, NULL), 0);
    kit_wait_ok(kit, &answer, 151);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .cause = "")->n, 0);
    const struct page *page = FIND_RUNS(kit, .org_id = "org-1", .cause = "host-error", .limit = 1000);
    assert_int_equal(page->n, 150);
    assert_string_equal(
        page->doc,
        "{\"id\":\"x\",\"n\":[{\"ended_at\":1}],\"outcome\":{\"cause\":\"host-error\",\"exit_code\":null,"
        "\"signal\":null,"
        "\"limits_hit\":[],\"detail\":\"brigd ended while it ran\"},\"ended_at\":\"2023-11-14T22:13:20.123456Z\"}");
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-1")->doc, "{\"outcome\":{\"cause\":\"exited\"}}");
    kit_put_run(kit, "run-open-000", "org-1", 20, 0, "{\"late\":1}"); /* an ended run is not opened again */
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .cause = "")->n, 0);
    kit_put_run(kit, "run-open-000", "org-1", 20, 30, "{\"late\":2}"); /* but a receipt that was found may replace it */
    assert_string_equal(FIND_RUNS(kit, .org_id = "org-1", .id = "run-open-000")->doc, "{\"late\":2}");
}

static void test_closed_documents(void **state)
{
#define TAIL                                                                                                      \
    "\"outcome\":{\"cause\":\"c\",\"exit_code\":null,\"signal\":null,\"limits_hit\":[],\"detail\":\"brigd ended " \
    "while it ran\"},\"ended_at\":\"1970-01-01T00:00:01.000000Z\"}"
    static const struct {
        const char *doc, *head;
    } cases[] = {
        {"{}", "{"},
        {"", "{"},
        {"null", "{"},
        {" { } ", "{"},
        {"{\"a\":1}", "{\"a\":1,"},
        {"{\"a\":1", "{"},
        {"{\"a\" : \"}\\\"{\" , \"b\":[{}]}", "{\"a\" : \"}\\\"{\" ,\"b\":[{}],"},
        {"{\"outcome\":{\"a\":[\"]\"]},\"ended_at\":5,\"c\":2}", "{\"c\":2,"},
        {"{\"c\":2,\"outcome\":1}", "{\"c\":2,"},
        {"{\"outcom\":1,\"outcomes\":2}", "{\"outcom\":1,\"outcomes\":2,"},
        {"{\"a\\", "{"},
    };
    (void)state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf out = BUF_INIT(4096), want = BUF_INIT(4096);
        assert_int_equal(store_doc_close(cases[i].doc, "c", SEC, &out), 0);
        assert_int_equal(buf_printf(&want, "%s%s", cases[i].head, TAIL), 0);
        assert_string_equal(out.data, want.data);
    }
}

/* ---- commits ------------------------------------------------------------------------------------------ */

static uint64_t commits(struct kit *kit)
{
    struct store_health health;

    store_health(kit->store, &health);
    assert_true(health.ok);
    return health.commits;
}

static void test_group_commit(void **state)
{
    struct kit *kit = *state;
    uint64_t before = commits(kit);

    kit_put_many(kit, 2000, "{}");
    uint64_t used = commits(kit) - before;
    assert_true(used >= 2000 / STORE_GROUP_MAX);
    assert_true(used <= 100);
}

/* One who waits does not wait for company. The best of many, for this machine has other work. */
static void test_single_write_is_prompt(void **state)
{
    struct kit *kit = *state;
    uint64_t best = UINT64_MAX;

    for (int i = 0; i < 20; i++) {
        uint64_t start = clock_mono_ns();
        kit_put_many(kit, 1, "{}");
        uint64_t took = clock_mono_ns() - start;
        best = took < best ? took : best;
    }
    assert_true(best < STORE_GROUP_MS * NS_PER_MS / 2);
}

/* Receipts come one by one, are committed together, soon, and without anybody pushing. */
static void test_receipts_wait_for_company(void **state)
{
    struct kit *kit = *state;
    uint64_t before = commits(kit), start = clock_mono_ns();
    struct store_health health;

    for (int i = 0; i < 10; i++) {
        char id[16];
        snprintf(id, sizeof id, "run-%d", i);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
        assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, NULL), 0);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL); /* clock: one after the other within its window */
    }
    do {
        assert_true(clock_mono_ns() - start < 30 * NS_PER_SEC);
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        store_health(kit->store, &health);
    } while (health.commits == before || health.queued > 0);
    uint64_t took = clock_mono_ns() - start;
    if (took < 2 * STORE_GROUP_MS * NS_PER_MS) /* else we were kept from running, and so were they */
        assert_int_equal(health.commits, before + 1);
    assert_true(took >= STORE_GROUP_MS * NS_PER_MS);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 10);
}

/* Whoever is patient waits for company too, and is told when it is committed; another's write takes all along. */
static void test_the_patient_wait_for_company(void **state)
{
    struct kit *kit = *state;
    struct answer patient = {0}, settled = {0};

    kit_put_org(kit, "org-1");
    uint64_t before = commits(kit), start = clock_mono_ns();
    for (int i = 0; i < 10; i++) {
        struct store_object row = {.kind = "build-step", .org_id = "org-1", .version = 1, .patient = true};
        snprintf(row.name, sizeof row.name, "step-%d", i);
        assert_int_equal(store_put_object(kit->store, &row, on_done, &patient, NULL), 0);
    }
    assert_int_equal(store_settle(kit->store, on_done, &settled, NULL), 0);
    kit_wait_ok(kit, &settled, 1);
    kit_wait_ok(kit, &patient, 10);
    if (clock_mono_ns() - start < STORE_GROUP_MS * NS_PER_MS) /* else we were kept from running */
        assert_int_equal(commits(kit), before + 1);
}

/* Whoever has settled finds what was queued before, and does not wait for company. */
static void test_settled_is_found(void **state)
{
    struct kit *kit = *state;

    for (int i = 0; i < 20; i++) {
        struct answer answer = {0};
        char id[16];
        snprintf(id, sizeof id, "run-%d", i);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
        assert_int_equal(store_put_run(kit->store, &run, NULL, NULL, NULL), 0);
        assert_int_equal(store_settle(kit->store, on_done, &answer, NULL), 0);
        kit_wait_ok(kit, &answer, 1);
        assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .id = id)->n, 1);
    }
}

/* One that cannot be written fails alone. */
static void test_bad_row_fails_alone(void **state)
{
    struct kit *kit = *state;
    struct store_key orphan = a_key, key = a_key;
    struct answer good = {0}, bad = {0};

    kit_put_org(kit, "org-1");
    snprintf(orphan.org_id, sizeof orphan.org_id, "org-none");
    for (int i = 0; i < 30; i++) {
        char id[16];
        snprintf(id, sizeof id, "run-%02d", i);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
        assert_int_equal(store_put_run(kit->store, &run, on_done, &good, NULL), 0);
        if (i == 10)
            assert_int_equal(store_put_key(kit->store, &orphan, on_done, &bad, NULL), 0);
        if (i == 20) {
            assert_int_equal(store_put_key(kit->store, &key, on_done, &good, NULL), 0);
            snprintf(key.id, sizeof key.id, "key-2"); /* the same hash again */
            assert_int_equal(store_put_key(kit->store, &key, on_done, &bad, NULL), 0);
        }
    }
    kit_wait_ok(kit, &good, 31);
    kit_wait(kit, &bad, 2);
    assert_int_equal(bad.failed, 2);
    assert_int_equal(bad.err.code, BRIG_E_CONFLICT);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1")->n, 30);
    commits(kit); /* and the store is well */
}

/* ---- side by side ------------------------------------------------------------------------------------- */

static void test_reads_beside_writes(void **state)
{
    static struct page pages[40];
    struct kit *kit = *state;
    struct answer answer = {0};

    memset(pages, 0, sizeof pages);
    kit_put_many(kit, 100, "{}");
    for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
        char id[32];
        snprintf(id, sizeof id, "run-%05u", i);
        struct store_run run = kit_run_row(id, "org-1", 100 + i, 999, "{\"again\":1}");
        const struct store_query query = {.org_id = "org-1", .limit = 1000};
        assert_int_equal(store_put_run(kit->store, &run, on_done, &answer, NULL), 0);
        assert_int_equal(store_find_runs(kit->store, &query, on_rows, &pages[i], NULL), 0);
    }
    kit_wait_ok(kit, &answer, ARRAY_SIZE(pages));
    for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
        kit_wait_ok(kit, &pages[i].answer, 1);
        assert_int_equal(pages[i].n, 100);
    }
}

/* What was queued is written and told; reads that wait are told too, by the workers. */
static void test_close_finishes(void **state)
{
    static struct page pages[20];
    struct kit *kit = *state;
    struct answer answer = {0};
    const struct store_query query = {.org_id = "org-1", .limit = 10};

    memset(pages, 0, sizeof pages);
    for (unsigned i = 0; i < 300; i++) {
        char id[32];
        snprintf(id, sizeof id, "run-%05u", i);
        struct store_run run = kit_run_row(id, "org-1", 1, 2, "{}");
        assert_int_equal(store_put_run(kit->store, &run, i % 2 ? on_done : NULL, &answer, NULL), 0);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
        assert_int_equal(store_find_runs(kit->store, &query, on_rows, &pages[i], NULL), 0);
    kit_close(kit);
    assert_int_equal(answer.n, 150);
    assert_int_equal(answer.failed, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
        kit_wait(kit, &pages[i].answer, 1);
    kit_open(kit);
    assert_int_equal(FIND_RUNS(kit, .org_id = "org-1", .limit = 1000)->n, 300);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        KIT_CASE(test_records),
        KIT_CASE(test_objects),
        KIT_CASE(test_objects_that_cannot_be),
        KIT_CASE(test_each_stops),
        KIT_CASE(test_put_again_updates),
        KIT_CASE(test_delete_org),
        KIT_CASE(test_end_sandbox),
        KIT_CASE(test_audit_head),
        KIT_CASE(test_find_filters),
        KIT_CASE(test_org_scope),
        KIT_CASE(test_pages),
        KIT_CASE(test_page_bytes),
        KIT_CASE(test_bad_queries),
        KIT_CASE(test_text_is_only_text),
        KIT_CASE(test_bad_text_is_refused),
        KIT_CASE(test_prune_by_age),
        KIT_CASE(test_prune_by_size),
        KIT_CASE(test_close_open_runs),
        KIT_CASE(test_closed_documents),
        KIT_CASE(test_group_commit),
        KIT_CASE(test_the_patient_wait_for_company),
        KIT_CASE(test_single_write_is_prompt),
        KIT_CASE(test_receipts_wait_for_company),
        KIT_CASE(test_settled_is_found),
        KIT_CASE(test_bad_row_fails_alone),
        KIT_CASE(test_reads_beside_writes),
        KIT_CASE(test_close_finishes),
    };
    return kit_run("store", cases, ARRAY_SIZE(cases), true);
}
