/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rawcall.h: system calls without a C library, for code that must also run in brig-init.
 *
 * brig-init has no libc: starting a static glibc program costs about 300 us here (some eighty CPUID
 * instructions, each a trip to the hypervisor), a seventh of the whole budget of a run, and a dozen private
 * pages. So the self-check and brig-init speak to the kernel directly. Every call returns what the kernel
 * returned: a value, or a negative errno. There is no errno, no cancellation and no allocation, which also
 * makes all of it safe in a child that shares its parent's memory.
 *
 * Numbers and structures come from the C library's headers, which match the kernel's on 64-bit machines for
 * what is used here (struct stat, statfs, msghdr, pollfd, timespec); those that do not are declared by hand.
 */
#ifndef BRIG_JAIL_RAWCALL_H
#define BRIG_JAIL_RAWCALL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if !defined(__x86_64__)
#error "rawcall.h: add the system call convention of this architecture"
#endif

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

/* Arguments are longs or pointers; both are one register. */
#define RAW_ARG(x) ((long)(x))
#define raw_call0(nr) raw6((nr), 0, 0, 0, 0, 0, 0)
#define raw_call1(nr, a) raw6((nr), RAW_ARG(a), 0, 0, 0, 0, 0)
#define raw_call2(nr, a, b) raw6((nr), RAW_ARG(a), RAW_ARG(b), 0, 0, 0, 0)
#define raw_call3(nr, a, b, c) raw6((nr), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), 0, 0, 0)
#define raw_call4(nr, a, b, c, d) raw6((nr), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), RAW_ARG(d), 0, 0)
#define raw_call5(nr, a, b, c, d, e) raw6((nr), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), RAW_ARG(d), RAW_ARG(e), 0)
#define raw_call6(nr, a, b, c, d, e, f) \
    raw6((nr), RAW_ARG(a), RAW_ARG(b), RAW_ARG(c), RAW_ARG(d), RAW_ARG(e), RAW_ARG(f))

static inline bool raw_failed(long ret)
{
    return ret < 0 && ret >= -4095;
}

/* Every descriptor from `first` on. The end is the largest that can be: gVisor of 2022 takes a larger number for -1. */
static inline long raw_close_from(unsigned first, unsigned flags)
{
    return raw_call3(SYS_close_range, first, INT32_MAX, flags);
}

#endif
