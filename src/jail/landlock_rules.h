/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock_rules.h: Landlock's system calls, the rights of a sandbox, and the places that every sandbox has. The jail
 * (landlock.c) and a carried brig-init (confine.c) make their domains of these. No C library is needed; failures are
 * negative errnos.
 */
#ifndef BRIG_JAIL_LANDLOCK_RULES_H
#define BRIG_JAIL_LANDLOCK_RULES_H

#include <linux/landlock.h>

#include "base/base.h"

/* Rights newer than Debian 12's headers (linux/landlock.h of 6.1). */
#define LANDLOCK_TRUNCATE (1ULL << 14)
#define LANDLOCK_IOCTL_DEV (1ULL << 15)

#define LANDLOCK_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define LANDLOCK_READ_EXEC (LANDLOCK_READ | LANDLOCK_ACCESS_FS_EXECUTE)
#define LANDLOCK_WRITE_ALL                                                                        \
    (LANDLOCK_READ_EXEC | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |         \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | \
     LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM |  \
     LANDLOCK_ACCESS_FS_REFER | LANDLOCK_TRUNCATE)

/* It ends with a path of NULL. */
struct landlock_place {
    const char *path;
    uint64_t access;
};
extern const struct landlock_place landlock_places[];

/* Returns the ABI of this kernel, or 0. */
unsigned landlock_abi(void);
/* Rights that the ABI does not know are left out. Returns a descriptor. */
int landlock_ruleset(unsigned abi) MUST_CHECK;
/* A path that does not exist needs no rule. */
int landlock_allow(int ruleset, unsigned abi, const char *path, uint64_t access) MUST_CHECK;
int landlock_allow_fd(int ruleset, unsigned abi, int fd, uint64_t access) MUST_CHECK;
/* The calling thread, and all it starts from then on, is in the domain. no_new_privs must be set. */
int landlock_enter(int ruleset) MUST_CHECK;

#endif
