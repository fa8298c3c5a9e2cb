/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h: reads numbers that people write. All functions read the whole text and depend on no locale. They accept no
 * sign, no white space, no hexadecimal digits and no exponent. They return 0, -EINVAL (not such a number, or zero where
 * zero has no meaning) or -ERANGE (over INT64_MAX, so that a number also fits the kernel's signed types). *ret is
 * untouched on failure.
 *
 * brig_parse_size(), brig_parse_duration() and brig_parse_cpus() of brig.h are here as well:
 *
 *   size      digits ["." digits] [k|m|g|t ["b"|"ib"]]   powers of 1024, letters in either case
 *   duration  digits ["." digits] ["ms"|"s"|"m"|"h"]     seconds without a suffix
 *   cpus      digits ["." digits]
 *
 * The fraction of a size needs a suffix. A fraction has at most six digits; what is finer than the unit (byte,
 * millisecond, thousandth) is cut off.
 */
#ifndef BRIG_BASE_PARSE_H
#define BRIG_BASE_PARSE_H

#include <brig.h>

#include "base/base.h"

/* Decimal digits only; zero is allowed. */
int parse_u64(const char *text, uint64_t *ret) MUST_CHECK;
int parse_u32(const char *text, uint32_t *ret) MUST_CHECK; /* -ERANGE over UINT32_MAX. */

/*
 * Reads the kernel's own files (uid_map, cpu.max): up to max numbers at the start of text. Spaces or tabs may stand
 * before each number; a space, a tab, a newline or the end follows it. Returns how many numbers there are. It stops at
 * the first word that is no number.
 */
size_t parse_fields(const char *text, uint64_t *ret, size_t max);

#endif
