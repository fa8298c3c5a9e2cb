/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c: pieces of blocks. A piece that does not fit into the first block gets a new one; what is left of the old one
 * is not used any more. A large piece and adopted memory are blocks of their own, behind the first.
 */
#include "base/arena.h"

#include <stdalign.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK 8000u /* with its head and malloc's below two pages */

struct block {
    struct block *next;
    char *data;
    size_t used, size;
    bool adopted; /* data is an allocation of its own */
};

struct arena {
    size_t given, max;
    struct block *blocks; /* small pieces come from the first */
};

struct arena *arena_create(size_t max)
{
    struct arena *arena = mem_alloc(sizeof *arena);

    if (arena)
        *arena = (struct arena){.max = max};
    return arena;
}

void arena_destroy(struct arena *arena)
{
    for (struct block *block = arena ? arena->blocks : NULL, *next; block; block = next) {
        next = block->next;
        explicit_bzero(block->data, block->used);
        if (block->adopted)
            mem_free(block->data);
        mem_free(block);
    }
    mem_free(arena);
}

static struct block *add_block(struct arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t), head = (sizeof(struct block) + align - 1) / align * align;
    struct block *block = mem_alloc(head + size);

    if (!block)
        return NULL;
    struct block **at = arena->blocks && size != BLOCK ? &arena->blocks->next : &arena->blocks;
    *block = (struct block){.next = *at, .data = (char *)block + head, .size = size};
    *at = block;
    return block;
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->given;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    const size_t align = alignof(max_align_t);
    struct block *block = arena->blocks;

    if (size > arena->max - arena->given || size > SIZE_MAX / 2)
        return NULL;
    size_t at = block ? (block->used + align - 1) / align * align : 0;
    if (!block || at > block->size || size > block->size - at) {
        block = add_block(arena, size > BLOCK ? size : BLOCK);
        at = 0;
    }
    if (!block)
        return NULL;
    block->used = at + size;
    arena->given += size;
    return block->data + at;
}

char *arena_copy(struct arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? arena_alloc(arena, len + 1) : NULL;

    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

int arena_adopt(struct arena *arena, void *memory, size_t len)
{
    struct block *block = len > arena->max - arena->given ? NULL : add_block(arena, 0);

    if (!block) {
        explicit_bzero(memory, len);
        mem_free(memory);
        return -ENOMEM;
    }
    block->data = memory;
    block->used = block->size = len;
    block->adopted = true;
    arena->given += len;
    return 0;
}
