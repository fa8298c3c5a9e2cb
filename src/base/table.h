/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: a hash table of things found by two strings (an organisation and a name), chained through the things
 * themselves, so that neither putting in nor taking out needs memory: when it cannot grow it is slower. The seed is
 * random: names come from tenants.
 */
#ifndef BRIG_BASE_TABLE_H
#define BRIG_BASE_TABLE_H

#include "base/base.h"

struct table_link { /* embedded; the strings live at least as long as it is in the table */
    struct table_link *next;
    const char *first, *second;
    void *thing;
    uint64_t hash;
};

struct table {
    struct table_link **slots;
    size_t n_slots, n;
    uint64_t seed;
};

int table_init(struct table *table) MUST_CHECK; /* -ENOMEM, or what getrandom(2) says */
void table_done(struct table *table);           /* takes a zeroed table; the owners keep the things */
void *table_find(const struct table *table, const char *first, const char *second); /* or NULL */
/* The table must have nothing under these strings yet. */
void table_add(struct table *table, struct table_link *link, const char *first, const char *second, void *thing);
void table_remove(struct table *table, struct table_link *link); /* does nothing if the link is in no table */

#endif
