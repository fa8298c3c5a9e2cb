/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call_filter.h: a seccomp filter for one of brig's own daemons, made from lists of system calls.
 *
 * The filter looks through the lists in the order in which they were added. A call that no rule names fails with EPERM;
 * a call of another architecture ends the process. Sandboxes have another filter (jail/seccomp.h).
 */
#ifndef BRIG_BASE_CALL_FILTER_H
#define BRIG_BASE_CALL_FILTER_H

#include <brig.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "base/base.h"

#define CALL_FILTER_MAX 512u /* The largest number of instructions. */
/* The low half of argument n, on a little-endian machine. */
#define CALL_ARG(n) ((uint32_t)(offsetof(struct seccomp_data, args[0]) + 8u * (n)))
#define CALL_IS(nr, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, (action))

struct call_filter {
    struct sock_filter code[CALL_FILTER_MAX];
    /* If this is more than CALL_FILTER_MAX, an instruction was left out and the filter cannot be installed. */
    size_t n;
};

/* Begins a filter: checks the architecture, then loads the number of the call. */
void call_filter_init(struct call_filter *filter);
/* Adds instructions that the caller wrote. The number of the call must be loaded before and after them. */
void call_filter_put(struct call_filter *filter, const struct sock_filter *code, size_t n);
/* Adds the same action for each of these calls. */
void call_filter_calls(struct call_filter *filter, const unsigned short *calls, size_t n, uint32_t action);
/* Completes the filter and installs it on all threads of this process. */
int call_filter_install(struct call_filter *filter, struct brig_err *err) MUST_CHECK;

#endif
