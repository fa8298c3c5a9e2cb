/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.c: finds the word that was probably meant. */
#include "cli/suggest.h"

#include <string.h>

#define WORD_MAX 32u

/* How many letters must be put in, taken out, changed or swapped with the next one. Words longer than WORD_MAX are
 * never alike. */
static unsigned distance(const char *a, size_t a_len, const char *b)
{
    size_t b_len = strlen(b);
    unsigned before[WORD_MAX + 1] = {0}, last[WORD_MAX + 1], now[WORD_MAX + 1];

    if (a_len > WORD_MAX || b_len > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= b_len; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        memcpy(before, last, sizeof before);
        memcpy(last, now, sizeof last);
    }
    return last[b_len];
}

void suggest_try(struct suggestion *suggestion, const char *given, size_t len, const char *candidate)
{
    unsigned steps = distance(given, len, candidate);

    /* a third of it may be wrong: of "stpo" that is one letter, of "net-byte-in" three */
    if (steps <= (len + 2) / 3 && steps < len && (!suggestion->word || steps < suggestion->steps)) {
        suggestion->word = candidate;
        suggestion->steps = steps;
    }
}
