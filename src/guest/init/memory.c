/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.c: the memory of a serving brig-init, straight from mmap.
 *
 * Large things (rings, queues, buffers) are mappings of their own: untouched pages cost nothing, so they are made as
 * large as they may ever become, and are unmapped when done. Small things of one kind share pages that are kept.
 */
#include <sys/mman.h>

#include "guest/init/guest_service.h"
#include "jail/rawcall.h"

void *pages_map(size_t size)
{
    long mem =
        raw_call6(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return raw_failed(mem) ? NULL : (void *)mem;
}

void pages_unmap(void *mem, size_t size)
{
    if (mem)
        raw_call2(SYS_munmap, mem, size);
}

void pages_trim(void *mem, size_t size)
{
    if (mem && size > GUEST_PAGE)
        raw_call3(SYS_madvise, (uint8_t *)mem + GUEST_PAGE, size - GUEST_PAGE, MADV_DONTNEED);
}

void *pool_take(struct pool *pool)
{
    void *object;

    if (!pool->free) {
        size_t page_size = pool->size > GUEST_PAGE ? PAGE_ROUND(pool->size) : GUEST_PAGE;
        uint8_t *page = pages_map(page_size);

        if (!page)
            return NULL;
        for (size_t at = 0; at + pool->size <= page_size; at += pool->size)
            pool_give(pool, page + at);
    }
    object = pool->free;
    if (!object)
        return NULL;
    __builtin_memcpy(&pool->free, object, sizeof(pool->free));
    __builtin_memset(object, 0, pool->size);
    return object;
}

void pool_give(struct pool *pool, void *object)
{
    __builtin_memcpy(object, &pool->free, sizeof(pool->free));
    pool->free = object;
}
