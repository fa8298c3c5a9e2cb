/* SPDX-License-Identifier: Apache-2.0 */
/* suggest.h: finds the word that was probably meant: every candidate is tried, and the nearest one stays. */
#ifndef BRIG_CLI_SUGGEST_H
#define BRIG_CLI_SUGGEST_H

#include "base/base.h"

struct suggestion {   /* It begins as zeroes. */
    const char *word; /* NULL if nothing is near. */
    unsigned steps;
};

void suggest_try(struct suggestion *suggestion, const char *given, size_t len, const char *candidate);

#endif
