/* SPDX-License-Identifier: Apache-2.0 */
/*
 * str.h: writes strings into buffers of known size. If a result does not fit, the function returns -ENAMETOOLONG and
 * makes no shorter string, because a name that is cut short is another name. Only str_cut() shortens, and only texts
 * that people read are given to it.
 */
#ifndef BRIG_BASE_STR_H
#define BRIG_BASE_STR_H

#include "base/base.h"

/* Copies text with its NUL. On failure out is the empty string. */
int str_copy(char *out, size_t size, const char *text) MUST_CHECK;
/* Copies between two arrays of which the compiler knows that the text fits: an id into the same id elsewhere. */
#define str_assign(to, from)                                                                                     \
    do {                                                                                                         \
        _Static_assert(IS_ARRAY(to) && IS_ARRAY(from) && sizeof(to) >= sizeof(from), "may not fit: str_copy()"); \
        (void)!str_copy((to), sizeof(to), (from));                                                               \
    } while (0)
/* Copies what fits, for messages: cuts between characters of UTF-8. text may be NULL: then out is the empty string. */
void str_cut(char *out, size_t size, const char *text);
/* Like snprintf(), but returns the length or -ENAMETOOLONG, and then out is the empty string. */
int str_format(char *out, size_t size, const char *format, ...) PRINTF_LIKE(3, 4) MUST_CHECK;

static inline bool str_eq(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Has it 1 to max bytes, the first of `first` and all of `letters`? The sets are those of base/ascii.h. */
bool str_is_name(const char *text, size_t max, const char *first, const char *letters);
bool str_is_variable(const char *text, size_t max); /* [A-Za-z_][A-Za-z0-9_]* */
/* Is it one of these words, which blanks separate? */
bool str_has_word(const char *words, const char *word, size_t len);

static inline bool str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/*
 * Returns the FNV-1a hash of both texts, for tables of a fixed size; b may be NULL. Anybody can find texts that
 * collide, so a table for names from outside needs a seed (table.h).
 */
uint32_t str_hash(const char *a, const char *b);
/* The same for names from outside: the seed is random, or the hash of a text that comes before this one. */
uint64_t str_hash_seeded(uint64_t seed, const char *text);

#endif
