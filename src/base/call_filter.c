/* SPDX-License-Identifier: Apache-2.0 */
/* call_filter.c: builds and installs the seccomp filter of a daemon. */
#include "base/call_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

void call_filter_put(struct call_filter *filter, const struct sock_filter *code, size_t n)
{
    for (size_t i = 0; i < n; i++, filter->n++)
        if (filter->n < CALL_FILTER_MAX)
            filter->code[filter->n] = code[i];
}

void call_filter_init(struct call_filter *filter)
{
    const struct sock_filter begin[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };

    filter->n = 0;
    call_filter_put(filter, begin, ARRAY_SIZE(begin));
}

void call_filter_calls(struct call_filter *filter, const unsigned short *calls, size_t n, uint32_t action)
{
    for (size_t i = 0; i < n; i++) {
        const struct sock_filter code[] = {CALL_IS(calls[i], action)};
        call_filter_put(filter, code, ARRAY_SIZE(code));
    }
}

int call_filter_install(struct call_filter *filter, struct brig_err *err)
{
    const struct sock_filter end[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};

    call_filter_put(filter, end, ARRAY_SIZE(end));
    if (filter->n > CALL_FILTER_MAX)
        return err_set(err, BRIG_E_HOST, E2BIG, "seccomp: %zu instructions, at most %u", filter->n, CALL_FILTER_MAX);
    const struct sock_fprog program = {(unsigned short)filter->n, filter->code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return err_host(err, "seccomp");
    return 0;
}
