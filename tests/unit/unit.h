/* SPDX-License-Identifier: Apache-2.0 */
/* unit.h: cmocka with the headers it wants before it, and what several unit tests share. */
#ifndef BRIG_TESTS_UNIT_H
#define BRIG_TESTS_UNIT_H

/* clang-format off: cmocka.h needs these four first */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
/* clang-format on */

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* Bytes from "01 02ff" into out; blanks are for the reader. Returns how many. */
static inline UNUSED size_t unit_hex(const char *text, uint8_t *out, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 0;

    while (*text) {
        if (*text == ' ') {
            text++;
            continue;
        }
        const char *high = strchr(digits, text[0]), *low = strchr(digits, text[1]);
        assert_true(high && low && text[1] != '\0' && n < size);
        out[n++] = (uint8_t)((high - digits) << 4 | (low - digits));
        text += 2;
    }
    return n;
}

static inline UNUSED void unit_assert_hex(const void *data, size_t len, const char *expected)
{
    uint8_t want[4096];
    size_t n = unit_hex(expected, want, sizeof(want));

    assert_int_equal(len, n);
    assert_memory_equal(data, want, n);
}

/* Text without its NUL into the middle of something. */
static inline UNUSED void unit_put(void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
}

/* Descriptors this process has open. */
static inline UNUSED size_t unit_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 3; /* ".", ".." and the directory's own */
}

#endif
