/* SPDX-License-Identifier: Apache-2.0 */
/* ascii.h: kinds of ASCII characters. Unlike ctype.h it knows no locale and takes any char. */
#ifndef BRIG_BASE_ASCII_H
#define BRIG_BASE_ASCII_H

#include "base/base.h"

/* Sets of characters, for strspn() and str_is_name(). */
#define ASCII_DIGITS "0123456789"
#define ASCII_LOWER "abcdefghijklmnopqrstuvwxyz"
#define ASCII_LETTERS ASCII_LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define ASCII_ALNUM ASCII_LETTERS ASCII_DIGITS

static inline bool ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool ascii_is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static inline bool ascii_is_alnum(char c)
{
    return ascii_is_letter(c) || ascii_is_digit(c);
}

static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Returns the value of a hexadecimal digit, or -1. */
static inline int ascii_hex(char c)
{
    char low = ascii_lower(c);

    return ascii_is_digit(c) ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

#endif
