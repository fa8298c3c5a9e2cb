/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a template. What is taken keeps every bound and the order of the packages; a refusal names the lock. */
#include "fuzz.h"

#include "codec/lock/template_lock.h"

static void check(const struct template_lock *lock)
{
    FUZZ_CHECK(lock->platform && lock->epoch >= 0);
    FUZZ_CHECK(lock->n_packages <= LOCK_PACKAGES_MAX && lock->bases->count <= LOCK_BASES_MAX);
    FUZZ_CHECK(lock->layers->count <= LOCK_LAYERS_MAX && lock->paths->count <= LOCK_PATHS_MAX);
    for (size_t i = 0; i < lock->n_packages; i++) {
        FUZZ_CHECK(lock_package_valid(&lock->packages[i]));
        FUZZ_CHECK(i == 0 || lock_package_order(&lock->packages[i - 1], &lock->packages[i]) < 0);
    }
    for (const struct json_value *v = lock->layers->first; v; v = v->next)
        FUZZ_CHECK(strlen(v->string) == 7 + 64);
    for (const struct json_value *v = lock->paths->first; v; v = v->next)
        FUZZ_CHECK(v->string[LOCK_HASH + 1] == '/' && lock_path_order(v->string, v->string) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *arena = arena_create(64u << 20);
    struct template_lock lock = {.platform = NULL};
    struct brig_err err = {0};
    char *text = malloc(size ? size : 1);

    FUZZ_CHECK(arena && text);
    memcpy(text, data, size);
    int r = template_lock_read(arena, text, size, &lock, &err);
    free(text); /* everything of it is in the arena */
    FUZZ_CHECK(r == 0 || err.code == BRIG_E_NOMEM || strncmp(err.message, "lock: ", 6) == 0);
    if (r == 0)
        check(&lock);
    else
        FUZZ_CHECK(!lock.platform);
    arena_destroy(arena);
    return 0;
}
