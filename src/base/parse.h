/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h: numbers that people write. All of these read the whole text, depend on no locale, and accept neither
 * sign, white space, hexadecimal nor exponent. 0, -EINVAL (not such a number, or zero where zero means nothing)
 * or -ERANGE (over INT64_MAX, so that it also fits the kernel's signed types). *ret is untouched on failure.
 *
 * brig_parse_size(), brig_parse_duration() and brig_parse_cpus() of brig.h are here as well:
 *   size      digits ["." digits] [k|m|g|t ["b"|"ib"]]   powers of 1024, letters in either case; a fraction needs a
 *             suffix
 *   duration  digits ["." digits] ["ms"|"s"|"m"|"h"]     seconds without a suffix
 *   cpus      digits ["." digits]
 * A fraction has at most six digits; what is finer than the unit (byte, millisecond, thousandth) is cut off.
 */
#ifndef BRIG_BASE_PARSE_H
#define BRIG_BASE_PARSE_H

#include <brig.h>

#include "base/base.h"

/* Decimal digits only; zero is allowed. */
int parse_u64(const char *text, uint64_t *ret) MUST_CHECK;
int parse_u32(const char *text, uint32_t *ret) MUST_CHECK; /* -ERANGE over UINT32_MAX */

/*
 * For the kernel's own files (uid_map, cpu.max): up to max numbers at the start of text, with spaces or tabs before
 * each and a space, tab, newline or the end after it. Returns how many there are; stops at the first thing that is
 * none.
 */
size_t parse_fields(const char *text, uint64_t *ret, size_t max);

#endif
