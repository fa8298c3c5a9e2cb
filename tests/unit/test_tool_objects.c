/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of organisations: in memory as in the store, changes in their order, names that are one's own. On both data
 * bases. */
#include "store_kit.h"

#include "base/err.h"
#include "records/objects.h"

#define ORG "org-1"

struct told {
    unsigned n, failed, changes, unloaded;
    struct brig_err err;
    char last[256], log[512];
    uint64_t version;
};

static void on_object(void *ctx, const struct object *object, const struct brig_err *err)
{
    struct told *told = ctx;

    told->n++;
    if (err) {
        told->failed++;
        told->err = *err;
    } else {
        snprintf(told->last, sizeof told->last, "%s", object->text);
        told->version = object->version;
    }
}

static void wait_for(struct kit *kit, const struct told *told, unsigned n)
{
    const uint64_t give_up = clock_mono_ns() + 60 * NS_PER_SEC;

    while (told->n < n) {
        assert_true(clock_mono_ns() < give_up);
        assert_int_equal(loop_run_once(kit->loop, 1000, NULL), 0);
    }
}

/* {"bad": true} is refused; the key is the member `key`. */
static int on_loaded(void *ctx, struct object *object, struct brig_err *err)
{
    (void)ctx;
    if (json_get(object->json, "bad"))
        return err_set(err, BRIG_E_INVALID, 0, "bad: is");
    object->extra = mem_strdup("extra");
    return 0;
}

static void on_unloaded(void *ctx, struct object *object)
{
    struct told *told = ctx;

    mem_free(object->extra);
    told->unloaded++;
}

static const char *key_of(void *ctx, const struct object *object)
{
    const struct json_value *key = json_get(object->json, "key");

    (void)ctx;
    return key ? key->string : NULL;
}

static void on_changed(void *ctx, const struct object *before, const struct object *after)
{
    struct told *told = ctx;
    size_t at = strlen(told->log);

    told->changes++;
    snprintf(told->log + at, sizeof told->log - at, "%llu>%llu ", before ? (unsigned long long)before->version : 0,
             after ? (unsigned long long)after->version : 0);
}

static struct objects *make(struct kit *kit, struct told *told, size_t per_org)
{
    const struct objects_kind kind = {.kind = "thing",
                                      .per_org = per_org,
                                      .secret = true,
                                      .loaded = on_loaded,
                                      .unloaded = on_unloaded,
                                      .key = key_of,
                                      .changed = on_changed,
                                      .ctx = told};
    struct objects *objects = NULL;
    struct brig_err err = {0};

    if (objects_create(kit->store, &kind, &objects, &err) < 0)
        fail_msg("%s", err.message);
    return objects;
}

static int put(struct objects *objects, const char *id, const char *doc, uint64_t expect, struct told *told,
               struct brig_err *err)
{
    return objects_put(objects, ORG, id, doc, strlen(doc), expect, on_object, told, err);
}

static void must_put(struct kit *kit, struct objects *objects, const char *id, const char *doc)
{
    struct told told = {0};
    struct brig_err err = {0};

    if (put(objects, id, doc, 0, &told, &err) < 0)
        fail_msg("%s", err.message);
    wait_for(kit, &told, 1);
    assert_int_equal(told.failed, 0);
}

