/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h: the heap, through one door. Memory from here may be given to free() (AUTO_FREE does). Nothing exits
 * when memory is short: NULL is returned and the caller reports -ENOMEM.
 *
 * In builds with -DBRIG_TEST the door can be shut: after mem_fail_after(n), n more allocations succeed and
 * every later one fails, until mem_fail_after(MEM_FAIL_NEVER). Tests walk n upwards until nothing failed.
 */
#ifndef BRIG_BASE_MEM_H
#define BRIG_BASE_MEM_H

#include "base/base.h"

#ifdef BRIG_TEST

#define MEM_FAIL_NEVER SIZE_MAX

void *mem_alloc(size_t size) MUST_CHECK;
void *mem_zalloc(size_t size) MUST_CHECK;
void *mem_realloc(void *ptr, size_t size) MUST_CHECK; /* the old block is kept on failure */
char *mem_strdup(const char *text) MUST_CHECK;

void mem_fail_after(size_t n);
bool mem_has_failed(void); /* since the last mem_fail_after() */

#else

static inline MUST_CHECK void *mem_alloc(size_t size)
{
    return malloc(size);
}

static inline MUST_CHECK void *mem_zalloc(size_t size)
{
    return calloc(1, size);
}

static inline MUST_CHECK void *mem_realloc(void *ptr, size_t size)
{
    return realloc(ptr, size);
}

static inline MUST_CHECK char *mem_strdup(const char *text)
{
    return strdup(text);
}

#endif

static inline void mem_free(void *ptr)
{
    free(ptr);
}

/* n elements of size bytes; NULL also when the product overflows. */
static inline MUST_CHECK void *mem_realloc_array(void *ptr, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return mem_realloc(ptr, bytes);
}

#endif
