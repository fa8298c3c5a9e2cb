/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h: what a fuzz target needs. A check that fails aborts, in every build. */
#ifndef BRIG_TESTS_FUZZ_H
#define BRIG_TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FUZZ_CHECK(condition)                                                         \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                  \
        }                                                                             \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
