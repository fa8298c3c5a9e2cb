/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runner_lockdown.c: takes from a runner what neither it nor a runtime needs, in three stages. It stays root with
 * CAP_SYS_ADMIN: it makes mounts and cgroups, and starts runtimes that make namespaces. Everything that it starts has
 * the same bounds.
 *
 *   1  no core dumps, no new privileges: nothing that it executes gains anything by a set-id bit
 *   2  the bounding set of capabilities: no modules, no raw I/O, no reboot, no clock, no audit, no kernel log
 *   3  seccomp: system calls that change the host's kernel, or read its secrets, fail with EPERM. It is no list of what
 *      is allowed: a Go runtime is among those that inherit it. Programs of sandboxes have the jail's filter too
 */
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/call_filter.h"
#include "base/err.h"
#include "runner/runner.h"

static const unsigned short denied[] = {
    SYS_init_module,     SYS_finit_module,  SYS_delete_module, SYS_kexec_load,  SYS_kexec_file_load, SYS_reboot,
    SYS_swapon,          SYS_swapoff,       SYS_iopl,          SYS_ioperm,      SYS_settimeofday,    SYS_clock_settime,
    SYS_adjtimex,        SYS_clock_adjtime, SYS_acct,          SYS_syslog,      SYS_quotactl,        SYS_lookup_dcookie,
    SYS_perf_event_open, SYS_userfaultfd,   SYS_add_key,       SYS_request_key,
};

/* A sentry holds its programs by these. */
static const unsigned short tracing[] = {SYS_process_vm_readv, SYS_process_vm_writev, SYS_ptrace};

static const int dropped[] = {CAP_SYS_MODULE, CAP_SYS_RAWIO,       CAP_SYS_BOOT,      CAP_SYS_TIME,      CAP_SYSLOG,
                              CAP_MAC_ADMIN,  CAP_MAC_OVERRIDE,    CAP_AUDIT_CONTROL, CAP_AUDIT_READ,    CAP_WAKE_ALARM,
                              CAP_LEASE,      CAP_LINUX_IMMUTABLE, CAP_SYS_PACCT,     CAP_SYS_TTY_CONFIG};

int runner_lockdown(bool traces, struct brig_err *err)
{
    static const struct sock_filter rest[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    static struct call_filter filter;
    struct rlimit none = {0, 0};

    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_host(err, "lock down");
    for (size_t i = 0; i < ARRAY_SIZE(dropped); i++)
        if (prctl(PR_CAPBSET_DROP, dropped[i], 0, 0, 0) < 0 && errno != EINVAL)
            return err_host(err, "lock down: capabilities");
    call_filter_init(&filter);
    call_filter_calls(&filter, denied, ARRAY_SIZE(denied), SECCOMP_RET_ERRNO | EPERM);
    if (!traces)
        call_filter_calls(&filter, tracing, ARRAY_SIZE(tracing), SECCOMP_RET_ERRNO | EPERM);
    call_filter_put(&filter, rest, ARRAY_SIZE(rest));
    return call_filter_install(&filter, err);
}
