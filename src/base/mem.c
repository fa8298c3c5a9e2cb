/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c: makes allocations fail on purpose, in test builds only; in other builds mem.h is inline and this file is
 * empty. The counters are the one piece of global state in the library, so they exist in no other build.
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

void mem_fail_after(size_t n)
{
    fail_budget = n;
    fail_seen = false;
}

bool mem_has_failed(void)
{
    return fail_seen;
}

#endif
