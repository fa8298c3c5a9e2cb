/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holes.h: writes a new file with holes, so that a copy takes no more of the disk than its source. The writer asks for
 * the next run, writes it or seeks over it, and gives the file its length at the end, since the file may end with a
 * hole. Nothing here needs a C library: brig-init's file worker has none.
 */
#ifndef BRIG_BASE_HOLES_H
#define BRIG_BASE_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOLE_SIZE 4096u /* The size of a block on most file systems. */

/* Returns how many of the len bytes lie in the same block of the file. *ret_zero says whether they are all zero. */
static inline size_t hole_piece(const uint8_t *data, size_t len, uint64_t at, bool *ret_zero)
{
    size_t n = HOLE_SIZE - (size_t)(at % HOLE_SIZE);

    n = n < len ? n : len;
    *ret_zero = true;
    for (size_t i = 0; i < n && *ret_zero; i++)
        *ret_zero = data[i] == 0;
    return n;
}

/*
 * Returns the length of the first run of the len bytes (at least one) that belong at offset `at` of the file. Either
 * all blocks of the run are zero (*ret_zero: they need not be written), or none is. A new file reads as zeroes wherever
 * it was skipped, in a whole block or in a part of one.
 */
static inline size_t hole_run(const uint8_t *data, size_t len, uint64_t at, bool *ret_zero)
{
    size_t n = hole_piece(data, len, at, ret_zero);
    bool zero = *ret_zero;

    for (size_t more = 0; n < len; n += more) {
        more = hole_piece(data + n, len - n, at + n, &zero);
        if (zero != *ret_zero)
            break;
    }
    return n;
}

#endif
