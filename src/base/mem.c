/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c: asks libc for memory. In test builds it can refuse on purpose; the counters for that are the one piece of
 * global state in the library, so they exist in no other build. These are no inline functions, so that the objects of
 * the other rooms are the same in both builds.
 */
#include "base/mem.h"

#ifdef BRIG_TEST

static size_t fail_budget = MEM_FAIL_NEVER;
static bool fail_seen;

static bool may_allocate(void)
{
    if (fail_budget == MEM_FAIL_NEVER)
        return true;
    if (fail_budget == 0) {
        fail_seen = true;
        return false;
    }
    fail_budget--;
    return true;
}

void mem_fail_after(size_t n)
{
    fail_budget = n;
    fail_seen = false;
}

bool mem_has_failed(void)
{
    return fail_seen;
}

#else

static bool may_allocate(void)
{
    return true;
}

#endif

void *mem_alloc(size_t size)
{
    return may_allocate() ? malloc(size) : NULL;
}

void *mem_zalloc(size_t size)
{
    return may_allocate() ? calloc(1, size) : NULL;
}

void *mem_realloc(void *ptr, size_t size)
{
    return may_allocate() ? realloc(ptr, size) : NULL;
}

char *mem_strdup(const char *text)
{
    return may_allocate() ? strdup(text) : NULL;
}
