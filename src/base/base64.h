/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64.h: reads and writes base64 (RFC 4648). Each reader decides what else it accepts: padding, both alphabets,
 * blanks.
 */
#ifndef BRIG_BASE_BASE64_H
#define BRIG_BASE_BASE64_H

#include <sys/types.h>

#include "base/base.h"

/*
 * Returns the value of a letter, or -1 if it is no letter of base64. last has the letters for 62 and 63: "+/", or "-_"
 * in addresses and tokens.
 */
static inline int base64_value(char c, const char last[2])
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == last[0] ? 62 : c == last[1] ? 63 : -1;
}

/* Returns the value of a letter of either alphabet, or -1. */
static inline int base64_value_any(char c)
{
    int value = base64_value(c, "+/");

    return value >= 0 ? value : base64_value(c, "-_");
}

/*
 * Writes the letters of data and returns how many: 4 for 3 bytes, also for the last ones if pad is set. out has room
 * for that; there is no NUL.
 */
size_t base64_encode(const void *data, size_t len, const char last[2], bool pad, char *out);
/* Returns the length of the text without its padding; without any unless all is a multiple of four letters. */
size_t base64_unpadded(const char *text, size_t len);
/*
 * Decodes letters without padding. last is as above, or NULL for either alphabet. Returns the number of bytes,
 * -EMSGSIZE if they need more than size, or -EINVAL: one value has one spelling, so unused bits must be zero.
 */
ssize_t base64_decode(const char *text, size_t len, const char *last, void *out, size_t size) MUST_CHECK;
/* With the alphabet "+/", and with padding exactly as RFC 4648 wants it. out may be the text. */
ssize_t base64_decode_padded(const char *text, size_t len, void *out, size_t size) MUST_CHECK;

#endif
