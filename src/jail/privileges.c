/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privileges.c: takes rights from pid 1, and with it from every program: new namespaces, limits of descriptors and
 * memory, the keyring, capabilities.
 *
 * pid 1 keeps five capabilities (user.h) in a user namespace that owns nothing. Programs have none in any set, unless
 * the sandbox has root inside: then pid 1 has those of its root as well, to hand them on.
 */
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "jail/plan.h"
#include "jail/rlimits.h"
#include "jail/sys.h"
#include "jail/user.h"

int enter_sysctl(struct enter *e)
{
    static const char *const zero[] = {
        "user/max_user_namespaces", "user/max_pid_namespaces", "user/max_uts_namespaces",    "user/max_ipc_namespaces",
        "user/max_net_namespaces",  "user/max_mnt_namespaces", "user/max_cgroup_namespaces", "user/max_time_namespaces",
    };
    static const char *const bound[][2] = {{"user/max_inotify_instances", "64"}, {"user/max_inotify_watches", "16384"}};

    if (plan_off(e->plan, BRIG_LAYER_USER_NS))
        return 0; /* they would be the host's */
    for (size_t i = 0; i < ARRAY_SIZE(zero) + ARRAY_SIZE(bound); i++) {
        const char *name = i < ARRAY_SIZE(zero) ? zero[i] : bound[i - ARRAY_SIZE(zero)][0];
        const char *value = i < ARRAY_SIZE(zero) ? "0" : bound[i - ARRAY_SIZE(zero)][1];
        AUTO_FD int fd = SYS(openat(e->sysctl_fd, name, O_WRONLY | O_CLOEXEC));

        TRY(e, name, fd);
        TRY(e, name, SYS(write(fd, value, strlen(value))));
    }
    close(e->sysctl_fd);
    e->sysctl_fd = -1;
    return 0;
}

int enter_session(struct enter *e)
{
    TRY(e, "setsid", SYS(setsid()));
    /*
     * The sandbox gets a keyring of its own, so that not even a kernel lookup (request_key) finds the caller's. EDQUOT
     * means that a plain user's 200 keys are used up. Programs have no key calls at all (seccomp), so that is no reason
     * to refuse.
     */
    if (SYS(syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL)) < 0 && errno != EDQUOT && errno != ENOSYS)
        TRY(e, "session keyring", -1);
    return 0;
}

static int lower(struct enter *e, const char *name, int resource, uint64_t value)
{
    int r = SYS(rlimit_lower(resource, value));

    if (r < 0)
        e->what = name;
    return r;
}

int enter_rlimits(struct enter *e)
{
    const struct brig_limits *l = &e->plan->limits;

    int r = lower(e, "open_files", RLIMIT_NOFILE, l->open_files);

    for (const struct rlimit_fixed *fixed = rlimits_fixed; r == 0 && fixed->name; fixed++)
        r = lower(e, fixed->name, fixed->resource, fixed->value);
    if (r == 0 && l->file_size)
        r = lower(e, "file_size", RLIMIT_FSIZE, l->file_size);
    if (r == 0 && e->plan->rlimit_memory && !plan_off(e->plan, BRIG_LAYER_MEMORY))
        r = lower(e, "memory", RLIMIT_AS, l->memory);
    /* Counted in the new user namespace, which is why this stage comes after it. */
    if (r == 0 && e->plan->rlimit_pids && !plan_off(e->plan, BRIG_LAYER_PIDS))
        r = lower(e, "pids", RLIMIT_NPROC, l->pids);
    return r;
}

/*
 * RLIMIT_NPROC counts each id apart, and programs of root inside, or of a template's users, have 65,536 of them. A user
 * namespace remembers the limit of its maker, and holds the sum of its ids to it (5.14).
 */
int enter_pids_of_all(struct enter *e)
{
    const struct jail_plan *p = e->plan;

    if (plan_owns(p) && p->rlimit_pids && !plan_off(p, BRIG_LAYER_PIDS))
        return lower(e, "pids", RLIMIT_NPROC, p->limits.pids);
    return 0;
}

int enter_low_ports(struct enter *e)
{
    if (!e->plan->root_inside)
        return 0;
    AUTO_FD int fd = SYS(openat(e->sysctl_fd, "net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC));
    TRY(e, "ip_unprivileged_port_start", fd);
    TRY(e, "ip_unprivileged_port_start", SYS(write(fd, "0", 1)));
    return 0;
}

static int drop_bounding(struct enter *e, uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++) {
        if (keep & (UINT64_C(1) << cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            continue;
        if (errno == EINVAL)
            break; /* past the last capability this kernel knows */
        TRY(e, "bounding set", -1);
    }
    return 0;
}

/*
 * With root inside, uid 0 must be a root as programs know it: executing keeps what it has, and a change to another id
 * drops everything. So NOROOT and NO_SETUID_FIXUP are locked as off, and pid 1 keeps its capabilities over execve by
 * its id, without the ambient set. no_new_privs sees to it that no execve gives more than there was. Programs of root
 * may keep what they have over a change of ids (PR_SET_KEEPCAPS), as setpriv(1) does, until they execute something.
 */
int enter_caps(struct enter *e)
{
    bool root = e->plan->root_inside;
    uint64_t keep = PID_1_CAPS | (root ? ROOT_INSIDE_CAPS : 0);
    uint32_t mask = (uint32_t)keep; /* all are below 32 */
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{mask, mask, root ? 0 : mask}, {0, 0, 0}};

    if (plan_off(e->plan, BRIG_LAYER_CAPS))
        return 0;
    int r = drop_bounding(e, keep);
    if (r < 0)
        return r;
    TRY(e, "capset", SYS(syscall(SYS_capset, &header, data)));
    for (int cap = 0; !root && cap < 32; cap++)
        if (mask & (1u << cap))
            TRY(e, "ambient", SYS(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0)));
    TRY(e, "securebits",
        SYS(prctl(PR_SET_SECUREBITS,
                  (root ? 0 : SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS_LOCKED) | SECBIT_NOROOT_LOCKED |
                      SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
                  0, 0, 0)));
    return 0;
}
