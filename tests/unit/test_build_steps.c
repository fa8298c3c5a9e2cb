/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of builds over a real store: it is bounded, and the oldest steps go when a new one needs their place. */
#include "store_kit.h"

#include "records/images/build_steps.h"

static void on_put(void *ctx)
{
    on_done(ctx, NULL);
}

static const char *key_of(unsigned n)
{
    static char key[BUILD_STEP_KEY];

    snprintf(key, sizeof key, "%064x", n);
    return key;
}

static void put(struct build_steps *steps, unsigned n, uint64_t bytes, struct answer *answer)
{
    const struct build_step_info info = {.layer = "", .diff_id = "", .bytes = bytes};
    struct brig_err err = {0};

    if (build_steps_put(steps, "org-1", key_of(n), &info, on_put, answer, &err) < 0)
        fail_msg("%s", err.message);
}

/* As many steps as one organisation may have. */
static void fill(struct kit *kit, struct build_steps *steps, struct answer *answer)
{
    for (unsigned i = 0; i < BUILD_STEPS_PER_ORG; i++) {
        put(steps, i, 1, answer);
        if (i % 100 == 99)
            kit_wait_ok(kit, answer, i + 1);
    }
}

static void test_bound(void **state)
{
    struct kit *kit = *state;
    struct build_steps *steps = NULL;
    struct answer answer = {0};
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    assert_int_equal(build_steps_create(kit->store, &steps, &err), 0);
    fill(kit, steps, &answer);
    /* A step that is done again takes no place of another. */
    put(steps, BUILD_STEPS_PER_ORG - 1, 2, &answer);
    kit_wait_ok(kit, &answer, BUILD_STEPS_PER_ORG + 1);
    assert_int_equal(build_steps_find(steps, "org-1", key_of(BUILD_STEPS_PER_ORG - 1))->bytes, 2);
    assert_non_null(build_steps_find(steps, "org-1", key_of(0)));
    /* As many of the oldest go as new ones come, also while they are on their way. */
    for (unsigned i = 0; i < 5; i++)
        put(steps, BUILD_STEPS_PER_ORG + i, 1, &answer);
    kit_wait_ok(kit, &answer, BUILD_STEPS_PER_ORG + 6);
    assert_null(build_steps_find(steps, "org-1", key_of(4)));
    assert_non_null(build_steps_find(steps, "org-1", key_of(5)));
    assert_int_equal(objects_count(build_steps_objects(steps), "org-1"), BUILD_STEPS_PER_ORG);
    build_steps_destroy(steps);
}

/* A step that the store could not delete is deleted when the next one needs a place. */
static void test_refused_deletion(void **state)
{
    struct kit *kit = *state;
    struct build_steps *steps = NULL;
    struct answer answer = {0};
    struct brig_err err = {0};

    kit_put_org(kit, "org-1");
    assert_int_equal(build_steps_create(kit->store, &steps, &err), 0);
    fill(kit, steps, &answer);
    kit_wait_ok(kit, &answer, BUILD_STEPS_PER_ORG);
    kit_sqlite_exec(kit, "CREATE TRIGGER stay BEFORE DELETE ON objects BEGIN SELECT RAISE(ABORT, 'it stays'); END");
    put(steps, BUILD_STEPS_PER_ORG, 1, &answer);
    kit_wait_ok(kit, &answer, BUILD_STEPS_PER_ORG + 1);
    assert_non_null(build_steps_find(steps, "org-1", key_of(0)));
    kit_sqlite_exec(kit, "DROP TRIGGER stay");
    put(steps, BUILD_STEPS_PER_ORG + 1, 1, &answer);
    kit_wait_ok(kit, &answer, BUILD_STEPS_PER_ORG + 2);
    assert_null(build_steps_find(steps, "org-1", key_of(0)));
    assert_null(build_steps_find(steps, "org-1", key_of(1)));
    assert_int_equal(objects_count(build_steps_objects(steps), "org-1"), BUILD_STEPS_PER_ORG);
    build_steps_destroy(steps);
}

int main(void)
{
    const struct CMUnitTest cases[] = {KIT_CASE(test_bound), KIT_CASE(test_refused_deletion)};

    return kit_run("build steps", cases, ARRAY_SIZE(cases), false);
}
