/* SPDX-License-Identifier: Apache-2.0 */
/*
 * egress_names.c: the synthetic addresses of one slot: which number stands for which name.
 *
 *   entries   [0] [1] [2] ... grown by doubling, at most EGRESS_NAMES_MAX;
 *             entry i has a number that is i modulo EGRESS_NAMES_MAX
 *   buckets   by the name's hash -> the first entry + 1 -> next -> ...
 *   by use    a list through all entries, oldest use first
 *
 * An entry that is reused gets a number that its place did not have before (there are eight times as many numbers). So
 * an address that a program kept for too long stands for nothing, and not for another name. The sandbox chooses the
 * names, so the hash has a secret in it and the memory is bounded.
 */
#include "egress/egress.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#define NONE UINT32_MAX
#define REUSE_NS (300 * NS_PER_SEC)
#define FIRST_ENTRIES 16u

_Static_assert(GATE_FAKE_MAX % EGRESS_NAMES_MAX == 0 && GATE_FAKE_MAX > EGRESS_NAMES_MAX, "a number says its place");

struct entry {
    char *name;
    uint64_t hash, used_ns;
    uint32_t number;
    uint32_t next;         /* in the bucket */
    uint32_t older, newer; /* by use */
};

struct names {
    struct entry *entries;
    uint32_t *buckets; /* as many as cap */
    uint32_t n, cap;
    uint32_t oldest, newest;
    uint64_t secret;
};

int names_create(struct names **ret)
{
    struct names *names = mem_zalloc(sizeof(*names));

    if (!names)
        return -ENOMEM;
    names->oldest = names->newest = NONE;
    if (getrandom(&names->secret, sizeof(names->secret), 0) != (ssize_t)sizeof(names->secret)) {
        mem_free(names);
        return -EIO;
    }
    *ret = names;
    return 0;
}

void names_destroy(struct names *names)
{
    if (!names)
        return;
    for (uint32_t i = 0; i < names->n; i++)
        mem_free(names->entries[i].name);
    mem_free(names->entries);
    mem_free(names->buckets);
    mem_free(names);
}

static uint32_t *bucket_of(const struct names *names, uint64_t hash)
{
    return &names->buckets[hash & (names->cap - 1)];
}

static void use_unlink(struct names *names, uint32_t i)
{
    const struct entry *e = &names->entries[i];

    *(e->older != NONE ? &names->entries[e->older].newer : &names->oldest) = e->newer;
    *(e->newer != NONE ? &names->entries[e->newer].older : &names->newest) = e->older;
}

static void use_append(struct names *names, uint32_t i)
{
    struct entry *e = &names->entries[i];

    e->used_ns = loop_now_ns();
    e->older = names->newest;
    e->newer = NONE;
    *(names->newest != NONE ? &names->entries[names->newest].newer : &names->oldest) = i;
    names->newest = i;
}

static void bucket_add(struct names *names, uint32_t i)
{
    uint32_t *bucket = bucket_of(names, names->entries[i].hash);

    names->entries[i].next = *bucket;
    *bucket = i;
}

static void bucket_remove(struct names *names, uint32_t i)
{
    uint32_t *at = bucket_of(names, names->entries[i].hash);

    while (*at != i)
        at = &names->entries[*at].next;
    *at = names->entries[i].next;
}

static int grow(struct names *names)
{
    uint32_t cap = names->cap ? names->cap * 2 : FIRST_ENTRIES;
    struct entry *entries = mem_realloc_array(names->entries, cap, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    names->entries = entries;
    uint32_t *buckets = mem_realloc_array(names->buckets, cap, sizeof(*buckets));
    if (!buckets)
        return -ENOMEM;
    names->buckets = buckets;
    names->cap = cap;
    for (uint32_t i = 0; i < cap; i++)
        buckets[i] = NONE;
    for (uint32_t i = 0; i < names->n; i++)
        bucket_add(names, i);
    return 0;
}

/* A place for a new name: the next one, or that of a name nobody has used for long. */
static int find_place(struct names *names, uint32_t *ret)
{
    if (names->n < EGRESS_NAMES_MAX) {
        int r = names->n == names->cap ? grow(names) : 0;
        if (r < 0)
            return r;
        names->entries[names->n] = (struct entry){.number = names->n};
        *ret = names->n;
        return 0;
    }
    uint32_t i = names->oldest;
    if (loop_now_ns() - names->entries[i].used_ns < REUSE_NS)
        return -ENOSPC;
    *ret = i;
    return 0;
}

int names_take(struct names *names, const char *name, uint32_t *ret_number)
{
    uint64_t hash = str_hash_seeded(names->secret, name);
    uint32_t i = names->cap > 0 ? *bucket_of(names, hash) : NONE;

    while (i != NONE && (names->entries[i].hash != hash || !str_eq(names->entries[i].name, name)))
        i = names->entries[i].next;
    if (i != NONE) {
        use_unlink(names, i);
        use_append(names, i);
        *ret_number = names->entries[i].number;
        return 0;
    }
    int r = find_place(names, &i);
    if (r < 0)
        return r;
    char *copy = mem_strdup(name);
    if (!copy)
        return -ENOMEM;
    struct entry *e = &names->entries[i];
    if (i < names->n) {
        bucket_remove(names, i);
        use_unlink(names, i);
        mem_free(e->name);
        e->number = (e->number + EGRESS_NAMES_MAX) % GATE_FAKE_MAX;
    } else {
        names->n++;
    }
    e->name = copy;
    e->hash = hash;
    bucket_add(names, i);
    use_append(names, i);
    *ret_number = e->number;
    return 0;
}

const char *names_find(struct names *names, uint32_t number)
{
    uint32_t i = number % EGRESS_NAMES_MAX;

    if (i >= names->n || names->entries[i].number != number)
        return NULL;
    use_unlink(names, i);
    use_append(names, i);
    return names->entries[i].name;
}

#ifdef BRIG_TEST
void names_age(struct names *names, uint64_t ns)
{
    for (uint32_t i = 0; i < names->n; i++)
        names->entries[i].used_ns -= ns;
}
#endif
