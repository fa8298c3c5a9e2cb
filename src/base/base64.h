/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64.h: the letters of base64 (RFC 4648). Each reader decides what else it accepts: padding, both alphabets,
 * blanks.
 */
#ifndef BRIG_BASE_BASE64_H
#define BRIG_BASE_BASE64_H

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

#endif
