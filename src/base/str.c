/* SPDX-License-Identifier: Apache-2.0 */
/*
 * str.c: bounded string copies. Truncation is a failure, because a path that is cut short names another file. Only
 * str_cut() shortens, for messages.
 */
#include "base/str.h"

#include <stdarg.h>

#include "base/ascii.h"

int str_copy(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);

    if (len >= size) {
        if (size > 0)
            out[0] = '\0';
        return -ENAMETOOLONG;
    }
    memcpy(out, text, len + 1);
    return 0;
}

void str_cut(char *out, size_t size, const char *text)
{
    size_t len = text ? strnlen(text, size) : 0;

    if (size == 0)
        return;
    if (len == size) {
        len--;
        for (size_t back = 0; back < 3 && len > 0 && ((uint8_t)text[len] & 0xc0) == 0x80; back++)
            len--;
    }
    if (len > 0)
        memmove(out, text, len);
    out[len] = '\0';
}

int str_format(char *out, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(out, size, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= size) {
        if (size > 0)
            out[0] = '\0';
        return -ENAMETOOLONG;
    }
    return n;
}

uint32_t str_hash(const char *a, const char *b)
{
    uint32_t hash = 2166136261u;

    for (; *a; a++)
        hash = (hash ^ (unsigned char)*a) * 16777619u;
    for (; b && *b; b++)
        hash = (hash ^ (unsigned char)*b) * 16777619u;
    return hash ^ hash >> 16;
}

uint64_t str_hash_seeded(uint64_t seed, const char *text)
{
    do {
        seed = (seed ^ (unsigned char)*text) * UINT64_C(0x9e3779b97f4a7c15);
        seed ^= seed >> 29;
    } while (*text++);
    return seed;
}

bool str_is_name(const char *text, size_t max, const char *first, const char *letters)
{
    size_t len = strnlen(text, max + 1);

    return len > 0 && len <= max && strchr(first, text[0]) && strspn(text, letters) == len;
}

bool str_is_variable(const char *text, size_t max)
{
    return str_is_name(text, max, ASCII_LETTERS "_", ASCII_ALNUM "_");
}

bool str_has_word(const char *words, const char *word, size_t len)
{
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (n == len && memcmp(words, word, len) == 0)
            return true;
    }
    return false;
}
