/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seccomp.c: puts the ready-made system call filter on the calling thread: one system call over constant data.
 *
 * It does not set no_new_privs (that is a layer of its own, which the self-check reads back), does not link libseccomp,
 * and has no fallback: a filter that cannot be installed is an error, never a weaker filter. No flags: one thread calls
 * it, so there is nothing to synchronise, and speculation controls stay as the kernel has them. The spawner's child
 * installs it, and a carried brig-init, which has no C library (confine.c).
 */
#include <string.h>

#include <linux/seccomp.h>

#include "jail/rawcall.h"
#include "jail/seccomp.h"
#include "seccomp_filters.h"

#ifndef __x86_64__
#error "the system call table is that of x86-64"
#endif

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

struct filter {
    const struct sock_filter *code;
    unsigned short len;
};

static const struct {
    const char *name;
    struct filter plain, set_ids;
} profiles[] = {
    [JAIL_PROFILE_DEFAULT] = {"default",
                              {brig_filter_default, LENGTH(brig_filter_default)},
                              {brig_filter_set_ids, LENGTH(brig_filter_set_ids)}},
    [JAIL_PROFILE_PARANOID] = {"paranoid",
                               {brig_filter_paranoid, LENGTH(brig_filter_paranoid)},
                               {brig_filter_paranoid, LENGTH(brig_filter_paranoid)}},
    [JAIL_PROFILE_COMPAT] = {"compat",
                             {brig_filter_default, LENGTH(brig_filter_default)},
                             {brig_filter_set_ids, LENGTH(brig_filter_set_ids)}},
};
static const struct filter for_kvm = {brig_filter_kvm, LENGTH(brig_filter_kvm)};
_Static_assert(LENGTH(profiles) == JAIL_PROFILE_MAX, "every profile has a name and a filter");
_Static_assert(LENGTH(brig_filter_default) <= BPF_MAXINSNS, "the kernel's bound");
_Static_assert(LENGTH(brig_filter_paranoid) <= BPF_MAXINSNS, "the kernel's bound");
_Static_assert(LENGTH(brig_filter_set_ids) <= LENGTH(brig_filter_default), "a rule less, so it is not the largest");

static int valid(enum jail_profile profile)
{
    return (unsigned)profile < JAIL_PROFILE_MAX;
}

static const struct filter *filter_of(enum jail_profile profile, bool set_ids)
{
    return set_ids ? &profiles[profile].set_ids : &profiles[profile].plain;
}

static int install(const struct filter *filter)
{
    /* The kernel only reads it; its type has no const. */
    const struct sock_fprog prog = {.filter = (struct sock_filter *)(uintptr_t)filter->code, .len = filter->len};

    return (int)raw_call3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog);
}

int jail_seccomp_install(enum jail_profile profile, bool set_ids)
{
    return valid(profile) ? install(filter_of(profile, set_ids)) : -EINVAL;
}

int jail_seccomp_install_kvm(void)
{
    return install(&for_kvm);
}

const struct sock_filter *jail_seccomp_filter_kvm(size_t *ret_len)
{
    *ret_len = for_kvm.len;
    return for_kvm.code;
}

const struct sock_filter *jail_seccomp_filter(enum jail_profile profile, bool set_ids, size_t *ret_len)
{
    if (!valid(profile))
        return NULL;
    *ret_len = filter_of(profile, set_ids)->len;
    return filter_of(profile, set_ids)->code;
}

size_t jail_seccomp_code_bytes(enum jail_profile profile)
{
    const size_t page = 4096, header = 256, per_instruction = 10;

    return valid(profile) ? (profiles[profile].plain.len * per_instruction + header + page - 1) / page * page : 0;
}

const char *jail_profile_name(enum jail_profile profile)
{
    return valid(profile) ? profiles[profile].name : NULL;
}

int jail_profile_from_name(const char *name)
{
    for (int i = 0; i < JAIL_PROFILE_MAX; i++)
        if (strcmp(profiles[i].name, name) == 0)
            return i;
    return -EINVAL;
}