static void test_life(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 10);
    struct brig_err err = {0};

    kit_put_org(kit, ORG);
    assert_null(objects_first(objects, ORG));
    assert_int_equal(put(objects, "b", "{\"key\":\"x\"}", 0, &told, NULL), 0);
    assert_null(objects_find(objects, ORG, "b")); /* not before its commit */
    wait_for(kit, &told, 1);
    const struct object *b = objects_find(objects, ORG, "b");
    assert_non_null(b);
    assert_int_equal(b->version, 1);
    assert_string_equal(b->extra, "extra");
    assert_true(b->created_at_ns > 0 && b->updated_at_ns == b->created_at_ns);
    must_put(kit, objects, "a", "{}");
    assert_ptr_equal(objects_first(objects, ORG), b);
    assert_string_equal(b->next->id, "a");
    assert_ptr_equal(objects_last(objects, ORG), b->next);
    assert_ptr_equal(objects_last(objects, ORG)->prev, b);
    assert_int_equal(objects_count(objects, ORG), 2);
    assert_null(objects_find(objects, "org-2", "b")); /* another's is not there */

    const int64_t created = b->created_at_ns;
    must_put(kit, objects, "b", "{\"key\":\"x\",\"n\":2}");
    b = objects_find(objects, ORG, "b");
    assert_int_equal(b->version, 2);
    assert_int_equal(b->created_at_ns, created);
    assert_true(b->updated_at_ns > created);
    assert_ptr_equal(objects_first(objects, ORG), b); /* its place is that of its making */
    assert_string_equal(all.log, "0>1 0>1 1>2 ");

    kit_close(kit);
    objects_destroy(objects);
    assert_int_equal(all.unloaded, 3);
    kit_open(kit);
    objects = make(kit, &all, 10);
    b = objects_first(objects, ORG);
    assert_string_equal(b->id, "b");
    assert_int_equal(b->version, 2);
    assert_int_equal(b->created_at_ns, created);
    assert_string_equal(b->text, "{\"key\":\"x\",\"n\":2}");
    assert_string_equal(b->next->id, "a");
    assert_ptr_equal(objects_by_key(objects, ORG, "x"), b);

    told = (struct told){0};
    assert_int_equal(objects_delete(objects, ORG, "b", on_object, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_string_equal(told.last, "{\"key\":\"x\",\"n\":2}");
    assert_null(objects_find(objects, ORG, "b"));
    assert_null(objects_by_key(objects, ORG, "x"));
    assert_int_equal(objects_delete(objects, ORG, "b", on_object, &told, &err), -ENOENT);
    assert_int_equal(err.code, BRIG_E_NOT_FOUND);
    objects_forget_org(objects, ORG);
    objects_forget_org(objects, ORG);
    assert_int_equal(objects_count(objects, ORG), 0);
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static int add_one(void *make_ctx, const struct object *current, struct buf *doc, struct brig_err *err)
{
    int64_t n = current ? json_get(current->json, "n")->i64 : 0;

    (void)err;
    if (make_ctx && n >= *(int64_t *)make_ctx)
        return 1;
    return buf_printf(doc, "{\"n\":%lld}", (long long)n + 1);
}

/* Twenty changes at once, each made of what the one before left: none is lost. */
static void test_order(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 10);
    const struct objects_change change = {.org = ORG, .id = "c", .make = add_one, .done = on_object, .ctx = &told};
    int64_t enough = 20;

    kit_put_org(kit, ORG);
    for (int i = 0; i < 20; i++)
        assert_int_equal(objects_change(objects, &change, NULL), 0);
    wait_for(kit, &told, 20);
    assert_int_equal(told.failed, 0);
    assert_string_equal(told.last, "{\"n\":20}");
    assert_int_equal(told.version, 20);
    /* nothing to change: an answer, and no version */
    struct objects_change idle = change;
    idle.make_ctx = &enough;
    assert_int_equal(objects_change(objects, &idle, NULL), 0);
    wait_for(kit, &told, 21);
    assert_int_equal(told.version, 20);
    assert_int_equal(told.failed, 0);
    /* put, delete, put: in this order, and the last is a first version again */
    assert_int_equal(put(objects, "c", "{\"n\":50}", 0, &told, NULL), 0);
    assert_int_equal(objects_delete(objects, ORG, "c", on_object, &told, NULL), 0);
    /* when its turn comes there is none: told through done */
    assert_int_equal(objects_delete(objects, ORG, "c", on_object, &told, NULL), 0);
    assert_int_equal(put(objects, "c", "{\"bad\":1}", 0, &told, NULL), 0);
    assert_int_equal(put(objects, "c", "{\"n\":7}", 0, &told, NULL), 0);
    wait_for(kit, &told, 26);
    assert_int_equal(told.failed, 2);
    assert_int_equal(told.err.code, BRIG_E_INVALID);
    assert_string_equal(objects_find(objects, ORG, "c")->text, "{\"n\":7}");
    assert_int_equal(objects_find(objects, ORG, "c")->version, 1);
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static void test_refusals(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 3);
    struct brig_err err = {0};
    char id[128], again[128];

    /* no such organisation: the store says so, and nothing is left */
    assert_int_equal(put(objects, "a", "{}", 0, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_int_equal(told.err.code, BRIG_E_CONFLICT);
    assert_int_equal(objects_count(objects, ORG), 0);
    kit_put_org(kit, ORG);
    told = (struct told){0};

    assert_true(put(objects, "a", "{", 0, &told, &err) < 0);
    assert_true(put(objects, "a", "[]", 0, &told, &err) < 0);
    assert_true(put(objects, "a", "", 0, &told, &err) < 0);
    assert_true(put(objects, "a", "{\"bad\":1}", 0, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_INVALID);
    assert_string_equal(err.message, "bad: is");
    must_put(kit, objects, "a", "{\"key\":\"x\"}");

    /* versions */
    assert_true(put(objects, "a", "{}", OBJECTS_NEW, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(put(objects, "a", "{}", 2, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_true(put(objects, "nobody", "{}", 1, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_int_equal(put(objects, "a", "{\"key\":\"x\",\"v\":2}", 1, &told, NULL), 0);
    assert_int_equal(put(objects, "a", "{\"key\":\"x\",\"v\":3}", 1, &told, NULL), 0); /* by its turn it is version 2 */
    wait_for(kit, &told, 2);
    assert_int_equal(told.failed, 1);
    assert_int_equal(told.err.code, BRIG_E_CONFLICT);
    assert_string_equal(objects_find(objects, ORG, "a")->text, "{\"key\":\"x\",\"v\":2}");

    /* keys: of one that is there, and of one that is on its way */
    assert_true(put(objects, "b", "{\"key\":\"x\"}", 0, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    told = (struct told){0};
    assert_int_equal(put(objects, "b", "{\"key\":\"y\"}", 0, &told, NULL), 0);
    assert_true(put(objects, "c", "{\"key\":\"y\"}", 0, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_CONFLICT);
    assert_int_equal(objects_id_for(objects, ORG, "y", "thing", id, NULL), 0);
    assert_string_equal(id, "b");
    wait_for(kit, &told, 1);
    assert_int_equal(objects_id_for(objects, ORG, "y", "thing", id, NULL), 0);
    assert_string_equal(id, "b");
    assert_int_equal(objects_id_for(objects, ORG, "z", "thing", id, NULL), 0);
    assert_int_equal(objects_id_for(objects, ORG, "z", "thing", again, NULL), 0);
    assert_true(objects_id_ok("thing", id) && objects_id_ok("thing", again) && !str_eq(id, again));
    /* renamed: the old name is free, the new one taken */
    must_put(kit, objects, "b", "{\"key\":\"z\"}");
    assert_null(objects_by_key(objects, ORG, "y"));
    must_put(kit, objects, "c", "{\"key\":\"y\"}");

    /* the fourth of three; those on their way count */
    assert_true(put(objects, "d", "{}", 0, &told, &err) < 0);
    assert_int_equal(err.code, BRIG_E_LIMIT);
    must_put(kit, objects, "c", "{\"key\":\"y2\"}"); /* a change is none more */
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static void test_held(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 3);

    kit_put_org(kit, ORG);
    must_put(kit, objects, "a", "{\"n\":1}");
    const struct object *held = object_hold(objects_find(objects, ORG, "a"));
    must_put(kit, objects, "a", "{\"n\":2}");
    assert_int_equal(all.unloaded, 0);
    assert_string_equal(held->text, "{\"n\":1}");
    assert_int_equal(json_get(held->json, "n")->i64, 1);
    assert_int_equal(objects_delete(objects, ORG, "a", on_object, &told, NULL), 0);
    wait_for(kit, &told, 1);
    assert_int_equal(all.unloaded, 1); /* the second */
    object_release(held);
    object_release(NULL);
    assert_int_equal(all.unloaded, 2);
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

/* A data base that fails: memory stays as the store is, those who wait get their turn. */
static void test_store_fails(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 3);
    struct brig_err err = {0};

    kit_put_org(kit, ORG);
    must_put(kit, objects, "a", "{\"n\":1}");
    kit_exec(kit, "ALTER TABLE objects RENAME TO elsewhere");
    assert_int_equal(put(objects, "a", "{\"n\":2}", 0, &told, NULL), 0);
    assert_int_equal(put(objects, "b", "{\"n\":2}", 0, &told, NULL), 0);
    assert_int_equal(objects_delete(objects, ORG, "a", on_object, &told, NULL), 0);
    wait_for(kit, &told, 3);
    assert_int_equal(told.failed, 3);
    assert_string_equal(objects_find(objects, ORG, "a")->text, "{\"n\":1}");
    assert_int_equal(objects_count(objects, ORG), 1);
    kit_exec(kit, "ALTER TABLE elsewhere RENAME TO objects");
    must_put(kit, objects, "a", "{\"n\":3}");
    assert_int_equal(objects_find(objects, ORG, "a")->version, 2);
    /* what is written when the store closes is told, what waits behind it too */
    told = (struct told){0};
    assert_int_equal(put(objects, "a", "{\"n\":4}", 0, &told, NULL), 0);
    assert_int_equal(put(objects, "a", "{\"n\":5}", 0, &told, NULL), 0);
    kit_close(kit);
    assert_int_equal(told.n, 2);
    assert_int_equal(told.failed, 1);
    assert_int_equal(told.err.code, BRIG_E_BUSY);
    objects_destroy(objects);
    kit_open(kit);
    /* a row that the kind does not take stops the start, by name */
    kit_exec(kit, "UPDATE objects SET doc = '{\"bad\":1}'");
    const struct objects_kind kind = {
        .kind = "thing", .per_org = 3, .loaded = on_loaded, .unloaded = on_unloaded, .ctx = &all};
    assert_true(objects_create(kit->store, &kind, &objects, &err) < 0);
    assert_non_null(strstr(err.message, "thing a of org-1: bad: is"));
}

static void test_bytes(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    const struct objects_kind kind = {.kind = "thing", .per_org = 100, .org_bytes = 20, .ctx = &all};
    struct objects *objects = NULL;
    struct brig_err err = {0};

    kit_put_org(kit, ORG);
    assert_int_equal(objects_create(kit->store, &kind, &objects, &err), 0);
    must_put(kit, objects, "a", "{\"n\":12345}");
    assert_true(put(objects, "b", "{\"n\":1234}", 0, &told, &err) < 0); /* 11 and 10 */
    assert_int_equal(err.code, BRIG_E_LIMIT);
    assert_string_equal(err.message, "an organisation has at most 20 bytes of thing");
    must_put(kit, objects, "b", "{\"n\":123}");
    assert_true(put(objects, "a", "{\"n\":123456}", 0, &told, &err) < 0);
    must_put(kit, objects, "a", "{\"n\":54321}"); /* no larger */
    must_put(kit, objects, "a", "{}");
    must_put(kit, objects, "c", "{\"n\":123}"); /* what went is free again */

    /* what is on its way to the store counts as well, and one that is not written gives its bytes back */
    must_put(kit, objects, "c", "{}");
    assert_int_equal(put(objects, "d", "{\"n\":1}", 0, &told, &err), 0); /* 2, 9, 2 and 7 */
    assert_true(put(objects, "a", "{\"n\":1}", 0, &told, &err) < 0);
    assert_string_equal(err.message, "an organisation has at most 20 bytes of thing");
    assert_true(put(objects, "e", "{}", 0, &told, &err) < 0);
    wait_for(kit, &told, 1);
    assert_int_equal(objects_delete(objects, ORG, "d", on_object, &told, &err), 0);
    wait_for(kit, &told, 2);
    assert_true(put(objects, "e", "{\"n\":", 0, &told, &err) < 0);
    must_put(kit, objects, "e", "{\"n\":1}");
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static void test_memory(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    const struct objects_kind kind = {.kind = "thing", .per_org = 100, .loaded = NULL, .ctx = &all};
    struct objects *objects = NULL;
    unsigned want = 0;

    kit_put_org(kit, ORG);
    for (size_t n = 0;; n++) {
        mem_fail_after(n);
        int r = objects_create(kit->store, &kind, &objects, NULL);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0 && !failed)
            break;
        assert_true(r < 0 || !failed);
    }
    for (size_t n = 0;; n++) {
        char id[16];
        snprintf(id, sizeof id, "a%zu", n);
        mem_fail_after(n);
        int r = put(objects, id, "{\"n\":1}", 0, &told, NULL);
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        if (r == 0) {
            /* the store's thread may have met the shut door too: then it is told, and nothing is there */
            const unsigned failed_before = told.failed;
            wait_for(kit, &told, ++want);
            assert_int_equal(objects_find(objects, ORG, id) == NULL, told.failed > failed_before);
        }
        if (!failed)
            break;
    }
    assert_int_equal(objects_count(objects, ORG), want - told.failed);
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static void test_many(void **state)
{
    struct kit *kit = *state;
    struct told all = {0}, told = {0};
    struct objects *objects = make(kit, &all, 1000);
    unsigned n = 0;

    kit_put_org(kit, ORG);
    for (int i = 0; i < 500; i++) {
        char id[16], doc[32];
        snprintf(id, sizeof id, "id%d", i * 7919 % 500);
        snprintf(doc, sizeof doc, "{\"key\":\"k%d\"}", i);
        assert_int_equal(put(objects, id, doc, 0, &told, NULL), 0);
    }
    wait_for(kit, &told, 500);
    assert_int_equal(told.failed, 0);
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
    objects = make(kit, &all, 1000);
    for (const struct object *object = objects_first(objects, ORG); object; object = object->next, n++)
        assert_true(!object->next ||
                    (object->next->prev == object && (object->created_at_ns < object->next->created_at_ns ||
                                                      strcmp(object->id, object->next->id) < 0)));
    assert_int_equal(n, 500);
    assert_string_equal(objects_by_key(objects, ORG, "k3")->id, "id257");
    kit_close(kit);
    objects_destroy(objects);
    kit_open(kit);
}

static void test_ids(void **state)
{
    static const char *const bad[] = {"",
                                      "tool",
                                      "tool-",
                                      "tool-123",
                                      "tool-123e4567-e89b-12d3-a456-426614174000",
                                      "tool-123e4567-e89b-42d3-c456-426614174000",
                                      "tool-123E4567-e89b-42d3-a456-426614174000",
                                      "tool-123e4567-e89b-42d3-a456-4266141740000",
                                      "tools-123e4567-e89b-42d3-a456-426614174000",
                                      "agent-123e4567-e89b-42d3-a456-426614174000",
                                      "tool-123e4567-e89b-42d3-a456-42661417400\n",
                                      "tool_123e4567-e89b-42d3-a456-426614174000"};
    char id[128];

    (void)state;
    assert_true(objects_id_ok("tool", "tool-123e4567-e89b-42d3-8456-426614174000"));
    assert_true(objects_id_ok("sandbox-env", "sandbox-env-123e4567-e89b-42d3-b456-426614174000"));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(objects_id_ok("tool", bad[i]));
    for (int i = 0; i < 100; i++) {
        assert_int_equal(objects_new_id("agent", id), 0);
        assert_true(objects_id_ok("agent", id));
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_life),   KIT_CASE(test_order), KIT_CASE(test_refusals),
                                       KIT_CASE(test_held),   KIT_CASE(test_many),  KIT_CASE(test_store_fails),
                                       KIT_CASE(test_memory), KIT_CASE(test_ids),   KIT_CASE(test_bytes)};

    return kit_run("tool_objects", cases, ARRAY_SIZE(cases), true);
}
