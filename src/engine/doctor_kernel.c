/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_kernel.c: checks what the kernel must have. It tries system calls, with arguments that every kernel refuses
 * before it does anything, because distributions bring new calls to old versions and the filters of containers take
 * them away. Where nothing can be tried, the version decides.
 */
#include <fcntl.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/parse.h"
#include "engine/engine_doctor.h"
#include "jail/seccomp.h"

#define NEW_KERNEL "boot Linux 5.14 or newer (Debian 12 has 6.1, Ubuntu 22.04 has 5.15)"
#define NO_FILTER \
    "start the container with --security-opt seccomp=unconfined, or with a seccomp profile that allows them"

static bool try_pidfd(void)
{
    AUTO_FD int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    return fd >= 0;
}

static const struct need {
    const char *name;
    unsigned major, minor;
    bool plain_only, v2_only;
    long call, args[3]; /* These arguments get EINVAL from a kernel that has the call. 0: the version decides. */
} needs[] = {
    {"open_tree", 5, 2, .call = SYS_open_tree, .args = {-1, 0, UINT32_MAX}},
    {"clone3", 5, 3, .call = SYS_clone3},
    {"openat2", 5, 6, .call = SYS_openat2, .args = {-1}},
    {"clone into a cgroup", 5, 7, .v2_only = true},
    {"/proc with subset=pid", 5, 8, .call = 0},
    {"close_range", 5, 9, .call = SYS_close_range, .args = {1, 0, 0}},
    {"overlayfs for plain users", 5, 11, .plain_only = true},
    {"mount_setattr", 5, 12, .call = SYS_mount_setattr, .args = {-1}},
    {"cgroup.kill", 5, 14, .v2_only = true},
};

static bool has_call(const struct need *need)
{
    return syscall(need->call, need->args[0], need->args[1], need->args[2], 0L, 0L) < 0 && errno == EINVAL;
}

/* Appends " NAME (5.12)," and says whether the kernel should have had it. */
static bool lacks(const struct doctor *d, const struct need *need, char *list, size_t size)
{
    size_t len = strlen(list);

    if ((need->plain_only && d->host.privileged) || (need->v2_only && d->cgroup.kind != CGROUP_V2))
        return false;
    bool new_enough = doctor_host_is_at_least(&d->host, need->major, need->minor);
    if (need->call ? has_call(need) : new_enough)
        return false;
    snprintf(list + len, size - len, "%s %s (%u.%u)", len ? "," : "", need->name, need->major, need->minor);
    return new_enough;
}

void find_kernel(const struct doctor *d, struct brig_doctor_row *row)
{
    char list[160] = "";
    bool hidden = false;

    for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
        hidden |= lacks(d, &needs[i], list, sizeof list);
    if (!list[0]) {
        row_on(row, "Linux %s: new enough", d->host.release);
        return;
    }
    row_off(row, "Linux %.40s %s%s", d->host.release, hidden ? "has, but a filter takes away:" : "lacks", list);
    row_fix(row, "%s", hidden ? NO_FILTER : NEW_KERNEL);
}

void find_pidfd(const struct doctor *d, struct brig_doctor_row *row)
{
    if (try_pidfd()) {
        row_on(row, "processes can be held by descriptor");
        return;
    }
    row_off(row, "pidfd_open does not work: %s", strerror(errno));
    row_fix(row, "%s", doctor_host_is_at_least(&d->host, 5, 3) ? NO_FILTER : NEW_KERNEL);
}

void find_seccomp(const struct doctor *d, struct brig_doctor_row *row)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) {
        row_on(row, "system call filters can be installed%s",
               d->host.filtered ? "; this process is under one already" : "");
        return;
    }
    row_off(row, "system call filters are not there: %s", strerror(errno));
    row_fix(row, "%s",
            d->host.filtered ? NO_FILTER
                             : "boot a kernel built with CONFIG_SECCOMP_FILTER=y (all of Debian's and Ubuntu's are)");
}

#define JIT_LIMIT "/proc/sys/net/core/bpf_jit_limit" /* 0600 of root */

void doctor_filter_limit(uint64_t *ret_limit, uint64_t *ret_bytes)
{
    char text[32];

    *ret_bytes = jail_seccomp_code_bytes(JAIL_PROFILE_PARANOID); /* the largest */
    if (fd_read_file(AT_FDCWD, JIT_LIMIT, text, sizeof text) <= 0 || parse_fields(text, ret_limit, 1) != 1)
        *ret_limit = 0;
}

/* All filters of the host share one budget of machine code, sandboxes' filters included. */
void find_filter_room(const struct doctor *d, struct brig_doctor_row *row)
{
    uint64_t limit, bytes;

    (void)d;
    doctor_filter_limit(&limit, &bytes);
    if (limit > 0)
        row_on(row, "net.core.bpf_jit_limit has room for the filters of %llu sandboxes",
               (unsigned long long)(limit / bytes));
    else
        row_on(row, "only root can read net.core.bpf_jit_limit, which bounds the filters of all sandboxes");
}

/* The order of security modules matters, so the one in force is kept; without securityfs, Debian's. */
static void boot_with_landlock(const struct doctor *d, struct brig_doctor_row *row)
{
    char list[160];

    if (fd_read_file(AT_FDCWD, "/sys/kernel/security/lsm", list, sizeof list) <= 0)
        snprintf(list, sizeof list, "lockdown,capability,yama,apparmor,bpf");
    list[strcspn(list, "\n")] = '\0';
    row_fix(row,
            "boot with the parameter lsm=landlock,%s (GRUB_CMDLINE_LINUX in /etc/default/grub), then %supdate-grub "
            "and reboot",
            list, d->host.host_sudo);
}

void find_landlock(const struct doctor *d, struct brig_doctor_row *row)
{
    int abi = d->host.landlock;

    if (abi > 0) {
        row_on(row, "ABI %d%s%s", abi, abi < 3 ? ": no rule for truncation (3)" : "",
               abi < 6 ? "; no scope for signals and sockets (6)" : "");
    } else if (abi == -EOPNOTSUPP) {
        row_off(row, "the kernel has Landlock, but it is not among the security modules of this boot");
        boot_with_landlock(d, row);
    } else if (abi == -ENOSYS && !doctor_host_is_at_least(&d->host, 5, 13)) {
        row_off(row, "Linux %.40s is older than Landlock (5.13)", d->host.release);
        row_fix(row, NEW_KERNEL);
    } else if (abi == -EPERM || d->host.filtered) {
        row_off(row, "a system call filter forbids Landlock: %s", strerror(-abi));
        row_fix(row, NO_FILTER);
    } else {
        row_off(row, "this kernel was built without Landlock");
        row_fix(row, "boot a kernel built with CONFIG_SECURITY_LANDLOCK=y (Debian 12's and Ubuntu 22.04's are)");
    }
}

void find_overlayfs(const struct doctor *d, struct brig_doctor_row *row)
{
    char text[8192] = "";
    bool listed = fd_read_file(AT_FDCWD, "/proc/filesystems", text, sizeof text) > 0 && strstr(text, "\toverlay\n");

    if (d->probe.usable || listed) {
        row_on(row, "%s", d->probe.usable ? "in use by the sandboxes' root" : "the kernel has it");
        return;
    }
    row_off(row, "the kernel has no overlayfs, or its module is not loaded");
    row_fix(row, "%smodprobe overlay", d->host.host_sudo);
}
