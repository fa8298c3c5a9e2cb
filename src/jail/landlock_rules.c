/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landlock_rules.c: rulesets and rules of Landlock. Rights the kernel does not know yet are left out; the statement
 * names the ABI in force.
 */
#include "jail/landlock_rules.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "jail/rawcall.h"

#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)
#define DEVICES (LANDLOCK_READ | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_TRUNCATE | LANDLOCK_IOCTL_DEV)
#define FILE_RIGHTS                                                                                                  \
    (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_TRUNCATE | \
     LANDLOCK_IOCTL_DEV)

const struct landlock_place landlock_places[] = {
    {"/proc", LANDLOCK_READ},
    {"/dev", DEVICES},
    {"/dev/shm", LANDLOCK_WRITE_ALL},
    {"/workspace", LANDLOCK_WRITE_ALL},
    {"/home/user", LANDLOCK_WRITE_ALL},
    {"/tmp", LANDLOCK_WRITE_ALL},
    {"/var/tmp", LANDLOCK_WRITE_ALL},
    {"/run", LANDLOCK_WRITE_ALL},
    {NULL, 0},
};

/* The attribute as the newest kernel we know takes it; older ones are given the shorter size. */
struct ruleset_attr {
    uint64_t handled_fs, handled_net, scoped;
};

static uint64_t handled_fs(unsigned abi)
{
    uint64_t all = (1ULL << 13) - 1; /* ABI 1: EXECUTE .. MAKE_SYM */

    if (abi >= 2)
        all |= LANDLOCK_ACCESS_FS_REFER;
    if (abi >= 3)
        all |= LANDLOCK_TRUNCATE;
    if (abi >= 5)
        all |= LANDLOCK_IOCTL_DEV;
    return all;
}

unsigned landlock_abi(void)
{
    long abi = raw_call3(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    return abi <= 0 ? 0 : (unsigned)abi;
}

int landlock_ruleset(unsigned abi)
{
    const struct ruleset_attr attr = {.handled_fs = handled_fs(abi),
                                      .scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0};

    return (int)raw_call3(SYS_landlock_create_ruleset, &attr, abi >= 6 ? sizeof(attr) : sizeof(attr.handled_fs), 0);
}

int landlock_allow_fd(int ruleset, unsigned abi, int fd, uint64_t access)
{
    const struct landlock_path_beneath_attr rule = {.parent_fd = fd, .allowed_access = access & handled_fs(abi)};

    return (int)raw_call4(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int landlock_allow(int ruleset, unsigned abi, const char *path, uint64_t access)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    struct stat st = {0};

    if (raw_failed(fd))
        return fd == -ENOENT ? 0 : (int)fd;
    int r = (int)raw_call2(SYS_fstat, fd, &st);
    if (r == 0)
        r = landlock_allow_fd(ruleset, abi, (int)fd, S_ISDIR(st.st_mode) ? access : access & FILE_RIGHTS);
    raw_call1(SYS_close, fd);
    return r;
}

int landlock_enter(int ruleset)
{
    return (int)raw_call2(SYS_landlock_restrict_self, ruleset, 0);
}
