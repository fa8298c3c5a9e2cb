/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRIG_JAIL_SECCOMP_H
#define BRIG_JAIL_SECCOMP_H
/*
 * seccomp.h: the system call filter of a sandbox. tools/gen_seccomp.c makes it at build time from seccomp_table.h,
 * which has the answer to each call.
 *
 * A filter binds the calling thread and all it starts from then on, pid 1 of the sandbox as well, and cannot be taken
 * off. It is installed last: after it there is no mount, unshare, setns or securebits. All functions are free of
 * allocation and locks, so they may be called between fork and exec.
 */
#include <stdbool.h>
#include <stddef.h>

#include <linux/filter.h>

enum jail_profile {
    JAIL_PROFILE_DEFAULT,
    JAIL_PROFILE_PARANOID, /* no splice family, no SysV and POSIX message IPC, no set-id bits when a file is made */
    JAIL_PROFILE_COMPAT,   /* the filter of default; only /proc differs */
    JAIL_PROFILE_MAX
};

/*
 * Installs the filter on the calling thread. no_new_privs must be set already. Returns 0, -EINVAL (no such profile, or
 * no seccomp in this kernel) or -EACCES (no_new_privs is not set). With set_ids programs may set set-id bits, which
 * paranoid refuses all the same.
 */
__attribute__((warn_unused_result)) int jail_seccomp_install(enum jail_profile profile, bool set_ids);

/*
 * The same for the one program of a sandbox that has /dev/kvm: the filter of default, with the ioctls of KVM and few
 * others.
 */
__attribute__((warn_unused_result)) int jail_seccomp_install_kvm(void);
const struct sock_filter *jail_seccomp_filter_kvm(size_t *ret_len);

/* Returns the instructions, for code that checks or reports them; NULL if there is no such profile. */
const struct sock_filter *jail_seccomp_filter(enum jail_profile profile, bool set_ids, size_t *ret_len);

/*
 * Returns the part of net.core.bpf_jit_limit, which is one number for the host, that a filter takes, rounded up.
 * Measured: 4.7 KB of machine code for 515 instructions (Linux 6.18, x86-64); kernels before 5.18 round up to whole
 * pages.
 */
size_t jail_seccomp_code_bytes(enum jail_profile profile);

/* Returns "default", "paranoid" or "compat"; NULL if there is no such profile. */
const char *jail_profile_name(enum jail_profile profile);

/* Returns the profile of that name, or -EINVAL. */
int jail_profile_from_name(const char *name);

#endif
