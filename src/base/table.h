/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.h: a hash table that finds things by two strings (an organisation and a name). The chains run through the
 * things themselves, so neither adding nor removing needs memory; a table that cannot grow only becomes slower. The
 * seed is random, because the names come from tenants.
 */
#ifndef BRIG_BASE_TABLE_H
#define BRIG_BASE_TABLE_H

#include "base/base.h"

struct table_link { /* This is embedded in the thing. The strings must live as long as the link is in the table. */
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

int table_init(struct table *table) MUST_CHECK; /* Returns 0, -ENOMEM or the error of getrandom(2). */
void table_done(struct table *table);           /* Frees the table, not the things. It accepts a zeroed table. */
void *table_find(const struct table *table, const char *first, const char *second); /* Returns the thing or NULL. */
/* The table must have nothing under these strings yet. */
void table_add(struct table *table, struct table_link *link, const char *first, const char *second, void *thing);
void table_remove(struct table *table, struct table_link *link); /* Does nothing if the link is in no table. */

#endif
