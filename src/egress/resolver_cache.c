/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolver_cache.c: remembers for a few seconds what names resolved to. Entries stand in a hash table and in the order
 * in which they came; when there are too many, the oldest is deleted. Nothing is kept longer than half a minute, so
 * that order is good enough.
 */
#include <sys/random.h>

#include "base/mem.h"
#include "base/str.h"
#include "egress/resolver_priv.h"

#define ENTRIES_MAX 4096u
#define BUCKETS 1024u

struct cache {
    struct cache_entry *buckets[BUCKETS];
    struct cache_entry *oldest, *newest;
    size_t n;
    uint64_t secret; /* sandboxes choose the names */
};

int cache_create(struct cache **ret)
{
    struct cache *cache = mem_zalloc(sizeof(*cache));

    if (!cache)
        return -ENOMEM;
    if (getrandom(&cache->secret, sizeof(cache->secret), 0) != (ssize_t)sizeof(cache->secret)) {
        mem_free(cache);
        return -EIO;
    }
    *ret = cache;
    return 0;
}

static struct cache_entry **bucket_of(struct cache *cache, const char *name)
{
    uint64_t h = cache->secret;

    for (; *name; name++) {
        h = (h ^ (uint8_t)*name) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return &cache->buckets[h % BUCKETS];
}

static void entry_drop(struct cache *cache, struct cache_entry *entry)
{
    struct cache_entry **at = bucket_of(cache, entry->name);

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    *(entry->older ? &entry->older->newer : &cache->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &cache->newest) = entry->older;
    cache->n--;
    mem_free(entry);
}

void cache_clear(struct cache *cache)
{
    for (struct cache_entry *entry = cache->oldest, *newer; entry; entry = newer) {
        newer = entry->newer;
        entry_drop(cache, entry);
    }
}

void cache_destroy(struct cache *cache)
{
    if (!cache)
        return;
    cache_clear(cache);
    mem_free(cache);
}

static struct cache_entry *find(struct cache *cache, const char *name)
{
    struct cache_entry *entry = *bucket_of(cache, name);

    while (entry && !str_eq(entry->name, name))
        entry = entry->next;
    return entry;
}

const struct cache_entry *cache_find(struct cache *cache, const char *name)
{
    struct cache_entry *entry = find(cache, name);

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
    struct cache_entry *old = find(cache, name);

    if (old)
        entry_drop(cache, old);
    if (cache->n == ENTRIES_MAX && cache->oldest)
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
    struct cache_entry **bucket = bucket_of(cache, name);
    entry->next = *bucket;
    *bucket = entry;
    entry->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = entry;
    cache->newest = entry;
    cache->n++;
}
