/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inject.c: test builds only. BRIG_TEST_FAIL_SYSCALL=N makes the Nth call through SYS() fail with EIO, counted
 * over the spawner and, since a clone copies the counter, on through the sandbox's set-up.
 */
#include <stdlib.h>

#include "jail/sys.h"

int sys_inject(const char *call UNUSED)
{
    static long left = -1;

    if (left < 0) {
        const char *text = getenv("BRIG_TEST_FAIL_SYSCALL");
        left = text ? strtol(text, NULL, 10) : 0;
    }
    if (left == 0)
        return 0;
    return --left == 0 ? EIO : 0;
}
