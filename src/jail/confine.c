/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine.c: the last stages of a sandbox's set-up for a brig-init that no jail has started. It runs once, in pid 1,
 * before anything of the user's, with raw calls only. It needs no capability that pid 1 does not keep.
 *
 * The filter goes on unless the very same is there already: a second one would cost every system call its time. It is
 * told by the answers that no other filter gives together; one of them depends on an argument, because the profile that
 * engines are given (tools/gen_seccomp_oci.c) has the same answers to all other calls. Namespaces, mounts and cgroups
 * are the carrier's work, and cannot be mended from inside.
 */
#include "jail/confine.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "jail/landlock_rules.h"
#include "jail/rawcall.h"
#include "jail/rlimits.h"
#include "jail/seccomp.h"
#include "jail/selfcheck.h"
#include "jail/user.h"

static bool skips(const struct guest_start *start, enum brig_layer layer)
{
    return (start->skip & BRIG_LAYER_BIT(layer)) != 0;
}

static void keep_caps(uint64_t keep)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

    /* Before the sets: dropping needs SETPCAP, which is kept. */
    for (unsigned cap = 0; cap < 64; cap++)
        if (!(keep & (UINT64_C(1) << cap)) && raw_call5(SYS_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0) == -EINVAL)
            break; /* past the last capability of this kernel */
    raw_call5(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (raw_call2(SYS_capget, &head, sets) != 0)
        return;
    for (unsigned i = 0; i < ARRAY_SIZE(sets); i++) {
        sets[i].permitted &= (uint32_t)(keep >> (32 * i));
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0;
    }
    raw_call2(SYS_capset, &head, sets);
}

static void enter_domain(const struct guest_start *start)
{
    unsigned abi = start->landlock_abi;
    int ruleset = landlock_ruleset(abi);
    const char *place = start->strings;
    int r = ruleset < 0
                ? ruleset
                : landlock_allow(ruleset, abi, "/", start->writable_root ? LANDLOCK_WRITE_ALL : LANDLOCK_READ_EXEC);

    for (unsigned i = 0; r == 0 && landlock_places[i].path; i++)
        r = landlock_allow(ruleset, abi, landlock_places[i].path, landlock_places[i].access);
    for (uint32_t i = 0; r == 0 && i < start->n_argv; i++, place += __builtin_strlen(place) + 1)
        r = landlock_allow(ruleset, abi, place, LANDLOCK_WRITE_ALL);
    if (r == 0)
        r = landlock_enter(ruleset);
    if (ruleset >= 0)
        raw_call1(SYS_close, ruleset);
}

/* What the self-check will be refused is possible now. */
static bool comm_is_writable(void)
{
    long fd = raw_call4(SYS_openat, AT_FDCWD, "/proc/self/comm", O_WRONLY | O_CLOEXEC, 0);

    if (raw_failed(fd))
        return false;
    raw_call1(SYS_close, fd);
    return true;
}

static bool filter_is_ours(void)
{
    return raw_call5(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0) == 2 && raw_call1(SYS_unshare, 0) == -EPERM &&
           raw_call5(SYS_keyctl, ~0u, 0, 0, 0, 0) == -ENOSYS &&
           raw_call5(SYS_setsockopt, -1, SOL_SOCKET, SO_BINDTODEVICE, 0, 0) == -EPERM; /* without it EBADF */
}

/* As the jail has it: with root inside programs may set set-id bits, where no place of the host can be written. */
static bool may_set_ids(const struct guest_start *start)
{
    return (start->flags & GUEST_START_ROOT) && start->n_argv == 0;
}

int jail_confine(struct guest_start *start)
{
    int probe = comm_is_writable() ? SELFCHECK_OWN_COMM : SELFCHECK_NO_PROBE;

    for (const struct rlimit_fixed *fixed = rlimits_fixed; fixed->name; fixed++)
        (void)!rlimit_lower(fixed->resource, fixed->value);
    if (!skips(start, BRIG_LAYER_CAPS))
        keep_caps(PID_1_CAPS | (start->flags & GUEST_START_ROOT ? ROOT_INSIDE_CAPS : 0));
    if (!skips(start, BRIG_LAYER_NO_NEW_PRIVS))
        raw_call5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    start->landlock_abi = landlock_abi();
    if (start->landlock_abi > 0 && !skips(start, BRIG_LAYER_LANDLOCK))
        enter_domain(start);
    if (!skips(start, BRIG_LAYER_SECCOMP) && !filter_is_ours())
        (void)!jail_seccomp_install((enum jail_profile)start->profile, may_set_ids(start));
    return probe;
}
