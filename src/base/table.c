/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the hash table of table.h. It has chains, and it doubles when there are as many things as places. */
#include "base/table.h"

#include <sys/random.h>

#include "base/mem.h"
#include "base/str.h"

#define SLOTS_FIRST 64u

int table_init(struct table *table)
{
    *table = (struct table){.n_slots = SLOTS_FIRST};
    if (getrandom(&table->seed, sizeof table->seed, 0) != (ssize_t)sizeof table->seed)
        return -EIO;
    table->slots = mem_zalloc(SLOTS_FIRST * sizeof(struct table_link *));
    return table->slots ? 0 : -ENOMEM;
}

void table_done(struct table *table)
{
    mem_free(table->slots);
    *table = (struct table){0};
}

static uint64_t add_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return (hash ^ 0xff) * UINT64_C(0x100000001b3); /* a byte that no text has: ("ab", "c") is not ("a", "bc") */
}

static uint64_t hash_of(const struct table *table, const char *first, const char *second)
{
    uint64_t hash = add_text(add_text(table->seed, first), second);

    return hash ^ hash >> 32; /* the low bits choose the slot */
}

void *table_find(const struct table *table, const char *first, const char *second)
{
    uint64_t hash = hash_of(table, first, second);

    for (struct table_link *link = table->slots[hash % table->n_slots]; link; link = link->next)
        if (link->hash == hash && str_eq(link->first, first) && str_eq(link->second, second))
            return link->thing;
    return NULL;
}

static void grow(struct table *table)
{
    size_t n = table->n_slots * 2;
    struct table_link **slots = mem_zalloc(n * sizeof(struct table_link *));

    if (!slots)
        return;
    for (size_t i = 0; i < table->n_slots; i++)
        for (struct table_link *link = table->slots[i], *next; link; link = next) {
            next = link->next;
            link->next = slots[link->hash % n];
            slots[link->hash % n] = link;
        }
    mem_free(table->slots);
    table->slots = slots;
    table->n_slots = n;
}

void table_add(struct table *table, struct table_link *link, const char *first, const char *second, void *thing)
{
    if (table->n >= table->n_slots)
        grow(table);
    *link =
        (struct table_link){.first = first, .second = second, .thing = thing, .hash = hash_of(table, first, second)};
    struct table_link **slot = &table->slots[link->hash % table->n_slots];
    link->next = *slot;
    *slot = link;
    table->n++;
}

void table_remove(struct table *table, struct table_link *link)
{
    if (!link->thing)
        return;
    for (struct table_link **at = &table->slots[link->hash % table->n_slots]; *at; at = &(*at)->next)
        if (*at == link) {
            *at = link->next;
            table->n--;
            break;
        }
    *link = (struct table_link){0};
}
