/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h: memory that is given out piece by piece and freed at once, wiped: what belongs to one request or one run. A
 * piece lives as long as its arena; there is no way to give one back. An arena has one owner at a time and moves with
 * what it holds: take_ptr().
 */
#ifndef BRIG_BASE_ARENA_H
#define BRIG_BASE_ARENA_H

#include "base/base.h"

struct arena;

/* max: bytes that may be given out, adopted ones included. NULL: out of memory. */
struct arena *arena_create(size_t max) MUST_CHECK;
void arena_destroy(struct arena *arena);       /* wipes every piece; takes NULL */
size_t arena_bytes(const struct arena *arena); /* given out, adopted ones included */
/* Aligned for anything, not cleared. NULL: out of memory, or past the bound. */
void *arena_alloc(struct arena *arena, size_t size) MUST_CHECK;
/* A copy with a NUL behind it; or NULL. */
char *arena_copy(struct arena *arena, const char *text, size_t len) MUST_CHECK;
/* Memory of mem_alloc() and its like becomes a piece, where it lies; on failure it is wiped and freed. */
int arena_adopt(struct arena *arena, void *memory, size_t len) MUST_CHECK;

#endif
