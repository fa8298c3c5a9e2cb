/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user.c: drops to the rights of a program (user.h). It uses raw calls, because brig-init has no C library, and because
 * a C library's setresuid() would want to tell threads that do not exist.
 */
#include "jail/user.h"

#include <sys/prctl.h>

#include "jail/rawcall.h"

static long drop_sets(uint64_t bounding)
{
    long ret = raw_call5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);

    /* May fail without CAP_SETPCAP, outside a sandbox; the self-check then reads `caps` as off. */
    for (unsigned cap = 0; cap < 64; cap++)
        if (bounding & (UINT64_C(1) << cap))
            raw_call5(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0);
    return ret == -EINVAL ? 0 : ret; /* A kernel without an ambient set (gVisor of 2022) has nothing to clear. */
}

long jail_become_user(const struct jail_user *user)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    const uint32_t low = (uint32_t)user->keep, high = (uint32_t)(user->keep >> 32);
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{low, low, 0}, {high, high, 0}};
    long ret;

    if (!user->as_is && (ret = drop_sets(user->bounding & ~user->keep)) != 0)
        return ret;
    /* With one id the kernel refuses setgroups; those groups are the calling user's, and `uid_range` says so. */
    bool clear = raw_call0(SYS_geteuid) != user->uid && raw_call2(SYS_getgroups, 0, NULL) != 0;
    if ((user->n_groups > 0 || clear) && (ret = raw_call2(SYS_setgroups, user->n_groups, user->groups)) != 0)
        return ret;
    if ((ret = raw_call3(SYS_setresgid, user->gid, user->gid, user->gid)) != 0 ||
        (ret = raw_call3(SYS_setresuid, user->uid, user->uid, user->uid)) != 0)
        return ret;
    /* A change of ids sets it to fs.suid_dumpable, which may say otherwise. */
    if ((ret = raw_call5(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)) != 0)
        return ret;
    return user->as_is ? 0 : raw_call2(SYS_capset, &head, sets);
}
