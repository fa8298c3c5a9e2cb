/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h: all memory of the heap comes from here. It may be given to free() (AUTO_FREE does). No function exits when
 * memory is short: it returns NULL and the caller reports -ENOMEM.
 *
 * In builds with -DBRIG_TEST a test can make allocations fail. After mem_fail_after(n), n more allocations succeed and
 * every later one fails, until mem_fail_after(MEM_FAIL_NEVER). A test raises n until nothing fails any more.
 */
#ifndef BRIG_BASE_MEM_H
#define BRIG_BASE_MEM_H

#include <string.h>

#include "base/base.h"

void *mem_alloc(size_t size) MUST_CHECK;
void *mem_zalloc(size_t size) MUST_CHECK;
void *mem_realloc(void *ptr, size_t size) MUST_CHECK; /* On failure the old block stays valid. */
char *mem_strdup(const char *text) MUST_CHECK;

#ifdef BRIG_TEST
#define MEM_FAIL_NEVER SIZE_MAX
void mem_fail_after(size_t n);
bool mem_has_failed(void); /* Has an allocation failed since the last mem_fail_after()? */
#endif

static inline void mem_free(void *ptr)
{
    free(ptr);
}

/* Makes room for n elements of size bytes. Returns NULL also when the product overflows. */
static inline MUST_CHECK void *mem_realloc_array(void *ptr, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return mem_realloc(ptr, bytes);
}

/*
 * Makes room for one element more in a list of n elements, which has room for cap of them. Returns 0, or -ENOMEM with
 * the list as it was. MEM_GROW() takes the list, n and cap themselves.
 */
#define MEM_GROW(list, n, cap) mem_grow(&(list), (n), &(cap), sizeof *(list))
static inline MUST_CHECK int mem_grow(void *list, size_t n, size_t *cap, size_t size)
{
    size_t more = *cap > 0 ? 2 * *cap : 16;
    void *items;

    if (n < *cap)
        return 0;
    memcpy(&items, list, sizeof items); /* list is the address of a pointer of any type */
    items = mem_realloc_array(items, more, size);
    if (!items)
        return -ENOMEM;
    memcpy(list, &items, sizeof items);
    *cap = more;
    return 0;
}

#endif
