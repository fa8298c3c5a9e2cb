/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: pieces of any size, the bound, adopted memory, wiping, every allocation failing once, JSON in one. */
#include "unit.h"

#include <malloc.h>

#include "base/arena.h"
#include "base/mem.h"
#include "codec/json/json_read.h"

static void pieces_do_not_touch(void **state UNUSED)
{
    struct arena *arena = arena_create(10u << 20);
    static char *at[3000];

    assert_non_null(arena);
    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        size_t size = i % 97 == 0 ? 20000 : i % 300;
        at[i] = arena_alloc(arena, size);
        assert_non_null(at[i]);
        assert_int_equal((uintptr_t)at[i] % 16, 0);
        memset(at[i], (int)(i & 0xff), size);
    }
    for (size_t i = 0; i < ARRAY_SIZE(at); i++)
        for (size_t k = 0, size = i % 97 == 0 ? 20000 : i % 300; k < size; k++)
            assert_int_equal((unsigned char)at[i][k], i & 0xff);
    assert_string_equal(arena_copy(arena, "abcdef", 3), "abc");
    assert_string_equal(arena_copy(arena, "", 0), "");
    arena_destroy(arena);
    arena_destroy(NULL);
}

static void no_more_than_its_bound(void **state UNUSED)
{
    struct arena *arena = arena_create(1000);

    assert_non_null(arena_alloc(arena, 600));
    assert_null(arena_alloc(arena, 401));
    assert_null(arena_alloc(arena, SIZE_MAX));
    assert_null(arena_copy(arena, "", SIZE_MAX));
    char *mine = mem_alloc(401);
    assert_non_null(mine);
    assert_true(arena_adopt(arena, mine, 401) < 0); /* and it is freed */
    mine = mem_alloc(400);
    assert_non_null(mine);
    assert_int_equal(arena_adopt(arena, mine, 400), 0);
    assert_null(arena_alloc(arena, 1));
    arena_destroy(arena);
}

/* What free() is given, as it is at that moment. */
static const char *watched;
static bool clean;

static void look(const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        clean = clean && at[i] == '\0';
}

void __real_free(void *memory);
void __wrap_free(void *memory);
void __wrap_free(void *memory)
{
    size_t size = memory ? malloc_usable_size(memory) : 0;

    if (watched && (char *)memory <= watched && watched < (char *)memory + size) {
        look(watched, 6);
        watched = NULL;
    }
    __real_free(memory);
}

static void wiped_when_freed(void **state UNUSED)
{
    for (int kind = 0; kind < 3; kind++) { /* a small piece, a large one, adopted memory */
        struct arena *arena = arena_create(1u << 20);
        char *secret = kind == 1 ? arena_alloc(arena, 100000) : kind == 2 ? mem_alloc(100) : arena_alloc(arena, 10);

        assert_non_null(secret);
        memcpy(secret, "secret", 6);
        if (kind == 2)
            assert_int_equal(arena_adopt(arena, secret, 100), 0);
        watched = secret;
        clean = true;
        arena_destroy(arena);
        assert_null(watched); /* it was freed, */
        assert_true(clean);   /* and had nothing in it by then */
    }
}

static void survives_lack_of_memory(void **state UNUSED)
{
    for (size_t n = 0;; n++) {
        char *mine = malloc(10);
        const struct json_value *json = NULL;
        mem_fail_after(n);
        struct arena *arena = arena_create(1u << 20);
        bool ok = arena && arena_copy(arena, "x", 1) && arena_alloc(arena, 9000);
        if (arena)
            ok = arena_adopt(arena, mine, 10) == 0 && ok;
        else
            free(mine);
        ok = ok && json_read_in(arena, "[1,2]", 5, 10, &json, NULL) == 0;
        bool failed = mem_has_failed();
        mem_fail_after(MEM_FAIL_NEVER);
        arena_destroy(arena);
        assert_int_equal(ok, !failed);
        if (!failed)
            return;
    }
}

static void json_lives_in_it(void **state UNUSED)
{
    static const char text[] = "{\"a\":[1,\"b\\u00e9\"],\"c\":null}";
    struct arena *arena = arena_create(4096), *small = arena_create(100);
    const struct json_value *json = NULL;
    struct brig_err err = {0};

    assert_int_equal(json_read_in(arena, text, sizeof text - 1, 100, &json, NULL), 0);
    assert_string_equal(json_get(json, "a")->first->next->string, "b\xc3\xa9");
    assert_true(json_read_in(arena, "[1,", 3, 100, &json, &err) < 0);
    assert_int_equal(err.code, BRIG_E_USAGE);
    assert_true(json_read_in(small, text, sizeof text - 1, 100, &json, &err) < 0);
    assert_int_equal(err.code, BRIG_E_NOMEM);
    arena_destroy(arena);
    arena_destroy(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_do_not_touch), cmocka_unit_test(no_more_than_its_bound),
        cmocka_unit_test(wiped_when_freed),    cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(json_lives_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
