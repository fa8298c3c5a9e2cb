/* SPDX-License-Identifier: Apache-2.0 */
/* base.h: ownership attributes, array sizes and checked arithmetic, for every file. */
#ifndef BRIG_BASE_BASE_H
#define BRIG_BASE_BASE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/banned.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define IS_ARRAY(a) (!__builtin_types_compatible_p(__typeof__(a), __typeof__(&(a)[0])))
#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define UNUSED __attribute__((unused))
/* Makes a system call again as long as a signal interrupts it. */
#define RETRY(call)                         \
    __extension__({                         \
        __typeof__(call) ret_;              \
        do                                  \
            ret_ = (call);                  \
        while (ret_ < 0 && errno == EINTR); \
        ret_;                               \
    })

/*
 * Ownership. A variable that is declared as AUTO_FD int fd = -1, or as AUTO_FREE char *p = NULL, is closed or freed at
 * the end of its scope. take_fd(&fd) and take_ptr(&p) hand the value to another owner and empty the variable.
 */
static inline void base_close_fd(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        *fd = -1;
        errno = saved;
    }
}

static inline void base_free_ptr(void *p)
{
    free(*(void **)p);
}

#define AUTO_FD __attribute__((cleanup(base_close_fd)))
#define AUTO_FREE __attribute__((cleanup(base_free_ptr)))

static inline int take_fd(int *fd)
{
    int out = *fd;
    *fd = -1;
    return out;
}

#define take_ptr(pp)                     \
    __extension__({                      \
        __typeof__(*(pp)) took_ = *(pp); \
        *(pp) = NULL;                    \
        took_;                           \
    })

#endif
