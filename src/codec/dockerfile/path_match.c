/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path_match.c: patterns of paths (path_match.h). A star is tried at its shortest first, and only the last star is
 * tried again: what lies before it has matched as early as it can. So the work is at most the product of both lengths.
 */
#include "codec/dockerfile/path_match.h"

#include <string.h>

#include "base/utf8.h"

/* The character at the start of a text that is not empty. */
static size_t next_char(const char *text, uint32_t *ret)
{
    size_t n = utf8_sequence(text, strnlen(text, 4), ret);

    if (n > 0)
        return n;
    *ret = 0x110000u + (uint8_t)*text; /* no character, so it is equal only to the same byte */
    return 1;
}

/* One end of a range in a class. Returns its length, or 0 if there is none. */
static size_t class_char(const char *at, uint32_t *ret)
{
    size_t escape = *at == '\\';

    if (*at == '\0' || *at == '-' || *at == ']' || at[escape] == '\0')
        return 0;
    return escape + next_char(at + escape, ret);
}

/* A class, behind its `[`. Returns its length with the `]`, or 0 if it is malformed. */
static size_t match_class(const char *pattern, uint32_t c, bool *ret_match)
{
    const char *at = pattern;
    bool negated = *at == '^', match = false;
    size_t n;

    at += negated;
    for (bool first = true; first || *at != ']'; first = false) {
        uint32_t low, high;

        if ((n = class_char(at, &low)) == 0)
            return 0;
        at += n;
        high = low;
        if (*at == '-') {
            if ((n = class_char(at + 1, &high)) == 0)
                return 0;
            at += 1 + n;
        }
        match = match || (low <= c && c <= high);
    }
    *ret_match = match != negated;
    return (size_t)(at + 1 - pattern);
}

bool path_pattern_valid(const char *pattern)
{
    for (const char *at = pattern; *at;) {
        bool match;
        size_t n = 1;

        if (*at == '[')
            n = match_class(at + 1, 0, &match), n += n > 0;
        else if (*at == '\\')
            n = at[1] ? 2 : 0;
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

/* One element of the pattern, which is no star, against one character. Returns false if they differ. */
static bool match_one(const char **pattern, const char **path)
{
    const char *at = *pattern;
    uint32_t c, wanted;
    size_t n = next_char(*path, &c);
    bool match;

    if (*at == '[') {
        size_t len = match_class(at + 1, c, &match);
        if (len == 0 || !match)
            return false;
        at += 1 + len;
    } else if (*at == '?') {
        if (c == '/')
            return false;
        at++;
    } else {
        at += *at == '\\';
        if (*at == '\0')
            return false;
        at += next_char(at, &wanted);
        if (wanted != c)
            return false;
    }
    *pattern = at;
    *path += n;
    return true;
}

bool path_match(const char *pattern, const char *path)
{
    const char *star = NULL, *tried = NULL; /* behind the last star, and where the path was tried from */

    if (!path_pattern_valid(pattern))
        return false;
    while (*path) {
        if (*pattern == '*') {
            star = ++pattern;
            tried = path;
        } else if (*pattern == '\0' || !match_one(&pattern, &path)) {
            if (!star || *tried == '/')
                return false;
            pattern = star;
            path = ++tried;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

bool path_has_wildcard(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == '*' || text[i] == '?' || text[i] == '[')
            return true;
    }
    return false;
}
