/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c: test builds only. BRIG_TEST_FAIL_SYSCALL=N makes the Nth call through SYS() fail with EIO, counted
 * over the spawner and, since a clone copies the counter, on through the sandbox's set-up. With BRIG_TEST_FAIL_TEXT
 * only calls whose source has that text count. BRIG_TEST_FAIL_ERRNO names another errno than EIO.
 */
#include <stdlib.h>
#include <string.h>

#include "jail/sys.h"

int sys_inject(const char *call)
{
    static long left = -1;
    static const char *only;

    if (left < 0) {
        const char *text = getenv("BRIG_TEST_FAIL_SYSCALL");
        left = text ? strtol(text, NULL, 10) : 0;
        only = getenv("BRIG_TEST_FAIL_TEXT");
    }
    if (left == 0 || (only && !strstr(call, only)))
        return 0;
    if (--left != 0)
        return 0;
    const char *errnum = getenv("BRIG_TEST_FAIL_ERRNO");
    return errnum ? (int)strtol(errnum, NULL, 10) : EIO;
}
