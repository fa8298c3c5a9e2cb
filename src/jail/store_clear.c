/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_clear.c: empties a directory of a store that is a copy. Somebody else's programs filled it, as deep as they
 * liked, so it is done without recursion and without memory: a directory that is not empty is renamed to the top of the
 * store, where it is one more to be emptied. No link is followed.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "jail/plan.h"
#include "jail/sys.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct entry { /* struct linux_dirent64 */
    uint64_t ino, off;
    uint16_t length;
    uint8_t type;
    char name[];
};

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void put_aside_name(char out[32], unsigned number)
{
    (void)snprintf(out, 32, "gone-%u", number);
}

static int remove_entry(int store_fd, int dir, const char *name, unsigned *aside)
{
    char to[32];

    if (SYS(unlinkat(dir, name, 0)) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (SYS(unlinkat(dir, name, AT_REMOVEDIR)) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    put_aside_name(to, *aside);
    if (SYS(renameat(dir, name, store_fd, to)) < 0)
        return -1;
    *aside += 1;
    return 0;
}

/* What the kernel skips while entries go away is found in the next round. */
static int empty(int store_fd, const char *name, unsigned *aside)
{
    for (;;) {
        _Alignas(8) char buffer[4096];
        AUTO_FD int dir = SYS(openat(store_fd, name, OPEN_DIR));
        bool some = false;

        if (dir < 0)
            return -1;
        for (long n; (n = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) != 0;) {
            if (n < 0)
                return -1;
            for (long at = 0; at < n;) {
                const struct entry *entry = (const void *)(buffer + at);
                at += entry->length;
                if (is_dot(entry->name))
                    continue;
                some = true;
                if (remove_entry(store_fd, dir, entry->name, aside) < 0)
                    return -1;
            }
        }
        if (!some)
            return 0;
    }
}

int store_clear(int store_fd, const char *name)
{
    unsigned aside = 0;

    if (empty(store_fd, name, &aside) < 0)
        return -1;
    for (unsigned i = 0; i < aside; i++) {
        char one[32];
        put_aside_name(one, i);
        if (empty(store_fd, one, &aside) < 0 || SYS(unlinkat(store_fd, one, AT_REMOVEDIR)) < 0)
            return -1;
    }
    return 0;
}
