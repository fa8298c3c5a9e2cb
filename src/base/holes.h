/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holes.h: how a new file is written with holes, so that it takes no more of the disk than the one it is a copy of.
 * Whoever writes asks for the next run, writes it or seeks over it, and gives the file its length at the end, since it
 * may end with a hole. Nothing here needs a C library: brig-init's file worker has none.
 */
#ifndef BRIG_BASE_HOLES_H
#define BRIG_BASE_HOLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOLE_SIZE 4096u /* a block of most file systems */

/* How many bytes are left of this block of the file; *ret_zero: whether they are all zero. */
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
 * The first of len bytes (at least one) that belong at `at` of the file, as many as are all zero (*ret_zero: they need
 * not be written) or are all to be written. What a new file skips reads as zeroes, be it a whole block or a part of
 * one.
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
