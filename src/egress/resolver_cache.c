/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver_cache.c: remembers for a few seconds what names resolved to. Entries stand in a hash table and in the order
 * in which they came; when there are too many, the oldest is deleted. Nothing is kept longer than half a minute, so
 * that order is good enough.
 */
#include "base/list.h"
#include "base/mem.h"
#include "base/table.h"
#include "egress/resolver_priv.h"

#define ENTRIES_MAX 4096u

struct cache {
    struct table table;
    struct cache_entry *oldest, *newest;
};

int cache_create(struct cache **ret)
{
    struct cache *cache = mem_zalloc(sizeof(*cache));

    if (!cache)
        return -ENOMEM;
    int r = table_init(&cache->table);
    if (r < 0) {
        mem_free(cache);
        return r;
    }
    *ret = cache;
    return 0;
}

static void entry_drop(struct cache *cache, struct cache_entry *entry)
{
    table_remove(&cache->table, &entry->link);
    list_take(&cache->oldest, &cache->newest, entry);
    mem_free(entry);
}

void cache_clear(struct cache *cache)
{
    while (cache->oldest)
        entry_drop(cache, cache->oldest);
}

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    cache_clear(cache);
    table_done(&cache->table);
    mem_free(cache);
}

const struct cache_entry *cache_find(struct cache *cache, const char *name)
{
    struct cache_entry *entry = table_find(&cache->table, name, "");

    if (entry && entry->until_ns <= loop_now_ns()) {
        entry_drop(cache, entry);
        return NULL;
    }
    return entry;
}

void cache_put(struct cache *cache, const char *name, const struct gate_addr *addresses, size_t n, bool exists,
               uint64_t ns)
{
    size_t len = strlen(name) + 1;
    struct cache_entry *old = table_find(&cache->table, name, "");

    if (old)
        entry_drop(cache, old);
    if (cache->table.n == ENTRIES_MAX)
        entry_drop(cache, cache->oldest);
    struct cache_entry *entry = mem_zalloc(sizeof(*entry) + len);
    if (!entry)
        return;
    entry->until_ns = loop_now_ns() + ns;
    entry->exists = exists;
    entry->n = n;
    if (n > 0)
        memcpy(entry->addresses, addresses, n * sizeof(*addresses));
    memcpy(entry->name, name, len);
    table_add(&cache->table, &entry->link, entry->name, "", entry);
    list_append(&cache->oldest, &cache->newest, entry);
}
