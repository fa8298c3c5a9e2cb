/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call_filter.h: a seccomp filter for one of our own daemons, put together from lists of system calls.
 *
 * The lists are looked through in the order in which they were added. A call that no rule names is answered EPERM; a
 * call of another architecture ends the process. (The filter of sandboxes is another one: jail/seccomp.h.)
 */
#ifndef BRIG_BASE_CALL_FILTER_H
#define BRIG_BASE_CALL_FILTER_H

#include <brig.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>

#include "base/base.h"

#define CALL_FILTER_MAX 512u /* instructions */
/* The low half of argument n, on a little-endian machine. */
#define CALL_ARG(n) ((uint32_t)(offsetof(struct seccomp_data, args[0]) + 8u * (n)))
#define CALL_IS(nr, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, (action))

struct call_filter {
    struct sock_filter code[CALL_FILTER_MAX];
    size_t n; /* past CALL_FILTER_MAX: something was left out, and the filter cannot be installed */
};

/* Begins a filter with the check of the architecture. The number of the call is loaded then. */
void call_filter_init(struct call_filter *filter);
/* Adds instructions of the caller's own. They begin and end with the number of the call loaded. */
void call_filter_put(struct call_filter *filter, const struct sock_filter *code, size_t n);
/* Adds the same action for each of these calls. */
void call_filter_calls(struct call_filter *filter, const unsigned short *calls, size_t n, uint32_t action);
/* Completes the filter and installs it on all threads of this process. */
int call_filter_install(struct call_filter *filter, struct brig_err *err) MUST_CHECK;

#endif
